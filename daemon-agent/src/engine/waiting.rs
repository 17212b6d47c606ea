//! Records of attempts that only wait: what each needs to go on after the daemon was restarted.
//!
//! Owns the form of a record on disk, and which records can be used. A record is written and removed by `report::Rest`.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use protocol::{
    AgentStreamEvent, AgentWait, ApprovalId, AttemptRef, EventBody, Instant, MessageId, MessageProgress, PausePoint,
    TaskSubmit,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    artifacts::ReportedArtifacts,
    damaged,
    engine::builtin::LoopRecord,
    home::{Home, remove_private},
    report::{MessageQueue, activity::Activity},
    workspace::hex,
};

/// The version of the form; records of another one are set aside.
const VERSION: u32 = 1;

/// What an attempt needs to go on.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingRecord {
    /// When it was written.
    pub at: Instant,
    /// The seq of the attempt's first event behind it.
    pub next_seq: u64,
    /// With its whole content.
    pub submit: TaskSubmit,
    /// Whether it began on this machine.
    pub local: bool,
    /// A folder that the person at this machine named for the task.
    pub space: Option<PathBuf>,
    /// The model that answers.
    pub model: String,
    /// Whether that is the agent's `fallbackModel`.
    pub is_fallback: bool,
    /// The folders that the agent works in, those that were there.
    pub spaces: Vec<PathBuf>,
    pub pause: Option<PausePoint>,
    pub messages: MessageQueue,
    /// How long the task has worked.
    pub worked: Duration,
    /// Whether the wait counts as work.
    pub wait_counts: bool,
    /// The wait, if it was reported before the record was written.
    pub reported_wait: Option<AgentWait>,
    pub activity: Activity,
    pub artifacts: ReportedArtifacts,
    pub task: LoopRecord,
}

/// The form on disk.
#[derive(Serialize, Deserialize)]
struct RecordFile<'a> {
    version: u32,
    /// Of the record's bytes, in hex.
    sha256: String,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// An attempt that goes on.
pub struct Resumed {
    pub record: WaitingRecord,
    pub reported: ReportedSince,
}

/// What the attempt's log has behind the record.
#[derive(Debug, Default)]
pub struct ReportedSince {
    pub questions: HashSet<ApprovalId>,
    pub calls: HashSet<String>,
    /// Versions of messages that were delivered.
    pub delivered: HashSet<(MessageId, u32)>,
    /// The last change of its state, if there was one.
    pub state: Option<ReportedState>,
}

/// A state that was reported.
#[derive(Debug)]
pub struct ReportedState {
    pub wait: Option<AgentWait>,
}

impl WaitingRecord {
    /// Which attempt this is.
    pub fn attempt(&self) -> AttemptRef {
        AttemptRef { task_id: self.submit.task_id.clone(), attempt: self.submit.attempt }
    }

    /// How long the task has worked when it goes on at `now`.
    pub fn worked_until(&self, now: Instant) -> Duration {
        let waited = u64::try_from(now.millis().saturating_sub(self.at.millis())).unwrap_or(0);
        self.worked + if self.wait_counts { Duration::from_millis(waited) } else { Duration::ZERO }
    }

    /// The file's content.
    pub fn bytes(&self) -> serde_json::Result<Vec<u8>> {
        let record = serde_json::value::to_raw_value(self)?;
        serde_json::to_vec(&RecordFile { version: VERSION, sha256: hex(record.get().as_bytes()), record: &record })
    }

    /// Reads a file's content; `Err` says what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let file: RecordFile<'_> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if file.version != VERSION {
            return Err(format!("its version is {}", file.version));
        }
        if hex(file.record.get().as_bytes()) != file.sha256 {
            return Err("its content is not what was written".to_owned());
        }
        serde_json::from_str(file.record.get()).map_err(|error| error.to_string())
    }
}

/// The records of a home. What is no sound record is set aside. Blocks.
pub fn read_all(home: &Home, now: Instant) -> BTreeMap<AttemptRef, WaitingRecord> {
    let mut all = BTreeMap::new();
    for path in fs::read_dir(home.waiting()).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "new") {
            // A kill left it behind before it became a record.
            let _ = remove_private(&path);
            continue;
        }
        match read(home, &path) {
            Ok(record) => {
                all.insert(record.attempt(), record);
            }
            Err(why) => set_aside(home, &path, &why, now),
        }
    }
    all
}

fn read(home: &Home, path: &Path) -> Result<WaitingRecord, String> {
    let bytes = damaged::read(path).map_err(|error| error.to_string())?;
    let record = WaitingRecord::read(&bytes.ok_or("it is not a file")?)?;
    if home.waiting_record(&record.attempt()) != path {
        return Err("it is the record of another attempt".to_owned());
    }
    Ok(record)
}

fn set_aside(home: &Home, path: &Path, why: &str, now: Instant) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match damaged::move_aside(&home.damaged(), path, &format!("waiting.{name}"), now) {
        Ok(kept) => {
            tracing::error!(kept = %kept.display(), "a task that waited cannot go on, its record cannot be used: {why}");
        }
        Err(error) => tracing::error!(file = %path.display(), "a record cannot be used ({why}) or set aside: {error}"),
    }
}

impl ReportedSince {
    /// Takes the next event of the log.
    pub fn add(&mut self, body: EventBody) {
        let EventBody::Progress { event } = body else { return };
        match event.event {
            AgentStreamEvent::ApprovalRequired(asked) => {
                self.questions.insert(asked.approval_id);
            }
            AgentStreamEvent::Delegate(asked) => {
                self.questions.insert(asked.request_id);
            }
            AgentStreamEvent::ToolCall { call_id, .. } => {
                self.calls.insert(call_id);
            }
            AgentStreamEvent::MessageState { message_id, rev, state: MessageProgress::Delivered, .. } => {
                self.delivered.insert((message_id, rev));
            }
            AgentStreamEvent::StateChange { waiting, .. } => self.state = Some(ReportedState { wait: waiting }),
            _ => {}
        }
    }
}
