//! How often skills were used, and which of them a session has loaded: small files that outlive the process.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Mutex, PoisonError},
};

use protocol::{Instant, SessionId};
use serde::{Deserialize, Serialize};

use crate::home::{Home, read_plain, write_private};

/// Most skills that a session keeps loaded.
const MAX_LOADED_SKILLS: usize = 32;
/// Most skills whose uses are counted.
const MAX_COUNTED_SKILLS: usize = 2_000;

/// How a skill was used on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SkillUses {
    pub calls: u64,
    pub failures: u64,
    pub last_used_at: Option<Instant>,
}

/// The counts of all skills, by their paths: several may have one name.
#[derive(Debug, Default)]
pub struct UseCounts(Mutex<BTreeMap<String, SkillUses>>);

impl UseCounts {
    /// As they were written last; a file that cannot be read counts from nothing.
    pub fn open(home: &Home) -> Self {
        let text = read_plain(&home.skill_uses()).unwrap_or_default();
        Self(Mutex::new(serde_json::from_str(&text).unwrap_or_default()))
    }

    /// The uses of one skill.
    pub fn of(&self, path: &str) -> SkillUses {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied().unwrap_or_default()
    }

    /// Counts a use, and writes the counts.
    pub fn count(&self, home: &Home, path: &str, ok: bool, at: Instant) {
        // Until it is written: an older text must not win.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_COUNTED_SKILLS && !all.contains_key(path) {
            return;
        }
        let uses = all.entry(path.to_owned()).or_default();
        uses.calls += 1;
        uses.failures += u64::from(!ok);
        uses.last_used_at = Some(at);
        keep(&home.skill_uses(), &serde_json::to_vec(&*all).unwrap_or_default());
    }
}

/// The names of the skills that a session has loaded.
pub fn loaded(home: &Home, session: &SessionId) -> Vec<String> {
    let text = read_plain(&home.loaded_skills(session.as_str())).unwrap_or_default();
    let mut names: Vec<String> = serde_json::from_str(&text).unwrap_or_default();
    names.truncate(MAX_LOADED_SKILLS);
    names
}

/// Remembers that a session has loaded a skill. Of too many, the one that was loaded first is forgotten.
pub fn remember(home: &Home, session: &SessionId, name: &str) {
    // A model may load several at once.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut names = loaded(home, session);
    if names.iter().any(|known| known == name) {
        return;
    }
    names.push(name.to_owned());
    let surplus = names.len().saturating_sub(MAX_LOADED_SKILLS);
    names.drain(..surplus);
    keep(&home.loaded_skills(session.as_str()), &serde_json::to_vec(&names).unwrap_or_default());
}

fn keep(path: &Path, text: &[u8]) {
    if let Err(error) = write_private(path, text) {
        tracing::warn!(file = %path.display(), "not written: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uses_and_loaded_skills_outlive_the_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        let counts = UseCounts::open(&home);
        counts.count(&home, "a", true, Instant(5));
        counts.count(&home, "a", false, Instant(7));
        let expected = SkillUses { calls: 2, failures: 1, last_used_at: Some(Instant(7)) };
        assert_eq!(UseCounts::open(&home).of("a"), expected);
        assert_eq!(counts.of("b"), SkillUses::default());
        let session = SessionId::new(1);
        for n in 0..40 {
            remember(&home, &session, &format!("s{n}"));
            remember(&home, &session, &format!("s{n}"));
        }
        let names = loaded(&home, &session);
        assert_eq!((names.len(), names[0].as_str(), names[31].as_str()), (32, "s8", "s39"));
        let other = SessionId::new(2);
        assert!(loaded(&home, &other).is_empty());
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (home, other) = (&home, &other);
                scope.spawn(move || remember(home, other, &format!("s{n}")));
            }
        });
        assert_eq!(loaded(&home, &other).len(), 8, "several at once");
    }
}
