//! Changes of a message whose agent was not told yet.

use std::{sync::Arc, time::Duration};

use protocol::{InjectionPoint, MessageId, TaskId, TeamId};

use super::{MAX_MESSAGE_BYTES, MAX_MESSAGE_JSON_BYTES, capabilities, json_size, send, used_mode};
use crate::{
    actions::AfterCommit,
    db::{self, Change, audit::Entry, tasks::messages},
    domain::{By, Delivery, EarlierVersion, KnownEnd, Task, TaskMessage, TaskMessageState, task_message::places_with},
    error::{Error, Result},
    hub::Changed,
    state::Board,
};

/// Changes of a message that its viber has not confirmed; it can be withdrawn all the same.
const MAX_UNCONFIRMED_CHANGES: usize = 8;

/// How long a change waits for the word of a viber that is connected.
const WORD_TIMEOUT: Duration = Duration::from_secs(2);

/// A change of a message that its agent was not told yet.
#[derive(Clone, Debug, Default)]
pub struct MessageChange {
    /// Only its author changes what it says.
    pub content: Option<String>,
    pub mode: Option<InjectionPoint>,
    /// It is told before this message of the same task.
    pub before: Option<MessageId>,
    /// It is told after all others that wait.
    pub last: bool,
    pub withdraw: bool,
}

/// Changes or withdraws a message. The viber decides whether it came in time: until it says so, the message is `accepted`
/// in its new version. One that is held is discarded at once.
pub async fn change(
    board: &Board,
    team: &TeamId,
    by: &By,
    (task, id): (&TaskId, &MessageId),
    change: MessageChange,
) -> Result<TaskMessage> {
    let bad = |why: &str| Error::unacceptable("bad_message", why);
    if change.content.as_ref().is_some_and(|text| text.trim().is_empty() || text.contains('\0')) {
        return Err(bad("say something, without U+0000"));
    }
    if change.content.as_ref().is_some_and(|text| text.len() > MAX_MESSAGE_BYTES) {
        return Err(bad("a message to a running task is at most 64 KiB"));
    }
    let asked = Arc::new((task.clone(), id.clone(), change));
    let (message, after) = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move { asked.2.run(tx, &asked.0, &asked.1).await })
        })
        .await?;
    after.publish(board, team);
    Ok(message)
}

impl MessageChange {
    async fn run(&self, tx: &mut Change<'_>, task: &TaskId, id: &MessageId) -> Result<(TaskMessage, AfterCommit)> {
        let mut after = AfterCommit::default();
        let message = messages::load(tx, id).await?.filter(|message| message.task_id == *task);
        let message = message.ok_or(Error::NotFound)?;
        db::sessions::lock(tx, &message.session_id).await?;
        // Read again behind the session's lock.
        let message = messages::load(tx, id).await?.ok_or(Error::NotFound)?;
        let task = db::tasks::load(tx, task).await?.ok_or(Error::NotFound)?;
        match message.state {
            TaskMessageState::Held if self.withdraw => discard(tx, &message).await?,
            TaskMessageState::Held => return Err(Error::conflict("held", "it is held; send it or discard it")),
            TaskMessageState::Accepted | TaskMessageState::Delivered => {
                if message.withdrawing && self.withdraw {
                    return Ok((message, after));
                }
                self.apply(tx, &task, message, &mut after).await?;
            }
            told_or_gone => return Err(too_late(told_or_gone)),
        }
        let verb = if self.withdraw { "task.message_withdraw" } else { "task.message_change" };
        db::audit::append(tx, Entry::new(verb, id.as_str()).after(self.content.as_deref())).await?;
        after.task(&task.session_id, &task.id);
        let message = messages::load(tx, id).await?.ok_or(Error::NotFound)?;
        Ok((message, after))
    }

    /// Makes the next version of the message.
    async fn apply(
        &self,
        tx: &mut Change<'_>,
        task: &Task,
        message: TaskMessage,
        after: &mut AfterCommit,
    ) -> Result<()> {
        if message.withdrawing {
            return Err(Error::conflict("withdrawn", "somebody is taking the message back"));
        }
        if !self.withdraw && message.earlier.len() >= MAX_UNCONFIRMED_CHANGES {
            return Err(Error::conflict("unconfirmed", "the viber has not confirmed the last changes yet"));
        }
        if self.content.is_some() && message.author != tx.by.actor.id() {
            return Err(Error::conflict("not_author", "only its author changes what it says"));
        }
        // Its first attempt was not offered yet.
        let is_here = task.delivery == Some(Delivery::Queued) && task.attempt == 1;
        if self.withdraw && (task.state.is_final() || is_here) {
            // No viber tells it, or its task is completed and none does any more.
            messages::close(tx, &message.id, TaskMessageState::Withdrawn).await?;
            return Ok(());
        }
        let mut places = match self.before.is_some() || self.last {
            true => self.places(tx, &message).await?,
            false => Vec::new(),
        };
        let mut next = message;
        let own = places.iter().position(|(other, _)| other.id == next.id).map(|at| places.remove(at).1);
        let place = own.unwrap_or(next.place);
        supersede(&mut next, is_here);
        next.place = place;
        next.withdrawing = self.withdraw;
        if let Some(content) = &self.content {
            next.content.clone_from(content);
        }
        if let Some(asked) = self.mode {
            let (mode, why) = used_mode(asked, &capabilities(tx, task).await?);
            (next.mode, next.why) = (mode, why.map(str::to_owned));
        }
        if json_size(&next)? > MAX_MESSAGE_JSON_BYTES {
            let why = "a message to a running task is at most 192 KiB as JSON";
            return Err(Error::unacceptable("bad_message", why));
        }
        keep(tx, task, &next, after).await?;
        for (mut other, place) in places {
            supersede(&mut other, is_here);
            other.place = place;
            keep(tx, task, &other, after).await?;
        }
        Ok(())
    }

