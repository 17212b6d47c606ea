//! The message router between the adapters and the task runner: commands arrive here, start and stop attempts, and the
//! attempts' endings go to the outbox.
//!
//! Owns the registry of live attempts and their schedule: at most `maxTasks` run at a time, in order of arrival, and
//! each is started once. Knows nothing of transports.

mod attempts;
mod edits;
mod kept_results;
mod late_repairs;
mod local;
mod messages;
mod pauses;
mod recover;
mod skill_changes;
mod standing;
mod team_rules;
mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    io,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{
    ActivityState, Attachment, AttemptRef, Command, EventBody, Fence, Instant, NumberedCommand, SessionId, TaskId,
    TaskSubmit, WorkspaceWrite,
};
use serde::Serialize;
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    clock::Clock,
    config::ConfigSnapshot,
    home::Home,
    journal::{Journal, JournalError},
    mcp::McpServers,
    memory::{Memory, TaskSummary},
    outbox::Outbox,
    report::{Approvals, Children, Inbox, PauseSwitch, Rest, activity::Pulse},
    skills::Skills,
    task::StopSwitch,
    workspace::{CommandOwner, Violation, Workspace},
};

use attempts::AskedFor;

pub use crate::task::StopCause;
pub use local::{AcceptedMessage, DecideError, Interrupted, LocalTask, SayError};
pub use standing::BoardStatus;

/// Fetches a payload that was too large for a frame, by its path below the Board's address.
pub type FetchPayload =
    Arc<dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<Vec<u8>, FetchError>> + Send>> + Send + Sync>;

/// Fetches a file that came with a goal, into the given place.
pub type FetchAttachment =
    Arc<dyn Fn(Attachment, PathBuf) -> Pin<Box<dyn Future<Output = Result<(), FetchError>> + Send>> + Send + Sync>;

/// Why something could not be fetched.
#[derive(Debug)]
pub enum FetchError {
    /// It may work later.
    Later(String),
    Never(String),
}

/// The router and the registry of this viber's attempts. Cheap to clone.
#[derive(Clone)]
pub struct Mesh {
    shared: Arc<Shared>,
}

/// The dependencies of a mesh.
pub struct MeshContext {
    pub home: Home,
    pub workspace: Workspace,
    pub clock: Clock,
    pub outbox: Outbox,
    pub journal: Arc<Journal>,
    pub files: watch::Receiver<Arc<ConfigSnapshot>>,
    pub skills: Skills,
    /// The Board's address, if this home has joined one.
    pub board: Option<String>,
    pub fetch: FetchPayload,
    pub carry: FetchAttachment,
}

struct Shared {
    context: MeshContext,
    /// Attempts of which a former process left events.
    left: BTreeSet<AttemptRef>,
    tracker: TaskTracker,
    state: Mutex<MeshState>,
    /// Notifies when an attempt began or ended.
    changed: watch::Sender<u64>,
    /// Notifies when a file edit or a change of skills was made, or refused.
    outcomes: watch::Sender<u64>,
    standing: watch::Sender<BoardStatus>,
    /// Questions of tasks that wait for a person's answer.
    approvals: Approvals,
    memory: Memory,
    mcp: McpServers,
    /// What people say at this machine, and its adapters.
    local: local::LocalState,
    /// Held while ledgers of playbooks' runs are written.
    ledger_turn: tokio::sync::Mutex<()>,
}

/// A task that runs, as `status` shows it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunningTask {
    pub task_id: TaskId,
    pub attempt: u32,
    pub session_id: SessionId,
    pub agent_id: String,
    /// The goal in one line, shortened.
    pub goal: String,
    pub since: Instant,
    /// Whether it began on this machine.
    pub local: bool,
    /// What it does now.
    pub state: ActivityState,
}

