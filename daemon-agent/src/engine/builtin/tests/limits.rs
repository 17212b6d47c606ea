//! Limits and the leash: who is asked when, and what the answers do.

use std::sync::atomic::Ordering;

use protocol::{
    AgentWait, ApprovalKind, ApprovalRequest, ApprovalResponse, BudgetProgress, Decision, InjectionPoint, Instant,
    MessageProgress, ModelPrice, PauseCause, TaskLimits,
};

use super::{messages::message, *};

const HOUR: Duration = Duration::from_secs(60 * 60);

impl Fixture {
    fn decide(&self, question: &ApprovalRequest, decision: Decision, grant: Option<TaskLimits>) {
        let asked = ApprovalResponse::new(question.approval_id.clone(), question.digest.clone(), decision);
        let (by, note) = ("Ada".to_owned(), (decision == Decision::Deny).then(|| "too dear".to_owned()));
        self.approvals.answer(ApprovalResponse { grant, by, note, ..asked });
    }

    fn grant(&self, question: &ApprovalRequest, grant: TaskLimits) {
        self.decide(question, Decision::Allow, Some(grant));
    }

    pub(super) fn waits(&self) -> Vec<AgentWait> {
        let waits = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::StateChange { waiting, .. } => waiting,
            _ => None,
        });
        waits.collect()
    }

    fn notices(&self) -> Vec<String> {
        let notices = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::Notice { text, .. } => Some(text),
            _ => None,
        });
        notices.collect()
    }

    fn questions(&self) -> usize {
        self.events().iter().filter(|event| matches!(event, AgentStreamEvent::ApprovalRequired(_))).count()
    }
}

pub(super) async fn ended(running: tokio::task::JoinHandle<EngineOutcome>) -> EngineOutcome {
    timeout(Duration::from_secs(20), running).await.expect("in time").expect("no panic")
}

/// The same run, whose clock is set by hand.
pub(super) fn with_clock(
    run: EngineRun,
) -> (tokio::task::JoinHandle<EngineOutcome>, Arc<std::sync::atomic::AtomicI64>) {
    let (clock, shown) = Clock::settable(Instant(1_700_000_000_000));
    let context = ToolContext {
        home: run.home.clone(),
        workspace: run.memory.workspace(),
        agent: run.agent.clone(),
        config: run.config.clone(),
        task_id: run.submit.task_id.clone(),
        attempt: run.submit.attempt,
        sink: run.sink.clone(),
        collector: run.collector.clone(),
        stop: run.stop.clone(),
    };
    (tokio::spawn(run_by(run, Toolbox::new(context), clock)), shown)
}

fn looks() -> ScriptedReply {
    calls(&[("list_files", "{}")])
}

fn steps(steps: u32) -> TaskLimits {
    TaskLimits { steps: Some(steps), ..TaskLimits::default() }
}

/// A run of calls at 0.2 USD each, by the prices of the task.
fn priced(fixture: &Fixture) -> EngineRun {
    let mut asked = fixture.run("x");
    let model = "acme/m1".to_owned();
    asked.submit.prices = vec![ModelPrice { model, input: 10_000.0, output: 20_000.0, cached: None }];
    asked
}

#[tokio::test]
async fn what_the_attempts_before_used_counts() {
    for (limits, name) in
        [(steps(3), "steps"), (TaskLimits { tool_calls: Some(4), ..TaskLimits::default() }, "toolCalls")]
    {
        let endpoint = ScriptedProvider::start(vec![looks()]).await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.limits = limits;
        let mut again = fixture.run("x");
        again.submit.spent = Some(Usage { model_calls: 3, tool_calls: 4, ..Usage::default() });
        let running = tokio::spawn(run(again));
        let limit = fixture.question(1).await.limit.expect("a limit");
        assert_eq!((limit.name.as_str(), limit.used), (name, limit.allowed));
        assert!(fixture.results().is_empty(), "nothing more was done");
        fixture.stop.cancel();
        ended(running).await;
    }
}

