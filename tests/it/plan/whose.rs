//! Whose a plan's lines are: what a person writes while a command runs, what a command writes, and what a crash leaves.

use std::path::PathBuf;

use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

use super::Planning;
use crate::daemon::escape;

fn plan(steps: &[&str]) -> Reply {
    Reply::call("update_plan", json!({ "steps": steps }))
}

/// A viber whose agent may change its plan at once, with a shell that lacks these layers of the sandbox.
async fn at_once(engine: Engine, missing: &[&str]) -> Fixture<Viber> {
    let machine = Viber::fresh_below(&escape::base(), "desk", None);
    let setup = Fixture::on(engine).machine(machine).scripted_model([]).tools(&["plan"]);
    let mut fixture = setup.with_enrolled_viber().await;
    for layer in missing {
        fixture.viber.fail(&format!("sandbox::{layer}"), "return").await;
    }
    fixture.running().await
}

fn plan_file(fixture: &Fixture<Viber>, task: &Value) -> PathBuf {
    fixture.viber.home().join("workspace/sessions").join(id(task, "sessionId")).join("task.md")
}

/// Gives a task with this script, and waits for its command to run.
async fn until_its_command(fixture: &Fixture<Viber>, script: Vec<Reply>) -> Value {
    fixture.llm.script(script);
    let here = fixture.viber.space().join("here");
    let task = fixture.submit_with("work", json!({ "planPolicy": "apply" })).await;
    eventually("the command runs", async || here.exists().then_some(())).await;
    task
}

fn waiting(then: &str) -> Reply {
    let command = format!("touch here; while [ ! -e go ]; do sleep 0.02; done; rm go; {then}");
    Reply::call("shell", json!({ "command": command }))
}

async fn go_on(fixture: &Fixture<Viber>, task: &Value) -> Value {
    std::fs::write(fixture.viber.space().join("go"), "").expect("written");
    let task = fixture.ended(task).await;
    assert_eq!(task["state"], "completed", "{task:#}\n{}", fixture.viber.log());
    task
}

async fn proposed(fixture: &Fixture<Viber>, task: &Value) -> Vec<String> {
    let path = format!("/api/v1/sessions/{}/plan/proposals?state=pending", id(task, "sessionId"));
    let all = fixture.operator.get(&path).await.expect(200).json();
    let items = all["items"].as_array().expect("a list").iter();
    items.filter_map(|one| one["content"].as_str().map(str::to_owned)).collect()
}

/// A person's first line comes while a command runs, and the command then writes over the file: the line is there all the
/// same, and the agent's next plan does not drop it. Without a wall, people are told what happened.
async fn a_persons_line_outlives_the_command_that_ran(engine: Engine) {
    let fixture = at_once(engine, &[]).await;
    let over = "for f in ../home/workspace/sessions/*/task.md; do echo '- [ ] By the command' > $f; done; true";
    let script = vec![plan(&["Build", "Test"]), waiting(over), plan(&["Build", "Other"]), Reply::text("Done.")];
    let task = until_its_command(&fixture, script).await;
    // In an editor that writes the file in its place.
    let file = plan_file(&fixture, &task);
    let text = std::fs::read_to_string(&file).expect("a plan");
    std::fs::write(&file, format!("{text}- [ ] By hand\n")).expect("written");
    let task = go_on(&fixture, &task).await;
    let (text, proposed) = (fixture.file(&task, "task.md"), proposed(&fixture, &task).await);
    let results = fixture.events_of_kind(&task, "tool-result").await;
    let said = format!("{text}\n{proposed:#?}\n{results:#?}");
    if results[1]["result"].to_string().contains("Read-only") {
        assert_eq!(text, "- [ ] Build\n- [ ] Test\n- [ ] By hand\n", "{said}");
        assert!(proposed.iter().any(|one| one.contains("Other") && !one.contains("By hand")), "{said}");
    } else {
        assert!(text.contains("Build") && results[1]["result"].to_string().contains("has been restored"), "{said}");
    }
    fixture.board.assert_invariants().await;
}

