//! Messages to tasks that have not ended.

use protocol::{InjectionPoint, MessageId, SessionId, TaskId};

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx, json},
    domain::{
        EarlierVersion, KnownEnd, TaskMessage, TaskMessageState, TaskState,
        task_message::{PLACE_GAP, effective},
    },
};

/// Messages of one task that are read because its agent was not told yet: more do not wait, also after a retry.
const MAX_WAITING_MESSAGES: u64 = 100;
/// Messages of a session that are shown because their agents were not told yet: the newest.
const MAX_SHOWN_MESSAGES: u64 = 40;
/// Messages that are read when a task ends; the rest follows when the next one does.
const MAX_LEFT_OVER_MESSAGES: u64 = 60;

/// The outcome of a task's newest attempt: not of one that was stopped before a viber was given it, because the attempt
/// before may still be told.
macro_rules! last_outcome {
    () => {
        "SELECT a.outcome FROM attempts a WHERE a.team_id = t.team_id AND a.task_id = t.task_id AND (a.cmd_seq IS NOT NULL \
         OR a.last_seq > 0 OR a.outcome <> 'stopped') ORDER BY a.attempt DESC LIMIT 1"
    };
}

macro_rules! select {
    ($($rest:tt)+) => { select_with!("m.content", $($rest)+) };
}

macro_rules! select_with {
    ($content:literal, $($rest:tt)+) => {
        concat!(
            "SELECT m.message_id, m.session_id, m.task_id, m.author, m.author_name, ",
            $content,
            " AS content, m.context, m.attachments, m.mode, m.place, m.rev, m.earlier, m.state, m.withdrawing, m.why, m.next_task_id, \
             m.late_for, m.created_at, m.consumed_at, t.state AS task_state, t.stop_confirmed_at, \
             (",
            last_outcome!(),
            ") AS outcome FROM task_messages m \
             JOIN tasks t ON t.team_id = m.team_id AND t.task_id = m.task_id \
             JOIN sessions s ON s.team_id = m.team_id AND s.session_id = m.session_id AND s.deleted_at IS NULL ",
            $($rest)+
        )
    };
}

