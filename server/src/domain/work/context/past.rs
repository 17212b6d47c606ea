//! A session's past as far as a plan can use it: turns with their calls, prepared once for however many plans.

use std::collections::HashMap;

use protocol::{
    MessageId, TurnPart, TurnRole,
    prune::{self, PastCall, ResultCaps, ResultShare},
    tokens, tool_result,
};
use serde_json::Value;

use super::{Exchange, PastMessage, Pins, Summary};
use crate::domain::{MessageRole, Part, TaskState};

/// Tokens that a part takes beside its text.
const PART_TOKENS: u64 = 4;
/// Bytes of calls with their results that are kept as they were; of older calls a line is.
pub(super) const MAX_WHOLE_CALLS_BYTES: u64 = 32 * 1024 * 1024;
/// Bytes of what was said that are kept: of turns behind so much text nothing is.
pub(super) const MAX_WORDS_BYTES: u64 = 16 * 1024 * 1024;

/// A session's past, read from its newest turn on until no older one can be carried.
#[derive(Clone, Debug)]
pub struct Past {
    /// Newest first, without a gap.
    turns: Vec<PastExchange>,
    /// Older turns with pins, newest first: there may be others between them.
    older: Vec<PastExchange>,
    pins: Pins,
    summary: Option<Summary>,
    /// Nothing is missing before the oldest turn but what the summary stands for.
    is_whole: bool,
    /// The most that a plan may take, and the least that these turns take, tokens.
    room: u64,
    least: u64,
    taken: TakenBytes,
}

/// Bytes of the turns that were taken, as they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakenBytes {
    pub words: u64,
    /// Calls with their results.
    pub calls: u64,
}

impl Past {
    /// Nothing yet, to be read for plans of at most `room` tokens.
    pub fn new(room: u64, pins: Pins, summary: Option<Summary>) -> Self {
        Self {
            turns: Vec::new(),
            older: Vec::new(),
            pins,
            summary,
            is_whole: false,
            room,
            least: 0,
            taken: TakenBytes::default(),
        }
    }

    /// Takes the next older turn. `false` when no older one is needed.
    pub fn take(&mut self, exchange: Exchange) -> bool {
        if self.summary.as_ref().is_some_and(|summary| exchange.question.seq <= summary.up_to) {
            self.is_whole = true;
            return false;
        }
        let turn = self.prepared(exchange);
        self.least += turn.least();
        self.turns.push(turn);
        self.least <= self.room && self.taken.words <= MAX_WORDS_BYTES
    }

    fn prepared(&mut self, exchange: Exchange) -> PastExchange {
        let mut turn = PastExchange::of(exchange, &self.pins);
        self.taken.words += turn.words_bytes();
        self.taken.calls += turn.calls().map(|call| call.bytes).sum::<u64>();
        if self.taken.calls > MAX_WHOLE_CALLS_BYTES {
            turn.shorten_calls();
        }
        turn
    }

    /// How much was taken.
    pub fn taken(&self) -> TakenBytes {
        self.taken
    }

    /// There is no older turn.
    pub fn end(&mut self) {
        self.is_whole = true;
    }

    /// The same where a text of no length stands for what came up to a message.
    #[must_use]
    pub fn compacted(&self, up_to: u64) -> Self {
        let is_newer = |turn: &&PastExchange| turn.question.seq > up_to;
        let newer: Vec<_> = self.turns.iter().filter(is_newer).cloned().collect();
        let pinned = self.turns.iter().filter(|turn| !is_newer(turn) && turn.has_pin()).cloned();
        let summary = Some(Summary { text: String::new(), up_to });
        let least = newer.iter().map(PastExchange::least).sum();
        let older = pinned.chain(self.older.iter().cloned()).collect();
        Self { turns: newer, older, pins: self.pins.clone(), summary, is_whole: true, least, ..*self }
    }

    /// Where the turns begin that have pins and are older than what was taken.
    pub fn pinned_before(&self) -> Vec<u64> {
        self.pins.places_below(self.turns.last().map_or(u64::MAX, |turn| turn.question.seq))
    }

