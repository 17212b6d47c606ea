//! What a session's policy, and other sessions, close to an agent's command: it cannot be written, or it is put back and
//! proposed. Whatever layers of the sandbox are missing.

use board_tests::{Engine, Fixture, Viber, board::HOME, eventually, llm::Reply, tasks::id};
use reqwest::{Method, header};
use serde_json::{Value, json};
const MEMORY_TEXT: &str = "# Memory\n\n- The kiosk is in room 4.\n";
const THEIR_PLAN: &str = "# Theirs\n\n- [ ] Build\n";
/// Another session's folder.
const OTHER_SESSION: &str = "ses_01900000-0000-7000-8000-000000000001";

/// A machine whose daemon lacks these layers; its workspace holds a memory, a plan and another session.
async fn lacking(engine: Engine, missing: &[&str]) -> Fixture<Viber> {
    let mut fixture = enrolled(engine, None).await;
    fixture.viber.write("workspace/MEMORY.md", MEMORY_TEXT);
    for layer in missing {
        fixture.viber.fail(&format!("sandbox::{layer}"), "return").await;
    }
    fixture.running().await
}

/// A machine of somebody whom modes bind, with nothing in its memory.
async fn bare() -> Fixture<Viber> {
    let user = rustix::process::geteuid().is_root().then_some(65_534);
    enrolled(Engine::Sqlite, user).await.running().await
}

async fn enrolled(engine: Engine, user: Option<u32>) -> Fixture<Viber> {
    let machine = Viber::fresh_below(&super::escape::base(), "lab", user);
    let setup = Fixture::on(engine).machine(machine).scripted_model([]).tools(&["plan", "memory"]);
    let fixture = setup.with_enrolled_viber().await;
    fixture.viber.write(&format!("workspace/sessions/{OTHER_SESSION}/task.md"), THEIR_PLAN);
    fixture
}

/// What commands do in a workspace that is closed to them, and what is left of it.
trait ClosedWorkspace {
    /// A command of a session that may only propose; it works in the workspace.
    async fn try_in_workspace(&self, command: &str) -> (Value, String);
    /// Nothing stands in the memory, and somebody is asked about what was written there.
    async fn only_proposed(&self, task: &Value, words: &str);
    async fn noticed(&self, task: &Value, words: &str);
    async fn begin(&self, script: Vec<Reply>, more: Value) -> Value;
    async fn over(&self, task: &Value) -> Value;
    /// What a command of the session prints, when all is over.
    async fn shell(&self, command: &str, more: Value) -> (Value, String);
    fn text(&self, path: &str) -> Option<String>;
    /// What waits for a person: proposals of the session, of its `plan` or its `memory`.
    async fn proposals(&self, task: &Value, about: &str) -> Vec<Value>;
    /// What every such story ends with: nothing that is closed says anything new.
    fn unchanged(&self);
}

impl ClosedWorkspace for Fixture<Viber> {
    async fn try_in_workspace(&self, command: &str) -> (Value, String) {
        self.shell(&format!("cd ../home/workspace || exit 1; {command}; echo tried"), proposing()).await
    }

    async fn only_proposed(&self, task: &Value, words: &str) {
        assert_eq!(self.text("MEMORY.md"), None, "{words}");
        let found = self.proposals(task, "memory").await;
        let text = |one: &Value| one["content"].as_str().is_some_and(|text| text.contains(words));
        assert!(found.iter().any(text), "{words}: {found:#?}\n{}", self.viber.log());
        self.noticed(task, "MEMORY.md was changed and has been restored").await;
    }

    async fn noticed(&self, task: &Value, words: &str) {
        let notices = self.events_of_kind(task, "notice").await;
        let told = notices.iter().any(|one| one["text"].as_str().is_some_and(|text| text.contains(words)));
        assert!(told, "{words}: {notices:#?}\n{}", self.viber.log());
    }

    async fn begin(&self, script: Vec<Reply>, more: Value) -> Value {
        self.llm.script(script);
        self.submit_with("work", more).await
    }

    async fn over(&self, task: &Value) -> Value {
        let task = self.ended(task).await;
        assert_eq!(task["state"], "completed", "{task:#}\n{}", self.viber.log());
        task
    }

