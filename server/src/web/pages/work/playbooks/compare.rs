//! The playbook against what was done: the steps as they were written and as they went, each as text, line by line.

use protocol::playbook::{self, GatePoint, PlaybookStep};

use super::words;
use crate::{
    domain::{PlaybookRun, RunStep, StepPhase},
    web::view::diff::Diff,
};

/// Longest reason that a line says, bytes.
const MAX_REASON_BYTES: usize = 400;

/// From the playbook to what was done until now.
pub fn against_done(run: &PlaybookRun, steps: &[RunStep]) -> Diff {
    let (written, _) = playbook::parse(&run.text);
    // A run has started, so its inputs fit.
    let written = written.fill(&run.inputs).unwrap_or(written);
    let planned = written.steps.iter().map(|step| planned(step, steps));
    let done = steps.iter().map(|step| done(step, run.state.is_final()));
    Diff::of(&text(planned), &text(done))
}

fn text(steps: impl Iterator<Item = Vec<String>>) -> String {
    steps.map(|lines| format!("{}\n", lines.join("\n"))).collect::<Vec<_>>().join("\n")
}

/// What both texts say of a step.
struct StepLines<'s> {
    label: &'s str,
    agent: &'s str,
    instruction: &'s str,
    bullets: &'s [String],
    viber: Option<String>,
    after: Vec<String>,
    gate: Option<GatePoint>,
    gives: &'s [String],
}

impl StepLines<'_> {
    fn lines(self) -> Vec<String> {
        let mut lines = own_lines(&format!("{}. [{}] {}", self.label, self.agent, self.instruction));
        let bullet = |text: &str| format!("   - {text}");
        lines.extend(self.bullets.iter().flat_map(|text| own_lines(&bullet(text))));
        let after = if self.after.is_empty() { "none".to_owned() } else { self.after.join(", ") };
        lines.push(bullet(&format!("After: {after}")));
        lines.extend(self.viber.map(|viber| bullet(&format!("Viber: {viber}"))));
        lines.extend(self.gate.map(|point| bullet(&format!("Approve: {}", point.as_str()))));
        if !self.gives.is_empty() {
            lines.push(bullet(&format!("Gives: {}", self.gives.join(", "))));
        }
        lines
    }
}

fn own_lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

/// A step as the playbook has it. Its agent is called as the run calls it where both mean the same one.
fn planned(step: &PlaybookStep, steps: &[RunStep]) -> Vec<String> {
    let label = step.n.to_string();
    let known = steps.iter().find(|known| known.label == label).map(|known| known.agent_id.as_str());
    let agent = known.filter(|id| id.eq_ignore_ascii_case(&step.agent)).unwrap_or(&step.agent);
    let lines = StepLines {
        label: &label,
        agent,
        instruction: &step.instruction,
        bullets: &step.bullets,
        viber: words::target(step.viber.as_ref()),
        after: step.after.iter().map(u32::to_string).collect(),
        gate: step.gate,
        gives: &step.gives,
    };
    lines.lines()
}

