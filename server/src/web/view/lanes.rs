//! A message as lanes: text, reasoning, counted groups of tool calls, notices. The same from stored parts, from parts
//! and the events after them, and while it streams.

use std::{collections::HashMap, sync::Arc};

use protocol::{
    AgentStreamEvent, ArtifactId, EventBody, NoticeLevel, StepState,
    text::{head, head_and_tail, tail},
};

use super::{
    call::{Call, Kind, Outcome},
    time::took,
};
use crate::{
    domain::{Part, committed::Report},
    web::markdown::{self, By},
};

/// Parts of which the calls stand in one group: a group is sent anew when one of its calls changes.
const GROUP: usize = 64;
/// HTML of a group without its calls, bytes at most.
const GROUP_WEIGHT: usize = 900;
/// Longest text of one part that is rendered, bytes.
const LONG: usize = 64 * 1024;
/// Largest HTML that a page carries of one part, bytes.
const HEAVY: usize = 80 * 1024;
/// What a page carries of a text that is too much for it, bytes; the whole of it is behind a link.
const CUT: usize = 12 * 1024;
/// Longest notice, name or title that a page carries, bytes.
const SHORT: usize = 2 * 1024;

/// A lane with its place in the message, which is that of its first part: live updates name it.
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
    /// Text that is too much for a page: how it begins, and how many bytes it has.
    Long {
        text: String,
        bytes: usize,
    },
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

    /// Keeps the newest calls that fit, and one when something has to be there. `false`: none does.
    fn keep(&mut self, room: usize, some: bool) -> bool {
        let (mut left, mut from) = (room, self.calls.len());
        for call in self.calls.iter().rev() {
            let weight = call.weight();
            if weight > left && !(some && from == self.calls.len()) {
                break;
            }
            left = left.saturating_sub(weight);
            from -= 1;
        }
        if from == self.calls.len() {
            return false;
        }
        self.calls.drain(..from);
        true
    }

    /// The newest call that has no result yet.
    pub fn working(&self) -> Option<&Call> {
        self.calls.iter().rev().find(|call| call.outcome == Outcome::Working)
    }
}

impl Lane {
    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        match &self.body {
            Body::Prose(html) => 100 + html.len(),
            Body::Reasoning { html, .. } => 400 + html.len(),
            Body::Long { text, .. } => 700 + escaped(text),
            Body::Writing(text) | Body::Thinking(text) => 400 + escaped(text),
            Body::Calls(group) => GROUP_WEIGHT + group.calls.iter().map(Call::weight).sum::<usize>(),
            Body::Notice { text, .. } => 400 + escaped(text),
            Body::Withdrawn { reason, said } => 500 + escaped(reason) + escaped(said),
            Body::Artifact { title, kind, .. } => 700 + escaped(title) + escaped(kind),
        }
    }
}

/// Bytes of a text as HTML.
pub(super) fn escaped(text: &str) -> usize {
    text.len() + 5 * text.bytes().filter(|byte| matches!(byte, b'<' | b'>' | b'&' | b'"' | b'\'')).count()
}

/// Rendered, unless that is too much for a page.
fn prose(text: &str, by: By) -> Body {
    let html = (text.len() <= LONG).then(|| markdown::render(text, by));
    html.filter(|html| html.len() <= HEAVY).map_or_else(|| long(text), Body::Prose)
}

fn reasoning(text: &str, duration_ms: u64) -> Body {
    let html = (text.len() <= LONG).then(|| markdown::render(text, By::Agent));
    let html = html.filter(|html| html.len() <= HEAVY);
    html.map_or_else(|| long(text), |html| Body::Reasoning { html, duration_ms })
}

fn long(text: &str) -> Body {
    Body::Long { text: head(text, CUT).to_owned(), bytes: text.len() }
}

/// Keeps the newest of what fits into `room`, but always something; where what is kept begins, when something was left out.
pub fn fit(lanes: &mut Vec<Lane>, room: usize) -> Option<usize> {
    let (mut left, mut kept, all) = (room, lanes.len(), lanes.len());
    let mut cut = false;
    for lane in lanes.iter_mut().rev() {
        let weight = lane.weight();
        if weight > left {
            // Of a group some calls may fit.
            cut = match &mut lane.body {
                Body::Calls(group) => group.keep(left.saturating_sub(GROUP_WEIGHT), kept == all),
                _ => kept == all,
            };
            if let Body::Calls(Calls { calls }) = &lane.body {
                lane.index = calls.first().map_or(lane.index, |call| call.at);
            }
            kept -= usize::from(cut);
            break;
        }
        left -= weight;
        kept -= 1;
    }
    let all = kept == 0 && !(cut && matches!(lanes.first(), Some(Lane { body: Body::Calls(_), .. })));
    lanes.drain(..kept);
    lanes.first().filter(|_| !all).map(|lane| lane.index)
}

/// Takes away what lies before a place.
pub fn skip(lanes: &mut Vec<Lane>, from: usize) {
    for lane in lanes.iter_mut().filter(|lane| lane.index < from) {
        if let Body::Calls(group) = &mut lane.body {
            group.calls.retain(|call| call.at >= from);
            lane.index = group.calls.first().map_or(lane.index, |call| call.at);
        }
    }
    lanes.retain(|lane| lane.index >= from);
}

