//! A viber dies while its tasks only wait: they go on where they were, with the same question, and nothing is done twice.

use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::machine::{approval, asking, decide, lines, said, shell, waiting};

crate::on_both_databases!(
    what_is_allowed_after_the_restart_runs_once,
    what_was_decided_meanwhile_counts,
    a_viber_that_stops_in_order_leaves_its_questions_open,
    a_budget_is_granted_while_the_viber_is_away,
    a_held_task_is_held_until_somebody_resumes_it,
    who_wants_it_to_try_now_is_heard_while_the_viber_is_away,
    what_is_said_meanwhile_is_heard_and_a_stop_is_a_stop,
    a_question_whose_time_passed_meanwhile_is_denied,
    killed_around_the_record_nothing_is_asked_or_done_twice,
    a_record_that_the_disk_does_not_give_back_is_none,
    what_the_machine_no_longer_allows_ends_by_its_name,
    a_task_at_rest_holds_up_no_other,
);

/// The viber is killed while this is asked.
async fn killed_while_asking(fixture: &mut Fixture<Viber>) -> Value {
    let asked = waiting(fixture, 1).await.remove(0);
    fixture.viber.kill9();
    asked
}

/// Runs the viber again; the question is the same one.
async fn asks_the_same(fixture: &mut Fixture<Viber>, before: &Value) {
    fixture.viber.run_again(&fixture.operator).await;
    let after = waiting(fixture, 1).await.remove(0);
    assert_eq!((&after["id"], &after["digest"]), (&before["id"], &before["digest"]));
}

/// How many events of a task are of this type.
async fn events(fixture: &Fixture<Viber>, task: &Value, kind: &str) -> usize {
    let all = fixture.operator.events(id(task, "id")).await;
    all.iter().filter(|event| event["event"]["type"] == kind || event["type"] == kind).count()
}

fn records(fixture: &Fixture<Viber>) -> Vec<std::path::PathBuf> {
    let all = std::fs::read_dir(fixture.viber.home().join("state/waiting")).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).collect()
}

async fn done(fixture: &Fixture<Viber>, task: &Value, requests: usize) {
    let done = fixture.ended(task).await;
    assert_eq!(done["result"]["text"], "Done.", "{done:#}");
    assert_eq!((&done["attempt"], fixture.llm.requests().len()), (&json!(1), requests));
    eventually("nothing is at rest", async || records(fixture).is_empty().then_some(())).await;
    fixture.board.assert_invariants().await;
}

fn one_call() -> Vec<Reply> {
    vec![shell("echo one >> ran"), Reply::text("Done.")]
}

async fn what_is_allowed_after_the_restart_runs_once(engine: Engine) {
    let mut fixture = asking(engine, one_call()).await;
    let task = fixture.submit("go").await;
    let asked = killed_while_asking(&mut fixture).await;
    asks_the_same(&mut fixture, &asked).await;
    // And once more.
    fixture.viber.kill9();
    asks_the_same(&mut fixture, &asked).await;
    assert_eq!((lines(&fixture, "ran"), fixture.llm.requests().len()), (0, 1));
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    done(&fixture, &task, 2).await;
    assert_eq!(lines(&fixture, "ran"), 1);
    assert_eq!(events(&fixture, &task, "approval-required").await, 1);
    assert_eq!(events(&fixture, &task, "task:started").await, 1);
    assert_eq!(approval(&fixture, &asked).await["consequence"]["ok"], true);
}

async fn what_was_decided_meanwhile_counts(engine: Engine) {
    let mut fixture = asking(engine, one_call()).await;
    let task = fixture.submit("go").await;
    let asked = killed_while_asking(&mut fixture).await;
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    fixture.viber.run();
    done(&fixture, &task, 2).await;
    assert_eq!(lines(&fixture, "ran"), 1);
    assert_eq!(approval(&fixture, &asked).await["consequence"]["ok"], true);
}

