//! `demo/tour`: the built-in model. It is a script and says so, but it drives the real loop and the real tools, so that
//! a newcomer sees the whole product work without a key.
//!
//! Like any model it knows only what the request contains: it reads from the conversation how far the tour is.

use std::time::Duration;

use protocol::{Usage, UsageSource, text, tokens::estimate};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::sleep};

use super::{Answer, AssistantMessage, Delta, FinishReason, Message, ModelRequest, ToolCall};

mod script;

use script::{TourScene, TourStage};

/// Milliseconds between two words: slow enough to see the stream and to press Stop (the tour takes about ten seconds).
const WORD_INTERVAL_MS: u64 = 40;

/// The scripted model.
pub(super) struct DemoModel {
    pace: Duration,
}

impl DemoModel {
    /// Reads `OPENVIBER_DEMO_PACE` (milliseconds between two words), for tests that are in a hurry or need to be slow.
    pub fn from_environment() -> Self {
        let pace =
            std::env::var("OPENVIBER_DEMO_PACE").ok().and_then(|pace| pace.parse().ok()).unwrap_or(WORD_INTERVAL_MS);
        Self { pace: Duration::from_millis(pace) }
    }

    #[cfg(test)]
    pub fn with_pace(pace: Duration) -> Self {
        Self { pace }
    }

    /// Plays the next stage of the tour.
    pub async fn call(&self, request: &ModelRequest, to: &mpsc::Sender<Delta>) -> Answer {
        let summary = script::summary(request);
        let TourStage { thought, said, call } = summary.unwrap_or_else(|| TourScene::of(request, self.pace).stage());
        for word in words(&thought) {
            self.say(Delta::Reasoning(word.to_owned()), to).await;
        }
        for word in words(&said) {
            self.say(Delta::Text(word.to_owned()), to).await;
        }
        let calls: Vec<ToolCall> = call
            .map(|(name, args)| ToolCall { id: String::new(), name: name.to_owned(), args: Ok(args) })
            .into_iter()
            .collect();
        let heard: u64 = request.messages.iter().map(heard).sum();
        let usage = Usage {
            input_tokens: estimate(&request.system) + heard,
            output_tokens: estimate(&thought) + estimate(&said),
            source: UsageSource::Estimated,
            ..Usage::default()
        };
        Answer { message: AssistantMessage { text: said, calls, reasoning: vec![] }, finish: FinishReason::Stop, usage }
    }

    async fn say(&self, word: Delta, to: &mpsc::Sender<Delta>) {
        sleep(self.pace).await;
        // Fails only when this future is about to be dropped.
        let _ = to.send(word).await;
    }
}

/// Words with the white space after them, so that together they are the text again.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', '\n'])
}

fn heard(message: &Message) -> u64 {
    match message {
        Message::User(text) | Message::Tool { content: text, .. } => estimate(text),
        Message::Pictures(_) => 0,
        Message::Assistant(said) => estimate(&said.text),
    }
}

/// `goal` as one short line, for use in a sentence.
fn quoted(goal: &str) -> String {
    let line = text::title(goal);
    if line.is_empty() { "nothing in particular".to_owned() } else { format!("“{line}”") }
}

/// A tool call of the script.
type ScriptedCall = (&'static str, Value);

fn call(name: &'static str, args: Value) -> Option<ScriptedCall> {
    Some((name, args))
}

fn shell(command: &str) -> Option<ScriptedCall> {
    call("shell", json!({ "command": command }))
}

#[cfg(test)]
mod tests;
