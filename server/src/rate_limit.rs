//! A token bucket: a burst at once, and a steady rate after that. The caller passes the current time.

/// The burst of a bucket, and the rate at which it is refilled.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Tokens of a full bucket: what can be spent at once.
    pub burst: i64,
    /// Tokens that are refilled every `period_ms`, evenly.
    pub refill: i64,
    pub period_ms: i64,
}

/// The state of a [`Limit`]. Every `now` is in monotonic milliseconds.
#[derive(Clone, Debug)]
pub struct Bucket {
    limit: Limit,
    /// What was missing from a full bucket at `at`, in units of 1/`period_ms` token, so that every millisecond refills
    /// `refill` units. More than a burst is missing when more was spent than was available.
    missing: i64,
    at: i64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(limit: Limit, now: i64) -> Self {
        Self { limit, missing: 0, at: now }
    }

    /// Milliseconds until `amount` tokens (at most a burst) are available, 0 when they are. With an `amount` of 0:
    /// until the bucket is no longer overdrawn.
    pub fn wait(&mut self, amount: i64, now: i64) -> u64 {
        self.refill(now);
        let Limit { burst, refill, period_ms } = self.limit;
        let room = burst.saturating_sub(amount).saturating_mul(period_ms);
        let short = self.missing.saturating_sub(room).max(0);
        short.unsigned_abs().div_ceil(refill.unsigned_abs())
    }

    /// Spends `amount`, even if that overdraws the bucket.
    pub fn spend(&mut self, amount: i64, now: i64) {
        self.refill(now);
        self.missing = self.missing.saturating_add(amount.saturating_mul(self.limit.period_ms));
    }

    /// Returns tokens that were spent.
    pub fn give_back(&mut self, amount: i64) {
        self.missing = self.missing.saturating_sub(amount.saturating_mul(self.limit.period_ms)).max(0);
    }

    /// Whether the bucket is full again.
    pub fn is_full(&self, now: i64) -> bool {
        self.missing(now) == 0
    }

    /// Refills up to `now`. A `now` before the last one is accepted: a clock that was ahead for a moment costs nothing.
    fn refill(&mut self, now: i64) {
        self.missing = self.missing(now);
        self.at = now;
    }

    fn missing(&self, now: i64) -> i64 {
        let passed = now.saturating_sub(self.at).max(0);
        self.missing.saturating_sub(passed.saturating_mul(self.limit.refill)).max(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten at once, then four a second: one every quarter of a second.
    const LIMIT: Limit = Limit { burst: 10, refill: 4, period_ms: 1000 };

    #[test]
    fn a_burst_is_there_at_once_and_what_comes_back_comes_evenly() {
        let mut bucket = Bucket::new(LIMIT, 0);
        assert!(bucket.is_full(0));
        assert_eq!(bucket.wait(10, 0), 0);
        for _ in 0..10 {
            assert_eq!(bucket.wait(1, 0), 0);
            bucket.spend(1, 0);
        }
        assert_eq!((bucket.wait(1, 0), bucket.wait(2, 0)), (250, 500));
        assert_eq!((bucket.wait(1, 249), bucket.wait(1, 250)), (1, 0));
        bucket.spend(1, 300);
        assert_eq!(bucket.wait(1, 300), 200, "a part of the next one had come back");
        assert!(!bucket.is_full(2749) && bucket.is_full(2750));
    }

    #[test]
    fn what_is_overdrawn_comes_back_first() {
        let mut bucket = Bucket::new(LIMIT, 0);
        bucket.spend(10, 0);
        assert_eq!(bucket.wait(0, 0), 0, "all is spent, and nothing is overdrawn");
        bucket.spend(4, 0);
        assert_eq!((bucket.wait(0, 0), bucket.wait(1, 0)), (1000, 1250));
        assert_eq!(bucket.wait(0, 1000), 0);
    }

    #[test]
    fn what_is_given_back_was_never_spent() {
        let mut bucket = Bucket::new(LIMIT, 0);
        bucket.spend(3, 0);
        bucket.give_back(2);
        assert_eq!((bucket.wait(9, 0), bucket.wait(10, 0)), (0, 250));
        bucket.give_back(5);
        assert!(bucket.is_full(0));
        bucket.spend(11, 0);
        assert_eq!(bucket.wait(0, 0), 250, "nothing was put by");
    }

    #[test]
    fn no_figure_overflows_and_no_clock_that_stands_still_refills() {
        let mut bucket = Bucket::new(LIMIT, i64::MIN);
        bucket.spend(i64::MAX, i64::MIN);
        assert!(bucket.wait(i64::MAX, i64::MIN) > 0);
        assert!(bucket.is_full(i64::MAX));
        bucket.spend(10, 5);
        assert_eq!((bucket.wait(1, 5), bucket.wait(1, 4)), (250, 250));
    }
}
