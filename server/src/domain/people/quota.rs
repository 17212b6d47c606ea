//! How much storage a team uses, and how much it may use.

/// Bytes that a team stores on the Board, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageUse {
    pub used: u64,
    pub limit: u64,
}

impl StorageUse {
    /// Whether this many more bytes may be stored. None may when the limit is reached.
    pub fn has_room(self, bytes: u64) -> bool {
        self.used < self.limit && self.used.saturating_add(bytes) <= self.limit
    }

    /// Whether nothing more may be stored.
    pub fn is_full(self) -> bool {
        !self.has_room(0)
    }
}

/// A size in words: `512 B`, `1.4 kB`, `3.2 GB`.
pub fn size_words(size: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    let fitting = units.iter().find(|(unit, _)| size >= *unit);
    fitting.map_or_else(
        || format!("{size} B"),
        |(unit, name)| format!("{}.{} {name}", size / unit, size % unit * 10 / unit),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_a_short_number_with_its_unit() {
        let words = [0, 999, 1_000, 1_001_026, 1_048_576, 3_299_999_999].map(size_words);
        assert_eq!(words, ["0 B", "999 B", "1.0 kB", "1.0 MB", "1.0 MB", "3.2 GB"]);
    }

    #[test]
    fn there_is_room_up_to_the_limit() {
        let half = StorageUse { used: 50, limit: 100 };
        assert!(half.has_room(50) && !half.has_room(51) && !half.is_full() && !half.has_room(u64::MAX));
        assert!(StorageUse { used: 100, limit: 100 }.is_full());
        assert!(StorageUse { used: 101, limit: 100 }.is_full());
    }
}
