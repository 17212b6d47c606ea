//! History: the part of a conversation that is sent along with the next goal. Pure.

use std::ops::Range;

use protocol::{Turn, TurnPart, TurnRole, limits, text, tokens};
use serde_json::{Value, json};

use crate::domain::{Part, TaskState};

/// Tokens that a part takes beside its text.
const PART_OVERHEAD_TOKENS: u64 = 4;

/// One earlier task: what was asked, and what its newest attempt answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub question: Vec<Part>,
    pub answer: Vec<Part>,
    pub state: TaskState,
}

/// Takes exchanges, newest first, until the agent's window is full enough.
#[derive(Clone, Debug)]
pub struct History {
    /// Tokens that are left.
    left: u64,
    /// Newest first.
    turns: Vec<Turn>,
    cut: bool,
}

impl History {
    /// For a context window of this many tokens.
    pub fn new(window: Option<u64>) -> Self {
        let window = window.filter(|window| *window > 0).unwrap_or(limits::DEFAULT_CONTEXT_WINDOW_TOKENS);
        Self { left: window.saturating_mul(limits::MAX_HISTORY_PERCENT as u64) / 100, turns: Vec::new(), cut: false }
    }

    /// Takes the next older exchange. `false` when no more fits.
    pub fn take(&mut self, exchange: &Exchange) -> bool {
        turns(exchange).into_iter().rev().all(|turn| self.turn(turn))
    }

    fn turn(&mut self, mut turn: Turn) -> bool {
        if self.cut || turn.parts.is_empty() {
            return !self.cut;
        }
        if cost(&turn) > self.left && self.turns.is_empty() {
            // Better the ends of the newest turn than nothing at all.
            shorten(&mut turn, self.left);
        }
        let cost = cost(&turn);
        if cost > self.left {
            self.cut = true;
            return false;
        }
        self.left -= cost;
        self.turns.push(turn);
        true
    }

    /// The turns, oldest first, with a notice in place of what was left out.
    pub fn finish(mut self) -> Vec<Turn> {
        if self.cut {
            let notice = TurnPart::Notice { text: "Earlier turns of this conversation were left out.".into() };
            match self.turns.last_mut() {
                Some(turn) if turn.role == TurnRole::User => turn.parts.insert(0, notice),
                _ => self.turns.push(Turn { role: TurnRole::User, parts: vec![notice] }),
            }
        }
        self.turns.reverse();
        self.turns
    }
}

fn said(parts: &[Part]) -> Vec<TurnPart> {
    let text = |part: &Part| match part {
        Part::Text { text, .. } | Part::Summary { text } => Some(TurnPart::Text { text: text.clone() }),
        _ => None,
    };
    joined(parts, |_, part| text(part))
}

/// What is sent of each part. A text that goes on in the next part is one text.
fn joined(parts: &[Part], sent: impl Fn(usize, &Part) -> Option<TurnPart>) -> Vec<TurnPart> {
    let mut turn: Vec<TurnPart> = Vec::new();
    for (n, part) in parts.iter().enumerate() {
        let goes_on = n > 0 && parts[n - 1].goes_on_in(Some(part));
        match (turn.last_mut().filter(|_| goes_on), sent(n, part)) {
            (Some(TurnPart::Text { text }), Some(TurnPart::Text { text: more })) => text.push_str(&more),
            (_, sent) => turn.extend(sent),
        }
    }
    turn
}

/// The turns of an exchange: what was said to its task while it ran stands where its agent was told. The last one is the
/// agent's; without a word of it, it says how its task ended.
fn turns(exchange: &Exchange) -> Vec<Turn> {
    let mut turns = vec![Turn { role: TurnRole::User, parts: said(&exchange.question) }];
    let mut add = |role, mut parts: Vec<TurnPart>| match turns.last_mut().filter(|last| last.role == role) {
        Some(last) => last.parts.append(&mut parts),
        None if parts.is_empty() => {}
        None => turns.push(Turn { role, parts }),
    };
    let mut from = 0;
    for (n, part) in exchange.answer.iter().enumerate() {
        if let Part::Message { text, .. } = part {
            add(TurnRole::Assistant, answer(exchange, from..n));
            add(TurnRole::User, vec![TurnPart::Text { text: text.clone() }]);
            from = n + 1;
        }
    }
    let rest = answer(exchange, from..exchange.answer.len());
    add(TurnRole::Assistant, if rest.is_empty() { vec![unsaid(exchange.state)] } else { rest });
    turns
}