    async fn shell(&self, command: &str, more: Value) -> (Value, String) {
        let script = vec![Reply::call("shell", json!({ "command": command })), Reply::text("done")];
        let task = self.over(&self.begin(script, more).await).await;
        let said = self.events_of_kind(&task, "tool-result").await;
        (task, said[0]["result"].to_string())
    }

    fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.viber.home().join("workspace").join(path)).ok()
    }

    async fn proposals(&self, task: &Value, about: &str) -> Vec<Value> {
        let path = format!("/api/v1/sessions/{}/{about}/proposals", id(task, "sessionId"));
        let all = self.operator.get(&path).await.expect(200).json();
        let items = all["items"].as_array().expect("a list").iter();
        items.filter(|one| one["state"] == "pending").cloned().collect()
    }

    fn unchanged(&self) {
        assert_eq!(self.text("MEMORY.md").as_deref(), Some(MEMORY_TEXT));
        assert_eq!(self.text(&format!("sessions/{OTHER_SESSION}/task.md")).as_deref(), Some(THEIR_PLAN));
        assert_eq!((self.text("task.md"), self.text(&format!("sessions/{OTHER_SESSION}/new.md"))), (None, None));
    }
}

fn policies() -> Value {
    json!({ "memoryPolicy": "propose", "planPolicy": "propose",
        "plan": { "goal": "Ship it", "steps": [{ "title": "Build" }] } })
}

/// The same without a plan.
fn proposing() -> Value {
    json!({ "memoryPolicy": "propose", "planPolicy": "propose" })
}

/// A command that writes wherever it should not, in every way.
fn oversteps() -> String {
    let workspace = "cd ../home/workspace";
    let ways = [
        "echo '- Written by a command.' >> MEMORY.md".to_owned(),
        "echo '# Mine' > task.md".to_owned(),
        "cat */*/task.md".to_owned(),
        "for f in sessions/*/task.md; do echo '- [ ] Slipped in' >> $f; done".to_owned(),
        format!("echo x > sessions/{OTHER_SESSION}/new.md"),
        "mkdir -p free; echo fine > free/notes.md".to_owned(),
    ];
    format!("{workspace} && {{ {}; }} 2>&1; true", ways.join("; "))
}

async fn written(engine: Engine, missing: &[&str]) {
    let fixture = lacking(engine, missing).await;
    let (task, said) = fixture.shell(&oversteps(), policies()).await;
    fixture.unchanged();
    assert_eq!(fixture.text("free/notes.md").as_deref(), Some("fine\n"), "the rest of the workspace is free: {said}");
    let own = format!("sessions/{}/task.md", id(&task, "sessionId"));
    assert_eq!(fixture.text(&own).as_deref(), Some("# Ship it\n\n- [ ] Build\n"), "{said}");
    // What there was could be closed by a wall, or was put back and is proposed.
    for (about, words) in [("memory", "- Written by a command."), ("plan", "Slipped in")] {
        let found = fixture.proposals(&task, about).await;
        let proposed = found.iter().any(|one| one["content"].as_str().is_some_and(|text| text.contains(words)));
        let refused = ["denied", "Read-only", "not permitted"].iter().any(|word| said.contains(word));
        assert!(proposed || refused, "{about}: {found:#?}\n{said}");
        if missing.len() == 3 {
            assert!(proposed, "{about}: {found:#?}\n{said}");
            let page = format!("/t/{HOME}/sessions/{}?pane={about}", id(&task, "sessionId"));
            let html = fixture.board.owner().await.page(&page).await.expect(200).body;
            let words = words.trim_start_matches("- ");
            let spaced = words.replace(' ', "&#32;");
            assert!(html.contains(words) || html.contains(&spaced), "the page shows it: {html}");
        }
    }
    let notices = fixture.events_of_kind(&task, "notice").await;
    assert!(
        !notices.is_empty() && notices[0]["text"].to_string().contains("has been restored"),
        "people are told: {notices:#?}"
    );
    fixture.board.assert_invariants().await;
}

async fn a138_what_a_command_writes_against_the_policy_is_not_there_afterwards(engine: Engine) {
    written(engine, &[]).await;
}

