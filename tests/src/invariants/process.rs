//! I10 to I12: what processes are left, what they hold, and whether the Board lives and never panicked.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    Board,
    ledger::{Attempt, LedgerEntries},
    wait::{EVENT_TIMEOUT, SLACK},
};

/// What a viber's test build noted in its root folder, one line each: a word, a task, an attempt, and more.
pub const NOTES_FILE: &str = "notes";
/// A Board that is well answers in this time.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(1);
/// Children of an attempt are gone this long after its end.
const CHILDREN_TIMEOUT: Duration = Duration::from_secs(15);

/// Lines of kind `word` of all vibers: the attempt, and what else it says.
pub fn notes(entries: &LedgerEntries, word: &str) -> Vec<(Attempt, String)> {
    let mut found = Vec::new();
    for root in &entries.vibers {
        for line in std::fs::read_to_string(root.join(NOTES_FILE)).unwrap_or_default().lines() {
            let mut words = line.splitn(4, ' ');
            if words.next() != Some(word) {
                continue;
            }
            let (Some(task), Some(attempt)) = (words.next(), words.next().and_then(|n| n.parse().ok())) else {
                continue;
            };
            found.push(((task.to_owned(), attempt), words.next().unwrap_or_default().to_owned()));
        }
    }
    found
}

/// I10: processes whose temporary folder is an ended attempt's. `ended` says whether one is.
pub async fn children(entries: &LedgerEntries, ended: impl Fn(&Attempt) -> bool, wrong: &mut Vec<String>) {
    let folders: Vec<_> = notes(entries, "scratch").into_iter().filter(|(at, _)| ended(at)).collect();
    if folders.is_empty() {
        return;
    }
    let end = Instant::now() + CHILDREN_TIMEOUT;
    loop {
        let left = living(&folders);
        if left.is_empty() {
            return;
        }
        if Instant::now() > end {
            wrong.extend(left.into_iter().map(|(at, pid)| format!("I10 {at:?} is over and process {pid} of it lives")));
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn living(folders: &[(Attempt, String)]) -> Vec<(Attempt, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a Linux machine").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(environment) = std::fs::read(entry.path().join("environ")) else { continue };
        let folder = environment.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(b"TMPDIR="));
        let Some(folder) = folder else { continue };
        found.extend(folders.iter().filter(|(_, of)| of.as_bytes() == folder).map(|(at, _)| (at.clone(), pid)));
    }
    found
}

/// I12: no panic in the log, and the Board answers within a second if it runs.
pub async fn lives(board: &Board, entries: &LedgerEntries, wrong: &mut Vec<String>) {
    let log = board.log();
    let lines: Vec<&str> = log.lines().collect();
    for (n, line) in
        lines.iter().enumerate().filter(|(_, line)| line.contains("panicked") || line.contains("\"panic\""))
    {
        // The hook writes the place, and what was said on the next line.
        let said = format!("{line} {}", lines.get(n + 1).unwrap_or(&""));
        if !entries.expected.iter().any(|word| said.contains(word)) {
            wrong.push(format!("I12 the Board's log says: {said}"));
        }
    }
    if board.running() {
        let mut best = Duration::MAX;
        let client = reqwest::Client::builder().no_proxy().tls_danger_accept_invalid_certs(true);
        let client = client.timeout(HEALTH_TIMEOUT * SLACK).build().expect("a client");
        // A machine with two cores and many tests beside this one is slow at times; a Board that hangs always is.
        let end = Instant::now() + EVENT_TIMEOUT;
        while Instant::now() < end {
            best = best.min(health(&client, &board.url).await);
            if best <= HEALTH_TIMEOUT * SLACK {
                return;
            }
        }
        wrong.push(format!("I12 /healthz answered in {best:?} at best"));
    }
}

async fn health(client: &reqwest::Client, url: &str) -> Duration {
    let asked = Instant::now();
    match client.get(format!("{url}/healthz")).send().await {
        Ok(answer) if answer.status().is_success() => asked.elapsed(),
        _ => Duration::MAX,
    }
}

/// I11: what a Board process holds, to be compared with what it held before.
#[derive(Clone, Copy, Debug)]
pub struct ProcessWatch {
    pid: u32,
    pub files: usize,
    pub threads: usize,
    /// KiB.
    pub memory: u64,
}

impl ProcessWatch {
    /// What the Board holds now.
    pub fn start(board: &Board) -> Self {
        let pid = board.pid();
        let of = |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count);
        let status =
            std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        let memory = memory.trim().trim_end_matches(" kB").parse().unwrap_or_default();
        Self { pid, files: of("fd"), threads: of("task"), memory }
    }

    /// Waits until the Board is back there: at most 10 files more, no more threads than its pools have, memory within 15 %
    /// (of at least 64 MiB: a page that was drawn for the first time stays in caches). Panics when it does not come.
    pub async fn back(&self, board: &Board) {
        let end = Instant::now() + EVENT_TIMEOUT;
        loop {
            let now = Self::start(board);
            if now.fits(self) {
                return;
            }
            assert!(Instant::now() < end, "I11 the Board holds more than before: {self:?}, now {now:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Whether this is no more than `before`.
    pub fn fits(&self, before: &Self) -> bool {
        /// Threads that block (files, hashes, SQLite) come with work and go by themselves.
        const POOL_THREADS: usize = 24;
        let memory = before.memory + before.memory.max(64 * 1024) * 15 / 100;
        self.pid == before.pid
            && self.files <= before.files + 10
            && self.threads <= before.threads + POOL_THREADS
            && self.memory <= memory
    }
}
