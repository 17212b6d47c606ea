//! Pauses of tasks: of one that waits, also over a restart, and of nobody.

use protocol::{AgentEvent, AgentStreamEvent, AgentWait, PauseCause, PausePoint};
use serde_json::json;

use super::*;
use crate::{
    config::ProviderApi,
    model::scripted::{ScriptedProvider, ScriptedReply},
};

fn is_hold(body: &EventBody) -> bool {
    let EventBody::Progress { event: AgentEvent { event, .. } } = body else { return false };
    matches!(event, AgentStreamEvent::StateChange { waiting: Some(AgentWait { cause: PauseCause::Paused, .. }), .. })
}

impl Fixture {
    async fn pause(&mut self, AttemptRef { task_id, attempt }: AttemptRef) {
        self.command(Command::Pause { task_id, attempt, at: PausePoint::Step }).await;
    }

    async fn resume(&mut self, AttemptRef { task_id, attempt }: AttemptRef) {
        self.command(Command::Resume { task_id, attempt }).await;
    }
}

#[tokio::test]
async fn a_task_that_waits_keeps_its_pause_over_a_restart_until_somebody_resumes_it() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: true }).await;
    let held = fixture.submit_to("other", "say hi", json!({})).await;
    let freed = fixture.submit_to("other", "say hi", json!({})).await;
    for attempt in [&held, &freed] {
        fixture.pause(attempt.clone()).await;
    }
    fixture.resume(freed.clone()).await;
    fixture.pause(AttemptRef { task_id: TaskId::new(1), attempt: 1 }).await;
    assert_eq!(fixture.mesh.state().pauses.len(), 2, "of nobody nothing is kept");
    let done = json!({ "choices": [{ "delta": { "content": "Hi." }, "finish_reason": "stop" }] });
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::chunks(&[done])]).await;
    let lab = endpoint.provider(ProviderApi::OpenAi).base_url;
    let file = |name: &str, text: &str| std::fs::write(fixture.folder.path().join(name), text).expect("written");
    file("config.yaml", &format!("providers:\n  lab: {{ api: openai, baseUrl: \"{lab}\", apiKey: k }}\n"));
    file("agents/other.yaml", "model: lab/m1\ncontextWindow: 32768\n");
    let mut fixture = fixture.killed().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: false }).await;
    fixture.until(&held, is_hold).await;
    assert!(matches!(fixture.ending(&freed).await, EventBody::Completed { .. }));
    assert_eq!(endpoint.seen().len(), 1);
    fixture.resume(held.clone()).await;
    assert!(matches!(fixture.ending(&held).await, EventBody::Completed { .. }));
    fixture.idle().await;
    assert!(fixture.mesh.state().pauses.is_empty());
}

#[tokio::test]
async fn a_stop_ends_a_task_that_is_held() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: true }).await;
    let attempt = fixture.submit_to("other", "say hi", json!({})).await;
    fixture.pause(attempt.clone()).await;
    fixture.command(Command::Drain { drained: false }).await;
    fixture.until(&attempt, is_hold).await;
    fixture.stop_all().await;
    assert!(matches!(fixture.ending(&attempt).await, EventBody::Stopped { killed: 0, .. }));
}