    /// Takes the next older one of these.
    pub fn take_pinned(&mut self, exchange: Exchange) {
        let turn = self.prepared(exchange);
        self.older.push(turn);
    }

    /// Seq of the newest question.
    pub fn newest(&self) -> Option<u64> {
        self.turns.first().map(|turn| turn.question.seq)
    }

    /// Estimated tokens of the newest question.
    pub fn newest_question(&self) -> u64 {
        let pieces = self.turns.first().into_iter().flat_map(PastExchange::pieces);
        let asked = pieces.filter(|piece| piece.of == MessageRole::User).map(|piece| match &piece.body {
            PieceBody::Words(part) => cost(part),
            PieceBody::Call(_) => 0,
        });
        asked.sum()
    }

    /// Whether calls were made whose results are carried.
    pub fn has_results(&self) -> bool {
        self.turns.iter().any(|turn| turn.calls().next().is_some())
    }

    /// Whether something was said before the newest turn.
    pub fn has_earlier_turns(&self) -> bool {
        self.turns.len() > 1
    }

    pub(super) fn turns(&self) -> &[PastExchange] {
        &self.turns
    }

    pub(super) fn older(&self) -> &[PastExchange] {
        &self.older
    }

    pub(super) fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Whether all of it may fit: what is surely too much need not be tried.
    pub(super) fn may_fit(&self, room: u64) -> bool {
        self.is_whole && self.least <= room
    }
}

/// A message without its parts.
#[derive(Clone, Debug)]
pub(super) struct MessageHead {
    pub(super) id: Option<MessageId>,
    pub(super) seq: u64,
    pub(super) is_pinned: bool,
    /// It or one of its calls.
    pub(super) has_pin: bool,
}

/// An exchange as turns: what was said to its task while it ran stands where its agent was told. The first is the asker's, the
/// last one the agent's; without a word of it, it says how its task ended.
#[derive(Clone, Debug)]
pub(super) struct PastExchange {
    pub(super) question: MessageHead,
    pub(super) answer: MessageHead,
    pub(super) turns: Vec<PastTurn>,
}

#[derive(Clone, Debug)]
pub(super) struct PastTurn {
    pub(super) role: TurnRole,
    pub(super) pieces: Vec<Piece>,
}

/// A part of a turn, and whose message it is in.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) of: MessageRole,
    pub(super) body: PieceBody,
}

#[derive(Clone, Debug)]
pub(super) enum PieceBody {
    /// A text or a notice.
    Words(TurnPart),
    Call(MadeCall),
}

/// A call with its result as the model read it.
#[derive(Clone, Debug)]
pub(super) struct MadeCall {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) args: Value,
    pub(super) args_tokens: u64,
    pub(super) result: String,
    pub(super) ok: bool,
    pub(super) is_pinned: bool,
    /// Bytes of both as they came.
    pub(super) bytes: u64,
    /// A line is left of it.
    pub(super) is_shortened: bool,
}

impl MadeCall {
    /// Leaves what a request carries of it that keeps a line of its result.
    fn shorten(&mut self) {
        let (args, result) = prune::carried(&self.as_past(), ResultShare::Line, &ResultCaps::default());
        let is_shortened = result != self.result || *args != self.args;
        let args = args.into_owned();
        self.args_tokens = tokens::estimate(&args.to_string());
        (self.args, self.result, self.is_shortened) = (args, result, is_shortened);
    }

    pub(super) fn as_past(&self) -> PastCall<'_> {
        PastCall { tool: &self.tool, args: &self.args, result: &self.result, ok: self.ok, is_pinned: self.is_pinned }
    }
}

