//! Streamed text that the Board has not acknowledged, and when the disk has to have it: nearly always the Board is
//! sooner, and then nothing is synced for it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How long a small piece of streamed text may be on neither the Board's disk nor this one: longer than a connected Board
/// takes to acknowledge it. Only a crash of the whole machine loses what the kernel was given meanwhile, and the task
/// that wrote it ends with the machine.
const MAX_TEXT_SYNC_DELAY: Duration = Duration::from_millis(250);

/// The pieces of one log, oldest first.
#[derive(Default)]
pub struct UnackedText {
    /// The seq of each, and when it has to be durable here.
    pieces: VecDeque<(u64, Instant)>,
}

impl UnackedText {
    /// Adds the piece `seq`, written at `now`. Returns when it has to be durable.
    pub fn add(&mut self, seq: u64, now: Instant) -> Instant {
        // What was due before is durable, or is being made so: without a Board nothing adds up here.
        while self.pieces.front().is_some_and(|(_, due)| *due <= now) {
            self.pieces.pop_front();
        }
        let due = now + MAX_TEXT_SYNC_DELAY;
        self.pieces.push_back((seq, due));
        due
    }

    /// The Board has everything up to `seq`. Returns when the oldest of the other pieces has to be durable.
    pub fn acknowledge(&mut self, seq: u64) -> Option<Instant> {
        while self.pieces.front().is_some_and(|(piece, _)| *piece <= seq) {
            self.pieces.pop_front();
        }
        self.pieces.front().map(|(_, due)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_piece_that_the_board_lacks_is_due_first() {
        let (start, mut text) = (Instant::now(), UnackedText::default());
        let at = |ms| start + Duration::from_millis(ms);
        let due: Vec<Instant> = (1..=3).map(|seq| text.add(seq, at(seq * 50))).collect();
        assert_eq!(due[0], at(50) + MAX_TEXT_SYNC_DELAY);
        assert_eq!(text.acknowledge(0), Some(due[0]));
        assert_eq!(text.acknowledge(2), Some(due[2]));
        assert_eq!(text.acknowledge(3), None);
    }

    #[test]
    fn without_a_board_nothing_adds_up() {
        let (start, mut text) = (Instant::now(), UnackedText::default());
        for seq in 1..1000 {
            text.add(seq, start + Duration::from_millis(seq * 50));
        }
        assert!(text.pieces.len() <= 5, "{}", text.pieces.len());
    }
}
