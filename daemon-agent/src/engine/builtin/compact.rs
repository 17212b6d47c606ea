//! Compaction: the model summarizes a conversation, or notes what of it should be kept. No tools are offered, the conversation
//! is data in one message, and only a summary that was checked is said.

mod text;

use protocol::{
    CompactRequest, ErrorCode, NoticeLevel, TaskError, TaskResult, Turn,
    context::{SUMMARY_HEADING, reserve},
    suggestion::without_suggestions,
    tokens,
};
use serde::{Deserialize, Serialize};

use super::{AgentLoop, DueCall, Halt, Stage, filtered};
use crate::model::{Answer, Delta, FinishReason, Message};

/// Largest share of a window that a call's conversation takes, percent.
const MAX_PIECE_PERCENT: u64 = 60;
/// Least that a call takes of the conversation, tokens.
const MIN_PIECE_TOKENS: u64 = 256;
/// How often what a call takes is halved because the provider says that it is too long.
const MAX_HALVINGS: u32 = 4;
/// Most of a refused answer that is shown to the model again, bytes.
const MAX_REFUSED_BYTES: usize = 8 * 1024;

/// How far a compaction is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Folding {
    /// The summary of the parts before `from`.
    so_far: Option<String>,
    /// The parts of turns that are summarized now.
    from: usize,
    to: usize,
    /// `from` and `to` count parts. In records of earlier versions they count turns.
    #[serde(default)]
    counts_parts: bool,
    /// How many parts the model is shown in part: of those that are summarized now, and before.
    #[serde(default)]
    cut: usize,
    #[serde(default)]
    cut_before: usize,
    halvings: u32,
    /// Why the last answer was refused.
    refused: Option<String>,
}

impl Folding {
    /// Makes `from` and `to` count parts.
    fn count_parts(&mut self, turns: &[Turn]) {
        if !std::mem::replace(&mut self.counts_parts, true) {
            let parts = |count: usize| text::parts(&turns[..count.min(turns.len())]);
            (self.from, self.to) = (parts(self.from), parts(self.to));
        }
    }
}

impl AgentLoop {
    /// Summarizes the turns that came with the task.
    pub(super) async fn compact(&mut self, asked: &CompactRequest) -> Result<TaskResult, Halt> {
        self.request.tools.clear();
        match &mut self.folding {
            Some(folding) => folding.count_parts(&self.run.submit.messages),
            None => {
                self.folding = Some(Folding { counts_parts: true, ..Folding::default() });
                self.take_piece(asked);
            }
        }
        loop {
            let due = match self.stage {
                Stage::Model(due) => due,
                _ => DueCall::Next,
            };
            let answer = match self.ask(due).await {
                Ok(answer) => answer,
                Err(Halt::Failed(error)) if error.code == ErrorCode::ContextOverflow => {
                    let folding = self.folding();
                    if folding.halvings == MAX_HALVINGS {
                        return Err(Halt::Failed(error));
                    }
                    folding.halvings += 1;
                    self.stage = Stage::Model(DueCall::Next);
                    self.take_piece(asked);
                    continue;
                }
                Err(halt) => return Err(halt),
            };
            self.stage = Stage::Model(DueCall::Next);
            if let Some(result) = self.take_summary(asked, answer).await? {
                return Ok(result);
            }
        }
    }

    fn folding(&mut self) -> &mut Folding {
        self.folding.get_or_insert_with(Folding::default)
    }

    /// Whether the parts that are summarized now are the last ones.
    fn is_last_piece(&self) -> bool {
        self.folding.as_ref().is_none_or(|folding| folding.to >= text::parts(&self.run.submit.messages))
    }

    /// Prepares the call for the next parts, as many as may go into one.
    fn take_piece(&mut self, asked: &CompactRequest) {
        let folding = self.folding.clone().unwrap_or_default();
        let turns = &self.run.submit.messages;
        let window = self.model.window().tokens;
        let so_far = folding.so_far.as_deref().map_or(0, tokens::estimate);
        let beside = tokens::estimate(&text::instructions(asked, true)) + so_far;
        let room =
            (window * MAX_PIECE_PERCENT / 100).min(window.saturating_sub(reserve(window, self.run.agent.max_tokens)));
        let room = (room.saturating_sub(beside) >> folding.halvings).max(MIN_PIECE_TOKENS);
        let piece = text::piece(turns, folding.from, room);
        let is_last = piece.to >= text::parts(turns);
        self.request.system = text::instructions(asked, is_last);
        self.request.messages = vec![Message::User(text::conversation(folding.so_far.as_deref(), &piece.text))];
        let folding = self.folding();
        (folding.to, folding.cut, folding.refused) = (piece.to, piece.cut, None);
    }

