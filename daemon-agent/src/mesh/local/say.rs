//! What people say through the machine's adapters: accepted when it is on disk, told to the task that runs in its session,
//! or begun as the session's next task. The same message is one, however often it comes.

use std::{io, path::Path};

use protocol::{
    AgentEvent, AgentStreamEvent, AttemptRef, EventBody, InjectionPoint, MessageId, MessageProgress, SessionId, TaskId,
    TaskMessage, UserContext, UserMessage,
    adapter::{MAX_MESSAGE_FILES, MAX_MESSAGE_ID_BYTES, SLACK_ORIGIN},
    limits::MAX_GOAL_BYTES,
};
use serde_json::{Value, json};

use super::{
    BegunHere,
    store::{SaidMessage, SaidState},
};
use crate::mesh::Mesh;

/// Longest text that a running task is told, bytes. A longer one becomes the next task.
const MAX_TOLD_BYTES: usize = 64 * 1024;
/// Longest name that a task is announced with, characters.
const MAX_AUTHOR_CHARS: usize = 80;
/// Longest context of a message, bytes.
const MAX_CONTEXT_BYTES: usize = 16 * 1024;
/// Tasks of this machine that run at most before nothing further is begun here.
const MAX_LOCAL_TASKS: usize = 32;

/// A message that is on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// The task that was told it, or that it begins.
    pub task_id: TaskId,
    pub session_id: SessionId,
    pub agent_id: String,
    /// Set when it was given to a task that runs.
    pub message_id: Option<MessageId>,
    /// Nothing comes of it any more: it was said before.
    pub is_done: bool,
}

