//! A request that was too long is made smaller by itself, one attempt for each way, and nothing that was done is done again.

use board_tests::{
    Engine, FakeDaemon, Fixture,
    fake_daemon::{accepted, completed, progress, started, stopped, text},
};
use protocol::{BootId, BudgetProgress, Command, EventBody, TaskLimits, TaskSubmit, TurnPart};
use serde_json::{Value, json};

use super::{
    call,
    compact::{SUMMARY, carried, end, has, long, next, sums_up, told},
    context,
};

fn too_long(window: Option<u64>) -> EventBody {
    let mut error = json!({ "code": "context_overflow", "message": "prompt is too long", "retryable": false });
    if let Some(window) = window {
        error["details"] = json!({ "currentTokens": 2 * window, "maxTokens": window });
    }
    EventBody::Error { error: serde_json::from_value(error).expect("an error") }
}

/// An attempt that reads a file, and whose next request is too long.
async fn fails(fixture: &mut Fixture<FakeDaemon>, submit: &TaskSubmit, file: &str) {
    let whole = json!(format!("{file} begins\n{}{file} ends\n", "a line\n".repeat(300)));
    let mut events = vec![accepted(), started()];
    events.extend(call(file, "read_file", &json!({ "path": file }), &whole));
    events.push(too_long(None));
    fixture.viber.report(&submit.task_id, submit.attempt, 1, events).await;
}

async fn summarizes(fixture: &mut Fixture<FakeDaemon>, submit: &TaskSubmit) {
    assert!(submit.compact.is_some(), "a summary is asked for: {}", submit.goal);
    let events = vec![accepted(), started(), text(SUMMARY), completed(SUMMARY)];
    fixture.viber.report(&submit.task_id, 1, 1, events).await;
}

/// The results that a request carries of calls, by their ids.
fn results(submit: &TaskSubmit) -> Vec<(&str, &str)> {
    let parts = submit.messages.iter().flat_map(|turn| &turn.parts);
    let calls = parts.filter_map(|part| match part {
        TurnPart::ToolCall { call_id, result, .. } => Some((call_id.as_str(), result.as_str())),
        _ => None,
    });
    calls.collect()
}

async fn task(fixture: &Fixture<FakeDaemon>, id: &str) -> Value {
    fixture.operator.get(&format!("/api/v1/tasks/{id}")).await.expect(200).json()
}

/// Whether nothing is left to be done in any session.
async fn is_idle(fixture: &Fixture<FakeDaemon>) -> bool {
    for state in ["pending", "running"] {
        let open = fixture.operator.get(&format!("/api/v1/tasks?state={state}")).await.expect(200).json();
        if open["items"] != json!([]) {
            return false;
        }
    }
    true
}

async fn asks(fixture: &mut Fixture<FakeDaemon>, goal: &str) -> TaskSubmit {
    let session = fixture.session().to_owned();
    let body = json!({ "sessionId": session, "context": { "currentFile": "src/rain.rs" } });
    fixture.submit_with(goal, body).await;
    fixture.viber.submitted().await
}

