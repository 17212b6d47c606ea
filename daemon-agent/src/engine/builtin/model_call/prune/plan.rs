//! What of a conversation is carried on when it must become smaller: pure, and the same for the same conversation.
//!
//! Shortens calls of tools and their results, the oldest first, and leaves out the oldest calls, each with its result. What
//! people and the model said stays, and what people pinned. The calls of the newest answer, whose results the model has not
//! read yet, come last.

use std::{
    cell::OnceCell,
    collections::{HashMap, HashSet},
};

use protocol::{
    prune::{self, PastCall, ResultCaps, ResultShare},
    tokens,
};
use serde_json::Value;

use crate::{
    model::{AssistantMessage, Message, ToolCall},
    prompt::conversation_tokens,
    tools::{self, READ_OUTPUT},
};

/// Tokens that a conversation may take.
#[derive(Clone, Copy, Debug)]
pub struct ConversationRoom {
    /// After it was shortened, if that can be had.
    pub goal: u64,
    /// At most, and no less than the goal: what is within it stays as it is. For this the newest calls are shortened, too.
    pub limit: u64,
}

/// What is to be heeded of calls, by their ids.
#[derive(Clone, Debug, Default)]
pub struct CallMarks {
    /// These stay as they are, whatever room they take.
    pub pinned: HashSet<String>,
    /// The whole results of these are kept nowhere: no line says how to read them again.
    pub lost: HashSet<String>,
}

/// A shorter conversation, and what became of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrunedConversation {
    pub messages: Vec<Message>,
    /// Results that are not whole any more, but those of `read_output`: the ids of their calls, and the results as they were.
    pub shortened: Vec<(String, String)>,
    /// Results of which a line is left.
    pub lines: usize,
    /// Results of which the ends are left.
    pub cut: usize,
    /// Calls whose results stay, but not all of their arguments.
    pub short_arguments: usize,
    /// Pictures of results that are carried without them.
    pub pictures: usize,
    /// Calls that are not carried any more.
    pub left_out: usize,
    /// Tokens.
    pub freed: u64,
}

/// How much of the calls before the newest answer is carried.
#[derive(Clone, Copy, Debug)]
struct Rung {
    /// The newest of them keep their results.
    keep: usize,
    /// Runs of tests and the like that keep theirs, however old they are.
    checks: usize,
    /// Most tokens of a result that is kept.
    cap: u64,
    /// Calls that are carried at all.
    carried: usize,
}

const fn rung(keep: usize, checks: usize, cap: u64, carried: usize) -> Rung {
    Rung { keep, checks, cap, carried }
}

/// The way down: each rung carries less than the one before.
const RUNGS: &[Rung] = &[
    rung(24, prune::MAX_KEPT_CHECKS, u64::MAX, 512),
    rung(12, prune::MAX_KEPT_CHECKS, u64::MAX, 512),
    rung(6, prune::MAX_KEPT_CHECKS, u64::MAX, 256),
    rung(4, prune::MAX_KEPT_CHECKS, u64::MAX, 256),
    rung(3, prune::MAX_KEPT_CHECKS, u64::MAX, 256),
    rung(2, prune::MAX_KEPT_CHECKS, u64::MAX, 256),
    rung(2, prune::MAX_KEPT_CHECKS, 4_000, 256),
    rung(2, prune::MAX_KEPT_CHECKS, 2_000, 128),
    rung(2, 4, 1_000, 128),
    rung(2, 4, 500, 64),
    rung(1, 2, 250, 64),
    rung(1, 1, 100, 32),
    LAST_RUNG,
];
const LAST_RUNG: Rung = rung(0, 0, 64, 0);
/// Results that are kept with fewer tokens lose long arguments and pictures, too: what was written to a file and what was shown
/// lies on disk.
const WHOLE_ARGUMENTS_TOKENS: u64 = 4_000;
/// The same for the newest answer's calls: bounds of their results, the mildest first.
const NEWEST_CAPS: &[u64] = &[4_000, 2_000, 1_000, 500, 250, 100, 32];
/// Newest calls whose results are kept with fewer tokens lose long arguments and pictures.
const WHOLE_NEWEST_ARGUMENTS_TOKENS: u64 = 1_000;

