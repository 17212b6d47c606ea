//! Talking to a session whose task has not ended: what is said reaches the running task, or becomes the next one.

mod change;
mod left_over;
mod modes;

use std::sync::Arc;

use protocol::{Attachment, Capability, InjectionPoint, MessageId, TaskId, TeamId};
use serde_json::{Value, json};

use super::{
    compact::Foreseen,
    hold,
    submit::{NewTask, named_files},
};
use crate::{
    actions::{AfterCommit, artifacts, idempotency},
    db::{self, Change, audit::Entry, tasks::messages},
    domain::{By, Delivery, KnownEnd, Task, TaskKind, TaskMessage, TaskMessageState, idempotency::KeptAnswer},
    error::{Error, Result},
    state::Board,
};

pub use change::{MessageChange, change, change_confirmed};
pub use left_over::{send_held, take_back};
pub(in crate::actions) use left_over::{send_waiting, start_left_over};
pub use modes::{ChosenMode, choose_mode};

/// Longest text of a message to a running task, bytes. A longer one becomes the next task.
const MAX_MESSAGE_BYTES: usize = 64 * 1024;
/// Largest message to a running task, bytes of JSON: its command fits a frame.
const MAX_MESSAGE_JSON_BYTES: usize = 192 * 1024;
/// Messages of one task that its agent was not told yet. One more becomes the next task.
const MAX_OPEN_MESSAGES: u64 = 20;
/// Files that go with a message to a running task at most. A message with more becomes the next task.
const MAX_MESSAGE_FILES: usize = 16;
/// Size of these files at most, bytes.
const MAX_MESSAGE_FILES_BYTES: u64 = 256 * 1024 * 1024;
/// Longest context of a message, bytes of JSON.
const MAX_CONTEXT_BYTES: usize = 16 * 1024;
/// How deep a context nests at most.
const MAX_CONTEXT_LEVELS: usize = 32;

/// What somebody says.
#[derive(Clone, Debug, Default)]
pub struct NewMessage {
    /// The task that it becomes where no task runs: its goal is what is said.
    pub task: NewTask,
    pub mode: InjectionPoint,
    /// `{currentFile?, selection?}`
    pub context: Option<Value>,
    /// Only to this task, which must not be over.
    pub only_to: Option<TaskId>,
    /// A task that is held goes on with it.
    pub resume: bool,
    /// The agent's own model is to answer, whatever model the task runs with.
    pub own_model: bool,
}

crate::words! {
    /// Why something said is the session's next task although one runs.
    WhyNextTask {
        NoMessages = "no-messages",
        OtherAgent = "other-agent",
        Files = "files",
        ManyFiles = "many-files",
        Comments = "comments",
        Compaction = "compaction",
        Long = "long",
        LongJson = "long-json",
        Many = "many",
    }
}

impl WhyNextTask {
    /// In words, to follow a colon.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NoMessages => "the agent takes no messages while it works",
            Self::OtherAgent => "another agent or model answers it",
            Self::Files => "the agent takes no files while it works",
            Self::ManyFiles => "it has more than 16 files, or more than 256 MiB of them",
            Self::Compaction => "the conversation is being compacted",
            Self::Comments => "comments go with a task of their own",
            Self::Long => "it is longer than 64 KiB",
            Self::LongJson => "it is longer than 192 KiB as JSON",
            Self::Many => "20 messages wait for the task",
        }
    }
}

/// What became of something said.
#[derive(Clone, Debug)]
pub enum Said {
    /// It goes to a task that has not ended.
    Message(Box<TaskMessage>),
    /// It is the session's next task, and why it is no message to the one before.
    Task(Box<Task>, Option<WhyNextTask>),
}

/// Says something in a session: to its task when that has not ended, else as the next task. Durable when it returns.
pub async fn say(board: &Board, team: &TeamId, by: &By, said: NewMessage) -> Result<Said> {
    if said.context.as_ref().is_some_and(|context| context.to_string().len() > MAX_CONTEXT_BYTES) {
        return Err(Error::unacceptable("context_too_large", "context exceeds 16 KiB"));
    }
    if said.context.as_ref().is_some_and(|context| !super::submit::is_within(context, MAX_CONTEXT_LEVELS)) {
        return Err(Error::unacceptable("too_deep", "context nests deeper than 32 levels"));
    }
    let said = NewMessage { task: super::submit::check(said.task)?, ..said };
    let foreseen = said.task.foresee(board, team).await?;
    let said = Arc::new((said, foreseen));
    let (outcome, after) = board
        .change(team, by, move |tx| {
            let said = said.clone();
            Box::pin(async move { said.0.run(tx, said.1.as_ref()).await })
        })
        .await?;
    after.publish(board, team);
    Ok(outcome)
}