/// Why a message was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SayError {
    #[error("{message}")]
    Refused { code: &'static str, message: String },
    #[error("the message cannot be kept: {0}")]
    Disk(#[from] io::Error),
}

impl AcceptedMessage {
    fn of(said: &SaidMessage) -> Self {
        let told = match &said.state {
            SaidState::Given(attempt) | SaidState::Done(Some(attempt)) => Some(attempt.task_id.clone()),
            _ => None,
        };
        Self {
            message_id: told.is_some().then(|| said.message_id.clone()),
            task_id: told.unwrap_or_else(|| said.task_id.clone()),
            session_id: said.session_id.clone(),
            agent_id: said.agent_id.clone(),
            is_done: matches!(said.state, SaidState::Done(_)),
        }
    }
}

impl Mesh {
    /// Accepts what `author` says through the adapter `origin`. It is on disk when this returns.
    pub async fn say(&self, origin: &str, author: &str, message: UserMessage) -> Result<AcceptedMessage, SayError> {
        let id = message.id.clone();
        if let Some(known) = self.shared.local.store.find(origin, &id) {
            return Ok(AcceptedMessage::of(&known));
        }
        // Its files are copied before anybody has to wait for it.
        let files = self.shared.local.store.arriving();
        let mut said = self.draft(origin, author, message, files.folder()).await?;
        let _turn = self.shared.local.turn.lock().await;
        if let Some(known) = self.shared.local.store.find(origin, &id) {
            return Ok(AcceptedMessage::of(&known));
        }
        said.at = self.shared.local.store.moment(said.at);
        files.keep(&self.shared.local.store.staged(origin, &id))?;
        self.write_said(&said).await?;
        crate::fault::at("said::after_write");
        if self.shared.local.store.has_too_many() {
            self.forget_said().await;
        }
        Ok(AcceptedMessage::of(&self.place(said).await?))
    }

    /// The message as it is kept, with its files, unless it is refused.
    async fn draft(
        &self,
        origin: &str,
        author: &str,
        mut message: UserMessage,
        folder: &Path,
    ) -> Result<SaidMessage, SayError> {
        check(&message)?;
        let session = message.session_id.clone();
        let agent_id = self.agent_for(session.as_ref(), message.agent_id.as_deref())?;
        // What a task is told that runs takes no further place.
        let begins = session.as_ref().is_none_or(|session| self.attempt_in(session).is_none());
        if self.shared.local.store.is_full() || begins && self.running_here() >= MAX_LOCAL_TASKS {
            return Err(refused("busy", "this machine has as much to do as it takes; try again later"));
        }
        if self.state().closing {
            return Err(refused("unavailable", "the daemon ends; try again when it runs"));
        }
        if message.content.trim().is_empty() {
            message.content = "Look at the attached files.".to_owned();
        }
        let now = self.clock().now();
        let files = self.stage_files(origin, folder, &message).await?;
        Ok(SaidMessage {
            origin: origin.to_owned(),
            author: author.to_owned(),
            agent_id,
            session_id: session.unwrap_or_else(|| SessionId::new(now.millis())),
            task_id: TaskId::new(now.millis()),
            message_id: MessageId::new(now.millis()),
            message,
            files,
            at: now,
            state: SaidState::Waits,
        })
    }

    /// The agent that a message is for.
    fn agent_for(&self, session: Option<&SessionId>, asked: Option<&str>) -> Result<String, SayError> {
        let of_session = session.and_then(|session| {
            let state = self.state();
            let mut live = state.running.values();
            let found = live.find(|live| live.session_id == *session).map(|live| live.agent_id.clone());
            drop(state);
            found.or_else(|| self.shared.local.store.agent_of(session))
        });
        let agent_id = match (asked, of_session) {
            (Some(asked), Some(known)) if asked != known => {
                return Err(refused("other_agent", &format!("this session is with the agent {known:?}")));
            }
            (asked, known) => asked.map(str::to_owned).or(known).unwrap_or_else(|| "default".to_owned()),
        };
        match self.files().borrow().agent(&agent_id) {
            None => Err(refused("not_found", &format!("this machine has no agent {agent_id:?}"))),
            Some(Err(error)) => {
                let why = format!("the agent {agent_id:?} cannot be used: {} line {}", error.file, error.line);
                Err(refused("agent_unusable", &why))
            }
            Some(Ok(_)) => Ok(agent_id),
        }
    }

    /// Tells a message to the task that runs in its session, begins it, or leaves it waiting for that task's end. The
    /// caller has the turn.
    pub(super) async fn place(&self, mut said: SaidMessage) -> io::Result<SaidMessage> {
        if let Some(attempt) = self.attempt_in(&said.session_id) {
            if said.message.content.len() > MAX_TOLD_BYTES {
                return Ok(said);
            }
            said.state = SaidState::Given(attempt.clone());
            self.write_said(&said).await?;
            if !self.give(&said, &attempt).await {
                said.state = SaidState::Waits;
                self.write_said(&said).await?;
            }
            return Ok(said);
        }
        let is_earlier = |other: &SaidMessage| {
            other.session_id == said.session_id
                && other.state == SaidState::Waits
                && (other.at, &other.message_id) < (said.at, &said.message_id)
        };
        if self.shared.local.store.open_messages().iter().any(is_earlier) {
            return Ok(said);
        }
        said.state = SaidState::Begun;
        self.write_said(&said).await?;
        crate::fault::at("said::before_begin");
        self.begin_said(&said).await;
        Ok(said)
    }

    /// Begins a message as a task.
    pub(super) async fn begin_said(&self, said: &SaidMessage) {
        let task = said.task_id.as_str();
        let (attachments, missing) = self.place_files(said, |name| self.home().attachment(task, name)).await;
        self.begin_here(BegunHere {
            origin: said.origin.clone(),
            // A name in Slack is there for others; that of an account of this machine is not.
            author: (said.origin == SLACK_ORIGIN).then(|| said.author.chars().take(MAX_AUTHOR_CHARS).collect()),
            task_id: said.task_id.clone(),
            session_id: said.session_id.clone(),
            agent_id: said.agent_id.clone(),
            goal: format!("{}{missing}", said.message.content),
            context: said.message.context.as_ref().map(context_json),
            attachments,
            space: None,
        })
        .await;
    }

    /// Puts a message into the inbox of an attempt. `false`: the attempt will not tell it.
    pub(super) async fn give(&self, said: &SaidMessage, attempt: &AttemptRef) -> bool {
        let inbox = self.state().inboxes.get(attempt).cloned();
        let Some(inbox) = inbox else { return false };
        let (task, message) = (attempt.task_id.as_str(), said.message_id.as_str());
        let (attachments, missing) = self.place_files(said, |name| self.home().message_file(task, message, name)).await;
        let told = TaskMessage {
            task_id: attempt.task_id.clone(),
            message_id: said.message_id.clone(),
            rev: 1,
            author: said.author.clone(),
            content: format!("{}{missing}", said.message.content),
            context: said.message.context.as_ref().map(context_json),
            attachments,
            injection_mode: said.message.injection_mode.unwrap_or(InjectionPoint::Followup),
            // Behind what people of the Board said: its places are smaller.
            position: said.at.millis().unsigned_abs(),
            withdrawn: false,
        };
        inbox.put_local(told, &said.origin)
    }

    /// An attempt is about to have ended: what it was told is done with, and what it was not told waits again. After a stop
    /// nothing of it is begun.
    pub(in crate::mesh) async fn settle_said(&self, attempt: &AttemptRef, ending: &EventBody) {
        let _turn = self.shared.local.turn.lock().await;
        let (inbox, agent_id) = {
            let state = self.state();
            let agent = state.running.get(attempt).map(|live| live.agent_id.clone());
            (state.inboxes.get(attempt).cloned(), agent.unwrap_or_default())
        };
        let untold = inbox.map(|inbox| {
            inbox.close();
            inbox.untold()
        });
        let untold = untold.unwrap_or_default();
        for mut said in self.shared.local.store.open_messages() {
            let is_untold = untold.contains(&said.message_id);
            said.state = match &said.state {
                SaidState::Begun if said.task_id == attempt.task_id => SaidState::Done(None),
                SaidState::Given(given) if given == attempt => match (is_untold, ending) {
                    (true, EventBody::Stopped { .. }) => {
                        self.discard(attempt, &said.message_id, &agent_id);
                        SaidState::Done(Some(attempt.clone()))
                    }
                    (true, _) => SaidState::Waits,
                    (false, _) => SaidState::Done(Some(attempt.clone())),
                },
                _ => continue,
            };
            if let Err(error) = self.write_said(&said).await {
                tracing::error!("what became of a message cannot be written: {error}");
            }
        }
    }

    fn discard(&self, attempt: &AttemptRef, message_id: &MessageId, agent_id: &str) {
        let (message_id, state) = (message_id.clone(), MessageProgress::Discarded);
        let event = AgentStreamEvent::MessageState { message_id, rev: 1, state, turn: None };
        let event = AgentEvent { agent_id: agent_id.to_owned(), event };
        self.outbox().append(attempt, EventBody::Progress { event });
    }

    /// Begins what waits in a session that has no task any more.
    pub(in crate::mesh) async fn say_next(&self, session: &SessionId) {
        let _turn = self.shared.local.turn.lock().await;
        if self.state().closing {
            // The next process begins it.
            return;
        }
        let waiting = self.shared.local.store.open_messages();
        for said in waiting.into_iter().filter(|said| said.session_id == *session && said.state == SaidState::Waits) {
            if let Err(error) = self.place(said).await {
                tracing::error!("a message cannot be begun yet: {error}");
            }
        }
    }

    /// The newest attempt that has not ended in a session.
    fn attempt_in(&self, session: &SessionId) -> Option<AttemptRef> {
        let state = self.state();
        let running = state.running.iter().filter(|(_, live)| live.session_id == *session);
        let running = running.map(|(attempt, _)| attempt.clone());
        let queued = state.queue.iter().filter(|submit| submit.session_id == *session).map(crate::mesh::attempt_of);
        running.chain(queued).next_back()
    }

    fn running_here(&self) -> usize {
        self.state().running.values().filter(|live| live.local).count()
    }

    /// Forgets old messages that are done with.
    pub(super) async fn forget_said(&self) {
        let (shared, now) = (self.shared.clone(), self.clock().now());
        let swept = tokio::task::spawn_blocking(move || shared.local.store.forget_old(now)).await;
        if let Err(error) = swept {
            tracing::warn!("old messages are not forgotten: {error}");
        }
    }

    /// Writes a message as it is now.
    pub(super) async fn write_said(&self, said: &SaidMessage) -> io::Result<()> {
        let (shared, said) = (self.shared.clone(), said.clone());
        tokio::task::spawn_blocking(move || shared.local.store.write(&said)).await.map_err(io::Error::other)?
    }
}

pub(super) fn refused(code: &'static str, message: &str) -> SayError {
    SayError::Refused { code, message: message.to_owned() }
}

fn check(message: &UserMessage) -> Result<(), SayError> {
    if message.id.trim().is_empty() || message.id.len() > MAX_MESSAGE_ID_BYTES {
        return Err(refused("bad_id", &format!("an id has 1 to {MAX_MESSAGE_ID_BYTES} bytes")));
    }
    if message.content.trim().is_empty() && message.attachments.is_empty() {
        return Err(refused("empty", "the message says nothing"));
    }
    if message.content.len() > MAX_GOAL_BYTES {
        return Err(refused("too_long", &format!("a message has at most {MAX_GOAL_BYTES} bytes")));
    }
    if message.attachments.len() > MAX_MESSAGE_FILES {
        return Err(refused("too_many_files", &format!("a message has at most {MAX_MESSAGE_FILES} files")));
    }
    let context = message.context.iter().flat_map(|context| [&context.current_file, &context.selection]);
    if context.flatten().map(String::len).sum::<usize>() > MAX_CONTEXT_BYTES {
        return Err(refused("context_too_large", &format!("a context has at most {MAX_CONTEXT_BYTES} bytes")));
    }
    Ok(())
}

fn context_json(context: &UserContext) -> Value {
    json!(context)
}
