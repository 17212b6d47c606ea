//! How much a command may take: processes and memory, counted by the supervisor where the kernel does not.
//!
//! Counted are the pages of its processes and their tables, files in memory that it holds open or that lie in its own
//! file systems, what it keeps in System V's segments, queues and semaphores, and what waits in its sockets. Not counted,
//! because nobody tells: buffers of pipes, and descriptors that are under way in a message.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    descriptors::{Descriptors, MAX_DESCRIPTORS},
    ipc,
    pages::{self, Machine},
    sockets,
    tree::Process,
};

/// Processes and threads of a command at once: above honest work, far below a machine's end.
pub const MAX_PROCESSES: u64 = 4_096;
/// Files that one process has open at once: what the most demanding servers ask for, few enough to be looked through.
const MAX_OPEN_FILES: u64 = 65_536;

/// What a command took too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Memory(u64),
    Processes,
    Descriptors,
}

impl Excess {
    /// For the result of the command.
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

/// Which parts of the machine are the command's alone, so that all that lies in them is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Apart {
    /// An IPC namespace, which this process is in, and file systems in memory.
    pub namespaces: bool,
    /// A network namespace, which this process is in.
    pub network: bool,
}

/// What the processes of one command may take together.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    pub memory: Option<u64>,
    pub apart: Apart,
}

impl Meter {
    /// Whether these processes take too much. Four times a second, so what is dear to look at is looked at only when
    /// what is cheap leaves room for an excess: first the machine as a whole, then pages, then descriptors, and only at
    /// last what processes share.
    pub fn excess(self, processes: &[Process]) -> Option<Excess> {
        if processes.len() as u64 > MAX_PROCESSES {
            return Some(Excess::Processes);
        }
        let most = self.memory?;
        let machine = Machine::read();
        if machine.used <= most {
            return None;
        }
        let pages: Vec<_> = processes.iter().map(|process| pages::Resident::of(process.pid)).collect();
        let own: u64 = pages.iter().map(|pages| pages.anonymous + pages.tables).sum();
        if own.saturating_add(machine.shared).saturating_add(machine.kernel) <= most {
            return None;
        }
        let places = if self.apart.namespaces { pages::file_systems(processes) } else { Vec::new() };
        let Some(held) = Descriptors::of(processes, &places) else { return Some(Excess::Descriptors) };
        let (segments, queues) = if self.apart.namespaces { (ipc::segments(), ipc::queues()) } else { (0, 0) };
        let files = held.files.values().sum::<u64>() + places.iter().map(|place| place.used).sum::<u64>() + segments;
        let kernel = queues + sockets::memory(&held.sockets, self.apart.network);
        let shared: u64 = pages.iter().map(|pages| pages.shared).sum();
        if own + shared + files + kernel <= most {
            return None;
        }
        // What processes share was counted by each of them, and what they have mapped of a file by them and by the file.
        let tables: u64 = pages.iter().map(|pages| pages.tables).sum();
        let part = |(process, resident): (&Process, &pages::Resident)| pages::proportional(process.pid, *resident);
        let shares: u64 = processes.iter().zip(&pages).map(part).sum();
        let mapped = if files > 0 { pages::mapped(processes, &held.files, &places, segments) } else { 0 };
        (tables + shares + files.saturating_sub(mapped) + kernel > most).then_some(Excess::Memory(most))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn excess(processes: &[Process], memory: Option<u64>) -> Option<Excess> {
        Meter { memory, apart: Apart::default() }.excess(processes)
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

    /// The least bound that these processes keep, to a MiB.
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