async fn a_viber_that_stops_in_order_leaves_its_questions_open(engine: Engine) {
    let mut fixture = asking(engine, vec![shell("echo one >> ran"), Reply::text("Done.")]).await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let status = fixture.viber.stop().await;
    assert!(status.success(), "{status}");
    assert_eq!(records(&fixture).len(), 1);
    asks_the_same(&mut fixture, &asked).await;
    decide(&fixture, &asked, json!({ "decision": "deny", "note": "Not on a Friday." })).await.expect(200);
    done(&fixture, &task, 2).await;
    assert_eq!(lines(&fixture, "ran"), 0);
    assert!(said(fixture.llm.requests().last().expect("a request")).contains("Not on a Friday."));
}

async fn a_budget_is_granted_while_the_viber_is_away(engine: Engine) {
    let look = || Reply::call("list_files", json!({ "path": "." }));
    let mut fixture = asking(engine, vec![look(), look(), Reply::text("Done.")]).await;
    let task = fixture.submit_with("go", json!({ "limits": { "toolCalls": 1 } })).await;
    let asked = killed_while_asking(&mut fixture).await;
    assert_eq!(asked["kind"], "budget", "{asked:#}");
    decide(&fixture, &asked, json!({ "decision": "allow", "grant": { "toolCalls": 1 } })).await.expect(200);
    fixture.viber.run();
    done(&fixture, &task, 3).await;
    assert_eq!(events(&fixture, &task, "approval-required").await, 1);
}

async fn a_held_task_is_held_until_somebody_resumes_it(engine: Engine) {
    let mut fixture = asking(engine, one_call()).await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let verb = |verb: &str| format!("/api/v1/tasks/{}/{verb}", id(&task, "id"));
    // What comes while the viber is away is done when it is back: the call, and then the hold.
    fixture.viber.kill9();
    fixture.operator.post(&verb("pause"), &json!({})).await.expect(200);
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    fixture.viber.run();
    let is_held = |task: &Value| task["waiting"]["for"] == "paused";
    fixture.operator.task_that(id(&task, "id"), "held", is_held).await;
    fixture.viber.kill9();
    fixture.viber.run_again(&fixture.operator).await;
    fixture.operator.task_that(id(&task, "id"), "still held", is_held).await;
    assert_eq!((lines(&fixture, "ran"), fixture.llm.requests().len()), (1, 1));
    fixture.viber.kill9();
    fixture.operator.post(&verb("resume"), &json!({})).await.expect(200);
    fixture.viber.run();
    done(&fixture, &task, 2).await;
    assert_eq!(lines(&fixture, "ran"), 1);
}

async fn who_wants_it_to_try_now_is_heard_while_the_viber_is_away(engine: Engine) {
    let busy = Reply::Fault { status: 429, headers: vec![("retry-after", "3600".into())], body: "{}".to_owned() };
    let mut fixture = asking(engine, vec![busy, Reply::text("Done.")]).await;
    let task = fixture.submit("go").await;
    let waits = |task: &Value| task["waiting"]["for"] == "rate_limit";
    fixture.operator.task_that(id(&task, "id"), "it waits for the provider", waits).await;
    fixture.viber.kill9();
    let resume = format!("/api/v1/tasks/{}/resume", id(&task, "id"));
    fixture.operator.post(&resume, &json!({})).await.expect(200);
    fixture.viber.run();
    done(&fixture, &task, 2).await;
    assert_eq!(events(&fixture, &task, "task:started").await, 1);
}

async fn what_is_said_meanwhile_is_heard_and_a_stop_is_a_stop(engine: Engine) {
    let mut fixture = asking(engine, one_call()).await;
    let task = fixture.submit("go").await;
    killed_while_asking(&mut fixture).await;
    let path = format!("/api/v1/tasks/{}/messages", id(&task, "id"));
    let message = json!({ "content": "Leave that.", "injectionMode": "steer" });
    fixture.operator.post(&path, &message).await.expect(202);
    fixture.viber.run();
    done(&fixture, &task, 2).await;
    assert_eq!(lines(&fixture, "ran"), 0);
    let told = said(fixture.llm.requests().last().expect("a request"));
    assert!(told.contains("Leave that.") && told.contains("stepped in"), "{told}");

    fixture.llm.script(one_call());
    let task = fixture.submit("again").await;
    killed_while_asking(&mut fixture).await;
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", id(&task, "id")), &json!({})).await.expect(200);
    fixture.viber.run();
    let confirmed = |task: &Value| task["stopConfirmedAt"].is_string();
    let stopped = fixture.operator.task_that(id(&task, "id"), "the stop is confirmed", confirmed).await;
    assert_eq!((&stopped["state"], lines(&fixture, "ran")), (&json!("stopped"), 0));
    eventually("nothing is at rest", async || records(&fixture).is_empty().then_some(())).await;
}