impl PastExchange {
    fn of(exchange: Exchange, pins: &Pins) -> Self {
        let Exchange { question, answer, state } = exchange;
        let head = |message: &PastMessage| {
            let ids = || message.earlier.iter().chain(&message.id);
            let is_pinned = ids().any(|id| pins.has_message(id));
            let has_pin = is_pinned || ids().any(|id| !pins.calls_of(id).is_empty());
            MessageHead { id: message.id.clone(), seq: message.seq, is_pinned, has_pin }
        };
        let heads = (head(&question), head(&answer));
        let ids: Vec<MessageId> = answer.earlier.into_iter().chain(answer.id).collect();
        let is_pinned = |call: &str| ids.iter().any(|id| pins.has_call(id, call));
        let mut builder = TurnsBuilder::default();
        for part in question.parts {
            let goes_on = matches!(part, Part::Text { continues: true, .. });
            if let Part::Text { text, .. } | Part::Summary { text } = part {
                builder.text(TurnRole::User, MessageRole::User, text, goes_on);
            }
        }
        if builder.turns.is_empty() {
            builder.notice(TurnRole::User, MessageRole::User, "What was asked is not here any more.");
        }
        builder.answer(answer.parts, is_pinned);
        if builder.turns.last().is_none_or(|turn| turn.role == TurnRole::User) {
            builder.notice(TurnRole::Assistant, MessageRole::Assistant, unsaid(state));
        }
        Self { question: heads.0, answer: heads.1, turns: builder.turns }
    }

    pub(super) fn message(&self, role: MessageRole) -> &MessageHead {
        match role {
            MessageRole::User => &self.question,
            MessageRole::Assistant => &self.answer,
        }
    }

    pub(super) fn has_pin(&self) -> bool {
        self.question.has_pin || self.answer.has_pin
    }

    pub(super) fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.turns.iter().flat_map(|turn| &turn.pieces)
    }

    pub(super) fn calls(&self) -> impl Iterator<Item = &MadeCall> {
        self.pieces().filter_map(|piece| match &piece.body {
            PieceBody::Call(call) => Some(call),
            PieceBody::Words(_) => None,
        })
    }

    fn words_bytes(&self) -> u64 {
        let bytes = |piece: &Piece| match &piece.body {
            PieceBody::Words(TurnPart::Text { text } | TurnPart::Notice { text }) => text.len() as u64,
            _ => 0,
        };
        self.pieces().map(bytes).sum()
    }

    /// Leaves a line of each call that is not pinned.
    fn shorten_calls(&mut self) {
        for piece in self.turns.iter_mut().flat_map(|turn| &mut turn.pieces) {
            if let PieceBody::Call(call) = &mut piece.body
                && !call.is_pinned
            {
                call.shorten();
            }
        }
    }

    /// Tokens when nothing but a line is left of its calls.
    fn least(&self) -> u64 {
        let caps = ResultCaps::default();
        let cost = |piece: &Piece| match &piece.body {
            PieceBody::Words(part) => cost(part),
            PieceBody::Call(call) => {
                let (args, result) = prune::carried(&call.as_past(), ResultShare::Line, &caps);
                call_cost(&call.tool, &args, &result)
            }
        };
        self.pieces().map(cost).sum()
    }
}

/// What becomes of a call further on in its message.
enum Fate {
    /// It was made with other arguments, which follow.
    Changed,
    Answered(Value, bool),
}

/// Appends pieces to turns.
#[derive(Default)]
struct TurnsBuilder {
    turns: Vec<PastTurn>,
    /// The last piece is a text that goes on.
    is_open: bool,
}

impl TurnsBuilder {
    fn piece(&mut self, role: TurnRole, of: MessageRole, body: PieceBody) {
        let piece = Piece { of, body };
        match self.turns.last_mut().filter(|turn| turn.role == role) {
            Some(turn) => turn.pieces.push(piece),
            None => self.turns.push(PastTurn { role, pieces: vec![piece] }),
        }
        self.is_open = false;
    }

    fn notice(&mut self, role: TurnRole, of: MessageRole, text: &str) {
        self.piece(role, of, PieceBody::Words(TurnPart::Notice { text: text.to_owned() }));
    }

