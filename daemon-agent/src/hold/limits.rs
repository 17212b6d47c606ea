//! How much a command may take: processes and memory, counted by the supervisor where the kernel does not.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::tree::Process;

/// Processes and threads of a command at once: above honest work, far below a machine's end.
pub const MAX_PROCESSES: u64 = 4_096;

/// What a command took too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Memory(u64),
    Processes,
}

impl Excess {
    /// For the result of the command.
    pub fn sentence(self) -> String {
        match self {
            Self::Memory(most) => {
                format!("it was ended: all its processes together used more than {} MiB of memory", most >> 20)
            }
            Self::Processes => format!("it was ended: it had started more than {MAX_PROCESSES} processes"),
        }
    }
}

/// The most that a command's file systems in memory hold: what it was given, or half of what the machine has.
pub fn memory(given: Option<u64>) -> u64 {
    let total = rustix::system::sysinfo();
    given.unwrap_or(total.totalram as u64 * u64::from(total.mem_unit) / 2)
}

/// Sets the limits that the kernel keeps for a single process, for this one and what it starts.
pub fn set(given: Option<u64>) {
    lower(Resource::Core, 0);
    // By user, and in a user namespace by that; never for the machine's root.
    lower(Resource::Nproc, MAX_PROCESSES);
    if let Some(most) = given {
        lower(Resource::Data, most);
    }
}

fn lower(resource: Resource, most: u64) {
    let now = getrlimit(resource);
    let lower = |value: Option<u64>| Some(value.map_or(most, |value| value.min(most)));
    // A limit that cannot be set is no reason not to run.
    let _ = setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) });
}

/// Whether these processes take too much together.
pub fn excess(processes: &[Process], memory: Option<u64>) -> Option<Excess> {
    if processes.len() as u64 > MAX_PROCESSES {
        return Some(Excess::Processes);
    }
    let most = memory?;
    // What processes share is counted by each of them here, so that it is looked at closely only when it is too much.
    let sum = |file: &str, keys: &[&str]| -> u64 {
        processes.iter().map(|process| kilobytes(&format!("/proc/{}/{file}", process.pid), keys)).sum::<u64>() * 1024
    };
    let over =
        sum("status", &["RssAnon:", "RssShmem:"]) > most && sum("smaps_rollup", &["Pss_Anon:", "Pss_Shmem:"]) > most;
    over.then_some(Excess::Memory(most))
}

/// The sum of some lines of a file of /proc.
fn kilobytes(file: &str, keys: &[&str]) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let values = text.lines().filter_map(|line| {
        let (key, rest) = line.split_once(char::is_whitespace)?;
        keys.contains(&key).then(|| rest.split_whitespace().next()?.parse::<u64>().ok()).flatten()
    });
    values.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_holds_is_counted() {
        let own = Process::read(std::process::id() as i32).expect("this process");
        let held = vec![1_u8; 32 << 20];
        assert_eq!(excess(&[own], Some(1 << 40)), None);
        assert_eq!(excess(&[own], Some(16 << 20)), Some(Excess::Memory(16 << 20)));
        assert_eq!(excess(&vec![own; MAX_PROCESSES as usize + 1], None), Some(Excess::Processes));
        assert_eq!(held.len(), 32 << 20);
    }
}
