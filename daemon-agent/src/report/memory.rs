//! What an agent may do with its memory: take a note for the day, change `MEMORY.md` as the session's policy allows,
//! and search.
//!
//! Owns how a note becomes a new version of a file or a proposal, and what is reported of it. Does not know how files
//! are written safely (`workspace`) and how passages are found (`memory`).

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{
    AgentStreamEvent, MemorySearch, Note, NoteKind, NoteOutcome, Policy,
    limits::MAX_EVENT_BYTES,
    plan::MAX_PLAN_BYTES,
    suggestion::{MAX_SUGGESTIONS, suggestions},
    text::{head, printable},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Sink;
use crate::{
    memory::{CURATED_NAMES, Memory},
    workspace::{Author, LocalWriteState},
};

/// Most attempts to apply a change when somebody else keeps writing to the file.
const MAX_WRITE_ATTEMPTS: usize = 8;
/// Longest note, bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;
/// Most notes that one attempt may take.
const MAX_NOTES: usize = 100;
/// Largest report, bytes of JSON.
const MAX_CONTENT_BYTES: usize = MAX_EVENT_BYTES - 8 * 1024;
/// Largest text that is proposed, bytes: the Board accepts no larger one.
const MAX_PROPOSAL_BYTES: usize = 2 * MAX_PLAN_BYTES;
/// The note of a proposal for text that appeared in the file without a tool. It is not certain who wrote it.
const PROPOSAL_NOTE: &str = "Written into the file while a command ran.";
/// Longest line that is reported of a note, bytes.
const MAX_NOTE_LINE_BYTES: usize = 200;

/// The memory as one attempt uses it. Cheap to clone.
#[derive(Clone)]
pub struct MemoryEditor(Arc<Inner>);

struct Inner {
    memory: Memory,
    agent: String,
    policy: Policy,
    sink: Sink,
    /// Notes of this attempt that wait for a person: each proposal contains all of them.
    proposed: Mutex<Vec<String>>,
    /// The file as commands of this attempt wanted it: notes that are proposed later are added to that.
    written: Mutex<Option<String>>,
    notes: Mutex<Vec<Note>>,
    /// Held during a change, so that changes are made one after another.
    turn: tokio::sync::Mutex<()>,
}

/// What one attempt did with the memory until now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemoryProgress {
    proposed: Vec<String>,
    written: Option<String>,
    notes: Vec<Note>,
}

impl MemoryEditor {
    /// The editor for an attempt of this agent.
    pub fn open(agent_id: &str, policy: Policy, memory: Memory, sink: Sink) -> Self {
        let agent = agent_id.to_owned();
        let (proposed, written, notes, turn) = Default::default();
        Self(Arc::new(Inner { memory, agent, policy, sink, proposed, written, notes, turn }))
    }

    /// What this attempt did until now.
    pub fn progress(&self) -> MemoryProgress {
        let (proposed, written) = (held(&self.0.proposed).clone(), held(&self.0.written).clone());
        MemoryProgress { proposed, written, notes: held(&self.0.notes).clone() }
    }

    /// Goes on from what this attempt did before a restart.
    pub fn go_on_from(&self, progress: MemoryProgress) {
        *held(&self.0.proposed) = progress.proposed;
        *held(&self.0.written) = progress.written;
        *held(&self.0.notes) = progress.notes;
    }

    /// Whether changes of `MEMORY.md` become proposals.
    pub fn proposes(&self) -> bool {
        self.0.policy == Policy::Propose
    }

    /// Proposes text that a command wrote into the file at `path` and that was put back.
    pub async fn propose_written(&self, path: &str, text: &str) -> Result<(), String> {
        let _turn = self.0.turn.lock().await;
        let (standing, now, base) = self.now().await?;
        let wanted = if standing == path { text.to_owned() } else { with(&now, text) };
        let wanted = match held(&self.0.written).as_deref() {
            Some(before) => both(&now, before, wanted),
            None => wanted,
        };
        let notes = held(&self.0.proposed).clone();
        self.emit(standing, (&wanted, base), &notes, PROPOSAL_NOTE).await?;
        *held(&self.0.written) = Some(wanted);
        let note =
            Note { note: PROPOSAL_NOTE.to_owned(), kind: NoteKind::Memory, became: NoteOutcome::Proposed, why: None };
        let mut notes = held(&self.0.notes);
        if notes.len() < MAX_NOTES && !notes.contains(&note) {
            notes.push(note);
        }
        Ok(())
    }

