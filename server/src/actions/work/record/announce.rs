//! Tasks that began on the machine, by a job or the CLI. Their first event makes the session, the question and the task.

use protocol::{EventBody, MessageId, limits::MAX_GOAL_BYTES};
use serde_json::json;

use super::{
    super::tasks::{self, question},
    AttemptFrames, RecordedChange,
};
use crate::{
    db::{self, Change, attempts::AttemptWithTask},
    domain::{
        Connection, Contact, ContactState, Delivery, Message, MessageRole, Part, Policies, Report, Session, Task,
        TaskKind, TaskState, name,
    },
    error::Result,
};

/// The attempt of an announced task. `None` when the frames announce nothing, or under ids that belong to others.
pub(super) async fn announced(
    tx: &mut Change<'_>,
    connection: &Connection,
    of_attempt: &AttemptFrames<'_>,
    book: &mut RecordedChange,
) -> Result<Option<AttemptWithTask>> {
    let (id, now) = (of_attempt.task, tx.now);
    let first = of_attempt.frames.iter().find(|frame| frame.from == 1).and_then(|frame| frame.items.first());
    let Some(report) = first.and_then(|raw| Report::read(raw.get()).ok()).filter(|report| report.seq == 1) else {
        return Ok(None);
    };
    let Some(EventBody::Announce { origin, agent_id, session_id, goal, parent, author }) = report.body else {
        return Ok(None);
    };
    if goal.trim().is_empty() || goal.len() > MAX_GOAL_BYTES || db::tasks::is_taken(tx.without_team(), id).await? {
        return Ok(None);
    }
    // What the Board begins nobody announces.
    let (origin, author) = if origin == "board" { ("cli".to_owned(), None) } else { (origin, author) };
    let goal = db::clean(&goal);
    let agent_id = db::clean(protocol::text::head(&agent_id, 100));
    let fresh = Session {
        id: session_id.clone(),
        viber_id: connection.viber.clone(),
        agent_id: agent_id.clone(),
        title: protocol::text::title(&goal),
        renamed_at: None,
        pinned_at: None,
        archived_at: None,
        last_seq: 0,
        created_by: connection.viber.to_string(),
        created_at: now,
        active_at: now,
        policies: Policies::default(),
    };
    let known = db::sessions::load(tx, &session_id).await?;
    let ours = match known {
        Some(session) => session.viber_id == connection.viber,
        None => db::sessions::insert_unless_taken(tx, &fresh).await?,
    };
    let seq = if ours { db::sessions::reserve_seqs(tx, &session_id, 2).await? } else { None };
    let Some(seq) = seq else { return Ok(None) };
    let mut task = Task {
        id: id.clone(),
        session_id,
        viber_id: connection.viber.clone(),
        agent_id,
        message_id: MessageId::new(now.0),
        message_seq: seq,
        goal,
        state: TaskState::Pending,
        delivery: Some(Delivery::Accepted),
        waiting: None,
        pausing: None,
        smaller: Vec::new(),
        goes_on_from: None,
        kind: TaskKind::Work,
        contact: Contact { state: ContactState::Connected, since: now },
        attempt: 1,
        stream: protocol::ReportedDetail::Full,
        mode: None,
        limits: protocol::TaskLimits::default(),
        payload: json!({}),
        model: None,
        result: None,
        error: None,
        usage: protocol::Usage::default(),
        origin: db::clean(protocol::text::head(&origin, 100)),
        created_by: connection.viber.to_string(),
        created_at: now,
        offered_at: Some(now),
        started_at: None,
        ended_at: None,
        stopped_by: None,
        stop_confirmed_at: None,
    };
    if let Some(told) = &parent {
        tasks::children::announced(tx, &mut task, told, &mut book.after).await?;
    }
    if let Some(author) = author.and_then(|author| name::clean(&author, name::MAX_NAME_CHARS)) {
        task.payload["author"] = json!(author);
    }
    let message = Message {
        id: task.message_id.clone(),
        session_id: task.session_id.clone(),
        seq,
        role: MessageRole::User,
        author: task.created_by.clone(),
        task_id: id.clone(),
        attempt: 0,
        parts: vec![Part::text(&task.goal)],
        created_at: now,
    };
    if !question(tx, &message, &task).await? {
        return Ok(None);
    }
    book.after.task(&task.session_id, id);
    book.after.viber(&connection.viber);
    Ok(db::attempts::load_with_task(tx, id, 1).await?)
}