    /// The messages that get other places when `message` is moved, and which.
    async fn places(&self, tx: &mut Change<'_>, message: &TaskMessage) -> Result<Vec<(TaskMessage, u64)>> {
        let mut waiting = messages::open_of_task(tx, &message.task_id).await?;
        waiting.retain(|one| !one.withdrawing);
        let known: Vec<(MessageId, u64)> = waiting.iter().map(|one| (one.id.clone(), one.place)).collect();
        let moved = places_with(&known, &message.id, self.before.as_ref())
            .ok_or_else(|| Error::unacceptable("bad_place", "`before` names no other message that waits"))?;
        let mut places = Vec::with_capacity(moved.len());
        for (id, place) in moved {
            if let Some(at) = waiting.iter().position(|one| one.id == id) {
                places.push((waiting.remove(at), place));
            }
        }
        Ok(places)
    }
}

/// Like [`change`], and waits for the viber's word on it if it is connected. Returns the message, and whether the change is
/// certain; one of which the viber says that it came too late is refused.
pub async fn change_confirmed(
    board: &Board,
    team: &TeamId,
    by: &By,
    (task, id): (&TaskId, &MessageId),
    asked: MessageChange,
) -> Result<(TaskMessage, bool)> {
    let mut news = board.hub.subscribe(team);
    let made = change(board, team, by, (task, id), asked.clone()).await?;
    let viber = db::tasks::load(&mut board.db.reader_of(team).await?, task).await?.ok_or(Error::NotFound)?.viber_id;
    if asked.is_certain(&made, &made)? {
        return Ok((made, true));
    }
    if !board.hub.is_connected(&viber) {
        return Ok((made, false));
    }
    let word = async {
        loop {
            match news.next().await {
                Changed::Task { task: changed, .. } if changed == *task => {}
                Changed::Anything => {}
                _ => continue,
            }
            let now = messages::load(&mut board.db.reader_of(team).await?, id).await?.ok_or(Error::NotFound)?;
            if asked.is_certain(&made, &now)? {
                return Ok(now);
            }
        }
    };
    match tokio::time::timeout(WORD_TIMEOUT, word).await {
        Ok(now) => now.map(|now| (now, true)),
        Err(_) => Ok((made, false)),
    }
}

impl MessageChange {
    /// Whether nothing can undo this change any more, which made a message what `made` is; `now` is what has become of it.
    fn is_certain(&self, made: &TaskMessage, now: &TaskMessage) -> Result<bool> {
        let is_moved = self.before.is_some() || self.last;
        match now.state {
            TaskMessageState::Withdrawn | TaskMessageState::Discarded if self.withdraw => Ok(true),
            TaskMessageState::Withdrawn | TaskMessageState::Discarded => Err(too_late(now.state)),
            // Its newest version became a task, or it was told.
            TaskMessageState::Consumed if now.next_task.is_some() && !self.withdraw => Ok(true),
            TaskMessageState::Consumed if self.withdraw || is_moved => Err(too_late(now.state)),
            TaskMessageState::Consumed if (&now.content, now.mode) == (&made.content, made.mode) => Ok(true),
            TaskMessageState::Consumed => Err(too_late(now.state)),
            TaskMessageState::Held => Ok(!self.withdraw),
            TaskMessageState::Accepted | TaskMessageState::Delivered => {
                Ok(!now.withdrawing && !self.withdraw && now.earlier.is_empty())
            }
        }
    }
}

/// Begins the next version of a message; the viber may still tell this one, unless it `is_here` alone.
fn supersede(message: &mut TaskMessage, is_here: bool) {
    if !is_here {
        let told = EarlierVersion { rev: message.rev, content: message.content.clone(), mode: message.mode };
        message.earlier.push(told);
    }
    message.rev += 1;
}

/// Stores a new version of a message and sends it.
async fn keep(tx: &mut Change<'_>, task: &Task, message: &TaskMessage, after: &mut AfterCommit) -> Result<()> {
    if !messages::change(tx, message.rev - 1, message).await? {
        let now = messages::load(tx, &message.id).await?.ok_or(Error::NotFound)?;
        return Err(too_late(now.state));
    }
    if task.state.is_final() {
        return Ok(());
    }
    send(tx, task, message, after).await
}

async fn discard(tx: &mut Change<'_>, message: &TaskMessage) -> Result<()> {
    if message.end == KnownEnd::Unconfirmed && message.late_for.is_none() {
        return Err(not_confirmed());
    }
    messages::close(tx, &message.id, TaskMessageState::Discarded).await?;
    Ok(())
}

/// The old attempt may still be told a message that is held.
pub(super) fn not_confirmed() -> Error {
    Error::conflict("not_confirmed", "the viber has not confirmed the stop: its agent may still be told")
}

fn too_late(state: TaskMessageState) -> Error {
    match state {
        TaskMessageState::Consumed => Error::conflict("consumed", "the agent was told already"),
        TaskMessageState::Withdrawn | TaskMessageState::Discarded => {
            Error::conflict("withdrawn", "the message was withdrawn")
        }
        TaskMessageState::Accepted | TaskMessageState::Delivered | TaskMessageState::Held => {
            Error::conflict("raced", "somebody else changed the message just now")
        }
    }
}
