//! What a program of this machine sends: messages and signals of specification 3, decisions, and where it goes on reading.

use std::collections::BTreeMap;

use protocol::{ApprovalResponse, InterruptSignal, TaskId, UserMessage, adapter::MAX_MESSAGE_ID_BYTES};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

/// Tasks that one subscription names at most.
const MAX_CURSORS: usize = 1_000;

/// One text of a program.
#[derive(Debug)]
pub(super) enum ClientFrame {
    /// A `UserMessage`: the one without a `type`, or with `"type": "message"`.
    Message(UserMessage),
    Interrupt(InterruptSignal),
    Decision(Box<ApprovalResponse>),
    Subscribe {
        after: BTreeMap<TaskId, EventPlace>,
    },
}

/// A place in a task's events: `attempt.seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EventPlace {
    pub attempt: u32,
    pub seq: u64,
}

#[derive(Deserialize)]
struct Subscription {
    #[serde(default)]
    after: BTreeMap<String, String>,
}

impl ClientFrame {
    /// Reads a text, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let json: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
        if !json.is_object() {
            return Err("not an object".to_owned());
        }
        match json["type"].as_str() {
            None | Some("message") => read(json).map(Self::Message),
            Some("interrupt") => read(json).map(Self::Interrupt),
            Some("decision") => read(json).map(|response| Self::Decision(Box::new(response))),
            Some("subscribe") => {
                let Subscription { after } = read(json)?;
                if after.len() > MAX_CURSORS {
                    return Err(format!("at most {MAX_CURSORS} tasks"));
                }
                let place = |(task, place): (String, String)| Some((task.parse().ok()?, EventPlace::parse(&place)?));
                let after: Option<BTreeMap<TaskId, EventPlace>> = after.into_iter().map(place).collect();
                Ok(Self::Subscribe { after: after.ok_or("`after` is {taskId: \"attempt.seq\"}")? })
            }
            Some(other) => Err(format!("{:?} is not known", protocol::text::head(other, 60))),
        }
    }
}

/// The id of a message that cannot be read otherwise, for whoever waits for its answer.
pub(super) fn id_of(text: &str) -> Option<String> {
    let id = serde_json::from_str::<Value>(text).ok()?["id"].as_str().map(str::to_owned);
    id.filter(|id| id.len() <= MAX_MESSAGE_ID_BYTES)
}

impl EventPlace {
    fn parse(text: &str) -> Option<Self> {
        let (attempt, seq) = text.split_once('.')?;
        Some(Self { attempt: attempt.parse().ok()?, seq: seq.parse().ok()? })
    }
}

fn read<T: DeserializeOwned>(json: Value) -> Result<T, String> {
    serde_json::from_value(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_those_of_the_specification_and_what_is_not_is_refused() {
        let message = ClientFrame::parse(r#"{"id":"1","content":"hi","attachments":[],"context":{}}"#);
        assert!(matches!(message, Ok(ClientFrame::Message(message)) if message.content == "hi"));
        let signal = ClientFrame::parse(r#"{"type":"interrupt","targetAgentId":"*","reason":"r"}"#);
        assert!(matches!(signal, Ok(ClientFrame::Interrupt(signal)) if signal.target_agent_id == "*"));
        let task = TaskId::new(1);
        let subscribe = ClientFrame::parse(&format!(r#"{{"type":"subscribe","after":{{"{task}":"2.17"}}}}"#));
        let place = EventPlace { attempt: 2, seq: 17 };
        assert!(matches!(subscribe, Ok(ClientFrame::Subscribe { after }) if after.get(&task) == Some(&place)));
        for bad in [
            "",
            "[]",
            "{}",
            r#"["1","hi",[],null,null,null,null]"#,
            r#"{"type":"reboot"}"#,
            r#"{"type":"subscribe","after":{"x":"1.1"}}"#,
            r#"{"type":"subscribe","after":{"x":1}}"#,
            r#"{"type":"decision","approvalId":"x"}"#,
        ] {
            assert!(ClientFrame::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_its_id() {
        assert_eq!(id_of(r#"{"id":"m1","content":"hi","injectionMode":"later"}"#).as_deref(), Some("m1"));
        for none in ["", "[]", r#""m1""#, r#"{"id":1}"#, r#"{"content":"hi"}"#] {
            assert_eq!(id_of(none), None, "{none}");
        }
    }
}