/// Inserts a message under a new id; its author's name is read from the team's members and tokens, where the author is one of
/// them.
pub async fn insert(tx: &mut Change<'_>, message: &TaskMessage) -> Result<(), DbError> {
    let sql = "INSERT INTO task_messages (team_id, message_id, session_id, task_id, author, author_name, content, context, \
               mode, place, rev, state, why, created_at, late_for, attachments) SELECT $1, $2, $3, $4, $5, \
               COALESCE((SELECT o.name FROM operators o WHERE o.operator_id = $5), \
               (SELECT k.name FROM api_tokens k WHERE k.team_id = $1 AND k.token_id = $5), $16), \
               $6, $7, $8, COALESCE((SELECT MAX(p.place) FROM task_messages p WHERE p.team_id = $1 AND p.task_id = $4), 0) \
               + $13, $9, $10, $11, $12, $14, $15";
    let TaskMessage { id, session_id, task_id, author, content, mode, state, why, late_for, .. } = message;
    let context = message.context.as_ref().map(ToString::to_string);
    let attachments = (!message.attachments.is_empty()).then(|| json(&message.attachments)).transpose()?;
    let args = args![
        id,
        session_id,
        task_id,
        author,
        content,
        context,
        mode.as_str(),
        message.rev,
        *state,
        why.as_deref(),
        message.created_at,
        PLACE_GAP,
        late_for.as_ref(),
        attachments,
        &message.author_name
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Inserts a message that somebody said at a viber, under the name that it gives them; `false` when its id exists, in whatever
/// team.
pub async fn insert_of_viber(tx: &mut Change<'_>, message: &TaskMessage) -> Result<bool, DbError> {
    let sql = "INSERT INTO task_messages (team_id, message_id, session_id, task_id, author, author_name, content, mode, \
               place, rev, state, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, \
               COALESCE((SELECT MAX(p.place) FROM task_messages p WHERE p.team_id = $1 AND p.task_id = $4), 0) + $9, \
               $10, $11, $12) ON CONFLICT DO NOTHING";
    let TaskMessage { id, session_id, task_id, author, author_name, content, mode, rev, state, created_at, .. } =
        message;
    let mode = mode.as_str();
    let args = args![id, session_id, task_id, author, author_name, content, mode, PLACE_GAP, *rev, *state, *created_at];
    Ok(tx.execute(sql, args).await? > 0)
}

/// A message.
pub async fn load(tx: &mut TeamTx<'_>, id: &MessageId) -> Result<Option<TaskMessage>, DbError> {
    let sql = select!("WHERE m.team_id = $1 AND m.message_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(message).transpose()
}

/// A page of the messages of a task, in the order in which they are told: those after a place and an id, or the first.
pub async fn page_of_task(
    tx: &mut TeamTx<'_>,
    task: &TaskId,
    after: Option<&(u64, MessageId)>,
    limit: u64,
) -> Result<Vec<TaskMessage>, DbError> {
    let sql = select!(
        "WHERE m.team_id = $1 AND m.task_id = $2 AND m.place >= $3 AND (m.place > $3 OR $4 IS NULL OR m.message_id > $4) \
         ORDER BY m.place, m.message_id LIMIT $5 + 0"
    );
    let place = after.map_or(0, |(place, _)| *place);
    let args = args![task, place, after.map(|(_, id)| id), limit];
    tx.rows(sql, args).await?.iter().map(message).collect()
}

/// The messages of a task whose agent was not told yet, in the order in which they are told.
pub async fn open_of_task(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Vec<TaskMessage>, DbError> {
    let sql = select!(
        "WHERE m.team_id = $1 AND m.task_id = $2 AND m.state IN ('accepted', 'delivered') \
         ORDER BY m.place, m.message_id LIMIT $3 + 0"
    );
    tx.rows(sql, args![task, MAX_WAITING_MESSAGES]).await?.iter().map(message).collect()
}

/// Whose words the agent of a task was told, or the task was made of.
pub async fn authors_told(tx: &mut TeamTx<'_>, session: &SessionId, task: &TaskId) -> Result<Vec<String>, DbError> {
    let sql = "SELECT DISTINCT author FROM task_messages WHERE team_id = $1 AND session_id = $2 \
               AND ((task_id = $3 AND event_seq IS NOT NULL) OR next_task_id = $3) LIMIT 100";
    tx.rows(sql, args![session, task]).await?.iter().map(|row| row.text("author")).collect()
}

/// How many these are.
pub async fn open_count(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM task_messages WHERE team_id = $1 AND task_id = $2 \
               AND state IN ('accepted', 'delivered')";
    tx.row(sql, args![task]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// The query for the newest messages of a session whose agent was not told yet, and those that are held, in the order in
/// which they are told, to be sent together with others. Of long ones only the beginning is read.
pub fn open_query(session: &SessionId) -> Query<Vec<TaskMessage>> {
    // What is shown or edited of one is shorter.
    let sql = select_with!(
        "SUBSTR(m.content, 1, 8193)",
        "WHERE m.team_id = $1 AND m.session_id = $2 AND m.state IN ('accepted', 'delivered', 'held') \
         ORDER BY m.created_at DESC, m.message_id DESC LIMIT $3 + 0"
    );
    Query::new(sql, args![session, MAX_SHOWN_MESSAGES], |answer| {
        let mut found = answer.rows.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        found.retain(|message| message.state != TaskMessageState::Withdrawn);
        found.sort_by(|a, b| (&a.task_id, a.place, &a.id).cmp(&(&b.task_id, b.place, &b.id)));
        Ok(found)
    })
}

/// The query for those whose task is completed: each starts the next task. And for those that somebody was taking back when
/// their task ended, as its viber reported. Not all, when there are many.
pub fn left_over_query(session: &SessionId) -> Query<Vec<TaskMessage>> {
    // Found by the index of those that wait, the newest first, and then by their ids. `|| ''` keeps SQLite from reading the
    // messages of the whole team in the order that is asked for.
    let sql = select!(concat!(
        "WHERE m.team_id = $1 AND m.message_id IN (SELECT o.message_id FROM task_messages o WHERE o.team_id = $1 \
         AND o.session_id = $2 AND o.state IN ('accepted', 'delivered', 'held') \
         ORDER BY o.created_at DESC, o.message_id DESC LIMIT 1000) AND m.state IN ('accepted', 'delivered') \
         AND (t.state = 'completed' OR (m.withdrawing = 1 AND t.state IN ('error', 'stopped') \
         AND (t.stop_confirmed_at IS NOT NULL OR (",
        last_outcome!(),
        ") <> 'lost'))) ORDER BY m.task_id || '', m.place, m.message_id LIMIT $3 + 0"
    ));
    Query::new(sql, args![session, MAX_LEFT_OVER_MESSAGES], |answer| answer.rows.iter().map(message).collect())
}

/// Stores a changed version of a message that was loaded as `before`; `false` when it has changed since, or its agent was told.
pub async fn change(tx: &mut Change<'_>, before: u32, message: &TaskMessage) -> Result<bool, DbError> {
    let sql = "UPDATE task_messages SET content = $3, mode = $4, place = $5, rev = $6, earlier = $7, withdrawing = $8, \
               why = $10, state = 'accepted' WHERE team_id = $1 AND message_id = $2 AND rev = $9 \
               AND state IN ('accepted', 'delivered')";
    let earlier = (!message.earlier.is_empty()).then(|| json(&message.earlier)).transpose()?;
    let TaskMessage { id, content, mode, place, rev, withdrawing, why, .. } = message;
    let args = args![id, content, mode.as_str(), *place, *rev, earlier, *withdrawing, before, why.as_deref()];
    Ok(tx.execute(sql, args).await? > 0)
}

/// `accepted → delivered`: the task has its newest version.
pub async fn deliver(tx: &mut Change<'_>, task: &TaskId, id: &MessageId, rev: u32) -> Result<bool, DbError> {
    let sql = "UPDATE task_messages SET state = 'delivered', earlier = NULL WHERE team_id = $1 AND task_id = $2 \
               AND message_id = $3 AND rev = $4 AND state = 'accepted' AND withdrawing = 0";
    Ok(tx.execute(sql, args![task, id, rev]).await? > 0)
}

/// Where an agent was told a message.
#[derive(Clone, Copy, Debug)]
pub struct TellingPlace {
    pub attempt: u32,
    pub seq: u64,
    pub turn: Option<u32>,
}

/// `accepted | delivered → consumed`, with the version that was told. Its `rev` stays the highest that was sent.
pub async fn consume(tx: &mut Change<'_>, message: &TaskMessage, at: TellingPlace) -> Result<bool, DbError> {
    let sql = "UPDATE task_messages SET state = 'consumed', content = $3, mode = $4, earlier = NULL, \
               withdrawing = 0, attempt = $5, event_seq = $6, turn = $7, consumed_at = $8 WHERE team_id = $1 \
               AND message_id = $2 AND state IN ('accepted', 'delivered')";
    let TaskMessage { id, content, mode, .. } = message;
    let turn = at.turn.map(i64::from);
    let args = args![id, content, mode.as_str(), at.attempt, at.seq, turn, tx.now];
    Ok(tx.execute(sql, args).await? > 0)
}

/// `held → accepted`, behind all others of its task.
pub async fn release(tx: &mut Change<'_>, task: &TaskId, id: &MessageId) -> Result<bool, DbError> {
    let sql = "UPDATE task_messages SET state = 'accepted', place = (SELECT MAX(p.place) FROM task_messages p \
               WHERE p.team_id = $1 AND p.task_id = $2) + $4 WHERE team_id = $1 AND message_id = $3 AND state = 'held'";
    Ok(tx.execute(sql, args![task, id, PLACE_GAP]).await? > 0)
}

/// Ends a message that its agent was not told: withdrawn or discarded.
pub async fn close(tx: &mut Change<'_>, id: &MessageId, state: TaskMessageState) -> Result<bool, DbError> {
    let sql = "UPDATE task_messages SET state = $3, earlier = NULL, withdrawing = 0 WHERE team_id = $1 AND message_id = $2 \
               AND state IN ('accepted', 'delivered', 'held')";
    Ok(tx.execute(sql, args![id, state]).await? > 0)
}

/// Ends a message with the task that it became.
pub async fn become_task(tx: &mut Change<'_>, id: &MessageId, task: &TaskId) -> Result<bool, DbError> {
    let sql = "UPDATE task_messages SET state = 'consumed', earlier = NULL, next_task_id = $3, consumed_at = $4 \
               WHERE team_id = $1 AND message_id = $2 AND state IN ('accepted', 'delivered', 'held')";
    Ok(tx.execute(sql, args![id, task, tx.now]).await? > 0)
}

/// `consumed | delivered → accepted`: the newest that the agent of a task was told, which starts over again and knows none
/// of them, and those that only its failed attempt has.
pub async fn reopen(tx: &mut Change<'_>, task: &TaskId, limit: u64) -> Result<(), DbError> {
    let sql = "UPDATE task_messages SET state = 'accepted', earlier = NULL WHERE team_id = $1 AND task_id = $2 \
               AND state IN ('accepted', 'delivered')";
    tx.execute(sql, args![task]).await?;
    let sql = "UPDATE task_messages SET state = 'accepted', rev = rev + 1, attempt = NULL, event_seq = NULL, turn = NULL, \
               consumed_at = NULL WHERE team_id = $1 AND message_id IN (SELECT r.message_id FROM task_messages r \
               WHERE r.team_id = $1 AND r.task_id = $2 AND r.state = 'consumed' AND r.next_task_id IS NULL \
               ORDER BY r.consumed_at DESC, r.place DESC LIMIT $3 + 0)";
    tx.execute(sql, args![task, limit]).await.map(drop)
}

/// The message that was told at an event of an attempt.
pub async fn told_at(
    tx: &mut TeamTx<'_>,
    (task, attempt): (&TaskId, u32),
    seq: u64,
) -> Result<Option<TaskMessage>, DbError> {
    let sql = select!("WHERE m.team_id = $1 AND m.task_id = $2 AND m.attempt = $3 AND m.event_seq = $4");
    tx.row(sql, args![task, attempt, seq]).await?.as_ref().map(message).transpose()
}

fn message(row: &Row) -> Result<TaskMessage, DbError> {
    let number = |column| Ok::<_, DbError>(u32::try_from(row.count(column)?).unwrap_or(u32::MAX));
    let mode = serde_json::from_value::<InjectionPoint>(serde_json::Value::String(row.text("mode")?));
    let (task, withdrawing) = (row.parse::<TaskState>("task_state")?, row.flag("withdrawing")?);
    let outcome = row.optional_text("outcome")?;
    let end = KnownEnd::of(task, row.optional_instant("stop_confirmed_at")?.is_some(), outcome.as_deref());
    Ok(TaskMessage {
        id: row.parse("message_id")?,
        session_id: row.parse("session_id")?,
        task_id: row.parse("task_id")?,
        author: row.text("author")?,
        author_name: row.text("author_name")?,
        content: row.text("content")?,
        context: row.optional_json("context")?,
        attachments: row.optional_json::<Vec<protocol::Attachment>>("attachments")?.unwrap_or_default(),
        mode: mode.map_err(|error| DbError::Broken(error.to_string()))?,
        place: row.count("place")?,
        rev: number("rev")?,
        earlier: row.optional_json::<Vec<EarlierVersion>>("earlier")?.unwrap_or_default(),
        state: effective(row.parse("state")?, task, (end, withdrawing)),
        withdrawing,
        why: row.optional_text("why")?,
        end,
        next_task: row.optional_parse("next_task_id")?,
        late_for: row.optional_parse("late_for")?,
        created_at: row.instant("created_at")?,
        consumed_at: row.optional_instant("consumed_at")?,
    })
}