    /// Remembers `note`.
    pub async fn remember(&self, note: &str, kind: NoteKind) -> Result<NoteOutcome, String> {
        let text = printable(note).trim().to_owned();
        let done = if text.is_empty() {
            Err("a note must have at least one word".to_owned())
        } else if text.len() > MAX_NOTE_BYTES {
            Err(format!("a note has at most {MAX_NOTE_BYTES} bytes"))
        } else if held(&self.0.notes).len() >= MAX_NOTES {
            Err(format!("a task has at most {MAX_NOTES} notes"))
        } else {
            match kind {
                NoteKind::Daily => self.add_daily_note(&text).await,
                NoteKind::Memory => self.change(&text).await,
            }
        };
        let (became, why) = match &done {
            Ok(became) => (*became, None),
            Err(why) => (NoteOutcome::Refused, Some(head(why, MAX_NOTE_LINE_BYTES).to_owned())),
        };
        let first = text.lines().next().unwrap_or_default();
        let mut notes = held(&self.0.notes);
        if notes.len() < MAX_NOTES {
            notes.push(Note { note: head(first, MAX_NOTE_LINE_BYTES).to_owned(), kind, became, why });
        }
        done
    }

    /// Takes the notes that an answer suggests. Returns how many were taken, and why others were not.
    pub async fn take_suggestions(&self, answer: &str) -> (usize, Vec<String>) {
        let all = suggestions(answer);
        let (mut taken, mut wrong) = (0, Vec::new());
        if all.len() > MAX_SUGGESTIONS {
            wrong.push(format!("an answer may contain at most {MAX_SUGGESTIONS} suggestions for the memory"));
        }
        for note in all.into_iter().take(MAX_SUGGESTIONS) {
            match self.remember(note, NoteKind::Memory).await {
                Ok(_) => taken += 1,
                Err(why) => wrong.push(why),
            }
        }
        (taken, wrong)
    }

    /// Search results in the form that a model reads.
    pub async fn search(&self, query: &str, limit: Option<u32>) -> Result<String, String> {
        let asked = MemorySearch { agent_id: self.0.agent.clone(), query: query.to_owned(), limit };
        let found = self.0.memory.search(&asked).await?;
        if found.items.is_empty() {
            return Ok(format!("Nothing was found; {} passages are known. Try other words.", found.known));
        }
        let one = |(n, item): (usize, &protocol::RecalledPassage)| {
            let at = item.at.map(|at| format!(", {}", head(&at.to_string(), 16))).unwrap_or_default();
            let title = if item.title.is_empty() { String::new() } else { format!(": {}", item.title) };
            format!("{}. {}{at}{title}\n{}", n + 1, item.path, item.excerpt)
        };
        Ok(found.items.iter().enumerate().map(one).collect::<Vec<_>>().join("\n\n"))
    }

    /// `result.memory` of the task: the outcome of each note.
    pub fn result(&self) -> Option<Value> {
        let notes = held(&self.0.notes);
        (!notes.is_empty()).then(|| json!({ "notes": *notes }))
    }

    async fn add_daily_note(&self, note: &str) -> Result<NoteOutcome, String> {
        let (path, hash) = self.0.memory.add_note(note, Author::Agent).await?;
        self.tell(&path, &hash).await;
        Ok(NoteOutcome::Applied)
    }

