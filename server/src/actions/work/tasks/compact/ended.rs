//! What becomes of a summary: it is applied, edited and applied, or undone; notes are remembered as taken; another session
//! begins with it.

use std::sync::Arc;

use protocol::{SessionId, TaskId, TeamId, context::SUMMARY_HEADING, tokens};

use super::{super::overflow, CompactionOutcome, of_task};
use crate::{
    actions::{AfterCommit, memory},
    db::{self, Change, audit::Entry, messages::summaries},
    domain::{
        By, Session, Task, TaskKind, TaskState,
        context::{
            AppliedSummary, Summary,
            compaction::{Compaction, MAX_SUMMARY_BYTES},
        },
    },
    error::{Error, Result},
    state::Board,
};

/// More than any seq.
const ALL_SEQS: u64 = i64::MAX as u64;
/// What the title of a session that goes on from another ends with.
const CONTINUED: &str = " (continued)";

/// A summary, and what the next request takes without it and with it.
#[derive(Clone, Debug)]
pub struct Applied {
    pub task: Task,
    pub summary: String,
    pub tokens_before: u64,
    pub tokens_after: u64,
    /// It is sent in the place of its turns; one that is only shown is not.
    pub stands: bool,
}

/// What a task that is no work has come to.
pub async fn outcome(board: &Board, team: &TeamId, task: &Task) -> Result<CompactionOutcome> {
    let id = task.id.clone();
    let mut tx = board.db.reader_of(team).await?;
    match task.state {
        TaskState::Pending | TaskState::Running => return Ok(CompactionOutcome::Going { task: id }),
        TaskState::Error => {
            let why = task.error.as_ref().map_or("it failed", |error| error.message.as_str());
            return Err(Error::conflict("compaction_failed", why));
        }
        TaskState::Stopped => return Err(Error::conflict("compaction_stopped", "it was stopped; nothing was changed")),
        TaskState::Completed => {}
    }
    let text = task.result.as_ref().map(|result| result.text.clone()).unwrap_or_default();
    let went_on = || {
        let is_sound = of_task(task).is_ok_and(|compaction| compaction.is_sound(&text));
        let why =
            if is_sound { "the session went on" } else { "the summary says nothing, or is too long for a request" };
        Error::conflict("went_on", format!("nothing was changed: {why}"))
    };
    Ok(match task.kind {
        TaskKind::Work | TaskKind::Flush => CompactionOutcome::Noted { task: id, text: text.clone() },
        TaskKind::Transfer => {
            let session = db::sessions::continued_by(&mut tx, &task.session_id, &id).await?;
            CompactionOutcome::Began { task: id, session: session.ok_or_else(went_on)? }
        }
        TaskKind::Compact => {
            let compaction = of_task(task)?;
            let applied = summaries::load(&mut tx, &task.session_id, &id).await?;
            let stands = applied.as_ref().is_some_and(|applied| applied.undone_at.is_none());
            if compaction.applies && !stands {
                return Err(went_on());
            }
            let summary = applied.map_or(text.clone(), |applied| applied.summary.text);
            let tokens_after = compaction.after(&summary);
            let task = task.clone();
            CompactionOutcome::Applied(Box::new(Applied {
                task,
                summary,
                tokens_before: compaction.before,
                tokens_after,
                stands,
            }))
        }
    })
}

/// A task that is no work was completed with this text.
pub(in crate::actions) async fn compaction_ended(
    tx: &mut Change<'_>,
    id: &TaskId,
    text: &str,
    after: &mut AfterCommit,
) -> Result<()> {
    // One that was stopped meanwhile changes nothing.
    let Some(task) = db::tasks::load(tx, id).await?.filter(|task| task.state == TaskState::Completed) else {
        return Ok(());
    };
    let (compaction, text) = (of_task(&task)?, db::clean(text));
    // A draft's notes are taken when somebody applies it.
    if compaction.notes_after.is_some() && compaction.applies {
        summaries::set_noted(tx, &task.session_id, compaction.up_to).await?;
    }
    // Vibers check their summaries; what one says is not believed.
    let is_sound = compaction.is_sound(&text);
    match task.kind {
        TaskKind::Transfer if is_sound => begin(tx, &task, &compaction, text, after).await?,
        TaskKind::Transfer => overflow::not_moved(tx, &task, after).await?,
        TaskKind::Compact if is_sound && compaction.applies && stands_on(tx, &task, &compaction).await? => {
            apply(tx, &task, &compaction, text).await?;
        }
        _ => {}
    }
    Ok(())
}

/// What another session was to begin with was not written.
pub(in crate::actions) async fn transfer_failed(
    tx: &mut Change<'_>,
    id: &TaskId,
    after: &mut AfterCommit,
) -> Result<()> {
    match db::tasks::load(tx, id).await? {
        Some(task) => overflow::not_moved(tx, &task, after).await,
        None => Ok(()),
    }
}

