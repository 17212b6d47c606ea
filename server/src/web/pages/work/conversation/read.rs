//! Reads what a page or a stream needs of a conversation: only parts that may be shown.

use std::collections::HashMap;

use protocol::{PlaybookTask, SessionId};

use super::{
    Conversation, GrowingMessage, MAX_CONVERSATION_BYTES, MIN_PARTIAL_MESSAGE_BYTES, PageEnd, RunPlace,
    ShownConversation, decided,
};
use crate::{
    db::{self, TeamTx, messages::PartOutline, tasks::delegations::SessionPart},
    domain::{Committed, Kin, Message, MessageRole, Part, Task, TaskKind, committed::Report},
    error::{Error, Result},
};

/// Messages that are considered for a page, before their size is known.
const MAX_PAGE_MESSAGES: u64 = 80;
/// Parts that are read for a page, and the bytes that they may have.
const MAX_PAGE_PARTS: u64 = 400;
const MAX_PAGE_PART_BYTES: u64 = 4 * 1024 * 1024;
/// Parts after the end of a page that ends within a message, read for the results of its last calls.
const MAX_LATER_PARTS: u64 = 64;
/// The newest messages that a stream looks at for news.
const MAX_NEWS_MESSAGES: u64 = 12;
/// Tasks that may end between two looks of a stream; after more the page is fetched anew.
const MAX_ENDED_TASKS: usize = 16;
/// Rows of events that are not parts yet; more are not expected, and would come by the stream.
const MAX_TAIL_ROWS: u64 = 2_000;

/// Adds the messages of a page without their parts, and their tasks; returns the messages and how many parts each has. The
/// open message was read before.
pub(super) async fn heads(
    tx: &mut TeamTx<'_>,
    conversation: &mut Conversation,
    before: Option<u64>,
) -> Result<Vec<(Message, u64)>> {
    let id = conversation.session.id.clone();
    let mut heads = db::messages::heads(tx, &id, before, MAX_PAGE_MESSAGES).await?;
    let open = conversation.growing.as_ref().map(|growing| growing.message.seq);
    heads.retain(|(message, _)| Some(message.seq) != open);
    if let (Some((first, _)), Some((last, _))) = (heads.first(), heads.last()) {
        conversation.tasks = db::tasks::of_messages(tx, &id, first.seq, last.seq).await?;
    }
    read_summaries(tx, conversation).await?;
    conversation.messages = heads.iter().map(|(message, _)| message.clone()).collect();
    Ok(heads)
}

/// Reads the newest parts of these messages, as many as may be read at once and have about `room` bytes of HTML; messages
/// without such parts are left out.
pub(super) async fn parts(
    tx: &mut TeamTx<'_>,
    conversation: &mut Conversation,
    heads: &[(Message, u64)],
    room: usize,
) -> Result<Vec<Message>> {
    let except = conversation.growing.as_ref().map_or(0, |growing| growing.message.seq);
    let (mut from, mut parts) = (None, 0);
    for (message, count) in heads.iter().rev() {
        let taken = (*count).min(MAX_PAGE_PARTS - parts);
        parts += taken;
        from = Some((message.seq, count - taken));
        if taken < *count || parts == MAX_PAGE_PARTS {
            break;
        }
    }
    let (Some(from), Some(to)) = (from, heads.last().map(|(message, _)| message.seq)) else { return Ok(Vec::new()) };
    let session = conversation.session.id.clone();
    let stretch = db::messages::PartRange { from, to, except };
    let outline = db::messages::outline(tx, &session, stretch, 2 * MAX_PAGE_PARTS).await?;
    let from = begin(&outline, room).unwrap_or(from);
    let read = heads.iter().map(|(message, _)| message).filter(|message| message.seq >= from.0);
    let mut messages: Vec<Message> = read.cloned().collect();
    if from.1 > 0 {
        conversation.from.insert(from.0, from.1);
    }
    let stretch = db::messages::PartRange { from, to, except };
    db::messages::read_parts(tx, &session, stretch, &mut messages).await?;
    conversation.decisions.extend(decided::of_messages(tx, &conversation.names, &messages).await?);
    Ok(messages)
}

