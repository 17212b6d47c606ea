//! What a task's failure means, and the buttons that do what comes next; also those beside a wait for the provider.

use protocol::{Capability, ErrorCode, TaskError};

use crate::{
    domain::{Task, TaskState, WaitingFor},
    web::pages::{conversation::Conversation, preflight::MAX_OFFERED_MODELS, providers::is_word_of_command},
    web::{urls, view::truncate::truncate_escaped},
};

/// What is shown of a step that the viber suggests after an error, bytes of HTML.
const MAX_NEXT_STEP_BYTES: usize = 2_000;
/// Longest goal that a link carries along, bytes.
const MAX_LINKED_GOAL_BYTES: usize = 1_500;
/// What is said to an agent that ended before its work was done.
const GO_ON_WORDS: &str = "Go on where you stopped.";

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

/// Something to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// A page where it is done.
    Open { place: String, words: &'static str },
    /// Another attempt.
    Retry { place: String, attempt: u32 },
    /// Another attempt with another model. `stops`: of a task that has not ended.
    OtherModel { place: String, attempt: u32, models: Vec<String>, stops: bool },
    /// Words that become the next task, once: it has used nothing, and has its agent's limits alone.
    Say { place: String, content: &'static str, key: String },
    /// It does not wait for the provider any longer.
    TryNow { place: String },
}

impl NextStep {
    /// After a failure or a stop, and while it waits for the provider; the likeliest one first.
    pub(super) fn of(conversation: &Conversation, task: &Task, slug: &str) -> Vec<Self> {
        let steps = Steps { conversation, task, slug };
        let error = task.error.as_ref().filter(|_| task.state == TaskState::Error);
        let waits = task.waiting.as_ref().is_some_and(|waiting| waiting.cause == WaitingFor::RateLimit);
        match (task.state, error) {
            (TaskState::Error, Some(error)) => steps.after(error),
            (TaskState::Error | TaskState::Stopped, _) => steps.retry().into_iter().collect(),
            (TaskState::Running, _) if waits => [steps.try_now(), steps.other_model()].into_iter().flatten().collect(),
            _ => Vec::new(),
        }
    }
}

/// The steps that a task has.
struct Steps<'a> {
    conversation: &'a Conversation,
    task: &'a Task,
    slug: &'a str,
}

impl Steps<'_> {
    fn after(&self, error: &TaskError) -> Vec<NextStep> {
        let (retry, model) = (|| self.retry(), || self.other_model());
        let steps = match error.code {
            ErrorCode::ProviderAuth => vec![self.providers(), retry(), model()],
            ErrorCode::ProviderRateLimited => vec![retry(), model()],
            ErrorCode::ProviderUnavailable => vec![retry(), model(), self.providers()],
            ErrorCode::ProviderBadRequest => vec![model(), self.viber(), retry()],
            ErrorCode::ContentPolicy => vec![self.rephrase(), model(), retry()],
            ErrorCode::ContextOverflow => vec![self.new_session("New session"), model(), retry()],
            ErrorCode::ToolFailed
            | ErrorCode::BudgetExceeded
            | ErrorCode::MaxStepsReached
            | ErrorCode::Timeout
            | ErrorCode::DaemonRestarted => vec![self.go_on(), retry()],
            ErrorCode::BoardRestored => vec![self.log(), retry()],
            ErrorCode::Lost => vec![self.viber(), retry(), self.new_session("Choose another viber")],
            ErrorCode::OutboxFull => vec![self.viber(), retry()],
            // A limit of money that cannot be kept.
            ErrorCode::BadRequest if error.message.contains("limits.costUsd") => {
                vec![self.prices(), self.rephrase(), retry()]
            }
            ErrorCode::BadRequest => vec![self.rephrase(), retry()],
            ErrorCode::NotFound => vec![self.new_session("Choose another agent"), retry()],
            ErrorCode::Internal => vec![retry(), self.viber()],
        };
        let steps: Vec<NextStep> = steps.into_iter().flatten().collect();
        match self.conversation.viber {
            Some(_) => steps,
            None => self.new_session("Choose another viber").into_iter().collect(),
        }
    }

    fn retry(&self) -> Option<NextStep> {
        self.conversation.viber.as_ref()?;
        let place = urls::task_verb(self.slug, &self.task.id, "retry");
        Some(NextStep::Retry { place, attempt: self.task.attempt })
    }

    fn other_model(&self) -> Option<NextStep> {
        let viber = self.conversation.viber.as_ref()?;
        let own = viber.agents.iter().find(|agent| agent.id == self.task.agent_id).map(|agent| agent.model.as_str());
        let used = self.task.model.as_deref().or_else(|| self.task.model_asked()).or(own);
        let models: Vec<String> =
            viber.models().filter(|model| Some(model.as_str()) != used).take(MAX_OFFERED_MODELS).collect();
        let place = urls::task_verb(self.slug, &self.task.id, "retry");
        let (attempt, stops) = (self.task.attempt, !self.task.state.is_final());
        (!models.is_empty()).then_some(NextStep::OtherModel { place, attempt, models, stops })
    }

    fn try_now(&self) -> Option<NextStep> {
        let can = self.conversation.capabilities().contains(&Capability::Pause);
        can.then(|| NextStep::TryNow { place: urls::task_verb(self.slug, &self.task.id, "resume") })
    }

    fn go_on(&self) -> Option<NextStep> {
        let place = urls::session_verb(self.slug, &self.task.session_id, "messages");
        let key = format!("go-on.{}.{}", self.task.id, self.task.attempt);
        Some(NextStep::Say { place, content: GO_ON_WORDS, key })
    }

    fn rephrase(&self) -> Option<NextStep> {
        self.open(urls::session_edit(self.slug, &self.task.session_id, self.task.message_seq), "Edit the message")
    }

    fn new_session(&self, words: &'static str) -> Option<NextStep> {
        let goal = &self.task.goal;
        let place = match goal.len() <= MAX_LINKED_GOAL_BYTES {
            true => urls::home_with_goal(self.slug, goal),
            false => urls::home(self.slug),
        };
        self.open(place, words)
    }

    fn providers(&self) -> Option<NextStep> {
        let page = urls::viber(self.slug, &self.task.viber_id);
        self.open(format!("{page}#providers"), "Provider settings")
    }

    fn viber(&self) -> Option<NextStep> {
        self.open(urls::viber(self.slug, &self.task.viber_id), "Open the viber")
    }

    fn log(&self) -> Option<NextStep> {
        self.open(urls::viber_verb(self.slug, &self.task.viber_id, "sessions"), "Sessions on the machine")
    }

    fn prices(&self) -> Option<NextStep> {
        self.open(urls::settings_page(self.slug, "prices"), "Prices")
    }

    fn open(&self, place: String, words: &'static str) -> Option<NextStep> {
        Some(NextStep::Open { place, words })
    }
}

impl FailureView {
    /// A provider that did not accept a viber's key, or a key that is missing; `None` when the error does not name the
    /// provider, whose name becomes a part of a command.
    pub(super) fn of_refused_key(error: &TaskError, viber: &str) -> Option<Self> {
        let (provider, said) = error.message.split_once(": ").filter(|(name, _)| is_word_of_command(name))?;
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
