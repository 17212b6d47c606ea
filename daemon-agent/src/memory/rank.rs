//! The order in which found passages are returned.

use std::collections::HashMap;

use protocol::Instant;

/// How much more a passage of this moment counts than an old one.
const RECENCY_WEIGHT: f64 = 0.25;
/// Days after which half of that bonus is gone.
const HALF_LIFE_DAYS: f64 = 60.0;
const DAY_MS: f64 = 86_400_000.0;
/// How far apart neighbours in a list are when lists are merged: the usual constant of reciprocal rank fusion.
const FUSION_CONSTANT: f64 = 60.0;

/// Sorts best first; recent passages come a little before equally good older ones.
pub fn recent_first(found: &mut [(i64, f64, Option<Instant>)], now: Instant) {
    let weight = |(_, score, at): &(i64, f64, Option<Instant>)| {
        let bonus = at.map_or(0.0, |at| {
            let days = (now.millis() - at.millis()).max(0) as f64 / DAY_MS;
            RECENCY_WEIGHT * 0.5_f64.powf(days / HALF_LIFE_DAYS)
        });
        score * (1.0 + bonus)
    };
    found.sort_by(|a, b| weight(b).total_cmp(&weight(a)).then(b.2.cmp(&a.2)).then(a.0.cmp(&b.0)));
}

/// Merges several orders into one: what ranks high in one list ranks high, and higher if it does so in several.
pub fn fused(lists: &[Vec<i64>]) -> Vec<i64> {
    let mut scores: HashMap<i64, f64> = HashMap::new();
    for list in lists {
        for (n, id) in list.iter().enumerate() {
            *scores.entry(*id).or_default() += 1.0 / (FUSION_CONSTANT + n as f64);
        }
    }
    let mut all: Vec<(i64, f64)> = scores.into_iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    all.into_iter().map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recency_decides_between_equals_and_not_against_the_better() {
        let now = Instant(1_800_000_000_000);
        let ago = |days: i64| Some(Instant(now.millis() - days * 86_400_000));
        let mut found = vec![(1, 1.0, ago(400)), (2, 1.0, ago(1)), (3, 1.0, None), (4, 3.0, ago(4000))];
        recent_first(&mut found, now);
        assert_eq!(found.iter().map(|one| one.0).collect::<Vec<_>>(), [4, 2, 1, 3]);
    }

    #[test]
    fn what_both_lists_have_comes_first() {
        assert_eq!(fused(&[vec![1, 2, 3], vec![4, 2]]), [2, 1, 4, 3]);
    }
}
