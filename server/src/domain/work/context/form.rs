//! A turn in the form in which a request carries it: whole, its pins alone, or its ends.

use protocol::{
    TurnPart, TurnRole,
    prune::{self, ResultCaps, ResultShare},
    tokens,
};

use super::past::{MadeCall, PastExchange, Piece, PieceBody, cost, words_cost};
use crate::domain::MessageRole;

/// Less than that of a turn says nothing, tokens.
const MIN_ENDS_TOKENS: u64 = 64;
/// How often what is pinned of a turn is made longer until it fills its room.
const MAX_PIN_STEPS: usize = 6;

/// The parts of a turn, and what they take.
#[derive(Clone, Debug)]
pub(super) struct FormedExchange {
    pub(super) turns: Vec<(TurnRole, Vec<FormedPart>)>,
    pub(super) tokens: u64,
}

#[derive(Clone, Debug)]
pub(super) struct FormedPart {
    pub(super) part: TurnPart,
    pub(super) of: MessageRole,
    pub(super) tokens: u64,
    /// Something of it is missing.
    pub(super) is_reduced: bool,
}

/// Most tokens of results: of pinned ones, and of others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps<'a> {
    pub(super) pinned: &'a ResultCaps,
    pub(super) others: &'a ResultCaps,
}

impl FormedExchange {
    /// All that was said; of the calls what their shares say.
    pub(super) fn whole(exchange: &PastExchange, shares: &[ResultShare], caps: Caps<'_>) -> Self {
        let mut shares = shares.iter().copied();
        Self::collect(exchange, |piece| {
            Some(match &piece.body {
                PieceBody::Call(call) => FormedPart::call(call, shares.next().unwrap_or(ResultShare::Text), caps),
                PieceBody::Words(part) => FormedPart::said(part.clone(), piece.of),
            })
        })
    }

    /// What is pinned, and the ends of what was asked.
    pub(super) fn pins(exchange: &PastExchange, caps: &ResultCaps) -> Self {
        Self::pins_of(exchange, caps, u64::MAX)
    }

    /// The least of it: of each pinned text and result the ends.
    pub(super) fn least_pins(exchange: &PastExchange, caps: &ResultCaps) -> Self {
        Self::pins_of(exchange, caps, prune::MIN_RESULT_TOKENS)
    }

    /// As much of it as so many tokens hold, and the caps of its results; `None`: not even the least.
    pub(super) fn pins_within(exchange: &PastExchange, caps: &ResultCaps, most: u64) -> Option<(Self, ResultCaps)> {
        let mut each = prune::MIN_RESULT_TOKENS;
        let mut formed = Self::least_pins(exchange, caps);
        let mut left = most.checked_sub(formed.tokens)?;
        let is_cut = |part: &&FormedPart| part.is_reduced && (part.is_call() || exchange.message(part.of).is_pinned);
        for _ in 0..MAX_PIN_STEPS {
            // What is short leaves its share to the others.
            let cut = formed.parts().filter(is_cut).count() as u64;
            let more = left / cut.max(1);
            if cut == 0 || more == 0 {
                break;
            }
            // Arguments may become whole at once.
            let longer = [more, more / 2].map(|more| each + more);
            let mut longer = longer.into_iter().map(|each| (each, Self::pins_of(exchange, caps, each)));
            let Some(longer) = longer.find(|(_, formed)| formed.tokens <= most) else { break };
            (each, formed) = longer;
            left = most - formed.tokens;
        }
        Some((formed, caps.at_most(each)))
    }

    fn pins_of(exchange: &PastExchange, caps: &ResultCaps, each: u64) -> Self {
        let caps = caps.at_most(each);
        let caps = Caps { pinned: &caps, others: &caps };
        let formed = Self::collect(exchange, |piece| {
            let stays = exchange.message(piece.of).is_pinned;
            match &piece.body {
                PieceBody::Call(call) => call.is_pinned.then(|| FormedPart::call(call, ResultShare::Text, caps)),
                PieceBody::Words(part) if stays => Some(FormedPart::ends(part, piece.of, each)),
                PieceBody::Words(part) => {
                    (piece.of == MessageRole::User).then(|| FormedPart::ends(part, piece.of, MIN_ENDS_TOKENS))
                }
            }
        });
        if formed.turns.last().is_some_and(|(role, _)| *role == TurnRole::Assistant) {
            return formed;
        }
        let text = "The rest of this turn was left out.".to_owned();
        let rest = FormedPart::said(TurnPart::Notice { text }, MessageRole::Assistant);
        let (mut turns, tokens) = (formed.turns, formed.tokens + rest.tokens);
        turns.push((TurnRole::Assistant, vec![rest]));
        Self { turns, tokens }
    }