/// What stands in the place of calls that were left out.
const LEFT_OUT_START: &str = "[Calls of tools that were made here and are left out, with their results: ";

/// The conversation within its room as far as that is possible; `None` if it is within its limit already, or nothing of it
/// can be shortened.
///
/// Within the goal if that can be had without the newest answer's calls; else these stay whole as long as the limit is kept.
pub fn prune(
    messages: &[Message],
    caps: &ResultCaps,
    room: ConversationRoom,
    marks: &CallMarks,
) -> Option<PrunedConversation> {
    let conversation = Conversation::of(messages, marks);
    let now = conversation.tokens;
    if now <= room.limit {
        return None;
    }
    let step = |rung: Rung, newest_cap: u64| conversation.shortened(caps, rung, newest_cap);
    let least = step(LAST_RUNG, u64::MAX);
    let least_tokens = now.saturating_sub(least.freed);
    let pruned = if least_tokens > room.limit {
        let newest = NEWEST_CAPS.iter().map(|cap| step(LAST_RUNG, *cap));
        within(newest, now, room.limit).unwrap_or(least)
    } else {
        // Where the goal cannot be had, half of what can be is left to the next calls.
        let halfway = least_tokens + (room.limit - least_tokens) / 2;
        let goal = if least_tokens > room.goal { halfway } else { room.goal };
        within(RUNGS.iter().map(|rung| step(*rung, u64::MAX)), now, goal).unwrap_or(least)
    };
    (pruned.freed > 0).then_some(pruned)
}

/// The first step that leaves at most so many tokens of those that there are now, else the last one.
fn within(steps: impl Iterator<Item = PrunedConversation>, now: u64, most: u64) -> Option<PrunedConversation> {
    let mut last = None;
    for step in steps {
        let fits = now.saturating_sub(step.freed) <= most;
        last = Some(step);
        if fits {
            break;
        }
    }
    last
}

/// A call that was answered.
struct AnsweredCall<'a> {
    call: &'a ToolCall,
    args: Value,
    result: &'a str,
    ok: bool,
    pictures: usize,
    is_pinned: bool,
    /// All of its result can be read again, by its id.
    is_readable: bool,
    /// Where its result stands.
    at: usize,
    /// The result as a line, and the arguments that go with it: looked for once, however many rungs are tried.
    line: OnceCell<String>,
    short_arguments: OnceCell<Value>,
}

/// A call as it is carried on.
struct CarriedCall {
    call: ToolCall,
    result: String,
    /// Whether the pictures of its result go with it.
    has_pictures: bool,
}

/// A conversation, and what of it can be shortened.
struct Conversation<'a> {
    messages: &'a [Message],
    tokens: u64,
    /// In their order.
    calls: Vec<AnsweredCall<'a>>,
    /// Which of them each result is of, by its place.
    results: HashMap<usize, usize>,
    /// The first call of the newest answer.
    newest: usize,
    /// What is left of each call's result while all are kept: of a file that is read again later, a line.
    whole: Vec<ResultShare>,
    /// The newest runs of tests and the like before the newest answer, the newest first.
    checks: Vec<usize>,
}

