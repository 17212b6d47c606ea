//! Limits how many inspections of repositories a viber runs at a time, whoever asks for them, because each one may use
//! as much memory and time as a single inspection is allowed. An inspection is everything that git is asked for one
//! request.

use std::time::Duration;

use tokio::{
    sync::{Semaphore, SemaphorePermit, TryAcquireError},
    time::timeout,
};

use super::SpaceError;

/// Inspections that run at the same time.
const MAX_INSPECTIONS: usize = 3;
/// Inspections that wait for one of them to end; further ones are refused as busy. Few, because each is one of the
/// requests that the Board may have under way, and requests for files must not wait for inspections.
const MAX_WAITING_INSPECTIONS: usize = 3;
/// How long an inspection waits for its turn: the requester must get an answer before the Board gives up.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(3);

/// The inspections of one viber.
#[derive(Debug)]
pub struct InspectionQueue {
    running: Semaphore,
    waiting: Semaphore,
}

/// The inspections of this process.
pub static INSPECTION_QUEUE: InspectionQueue = InspectionQueue::new();

impl InspectionQueue {
    const fn new() -> Self {
        Self { running: Semaphore::const_new(MAX_INSPECTIONS), waiting: Semaphore::const_new(MAX_WAITING_INSPECTIONS) }
    }

    /// Waits for a permit, which becomes free again when it is dropped.
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
        static QUEUE: InspectionQueue = InspectionQueue::new();
        let mut places = Vec::new();
        for _ in 0..MAX_INSPECTIONS {
            places.push(QUEUE.enter().await.expect("free"));
        }
        let mut waiting: Vec<_> = (0..MAX_WAITING_INSPECTIONS).map(|_| Box::pin(QUEUE.enter())).collect();
        for wait in &mut waiting {
            assert!(futures_util::poll!(wait.as_mut()).is_pending());
        }
        assert!(matches!(QUEUE.enter().await, Err(SpaceError::Busy)), "the line is full");
        places.pop();
        assert!(waiting.remove(0).await.is_ok(), "who came first is first");
        // The waiting callers are gone.
        drop((places, waiting));
        assert!(QUEUE.enter().await.is_ok(), "all places are free again");
    }
}
