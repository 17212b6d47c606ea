//! A file lock beside an SQLite database: it ends with its process, however that ends.

use std::{
    fs,
    io::{Seek as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::{FlockOperation, flock};

use super::{DbError, this_process};
use crate::clock::Clock;

/// What `restore` appends to the name of the database file that it replaces, before a timestamp.
pub const BEFORE_RESTORE_INFIX: &str = ".before-";

/// How the line of a lock file begins that says in which state its last owner left the database.
const LEFT_IN_ORDER: &str = "left in order: ";
/// How the line begins that says which file was found damaged, by its inode, and what is wrong with it.
const FOUND_DAMAGED: &str = "damaged: ";

/// The locked file. It stays when the lock is released: only the lock counts, not the file.
#[derive(Debug)]
pub struct LockFile {
    locked: Arc<fs::File>,
    database: PathBuf,
    /// Its first line: who has it.
    owner: String,
    is_untouched: bool,
    was_damaged: bool,
}

/// Where damage of a database is noted by a task that does not own the lock. The lock lives as long as this value does.
#[derive(Debug)]
pub struct DamageNote {
    locked: Arc<fs::File>,
    database: PathBuf,
}

impl LockFile {
    /// Whether the last owner left the database in order, and nothing has changed its file since.
    pub(super) fn is_untouched(&self) -> bool {
        self.is_untouched
    }

    /// Notes in which state the database is left, and releases the lock. Notes nothing while somebody has it open.
    pub(super) fn leave_in_order(self) -> std::io::Result<()> {
        let Some(state) = state(&self.database) else { return Ok(()) };
        writeln!(&*self.locked, "{LEFT_IN_ORDER}{state}")?;
        self.locked.sync_all()
    }

    /// Whether damage was found in this very file, and no check has found it sound since.
    pub(super) fn was_damaged(&self) -> bool {
        self.was_damaged
    }

    /// Takes back that damage was found: all of the file was checked, and it is sound.
    pub(super) fn forget_damage(&mut self) -> std::io::Result<()> {
        self.was_damaged = false;
        write_over(&self.locked, &self.owner)
    }

    /// Where a task beside this one notes damage.
    pub(super) fn damage_note(&self) -> DamageNote {
        DamageNote { locked: self.locked.clone(), database: self.database.clone() }
    }
}

impl DamageNote {
    /// Notes what is wrong with the database. Later owners find it, however this process ends.
    pub fn write(&self, what: &str) {
        if let Err(error) = self.append(what) {
            tracing::error!(%error, "the damage cannot be noted in the lock file; the next start may not know of it");
        }
    }

    fn append(&self, what: &str) -> std::io::Result<()> {
        let Some(inode) = inode(&self.database) else { return Ok(()) };
        // SQLite says it in several lines.
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        (&*self.locked).write_all(format!("{FOUND_DAMAGED}{inode} {what}\n").as_bytes())?;
        self.locked.sync_all()
    }
}

/// Takes the lock, or says who has it.
pub(super) fn take(database: &Path, verb: &str) -> Result<Result<LockFile, String>, DbError> {
    let path = beside(database)?;
    let wrong = |error: std::io::Error| DbError::Unavailable(format!("{}: {error}", path.display()));
    let open = fs::OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
    let file = open.map_err(wrong)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(Err(said(&path)));
    }
    let (left, damage) = (noted(&path, LEFT_IN_ORDER), damage(&path, database));
    let owner = format!("{}, since {}\n", this_process(verb), Clock::System.now());
    let damage_line = damage.as_ref().map_or_else(String::new, |damage| format!("{FOUND_DAMAGED}{damage}\n"));
    write_over(&file, &format!("{owner}{damage_line}")).map_err(wrong)?;
    if left.is_some() {
        // Nobody may find that line again once this process has written to the database.
        file.sync_all().map_err(wrong)?;
    }
    let is_untouched = left.is_some() && left == state(database);
    let (locked, database) = (Arc::new(file), database.to_owned());
    Ok(Ok(LockFile { locked, database, owner, is_untouched, was_damaged: damage.is_some() }))
}

/// Who has the lock.
pub(super) fn holder(database: &Path) -> Result<Option<String>, DbError> {
    let path = beside(database)?;
    let file = match fs::File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DbError::Unavailable(format!("{}: {error}", path.display()))),
    };
    // A shared lock, held only briefly: a process that wants it exclusively tries again.
    Ok(flock(&file, FlockOperation::NonBlockingLockShared).is_err().then(|| said(&path)))
}

