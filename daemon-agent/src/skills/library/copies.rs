//! Copies of the skills that lie where agents can write: the files that a person accepted, kept by their digest where nobody but
//! the daemon writes, and used from there. What is changed in a space between the check and the use is never run.

use std::{
    io::{self, Read as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, Mode},
    io::Errno,
};

use super::stage::{STAGE_FOLDER, StagedFolder};
use crate::{
    removal,
    skills::bundle::{self, HashCache},
};

/// Where they lie, below `skills/` of the home: scans look into no hidden folder, and no command writes there.
const COPIES_FOLDER: &str = ".accepted";
/// The same below the home.
const COPIES_WAY: &str = "skills/.accepted";

/// The copy of the files with one digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedCopy {
    /// Without links.
    home: PathBuf,
    folder: PathBuf,
    digest: String,
}

impl AcceptedCopy {
    /// The copy in `home`, whose path has no links. It need not be there yet.
    pub fn of(home: &Path, digest: &str) -> Self {
        Self { home: home.to_owned(), folder: home.join(COPIES_WAY).join(digest), digest: digest.to_owned() }
    }

    /// Where it lies.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Has it there with exactly the files that were accepted; what is missing or damaged is made of those in `from`, or of the
    /// one file `single` there. `Err`: they are others by now, or the disk refuses. Blocks.
    pub fn keep(&self, from: &Path, single: Option<&str>) -> io::Result<()> {
        if self.is_sound() { Ok(()) } else { self.make(from, single) }
    }

    fn is_sound(&self) -> bool {
        let read = bundle::read(&self.folder, None, &mut HashCache::default());
        read.is_ok_and(|read| !read.has_links && read.digest == self.digest)
    }

    fn make(&self, from: &Path, single: Option<&str>) -> io::Result<()> {
        let copies = make_place(&self.home)?;
        // One after the other, also beside another process of this home.
        rustix::io::retry_on_intr(|| rustix::fs::flock(&copies, FlockOperation::LockExclusive))?;
        if self.is_sound() {
            return Ok(());
        }
        let changed = || io::Error::other("its files changed while they were copied");
        let read = bundle::read(from, single, &mut HashCache::default())?;
        if read.has_links || read.digest != self.digest {
            return Err(changed());
        }
        let mut stage = StagedFolder::make(&copies)?;
        for file in &read.files {
            let mode = if file.mode == "755" { 0o555 } else { 0o444 };
            let (content, _) = bundle::open_beneath(from, &file.path)?;
            // One that grows meanwhile is another one.
            stage.write(&file.path, mode, &mut content.take(file.size + 1))?;
        }
        stage.sync()?;
        let staged = bundle::open_folder(&copies, Path::new(STAGE_FOLDER))?;
        let written = bundle::read_open(staged, Path::new(STAGE_FOLDER), None, &mut HashCache::default())?;
        if written.digest != self.digest {
            return Err(changed());
        }
        removal::remove_in(&copies, self.digest.as_str())?;
        rustix::fs::renameat(&copies, STAGE_FOLDER, &copies, self.digest.as_str())?;
        Ok(rustix::fs::fsync(&copies)?)
    }
}

