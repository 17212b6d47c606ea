//! A run with everything around it, played without a database: moves are made as the actions make them.

use std::collections::{BTreeMap, HashSet};

use protocol::{
    ApprovalId, Instant, RunId, SessionId, TaskId, Usage, ViberId,
    playbook::{self, GatePoint},
};
use serde_json::{Value, json};

use super::super::{
    calls::{self, CallVerdict},
    gates,
    plan::{self, ChildTask, MAX_RUNNING_STEPS, RunMove, RunSnapshot, StepEnd},
};
use crate::domain::{
    GateWord, PlaybookRun, RunState, RunStep, SkippedStep, StepPhase, StepPlace, SupervisorCall, TaskState,
};

/// More moves in a row than any run needs: it goes round in circles.
const MAX_MOVES: usize = 5_000;

pub struct World {
    pub now: RunSnapshot,
    clock: i64,
    /// Attempts that were begun, by step and number.
    begun: HashSet<(String, u32)>,
    /// Answers to calls.
    pub answers: Vec<(ApprovalId, String)>,
}

impl World {
    /// A run of as many steps as the shape has bytes: each says what its step comes after, its gate and its retries.
    pub fn new(supervised: bool, shape: &[u8]) -> Self {
        let run = run(supervised, shape.len() as u32);
        let steps = (1..).zip(shape).map(|(n, byte)| step(&run.id, n, *byte)).collect();
        let now = RunSnapshot { at: Instant(1), run, steps, tasks: Vec::new(), calls: Vec::new() };
        Self { now, clock: 1, begun: HashSet::new(), answers: Vec::new() }
    }

    fn at(&mut self) -> Instant {
        self.clock += 1;
        self.now.at = Instant(self.clock);
        self.now.at
    }

    /// How many steps run.
    pub fn running(&self) -> usize {
        self.now.steps.iter().filter(|step| step.phase == StepPhase::Running).count()
    }

    /// Makes moves until there is none, and none would be after a pause.
    pub fn go_on(&mut self) {
        for _ in 0..MAX_MOVES {
            self.go_on_for_now();
            let Some(next_at) = self.now.next_at() else { return };
            assert!(next_at > self.now.at, "what is due is done");
            self.pass(next_at);
        }
        panic!("it is never over: {:#?}", self.now);
    }

    /// Time passes, without anything else.
    pub fn pass(&mut self, until: Instant) {
        self.clock = until.0;
        self.now.at = until;
    }

    /// Makes moves until there is none at this time.
    pub fn go_on_for_now(&mut self) {
        for _ in 0..MAX_MOVES {
            let Some(next) = plan::moves(&self.now).into_iter().next() else { return };
            self.make(&next);
        }
        panic!("it goes round in circles: {:?}\n{:#?}", plan::moves(&self.now), self.now);
    }

    fn make(&mut self, next: &RunMove) {
        let at = self.at();
        match next {
            RunMove::StoreSteps => panic!("all steps are there"),
            RunMove::Supervise => self.supervise(),
            RunMove::NoteEnd(label) => self.note_end(label, at),
            RunMove::TakeUp(label) => self.take_up(label, at),
            RunMove::OpenGate(label) => {
                let run = self.now.run.clone();
                self.step(label).open_gate(&run, at);
            }
            RunMove::Start(label) => self.start(label, at),
            RunMove::Answer(id) => self.answer(id, at),
            RunMove::CloseCalls => {
                let waited: Vec<bool> = self.now.calls.iter().map(|call| self.now.is_waited_for(call)).collect();
                let mut waited = waited.into_iter();
                self.now.calls.retain(|_| waited.next().unwrap_or_default());
            }
            RunMove::Complete => self.now.run.end(RunState::Completed, None, at),
            RunMove::Halt(task) => {
                let task = self.now.tasks.iter_mut().find(|one| one.id == *task).expect("it is there");
                assert!(!task.state.is_final(), "what has ended is not halted");
                task.state = TaskState::Stopped;
            }
            RunMove::StopSteps => {
                for step in &mut self.now.steps {
                    if matches!(step.phase, StepPhase::Pending | StepPhase::Gate) {
                        step.stop(at);
                    }
                }
            }
            RunMove::Need(need) => {
                assert_ne!(self.now.run.needs, *need, "nothing new is needed");
                self.now.run.needs = *need;
            }
            RunMove::SendLedger => self.now.run.ledger_version = self.now.run.version,
            RunMove::Settle => self.now.run.settled = true,
        }
        if !matches!(next, RunMove::SendLedger | RunMove::Settle) {
            self.now.run.version += 1;
            self.now.run.needs = self.now.need();
        }
    }

