//! Waiting for what should become true, bounded.

use std::{future::Future, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

/// How long anything may take on a busy machine with two cores before a test gives up on it.
pub const EVENT_TIMEOUT: Duration = Duration::from_secs(60);
/// What is due in some time may take so many times that before a case fails: it shares its machine with others. What the
/// product promises to the millisecond is measured by `make bench`.
pub const SLACK: u32 = 10;
/// Between two looks at something that can't be subscribed to (another process).
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Looks until `look` finds something. Panics with `what` after [`EVENT_TIMEOUT`].
pub async fn eventually<T, F>(what: &str, look: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    within(EVENT_TIMEOUT, what, look).await
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
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads until what is read is as `wanted` says. Panics with `what` and what was read last when `limit` is over.
pub async fn until<F>(
    limit: Duration,
    what: &str,
    mut read: impl FnMut() -> F,
    wanted: impl Fn(&Value) -> bool,
) -> Value
where
    F: Future<Output = Value>,
{
    let end = Instant::now() + limit;
    loop {
        let found = read().await;
        if wanted(&found) {
            return found;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain for: {what}; the last was {found:#}");
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
