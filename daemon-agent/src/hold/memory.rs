//! Memory usage: of the machine, of a process, and of the memory file systems that a command has.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt};

use super::{descriptors::FileId, process_tree::Process};

/// Where a command may have memory file systems of its own.
const MEMORY_FILE_SYSTEM_FOLDERS: [&str; 2] = ["/dev/shm", "/tmp"];
/// The type of tmpfs in statfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Usage of the whole machine, bytes: it includes whatever a command uses.
#[derive(Clone, Copy, Debug)]
pub struct MachineMemory {
    /// Everything that is neither free nor can be dropped.
    pub used: u64,
    /// Files in memory, shared segments and shared pages.
    pub shared: u64,
    /// The rest: the kernel's own memory and what it keeps for processes.
    pub kernel: u64,
}

impl MachineMemory {
    /// The current usage; unlimited where the kernel does not report it.
    pub fn read() -> Self {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let of = |key: &str| kilobytes(&text, key);
        let (Some(total), Some(free), Some(shared)) = (of("MemTotal:"), of("MemFree:"), of("Shmem:")) else {
            return Self { used: u64::MAX, shared: u64::MAX, kernel: u64::MAX };
        };
        let of = |key: &str| of(key).unwrap_or(0);
        // Files in memory are part of the cache, but cannot be dropped.
        let cache = (of("Cached:") + of("Buffers:") + of("SReclaimable:")).saturating_sub(shared);
        let swapped = of("SwapTotal:").saturating_sub(of("SwapFree:"));
        let used = (total + swapped).saturating_sub(free + cache);
        let kernel = used.saturating_sub(shared + swapped + of("AnonPages:"));
        Self { used, shared: shared + swapped, kernel }
    }
}

/// Usage of one process, bytes, from its `status` file, which every process may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    pub anonymous: u64,
    pub shared: u64,
    /// Page tables.
    pub tables: u64,
}

impl ResidentMemory {
    pub fn of(pid: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let of = |key: &str| kilobytes(&text, key).unwrap_or(0);
        Self { anonymous: of("RssAnon:"), shared: of("RssShmem:"), tables: of("VmPTE:") }
    }
}

/// A process's share of its pages when each page is divided among the processes that map it; all of its pages if the
/// process is closed to inspection.
pub fn proportional(pid: i32, resident: ResidentMemory) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    match (kilobytes(&text, "Pss_Anon:"), kilobytes(&text, "Pss_Shmem:")) {
        (Some(anonymous), Some(shared)) => anonymous + shared,
        _ => resident.anonymous + resident.shared,
    }
}

/// A memory file system that belongs to the command alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryFileSystem {
    pub device: u64,
    pub used: u64,
}

/// The memory file systems of the first process that shows its root: all of them see the same.
pub fn file_systems(processes: &[Process]) -> Vec<MemoryFileSystem> {
    let see = |process: &Process| {
        let root = format!("/proc/{}/root", process.pid);
        fs::metadata(format!("{root}/dev/shm")).ok()?;
        let place = |place: &str| {
            let path = format!("{root}{place}");
            let (system, folder) = (rustix::fs::statfs(&path).ok()?, fs::metadata(&path).ok()?);
            let used = system.f_blocks.saturating_sub(system.f_bfree) * system.f_bsize as u64;
            (system.f_type == TMPFS_MAGIC).then(|| MemoryFileSystem { device: folder.dev(), used })
        };
        let mut found: Vec<_> = MEMORY_FILE_SYSTEM_FOLDERS.iter().filter_map(|path| place(path)).collect();
        found.dedup_by_key(|place| place.device);
        Some(found)
    };
    processes.iter().find_map(see).unwrap_or_default()
}

/// How much of these files, file systems and System V segments processes have mapped, and so is counted as pages
/// already.
pub fn mapped(processes: &[Process], files: &HashMap<FileId, u64>, places: &[MemoryFileSystem], segments: u64) -> u64 {
    let (mut of_files, mut of_places, mut of_segments) = (HashMap::<FileId, u64>::new(), 0, 0);
    for process in processes {
        let text = fs::read_to_string(format!("/proc/{}/smaps", process.pid)).unwrap_or_default();
        for (mapping, pss) in mappings(&text) {
            if mapping.path.starts_with("/SYSV") {
                of_segments += pss;
            } else if files.contains_key(&mapping.file) {
                *of_files.entry(mapping.file).or_default() += pss;
            } else if places.iter().any(|place| place.device == mapping.file.0) {
                of_places += pss;
            }
        }
    }
    let of_files: u64 = of_files.iter().map(|(id, pss)| *pss.min(&files[id])).sum();
    of_files + of_segments.min(segments) + of_places.min(places.iter().map(|place| place.used).sum())
}

/// A shared mapping of a file in a process's memory.
struct Mapping<'a> {
    file: FileId,
    path: &'a str,
}

/// The shared mappings in a `smaps` file (proc(5)), each with its proportional size in bytes.
fn mappings(text: &str) -> impl Iterator<Item = (Mapping<'_>, u64)> {
    let mut current = None;
    text.lines().filter_map(move |line| {
        let mut words = line.split_ascii_whitespace();
        let first = words.next()?;
        if first.contains('-') && !first.ends_with(':') {
            current = head(words);
            return None;
        }
        if first != "Pss:" {
            return None;
        }
        Some((current.take()?, words.next()?.parse::<u64>().ok()? * 1024))
    })
}

/// Parses what follows the addresses: permissions, offset, device, inode, name.
fn head<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Mapping<'a>> {
    let shared = words.next()?.ends_with('s');
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = words.next()?.parse().ok()?;
    shared.then(|| Mapping { file: (device, inode), path: words.next().unwrap_or("") })
}

/// The value of the first line with this key, bytes.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(rest.split_ascii_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_are_read_and_private_ones_are_not() {
        let text = "7f00-7f10 rw-s 00000000 00:01 77    /memfd:a b (deleted)\nSize:  8 kB\nPss:  6 kB\nPss_Dirty: 1 kB\n\
            7f20-7f30 rw-p 00000000 00:01 78    /memfd:c (deleted)\nPss:  9 kB\n\
            7f40-7f50 rw-p 00000000 00:00 0 \nPss:  9 kB\n\
            7f60-7f70 rw-s 00000000 00:01 3     /SYSV00000000 (deleted)\nPss:  4 kB\n";
        let found: Vec<_> = mappings(text).map(|(mapping, pss)| (mapping.file.1, mapping.path, pss)).collect();
        assert_eq!(found, [(77, "/memfd:a", 6 * 1024), (3, "/SYSV00000000", 4 * 1024)]);
    }
}
