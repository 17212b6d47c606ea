//! `skills/skills.lock`: which skills were installed, with the digests of their files, and which digests people accepted. A copy
//! in `state/` is the second witness: without it, a file that is lost would make the owner's own of what was installed.

use std::{
    collections::BTreeMap,
    io,
    path::Path,
    sync::{Mutex, PoisonError},
};

use protocol::{Instant, agent::is_id};
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    damaged, fault,
    home::{Home, write_private},
    skills::bundle,
};

/// Most digests that are accepted of one skill; the oldest go first.
const MAX_ACCEPTED_DIGESTS: usize = 8;
/// Most skills of which digests are accepted.
const MAX_ACCEPTED_SKILLS: usize = 1_000;
/// What a damaged one is called among the damaged files.
const DAMAGED_LABEL: &str = "skills.lock";

/// Held while the file and its copy are read or written: a scan that saw one of them new and the other one old would mend
/// what is being written.
static FILES: Mutex<()> = Mutex::new(());

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkillsLock {
    /// By their names.
    #[serde(default)]
    pub skills: BTreeMap<String, InstalledSkill>,
    /// Digests that people accepted, the newest last, by the paths of the skills as people read them.
    #[serde(default)]
    accepted: BTreeMap<String, Vec<String>>,
}

/// A skill that was installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstalledSkill {
    /// Empty if it is not known whether it was installed.
    pub digest: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none", default)]
    pub reference: Option<String>,
    /// `library` or `clawhub`.
    pub source: String,
    pub installed_at: Instant,
    /// The files before these, which are kept.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub former: Option<FormerSkill>,
}

impl InstalledSkill {
    /// One of which nothing is recorded any more, nor whether it was installed at all: no files are its own.
    fn unknown(now: Instant) -> Self {
        let (digest, source) = (String::new(), "library".to_owned());
        Self { digest, version: None, reference: None, source, installed_at: now, former: None }
    }

    /// Whether it is recorded that it was installed.
    pub fn is_known(&self) -> bool {
        !self.digest.is_empty()
    }
}

/// The files that a skill had before it was installed as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormerSkill {
    pub digest: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
}

/// What one of the two files says.
enum LockFile {
    Sound(SkillsLock),
    Missing,
    /// With the reason.
    Damaged(String),
}

impl LockFile {
    /// `Err`: what it says is not known for now.
    fn understand(read: io::Result<Option<Vec<u8>>>) -> io::Result<Self> {
        match read {
            Ok(Some(bytes)) => Ok(match serde_json::from_slice(&bytes) {
                Ok(lock) => Self::Sound(lock),
                Err(error) => Self::Damaged(error.to_string()),
            }),
            Ok(None) => Ok(Self::Damaged("it is not a file".to_owned())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Self::Missing)
            }
            Err(error) => Err(error),
        }
    }

    /// Writes this text in its place. What is damaged is kept aside.
    fn replace(&self, home: &Home, path: &Path, text: &[u8]) -> io::Result<()> {
        if let Self::Damaged(why) = self {
            let kept = damaged::move_aside(&home.damaged(), path, DAMAGED_LABEL, Clock::system().now())?;
            tracing::warn!(file = %path.display(), kept = %kept.display(), "the record of skills was damaged: {why}");
        }
        write_private(path, text)
    }
}

impl SkillsLock {
    /// What is recorded of this home, in its file and in the copy in `state/`: the copy counts when the file is missing or
    /// damaged. When neither says it, each skill in the place of an installed one may be one, so a person decides about it.
    /// `Err`: what is recorded is not known, so nothing may be written in its place, and nobody may be offered what it could
    /// forbid. Blocks.
    pub fn read(home: &Home) -> io::Result<Self> {
        let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let file = LockFile::understand(damaged::read(&home.skills_lock()))?;
        let copy = LockFile::understand(damaged::read(&home.skills_lock_copy()));
        Self::settle(home, file, copy)
    }

    fn settle(home: &Home, file: LockFile, copy: io::Result<LockFile>) -> io::Result<Self> {
        let (file_path, copy_path) = (home.skills_lock(), home.skills_lock_copy());
        let lock = match (&file, &copy) {
            (LockFile::Sound(lock), Ok(LockFile::Sound(copy))) if lock == copy => return Ok(lock.clone()),
            (LockFile::Missing, Ok(LockFile::Missing)) => return Ok(Self::default()),
            (LockFile::Sound(lock), _) => {
                // A kill came between the two, or it is of an earlier version.
                let written = match &copy {
                    Ok(copy) => copy.replace(home, &copy_path, &lock.text()?),
                    Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
                };
                if let Err(error) = written {
                    tracing::warn!("the copy of skills.lock is not written: {error}");
                }
                return Ok(lock.clone());
            }
            (_, Ok(LockFile::Sound(copy))) => {
                tracing::warn!("skills.lock was missing or damaged; its copy counts");
                copy.clone()
            }
            (_, Ok(_)) => Self::of_unknown(home)?,
            (_, Err(error)) => return Err(io::Error::new(error.kind(), error.to_string())),
        };
        let (text, copy) = (lock.text()?, copy?);
        // Until both are written, one of them says that there was something.
        if matches!(file, LockFile::Missing) {
            file.replace(home, &file_path, &text)?;
            copy.replace(home, &copy_path, &text)?;
        } else {
            copy.replace(home, &copy_path, &text)?;
            file.replace(home, &file_path, &text)?;
        }
        Ok(lock)
    }

