//! What a task's limits and its stop leave no room for is not told, and does not count as told.

use protocol::TaskLimits;

use super::*;

fn planning(fixture: &Fixture) -> EngineRun {
    let mut asked = fixture.run("Fix it");
    asked.submit.approve_first = true;
    asked
}

#[tokio::test]
async fn what_steers_while_a_plan_waits_is_told_with_a_call_or_not_at_all() {
    let endpoint = ScriptedProvider::start(vec![says("- [ ] a")]).await;
    let mut fixture = Fixture::new(&endpoint);
    let no_more_steps = TaskLimits { steps: Some(1), ..stopping() };
    let no_more_tokens = TaskLimits { tokens: Some(5), ..stopping() };
    for limits in [no_more_steps, no_more_tokens] {
        fixture.limits = limits;
        fixture.inbox = Inbox::default();
        fixture.events.lock().expect("no test panics with it").clear();
        let running = tokio::spawn(run(planning(&fixture)));
        fixture.question(1).await;
        fixture.inbox.put(message("Use b", 1, Steer));
        let outcome = timeout(Duration::from_secs(20), running).await.expect("at once").expect("no panic");
        assert_eq!((error(outcome).code, fixture.progress()), (ErrorCode::BudgetExceeded, vec![Delivered]));
    }
}

#[tokio::test]
async fn people_may_say_what_a_plan_is_to_be_like_as_often_as_there_are_steps() {
    let endpoint = ScriptedProvider::start(vec![says("- [ ] a")]).await;
    for (max_steps, told) in [(20, 8), (3, 2)] {
        let mut fixture = Fixture::new(&endpoint);
        fixture.agent.max_steps = max_steps;
        let running = tokio::spawn(run(planning(&fixture)));
        for n in 1..=told {
            fixture.question(n).await;
            fixture.inbox.put(message(&format!("Not like {n}"), n as u64, Steer));
        }
        let last = fixture.question(told + 1).await;
        if max_steps == 3 {
            fixture.inbox.put(message("And not like that", 9, Steer));
        } else {
            fixture.allow(&last);
        }
        let outcome = timeout(Duration::from_secs(20), running).await.expect("in time").expect("no panic");
        let consumed = fixture.progress().iter().filter(|state| **state == Consumed).count();
        assert_eq!(consumed, told, "each was told, but not what there was no step for");
        if max_steps == 3 {
            assert_eq!(error(outcome).code, ErrorCode::MaxStepsReached);
        } else {
            assert_eq!(result(outcome).text, "- [ ] a");
        }
    }
}

#[tokio::test]
async fn steering_does_not_go_past_the_tasks_tokens() {
    let body = format!("data: {}\n\n", delta(json!({ "content": "half an answer" })));
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::stream(&body).silent()]).await;
    let mut fixture = Fixture::new(&endpoint);
    fixture.limits = TaskLimits { tokens: Some(5), ..stopping() };
    let running = tokio::spawn(run(fixture.run("Fix it")));
    fixture.until(is_text).await;
    fixture.inbox.put(message("Use b instead", 1, Steer));
    let outcome = timeout(Duration::from_secs(20), running).await.expect("at once").expect("no panic");
    assert_eq!((error(outcome).code, fixture.progress()), (ErrorCode::BudgetExceeded, vec![Delivered]));
}

#[tokio::test]
async fn what_a_stop_overtakes_does_not_count_as_told() {
    let endpoint = ScriptedProvider::start(vec![says("One.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.inbox.put(message("More", 1, Followup));
    let stop = fixture.stop.clone();
    *fixture.hook.lock().expect("no test panics with it") = Box::new(move |event| {
        if matches!(event, AgentStreamEvent::Turn { .. }) {
            stop.cancel();
        }
    });
    let outcome = run(fixture.run("x")).await;
    assert!(matches!(outcome, EngineOutcome::Stopped { .. }), "{outcome:?}");
    assert_eq!(fixture.progress(), [Delivered]);
}
