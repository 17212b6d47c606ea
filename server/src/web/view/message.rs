//! A message of a conversation, ready to be shown.

use askama::Template;
use protocol::{ArtifactId, Instant, SessionId};

use super::{
    call::Outcome,
    filters,
    lanes::{self, Body, Builder, Lane, escaped},
};
use crate::{
    domain::{Author, Delivery, Message, Part, Task, TaskState, committed::Report},
    web::{links, markdown::By},
};

/// A message with its lanes.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_message.html")]
pub struct MessageView {
    pub slug: String,
    pub session: SessionId,
    pub seq: u64,
    pub author: Author,
    pub name: String,
    pub at: Instant,
    /// The model, and which attempt it is from the second on.
    pub about: Vec<String>,
    pub delivery: Option<Told>,
    /// Still growing: live updates go here.
    pub open: bool,
    pub lanes: Vec<Lane>,
    /// How its task ended, when it did not end well.
    pub outcome: Option<Ended>,
    /// Whether the reader may send.
    pub may_send: bool,
    /// It is kept here: the whole output of a call has an address.
    pub kept: bool,
    /// Where what it said before is to be seen, when that is not here.
    pub earlier: Option<String>,
}

/// How far a user's message has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    pub icon: &'static str,
    pub words: &'static str,
}

/// The end of a task that was not completed, said where its conversation breaks off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `error` or `info`.
    pub level: &'static str,
    pub icon: &'static str,
    pub words: String,
}

impl Ended {
    /// From the task; `by` is whoever stopped it.
    pub fn of(task: &Task, by: &str) -> Option<Self> {
        match task.state {
            TaskState::Stopped => Some(Self { level: "info", icon: "stopped", words: format!("Stopped by {by}") }),
            TaskState::Error => {
                let cause = task.error.as_ref().map_or("no cause was told", |error| error.message.as_str());
                Some(Self { level: "error", icon: "failed", words: format!("Failed: {cause}") })
            }
            _ => None,
        }
    }
}

/// Lanes of an open message from one on: what a live update replaces.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_timeline.html")]
pub struct LanesView<'a> {
    pub slug: &'a str,
    pub session: &'a SessionId,
    pub seq: u64,
    pub lanes: &'a [Lane],
}

impl LanesView<'_> {
    fn output_link(&self, call: &str) -> Option<String> {
        (!call.is_empty()).then(|| links::call_output(self.slug, self.session, self.seq, call))
    }

    fn part_link(&self, index: &usize) -> Option<String> {
        Some(links::part(self.slug, self.session, self.seq, *index))
    }

    fn artifact_link(&self, id: &ArtifactId) -> String {
        links::artifact(self.slug, id)
    }
}

impl MessageView {
    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        let about: usize = self.about.iter().map(|fact| 40 + escaped(fact)).sum();
        let outcome = self.outcome.as_ref().map_or(0, |ended| 300 + 2 * escaped(&ended.words));
        2_500 + escaped(&self.name) + about + outcome + self.lanes.iter().map(Lane::weight).sum::<usize>()
    }

    /// Leaves out what does not fit from the front, and says where that is to be seen.
    pub fn fit(&mut self, room: usize) {
        let lanes: usize = self.lanes.iter().map(Lane::weight).sum();
        let beside = self.weight() - lanes;
        if let Some(from) = lanes::fit(&mut self.lanes, room.saturating_sub(beside)) {
            self.earlier = Some(links::earlier(&self.slug, &self.session, self.seq, from));
        }
    }

    /// The same from a place on that was chosen before.
    pub fn fit_from(&mut self, from: usize) {
        lanes::skip(&mut self.lanes, from);
        self.earlier = (from > 0).then(|| links::earlier(&self.slug, &self.session, self.seq, from));
    }

    fn edit_link(&self) -> String {
        links::session_edit(&self.slug, &self.session, self.seq)
    }

    fn output_link(&self, call: &str) -> Option<String> {
        (self.kept && !call.is_empty()).then(|| links::call_output(&self.slug, &self.session, self.seq, call))
    }

    fn part_link(&self, index: &usize) -> Option<String> {
        self.kept.then(|| links::part(&self.slug, &self.session, self.seq, *index))
    }

    fn artifact_link(&self, id: &ArtifactId) -> String {
        links::artifact(&self.slug, id)
    }
}

impl Told {
    /// From the task that the message asked for.
    pub fn of(task: &Task) -> Self {
        let told = |icon, words| Self { icon, words };
        match (task.state, task.delivery) {
            (TaskState::Pending, Some(Delivery::Accepted)) => told("checks", "Delivered"),
            (TaskState::Pending, _) => told("check", "Accepted"),
            // It never reached the viber's engine: nobody has read it.
            _ if task.started_at.is_none() => told("check", "Accepted"),
            _ => told("checks", "Read by the agent"),
        }
    }
}

/// The lanes of a message: its parts, the first of them in its place `from`, then the events that have not become parts.
pub fn lanes(message: &Message, from: usize, tail: &[Report], open: bool) -> Vec<Lane> {
    let by = if message.role == Author::User { By::Person } else { By::Agent };
    let mut builder = Builder::new(by, from);
    message.parts.iter().for_each(|part| builder.part(part));
    tail.iter().for_each(|report| builder.event(report));
    builder.finish(!open)
}

/// The lanes of a part of a message, the first in its place `from`; `later` lies behind it.
pub fn lanes_between(message: &Message, from: usize, later: &[Part]) -> Vec<Lane> {
    let by = if message.role == Author::User { By::Person } else { By::Agent };
    let mut builder = Builder::new(by, from);
    message.parts.iter().for_each(|part| builder.part(part));
    builder.answers(later);
    builder.finish(true)
}
