//! Whether a process was started by this one, however indirectly: what an agent's command is, and its user is not.

use rustix::{
    io::Errno,
    process::{Pid, test_kill_process},
};

use super::tree::Process;

/// Longer than any honest chain of parents; a circle of reused ids ends here.
const MOST: usize = 10_000;

/// What a process is to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// Started by this process or below it.
    Descendant,
    /// In process ids of its own: in a namespace that something below this one has made, or a container.
    Apart,
    /// Its chain of parents ends outside.
    Stranger,
    /// It is gone, or what came before it is: nobody can tell.
    Unknown,
}

impl Kin {
    /// What the living process `pid` is. A look at /proc: call it where blocking is fine.
    pub fn of(pid: i32) -> Self {
        let own = std::process::id() as i32;
        let Some(first) = Process::read(pid).filter(|process| pid > 0 && !process.zombie) else { return Self::Unknown };
        if depth("self") != depth(&pid.to_string()) {
            return Self::Apart;
        }
        let mut child = first;
        for _ in 0..MOST {
            if child.pid == own || child.parent == own {
                return Self::Descendant;
            }
            if child.parent == 0 {
                // Whoever answered to this number at the beginning answers still.
                let same = Process::read(pid).is_some_and(|now| now.started == first.started && !now.zombie);
                return if same { Self::Stranger } else { Self::Unknown };
            }
            child = match Process::read(child.parent) {
                // A parent is older than its child; another process has the number of one that is gone.
                Some(parent) if parent.started <= child.started => parent,
                Some(_) => return Self::Unknown,
                // Where /proc hides what is another user's, it is there all the same, and nothing of ours.
                None => return if is_anothers(child.parent) { Self::Stranger } else { Self::Unknown },
            };
        }
        Self::Unknown
    }
}

/// In how many namespaces of process ids, from this process's own view on, the process has a number. `None` where the
/// kernel does not tell.
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
        assert_eq!((Kin::of(pid), Kin::of(grandchild)), (Kin::Descendant, Kin::Descendant));
        child.kill().expect("killed");
        // Not waited for yet: it has a number, and is nobody any more.
        let dead = || Process::read(pid).is_none_or(|process| process.zombie);
        while !dead() {
            std::thread::yield_now();
        }
        assert_eq!(Kin::of(pid), Kin::Unknown);
        child.wait().expect("waited for");
        assert_eq!(Kin::of(pid), Kin::Unknown);
        let orphan = Pid::from_raw(grandchild).expect("a process id");
        rustix::process::kill_process(orphan, rustix::process::Signal::KILL).expect("killed");
        assert_eq!((Kin::of(1), Kin::of(0), Kin::of(-1)), (Kin::Stranger, Kin::Unknown, Kin::Unknown));
        let parent = rustix::process::getppid().expect("a parent").as_raw_nonzero().get();
        assert_eq!(Kin::of(parent), Kin::Stranger);
    }
}
