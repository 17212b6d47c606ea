//! Pages of memory: of the machine, of a process, of the file systems in memory that a command has.

use std::{collections::HashMap, fs, os::unix::fs::MetadataExt};

use super::{descriptors::FileId, tree::Process};

/// Where a command may have file systems in memory of its own.
const PLACES: [&str; 2] = ["/dev/shm", "/tmp"];
/// tmpfs, as statfs(2) names it.
const TMPFS: i64 = 0x0102_1994;

/// Of the whole machine, bytes: whatever a command takes is among it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// All that is not free and cannot be dropped.
    pub used: u64,
    /// Files in memory, segments and shared pages.
    pub shared: u64,
    /// The rest: what the kernel keeps for itself and for others.
    pub kernel: u64,
}

impl Machine {
    /// As it is now; without end where the kernel does not tell.
    pub fn read() -> Self {
        let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let of = |key: &str| kilobytes(&text, key);
        let (Some(total), Some(free), Some(shared)) = (of("MemTotal:"), of("MemFree:"), of("Shmem:")) else {
            return Self { used: u64::MAX, shared: u64::MAX, kernel: u64::MAX };
        };
        let of = |key: &str| of(key).unwrap_or(0);
        // Files in memory are among what is cached, and cannot be dropped.
        let cache = (of("Cached:") + of("Buffers:") + of("SReclaimable:")).saturating_sub(shared);
        let swapped = of("SwapTotal:").saturating_sub(of("SwapFree:"));
        let used = (total + swapped).saturating_sub(free + cache);
        let kernel = used.saturating_sub(shared + swapped + of("AnonPages:"));
        Self { used, shared: shared + swapped, kernel }
    }
}

/// Of one process, bytes, as its `status` says, which every process may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    pub anonymous: u64,
    pub shared: u64,
    /// What the kernel needs to know where its pages are.
    pub tables: u64,
}

impl Resident {
    pub fn of(pid: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let of = |key: &str| kilobytes(&text, key).unwrap_or(0);
        Self { anonymous: of("RssAnon:"), shared: of("RssShmem:"), tables: of("VmPTE:") }
    }
}

/// The part of its pages that falls to a process when each counts once among those that have it; all of them where the
/// process closed itself to such looks.
pub fn proportional(pid: i32, resident: Resident) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    match (kilobytes(&text, "Pss_Anon:"), kilobytes(&text, "Pss_Shmem:")) {
        (Some(anonymous), Some(shared)) => anonymous + shared,
        _ => resident.anonymous + resident.shared,
    }
}

/// A file system in memory that is the command's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    pub device: u64,
    pub used: u64,
}

/// Those that the first process sees which shows where it is: all of them see the same.
pub fn file_systems(processes: &[Process]) -> Vec<FileSystem> {
    let see = |process: &Process| {
        let root = format!("/proc/{}/root", process.pid);
        fs::metadata(format!("{root}/dev/shm")).ok()?;
        let place = |place: &str| {
            let path = format!("{root}{place}");
            let (system, folder) = (rustix::fs::statfs(&path).ok()?, fs::metadata(&path).ok()?);
            let used = system.f_blocks.saturating_sub(system.f_bfree) * system.f_bsize as u64;
            (system.f_type == TMPFS).then(|| FileSystem { device: folder.dev(), used })
        };
        let mut found: Vec<_> = PLACES.iter().filter_map(|path| place(path)).collect();
        found.dedup_by_key(|place| place.device);
        Some(found)
    };
    processes.iter().find_map(see).unwrap_or_default()
}

/// How much of these files, file systems and System V segments is mapped by processes, and so counted as pages already.
pub fn mapped(processes: &[Process], files: &HashMap<FileId, u64>, places: &[FileSystem], segments: u64) -> u64 {
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

/// A piece of a process's memory that shows a file and is shared with others who map it.
struct Mapping<'a> {
    file: FileId,
    path: &'a str,
}

/// The shared mappings in a `smaps` of proc(5), each with its proportional size in bytes.
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

/// What stands after the addresses: rights, offset, device, inode, name.
fn head<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Mapping<'a>> {
    let shared = words.next()?.ends_with('s');
    let (major, minor) = words.nth(1)?.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = words.next()?.parse().ok()?;
    shared.then(|| Mapping { file: (device, inode), path: words.next().unwrap_or("") })
}

/// The value of the first line of this key, bytes.
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
