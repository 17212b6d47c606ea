//! Whether this process started another one, however indirectly: that tells agents' commands from their user's own
//! programs.

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::process_tree::Process;

/// Longer than any real chain of parents; also ends a cycle of reused process ids.
const MAX_ANCESTORS: usize = 10_000;

/// How a process is related to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ancestry {
    /// This process or one of its descendants started it.
    Descendant,
    /// It has a process namespace of its own: that of a descendant, or a container.
    Apart,
    /// Its chain of parents ends outside of this process.
    Stranger,
    /// It is gone, or one of its ancestors is, so nobody can tell.
    Unknown,
}

impl Ancestry {
    /// The relation of the living process `pid`. Reads /proc: call it where blocking is fine.
    pub fn of(pid: i32) -> Self {
        let own = std::process::id() as i32;
        let Some(first) = Process::read(pid).filter(|process| pid > 0 && !process.zombie) else { return Self::Unknown };
        if depth("self") != depth(&pid.to_string()) {
            return Self::Apart;
        }
        let mut child = first;
        for _ in 0..MAX_ANCESTORS {
            if child.pid == own || child.parent == own {
                return Self::Descendant;
            }
            if child.parent == 0 {
                // The process id still belongs to the process that was read first.
                let same = Process::read(pid).is_some_and(|now| now.started == first.started && !now.zombie);
                return if same { Self::Stranger } else { Self::Unknown };
            }
            child = match Process::read(child.parent) {
                // A parent is older than its child; otherwise the parent's id was reused.
                Some(parent) if parent.started <= child.started => parent,
                Some(_) => return Self::Unknown,
                // Where /proc hides other users' processes, the parent exists all the same and is not related.
                None => return if is_anothers(child.parent) { Self::Stranger } else { Self::Unknown },
            };
        }
        Self::Unknown
    }
}

/// The number of nested process namespaces, as seen from this process, in which the process has an id. `None` where the
/// kernel does not say.
fn depth(pid: &str) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    Some(numbers.split_ascii_whitespace().count())
}

fn is_anothers(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| test_kill_process(pid) == Err(Errno::PERM))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_are_kin_parents_are_not_and_the_dead_are_unknown() {
        let mut child = Command::new("sh").args(["-c", "sleep 60 & echo $!; wait"]).stdout(Stdio::piped()).spawn();
        let child = child.as_mut().expect("a shell");
        let mut line = String::new();
        let out = child.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
        let grandchild: i32 = line.trim().parse().expect("a process id");
        let pid = child.id() as i32;
        assert_eq!((Ancestry::of(pid), Ancestry::of(grandchild)), (Ancestry::Descendant, Ancestry::Descendant));
        child.kill().expect("killed");
        // Not waited for yet: the process id exists, but the process is dead.
        let dead = || Process::read(pid).is_none_or(|process| process.zombie);
        while !dead() {
            std::thread::yield_now();
        }
        assert_eq!(Ancestry::of(pid), Ancestry::Unknown);
        child.wait().expect("waited for");
        assert_eq!(Ancestry::of(pid), Ancestry::Unknown);
        let orphan = Pid::from_raw(grandchild).expect("a process id");
        rustix::process::kill_process(orphan, rustix::process::Signal::KILL).expect("killed");
        assert_eq!(
            (Ancestry::of(1), Ancestry::of(0), Ancestry::of(-1)),
            (Ancestry::Stranger, Ancestry::Unknown, Ancestry::Unknown)
        );
        let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().get();
        assert_eq!(Ancestry::of(parent), Ancestry::Stranger);
    }
}
