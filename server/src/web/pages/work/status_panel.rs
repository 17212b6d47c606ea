//! The status panel above the composer: the state of the session's task, since when and why, and the queue behind it.

mod children;
mod failure;
mod said;

use askama::Template;
use protocol::{ApprovalKind, Capability, InjectionPoint, Instant, PausePoint, UsageSource};

use crate::{
    db::imports::ImportProgress,
    domain::{ContactState, Delivery, Role, Task, TaskState, Waiting, WaitingFor},
    web::pages::conversation::{Conversation, attempt_words},
    web::{
        extract::Caller,
        urls,
        view::{
            Badge,
            call::{Call, tool_words},
            filters, message, time, timeline,
            truncate::truncate_escaped,
        },
    },
};

pub use failure::{FailureView, NextStep};
pub use said::SaidView;

/// The status panel: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_status_panel.html")]
pub struct StatusPanel {
    pub now: Instant,
    /// What the task is a part of, a run of a playbook or a tree of tasks: where that is shown, and what it is called.
    pub step: Option<(String, String)>,
    pub task: TaskView,
    /// What was said meanwhile, in the order in which the agent is told, and what nobody was told.
    pub said: Vec<SaidView>,
    pub queued: Vec<QueuedTask>,
    /// Tasks that wait behind those.
    pub more: usize,
    /// How much of the machine's log was imported, while the import goes on.
    pub taking: Option<ImportProgress>,
    /// It accompanies another fragment and replaces the element with its id.
    pub swap: bool,
}

/// The state of the task at work, else of the newest one.
#[derive(Clone, Debug)]
pub struct TaskView {
    /// `None` before the first task.
    pub state: Option<TaskState>,
    pub waiting: Option<WaitingFor>,
    pub badge: Badge,
    /// The pieces of a sentence that says why it is in this state.
    pub cause: Vec<Cause>,
    pub facts: String,
    pub failure: Option<FailureView>,
    pub stop: Option<String>,
    /// Tasks that end with it, itself among them.
    pub stops: usize,
    /// Holds it before its next step; `None` when it cannot be held, or is.
    pub pause: Option<String>,
    pub resume: Option<String>,
    /// What one can do about a failure, or instead of a wait for the provider.
    pub steps: Vec<NextStep>,
    /// When it waits for people: where they decide, and what the link says.
    pub review: Option<(String, String)>,
}

/// A piece of a sentence, with times that the page keeps current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    Words(String),
    /// How long ago.
    Ago(Instant),
    /// How long it has lasted.
    Since(Instant),
    /// The time that is left.
    Left(Instant),
    Clock(Instant),
}

/// A task that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedTask {
    pub goal: String,
    /// Takes it out of the queue; absent for viewers.
    pub withdraw: Option<String>,
}

/// What is shown of a queued goal, bytes of HTML.
const MAX_GOAL_BYTES: usize = 240;
/// Queued tasks that are shown.
const MAX_QUEUED_TASKS: usize = 40;

impl StatusPanel {
    /// From the conversation as it is.
    pub fn of(conversation: &Conversation, caller: &Caller, now: Instant) -> Self {
        let more = conversation.open.len().saturating_sub(1 + MAX_QUEUED_TASKS);
        let queued = conversation.open.iter().skip(1).take(MAX_QUEUED_TASKS).map(|task| QueuedTask {
            goal: truncate_escaped(&task.goal, MAX_GOAL_BYTES),
            withdraw: acts(caller).then(|| urls::task_verb(&caller.team.slug, &task.id, "stop")),
        });
        let slug = &caller.team.slug;
        Self {
            now,
            step: conversation
                .step
                .as_ref()
                .map(|step| (step.address(slug), step.words()))
                .or_else(|| children::asked_by(conversation, slug)),
            task: TaskView::of(conversation, caller),
            said: SaidView::all(conversation, caller),
            queued: queued.collect(),
            more,
            taking: conversation.taking,
            swap: false,
        }
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }

    /// The same, to accompany another fragment.
    pub fn out_of_band(self) -> String {
        Self { swap: true, ..self }.to_string()
    }
}

fn acts(caller: &Caller) -> bool {
    caller.role >= Role::Operator
}