    /// Takes an answer of the model: the result with the last one.
    async fn take_summary(&mut self, asked: &CompactRequest, answer: Answer) -> Result<Option<TaskResult>, Halt> {
        if answer.finish == FinishReason::ContentFilter {
            return Err(Halt::Failed(filtered()));
        }
        let is_last = self.is_last_piece();
        let summary = match check(asked, &answer, is_last) {
            Ok(summary) => summary,
            Err(why) => {
                if let Some(before) = self.folding().refused.replace(why.clone()) {
                    return Err(Halt::Failed(refused(asked, &before, &why)));
                }
                let said = protocol::text::head_and_tail(&answer.message.text, MAX_REFUSED_BYTES);
                let again = format!("That cannot be taken: {why}. Answer once more, in the form that was asked for.");
                let answer = crate::model::AssistantMessage { text: said, ..Default::default() };
                let first = self.request.messages.first().cloned();
                self.request.messages = first.into_iter().collect();
                if !answer.text.trim().is_empty() {
                    self.request.messages.push(Message::Assistant(answer));
                }
                self.request.messages.push(Message::User(again));
                return Ok(None);
            }
        };
        if !is_last {
            let folding = self.folding();
            folding.from = folding.to;
            folding.cut_before += folding.cut;
            folding.so_far = Some(summary);
            self.take_piece(asked);
            return Ok(None);
        }
        let taken = if asked.notes { self.take_suggestions(&answer.message.text).await } else { 0 };
        let folding = self.folding();
        if let Some(text) = cut_notice(folding.cut_before + folding.cut) {
            self.notice(NoticeLevel::Warning, text).await;
        }
        let said = if asked.summary { summary } else { noted(taken) };
        self.report(Delta::Text(said.clone())).await;
        let first = said.lines().find_map(|line| line.strip_prefix("- ")).unwrap_or(&said);
        Ok(Some(TaskResult {
            summary: protocol::text::summary(first),
            memory: self.memory.result(),
            usage: self.usage.clone(),
            text: said,
            ..TaskResult::default()
        }))
    }
}

/// The summary of an answer, or why it is none.
fn check(asked: &CompactRequest, answer: &Answer, is_last: bool) -> Result<String, String> {
    if answer.finish == FinishReason::Length {
        return Err("the answer was cut before its end".to_owned());
    }
    if !answer.message.calls.is_empty() {
        return Err("it calls a tool, and there are none".to_owned());
    }
    let text = without_suggestions(&answer.message.text);
    if !asked.summary && is_last {
        return Ok(String::new());
    }
    let body = text.find(SUMMARY_HEADING).map_or(&*text, |at| &text[at + SUMMARY_HEADING.len()..]).trim();
    if body.is_empty() {
        return Err("it is empty".to_owned());
    }
    if !body.lines().any(|line| line.trim_start().starts_with("- ") || line.trim_start().starts_with("* ")) {
        return Err("it has no line that begins with \"- \"".to_owned());
    }
    let summary = format!("{SUMMARY_HEADING}\n{body}");
    let length = tokens::estimate(&summary);
    if asked.summary && is_last && length >= asked.replaced_tokens {
        return Err(format!("it takes {length} tokens, more than what it replaces ({})", asked.replaced_tokens));
    }
    let longest = text::longest(asked, is_last);
    if length > longest {
        let words = text::words(longest);
        return Err(format!("it takes {length} tokens; at most {longest} are allowed, about {words} words"));
    }
    Ok(summary)
}

/// That some parts were too long for a call, in words.
fn cut_notice(cut: usize) -> Option<String> {
    let (count, their) = match cut {
        0 => return None,
        1 => ("1 part of the conversation was".to_owned(), "its beginning and its end"),
        more => (format!("{more} parts of the conversation were"), "their beginnings and their ends"),
    };
    Some(format!("{count} too long for the model's window: {their} alone were read."))
}

/// What became of the notes, in words.
fn noted(notes: usize) -> String {
    match notes {
        0 => "Nothing to note.".to_owned(),
        1 => "1 note for MEMORY.md.".to_owned(),
        more => format!("{more} notes for MEMORY.md."),
    }
}

fn refused(asked: &CompactRequest, before: &str, now: &str) -> TaskError {
    let what = if asked.summary { "The summary was" } else { "The notes were" };
    let why = if before == now { before.to_owned() } else { format!("first: {before}; then: {now}") };
    TaskError {
        code: ErrorCode::BadRequest,
        message: format!("{what} refused twice ({why}). Nothing was changed."),
        retryable: true,
        suggestion: Some("Try again, with another model or other instructions.".to_owned()),
        details: None,
    }
}

#[cfg(test)]
mod tests {
    use protocol::{TurnPart, TurnRole};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_record_that_counts_turns_goes_on_at_the_same_place() {
        let part = || TurnPart::Text { text: "x".to_owned() };
        let turns = [3, 1, 2].map(|parts| Turn { role: TurnRole::User, parts: (0..parts).map(|_| part()).collect() });
        let old = json!({ "soFar": "- It began.", "from": 1, "to": 2, "halvings": 0, "refused": null });
        let mut folding: Folding = serde_json::from_value(old).expect("a record");
        folding.count_parts(&turns);
        assert_eq!((folding.from, folding.to), (3, 4));
        let mut again: Folding = serde_json::from_value(json!(folding)).expect("a record");
        again.count_parts(&turns);
        assert_eq!((again.from, again.to, again.cut), (3, 4, 0));
    }

    #[test]
    fn only_the_summary_that_a_request_carries_is_bounded_by_what_it_carries() {
        let asked = CompactRequest {
            summary: true,
            notes: false,
            instructions: None,
            replaced_tokens: 10_000,
            max_tokens: 400,
        };
        let text = format!("{SUMMARY_HEADING}\n- {}", "word ".repeat(500));
        let message = crate::model::AssistantMessage { text, ..Default::default() };
        let answer = Answer { message, finish: FinishReason::Stop, usage: protocol::Usage::default() };
        assert!(check(&asked, &answer, false).is_ok());
        assert!(check(&asked, &answer, true).is_err_and(|why| why.contains("at most 400 are allowed")));
        for tokens in [600, 1] {
            // Of one token: no request has room for a summary, whatever it says.
            assert!(check(&CompactRequest { max_tokens: tokens, ..asked.clone() }, &answer, true).is_ok(), "{tokens}");
        }
    }
}