async fn each_way_is_tried_once_and_goes_on_from_what_was_done(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let first = asks(&mut fixture, "Look into the rain").await;
    assert!(first.context.is_some() && has(&first, 6));
    fails(&mut fixture, &first, "a").await;

    let summary = fixture.viber.submitted().await;
    let waits = task(&fixture, first.task_id.as_str()).await;
    assert_eq!(
        (&waits["state"], &waits["delivery"], &waits["attempt"]),
        (&json!("pending"), &json!("queued"), &json!(2))
    );
    assert!(has(&summary, 5) && !has(&summary, 7), "the newest turns stand: {}", carried(&summary).len());
    summarizes(&mut fixture, &summary).await;
    let second = fixture.viber.submitted().await;
    assert_eq!((&second.task_id, second.attempt, second.goal.as_str()), (&first.task_id, 2, "Look into the rain"));
    assert!(sums_up(&second, SUMMARY) && !has(&second, 0) && has(&second, 8) && second.context.is_some());
    assert!(matches!(results(&second)[..], [("a", result)] if result.contains("a ends")), "{:?}", results(&second));
    assert!(carried(&second).ends_with("What was asked follows once more."), "{}", carried(&second));
    fails(&mut fixture, &second, "b").await;

    let third = fixture.viber.submitted().await;
    assert!(third.compact.is_none() && third.attempt == 3 && third.context.is_some() && !third.no_files);
    let lines = results(&third);
    assert_eq!(lines.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["a", "b"]);
    assert!(lines.iter().all(|(_, result)| result.starts_with("[tool: read_file(")), "{lines:?}");
    fails(&mut fixture, &third, "c").await;

    let fourth = fixture.viber.submitted().await;
    assert!(fourth.attempt == 4 && fourth.no_files && fourth.context.is_none());
    assert_eq!(results(&fourth).len(), 3, "all that was done");
    fails(&mut fixture, &fourth, "d").await;

    // The last way is another session.
    let transfer = fixture.viber.submitted().await;
    let failed = task(&fixture, first.task_id.as_str()).await;
    assert_eq!((&failed["state"], rungs(&failed)), (&json!("error"), vec!["summary", "result_lines", "no_files"]));
    let suggestion = failed["error"]["suggestion"].as_str().expect("a suggestion");
    assert!(suggestion.contains("asked again in a new session"), "{suggestion}");
    let page = fixture.owner().get(&format!("/t/home/sessions/{}", fixture.session())).await.expect(200).body;
    assert!(page.contains("attempt 2: the request was too long, older turns became a summary"));
    summarizes(&mut fixture, &transfer).await;
    let moved = fixture.viber.submitted().await;
    assert_eq!((moved.goal.as_str(), moved.attempt), ("Look into the rain", 1));
    assert!(moved.session_id != first.session_id && sums_up(&moved, SUMMARY) && !has(&moved, 8));

    let failed = task(&fixture, first.task_id.as_str()).await;
    let suggestion = failed["error"]["suggestion"].as_str().expect("a suggestion");
    assert!(suggestion.ends_with("(continued)”."), "{suggestion}");

    // There is nothing before it: what is left out now are files, and then it ends.
    fails(&mut fixture, &moved, "a").await;
    for attempt in [2, 3] {
        let again = fixture.viber.submitted().await;
        assert_eq!((&again.task_id, again.attempt), (&moved.task_id, attempt));
        assert!(sums_up(&again, SUMMARY));
        fails(&mut fixture, &again, "b").await;
    }
    fixture.operator.task_in(moved.task_id.as_str(), "error").await;
    assert!(is_idle(&fixture).await, "no session follows on that one");
    fixture.board.assert_invariants().await;
}

