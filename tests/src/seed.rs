//! Chance that can be repeated: the seed is printed, and taken from `SEED` when that is set.

/// A small generator (splitmix64).
#[derive(Debug)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// A seed of its own, or `SEED`. Printed, so that a failure can be played again.
    pub fn new() -> Self {
        let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(uuid::Uuid::new_v4().as_fields().0));
        eprintln!("SEED={seed}");
        Self(seed)
    }

    /// The same numbers again.
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    /// From 0 to 1.
    pub fn chance(&mut self) -> f64 {
        (self.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `from..to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.draw() % (to - from)
    }
}

impl Default for SeededRandom {
    fn default() -> Self {
        Self::new()
    }
}