impl TaskView {
    /// From the current task of the conversation.
    fn of(conversation: &Conversation, caller: &Caller) -> Self {
        let Some(task) = &conversation.current else { return Self::empty() };
        let viber = conversation.viber.as_ref().map_or("its viber, which was removed", |viber| viber.name.as_str());
        let verb = |verb| acts(caller).then(|| urls::task_verb(&caller.team.slug, &task.id, verb));
        let is_running = task.state == TaskState::Running;
        let is_held = task.waiting.as_ref().is_some_and(|waiting| waiting.cause == WaitingFor::Paused);
        let can_hold = is_running && conversation.capabilities().contains(&Capability::Pause);
        let steps = if acts(caller) { NextStep::of(conversation, task, &caller.team.slug) } else { Vec::new() };
        let is_asked_to_hold = is_running && task.pausing.is_some();
        let is_pausing = is_asked_to_hold && task.waiting.is_none() && task.contact.state == ContactState::Connected;
        Self {
            state: Some(task.state),
            // Waiting for its own steps is work.
            waiting: task.waiting.as_ref().map(|waiting| waiting.cause).filter(|cause| *cause != WaitingFor::Child),
            badge: if is_pausing { Badge::PAUSING } else { Badge::task(task) },
            cause: cause(task, viber, conversation),
            facts: facts(task, conversation),
            failure: task.error.as_ref().filter(|_| task.state == TaskState::Error).map(|error| {
                let refused = FailureView::of_refused_key(error, viber);
                refused.unwrap_or_else(|| FailureView::of(error))
            }),
            stop: (!task.state.is_final()).then(|| verb("stop")).flatten(),
            stops: children::open_beneath(&task.id, &conversation.kin) + 1,
            pause: (can_hold && !is_held && !is_asked_to_hold).then(|| verb("pause")).flatten(),
            resume: (is_held || is_asked_to_hold).then(|| verb("resume")).flatten().filter(|_| is_running),
            steps,
            review: if is_running { review(conversation, &caller.team.slug) } else { None },
        }
    }

    fn empty() -> Self {
        Self {
            state: None,
            waiting: None,
            badge: Badge::IDLE,
            cause: vec![],
            facts: String::new(),
            failure: None,
            stop: None,
            stops: 1,
            pause: None,
            resume: None,
            steps: Vec::new(),
            review: None,
        }
    }
}

fn words(text: impl Into<String>) -> Cause {
    Cause::Words(text.into())
}

fn cause(task: &Task, viber: &str, conversation: &Conversation) -> Vec<Cause> {
    let heard = task.contact.state == ContactState::Connected;
    match task.state {
        TaskState::Pending | TaskState::Running if task.contact.state == ContactState::Unheard => {
            vec![
                words(format!("{viber} has not been heard from since the Board restarted, ")),
                Cause::Clock(task.contact.since),
                words(". Work goes on there meanwhile, and is reported when it reconnects."),
            ]
        }
        TaskState::Pending if !heard => {
            vec![
                words(format!("{viber} has been offline since ")),
                Cause::Clock(task.contact.since),
                words(". The task starts when the viber reconnects."),
            ]
        }
        TaskState::Pending => match task.delivery {
            Some(Delivery::Accepted) => vec![
                words(format!("Waiting for a free slot on {viber}, for ")),
                Cause::Since(task.offered_at.unwrap_or(task.created_at)),
            ],
            Some(Delivery::Offered) => vec![words(format!("Sent to {viber}, not confirmed yet"))],
            _ => vec![words("Behind the session's other tasks")],
        },
        TaskState::Running if !heard => {
            vec![
                words(format!("{viber} was last heard ")),
                Cause::Ago(task.contact.since),
                words(". It may still be working, and reports when it reconnects."),
            ]
        }
        TaskState::Running => match &task.waiting {
            Some(waiting) if is_of_people(waiting.cause) => asked(waiting, conversation),
            Some(waiting) if waiting.cause == WaitingFor::RateLimit => match waiting.until {
                Some(until) => vec![words("Waiting for the provider; next attempt in "), Cause::Left(until)],
                None => vec![words("Waiting for the provider")],
            },
            Some(waiting) if waiting.cause == WaitingFor::Child => {
                let since = Cause::Since(task.started_at.unwrap_or(task.created_at));
                vec![words(format!("{} · ", children::awaited(task, conversation))), since, words(" so far")]
            }
            _ if task.pausing.is_some() => {
                let before = if task.pausing == Some(PausePoint::Tool) { "call or step" } else { "step" };
                vec![words(format!("{}; it is held before its next {before}", activity(conversation)))]
            }
            _ => {
                let since = Cause::Since(task.started_at.unwrap_or(task.created_at));
                vec![words(format!("{} · ", activity(conversation))), since, words(" so far")]
            }
        },
        TaskState::Completed => ended(task, "Took "),
        TaskState::Stopped if task.stop_confirmed_at.is_none() => {
            let contact =
                if heard { format!("{viber} is connected") } else { format!("{viber} has been offline since ") };
            let mut cause =
                vec![words("The viber has not confirmed yet: something may still be running. "), words(contact)];
            if !heard {
                cause.push(Cause::Clock(task.contact.since));
            }
            cause
        }
        TaskState::Stopped => {
            let by = task
                .stopped_by
                .as_ref()
                .map_or_else(|| "Ended".to_owned(), |by| format!("By {}", conversation.name(by)));
            vec![words(format!("{by} at ")), Cause::Clock(task.ended_at.unwrap_or(task.created_at))]
        }
        TaskState::Error => ended(task, "After "),
    }
}