/// Where nothing keeps a command from the file, a person's edit during it is put back with the rest, and made again: it is
/// theirs, and the agent only proposes to drop it.
async fn an_edit_while_a_command_runs_is_made_again_where_nothing_is_walled(engine: Engine) {
    let fixture = at_once(engine, &["namespaces", "landlock", "seccomp"]).await;
    let script = vec![plan(&["Build", "Test"]), waiting("true"), plan(&["Build"]), Reply::text("Done.")];
    let task = until_its_command(&fixture, script).await;
    let file = plan_file(&fixture, &task);
    let text = std::fs::read_to_string(&file).expect("a plan");
    std::fs::write(&file, format!("{text}- [ ] By hand\n")).expect("written");
    // The plan of other sessions, which this one has nothing to do with.
    fixture.viber.write("workspace/task.md", "- [ ] On the machine\n");
    let task = go_on(&fixture, &task).await;
    let (text, proposed) = (fixture.file(&task, "task.md"), proposed(&fixture, &task).await);
    assert!(text.contains("By hand"), "{text} {proposed:#?}");
    let machines = std::fs::read_to_string(fixture.viber.home().join("workspace/task.md"));
    assert_eq!(machines.expect("a file"), "- [ ] On the machine\n");
    assert!(proposed.iter().any(|one| one.contains("Build") && !one.contains("By hand")), "{text} {proposed:#?}");
    fixture.board.assert_invariants().await;
}

/// A command that writes the plan's file of a session without one: it becomes the plan by the editor's way, or not at all.
async fn a_plan_that_a_command_writes_is_told(engine: Engine) {
    for missing in [&[][..], &["namespaces", "landlock", "seccomp"][..]] {
        let fixture = at_once(engine, missing).await;
        let write = "for d in ../home/workspace/sessions/*; do echo '- [ ] By the command' > $d/task.md; done";
        let script = vec![Reply::call("shell", json!({ "command": write })), Reply::text("Done.")];
        fixture.llm.script(script);
        let task = fixture.submit_with("work", json!({ "planPolicy": "apply" })).await;
        let task = fixture.ended(&task).await;
        assert_eq!(fixture.file(&task, "task.md"), "- [ ] By the command\n", "{task:#}");
        let notices = fixture.events_of_kind(&task, "notice").await;
        let told = notices.iter().any(|one| one["text"].to_string().contains("it stands in the plan"));
        assert!(told, "{missing:?}: {notices:#?}");
        fixture.board.assert_invariants().await;
    }
}

/// The daemon dies between writing a version of the agent's and recording that it did: its lines stay the agent's.
async fn a_crash_makes_no_agents_line_a_persons(engine: Engine) {
    let mut fixture = at_once(engine, &[]).await;
    fixture.llm.script(vec![plan(&["Build", "Test"]), Reply::text("Done.")]);
    let task = fixture.submit_with("work", json!({ "planPolicy": "apply" })).await;
    let task = fixture.ended(&task).await;
    fixture.viber.fail("plan::written", "1*return(crash)").await;
    fixture.llm.script(vec![plan(&["Design", "Test"])]);
    let next = fixture.operator.follow_up(&task, "more").await;
    fixture.viber.ended().await;
    assert!(fixture.file(&task, "task.md").contains("Design"), "{}", fixture.file(&task, "task.md"));
    fixture.viber.heal().await;
    fixture.viber.run();
    fixture.operator.task_that(id(&next, "id"), "it is over", |task: &Value| task["state"] == "error").await;
    fixture.llm.script(vec![plan(&["Ship"]), Reply::text("Done.")]);
    let last = fixture.operator.follow_up(&task, "again").await;
    fixture.ended(&last).await;
    let text = fixture.file(&task, "task.md");
    assert!(text.contains("Ship") && !text.contains("Design"), "no line of a person's was in it: {text}");
    assert_eq!(proposed(&fixture, &task).await, Vec::<String>::new());
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_persons_line_outlives_the_command_that_ran,
    an_edit_while_a_command_runs_is_made_again_where_nothing_is_walled,
    a_plan_that_a_command_writes_is_told,
    a_crash_makes_no_agents_line_a_persons,
);