    pub fn step(&mut self, label: &str) -> &mut RunStep {
        self.now.steps.iter_mut().find(|step| step.label == label).expect("a step of this label")
    }

    fn supervise(&mut self) {
        assert!(self.now.supervisor().is_none(), "there is one supervisor");
        let id = TaskId::new(self.clock);
        self.now.tasks.push(child(&id));
        self.now.run.supervisor = Some(id);
        self.now.run.supervisor_attempts += 1;
        assert!(self.now.run.supervisor_attempts <= plan::MAX_SUPERVISOR_ATTEMPTS, "it is not started for ever");
    }

    fn start(&mut self, label: &str, at: Instant) {
        assert!(self.running() < MAX_RUNNING_STEPS, "no more than eight at once");
        assert!(!self.now.run.paused && !self.now.run.state.is_final(), "nothing is started now");
        let step = self.now.step(label).expect("a step").clone();
        assert_eq!(step.phase, StepPhase::Pending, "step {label} is started twice");
        assert!(self.now.missing_before(&step).is_empty(), "step {label} is started before its time");
        assert!(!self.now.is_at_work(&step), "step {label} runs already");
        if step.gate == Some(GatePoint::Before) {
            let word = step.gate_word.as_ref().expect("somebody let it");
            let is_bound = step.gate_digest == Some(gates::digest(&self.now.run, &step));
            assert!(word.allowed && is_bound, "step {label} is past its gate");
        }
        assert!(self.begun.insert((label.to_owned(), step.attempt + 1)), "step {label} has this attempt already");
        let task = step.task_id.clone().filter(|id| self.now.task(Some(id)).is_some_and(|one| one.state.is_final()));
        let task = task.unwrap_or_else(|| TaskId::new(self.clock));
        self.now.tasks.retain(|one| one.id != task);
        self.now.tasks.push(child(&task));
        let place = StepPlace { task, session: SessionId::new(1), viber: ViberId::new(1) };
        self.step(label).begin(place, at);
    }

    fn note_end(&mut self, label: &str, at: Instant) {
        let step = self.now.step(label).expect("a step").clone();
        let task = self.now.task(step.task_id.as_ref()).cloned();
        assert!(task.as_ref().is_none_or(|task| task.state.is_final()), "step {label} has not ended");
        // Every fifth forgets a file.
        let absent = if self.clock.rem_euclid(5) == 0 { step.gives.clone() } else { Vec::new() };
        let end = plan::step_end(&self.now, &step, &absent);
        self.conclude(label, end, at);
    }

    fn conclude(&mut self, label: &str, end: StepEnd, at: Instant) {
        let run = self.now.run.clone();
        match end {
            StepEnd::Done => self.step(label).done(at),
            StepEnd::Gate => self.step(label).open_gate(&run, at),
            StepEnd::Retry { why, broke } => self.step(label).retry_later(why, broke, at),
            StepEnd::Broke(why) => {
                let step = self.step(label);
                step.fail(why, at);
                step.broke = true;
            }
            StepEnd::Failed(why) => self.step(label).fail(why, at),
            StepEnd::Stopped => self.step(label).stop(at),
        }
    }

    fn take_up(&mut self, label: &str, at: Instant) {
        let step = self.now.step(label).expect("a step").clone();
        let task = self.now.task(step.task_id.as_ref()).expect("its task").clone();
        if task.state.is_final() {
            let end = plan::step_end(&self.now, &step, &[]);
            self.step(label).broke = false;
            self.conclude(label, end, at);
        } else {
            self.begun.insert((label.to_owned(), step.attempt + 1));
            self.step(label).rejoin(at);
        }
    }