async fn a_question_whose_time_passed_meanwhile_is_denied(engine: Engine) {
    let mut fixture = asking(engine, one_call()).await;
    let task = fixture.submit("go").await;
    let asked = killed_while_asking(&mut fixture).await;
    // As if the viber had been away for a day: a record says when its question's time is over.
    let file = records(&fixture).remove(0);
    let text = std::fs::read_to_string(&file).expect("a record");
    let (head, record) = text.split_once("\"record\":").expect("a record");
    assert!(head.contains("\"version\":1"), "{head}");
    let record = record.strip_suffix('}').expect("an object");
    // The viber's own clock has the word: the Board's is another one.
    let (_, until) = record.split_once("\"expiresAt\":\"").expect("an end");
    let until = until.split('"').next().expect("an instant").to_owned();
    let record = record.replace(&until, "2024-01-01T00:00:00.000Z");
    let hash: String = Sha256::digest(record.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    let late = format!("{{\"version\":1,\"sha256\":\"{hash}\",\"record\":{record}}}");
    std::fs::write(&file, late).expect("written");
    fixture.viber.run();
    done(&fixture, &task, 2).await;
    assert_eq!(lines(&fixture, "ran"), 0);
    assert_eq!(approval(&fixture, &asked).await["state"], "expired");
    assert!(said(fixture.llm.requests().last().expect("a request")).contains("nobody answered"));
}

async fn killed_around_the_record_nothing_is_asked_or_done_twice(engine: Engine) {
    let mut fixture = asking(engine, one_call()).await;
    // The record is on the disk, and nobody was asked yet.
    fixture.viber.fail("rest::after_record", "1*return(crash)").await;
    let task = fixture.submit("go").await;
    fixture.viber.ended().await;
    fixture.viber.heal().await;
    assert_eq!(events(&fixture, &task, "approval-required").await, 0);
    fixture.viber.run();
    let asked = waiting(&fixture, 1).await.remove(0);
    // Decided, and the record is still there: the decision is on the disk, too.
    fixture.viber.fail("rest::before_removal", "1*return(crash)").await;
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    fixture.viber.ended().await;
    fixture.viber.heal().await;
    assert_eq!(lines(&fixture, "ran"), 0);
    fixture.viber.run();
    done(&fixture, &task, 2).await;
    assert_eq!((lines(&fixture, "ran"), events(&fixture, &task, "approval-required").await), (1, 1));

    // Without the record it was about to run, and may have.
    fixture.llm.script(one_call());
    let task = fixture.submit("again").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    fixture.viber.fail("rest::after_removal", "1*return(crash)").await;
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    fixture.viber.ended().await;
    fixture.viber.heal().await;
    fixture.viber.run();
    let broken = fixture.ended(&task).await;
    assert_eq!(broken["error"]["code"], "daemon_restarted", "{broken:#}");
    assert_eq!((lines(&fixture, "ran"), fixture.llm.requests().len()), (1, 3));
    assert!(approval(&fixture, &asked).await["consequence"].is_null(), "never as if it had run");
    fixture.board.assert_invariants().await;
}

async fn a_record_that_the_disk_does_not_give_back_is_none(engine: Engine) {
    let mut fixture = asking(engine, [one_call(), one_call()].concat()).await;
    // Before the question is reported, and before the wait.
    fixture.viber.fail("rest::torn_record", "2*return(error)").await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let waits = |task: &Value| task["waiting"]["for"] == "approval";
    fixture.operator.task_that(id(&task, "id"), "it waits", waits).await;
    assert_eq!(records(&fixture), Vec::<std::path::PathBuf>::new());
    // Nothing else is lost with it.
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    done(&fixture, &task, 2).await;

    fixture.viber.fail("rest::torn_record", "2*return(error)").await;
    let task = fixture.submit("again").await;
    killed_while_asking(&mut fixture).await;
    fixture.viber.heal().await;
    fixture.viber.run();
    let broken = fixture.ended(&task).await;
    assert_eq!(broken["error"]["code"], "daemon_restarted", "{broken:#}");
    let set_aside = std::fs::read_dir(fixture.viber.home().join("state/damaged")).map_or(0, Iterator::count);
    assert_eq!((lines(&fixture, "ran"), set_aside), (1, 0));
    fixture.board.assert_invariants().await;
}

async fn what_the_machine_no_longer_allows_ends_by_its_name(engine: Engine) {
    let mut fixture =
        asking(engine, vec![shell("echo one >> ran"), shell("echo one >> ran"), shell("echo one >> ran")]).await;
    let file = std::fs::read_to_string(fixture.viber.home().join("agents/default.yaml")).expect("the agent's file");
    for (change, code, word) in
        [("rule", "", ""), ("space", "not_found", "no folder any more"), ("agent", "not_found", "no agent")]
    {
        let task = fixture.submit("go").await;
        let asked = killed_while_asking(&mut fixture).await;
        match change {
            "rule" => fixture.viber.write("policy.yaml", "deny: [shell]\n"),
            "space" => std::fs::remove_dir_all(fixture.viber.space()).expect("removed"),
            _ => std::fs::remove_file(fixture.viber.home().join("agents/default.yaml")).expect("removed"),
        }
        decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
        if change == "rule" {
            fixture.llm.script([Reply::text("Done."), shell("echo one >> ran"), shell("echo one >> ran")]);
            fixture.viber.run();
            done(&fixture, &task, 2).await;
            assert_eq!(approval(&fixture, &asked).await["consequence"], Value::Null);
            std::fs::remove_file(fixture.viber.home().join("policy.yaml")).expect("removed");
            fixture.viber.kill9();
            fixture.viber.run_again(&fixture.operator).await;
        } else {
            fixture.viber.run();
            let ended = fixture.ended(&task).await;
            let said = ended["error"]["message"].as_str().unwrap_or_default();
            assert!(ended["error"]["code"] == code && said.contains(word), "{ended:#}");
            assert!(records(&fixture).is_empty());
            let _ = std::fs::create_dir(fixture.viber.space());
            fixture.viber.write("agents/default.yaml", &file);
        }
        assert_eq!(lines(&fixture, "ran"), 0, "{change}");
    }
    fixture.board.assert_invariants().await;
}

async fn a_task_at_rest_holds_up_no_other(engine: Engine) {
    let script = vec![shell("echo one >> ran"), Reply::text("Meanwhile."), Reply::text("Done.")];
    let mut fixture = asking(engine, script).await;
    fixture.viber.kill9();
    let config = format!("{}maxTasks: 1\n", fixture.llm.config("openai"));
    fixture.viber.write("config.yaml", &config);
    fixture.viber.run_again(&fixture.operator).await;
    let first = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let other = fixture.submit("something else").await;
    assert_eq!(fixture.ended(&other).await["result"]["text"], "Meanwhile.");
    // One whose place is taken waits for it, decided or not, also in the next process.
    fixture.llm.script([shell("sleep 30"), Reply::text("Done.")]);
    fixture.viber.kill9();
    fixture.viber.write("agents/busy.yaml", &fixture.viber.agent("mode: always_execute\n"));
    asks_the_same(&mut fixture, &asked).await;
    let busy = fixture.submit_with("be busy", json!({ "agentId": "busy" })).await;
    fixture.operator.task_that(id(&busy, "id"), "busy", |task| task["state"] == "running").await;
    eventually("it is busy", async || (fixture.llm.requests().len() == 3).then_some(())).await;
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    let status = fixture.viber.cli(&["status"]).await;
    assert_eq!(lines(&fixture, "ran"), 0, "its place is taken: {status:?}");
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", id(&busy, "id")), &json!({})).await.expect(200);
    done(&fixture, &first, 4).await;
    assert_eq!(lines(&fixture, "ran"), 1);
}