/// The first of the newest parts that `room` bytes of HTML may carry; `None` when they may carry all of them. Their size
/// as HTML is only estimated here, generously.
fn begin(outline: &[PartOutline], room: usize) -> Option<(u64, u64)> {
    let room = 3 * room.max(MIN_PARTIAL_MESSAGE_BYTES) as u64;
    let (mut bytes, mut html) = (0_u64, 0_u64);
    let mut from = None;
    for part in outline.iter().rev() {
        bytes = bytes.saturating_add(part.size);
        html += match part.kind.as_str() {
            "tool-call" => 1_000 + part.size.min(4_000),
            "tool-result" => part.size.min(5_000),
            _ => 200 + part.size.min(80_000),
        };
        let at = (part.seq, part.idx);
        if from.is_some() && (bytes > MAX_PAGE_PART_BYTES || html > room) {
            return from;
        }
        from = Some(at);
    }
    None
}

/// Adds a part of one message, up to one of its parts, and its task.
pub(super) async fn within(tx: &mut TeamTx<'_>, conversation: &mut Conversation, seq: u64, part: u64) -> Result<()> {
    let heads = db::messages::heads(tx, &conversation.session.id, Some(seq.saturating_add(1)), 1).await?;
    let found = heads.into_iter().find(|(message, _)| message.seq == seq);
    let Some((mut message, count)) = found else { return Err(Error::NotFound) };
    let to = part.min(count);
    let stretch = db::messages::PartRange { from: (seq, to.saturating_sub(MAX_PAGE_PARTS)), to: seq, except: 0 };
    let mut outline = db::messages::outline(tx, &conversation.session.id, stretch, MAX_PAGE_PARTS).await?;
    outline.retain(|part| part.idx < to);
    let from = begin(&outline, MAX_CONVERSATION_BYTES).unwrap_or(stretch.from).1;
    message.parts = db::messages::some_parts(tx, &message.id, None, (from, to), MAX_PAGE_PARTS).await?;
    let behind = (to, to.saturating_add(MAX_LATER_PARTS));
    conversation.behind =
        Some(db::messages::some_parts(tx, &message.id, Some("tool-result"), behind, MAX_LATER_PARTS).await?);
    if from > 0 {
        conversation.from.insert(seq, from);
    }
    conversation.tasks = db::tasks::of_messages(tx, &conversation.session.id, seq, seq).await?;
    read_summaries(tx, conversation).await?;
    conversation.messages = vec![message];
    conversation.decisions = decided::of_messages(tx, &conversation.names, &conversation.messages).await?;
    Ok(())
}

pub(super) async fn news(tx: &mut TeamTx<'_>, id: &SessionId, shown: &ShownConversation) -> Result<Conversation> {
    let mut conversation = state(tx, id, None, shown.open).await?;
    conversation.tasks = conversation.open.clone();
    conversation
        .tasks
        .extend(conversation.current.clone().filter(|task| !conversation.open.iter().any(|open| open.id == task.id)));
    let mut recent = db::messages::heads(tx, id, None, MAX_NEWS_MESSAGES).await?;
    let first = recent.first().map_or(u64::MAX, |(first, _)| first.seq);
    conversation.missed = shown.last > 0 && recent.len() as u64 == MAX_NEWS_MESSAGES && first > shown.last + 1;
    // What changes, or changed since, may be further back, and may have begun and ended between two looks.
    let ended = shown.tasks.iter().filter(|task| !conversation.unfinished().any(|one| one == *task));
    conversation.ended = ended.cloned().collect();
    conversation.missed |= conversation.ended.len() > MAX_ENDED_TASKS;
    if conversation.missed {
        return Ok(conversation);
    }
    for task in conversation
        .ended
        .iter()
        .chain(conversation.current.iter().filter(|task| task.message_seq < first).map(|task| &task.id))
    {
        recent.extend(db::messages::of_task(tx, task, MAX_NEWS_MESSAGES).await?);
        // It may be of a page before the newest one.
        let is_known = |kin: &Kin| kin.asked.call.task_id == *task || kin.asked.child.as_ref() == Some(task);
        if !conversation.kin.iter().any(is_known) {
            let part = SessionPart { session: id, before: Some(0), messages: 0, task: Some(task) };
            let mut more = db::tasks::delegations::of_part(tx, part).await?;
            more.retain(|kin| conversation.kin.iter().all(|known| known.asked.call != kin.asked.call));
            conversation.kin.extend(more);
        }
        if !conversation.tasks.iter().any(|known| known.id == *task) {
            conversation.tasks.extend(db::tasks::load(tx, task).await?);
        }
    }
    // A task of another session may have been named, because this one's page shows what hangs below it.
    conversation.tasks.retain(|task| task.session_id == *id);
    recent.retain(|(message, _)| message.session_id == *id);
    read_summaries(tx, &mut conversation).await?;
    recent.sort_by_key(|(message, _)| message.seq);
    recent.dedup_by_key(|(message, _)| message.seq);
    let asked = |message: &Message| conversation.tasks.iter().any(|task| task.id == message.task_id);
    let open = conversation.growing.as_ref().map(|growing| growing.message.seq);
    recent.retain(|(message, _)| Some(message.seq) != open && (message.seq > shown.last || asked(message)));
    conversation.messages = parts(tx, &mut conversation, &recent, MAX_CONVERSATION_BYTES).await?;
    Ok(conversation)
}

