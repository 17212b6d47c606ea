//! How much a command may consume: processes and memory, counted by the supervisor where the kernel does not.
//!
//! This counts the pages of its processes and their page tables, files in memory that it holds open or that lie in its
//! own file systems, System V segments, queues and semaphores, and data waiting in its sockets. Pipe buffers and
//! descriptors in flight within messages are not counted, because the kernel does not report them.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    descriptors::{Descriptors, MAX_DESCRIPTORS},
    ipc,
    memory::{self, MachineMemory},
    process_tree::Process,
    sockets,
};

/// Most processes and threads of a command: more than legitimate work needs, far fewer than would harm the machine.
pub const MAX_PROCESSES: u64 = 4_096;
/// Most files that one process may have open: what the most demanding servers need, few enough to be examined.
const MAX_OPEN_FILES: u64 = 65_536;

/// Which limit a command exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Memory(u64),
    Processes,
    Descriptors,
}

impl Excess {
    /// The sentence in the command's result.
    pub fn sentence(self) -> String {
        match self {
            Self::Memory(most) => {
                format!("it was ended: all its processes together used more than {} MiB of memory", most >> 20)
            }
            Self::Processes => format!("it was ended: it had started more than {MAX_PROCESSES} processes"),
            Self::Descriptors => format!("it was ended: its processes had more than {MAX_DESCRIPTORS} files open"),
        }
    }
}

/// Most bytes in the command's memory file systems: its memory limit, or half of the machine's memory.
pub fn memory(given: Option<u64>) -> u64 {
    let total = rustix::system::sysinfo();
    given.unwrap_or(total.totalram as u64 * u64::from(total.mem_unit) / 2)
}

/// Sets the limits that the kernel enforces per process, for this process and what it starts.
pub fn set(given: Option<u64>) {
    lower(Resource::Core, 0);
    // The kernel counts processes per user, or per user within a user namespace; never those of the machine's root.
    lower(Resource::Nproc, MAX_PROCESSES);
    lower(Resource::Nofile, MAX_OPEN_FILES);
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

/// Which namespaces belong to the command alone, so that everything in them is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnNamespaces {
    /// An IPC namespace, which this process is in, and memory file systems.
    pub namespaces: bool,
    /// A network namespace, which this process is in.
    pub network: bool,
}

/// What the processes of one command may use together.
#[derive(Clone, Copy, Debug)]
pub struct ResourceMeter {
    pub memory: Option<u64>,
    pub apart: OwnNamespaces,
}

impl ResourceMeter {
    /// Whether these processes exceed a limit. Runs four times a second, so expensive checks run only if the cheap ones
    /// leave room for an excess: first the machine as a whole, then pages, then descriptors, and last what processes
    /// share.
    pub fn excess(self, processes: &[Process]) -> Option<Excess> {
        if processes.len() as u64 > MAX_PROCESSES {
            return Some(Excess::Processes);
        }
        let most = self.memory?;
        let machine = MachineMemory::read();
        if machine.used <= most {
            return None;
        }
        let pages: Vec<_> = processes.iter().map(|process| memory::ResidentMemory::of(process.pid)).collect();
        let own: u64 = pages.iter().map(|pages| pages.anonymous + pages.tables).sum();
        if own.saturating_add(machine.shared).saturating_add(machine.kernel) <= most {
            return None;
        }
        let places = if self.apart.namespaces { memory::file_systems(processes) } else { Vec::new() };
        let Some(held) = Descriptors::of(processes, &places) else { return Some(Excess::Descriptors) };
        let (segments, queues) = if self.apart.namespaces { (ipc::segments(), ipc::queues()) } else { (0, 0) };
        let files = held.files.values().sum::<u64>() + places.iter().map(|place| place.used).sum::<u64>() + segments;
        let kernel = queues + sockets::memory(&held.sockets, self.apart.network);
        let shared: u64 = pages.iter().map(|pages| pages.shared).sum();
        if own + shared + files + kernel <= most {
            return None;
        }
        // Every process counted what it shares with others, and mapped files count both for their processes and for
        // themselves.
        let tables: u64 = pages.iter().map(|pages| pages.tables).sum();
        let part =
            |(process, resident): (&Process, &memory::ResidentMemory)| memory::proportional(process.pid, *resident);
        let shares: u64 = processes.iter().zip(&pages).map(part).sum();
        let mapped = if files > 0 { memory::mapped(processes, &held.files, &places, segments) } else { 0 };
        (tables + shares + files.saturating_sub(mapped) + kernel > most).then_some(Excess::Memory(most))
    }
}

#[cfg(test)]
mod tests {
    use std::{env, io::Write, process::Command};

    use super::*;

    /// Set in the process that runs a single test.
    const ISOLATED_VARIABLE: &str = "DAEMON_AGENT_ISOLATED_TEST";

    /// Runs the test `name` of this module in a process of its own, where no other test uses memory at the same time.
    /// Returns whether this is that process already.
    fn is_isolated(name: &str) -> bool {
        if env::var_os(ISOLATED_VARIABLE).is_some() {
            return true;
        }
        let mut test = Command::new(env::current_exe().expect("a program"));
        test.args(["--exact", &format!("hold::limits::tests::{name}"), "--test-threads=1"]);
        let ended = test.env(ISOLATED_VARIABLE, "1").output().expect("started");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{said}");
        false
    }

    fn excess(processes: &[Process], memory: Option<u64>) -> Option<Excess> {
        ResourceMeter { memory, apart: OwnNamespaces::default() }.excess(processes)
    }

    #[test]
    fn what_a_process_holds_is_counted() {
        let own = Process::read(std::process::id() as i32).expect("this process");
        let held = vec![1_u8; 32 << 20];
        assert_eq!(excess(&[own], Some(1 << 40)), None);
        assert_eq!(excess(&[own], Some(16 << 20)), Some(Excess::Memory(16 << 20)));
        assert_eq!(excess(&vec![own; MAX_PROCESSES as usize + 1], None), Some(Excess::Processes));
        assert_eq!(held.len(), 32 << 20);
    }

    #[test]
    fn files_in_memory_count_once_and_sockets_by_what_waits_in_them() {
        if !is_isolated("files_in_memory_count_once_and_sockets_by_what_waits_in_them") {
            return;
        }
        let own = Process::read(std::process::id() as i32).expect("this process");
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let mut file = std::fs::File::from(rustix::fs::memfd_create("held", flags).expect("a file"));
        let before = sum(&[own]);
        file.write_all(&vec![1; 64 << 20]).expect("written");
        let with_file = sum(&[own]) - before;
        assert!((60 << 20..80 << 20).contains(&with_file), "{with_file}");
        let again = file.try_clone().expect("the same file");
        assert!(sum(&[own]) - before < 80 << 20, "one file, however often it is open");
        let pairs: Vec<_> = (0..32).map(|_| std::os::unix::net::UnixStream::pair().expect("a pair")).collect();
        for (one, _) in &pairs {
            one.set_nonblocking(true).expect("set");
            while (&mut &*one).write(&[1; 4096]).is_ok() {}
        }
        let in_sockets = sum(&[own]) - before - with_file;
        assert!(in_sockets > 32 * 64 * 1024, "{in_sockets}");
        drop((again, pairs));
    }

    /// The smallest limit that these processes do not exceed, rounded to a MiB.
    fn sum(processes: &[Process]) -> u64 {
        let (mut low, mut high) = (0, 64 << 10);
        while high - low > 1 {
            let middle: u64 = u64::midpoint(low, high);
            match excess(processes, Some(middle << 20)) {
                Some(_) => low = middle,
                None => high = middle,
            }
        }
        high << 20
    }
}
