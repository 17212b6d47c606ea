//! Replaces the text of a file that people edit too: what an editor saves meanwhile is never lost, whatever the file
//! system can do.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::{
    fs::{CWD, FlockOperation, Gid, OFlags, RenameFlags, Uid, flock},
    io::Errno,
};
use sha2::{Digest, Sha256};

use super::{found, open_plain, private_folder};
use crate::fault;

/// What the name of a draft has after the name of its file.
const DRAFT_MARK: &str = ".viber-";
/// Largest draft that is compared before it is removed, bytes.
const MAX_DRAFT_BYTES: u64 = 16 * 1024 * 1024;
/// How often, and how long apart, a folder is tried while another process replaces a text in it.
const MAX_LOCK_TRIES: u32 = 40;
const LOCK_INTERVAL: Duration = Duration::from_millis(25);

/// Makes `after` the text of a file that people edit too, if it is still `before` (`None`: there is no file); returns
/// whether it was. The file keeps its mode and owner; a new one is readable only by its owner. What an editor saves
/// meanwhile, in the file or in its place, stays; if it cannot be put back, the error names the file it is in.
pub fn replace_text(path: &Path, before: Option<&str>, after: &str) -> io::Result<bool> {
    replace_by(&Kernel, path, before, after)
}

/// How names are changed. Not every file system can do all of it.
trait Names {
    fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
        rustix::fs::renameat_with(CWD, from, CWD, to, flags)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<(), Errno> {
        rustix::fs::link(from, to)
    }
}

struct Kernel;

impl Names for Kernel {}

/// A file beside the one to be replaced; removed when dropped, whatever has its name then.
struct Draft {
    path: PathBuf,
    /// Nothing with its name is to be removed.
    done: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.done {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn replace_by(names: &impl Names, path: &Path, before: Option<&str>, after: &str) -> io::Result<bool> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file needs a folder"))?;
    private_folder(folder)?;
    let opened = fs::File::open(folder)?;
    let file_name = path.file_name().unwrap_or_default().to_string_lossy();
    // Whoever is here alone knows that no draft is in use. Where that cannot be had, drafts stay.
    if lock(&opened) {
        remove_left_drafts(folder, &file_name);
    }
    let old = found(fs::symlink_metadata(path))?;
    if old.is_some() != before.is_some() {
        return Ok(false);
    }
    // A name of its own: nobody's file is in its place.
    let name = format!(".{file_name}{DRAFT_MARK}{:016x}", rand::random::<u64>());
    let draft = folder.join(format!("{name}.new"));
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
    let mut draft = Draft { path: draft, done: false };
    if let Some(old) = old {
        let owner = (Uid::from_raw(old.uid()), Gid::from_raw(old.gid()));
        rustix::fs::fchown(&file, Some(owner.0), Some(owner.1)).map_err(|_| {
            io::Error::other("it belongs to somebody else, who would not own the changed file any more")
        })?;
        file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
    }
    file.write_all(after.as_bytes())?;
    file.sync_all()?;
    fault::at("home::draft_written");
    // From now on it may hold what somebody else saved: the name tells by which texts to know it.
    let whole = folder.join(format!("{name}-{}-{}", mark(before.unwrap_or_default()), mark(after)));
    fs::rename(&draft.path, &whole)?;
    draft.path = whole;
    let replaced = match before {
        None => rename_free(names, draft, path),
        Some(before) => exchange(names, draft, path, before, after),
    };
    opened.sync_all()?;
    replaced
}

/// Locks a folder until it is closed, unless somebody else keeps it locked.
fn lock(folder: &fs::File) -> bool {
    (0..MAX_LOCK_TRIES).any(|n| {
        if n > 0 {
            #[expect(
                clippy::disallowed_methods,
                reason = "a thread that may block: a command's own, or one beside the runtime"
            )]
            thread::sleep(LOCK_INTERVAL);
        }
        flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok()
    })
}

