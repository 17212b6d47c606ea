//! The Board's metrics, in memory, for Prometheus.
//!
//! The names of the metrics, for the macros of the crate `metrics`; `web::health` serves them.

use std::sync::OnceLock;

use metrics::{describe_counter, describe_gauge, describe_histogram, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Responses, by method, route and status.
pub const REQUESTS: &str = "viber_board_http_requests_total";
/// Seconds from the head of a request to the head of its response, by method and route.
pub const REQUEST_SECONDS: &str = "viber_board_http_request_seconds";
/// Database changes, by outcome.
pub const WRITES: &str = "viber_board_db_writes_total";
/// Changes in one commit.
pub const COMMIT_SIZE: &str = "viber_board_db_commit_changes";
/// Seconds a commit took, from BEGIN to the end of COMMIT.
pub const COMMIT_SECONDS: &str = "viber_board_db_commit_seconds";
/// Rows that one change wrote.
pub const CHANGE_ROWS: &str = "viber_board_db_change_rows";
/// Seconds one change took, without its commit.
pub const CHANGE_SECONDS: &str = "viber_board_db_change_seconds";
/// Changes that wait for the writer.
pub const WRITE_QUEUE: &str = "viber_board_db_write_queue";
/// Bytes of SQLite's write-ahead log that are not in the database yet.
pub const LOG_BYTES: &str = "viber_board_db_log_bytes";
/// Connected vibers.
pub const LINKS: &str = "viber_board_links";
/// Recorded task events.
pub const EVENTS: &str = "viber_board_events_total";
/// Open streams of the API and of pages.
pub const VIEWERS: &str = "viber_board_viewers";

/// The process's recorder. The first call installs it; what is recorded earlier is lost.
pub fn handle() -> &'static PrometheusHandle {
    static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let seconds = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        let sizes = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &seconds)
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Full(COMMIT_SIZE.into()), &sizes))
            .and_then(|builder| builder.set_buckets_for_metric(Matcher::Full(CHANGE_ROWS.into()), &sizes))
            .expect("the buckets are not empty")
            .build_recorder();
        let handle = recorder.handle();
        if metrics::set_global_recorder(recorder).is_err() {
            tracing::warn!("another recorder of metrics is installed; /metrics stays empty");
        }
        describe_counter!(REQUESTS, "Answers by method, route and status");
        describe_histogram!(REQUEST_SECONDS, "Seconds until the head of an answer, by method and route");
        describe_counter!(WRITES, "Changes by outcome");
        describe_histogram!(COMMIT_SIZE, "Changes in one commit");
        describe_histogram!(COMMIT_SECONDS, "Seconds a commit took");
        describe_histogram!(CHANGE_ROWS, "Rows that one change wrote");
        describe_histogram!(CHANGE_SECONDS, "Seconds one change took");
        describe_gauge!(WRITE_QUEUE, "Changes that wait for the writer");
        describe_gauge!(LOG_BYTES, "Bytes of the write-ahead log that are not in the database yet");
        describe_gauge!(LINKS, "Connected vibers");
        describe_counter!(EVENTS, "Recorded task events");
        describe_gauge!(VIEWERS, "Open streams");
        gauge!(VIEWERS).set(0.0);
        handle
    })
}

/// Counts the samples of histograms that were taken since the last call. Until then each of them takes memory.
pub fn settle() {
    handle().run_upkeep();
}

/// The metrics in Prometheus' text format, version 0.0.4.
pub fn render(connected: usize) -> String {
    let handle = handle();
    gauge!(LINKS).set(u32::try_from(connected).map_or(f64::INFINITY, f64::from));
    handle.run_upkeep();
    handle.render()
}

/// An open stream, counted until it is dropped.
#[derive(Debug)]
pub struct Viewer(());

impl Viewer {
    /// Counts a newly opened stream.
    pub fn open() -> Self {
        gauge!(VIEWERS).increment(1.0);
        Self(())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        gauge!(VIEWERS).decrement(1.0);
    }
}
