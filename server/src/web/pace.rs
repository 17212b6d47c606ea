//! How much one credential may ask: calls a second, and streams open at once. In memory, per replica.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Sustained calls a second of one token or sign-in.
const PER_SECOND: i64 = 100;
/// Calls that may come at once after a rest.
const BURST: i64 = 400;
/// Streams one token or sign-in may hold open.
const STREAMS: usize = 50;
/// Above so many remembered credentials those that rest are forgotten.
const REMEMBERED: usize = 4_096;

/// What every credential has used. Cheap to share.
#[derive(Debug, Default)]
pub struct Pace {
    buckets: Mutex<HashMap<String, Bucket>>,
    streams: Mutex<HashMap<String, usize>>,
}

/// What is left for one credential, in thousandths of a call.
#[derive(Debug)]
struct Bucket {
    left: i64,
    /// Monotonic milliseconds of the last look.
    at: i64,
}

impl Bucket {
    fn refill(&mut self, now: i64) {
        let gained = (now - self.at).clamp(0, BURST * 1_000).saturating_mul(PER_SECOND);
        self.left = (self.left + gained).min(BURST * 1_000);
        self.at = now;
    }
}

impl Pace {
    /// Takes one call of `who` at `now` (monotonic milliseconds), or says after how many seconds there is one.
    pub fn take(&self, who: &str, now: i64) -> Result<(), u64> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() > REMEMBERED {
            buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.left < BURST * 1_000
            });
        }
        let bucket = match buckets.get_mut(who) {
            Some(bucket) => bucket,
            None => buckets.entry(who.to_owned()).or_insert(Bucket { left: BURST * 1_000, at: now }),
        };
        bucket.refill(now);
        if bucket.left < 1_000 {
            return Err(1);
        }
        bucket.left -= 1_000;
        Ok(())
    }

    /// Opens a stream of `who`, or refuses when too many are open. It counts until the answer is dropped.
    pub fn open(self: &Arc<Self>, who: &str) -> Option<Open> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(who.to_owned()).or_default();
        if *open >= STREAMS {
            return None;
        }
        *open += 1;
        Some(Open { pace: Arc::clone(self), who: who.to_owned() })
    }
}

/// An open stream; gives its place back when dropped.
#[derive(Debug)]
pub struct Open {
    pace: Arc<Pace>,
    who: String,
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut streams = self.pace.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = streams.get_mut(&self.who) {
            *open -= 1;
            if *open == 0 {
                streams.remove(&self.who);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_sustained_rate() {
        let pace = Pace::default();
        let passed = (0..1_000).filter(|_| pace.take("tok_a", 0).is_ok()).count();
        assert_eq!(passed, 400);
        assert_eq!(pace.take("tok_a", 5), Err(1));
        assert!(pace.take("tok_b", 5).is_ok(), "another token has its own");
        let passed = (0..1_000).filter(|n| pace.take("tok_a", 1_000 + n).is_ok()).count();
        assert!((195..=205).contains(&passed), "{passed} in the two seconds up to now");
        assert!(pace.take("tok_a", i64::MAX).is_ok(), "a long rest does not overflow");
    }

    #[test]
    fn the_memory_of_resting_credentials_is_bounded() {
        let pace = Pace::default();
        for n in 0..20_000 {
            pace.take(&format!("tok_{n}"), n * 20).expect("a first call");
        }
        assert!(pace.buckets.lock().expect("unpoisoned").len() <= REMEMBERED + 1);
    }

    #[test]
    fn a_closed_stream_gives_its_place_back() {
        let pace = Arc::new(Pace::default());
        let mut open: Vec<_> = (0..STREAMS).map(|_| pace.open("tok_a").expect("a place")).collect();
        assert!(pace.open("tok_a").is_none());
        assert!(pace.open("tok_b").is_some());
        open.pop();
        assert!(pace.open("tok_a").is_some());
        drop(open);
        assert!(pace.streams.lock().expect("unpoisoned").is_empty());
    }
}
