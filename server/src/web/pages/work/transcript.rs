//! A session as text: its conversation as Markdown, and the whole output of a call.

use std::{
    collections::{HashMap, VecDeque},
    fmt::Write,
};

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::stream;
use protocol::{MessageId, SessionId, TeamId};

use crate::{
    db::{self, TeamTx},
    domain::{Message, MessageRole, Part},
    error::{Error, Result},
    state::Board,
    web::pages::conversation::{Conversation, decided},
    web::{
        AsViewer, Rejection,
        extract::{Id, Ids},
        view::{call, timeline::Decisions},
    },
};

/// Parts read at once: together they are a few MiB at most.
const PARTS_PER_READ: usize = 32;
/// Messages read at once.
const MESSAGES_PER_READ: u64 = 100;

/// `GET /t/{team}/sessions/{id}/transcript.md`: the whole conversation, streamed.
pub async fn transcript(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
) -> Result<Response, Rejection> {
    let conversation = Conversation::load(&board, &caller.team.id, &id, None).await?;
    let mut head = format!("# {}\n\n", conversation.session.title.replace('\n', " "));
    let viber = conversation.viber.as_ref().map_or("a viber that was removed", |viber| &viber.name);
    // Writing to a String cannot fail.
    let _ = writeln!(head, "{} on {viber}, from {}\n", conversation.agent_name(), conversation.session.created_at);
    let name: String = id.as_str().chars().filter(char::is_ascii_alphanumeric).collect();
    let (team, last) = (caller.team.id.clone(), conversation.session.last_seq);
    let names = conversation.names;
    let start = TranscriptReader { board, team, session: id, names, last, next: 1, unread: VecDeque::new() };
    let pages = stream::try_unfold(start, |mut reader| async move {
        let text = reader.read().await?;
        Ok::<_, Error>(text.map(|text| (Bytes::from(text), reader)))
    });
    let head = stream::once(async move { Ok(Bytes::from(head)) });
    let body = axum::body::Body::from_stream(futures_util::StreamExt::chain(head, pages));
    let headers = [
        (header::CONTENT_TYPE, "text/markdown; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{name}.md\"")),
    ];
    Ok((headers, body).into_response())
}

/// Reads a session from its first message to its last, a few parts at a time.
struct TranscriptReader {
    board: Board,
    team: TeamId,
    session: SessionId,
    /// Of the members, by their ids.
    names: HashMap<String, String>,
    /// Seq of the last message.
    last: u64,
    /// Seq of the first message whose head was not read.
    next: u64,
    /// Messages whose parts were not all read: each with its next part, and how many it has.
    unread: VecDeque<(Message, u64, u64)>,
}

impl TranscriptReader {
    /// The next piece of text; `None` at the end.
    async fn read(&mut self) -> Result<Option<String>> {
        let mut tx = self.board.db.reader_of(&self.team).await?;
        while self.unread.is_empty() {
            if self.next > self.last {
                return Ok(None);
            }
            let end = self.next.saturating_add(MESSAGES_PER_READ);
            let heads = db::messages::heads(&mut tx, &self.session, Some(end), MESSAGES_PER_READ).await?;
            let new = heads.into_iter().filter(|(message, _)| message.seq >= self.next);
            self.unread.extend(new.map(|(message, count)| (message, 0, count)));
            self.next = end;
        }
        let (mut text, mut room) = (String::new(), PARTS_PER_READ as u64);
        while room > 0
            && let Some((message, from, count)) = self.unread.front_mut()
        {
            let to = (*from + room).min(*count);
            message.parts = db::messages::some_parts(&mut tx, &message.id, None, (*from, to), room).await?;
            let mut found = decided::of_messages(&mut tx, &self.names, std::slice::from_ref(message)).await?;
            let decisions = found.remove(&(message.task_id.clone(), message.attempt)).unwrap_or_default();
            let parts = std::mem::take(&mut message.parts);
            if *from == 0 {
                text.push_str(&heading(message));
            }
            room -= (to - *from).clamp(1, room);
            *from = to;
            let is_last = to == *count;
            if is_last {
                self.unread.pop_front();
            }
            text.push_str(&markdown(&parts, &decisions, is_last));
        }
        Ok(Some(text))
    }
}

fn heading(message: &Message) -> String {
    let who = match message.role {
        MessageRole::User => "Said",
        MessageRole::Assistant => "Answered",
    };
    format!("## {who} {}\n\n", message.created_at)
}