/// Whether only a person ends such a wait.
fn is_of_people(cause: WaitingFor) -> bool {
    matches!(cause, WaitingFor::Approval | WaitingFor::Input | WaitingFor::Budget | WaitingFor::Paused)
}

/// What the agent waits with for people, and how long it has.
fn asked(waiting: &Waiting, conversation: &Conversation) -> Vec<Cause> {
    let said = match (conversation.asked.len(), waiting.cause) {
        (_, WaitingFor::Paused) => match &waiting.next {
            Some(next) => format!("Held before {}", Call::new(&next.call_id, &next.tool, &next.args, 0).in_words()),
            None => "Held; it goes on when somebody resumes it.".to_owned(),
        },
        (0 | 1, WaitingFor::Input) => "The agent has a question".to_owned(),
        (0 | 1, WaitingFor::Budget) => "A limit is reached; nothing runs".to_owned(),
        (0 | 1, _) => "The agent asks for an approval, and continues when somebody decides.".to_owned(),
        (n, _) => {
            let all = |kinds: &[ApprovalKind]| conversation.asked.iter().all(|asked| kinds.contains(&asked.kind));
            match () {
                () if all(&[ApprovalKind::Question]) => format!("{n} questions"),
                () if all(&[ApprovalKind::Plan, ApprovalKind::Tool, ApprovalKind::Unknown]) => format!("{n} approvals"),
                () => format!("{n} decisions"),
            }
        }
    };
    match conversation.asked.first() {
        Some(oldest) if conversation.asked.len() > 1 => {
            vec![words(format!("{said}, the oldest ")), Cause::Ago(oldest.created_at)]
        }
        _ => vec![words(said)],
    }
}

/// Where what waits is decided: a plan beside the conversation, anything else at its end.
fn review(conversation: &Conversation, slug: &str) -> Option<(String, String)> {
    let place = match conversation.asked.first()? {
        asked if asked.kind == ApprovalKind::Plan => urls::pane(slug, &conversation.session.id, "plan"),
        asked => format!("#ask-{}", asked.id),
    };
    let word = match conversation.asked.len() {
        1 => "Review".to_owned(),
        n => format!("Review {n}"),
    };
    Some((place, word))
}

fn ended(task: &Task, word: &str) -> Vec<Cause> {
    let Some(end) = task.ended_at else { return vec![] };
    let begin = task.started_at.unwrap_or(end);
    let lasted = u64::try_from(end.millis() - begin.millis()).unwrap_or(0);
    vec![words(format!("{word}{}, at ", time::took(lasted))), Cause::Clock(end)]
}

/// What the agent is doing, from its newest entry.
fn activity(conversation: &Conversation) -> String {
    let Some(growing) = &conversation.growing else { return "Starting".to_owned() };
    let entries = message::timeline(
        &growing.message,
        usize::try_from(growing.from).unwrap_or(usize::MAX),
        (&[], &growing.tail),
        &growing.decisions,
        true,
    );
    match entries.last().map(|entry| &entry.body) {
        Some(timeline::EntryContent::Writing(_)) => "Writing".to_owned(),
        Some(timeline::EntryContent::Thinking(_)) => "Reasoning".to_owned(),
        Some(timeline::EntryContent::Calls(group)) => match group.working() {
            Some(call) => format!("Running {}", tool_words(&call.tool)),
            None => "Thinking".to_owned(),
        },
        _ => "Thinking".to_owned(),
    }
}

fn facts(task: &Task, conversation: &Conversation) -> String {
    let usage = &task.usage;
    let mut facts = Vec::new();
    if !task.state.is_final() && task.rung_of(task.attempt).is_some() {
        facts.push(attempt_words(task, task.attempt));
    }
    if let Some(together) = children::together(task, &conversation.kin) {
        facts.push(together);
        return facts.join(" · ");
    }
    if usage.input_tokens.max(usage.output_tokens) > 0 {
        let about = if usage.source == UsageSource::Estimated { "≈ " } else { "" };
        facts.push(format!(
            "{about}{} in, {} out",
            filters::token_words(usage.input_tokens),
            filters::token_words(usage.output_tokens)
        ));
    }
    if let Some(cost) = usage.cost_usd {
        facts.push(format!("${cost:.2}"));
    }
    facts.join(" · ")
}