/// Text, and calls with their results, of some parts of an answer.
fn answer(exchange: &Exchange, range: Range<usize>) -> Vec<TurnPart> {
    let from = range.start;
    let result_of = |id: &str, after: usize| {
        exchange.answer[after..].iter().find_map(|part| match part {
            Part::ToolResult { call_id, result, ok, .. } if call_id == id => Some((plain(result), *ok)),
            _ => None,
        })
    };
    // Whether the call was made with other arguments, which follow.
    let is_changed = |id: &str, after: usize| {
        let of_call = exchange.answer[after + 1..].iter().find(|part| match part {
            Part::ToolCall { call_id, .. } | Part::ToolResult { call_id, .. } => call_id == id,
            _ => false,
        });
        matches!(of_call, Some(Part::ToolCall { .. }))
    };
    let sent = |n: usize, part: &Part| match part {
        Part::Text { text, .. } | Part::Summary { text } => Some(TurnPart::Text { text: text.clone() }),
        Part::ToolCall { call_id, tool, args, .. } if !is_changed(call_id, from + n) => {
            let (result, ok) =
                result_of(call_id, from + n).unwrap_or_else(|| ("The task ended before the result.".into(), false));
            let result = text::head_and_tail(&result, limits::MAX_HISTORY_TOOL_TEXT_BYTES);
            Some(TurnPart::ToolCall { call_id: call_id.clone(), tool: tool.clone(), args: short(args), result, ok })
        }
        _ => None,
    };
    joined(&exchange.answer[range], sent)
}

/// What stands for an agent that said nothing.
fn unsaid(state: TaskState) -> TurnPart {
    let text = match state {
        TaskState::Completed => "The task was completed without a word.",
        TaskState::Error => "The task failed before anything was said.",
        TaskState::Stopped => "The task was stopped before anything was said.",
        TaskState::Pending | TaskState::Running => "The task has not said anything yet.",
    };
    TurnPart::Notice { text: text.into() }
}

fn plain(result: &Value) -> String {
    result.as_str().map_or_else(|| result.to_string(), str::to_owned)
}

/// Arguments stay an object, as every provider wants them.
fn short(args: &Value) -> Value {
    let whole = args.to_string();
    if whole.len() <= limits::MAX_HISTORY_TOOL_TEXT_BYTES {
        return args.clone();
    }
    json!({ "shortened": text::head_and_tail(&whole, limits::MAX_HISTORY_TOOL_TEXT_BYTES) })
}

fn cost(turn: &Turn) -> u64 {
    let part = |part: &TurnPart| {
        PART_OVERHEAD_TOKENS
            + match part {
                TurnPart::Text { text } | TurnPart::Notice { text } => tokens::estimate(text),
                TurnPart::ToolCall { tool, args, result, .. } => {
                    tokens::estimate(tool) + tokens::estimate(&args.to_string()) + tokens::estimate(result)
                }
            }
    };
    turn.parts.iter().map(part).sum()
}

