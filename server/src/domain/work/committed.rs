//! Durable events: what a tail keeps and a viewer is shown.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use protocol::{AgentStreamEvent, ErrorCode, EventBody, Instant, TaskError, TaskId};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// A contiguous run of an attempt's events, after its commit.
#[derive(Debug)]
pub struct Committed {
    pub task: TaskId,
    pub attempt: u32,
    /// The first seq that the items stand for, and the last.
    pub from: u64,
    pub to: u64,
    pub items: Vec<Item>,
    /// The run as the API's stream shows it, encoded by the first viewer that needs it.
    pub json: OnceLock<Bytes>,
    /// The same for pages.
    pub html: OnceLock<Bytes>,
    /// The same as a viber's bus shows it to whoever is at the place that the text names: most readers are.
    pub bus: OnceLock<(String, Bytes)>,
}

/// One event, byte for byte as the viber wrote it.
#[derive(Clone, Debug)]
pub struct Item {
    pub seq: u64,
    pub json: Arc<str>,
}

/// What the Board understands of an event. An event that it does not understand is stored and shown to nobody.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub seq: u64,
    /// The first seq that it stands for: below `seq` only in a gap.
    pub first: u64,
    /// The viber's clock; absent when it is not an instant. Order never depends on it.
    pub at: Option<Instant>,
    pub body: Option<EventBody>,
    /// Its size as JSON.
    pub bytes: usize,
}

impl Committed {
    /// A run with nothing encoded yet. `items` is never empty.
    pub fn new(task: TaskId, attempt: u32, from: u64, items: Vec<Item>) -> Self {
        let to = items.last().map_or(from, |item| item.seq);
        let (json, html, bus) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { task, attempt, from, to, items, json, html, bus }
    }

    /// Runs that follow each other as one. `runs` is never empty.
    pub fn joined(runs: &[Arc<Self>]) -> Self {
        let items = runs.iter().flat_map(|run| run.items.iter().cloned()).collect();
        Self::new(runs[0].task.clone(), runs[0].attempt, runs[0].from, items)
    }

    /// Its size in memory, bytes, about.
    pub fn size(&self) -> usize {
        self.items.iter().map(|item| item.json.len() + 32).sum()
    }

    /// Reads a stored list of events, leaving out those up to `after`.
    pub fn parse(task: TaskId, attempt: u32, from: u64, body: &str, after: u64) -> Result<Self, serde_json::Error> {
        let all: Vec<&RawValue> = serde_json::from_str(body)?;
        let mut items = Vec::with_capacity(all.len());
        for raw in all {
            let Seq { seq } = serde_json::from_str(raw.get())?;
            if seq > after {
                items.push(Item { seq, json: raw.get().into() });
            }
        }
        Ok(Self::new(task, attempt, from.max(after + 1), items))
    }
}

impl Item {
    /// What the event says.
    pub fn report(&self) -> Report {
        Report::read(&self.json).unwrap_or(Report { seq: self.seq, first: self.seq, at: None, body: None, bytes: 0 })
    }
}

impl Report {
    /// Reads an event. Fails only when it has no usable seq.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        if let Ok(whole) = serde_json::from_str::<Whole>(json) {
            let first = match &whole.body {
                EventBody::Progress { event } => match &event.event {
                    AgentStreamEvent::Gap { from, .. } => (*from).min(whole.seq),
                    _ => whole.seq,
                },
                _ => whole.seq,
            };
            return Ok(Self { seq: whole.seq, first, at: whole.at, body: Some(whole.body), bytes: json.len() });
        }
        let Seq { seq } = serde_json::from_str(json)?;
        Ok(Self { seq, first: seq, at: None, body: Self::unreadable_end(json), bytes: json.len() })
    }

    /// Whether it is a delta: one of many that each add a piece to the same text.
    pub fn is_delta(&self) -> bool {
        use AgentStreamEvent::{ReasoningDelta, TextDelta, ToolOutput};
        let Some(EventBody::Progress { event }) = &self.body else { return false };
        matches!(event.event, TextDelta { .. } | ReasoningDelta { .. } | ToolOutput { .. })
    }

    /// A terminal event whose fields the Board does not understand still ends its attempt.
    fn unreadable_end(json: &str) -> Option<EventBody> {
        #[derive(Deserialize)]
        struct Named {
            #[serde(rename = "type")]
            name: String,
        }
        let Named { name } = serde_json::from_str(json).ok()?;
        matches!(name.as_str(), "task:completed" | "task:error" | "task:stopped").then(|| EventBody::Error {
            error: TaskError {
                code: ErrorCode::BadRequest,
                message: format!("The viber ended the task with a {name} that the Board does not understand."),
                retryable: true,
                suggestion: Some("Update daemon-agent or the Board.".into()),
                details: None,
            },
        })
    }
}

#[derive(Deserialize)]
struct Seq {
    seq: u64,
}

#[derive(Deserialize)]
struct Whole {
    seq: u64,
    #[serde(default, deserialize_with = "instant_if_it_is_one")]
    at: Option<Instant>,
    #[serde(flatten)]
    body: EventBody,
}

fn instant_if_it_is_one<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Instant>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(from)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_a_strange_time_or_type_is_still_an_event() {
        let odd = Report::read(r#"{"seq":3,"at":"NaN","type":"task:accepted"}"#).expect("an event");
        assert_eq!((odd.seq, odd.at, odd.body), (3, None, Some(EventBody::Accepted {})));
        let unknown = Report::read(r#"{"seq":4,"type":"task:dance"}"#).expect("an event");
        assert_eq!((unknown.seq, unknown.body), (4, None));
        let end = Report::read(r#"{"seq":5,"type":"task:completed","result":7}"#).expect("an event");
        assert!(end.body.is_some_and(|body| body.is_terminal()));
        for bad in [r#"{"seq":-1,"type":"task:accepted"}"#, r#"{"seq":1e309}"#, r#"{"seq":"1"}"#, "[]"] {
            assert!(Report::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_stored_run_is_cut_at_the_cursor() {
        let body = r#"[{"seq":1,"type":"task:accepted"},{"seq":2,"type":"x", "y" : 1}]"#;
        let run = Committed::parse(TaskId::new(1), 1, 1, body, 1).expect("a run");
        assert_eq!((run.from, run.to, &*run.items[0].json), (2, 2, r#"{"seq":2,"type":"x", "y" : 1}"#));
    }
}