impl NewMessage {
    async fn run(&self, tx: &mut Change<'_>, foreseen: Option<&Foreseen>) -> Result<(Said, AfterCommit)> {
        let session = self.task.session.as_ref().ok_or(Error::NotFound)?;
        if let Some(said) = self.said_before(tx).await? {
            return Ok((said, AfterCommit::default()));
        }
        // Behind the session's lock its task cannot end meanwhile.
        if !db::sessions::lock(tx, session).await? {
            return Err(Error::NotFound);
        }
        let running = tx.query(db::tasks::open_of_session_query(session)).await?.into_iter().next();
        if let Some(only) = self.only_to.as_ref().filter(|only| running.as_ref().is_none_or(|task| task.id != **only)) {
            let task = db::tasks::load(tx, only).await?.filter(|task| task.session_id == *session);
            return Err(match task {
                None => Error::NotFound,
                Some(task) if task.state.is_final() => {
                    Error::conflict("task_over", "the task is over; say it in its session")
                }
                Some(_) => Error::conflict("task_waits", "the task has not begun; say it in its session"),
            });
        }
        let why = match &running {
            None => None,
            Some(task) => {
                let can = capabilities(tx, task).await?;
                let message = self.draft(tx, task, &can).await?;
                match self.why_not(tx, task, &can, &message).await? {
                    None => {
                        let (said, mut after) = self.to_task(tx, task, message).await?;
                        self.go_on(tx, task, &can, &mut after).await?;
                        return Ok((said, after));
                    }
                    Some(why) => Some(why),
                }
            }
        };
        let (next, mut after) = self.task.run(tx, foreseen).await?;
        if let Some(task) = &running {
            let can = capabilities(tx, task).await?;
            self.go_on(tx, task, &can, &mut after).await?;
        }
        Ok((Said::Task(Box::new(next), why), after))
    }

    /// Lets the task go on, if it is to and can be held at all.
    async fn go_on(&self, tx: &mut Change<'_>, task: &Task, can: &[Capability], after: &mut AfterCommit) -> Result<()> {
        if self.resume && task.delivery != Some(Delivery::Queued) && can.contains(&Capability::Pause) {
            hold::send(tx, task, None, after).await?;
        }
        Ok(())
    }

    /// Why it cannot reach the running task; `None` when it can.
    async fn why_not(
        &self,
        tx: &mut Change<'_>,
        task: &Task,
        can: &[Capability],
        message: &TaskMessage,
    ) -> Result<Option<WhyNextTask>> {
        let other_agent = self.task.agent.as_ref().is_some_and(|agent| *agent != task.agent_id);
        let other_model = self.task.model.as_deref().is_some_and(|model| task.model_asked() != Some(model))
            || (self.own_model && task.model_asked().is_some());
        let files = &message.attachments;
        let size = files.iter().fold(0, |size: u64, file| size.saturating_add(file.size));
        let waiting = messages::open_count(tx, &task.id).await?;
        Ok(match () {
            () if task.kind != TaskKind::Work => Some(WhyNextTask::Compaction),
            () if !can.contains(&Capability::Queue) => Some(WhyNextTask::NoMessages),
            () if other_agent || other_model => Some(WhyNextTask::OtherAgent),
            () if !files.is_empty() && !can.contains(&Capability::Files) => Some(WhyNextTask::Files),
            () if files.len() > MAX_MESSAGE_FILES || size > MAX_MESSAGE_FILES_BYTES => Some(WhyNextTask::ManyFiles),
            () if self.task.takes.is_some() => Some(WhyNextTask::Comments),
            () if self.task.goal.len() > MAX_MESSAGE_BYTES => Some(WhyNextTask::Long),
            () if json_size(message)? > MAX_MESSAGE_JSON_BYTES => Some(WhyNextTask::LongJson),
            () if waiting >= MAX_OPEN_MESSAGES => Some(WhyNextTask::Many),
            () => None,
        })
    }

    /// The message that it becomes.
    async fn draft(&self, tx: &mut Change<'_>, task: &Task, can: &[Capability]) -> Result<TaskMessage> {
        let (mode, why) = used_mode(self.mode, can);
        let attachments = self.files(tx, task).await?;
        Ok(TaskMessage {
            id: MessageId::new(tx.now.0),
            session_id: task.session_id.clone(),
            task_id: task.id.clone(),
            author: tx.by.actor.id().to_owned(),
            author_name: String::new(),
            content: self.task.goal.clone(),
            context: self.context.clone(),
            attachments,
            mode,
            place: 0,
            rev: 1,
            earlier: Vec::new(),
            state: TaskMessageState::Accepted,
            withdrawing: false,
            why: why.map(str::to_owned),
            end: KnownEnd::NotYet,
            next_task: None,
            late_for: None,
            created_at: tx.now,
            consumed_at: None,
        })
    }

    /// The files that it names.
    async fn files(&self, tx: &mut Change<'_>, task: &Task) -> Result<Vec<Attachment>> {
        let named = self.task.payload.as_ref().map(named_files).transpose()?.flatten();
        artifacts::named(tx, &task.session_id, &named.unwrap_or_default()).await
    }