async fn a139_the_same_where_nothing_confines_commands(engine: Engine) {
    written(engine, &["namespaces", "landlock", "seccomp"]).await;
}

/// The file tools know the same bounds, whatever a path is called.
async fn a140_tools_write_nothing_that_is_closed(engine: Engine) {
    let fixture = lacking(engine, &[]).await;
    let workspace = fixture.viber.home().join("workspace");
    std::os::unix::fs::symlink(workspace.join("MEMORY.md"), fixture.viber.space().join("link")).expect("a link");
    std::os::unix::fs::symlink(workspace.join("sessions"), workspace.join("all")).expect("a link");
    let at = |path: &str| workspace.join(path).display().to_string();
    let paths = [
        at("MEMORY.md"),
        at("free/../MEMORY.md"),
        at("./memory.md"),
        at("task.md"),
        "link".to_owned(),
        at(&format!("sessions/{OTHER_SESSION}/task.md")),
        at(&format!("sessions/{OTHER_SESSION}/deep/new.md")),
        at("sessions/ses_01900000-0000-7000-8000-00000000ffff/new.md"),
        at(&format!("all/{OTHER_SESSION}/new.md")),
    ];
    let mut script: Vec<Reply> =
        paths.iter().map(|path| Reply::call("write_file", json!({ "path": path, "content": "mine" }))).collect();
    let edit = json!({ "path": at("MEMORY.md"), "oldText": "room 4", "newText": "room 5" });
    script.extend([Reply::call("edit_file", edit), Reply::text("done")]);
    std::fs::create_dir(workspace.join("free")).expect("a folder");
    let task = fixture.over(&fixture.begin(script, policies()).await).await;
    let results = fixture.events_of_kind(&task, "tool-result").await;
    assert_eq!(results.len(), paths.len() + 1);
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result["ok"], false, "{n}: {result:#}");
    }
    fixture.unchanged();
    // With the other policy the same session may: its own folder, and the memory. Plans are no files to write, and others'
    // folders stay others'.
    let own = |name: &str| at(&format!("sessions/{}/{name}", id(&task, "sessionId")));
    let others = at(&format!("sessions/{OTHER_SESSION}/new.md"));
    let paths = [at("MEMORY.md"), own("notes.md"), own("task.md"), at("task.md"), others];
    let mut script: Vec<Reply> =
        paths.iter().map(|path| Reply::call("write_file", json!({ "path": path, "content": "mine" }))).collect();
    script.push(Reply::text("done"));
    let free = json!({ "sessionId": task["sessionId"], "memoryPolicy": "apply", "planPolicy": "apply" });
    let task = fixture.over(&fixture.begin(script, free).await).await;
    let results = fixture.events_of_kind(&task, "tool-result").await;
    let ok: Vec<_> = results.iter().map(|result| result["ok"] == true).collect();
    assert_eq!(ok, [true, true, false, false, false], "{results:#?}");
    assert!(results[2]["result"].to_string().contains("`update_plan`"), "it is told how: {results:#?}");
    fixture.board.assert_invariants().await;
}

