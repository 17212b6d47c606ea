//! Waiting for what should become true, bounded.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

/// How long anything may take on a busy machine with two cores before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Between two looks at something that can't be subscribed to (another process).
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// Looks until `look` finds something. Panics with `what` after [`PATIENCE`].
pub async fn eventually<T, F>(what: &str, look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    within(PATIENCE, what, look).await
}

/// Looks until `look` finds something. Panics with `what` when `limit` is over.
pub async fn within<T, F>(limit: Duration, what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain for: {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
