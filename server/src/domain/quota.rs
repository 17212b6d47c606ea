//! What a team may use of what is shared by all.

/// Bytes that a team keeps on the Board, and how many it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageUse {
    pub used: u64,
    pub limit: u64,
}

impl StorageUse {
    /// Whether so much more may be kept. Nothing more may when all of it is used.
    pub fn has_room(self, bytes: u64) -> bool {
        self.used < self.limit && self.used.saturating_add(bytes) <= self.limit
    }

    /// Whether nothing more may be kept.
    pub fn is_full(self) -> bool {
        !self.has_room(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_up_to_the_limit() {
        let half = StorageUse { used: 50, limit: 100 };
        assert!(half.has_room(50) && !half.has_room(51) && !half.is_full() && !half.has_room(u64::MAX));
        assert!(StorageUse { used: 100, limit: 100 }.is_full());
        assert!(StorageUse { used: 101, limit: 100 }.is_full());
    }
}