fn make_place(home: &Path) -> io::Result<OwnedFd> {
    let skills = bundle::open_place(home, "skills")?;
    match rustix::fs::mkdirat(&skills, COPIES_FOLDER, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    bundle::open_folder(&skills, Path::new(COPIES_FOLDER))
}

/// Removes the copies in `home` of digests that nobody accepts any more. Blocks.
pub fn forget_copies(home: &Path, is_accepted: impl Fn(&str) -> bool) {
    let Ok(copies) = bundle::open_place(home, COPIES_WAY) else { return };
    // Somebody is making one: another time.
    if rustix::fs::flock(&copies, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    let names = bundle::entries(&copies, false).unwrap_or_default();
    for (name, _) in names.into_iter().filter(|(name, _)| !is_accepted(name)) {
        if let Err(error) = removal::remove_in(&copies, name.as_str()) {
            tracing::debug!("the copy {name} of a skill is not removed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{
        home::Home,
        skills::{
            Skills,
            library::SkillsLock,
            tests::{home_with, open, write},
        },
    };

    const TOOL: &str =
        "---\nname: greet\ndescription: Greets\nparameters: {}\n---\n```sh\nsh \"$SKILL_DIR/a/run.sh\"\n```\n";
    const SINGLE: &str = "---\nname: single\ndescription: One file\n---\nBody\n";

    /// A home whose agent works in a space with these skills, and where they lie.
    fn with_space() -> (tempfile::TempDir, Home, PathBuf) {
        let (folder, home) = home_with(&[]);
        let space = folder.path().join("space");
        write(&home, "../space/.agents/skills/greet/SKILL.md", TOOL);
        write(&home, "../space/.agents/skills/greet/a/run.sh", "echo good\n");
        write(&home, "../space/.agents/skills/greet/.git/hook", "x");
        write(&home, "../space/.agents/skills/single.skill.md", SINGLE);
        write(&home, "agents/a.yaml", &format!("skills: [\"*\"]\nspaces: [{}]\n", space.display()));
        let place = space.canonicalize().expect("there").join(".agents/skills");
        (folder, home, place)
    }

    fn accept(skills: &Skills, name: &str) {
        let found = skills.to_review(name, None).expect("there");
        skills.accept(name, &found.digest).expect("accepted");
        skills.read();
    }

    fn text(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).expect("there")
    }

    #[test]
    fn what_was_accepted_is_used_from_where_no_agent_writes() {
        let (_folder, home, place) = with_space();
        let (skills, files) = open(&home);
        let agent = files.borrow().agent("a").expect("there").expect("good");
        assert!(skills.of(&agent).is_empty());
        accept(&skills, "greet");
        accept(&skills, "single");
        let greet = skills.of(&agent).find("greet").expect("offered").clone();
        let used = greet.used_folder().to_owned();
        let real = home.root().canonicalize().expect("there");
        assert_eq!(used, real.join("skills/.accepted").join(&greet.digest));
        assert!(used.join("a/run.sh").is_file() && !used.join(".git").exists(), "and nothing beside what was accepted");
        let folders: Vec<PathBuf> = skills.of(&agent).folders().map(PathBuf::from).collect();
        assert!(folders.contains(&used) && folders.contains(&place.join("greet")), "{folders:?}");
        assert!(greet.is_usable());
        // Changed after the check: what runs is what was accepted.
        fs::write(place.join("greet/a/run.sh"), "echo evil\n").expect("written");
        assert_eq!(text(used.join("a/run.sh")), "echo good\n");
        assert!(!greet.is_usable(), "and before the next use it is noticed");
        fs::write(place.join("greet/a/run.sh"), "echo good\n").expect("written");
        // A copy that was damaged is made again, of the files that were accepted and no others.
        fs::remove_file(used.join("a/run.sh")).expect("removed");
        fs::write(used.join("a/other.sh"), "x").expect("written");
        assert!(greet.is_usable());
        assert_eq!((text(used.join("a/run.sh")).as_str(), used.join("a/other.sh").exists()), ("echo good\n", false));
        let single = skills.of(&agent).find("single").expect("offered").clone();
        assert!(single.is_usable() && single.used_folder().join("single.skill.md").is_file());
        assert_eq!(fs::read_dir(single.used_folder()).expect("there").count(), 1, "not what lies beside it");
        assert!(single.load().contains("Body"));
        // What nobody accepts any more is not kept.
        SkillsLock::default().write(&home).expect("written");
        skills.read();
        assert_eq!(fs::read_dir(real.join("skills/.accepted")).expect("there").count(), 0);
    }

    #[test]
    fn a_copy_is_of_the_accepted_files_or_is_none() {
        let (_folder, home, place) = with_space();
        let (skills, _files) = open(&home);
        let greet = skills.to_review("greet", None).expect("there");
        let real = home.root().canonicalize().expect("there");
        let copy = AcceptedCopy::of(&real, &greet.digest);
        fs::write(place.join("greet/a/run.sh"), "echo evil\n").expect("written");
        assert!(copy.keep(&place.join("greet"), None).is_err() && !copy.folder().exists());
        fs::write(place.join("greet/a/run.sh"), "echo good\n").expect("written");
        std::os::unix::fs::symlink("/etc/hostname", place.join("greet/link")).expect("a link");
        assert!(copy.keep(&place.join("greet"), None).is_err() && !copy.folder().exists());
        fs::remove_file(place.join("greet/link")).expect("removed");
        // What a kill left in the middle is no obstacle.
        fs::create_dir_all(real.join("skills/.accepted/.stage/a")).expect("made");
        copy.keep(&place.join("greet"), None).expect("kept");
        assert_eq!(text(copy.folder().join("a/run.sh")), "echo good\n");
        copy.keep(Path::new("/nowhere"), None).expect("it is there");
    }
}