/// Keeps the ends of the last text, and drops the rest.
fn shorten(turn: &mut Turn, tokens: u64) {
    let last = turn.parts.iter().rev().find_map(|part| match part {
        TurnPart::Text { text } => Some(text.clone()),
        _ => None,
    });
    let bytes = usize::try_from(tokens.saturating_sub(PART_OVERHEAD_TOKENS) * 4).unwrap_or(usize::MAX);
    turn.parts = last.map(|last| TurnPart::Text { text: text::head_and_tail(&last, bytes) }).into_iter().collect();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exchange(question: &str, answer: &str) -> Exchange {
        let text = |text: &str| vec![Part::text(text)];
        Exchange { question: text(question), answer: text(answer), state: TaskState::Completed }
    }

    #[test]
    fn the_newest_turns_stay_and_a_notice_stands_for_the_rest() {
        let mut history = History::new(Some(1000));
        let long = "x".repeat(800);
        let taken = (0..10).take_while(|n| history.take(&exchange(&format!("q{n}"), &long))).count();
        assert_eq!(taken, 2);
        let turns = history.finish();
        assert!(matches!(&turns[0].parts[0], TurnPart::Notice { text } if text.contains("left out")));
        assert!(matches!(&turns.last().expect("turns").parts[0], TurnPart::Text { text } if *text == long));
    }

    #[test]
    fn a_text_in_several_parts_is_one_text() {
        let long = |text: &str| Part::Text { text: text.into(), continues: true };
        let mut one = exchange("do it", "end");
        one.answer.splice(0..0, [long("begin"), long("ning, "), Part::text("middle"), long("the ")]);
        let mut history = History::new(None);
        assert!(history.take(&one));
        let text = |text: &str| TurnPart::Text { text: text.into() };
        assert_eq!(history.finish()[1].parts, [text("beginning, middle"), text("the end")]);
    }

    #[test]
    fn what_was_said_meanwhile_stands_where_the_agent_was_told() {
        let told = |text: &str| Part::Message {
            id: protocol::MessageId::new(1),
            author: "op_1".into(),
            name: "Ada".into(),
            mode: protocol::InjectionPoint::Steer,
            text: text.into(),
            files: Vec::new(),
            seq: 1,
        };
        let mut one = exchange("do it", "as you like");
        one.answer.splice(0..0, [told("quickly"), Part::text("I begin"), told("stop that"), told("do this")]);
        let mut history = History::new(None);
        assert!(history.take(&one));
        let turns = history.finish();
        let words = |n: usize| {
            let text = |part: &TurnPart| match part {
                TurnPart::Text { text } => text.clone(),
                other => panic!("{other:?}"),
            };
            turns[n].parts.iter().map(text).collect::<Vec<_>>().join("|")
        };
        let all: Vec<String> = (0..turns.len()).map(words).collect();
        assert_eq!(all, ["do it|quickly", "I begin", "stop that|do this", "as you like"]);
    }

    #[test]
    fn calls_carry_their_results_and_reasoning_stays_at_home() {
        let mut one = exchange("do it", "done");
        let call = |id: &str| Part::ToolCall {
            call_id: id.into(),
            tool: "shell".into(),
            args: json!({"a": "b".repeat(9000)}),
            at: None,
        };
        let result = json!("r".repeat(9000));
        let parts = [
            Part::Reasoning { text: "hm".into(), duration_ms: 1 },
            call("c1"),
            call("c2"),
            Part::ToolResult { call_id: "c1".into(), tool: "shell".into(), result, ok: true, duration_ms: 1 },
        ];
        one.answer.splice(0..0, parts);
        let mut history = History::new(None);
        assert!(history.take(&one));
        let turns = history.finish();
        let parts = &turns[1].parts;
        assert_eq!((turns[0].role, turns[1].role, parts.len()), (TurnRole::User, TurnRole::Assistant, 3));
        assert!(
            matches!(&parts[0], TurnPart::ToolCall { result, ok: true, args, .. } if result.len() <= 2048 && args.is_object())
        );
        assert!(matches!(&parts[1], TurnPart::ToolCall { ok: false, .. }));
    }

    #[test]
    fn a_call_is_told_with_the_arguments_that_it_was_made_with() {
        let call = |command: &str| Part::ToolCall {
            call_id: "c1".into(),
            tool: "shell".into(),
            args: json!({ "command": command }),
            at: None,
        };
        let result = Part::ToolResult {
            call_id: "c1".into(),
            tool: "shell".into(),
            result: json!("gone"),
            ok: true,
            duration_ms: 1,
        };
        let mut one = exchange("do it", "done");
        one.answer.splice(0..0, [call("rm -r build"), call("rm build/x"), result]);
        let mut history = History::new(None);
        assert!(history.take(&one));
        let turns = history.finish();
        assert_eq!(turns[1].parts.len(), 2);
        assert!(matches!(&turns[1].parts[0], TurnPart::ToolCall { args, .. } if args["command"] == "rm build/x"));
    }

    proptest! {
        #[test]
        fn it_never_exceeds_its_share(sizes in prop::collection::vec((0usize..4000, 0usize..4000), 0..12), window in 1u64..8000) {
            let mut history = History::new(Some(window));
            for (question, answer) in sizes {
                if !history.take(&exchange(&"q".repeat(question), &"a".repeat(answer))) {
                    break;
                }
            }
            let turns = history.finish();
            let notice = 32;
            prop_assert!(turns.iter().map(cost).sum::<u64>() <= window * 60 / 100 + notice);
            for pair in turns.windows(2) {
                prop_assert_ne!(pair[0].role, pair[1].role);
            }
        }
    }
}