    /// The ends of what was asked and of what was said last, in at most that many tokens.
    pub(super) fn ends(exchange: &PastExchange, room: u64) -> Option<Self> {
        let (first, last) = (exchange.turns.first()?, exchange.turns.last()?);
        if room < 2 * MIN_ENDS_TOKENS {
            return None;
        }
        let mut left = room;
        let mut turns = Vec::new();
        for (turn, most) in [(first, room / 3), (last, u64::MAX)] {
            let last = turn.pieces.iter().rev().find_map(|piece| match &piece.body {
                PieceBody::Words(part) => Some((part, piece.of)),
                PieceBody::Call(_) => None,
            });
            let part = match last {
                Some((part, of)) => FormedPart::ends(part, of, most.min(left).saturating_sub(words_cost(""))),
                None => {
                    let text = "What was done was left out.".to_owned();
                    FormedPart::said(TurnPart::Notice { text }, MessageRole::Assistant)
                }
            };
            left = left.saturating_sub(part.tokens);
            turns.push((turn.role, vec![FormedPart { is_reduced: true, ..part }]));
        }
        Some(Self { turns, tokens: room - left })
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = &FormedPart> {
        self.turns.iter().flat_map(|(_, parts)| parts)
    }

    fn collect(exchange: &PastExchange, mut form: impl FnMut(&Piece) -> Option<FormedPart>) -> Self {
        let (mut turns, mut tokens) = (Vec::<(TurnRole, Vec<FormedPart>)>::new(), 0);
        for turn in &exchange.turns {
            let mut parts: Vec<FormedPart> = turn.pieces.iter().filter_map(&mut form).collect();
            tokens += parts.iter().map(|part| part.tokens).sum::<u64>();
            match turns.last_mut().filter(|(role, _)| *role == turn.role) {
                Some((_, earlier)) => earlier.append(&mut parts),
                None if parts.is_empty() => {}
                None => turns.push((turn.role, parts)),
            }
        }
        Self { turns, tokens }
    }
}

impl FormedPart {
    pub(super) fn said(part: TurnPart, of: MessageRole) -> Self {
        let tokens = cost(&part);
        Self { part, of, tokens, is_reduced: false }
    }

    /// The ends of a text in at most that many tokens, beside those of the part.
    fn ends(whole: &TurnPart, of: MessageRole, most: u64) -> Self {
        let short = |text: &str| tokens::head_and_tail(text, most.max(prune::MIN_RESULT_TOKENS));
        let part = match whole {
            TurnPart::Text { text } => TurnPart::Text { text: short(text) },
            TurnPart::Notice { text } => TurnPart::Notice { text: short(text) },
            TurnPart::ToolCall { .. } => whole.clone(),
        };
        let is_reduced = part != *whole;
        Self { is_reduced, ..Self::said(part, of) }
    }

    /// Arguments that are longer than any result may be are shortened, too.
    fn call(call: &MadeCall, share: ResultShare, caps: Caps<'_>) -> Self {
        let caps = if call.is_pinned { caps.pinned } else { caps.others };
        let past = call.as_past();
        let (mut args, result) = prune::carried(&past, share, caps);
        if share == ResultShare::Text && call.args_tokens > caps.of(&call.tool) {
            args = prune::carried(&past, ResultShare::Line, caps).0;
        }
        let is_reduced = call.is_shortened || result.len() != call.result.len() || *args != call.args;
        let (call_id, tool, ok) = (call.id.clone(), call.tool.clone(), call.ok);
        let (args, pinned) = (args.into_owned(), call.is_pinned);
        let part = TurnPart::ToolCall { call_id, tool, args, result, ok, pinned };
        Self { is_reduced, ..Self::said(part, MessageRole::Assistant) }
    }

    /// A call that is pinned, by itself or with its message.
    pub(super) fn is_pinned(&self) -> bool {
        matches!(self.part, TurnPart::ToolCall { pinned: true, .. })
    }

    pub(super) fn is_call(&self) -> bool {
        matches!(self.part, TurnPart::ToolCall { .. })
    }
}
