//! The plan: the most of a session's past that fits.

use protocol::{
    Turn, TurnPart, TurnRole,
    context::{LEFT_OUT, marked_summary_within},
    prune::{self, PastCall, ResultCaps, ResultShare},
};

use super::{
    ContextPlan, MessageShare, PlanReason, PlanSettings, PlannedMessage,
    form::{Caps, FormedExchange, FormedPart},
    past::{Past, PastExchange, cost, words_cost},
    pin_room::{PinnedTurn, pinned},
};
use crate::domain::MessageRole;

/// Turns that keep their results when more do not fit, the most first.
const FEWER_TURNS: [usize; 2] = [4, 2];
/// Most tokens of a result when more does not fit, the most first.
const SMALLER_RESULTS: [u64; 2] = [2_000, 500];
/// In less room than this nothing is carried but the notice that turns are missing, tokens.
const MIN_ROOM: u64 = 128;
/// What is answered to a summary that no turn follows.
const GOES_ON: &str = "The conversation goes on from here.";

/// How many ways there are to carry a past whole, at most.
pub(super) const WAYS: usize = 1 + FEWER_TURNS.len() + SMALLER_RESULTS.len();

/// Estimated tokens of a past of which nothing is left out, however much that is: in each way that a plan tries, the one that
/// says most first. Where there are fewer ways, the last of them again; the last one of a turn that stands alone may be a line
/// for each of its results.
pub(super) fn ways(past: &Past, settings: &PlanSettings) -> [u64; WAYS] {
    let frame = PlanFrame::new(past, settings, settings.estimated_room());
    let (mut ways, mut least) = ([0; WAYS], 0);
    let mut rungs = rungs(settings).into_iter();
    for way in &mut ways {
        least = rungs.next().map_or(least, |rung| frame.all(&rung));
        *way = least;
    }
    if past.turns().len() == 1 {
        ways[WAYS - 1] = frame.newest_in_lines().map_or(least, |lines| least.min(frame.beside(lines.tokens)));
    }
    ways
}

/// Plans what a request carries of the past.
pub fn plan(past: &Past, settings: &PlanSettings) -> ContextPlan {
    // Everything is planned as it is estimated.
    let room = settings.estimated_room();
    let mut rungs = rungs(settings);
    let last = rungs.remove(rungs.len() - 1);
    let frame = PlanFrame::new(past, settings, room);
    if past.may_fit(room) {
        for rung in &rungs {
            let carried = frame.newest(rung);
            if frame.is_all(carried.len()) {
                return frame.finish(carried, rung.why);
            }
        }
    }
    let mut carried = frame.newest(&last);
    if carried.is_empty() {
        carried.extend(frame.newest_in_lines().filter(|lines| frame.beside(lines.tokens) <= room));
    }
    let left_out = PlanReason::LeftOut { result_tokens: last.caps.tokens };
    let why = if frame.is_all(carried.len()) { last.why } else { left_out };
    frame.finish(carried, why)
}

/// One way to carry turns whole.
#[derive(Clone, Debug)]
struct Rung {
    kept_turns: usize,
    caps: ResultCaps,
    why: PlanReason,
}

/// From the most that the settings allow to the least.
fn rungs(settings: &PlanSettings) -> Vec<Rung> {
    let PlanSettings { kept_turns, caps, .. } = settings;
    let fits = PlanReason::Fits { kept_turns: *kept_turns };
    let mut rungs = vec![Rung { kept_turns: *kept_turns, caps: caps.clone(), why: fits }];
    for fewer in FEWER_TURNS.into_iter().filter(|fewer| fewer < kept_turns) {
        let why = PlanReason::FewerTurns { kept_turns: fewer };
        rungs.push(Rung { kept_turns: fewer, caps: caps.clone(), why });
    }
    let kept_turns = FEWER_TURNS[1].min(*kept_turns);
    for tokens in SMALLER_RESULTS {
        let why = PlanReason::SmallerResults { result_tokens: tokens };
        rungs.push(Rung { kept_turns, caps: caps.at_most(tokens), why });
    }
    rungs
}

/// What every rung has in common.
struct PlanFrame<'a> {
    past: &'a Past,
    settings: &'a PlanSettings,
    room: u64,
    own_caps: &'a ResultCaps,
    /// The turns with their pins alone, newest first, those that are older than the rest at the end. `None`: there are no
    /// pins, or no room for them.
    pins: Vec<Option<PinnedTurn>>,
    summary: Option<String>,
}