async fn what_a_task_did_before_its_request_was_smaller_is_remembered(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let first = asks(&mut fixture, "Look into the rain").await;
    let path = format!("/api/v1/sessions/{}/messages", fixture.session());
    let told = fixture.operator.post(&path, &json!({ "content": "Hurry", "injectionMode": "steer" })).await.expect(202);
    let message = fixture.viber.told().await;
    assert_eq!(told.json()["id"], json!(message.message_id));
    let consumed = json!({ "type": "message-state", "messageId": message.message_id, "state": "consumed" });
    let mut events = vec![accepted(), started(), progress(&consumed), super::spent()];
    events.extend(call("a", "read_file", &json!({ "path": "a" }), &json!("a begins\na ends")));
    let granted = TaskLimits { steps: Some(5), cost_usd: Some(0.5), ..TaskLimits::default() };
    let budget = BudgetProgress { worked_seconds: 75, granted, leash: Some(5), calls_on_leash: 2 };
    let details = json!({ "maxTokens": 8_000, "budget": budget });
    let error = json!({ "code": "context_overflow", "message": "too long", "retryable": false, "details": details });
    events.push(EventBody::Error { error: serde_json::from_value(error).expect("an error") });
    fixture.viber.report(&first.task_id, 1, 1, events).await;
    let summary = fixture.viber.submitted().await;
    summarizes(&mut fixture, &summary).await;
    let second = fixture.viber.submitted().await;
    assert_eq!(second.attempt, 2);
    let spent = second.spent.as_ref().expect("what was spent");
    assert_eq!((spent.input_tokens, spent.cost_usd), (146_800, Some(1.84)), "the task's limits count it");
    assert_eq!((spent.model_calls, spent.tool_calls), (1, 2), "and how often it called");
    assert_eq!(second.budget.as_ref(), Some(&budget), "what it was granted, its minutes and its leash");
    assert_eq!(carried(&second).matches("Hurry").count(), 1, "it was told: {}", carried(&second));
    assert!(!has(&second, 6), "the window that the provider named is believed");
    end(&mut fixture, &second, "It rains.").await;
    let done = task(&fixture, second.task_id.as_str()).await;
    assert_eq!(done["usage"]["costUsd"], json!(1.84), "{done:#}");

    let next = next(&mut fixture, "And now?").await;
    assert!(carried(&next).contains("a ends") && carried(&next).contains("It rains."), "both attempts are its answer");
    assert_eq!(carried(&next).matches("Hurry").count(), 1);
    let ended = vec![accepted(), started(), stopped()];
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", next.task_id), &json!({})).await.expect(200);
    assert!(matches!(fixture.viber.command().await, Command::Stop { .. }), "it is told");
    fixture.viber.report(&next.task_id, 1, 1, ended).await;
    // Whoever starts it over starts over.
    fixture.operator.post(&format!("/api/v1/tasks/{}/retry", next.task_id), &json!({})).await.expect(200);
    let again = fixture.viber.submitted().await;
    assert!(again.attempt == 2 && !carried(&again).contains("follows once more") && again.budget.is_none());
    fixture.board.assert_invariants().await;
}

async fn a_first_message_that_is_too_long_says_what_it_consists_of(engine: Engine) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    let goal = "A very long question. ".repeat(400);
    fixture.begin(&goal).await;
    let layers = json!([{ "layer": "system", "tokens": 900 }, { "layer": "personalization", "tokens": 1_200 },
                        { "layer": "tools", "tokens": 700 }, { "layer": "history", "tokens": 2_200 }]);
    let report = json!({ "window": 4_096, "used": 5_000, "source": "estimated", "layers": layers, "model": "demo/tour",
        "estimatePercent": 110 });
    fixture.tell(vec![context(&report), too_long(Some(4_096))]).await;
    let second = fixture.viber.submitted().await;
    assert!(second.attempt == 2 && second.no_files && second.messages.iter().all(|turn| turn.parts.len() < 3));
    let events = vec![accepted(), started(), context(&report), too_long(Some(4_096))];
    fixture.viber.report(&second.task_id, 2, 1, events).await;
    fixture.operator.task_in(second.task_id.as_str(), "error").await;
    let failed = task(&fixture, second.task_id.as_str()).await;
    let suggestion = failed["error"]["suggestion"].as_str().expect("a suggestion");
    let question = protocol::tokens::estimate(&goal) * 110 / 100;
    let largest = format!("Its largest parts: the question ({question} tokens), personalization (1200");
    assert!(suggestion.starts_with(&largest), "as its provider counts: {suggestion}");
    assert!(is_idle(&fixture).await, "there is nothing to be left behind");
    fixture.board.assert_invariants().await;
}

async fn a_task_that_is_stopped_meanwhile_stays_stopped(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let first = asks(&mut fixture, "Look into the rain").await;
    fails(&mut fixture, &first, "a").await;
    let summary = fixture.viber.submitted().await;
    fixture.operator.post(&format!("/api/v1/tasks/{}/stop", first.task_id), &json!({})).await.expect(200);
    summarizes(&mut fixture, &summary).await;
    fixture.operator.task_in(summary.task_id.as_str(), "completed").await;
    assert!(is_idle(&fixture).await);
    assert_eq!(task(&fixture, first.task_id.as_str()).await["state"], "stopped");
    // A summary that fails holds up nothing.
    let second = asks(&mut fixture, "Once more").await;
    fails(&mut fixture, &second, "b").await;
    let summary = fixture.viber.submitted().await;
    assert!(summary.compact.is_some());
    fixture.viber.report(&summary.task_id, 1, 1, vec![accepted(), started(), too_long(None)]).await;
    let next = fixture.viber.submitted().await;
    assert_eq!((next.attempt, next.compact.is_some(), next.task_id == second.task_id), (2, false, true));
    end(&mut fixture, &next, "Done.").await;
    fixture.board.assert_invariants().await;
}

