//! Messages to tasks: to one that waits, also over a restart, to one that runs, and to nobody.

mod said;

use protocol::{AgentEvent, AgentStreamEvent, InjectionPoint, MessageId, MessageProgress, TaskMessage};
use serde_json::json;

use super::*;
use crate::{
    config::ProviderApi,
    model::scripted::{ScriptedProvider, ScriptedReply},
};

fn message(to: &AttemptRef, content: &str, injection_mode: InjectionPoint) -> TaskMessage {
    TaskMessage {
        task_id: to.task_id.clone(),
        message_id: MessageId::new(1),
        rev: 1,
        author: "Ada".to_owned(),
        content: content.to_owned(),
        context: None,
        attachments: Vec::new(),
        injection_mode,
        position: 1,
        withdrawn: false,
    }
}

impl Fixture {
    async fn say(&mut self, message: &TaskMessage) {
        self.command(Command::Message(Box::new(message.clone()))).await;
    }

    fn progress(&self, attempt: &AttemptRef) -> Vec<(MessageId, u32, MessageProgress)> {
        let states = self.events(attempt).into_iter().filter_map(|event| match event.body {
            EventBody::Progress {
                event: AgentEvent { event: AgentStreamEvent::MessageState { message_id, rev, state, .. }, .. },
            } => Some((message_id, rev, state)),
            _ => None,
        });
        states.collect()
    }
}

use InjectionPoint::{Followup, Steer};
use MessageProgress::{Consumed, Delivered, Withdrawn};

#[tokio::test]
async fn what_is_said_to_a_waiting_task_survives_a_restart_and_is_told_when_it_begins() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: true }).await;
    let attempt = fixture.submit_to("other", "say hi", json!({})).await;
    let (told, withdrawn) = (message(&attempt, "and bye", Followup), message(&attempt, "never mind", Followup));
    fixture.say(&told).await;
    fixture.say(&withdrawn).await;
    fixture.say(&TaskMessage { rev: 2, content: "and good bye".to_owned(), ..told.clone() }).await;
    fixture.say(&TaskMessage { rev: 2, withdrawn: true, ..withdrawn.clone() }).await;
    assert_eq!(fixture.names(&attempt), ["task:accepted"], "an event more would say that it had begun");
    let says = |text: &str| {
        let delta = json!({ "choices": [{ "delta": { "content": text }, "finish_reason": "stop" }] });
        ScriptedReply::chunks(&[delta])
    };
    let endpoint = ScriptedProvider::start(vec![says("Hi."), says("Bye.")]).await;
    let lab = endpoint.provider(ProviderApi::OpenAi).base_url;
    let file = |name: &str, text: &str| std::fs::write(fixture.folder.path().join(name), text).expect("written");
    file("config.yaml", &format!("providers:\n  lab: {{ api: openai, baseUrl: \"{lab}\", apiKey: k }}\n"));
    file("agents/other.yaml", "model: lab/m1\ncontextWindow: 32768\n");
    let mut fixture = fixture.killed().welcomed(&[]).await;
    fixture.command(Command::Drain { drained: false }).await;
    let EventBody::Completed { result } = fixture.ending(&attempt).await else { panic!("completed") };
    assert_eq!(result.text, "Bye.");
    let (told, withdrawn) = (told.message_id, withdrawn.message_id);
    let expected = [(told.clone(), 2, Delivered), (withdrawn, 2, Withdrawn), (told, 2, Consumed)];
    assert_eq!(fixture.progress(&attempt), expected);
    fixture.idle().await;
    assert!(fixture.mesh.state().inboxes.is_empty());
}

#[tokio::test]
async fn the_echo_hears_nothing_and_what_is_for_nobody_is_dropped() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let attempt = fixture.submit("wait").await;
    fixture.waits(&attempt).await;
    fixture.say(&message(&attempt, "hello?", Steer)).await;
    let nobody = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
    fixture.say(&message(&nobody, "hello?", Steer)).await;
    fixture.stop_all().await;
    fixture.ending(&attempt).await;
    fixture.idle().await;
    fixture.say(&message(&attempt, "still there?", Followup)).await;
    assert!(fixture.progress(&attempt).is_empty() && fixture.events(&nobody).is_empty());
}
