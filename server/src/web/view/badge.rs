//! One place where a state becomes an icon, a word and a tone.

use crate::domain::{Brief, ContactState, PlaybookRun, RunState, Task, TaskState, Waiting, WaitingFor};

/// A state as people see it: `data-state` (which gives the tone), the icon's name, the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Badge {
    pub state: &'static str,
    pub icon: &'static str,
    pub word: &'static str,
}

impl Badge {
    const fn new(state: &'static str, icon: &'static str, word: &'static str) -> Self {
        Self { state, icon, word }
    }

    /// Tasks run.
    pub const WORKING: Self = Self::new("working", "working", "Working");
    /// It is to be held, and has not reached the place.
    pub const PAUSING: Self = Self::new("working", "pause", "Pausing…");
    /// Nothing was asked yet.
    pub const IDLE: Self = Self::new("idle", "done", "Idle");

    /// What a task is doing, as far as anybody knows.
    pub fn task(task: &Task) -> Self {
        Self::of(task.state, task.waiting.as_ref().map(|waiting| waiting.cause), task.contact.state)
    }

    /// The same of a task that a list shows beside its viber's contact.
    pub fn brief(task: &Brief, contact: ContactState) -> Self {
        Self::of(task.state, task.waiting.as_ref().map(|waiting| waiting.cause), contact)
    }

    /// The same where nothing is known of its viber's contact.
    pub fn at_work(state: TaskState, waiting: Option<&Waiting>) -> Self {
        Self::of(state, waiting.map(|waiting| waiting.cause), ContactState::Connected)
    }

    fn of(state: TaskState, waiting: Option<WaitingFor>, contact: ContactState) -> Self {
        let heard = contact == ContactState::Connected;
        match state {
            TaskState::Pending if !heard => Self::new("offline", "offline", "Waits"),
            TaskState::Pending => Self::new("pending", "pending", "Queued"),
            TaskState::Running if !heard => Self::new("offline", "unknown", "No contact"),
            TaskState::Running => match waiting {
                Some(WaitingFor::Approval | WaitingFor::Input) => Self::new("waiting", "waiting", "Needs you"),
                Some(WaitingFor::Child) => Self::new("working", "working", "Waits for tasks"),
                Some(WaitingFor::RateLimit) => Self::new("working", "paused", "Provider busy"),
                Some(WaitingFor::Budget | WaitingFor::Paused) => Self::new("waiting", "paused", "Paused"),
                None => Self::new("working", "working", "Working"),
            },
            TaskState::Completed => Self::new("done", "done", "Done"),
            TaskState::Error => Self::new("failed", "failed", "Failed"),
            TaskState::Stopped => Self::new("stopped", "stopped", "Stopped"),
        }
    }

    /// How a run of a playbook stands.
    pub fn run(run: &PlaybookRun) -> Self {
        match run.state {
            RunState::Running if run.needs.is_some() => Self::new("waiting", "waiting", "Needs you"),
            RunState::Running if run.paused => Self::new("waiting", "paused", "Paused"),
            RunState::Running => Self::WORKING,
            RunState::Completed => Self::new("done", "done", "Done"),
            RunState::Error => Self::new("failed", "failed", "Failed"),
            RunState::Stopped => Self::new("stopped", "stopped", "Stopped"),
        }
    }

    /// Whether a viber can be reached.
    pub fn contact(state: ContactState, drained: bool) -> Self {
        match (state, drained) {
            (ContactState::Disconnected, _) => Self::new("offline", "offline", "Offline"),
            (ContactState::Unheard, _) => Self::new("offline", "unknown", "Not heard since the restart"),
            (ContactState::Connected, true) => Self::new("draining", "draining", "Drained"),
            (ContactState::Connected, false) => Self::new("online", "online", "Online"),
        }
    }

    /// The word before the viber's name in the rail, where the icon alone would not say enough.
    pub fn rail_words(&self) -> &'static str {
        match self.state {
            "failed" => "Failed · ",
            "stopped" => "Stopped · ",
            "offline" if self.icon == "offline" => "Waits · ",
            "offline" => "No contact · ",
            "pending" => "Queued · ",
            "waiting" if self.icon == "paused" => "Paused · ",
            "waiting" => "Needs you · ",
            _ => "",
        }
    }
}