/// A question in the fixture's session that is too long in every way, and whose first attempt took 148,900 tokens and $1.84: its
/// task when it has failed.
async fn overflows(fixture: &mut Fixture<FakeDaemon>, limits: &Value) -> Value {
    overflows_of(fixture, ("Look into the rain", None), limits).await
}

/// The same of a question, and of a window that its provider names.
async fn overflows_of(fixture: &mut Fixture<FakeDaemon>, (goal, window): (&str, Option<u64>), limits: &Value) -> Value {
    let session = fixture.session().to_owned();
    let body = json!({ "sessionId": session, "limits": limits, "context": { "currentFile": "src/rain.rs" } });
    let task = fixture.submit_with(goal, body).await["id"].as_str().expect("an id").to_owned();
    let (mut spends, mut attempt) = (vec![super::spent()], 0);
    while attempt < 4 {
        let submit = fixture.viber.submitted().await;
        if submit.compact.is_some() {
            summarizes(fixture, &submit).await;
            continue;
        }
        attempt = submit.attempt;
        let mut events = vec![accepted(), started()];
        events.append(&mut spends);
        events.extend(call("a", "read_file", &json!({ "path": "a" }), &json!("a line\n".repeat(300))));
        events.push(too_long(window));
        fixture.viber.report(&submit.task_id, attempt, 1, events).await;
        let is_done = |task: &Value| task["state"] == "error" || task["attempt"] != json!(attempt);
        if fixture.operator.task_that(&task, "goes on", is_done).await["state"] == "error" {
            break;
        }
    }
    self::task(fixture, &task).await
}

/// The ways in which its request was made smaller.
fn rungs(task: &Value) -> Vec<&str> {
    let tried = task["smaller"].as_array().expect("attempts");
    tried.iter().filter_map(|one| one["rung"].as_str()).collect()
}

fn suggestion(task: &Value) -> &str {
    task["error"]["suggestion"].as_str().expect("a suggestion")
}

async fn a_question_that_is_too_long_by_itself_is_not_asked_elsewhere(engine: Engine) {
    let mut fixture = long(engine, 5).await;
    let goal = "A very long question. ".repeat(1_000);
    let failed = overflows_of(&mut fixture, (&goal, Some(4_096)), &json!({})).await;
    let said = suggestion(&failed);
    assert!(said.starts_with("Its largest parts: the question (") && said.ends_with("a larger window."), "{said}");
    assert!(is_idle(&fixture).await, "no session begins for it");
    assert!(!rungs(&failed).contains(&"summary"), "it makes no room for the question: {failed:#}");
    assert_eq!(told(&fixture).await["summary"], Value::Null);
    // Whatever the rest takes is assumed for a larger window: a short question is not too long for this one.
    let failed = overflows_of(&mut fixture, ("Look into the rain", Some(4_096)), &json!({})).await;
    assert_eq!(rungs(&failed).first(), Some(&"summary"), "{failed:#}");
    // The summary is shown with what requests take otherwise, though this one had to be far smaller.
    let summary = told(&fixture).await["summary"].clone();
    for figure in ["tokensBefore", "tokensAfter"] {
        assert!(summary[figure].as_u64().is_some_and(|tokens| tokens > 6_000), "{figure}: {summary}");
    }
    fixture.board.assert_invariants().await;
}

