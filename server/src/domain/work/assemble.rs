//! Assembling: the events of an attempt become the parts of its message. Pure, and the same for any framing.
//!
//! A part is emitted when it is complete and never changes afterwards. What is not complete yet (the open step) can be
//! rebuilt from the events after `parts_seq`, so that nothing has to be remembered between two commits.

use protocol::{
    AgentStreamEvent, ApprovalKind, EventBody, InjectionPoint, MessageProgress, NoticeLevel, StepState, text,
};

use crate::domain::{Part, Report};

/// Largest folded text of a withdrawn step, bytes. It is shown to people, never to a model.
const MAX_FOLDED_BYTES: usize = 32 * 1024;

/// Open parts that a step may hold. Beyond that the parts so far are completed and can no longer be withdrawn, so that the
/// end of a step always fits into one change.
const MAX_OPEN_PARTS: usize = 64;

/// Weight of what is open at which it is completed: bytes of text, and for each event that is no text its JSON. Like with
/// [`MAX_OPEN_PARTS`], what was completed can no longer be withdrawn. A longer text has several parts.
const MAX_OPEN_WEIGHT: u64 = 256 * 1024;
/// What a piece of text weighs beside its bytes: short pieces are many rows to read.
const TEXT_EVENT_WEIGHT: u64 = 16;

/// The words in a gap's notice between how much is missing and why.
pub const GAP_PHRASE: &str = " are missing here: ";

fn is_gap(part: &Part) -> bool {
    matches!(part, Part::Notice { text, folded: None, level: NoticeLevel::Warning } if text.contains(GAP_PHRASE))
}

/// Reads events one after the other and yields parts.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    /// What was said since the last part, in order; a step's stays here until the step ends.
    open: Vec<OpenPart>,
    /// A model call is under way: nothing becomes a part before it is finished or withdrawn.
    in_step: bool,
    /// Everything up to this seq has become parts, or will never be one.
    parts_seq: u64,
    /// Weight of the events after `parts_seq`.
    open_weight: u64,
    /// There is text, and no gap after it: then the result's text is not repeated.
    said: bool,
    parts: Vec<Part>,
}

/// What an [`Assembler`] made of the events that it read.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// Complete parts, in order.
    pub parts: Vec<Part>,
    /// The seq up to which no event has to be read again.
    pub parts_seq: u64,
    /// Weight of the events after `parts_seq`.
    pub open_weight: u64,
}

#[derive(Clone, Debug, PartialEq)]
enum OpenPart {
    Text(String),
    Reasoning { text: String, first: Option<i64>, last: Option<i64> },
    Whole(Part),
}

impl Assembler {
    /// Continues after `parts_seq`: feed it the events after that, then the new ones. `said`: the message's newest text comes
    /// after its newest gap; it matters only when a terminal event may come.
    pub fn new(parts_seq: u64, said: bool) -> Self {
        Self { parts_seq, said, ..Self::default() }
    }

    /// Whether this event can complete a part: if none of a run can, its parts need not be read.
    pub fn completes(report: &Report) -> bool {
        match &report.body {
            Some(EventBody::Progress { event }) => matches!(
                event.event,
                AgentStreamEvent::Step { .. }
                    | AgentStreamEvent::ToolCall { .. }
                    | AgentStreamEvent::ToolResult { .. }
                    | AgentStreamEvent::Artifact { .. }
                    | AgentStreamEvent::Notice { .. }
                    | AgentStreamEvent::Gap { .. }
                    | AgentStreamEvent::MessageState { state: MessageProgress::Consumed, .. }
                    | AgentStreamEvent::ApprovalRequired(_)
            ),
            Some(body) => body.is_terminal(),
            None => false,
        }
    }

    /// What an event adds to the weight of what is open.
    pub fn weight(report: &Report) -> u64 {
        let bytes = match &report.body {
            Some(EventBody::Progress { event }) => match &event.event {
                AgentStreamEvent::TextDelta { content } | AgentStreamEvent::ReasoningDelta { content } => {
                    return content.len() as u64 + TEXT_EVENT_WEIGHT;
                }
                _ => report.bytes,
            },
            _ => report.bytes,
        };
        bytes as u64
    }

    /// Whether as much is open that it is completed.
    pub fn is_heavy(weight: u64) -> bool {
        weight >= MAX_OPEN_WEIGHT
    }

    /// Reads one event.
    pub fn read(&mut self, report: &Report) {
        self.open_weight += Self::weight(report);
        self.apply(report);
        if Self::is_heavy(self.open_weight) {
            self.flush_within_step(report.seq);
        }
    }