/// Reads what became of the summaries, if any of the tasks made one.
async fn read_summaries(tx: &mut TeamTx<'_>, conversation: &mut Conversation) -> Result<()> {
    let made = || conversation.tasks.iter().filter(|task| task.kind == TaskKind::Compact).map(|task| &task.id);
    if let Some(range) = made().min().zip(made().max()) {
        let fates = db::messages::summaries::fates_query(&conversation.session.id, range);
        conversation.summaries = tx.query(fates).await?;
    }
    Ok(())
}

/// Everything but the messages that are complete, and their tasks. Of a page that ends `before` no message grows.
pub(super) async fn state(
    tx: &mut TeamTx<'_>,
    id: &SessionId,
    before: Option<PageEnd>,
    shown: Option<(u64, usize)>,
) -> Result<Conversation> {
    let found = db::sessions::versioned_query(id);
    let (open, newest) = (db::tasks::open_of_session_query(id), db::tasks::newest_of_session_query(id));
    let continued = db::sessions::continued_query(id);
    let (found, open, newest, continued) = tx.query_four((found, open), (newest, continued)).await?;
    let (session, version) = found.ok_or(Error::NotFound)?;
    let (names, taking) = (db::members::names_query(), db::imports::progress_query(id));
    let (said, pins) = (db::tasks::messages::open_query(id), db::messages::pins::load_query(id));
    let (names, taking, said, pins) = tx.query_four((names, taking), (said, pins)).await?;
    let viber = db::vibers::load(tx, &session.viber_id).await?;
    let current = open.first().cloned().or(newest);
    let asked = match current.as_ref().is_some_and(|task| task.waiting.is_some()) {
        true => tx.query(db::approvals::pending_of_session_query(id)).await?,
        false => Vec::new(),
    };
    let step = match &current {
        Some(task) => run_place(tx, task).await?,
        None => None,
    };
    let kin = read_kin(tx, id, before, current.as_ref()).await?;
    let (mut growing, mut seq) = (None, 0);
    if before.is_none()
        && let Some(task) = &current
    {
        (growing, seq) = read_growing(tx, &names, task, shown).await?;
    }
    Ok(Conversation {
        session,
        version,
        viber,
        messages: Vec::new(),
        from: HashMap::new(),
        behind: None,
        tasks: Vec::new(),
        open,
        said,
        asked,
        current,
        step,
        kin,
        growing,
        seq,
        names,
        decisions: HashMap::new(),
        summaries: Vec::new(),
        continued,
        pins,
        ended: Vec::new(),
        missed: false,
        taking,
    })
}