/// People and commands at the same time: what a person wrote is never lost, and never the agent's.
async fn a141_a_persons_edit_meanwhile_is_not_lost(engine: Engine) {
    for missing in [&[][..], &["namespaces", "landlock", "seccomp"][..]] {
        let fixture = lacking(engine, missing).await;
        let command = "touch here; while [ ! -e go ]; do sleep 0.02; done; echo gone";
        let script = vec![Reply::call("shell", json!({ "command": command })), Reply::text("done")];
        let task = fixture.begin(script, policies()).await;
        let here = fixture.viber.space().join("here");
        eventually("the command runs", async || here.exists().then_some(())).await;
        // One on the Board, one in an editor of the machine.
        let saved = format!("{MEMORY_TEXT}- Saved on the Board.\n");
        let path = format!("/api/v1/vibers/{}/workspace/MEMORY.md", fixture.viber_id);
        let seen = format!("\"{}\"", board_tests::fake_machine::hash(MEMORY_TEXT));
        let put = fixture.operator.request(Method::PUT, &path).header(header::IF_MATCH, seen).body(saved.clone());
        fixture.operator.send(put).await.expect(200);
        fixture.viber.write(&format!("workspace/sessions/{OTHER_SESSION}/task.md"), "# Theirs, saved in an editor\n");
        std::fs::write(fixture.viber.space().join("go"), "").expect("written");
        fixture.over(&task).await;
        assert_eq!(fixture.text("MEMORY.md"), Some(saved), "{missing:?}: what an operator saved stands");
        let edited = fixture.text(&format!("sessions/{OTHER_SESSION}/task.md")).expect("a file");
        if missing.is_empty() && fixture.events_of_kind(&task, "notice").await.is_empty() {
            assert_eq!(edited, "# Theirs, saved in an editor\n", "behind a wall nothing is looked at");
        } else {
            // Nobody can tell whose hand it was: nothing is lost, and nobody is named.
            let trash = fixture.viber.home().join("workspace/.trash");
            let kept = std::fs::read_dir(trash).into_iter().flatten().flatten();
            let kept: Vec<String> = kept.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect();
            let there =
                edited.contains("saved in an editor") || kept.iter().any(|text| text.contains("saved in an editor"));
            assert!(there, "{missing:?}: {edited} {kept:?}");
        }
        assert_eq!(
            fixture.proposals(&task, "memory").await,
            Vec::<Value>::new(),
            "nothing is laid at the agent's door"
        );
        fixture.board.assert_invariants().await;
    }
}

/// An editor saves by another file in the old one's place, around which no wall stands: what is there stays, and people hear
/// that a command may have written to it.
async fn a163_a_file_replaced_while_a_command_runs_is_told(engine: Engine) {
    let fixture = lacking(engine, &[]).await;
    let command = "cd ../home/workspace; touch ../../space/here; while [ ! -e ../../space/go ]; do sleep 0.02; done; \
                   echo '- By a command.' >> MEMORY.md; echo tried";
    let script = vec![Reply::call("shell", json!({ "command": command })), Reply::text("done")];
    let task = fixture.begin(script, policies()).await;
    let (here, go) = (fixture.viber.space().join("here"), fixture.viber.space().join("go"));
    eventually("the command runs", async || here.exists().then_some(())).await;
    let workspace = fixture.viber.home().join("workspace");
    fixture.viber.write("workspace/MEMORY.md.swp", "# Memory, saved in an editor\n");
    std::fs::rename(workspace.join("MEMORY.md.swp"), workspace.join("MEMORY.md")).expect("replaced");
    std::fs::write(go, "").expect("written");
    fixture.over(&task).await;
    let (text, notices) = (fixture.text("MEMORY.md").expect("a file"), fixture.events_of_kind(&task, "notice").await);
    let proposed = fixture.proposals(&task, "memory").await;
    let walled = notices.iter().any(|one| one["text"].to_string().contains("was replaced by another program"));
    // Where there is no wall, a file that changed is put back, and what was in it is proposed.
    assert!(walled || !proposed.is_empty(), "{notices:#?} {text}");
    assert!(!walled || text.starts_with("# Memory, saved in an editor\n"), "an editor's text is not lost: {text}");
    fixture.board.assert_invariants().await;
}

/// Whatever a command breaks around the file that it may not write, its words do not stay there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a167_a_command_that_breaks_the_workspace_leaves_no_words() {
    let fixture = bare().await;
    let ways = [
        "rm -rf .trash; echo x > .trash",
        "rm -rf .trash; ln -s /tmp .trash",
        "rm -rf .trash; echo x > .TRASH",
        "rm -rf .TRASH .trash; mkdir .trash; chmod 000 .trash",
        "chmod 000 MEMORY.md",
        "rm -rf .trash; echo x > .trash; chmod 500 .",
        "chmod 000 .",
    ];
    for (n, way) in ways.iter().enumerate() {
        let words = format!("Slipped in {n}.");
        let (task, said) = fixture.try_in_workspace(&format!("echo '- {words}' > MEMORY.md; {way}")).await;
        assert!(said.contains("tried"), "{way}: {said}");
        fixture.only_proposed(&task, &words).await;
    }
    let (task, _) = fixture.try_in_workspace("cat MEMORY.md; ls -la").await;
    assert_eq!(fixture.events_of_kind(&task, "notice").await, Vec::<Value>::new(), "nothing is left to be told");
    // The same of the session's own plan.
    let own = "for d in sessions/*; do echo '# Slipped in' > $d/task.md; chmod 000 $d; done 2>&1";
    let (task, said) = fixture.try_in_workspace(own).await;
    let path = format!("sessions/{}/task.md", id(&task, "sessionId"));
    assert_eq!(fixture.text(&path), None, "{said}");
    let found = fixture.proposals(&task, "plan").await;
    assert!(found.iter().any(|one| one["content"] == "# Slipped in\n"), "{found:#?}\n{said}");
    fixture.board.assert_invariants().await;
}

