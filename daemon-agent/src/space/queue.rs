//! How many looks at repositories a viber has under way at once, whoever asks: each may take the memory and the time that
//! one look may take.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, TryAcquireError},
    time::timeout,
};

use super::Trouble;

/// Looks at once.
const MAX_LOOKS: usize = 3;
/// Looks that wait for one of them to end; the next is told to come again. Few, because each is one of the requests that
/// the Board may have under way, and those for files are not to wait for looks.
const MAX_WAITING: usize = 3;
/// A look does not wait longer: who asked has to hear within the Board's patience.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// The looks of one viber.
#[derive(Debug)]
pub struct LookQueue {
    running: Semaphore,
    waiting: Semaphore,
}

/// The looks of this process.
pub static LOOKS: LookQueue = LookQueue::new();

impl LookQueue {
    const fn new() -> Self {
        Self { running: Semaphore::const_new(MAX_LOOKS), waiting: Semaphore::const_new(MAX_WAITING) }
    }

    /// A place, which is free again when it is dropped.
    pub async fn enter(&self) -> Result<SemaphorePermit<'_>, Trouble> {
        match self.running.try_acquire() {
            Ok(place) => return Ok(place),
            Err(TryAcquireError::NoPermits) => {}
            Err(TryAcquireError::Closed) => return Err(Trouble::Busy),
        }
        let _waits = self.waiting.try_acquire().map_err(|_| Trouble::Busy)?;
        let place = timeout(MAX_WAIT, self.running.acquire()).await;
        place.map_err(|_| Trouble::Busy)?.map_err(|_| Trouble::Busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_waits_for_its_turn_and_the_line_has_an_end() {
        static QUEUE: LookQueue = LookQueue::new();
        let mut places = Vec::new();
        for _ in 0..MAX_LOOKS {
            places.push(QUEUE.enter().await.expect("free"));
        }
        let mut waiting: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(QUEUE.enter())).collect();
        for wait in &mut waiting {
            assert!(futures_util::poll!(wait.as_mut()).is_pending());
        }
        assert!(matches!(QUEUE.enter().await, Err(Trouble::Busy)), "the line is full");
        places.pop();
        assert!(waiting.remove(0).await.is_ok(), "who came first is first");
        // Whoever asked is gone.
        drop((places, waiting));
        assert!(QUEUE.enter().await.is_ok(), "all places are free again");
    }
}