/// What was asked for in the trees of the tasks that a page can show, and of one task.
async fn read_kin(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    before: Option<PageEnd>,
    task: Option<&Task>,
) -> Result<Vec<Kin>> {
    // A page that ends within a message shows that message.
    let end = |end: PageEnd| if end.part.is_some() { end.seq.saturating_add(1) } else { end.seq };
    let task = task.map(|task| &task.id);
    let part = SessionPart { session, before: before.map(end), messages: MAX_PAGE_MESSAGES, task };
    Ok(db::tasks::delegations::of_part(tx, part).await?)
}

/// What a task is to the run of a playbook, if it belongs to one.
async fn run_place(tx: &mut TeamTx<'_>, task: &Task) -> Result<Option<RunPlace>> {
    let told = task.payload.get("playbook").cloned();
    let Some(of) = told.and_then(|told| serde_json::from_value::<PlaybookTask>(told).ok()) else { return Ok(None) };
    let found = db::playbook_runs::playbook_name(tx, &of.run_id).await?;
    Ok(found.map(|playbook| RunPlace { run: of.run_id, playbook, label: of.step }))
}

/// Whether one of its calls has no result yet.
fn works(message: &Message) -> bool {
    let answered =
        |id: &str| message.parts.iter().any(|part| matches!(part, Part::ToolResult { call_id, .. } if call_id == id));
    message.parts.iter().rev().any(|part| matches!(part, Part::ToolCall { call_id, .. } if !answered(call_id)))
}

/// The message of a task's newest attempt while it may grow, and the last event that is in it. Parts and the events
/// after them agree, because the attempt is read again until nothing moved in between. What is `shown` of it is read from
/// the same place on.
async fn read_growing(
    tx: &mut TeamTx<'_>,
    names: &HashMap<String, String>,
    task: &Task,
    shown: Option<(u64, usize)>,
) -> Result<(Option<GrowingMessage>, u64)> {
    loop {
        let Some(held) = db::attempts::load_with_task(tx, &task.id, task.attempt).await? else { return Ok((None, 0)) };
        if held.outcome.is_some() || held.last_seq == 0 {
            return Ok((None, held.last_seq));
        }
        let mut message = Message {
            id: protocol::MessageId::new(0),
            session_id: held.session_id.clone(),
            seq: held.message_seq,
            role: MessageRole::Assistant,
            author: held.agent_id.clone(),
            task_id: task.id.clone(),
            attempt: task.attempt,
            parts: Vec::new(),
            created_at: task.started_at.unwrap_or(task.created_at),
        };
        let mut from = 0;
        if let Some(id) = &held.message_id
            && let Some((found, count)) = db::messages::head(tx, id).await?
        {
            from = count.saturating_sub(MAX_PAGE_PARTS);
            let shown = shown.filter(|(seq, _)| *seq == found.seq).map(|(_, place)| place as u64);
            let stretch = db::messages::PartRange { from: (found.seq, from), to: found.seq, except: 0 };
            let outline = db::messages::outline(tx, &held.session_id, stretch, MAX_PAGE_PARTS).await?;
            let first = begin(&outline, MAX_CONVERSATION_BYTES).unwrap_or(stretch.from).1;
            from = shown.filter(|place| *place >= from).map_or(first, |place| place.min(count));
            message = found;
            message.parts = db::messages::some_parts(tx, id, None, (from, count), MAX_PAGE_PARTS).await?;
        }
        let again = db::attempts::load_with_task(tx, &task.id, task.attempt).await?;
        if again.is_none_or(|again| again.parts_seq != held.parts_seq || again.outcome != held.outcome) {
            continue;
        }
        let runs = db::events::after(tx, &task.id, task.attempt, held.parts_seq, MAX_TAIL_ROWS).await?;
        let seq = runs.last().map_or(held.parts_seq, |run| run.to);
        let reports = |runs: &[Committed]| runs.iter().flat_map(|run| &run.items).map(|item| item.report()).collect();
        let earlier = match works(&message) {
            true => db::events::before(tx, &task.id, task.attempt, held.parts_seq).await?,
            false => Vec::new(),
        };
        let (earlier, tail): (Vec<Report>, Vec<Report>) = (reports(&earlier), reports(&runs));
        let decisions = decided::of_growing(tx, names, &message, &tail).await?;
        return Ok((Some(GrowingMessage { message, from, earlier, tail, decisions }), seq));
    }
}
