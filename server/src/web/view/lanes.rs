//! A message as lanes: text, reasoning, counted groups of tool calls, notices. The same from stored parts, from parts
//! and the events after them, and while it streams.

use std::{collections::HashMap, sync::Arc};

use protocol::{AgentStreamEvent, ArtifactId, EventBody, NoticeLevel, StepState};

use super::{
    call::{Call, Kind, Outcome},
    time::took,
};
use crate::{
    domain::{Part, committed::Report},
    web::markdown::{self, By},
};

/// A lane with its place in the message, counted from 0: live updates name it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    pub index: usize,
    pub body: Body,
}

/// What a lane shows.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// Rendered Markdown.
    Prose(Arc<str>),
    /// Text that still grows: shown as text.
    Writing(String),
    Reasoning {
        html: Arc<str>,
        duration_ms: u64,
    },
    /// Reasoning that still grows.
    Thinking(String),
    Calls(Calls),
    Notice {
        level: NoticeLevel,
        text: String,
    },
    /// A withdrawn step: why, and what it had said.
    Withdrawn {
        reason: String,
        said: String,
    },
    Artifact {
        /// Its page, when it has one.
        id: Option<ArtifactId>,
        title: String,
        kind: String,
    },
}

/// A run of tool calls with nothing said between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub calls: Vec<Call>,
}

impl Calls {
    pub(super) fn is_open(&self) -> bool {
        self.calls.iter().any(Call::is_open)
    }

    /// `13 commands, 6 reads`.
    pub(super) fn counted(&self) -> String {
        let kinds = [Kind::Command, Kind::Edit, Kind::Read, Kind::Search, Kind::Other];
        let counts = kinds.iter().map(|kind| (kind, self.calls.iter().filter(|call| call.kind == *kind).count()));
        counts.filter(|(_, n)| *n > 0).map(|(kind, n)| kind.count(n)).collect::<Vec<_>>().join(", ")
    }

    /// The call of a group that has but one.
    pub(super) fn only(&self) -> Option<&Call> {
        if let [call] = self.calls.as_slice() { Some(call) } else { None }
    }

    pub(super) fn failed(&self) -> usize {
        self.calls.iter().filter(|call| call.outcome == Outcome::Failed).count()
    }

    pub(super) fn took(&self) -> String {
        took(self.calls.iter().fold(0, |sum: u64, call| sum.saturating_add(call.duration_ms)))
    }

    pub(super) fn is_working(&self) -> bool {
        self.working().is_some()
    }

    /// The newest call that has no result yet.
    pub fn working(&self) -> Option<&Call> {
        self.calls.iter().rev().find(|call| call.outcome == Outcome::Working)
    }
}

/// Lanes under construction.
#[derive(Default)]
pub struct Builder {
    lanes: Vec<Lane>,
    by: Option<By>,
    /// Where each call is: lane, place in the lane.
    calls: HashMap<String, (usize, usize)>,
    /// Lanes that were there when the step under way began: what a withdrawn step takes back.
    step: usize,
}

impl Builder {
    /// For a message of this author.
    pub fn new(by: By) -> Self {
        Self { by: Some(by), ..Self::default() }
    }

    /// A complete part.
    pub fn part(&mut self, part: &Part) {
        match part {
            Part::Text { text } | Part::Summary { text } => {
                if !text.trim().is_empty() {
                    self.push(Body::Prose(markdown::render(text, self.by.unwrap_or(By::Agent))));
                }
            }
            Part::Reasoning { text, duration_ms } => {
                if !text.trim().is_empty() {
                    let html = markdown::render(text, By::Agent);
                    self.push(Body::Reasoning { html, duration_ms: *duration_ms });
                }
            }
            Part::ToolCall { call_id, tool, args } => self.call(call_id, tool, args),
            Part::ToolResult { call_id, tool, result, ok, duration_ms } => {
                self.result(call_id, tool, result, *ok, *duration_ms);
            }
            Part::Notice { level, text, folded } => self.push(match folded {
                Some(said) => Body::Withdrawn { reason: text.clone(), said: said.clone() },
                None => Body::Notice { level: *level, text: text.clone() },
            }),
            Part::Artifact { artifact } => {
                let text = |name: &str| artifact.get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned();
                let title = if text("title").is_empty() { text("id") } else { text("title") };
                self.push(Body::Artifact { id: text("artifactId").parse().ok(), title, kind: text("type") });
            }
        }
        self.step = self.lanes.len();
    }