#[tokio::test]
async fn what_people_granted_and_the_leash_go_on_in_an_attempt_that_goes_on_from_this_one() {
    let overflow = ScriptedReply::refusal(
        400,
        r#"{"error":{"message":"This model's maximum context length is 4000 tokens.","code":"context_length_exceeded"}}"#,
    );
    let endpoint = ScriptedProvider::start(vec![looks(), looks(), overflow]).await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.limits, fixture.agent.leash) = (steps(1), Some(2));
    let running = tokio::spawn(run(fixture.run("x")));
    let question = fixture.question(1).await;
    fixture.grant(&question, TaskLimits { tokens: Some(7), ..steps(4) });
    let refused = error(ended(running).await);
    assert_eq!(refused.code, ErrorCode::ContextOverflow);
    let told = refused.details.expect("details")["budget"].clone();
    let before: BudgetProgress = serde_json::from_value(told).expect("how far it came");
    assert_eq!((before.leash, before.calls_on_leash), (Some(2), 2));
    assert_eq!(before.granted, steps(4), "there is no limit of tokens");

    let endpoint = ScriptedProvider::start(vec![looks(), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    (fixture.limits, fixture.agent.leash) = (steps(1), Some(2));
    let mut again = fixture.run("x");
    again.submit.spent = Some(Usage { model_calls: 3, tool_calls: 2, ..Usage::default() });
    again.submit.budget = Some(before);
    let running = tokio::spawn(run(again));
    let question = fixture.question(1).await;
    assert_eq!(question.limit.as_ref().map(|limit| (limit.name.as_str(), limit.used)), Some(("leash", 2.0)));
    assert!(fixture.results().is_empty(), "it checks in before its next call");
    fixture.decide(&question, Decision::Allow, None);
    assert_eq!(result(ended(running).await).text, "Done.");
    assert_eq!(fixture.questions(), 1, "five steps are allowed");
}

#[tokio::test]
async fn a_limit_that_is_reached_is_a_question_and_a_denial_ends_the_task() {
    for (limits, name, allowed, used, calls) in [
        (steps(2), "steps", 2.0, 2.0, 2),
        (TaskLimits { tool_calls: Some(2), ..TaskLimits::default() }, "toolCalls", 2.0, 2.0, 3),
        (TaskLimits { tokens: Some(25), ..TaskLimits::default() }, "tokens", 25.0, 30.0, 2),
        (TaskLimits { cost_usd: Some(0.4), ..TaskLimits::default() }, "costUsd", 0.4, 0.4, 2),
    ] {
        let endpoint = ScriptedProvider::start(vec![looks()]).await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.limits = limits;
        let running = tokio::spawn(run(priced(&fixture)));
        let question = fixture.question(1).await;
        assert_eq!(
            (question.kind, question.tool.as_str(), question.digest.len()),
            (ApprovalKind::Budget, "budget", 64)
        );
        let limit = question.limit.clone().expect("a limit");
        assert_eq!((limit.name.as_str(), limit.allowed, limit.used), (name, allowed, used));
        assert!(question.preview.contains(&format!("limits.{name}")) && !question.risk.is_empty(), "{question:?}");
        let wait = fixture.waits().pop().expect("it waits");
        assert!(wait.cause == PauseCause::Budget && wait.until == question.expires_at && wait.until.is_some());
        // At most one model call more than allowed.
        assert_eq!(endpoint.seen().len(), calls, "{name}");
        fixture.decide(&question, Decision::Deny, None);
        let error = error(ended(running).await);
        assert_eq!((error.code, endpoint.seen().len()), (ErrorCode::BudgetExceeded, calls));
        assert!(
            error.message.contains(name) && error.message.contains("Ada did not allow more (too dear)"),
            "{error:?}"
        );
        let line = fixture.log().into_iter().find(|line| line["type"] == "approval").expect("in the session's log");
        assert_eq!(line["decision"], "deny");
    }
}

#[tokio::test]
async fn what_is_granted_is_added_and_too_little_is_asked_again() {
    let endpoint = ScriptedProvider::start(vec![looks(), looks(), looks(), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = TaskLimits { tokens: Some(40), ..steps(2) };
    let running = tokio::spawn(run(fixture.run("x")));
    let first = fixture.question(1).await;
    // More of another limit is no more of this one.
    fixture.grant(&first, TaskLimits { tokens: Some(100), ..TaskLimits::default() });
    let second = fixture.question(2).await;
    assert_eq!((first.limit.clone(), first.digest == second.digest), (second.limit.clone(), true));
    assert_ne!(first.approval_id, second.approval_id);
    fixture.grant(&second, steps(1));
    let third = fixture.question(3).await;
    assert_ne!(second.digest, third.digest);
    fixture.grant(&third, steps(5));
    assert_eq!(result(ended(running).await).text, "Done.");
    assert_eq!((endpoint.seen().len(), fixture.questions()), (4, 3), "the tokens sufficed");
}

#[tokio::test]
async fn people_are_told_once_that_little_is_left() {
    let endpoint = ScriptedProvider::start(vec![looks(), looks(), looks(), looks(), says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = TaskLimits { tokens: Some(75), ..TaskLimits::default() };
    result(run(fixture.run("x")).await);
    assert_eq!(fixture.notices(), ["The budget is nearly used: 60 of the 75 tokens that this task may use."]);
}

#[tokio::test]
async fn a_question_that_nobody_answers_ends_the_task() {
    let endpoint = ScriptedProvider::start(vec![looks()]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = steps(1);
    for (minutes, hours) in [(Some(120), 2), (None, 24)] {
        fixture.events.lock().expect("no test panics with it").clear();
        let mut asked = fixture.run("x");
        asked.submit.approval_minutes = minutes;
        let (running, clock) = with_clock(asked);
        let question = fixture.question(1).await;
        let until = question.expires_at.expect("an end").millis();
        assert_eq!(until - clock.load(Ordering::SeqCst), hours * 3_600_000);
        clock.store(until, Ordering::SeqCst);
        let error = error(ended(running).await);
        assert!(error.code == ErrorCode::BudgetExceeded && error.message.contains("nobody answered"), "{error:?}");
        assert!(fixture.events().iter().any(|event| {
            matches!(event, AgentStreamEvent::ApprovalExpired { approval_id, .. } if *approval_id == question.approval_id)
        }));
    }
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_a_grant() {
    let endpoint = ScriptedProvider::start(vec![looks()]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = steps(1);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.question(1).await;
    fixture.stop.cancel();
    assert!(matches!(ended(running).await, EngineOutcome::Stopped { .. }));
}

#[tokio::test]
async fn what_is_said_while_a_budget_waits_is_told_after_the_grant() {
    let endpoint = ScriptedProvider::start(vec![looks(), says("As you wish.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = steps(1);
    let running = tokio::spawn(run(fixture.run("x")));
    let question = fixture.question(1).await;
    fixture.inbox.put(message("Use b", 1, InjectionPoint::Steer));
    tokio::task::yield_now().await;
    assert_eq!(fixture.progress(), [MessageProgress::Delivered]);
    fixture.grant(&question, steps(1));
    assert_eq!(result(ended(running).await).text, "As you wish.");
    assert_eq!(fixture.progress(), [MessageProgress::Delivered, MessageProgress::Consumed]);
}

#[tokio::test]
async fn a_further_turn_without_room_is_asked_for_before_it_is_told() {
    let endpoint = ScriptedProvider::start(vec![says("One."), says("Two.")]).await;
    for allowed in [true, false] {
        let endpoint = if allowed { &endpoint } else { &ScriptedProvider::start(vec![says("One.")]).await };
        let mut fixture = Fixture::new(endpoint);
        fixture.limits = steps(1);
        fixture.inbox.put(message("again", 1, InjectionPoint::Followup));
        let running = tokio::spawn(run(fixture.run("x")));
        let question = fixture.question(1).await;
        assert_eq!(fixture.progress(), [MessageProgress::Delivered]);
        if allowed {
            fixture.grant(&question, steps(1));
            assert_eq!(result(ended(running).await).text, "Two.");
            assert_eq!(fixture.progress(), [MessageProgress::Delivered, MessageProgress::Consumed]);
        } else {
            fixture.decide(&question, Decision::Deny, None);
            assert_eq!(result(ended(running).await).text, "One.", "what is done is done");
            assert_eq!(fixture.progress(), [MessageProgress::Delivered]);
        }
    }
    // When nobody wants more, nobody is asked.
    let mut fixture = Fixture::new(&ScriptedProvider::start(vec![says("One.")]).await);
    fixture.limits = steps(1);
    result(run(fixture.run("x")).await);
    assert_eq!(fixture.questions(), 0);
}

#[tokio::test]
async fn a_task_of_this_machine_ends_at_its_limit_unless_it_says_otherwise() {
    let endpoint = ScriptedProvider::start(vec![looks()]).await;
    let mut fixture = Fixture::new(&endpoint);
    for (limits, asks) in
        [(steps(1), false), (TaskLimits { on_limit: Some(protocol::LimitPolicy::Pause), ..steps(1) }, true)]
    {
        fixture.agent.limits = limits;
        let mut asked = fixture.run("x");
        asked.local = true;
        let running = tokio::spawn(run(asked));
        if asks {
            fixture.question(1).await;
            fixture.stop.cancel();
            ended(running).await;
        } else {
            assert_eq!(error(ended(running).await).code, ErrorCode::BudgetExceeded);
            assert_eq!(fixture.questions(), 0);
        }
    }
}

#[tokio::test]
async fn the_providers_word_counts_as_cost_and_without_any_nothing_is_asked_of_the_model() {
    let mut end = ends("stop");
    end["usage"]["cost"] = json!(0.75);
    let call =
        json!({ "tool_calls": [{ "index": 0, "id": "x", "function": { "name": "list_files", "arguments": "{}" } }] });
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::chunks(&[delta(call), end])]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = TaskLimits { cost_usd: Some(1.0), ..stopping() };
    let refusal = error(run(fixture.run("x")).await);
    assert_eq!((refusal.code, endpoint.seen().len()), (ErrorCode::BadRequest, 0));
    assert!(refusal.message.contains("acme/m1") && refusal.suggestion.is_some_and(|what| what.contains("price")));
    let error = error(run(priced(&fixture)).await);
    assert_eq!((error.code, endpoint.seen().len()), (ErrorCode::BudgetExceeded, 2));
    assert_eq!(error.details.expect("details"), json!({ "limit": "costUsd", "allowed": 1, "used": 1.5 }));
}

#[tokio::test]
async fn minutes_in_which_a_task_waits_for_a_person_do_not_count() {
    let endpoint = ScriptedProvider::start(vec![says("Done.")]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.active_time = ActiveTime::counted(HOUR);
    fixture.limits = TaskLimits { minutes: Some(60), ..TaskLimits::default() };
    let running = tokio::spawn(run(fixture.run("x")));
    let question = fixture.question(1).await;
    assert!(endpoint.seen().is_empty() && question.limit.as_ref().is_some_and(|limit| limit.name == "minutes"));
    let before = fixture.active_time.elapsed();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(fixture.active_time.elapsed(), before);
    fixture.grant(&question, TaskLimits { minutes: Some(1), ..TaskLimits::default() });
    result(ended(running).await);
    assert!(fixture.active_time.elapsed() > before, "it went on");
}

#[tokio::test]
async fn on_its_leash_the_agent_shows_its_next_call_and_goes_on_as_a_person_says() {
    let flood = calls(&[("list_files", "{}"), ("list_files", "{}"), ("list_files", r#"{"path":"x"}"#)]);
    for (grant, asked_again) in [(Some(1), true), (None, false)] {
        let endpoint = ScriptedProvider::start(vec![flood.clone(), looks(), looks(), says("Done.")]).await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.agent.leash = Some(2);
        let mut asked = fixture.run("x");
        asked.submit.leash = Some(7);
        let running = tokio::spawn(run(asked));
        let question = fixture.question(1).await;
        assert_eq!(fixture.results().len(), 2, "the third call waits");
        let limit = question.limit.clone().expect("a limit");
        assert_eq!((limit.name.as_str(), limit.allowed, limit.used), ("leash", 2.0, 2.0));
        assert_eq!(question.args, json!({ "tool": "list_files", "args": { "path": "x" } }));
        let grant = grant.map(|calls| TaskLimits { tool_calls: Some(calls), ..TaskLimits::default() });
        fixture.decide(&question, Decision::Allow, grant);
        if asked_again {
            let again = fixture.question(2).await;
            assert_eq!(again.limit.as_ref().map(|limit| limit.allowed), Some(1.0));
            fixture.decide(&again, Decision::Deny, None);
            let error = error(ended(running).await);
            assert!(error.code == ErrorCode::BudgetExceeded && error.message.contains("leash"), "{error:?}");
        } else {
            result(ended(running).await);
            assert_eq!((fixture.questions(), fixture.results().len()), (1, 5));
        }
    }
}
