//! Which lines of a plan people wrote: those that the agent neither wrote nor proposed.
//!
//! Owns the record of the agent's own lines, a file of the daemon's for each plan. A plan without a record is a person's.

use std::{collections::BTreeSet, fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::home::{Home, read_plain, write_private};

/// Most plans that are remembered; the oldest sessions' are forgotten, and then count as written by people.
const MAX_REMEMBERED_PLANS: usize = 2_000;

/// The lines of a plan, without what says how far it is: statuses, ids and indentation.
pub type PlanLines = BTreeSet<String>;

/// The lines that an agent wrote into a plan, or proposed for it.
#[derive(Clone, Debug)]
pub struct AgentLines {
    file: PathBuf,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// In the newest version that the agent wrote, without those of people.
    written: PlanLines,
    /// In its newest proposal, likewise.
    proposed: PlanLines,
}

impl AgentLines {
    /// The record of the plan that is called `name`: its session's id, or `machine`.
    pub fn of(home: &Home, name: &str) -> Self {
        Self { file: home.plan_authorship(name) }
    }

    /// The lines of `plan` that a person wrote.
    pub fn persons_lines(&self, plan: &str) -> PlanLines {
        let all = lines(plan);
        if all.is_empty() {
            return all;
        }
        let own = self.read();
        all.into_iter().filter(|line| !own.written.contains(line) && !own.proposed.contains(line)).collect()
    }

    /// Records that the agent is about to write `plan`, which has these lines of people: until [`Self::wrote`] or
    /// [`Self::left`], the lines of both versions are its own. Returns those of the version that stands.
    pub fn begins(&self, plan: &str, persons: &PlanLines) -> io::Result<PlanLines> {
        let before = self.read().written;
        self.change(|record| record.written.extend(&lines(plan) - persons))?;
        Ok(before)
    }

    /// Records that the agent wrote nothing after all: its lines are those that [`Self::begins`] returned.
    pub fn left(&self, before: PlanLines) -> io::Result<()> {
        self.change(|record| record.written = before)
    }

    /// Records that the agent wrote `plan`, which has these lines of people.
    pub fn wrote(&self, plan: &str, persons: &PlanLines) -> io::Result<()> {
        self.change(|record| record.written = &lines(plan) - persons)
    }

    /// Records that the agent proposed `plan`, which may have these lines of people.
    pub fn proposed(&self, plan: &str, persons: &PlanLines) -> io::Result<()> {
        self.change(|record| record.proposed = &lines(plan) - persons)
    }

    fn read(&self) -> Record {
        serde_json::from_str(&read_plain(&self.file).unwrap_or_default()).unwrap_or_default()
    }

    fn change(&self, change: impl FnOnce(&mut Record)) -> io::Result<()> {
        let known = self.read();
        let mut record = Record { written: known.written.clone(), proposed: known.proposed.clone() };
        change(&mut record);
        // A tick changes no line.
        if record == known {
            return Ok(());
        }
        write_private(&self.file, serde_json::to_string(&record)?.as_bytes())?;
        self.forget_oldest()
    }

    fn forget_oldest(&self) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(&self.file);
        let mut all: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
        if all.len() > MAX_REMEMBERED_PLANS {
            // Files are named after sessions, whose ids sort by time; `machine` sorts before them and is written again.
            all.sort_unstable();
            for old in all[..all.len() - MAX_REMEMBERED_PLANS].iter().filter(|old| **old != self.file) {
                fs::remove_file(old)?;
            }
        }
        Ok(())
    }
}

/// Whether `wanted` leaves out what a person wrote.
pub fn replaces(persons: &PlanLines, wanted: &str) -> bool {
    !persons.is_empty() && !persons.is_subset(&lines(wanted))
}

/// The lines of a plan that say something.
fn lines(plan: &str) -> PlanLines {
    let says = |line: &str| line.chars().any(char::is_alphanumeric);
    plan.lines().map(|line| protocol::plan::words_of_line(line).to_owned()).filter(|line| says(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> (tempfile::TempDir, AgentLines) {
        let folder = tempfile::tempdir().expect("a folder");
        let lines = AgentLines::of(&Home::at(folder.path()), "ses_1");
        (folder, lines)
    }

    #[test]
    fn what_the_agent_did_not_write_is_a_persons() {
        let (_folder, own) = record();
        let mine = own.persons_lines("# Goal\n- [ ] a\n");
        assert_eq!(mine.len(), 2, "nothing is known: {mine:?}");
        own.wrote("- [ ] a\n- [ ] b\n", &PlanLines::new()).expect("written");
        let theirs = own.persons_lines("- [x] a <!-- id: s7 -->\n  - [/] b\n- [ ] c\n\n---\n");
        assert_eq!(theirs, PlanLines::from(["c".to_owned()]), "statuses, ids and rules are nobody's words");
        assert!(replaces(&theirs, "- [ ] a\n- [ ] b\n") && !replaces(&theirs, "- [x] c\n"));
    }

    #[test]
    fn a_persons_line_stays_theirs_when_the_agent_writes_around_it() {
        let (_folder, own) = record();
        own.wrote("- [ ] a\n", &PlanLines::new()).expect("written");
        let theirs = own.persons_lines("- [ ] a\n- [ ] mine\n");
        own.wrote("- [x] a\n- [ ] mine\n- [ ] b\n", &theirs).expect("written");
        assert_eq!(own.persons_lines("- [x] a\n- [ ] mine\n- [ ] b\n"), theirs);
        own.proposed("- [ ] other\n", &theirs).expect("written");
        assert_eq!(own.persons_lines("- [ ] other\n- [ ] b\n"), PlanLines::new(), "it was accepted");
    }

    #[test]
    fn between_two_versions_the_lines_of_both_are_the_agents() {
        let (_folder, own) = record();
        own.wrote("- [ ] a\n- [ ] b\n", &PlanLines::new()).expect("written");
        let before = own.begins("- [ ] a\n- [ ] c\n- [ ] mine\n", &PlanLines::from(["mine".to_owned()])).expect("kept");
        let theirs = own.persons_lines("- [ ] a\n- [ ] b\n- [ ] c\n- [ ] mine\n");
        assert_eq!(theirs, PlanLines::from(["mine".to_owned()]), "whichever version a crash leaves");
        own.left(before).expect("kept");
        assert_eq!(own.persons_lines("- [ ] b\n- [ ] c\n"), PlanLines::from(["c".to_owned()]), "it wrote nothing");
    }

    #[test]
    fn a_damaged_record_makes_everything_a_persons() {
        let (_folder, own) = record();
        own.wrote("- [ ] a\n", &PlanLines::new()).expect("written");
        fs::write(&own.file, "{").expect("damaged");
        assert_eq!(own.persons_lines("- [ ] a\n").len(), 1);
    }
}