    fn answer(&mut self, id: &ApprovalId, at: Instant) {
        let call = self.now.calls.iter().find(|call| call.id == *id).expect("an open call").clone();
        let said = match calls::verdict(&self.now, &call) {
            CallVerdict::Wait => panic!("it is not time for an answer"),
            CallVerdict::Want { label, instruction } => {
                self.step(&label).want(instruction);
                let call = self.now.calls.iter_mut().find(|call| call.id == *id).expect("an open call");
                call.waits_for = Some(label);
                return;
            }
            CallVerdict::Tell(label) => calls::told(self.now.step(&label).expect("a step"), "", &[]),
            CallVerdict::Say(text) | CallVerdict::Deny(text) => text,
            CallVerdict::Add(added) => {
                let run = self.now.run.id.clone();
                let bare = step(&run, 1, 8);
                self.now.steps.push(RunStep { label: added.label, after: added.after, added: true, ..bare });
                "added".to_owned()
            }
            CallVerdict::Skip { label, reason } => {
                assert!(self.now.step(&label).expect("a step").gate.is_none(), "only people skip a gated step");
                self.step(&label).skip(supervisor(reason), at);
                "skipped".to_owned()
            }
            CallVerdict::Finish { summary, is_complete } => {
                assert_eq!(self.running(), 0, "nothing runs when it finishes");
                assert_eq!(is_complete, self.now.steps.iter().all(|step| step.phase.is_over()));
                let state = if is_complete { RunState::Completed } else { RunState::Error };
                self.now.run.end(state, Some(summary), at);
                "finished".to_owned()
            }
        };
        self.now.calls.retain(|call| call.id != *id);
        self.answers.push((id.clone(), said));
    }

    /// The supervisor makes a call.
    pub fn call(&mut self, tool: &str, args: Value) -> Option<ApprovalId> {
        let at = self.at();
        let supervisor = self.now.supervisor()?;
        let id = ApprovalId::new(self.clock);
        self.now.calls.push(SupervisorCall {
            id: id.clone(),
            run_id: self.now.run.id.clone(),
            task_id: supervisor.id.clone(),
            attempt: supervisor.attempt,
            seq: 1,
            digest: String::new(),
            tool: tool.to_owned(),
            args,
            waits_for: None,
            created_at: at,
        });
        Some(id)
    }

    /// A person starts the task of a step over, in its session.
    pub fn start_over(&mut self, label: &str) {
        let id = self.step(label).task_id.clone();
        let is_over = |task: &&mut ChildTask| matches!(task.state, TaskState::Error | TaskState::Stopped);
        if let Some(task) = self.now.tasks.iter_mut().filter(is_over).find(|task| Some(&task.id) == id.as_ref()) {
            task.state = TaskState::Running;
            task.attempt += 1;
        }
    }

    /// A task ends.
    pub fn end(&mut self, id: &TaskId, state: TaskState) {
        let at = self.at();
        if let Some(task) = self.now.tasks.iter_mut().find(|task| task.id == *id && !task.state.is_final()) {
            task.state = state;
            task.ended_at = Some(at);
        }
    }

    /// A person decides about an open gate.
    pub fn decide(&mut self, label: &str, allowed: bool) {
        let (at, run) = (self.at(), self.now.run.clone());
        let word =
            GateWord { allowed, by: "op".to_owned(), by_name: "Ada".to_owned(), note: None, break_glass: None, at };
        self.step(label).decide(word, &run);
    }

    /// A person has had enough.
    pub fn stop(&mut self) {
        let at = self.at();
        if !self.now.run.state.is_final() {
            self.now.run.end(RunState::Stopped, None, at);
        }
    }

    /// Something happens.
    pub fn happen(&mut self, what: u8, which: u8) {
        if self.now.run.state.is_final() {
            return;
        }
        let pick = |count: usize| usize::from(which) % count.max(1);
        let label = self.now.steps[pick(self.now.steps.len())].label.clone();
        let open: Vec<TaskId> =
            self.now.tasks.iter().filter(|task| !task.state.is_final()).map(|task| task.id.clone()).collect();
        let phase = self.now.step(&label).expect("a step").phase;
        match what % 17 {
            0..=3 if !open.is_empty() => self.end(&open[pick(open.len())], TaskState::Completed),
            4 | 5 if !open.is_empty() => self.end(&open[pick(open.len())], TaskState::Error),
            6 if !open.is_empty() => self.end(&open[pick(open.len())], TaskState::Stopped),
            7 if which.is_multiple_of(2) && !self.now.tasks.is_empty() => {
                self.now.tasks.remove(pick(self.now.tasks.len()));
            }
            // The result of an attempt that was thought lost.
            7 => {
                let lost = self.now.tasks.iter_mut().find(|task| task.state == TaskState::Error);
                lost.into_iter().for_each(|task| task.state = TaskState::Completed);
            }
            8 => drop(self.call("run_step", json!({ "step": label }))),
            9 => drop(self.call("run_step", json!({ "step": label, "instruction": format!("other {which}") }))),
            10 => drop(self.call("skip_step", json!({ "step": label, "reason": "not needed" }))),
            11 => drop(self.call("finish", json!({ "summary": "all done" }))),
            12 => drop(self.call("add_step", json!({ "agent": "a", "instruction": "more", "after": [label] }))),
            13 if phase == StepPhase::Gate => self.decide(&label, !which.is_multiple_of(3)),
            14 if phase == StepPhase::Failed => self.step(&label).want(None),
            15 => self.now.run.paused = which.is_multiple_of(2),
            16 if matches!(phase, StepPhase::Failed | StepPhase::Pending) => self.start_over(&label),
            _ => {}
        }
    }

