//! How many looks at repositories a viber runs at a time, whoever asks: each may use all the memory and time that one
//! look may use.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, TryAcquireError},
    time::timeout,
};

use super::SpaceError;

/// Looks that run at the same time.
const MAX_LOOKS: usize = 3;
/// Looks that wait for one of them to end; further ones are told to try again. Few, because each is one of the requests
/// that the Board may have under way, and requests for files must not wait for looks.
const MAX_WAITING_LOOKS: usize = 3;
/// How long a look waits: whoever asked has to get an answer before the Board gives up.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(3);

/// The looks of one viber.
#[derive(Debug)]
pub struct LookQueue {
    running: Semaphore,
    waiting: Semaphore,
}

/// The looks of this process.
pub static LOOK_QUEUE: LookQueue = LookQueue::new();

impl LookQueue {
    const fn new() -> Self {
        Self { running: Semaphore::const_new(MAX_LOOKS), waiting: Semaphore::const_new(MAX_WAITING_LOOKS) }
    }

    /// Waits for a place, which becomes free again when it is dropped.
    pub async fn enter(&self) -> Result<SemaphorePermit<'_>, SpaceError> {
        match self.running.try_acquire() {
            Ok(place) => return Ok(place),
            Err(TryAcquireError::NoPermits) => {}
            Err(TryAcquireError::Closed) => return Err(SpaceError::Busy),
        }
        let _waits = self.waiting.try_acquire().map_err(|_| SpaceError::Busy)?;
        let place = timeout(QUEUE_TIMEOUT, self.running.acquire()).await;
        place.map_err(|_| SpaceError::Busy)?.map_err(|_| SpaceError::Busy)
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
        let mut waiting: Vec<_> = (0..MAX_WAITING_LOOKS).map(|_| Box::pin(QUEUE.enter())).collect();
        for wait in &mut waiting {
            assert!(futures_util::poll!(wait.as_mut()).is_pending());
        }
        assert!(matches!(QUEUE.enter().await, Err(SpaceError::Busy)), "the line is full");
        places.pop();
        assert!(waiting.remove(0).await.is_ok(), "who came first is first");
        // The askers are gone.
        drop((places, waiting));
        assert!(QUEUE.enter().await.is_ok(), "all places are free again");
    }
}