    /// An event that has not become a part yet.
    pub fn event(&mut self, report: &Report) {
        let Some(EventBody::Progress { event }) = &report.body else { return };
        match &event.event {
            AgentStreamEvent::TextDelta { content } => match self.lanes.last_mut().map(|lane| &mut lane.body) {
                Some(Body::Writing(text)) => text.push_str(content),
                _ => self.push(Body::Writing(content.clone())),
            },
            AgentStreamEvent::ReasoningDelta { content } => match self.lanes.last_mut().map(|lane| &mut lane.body) {
                Some(Body::Thinking(text)) => text.push_str(content),
                _ => self.push(Body::Thinking(content.clone())),
            },
            AgentStreamEvent::ToolCall { call_id, tool, args } => self.call(call_id, tool, args),
            AgentStreamEvent::ToolOutput { call_id, content } => {
                if let Some(call) = self.find(call_id).filter(|call| call.outcome == Outcome::Working) {
                    call.streamed(content);
                }
            }
            AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms } => {
                self.result(call_id, tool, result, *ok, *duration_ms);
            }
            AgentStreamEvent::Step { state: StepState::Discarded, .. } => {
                self.lanes.truncate(self.step);
                self.calls.retain(|_, (lane, _)| *lane < self.step);
            }
            AgentStreamEvent::Step { .. } => self.step = self.lanes.len(),
            AgentStreamEvent::Notice { level, text } => self.push(Body::Notice { level: *level, text: text.clone() }),
            AgentStreamEvent::Gap { from, to, reason, .. } => {
                let events = to.saturating_sub(*from).saturating_add(1);
                let why = match reason.contains("damaged") {
                    true => "they were damaged on the viber's disk. Everything sound was sent.",
                    false => "the viber had no room to keep them.",
                };
                let text = format!("{events} events are missing here: {why}");
                self.push(Body::Notice { level: NoticeLevel::Warning, text });
            }
            _ => {}
        }
    }

    /// The lanes. `ended`: nothing more will come, so a call without its result never gets one.
    pub fn finish(mut self, ended: bool) -> Vec<Lane> {
        for lane in &mut self.lanes {
            match &mut lane.body {
                Body::Calls(group) if ended => {
                    let open = group.calls.iter_mut().filter(|call| call.outcome == Outcome::Working);
                    open.for_each(|call| call.outcome = Outcome::Unanswered);
                }
                Body::Writing(text) if ended => lane.body = Body::Prose(markdown::render(text, By::Agent)),
                Body::Thinking(text) if ended => {
                    lane.body = Body::Reasoning { html: markdown::render(text, By::Agent), duration_ms: 0 };
                }
                _ => {}
            }
        }
        self.lanes
    }

    fn push(&mut self, body: Body) {
        self.lanes.push(Lane { index: self.lanes.len(), body });
    }

    fn call(&mut self, id: &str, tool: &str, args: &serde_json::Value) {
        if self.calls.contains_key(id) {
            return;
        }
        if !matches!(self.lanes.last(), Some(Lane { body: Body::Calls(_), .. })) {
            self.push(Body::Calls(Calls::default()));
        }
        let lane = self.lanes.len() - 1;
        if let Body::Calls(group) = &mut self.lanes[lane].body {
            self.calls.insert(id.to_owned(), (lane, group.calls.len()));
            group.calls.push(Call::new(id, tool, args));
        }
    }

    fn result(&mut self, id: &str, tool: &str, result: &serde_json::Value, ok: bool, duration_ms: u64) {
        if self.find(id).is_none() {
            self.call(id, tool, &serde_json::Value::Null);
        }
        if let Some(call) = self.find(id) {
            call.answer(result, ok, duration_ms);
        }
    }

    fn find(&mut self, id: &str) -> Option<&mut Call> {
        let (lane, place) = self.calls.get(id)?;
        match &mut self.lanes.get_mut(*lane)?.body {
            Body::Calls(group) => group.calls.get_mut(*place),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, tool: &str) -> Part {
        Part::ToolCall { call_id: id.to_owned(), tool: tool.to_owned(), args: json!({"command": "ls", "path": "a"}) }
    }

    fn result(id: &str, ok: bool) -> Part {
        Part::ToolResult {
            call_id: id.to_owned(),
            tool: "shell".to_owned(),
            result: json!("out"),
            ok,
            duration_ms: 1_000,
        }
    }

    fn event(json: serde_json::Value) -> Report {
        let mut event = json!({"agentId": "default"});
        event.as_object_mut().expect("an object").extend(json.as_object().expect("an object").clone());
        let whole = json!({"seq": 1, "at": "2026-01-01T00:00:00.000Z", "type": "task:progress", "event": event});
        Report::read(&whole.to_string()).expect("an event")
    }

    #[test]
    fn calls_fold_into_one_counted_group() {
        let mut builder = Builder::new(By::Agent);
        for part in
            [call("1", "shell"), result("1", true), call("2", "shell"), call("3", "read_file"), result("2", false)]
        {
            builder.part(&part);
        }
        let lanes = builder.finish(false);
        let [Lane { body: Body::Calls(group), .. }] = lanes.as_slice() else { panic!("{lanes:?}") };
        assert_eq!((group.counted().as_str(), group.failed()), ("2 commands, 1 read", 1));
        assert!(group.is_open() && group.is_working());
    }

    #[test]
    fn the_open_tail_continues_the_parts() {
        let mut builder = Builder::new(By::Agent);
        builder.part(&call("1", "shell"));
        builder.event(&event(json!({"type": "tool-output", "callId": "1", "content": "half"})));
        builder.event(&event(json!({"type": "text-delta", "content": "so "})));
        builder.event(&event(json!({"type": "text-delta", "content": "far"})));
        let lanes = builder.finish(false);
        let [Lane { body: Body::Calls(group), .. }, Lane { body: Body::Writing(text), .. }] = lanes.as_slice() else {
            panic!("{lanes:?}")
        };
        assert_eq!((group.calls[0].output.as_str(), text.as_str()), ("half", "so far"));
    }

    #[test]
    fn a_withdrawn_step_takes_back_what_it_said() {
        let mut builder = Builder::new(By::Agent);
        builder.part(&Part::Text { text: "kept".to_owned() });
        builder.event(&event(json!({"type": "step", "n": 2, "state": "started"})));
        builder.event(&event(json!({"type": "text-delta", "content": "oops"})));
        builder.event(&event(json!({"type": "step", "n": 2, "state": "discarded"})));
        assert_eq!(builder.finish(false).len(), 1);
    }

    #[test]
    fn a_call_that_never_got_its_result_does_not_look_alive() {
        let mut builder = Builder::new(By::Agent);
        builder.part(&call("1", "shell"));
        let lanes = builder.finish(true);
        let Body::Calls(group) = &lanes[0].body else { panic!("{lanes:?}") };
        assert!(!group.is_open() && !group.is_working());
    }

    #[test]
    fn no_number_of_a_viber_is_too_large_to_show() {
        let mut builder = Builder::new(By::Agent);
        for id in ["1", "2"] {
            builder.part(&call(id, "shell"));
            builder
                .event(&event(json!({"type": "tool-result", "callId": id, "tool": "shell", "result": "", "ok": true,
                "durationMs": u64::MAX})));
        }
        builder.event(&event(json!({"type": "gap", "from": u64::MAX, "to": 0, "bytes": 0, "reason": "a lie"})));
        let lanes = builder.finish(true);
        let Body::Calls(group) = &lanes[0].body else { panic!("{lanes:?}") };
        assert!(group.took().ends_with("min"), "{}", group.took());
        let mut usage = protocol::Usage { input_tokens: u64::MAX, ..protocol::Usage::default() };
        usage.add(&usage.clone());
        assert_eq!(usage.input_tokens, u64::MAX);
    }
}
