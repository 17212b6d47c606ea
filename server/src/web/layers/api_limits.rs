//! Limits per credential: calls of the API per second, and streams open at once, those of pages among them. They are kept in
//! memory, per replica.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::rate_limit::{Bucket, Limit};

/// Calls of one token or sign-in: 100 per second, with bursts of up to 400.
const CALLS_PER_CREDENTIAL: Limit = Limit { burst: 400, refill: 100, period_ms: 1_000 };
/// Streams one token or sign-in may hold open.
const MAX_STREAMS_PER_CREDENTIAL: usize = 50;
/// Number of credentials in memory above which those without recent calls are removed.
const MAX_CREDENTIALS: usize = 4_096;

/// What every credential has used. Cheap to share.
#[derive(Debug, Default)]
pub struct ApiLimits {
    calls: Mutex<HashMap<String, Bucket>>,
    streams: Mutex<HashMap<String, usize>>,
}

impl ApiLimits {
    /// Counts a call of `who` at `now` (monotonic milliseconds), or returns the seconds until the next call is allowed.
    pub fn call(&self, who: &str, now: i64) -> Result<(), u64> {
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        if calls.len() > MAX_CREDENTIALS {
            calls.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = match calls.get_mut(who) {
            Some(bucket) => bucket,
            None => calls.entry(who.to_owned()).or_insert(Bucket::new(CALLS_PER_CREDENTIAL, now)),
        };
        match bucket.wait(1, now) {
            0 => {
                bucket.spend(1, now);
                Ok(())
            }
            wait_ms => Err(wait_ms.div_ceil(1_000)),
        }
    }

    /// Opens a stream of `who`, or refuses when too many are open. It counts until the returned value is dropped.
    pub fn open_stream(self: &Arc<Self>, who: &str) -> Option<OpenStream> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let open = streams.entry(who.to_owned()).or_default();
        if *open >= MAX_STREAMS_PER_CREDENTIAL {
            return None;
        }
        *open += 1;
        Some(OpenStream { limits: Arc::clone(self), who: who.to_owned() })
    }
}

/// An open stream; gives its place back when dropped.
#[derive(Debug)]
pub struct OpenStream {
    limits: Arc<ApiLimits>,
    who: String,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut streams = self.limits.streams.lock().unwrap_or_else(PoisonError::into_inner);
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
        let limits = ApiLimits::default();
        let passed = (0..1_000).filter(|_| limits.call("tok_a", 0).is_ok()).count();
        assert_eq!(passed, 400);
        assert_eq!(limits.call("tok_a", 5), Err(1));
        assert!(limits.call("tok_b", 5).is_ok(), "another token has its own");
        let passed = (0..1_000).filter(|n| limits.call("tok_a", 1_000 + n).is_ok()).count();
        assert!((195..=205).contains(&passed), "{passed} in the two seconds up to now");
        assert!(limits.call("tok_a", i64::MAX).is_ok(), "a long rest does not overflow");
    }

    #[test]
    fn the_memory_of_resting_credentials_is_bounded() {
        let limits = ApiLimits::default();
        for n in 0..20_000 {
            limits.call(&format!("tok_{n}"), n * 20).expect("a first call");
        }
        assert!(limits.calls.lock().expect("unpoisoned").len() <= MAX_CREDENTIALS + 1);
    }

    #[test]
    fn a_closed_stream_gives_its_place_back() {
        let limits = Arc::new(ApiLimits::default());
        let mut open: Vec<_> =
            (0..MAX_STREAMS_PER_CREDENTIAL).map(|_| limits.open_stream("tok_a").expect("a place")).collect();
        assert!(limits.open_stream("tok_a").is_none());
        assert!(limits.open_stream("tok_b").is_some());
        open.pop();
        assert!(limits.open_stream("tok_a").is_some());
        drop(open);
        assert!(limits.streams.lock().expect("unpoisoned").is_empty());
    }
}
