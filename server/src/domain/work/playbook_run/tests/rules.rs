//! The rules one by one.

use protocol::playbook::GatePoint;
use serde_json::json;

use super::{
    super::{
        calls::{self, CallVerdict},
        plan::{self, RunMove, StepEnd},
    },
    world::World,
};
use crate::domain::{RunNeed, RunState, StepPhase, TaskState};

/// Steps after the one before each, and steps after none.
const CHAIN: u8 = 0b1_0101;
const FREE: u8 = 0b1_0100;

impl World {
    fn phases(&self) -> Vec<StepPhase> {
        self.now.steps.iter().map(|step| step.phase).collect()
    }

    fn end_step(&mut self, label: &str, state: TaskState) {
        let task = self.now.step(label).and_then(|step| step.task_id.clone()).expect("it runs");
        self.end(&task, state);
        self.go_on();
    }

    /// What the supervisor is told at once.
    fn ask(&mut self, tool: &str, args: serde_json::Value) -> Option<String> {
        let id = self.call(tool, args).expect("a supervisor");
        self.go_on();
        self.answers.iter().find(|(call, _)| *call == id).map(|(_, said)| said.clone())
    }

    fn with(mut self, label: &str, change: impl FnOnce(&mut crate::domain::RunStep)) -> Self {
        change(self.step(label));
        self
    }
}

#[test]
fn as_written_each_step_waits_for_those_before_it() {
    let mut world = World::new(false, &[CHAIN, CHAIN]).with("1", |step| step.gives.clear());
    world.go_on();
    assert_eq!(world.phases(), [StepPhase::Running, StepPhase::Pending]);
    world.end_step("1", TaskState::Completed);
    assert_eq!(world.phases(), [StepPhase::Done, StepPhase::Running]);
}

#[test]
fn eight_steps_run_at_once_and_the_ninth_when_there_is_room() {
    let mut world = World::new(false, &[FREE; 12]);
    world.now.steps.iter_mut().for_each(|step| step.gives.clear());
    world.go_on();
    assert_eq!(world.running(), 8);
    world.end_step("3", TaskState::Completed);
    assert_eq!((world.running(), world.now.steps[8].phase), (8, StepPhase::Running));
}

#[test]
fn a_broken_step_is_retried_and_then_asks() {
    let mut world = World::new(false, &[FREE]).with("1", |step| step.retry = 1);
    world.go_on();
    world.end_step("1", TaskState::Error);
    assert_eq!((world.now.steps[0].attempt, world.phases()[0]), (2, StepPhase::Running));
    world.end_step("1", TaskState::Error);
    assert_eq!((world.phases()[0], world.now.run.needs), (StepPhase::Failed, Some(RunNeed::Step)));
    let mut stopped = World::new(false, &[FREE]).with("1", |step| step.retry = 5);
    stopped.go_on();
    stopped.end_step("1", TaskState::Stopped);
    assert_eq!(stopped.phases()[0], StepPhase::Failed, "whoever stopped it meant it");
}

#[test]
fn pauses_before_attempts_grow_and_end() {
    let pause = |world: &mut World, label: &str| {
        let task = match label {
            "" => world.now.run.supervisor.clone(),
            label => world.now.step(label).and_then(|step| step.task_id.clone()),
        };
        world.end(&task.expect("it runs"), TaskState::Error);
        world.go_on_for_now();
        let next = world.now.next_at().expect("an attempt that waits");
        let ended = match label {
            "" => world.now.task(world.now.run.supervisor.as_ref()).and_then(|task| task.ended_at),
            label => world.now.step(label).and_then(|step| step.ended_at),
        };
        world.pass(protocol::Instant(next.0 - 1));
        assert!(plan::moves(&world.now).is_empty(), "not before its time");
        world.pass(next);
        world.go_on_for_now();
        next.0 - ended.expect("it has ended").0
    };
    let mut world = World::new(false, &[FREE]).with("1", |step| step.retry = 8);
    world.go_on();
    let pauses: Vec<i64> = (0..8).map(|_| pause(&mut world, "1")).collect();
    assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    let mut world = World::new(true, &[FREE]);
    world.go_on();
    let pauses: Vec<i64> = (0..4).map(|_| pause(&mut world, "")).collect();
    assert_eq!(pauses, [1_000, 10_000, 30_000, 60_000]);
}

