//! The Board's metrics, in memory, for Prometheus; `web::health` serves them.

use std::sync::LazyLock;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
    core::Collector,
};

/// Upper bounds of the buckets of times, seconds.
const SECONDS_BUCKETS: &[f64] = &[0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Upper bounds of the buckets of counts.
const COUNT_BUCKETS: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// The metrics of this process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// What is counted and timed.
pub struct Metrics {
    /// Responses, by method, route and status.
    pub requests: IntCounterVec,
    /// Seconds from the head of a request to the head of its response, by method and route.
    pub request_seconds: HistogramVec,
    /// Database changes, by outcome.
    pub writes: IntCounterVec,
    /// Changes in one commit.
    pub commit_changes: Histogram,
    /// Seconds a commit took, from BEGIN to the end of COMMIT.
    pub commit_seconds: Histogram,
    /// Rows that one change wrote.
    pub change_rows: Histogram,
    /// Seconds one change took, without its commit.
    pub change_seconds: Histogram,
    /// Changes that wait for the writer.
    pub write_queue: IntGauge,
    /// Bytes of SQLite's write-ahead log that are not in the database yet.
    pub log_bytes: IntGauge,
    /// Recorded task events.
    pub events: IntCounter,
    links: IntGauge,
    viewers: IntGauge,
    registry: Registry,
}

impl Metrics {
    fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| kept(&registry, IntCounter::new(name, help));
        let counters = |name: &str, help: &str, labels: &[&str]| {
            kept(&registry, IntCounterVec::new(Opts::new(name, help), labels))
        };
        let gauge = |name: &str, help: &str| kept(&registry, IntGauge::new(name, help));
        let options =
            |name: &str, help: &str, buckets: &[f64]| HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let seconds =
            |name: &str, help: &str| kept(&registry, Histogram::with_opts(options(name, help, SECONDS_BUCKETS)));
        let counts = |name: &str, help: &str| kept(&registry, Histogram::with_opts(options(name, help, COUNT_BUCKETS)));
        let request_seconds = options(
            "viber_board_http_request_seconds",
            "Seconds until the head of an answer, by method and route",
            SECONDS_BUCKETS,
        );
        Self {
            requests: counters(
                "viber_board_http_requests_total",
                "Answers by method, route and status",
                &["method", "route", "status"],
            ),
            request_seconds: kept(&registry, HistogramVec::new(request_seconds, &["method", "route"])),
            writes: counters("viber_board_db_writes_total", "Changes by outcome", &["outcome"]),
            commit_changes: counts("viber_board_db_commit_changes", "Changes in one commit"),
            commit_seconds: seconds("viber_board_db_commit_seconds", "Seconds a commit took"),
            change_rows: counts("viber_board_db_change_rows", "Rows that one change wrote"),
            change_seconds: seconds("viber_board_db_change_seconds", "Seconds one change took"),
            write_queue: gauge("viber_board_db_write_queue", "Changes that wait for the writer"),
            log_bytes: gauge(
                "viber_board_db_log_bytes",
                "Bytes of the write-ahead log that are not in the database yet",
            ),
            events: counter("viber_board_events_total", "Recorded task events"),
            links: gauge("viber_board_links", "Connected vibers"),
            viewers: gauge("viber_board_viewers", "Open streams"),
            registry,
        }
    }
}

/// A metric that the registry knows.
fn kept<M: Collector + Clone + 'static>(registry: &Registry, metric: prometheus::Result<M>) -> M {
    let metric = metric.expect("its name is one of Prometheus");
    registry.register(Box::new(metric.clone())).expect("it has a name of its own");
    metric
}

/// A count as a gauge has it.
pub fn level(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The metrics in Prometheus' text format, version 0.0.4.
pub fn render(connected: usize) -> String {
    METRICS.links.set(level(connected));
    TextEncoder::new().encode_to_string(&METRICS.registry.gather()).unwrap_or_else(|error| {
        tracing::error!(%error, "the metrics cannot be written");
        String::new()
    })
}

/// An open stream of the API or of a page, counted until it is dropped.
#[derive(Debug)]
pub struct Viewer(());

impl Viewer {
    /// Counts a newly opened stream.
    pub fn open() -> Self {
        METRICS.viewers.inc();
        Self(())
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        METRICS.viewers.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown() {
        METRICS.requests.with_label_values(&["GET", "/t/{team}/\"x\"", "200"]).inc();
        METRICS.commit_seconds.observe(0.03);
        let text = render(3);
        for line in [
            "# TYPE viber_board_http_requests_total counter",
            r#"viber_board_http_requests_total{method="GET",route="/t/{team}/\"x\"",status="200"} 1"#,
            r#"viber_board_db_commit_seconds_bucket{le="0.05"} "#,
            "# TYPE viber_board_db_commit_seconds histogram",
            "viber_board_links 3",
            "viber_board_viewers ",
        ] {
            assert!(text.lines().any(|shown| shown.starts_with(line)), "{line} in:\n{text}");
        }
    }
}
