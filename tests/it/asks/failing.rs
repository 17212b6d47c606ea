//! What a failed task offers: for every error buttons that do its next step.

use board_tests::eventually;
use protocol::{ErrorCode, FromDaemon, ProviderInfo, TaskError, ViberState};

use super::*;

crate::on_both_databases!(
    every_error_has_buttons_for_its_next_step,
    going_on_begins_a_task_with_its_agents_limits_and_says_so,
);

const RETRY: &str = "data-focus=\"retry\"";
const MODEL: &str = "<option>acme/m2</option>";
const GO_ON: &str = "data-focus=\"go-on\"";
const EDIT: &str = ">Edit the message<";

/// Each error, and what its page offers, the likeliest first.
const STEPS: &[(ErrorCode, &[&str])] = &[
    (ErrorCode::ProviderAuth, &["#providers\">Provider settings<", RETRY, MODEL]),
    (ErrorCode::ProviderRateLimited, &[RETRY, MODEL]),
    (ErrorCode::ProviderUnavailable, &[RETRY, MODEL, "Provider settings"]),
    (ErrorCode::ProviderBadRequest, &[MODEL, ">Open the viber<", RETRY]),
    (ErrorCode::ContentPolicy, &[EDIT, MODEL, RETRY]),
    (ErrorCode::ContextOverflow, &[">New session<", MODEL, RETRY]),
    (ErrorCode::ToolFailed, &[GO_ON, RETRY]),
    (ErrorCode::BudgetExceeded, &[GO_ON, RETRY]),
    (ErrorCode::MaxStepsReached, &[GO_ON, RETRY]),
    (ErrorCode::Timeout, &[GO_ON, RETRY]),
    (ErrorCode::DaemonRestarted, &[GO_ON, RETRY]),
    (ErrorCode::BoardRestored, &[">Sessions on the machine<", RETRY]),
    (ErrorCode::Lost, &[">Open the viber<", RETRY, ">Choose another viber<"]),
    (ErrorCode::OutboxFull, &[">Open the viber<", RETRY]),
    (ErrorCode::BadRequest, &[EDIT, RETRY]),
    (ErrorCode::NotFound, &[">Choose another agent<", RETRY]),
    (ErrorCode::Internal, &[RETRY, ">Open the viber<"]),
];

fn failed(code: ErrorCode, message: &str) -> EventBody {
    let message = message.to_owned();
    EventBody::Error { error: TaskError { code, message, retryable: false, suggestion: None, details: None } }
}

