//! Processor time and memory as the kernel counts them (`/proc`, see proc(5)).

use std::{fs, time::Instant};

/// Clock ticks a second of `/proc/*/stat`: fixed for user space on Linux.
const TICKS: f64 = 100.0;
/// How the titles of processes begin that a PostgreSQL server has for itself.
const OWN_ROLES: &[&str] = &[
    "archiver",
    "autovacuum",
    "background",
    "checkpointer",
    "io worker",
    "logger",
    "logical replication",
    "startup",
    "stats collector",
    "walwriter",
];
const MIB: f64 = 1024.0;

/// Something is being measured.
#[derive(Debug)]
pub struct Watch {
    pid: u32,
    /// The database server whose processor time is counted with the Board's, and what it had used.
    server: Option<(u32, f64)>,
    began: Instant,
    board: f64,
    own: f64,
    busy: f64,
    written: u64,
    commits: u64,
    calls: u64,
    switches: u64,
}

/// What it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub seconds: f64,
    /// Processor seconds of the Board, of this generator, and of everybody else on the machine.
    pub board: f64,
    /// Of the Board's, those of its database server.
    pub server: f64,
    pub own: f64,
    pub others: f64,
    /// MiB now, and at most.
    pub rss: f64,
    pub peak: f64,
    /// Bytes that the Board gave to the disk.
    pub written: u64,
    pub commits: u64,
    /// Calls of read, write and their vectored kind; what goes through recv and send the kernel does not count.
    pub calls: u64,
    /// Times that a thread of the Board made room for another one.
    pub switches: u64,
}

impl Watch {
    /// From now on. `commits` is how many the Board counted before.
    pub fn start(pid: u32, commits: u64) -> Self {
        Self {
            pid,
            server: None,
            began: Instant::now(),
            board: processor(pid),
            own: processor(std::process::id()),
            busy: busy(),
            written: io(pid, "write_bytes"),
            commits,
            calls: calls(pid),
            switches: switches(pid),
        }
    }

    /// The same, with a database server beside the Board.
    pub fn with_server(self, server: Option<u32>) -> Self {
        Self { server: server.map(|server| (server, processor_with_children(server))), ..self }
    }

    /// The machine and this generator, but no Board.
    pub fn machine() -> Self {
        Self::start(0, 0)
    }

    /// Up to now.
    pub fn stop(&self, commits: u64) -> Spent {
        let server = self.server.map_or(0.0, |(server, before)| processor_with_children(server) - before);
        let board = processor(self.pid) - self.board + server;
        let own = processor(std::process::id()) - self.own;
        let (rss, peak) = memory(self.pid);
        Spent {
            seconds: self.began.elapsed().as_secs_f64(),
            board,
            server,
            own,
            others: (busy() - self.busy - board - own).max(0.0),
            rss,
            peak,
            written: io(self.pid, "write_bytes").saturating_sub(self.written),
            commits: commits.saturating_sub(self.commits),
            calls: calls(self.pid).saturating_sub(self.calls),
            switches: switches(self.pid).saturating_sub(self.switches),
        }
    }
}

/// Several Board processes after each other, each looked at before its end.
#[derive(Debug, Default)]
pub struct Boards(Spent);

impl Boards {
    /// One that has done its work.
    pub fn add(&mut self, pid: u32) {
        let (rss, peak) = memory(pid);
        self.0.board += processor(pid);
        self.0.written += io(pid, "write_bytes");
        self.0.calls += calls(pid);
        self.0.switches += switches(pid);
        (self.0.rss, self.0.peak) = (rss, self.0.peak.max(peak));
    }

    /// What they took together since `machine` is watched.
    pub fn spent(self, machine: &Watch) -> Spent {
        let all = machine.stop(0);
        let others = (all.others - self.0.board).max(0.0);
        Spent { seconds: all.seconds, own: all.own, others, ..self.0 }
    }
}

/// User and system seconds of a process, all its threads, also those that have ended.
pub fn processor(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may hold anything; utime and stime are fields 14 and 15.
    let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
    let fields: Vec<f64> = after.split_whitespace().skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    fields.iter().sum::<f64>() / TICKS
}

/// The same of a process and its children: a database server has one for each connection.
pub fn processor_with_children(pid: u32) -> f64 {
    let mut ticks = 0.0;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let Some((name, after)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<f64> = after.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
        let is_itself = name.split(' ').next() == Some(&pid.to_string());
        // From the fourth field on: the parent, …, utime, stime, and both of children that have ended.
        if let [parent, ..] = fields[..]
            && (is_itself || parent == f64::from(pid))
        {
            ticks += fields.iter().skip(10).take(if is_itself { 4 } else { 2 }).sum::<f64>();
        }
    }
    ticks / TICKS
}

/// User and system seconds of the processes in which a PostgreSQL server answers its clients, so far as they still run: what
/// it does for itself meanwhile, such as vacuuming rows that were just written, is no part of a call.
pub fn processor_of_backends(server: u32) -> f64 {
    let parent = format!("PPid:\t{server}");
    let is_backend = |pid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let title = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let role = title.strip_prefix("postgres: ").unwrap_or_default();
        status.lines().any(|line| line == parent) && !OWN_ROLES.iter().any(|own| role.starts_with(own))
    };
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse().ok());
    pids.filter(|pid| is_backend(*pid)).map(processor).sum()
}

/// Resident MiB now, and the most so far.
pub fn memory(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next()?.parse::<f64>().ok());
        number.unwrap_or(0.0) / MIB
    };
    (field("VmRSS"), field("VmHWM"))
}

/// GiB that the kernel has of memory.
pub fn total_memory() -> f64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / MIB / 1024.0
}

/// The load averages of one, five and fifteen minutes.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// The processor's name.
pub fn model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or_else(String::new, |(_, name)| name.to_owned())
}

/// Seconds that all processors were busy.
fn busy() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<f64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal: idle and iowait are rest; guests stand in user already.
    let busy = fields.iter().take(8).enumerate().filter(|(n, _)| *n != 3 && *n != 4);
    busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS
}

fn calls(pid: u32) -> u64 {
    io(pid, "syscr") + io(pid, "syscw")
}

fn io(pid: u32, name: &str) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let mut fields = io.lines().filter_map(|line| line.split_once(": "));
    fields.find(|(field, _)| *field == name).and_then(|(_, count)| count.trim().parse().ok()).unwrap_or(0)
}

/// Of the threads that live.
fn switches(pid: u32) -> u64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let status = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    let count = |status: String| -> u64 {
        let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    status.map(count).sum()
}