    /// What is known when nothing is recorded that can be read: each folder in the place of an installed skill may be one.
    fn of_unknown(home: &Home) -> io::Result<Self> {
        let entries = match bundle::open_place(home.root(), "skills") {
            Ok(folder) => bundle::entries(&folder, false)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let now = Clock::system().now();
        let unknown = |(name, kind): (String, FileType)| {
            let may_be = kind == FileType::Directory && is_id(&name);
            may_be.then(|| (name, InstalledSkill::unknown(now)))
        };
        Ok(Self { skills: entries.into_iter().filter_map(unknown).collect(), accepted: BTreeMap::new() })
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }

    /// Replaces the file and its copy. Blocks.
    pub fn write(&self, home: &Home) -> io::Result<()> {
        let text = self.text()?;
        if fault::at("skills::before_lock") {
            return Err(io::Error::other("a test"));
        }
        let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        write_private(&home.skills_lock(), &text)?;
        write_private(&home.skills_lock_copy(), &text)
    }

    /// Whether a person accepted these files of the skill at `path`.
    pub fn accepts(&self, path: &str, digest: &str) -> bool {
        self.accepted.get(path).is_some_and(|digests| digests.iter().any(|known| known == digest))
    }

    /// Accepts these files of the skill at `path`; `is_there` says of which paths there are skills.
    pub fn accept(&mut self, path: &str, digest: &str, is_there: impl Fn(&str) -> bool) {
        if self.accepts(path, digest) {
            return;
        }
        if self.accepted.len() >= MAX_ACCEPTED_SKILLS && !self.accepted.contains_key(path) {
            self.accepted.retain(|path, _| is_there(path));
        }
        let digests = self.accepted.entry(path.to_owned()).or_default();
        digests.push(digest.to_owned());
        let surplus = digests.len().saturating_sub(MAX_ACCEPTED_DIGESTS);
        digests.drain(..surplus);
    }

    /// Whether a person accepted these files of a skill, wherever it lies.
    pub fn accepts_somewhere(&self, digest: &str) -> bool {
        self.accepted.values().flatten().any(|known| known == digest)
    }

    /// Accepts nothing of the skill at `path` any more.
    pub fn forget_accepted(&mut self, path: &str) {
        self.accepted.remove(path);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        (folder, home)
    }

    fn read(home: &Home) -> SkillsLock {
        SkillsLock::read(home).expect("readable")
    }

    fn lock() -> SkillsLock {
        let skill = InstalledSkill {
            digest: "ab".to_owned(),
            version: Some("1.0.0".to_owned()),
            reference: None,
            source: "library".to_owned(),
            installed_at: Instant(1_700_000_000_000),
            former: Some(FormerSkill { digest: "cd".to_owned(), version: None }),
        };
        let mut lock = SkillsLock { skills: [("a".to_owned(), skill)].into(), ..SkillsLock::default() };
        lock.accept("/space/.agents/skills/x", "ef", |_| true);
        lock
    }

    #[test]
    fn it_is_read_as_it_was_written_and_private() {
        let (_folder, home) = home();
        assert_eq!(read(&home), SkillsLock::default());
        lock().write(&home).expect("written");
        assert_eq!(read(&home), lock());
        let mode = fs::metadata(home.skills_lock()).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let value: serde_json::Value =
            serde_json::from_slice(&fs::read(home.skills_lock()).expect("there")).expect("JSON");
        let expected = serde_json::json!({
            "skills": { "a": { "digest": "ab", "version": "1.0.0", "source": "library",
                "installedAt": Instant(1_700_000_000_000), "former": { "digest": "cd" } } },
            "accepted": { "/space/.agents/skills/x": ["ef"] } });
        assert_eq!(value, expected);
    }

    /// What may become of a file of which this is the whole text.
    fn damages(path: &Path, whole: &[u8]) -> Vec<Box<dyn Fn()>> {
        let (own, half) = (path.to_owned(), whole[..whole.len() / 2].to_vec());
        let texts = [half, Vec::new(), vec![0, 255, 0], b"{\"skills\":{\"a\":{}}}".to_vec()];
        let mut all: Vec<Box<dyn Fn()>> = Vec::new();
        for text in texts {
            let path = own.clone();
            all.push(Box::new(move || fs::write(&path, &text).expect("written")));
        }
        let (folder, link) = (own.clone(), own);
        all.push(Box::new(move || {
            fs::remove_file(&folder).expect("removed");
            fs::create_dir(&folder).expect("a folder");
        }));
        all.push(Box::new(move || {
            fs::remove_file(&link).expect("removed");
            symlink("/etc/hostname", &link).expect("a link");
        }));
        all
    }

    #[test]
    fn it_is_written_whole_while_a_scan_reads_it() {
        let (_folder, home) = home();
        let (one, other) = (lock(), SkillsLock::default());
        one.write(&home).expect("written");
        std::thread::scope(|scope| {
            let scans = scope.spawn(|| (0..300).for_each(|_| drop(read(&home))));
            for n in 0..150 {
                let written = if n % 2 == 0 { other.write(&home) } else { one.write(&home) };
                written.unwrap_or_else(|error| panic!("the {n}th: {error}"));
            }
            scans.join().expect("every scan reads it");
        });
        assert_eq!(fs::read(home.skills_lock()).expect("there"), fs::read(home.skills_lock_copy()).expect("there"));
    }

    #[test]
    fn a_damaged_one_is_kept_aside_and_its_copy_counts() {
        let (_folder, home) = home();
        lock().write(&home).expect("written");
        let whole = fs::read(home.skills_lock()).expect("there");
        assert_eq!(fs::read(home.skills_lock_copy()).expect("there"), whole);
        let mut kept = 0;
        for path in [home.skills_lock(), home.skills_lock_copy()] {
            for (n, damage) in damages(&path, &whole).iter().enumerate() {
                damage();
                assert_eq!(read(&home), lock(), "{n}");
                kept += 1;
                assert_eq!(damaged::list(&home).len(), kept, "{n}");
                assert_eq!(fs::read(&path).expect("there"), whole, "{n}");
            }
            fs::remove_file(&path).expect("removed");
            assert_eq!(read(&home), lock());
            assert_eq!(fs::read(&path).expect("there"), whole, "written again");
        }
    }

    #[test]
    fn when_both_are_lost_nothing_becomes_the_owners() {
        let (_folder, home) = home();
        lock().write(&home).expect("written");
        let whole = fs::read(home.skills_lock()).expect("there");
        for name in ["a", "b", ".former"] {
            fs::create_dir(home.skills().join(name)).expect("made");
        }
        fs::write(home.skills().join("c.skill.md"), "x").expect("written");
        let (file, copy) = (home.skills_lock(), home.skills_lock_copy());
        for (first, second) in [(&file, &copy), (&copy, &file)] {
            for is_missing in [false, true] {
                fs::write(first, "garbled").expect("written");
                match is_missing {
                    true => fs::remove_file(second).expect("removed"),
                    false => fs::write(second, "garbled").expect("written"),
                }
                let unknown = read(&home);
                let names: Vec<_> =
                    unknown.skills.iter().map(|(name, skill)| (name.as_str(), skill.is_known())).collect();
                assert_eq!(names, [("a", false), ("b", false)]);
                assert_eq!(read(&home), unknown, "from then on");
                fs::write(&file, &whole).expect("written");
                assert_eq!(read(&home), lock(), "what is recorded again counts");
            }
        }
    }

    #[test]
    fn one_that_cannot_be_read_for_now_is_neither_empty_nor_moved() {
        let (_folder, home) = home();
        lock().write(&home).expect("written");
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            assert_eq!(LockFile::understand(Err(kind.into())).err().expect("not known").kind(), kind);
            let of = |file| SkillsLock::settle(&home, file, Err(kind.into()));
            assert_eq!(of(LockFile::Sound(lock())).expect("the file says it"), lock());
            assert_eq!(of(LockFile::Missing).expect_err("not known").kind(), kind);
        }
        assert_eq!(read(&home), lock());
        let missing = LockFile::understand(Err(io::ErrorKind::NotFound.into())).expect("there is none");
        let none = SkillsLock::settle(&home, missing, Ok(LockFile::Missing));
        assert_eq!(none.expect("there is none"), SkillsLock::default());
    }

    #[test]
    fn what_is_accepted_is_bounded() {
        let mut lock = SkillsLock::default();
        for n in 0..20 {
            lock.accept("a", &format!("{n}"), |_| true);
            lock.accept("a", &format!("{n}"), |_| true);
        }
        assert!(lock.accepts("a", "19") && lock.accepts("a", "12") && !lock.accepts("a", "11"));
        assert!(!lock.accepts("b", "19"));
        for n in 0..2 * MAX_ACCEPTED_SKILLS {
            lock.accept(&format!("p{n}"), "x", |path| path == "a");
        }
        assert!(lock.accepted.len() <= MAX_ACCEPTED_SKILLS && lock.accepts("a", "19"), "{}", lock.accepted.len());
        lock.forget_accepted("a");
        assert!(!lock.accepts("a", "19"));
    }
}