/// Whether the summary that it merges still stands, or still none does, and nothing of what it tells of was started over:
/// an answer that is still to come would be hidden by it.
async fn stands_on(tx: &mut Change<'_>, task: &Task, compaction: &Compaction) -> Result<bool> {
    let now = tx.now;
    let standing = tx.query(summaries::standing_query(&task.session_id, ALL_SEQS, now)).await?;
    if standing.as_ref().map(|standing| &standing.task) != compaction.base.as_ref() {
        return Ok(false);
    }
    // Who starts over what the summary before tells of undoes that.
    let told = (standing.map_or(0, |standing| standing.summary.up_to), compaction.up_to);
    Ok(!summaries::asked_over(tx, &task.session_id, told, task.message_seq).await?)
}

/// Refuses to start over what was decided about a conversation that went on since: it would leave something out, or note it
/// twice.
pub(in crate::actions::work::tasks) async fn check_stands(tx: &mut Change<'_>, task: &Task) -> Result<()> {
    let compaction = of_task(task)?;
    let noted = summaries::noted(tx, &task.session_id).await?;
    let stands = compaction.notes_after.is_none_or(|after| after >= noted)
        && match task.kind {
            TaskKind::Work | TaskKind::Flush => true,
            TaskKind::Transfer => {
                let newest = db::tasks::newest_asked(tx, &task.session_id).await?;
                newest.is_none_or(|newest| newest <= compaction.up_to)
            }
            TaskKind::Compact => stands_on(tx, task, &compaction).await?,
        };
    if stands { Ok(()) } else { Err(Error::conflict("went_on", "the session went on: ask for it anew")) }
}

async fn apply(tx: &mut Change<'_>, task: &Task, compaction: &Compaction, text: String) -> Result<AppliedSummary> {
    let applied = AppliedSummary {
        task: task.id.clone(),
        tokens_before: compaction.before,
        tokens_after: compaction.after(&text),
        summary: Summary { text, up_to: compaction.up_to },
        by: task.created_by.clone(),
        at: tx.now,
        undone_at: None,
    };
    summaries::apply(tx, &task.session_id, &applied).await?;
    Ok(applied)
}

/// Begins a session with the summary of another.
async fn begin(
    tx: &mut Change<'_>,
    task: &Task,
    compaction: &Compaction,
    text: String,
    after: &mut AfterCommit,
) -> Result<()> {
    let Some(old) = db::sessions::load(tx, &task.session_id).await? else { return Ok(()) };
    let text = compaction.pinned.as_ref().map_or(text.clone(), |pinned| format!("{}{pinned}", text.trim_end()));
    let title = old.title.strip_suffix(CONTINUED).unwrap_or(&old.title);
    let session = Session {
        id: SessionId::new(tx.now.0),
        title: format!("{title}{CONTINUED}"),
        renamed_at: None,
        pinned_at: None,
        archived_at: None,
        last_seq: 0,
        created_by: task.created_by.clone(),
        created_at: tx.now,
        active_at: tx.now,
        ..old.clone()
    };
    if !db::sessions::insert_unless_taken(tx, &session).await? {
        return Err(Error::Internal("a new session's id is taken".into()));
    }
    db::sessions::rename(tx, &session.id, &session.title).await?;
    db::sessions::set_continues(tx, &session.id, &old.id, &compaction.carries).await?;
    let applied = AppliedSummary {
        task: task.id.clone(),
        tokens_before: compaction.before,
        tokens_after: compaction.after(&text),
        summary: Summary { text, up_to: 0 },
        by: task.created_by.clone(),
        at: tx.now,
        undone_at: None,
    };
    summaries::apply(tx, &session.id, &applied).await?;
    let detail = format!("goes on from {}", old.id);
    db::audit::append(tx, Entry::new("session.create", session.id.as_str()).detail(&detail)).await?;
    after.session(&session.id);
    after.session(&old.id);
    if let Some(asked) = &compaction.resubmits {
        overflow::ask_again(tx, asked, &session, after).await?;
    }
    Ok(())
}

