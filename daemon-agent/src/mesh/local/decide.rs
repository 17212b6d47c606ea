//! What people decide and interrupt at the machine, and how its adapters fare.

use std::{collections::BTreeMap, io};

use protocol::{AdapterInfo, AdapterState, ApprovalResponse, AttemptRef, Command, InterruptSignal, SessionId};
use tokio::sync::watch;

use super::SaidStore;
use crate::mesh::{Mesh, StopCause, attempt_of};

/// Longest detail of an adapter's state, bytes.
const MAX_DETAIL_BYTES: usize = 500;
/// Longest reason of an interrupt that is kept, bytes: it becomes part of an event for each task.
const MAX_REASON_BYTES: usize = 2_000;
/// Longest note and longest answer of a decision, bytes, as on the Board.
const MAX_NOTE_BYTES: usize = 8 * 1024;
const MAX_ANSWER_BYTES: usize = 16 * 1024;

/// Why a decision was not taken.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error("this question is decided already, or is not asked any more")]
    NotPending,
    #[error("a note has at most 8 KiB, an answer at most 16 KiB")]
    TooLong,
    #[error("the decision cannot be kept: {0}")]
    Disk(#[from] io::Error),
}

/// What an interrupt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interrupted(pub Vec<AttemptRef>);

/// What the mesh keeps of the machine's own adapters.
pub(in crate::mesh) struct LocalState {
    pub(super) store: SaidStore,
    /// Held while a message gets its place, so that those of a session keep their order.
    pub(super) turn: tokio::sync::Mutex<()>,
    adapters: watch::Sender<BTreeMap<String, AdapterInfo>>,
}

impl LocalState {
    pub(in crate::mesh) fn new(store: SaidStore) -> Self {
        Self { store, turn: tokio::sync::Mutex::default(), adapters: watch::Sender::default() }
    }
}

impl Mesh {
    /// Follows a decision that somebody made through the adapter that it names, if it is the first one. It is on disk
    /// before the agent hears it.
    pub async fn decide(&self, response: ApprovalResponse) -> Result<(), DecideError> {
        let is_longer = |text: &Option<String>, most| text.as_ref().is_some_and(|text| text.len() > most);
        if is_longer(&response.note, MAX_NOTE_BYTES) || is_longer(&response.answer, MAX_ANSWER_BYTES) {
            return Err(DecideError::TooLong);
        }
        if !self.shared.approvals.is_pending(&response.approval_id, &response.digest) {
            return Err(DecideError::NotPending);
        }
        let command = Command::Approval(Box::new(response.clone()));
        self.blocking(move |journal| journal.keep(vec![command])).await??;
        match self.shared.approvals.answer(response) {
            true => Ok(()),
            false => Err(DecideError::NotPending),
        }
    }

    /// Ends what the signal names, and says what that is. That it is to end is on disk when this returns.
    pub async fn interrupt(&self, signal: InterruptSignal) -> io::Result<Interrupted> {
        let InterruptSignal { target_agent_id: target, session_id, reason } = signal;
        let is_hit = |agent: &str, session: &SessionId| {
            (target == "*" || target == agent) && session_id.as_ref().is_none_or(|wanted| wanted == session)
        };
        let hit: Vec<AttemptRef> = {
            let state = self.state();
            // What is being stopped already is nobody's to stop again.
            let running = state.running.iter().filter(|(_, live)| !live.stop.token().is_cancelled());
            let running = running.filter(|(_, live)| is_hit(&live.agent_id, &live.session_id));
            let running = running.map(|(attempt, _)| attempt.clone());
            let queued = state.queue.iter().filter(|submit| is_hit(&submit.agent_id, &submit.session_id));
            running.chain(queued.map(attempt_of)).collect()
        };
        let reason = match protocol::text::head(reason.trim(), MAX_REASON_BYTES) {
            "" => "interrupted at the machine".to_owned(),
            reason => reason.to_owned(),
        };
        self.note_stop(hit.clone(), reason.clone()).await?;
        self.stop(&StopCause::Stop(reason), |attempt, _| hit.contains(attempt));
        Ok(Interrupted(hit))
    }

    /// The session of an attempt that has not ended.
    pub fn session_of(&self, wanted: &AttemptRef) -> Option<SessionId> {
        let state = self.state();
        let running = state.running.get(wanted).map(|live| live.session_id.clone());
        running.or_else(|| {
            let queued = state.queue.iter().find(|submit| attempt_of(submit) == *wanted);
            queued.map(|submit| submit.session_id.clone())
        })
    }

    /// Records how an adapter fares.
    pub fn report_adapter(&self, id: &str, state: AdapterState, detail: Option<String>) {
        let detail = detail.map(|detail| protocol::text::head(&detail, MAX_DETAIL_BYTES).to_owned());
        let now = self.clock().now();
        self.shared.local.adapters.send_if_modified(|all| {
            let known = all.get(id);
            if known.is_some_and(|known| known.state == state && known.detail == detail) {
                return false;
            }
            let since = known.filter(|known| known.state == state).map_or(now, |known| known.since);
            all.insert(id.to_owned(), AdapterInfo { id: id.to_owned(), state, since, detail });
            true
        });
    }

    /// An adapter is not configured any more.
    pub fn forget_adapter(&self, id: &str) {
        self.shared.local.adapters.send_if_modified(|all| all.remove(id).is_some());
    }

    /// The machine's own adapters.
    pub fn adapters(&self) -> Vec<AdapterInfo> {
        self.shared.local.adapters.borrow().values().cloned().collect()
    }

    /// Notifies when one of them fares otherwise.
    pub fn adapter_changes(&self) -> watch::Receiver<BTreeMap<String, AdapterInfo>> {
        self.shared.local.adapters.subscribe()
    }
}
