//! The status panel above the composer: the state of the session's task, since when and why, and the queue behind it.

mod said;

use askama::Template;
use protocol::{ApprovalKind, Capability, ErrorCode, Instant, TaskError, UsageSource};

use crate::{
    db::imports::ImportProgress,
    domain::{ContactState, Delivery, Role, Task, TaskState, Waiting, WaitingFor},
    web::pages::conversation::Conversation,
    web::{
        extract::Caller,
        urls,
        view::{Badge, call::Call, filters, message, time, timeline, truncate::truncate_escaped},
    },
};

pub use said::SaidView;

/// The status panel: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "work/sessions/_status_panel.html")]
pub struct StatusPanel {
    pub now: Instant,
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
    /// Holds it before its next step; `None` when it cannot be held, or is.
    pub pause: Option<String>,
    pub resume: Option<String>,
    pub retry: Option<String>,
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

/// Cause, consequence, next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureView {
    pub cause: String,
    pub effect: &'static str,
    pub next: String,
    /// What is to be run on the viber.
    pub command: Option<String>,
    pub code: &'static str,
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
/// What is shown of a step that the viber suggests after an error, bytes of HTML.
const MAX_NEXT_STEP_BYTES: usize = 2_000;
/// Longest name of a provider that is put into a command, bytes.
const MAX_PROVIDER_NAME_BYTES: usize = 40;
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
        Self {
            now,
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
        let again = matches!(task.state, TaskState::Error | TaskState::Stopped) && conversation.viber.is_some();
        Self {
            state: Some(task.state),
            waiting: task.waiting.as_ref().map(|waiting| waiting.cause),
            badge: Badge::task(task),
            cause: cause(task, viber, conversation),
            facts: facts(task),
            failure: task.error.as_ref().filter(|_| task.state == TaskState::Error).map(|error| {
                let refused = FailureView::of_refused_key(error, viber);
                refused.unwrap_or_else(|| FailureView::of(error))
            }),
            stop: (!task.state.is_final()).then(|| verb("stop")).flatten(),
            pause: (can_hold && !is_held).then(|| verb("pause")).flatten(),
            resume: (is_running && is_held).then(|| verb("resume")).flatten(),
            retry: again.then(|| verb("retry")).flatten(),
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
            pause: None,
            resume: None,
            retry: None,
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
        (n, _) => format!("{n} questions"),
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
        true,
    );
    match entries.last().map(|entry| &entry.body) {
        Some(timeline::EntryContent::Writing(_)) => "Writing".to_owned(),
        Some(timeline::EntryContent::Thinking(_)) => "Reasoning".to_owned(),
        Some(timeline::EntryContent::Calls(group)) => match group.working() {
            Some(call) => format!("Running {}", call.tool),
            None => "Thinking".to_owned(),
        },
        _ => "Thinking".to_owned(),
    }
}

fn facts(task: &Task) -> String {
    let usage = &task.usage;
    let mut facts = Vec::new();
    if usage.input_tokens.max(usage.output_tokens) > 0 {
        let about = if usage.source == UsageSource::Estimated { "≈ " } else { "" };
        facts.push(format!("{about}{} in, {} out", count(usage.input_tokens), count(usage.output_tokens)));
    }
    if let Some(cost) = usage.cost_usd {
        facts.push(format!("${cost:.2}"));
    }
    facts.join(" · ")
}

fn count(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..100_000 => format!("{}.{}k", tokens / 1_000, tokens % 1_000 / 100),
        _ => format!("{}k", tokens / 1_000),
    }
}

