//! Earlier versions of artifacts, each named by its hash, beside the newest ones. Commands may write in the folder of
//! their task at any time: what lies there is opened from the open folder and never through a link, and a copy is only
//! kept once its own bytes were measured.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::Path,
};

use protocol::TaskId;
use rustix::{
    fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat},
    io::Errno,
};

use super::{
    FileDigest, VERSIONS_FOLDER,
    read_limits::checked as bytes_of,
    reference::{SMALL_FILE_BYTES, beneath, copy, open_plain, open_root},
};
use crate::home::Home;

/// Keeps a copy of the task's file `name` under the hash that was measured, so that this version can be opened after a
/// newer one has taken its name. Larger files are not kept. Fails if the file is a different one by now.
pub(super) fn keep(home: &Home, task: &TaskId, name: &str, measure: &FileDigest) -> io::Result<()> {
    if measure.size > SMALL_FILE_BYTES {
        return Ok(());
    }
    let (sha256, folder) = (measure.sha256.as_str(), OFlags::RDONLY | OFlags::DIRECTORY);
    let task = beneath(open_root(home)?, &Path::new("artifacts").join(task.as_str()), folder)?;
    match mkdirat(&task, VERSIONS_FOLDER, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let versions = beneath(&task, Path::new(VERSIONS_FOLDER), folder)?;
    let is_kept = |file: File| copied(&file, &mut io::sink()).is_ok_and(|kept| kept.sha256 == sha256);
    if open_plain(&versions, Path::new(sha256)).is_ok_and(is_kept) {
        return Ok(());
    }
    let source = open_plain(&task, Path::new(name)).map_err(io::Error::other)?;
    let (draft, mut file) = draft(&versions)?;
    let kept = copied(&source, &mut file).and_then(|copy| {
        if copy.sha256 != sha256 {
            return Err(io::Error::other("the file is a different one by now"));
        }
        Ok(renameat(&versions, &draft, &versions, sha256)?)
    });
    if kept.is_err() {
        let _ = unlinkat(&versions, &draft, AtFlags::empty());
    }
    kept
}

/// A new file in `versions`, and its name.
fn draft(versions: &OwnedFd) -> io::Result<(String, File)> {
    let name = format!(".new-{:032x}", rand::random::<u128>());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(versions, &name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok((name, file.into()))
}

/// Copies a small file; of a larger one only enough to tell that it is not the one that was measured.
fn copied(file: &File, to: &mut impl io::Write) -> io::Result<FileDigest> {
    copy(bytes_of(file)?.take(SMALL_FILE_BYTES + 1), to)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::PathBuf};

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::artifacts::measure;

    struct Fixture {
        folder: tempfile::TempDir,
        home: Home,
        task: TaskId,
        measure: FileDigest,
    }

    impl Fixture {
        /// A task with the small file `a.md`, which was measured.
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let (home, task) = (Home::at(folder.path()), TaskId::new(1));
            home.open().expect("a home");
            let file = home.artifacts(task.as_str()).join("a.md");
            fs::create_dir_all(home.artifacts(task.as_str())).expect("a folder");
            fs::create_dir_all(folder.path().join("elsewhere")).expect("a folder");
            fs::write(&file, "# One").expect("a file");
            let measure = measure(&File::open(file).expect("there")).expect("measured");
            Self { folder, home, task, measure }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.home.artifacts(self.task.as_str()).join(name)
        }

        fn kept(&self) -> PathBuf {
            self.at(VERSIONS_FOLDER).join(&self.measure.sha256)
        }

        fn elsewhere(&self) -> PathBuf {
            self.folder.path().join("elsewhere")
        }

        fn keep(&self) -> io::Result<()> {
            keep(&self.home, &self.task, "a.md", &self.measure)
        }

        /// The names in the folder of versions.
        fn names(&self) -> Vec<String> {
            let found = fs::read_dir(self.at(VERSIONS_FOLDER)).expect("a folder");
            found.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned()).collect()
        }
    }

    #[test]
    fn a_version_is_kept_under_its_hash_and_alone() {
        let fixture = Fixture::new();
        for _ in 0..2 {
            fixture.keep().expect("kept");
            assert_eq!(fs::read_to_string(fixture.kept()).expect("there"), "# One");
        }
        assert_eq!(fixture.names(), [fixture.measure.sha256.as_str()], "no draft is left");
        assert!(!crate::home::open_to_others(&fixture.kept()));
    }

    #[test]
    fn nothing_is_written_where_a_folder_of_versions_leads() {
        let fixture = Fixture::new();
        symlink(fixture.elsewhere(), fixture.at(VERSIONS_FOLDER)).expect("a link");
        fixture.keep().expect_err("a link");
        assert_eq!(fs::read_dir(fixture.elsewhere()).expect("a folder").count(), 0);
    }

    #[test]
    fn nothing_is_written_where_a_version_leads() {
        let fixture = Fixture::new();
        fs::create_dir(fixture.at(VERSIONS_FOLDER)).expect("a folder");
        symlink(fixture.elsewhere().join("planted"), fixture.kept()).expect("a link");
        fixture.keep().expect("kept in place of the link");
        assert_eq!(fs::read_dir(fixture.elsewhere()).expect("a folder").count(), 0);
        assert!(fs::symlink_metadata(fixture.kept()).expect("there").is_file());
    }

    #[test]
    fn a_wrong_file_under_the_hash_is_replaced() {
        let fixture = Fixture::new();
        fs::create_dir(fixture.at(VERSIONS_FOLDER)).expect("a folder");
        fs::write(fixture.kept(), "# Two").expect("a file");
        fixture.keep().expect("kept");
        assert_eq!(fs::read_to_string(fixture.kept()).expect("there"), "# One");
    }

    #[test]
    fn what_took_the_files_place_after_it_was_measured_is_not_kept() {
        let fixture = Fixture::new();
        let secret = fixture.elsewhere().join("secret");
        // Even the same bytes: whatever a link leads to is not the agent's to read.
        fs::write(&secret, "# One").expect("a file");
        let takes: [(&str, &dyn Fn(PathBuf)); 3] = [
            ("a link", &|at| symlink(&secret, at).expect("a link")),
            ("a pipe", &|at| mknodat(CWD, at, FileType::Fifo, Mode::RWXU, 0).expect("a pipe")),
            ("other text", &|at| fs::write(at, "# Two").expect("a file")),
        ];
        for (what, take) in takes {
            fs::remove_file(fixture.at("a.md")).expect("removed");
            take(fixture.at("a.md"));
            fixture.keep().expect_err(what);
            assert!(fixture.names().is_empty(), "{what}: no draft is left");
        }
    }
}
