//! The folder `skills/` of a home while a skill is put into it: its files are written where no scan looks, and get their
//! place with one rename. What was there before is kept, one version of each skill.
//!
//! Every folder is opened in the one above it, and no link is followed.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, RenameFlags},
    io::Errno,
};

use super::archive::ArchivedFile;
use crate::{
    fault,
    home::{Home, private_folder},
    removal,
    skills::bundle::{self, BundleFiles, HashCache},
};

/// Where former versions lie, below `skills/`: scans look into no hidden folder.
const FORMER_FOLDER: &str = ".former";
/// Where a skill is written, beside what is kept; nothing of that has a name like this.
pub const STAGE_FOLDER: &str = ".stage";

/// The open folder.
pub struct SkillsFolder {
    folder: OwnedFd,
    former: OwnedFd,
}

impl SkillsFolder {
    /// Opens it, and creates what is missing of it and for former versions.
    pub fn open(home: &Home) -> io::Result<Self> {
        private_folder(&home.skills())?;
        let folder = bundle::open_place(home.root(), "skills")?;
        match rustix::fs::mkdirat(&folder, FORMER_FOLDER, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let former = bundle::open_folder(&folder, Path::new(FORMER_FOLDER))?;
        Ok(Self { folder, former })
    }

    /// The digest of the files in the place of a skill: `None` if nothing is there, empty if it is nothing that a skill can be.
    pub fn digest(&self, name: &str) -> io::Result<Option<String>> {
        match read_in(&self.folder, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if is_disk(&error) => Err(error),
            Ok(files) if !files.has_links => Ok(Some(files.digest)),
            Ok(_) | Err(_) => Ok(Some(String::new())),
        }
    }

    /// The digest of the version before, if one is kept.
    pub fn former_digest(&self, name: &str) -> Option<String> {
        read_in(&self.former, name).ok().map(|files| files.digest)
    }

    /// Writes these files where nobody looks, and returns their digest as they are on the disk.
    pub fn stage(&self, files: &[ArchivedFile]) -> io::Result<String> {
        let mut stage = StagedFolder::make(&self.former)?;
        for ArchivedFile { file, content } in files {
            stage.write(&file.path, if file.mode == "755" { 0o755 } else { 0o644 }, &mut content.as_slice())?;
            point("skills::staging")?;
        }
        stage.sync()?;
        point("skills::staged")?;
        Ok(read_in(&self.former, STAGE_FOLDER)?.digest)
    }

    /// Gives the staged files the place of the skill `name`; what was there is the former version from now on.
    pub fn put_in_place(&self, name: &str) -> io::Result<()> {
        if !self.is_there(name)? {
            match rustix::fs::renameat_with(&self.former, STAGE_FOLDER, &self.folder, name, RenameFlags::NOREPLACE) {
                // Some file systems cannot refuse to overwrite; an empty folder is all that this could replace.
                Err(Errno::INVAL | Errno::NOSYS) => {
                    rustix::fs::renameat(&self.former, STAGE_FOLDER, &self.folder, name)?;
                }
                renamed => renamed?,
            }
        } else {
            removal::remove_in(&self.former, name)?;
            rustix::fs::renameat(&self.former, STAGE_FOLDER, &self.former, name)?;
            point("skills::before_exchange")?;
            match rustix::fs::renameat_with(&self.former, name, &self.folder, name, RenameFlags::EXCHANGE) {
                Err(Errno::INVAL | Errno::NOSYS) => self.exchange_by_turns(name)?,
                exchanged => exchanged?,
            }
        }
        point("skills::after_exchange")?;
        self.sync()
    }

    /// The exchange where the file system, such as NFS, has none: for a moment nothing is in the place.
    fn exchange_by_turns(&self, name: &str) -> io::Result<()> {
        rustix::fs::renameat(&self.former, name, &self.former, STAGE_FOLDER)?;
        rustix::fs::renameat(&self.folder, name, &self.former, name)?;
        point("skills::between_turns")?;
        Ok(rustix::fs::renameat(&self.former, STAGE_FOLDER, &self.folder, name)?)
    }

    /// Takes a skill out of its place: it is the former version from now on.
    pub fn take_away(&self, name: &str) -> io::Result<()> {
        if self.is_there(name)? {
            removal::remove_in(&self.former, name)?;
            rustix::fs::renameat(&self.folder, name, &self.former, name)?;
        }
        point("skills::taken_away")?;
        self.sync()
    }

    fn is_there(&self, name: &str) -> io::Result<bool> {
        match rustix::fs::statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        rustix::fs::fsync(&self.folder)?;
        Ok(rustix::fs::fsync(&self.former)?)
    }
}

/// A new folder that the files of a skill are written into, before it gets its place.
pub struct StagedFolder {
    root: OwnedFd,
    /// Its folders, for the end.
    folders: BTreeSet<String>,
}

impl StagedFolder {
    /// Makes it in `above`, in place of what a kill left there.
    pub fn make(above: &OwnedFd) -> io::Result<Self> {
        removal::remove_in(above, STAGE_FOLDER)?;
        rustix::fs::mkdirat(above, STAGE_FOLDER, Mode::from_raw_mode(0o755))?;
        let root = bundle::open_folder(above, Path::new(STAGE_FOLDER))?;
        Ok(Self { root, folders: BTreeSet::from([String::new()]) })
    }