/// A step as it went.
fn done(step: &RunStep, is_over: bool) -> Vec<String> {
    let short = |text: &str| protocol::text::head(text, MAX_REASON_BYTES).replace('\n', " ");
    if let Some(skipped) = &step.skipped {
        return vec![format!("{}. Skipped by {}: {}", step.label, skipped.by_name, short(&skipped.reason))];
    }
    let lines = StepLines {
        label: &step.label,
        agent: &step.agent_id,
        instruction: &step.instruction,
        bullets: &step.bullets,
        viber: words::target(step.target.as_ref()),
        after: step.after.clone(),
        gate: step.gate,
        gives: &step.gives,
    };
    let mut lines = lines.lines();
    if step.added {
        lines.push("   Added by the supervisor".to_owned());
    }
    if let Some(word) = &step.gate_word {
        let verb = if word.allowed { "Let pass" } else { "Denied" };
        let note = word.note.as_ref().map(|note| format!(": {}", short(note))).unwrap_or_default();
        lines.push(format!("   {verb} by {}{note}", word.by_name));
    }
    if step.attempt > 1 {
        lines.push(format!("   Started {} times", step.attempt));
    }
    match step.phase {
        StepPhase::Failed => {
            lines.push(format!("   Failed: {}", short(step.failure.as_deref().unwrap_or("nobody said why"))));
        }
        StepPhase::Stopped => lines.push("   Stopped".to_owned()),
        StepPhase::Pending | StepPhase::Gate if is_over => lines.push("   Did not run".to_owned()),
        _ => {}
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use protocol::{Instant, RunId, ViberId};

    use super::*;
    use crate::domain::{RunState, SkippedStep};

    const TEXT: &str = "# Playbook: release\n\n## Goal\nShip <version>.\n\n## Steps\n1. [Coder] Test <version>\n2. [coder] Tag it\n   \
                        - Constraint: no force\n3. [coder] Tell all\n";

    fn run(state: RunState) -> PlaybookRun {
        PlaybookRun {
            id: RunId::new(1),
            viber_id: ViberId::new(1),
            playbook: "release".to_owned(),
            path: String::new(),
            hash: String::new(),
            text: TEXT.to_owned(),
            inputs: BTreeMap::from([("version".to_owned(), "4.12".to_owned())]),
            supervised: true,
            step_count: 3,
            state,
            paused: false,
            needs: None,
            summary: None,
            supervisor: None,
            supervisor_session: None,
            supervisor_attempts: 0,
            told_by: Vec::new(),
            by_viber: false,
            started_by: String::new(),
            starter: String::new(),
            created_at: Instant(0),
            ended_at: None,
            version: 1,
            ledger_version: 0,
            settled: false,
        }
    }

    fn step(position: u32, label: &str, instruction: &str, after: &[&str]) -> RunStep {
        RunStep {
            position,
            after: after.iter().map(ToString::to_string).collect(),
            ..RunStep::new(RunId::new(1), label.to_owned(), "coder".to_owned(), instruction.to_owned())
        }
    }

    fn as_written() -> Vec<RunStep> {
        let tag = RunStep { bullets: vec!["Constraint: no force".to_owned()], ..step(2, "2", "Tag it", &["1"]) };
        vec![step(1, "1", "Test 4.12", &[]), tag, step(3, "3", "Tell all", &["2"])]
    }

    #[test]
    fn what_goes_as_it_is_written_differs_in_nothing() {
        let done: Vec<RunStep> =
            as_written().into_iter().map(|step| RunStep { phase: StepPhase::Done, attempt: 1, ..step }).collect();
        let diff = against_done(&run(RunState::Completed), &done);
        assert!(diff.rows.is_empty(), "{diff:#?}");
        // What has not come to its turn is no difference while the run goes on, and one at its end.
        assert!(against_done(&run(RunState::Running), &as_written()).rows.is_empty());
        assert_eq!(against_done(&run(RunState::Stopped), &as_written()).added, 3);
    }

    #[test]
    fn what_went_otherwise_is_said_line_by_line() {
        let mut steps = as_written();
        steps[0].attempt = 2;
        let by = |name: &str, reason: &str| SkippedStep {
            by: String::new(),
            by_name: name.to_owned(),
            reason: reason.to_owned(),
        };
        steps[1].skipped = Some(by("Ada", "it is\ntagged"));
        steps[2].instruction = "Tell the shops".to_owned();
        steps.push(RunStep { added: true, ..step(4, "3a", "Tell the press", &["3"]) });
        let diff = against_done(&run(RunState::Running), &steps);
        let lines = |op: &str| {
            let rows = diff.rows.iter().filter(|row| row.op == op);
            rows.map(|row| row.text.trim().to_owned()).filter(|text| !text.is_empty()).collect::<Vec<_>>()
        };
        let added = lines("add");
        for line in [
            "Started 2 times",
            "2. Skipped by Ada: it is tagged",
            "3. [coder] Tell the shops",
            "3a. [coder] Tell the press",
            "Added by the supervisor",
        ] {
            assert!(added.iter().any(|there| there == line), "{line}: {added:#?}");
        }
        let removed = lines("del");
        for line in ["2. [coder] Tag it", "- Constraint: no force", "3. [coder] Tell all"] {
            assert!(removed.iter().any(|there| there == line), "{line}: {removed:#?}");
        }
    }
}