impl<'a> PlanFrame<'a> {
    fn new(past: &'a Past, settings: &'a PlanSettings, room: u64) -> Self {
        let own_caps = &settings.caps;
        // Pins may take half of the room, and a summary what they leave of it.
        let pins = pinned(past, own_caps, if room >= MIN_ROOM { room / 2 } else { 0 });
        let taken = pins.iter().flatten().map(PinnedTurn::cost).sum::<u64>() + notices_cost();
        let share = settings.summary_share().min(room.saturating_sub(taken));
        let summary = past.summary().filter(|_| room >= MIN_ROOM);
        let summary = summary.and_then(|summary| marked_summary_within(&summary.text, share));
        Self { past, settings, room, own_caps, pins, summary }
    }

    /// Whether that many of the newest turns are all that there are.
    fn is_all(&self, turns: usize) -> bool {
        turns == self.past.turns().len() && self.past.is_whole()
    }

    /// The newest turns whole, newest first, as many as fit beside the pins of the others.
    fn newest(&self, rung: &Rung) -> Vec<FormedExchange> {
        let shares = shares(self.past.turns(), rung.kept_turns);
        let mut carried = Vec::new();
        let (mut whole, mut pins) = (0, self.pins.iter().flatten().map(PinnedTurn::cost).sum::<u64>());
        for (n, shares) in shares.iter().enumerate() {
            let formed = self.whole(n, shares, rung);
            whole += formed.tokens;
            pins -= self.pins[n].as_ref().map_or(0, PinnedTurn::cost);
            if whole + pins + self.frame_cost(n + 1) > self.room {
                break;
            }
            carried.push(formed);
        }
        carried
    }

    /// One of the turns, by its place.
    fn whole(&self, n: usize, shares: &[ResultShare], rung: &Rung) -> FormedExchange {
        // Pins are cut where they have to be and other results are.
        let pinned = match &self.pins[n] {
            Some(pins) if matches!(rung.why, PlanReason::SmallerResults { .. }) => &pins.caps,
            Some(_) => self.own_caps,
            None => &rung.caps,
        };
        FormedExchange::whole(&self.past.turns()[n], shares, Caps { pinned, others: &rung.caps })
    }

    /// Tokens of all turns whole, and of the pins of those that are older.
    fn all(&self, rung: &Rung) -> u64 {
        let shares = shares(self.past.turns(), rung.kept_turns);
        let whole: u64 = shares.iter().enumerate().map(|(n, shares)| self.whole(n, shares, rung).tokens).sum();
        let older: u64 = self.pins.iter().skip(shares.len()).flatten().map(PinnedTurn::cost).sum();
        whole + older + self.frame_cost(shares.len())
    }

    /// Tokens of the summary, of what is answered to one that no turn follows, and of the notice before so many turns when
    /// others are left out.
    fn frame_cost(&self, turns: usize) -> u64 {
        let notice = if self.is_all(turns) { 0 } else { notice_cost() };
        let answer = if turns == 0 { words_cost(GOES_ON) } else { 0 };
        self.summary.as_ref().map_or(0, |text| words_cost(text) + answer) + notice
    }

    /// Tokens of the newest turn in so many, with all that is carried when it is the only one.
    fn beside(&self, newest: u64) -> u64 {
        let pins: u64 = self.pins.iter().flatten().map(PinnedTurn::cost).sum();
        newest + pins + self.frame_cost(1)
    }

    /// The newest turn with a line for each result. `None`: there is none, or pins of it are carried instead.
    fn newest_in_lines(&self) -> Option<FormedExchange> {
        let newest = self.past.turns().first().filter(|newest| !newest.has_pin())?;
        let caps = self.own_caps.at_most(SMALLER_RESULTS[1]);
        let shares = shares(std::slice::from_ref(newest), 0).remove(0);
        Some(FormedExchange::whole(newest, &shares, Caps { pinned: &caps, others: &caps }))
    }

    /// The ends of the newest turn where it does not fit otherwise.
    fn ends(&self) -> Option<FormedExchange> {
        let newest = self.past.turns().first().filter(|_| self.pins.first().is_some_and(Option::is_none))?;
        FormedExchange::ends(newest, self.room.saturating_sub(self.beside(0)))
    }

