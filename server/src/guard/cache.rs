//! A cache of what was read about credentials, for at most two seconds.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

/// How long an entry is valid, milliseconds: this bounds the delay of a revocation made by another process.
pub const TTL_MS: i64 = 2_000;
/// Entries at which the cache starts again from empty.
const MAX_ENTRIES: usize = 8_192;

/// A bounded map whose entries expire. `forget` drops everything, including what is being read at that moment.
#[derive(Debug)]
pub struct Cache<K, V> {
    inner: Mutex<Inner<K, V>>,
}

#[derive(Debug)]
struct Inner<K, V> {
    /// Counts the calls of `forget`, so that the result of a read that began earlier is not kept.
    age: u64,
    entries: HashMap<K, (i64, V)>,
}

/// When a read began, as proof for `keep`.
#[derive(Clone, Copy, Debug)]
pub struct ReadStart(u64);

impl<K: Eq + Hash, V: Clone> Cache<K, V> {
    /// What is known about `key` at `now` (monotonic milliseconds), or the start of the read that finds out.
    pub fn look(&self, key: &K, now: i64) -> Result<V, ReadStart> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.entries.get(key) {
            Some((until, value)) if *until > now => Ok(value.clone()),
            _ => Err(ReadStart(inner.age)),
        }
    }

    /// Keeps what a read found, unless something was revoked after it began.
    pub fn keep(&self, begun: ReadStart, key: K, now: i64, value: V) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.age != begun.0 {
            return;
        }
        if inner.entries.len() >= MAX_ENTRIES {
            inner.entries.clear();
        }
        inner.entries.insert(key, (now + TTL_MS, value));
    }

    /// Drops one entry, because it changed; nothing that is being read at this moment is kept.
    pub fn forget_one(&self, key: &K) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.age += 1;
        inner.entries.remove(key);
    }

    /// Drops everything, because of a revocation.
    pub fn forget(&self) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.age += 1;
        inner.entries.clear();
    }
}

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self { inner: Mutex::new(Inner { age: 0, entries: HashMap::new() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lasts_two_seconds_and_a_revocation_beats_a_read_under_way() {
        let cache = Cache::<&str, u8>::default();
        let begun = cache.look(&"a", 0).expect_err("nothing yet");
        cache.keep(begun, "a", 0, 1);
        assert_eq!(cache.look(&"a", TTL_MS - 1).ok(), Some(1));
        assert!(cache.look(&"a", TTL_MS).is_err());
        let begun = cache.look(&"b", 0).expect_err("nothing yet");
        cache.forget();
        cache.keep(begun, "b", 0, 2);
        assert!(cache.look(&"b", 0).is_err(), "the read began before the revocation");
        assert!(cache.look(&"a", 0).is_err());
        for key in ["a", "b"] {
            let begun = cache.look(&key, 0).expect_err("nothing yet");
            cache.keep(begun, key, 0, 3);
        }
        let begun = cache.look(&"c", 0).expect_err("nothing yet");
        cache.forget_one(&"a");
        cache.keep(begun, "c", 0, 3);
        assert!(cache.look(&"a", 0).is_err() && cache.look(&"c", 0).is_err());
        assert_eq!(cache.look(&"b", 0).ok(), Some(3));
    }
}
