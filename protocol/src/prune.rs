//! What a request still carries of calls that were made: pure, and the same on the Board, which plans a session's next
//! request, and on the daemon, whose running attempt grows.
//!
//! A call is never split from its result, and what is pinned never becomes a line.

mod evidence;
mod line;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use line::{line, with_call_id};

use crate::{text, tokens};

/// Most tokens of one result, unless an agent's file says otherwise.
pub const DEFAULT_RESULT_TOKENS: u64 = 8_000;
/// Least that a result may be bounded to, tokens: less says nothing.
pub const MIN_RESULT_TOKENS: u64 = 16;
/// Most runs of tests and the like whose newest result stays: a session that never repeats one must not fill the window.
pub const MAX_KEPT_CHECKS: usize = 8;
/// Longest text in the arguments of a call of which a line is left, bytes.
const MAX_ARGUMENT_BYTES: usize = 256;
/// Longest arguments of such a call, bytes of JSON.
const MAX_ARGUMENTS_BYTES: usize = 1024;

/// A call with its result, as the model reads it.
#[derive(Clone, Copy, Debug)]
pub struct PastCall<'a> {
    pub tool: &'a str,
    pub args: &'a Value,
    pub result: &'a str,
    pub ok: bool,
    /// Somebody said that it stays.
    pub is_pinned: bool,
}

/// Most tokens of one result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct ResultCaps {
    pub tokens: u64,
    /// For tools that have a bound of their own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_tool: BTreeMap<String, u64>,
}

impl Default for ResultCaps {
    fn default() -> Self {
        Self { tokens: DEFAULT_RESULT_TOKENS, by_tool: BTreeMap::new() }
    }
}

impl ResultCaps {
    /// The bound of a tool's results.
    pub fn of(&self, tool: &str) -> u64 {
        self.by_tool.get(tool).copied().unwrap_or(self.tokens).max(MIN_RESULT_TOKENS)
    }

    /// The same, where no bound is larger than this.
    #[must_use]
    pub fn at_most(&self, tokens: u64) -> Self {
        let by_tool = self.by_tool.iter().map(|(tool, own)| (tool.clone(), (*own).min(tokens))).collect();
        Self { tokens: self.tokens.min(tokens), by_tool }
    }
}

/// What is carried of a call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResultShare {
    /// A line that says what it was.
    Line,
    /// All of it up to its cap, else its ends.
    Text,
}

/// What stays of each result: of the calls from `keep_from` on, of what is pinned, and of the newest evidence that work was
/// checked ([`MAX_KEPT_CHECKS`]). Of several reads of the same file only the newest stays. More calls are kept with a smaller
/// `keep_from`.
pub fn shares(calls: &[PastCall<'_>], keep_from: usize) -> Vec<ResultShare> {
    let (mut read_later, mut checked_later) = (HashSet::new(), HashSet::new());
    let mut shares = vec![ResultShare::Line; calls.len()];
    for (n, call) in calls.iter().enumerate().rev() {
        let is_read_later = reads(call).is_some_and(|read| {
            let whole = Read { range: None, ..read.clone() };
            read_later.contains(&whole) | (call.ok && !read_later.insert(read))
        });
        let is_newest_check =
            checked_later.len() < MAX_KEPT_CHECKS && evidence::is_check(call) && checked_later.insert(subject(call));
        if call.is_pinned || is_newest_check || (n >= keep_from && !is_read_later) {
            shares[n] = ResultShare::Text;
        }
    }
    shares
}

/// The arguments and the result of a call as a request carries them. What was carried so before stays as it is.
pub fn carried<'a>(call: &PastCall<'a>, share: ResultShare, caps: &ResultCaps) -> (Cow<'a, Value>, String) {
    match share {
        ResultShare::Text => (Cow::Borrowed(call.args), tokens::head_and_tail(call.result, caps.of(call.tool))),
        ResultShare::Line => {
            let line = line(call);
            (short_arguments(call.args), if line.len() < call.result.len() { line } else { call.result.to_owned() })
        }
    }
}

/// The arguments of a call with long texts cut to their ends; of many short ones only their size is left.
pub fn short_arguments(args: &Value) -> Cow<'_, Value> {
    let mut args = Cow::Borrowed(args);
    if has_long_text(&args) {
        shorten(args.to_mut());
    }
    let size = args.to_string().len();
    if size <= MAX_ARGUMENTS_BYTES {
        args
    } else {
        Cow::Owned(json!({ "omitted": format!("{size} bytes of arguments") }))
    }
}

/// What a call reads of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Read {
    path: String,
    /// Its `offset` and `limit`; `None` for the file from its beginning.
    range: Option<String>,
}

fn reads(call: &PastCall<'_>) -> Option<Read> {
    let path = call.args.get("path")?.as_str().filter(|_| call.tool == "read_file")?;
    let part = |name: &str| call.args.get(name).filter(|value| !value.is_null()).map(Value::to_string);
    let range = match (part("offset"), part("limit")) {
        (None, None) => None,
        (offset, limit) => Some(format!("{}+{}", offset.unwrap_or_default(), limit.unwrap_or_default())),
    };
    Some(Read { path: path.trim_start_matches("./").to_owned(), range })
}

/// A call without what it answered.
fn subject(call: &PastCall<'_>) -> String {
    format!("{} {}", call.tool, call.args)
}

fn has_long_text(value: &Value) -> bool {
    match value {
        Value::String(text) => text.len() > MAX_ARGUMENT_BYTES,
        Value::Array(items) => items.iter().any(has_long_text),
        Value::Object(fields) => fields.values().any(has_long_text),
        _ => false,
    }
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(long) => *long = text::head_and_tail(long, MAX_ARGUMENT_BYTES),
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
