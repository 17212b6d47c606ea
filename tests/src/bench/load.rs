//! Times as a person or viber sees them, and the log of what was sent when.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Many durations.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Microseconds.
    all: Vec<u32>,
}

impl Latencies {
    /// One more.
    pub fn push(&mut self, time: Duration) {
        self.micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// One more, in microseconds.
    pub fn micros(&mut self, time: u64) {
        self.all.push(u32::try_from(time).unwrap_or(u32::MAX));
    }

    /// All of another.
    pub fn extend(&mut self, other: &Self) {
        self.all.extend_from_slice(&other.all);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The percentile in milliseconds; NaN, which meets nothing, when there is none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the list")]
    pub fn ms(&self, percentile: f64) -> f64 {
        let mut sorted = self.all.clone();
        sorted.sort_unstable();
        let at = (sorted.len() as f64 * percentile / 100.0).ceil() as usize;
        sorted.get(at.max(1) - 1).map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
    }
}

/// When each seq of a task's stream was sent, and when it became durable.
#[derive(Debug)]
pub struct SentEvents {
    base: Instant,
    /// Microseconds since `base` by seq; 0 for one that was not sent.
    at: Vec<AtomicU64>,
    acked: Mutex<(u64, Latencies)>,
}

impl SentEvents {
    /// Room for seqs up to `last`.
    pub fn new(last: u64) -> Self {
        let at = (0..=last).map(|_| AtomicU64::new(0)).collect();
        Self { base: Instant::now(), at, acked: Mutex::default() }
    }

    /// The seqs go out now.
    pub fn sending(&self, from: u64, to: u64) {
        let now = self.now();
        for at in self.at.iter().take(index(to) + 1).skip(index(from)) {
            at.store(now, Ordering::Relaxed);
        }
    }

    /// Microseconds since the seq was sent, if it was.
    pub fn age(&self, seq: u64) -> Option<u64> {
        let sent = self.at.get(index(seq))?.load(Ordering::Relaxed);
        (sent > 0).then(|| self.now().saturating_sub(sent))
    }

    /// Everything up to `seq` is durable.
    pub fn acked(&self, seq: u64) {
        let mut acked = self.acked.lock().expect("not poisoned");
        while acked.0 < seq {
            acked.0 += 1;
            let age = self.age(acked.0);
            age.into_iter().for_each(|age| acked.1.micros(age));
        }
    }

    /// The last durable seq, and how long each took.
    pub fn durable(&self) -> (u64, Latencies) {
        self.acked.lock().expect("not poisoned").clone()
    }

    /// The last durable seq.
    pub fn last(&self) -> u64 {
        self.acked.lock().expect("not poisoned").0
    }

    fn now(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }
}

fn index(seq: u64) -> usize {
    usize::try_from(seq).unwrap_or(usize::MAX)
}
