//! The daily log, `workspace/memory/YYYY-MM-DD.md` by the viber's local date: one entry for each task that ended, and
//! what agents note in between. Costs no model call.
//!
//! Text from goals and answers is reduced to one line here, so that it cannot begin an entry.

use jiff::{Timestamp, Zoned, civil::Date, tz::TimeZone};
use protocol::{AttemptRef, text};

use super::{Memory, sources};
use crate::workspace::{Author, LocalWriteState};

/// Most attempts to apply a change when somebody else keeps writing to the file.
const MAX_WRITE_ATTEMPTS: usize = 16;
/// Longest line of an entry, bytes.
const MAX_LINE_BYTES: usize = 400;
/// Most lines of a list.
const MAX_LIST_LINES: usize = 20;
/// Longest note, bytes.
pub const MAX_NOTE_BYTES: usize = 8 * 1024;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SummaryOutcome {
    Completed(String),
    /// An error code and its message.
    Error(String, String),
    Stopped(String),
}

/// What a task did, for its entry in the daily log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskSummary {
    pub attempt: AttemptRef,
    pub session_id: String,
    pub agent_id: String,
    pub goal: String,
    pub outcome: SummaryOutcome,
    /// Notes that the agent took.
    pub decisions: Vec<String>,
    /// Titles and references.
    pub artifacts: Vec<String>,
    /// The plan's file, if it was changed.
    pub plan: Option<String>,
    /// Where people see what was said, on the Board.
    pub page: Option<String>,
}

impl Memory {
    /// Writes the log entry of a task that ended, unless the log has it already. Returns whether it was written.
    pub async fn log_task(&self, task_summary: &TaskSummary) -> Result<bool, String> {
        let now = self.local();
        let mark = mark(&task_summary.attempt);
        // The end may be reported again after midnight.
        for date in [Some(now.date()), now.date().yesterday().ok()].into_iter().flatten() {
            if self.day(date).await?.is_some_and(|(text, _)| text.contains(&mark)) {
                return Ok(false);
            }
        }
        let entry = entry(task_summary, &now.strftime("%H:%M").to_string());
        Ok(self.append(now.date(), &entry, Some(&mark), Author::Agent).await?.is_some())
    }

    /// Adds a note to today's log. Returns the log's path beneath the workspace, and its new version.
    pub async fn add_note(&self, note: &str, by: Author) -> Result<(String, String), String> {
        let now = self.local();
        let text: Vec<String> = text::head(note.trim(), MAX_NOTE_BYTES).lines().map(inert).collect();
        let entry = format!("## {} Noted\n\n{}\n", now.strftime("%H:%M"), text.join("\n"));
        let hash = self.append(now.date(), &entry, None, by).await?;
        Ok((path(now.date()), hash.unwrap_or_default()))
    }