#[test]
fn a_person_and_a_clock_that_goes_back_wait_for_no_pause() {
    let mut world = World::new(false, &[FREE]).with("1", |step| step.retry = 1);
    world.go_on();
    for _ in 0..2 {
        world.end_step("1", TaskState::Error);
    }
    world.step("1").want(None);
    world.go_on_for_now();
    assert_eq!((world.phases()[0], world.now.steps[0].attempt), (StepPhase::Running, 3));
    let mut world = World::new(false, &[FREE]).with("1", |step| step.retry = 1);
    world.go_on();
    let task = world.now.steps[0].task_id.clone().expect("it runs");
    world.end(&task, TaskState::Error);
    world.go_on_for_now();
    assert_eq!(world.phases()[0], StepPhase::Pending);
    world.step("1").want(None);
    assert!(world.now.next_at().is_some(), "who only asks again does not shorten it");
    world.pass(protocol::Instant(0));
    world.go_on_for_now();
    assert_eq!(world.phases()[0], StepPhase::Running);
}

#[test]
fn a_result_that_comes_late_is_taken_up() {
    let mut world = World::new(false, &[FREE]).with("1", |step| {
        step.retry = 0;
        step.gives.clear();
    });
    world.go_on();
    world.end_step("1", TaskState::Error);
    assert!(world.now.steps[0].broke);
    world.now.tasks[0].state = TaskState::Completed;
    world.go_on();
    assert_eq!((world.phases()[0], world.now.run.state), (StepPhase::Done, RunState::Completed));
}

#[test]
fn a_step_that_a_person_started_over_in_its_session_is_not_started_twice() {
    let failed = || {
        let mut world = World::new(false, &[FREE, CHAIN]).with("1", |step| {
            step.retry = 0;
            step.gives.clear();
        });
        world.go_on();
        world.end_step("1", TaskState::Error);
        world.now.run.paused = true;
        // A person wants it, and then starts its task over before the run goes on.
        world.step("1").want(None);
        world.go_on();
        world.start_over("1");
        world
    };
    let mut world = failed();
    world.now.run.paused = false;
    let starts = plan::moves(&world.now).into_iter().any(|one| one == RunMove::Start("1".to_owned()));
    assert!(!starts, "whichever of its moves is made first");
    world.go_on();
    let step = &world.now.steps[0];
    assert_eq!((step.phase, step.attempt, step.wanted), (StepPhase::Running, 2, false), "that is its second attempt");
    world.end_step("1", TaskState::Completed);
    assert_eq!((world.phases(), world.now.steps[0].attempt), (vec![StepPhase::Done, StepPhase::Running], 2));

    let mut stopped = failed();
    stopped.stop();
    stopped.go_on();
    assert!(stopped.now.tasks.iter().all(|task| task.state.is_final()), "it is halted like any other");
    assert_eq!(stopped.phases(), [StepPhase::Stopped, StepPhase::Stopped]);
}

#[test]
fn what_comes_late_counts_though_the_step_was_to_be_started_again() {
    let mut world = World::new(false, &[FREE]).with("1", |step| {
        step.retry = 0;
        step.gives.clear();
    });
    world.go_on();
    world.end_step("1", TaskState::Error);
    world.now.run.paused = true;
    world.step("1").want(None);
    world.go_on();
    world.now.tasks[0].state = TaskState::Completed;
    world.now.run.paused = false;
    world.go_on();
    assert_eq!((world.phases(), world.now.steps[0].attempt), (vec![StepPhase::Done], 1), "nothing is repeated");
}

#[test]
fn a_supervisor_leaves_alone_what_a_person_started_over() {
    let mut world = World::new(true, &[FREE]).with("1", |step| step.retry = 0);
    world.go_on();
    assert_eq!(world.ask("run_step", json!({ "step": "1" })), None);
    world.end_step("1", TaskState::Error);
    world.start_over("1");
    // Before that shows in the step, as between a look and the change behind the lock.
    for (tool, args) in [("skip_step", json!({ "step": "1", "reason": "It failed" })), ("finish", json!({}))] {
        let id = world.call(tool, args).expect("a supervisor");
        let call = world.now.calls.iter().find(|call| call.id == id).expect("an open call");
        assert!(matches!(calls::verdict(&world.now, call), CallVerdict::Deny(_)), "{tool}");
    }
    let other = json!({ "step": "1", "instruction": "something else" });
    for args in [json!({ "step": "1" }), other] {
        let id = world.call("run_step", args).expect("a supervisor");
        let call = world.now.calls.iter().find(|call| call.id == id).expect("an open call");
        assert_eq!(calls::verdict(&world.now, call), CallVerdict::Wait);
    }
    world.go_on();
    assert_eq!((world.phases()[0], world.now.steps[0].attempt), (StepPhase::Running, 2));
}

