//! What processes hold open beside their pages: files in memory, and sockets.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
};

use super::{pages::FileSystem, tree::Process};

/// Descriptors of all processes of a command that are looked through: half a second at the most.
pub const MAX_DESCRIPTORS: usize = 262_144;
/// Types of file systems whose files are memory: tmpfs, which files without a name lie in too, and hugetlbfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x9584_58f6];

/// A file, whatever it is called: device and inode.
pub type FileId = (u64, u64);

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct Descriptors {
    /// Files in memory that have no name, or none any more, with the bytes that they take.
    pub files: HashMap<FileId, u64>,
    /// Sockets, by their inodes.
    pub sockets: HashSet<u64>,
}

impl Descriptors {
    /// Those of `processes`, but for files that lie in one of `places`. `None` when there are more than
    /// [`MAX_DESCRIPTORS`]. A process that closed itself to others shows none, where this one has no power over it.
    pub fn of(processes: &[Process], places: &[FileSystem]) -> Option<Self> {
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
                    // Files that were made without a name are shown like this as well.
                    let Ok(file) = fs::metadata(&path) else { continue };
                    let id = (file.dev(), file.ino());
                    let known = found.files.contains_key(&id) || places.iter().any(|place| place.device == file.dev());
                    // As wide as the field is on this machine.
                    let in_memory = |kind: i64| IN_MEMORY.contains(&kind);
                    if !known && rustix::fs::statfs(&path).is_ok_and(|system| in_memory(system.f_type)) {
                        found.files.insert(id, file.blocks() * 512);
                    }
                }
            }
        }
        Some(found)
    }
}