/// What one command writes is not what the next one, which begins meanwhile, finds in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a168_two_commands_do_not_vouch_for_each_other() {
    let fixture = bare().await;
    let command = |words: &str, here: &str, go: &str| {
        let before = format!("cd ../home/workspace; {words} touch ../../space/{here}");
        let wait = format!("while [ ! -e ../../space/{go} ]; do sleep 0.02; done");
        Reply::call("shell", json!({ "command": format!("{before}; {wait}; echo '- By {here}.' > MEMORY.md") }))
    };
    let both = vec![
        command("echo '- By one.' > MEMORY.md;", "one", "two"),
        command("", "two", "go"),
        Reply::text("done"),
        Reply::text("done"),
    ];
    let one = fixture.begin(both, proposing()).await;
    let here = fixture.viber.space().join("one");
    eventually("the first one runs", async || here.exists().then_some(())).await;
    let two = fixture.submit_with("work", proposing()).await;
    fixture.over(&one).await;
    fixture.only_proposed(&one, "- By one.").await;
    std::fs::write(fixture.viber.space().join("go"), "").expect("written");
    fixture.over(&two).await;
    fixture.only_proposed(&two, "- By two.").await;
    fixture.board.assert_invariants().await;
}

/// A kill of the daemon leaves nobody to put a file back: the next start does, and asks in the name of the task.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a169_what_a_command_wrote_before_a_kill_is_put_back_at_the_next_start() {
    let mut fixture = bare().await;
    // It goes on writing while it is asked to end, and adds to the file: the kill may come at any time.
    let command = "cd ../home/workspace; trap '' TERM; touch ../../space/here; \
                   for d in sessions/*; do echo '# Slipped in' > $d/task.md; done 2>/dev/null; \
                   while true; do echo '- Slipped in.' >> MEMORY.md; sleep 0.05; done";
    let task = fixture.begin(vec![Reply::call("shell", json!({ "command": command }))], proposing()).await;
    let memory = fixture.viber.home().join("workspace/MEMORY.md");
    let wrote = || std::fs::read_to_string(&memory).is_ok_and(|text| !text.is_empty());
    eventually("the command wrote", async || wrote().then_some(())).await;
    fixture.viber.kill9();
    fixture.viber.run();
    let over = |task: &Value| task["state"] == "error";
    let task = fixture.operator.task_that(id(&task, "id"), "it is over", over).await;
    assert_eq!(task["error"]["code"], "daemon_restarted", "{task:#}");
    fixture.only_proposed(&task, "- Slipped in.").await;
    let path = format!("sessions/{}/task.md", id(&task, "sessionId"));
    assert_eq!(fixture.text(&path), None);
    let found = fixture.proposals(&task, "plan").await;
    assert!(found.iter().any(|one| one["content"] == "# Slipped in\n"), "{found:#?}");
    assert!(fixture.viber.log().contains("MEMORY.md was changed and has been restored"), "{}", fixture.viber.log());
    // It is told once: a person's file that comes later is a person's.
    fixture.viber.write("workspace/MEMORY.md", MEMORY_TEXT);
    fixture.viber.kill9();
    fixture.viber.run();
    let (_, said) = fixture.shell("cat ../home/workspace/MEMORY.md", proposing()).await;
    assert!(said.contains("room 4"), "{said}");
    fixture.board.assert_invariants().await;
}