#[test]
fn what_was_not_handed_over_fails_the_step() {
    let world = World::new(false, &[FREE]);
    let mut now = world.now.clone();
    now.steps[0].phase = StepPhase::Running;
    let end = plan::step_end(&now, &now.steps[0], &[]);
    assert_eq!(end, StepEnd::Failed("Its task was deleted".to_owned()));
    let mut world = World::new(false, &[FREE]);
    world.go_on();
    let task = world.now.steps[0].task_id.clone().expect("it runs");
    world.end(&task, TaskState::Completed);
    for (absent, done) in [(vec![], true), (vec!["../a".to_owned()], false)] {
        let end = plan::step_end(&world.now, &world.now.steps[0], &absent);
        assert_eq!(end == StepEnd::Done, done, "{end:?}");
    }
    world.step("1").retry = 1;
    let end = plan::step_end(&world.now, &world.now.steps[0], &["a.md".to_owned()]);
    let why = "It did not hand over a.md, which it has to give".to_owned();
    assert_eq!(end, StepEnd::Retry { why: why.clone(), broke: false });
    let at = world.now.at;
    world.step("1").retry_later(why, false, at);
    world.go_on();
    assert_eq!((world.phases()[0], world.now.steps[0].attempt), (StepPhase::Running, 2));
}

#[test]
fn a_gate_before_holds_and_its_denial_is_told() {
    let gated = |supervised| World::new(supervised, &[FREE]).with("1", |step| step.gate = Some(GatePoint::Before));
    let mut world = gated(false);
    world.go_on();
    assert_eq!((world.phases()[0], world.now.run.needs), (StepPhase::Gate, Some(RunNeed::Gate)));
    world.decide("1", false);
    world.go_on();
    assert_eq!((world.phases()[0], world.now.run.needs), (StepPhase::Failed, Some(RunNeed::Step)));

    let mut world = gated(true);
    world.go_on();
    assert_eq!(world.ask("run_step", json!({ "step": 1 })), None, "it waits for a person");
    let waiting = world.now.calls[0].id.clone();
    world.decide("1", false);
    world.go_on();
    let said = world.answers.iter().find(|(call, _)| *call == waiting).map(|(_, said)| said.as_str());
    assert_eq!(said, Some("Ada denied step 1"));
    let again = world.ask("run_step", json!({ "step": "1" })).expect("an answer");
    assert!(again.contains("not asked again"), "{again}");
    assert_eq!(world.ask("run_step", json!({ "step": "1", "instruction": "something else" })), None);
    assert_eq!(world.phases()[0], StepPhase::Gate, "about something else a person is asked again");
    let skipped = world.ask("skip_step", json!({ "step": "1", "reason": "I want to" })).expect("an answer");
    assert!(skipped.contains("only a person"), "{skipped}");
}

#[test]
fn a_gate_after_decides_whether_it_is_done() {
    let gated = || {
        let world = World::new(false, &[FREE]).with("1", |step| {
            step.gate = Some(GatePoint::After);
            step.gives.clear();
        });
        let mut world = world;
        world.go_on();
        world.end_step("1", TaskState::Completed);
        world
    };
    let mut world = gated();
    assert_eq!(world.phases()[0], StepPhase::Gate);
    world.decide("1", true);
    world.go_on();
    assert_eq!((world.phases()[0], world.now.run.state), (StepPhase::Done, RunState::Completed));
    let mut world = gated();
    world.decide("1", false);
    world.go_on();
    let step = &world.now.steps[0];
    assert_eq!((step.phase, step.failure.as_deref()), (StepPhase::Failed, Some("Ada denied step 1")));
}