    /// From now on everything goes well, and people and the supervisor see to what is left.
    pub fn bring_to_an_end(&mut self) {
        for _ in 0..MAX_MOVES {
            self.now.run.paused = false;
            self.go_on();
            if self.is_at_rest() {
                return;
            }
            let gate = self.now.steps.iter().find(|step| step.phase == StepPhase::Gate).map(|step| step.label.clone());
            let running = self.now.steps.iter().find(|step| step.phase == StepPhase::Running);
            let running = running.and_then(|step| step.task_id.clone());
            if let Some(label) = gate {
                self.decide(&label, true);
            } else if let Some(task) = running {
                self.end(&task, TaskState::Completed);
            } else if self.now.calls.is_empty() {
                let is_denied = |step: &RunStep| gates::denial(&self.now.run, step).is_some();
                let is_ready = |step: &&RunStep| {
                    step.phase == StepPhase::Pending && self.now.missing_before(step).is_empty() && !is_denied(step)
                };
                let ready = self.now.steps.iter().find(is_ready).map(|step| step.label.clone());
                match ready {
                    Some(label) => self.call("run_step", json!({ "step": label })),
                    None => self.call("finish", json!({ "summary": "as far as it goes" })),
                };
            }
        }
    }

    /// Whether it has ended, or waits for a person who has to see to a failure.
    pub fn is_at_rest(&self) -> bool {
        let works = |step: &RunStep| matches!(step.phase, StepPhase::Gate | StepPhase::Running);
        let is_stuck = self.now.run.needs.is_some() && !self.now.steps.iter().any(works);
        self.now.run.settled || (is_stuck && plan::moves(&self.now).is_empty())
    }
}

/// Left out by the supervisor.
fn supervisor(reason: String) -> SkippedStep {
    SkippedStep { by: "supervisor".to_owned(), by_name: "supervisor".to_owned(), reason }
}

fn child(id: &TaskId) -> ChildTask {
    ChildTask {
        id: id.clone(),
        state: TaskState::Running,
        attempt: 1,
        error: None,
        ended_at: None,
        summary: String::new(),
        usage: Usage::default(),
    }
}

/// A run that has just begun.
pub fn run(supervised: bool, step_count: u32) -> PlaybookRun {
    PlaybookRun {
        id: RunId::new(1),
        viber_id: ViberId::new(1),
        playbook: "p".to_owned(),
        path: "playbooks/p.md".to_owned(),
        hash: playbook::digest("p"),
        text: String::new(),
        inputs: BTreeMap::new(),
        supervised,
        step_count,
        state: RunState::Running,
        paused: false,
        needs: None,
        summary: None,
        supervisor: None,
        supervisor_session: None,
        supervisor_attempts: 0,
        told_by: Vec::new(),
        by_viber: false,
        started_by: "op".to_owned(),
        starter: "Ada".to_owned(),
        created_at: Instant(1),
        ended_at: None,
        version: 1,
        ledger_version: 0,
        settled: false,
    }
}

/// A step of the playbook: the byte says what it comes after, its gate, its retries, and whether it has to give something.
pub fn step(run: &RunId, n: u32, byte: u8) -> RunStep {
    let after = match byte % 4 {
        _ if n == 1 => Vec::new(),
        0 => Vec::new(),
        1 => vec![(n - 1).to_string()],
        2 => vec![(1 + u32::from(byte) % (n - 1)).to_string()],
        _ => (1..n).map(|n| n.to_string()).collect(),
    };
    let gate = match (byte / 4) % 8 {
        0 => Some(GatePoint::Before),
        1 => Some(GatePoint::After),
        _ => None,
    };
    RunStep {
        after,
        gate,
        gives: if byte.is_multiple_of(3) { vec!["notes.md".to_owned()] } else { Vec::new() },
        retry: u32::from(byte % 3),
        ..RunStep::new(run.clone(), n.to_string(), "a".to_owned(), format!("do {n}"))
    }
}
