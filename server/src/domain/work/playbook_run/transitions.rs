//! How a step moves from one phase to another. When it may is decided by `plan`.

use protocol::{Instant, SessionId, TaskId, ViberId, playbook::GatePoint};

use super::{gates, plan::ChildTask};
use crate::domain::{GateWord, PlaybookRun, RunState, RunStep, SkippedStep, StepPhase};

/// Where a step was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlace {
    pub task: TaskId,
    pub session: SessionId,
    pub viber: ViberId,
}

impl RunStep {
    /// Its task was submitted, or has another attempt.
    pub fn begin(&mut self, place: StepPlace, now: Instant) {
        self.task_id = Some(place.task);
        self.session_id = Some(place.session);
        self.viber_id = Some(place.viber);
        self.attempt += 1;
        self.phase = StepPhase::Running;
        self.wanted = false;
        self.broke = false;
        self.failure = None;
        self.skipped = None;
        self.summary = None;
        self.started_at = Some(now);
        self.ended_at = None;
    }

    /// Its task runs again though nobody asked for that here: a person started it over in its session.
    pub fn rejoin(&mut self, now: Instant) {
        self.phase = StepPhase::Running;
        self.attempt += 1;
        self.wanted = false;
        self.broke = false;
        self.failure = None;
        self.started_at = Some(now);
        self.ended_at = None;
    }

    /// It is to begin as soon as it may; with another instruction it begins as a new task.
    pub fn want(&mut self, instruction: Option<String>) {
        let other = instruction.filter(|other| *other != self.instruction);
        if matches!(self.phase, StepPhase::Pending | StepPhase::Failed) {
            // What is started again by itself keeps its pause.
            if other.is_some() || !self.wanted {
                self.ended_at = None;
            }
            self.phase = StepPhase::Pending;
            self.wanted = true;
        }
        if let Some(instruction) = other {
            self.instruction = instruction;
            self.task_id = None;
        }
    }

    /// A person decides about it.
    pub fn open_gate(&mut self, run: &PlaybookRun, now: Instant) {
        self.phase = StepPhase::Gate;
        self.gate_digest = Some(gates::digest(run, self));
        self.gate_opened_at = Some(now);
        self.gate_word = None;
    }

    /// A person has decided about its open gate.
    pub fn decide(&mut self, word: GateWord, run: &PlaybookRun) {
        let at = word.at;
        let denial = (!word.allowed).then(|| gates::denial_text(&self.label, &word));
        self.gate_word = Some(word);
        match (self.gate, denial) {
            (Some(GatePoint::After), None) => self.done(at),
            (Some(GatePoint::After), Some(denial)) => self.fail(denial, at),
            (_, None) => self.phase = StepPhase::Pending,
            // The supervisor hears of it, and may ask for another instruction.
            (_, Some(_)) if run.supervised => {
                self.phase = StepPhase::Pending;
                self.wanted = false;
            }
            (_, Some(denial)) => self.fail(denial, at),
        }
    }

    /// What its task did is enough.
    pub fn done(&mut self, now: Instant) {
        self.phase = StepPhase::Done;
        self.wanted = false;
        self.broke = false;
        self.failure = None;
        self.ended_at = Some(now);
    }

    /// It did not come to what it was to do.
    pub fn fail(&mut self, why: String, now: Instant) {
        self.phase = StepPhase::Failed;
        self.wanted = false;
        self.failure = Some(why);
        self.ended_at = Some(now);
    }

    /// It failed and is started again by itself, after a pause that begins now. `broke`: its task may be completed after all.
    pub fn retry_later(&mut self, why: String, broke: bool, now: Instant) {
        self.fail(why, now);
        self.phase = StepPhase::Pending;
        self.wanted = true;
        self.broke = broke;
    }

    /// It is left out.
    pub fn skip(&mut self, by: SkippedStep, now: Instant) {
        self.phase = StepPhase::Skipped;
        self.wanted = false;
        self.broke = false;
        self.skipped = Some(by);
        self.ended_at = Some(now);
    }

    /// Its run was stopped before it had ended.
    pub fn stop(&mut self, now: Instant) {
        self.phase = StepPhase::Stopped;
        self.wanted = false;
        self.ended_at = Some(now);
    }

    /// Adds what an attempt took, and says what it said at its end.
    pub fn note_end(&mut self, task: &ChildTask) {
        self.usage.add(&task.usage);
        self.note_summary(task);
    }

    /// Says what its task said at its end.
    pub fn note_summary(&mut self, task: &ChildTask) {
        self.summary = Some(task.summary.clone()).filter(|summary| !summary.is_empty());
    }
}

impl PlaybookRun {
    /// It comes to an end.
    pub fn end(&mut self, state: RunState, summary: Option<String>, now: Instant) {
        self.state = state;
        self.paused = false;
        self.needs = None;
        self.summary = summary;
        self.ended_at = Some(now);
    }
}