/// What the trash cannot take is not said to be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a167_what_the_trash_cannot_take_is_told_where_it_is() {
    let mut fixture = lacking(Engine::Sqlite, &["namespaces", "landlock", "seccomp"]).await;
    fixture.viber.fail("workspace::trash", "return").await;
    let way = format!("sessions/{OTHER_SESSION}/task.md");
    let (task, _) = fixture.try_in_workspace(&format!("echo '# Slipped in' > {way}")).await;
    fixture.unchanged();
    fixture.noticed(&task, "what was written there is in the folder state/set-aside of the viber's home").await;
    let kept = std::fs::read_dir(fixture.viber.home().join("state/set-aside")).expect("the folder").flatten();
    let texts: Vec<String> = kept.filter_map(|entry| std::fs::read_to_string(entry.path()).ok()).collect();
    assert_eq!(texts, ["# Slipped in\n"]);
    fixture.board.assert_invariants().await;
}

/// A kill under a task that a person began on the machine: there is no journal of it, and its plan is the workspace's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a169_what_a_command_of_the_machines_own_task_wrote_before_a_kill_is_proposed() {
    let mut fixture = bare().await;
    let command = "cd ../home/workspace; trap '' TERM; echo '# Slipped in' > task.md; \
                   while true; do echo '- Slipped in.' >> MEMORY.md; sleep 0.05; done";
    fixture.llm.script(vec![Reply::call("shell", json!({ "command": command }))]);
    let mut person = fixture.viber.command(&["task", "work"]);
    person.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut person = person.spawn().expect("a person at the machine");
    let wrote = || fixture.text("MEMORY.md").is_some_and(|text| !text.is_empty());
    eventually("the command wrote", async || wrote().then_some(())).await;
    fixture.viber.kill9();
    person.wait().expect("it ends with its daemon");
    fixture.viber.run();
    let session = eventually("its session is on the Board", async || {
        let sessions = fixture.operator.get("/api/v1/sessions").await.expect(200).json();
        sessions["items"].as_array()?.first().map(|session| id(session, "id").to_owned())
    })
    .await;
    for (about, words) in [("plan", "# Slipped in\n"), ("memory", "- Slipped in.")] {
        eventually(about, async || {
            let found = fixture.proposals(&json!({ "sessionId": session }), about).await;
            found.iter().any(|one| one["content"].as_str().is_some_and(|text| text.contains(words))).then_some(())
        })
        .await;
    }
    assert_eq!((fixture.text("task.md"), fixture.text("MEMORY.md")), (None, None));
    let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
    fixture.noticed(&tasks["items"][0], "task.md was changed and has been restored").await;
    fixture.board.assert_invariants().await;
}

/// No command takes the shell from the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a170_one_command_does_not_bar_the_shell_for_the_next() {
    let fixture = bare().await;
    // Of a session that may write there.
    let free = json!({ "memoryPolicy": "apply", "planPolicy": "apply" });
    let ways = [
        "rm -rf MEMORY.md; mkdir -p MEMORY.md/x; chmod 000 MEMORY.md",
        "rm -rf MEMORY.md; ln -s /etc/passwd MEMORY.md",
        "rm -rf MEMORY.md; mkfifo MEMORY.md",
        "rm -rf MEMORY.md; echo '- Allowed.' > MEMORY.md; chmod 000 MEMORY.md",
        "chmod 000 .",
    ];
    for (n, way) in ways.iter().enumerate() {
        fixture.shell(&format!("cd ../home/workspace && {way}"), free.clone()).await;
        let (task, said) = fixture.try_in_workspace("cat MEMORY.md; ls").await;
        assert!(said.contains("tried"), "{way}: {said}");
        if n < 3 {
            fixture.noticed(&task, "what was in the place of MEMORY.md was not a file").await;
        }
    }
    assert_eq!(fixture.text("MEMORY.md").as_deref(), Some("- Allowed.\n"), "what was allowed stays");
    fixture.board.assert_invariants().await;
}

crate::on_both_databases!(
    a163_a_file_replaced_while_a_command_runs_is_told,
    a138_what_a_command_writes_against_the_policy_is_not_there_afterwards,
    a139_the_same_where_nothing_confines_commands,
    a140_tools_write_nothing_that_is_closed,
    a141_a_persons_edit_meanwhile_is_not_lost,
);