/// Removes drafts of a file that a process which died has left. Only what is certainly a draft: one that was never
/// finished, or one that still says what was written or replaced. What an editor saved in between stays.
fn remove_left_drafts(folder: &Path, file_name: &str) {
    let prefix = format!(".{file_name}{DRAFT_MARK}");
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else { continue };
        let is_ours = match rest.split('-').collect::<Vec<_>>()[..] {
            [id] => id.strip_suffix(".new").is_some_and(is_mark),
            [id, before, after] if [id, before, after].into_iter().all(is_mark) => {
                let says = read_text(&entry.path()).map(|text| mark(&text));
                says.is_ok_and(|says| says == before || says == after)
            }
            _ => false,
        };
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Tells a text from others, in 16 hexadecimal digits.
fn mark(text: impl AsRef<[u8]>) -> String {
    Sha256::digest(text).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

fn is_mark(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_plain(path, OFlags::NOFOLLOW)?.take(MAX_DRAFT_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Renames `draft` to `path` if nothing is there.
fn rename_free(names: &impl Names, mut draft: Draft, path: &Path) -> io::Result<bool> {
    let free = take_free(names, &draft.path, path)?;
    draft.done = free;
    Ok(free)
}

/// Renames `from` to `path` if nothing is there. On some file systems `from` is a second name of it for a moment.
fn take_free(names: &impl Names, from: &Path, path: &Path) -> io::Result<bool> {
    match names.rename(from, path, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(true),
        Err(Errno::EXIST) => return Ok(false),
        // This file system cannot rename so: a link does not replace anything either.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        Err(error) => return Err(error.into()),
    }
    match names.link(from, path) {
        Ok(()) => {
            fs::remove_file(from)?;
            Ok(true)
        }
        Err(Errno::EXIST) => Ok(false),
        // Nor has it links: look right before.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => {
            let free = found(fs::symlink_metadata(path))?.is_none();
            if free {
                fs::rename(from, path)?;
            }
            Ok(free)
        }
        Err(error) => Err(error.into()),
    }
}

/// Exchanges `draft`, whose text is `after`, with the file at `path` if that says `before`.
fn exchange(names: &impl Names, mut draft: Draft, path: &Path, before: &str, after: &str) -> io::Result<bool> {
    let exchanged = names.rename(&draft.path, path, RenameFlags::EXCHANGE);
    fault::at("home::exchanged");
    match exchanged {
        Ok(()) if says(&draft.path, before) => Ok(true),
        Ok(()) => {
            // It is somebody's text now, until it is back.
            draft.done = true;
            put_back(names, &draft.path, path)?;
            // Somebody saved once more between the two: the newest stays.
            if found(fs::symlink_metadata(&draft.path))?.is_some() && !says(&draft.path, after) {
                put_back(names, &draft.path, path)?;
            }
            draft.done = false;
            Ok(false)
        }
        Err(Errno::NOENT) => Ok(false),
        // This file system cannot exchange files: look right before.
        Err(Errno::INVAL | Errno::NOSYS) => {
            let same = says(path, before);
            if same {
                fs::rename(&draft.path, path)?;
                draft.done = true;
            }
            Ok(same)
        }
        Err(error) => Err(error.into()),
    }
}

/// Puts what an editor saved, which is at `draft`, back to `path`; the error says where it stays.
fn put_back(names: &impl Names, draft: &Path, path: &Path) -> io::Result<()> {
    let Err(error) = names.rename(draft, path, RenameFlags::EXCHANGE) else { return Ok(()) };
    // Perhaps because nothing is there any more.
    match take_free(names, draft, path) {
        Ok(true) => Ok(()),
        _ => Err(io::Error::other(format!(
            "what somebody saved in {} meanwhile could not be put back and is in {}: {error}",
            path.display(),
            draft.display()
        ))),
    }
}

/// Whether a file says `text`.
fn says(path: &Path, text: &str) -> bool {
    let read = open_plain(path, OFlags::NOFOLLOW).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(text.len() as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    read.is_ok_and(|bytes| bytes == text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{super::open_to_others, *};

    #[test]
    fn a_text_is_replaced_only_while_it_is_the_one_that_was_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        let text = || fs::read_to_string(&path).expect("there");
        assert!(!replace_text(&path, Some("old"), "new").expect("nothing is there"));
        assert!(replace_text(&path, None, "one").expect("written"));
        assert!(!open_to_others(&path) && text() == "one");
        assert!(!replace_text(&path, None, "other").expect("it is there"));
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("a mode");
        assert!(replace_text(&path, Some("one"), "two").expect("written"));
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o777;
        assert_eq!((text().as_str(), mode), ("two", 0o640));
        for (before, now) in [("one", "two"), ("tw", "two"), ("two ", "two")] {
            assert!(!replace_text(&path, Some(before), "three").expect("it says something else"), "{before}");
            assert_eq!(text(), now);
        }
        // A link that came in between stays, and what it leads to.
        fs::rename(&path, folder.path().join("real")).expect("moved");
        std::os::unix::fs::symlink("real", &path).expect("a link");
        assert!(!replace_text(&path, Some("two"), "three").expect("a link"));
        assert!(fs::symlink_metadata(&path).expect("there").is_symlink() && text() == "two");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "no draft is left");
    }

    #[test]
    fn what_a_process_left_that_died_goes_with_the_next_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        let at = |name: &str| folder.path().join(name);
        fs::write(&path, "two").expect("a file");
        let id = "0123456789abcdef";
        let (unfinished, exchanged) = (format!("{id}.new"), format!("{id}-{}-{}", mark("one"), mark("two")));
        let before = at(&format!(".config.yaml.viber-{exchanged}"));
        // Half a text, the text before and, where the file system cannot exchange, the text after.
        fs::write(at(&format!(".config.yaml.viber-{unfinished}")), "tw").expect("a draft");
        fs::write(&before, "one").expect("a draft");
        assert!(replace_text(&path, Some("two"), "three").expect("written"));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "no draft is left");
        fs::write(&before, "two").expect("a draft");
        // What an editor saved before the exchange is a person's, and so is what only looks like a draft.
        let persons = [
            format!(".config.yaml.viber-fedcba9876543210-{}-{}", mark("one"), mark("two")),
            ".config.yaml.viber-mine.new".to_owned(),
            format!(".other.yaml.viber-{unfinished}"),
            format!(".config.yaml.{id}"),
        ];
        for name in &persons {
            fs::write(at(name), "saved by an editor").expect("a file");
        }
        std::os::unix::fs::symlink(&path, at(&format!(".config.yaml.viber-{unfinished}"))).expect("a link");
        assert!(replace_text(&path, Some("three"), "four").expect("written"));
        assert!(!before.exists() && persons.iter().all(|name| at(name).exists()));
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2 + persons.len());
        // While another process replaces a text here, what it has written so far stays.
        let other = fs::File::open(folder.path()).expect("the folder");
        assert!(lock(&other));
        fs::write(&before, "two").expect("a draft");
        assert!(replace_text(&path, Some("four"), "five").expect("written") && before.exists());
        drop(other);
        assert!(replace_text(&path, Some("five"), "six").expect("written") && !before.exists());
    }

    #[test]
    fn a_file_with_a_name_like_a_draft_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.yaml");
        fs::write(folder.path().join("config.yaml.new"), "a person's").expect("a file");
        assert!(replace_text(&path, None, "one").expect("written"));
        assert!(replace_text(&path, Some("one"), "two").expect("written"));
        assert_eq!(fs::read_to_string(folder.path().join("config.yaml.new")).expect("there"), "a person's");
    }

    /// A file system that cannot rename with flags, and links only if `links`.
    struct Plain {
        links: bool,
    }

    impl Names for Plain {
        fn rename(&self, _: &Path, _: &Path, _: RenameFlags) -> Result<(), Errno> {
            Err(Errno::INVAL)
        }

        fn link(&self, from: &Path, to: &Path) -> Result<(), Errno> {
            if self.links { Kernel.link(from, to) } else { Err(Errno::PERM) }
        }
    }

    #[test]
    fn a_file_system_that_cannot_rename_with_flags_is_enough() {
        for links in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let (names, path) = (Plain { links }, folder.path().join("config.yaml"));
            let at = |name: &str| folder.path().join(name);
            assert!(replace_by(&names, &path, None, "one").expect("written"), "links: {links}");
            assert!(replace_by(&names, &path, Some("one"), "two").expect("written"));
            fs::write(at("other"), "three").expect("a file");
            assert!(!take_free(&names, &at("other"), &path).expect("it is there"), "links: {links}");
            assert_eq!(fs::read_to_string(&path).expect("there"), "two");
            assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "no draft is left");
        }
    }

    /// An editor that saves right before the first exchange; the second one fails, before which it removes the file if
    /// `removes`.
    struct Editor {
        exchanges: Cell<usize>,
        removes: bool,
    }

    impl Names for Editor {
        fn rename(&self, from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
            if flags == RenameFlags::EXCHANGE {
                self.exchanges.set(self.exchanges.get() + 1);
                match self.exchanges.get() {
                    1 => fs::write(to, "saved").expect("a file"),
                    _ if self.removes => fs::remove_file(to).expect("removed"),
                    _ => return Err(Errno::IO),
                }
            }
            Kernel.rename(from, to, flags)
        }
    }

    #[test]
    fn what_an_editor_saved_stays_when_it_cannot_be_put_back() {
        for removes in [true, false] {
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("config.yaml");
            fs::write(&path, "one").expect("a file");
            let replaced = replace_by(&Editor { exchanges: Cell::new(0), removes }, &path, Some("one"), "two");
            let texts = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("a file").path());
            let saved: Vec<_> =
                texts.filter(|path| fs::read_to_string(path).is_ok_and(|text| text == "saved")).collect();
            let [saved] = saved.as_slice() else { panic!("it is lost: {saved:?}") };
            match replaced {
                Ok(replaced) => assert!(removes && !replaced && *saved == path),
                Err(error) => assert!(!removes && error.to_string().contains(&saved.display().to_string()), "{error}"),
            }
        }
    }
}
