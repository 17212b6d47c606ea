//! `skills/skills.lock`: which skills were installed, with the digests of their files, and which digests people accepted.

use std::{collections::BTreeMap, io};

use protocol::Instant;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    damaged, fault,
    home::{Home, write_private},
};

/// Most digests that are accepted of one skill; the oldest go first.
const MAX_ACCEPTED_DIGESTS: usize = 8;
/// Most skills of which digests are accepted.
const MAX_ACCEPTED_SKILLS: usize = 1_000;
/// What a damaged one is called among the damaged files.
const DAMAGED_LABEL: &str = "skills.lock";

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

/// The files that a skill had before it was installed as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FormerSkill {
    pub digest: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
}

impl SkillsLock {
    /// What the file of this home says. A damaged one is moved aside: then nothing counts as installed or accepted. `Err`: what
    /// it says is not known, so nothing may be written in its place, and nobody may be offered what it could forbid. Blocks.
    pub fn read(home: &Home) -> io::Result<Self> {
        Self::understand(home, damaged::read(&home.skills_lock()))
    }

    fn understand(home: &Home, read: io::Result<Option<Vec<u8>>>) -> io::Result<Self> {
        let understood = match read {
            Ok(Some(bytes)) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Ok(None) => Err("it is not a file".to_owned()),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(error),
        };
        understood.or_else(|why| {
            let path = home.skills_lock();
            let kept = damaged::move_aside(&home.damaged(), &path, DAMAGED_LABEL, Clock::system().now())?;
            let kept = kept.display();
            tracing::warn!(%kept, "skills.lock was damaged, so no skill counts as installed: {why}");
            Ok(Self::default())
        })
    }

    /// Replaces the file. Blocks.
    pub fn write(&self, home: &Home) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        if fault::at("skills::before_lock") {
            return Err(io::Error::other("a test"));
        }
        write_private(&home.skills_lock(), &text)
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

    #[test]
    fn a_damaged_one_is_kept_aside_and_counts_as_nothing() {
        let (_folder, home) = home();
        let path = home.skills_lock();
        let whole = {
            lock().write(&home).expect("written");
            fs::read(&path).expect("there")
        };
        let damages: [&dyn Fn(); 5] = [
            &|| fs::write(&path, &whole[..whole.len() / 2]).expect("cut"),
            &|| fs::write(&path, "").expect("emptied"),
            &|| fs::write(&path, [0, 255, 0]).expect("garbled"),
            &|| fs::write(&path, "{\"skills\":{\"a\":{}}}").expect("incomplete"),
            &|| fs::create_dir(&path).expect("a folder"),
        ];
        for (n, damage) in damages.iter().enumerate() {
            damage();
            assert_eq!(read(&home), SkillsLock::default(), "{n}");
            assert!(path.symlink_metadata().is_err(), "{n}");
            assert_eq!(damaged::list(&home).len(), n + 1);
        }
        symlink("/etc/hostname", &path).expect("a link");
        assert_eq!(read(&home), SkillsLock::default());
        assert!(path.symlink_metadata().is_err(), "a link is no lock");
        lock().write(&home).expect("written");
        assert_eq!(read(&home), lock());
    }

    #[test]
    fn one_that_cannot_be_read_for_now_is_neither_empty_nor_moved() {
        let (_folder, home) = home();
        lock().write(&home).expect("written");
        for kind in [io::ErrorKind::PermissionDenied, io::ErrorKind::Other] {
            assert_eq!(SkillsLock::understand(&home, Err(kind.into())).expect_err("not known").kind(), kind);
        }
        assert_eq!(read(&home), lock());
        let none = SkillsLock::understand(&home, Err(io::ErrorKind::NotFound.into()));
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