    async fn to_task(&self, tx: &mut Change<'_>, task: &Task, message: TaskMessage) -> Result<(Said, AfterCommit)> {
        messages::insert(tx, &message).await?;
        artifacts::with_message(tx, &task.session_id, &task.id, &message.attachments).await?;
        let id = message.id;
        let message = messages::load(tx, &id).await?.ok_or(Error::NotFound)?;
        let mut after = AfterCommit::default();
        send(tx, task, &message, &mut after).await?;
        let detail = message.mode.as_str();
        db::audit::append(tx, Entry::new("task.message", id.as_str()).detail(detail).after(message.content.as_str()))
            .await?;
        if let Some(once) = &self.task.once {
            let kept = KeptAnswer { status: 202, answer: json!({ "message": id }).to_string(), at: tx.now };
            let actor = tx.by.actor.id().to_owned();
            db::idempotency::keep(tx, &actor, once, &kept).await?;
        }
        after.task(&task.session_id, &task.id);
        Ok((Said::Message(Box::new(message)), after))
    }

    /// What a repeated call said the first time.
    async fn said_before(&self, tx: &mut Change<'_>) -> Result<Option<Said>> {
        let earlier = idempotency::earlier_answer(tx, self.task.once.as_ref()).await?;
        let Some(answer) = earlier else { return Ok(None) };
        if let Some(id) = answer["message"].as_str().and_then(|id| id.parse().ok()) {
            let message = messages::load(tx, &id).await?.ok_or(Error::NotFound)?;
            return Ok(Some(Said::Message(Box::new(message))));
        }
        // It was the next task then, whatever runs now.
        let id: Option<TaskId> = answer["id"].as_str().and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| Error::Internal("a kept answer names neither a message nor a task".into()))?;
        let task = db::tasks::load(tx, &id).await?.ok_or(Error::NotFound)?;
        Ok(Some(Said::Task(Box::new(task), None)))
    }
}

/// Says something to a task that has not ended, in the name of an agent of the viber that makes the change, to be
/// told at the end of its turn. `false`: it takes no messages, or has enough of them.
pub(in crate::actions) async fn say_within(
    tx: &mut Change<'_>,
    task: &Task,
    (agent, content): (String, String),
    after: &mut AfterCommit,
) -> Result<bool> {
    db::sessions::lock(tx, &task.session_id).await?;
    let can = capabilities(tx, task).await?;
    let is_open = db::tasks::load(tx, &task.id).await?.is_some_and(|task| !task.state.is_final());
    let takes = is_open && task.kind == TaskKind::Work && can.contains(&Capability::Queue);
    if !takes || messages::open_count(tx, &task.id).await? >= MAX_OPEN_MESSAGES {
        return Ok(false);
    }
    let said = NewMessage {
        task: NewTask { goal: content, session: Some(task.session_id.clone()), ..NewTask::default() },
        mode: InjectionPoint::Collect,
        ..NewMessage::default()
    };
    let message = TaskMessage { author_name: agent, ..said.draft(tx, task, &can).await? };
    let (_, more) = said.to_task(tx, task, message).await?;
    after.add_all(more);
    Ok(true)
}

/// What people can do with a task while it runs.
pub(super) async fn capabilities(tx: &mut Change<'_>, task: &Task) -> Result<Vec<Capability>> {
    let viber = db::vibers::candidate(tx, &task.viber_id).await?;
    let agent = viber.into_iter().flat_map(|viber| viber.agents).find(|agent| agent.id == task.agent_id);
    Ok(agent.map(|agent| agent.capabilities).unwrap_or_default())
}

/// How something is told that is to be told in a way, and why otherwise.
fn used_mode(asked: InjectionPoint, can: &[Capability]) -> (InjectionPoint, Option<&'static str>) {
    match asked {
        InjectionPoint::Steer if !can.contains(&Capability::Steer) => {
            (InjectionPoint::Collect, Some("the agent cannot be steered"))
        }
        asked => (asked, None),
    }
}

/// Size of a message on the wire, bytes.
fn json_size(message: &TaskMessage) -> Result<usize> {
    wire(message).map(|body| body.len())
}

fn wire(message: &TaskMessage) -> Result<String> {
    serde_json::to_string(&message.on_the_wire()).map_err(|error| Error::Internal(error.to_string()))
}

/// Stores the command that tells the task's viber the newest version of a message. One to a queued task goes with the task,
/// when it is offered: until then no agent could be told.
async fn send(tx: &mut Change<'_>, task: &Task, message: &TaskMessage, after: &mut AfterCommit) -> Result<()> {
    if task.delivery == Some(Delivery::Queued) {
        return Ok(());
    }
    let body = wire(message)?;
    let command = db::commands::NewCommand { kind: "task:message", attempt: Some((&task.id, task.attempt)), body };
    if db::commands::enqueue(tx, &task.viber_id, command).await?.is_none() {
        return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
    }
    after.command(&task.viber_id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_steers_an_agent_that_cannot_be_steered_collects() {
        use InjectionPoint::{Collect, Followup, Steer};
        let (all, queue) = ([Capability::Queue, Capability::Steer], [Capability::Queue]);
        assert_eq!(used_mode(Steer, &all), (Steer, None));
        assert!(matches!(used_mode(Steer, &queue), (Collect, Some(_))));
        assert_eq!(used_mode(Followup, &queue), (Followup, None));
    }
}