async fn every_error_has_buttons_for_its_next_step(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let models = vec!["m1".to_owned(), "m2".to_owned()];
    let provider =
        ProviderInfo { id: "acme".into(), api: "openai".into(), has_key: true, models, ..Default::default() };
    let state = ViberState { providers: Some(vec![provider]), ..ViberState::default() };
    fixture.viber.send(&FromDaemon::State(Box::new(state))).await;
    let viber = format!("/api/v1/vibers/{}", fixture.viber_id);
    eventually("the models are known", || async {
        fixture.operator.get(&viber).await.expect(200).body.contains("acme").then_some(())
    })
    .await;
    let page = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let retry = format!("/t/home/tasks/{}/retry", submit.task_id);
    let prices = [(ErrorCode::BadRequest, &[">Prices<", EDIT, RETRY][..])];
    let viewer = fixture.board.operator("home", "vera@example.org", "viewer").await;
    let mut attempt = 1;
    fixture.viber.report(&submit.task_id, 1, 4, vec![failed(ErrorCode::Internal, "The first.")]).await;
    for (code, steps) in STEPS.iter().copied().chain(prices) {
        fixture.owner().post_form(&retry, &[]).await.expect(303);
        attempt += 1;
        assert_eq!(fixture.viber.submitted().await.attempt, attempt);
        let message =
            if steps[0] == ">Prices<" { "The task has `limits.costUsd`, and nobody says." } else { "It broke." };
        fixture.viber.report(&submit.task_id, attempt, 1, vec![accepted(), started(), failed(code, message)]).await;
        // A request that is too long is made smaller first: here it never is small enough.
        while fixture.operator.task(submit.task_id.as_str()).await["state"] != "error" {
            assert_eq!(code, ErrorCode::ContextOverflow);
            attempt += 1;
            assert_eq!(fixture.viber.submitted().await.attempt, attempt);
            fixture.viber.report(&submit.task_id, attempt, 1, vec![accepted(), started(), failed(code, message)]).await;
        }
        let html = fixture.owner().page(&page).await.expect(200).body;
        let begin = html.find("class=\"actions steps\"").unwrap_or_else(|| panic!("{code:?} offers nothing: {html}"));
        let dock = &html[begin..html[begin..].find("<ol class=\"queue\"").map_or(html.len(), |end| begin + end)];
        let places: Vec<usize> = steps
            .iter()
            .map(|step| dock.find(step).unwrap_or_else(|| panic!("{code:?} does not offer {step}: {dock}")))
            .collect();
        assert!(places.is_sorted(), "{code:?}: the likeliest first: {dock}");
        assert!(!viewer.page(&page).await.expect(200).body.contains("class=\"actions steps\""), "{code:?}");
    }

    // Another model answers from now on, and what an agent left undone is the next task.
    fixture.owner().post_form(&retry, &[("model", "acme/m2")]).await.expect(303);
    let again = fixture.viber.submitted().await;
    assert_eq!((again.attempt, again.model.as_deref()), (attempt + 1, Some("acme/m2")));
    let reached = failed(ErrorCode::BudgetExceeded, "The limit of steps is reached.");
    fixture.viber.report(&submit.task_id, attempt + 1, 1, vec![accepted(), started(), reached]).await;
    // A page that was there before starts nothing over.
    let stale = [("attempt", "1")];
    fixture.owner().post_form(&retry, &stale).await.expect(409);
    let raced =
        fixture.operator.post(&format!("/api/v1/tasks/{}/retry", submit.task_id), &json!({ "seenAttempt": 1 })).await;
    assert_eq!(raced.expect(409).code(), "raced");
    let html = fixture.owner().page(&page).await.expect(200).body;
    let key = format!("go-on.{}.{}", submit.task_id, attempt + 1);
    assert!(html.contains(&format!("name=\"key\" value=\"{key}\"")), "{html}");
    // Pressed twice, it is said once.
    let go_on = [("content", "Go on where you stopped."), ("key", &key), ("shows_files", "yes")];
    for _ in 0..2 {
        fixture.owner().post_form(&format!("{page}/messages"), &go_on).await.expect(303);
    }
    let next = fixture.viber.submitted().await;
    assert_eq!((next.goal.as_str(), next.session_id == submit.session_id), ("Go on where you stopped.", true));
    let all = fixture.operator.get("/api/v1/tasks?limit=200").await.expect(200).json();
    let same =
        all["items"].as_array().expect("a list").iter().filter(|task| task["goal"] == "Go on where you stopped.");
    assert_eq!(same.count(), 1);
    fixture.board.assert_invariants().await;
}

async fn going_on_begins_a_task_with_its_agents_limits_and_says_so(engine: Engine) {
    let (mut fixture, _, first) = asking(engine).await;
    fixture.viber.report(&first.task_id, 1, 4, vec![completed("done")]).await;
    let task = fixture.submit_with("Carefully", json!({ "leash": 5, "limits": { "steps": 1 } })).await;
    let submit = fixture.viber.submitted().await;
    assert_eq!((submit.limits.steps, submit.leash), (Some(1), Some(5)));
    let reached = failed(ErrorCode::BudgetExceeded, "The limit of steps is reached.");
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), reached]).await;
    let page = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    let html = fixture.owner().page(&page).await.expect(200).body;
    for words in ["A new task: it has used nothing yet", "not those that this one was given", "limits begin anew"] {
        assert!(html.contains(words), "{words}: {html}");
    }
    let go_on = [("content", "Go on where you stopped."), ("key", "k-1"), ("shows_files", "yes")];
    fixture.owner().post_form(&format!("{page}/messages"), &go_on).await.expect(303);
    let next = fixture.viber.submitted().await;
    assert_eq!((next.task_id == submit.task_id, next.limits.steps, next.leash), (false, None, None));
    fixture.board.assert_invariants().await;
}
