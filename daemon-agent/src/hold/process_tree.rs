//! The descendants of a process, read from /proc, and signals for exactly them.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use rustix::process::{self, Pid, PidfdFlags, Signal};

/// A process at the moment it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// It only waits to be reaped by its parent.
    pub zombie: bool,
    /// Clock ticks since boot: together with the pid, the process's identity.
    pub started: u64,
}

impl Process {
    /// Reads `/proc/{pid}/stat`; `None` if there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses proc(5)'s `stat` line; the second field is the program's name in brackets and may contain anything.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index)?.parse::<i32>().ok();
        Some(Self {
            pid,
            parent: number(1)?,
            group: number(2)?,
            session: number(3)?,
            zombie: matches!(*fields.first()?, "Z" | "X"),
            started: fields.get(19)?.parse().ok()?,
        })
    }

    /// Sends `signal` to exactly this process, never to a later one with the same id.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = process::pidfd_open(pid, PidfdFlags::empty()) else { return };
        if Self::read(self.pid).is_some_and(|now| now.started == self.started) {
            // The process may end at any moment, which is the goal anyway.
            let _ = process::pidfd_send_signal(handle, signal);
        }
    }
}

/// All visible processes of the machine.
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The living descendants of `root`, parents first. A process whose parent changes in the meantime may be missing: only
/// having no child left to wait for proves that there is none.
pub fn descendants(root: i32) -> Vec<Process> {
    below(root, &all())
}

/// Like [`descendants`], among processes that were read before.
pub fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<&Process>> = HashMap::new();
    for process in all {
        children.entry(process.parent).or_default().push(process);
    }
    let (mut found, mut seen, mut next) = (Vec::new(), HashSet::from([root]), vec![root]);
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if seen.insert(child.pid) {
                next.push(child.pid);
                found.extend((!child.zombie).then_some(**child));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32) -> Process {
        Process { pid, parent, group: pid, session: 1, zombie: false, started: 0 }
    }

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse() {
        let stat = "42 (a) S 1 (b) R 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 1 1";
        let read = Process::parse(42, stat).expect("a stat line");
        assert_eq!((read.parent, read.group, read.session, read.started), (7, 42, 41, 12345));
        assert_eq!(Process::parse(1, "1 (cut"), None);
    }

    #[test]
    fn only_what_descends_is_found_in_any_order() {
        let mut dead = process(13, 12);
        dead.zombie = true;
        let all = [process(14, 13), process(11, 10), dead, process(12, 11), process(20, 1), process(10, 1)];
        let mut pids: Vec<_> = below(10, &all).iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [11, 12, 14]);
    }

    #[test]
    fn the_running_test_is_there_and_a_stale_identity_gets_no_signal() {
        let own = Process::read(std::process::id() as i32).expect("this process");
        let stale = Process { started: own.started + 1, ..own };
        stale.signal(Signal::KILL);
        assert!(all().iter().any(|process| process.pid == own.pid));
    }
}