/// What is wrong when the database file has other names (hard links): each would have its own lock and its own write-ahead
/// log for the same data.
pub(super) fn other_names(database: &Path) -> Result<Option<String>, DbError> {
    let wrong = |error: std::io::Error| DbError::Unavailable(format!("{}: {error}", database.display()));
    let meta = match fs::metadata(database) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error)),
    };
    if meta.nlink() < 2 {
        return Ok(None);
    }
    let real = fs::canonicalize(database).map_err(wrong)?;
    let same =
        |path: &Path| fs::metadata(path).is_ok_and(|other| (other.dev(), other.ino()) == (meta.dev(), meta.ino()));
    let kept = kept_by_restore(&real).into_iter().filter(|path| same(path)).count() as u64;
    Ok((meta.nlink() > 1 + kept).then(|| {
        format!(
            "{} has other names (hard links): a Board that is started with one of them would not find this one, and both \
             would damage the data. `find FOLDER -samefile {0}` finds them; remove those that are not --database-url",
            real.display()
        )
    }))
}

/// Names that `restore` gives the file that it is about to replace. When it is killed then, the file has two names.
fn kept_by_restore(real: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (real.parent(), real.file_name()) else { return Vec::new() };
    let prefix = format!("{}{BEFORE_RESTORE_INFIX}", name.to_string_lossy());
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with(&prefix)).map(|file| file.path()).collect()
}

/// The rest of the line of a lock file that begins with `prefix`.
fn noted(lock: &Path, prefix: &str) -> Option<String> {
    let text = fs::read_to_string(lock).ok()?;
    text.lines().find_map(|line| line.strip_prefix(prefix)).map(str::to_owned)
}

/// What was noted of damage in the file that is now the database. Another file in its place knows of none.
fn damage(lock: &Path, database: &Path) -> Option<String> {
    let inode = inode(database)?;
    noted(lock, FOUND_DAMAGED).filter(|noted| noted.split(' ').next() == Some(inode.as_str()))
}

/// The inode of a database's file, without its device: that may have another number after the machine was started again,
/// and a file whose damage is forgotten would be served.
fn inode(database: &Path) -> Option<String> {
    fs::metadata(database).ok().map(|meta| meta.ino().to_string())
}

