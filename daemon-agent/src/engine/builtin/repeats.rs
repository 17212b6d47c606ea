//! Notices when an agent makes the same call again and again though it fails: it is told, and then people are asked.

use protocol::{ActivityState, AgentQuestion, AnswerOption, ApprovalKind, ApprovalRequest, text::head_and_tail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    AgentLoop, Halt, ask_operator,
    questions::{Reply, STEPPED_IN},
};
use crate::{
    model::{Message, ToolCall},
    workspace::hex,
};

/// Failures in a row from which on the model is told.
const TOLD_FROM: u32 = 3;
/// Failures in a row after which people are asked.
const ASKED_AT: u32 = 5;
/// Longest arguments in the question, bytes.
const MAX_SHOWN_ARGS_BYTES: usize = 2 * 1024;

/// The last call that failed, and how often in a row it did.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct FailedCalls {
    last: Option<(String, Value)>,
    times: u32,
    /// The step of the last failure: what one answer calls twice, it calls without having read the first result.
    step: u32,
    /// People were not asked yet.
    is_stuck: bool,
}

impl FailedCalls {
    /// The call that has failed too often since people were last asked: its tool and its arguments.
    fn stuck(&self) -> Option<(String, Value)> {
        self.last.clone().filter(|_| self.is_stuck)
    }

    /// Counts a call of a step; `text` is what the model reads of its result. Returns that with a remark if the call only
    /// repeats a failure.
    pub fn remark(&mut self, step: u32, call: &ToolCall, ok: bool, text: String) -> String {
        if ok {
            *self = Self::default();
            return text;
        }
        let failed = (call.name.clone(), call.object());
        if self.last.as_ref() != Some(&failed) {
            self.times = 0;
        } else if self.step == step {
            return text;
        }
        self.times += 1;
        (self.last, self.step) = (Some(failed), step);
        if self.times < TOLD_FROM {
            return text;
        }
        let times = self.times;
        self.is_stuck |= times.is_multiple_of(ASKED_AT);
        format!(
            "{text}\n\n[This call has failed {times} times in a row with the same arguments. Find out why, try another way, or \
             say in your answer what is in the way.]"
        )
    }
}

impl AgentLoop {
    /// Asks people what to do about a call that fails again and again; the model reads their answer with its results. Where
    /// nobody can be asked, it goes on.
    pub(super) async fn ask_if_stuck(&mut self) -> Result<(), Halt> {
        let Some((tool, args)) = self.failed_calls.stuck().filter(|_| !self.run.local) else { return Ok(()) };
        let asked = question(&tool, &args);
        let request = |task: &Self| {
            let subject = json!({ "tool": tool, "args": args, "taskId": task.run.submit.task_id, "step": task.step });
            ApprovalRequest {
                digest: hex(subject.to_string().as_bytes()),
                preview: asked.text.clone(),
                question: Some(asked.clone()),
                ..task.question(ApprovalKind::Question, "repeated_call")
            }
        };
        let reply = self.ask_people(request, ActivityState::Thinking).await?;
        self.failed_calls.is_stuck = false;
        let Some(awaited) = self.asked.take().map(|question| question.awaited()) else { return Ok(()) };
        let told = match reply {
            Reply::Steered => {
                if self.overtake(&awaited, STEPPED_IN).await {
                    self.overtaken.push(awaited.approval_id);
                }
                return Ok(());
            }
            Reply::Expired => ask_operator::unanswered(&asked, awaited.minutes),
            Reply::Decided(response) => ask_operator::answered(&asked, &response),
        };
        if let Some(Message::Tool { content, .. }) = self.request.messages.last_mut() {
            *content = format!("{content}\n\n[People were asked about the failing call. {}]", told.text());
        }
        Ok(())
    }
}

/// What people are asked about a call that fails again and again.
fn question(tool: &str, args: &Value) -> AgentQuestion {
    let text = format!(
        "The agent has called {tool} {ASKED_AT} times in a row with the same arguments, and it failed each time: {}",
        head_and_tail(&args.to_string(), MAX_SHOWN_ARGS_BYTES)
    );
    let option = |label: &str, trade_off: &str| AnswerOption { label: label.into(), trade_off: trade_off.into() };
    AgentQuestion {
        text,
        options: vec![
            option("Try another way", "The agent leaves this call alone."),
            option("Try it again", "For example because you have mended what was in the way."),
        ],
        recommended: Some(0),
        on_timeout: "The agent tries another way.".to_owned(),
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn only_the_same_call_that_fails_again_and_again_is_remarked() {
        let call = |name: &str, path: &str| ToolCall {
            id: "c".to_owned(),
            name: name.to_owned(),
            args: Ok(json!({ "path": path })),
        };
        let mut failed = FailedCalls::default();
        let mut step = 0;
        let mut told = |name: &str, path: &str, ok| {
            step += 1;
            let first = failed.remark(step, &call(name, path), ok, "no".to_owned()) != "no";
            assert_eq!(failed.remark(step, &call(name, path), ok, "no".to_owned()), "no", "the same answer");
            first
        };
        let read = |told: &mut dyn FnMut(&str, &str, bool) -> bool| [(); 3].map(|()| told("read_file", "a", false));
        assert_eq!(read(&mut told), [false, false, true]);
        assert!(told("read_file", "a", false), "also the fourth time");
        assert!(!told("read_file", "b", false) && !told("list_files", "b", false));
        assert_eq!(read(&mut told), [false, false, true]);
        assert!(!told("read_file", "a", true));
        assert_eq!(read(&mut told), [false, false, true]);
    }
}
