//! Rendered texts by the hash of their source: two generations, bounded by bytes, shared by all teams.
//!
//! Safe to share: a caller already has the source.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use sha2::{Digest, Sha256};

use super::TextAuthor;

/// Bytes of HTML in a generation; the older one is dropped when the newer is full.
const GENERATION_BYTES: usize = 16 * 1024 * 1024;
/// Longer texts fill the cache for one page view; they are rendered each time.
const MAX_ENTRY_BYTES: usize = 1024 * 1024;

type Key = [u8; 32];

#[derive(Default)]
struct Cache {
    newer: HashMap<Key, Arc<str>>,
    older: HashMap<Key, Arc<str>>,
    /// Bytes of HTML in `newer`.
    bytes: usize,
}

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// The HTML of `source`, made by `make` when it is not there.
pub(super) fn get_or(source: &str, by: TextAuthor, make: impl FnOnce() -> String) -> Arc<str> {
    let mut hash = Sha256::new();
    hash.update([u8::from(by == TextAuthor::Person)]);
    hash.update(source.as_bytes());
    let key: Key = hash.finalize().into();
    if let Some(html) = CACHE.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return html;
    }
    let html: Arc<str> = make().into();
    if html.len() <= MAX_ENTRY_BYTES {
        CACHE.lock().unwrap_or_else(PoisonError::into_inner).put(key, html.clone());
    }
    html
}

impl Cache {
    fn get(&mut self, key: &Key) -> Option<Arc<str>> {
        if let Some(html) = self.newer.get(key) {
            return Some(html.clone());
        }
        let html = self.older.remove(key)?;
        self.put(*key, html.clone());
        Some(html)
    }

    fn put(&mut self, key: Key, html: Arc<str>) {
        if self.bytes + html.len() > GENERATION_BYTES {
            self.older = std::mem::take(&mut self.newer);
            self.bytes = 0;
        }
        self.bytes += html.len();
        self.newer.insert(key, html);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_is_bounded_and_keeps_what_is_used() {
        let mut cache = Cache::default();
        let big: Arc<str> = "x".repeat(MAX_ENTRY_BYTES).into();
        cache.put([0; 32], "kept".into());
        for n in 1..100 {
            cache.put([n; 32], big.clone());
            assert!(cache.get(&[0; 32]).is_some(), "dropped after {n}");
        }
        assert!(cache.newer.len() + cache.older.len() <= 34);
    }
}