/// Parts of a message; more follow when these are not the last ones.
fn markdown(parts: &[Part], decisions: &Decisions, is_last: bool) -> String {
    let mut text = String::new();
    for (n, part) in parts.iter().enumerate() {
        let next = parts.get(n + 1);
        if let Part::Text { text: said, continues: true } = part
            && (part.goes_on_in(next) || (next.is_none() && !is_last))
        {
            text.push_str(said);
            continue;
        }
        let _ = match part {
            Part::Text { text: said, .. } | Part::Summary { text: said } => writeln!(text, "{}\n", said.trim_end()),
            Part::Reasoning { text: said, .. } => {
                let quoted = said.trim_end().lines().map(|line| format!("> {line}\n")).collect::<String>();
                writeln!(text, "> *Reasoning*\n>\n{quoted}")
            }
            Part::ToolCall { call_id, tool, args, .. } => {
                writeln!(text, "**{tool}**\n\n{}\n", fenced(&call::output(args)))
                    .and_then(|()| decided(&mut text, decisions, call_id))
            }
            Part::ToolResult { result, ok, .. } => {
                let failed = if *ok { "" } else { "*Failed*\n\n" };
                writeln!(text, "{failed}{}\n", fenced(&call::output(result)))
            }
            Part::Notice { text: said, folded, .. } => writeln!(text, "*{said}*\n").and_then(|()| match folded {
                Some(folded) => writeln!(text, "{}\n", fenced(folded)),
                None => Ok(()),
            }),
            Part::Message { name, text: said, files, .. } => {
                let files = files.iter().map(|file| format!("Attached: {}\n\n", file.name)).collect::<String>();
                write!(text, "**{name} said**\n\n{}\n\n{files}", said.trim_end())
            }
            Part::Artifact { artifact } => writeln!(text, "Artifact: {artifact}\n"),
            Part::Approval { approval_id, .. } => decided(&mut text, decisions, approval_id.as_str()),
        };
    }
    text
}

/// What people decided about a call or under an id.
fn decided(text: &mut String, decisions: &Decisions, key: &str) -> std::fmt::Result {
    for line in decisions.of(key) {
        writeln!(text, "*{}*\n", line.words)?;
        for said in &line.said {
            writeln!(text, "{}\n", fenced(said))?;
        }
    }
    Ok(())
}

/// A block that its content cannot close: the fence is longer than any run of backticks in it.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}", text.trim_end_matches('\n'))
}

/// `GET /t/{team}/sessions/{id}/messages/{seq}/calls/{call}`: all that a call put out, as text.
pub async fn output(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, seq, call)): Ids<(SessionId, u64, String)>,
) -> Result<Response, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let (message, count) = head(&mut tx, &id, seq).await?;
    for at in (0..count).step_by(PARTS_PER_READ) {
        let some = (at, at + PARTS_PER_READ as u64);
        let parts =
            db::messages::some_parts(&mut tx, &message, Some("tool-result"), some, PARTS_PER_READ as u64).await?;
        let found = parts.into_iter().find_map(|part| match part {
            Part::ToolResult { call_id, result, .. } if call_id == call => Some(call::output(&result)),
            _ => None,
        });
        if let Some(text) = found {
            return Ok(plain(text));
        }
    }
    Err(Error::NotFound.into())
}

/// The id of the message with a seq, and how many parts it has.
async fn head(tx: &mut TeamTx<'_>, id: &SessionId, seq: u64) -> Result<(MessageId, u64)> {
    let found = db::messages::heads(tx, id, Some(seq.saturating_add(1)), 1).await?;
    let found = found.into_iter().find(|(message, _)| message.seq == seq);
    found.map(|(message, count)| (message.id, count)).ok_or(Error::NotFound)
}

fn plain(text: String) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

/// `GET /t/{team}/sessions/{id}/messages/{seq}/parts/{part}`: all that a part says, as text.
pub async fn part(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, seq, at)): Ids<(SessionId, u64, u64)>,
) -> Result<Response, Rejection> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let (message, _) = head(&mut tx, &id, seq).await?;
    let found = db::messages::some_parts(&mut tx, &message, None, (at, at.saturating_add(1)), 1).await?;
    let text = found.into_iter().find_map(|part| match part {
        Part::Text { text, .. }
        | Part::Summary { text }
        | Part::Reasoning { text, .. }
        | Part::Message { text, .. } => Some(text),
        _ => None,
    });
    Ok(plain(text.ok_or(Error::NotFound)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_cannot_leave_its_fence() {
        assert_eq!(fenced("a\n```\nb"), "````\na\n```\nb\n````");
        assert_eq!(fenced("plain\n"), "```\nplain\n```");
    }
}
