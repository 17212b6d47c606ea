//! Which files are remembered, and how they are read: `MEMORY.md`, the logs below `workspace/memory/`, an agent's own
//! sessions. Refuses every other path, links, and files that have another name elsewhere.

use std::{fs, io::Read, os::unix::fs::MetadataExt, path::PathBuf};

use jiff::civil::Date;
use protocol::{EntryKind, Instant, MemorySource, limits::MAX_TEXT_FILE};
use rustix::fs::OFlags;

use crate::{
    home::{Home, open_plain},
    workspace::{Workspace, hex},
};

/// The curated file, as it may be written.
pub const CURATED: [&str; 2] = ["MEMORY.md", "memory.md"];
/// Where the logs of days lie, beneath the workspace.
pub const DAILY: &str = "memory";
/// Files that are remembered. More is an archive.
const MOST: usize = 50_000;

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    Curated,
    Daily(Date),
    /// With the session's id.
    Session(String),
}

/// A file that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Beneath the home.
    pub path: String,
    pub size: u64,
    /// Milliseconds.
    pub modified: i64,
}

/// A file's text, as far as it is remembered.
#[derive(Clone, Debug)]
pub struct Text {
    pub found: Found,
    pub text: String,
    pub hash: String,
}

impl Kind {
    /// The kind of the file at `path` beneath the home, if `agent` remembers it.
    pub fn of(path: &str, agent: &str) -> Option<Self> {
        if let Some(way) = path.strip_prefix("workspace/") {
            return Self::in_workspace(way);
        }
        let name = path.strip_prefix("agents/").and_then(|way| way.strip_prefix(agent)?.strip_prefix('/'));
        let Some(name) = name else { return CURATED.contains(&path).then_some(Self::Curated) };
        if CURATED.contains(&name) {
            return Some(Self::Curated);
        }
        let session = name.strip_prefix("sessions/")?.strip_suffix(".jsonl")?;
        (!session.is_empty() && !session.starts_with('.') && !session.contains('/'))
            .then(|| Self::Session(session.to_owned()))
    }

    /// The same for a path beneath the workspace, which all agents share.
    pub fn in_workspace(way: &str) -> Option<Self> {
        if CURATED.contains(&way) {
            return Some(Self::Curated);
        }
        let name = way.strip_prefix(DAILY)?.strip_prefix('/')?.strip_suffix(".md")?;
        (!name.is_empty() && !name.starts_with('.') && !name.contains('/'))
            .then(|| date(name).map_or(Self::Curated, Self::Daily))
    }

    /// The word for it.
    pub fn source(&self) -> MemorySource {
        match self {
            Self::Curated => MemorySource::Curated,
            Self::Daily(_) => MemorySource::Daily,
            Self::Session(_) => MemorySource::Session,
        }
    }
}

/// `YYYY-MM-DD`, and nothing else.
pub fn date(name: &str) -> Option<Date> {
    let date: Date = name.parse().ok()?;
    (date.to_string() == name).then_some(date)
}

/// Where the curated file of `agent` may lie, the one that is in force first: its own, the workspace's, the root's.
pub fn curated(agent: &str) -> [String; 6] {
    let [name, lower] = CURATED;
    [
        format!("agents/{agent}/{name}"),
        format!("agents/{agent}/{lower}"),
        format!("workspace/{name}"),
        format!("workspace/{lower}"),
        name.to_owned(),
        lower.to_owned(),
    ]
}

/// The dates of the logs that are there.
pub fn days(workspace: &Workspace) -> Vec<Date> {
    let names = logs(workspace).into_iter().map(|found| found.path);
    names.filter_map(|path| date(path.rsplit_once('/')?.1.strip_suffix(".md")?)).collect()
}

/// All files that `agent` remembers.
pub fn all(home: &Home, workspace: &Workspace, agent: &str) -> Vec<Found> {
    let curated = curated(agent).into_iter().filter_map(|path| look(home, path));
    let sessions = fs::read_dir(home.agents().join(agent).join("sessions")).into_iter().flatten().flatten();
    let sessions = sessions.filter_map(|entry| {
        let path = format!("agents/{agent}/sessions/{}", entry.file_name().to_str()?);
        Kind::of(&path, agent)?;
        look(home, path)
    });
    curated.chain(logs(workspace)).chain(sessions).take(MOST).collect()
}

