//! What a machine shows: a finished session's tabs, files, memory and spaces of its viber; and the pages before one is in.

use board_tests::{Board, Engine, Fixture, board::HOME, llm::Reply, tasks};
use serde_json::json;

use super::{Purpose, Shots};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_machine_shows_has_its_pictures() {
    visit_machine(&Purpose::Pictures(super::folder())).await;
}

/// A viber with a repository, and the session that worked in it.
pub async fn visit_machine(purpose: &Purpose) {
    let plan = json!({ "goal": "Ship it", "steps": [{ "title": "Build", "status": "done" }, { "title": "Test" }] });
    let script = vec![
        Reply::call("update_plan", plan),
        Reply::call("write_file", json!({ "path": "src/cart.rs", "content": "fn cart() {}\n" })),
        Reply::call("shell", json!({ "command": "seq 1 40; echo no >&2; exit 3" })),
        Reply::call("add_artifact", json!({ "id": "report", "path": "src/cart.rs" })),
        Reply::text("All of it is **there**."),
    ];
    let fixture = Fixture::on(Engine::Sqlite).owner().scripted_model(script).tools(&["plan", "artifact", "memory"]);
    let fixture = fixture.with_viber().await;
    fixture.viber.write("workspace/MEMORY.md", "# Memory\n\n- Invoices are in `billing/`.\n");
    let git = |args: &[&str]| {
        let names = ["-c", "user.name=Mia", "-c", "user.email=mia@example.org", "-c", "init.defaultBranch=main"];
        let mut git = std::process::Command::new("git");
        git.args(names).args(args).current_dir(fixture.viber.space()).env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(git.output().expect("git runs").status.success(), "git {args:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "first"]);
    let task = fixture.play("ship it").await;
    let session = task["sessionId"].as_str().expect("a session").to_owned();
    let viber = format!("/vibers/{}", fixture.viber_id);
    let space = format!("{viber}/spaces/{}", tasks::space(&fixture.viber.space().display().to_string()));
    let pages = [
        ("plan", format!("/sessions/{session}?pane=plan")),
        ("artifacts", format!("/sessions/{session}?pane=artifacts")),
        ("files-tab", format!("/sessions/{session}?pane=files")),
        ("memory-tab", format!("/sessions/{session}?pane=memory")),
        ("context-tab", format!("/sessions/{session}?pane=context")),
        ("session-delete", format!("/sessions/{session}/delete")),
        ("files", format!("{viber}/files")),
        ("file", format!("{viber}/files/MEMORY.md")),
        ("viber-sessions", format!("{viber}/sessions")),
        ("viber-memory", format!("{viber}/memory")),
        ("viber-revoke", format!("{viber}/revoke")),
        ("space", space.clone()),
        ("space-diff", format!("{space}/diff")),
        ("space-log", format!("{space}/log")),
        ("space-files", format!("{space}/files")),
        ("welcome", "/welcome".to_owned()),
    ];
    let url = &fixture.board.url;
    let invited = json!({ "email": "bo@example.org", "role": "viewer" });
    let invited = fixture.owner().post("/api/v1/invitations", &invited).await.expect(201).body;
    let at = invited.find("/invite/vbi_").expect("the link");
    let invitation = format!("{url}{}", invited[at..].split('"').next().expect("a path"));
    let fresh = Board::start(Engine::Sqlite).await;
    let setup = format!("{}{}", fresh.url, fresh.setup_path().await);
    for shots in Shots::on_each_screen(purpose).await {
        for (name, address) in [("setup", &setup), ("invitation", &invitation)] {
            shots.browser.go(address).await;
            shots.browser.find("h1").await;
            shots.take(name).await;
        }
        shots.browser.sign_in(fixture.owner()).await;
        for (name, path) in &pages {
            shots.browser.go(&format!("{url}/t/{HOME}{path}")).await;
            shots.browser.find("h1").await;
            shots.take(name).await;
        }
    }
}
