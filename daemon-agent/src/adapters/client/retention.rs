//! How long logs stay for programs of this machine, which may come back and go on reading.

use std::{collections::BTreeMap, time::Duration};

use protocol::AttemptRef;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::outbox::Outbox;

/// The reader that logs are kept for.
pub const CLIENT_READER: &str = "clients";
/// How long a log stays after the end of its attempt.
const RETENTION: Duration = Duration::from_secs(10 * 60);
/// Time between two looks.
const SWEEP_INTERVAL: Duration = Duration::from_secs(20);

/// Keeps logs for programs until some time after their end, until `finish` is cancelled.
pub async fn expire(outbox: Outbox, finish: CancellationToken) {
    let mut ended: BTreeMap<AttemptRef, Instant> = BTreeMap::new();
    loop {
        let here = outbox.kept_for(CLIENT_READER);
        ended.retain(|attempt, _| here.binary_search_by(|(known, _)| known.cmp(attempt)).is_ok());
        for (attempt, is_over) in here {
            if is_over && ended.entry(attempt.clone()).or_insert_with(Instant::now).elapsed() >= RETENTION {
                outbox.release(&attempt, CLIENT_READER);
            }
        }
        if finish.run_until_cancelled(tokio::time::sleep(SWEEP_INTERVAL)).await.is_none() {
            return;
        }
    }
}