#[derive(Default)]
struct MeshState {
    queue: VecDeque<TaskSubmit>,
    /// File edits that are still to be made; the first one is under way.
    writes: VecDeque<Box<WorkspaceWrite>>,
    /// The same of changes of skills, and of what MCP servers may offer.
    skill_changes: VecDeque<NumberedCommand>,
    running: BTreeMap<AttemptRef, LiveAttempt>,
    /// What people say to attempts, from when they are requested to their end.
    inboxes: BTreeMap<AttemptRef, Inbox>,
    /// Attempts that people hold or held.
    pauses: BTreeMap<AttemptRef, PauseSwitch>,
    /// Attempts whose endings are being written.
    ending: BTreeSet<AttemptRef>,
    /// Violations by commands of attempts from before this start, to be reported in these attempts' logs.
    undone: BTreeMap<AttemptRef, (CommandOwner, Vec<Violation>)>,
    /// Attempts at rest that could go on, the first one first.
    wanting: VecDeque<AttemptRef>,
    drained: bool,
    closing: bool,
    /// Another machine uses this viber's identity: nothing new is started.
    paused: bool,
    /// The Board has sent its welcome: attempts from before this start may be continued.
    ready: bool,
    /// Whatever tasks of this machine asked for, until it has ended.
    asked_for: BTreeMap<AttemptRef, AskedFor>,
    /// How many tasks this machine made in each tree, by the task that it begins with; the oldest first.
    trees: VecDeque<(TaskId, u32)>,
    /// Pending stop because of `onDisconnect`; cancelled when the Board is connected again.
    disconnect_stop: Option<CancellationToken>,
}

struct LiveAttempt {
    agent_id: String,
    session_id: SessionId,
    /// The goal in one line.
    title: String,
    since: Instant,
    stop: StopSwitch,
    rest: Rest,
    /// Tasks that it asks others for.
    children: Children,
    pulse: Pulse,
    /// As one of those that may run at the same time.
    counts: bool,
    /// Started on this machine: the Board did not assign it, and a disconnect does not end it.
    local: bool,
}