impl<'a> Conversation<'a> {
    fn of(messages: &'a [Message], marks: &CallMarks) -> Self {
        let (mut calls, mut newest) = (Vec::new(), 0);
        for (n, message) in messages.iter().enumerate() {
            let Message::Assistant(said) = message else { continue };
            newest = calls.len();
            for call in &said.calls {
                let answers = messages.iter().enumerate().skip(n + 1);
                let mut answers = answers.take_while(|(_, message)| !matches!(message, Message::Assistant(_)));
                let answer = answers.find_map(|(at, message)| match message {
                    Message::Tool { call_id, content, ok, pictures, .. } if *call_id == call.id => {
                        Some((at, content, *ok, pictures.len()))
                    }
                    _ => None,
                });
                let Some((at, result, ok, pictures)) = answer else { continue };
                let (args, is_pinned) = (call.object(), marks.pinned.contains(&call.id));
                let is_readable = call.name != READ_OUTPUT && !marks.lost.contains(&call.id);
                let (line, short_arguments) = Default::default();
                calls.push(AnsweredCall {
                    call,
                    args,
                    result,
                    ok,
                    pictures,
                    is_pinned,
                    is_readable,
                    at,
                    line,
                    short_arguments,
                });
            }
        }
        let results = calls.iter().enumerate().map(|(n, call)| (call.at, n)).collect();
        let past: Vec<PastCall<'_>> = calls.iter().map(AnsweredCall::past).collect();
        let whole = prune::shares(&past, 0);
        let evidence = prune::shares(&past, past.len());
        let is_check = |n: &usize| evidence[*n] == ResultShare::Text && !calls[*n].is_pinned;
        let checks = (0..newest).rev().filter(is_check).collect();
        Self { messages, tokens: conversation_tokens(messages), calls, results, newest, whole, checks }
    }

    /// What a rung leaves of a call's result.
    fn share(&self, n: usize, rung: Rung) -> ResultShare {
        let is_kept = n + rung.keep >= self.newest && self.whole[n] == ResultShare::Text;
        let is_check = self.checks.iter().take(rung.checks).any(|check| *check == n);
        let stays = n >= self.newest || is_kept || is_check || self.calls[n].is_pinned;
        if stays { ResultShare::Text } else { ResultShare::Line }
    }

    /// The conversation with less of the calls before the newest answer, and results of that answer's calls within
    /// `newest_cap`.
    fn shortened(&self, caps: &ResultCaps, rung: Rung, newest_cap: u64) -> PrunedConversation {
        let mut pruned = PrunedConversation::default();
        let (caps_before, newest_caps) = (caps.at_most(rung.cap), caps.at_most(newest_cap));
        let mut carried = Vec::new();
        for (n, call) in self.calls.iter().enumerate() {
            let share = self.share(n, rung);
            let is_left_out = n + rung.carried < self.newest && share == ResultShare::Line;
            // Without its pictures as well.
            let (result, has_short_arguments) = match share {
                _ if call.is_pinned => (call.result.to_owned(), false),
                ResultShare::Line => (call.line().to_owned(), true),
                ResultShare::Text if n < self.newest => (call.within(&caps_before), rung.cap < WHOLE_ARGUMENTS_TOKENS),
                ResultShare::Text => (call.within(&newest_caps), newest_cap < WHOLE_NEWEST_ARGUMENTS_TOKENS),
            };
            let args = if has_short_arguments { call.short_arguments() } else { &call.args };
            if is_left_out {
                pruned.left_out += 1;
            } else if result != call.result {
                *if share == ResultShare::Line { &mut pruned.lines } else { &mut pruned.cut } += 1;
            } else if *args != call.args {
                pruned.short_arguments += 1;
            }
            if has_short_arguments && !is_left_out {
                pruned.pictures += call.pictures;
            }
            if call.call.name != READ_OUTPUT && (is_left_out || result != call.result) {
                pruned.shortened.push((call.call.id.clone(), call.result.to_owned()));
            }
            let args = if *args == call.args { call.call.args.clone() } else { Ok(args.clone()) };
            let call = ToolCall { args, ..call.call.clone() };
            carried.push((!is_left_out).then_some(CarriedCall { call, result, has_pictures: !has_short_arguments }));
        }
        pruned.messages = self.put_together(&carried, pruned.left_out);
        pruned.freed = self.tokens.saturating_sub(conversation_tokens(&pruned.messages));
        pruned
    }