    /// The plan with these newest turns whole.
    fn finish(mut self, mut whole: Vec<FormedExchange>, why: PlanReason) -> ContextPlan {
        if whole.is_empty() {
            whole.extend(self.ends());
        }
        let mut formed: Vec<Option<FormedExchange>> = whole.into_iter().map(Some).collect();
        let pins = std::mem::take(&mut self.pins).into_iter().skip(formed.len());
        formed.extend(pins.map(|pins| pins.map(|pins| pins.formed)));
        let mut turns = TurnsWriter::default();
        if let Some(text) = self.summary.clone() {
            turns.put(TurnRole::User, [TurnPart::Text { text }]);
        }
        let mut is_gap = !self.past.is_whole();
        for (n, formed) in formed.iter().enumerate().rev() {
            let Some(formed) = formed else {
                is_gap |= n < self.past.turns().len();
                continue;
            };
            if is_gap {
                turns.put(TurnRole::User, [left_out()]);
            }
            for (role, parts) in &formed.turns {
                turns.put(*role, parts.iter().map(|part| part.part.clone()));
            }
            // Between older turns there are some that nobody looked at.
            is_gap = n >= self.past.turns().len() && !self.past.is_whole();
        }
        if self.summary.is_some() && formed.iter().all(Option::is_none) {
            turns.put(TurnRole::Assistant, [TurnPart::Notice { text: GOES_ON.to_owned() }]);
        }
        // However little room a question leaves: the model is to know.
        if is_gap && !formed.is_empty() {
            turns.put(TurnRole::User, [left_out()]);
        }
        let near = self.past.turns().iter().map(|exchange| (exchange, false));
        let exchanges = near.chain(self.past.older().iter().map(|exchange| (exchange, !self.past.is_whole())));
        let messages = exchanges.zip(&formed).flat_map(|(exchange, formed)| messages(exchange, formed.as_ref()));
        let counted = |message: PlannedMessage| PlannedMessage {
            tokens: self.settings.counted(message.tokens),
            results: self.settings.counted(message.results),
            ..message
        };
        ContextPlan {
            messages: messages.map(counted).collect(),
            turns: turns.turns,
            total: self.settings.counted(turns.tokens),
            room: self.settings.room(),
            estimated: turns.tokens,
            why,
            leaves_unread: !self.past.is_whole(),
        }
    }
}

/// Appends parts to turns whose roles alternate.
#[derive(Default)]
pub(super) struct TurnsWriter {
    pub(super) turns: Vec<Turn>,
    pub(super) tokens: u64,
}

impl TurnsWriter {
    pub(super) fn put(&mut self, role: TurnRole, parts: impl IntoIterator<Item = TurnPart>) {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(Turn { role, parts: Vec::new() });
        }
        if let Some(turn) = self.turns.last_mut() {
            let parts = parts.into_iter().inspect(|part| self.tokens += cost(part));
            turn.parts.extend(parts);
        }
    }
}

pub(super) fn left_out() -> TurnPart {
    TurnPart::Notice { text: LEFT_OUT.to_owned() }
}

/// Tokens of what stands where turns are missing.
pub(super) fn notice_cost() -> u64 {
    words_cost(LEFT_OUT)
}

/// The same with what is answered to a summary that no turn follows: more is carried beside no summary.
pub(super) fn notices_cost() -> u64 {
    notice_cost() + words_cost(GOES_ON)
}

/// What stays of each call when so many of the newest turns keep their results: by turn, newest first.
pub(super) fn shares(turns: &[PastExchange], kept_turns: usize) -> Vec<Vec<ResultShare>> {
    let calls: Vec<PastCall<'_>> =
        turns.iter().rev().flat_map(|turn| turn.calls().map(|call| call.as_past())).collect();
    let kept: usize = turns.iter().take(kept_turns).map(|turn| turn.calls().count()).sum();
    let all = prune::shares(&calls, calls.len() - kept);
    let mut rest = all.as_slice();
    let mut by_turn: Vec<Vec<ResultShare>> = Vec::with_capacity(turns.len());
    for turn in turns.iter().rev() {
        let (own, newer) = rest.split_at(turn.calls().count());
        by_turn.push(own.to_vec());
        rest = newer;
    }
    by_turn.reverse();
    by_turn
}

/// What becomes of the messages of a turn that may be apart from the newer ones, the newer message first.
fn messages((exchange, is_apart): (&PastExchange, bool), formed: Option<&FormedExchange>) -> Vec<PlannedMessage> {
    let of = |role: MessageRole| {
        let head = exchange.message(role);
        let parts: Vec<_> = formed.into_iter().flat_map(FormedExchange::parts).filter(|part| part.of == role).collect();
        let pieces = exchange.pieces().filter(|piece| piece.of == role).count();
        let share = match formed {
            None => MessageShare::LeftOut,
            Some(_) if parts.len() == pieces && !parts.iter().any(|part| part.is_reduced) => MessageShare::Verbatim,
            Some(_) => MessageShare::Pruned,
        };
        let is_cut = |part: &FormedPart| part.is_reduced && (head.is_pinned || part.is_pinned());
        PlannedMessage {
            id: head.id.clone(),
            seq: head.seq,
            role,
            tokens: parts.iter().map(|part| part.tokens).sum(),
            results: parts.iter().filter(|part| part.is_call()).map(|part| part.tokens).sum(),
            share,
            pinned: head.has_pin,
            pinned_whole: head.is_pinned,
            pin_cut: head.has_pin && (formed.is_none() || parts.iter().copied().any(is_cut)),
            is_apart,
        }
    };
    [MessageRole::Assistant, MessageRole::User].map(of).to_vec()
}
