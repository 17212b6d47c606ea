//! F33: every connection is reset, again and again.

use std::time::Duration;

use board_tests::{eventually, llm::Reply, wait::EVENT_TIMEOUT};
use tokio::time::{Instant, sleep_until};

use super::{Network, over_a_network, words};

/// `many` outages of `down`, one every `every`: at most one new connection each, and nothing is lost.
async fn outages(many: u32, down: Duration, every: Duration) {
    let length = every * many;
    let count = u32::try_from(length.as_millis() / 100).expect("small");
    let pieces = words(0, count, Duration::from_millis(100));
    let fixture = over_a_network(vec![Reply::Stream(pieces)], |_| {}).await;
    let task = fixture.submit("count").await;
    fixture.recorded(&task, 1).await;
    let began = Instant::now();
    for n in 0..many {
        let before = fixture.proxy().counts();
        fixture.proxy().refuse(true);
        fixture.proxy().reset();
        sleep_until(began + every * n + down).await;
        fixture.proxy().refuse(false);
        eventually("back", || async { (fixture.contact().await == "connected").then_some(()) }).await;
        sleep_until(began + every * (n + 1)).await;
        let after = fixture.proxy().counts();
        assert!(after.connections - before.connections <= 1, "outage {n}: {before:?}, {after:?}");
        // Full jitter may try at once, and then waits longer each time.
        assert!(after.refused - before.refused <= 12, "outage {n}: {before:?}, {after:?}");
    }
    fixture.completes(&task, count, EVENT_TIMEOUT * 2).await;
    fixture.assert_invariants(1).await;
}

/// Two outages of three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f33_resets_cost_one_connection_each() {
    outages(2, Duration::from_secs(3), Duration::from_secs(8)).await;
}

mod long {
    use super::*;

    /// Five seconds of ten, for five minutes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f33_resets_for_minutes_cost_one_connection_each() {
        outages(30, Duration::from_secs(5), Duration::from_secs(10)).await;
    }
}