impl FailureView {
    /// A provider that did not accept a viber's key, or a key that is missing; `None` when the error does not name the
    /// provider, whose name becomes a part of a command.
    fn of_refused_key(error: &TaskError, viber: &str) -> Option<Self> {
        let is_name = |name: &str| {
            (1..=MAX_PROVIDER_NAME_BYTES).contains(&name.len())
                && name.starts_with(|c: char| c.is_ascii_alphanumeric())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let (provider, said) = error.message.split_once(": ").filter(|(name, _)| is_name(name))?;
        if error.code != ErrorCode::ProviderAuth {
            return None;
        }
        let cause = match said.starts_with("no API key") {
            true => format!("{viber} has no key for {provider}: {said}"),
            false => format!("{provider} refused the key that {viber} has for it: {said}"),
        };
        let next = format!("On {viber}, set a valid key with this command, then retry.");
        let command = Some(format!("daemon-agent key set {provider}"));
        Some(Self { cause, next, command, ..Self::of(error) })
    }

    /// What an error means and what one can do.
    pub fn of(error: &TaskError) -> Self {
        let (effect, next) = match error.code {
            ErrorCode::ProviderAuth => (
                "The model answers nothing until its provider accepts the viber's key.",
                "Set a valid key on the viber with daemon-agent key set PROVIDER, then retry.",
            ),
            ErrorCode::ProviderRateLimited => {
                ("The provider rejected the request three times.", "Wait a moment, then retry.")
            }
            ErrorCode::ProviderUnavailable => (
                "The provider did not answer three times.",
                "Retry when it is available again, or choose another model.",
            ),
            ErrorCode::ProviderBadRequest => {
                ("The provider refused the request.", "Check the agent's model and settings on the viber.")
            }
            ErrorCode::ContentPolicy => ("The provider refused to answer.", "Rephrase the message and send it again."),
            ErrorCode::ContextOverflow => (
                "The conversation no longer fits the model.",
                "Start a new session, or choose a model with a larger window.",
            ),
            ErrorCode::ToolFailed => {
                ("The agent could not continue.", "Check the failed call above, fix the cause, then retry.")
            }
            ErrorCode::BudgetExceeded => {
                ("The task reached its limit.", "Raise the agent's limits, or give a smaller goal.")
            }
            ErrorCode::MaxStepsReached => (
                "The task ended before the agent had finished.",
                "Send a message to continue, or raise maxSteps in the agent's file.",
            ),
            ErrorCode::Timeout => {
                ("The task reached its time limit.", "Raise limits.minutes in the agent's file, or retry.")
            }
            ErrorCode::DaemonRestarted => (
                "Everything that the agent had started was ended; files that it wrote remain.",
                "Check what was done, then retry.",
            ),
            ErrorCode::BoardRestored => (
                "What the viber reported after the backup is missing on the Board.",
                "Check the viber and the log of the session there, then retry if necessary.",
            ),
            ErrorCode::Lost => (
                "It is unknown how far the task came. A late report is still accepted.",
                "Reconnect the viber, or retry.",
            ),
            ErrorCode::OutboxFull => {
                ("The viber could not store its report.", "Free disk space on the viber, then retry.")
            }
            ErrorCode::BadRequest => {
                ("The viber refused the task; nothing was run.", "Correct what the message names, then retry.")
            }
            ErrorCode::NotFound => (
                "The viber does not have what the task asks for; nothing was run.",
                "Choose an agent that exists there, then retry.",
            ),
            ErrorCode::Internal => {
                ("The task ended; files that it wrote remain.", "Retry. If it happens again, check the viber's log.")
            }
        };
        let next = error
            .suggestion
            .as_ref()
            .map_or_else(|| next.to_owned(), |next| truncate_escaped(next, MAX_NEXT_STEP_BYTES));
        Self { cause: error.message.clone(), effect, next, command: None, code: error.code.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: &str) -> Option<FailureView> {
        let error = TaskError {
            code: ErrorCode::ProviderAuth,
            message: message.to_owned(),
            retryable: false,
            suggestion: None,
            details: None,
        };
        FailureView::of_refused_key(&error, "kiln")
    }

    #[test]
    fn a_refused_key_names_provider_viber_and_command() {
        let view = refused("openai: the key was refused (HTTP 401)").expect("a view");
        assert_eq!(view.cause, "openai refused the key that kiln has for it: the key was refused (HTTP 401)");
        assert_eq!(view.command.as_deref(), Some("daemon-agent key set openai"));
        let missing = refused("openai: no API key for openai/gpt-5").expect("a view");
        assert!(missing.cause.starts_with("kiln has no key for openai"), "{}", missing.cause);
    }

    #[test]
    fn what_a_viber_says_does_not_become_a_command() {
        for evil in ["x; rm -rf ~: refused", "$(id): refused", "-h: refused", "refused", ": refused", "a b: refused"] {
            assert_eq!(refused(evil), None, "{evil}");
        }
    }
}
