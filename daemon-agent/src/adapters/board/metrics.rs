//! The machine's CPU, memory and disk usage, from /proc and the file system.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use protocol::Metrics;

/// Time between two samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(30);

/// Samples the machine's usage for heartbeats.
#[derive(Debug)]
pub struct MetricsSampler {
    folder: PathBuf,
    last: Option<Instant>,
    /// Busy ticks and all ticks since the machine started.
    ticks: Option<(u64, u64)>,
}

impl MetricsSampler {
    /// A sampler for the disk that holds `folder`.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, last: None, ticks: None }
    }

    /// Takes a sample, at most every 30 s.
    pub fn measure(&mut self, now: Instant) -> Option<Metrics> {
        if self.last.is_some_and(|last| now.duration_since(last) < SAMPLE_INTERVAL) {
            return None;
        }
        self.last = Some(now);
        let ticks = fs::read_to_string("/proc/stat").ok().and_then(|text| ticks(&text));
        let before = std::mem::replace(&mut self.ticks, ticks);
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let (total, free) = (kibibytes(&memory, "MemTotal:"), kibibytes(&memory, "MemAvailable:"));
        let disk = rustix::fs::statvfs(&self.folder).ok();
        let (disk_total, disk_free) =
            disk.map_or((0, 0), |disk| (disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize));
        Some(Metrics {
            cpu_percent: share(before, ticks),
            memory_used: total.saturating_sub(free),
            memory_total: total,
            disk_used: disk_total.saturating_sub(disk_free),
            disk_total,
        })
    }
}

fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|number| number.parse().ok()).take(8).collect();
    let all: u64 = numbers.iter().sum();
    // The fourth and fifth fields are idle time and time spent waiting for the disk.
    let idle = numbers.get(3)? + numbers.get(4)?;
    Some((all - idle, all))
}

fn share(before: Option<(u64, u64)>, now: Option<(u64, u64)>) -> f64 {
    let (Some((busy, all)), Some((busy_now, all_now))) = (before, now) else { return 0.0 };
    let (busy, all) = (busy_now.saturating_sub(busy), all_now.saturating_sub(all));
    if all == 0 { 0.0 } else { (busy as f64 * 1000.0 / all as f64).round() / 10.0 }
}

fn kibibytes(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_busy_machine_is_between_two_looks() {
        let (a, b) = (ticks("cpu  10 0 10 80 0 0 0 0 0 0\n"), ticks("cpu  40 0 30 120 10 0 0 0 0 0\n"));
        assert_eq!((a, b), (Some((20, 100)), Some((70, 200))));
        assert_eq!(share(a, b), 50.0);
        assert_eq!(share(None, b), 0.0);
        assert_eq!(kibibytes("MemTotal:  16 kB\n", "MemTotal:"), 16 * 1024);
    }
}