#[test]
fn a_supervisor_begins_nothing_before_its_time_and_finishes_nothing_that_is_open() {
    let mut world = World::new(true, &[CHAIN, CHAIN]).with("1", |step| step.gives.clear());
    world.go_on();
    assert_eq!(world.phases(), [StepPhase::Pending, StepPhase::Pending], "it starts the steps");
    for (tool, args, refused) in [
        ("run_step", json!({ "step": "2" }), "comes after 1"),
        ("run_step", json!({ "step": "../1" }), "There is no step"),
        ("run_step", json!({}), "Say which step"),
        ("run_step", json!({ "step": "1", "instruction": "x".repeat(20_000) }), "at most 16 KiB"),
        ("finish", json!({ "summary": "done" }), "neither done nor skipped"),
        ("skip_step", json!({ "step": "1" }), "Say why"),
        ("add_step", json!({ "agent": "a" }), "Say what is to be done"),
        ("add_step", json!({ "agent": "a", "instruction": "b", "after": ["9"] }), "There is no step"),
        ("shell", json!({ "command": "id" }), "There is no call"),
    ] {
        let said = world.ask(tool, args).expect("an answer");
        assert!(said.contains(refused), "{tool}: {said}");
    }
    assert_eq!(world.ask("run_step", json!({ "step": 1 })), None);
    assert_eq!(world.phases()[0], StepPhase::Running);
    let said = world.ask("finish", json!({})).expect("an answer");
    assert!(said.contains("have not ended"), "{said}");
    world.end_step("1", TaskState::Completed);
    let said = &world.answers.last().expect("an answer").1;
    assert!(said.starts_with("Step 1 is done."), "{said}");
    let again = world.ask("run_step", json!({ "step": "1" })).expect("at once");
    assert!(again.starts_with("Step 1 is done.") && world.now.steps[0].attempt == 1, "nothing is repeated");
}

#[test]
fn steps_are_not_added_without_end() {
    let mut world = World::new(true, &[FREE]);
    world.go_on();
    for _ in 0..50 {
        assert_eq!(world.ask("add_step", json!({ "agent": "a", "instruction": "b" })).as_deref(), Some("added"));
    }
    let said = world.ask("add_step", json!({ "agent": "a", "instruction": "b" })).expect("an answer");
    assert!(said.contains("at most 50"), "{said}");
    let labels: Vec<&str> = world.now.steps.iter().map(|step| step.label.as_str()).collect();
    assert_eq!((labels[1], labels[26], labels[27], labels[50]), ("1a", "1z", "1aa", "1ax"));
}

#[test]
fn a_supervisor_that_fails_is_started_again_five_times_in_all() {
    let mut world = World::new(true, &[FREE]);
    world.go_on();
    for attempt in 1..=5 {
        assert_eq!((world.now.run.supervisor_attempts, world.now.run.needs), (attempt, None));
        let task = world.now.run.supervisor.clone().expect("a supervisor");
        // One that ends without `finish` has failed, too.
        world.end(&task, if attempt % 2 == 0 { TaskState::Completed } else { TaskState::Error });
        world.go_on();
    }
    assert_eq!(world.now.run.needs, Some(RunNeed::Supervisor));
    world.now.run.supervisor_attempts = 0;
    world.go_on();
    assert!(world.now.supervisor().is_some() && world.now.run.needs.is_none(), "a person wanted it");
    let task = world.now.run.supervisor.clone().expect("a supervisor");
    world.end(&task, TaskState::Stopped);
    world.go_on();
    assert_eq!(world.now.run.needs, Some(RunNeed::Supervisor), "whoever stopped it meant it");
}

#[test]
fn while_a_run_is_paused_nothing_starts_and_nothing_is_lost() {
    let mut world = World::new(false, &[FREE, CHAIN]).with("1", |step| step.retry = 1);
    world.now.run.paused = true;
    world.go_on();
    assert_eq!(world.phases(), [StepPhase::Pending, StepPhase::Pending]);
    world.now.run.paused = false;
    world.go_on();
    world.now.run.paused = true;
    world.end_step("1", TaskState::Error);
    assert_eq!((world.phases()[0], world.now.steps[0].attempt), (StepPhase::Pending, 1), "its retry waits");
    world.now.run.paused = false;
    world.go_on();
    assert_eq!((world.phases()[0], world.now.steps[0].attempt), (StepPhase::Running, 2));
}

#[test]
fn steps_that_are_not_stored_yet_come_first() {
    let mut world = World::new(false, &[FREE, FREE]);
    world.now.steps.pop();
    assert_eq!(plan::moves(&world.now).first(), Some(&RunMove::StoreSteps));
    assert!(!plan::moves(&world.now).iter().any(|one| matches!(one, RunMove::Start(_))));
}