    /// A text that goes on in the next part is one text.
    fn text(&mut self, role: TurnRole, of: MessageRole, text: String, goes_on: bool) {
        let last = self.turns.last_mut().filter(|_| self.is_open).and_then(|turn| turn.pieces.last_mut());
        match last.map(|piece| &mut piece.body) {
            Some(PieceBody::Words(TurnPart::Text { text: open })) => open.push_str(&text),
            _ => self.piece(role, of, PieceBody::Words(TurnPart::Text { text })),
        }
        self.is_open = goes_on;
    }

    /// Text, what was said meanwhile, and calls with their results.
    fn answer(&mut self, mut parts: Vec<Part>, is_pinned: impl Fn(&str) -> bool) {
        let mut fates = fates(&mut parts);
        let of = MessageRole::Assistant;
        for (n, part) in parts.into_iter().enumerate() {
            match part {
                Part::Text { text, continues } => self.text(TurnRole::Assistant, of, text, continues),
                Part::Summary { text } => self.text(TurnRole::Assistant, of, text, false),
                Part::Message { text, .. } => self.piece(TurnRole::User, of, PieceBody::Words(TurnPart::Text { text })),
                Part::ToolCall { call_id, tool, args, .. } => {
                    self.is_open = false;
                    let (result, ok) = match fates.remove(&n) {
                        Some(Fate::Changed) => continue,
                        Some(Fate::Answered(Value::String(text), ok)) => (text, ok),
                        Some(Fate::Answered(result, ok)) => (tool_result::text(&result), ok),
                        None => ("The task ended before the result.".to_owned(), false),
                    };
                    let written = args.to_string();
                    let (args_tokens, bytes) = (tokens::estimate(&written), (written.len() + result.len()) as u64);
                    let is_pinned = is_pinned(&call_id);
                    let made = MadeCall {
                        id: call_id,
                        tool,
                        args,
                        args_tokens,
                        result,
                        ok,
                        is_pinned,
                        bytes,
                        is_shortened: false,
                    };
                    self.piece(TurnRole::Assistant, of, PieceBody::Call(made));
                }
                _ => self.is_open = false,
            }
        }
    }
}

/// What becomes of the calls, by the places of their parts. Results are taken out of theirs.
fn fates(parts: &mut [Part]) -> HashMap<usize, Fate> {
    let mut next: HashMap<String, Fate> = HashMap::new();
    let mut fates = HashMap::new();
    for (n, part) in parts.iter_mut().enumerate().rev() {
        match part {
            Part::ToolCall { call_id, .. } => {
                if let Some(fate) = next.insert(call_id.clone(), Fate::Changed) {
                    fates.insert(n, fate);
                }
            }
            Part::ToolResult { call_id, result, ok, .. } => {
                next.insert(call_id.clone(), Fate::Answered(std::mem::take(result), *ok));
            }
            _ => {}
        }
    }
    fates
}

/// What stands for an agent that said nothing.
fn unsaid(state: TaskState) -> &'static str {
    match state {
        TaskState::Completed => "The task was completed without a word.",
        TaskState::Error => "The task failed before anything was said.",
        TaskState::Stopped => "The task was stopped before anything was said.",
        TaskState::Pending | TaskState::Running => "The task has not said anything yet.",
    }
}

/// Tokens of a text in a turn.
pub(super) fn words_cost(text: &str) -> u64 {
    PART_TOKENS + tokens::estimate(text)
}

/// Tokens of a call with its result.
pub(super) fn call_cost(tool: &str, args: &Value, result: &str) -> u64 {
    PART_TOKENS + tokens::estimate(tool) + tokens::estimate(&args.to_string()) + tokens::estimate(result)
}

/// Tokens of a part.
pub(super) fn cost(part: &TurnPart) -> u64 {
    match part {
        TurnPart::Text { text } | TurnPart::Notice { text } => words_cost(text),
        TurnPart::ToolCall { tool, args, result, .. } => call_cost(tool, args, result),
    }
}
