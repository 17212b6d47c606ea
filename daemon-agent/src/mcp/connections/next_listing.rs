//! When a list of tools that changed is taken again: soon, and later and later while it goes on changing.

use std::time::Duration;

use tokio::time::Instant;

/// How long changes are collected. It doubles while they go on, up to the longest.
const CHANGE_DELAY: Duration = Duration::from_millis(300);
const LONGEST_CHANGE_DELAY: Duration = Duration::from_secs(60);

/// When a list of tools that changed is taken again.
pub struct NextListing {
    /// `None`: nothing has changed.
    pub at: Option<Instant>,
    delay: Duration,
    last: Instant,
}

impl NextListing {
    pub fn new() -> Self {
        Self { at: None, delay: CHANGE_DELAY, last: Instant::now() }
    }

    /// It may be another one.
    pub fn changed(&mut self, now: Instant) {
        if self.at.is_none() && now >= self.last + LONGEST_CHANGE_DELAY {
            self.delay = CHANGE_DELAY;
        }
        self.at.get_or_insert(now + self.delay);
    }

    /// Whether it is time now, which counts as done.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.at.take_if(|at| *at <= now).is_some();
        if is_due {
            (self.last, self.delay) = (now, (self.delay * 2).min(LONGEST_CHANGE_DELAY));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_changes_on_and_on_is_taken_less_and_less_often() {
        let (mut listing, mut now) = (NextListing::new(), Instant::now());
        assert!(!listing.is_due(now), "nothing has changed");
        let mut waits = Vec::new();
        for _ in 0..20 {
            listing.changed(now);
            let at = listing.at.expect("it is to be taken again");
            listing.changed(at);
            assert_eq!(listing.at, Some(at), "once for all changes before it");
            assert!(!listing.is_due(at - Duration::from_millis(1)) && listing.is_due(at));
            waits.push(at - now);
            now = at;
        }
        assert_eq!((waits[0], waits[1], waits[19]), (CHANGE_DELAY, CHANGE_DELAY * 2, LONGEST_CHANGE_DELAY));
        now += LONGEST_CHANGE_DELAY;
        listing.changed(now);
        assert_eq!(listing.at, Some(now + CHANGE_DELAY), "after a while without changes");
    }
}
