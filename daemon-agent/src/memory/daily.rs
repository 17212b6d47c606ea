//! The log of the day, `workspace/memory/YYYY-MM-DD.md` by the viber's own calendar: one entry a task at its end, and what
//! agents note meanwhile. Costs no model call.
//!
//! Text of goals and answers is one line here: it can begin no entry of its own.

use jiff::{Timestamp, Zoned, civil::Date, tz::TimeZone};
use protocol::{Running, text};

use super::{Memory, places};
use crate::workspace::{By, State};

/// A change is made anew on what somebody else wrote meanwhile, so often.
const TRIES: usize = 16;
/// Longest line of an entry, bytes.
const LINE: usize = 400;
/// Lines of a list.
const LINES: usize = 20;
/// Longest note, bytes.
pub const NOTE: usize = 8 * 1024;

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Completed(String),
    /// Code and message.
    Error(String, String),
    Stopped(String),
}

/// What is told of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    pub attempt: Running,
    pub session_id: String,
    pub agent_id: String,
    pub goal: String,
    pub outcome: Outcome,
    /// What the agent noted.
    pub decisions: Vec<String>,
    /// Titles and places.
    pub artifacts: Vec<String>,
    /// The plan's file, when it was changed.
    pub plan: Option<String>,
}

impl Memory {
    /// Writes the entry of a task that ended, once: whether it was not there yet.
    pub async fn enter(&self, story: &Story) -> Result<bool, String> {
        let now = self.local();
        let mark = mark(&story.attempt);
        // The end may be told again after midnight.
        for date in [Some(now.date()), now.date().yesterday().ok()].into_iter().flatten() {
            if self.day(date).await?.is_some_and(|(text, _)| text.contains(&mark)) {
                return Ok(false);
            }
        }
        let entry = entry(story, &now.strftime("%H:%M").to_string());
        Ok(self.append(now.date(), &entry, Some(&mark), By::Agent).await?.is_some())
    }

    /// Writes a note to the log of today. The log's path beneath the workspace, and its version then.
    pub async fn jot(&self, note: &str, by: By) -> Result<(String, String), String> {
        let now = self.local();
        let text: Vec<String> = text::head(note.trim(), NOTE).lines().map(inert).collect();
        let entry = format!("## {} Noted\n\n{}\n", now.strftime("%H:%M"), text.join("\n"));
        let hash = self.append(now.date(), &entry, None, by).await?;
        Ok((path(now.date()), hash.unwrap_or_default()))
    }

    /// Now, by this machine's clock and calendar.
    pub(super) fn local(&self) -> Zoned {
        let now = Timestamp::from_millisecond(self.shared.clock.now().millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        now.to_zoned(TimeZone::system())
    }

    /// Appends an entry: the version then, or nothing when `mark` stands there already.
    async fn append(&self, date: Date, entry: &str, mark: Option<&str>, by: By) -> Result<Option<String>, String> {
        let _turn = self.shared.writing.lock().await;
        let way = path(date);
        for _ in 0..TRIES {
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
                Ok(written) if written.state == State::Applied => {
                    self.wrote(None, &format!("workspace/{way}"));
                    return Ok(written.hash);
                }
                // Somebody wrote in between: once more, on what stands there now.
                Ok(_) => {}
                Err(refused) => return Err(format!("{way} cannot be written: {refused}")),
            }
        }
        Err(format!("{way} is being changed by somebody else all the time"))
    }

    /// The log of a day and its version.
    async fn day(&self, date: Date) -> Result<Option<(String, String)>, String> {
        let (workspace, way) = (self.workspace(), path(date));
        let told = way.clone();
        let read =
            tokio::task::spawn_blocking(move || workspace.text(&way)).await.map_err(|error| error.to_string())?;
        read.map_err(|refused| format!("{told} cannot be read: {refused}"))
    }
}

/// The log of a day, beneath the workspace.
pub(super) fn path(date: Date) -> String {
    format!("{}/{date}.md", places::DAILY)
}

/// What tells an entry from all others; no reader sees it.
fn mark(attempt: &Running) -> String {
    format!("<!-- {} {} -->", attempt.task_id, attempt.attempt)
}

fn entry(story: &Story, time: &str) -> String {
    let mut all = format!("## {time} {}\n{}\n\n", line(&text::title(&story.goal)), mark(&story.attempt));
    all.push_str(&match &story.outcome {
        Outcome::Completed(summary) if summary.trim().is_empty() => "Completed.\n".to_owned(),
        Outcome::Completed(summary) => format!("Completed: {}\n", line(summary)),
        Outcome::Error(code, message) => format!("Error ({code}): {}\n", line(message)),
        Outcome::Stopped(reason) => format!("Stopped: {}\n", line(reason)),
    });
    if !story.decisions.is_empty() {
        all.push_str("\nDecisions:\n\n");
        list(&mut all, &story.decisions);
    }
    let attempt = match story.attempt.attempt {
        1 => String::new(),
        n => format!(" (attempt {n})"),
    };
    let Story { session_id, agent_id, .. } = story;
    all.push_str(&format!("\nLinks: session {session_id}, task {}{attempt}, agent {agent_id}", story.attempt.task_id));
    if let Some(plan) = &story.plan {
        all.push_str(&format!(", plan {}", line(plan)));
    }
    all.push('\n');
    if !story.artifacts.is_empty() {
        all.push_str("\nArtifacts:\n\n");
        list(&mut all, &story.artifacts);
    }
    all
}

fn list(all: &mut String, lines: &[String]) {
    for one in lines.iter().take(LINES) {
        all.push_str(&format!("- {}\n", line(one)));
    }
    if lines.len() > LINES {
        all.push_str(&format!("- and {} more\n", lines.len() - LINES));
    }
}

/// The first line of a text that says something, short, and with nothing in it that programs read.
fn line(text: &str) -> String {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    inert(text::head(first, LINE))
}

/// A line that begins no entry and is no mark.
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
        let attempt = Running { task_id: TaskId::new(1), attempt: 2 };
        let story = Story {
            attempt: attempt.clone(),
            session_id: "ses_1".to_owned(),
            agent_id: "dev".to_owned(),
            goal: "\n# Fix it\n## 00:00 not an entry".to_owned(),
            outcome: Outcome::Completed(format!("Done.\n{}", mark(&attempt))),
            decisions: vec!["# Use tabs\nbecause".to_owned(), format!("{} x", mark(&attempt))],
            artifacts: vec!["Report (artifacts/t/r.md)".to_owned()],
            plan: Some("sessions/ses_1/task.md".to_owned()),
        };
        let task = &attempt.task_id;
        assert_eq!(
            entry(&story, "14:05"),
            format!(
                "## 14:05 \\# Fix it\n<!-- {task} 2 -->\n\nCompleted: Done.\n\nDecisions:\n\n- \\# Use tabs\n- <! -- {task} 2 --> x\n\
                 \nLinks: session ses_1, task {task} (attempt 2), agent dev, plan sessions/ses_1/task.md\n\
                 \nArtifacts:\n\n- Report (artifacts/t/r.md)\n"
            )
        );
    }
}
