//! Temporary files and folders: drafts beside their target, scratch folders of tasks. A note in `state/` names each
//! until it is gone, so that the next start removes what a kill left behind or what could not be removed: only our own,
//! whatever lies beside it, and without searching the disk.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd},
        unix::{
            ffi::{OsStrExt, OsStringExt},
            fs::OpenOptionsExt,
        },
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags},
    io::Errno,
};
use tokio::runtime::Handle;

mod scratch;

use crate::{
    home::{Home, open_plain, private_folder},
    removal,
};

pub use scratch::Scratch;

/// The folder for notes, below `state/`.
const NOTES_FOLDER: &str = "leftovers";
/// Largest note, bytes: it only contains a path.
const MAX_NOTE_BYTES: u64 = 8 * 1024;

/// The folder of this process's notes: one daemon serves one home.
static NOTES_PATH: OnceLock<PathBuf> = OnceLock::new();

/// While it lives, a note names something that might be left behind.
#[derive(Debug)]
pub struct LeftoverNote(Option<PathBuf>);

impl Drop for LeftoverNote {
    fn drop(&mut self) {
        if let Some(note) = &self.0 {
            let _ = fs::remove_file(note);
        }
    }
}

/// Starts writing notes, and removes what a former process of this home left behind. That happens in the background,
/// because a command may have left folders that take minutes. Call it once the home's lock is held.
pub fn begin(home: &Home) {
    let folder = home.state().join(NOTES_FOLDER);
    if let Err(error) = private_folder(&folder) {
        tracing::warn!(folder = %folder.display(), %error, "files that a kill leaves behind will not be removed");
        return;
    }
    // Listed now: anything noted later is in use.
    let notes = list(&folder);
    let _ = NOTES_PATH.set(folder);
    beside(move || sweep(notes));
}

/// Removes the noted folder at `path` with everything in it, in the background. Its note stays until it is gone, even
/// if the process ends before.
pub fn remove_noted(path: PathBuf, mut note: LeftoverNote) {
    let kept = note.0.take();
    beside(move || match removal::remove(&path) {
        Ok(()) => drop(LeftoverNote(kept)),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "a temporary folder could not be removed; the next start tries again");
        }
    });
}

/// Runs work that may block for long off the runtime's threads, or right here if there is no runtime. A runtime that
/// ends does not wait for it: the notes are on disk.
fn beside(work: impl FnOnce() + Send + 'static) {
    match Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(work)),
        Err(_) => work(),
    }
}

/// Notes the file or folder at `path`, which is about to be created.
pub fn note(path: &Path) -> LeftoverNote {
    LeftoverNote(NOTES_PATH.get().and_then(|folder| write(folder, path)))
}

/// Notes the file `name` in an open folder.
pub fn note_in(folder: impl AsFd, name: &str) -> LeftoverNote {
    let link = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
    match NOTES_PATH.get().map(|_| fs::read_link(link)) {
        Some(Ok(folder)) => note(&folder.join(name)),
        _ => LeftoverNote(None),
    }
}

fn write(folder: &Path, path: &Path) -> Option<PathBuf> {
    let note = folder.join(uuid::Uuid::now_v7().simple().to_string());
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&note);
    // A failure is acceptable: without a note, something stays behind after a kill.
    file.and_then(|mut file| file.write_all(path.as_os_str().as_bytes())).ok().map(|()| note)
}

fn list(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn sweep(notes: Vec<PathBuf>) {
    for note in notes {
        // A file that cannot be read is no note of ours.
        if let Ok(path) = read(&note)
            && let Err(error) = remove(&path)
        {
            tracing::warn!(path = %path.display(), %error, "something that was left behind could not be removed; the next start tries again");
            continue;
        }
        if let Err(error) = removal::remove(&note) {
            tracing::warn!(note = %note.display(), %error, "a note of something that was left behind stays");
        }
    }
}

fn read(note: &Path) -> io::Result<PathBuf> {
    let mut bytes = Vec::new();
    open_plain(note, OFlags::NOFOLLOW)?.take(MAX_NOTE_BYTES).read_to_end(&mut bytes)?;
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Removes what a note names if it is something we create: nothing else has such a name. Follows no link.
fn remove(path: &Path) -> io::Result<()> {
    let (Some(above), Some(name)) = (path.parent().filter(|_| path.is_absolute()), path.file_name()) else {
        return Ok(());
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = match rustix::fs::openat2(CWD, above, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(above) => above,
        // Its folder is gone, or something else by now.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let stat = match rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory if is_scratch(name) => removal::remove_in(&above, name),
        FileType::Directory => Ok(()),
        _ if is_draft(name) => Ok(rustix::fs::unlinkat(&above, name, AtFlags::empty())?),
        _ => Ok(()),
    }
}

fn is_draft(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".viber-") && name.as_bytes().ends_with(b".tmp")
}

fn is_scratch(name: &OsStr) -> bool {
    let id = name.as_bytes().strip_prefix(b"viber-");
    id.is_some_and(|id| id.len() == 32 && id.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_noted_and_ours_goes_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let at = |name: &str| root.join(name);
        let notes = at("notes");
        let scratch = format!("viber-{}", "a".repeat(32));
        for made in ["notes", "work", "elsewhere", &scratch, "viber-mine"] {
            fs::create_dir(at(made)).expect("made");
        }
        let files = [
            "work/.viber-1.tmp",
            "work/.viber-2.tmp",
            "work/kept.txt",
            "elsewhere/.viber-3.tmp",
            "viber-mine/x",
            "elsewhere/precious",
        ];
        for file in files {
            fs::write(at(file), "x").expect("written");
        }
        std::os::unix::fs::symlink(at("elsewhere"), at("link")).expect("linked");
        std::os::unix::fs::symlink(at("elsewhere"), at(&scratch).join("out")).expect("linked");
        let noted = ["work/.viber-1.tmp", "work/kept.txt", "link/.viber-3.tmp", &scratch, "viber-mine", "work/gone"];
        for path in noted {
            write(&notes, &at(path)).expect("noted");
        }
        fs::write(notes.join("garbage"), [0xff; 20_000]).expect("written");
        fs::create_dir(notes.join("folder")).expect("made");
        sweep(list(&notes));
        for gone in ["work/.viber-1.tmp", &scratch] {
            assert!(!at(gone).exists(), "{gone}");
        }
        for kept in &files[1..] {
            assert!(at(kept).exists(), "{kept}");
        }
        assert_eq!(fs::read_dir(&notes).expect("notes").count(), 0);
    }
    #[test]
    fn a_note_stays_until_its_folder_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let (notes, scratch) = (root.join("notes"), root.join(format!("viber-{}", "b".repeat(32))));
        fs::create_dir(&notes).expect("made");
        fs::create_dir_all(scratch.join("in/it")).expect("made");
        let note = write(&notes, &scratch).expect("noted");
        assert_eq!(note.metadata().expect("a note").permissions().mode() & 0o777, 0o600);
        // No folder can have a name this long, so removing it fails too.
        remove_noted(root.join("x".repeat(300)), LeftoverNote(Some(note.clone())));
        assert!(note.exists() && scratch.exists());
        remove_noted(scratch.clone(), LeftoverNote(Some(note.clone())));
        assert!(!note.exists() && !scratch.exists());
    }
}
