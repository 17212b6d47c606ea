//! What of the memory goes with a request: the curated file, the newest logs, what is found for the goal, and what the
//! caller sent, each within its share of tokens.

use std::time::Duration;

use protocol::{Excerpt, MemorySource, TaskSubmit, text, tokens};
use serde_json::Value;

use super::{Memory, chunks, daily_log, index::PassageHit, query, sources};

/// Tokens for `MEMORY.md`.
const CURATED_TOKENS: u64 = 2_000;
/// Tokens for all daily logs together.
const DAILY_TOKENS: u64 = 1_000;
/// Most daily logs.
const MAX_DAILY_LOGS: usize = 2;
/// Tokens for what is found for the goal.
const FOUND_TOKENS: u64 = 600;
/// Most passages that are found for the goal.
const MAX_PASSAGES: usize = 5;
/// Tokens for what the caller sent.
const GIVEN_TOKENS: u64 = 4_000;
/// How long a request waits for the search.
const RECALL_TIMEOUT: Duration = Duration::from_secs(3);
/// Tokens of the remark about what was left out.
const REMARK_TOKENS: u64 = 20;

/// The excerpts that go with a request, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recall(pub Vec<RecalledExcerpt>);

/// One excerpt.
#[derive(Clone, Debug, PartialEq)]
pub struct RecalledExcerpt {
    pub excerpt: Excerpt,
    /// Tokens of the whole text, if this is only a part of it.
    pub of: Option<u64>,
}

impl RecalledExcerpt {
    /// Its size in tokens.
    pub fn tokens(&self) -> u64 {
        tokens::estimate(&self.excerpt.text)
    }

    fn whole(path: &str, title: &str, text: &str) -> Self {
        let excerpt = Excerpt { path: path.to_owned(), title: title.to_owned(), text: text.to_owned() };
        Self { excerpt, of: None }
    }

    /// As many paragraphs as fit, and a remark about the rest.
    fn within(path: &str, title: &str, text: &str, most: u64) -> Self {
        let text = text.trim();
        let of = tokens::estimate(text);
        if of <= most {
            return Self::whole(path, title, text);
        }
        let room = tokens::head(text, most.saturating_sub(REMARK_TOKENS)).len();
        let kept = chunks::head_of_paragraphs(text, room);
        let text = format!("{kept}\n\n[… {} of {of} tokens left out …]", of - tokens::estimate(kept).min(of));
        Self { of: Some(of), ..Self::whole(path, title, &text) }
    }
}

impl Memory {
    /// The excerpts for this attempt's requests. What cannot be read or found in time is left out.
    pub async fn recall(&self, submit: &TaskSubmit) -> Recall {
        let memory = self.clone();
        let agent = submit.agent_id.clone();
        let reading = tokio::task::spawn_blocking(move || memory.standing(&agent));
        let mut items = match tokio::time::timeout(RECALL_TIMEOUT, reading).await {
            Ok(Ok(items)) => items,
            _ => Vec::new(),
        };
        items.extend(self.related(submit, &items).await);
        items.extend(given(&submit.memory));
        Recall(items)
    }

    /// The curated file in force, and the newest logs. Blocks.
    fn standing(&self, agent: &str) -> Vec<RecalledExcerpt> {
        let (home, workspace) = (&self.shared.home, &self.shared.workspace);
        let curated = sources::curated(agent).into_iter().find_map(|path| sources::read(home, workspace, &path));
        let curated = curated.filter(|text| !text.text.trim().is_empty());
        let mut items: Vec<RecalledExcerpt> = curated
            .map(|text| RecalledExcerpt::within(&text.found.path, "", &text.text, CURATED_TOKENS))
            .into_iter()
            .collect();
        let today = self.local().date();
        let mut days = sources::days(workspace);
        days.retain(|day| *day <= today);
        days.sort_unstable();
        let mut left = DAILY_TOKENS;
        let mut logs = Vec::new();
        for day in days.into_iter().rev().take(MAX_DAILY_LOGS) {
            let path = format!("workspace/{}", daily_log::path(day));
            let Some(text) = sources::read(home, workspace, &path) else { continue };
            logs.extend(newest(&path, &text.text, &mut left));
        }
        items.extend(logs.into_iter().rev());
        items
    }

    /// What is found for the goal and does not go with the request anyway.
    async fn related(&self, submit: &TaskSubmit, sent: &[RecalledExcerpt]) -> Vec<RecalledExcerpt> {
        let (memory, agent, goal) = (self.clone(), submit.agent_id.clone(), submit.goal.clone());
        // A task of its own: an index that is being built continues even if nobody waits any more.
        let search = tokio::spawn(async move { memory.find(&agent, text::head(&goal, 2_000), 20).await });
        let hits = match tokio::time::timeout(RECALL_TIMEOUT, search).await {
            Ok(Ok(Ok(found))) => found.hits,
            Ok(Ok(Err(_)) | Err(_)) => return Vec::new(),
            Err(_) => {
                tracing::warn!(task.id = %submit.task_id, "memory was not searched in time");
                return Vec::new();
            }
        };
        let own = format!("/{}.jsonl", submit.session_id);
        let words = query::words(&submit.goal);
        // What was said in full takes the place of the entry that sums it up.
        let in_full = |hit: &PassageHit| {
            hit.source == MemorySource::Daily
                && hits
                    .iter()
                    .any(|said| said.source == MemorySource::Session && said.task.is_some() && said.task == hit.task)
        };
        let summed_up: Vec<bool> = hits.iter().map(in_full).collect();
        let hits = hits.into_iter().zip(summed_up).filter(|(_, summed_up)| !summed_up).map(|(hit, _)| hit);
        let known: Vec<String> = sent.iter().map(|item| plain(&item.excerpt.text)).collect();
        let mut left = FOUND_TOKENS;
        let mut items = Vec::new();
        let fresh = |hit: &PassageHit| {
            // The session's own conversation is sent anyway.
            let body = plain(&hit.body);
            !hit.path.ends_with(&own) && !body.is_empty() && !known.iter().any(|text| text.contains(&body))
        };
        for hit in hits.filter(fresh) {
            let text = query::excerpt(&hit.body, &words);
            // The title of a conversation passage may repeat its first line.
            let title = if text.starts_with(&hit.title) { "" } else { hit.title.as_str() };
            let item = RecalledExcerpt::whole(&hit.path, title, &text);
            if items.len() == MAX_PASSAGES || item.tokens() > left {
                break;
            }
            left -= item.tokens();
            items.push(item);
        }
        items
    }
}

