//! What commands may touch, and that nothing of them outlives a stop.

use board_tests::{Fixture, Viber, canary::Canary, eventually, llm::Reply, tasks::id, viber::processes_with};
use serde_json::{Value, json};

use super::{result, with_scripted_model};

fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({"command": command}))
}

/// Whether this machine's kernel can confine commands.
async fn confined(fixture: &Fixture<Viber>) -> bool {
    let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
    viber["confined"] == true
}

#[tokio::test]
async fn commands_cannot_read_what_is_the_daemons_alone() {
    let canary = Canary::new("a provider's key");
    let home = "$(dirname \"$PWD\")/home";
    let script = vec![
        shell(&format!("cat {home}/config.yaml {home}/state/credential {home}/secrets/* {home}/.env 2>&1; echo over")),
        shell("env; cat /proc/$PPID/environ 2>&1 | tr '\\0' '\\n'"),
        shell("ln -sf ../home/config.yaml link; cat link 2>&1; echo over"),
        Reply::call("read_file", json!({"path": "../home/config.yaml"})),
        Reply::call("read_file", json!({"path": "link"})),
        Reply::text("done"),
    ];
    let fixture = with_scripted_model(script).await;
    fixture.viber.write("secrets/other", &canary.secret);
    fixture.viber.write(".env", &format!("OTHER_KEY={}\n", canary.secret));
    let config = std::fs::read_to_string(fixture.viber.home().join("config.yaml")).expect("its file");
    fixture.viber.write("config.yaml", &config.replace("lab-key", &canary.secret));
    let task = fixture.play("look around").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let confined = confined(&fixture).await;
    for n in 0..5 {
        let (_, text) = result(&fixture, &task, n).await;
        // Without Landlock commands read what their user may; the tools of the daemon never do.
        if confined || n >= 3 {
            canary.not_in(&format!("result {n}"), &text);
        }
    }
    assert!(!result(&fixture, &task, 3).await.0 && !result(&fixture, &task, 4).await.0, "paths stay inside the space");
    let log = serde_json::to_string(&fixture.operator.events(id(&task, "id")).await).expect("JSON");
    if confined {
        canary.not_in("the events", &log);
    }
    canary.not_in("the daemon's log", &fixture.viber.log());
}

#[tokio::test]
async fn commands_write_only_where_they_may() {
    let script = vec![
        shell("echo in > here.txt && cat here.txt"),
        shell(
            "echo out > ../escaped.txt; echo out > $HOME/escaped2.txt; echo $TMPDIR; echo tmp > $TMPDIR/t && cat $TMPDIR/t",
        ),
        Reply::call("write_file", json!({"path": "../escaped3.txt", "content": "out"})),
        Reply::call("write_file", json!({"path": "/etc/escaped4.txt", "content": "out"})),
        Reply::text("done"),
    ];
    let fixture = with_scripted_model(script).await;
    let task = fixture.play("write").await;
    assert_eq!(std::fs::read_to_string(fixture.viber.space().join("here.txt")).expect("written"), "in\n");
    let (_, text) = result(&fixture, &task, 1).await;
    assert!(text.contains("tmp"), "a place for temporary files: {text}");
    if confined(&fixture).await {
        for name in ["escaped.txt", "escaped2.txt"] {
            assert!(!fixture.viber.root().join(name).exists(), "{name}");
        }
    }
    assert!(!result(&fixture, &task, 2).await.0 && !result(&fixture, &task, 3).await.0);
    assert!(!fixture.viber.root().join("escaped3.txt").exists() && !std::path::Path::new("/etc/escaped4.txt").exists());
}

/// A command with children that do not want to die, each recognisable by `mark`.
fn stubborn(mark: &str) -> Reply {
    shell(&format!(
        "sh -c 'trap \"\" TERM; while :; do sleep 1; done; : {mark}' & (setsid sh -c 'while :; do sleep 1; done; : {mark}' &) ; echo began; wait"
    ))
}

async fn alive(mark: &str, at_least: usize) {
    eventually("the commands run", || async { (processes_with(mark).len() >= at_least).then_some(()) }).await;
}

async fn dead(mark: &str) {
    eventually("everything it had started is dead", || async { processes_with(mark).is_empty().then_some(()) }).await;
}

fn mark() -> String {
    format!("mark{}", uuid::Uuid::new_v4().simple())
}

#[tokio::test]
async fn a_stop_ends_everything_that_was_started() {
    let mark = mark();
    let fixture = with_scripted_model(vec![stubborn(&mark), Reply::text("never")]).await;
    let task = fixture.submit("start things").await;
    alive(&mark, 2).await;
    fixture.operator.stop(id(&task, "id")).await.expect(200);
    let stopped =
        fixture.operator.task_that(id(&task, "id"), "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    assert_eq!(stopped["state"], "stopped");
    assert!(processes_with(&mark).is_empty(), "confirmed before it was true: {:?}", processes_with(&mark));
    assert_eq!(fixture.llm.requests().len(), 1);
    let next = fixture.operator.follow_up(&task, "still there?").await;
    assert_eq!(fixture.ended(&next).await["state"], "completed");
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_ended_and_the_model_told() {
    let mark = mark();
    let command = format!("echo before; while :; do sleep 1; done; : {mark}");
    let slow = Reply::call("shell", json!({"command": command, "timeout": 1}));
    let fixture = with_scripted_model(vec![slow, Reply::text("too slow")]).await;
    let task = fixture.play("wait").await;
    assert_eq!(task["result"]["text"], "too slow", "{task:#}");
    let (ok, text) = result(&fixture, &task, 0).await;
    assert!(!ok && text.contains("before"), "what it printed is kept: {text}");
    dead(&mark).await;
}

#[tokio::test]
async fn long_output_is_shown_with_head_and_tail() {
    let fixture = with_scripted_model(vec![shell("seq 1 200000"), Reply::text("counted")]).await;
    let task = fixture.play("count").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let (ok, text) = result(&fixture, &task, 0).await;
    assert!(ok && text.contains("1\n2\n") && text.contains("200000"), "{}", &text[..200]);
    assert!(text.len() < 100_000, "{}", text.len());
    let sent = fixture.llm.requests()[1].body.to_string();
    assert!(sent.len() < 400_000 && sent.contains("200000"));
    let outputs: Vec<Value> = fixture.operator.events(id(&task, "id")).await;
    assert!(outputs.iter().any(|event| event["event"]["type"] == "tool-output"), "streamed while it ran");
}