async fn a_way_that_makes_nothing_smaller_is_passed_over(engine: Engine) {
    let mut fixture = long(engine, 4).await;
    let short = next(&mut fixture, "Look once").await;
    let mut events = vec![accepted(), started()];
    events.extend(call("short", "read_file", &json!({ "path": "a" }), &json!("ok")));
    events.extend([text("Fine."), completed("Fine.")]);
    fixture.viber.report(&short.task_id, 1, 1, events).await;
    fixture.operator.task_in(short.task_id.as_str(), "completed").await;
    let refused = || vec![accepted(), started(), too_long(None)];
    let first = asks(&mut fixture, "Look into the rain").await;
    fixture.viber.report(&first.task_id, 1, 1, refused()).await;
    let summary = fixture.viber.submitted().await;
    summarizes(&mut fixture, &summary).await;
    let before = task(&fixture, first.task_id.as_str()).await;
    assert_eq!(before["smaller"][0]["rung"], "summary");
    let second = fixture.viber.submitted().await;
    assert!(matches!(results(&second)[..], [("short", "ok")]), "{:?}", results(&second));
    fixture.viber.report(&second.task_id, 2, 1, refused()).await;
    let third = fixture.viber.submitted().await;
    assert!(third.attempt == 3 && third.no_files, "a line is no shorter than what it said");
    let tried = task(&fixture, first.task_id.as_str()).await["smaller"].clone();
    assert_eq!(tried.as_array().map(Vec::len), Some(2), "{tried}");
    end(&mut fixture, &third, "It rains.").await;
    fixture.board.assert_invariants().await;
}

async fn a_moved_question_may_spend_what_is_left(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let failed = overflows(&mut fixture, &json!({ "tokens": 200_000, "costUsd": 2.0, "toolCalls": 90 })).await;
    assert!(suggestion(&failed).contains("asked again in a new session with a summary"), "{failed:#}");
    let transfer = fixture.viber.submitted().await;
    summarizes(&mut fixture, &transfer).await;
    let moved = fixture.viber.submitted().await;
    assert_eq!(moved.limits.tokens, Some(51_100));
    assert!(moved.limits.cost_usd.is_some_and(|cost| (0.159..0.161).contains(&cost)), "{:?}", moved.limits);
    assert!(moved.limits.tool_calls.is_some_and(|calls| calls < 90), "{:?}", moved.limits);
    end(&mut fixture, &moved, "It rains.").await;

    let failed = overflows(&mut fixture, &json!({ "tokens": 148_900 })).await;
    let said = suggestion(&failed);
    assert!(said.contains("not asked again in a new session, because its budget is used up. Shorten"), "{said}");
    assert!(is_idle(&fixture).await, "no session begins for it");
    fixture.board.assert_invariants().await;
}

async fn a_question_whose_summary_was_lost_is_not_said_to_move(engine: Engine) {
    let mut fixture = long(engine, 9).await;
    let failed = overflows(&mut fixture, &json!({})).await;
    assert!(suggestion(&failed).contains("asked again in a new session with a summary"), "{failed:#}");
    let transfer = fixture.viber.submitted().await;
    fixture.viber.report(&transfer.task_id, 1, 1, vec![accepted(), started()]).await;
    fixture.viber.cut();
    fixture.viber.boot = BootId::new(3);
    fixture.viber.connect().await;
    let lost = fixture.operator.task_in(transfer.task_id.as_str(), "error").await;
    assert_eq!(lost["error"]["code"], "daemon_restarted");
    let failed = task(&fixture, failed["id"].as_str().expect("an id")).await;
    assert!(suggestion(&failed).ends_with("choose a model with a larger window."), "{failed:#}");
    assert!(!suggestion(&failed).contains("new session"), "{failed:#}");
    fixture.board.assert_invariants().await;
}

on_both_databases!(
    a_question_that_is_too_long_by_itself_is_not_asked_elsewhere,
    a_way_that_makes_nothing_smaller_is_passed_over,
    a_moved_question_may_spend_what_is_left,
    a_question_whose_summary_was_lost_is_not_said_to_move,
    each_way_is_tried_once_and_goes_on_from_what_was_done,
    what_a_task_did_before_its_request_was_smaller_is_remembered,
    a_first_message_that_is_too_long_says_what_it_consists_of,
    a_task_that_is_stopped_meanwhile_stays_stopped,
);