    /// The messages with the calls as they are carried, `None` where one is left out.
    fn put_together(&self, carried: &[Option<CarriedCall>], left_out: usize) -> Vec<Message> {
        let (mut messages, mut next) = (Messages::default(), 0);
        for (at, message) in self.messages.iter().enumerate() {
            match message {
                Message::User(text) if left_out_before(text).is_some() => messages.leave_out(),
                Message::Assistant(said) => {
                    let mut calls = Vec::new();
                    let mut is_reduced = false;
                    for call in &said.calls {
                        // One without a result is not among the others.
                        if !self.calls.get(next).is_some_and(|known| std::ptr::eq(known.call, call)) {
                            calls.push(call.clone());
                            continue;
                        }
                        match &carried[next] {
                            Some(carried) => calls.push(carried.call.clone()),
                            None => is_reduced = true,
                        }
                        next += 1;
                    }
                    if is_reduced {
                        messages.leave_out();
                    }
                    messages.say(AssistantMessage { calls, ..said.clone() }, is_reduced);
                }
                Message::Tool { call_id, tool, ok, pictures, .. } => {
                    match self.results.get(&at).map(|n| &carried[*n]) {
                        Some(Some(carried)) => {
                            let (call_id, tool, content) = (call_id.clone(), tool.clone(), carried.result.clone());
                            let pictures = if carried.has_pictures { pictures.clone() } else { Vec::new() };
                            messages.all.push(Message::Tool { call_id, tool, content, ok: *ok, pictures });
                        }
                        Some(None) => {}
                        None => messages.all.push(message.clone()),
                    }
                }
                other => messages.all.push(other.clone()),
            }
        }
        let before = self.messages.iter().filter_map(|message| match message {
            Message::User(text) => left_out_before(text),
            _ => None,
        });
        let all = left_out + before.sum::<usize>();
        if let Some(at) = messages.left_out {
            messages.all[at] = Message::User(format!("{LEFT_OUT_START}{all}]"));
        }
        messages.all
    }
}

/// Messages that are put together.
#[derive(Default)]
struct Messages {
    all: Vec<Message>,
    /// Where it is said that calls were left out.
    left_out: Option<usize>,
    /// The last message was shortened: an answer that follows it directly is one with it.
    joins: bool,
}

impl Messages {
    /// Calls are left out here, or were before.
    fn leave_out(&mut self) {
        if self.left_out.is_none() {
            self.left_out = Some(self.all.len());
            self.all.push(Message::User(String::new()));
        }
    }

    /// Adds an answer. One that lost calls may be left without any, and providers refuse two answers in a row, and one that
    /// says nothing.
    fn say(&mut self, mut said: AssistantMessage, is_reduced: bool) {
        let joins = std::mem::replace(&mut self.joins, is_reduced && said.calls.is_empty());
        if self.joins {
            said.reasoning.clear();
        }
        match self.all.last_mut() {
            Some(Message::Assistant(before)) if joins && before.calls.is_empty() => {
                let words = [std::mem::take(&mut before.text), std::mem::take(&mut said.text)];
                said.text = words.into_iter().filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n\n");
                *before = said;
            }
            _ if self.joins && said.text.trim().is_empty() => {}
            _ => self.all.push(Message::Assistant(said)),
        }
    }
}

/// How many calls were left out before this message, if it says so.
fn left_out_before(text: &str) -> Option<usize> {
    let count: u32 = text.strip_prefix(LEFT_OUT_START)?.strip_suffix(']')?.parse().ok()?;
    usize::try_from(count).ok()
}

impl AnsweredCall<'_> {
    fn past(&self) -> PastCall<'_> {
        let result = tools::without_hint(self.result);
        PastCall { tool: &self.call.name, args: &self.args, result, ok: self.ok, is_pinned: self.is_pinned }
    }

    /// The result as a line, if that is shorter.
    fn line(&self) -> &str {
        self.line.get_or_init(|| {
            let line = prune::line(&self.past());
            let line = if self.is_readable { prune::with_call_id(line, &self.call.id) } else { line };
            if line.len() < self.result.len() { line } else { self.result.to_owned() }
        })
    }

    fn short_arguments(&self) -> &Value {
        self.short_arguments.get_or_init(|| prune::short_arguments(&self.args).into_owned())
    }

    fn within(&self, caps: &ResultCaps) -> String {
        let cap = caps.of(&self.call.name);
        if self.is_readable {
            tools::cut(self.result, &self.call.id, cap)
        } else {
            tokens::head_and_tail(self.result, cap)
        }
    }
}

#[cfg(test)]
mod tests;
