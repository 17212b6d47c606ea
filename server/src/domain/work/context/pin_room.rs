//! What a plan carries of pins beside newer turns: half of its room at most. Of what is too long for that the ends stay, so
//! that nothing that people pinned is gone without a trace, and what is short is whole.

use protocol::prune::ResultCaps;

use super::{
    form::FormedExchange,
    past::{Past, PastExchange},
    plan::notice_cost,
};

/// The pins of a turn where the rest of it is left out.
#[derive(Clone, Debug)]
pub(super) struct PinnedTurn {
    pub(super) formed: FormedExchange,
    /// Most tokens of its pinned results.
    pub(super) caps: ResultCaps,
}

impl PinnedTurn {
    /// Its tokens where nothing stands before it.
    pub(super) fn cost(&self) -> u64 {
        self.formed.tokens + notice_cost()
    }
}

/// What the pins of a turn take, whole and at least.
struct Wanted {
    place: usize,
    whole: u64,
    least: u64,
}

impl Wanted {
    /// What they are given where nobody is given more than a level, unless it is the least.
    fn at(&self, level: u64) -> u64 {
        self.whole.min(self.least.max(level))
    }
}

/// The pins of each turn, newest first, those that are older than the rest at the end, in so many tokens: short ones whole,
/// and of long ones as much as makes them equal. `None`: there are no pins, or not even room for their ends beside those of
/// newer turns.
pub(super) fn pinned(past: &Past, caps: &ResultCaps, most: u64) -> Vec<Option<PinnedTurn>> {
    let turns: Vec<&PastExchange> = past.turns().iter().chain(past.older()).collect();
    let whole = |turn: &PastExchange| PinnedTurn { formed: FormedExchange::pins(turn, caps), caps: caps.clone() };
    let mut pinned: Vec<Option<PinnedTurn>> =
        turns.iter().copied().map(|turn| turn.has_pin().then(|| whole(turn))).collect();
    if pinned.iter().flatten().map(PinnedTurn::cost).sum::<u64>() <= most {
        return pinned;
    }
    let (mut wanted, mut left) = (Vec::new(), most);
    for (place, turn) in turns.iter().enumerate() {
        let Some(whole) = pinned[place].as_ref().map(PinnedTurn::cost) else { continue };
        let least = whole.min(FormedExchange::least_pins(turn, caps).tokens + notice_cost());
        if least > left {
            pinned[place] = None;
            continue;
        }
        left -= least;
        wanted.push(Wanted { place, whole, least });
    }
    let level = level(&wanted, most);
    for one in wanted.iter().filter(|one| one.at(level) < one.whole) {
        let most = one.at(level).saturating_sub(notice_cost());
        let within = FormedExchange::pins_within(turns[one.place], caps, most);
        pinned[one.place] = within.map(|(formed, caps)| PinnedTurn { formed, caps });
    }
    pinned
}

/// The highest level at which all of them take at most so many tokens.
fn level(wanted: &[Wanted], most: u64) -> u64 {
    let (mut good, mut bad) = (0, most.saturating_add(1));
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        let taken: u64 = wanted.iter().map(|one| one.at(middle)).sum();
        *if taken <= most { &mut good } else { &mut bad } = middle;
    }
    good
}