    /// Adds a note to `MEMORY.md`, or proposes to.
    async fn change(&self, note: &str) -> Result<NoteOutcome, String> {
        let _turn = self.0.turn.lock().await;
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let (path, now, base) = self.now().await?;
            let wanted = with(&now, note);
            if wanted == now {
                return Ok(NoteOutcome::Known);
            }
            if self.0.policy == Policy::Propose {
                return self.propose(path, &now, base, note).await;
            }
            let (workspace, text) = (self.0.memory.workspace(), wanted);
            let put = move || workspace.put(path, base.as_deref(), text.as_bytes(), Author::Agent);
            let written = tokio::task::spawn_blocking(put).await.map_err(|error| error.to_string())?;
            match written {
                Ok(written) if written.state == LocalWriteState::Applied => {
                    self.0.memory.wrote(None, &format!("workspace/{path}"));
                    self.tell(path, &written.hash.unwrap_or_default()).await;
                    return Ok(NoteOutcome::Applied);
                }
                // Another writer changed the file in between: try again with the current content.
                Ok(_) => {}
                Err(refused) => return Err(format!("{path} cannot be written: {refused}")),
            }
        }
        Err("another writer keeps changing MEMORY.md; try again".to_owned())
    }

    /// Proposes the current file with all notes of this attempt that wait.
    async fn propose(
        &self,
        path: &'static str,
        now: &str,
        base: Option<String>,
        note: &str,
    ) -> Result<NoteOutcome, String> {
        let mut notes = held(&self.0.proposed).clone();
        if notes.iter().any(|known| known == note) {
            return Ok(NoteOutcome::Known);
        }
        notes.push(note.to_owned());
        let from = held(&self.0.written).clone();
        let about = if from.is_some() { PROPOSAL_NOTE } else { "" };
        self.emit(path, (&from.unwrap_or_else(|| now.to_owned()), base), &notes, about).await?;
        *held(&self.0.proposed) = notes;
        Ok(NoteOutcome::Proposed)
    }

    /// Proposes `text` with `notes`; `about` says what else it contains.
    async fn emit(
        &self,
        path: &'static str,
        (text, base): (&str, Option<String>),
        notes: &[String],
        about: &str,
    ) -> Result<(), String> {
        let proposal = notes.iter().fold(text.to_owned(), |text, note| with(&text, note));
        let first = notes.iter().filter_map(|note| note.lines().next()).map(|line| head(line, MAX_NOTE_LINE_BYTES));
        let note: Vec<&str> = Some(about).filter(|about| !about.is_empty()).into_iter().chain(first).collect();
        let memory = json!({ "proposal": proposal, "base": base, "path": path, "note": head(&note.join("\n"), 4 * MAX_NOTE_LINE_BYTES) });
        if proposal.len() > MAX_PROPOSAL_BYTES || memory.to_string().len() > MAX_CONTENT_BYTES {
            return Err(format!("{path} is too long for a proposal: a person has to shorten it first"));
        }
        self.0.sink.emit(AgentStreamEvent::Memory { memory }).await;
        Ok(())
    }

    /// The file's path, its text, and its version if it exists.
    async fn now(&self) -> Result<(&'static str, String, Option<String>), String> {
        let workspace = self.0.memory.workspace();
        let look = move || {
            for path in CURATED_NAMES {
                if let Some((text, hash)) =
                    workspace.text(path).map_err(|why| format!("{path} cannot be read: {why}"))?
                {
                    return Ok((path, text, Some(hash)));
                }
            }
            Ok((CURATED_NAMES[0], String::new(), None))
        };
        tokio::task::spawn_blocking(look).await.map_err(|error| error.to_string())?
    }

    async fn tell(&self, path: &str, hash: &str) {
        self.0.sink.emit(AgentStreamEvent::Memory { memory: json!({ "path": path, "hash": hash }) }).await;
    }
}

/// `second`, with the lines that `first` had added to `now`.
fn both(now: &str, first: &str, second: String) -> String {
    let known: HashSet<&str> = now.lines().chain(second.lines()).collect();
    let more: Vec<&str> = first.lines().filter(|line| !known.contains(line)).collect();
    if more.is_empty() { second } else { format!("{}\n{}\n", second.trim_end(), more.join("\n")) }
}

/// `now` with a note added at its end; unchanged if it contains the note already.
fn with(now: &str, note: &str) -> String {
    let note = note.trim();
    let bare = note.trim_start_matches("- ");
    let said = if note.contains('\n') {
        now.contains(note)
    } else {
        now.lines().any(|line| line.trim().trim_start_matches("- ") == bare)
    };
    if said {
        return now.to_owned();
    }
    let block = note.contains('\n') || note.starts_with(['#', '-', '*', '>', '|']);
    let item = if block { note.to_owned() } else { format!("- {note}") };
    let before = now.trim_end();
    let Some(last) = before.lines().last() else { return format!("# Memory\n\n{item}\n") };
    let gap = if last.starts_with("- ") && item.starts_with("- ") { "\n" } else { "\n\n" };
    format!("{before}{gap}{item}\n")
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_commands_wrote_is_proposed_together() {
        let now = "# Memory\n\n- a\n";
        let first = "# Memory\n\n- a\n- b\n";
        assert_eq!(both(now, first, "# Memory\n\n- a\n- c\n".into()), "# Memory\n\n- a\n- c\n- b\n");
        assert_eq!(both(now, first, first.into()), first);
    }

    #[test]
    fn a_note_is_added_once() {
        let one = with("", "Use tabs.");
        assert_eq!(one, "# Memory\n\n- Use tabs.\n");
        assert_eq!(with(&one, " Use tabs. "), one);
        assert_eq!(with(&one, "- Use tabs."), one);
        let two = with(&one, "No globals.");
        assert_eq!(two, "# Memory\n\n- Use tabs.\n- No globals.\n");
        let three = with(&two, "## Build\n\nmake");
        assert_eq!(three, "# Memory\n\n- Use tabs.\n- No globals.\n\n## Build\n\nmake\n");
        assert_eq!(with(&three, "## Build\n\nmake"), three);
        assert_eq!(with("text", "x"), "text\n\n- x\n");
    }
}