/// Applies a summary that somebody read, and perhaps changed: the text in the place of the one that the task made. The notes
/// of a draft become proposals.
pub async fn apply_edited(
    board: &Board,
    team: &TeamId,
    by: &By,
    (session, basis): (&SessionId, &TaskId),
    text: &str,
) -> Result<Applied> {
    let bad = |why: &str| Error::unacceptable("bad_summary", why);
    if text.trim().is_empty() {
        return Err(bad("a summary says something"));
    }
    if text.len() > MAX_SUMMARY_BYTES || text.contains('\0') {
        return Err(bad("a summary is at most 64 KiB, without U+0000"));
    }
    let text = match text.trim_start().starts_with(SUMMARY_HEADING) {
        true => text.trim().to_owned(),
        false => format!("{SUMMARY_HEADING}\n{}", text.trim()),
    };
    let asked = Arc::new((session.clone(), basis.clone(), text));
    let (applied, after, notes) = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move {
                let (session, basis, text) = &*asked;
                let mut after = AfterCommit::default();
                if !db::sessions::lock(tx, session).await? {
                    return Err(Error::NotFound);
                }
                let task = db::tasks::load(tx, basis).await?;
                let task = task.filter(|task| task.session_id == *session && task.kind == TaskKind::Compact);
                let task = task.ok_or(Error::NotFound)?;
                if task.state != TaskState::Completed {
                    return Err(Error::conflict("no_summary", "this compaction has made no summary"));
                }
                let compaction = of_task(&task)?;
                let earlier = summaries::load(tx, session, basis).await?;
                let is_standing = earlier.as_ref().is_some_and(|earlier| earlier.undone_at.is_none());
                let applied = |summary: &AppliedSummary| Applied {
                    task: task.clone(),
                    summary: summary.summary.text.clone(),
                    tokens_before: summary.tokens_before,
                    tokens_after: summary.tokens_after,
                    stands: true,
                };
                if let Some(same) = earlier.filter(|earlier| is_standing && earlier.summary.text == *text) {
                    return Ok((applied(&same), after, false));
                }
                let went_on = || Error::conflict("went_on", "the session went on: compact it anew");
                if is_standing || !stands_on(tx, &task, &compaction).await? {
                    return Err(went_on());
                }
                let newest = tx.query(db::tasks::newest_of_session_query(session)).await?;
                if newest.is_some_and(|newest| newest.message_seq > task.message_seq) {
                    return Err(went_on());
                }
                if !compaction.is_shorter(text) {
                    let why = "it is longer than what it would take the place of";
                    return Err(Error::unacceptable("bad_summary", why));
                }
                // A request would carry its beginning and its end alone.
                if tokens::estimate(text) > compaction.most() {
                    let why = format!("it is longer than the {} tokens that a request takes of it", compaction.most());
                    return Err(Error::unacceptable("bad_summary", why));
                }
                let by = tx.by.actor.id().to_owned();
                let new = Task { created_by: by, ..task.clone() };
                let summary = self::apply(tx, &new, &compaction, text.clone()).await?;
                let mut notes = false;
                if compaction.notes_after.is_some() && !compaction.applies {
                    summaries::set_noted(tx, session, compaction.up_to).await?;
                    notes = db::proposals::release(tx, session, basis).await?;
                }
                let detail = format!("{session}, as it was edited");
                db::audit::append(tx, Entry::new("context.compact", basis.as_str()).detail(&detail)).await?;
                after.task(session, basis);
                Ok::<_, Error>((applied(&summary), after, notes))
            })
        })
        .await?;
    after.publish(board, team);
    if notes {
        board.shutdown.spawn(memory::follow(board.clone(), team.clone(), applied.task.viber_id.clone()));
    }
    Ok(applied)
}

/// Undoes a compaction and those after it: the turns are sent again. The newest one when none is named. Returns how many
/// there were; one that does not stand any more stays as it is.
pub async fn undo(board: &Board, team: &TeamId, by: &By, session: &SessionId, task: Option<&TaskId>) -> Result<u64> {
    let asked = Arc::new((session.clone(), task.cloned()));
    let (undone, after) = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move {
                let ((session, task), now) = (&*asked, tx.now);
                let mut after = AfterCommit::default();
                if !db::sessions::lock(tx, session).await? {
                    return Err(Error::NotFound);
                }
                let from = match task {
                    Some(task) => Some(summaries::load(tx, session, task).await?.ok_or(Error::NotFound)?),
                    None => tx.query(summaries::standing_query(session, ALL_SEQS, now)).await?,
                };
                let from = from.ok_or_else(|| Error::conflict("not_compacted", "no compaction stands to be undone"))?;
                if from.undone_at.is_some() {
                    return Ok((0, after));
                }
                if from.summary.up_to == 0 {
                    let why = "the turns are in the session that this one goes on from";
                    return Err(Error::conflict("not_compacted", why));
                }
                let undone = summaries::undo(tx, session, &from).await?;
                db::audit::append(tx, Entry::new("context.uncompact", from.task.as_str()).detail(session.as_str()))
                    .await?;
                // Each of them says in the conversation what became of it.
                undone.iter().for_each(|task| after.task(session, task));
                Ok::<_, Error>((undone.len() as u64, after))
            })
        })
        .await?;
    after.publish(board, team);
    Ok(undone)
}