/// The newest entries of a log that fit into the remaining tokens.
fn newest(path: &str, markdown: &str, left: &mut u64) -> Option<RecalledExcerpt> {
    let whole = tokens::estimate(chunks::shown(markdown).trim());
    let entries: Vec<String> =
        chunks::entries(markdown).into_iter().map(|section| chunks::shown(section).trim().to_owned()).collect();
    let mut kept: Vec<String> = Vec::new();
    for entry in entries.iter().rev().filter(|entry| !entry.is_empty()) {
        let cost = tokens::estimate(entry) + 1;
        if cost > *left {
            // The newest entry is included at least in part.
            if kept.is_empty() && *left > 100 {
                let part = RecalledExcerpt::within(path, "", entry, *left - 1);
                *left = 0;
                return Some(RecalledExcerpt { of: Some(whole), ..part });
            }
            break;
        }
        *left -= cost;
        kept.push(entry.clone());
    }
    kept.reverse();
    let all = entries.iter().filter(|entry| !entry.is_empty()).count();
    let text = kept.join("\n\n");
    (!text.is_empty())
        .then(|| RecalledExcerpt { of: (kept.len() < all).then_some(whole), ..RecalledExcerpt::whole(path, "", &text) })
}

/// What the caller sent: excerpts, or anything else as it is.
fn given(sent: &[Value]) -> Vec<RecalledExcerpt> {
    let mut left = GIVEN_TOKENS;
    let mut items = Vec::new();
    for value in sent {
        let excerpt = match value {
            Value::String(text) => Excerpt { path: "request".to_owned(), title: String::new(), text: text.clone() },
            other => serde_json::from_value(other.clone()).unwrap_or_else(|_| Excerpt {
                path: "request".to_owned(),
                title: String::new(),
                text: serde_json::to_string_pretty(other).unwrap_or_default(),
            }),
        };
        if excerpt.text.trim().is_empty() || left == 0 {
            continue;
        }
        let (path, title) = (text::head(&excerpt.path, 200), text::head(&excerpt.title, 200));
        let item = RecalledExcerpt::within(path, title, &excerpt.text, left);
        left = left.saturating_sub(item.tokens());
        items.push(item);
    }
    items
}

/// A text reduced to its words, to check whether another text contains it.
fn plain(text: &str) -> String {
    chunks::shown(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_cut_ends_at_a_paragraph_and_says_so() {
        let text = (0..100).map(|n| format!("paragraph {n} says a little\n\n")).collect::<String>();
        let item = RecalledExcerpt::within("MEMORY.md", "", &text, 200);
        assert!(item.tokens() <= 200 && item.of == Some(tokens::estimate(text.trim())), "{item:?}");
        assert!(item.excerpt.text.contains("a little\n\n[… ") && item.excerpt.text.ends_with("tokens left out …]"));
        assert_eq!(RecalledExcerpt::within("m", "", " short ", 200), RecalledExcerpt::whole("m", "", "short"));
    }

    #[test]
    fn the_newest_entries_of_a_log_are_kept() {
        let log = format!(
            "# 2026-03-01\n\n{}",
            (0..20)
                .map(|n| format!("## 10:{n:02} Goal\n<!-- x 1 -->\n\n{}\n\n", "word ".repeat(40)))
                .collect::<String>()
        );
        let mut left = 300;
        let item = newest("p", &log, &mut left).expect("entries");
        assert!(item.tokens() <= 300 && item.of.is_some());
        assert!(
            item.excerpt.text.contains("10:19")
                && item.excerpt.text.contains("10:18")
                && !item.excerpt.text.contains("10:00")
        );
        assert!(
            !item.excerpt.text.contains("<!--") && item.excerpt.text.find("10:18") < item.excerpt.text.find("10:19")
        );
        let mut left = 200;
        let long = newest("p", &format!("## 10:00 Long\n\n{}", "word\n\n".repeat(1_000)), &mut left).expect("a part");
        assert!(long.tokens() <= 200 && left == 0);
        assert_eq!(newest("p", "text", &mut left), None);
    }

    #[test]
    fn a_caller_sends_excerpts_or_anything() {
        let items = given(&[
            json!("tabs"),
            json!({ "path": "notes", "title": "T", "text": "spaces" }),
            json!({ "a": 1 }),
            json!(""),
        ]);
        let excerpts: Vec<_> =
            items.iter().map(|item| (item.excerpt.path.as_str(), item.excerpt.text.as_str())).collect();
        assert_eq!(excerpts, [("request", "tabs"), ("notes", "spaces"), ("request", "{\n  \"a\": 1\n}")]);
        let masses = given(&[json!("x".repeat(1_000_000)), json!("y")]);
        assert!(masses.iter().map(RecalledExcerpt::tokens).sum::<u64>() <= GIVEN_TOKENS + 1);
    }
}