    fn apply(&mut self, report: &Report) {
        match &report.body {
            Some(EventBody::Progress { event }) => self.progress(&event.event, report),
            Some(EventBody::Completed { result }) => {
                self.flush(report.seq);
                if !result.text.trim().is_empty() && !self.said {
                    self.parts.push(Part::text(&result.text));
                }
                self.in_step = false;
            }
            Some(EventBody::Error { .. } | EventBody::Stopped { .. }) => {
                self.flush(report.seq);
                self.in_step = false;
            }
            Some(EventBody::Announce { .. } | EventBody::Accepted {} | EventBody::Started { .. }) | None => {}
        }
    }

    fn progress(&mut self, event: &AgentStreamEvent, report: &Report) {
        let at = report.at.map(|at| at.0);
        match event {
            AgentStreamEvent::TextDelta { content } => match self.open.last_mut() {
                Some(OpenPart::Text(text)) => text.push_str(content),
                _ => self.open.push(OpenPart::Text(content.clone())),
            },
            AgentStreamEvent::ReasoningDelta { content } => match self.open.last_mut() {
                Some(OpenPart::Reasoning { text, last, .. }) => {
                    text.push_str(content);
                    *last = at.or(*last);
                }
                _ => self.open.push(OpenPart::Reasoning { text: content.clone(), first: at, last: at }),
            },
            AgentStreamEvent::ToolCall { call_id, tool, args } => {
                let called = self.open.iter_mut().find_map(|open| match open {
                    OpenPart::Whole(Part::ToolCall { call_id: known, args, .. }) if known == call_id => Some(args),
                    _ => None,
                });
                if let Some(called) = called {
                    // Somebody allowed the call with other arguments. One that is a part already is followed by another part.
                    called.clone_from(args);
                    return;
                }
                let (call_id, tool, args) = (call_id.clone(), tool.clone(), args.clone());
                self.open.push(OpenPart::Whole(Part::ToolCall { call_id, tool, args, at: report.at }));
                self.flush_many(report.seq);
            }
            AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms } => {
                let (call_id, tool, result) = (call_id.clone(), tool.clone(), result.clone());
                self.whole(Part::ToolResult { call_id, tool, result, ok: *ok, duration_ms: *duration_ms }, report.seq);
            }
            AgentStreamEvent::Artifact { artifact } => {
                let artifact = serde_json::to_value(artifact).unwrap_or_default();
                self.whole(Part::Artifact { artifact }, report.seq);
            }
            AgentStreamEvent::Notice { level, text } => {
                self.whole(Part::Notice { level: *level, text: text.clone(), folded: None }, report.seq);
            }
            AgentStreamEvent::Gap { from, to, bytes, reason } => {
                let events = to.saturating_sub(*from).saturating_add(1);
                let size = if *bytes > 0 { format!(" ({bytes} bytes)") } else { String::new() };
                let text = format!("{events} events{size}{GAP_PHRASE}{reason}");
                self.whole(Part::Notice { level: NoticeLevel::Warning, text, folded: None }, report.seq);
            }
            AgentStreamEvent::MessageState { message_id: id, state: MessageProgress::Consumed, .. } => {
                // Its words and author are the Board's to fill in: a viber does not speak for people.
                let (id, seq, mode, unknown) = (id.clone(), report.seq, InjectionPoint::default(), String::new);
                let (author, name, text, files) = (unknown(), unknown(), unknown(), Vec::new());
                self.whole(Part::Message { id, author, name, mode, text, files, seq }, seq);
            }
            // What is asked about a call stands with that call.
            AgentStreamEvent::ApprovalRequired(asked)
                if matches!(asked.kind, ApprovalKind::Plan | ApprovalKind::Budget) =>
            {
                let (approval_id, kind) = (asked.approval_id.clone(), asked.kind);
                self.whole(Part::Approval { approval_id, kind }, report.seq);
            }
            AgentStreamEvent::Step { state: StepState::Started, .. } => {
                // A step without an end: its end lies in a gap.
                self.flush(report.seq.saturating_sub(1));
                self.open_weight = Self::weight(report);
                self.in_step = true;
            }
            AgentStreamEvent::Step { state: StepState::Finished, .. } => {
                self.flush(report.seq);
                self.in_step = false;
            }
            AgentStreamEvent::Step { state: StepState::Discarded, reason, .. } => {
                self.withdraw(reason.as_deref(), report.seq);
                self.in_step = false;
            }
            AgentStreamEvent::ToolOutput { .. }
            | AgentStreamEvent::StateChange { .. }
            | AgentStreamEvent::Plan { .. }
            | AgentStreamEvent::Memory { .. }
            | AgentStreamEvent::Usage(_)
            | AgentStreamEvent::Context(_)
            | AgentStreamEvent::ApprovalRequired(_)
            | AgentStreamEvent::ApprovalExpired { .. }
            | AgentStreamEvent::ApprovalDecided { .. }
            | AgentStreamEvent::ApprovalOutcome { .. }
            | AgentStreamEvent::UserMessage { .. }
            | AgentStreamEvent::MessageState { .. }
            | AgentStreamEvent::Delegate(_)
            | AgentStreamEvent::Child { .. }
            | AgentStreamEvent::ChildStop { .. }
            | AgentStreamEvent::AgentMessage(_)
            | AgentStreamEvent::Turn { .. } => {}
        }
    }

    /// Adds a complete part: at once, but inside a step in its order.
    fn whole(&mut self, part: Part, seq: u64) {
        self.open.push(OpenPart::Whole(part));
        if !self.in_step {
            self.flush(seq);
        }
        self.flush_many(seq);
    }

    fn flush_many(&mut self, seq: u64) {
        if self.open.len() >= MAX_OPEN_PARTS {
            self.flush_within_step(seq);
        }
    }

    /// Makes parts of everything open. What follows is treated as outside a step, as it is when a commit lies between.
    fn flush_within_step(&mut self, seq: u64) {
        let last = self.open.pop();
        let text = match last {
            Some(OpenPart::Text(text)) => Some(text),
            other => {
                self.open.extend(other);
                None
            }
        };
        self.flush(seq);
        self.in_step = false;
        if let Some(text) = text {
            self.said |= !text.trim().is_empty();
            self.parts.push(Part::Text { text, continues: true });
        }
    }

    /// Makes parts of everything open.
    fn flush(&mut self, seq: u64) {
        for open in std::mem::take(&mut self.open) {
            match open {
                OpenPart::Text(text) if text.trim().is_empty() => {}
                OpenPart::Text(text) => {
                    self.said = true;
                    self.parts.push(Part::text(text));
                }
                OpenPart::Reasoning { text, .. } if text.trim().is_empty() => {}
                OpenPart::Reasoning { text, first, last } => {
                    let took = last.zip(first).map_or(0, |(last, first)| last.saturating_sub(first).max(0));
                    self.parts.push(Part::Reasoning { text, duration_ms: took.unsigned_abs() });
                }
                OpenPart::Whole(part) => {
                    self.said &= !is_gap(&part);
                    self.parts.push(part);
                }
            }
        }
        self.settle(seq);
    }

    /// Nothing up to `seq` is open.
    fn settle(&mut self, seq: u64) {
        if seq > self.parts_seq {
            (self.parts_seq, self.open_weight) = (seq, 0);
        }
    }

    /// Turns a withdrawn step into one folded notice; notices in it stay parts of their own.
    fn withdraw(&mut self, reason: Option<&str>, seq: u64) {
        let mut folded = String::new();
        let mut notices = Vec::new();
        for open in std::mem::take(&mut self.open) {
            let said = match open {
                OpenPart::Text(text) | OpenPart::Reasoning { text, .. } => text,
                OpenPart::Whole(Part::ToolCall { tool, args, .. }) => format!("{tool} {args}"),
                OpenPart::Whole(Part::ToolResult { tool, result, .. }) => format!("{tool} → {result}"),
                OpenPart::Whole(part) => {
                    notices.push(part);
                    continue;
                }
            };
            if !folded.is_empty() {
                folded.push('\n');
            }
            folded.push_str(&said);
        }
        if !folded.trim().is_empty() {
            let text = reason.map_or_else(
                || "A model call was withdrawn".to_owned(),
                |r| format!("A model call was withdrawn: {r}"),
            );
            let folded = Some(text::head_and_tail(&folded, MAX_FOLDED_BYTES));
            self.parts.push(Part::Notice { level: NoticeLevel::Info, text, folded });
        }
        self.said &= !notices.iter().any(is_gap);
        self.parts.extend(notices);
        self.settle(seq);
    }

    /// The parts that were completed.
    pub fn finish(self) -> Assembled {
        Assembled { parts: self.parts, parts_seq: self.parts_seq, open_weight: self.open_weight }
    }

    /// The open parts: shown while they grow, stored nowhere.
    pub fn open_parts(&self) -> Vec<Part> {
        let mut shown = Self { open: self.open.clone(), ..Self::default() };
        shown.flush(0);
        shown.parts
    }
}

#[cfg(test)]
mod tests;
