//! Turns an engine's events into the attempt's log: filtered by what was requested, coalesced, cut to size.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{
    AgentEvent, AgentStreamEvent, AttemptRef, EventBody, NoticeLevel, ReportedDetail, limits::DELTAS_PER_SECOND,
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

use super::Sink;
use crate::outbox::{EventFitter, Outbox};

/// Time between two frames of text.
const FLUSH_INTERVAL: Duration = Duration::from_millis(1000 / DELTAS_PER_SECOND);
/// Amount of text that no longer waits, bytes.
const FLUSH_BYTES: usize = 16 * 1024;

/// Takes the reports of one attempt.
#[derive(Clone)]
pub struct Reporter {
    shared: Arc<Shared>,
}

struct Shared {
    attempt: AttemptRef,
    agent_id: String,
    stream: ReportedDetail,
    outbox: Outbox,
    shaper: EventFitter,
    waiting: Mutex<WaitingText>,
    more: Notify,
}

/// Text that waits for its frame.
#[derive(Default)]
struct WaitingText {
    deltas: Vec<AgentStreamEvent>,
    bytes: usize,
    last: Option<Instant>,
}

impl Reporter {
    /// Reports events of `attempt` to `outbox` until `done`.
    pub fn start(
        attempt: AttemptRef,
        agent_id: &str,
        stream: ReportedDetail,
        (outbox, shaper): (Outbox, EventFitter),
        done: CancellationToken,
    ) -> Self {
        let agent_id = agent_id.to_owned();
        let (waiting, more) = (Mutex::default(), Notify::new());
        let reporter = Self { shared: Arc::new(Shared { attempt, agent_id, stream, outbox, shaper, waiting, more }) };
        let ticking = reporter.clone();
        tokio::spawn(async move {
            done.run_until_cancelled(ticking.tick()).await;
        });
        reporter
    }

    /// The sink for an engine.
    pub fn sink(&self) -> Sink {
        let reporter = self.clone();
        Sink::new(move |event| {
            let reporter = reporter.clone();
            async move { reporter.take(event) }
        })
    }

    /// Writes what is waiting.
    pub fn flush(&self) {
        let mut waiting = self.waiting();
        let deltas = waiting.take();
        // Under the lock, so that the order in the log is the order of the calls.
        self.append(deltas);
        drop(waiting);
    }

    /// Gives `event` its place in the log, if it is wanted there.
    pub fn take(&self, event: AgentStreamEvent) {
        if !self.is_wanted(&event) {
            return;
        }
        let mut waiting = self.waiting();
        if waiting.join(&event) {
            let due = waiting.last.is_none_or(|last| last.elapsed() >= FLUSH_INTERVAL) || waiting.bytes >= FLUSH_BYTES;
            if due {
                let deltas = waiting.take();
                self.append(deltas);
            } else {
                self.shared.more.notify_one();
            }
        } else {
            let mut events = waiting.take();
            events.push(event);
            self.append(events);
        }
        drop(waiting);
    }

    async fn tick(self) {
        loop {
            self.shared.more.notified().await;
            let last = self.waiting().last;
            if let Some(last) = last {
                tokio::time::sleep_until(last + FLUSH_INTERVAL).await;
            }
            self.flush();
        }
    }

    fn append(&self, events: Vec<AgentStreamEvent>) {
        for event in events.into_iter().flat_map(|event| self.shared.shaper.fit(event)) {
            let agent_id = self.shared.agent_id.clone();
            self.shared
                .outbox
                .append(&self.shared.attempt, EventBody::Progress { event: AgentEvent { agent_id, event } });
        }
    }