impl Mesh {
    /// A mesh without attempts.
    pub fn new(context: MeshContext) -> Self {
        let state = MeshState { drained: context.journal.held().drained, ..MeshState::default() };
        let (changed, outcomes) = (watch::Sender::new(0), watch::Sender::new(0));
        let (tracker, state, standing) =
            (TaskTracker::new(), Mutex::new(state), watch::Sender::new(BoardStatus::default()));
        let approvals = Approvals::default();
        let memory =
            Memory::new(context.home.clone(), context.workspace.clone(), context.clock.clone(), context.files.clone());
        let mcp = McpServers::open(&context.home, &context.clock, context.files.clone());
        let ledger_turn = tokio::sync::Mutex::default();
        let local = local::LocalState::new(local::SaidStore::open(context.home.said()));
        let left = context.outbox.attempts().into_iter().map(|(attempt, _)| attempt).collect();
        let shared = Shared {
            context,
            left,
            tracker,
            state,
            changed,
            outcomes,
            standing,
            approvals,
            memory,
            mcp,
            local,
            ledger_turn,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Where everything of this viber lies.
    pub fn home(&self) -> &Home {
        &self.shared.context.home
    }

    /// The logs that adapters read.
    pub fn outbox(&self) -> &Outbox {
        &self.shared.context.outbox
    }

    /// The configuration, now and whenever it changes.
    pub fn files(&self) -> watch::Receiver<Arc<ConfigSnapshot>> {
        self.shared.context.files.clone()
    }

    /// The skills of this machine.
    pub fn skills(&self) -> &Skills {
        &self.shared.context.skills
    }

    /// The MCP servers of this machine.
    pub fn mcp(&self) -> &McpServers {
        &self.shared.mcp
    }

    /// The files that people, agents and the Board share.
    pub fn workspace(&self) -> Workspace {
        self.shared.context.workspace.clone()
    }

    /// What agents remember.
    pub fn memory(&self) -> &Memory {
        &self.shared.memory
    }

    /// The machine's clock.
    pub fn clock(&self) -> &Clock {
        &self.shared.context.clock
    }

    /// The number of the last command on disk.
    pub fn last_cmd_seq(&self) -> u64 {
        self.shared.context.journal.last_cmd_seq()
    }

    /// Puts commands on disk and applies the new ones. Returns the number that can then be acknowledged.
    pub async fn take(&self, commands: Vec<NumberedCommand>) -> Result<u64, JournalError> {
        for numbered in self.journalled(commands).await? {
            self.apply(numbered).await;
        }
        Ok(self.last_cmd_seq())
    }

    /// Puts commands on disk. Returns the new ones.
    async fn journalled(&self, commands: Vec<NumberedCommand>) -> Result<Vec<NumberedCommand>, JournalError> {
        self.note_stops(&commands).await?;
        self.blocking(move |journal| journal.commands(commands)).await?
    }

    /// The Board replays commands from `next` on.
    pub async fn replayed_from(&self, next: u64) -> io::Result<()> {
        self.blocking(move |journal| journal.skip_to(next)).await?
    }

    async fn apply(&self, NumberedCommand { cmd_seq, command }: NumberedCommand) {
        // A command that was lost to damage and is sent again does not apply to attempts that came after it.
        let newer = || self.shared.context.journal.held().newer_than(cmd_seq);
        match command {
            Command::Submit(submit) => self.submit(*submit).await,
            Command::Stop { task_id, attempt, reason } => {
                let named = AttemptRef { task_id, attempt };
                self.stop(&StopCause::Stop(reason), |attempt, _| *attempt == named);
            }
            Command::StopAll { reason } => {
                let newer = newer();
                self.stop(&StopCause::Stop(reason), |attempt, _| !newer.contains(attempt));
            }
            Command::Interrupt { target_agent_id, reason } => {
                let newer = newer();
                self.stop(&StopCause::Stop(reason), |attempt, agent| {
                    !newer.contains(attempt) && (target_agent_id == "*" || target_agent_id == agent)
                });
            }
            Command::Drain { drained } => {
                self.state().drained = drained;
                self.ring();
                self.pump();
            }
            Command::Write(write) => self.write(write),
            Command::Approval(response) => {
                self.shared.approvals.answer(*response);
            }
            Command::Pause { task_id, attempt, at } => self.hold(&AttemptRef { task_id, attempt }, at),
            Command::Resume { task_id, attempt } => self.let_go_on(&AttemptRef { task_id, attempt }, cmd_seq),
            Command::Message(message) => self.talk(*message, &newer()),
            Command::InstallSkill(_)
            | Command::RemoveSkill { .. }
            | Command::AcceptSkill { .. }
            | Command::EnableSkill { .. }
            | Command::AllowMcp { .. } => self.change_skills(NumberedCommand { cmd_seq, command }),
            Command::Ledger(_) => self.write_ledgers(),
            Command::Child(report) => self.tell_child(*report),
        }
    }

    async fn submit(&self, submit: TaskSubmit) {
        let attempt = attempt_of(&submit);
        if self.state().holds(&attempt) {
            return;
        }
        if self.outbox().next(&attempt) != 0 {
            // An attempt is started at most once, whatever is requested: this one is over.
            return self.settle(&attempt).await;
        }
        self.outbox().begin(&attempt, &submit.agent_id);
        self.outbox().append(&attempt, EventBody::Accepted {});
        if self.is_logged(&submit).await {
            // Nothing in `state/` mentions it: that was damaged, or an old copy was restored.
            return self.end_soon(attempt, recover::forgotten());
        }
        self.enqueue(submit, Vec::new());
        self.ring();
        self.pump();
    }

    /// Ends attempts that newer ones have superseded on the Board.
    pub fn fence(&self, fences: &[Fence]) {
        // What it asked for goes on: the newer attempt is told of it.
        self.stop_exactly(&fenced(), |attempt, _| is_fenced(fences, attempt));
    }

    /// The Board has recorded events: what is settled is deleted from disk.
    pub async fn acknowledged(&self, acked: Vec<(AttemptRef, u64)>) {
        let done = self.outbox().acknowledge(&acked);
        self.forget(done).await;
    }

    /// The Board will not accept events of these attempts: they are kept for a while, but neither announced nor sent.
    pub async fn refused(&self, attempts: Vec<AttemptRef>) {
        let outbox = self.outbox().clone();
        let kept = tokio::task::spawn_blocking(move || attempts.iter().for_each(|attempt| outbox.refuse(attempt)));
        if let Err(error) = kept.await {
            tracing::error!("a refusal was not noted: {error}");
        }
    }

    async fn forget(&self, done: Vec<AttemptRef>) {
        if done.is_empty() {
            return;
        }
        let settled = done.clone();
        match self.blocking(move |journal| journal.ended(&settled)).await.flatten() {
            Ok(()) => done.iter().for_each(|attempt| self.outbox().forget(attempt)),
            Err(error) => tracing::warn!("the journal cannot be written: {error}"),
        }
    }

    /// Records the ending of an attempt that does not run, without making the caller wait for the disk.
    fn end_soon(&self, attempt: AttemptRef, ending: EventBody) {
        self.end_with(attempt, ending, None);
    }

    fn end_with(&self, attempt: AttemptRef, ending: EventBody, task_summary: Option<TaskSummary>) {
        self.state().ending.insert(attempt.clone());
        let mesh = self.clone();
        self.shared.tracker.spawn(async move { mesh.end(&attempt, ending, task_summary).await });
    }

    /// Records the ending of an attempt and its summary, and forgets the attempt.
    async fn end(&self, attempt: &AttemptRef, ending: EventBody, task_summary: Option<TaskSummary>) {
        let session = self.session_of(attempt);
        self.settle_said(attempt, &ending).await;
        let report = self.child_report(attempt, &ending);
        self.outbox().end(attempt, ending).await;
        if let Some(report) = report {
            self.tell_child(report);
        }
        self.add_daily_log_entry(task_summary).await;
        self.settle(attempt).await;
        self.remove_record(attempt).await;
        self.forget_results(attempt).await;
        {
            let mut state = self.state();
            state.running.remove(attempt);
            state.ending.remove(attempt);
            state.inboxes.remove(attempt);
            state.pauses.remove(attempt);
        }
        if let Some(session) = session {
            self.say_next(&session).await;
        }
        self.ring();
        self.pump();
    }

    /// Attempts of this process.
    fn of_this_process(&self) -> Vec<AttemptRef> {
        let state = self.state();
        let queued = state.queue.iter().map(attempt_of);
        let all: BTreeSet<AttemptRef> =
            queued.chain(state.running.keys().cloned()).chain(state.ending.iter().cloned()).collect();
        all.into_iter().collect()
    }

    /// These, and everything that a former process left, for `hello`: the Board answers what it knows of them.
    pub fn held(&self) -> Vec<AttemptRef> {
        let mut all: BTreeSet<AttemptRef> = self.of_this_process().into_iter().collect();
        if !self.state().ready {
            all.extend(self.shared.context.journal.held().attempts.iter().map(|held| held.attempt()));
            all.extend(self.outbox().attempts().into_iter().map(|(attempt, _)| attempt));
        }
        all.into_iter().collect()
    }

    /// These, and attempts whose ending the Board has not seen: heartbeats must include them.
    pub fn unsettled(&self) -> Vec<AttemptRef> {
        let all: BTreeSet<AttemptRef> =
            self.held().into_iter().chain(self.outbox().attempts().into_iter().map(|(attempt, _)| attempt)).collect();
        all.into_iter().collect()
    }

    /// How many attempts run, those at rest among them, and how many wait for their turn.
    pub fn load(&self) -> (usize, usize) {
        let state = self.state();
        (state.running.len(), state.queue.len())
    }

    /// Whether the Board asked to start no new tasks.
    pub fn is_drained(&self) -> bool {
        self.state().drained
    }

    /// Notifies when an attempt began or ended, or a change of the configuration affects what may run.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Starts nothing new while another machine uses this viber's identity.
    pub fn pause(&self, paused: bool) {
        self.state().paused = paused;
        self.pump();
    }

    async fn blocking<T: Send + 'static>(&self, work: impl FnOnce(&Journal) -> T + Send + 'static) -> io::Result<T> {
        let journal = self.shared.context.journal.clone();
        tokio::task::spawn_blocking(move || work(&journal)).await.map_err(io::Error::other)
    }

    fn ring(&self) {
        self.shared.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    fn state(&self) -> MutexGuard<'_, MeshState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MeshState {
    fn holds(&self, attempt: &AttemptRef) -> bool {
        self.running.contains_key(attempt)
            || self.ending.contains(attempt)
            || self.queue.iter().any(|submit| attempt_of(submit) == *attempt)
    }
}

fn attempt_of(submit: &TaskSubmit) -> AttemptRef {
    AttemptRef { task_id: submit.task_id.clone(), attempt: submit.attempt }
}

fn is_fenced(fences: &[Fence], attempt: &AttemptRef) -> bool {
    fences.iter().any(|fence| fence.task_id == attempt.task_id && attempt.attempt < fence.min_attempt)
}

fn fenced() -> StopCause {
    StopCause::Stop("a newer attempt of the task was started".to_owned())
}

#[cfg(test)]
mod tests;