/// Puts `text` in the place of all that is in a file.
fn write_over(mut file: &fs::File, text: &str) -> std::io::Result<()> {
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// The state of a database's file. Whatever writes to it or puts another file in its place changes this, because nobody
/// can set the time of a file's last change. `None` when there is no file, or a write-ahead log beside it: somebody has
/// it open, or did not close it.
fn state(database: &Path) -> Option<String> {
    let real = fs::canonicalize(database).ok()?;
    if !matches!(suffixed(&real, "-wal").try_exists(), Ok(false)) {
        return None;
    }
    let meta = fs::metadata(&real).ok()?;
    let written = format!("{}.{:09}", meta.mtime(), meta.mtime_nsec());
    let changed = format!("{}.{:09}", meta.ctime(), meta.ctime_nsec());
    Some(format!("{} {} {} {written} {changed}", meta.dev(), meta.ino(), meta.len()))
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn said(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    match text.lines().next().filter(|line| !line.is_empty()) {
        Some(line) => line.to_owned(),
        None => "somebody who has not said who".to_owned(),
    }
}

/// The lock file of a database, the same for all its symbolic links.
fn beside(database: &Path) -> Result<PathBuf, DbError> {
    let wrong = |error: std::io::Error| DbError::Unavailable(format!("{}: {error}", database.display()));
    let real = match fs::canonicalize(database) {
        Ok(real) => real,
        // Not made yet.
        Err(_) => {
            let absolute = std::path::absolute(database).map_err(wrong)?;
            let name = absolute.file_name().ok_or_else(|| DbError::Unavailable("the database has no name".into()))?;
            let folder = absolute.parent().unwrap_or(Path::new("/"));
            fs::canonicalize(folder).map_err(wrong)?.join(name)
        }
    };
    Ok(suffixed(&real, ".lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_other_names_is_refused_but_for_those_that_restore_gave_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |name: &str| folder.path().join(name);
        assert_eq!(other_names(&name("board.db")).expect("asked"), None, "none yet");
        fs::write(name("board.db"), "").expect("a file");
        std::os::unix::fs::symlink(name("board.db"), name("soft.db")).expect("a link");
        fs::hard_link(name("board.db"), name("board.db.before-7")).expect("a link");
        fs::write(name("board.db.before-6"), "").expect("another file");
        for same in ["board.db", "soft.db"] {
            assert_eq!(other_names(&name(same)).expect("asked"), None, "{same}");
        }
        assert!(other_names(&name("board.db.before-7")).expect("asked").is_some(), "its lock is another one");
        fs::hard_link(name("board.db"), name("hard.db")).expect("a link");
        for same in ["board.db", "soft.db", "hard.db"] {
            let said = other_names(&name(same)).expect("asked").expect(same);
            assert!(said.contains("hard links"), "{said}");
        }
    }

    #[test]
    fn a_lock_is_one_for_all_names_of_a_database_and_says_who_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let (real, other) = (folder.path().join("board.db"), folder.path().join("other.db"));
        let taken = take(&real, "serve").expect("asked").expect("free");
        assert!(holder(&real).expect("asked").expect("taken").contains("serve, process"));
        fs::write(&real, "").expect("a file");
        std::os::unix::fs::symlink(&real, &other).expect("a link");
        let refused = take(&other, "migrate").expect("asked").expect_err("taken");
        assert!(refused.contains("serve") && refused.contains("since 20"), "{refused}");
        drop(taken);
        assert_eq!(holder(&other).expect("asked"), None);
        take(&other, "migrate").expect("asked").expect("free again");
    }

    #[test]
    fn a_database_that_was_left_in_order_is_known_until_something_changes_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |name: &str| folder.path().join(name);
        let database = name("board.db");
        let taken = || take(&database, "serve").expect("asked").expect("free");
        fs::write(&database, "rows").expect("a file");
        assert!(!taken().is_untouched(), "nobody left it");
        taken().leave_in_order().expect("noted");
        assert!(taken().is_untouched());
        assert!(!taken().is_untouched(), "it was not left in order since");
        taken().leave_in_order().expect("noted");
        fs::copy(&database, name("copy.db")).expect("a copy");
        fs::rename(name("copy.db"), &database).expect("exchanged");
        assert!(!taken().is_untouched(), "another file is in its place");
        taken().leave_in_order().expect("noted");
        fs::write(name("board.db-wal"), "").expect("a log");
        assert!(!taken().is_untouched(), "somebody did not close it");
        taken().leave_in_order().expect("nothing to note");
        fs::remove_file(name("board.db-wal")).expect("removed");
        assert!(!taken().is_untouched(), "it was open when it was left");
    }

    #[test]
    fn damage_is_known_until_the_file_is_found_sound_or_exchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let name = |name: &str| folder.path().join(name);
        let database = name("board.db");
        let taken = || take(&database, "serve").expect("asked").expect("free");
        fs::write(&database, "rows").expect("a file");
        assert!(!taken().was_damaged());
        taken().damage_note().write("*** in database main ***\nTree 5 page 7: lost");
        for turn in ["restarted", "and again"] {
            let lock = taken();
            assert!(lock.was_damaged() && !lock.is_untouched(), "{turn}");
            let said = fs::read_to_string(name("board.db.lock")).expect("a lock file");
            assert!(said.starts_with("viber-board ") && said.lines().count() == 2, "{said}");
            assert!(said.ends_with(" *** in database main *** Tree 5 page 7: lost\n"), "{said}");
        }
        fs::write(&database, "other rows").expect("written");
        assert!(taken().was_damaged(), "a write mends nothing by itself");
        taken().forget_damage().expect("taken back");
        assert!(!taken().was_damaged(), "it was found sound");
        taken().damage_note().write("lost");
        fs::copy(&database, name("copy.db")).expect("a copy");
        fs::rename(name("copy.db"), &database).expect("exchanged");
        assert!(!taken().was_damaged(), "another file is in its place");
    }
}