    fn is_wanted(&self, event: &AgentStreamEvent) -> bool {
        let always = match event {
            AgentStreamEvent::Plan { .. }
            | AgentStreamEvent::Memory { .. }
            | AgentStreamEvent::Artifact { .. }
            | AgentStreamEvent::Context(_)
            | AgentStreamEvent::Usage(_)
            | AgentStreamEvent::ApprovalRequired(_)
            | AgentStreamEvent::ApprovalExpired { .. }
            | AgentStreamEvent::ApprovalDecided { .. }
            | AgentStreamEvent::ApprovalOutcome { .. }
            | AgentStreamEvent::UserMessage { .. }
            | AgentStreamEvent::MessageState { .. }
            | AgentStreamEvent::Turn { .. }
            | AgentStreamEvent::Delegate(_)
            | AgentStreamEvent::Child { .. }
            | AgentStreamEvent::ChildStop { .. }
            | AgentStreamEvent::AgentMessage(_)
            | AgentStreamEvent::Gap { .. } => true,
            AgentStreamEvent::Notice { level, .. } => *level != NoticeLevel::Info,
            _ => false,
        };
        let text = matches!(
            event,
            AgentStreamEvent::TextDelta { .. } | AgentStreamEvent::Step { .. } | AgentStreamEvent::Notice { .. }
        );
        match self.shared.stream {
            ReportedDetail::None => always,
            ReportedDetail::Text => always || text,
            ReportedDetail::Full => true,
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingText> {
        self.shared.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitingText {
    /// Takes `event` if it is text that can wait, and joins it with the text that it continues.
    fn join(&mut self, event: &AgentStreamEvent) -> bool {
        use AgentStreamEvent::{ReasoningDelta, TextDelta, ToolOutput};
        let size = match event {
            TextDelta { content } | ReasoningDelta { content } | ToolOutput { content, .. } => content.len(),
            _ => return false,
        };
        self.bytes += size;
        let joined = match (event, self.deltas.last_mut()) {
            (TextDelta { content: more }, Some(TextDelta { content }))
            | (ReasoningDelta { content: more }, Some(ReasoningDelta { content })) => {
                content.push_str(more);
                true
            }
            (ToolOutput { call_id, content: more, before: next }, _) => {
                // The output of one call is ordered by itself, whatever other calls report in between.
                let known = self.deltas.iter_mut().rev().find_map(|known| match known {
                    ToolOutput { call_id: same, content, before } if same == call_id => Some((content, before)),
                    _ => None,
                });
                let known = known.filter(|(content, before)| before.map(|at| at.after(content)) == *next);
                known.map(|(content, _)| content.push_str(more)).is_some()
            }
            _ => false,
        };
        if joined {
            return true;
        }
        self.deltas.push(event.clone());
        true
    }

    fn take(&mut self) -> Vec<AgentStreamEvent> {
        if !self.deltas.is_empty() {
            self.last = Some(Instant::now());
        }
        self.bytes = 0;
        std::mem::take(&mut self.deltas)
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Event, TaskId};

    use super::*;
    use crate::{clock::Clock, home::Home, outbox::Quota};

    struct Fixture {
        _folder: tempfile::TempDir,
        outbox: Outbox,
        attempt: AttemptRef,
        reporter: Reporter,
    }

    fn fixture(stream: ReportedDetail) -> Fixture {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::fixed(protocol::Instant(1));
        let outbox = Outbox::open(folder.path().join("o"), Quota::default(), clock).expect("an outbox");
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
        outbox.begin(&attempt, "a");
        let shaper = EventFitter::new(Home::at(folder.path()), attempt.task_id.clone());
        let done = CancellationToken::new();
        let reporter = Reporter::start(attempt.clone(), "a", stream, (outbox.clone(), shaper), done);
        Fixture { _folder: folder, outbox, attempt, reporter }
    }

    impl Fixture {
        fn events(&self) -> Vec<AgentStreamEvent> {
            let batch = self.outbox.read(&self.attempt, 1, 1 << 20);
            let items = batch.map(|batch| batch.items).unwrap_or_default();
            let events = items.iter().map(|item| protocol::parse_event(item).expect("an event"));
            let inner = |event: Event| match event.body {
                EventBody::Progress { event } => event.event,
                other => panic!("{other:?}"),
            };
            events.map(inner).collect()
        }
    }

    fn text(content: &str) -> AgentStreamEvent {
        AgentStreamEvent::TextDelta { content: content.to_owned() }
    }

    fn output(call: &str, content: &str) -> AgentStreamEvent {
        AgentStreamEvent::ToolOutput { call_id: call.to_owned(), content: content.to_owned(), before: None }
    }

    #[tokio::test]
    async fn the_first_delta_goes_at_once_and_the_others_together() {
        let fixture = fixture(ReportedDetail::Full);
        let sink = fixture.reporter.sink();
        let mut bell = fixture.outbox.bell();
        for word in ["a", "b", "c"] {
            sink.emit(text(word)).await;
        }
        assert_eq!(fixture.events()[0], text("a"));
        while !fixture.outbox.has(&fixture.attempt, 2) {
            bell.changed().await.expect("rang");
        }
        assert_eq!(fixture.events(), [text("a"), text("bc")]);
    }

    #[tokio::test]
    async fn nothing_is_passed_by_what_came_later() {
        let fixture = fixture(ReportedDetail::Full);
        let sink = fixture.reporter.sink();
        let state = AgentStreamEvent::StateChange { state: protocol::ActivityState::Tool, waiting: None };
        for event in
            [text("a"), text("b"), output("1", "x"), output("2", "y"), output("1", "z"), state.clone(), text("c")]
        {
            sink.emit(event).await;
        }
        fixture.reporter.flush();
        assert_eq!(fixture.events(), [text("a"), text("b"), output("1", "xz"), output("2", "y"), state, text("c")]);
    }

    #[tokio::test]
    async fn only_what_was_asked_for_is_reported() {
        for (stream, expected) in [(ReportedDetail::None, 0), (ReportedDetail::Text, 1), (ReportedDetail::Full, 2)] {
            let fixture = fixture(stream);
            fixture.reporter.sink().emit(text("a")).await;
            fixture.reporter.sink().emit(output("1", "x")).await;
            fixture.reporter.flush();
            assert_eq!(fixture.events().len(), expected);
        }
    }
}
