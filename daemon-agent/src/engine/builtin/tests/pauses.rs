//! People hold a task, and let it go on.

use protocol::{AgentWait, InjectionPoint, MessageProgress, NextCall, PauseCause, PausePoint};

use super::{
    limits::ended,
    messages::{is_text, message},
    *,
};

fn is_hold(event: &AgentStreamEvent) -> bool {
    matches!(event, AgentStreamEvent::StateChange { waiting: Some(AgentWait { cause: PauseCause::Paused, .. }), .. })
}

impl Fixture {
    /// Pauses right before the first event like this.
    fn pause_at(&self, at: PausePoint, like: impl Fn(&AgentStreamEvent) -> bool + Send + 'static) {
        let (pause, mut done) = (self.pause.clone(), false);
        *self.hook.lock().expect("no test panics with it") = Box::new(move |event| {
            if !done && like(event) {
                done = true;
                pause.pause(at);
            }
        });
    }

    /// What came behind the hold: its first state.
    fn state_after_hold(&self) -> Option<ActivityState> {
        let states = self.events().into_iter().skip_while(|event| !is_hold(event)).skip(1);
        states.into_iter().find_map(|event| match event {
            AgentStreamEvent::StateChange { state, .. } => Some(state),
            _ => None,
        })
    }
}

fn two_calls() -> Vec<ScriptedReply> {
    vec![calls(&[("list_files", "{}"), ("shell", r#"{"command":"true"}"#)]), says("Done.")]
}

#[tokio::test]
async fn a_pause_holds_before_the_next_model_call_and_its_time_does_not_count() {
    let endpoint =
        ScriptedProvider::start(vec![calls(&[("list_files", "{}"), ("list_files", "{}")]), says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.pause_at(PausePoint::Step, |event| matches!(event, AgentStreamEvent::ToolCall { .. }));
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_hold).await;
    assert_eq!((endpoint.seen().len(), fixture.results().len()), (1, 2), "the calls were made");
    assert_eq!(fixture.waits(), [AgentWait::of(PauseCause::Paused)]);
    fixture.pause.pause(PausePoint::Step);
    let before = fixture.active_time.elapsed();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!((fixture.active_time.elapsed(), endpoint.seen().len()), (before, 1));
    fixture.pause.resume(1);
    assert_eq!(result(ended(running).await).text, "Done.");
    assert_eq!(fixture.state_after_hold(), Some(ActivityState::Thinking));
    assert_eq!(fixture.waits().len(), 1, "twice is once");
}

#[tokio::test]
async fn a_pause_at_a_tool_holds_before_the_next_call_and_shows_it() {
    let endpoint = ScriptedProvider::start(two_calls()).await;
    let fixture = Fixture::new(&endpoint);
    fixture.pause_at(PausePoint::Tool, |event| matches!(event, AgentStreamEvent::ToolResult { .. }));
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_hold).await;
    assert_eq!(fixture.results().len(), 1);
    let next = fixture.waits().pop().and_then(|wait| wait.next).expect("the next call");
    let NextCall { tool, args, .. } = next;
    assert_eq!((tool.as_str(), args), ("shell", json!({ "command": "true" })));
    fixture.pause.resume(1);
    ended(running).await;
    assert_eq!((fixture.state_after_hold(), fixture.results().len()), (Some(ActivityState::Tool), 2));
}

#[tokio::test]
async fn a_pause_that_is_taken_back_before_it_is_reached_holds_nothing() {
    let endpoint = ScriptedProvider::start(two_calls()).await;
    let fixture = Fixture::new(&endpoint);
    let pause = fixture.pause.clone();
    *fixture.hook.lock().expect("no test panics with it") = Box::new(move |event| match event {
        AgentStreamEvent::ToolCall { .. } => pause.pause(PausePoint::Step),
        AgentStreamEvent::ToolResult { .. } => pause.resume(1),
        _ => {}
    });
    result(ended(tokio::spawn(run(fixture.run("x")))).await);
    assert!(fixture.waits().is_empty());
}

#[tokio::test]
async fn a_task_that_is_paused_before_it_begins_asks_no_model_and_a_stop_ends_it() {
    let endpoint = ScriptedProvider::start(vec![says("Done.")]).await;
    let fixture = Fixture::new(&endpoint);
    fixture.pause.pause(PausePoint::Step);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_hold).await;
    fixture.stop.cancel();
    assert!(matches!(ended(running).await, EngineOutcome::Stopped { .. }));
    assert!(endpoint.seen().is_empty());
}

#[tokio::test]
async fn what_steers_a_paused_task_waits_and_is_told_when_it_goes_on() {
    let half = ScriptedReply::stream(&format!("data: {}\n\n", delta(json!({ "content": "half" })))).silent();
    let endpoint = ScriptedProvider::start(vec![half, says("As you wish.")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.run("x")));
    fixture.until(is_text).await;
    fixture.pause.pause(PausePoint::Step);
    fixture.inbox.put(message("Use b", 1, InjectionPoint::Steer));
    fixture.until(is_hold).await;
    assert_eq!(fixture.progress(), [MessageProgress::Delivered]);
    fixture.pause.resume(1);
    assert_eq!(result(ended(running).await).text, "As you wish.");
    assert_eq!(fixture.progress(), [MessageProgress::Delivered, MessageProgress::Consumed]);
}
