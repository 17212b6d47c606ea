//! What is mounted where, from `/proc/self/mountinfo`.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::mount::MountFlags;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub point: PathBuf,
    /// The flags that have to be repeated when it is made read-only.
    pub flags: MountFlags,
    pub kind: String,
}

/// All mounts of a process, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mounts(Vec<Mount>);

impl Mounts {
    /// The mounts of this process.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&fs::read("/proc/self/mountinfo")?))
    }

    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(mount).collect())
    }

    /// The mounts below `path`, outer ones first, without a mount at `path` itself.
    pub fn below(&self, path: &Path) -> Vec<&Mount> {
        let mut below: Vec<&Mount> = Vec::new();
        for mount in self.0.iter().filter(|mount| mount.point != path && mount.point.starts_with(path)) {
            // Of several mounts at a point, only the last one is visible.
            below.retain(|other| other.point != mount.point);
            below.push(mount);
        }
        below.sort_by_key(|mount| mount.point.components().count());
        below
    }

    /// The mount that `path` lies on.
    pub fn of(&self, path: &Path) -> Option<&Mount> {
        let around = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        // `max_by_key` returns the last of equal elements.
        around.max_by_key(|mount| mount.point.components().count())
    }
}

/// Parses a line: id, parent, device, root, mount point, flags, optional fields, `-`, type, source, options.
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let point = unescape(fields.nth(4)?);
    let flags = fields.next()?.split(|byte| *byte == b',').fold(MountFlags::empty(), |flags, word| {
        flags
            | match word {
                b"nosuid" => MountFlags::NOSUID,
                b"nodev" => MountFlags::NODEV,
                b"noexec" => MountFlags::NOEXEC,
                b"noatime" => MountFlags::NOATIME,
                b"nodiratime" => MountFlags::NODIRATIME,
                b"relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            }
    });
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { point, flags, kind: String::from_utf8_lossy(kind).into_owned() })
}

/// Blanks and backslashes are escaped as `\040` and so on.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        23 22 0:21 / /dev rw,nosuid shared:2 - devtmpfs devtmpfs rw\n\
        24 23 0:22 / /dev/pts rw - devpts a rw\n\
        25 22 0:23 / /mnt/a\\040b rw,nosuid,nodev,noexec,noatime master:1 - tmpfs t rw\n\
        26 23 0:24 / /dev/pts rw,noexec - devpts b rw\n";

    #[test]
    fn a_table_is_read() {
        let mounts = Mounts::parse(TABLE);
        let of = |path: &str| mounts.of(Path::new(path)).expect("a mount").clone();
        assert_eq!(of("/home/mia").kind, "ext4");
        assert_eq!(of("/dev/pts/3").flags, MountFlags::NOEXEC);
        let spaced = of("/mnt/a b/c");
        assert_eq!(spaced.point, Path::new("/mnt/a b"));
        assert_eq!(spaced.flags, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::NOATIME);
        let below: Vec<_> = mounts.below(Path::new("/")).iter().map(|mount| mount.point.clone()).collect();
        assert_eq!(below, [Path::new("/dev"), Path::new("/mnt/a b"), Path::new("/dev/pts")]);
        assert!(mounts.below(Path::new("/mnt/a b")).is_empty());
    }
}
