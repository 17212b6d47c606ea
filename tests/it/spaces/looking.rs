//! What lies in a space, what changed there and since when, as git on the machine tells it.

use board_tests::{Engine, Fixture, board::HOME, llm::Reply, tasks::id};
use serde_json::json;

use super::{Space, changes, code, named, with_space};

crate::on_both_databases!(a_space_is_looked_at_and_never_kept);

async fn a_space_is_looked_at_and_never_kept(engine: Engine) {
    let mut fixture = with_space(engine).await;
    let head = fixture.repository(&[("src/main.rs", "fn main() {}\n"), ("notes.md", "# Notes\n")]);
    let all = fixture.operator.get(&format!("/api/v1/vibers/{}/spaces", fixture.viber_id)).await.expect(200).json();
    let told = fixture.viber.space().display().to_string();
    assert_eq!(all["items"], json!([{ "id": fixture.space(), "path": told, "agents": ["default"] }]));
    let tree = fixture.ask("tree").await.expect(200).json();
    let names: Vec<_> = tree["items"].as_array().expect("items").iter().map(|item| item["name"].clone()).collect();
    assert_eq!(names, ["src", "notes.md"], "git's own folder is not shown");
    assert_eq!(fixture.ask("file?path=src/main.rs").await.expect(200).body, "fn main() {}\n");
    assert_eq!(fixture.ask("file?path=nothing").await.expect(404).code(), "not_found");
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!((&status["branch"], &status["head"], &status["changes"]), (&json!("main"), &json!(head), &json!([])));
    let before = std::fs::read_to_string(fixture.viber.space().join("src/main.rs")).expect("there");
    // Nothing of it can be changed from here, and nothing is kept of it.
    for method in [reqwest::Method::PUT, reqwest::Method::DELETE, reqwest::Method::POST] {
        let path = format!("/api/v1/vibers/{}/spaces/{}/file?path=src/main.rs", fixture.viber_id, fixture.space());
        let answer = fixture.operator.send(fixture.operator.request(method, &path).body("x")).await;
        assert_eq!(answer.status, 405, "{answer:#?}");
    }
    assert_eq!(std::fs::read_to_string(fixture.viber.space().join("src/main.rs")).expect("there"), before);
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    for what in ["tree", "file?path=src/main.rs", "status", "log", "diff?path=src/main.rs"] {
        assert_eq!(code(&fixture.ask(what).await.expect(409)), "viber_away", "{what}");
    }
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let page = person.page(&fixture.page("")).await.expect(200).body;
    assert!(page.contains("This needs the viber."), "{page}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn each_kind_of_change_is_told_with_its_lines() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[
        ("kept.txt", "one\ntwo\nthree\nfour\nfive\nsix\n"),
        ("gone.txt", "x\n"),
        ("-odd name.txt", "a\n"),
        ("image.png", "\0\u{1}"),
        ("crlf.txt", "a\n"),
    ]);
    fixture.git(&["mv", "kept.txt", "moved to.txt"]);
    fixture.write("moved to.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    std::fs::remove_file(fixture.viber.space().join("gone.txt")).expect("removed");
    fixture.write("-odd name.txt", "a\nb\n");
    fixture.write("image.png", "\0\u{2}");
    fixture.write("new/brand new.txt", "fresh\n");
    fixture.write(".gitignore", "ignored/\n");
    fixture.write("ignored/secret.txt", "x\n");
    let status = fixture.ask("status").await.expect(200).json();
    let expected = named(&[
        ("-odd name.txt", "changed"),
        (".gitignore", "new"),
        ("gone.txt", "deleted"),
        ("image.png", "changed"),
        ("moved to.txt", "renamed"),
        ("new/brand new.txt", "new"),
    ]);
    assert_eq!(changes(&status), expected, "{status:#}");
    let of =
        |path: &str| status["changes"].as_array().expect("changes").iter().find(|one| one["path"] == path).cloned();
    let moved = of("moved to.txt").expect("told");
    assert_eq!((&moved["renamedFrom"], &moved["added"], &moved["removed"]), (&json!("kept.txt"), &json!(1), &json!(0)));
    assert_eq!(of("image.png").expect("told")["added"], json!(null));
    let new = of("new/brand new.txt").expect("told");
    assert_eq!((&new["added"], &new["removed"]), (&json!(1), &json!(0)), "of a file that git does not know too");
    let diff = async |query: &str| fixture.ask(&format!("diff?{query}")).await.expect(200).json();
    let moved = diff("path=moved%20to.txt&from=kept.txt").await;
    let text = moved["diff"].as_str().expect("text");
    assert!(text.contains("rename from kept.txt") && text.contains("\n+seven\n"), "{text}");
    assert_eq!(text.matches("\n+").count(), 2, "one line and the header: {text}");
    let odd = diff("path=-odd%20name.txt").await;
    assert!(odd["diff"].as_str().is_some_and(|text| text.ends_with("\n+b\n")), "{odd:#}");
    let image = diff("path=image.png").await;
    assert_eq!((&image["binary"], &image["cut"]), (&json!(true), &json!(false)));
    let new = diff("path=new/brand%20new.txt").await;
    assert!(new["diff"].as_str().is_some_and(|text| text.ends_with("@@ -0,0 +1,1 @@\n+fresh\n")), "{new:#}");
    let gone = diff("path=gone.txt").await;
    assert!(gone["diff"].as_str().is_some_and(|text| text.contains("deleted file") && text.contains("\n-x\n")));
    assert_eq!(diff("path=crlf.txt").await["diff"], json!(""));
    fixture.ask("diff?path=nothing.txt").await.expect(404);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_large_difference_is_cut_and_said_so() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("log.txt", "begin\n")]);
    let line = format!("{}\n", "ü\"\\".repeat(40));
    fixture.write("log.txt", line.repeat(4_000));
    fixture.write("new.txt", line.repeat(4_000));
    for path in ["log.txt", "new.txt"] {
        let diff = fixture.ask(&format!("diff?path={path}")).await.expect(200).json();
        let length = diff["diff"].as_str().expect("text").len();
        assert_eq!(diff["cut"], json!(true), "{path}");
        assert!((200_000..=256 * 1024 + 3).contains(&length), "{path}: {length}");
    }
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let page = person.page(&fixture.page("/diff?path=log.txt")).await.expect(200).body;
    assert!(page.contains("the viber sends the first 256 KiB") || page.contains("more lines are not shown"), "{page}");
    // A file over 1 MiB is shown in part.
    fixture.write("huge.txt", line.repeat(20_000));
    assert_eq!(fixture.ask("file?path=huge.txt").await.status, 206);
    let page = person.page(&fixture.page("/files?path=huge.txt")).await.expect(200).body;
    assert!(page.contains("Shown in part"), "{page}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn what_is_no_repository_is_said_so() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.write("a.txt", "a\n");
    for what in ["status", "log", "diff?path=a.txt"] {
        assert_eq!(code(&fixture.ask(what).await.expect(422)), "no_repository", "{what}");
    }
    fixture.ask("tree").await.expect(200);
    // Before the first commit everything is new.
    fixture.git(&["init", "-q"]);
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!((changes(&status), &status["head"]), (named(&[("a.txt", "new")]), &json!(null)));
    fixture.git(&["add", "a.txt"]);
    assert_eq!(changes(&fixture.ask("status").await.expect(200).json()), named(&[("a.txt", "added")]));
    assert_eq!(fixture.ask("log").await.expect(200).json()["items"], json!([]));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn the_sessions_work_is_what_changed_since_its_first_task_began() {
    let write = |path: &str, content: &str| Reply::call("write_file", json!({ "path": path, "content": content }));
    let script = vec![
        write("by-agent.txt", "one\n"),
        Reply::call(
            "shell",
            json!({ "command": "git add -A && git -c user.name=Agent -c user.email=a@b commit -qm 'By the agent'" }),
        ),
        write("not-committed.txt", "two\n"),
        Reply::text("Done."),
    ];
    let fixture = Fixture::on(Engine::Sqlite).scripted_model(script).with_viber().await;
    let head = fixture.repository(&[("a.txt", "a\n")]);
    fixture.write("before.txt", "was there before\n");
    let before = fixture.commit("before the session");
    let task = fixture.play("work").await;
    let session = id(&task, "sessionId");
    let status = fixture.ask(&format!("status?session={session}")).await.expect(200).json();
    assert_eq!(status["since"]["commit"], json!(before), "{status:#}");
    assert_eq!(changes(&status), named(&[("by-agent.txt", "added"), ("not-committed.txt", "new")]));
    let log = fixture.ask(&format!("log?session={session}")).await.expect(200).json();
    let subjects: Vec<_> = log["items"].as_array().expect("items").iter().map(|one| one["subject"].clone()).collect();
    assert_eq!(subjects, ["By the agent"]);
    let all = fixture.ask("log?limit=2").await.expect(200).json();
    assert_eq!((all["items"].as_array().map(Vec::len), &all["next"]), (Some(2), &json!("2")));
    let rest = fixture.ask("log?limit=2&cursor=2").await.expect(200).json();
    assert_eq!((&rest["items"][0]["hash"], &rest["items"][0]["author"]), (&json!(head), &json!("Mia")));
    let diff = fixture.ask(&format!("diff?path=by-agent.txt&session={session}")).await.expect(200).json();
    assert!(diff["diff"].as_str().is_some_and(|text| text.ends_with("+one\n")), "{diff:#}");
    let now = fixture.ask("diff?path=by-agent.txt").await.expect(200).json();
    assert_eq!(now["diff"], json!(""), "since the last commit nothing changed in it");
    // The beginning outlives the daemon; a second task does not move it.
    let mut fixture = fixture;
    fixture.viber.stop().await;
    fixture.viber.run();
    fixture.viber.connected(&fixture.operator).await;
    let again = fixture.operator.follow_up(&task, "go on").await;
    fixture.operator.task_in(id(&again, "id"), "completed").await;
    let status = fixture.ask(&format!("status?session={session}")).await.expect(200).json();
    assert_eq!(status["since"]["commit"], json!(before));
    fixture.ask("status?session=ses_00000000000000000000000000000000").await.expect(404);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn the_pages_read_without_scripts() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture
        .repository(&[("src/<b>main</b>.rs", "fn main() {}\n"), ("notes.md", "# Notes\n<script>alert(1)</script>\n")]);
    fixture.write("src/<b>main</b>.rs", "fn main() {\n    // <i>\n}\n");
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let page = |what: String| {
        let path = fixture.page(&what);
        let person = &person;
        async move { person.page(&path).await.expect(200).body }
    };
    let shown = page(String::new()).await;
    assert!(shown.contains("&#60;b&#62;main") || shown.contains("&lt;b&gt;main"), "{shown}");
    assert!(shown.contains("hx-get=") && shown.contains("Show the diff"), "{shown}");
    let link = shown.split("hx-get=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a link");
    let diff = person.page(&link.replace("&#38;", "&").replace("&amp;", "&")).await.expect(200).body;
    assert!(diff.contains("data-op=\"add\"") && !diff.contains("<i>"), "{diff}");
    assert!(!diff.contains("Comment on line"), "a viewer, and no session: nothing to comment on");
    let files = page("/files?path=src/".to_owned()).await;
    assert!(files.contains("main"), "{files}");
    let notes = page("/files?path=notes.md".to_owned()).await;
    assert!(notes.contains("<h3>Notes</h3>") && !notes.contains("<script>alert"), "{notes}");
    let source = page("/files?path=notes.md&source=1".to_owned()).await;
    assert!(source.contains("id=\"new2\"") && !source.contains("<script>alert"), "{source}");
    let log = page("/log".to_owned()).await;
    assert!(log.contains("first") && log.contains("Mia"), "{log}");
    let raw = person.page(&fixture.page("/files?path=notes.md&raw=1")).await.expect(200);
    assert_eq!(
        (raw.header("content-type"), raw.header("content-disposition")),
        ("application/octet-stream", "attachment")
    );
    let workspace = person.page(&format!("/t/{HOME}/vibers/{}/files", fixture.viber_id)).await.expect(200).body;
    assert!(workspace.contains(&fixture.page("")), "{workspace}");
    fixture.board.assert_invariants().await;
}
