//! A running attempt's conversation becomes shorter before a call that would take too much of the window: in one large
//! step, so that a provider's cache of what stays survives the next calls.

mod plan;

use std::{collections::HashSet, io};

use protocol::{
    NoticeLevel,
    context::{ContextBudget, ContextWindow, DEFAULT_THRESHOLD_PERCENT, WindowSource},
    text::grouped,
};

use super::AgentLoop;
use crate::{
    config::toolset::LOAD_SKILL,
    model::{Message, ModelError},
    prompt::{conversation_tokens, pinned_calls},
};
use plan::{CallMarks, ConversationRoom, PrunedConversation};

/// What is taken after a step: half of the threshold, percent of what conversation and files may take.
const GOAL_PERCENT: u64 = DEFAULT_THRESHOLD_PERCENT / 2;
/// A step that frees less waits until the window is nearly full, percent of the same.
const MIN_FREED_PERCENT: u64 = 5;
const NEARLY_FULL_PERCENT: u64 = 90;
/// An estimate of so much of the window is not sent: it is beyond what any text is estimated too high.
const CANNOT_FIT_PERCENT: u64 = 150;

impl AgentLoop {
    /// Shortens results and calls of tools if the next call would pass the threshold, and says what became of them. A
    /// request that is by far too long all the same fails as it would at its provider, which need not read it for that.
    pub(super) async fn make_room(&mut self) -> Result<(), ModelError> {
        // Nothing is counted for a compaction, which has no tools, and after a rest whose record is of an earlier version.
        let Some(layers) = &mut self.layers else { return Ok(()) };
        // Estimates that are known to be too low or too high are so of a window that is smaller or larger.
        let known = self.model.window();
        let tokens = known.tokens.saturating_mul(100) / self.model.estimate_percent().max(1);
        let window = ContextWindow { tokens, ..known.clone() };
        let (used, budget) = layers.budget(&self.request, &window);
        if used <= budget.threshold(DEFAULT_THRESHOLD_PERCENT) {
            return Ok(());
        }
        self.shorten(used, &budget).await;
        let used = self.layers.as_mut().map_or(0, |layers| layers.budget(&self.request, &window).0);
        let is_known = window.source != WindowSource::Assumed;
        if is_known && used > window.tokens.saturating_mul(CANNOT_FIT_PERCENT) / 100 {
            return Err(self.model.too_long(used.saturating_mul(self.model.estimate_percent()) / 100));
        }
        Ok(())
    }

    /// Shortens what takes too much of `budget`, of which `used` tokens are taken.
    async fn shorten(&mut self, used: u64, budget: &ContextBudget) {
        let beside = used.saturating_sub(conversation_tokens(&self.request.messages));
        let left = |percent| budget.threshold(percent).saturating_sub(beside);
        let room = ConversationRoom { goal: left(GOAL_PERCENT), limit: left(DEFAULT_THRESHOLD_PERCENT) };
        let mut pinned = pinned_calls(&self.run.submit.messages);
        // A skill that was loaded is followed to the end.
        pinned.extend(self.request.messages.iter().filter_map(|message| match message {
            Message::Tool { call_id, tool, .. } if tool == LOAD_SKILL => Some(call_id.clone()),
            _ => None,
        }));
        let mut marks = CallMarks { pinned, lost: self.lost_results.clone() };
        let (caps, least) = (self.result_caps(), budget.available() / 100 * MIN_FREED_PERCENT);
        let mut why = String::new();
        let pruned = loop {
            let Some(pruned) = plan::prune(&self.request.messages, &caps, room, &marks) else { return };
            if pruned.freed < least && used <= budget.threshold(NEARLY_FULL_PERCENT) {
                return;
            }
            let failed = self.keep_whole(&pruned.shortened, &marks.lost).await;
            let Some((_, error)) = failed.last() else { break pruned };
            why = error.to_string();
            marks.lost.extend(failed.into_iter().map(|(call_id, _)| call_id));
        };
        let lost = pruned.shortened.iter().map(|(call_id, _)| call_id).filter(|call_id| marks.lost.contains(*call_id));
        let lost = lost.filter(|call_id| self.lost_results.insert((*call_id).clone())).count();
        let mut text = notice(&pruned);
        if lost > 0 {
            tracing::warn!(task.id = %self.run.submit.task_id, "{lost} results cannot be kept whole: {why}");
            text.push_str(&format!(" {} of these results cannot be read again: {why}.", grouped(lost as u64)));
        }
        self.request.messages = pruned.messages;
        if let Some(layers) = &mut self.layers {
            layers.begin_again();
        }
        self.notice(if lost > 0 { NoticeLevel::Warning } else { NoticeLevel::Info }, text).await;
    }

    /// Keeps results for `read_output`, but those of the calls in `lost`. Returns the ids of calls whose results cannot be
    /// kept, and why.
    async fn keep_whole(&self, results: &[(String, String)], lost: &HashSet<String>) -> Vec<(String, io::Error)> {
        let results: Vec<_> = results.iter().filter(|(call_id, _)| !lost.contains(call_id)).cloned().collect();
        let ids: Vec<String> = results.iter().map(|(call_id, _)| call_id.clone()).collect();
        let kept = self.tools.kept_results();
        let keeping = tokio::task::spawn_blocking(move || kept.keep_all(&results)).await;
        keeping.unwrap_or_else(|error| {
            let why = error.to_string();
            ids.into_iter().map(|call_id| (call_id, io::Error::other(why.clone()))).collect()
        })
    }
}

/// What became of the conversation, in words.
fn notice(pruned: &PrunedConversation) -> String {
    let part = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        more => Some(format!("{} {many}", grouped(more as u64))),
    };
    let parts = [
        part(pruned.lines, "result became a line", "results became lines"),
        part(pruned.cut, "result was cut", "results were cut"),
        part(pruned.short_arguments, "call's arguments were cut", "calls' arguments were cut"),
        part(pruned.pictures, "picture was left out", "pictures were left out"),
        part(pruned.left_out, "call was left out", "calls were left out"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    format!(
        "The conversation was shortened to make room in the model's window: {} ({} tokens).",
        parts.join(", "),
        grouped(pruned.freed)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_says_what_became_of_the_conversation() {
        let pruned = PrunedConversation { lines: 41, freed: 12_300, ..PrunedConversation::default() };
        let start = "The conversation was shortened to make room in the model's window: ";
        assert_eq!(notice(&pruned), format!("{start}41 results became lines (12,300 tokens)."));
        let all = PrunedConversation { lines: 1, cut: 2, short_arguments: 1, pictures: 3, ..pruned };
        let all = PrunedConversation { left_out: 1_234, freed: 1_000_000, ..all };
        let words = "1 result became a line, 2 results were cut, 1 call's arguments were cut, 3 pictures were left out, \
                     1,234 calls were left out";
        assert_eq!(notice(&all), format!("{start}{words} (1,000,000 tokens)."));
        assert_eq!((grouped(0), grouped(999), grouped(1_000)), ("0".into(), "999".into(), "1,000".into()));
    }
}