/// Lanes under construction.
#[derive(Default)]
pub struct Builder {
    lanes: Vec<Lane>,
    /// The place of the next part.
    at: usize,
    /// The message has parts before those that come: a result without its call belongs to one of them.
    cut: bool,
    by: Option<By>,
    /// Where each call is: lane, place in the lane.
    calls: HashMap<String, (usize, usize)>,
    /// Lanes that were there when the step under way began: what a withdrawn step takes back.
    step: usize,
}

impl Builder {
    /// For a message of this author, from a part on.
    pub fn new(by: By, from: usize) -> Self {
        Self { by: Some(by), at: from, cut: from > 0, ..Self::default() }
    }

    /// Parts that lie behind those that are shown: only what they say of calls that are.
    pub fn answers(&mut self, parts: &[Part]) {
        for part in parts {
            if let Part::ToolResult { call_id, result, ok, duration_ms, .. } = part
                && let Some(call) = self.find(call_id).filter(|call| call.outcome == Outcome::Working)
            {
                call.answer(result, *ok, *duration_ms);
            }
        }
    }

    /// A complete part.
    pub fn part(&mut self, part: &Part) {
        match part {
            Part::Text { text } | Part::Summary { text } => {
                if !text.trim().is_empty() {
                    self.push(prose(text, self.by.unwrap_or(By::Agent)));
                }
            }
            Part::Reasoning { text, duration_ms } => {
                if !text.trim().is_empty() {
                    self.push(reasoning(text, *duration_ms));
                }
            }
            Part::ToolCall { call_id, tool, args } => self.call(call_id, tool, args),
            Part::ToolResult { call_id, tool, result, ok, duration_ms } => {
                if let Some(call) = self.answered(call_id, tool) {
                    call.answer(result, *ok, *duration_ms);
                }
            }
            Part::Notice { level, text, folded } => self.push(match folded {
                Some(said) => Body::Withdrawn { reason: head(text, SHORT).to_owned(), said: head_and_tail(said, CUT) },
                None => Body::Notice { level: *level, text: head_and_tail(text, SHORT) },
            }),
            Part::Artifact { artifact } => {
                let text = |name: &str| {
                    head(artifact.get(name).and_then(|value| value.as_str()).unwrap_or(""), SHORT / 4).to_owned()
                };
                let title = if text("title").is_empty() { text("id") } else { text("title") };
                self.push(Body::Artifact { id: text("artifactId").parse().ok(), title, kind: text("type") });
            }
        }
        self.step = self.lanes.len();
        self.at += 1;
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
                if let Some(call) = self.answered(call_id, tool) {
                    call.answer(result, *ok, *duration_ms);
                }
            }
            AgentStreamEvent::Step { state: StepState::Discarded, .. } => {
                self.lanes.truncate(self.step);
                self.calls.retain(|_, (lane, _)| *lane < self.step);
            }
            AgentStreamEvent::Step { .. } => self.step = self.lanes.len(),
            AgentStreamEvent::Notice { level, text } => {
                self.push(Body::Notice { level: *level, text: head_and_tail(text, SHORT) });
            }
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
        self.at += 1;
    }

    /// The lanes. `ended`: nothing more will come, so a call without its result never gets one.
    pub fn finish(mut self, ended: bool) -> Vec<Lane> {
        for lane in &mut self.lanes {
            match &mut lane.body {
                Body::Calls(group) if ended => {
                    let open = group.calls.iter_mut().filter(|call| call.outcome == Outcome::Working);
                    open.for_each(|call| call.outcome = Outcome::Unanswered);
                }
                Body::Writing(text) if ended => lane.body = prose(text, By::Agent),
                Body::Thinking(text) if ended => lane.body = reasoning(text, 0),
                // The newest of it: the whole is shown when it is complete.
                Body::Writing(text) | Body::Thinking(text) if escaped(text) > HEAVY => {
                    *text = tail(text, CUT).to_owned();
                }
                _ => {}
            }
        }
        self.lanes
    }

    fn push(&mut self, body: Body) {
        self.lanes.push(Lane { index: self.at, body });
    }

    fn call(&mut self, id: &str, tool: &str, args: &serde_json::Value) {
        if self.calls.contains_key(id) {
            return;
        }
        // By place, so that a group stays the same wherever what is shown begins.
        let group = self.at / GROUP;
        if !matches!(self.lanes.last(), Some(Lane { index, body: Body::Calls(_) }) if index / GROUP == group) {
            self.push(Body::Calls(Calls::default()));
        }
        let lane = self.lanes.len() - 1;
        if let Body::Calls(group) = &mut self.lanes[lane].body {
            self.calls.insert(id.to_owned(), (lane, group.calls.len()));
            group.calls.push(Call::new(id, tool, args, self.at));
        }
    }

    /// The call that a result is of, whether or not it was told.
    fn answered(&mut self, id: &str, tool: &str) -> Option<&mut Call> {
        if self.find(id).is_none() && !self.cut {
            self.call(id, tool, &serde_json::Value::Null);
        }
        self.find(id)
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
mod tests;