    /// The current time, by this machine's clock and time zone.
    pub(super) fn local(&self) -> Zoned {
        let now = Timestamp::from_millisecond(self.shared.clock.now().millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        now.to_zoned(TimeZone::system())
    }

    /// Appends an entry; returns the new version, or `None` if `mark` is there already.
    async fn append(&self, date: Date, entry: &str, mark: Option<&str>, by: Author) -> Result<Option<String>, String> {
        let _turn = self.shared.writing.lock().await;
        let way = path(date);
        for _ in 0..MAX_WRITE_ATTEMPTS {
            let found = self.day(date).await?;
            let (before, base) = found.map_or((String::new(), None), |(text, hash)| (text, Some(hash)));
            if mark.is_some_and(|mark| before.contains(mark)) {
                return Ok(None);
            }
            let after = if before.trim().is_empty() {
                format!("# {date}\n\n{entry}")
            } else {
                format!("{}\n\n{entry}", before.trim_end())
            };
            let (workspace, target) = (self.workspace(), way.clone());
            let put = move || workspace.put(&target, base.as_deref(), after.as_bytes(), by);
            let written = tokio::task::spawn_blocking(put).await.map_err(|error| error.to_string())?;
            match written {
                Ok(written) if written.state == LocalWriteState::Applied => {
                    self.wrote(None, &format!("workspace/{way}"));
                    return Ok(written.hash);
                }
                // Another writer changed the file in between: try again with the current content.
                Ok(_) => {}
                Err(refused) => return Err(format!("{way} cannot be written: {refused}")),
            }
        }
        Err(format!("another writer keeps changing {way}"))
    }

    /// The log of a day, and its version.
    async fn day(&self, date: Date) -> Result<Option<(String, String)>, String> {
        let (workspace, way) = (self.workspace(), path(date));
        let shown = way.clone();
        let read =
            tokio::task::spawn_blocking(move || workspace.text(&way)).await.map_err(|error| error.to_string())?;
        read.map_err(|refused| format!("{shown} cannot be read: {refused}"))
    }
}

/// The path of a day's log, beneath the workspace.
pub(super) fn path(date: Date) -> String {
    format!("{}/{date}.md", sources::DAILY_FOLDER)
}

/// A comment that identifies an entry; readers do not see it.
fn mark(attempt: &AttemptRef) -> String {
    format!("<!-- {} {} -->", attempt.task_id, attempt.attempt)
}

fn entry(task_summary: &TaskSummary, time: &str) -> String {
    let mut all = format!("## {time} {}\n{}\n\n", line(&text::title(&task_summary.goal)), mark(&task_summary.attempt));
    all.push_str(&match &task_summary.outcome {
        SummaryOutcome::Completed(summary) if summary.trim().is_empty() => "Completed.\n".to_owned(),
        SummaryOutcome::Completed(summary) => format!("Completed: {}\n", line(summary)),
        SummaryOutcome::Error(code, message) => format!("Error ({code}): {}\n", line(message)),
        SummaryOutcome::Stopped(reason) => format!("Stopped: {}\n", line(reason)),
    });
    if !task_summary.decisions.is_empty() {
        all.push_str("\nDecisions:\n\n");
        list(&mut all, &task_summary.decisions);
    }
    let attempt = match task_summary.attempt.attempt {
        1 => String::new(),
        n => format!(" (attempt {n})"),
    };
    let TaskSummary { session_id, agent_id, .. } = task_summary;
    let session = match task_summary.page.as_deref().filter(|page| is_plain(page)) {
        Some(page) => format!("[session {session_id}]({page})"),
        None => format!("session {session_id}"),
    };
    // A line for people, which `chunks::shown` leaves out.
    let task = &task_summary.attempt.task_id;
    all.push_str(&format!("\nLinks: {session}, task {task}{attempt}, agent {agent_id}"));
    if let Some(plan) = &task_summary.plan {
        all.push_str(&format!(", plan {}", line(plan)));
    }
    all.push('\n');
    if !task_summary.artifacts.is_empty() {
        all.push_str("\nArtifacts:\n\n");
        list(&mut all, &task_summary.artifacts);
    }
    all
}

/// Whether an address can stand in a link as it is.
fn is_plain(page: &str) -> bool {
    page.len() <= MAX_LINE_BYTES
        && !page.contains(|c: char| c.is_whitespace() || c.is_control() || "()<>[]".contains(c))
}

fn list(all: &mut String, lines: &[String]) {
    for one in lines.iter().take(MAX_LIST_LINES) {
        all.push_str(&format!("- {}\n", line(one)));
    }
    if lines.len() > MAX_LIST_LINES {
        all.push_str(&format!("- and {} more\n", lines.len() - MAX_LIST_LINES));
    }
}

/// The first line of a text that says something, shortened, without anything that programs interpret.
fn line(text: &str) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    inert(text::head(first, MAX_LINE_BYTES))
}

/// Changes a line so that it neither begins an entry nor looks like a mark.
fn inert(line: &str) -> String {
    let tame: String = line.chars().filter(|c| !c.is_control() || *c == '\t').collect();
    let tame = tame.replace("<!--", "<! --");
    let begins = ["#", "```", "~~~"].iter().any(|mark| tame.trim_start().starts_with(mark));
    if begins { format!("\\{}", tame.trim_start()) } else { tame }
}

#[cfg(test)]
mod tests {
    use protocol::TaskId;

    use super::*;

    #[test]
    fn an_entry_is_what_happened_and_nothing_else() {
        let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 2 };
        let task_summary = TaskSummary {
            attempt: attempt.clone(),
            session_id: "ses_1".to_owned(),
            agent_id: "dev".to_owned(),
            goal: "\n# Fix it\n## 00:00 not an entry".to_owned(),
            outcome: SummaryOutcome::Completed(format!("Done.\n{}", mark(&attempt))),
            decisions: vec!["# Use tabs\nbecause".to_owned(), format!("{} x", mark(&attempt))],
            artifacts: vec!["Report (artifacts/t/r.md)".to_owned()],
            plan: Some("sessions/ses_1/task.md".to_owned()),
            page: None,
        };
        let task = &attempt.task_id;
        assert_eq!(
            entry(&task_summary, "14:05"),
            format!(
                "## 14:05 \\# Fix it\n<!-- {task} 2 -->\n\nCompleted: Done.\n\nDecisions:\n\n- \\# Use tabs\n- <! -- {task} 2 --> x\n\
                 \nLinks: session ses_1, task {task} (attempt 2), agent dev, plan sessions/ses_1/task.md\n\
                 \nArtifacts:\n\n- Report (artifacts/t/r.md)\n"
            )
        );
        let page = format!("https://board.example.com/s/ses_1?task={task}");
        let linked = TaskSummary { page: Some(page.clone()), ..task_summary.clone() };
        let line = format!("\nLinks: [session ses_1]({page}), task {task} (attempt 2), agent dev,");
        assert!(entry(&linked, "14:05").contains(&line), "{}", entry(&linked, "14:05"));
        for odd in ["https://b/) [x](https://evil", "https://b/\n## 00:00 x", &"x".repeat(500)] {
            let odd = TaskSummary { page: Some(odd.to_owned()), ..task_summary.clone() };
            assert_eq!(entry(&odd, "14:05"), entry(&task_summary, "14:05"));
        }
    }
}
