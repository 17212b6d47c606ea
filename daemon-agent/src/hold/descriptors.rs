//! What processes hold open besides their memory pages: files in memory, and sockets.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
};

use super::{memory::MemoryFileSystem, process_tree::Process};

/// Most descriptors that are examined for all processes of a command: that takes half a second at most.
pub const MAX_DESCRIPTORS: usize = 262_144;
/// Types of file systems whose files are memory: tmpfs, which also holds files without a name, and hugetlbfs.
const MEMORY_FILE_SYSTEM_TYPES: [i64; 2] = [0x0102_1994, 0x9584_58f6];

/// Identifies a file by device and inode, whatever its name.
pub type FileId = (u64, u64);

/// The open files and sockets of some processes.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// Files in memory without a name (any more), with the bytes that they take.
    pub files: HashMap<FileId, u64>,
    /// Sockets, by inode.
    pub sockets: HashSet<u64>,
}

impl Descriptors {
    /// Reads the descriptors of `processes`, except files in one of `places`. `None` if there are more than
    /// [`MAX_DESCRIPTORS`]. A process that is closed to inspection shows none, unless this process has power over it.
    pub fn of(processes: &[Process], places: &[MemoryFileSystem]) -> Option<Self> {
        let mut found = Self::default();
        let mut count = 0;
        for process in processes {
            let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", process.pid)) else { continue };
            for entry in entries.flatten() {
                count += 1;
                if count > MAX_DESCRIPTORS {
                    return None;
                }
                let path = entry.path();
                let Ok(target) = fs::read_link(&path) else { continue };
                let target = target.as_os_str().as_bytes();
                if let Some(rest) = target.strip_prefix(b"socket:[") {
                    let inode =
                        std::str::from_utf8(rest).ok().and_then(|rest| rest.strip_suffix(']')?.parse::<u64>().ok());
                    found.sockets.extend(inode);
                } else if target.ends_with(b" (deleted)") {
                    // Files that were created without a name look like this as well.
                    let Ok(file) = fs::metadata(&path) else { continue };
                    let id = (file.dev(), file.ino());
                    let known = found.files.contains_key(&id) || places.iter().any(|place| place.device == file.dev());
                    // The field's width differs between machines.
                    let in_memory = |kind: i64| MEMORY_FILE_SYSTEM_TYPES.contains(&kind);
                    if !known && rustix::fs::statfs(&path).is_ok_and(|system| in_memory(system.f_type)) {
                        found.files.insert(id, file.blocks() * 512);
                    }
                }
            }
        }
        Some(found)
    }
}