    /// Writes one file, whose path is checked.
    pub fn write(&mut self, path: &str, mode: u32, content: &mut dyn Read) -> io::Result<()> {
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let folder = make_folder(&self.root, above)?;
        let ends = above.match_indices('/').map(|(end, _)| &above[..end]).chain([above]);
        self.folders.extend(ends.map(str::to_owned));
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let written = rustix::fs::openat(&folder, name, flags, mode)?;
        // Whatever the process's mask takes away.
        rustix::fs::fchmod(&written, mode)?;
        let mut written = File::from(written);
        io::copy(content, &mut written)?;
        written.sync_all()
    }

    /// Everything is on the disk after that.
    pub fn sync(self) -> io::Result<()> {
        for folder in &self.folders {
            File::from(make_folder(&self.root, folder)?).sync_all()?;
        }
        Ok(())
    }
}

/// A named place where a test can have it fail.
fn point(name: &'static str) -> io::Result<()> {
    if fault::at(name) { Err(io::Error::other("a test")) } else { Ok(()) }
}

fn read_in(above: &OwnedFd, name: &str) -> io::Result<BundleFiles> {
    let folder = bundle::open_folder(above, Path::new(name))?;
    bundle::read_open(folder, Path::new(name), None, &mut HashCache::default())
}

/// Whether it says nothing about the files, only that they cannot be read now.
fn is_disk(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::IO | Errno::NFILE | Errno::MFILE | Errno::NOMEM))
}

/// Opens the folder at `way` below `root`, and creates what is missing.
fn make_folder(root: &OwnedFd, way: &str) -> io::Result<OwnedFd> {
    let mut folder = bundle::open_folder(root, Path::new("."))?;
    for name in way.split('/').filter(|name| !name.is_empty()) {
        match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        folder = bundle::open_folder(&folder, Path::new(name))?;
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::skills::library::{archive, tests::archive_of};

    #[test]
    fn folders_that_cannot_be_exchanged_change_places_by_turns() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let skills = SkillsFolder::open(&home).expect("open");
        let put = |text: &str| {
            let files = archive::read(&archive_of(&[("SKILL.md", 0o644, text)])).expect("good").0;
            skills.stage(&files).expect("staged")
        };
        let (first, second) = (put("first"), put("second"));
        assert_ne!(first, second);
        skills.put_in_place("a").expect("in place");
        put("third");
        fs::rename(home.skills().join(".former/.stage"), home.skills().join(".former/a")).expect("moved");
        skills.exchange_by_turns("a").expect("exchanged");
        let text = |path: &str| fs::read_to_string(home.skills().join(path)).expect("there");
        assert_eq!((text("a/SKILL.md").as_str(), text(".former/a/SKILL.md").as_str()), ("third", "second"));
        assert!(!home.skills().join(".former/.stage").exists());
        assert_eq!(skills.former_digest("a"), Some(second));
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        let elsewhere = folder.path().join("elsewhere");
        fs::create_dir(&elsewhere).expect("made");
        let former = home.skills().join(".former");
        std::os::unix::fs::symlink(&elsewhere, &former).expect("a link");
        assert!(SkillsFolder::open(&home).is_err());
        fs::remove_file(&former).expect("removed");
        let skills = SkillsFolder::open(&home).expect("open");
        std::os::unix::fs::symlink(&elsewhere, former.join(".stage")).expect("a link");
        let files = archive::read(&archive_of(&[("SKILL.md", 0o644, "x")])).expect("good").0;
        skills.stage(&files).expect("staged");
        assert_eq!(fs::read_dir(&elsewhere).expect("there").count(), 0);
        assert!(former.join(".stage/SKILL.md").is_file());
    }
}