/// The files of the workspace's folder of memory.
fn logs(workspace: &Workspace) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    let mut from = 0;
    while let Ok(listing) = workspace.list(DAILY, from) {
        from += listing.entries.len() as u64;
        let end = listing.omitted == 0 || listing.entries.is_empty();
        let files = listing.entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
        found.extend(files.filter_map(|entry| {
            let way = format!("{DAILY}/{}", entry.name);
            Kind::in_workspace(&way)?;
            let modified = entry.mtime.map_or(0, |at| at.millis());
            Some(Found { path: format!("workspace/{way}"), size: entry.size, modified })
        }));
        if end || found.len() >= MOST {
            break;
        }
    }
    found
}

/// A plain file, or nothing.
fn look(home: &Home, path: String) -> Option<Found> {
    let meta = fs::symlink_metadata(home.root().join(&path)).ok()?;
    meta.is_file().then(|| Found { path, size: meta.len(), modified: modified(&meta) })
}

fn modified(meta: &fs::Metadata) -> i64 {
    meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000)
}

/// Reads the first MiB of a file that is remembered; `None` when there is none, or it is none that may be read.
pub fn read(home: &Home, workspace: &Workspace, path: &str) -> Option<Text> {
    let (bytes, size, modified) = match path.strip_prefix("workspace/") {
        Some(way) => {
            let head = workspace.head(way, MAX_TEXT_FILE).ok()??;
            (head.bytes, head.size, head.mtime.millis())
        }
        None => {
            let file = open_plain(&home.root().join(path), OFlags::NOFOLLOW).ok()?;
            let meta = file.metadata().ok().filter(|meta| meta.nlink() == 1)?;
            let mut bytes = Vec::new();
            file.take(MAX_TEXT_FILE).read_to_end(&mut bytes).ok()?;
            (bytes, meta.len(), self::modified(&meta))
        }
    };
    let hash = hex(&bytes);
    let text = String::from_utf8_lossy(&bytes).replace('\0', "");
    Some(Text { found: Found { path: path.to_owned(), size, modified }, text, hash })
}

impl Text {
    /// When it was written last.
    pub fn at(&self) -> Instant {
        Instant(self.found.modified)
    }
}

/// The file of an agent's index.
pub fn index(home: &Home, agent: &str) -> PathBuf {
    home.root().join("memory").join(format!("{agent}.sqlite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_memory_is_remembered() {
        let of = |path: &str| Kind::of(path, "dev");
        for path in [
            "workspace/MEMORY.md",
            "workspace/memory.md",
            "agents/dev/MEMORY.md",
            "MEMORY.md",
            "workspace/memory/notes.md",
        ] {
            assert_eq!(of(path), Some(Kind::Curated), "{path}");
        }
        assert_eq!(of("workspace/memory/2026-03-01.md"), Some(Kind::Daily(jiff::civil::date(2026, 3, 1))));
        assert_eq!(of("agents/dev/sessions/ses_1.jsonl"), Some(Kind::Session("ses_1".to_owned())));
        for path in [
            "secrets/openai",
            "state/credential",
            "config.yaml",
            "workspace/AGENTS.md",
            "workspace/memory/a/b.md",
            "workspace/memory/x.txt",
            "agents/other/MEMORY.md",
            "agents/other/sessions/ses_1.jsonl",
            "agents/dev/sessions/../../../secrets/x.jsonl",
            "agents/dev/sessions/.jsonl",
            "agents/dev.yaml",
            "workspace/memory/.viber-1.md",
            "workspace/memory/.md",
        ] {
            assert_eq!(of(path), None, "{path}");
        }
        assert_eq!(date("2026-03-01T00:00"), None);
        assert_eq!(date("2026-02-30"), None);
    }

    #[test]
    fn links_and_second_names_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        fs::create_dir(home.workspace().join("memory")).expect("a folder");
        fs::write(home.secrets().join("openai"), "sk-secret").expect("written");
        fs::write(home.workspace().join("memory/2026-03-01.md"), "mine").expect("written");
        std::os::unix::fs::symlink(home.secrets().join("openai"), home.workspace().join("MEMORY.md")).expect("a link");
        fs::hard_link(home.secrets().join("openai"), home.workspace().join("memory/2026-03-02.md")).expect("a link");
        let workspace = Workspace::open(&home);
        let read = |path: &str| read(&home, &workspace, path);
        assert!(read("workspace/MEMORY.md").is_none() && read("workspace/memory/2026-03-02.md").is_none());
        assert_eq!(read("workspace/memory/2026-03-01.md").map(|text| text.text).as_deref(), Some("mine"));
        let paths: Vec<_> = all(&home, &workspace, "dev").into_iter().map(|found| found.path).collect();
        assert!(!paths.contains(&"workspace/MEMORY.md".to_owned()), "{paths:?}");
    }
}
