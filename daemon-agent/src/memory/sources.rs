//! Which files are part of the memory, and how they are read: `MEMORY.md`, the logs below `workspace/memory/`, and an
//! agent's own sessions. Refuses every other path, links, and files with a second name elsewhere.

use std::{fs, io::Read, os::unix::fs::MetadataExt, path::PathBuf};

use jiff::civil::Date;
use protocol::{EntryKind, Instant, MemorySource, limits::MAX_TEXT_FILE_BYTES};
use rustix::fs::OFlags;

use crate::{
    home::{Home, open_plain},
    workspace::{Workspace, hex},
};

/// Possible names of the curated file.
pub const CURATED_NAMES: [&str; 2] = ["MEMORY.md", "memory.md"];
/// The folder of the daily logs, beneath the workspace.
pub const DAILY_FOLDER: &str = "memory";
/// Most files of a memory that are indexed.
const MAX_FILES: usize = 50_000;

/// The kind of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceKind {
    Curated,
    Daily(Date),
    /// A session's log, with the session's id.
    Session(String),
}

/// A source file that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Beneath the home.
    pub path: String,
    pub size: u64,
    /// Modification time, milliseconds.
    pub modified: i64,
}

/// A file's text, as far as it is used.
#[derive(Clone, Debug)]
pub struct SourceText {
    pub found: SourceFile,
    pub text: String,
    pub hash: String,
}

impl SourceKind {
    /// The kind of the file at `path` beneath the home, if it belongs to the memory of `agent`.
    pub fn of(path: &str, agent: &str) -> Option<Self> {
        if let Some(way) = path.strip_prefix("workspace/") {
            return Self::in_workspace(way);
        }
        let name = path.strip_prefix("agents/").and_then(|way| way.strip_prefix(agent)?.strip_prefix('/'));
        let Some(name) = name else { return CURATED_NAMES.contains(&path).then_some(Self::Curated) };
        if CURATED_NAMES.contains(&name) {
            return Some(Self::Curated);
        }
        let session = name.strip_prefix("sessions/")?.strip_suffix(".jsonl")?;
        (!session.is_empty() && !session.starts_with('.') && !session.contains('/'))
            .then(|| Self::Session(session.to_owned()))
    }

    /// The kind of the file at a path beneath the workspace, which all agents share.
    pub fn in_workspace(way: &str) -> Option<Self> {
        if CURATED_NAMES.contains(&way) {
            return Some(Self::Curated);
        }
        let name = way.strip_prefix(DAILY_FOLDER)?.strip_prefix('/')?.strip_suffix(".md")?;
        (!name.is_empty() && !name.starts_with('.') && !name.contains('/'))
            .then(|| date(name).map_or(Self::Curated, Self::Daily))
    }

    /// The kind in the protocol's terms.
    pub fn source(&self) -> MemorySource {
        match self {
            Self::Curated => MemorySource::Curated,
            Self::Daily(_) => MemorySource::Daily,
            Self::Session(_) => MemorySource::Session,
        }
    }
}

/// Parses `YYYY-MM-DD`, and nothing else.
pub fn date(name: &str) -> Option<Date> {
    let date: Date = name.parse().ok()?;
    (date.to_string() == name).then_some(date)
}

/// Where the curated file of `agent` may lie, in order of precedence: its own folder, the workspace, the root.
pub fn curated(agent: &str) -> [String; 6] {
    let [name, lower] = CURATED_NAMES;
    [
        format!("agents/{agent}/{name}"),
        format!("agents/{agent}/{lower}"),
        format!("workspace/{name}"),
        format!("workspace/{lower}"),
        name.to_owned(),
        lower.to_owned(),
    ]
}

/// The dates of the existing logs.
pub fn days(workspace: &Workspace) -> Vec<Date> {
    let names = logs(workspace).into_iter().map(|found| found.path);
    names.filter_map(|path| date(path.rsplit_once('/')?.1.strip_suffix(".md")?)).collect()
}

/// All files in the memory of `agent`.
pub fn all(home: &Home, workspace: &Workspace, agent: &str) -> Vec<SourceFile> {
    let curated = curated(agent).into_iter().filter_map(|path| look(home, path));
    let sessions = fs::read_dir(home.agents().join(agent).join("sessions")).into_iter().flatten().flatten();
    let sessions = sessions.filter_map(|entry| {
        let path = format!("agents/{agent}/sessions/{}", entry.file_name().to_str()?);
        SourceKind::of(&path, agent)?;
        look(home, path)
    });
    curated.chain(logs(workspace)).chain(sessions).take(MAX_FILES).collect()
}

/// The files in the workspace's memory folder.
fn logs(workspace: &Workspace) -> Vec<SourceFile> {
    let mut found: Vec<SourceFile> = Vec::new();
    let mut from = 0;
    while let Ok(listing) = workspace.list(DAILY_FOLDER, from) {
        from += listing.entries.len() as u64;
        let end = listing.omitted == 0 || listing.entries.is_empty();
        let files = listing.entries.into_iter().filter(|entry| entry.kind == EntryKind::File);
        found.extend(files.filter_map(|entry| {
            let way = format!("{DAILY_FOLDER}/{}", entry.name);
            SourceKind::in_workspace(&way)?;
            let modified = entry.mtime.map_or(0, |at| at.millis());
            Some(SourceFile { path: format!("workspace/{way}"), size: entry.size, modified })
        }));
        if end || found.len() >= MAX_FILES {
            break;
        }
    }
    found
}

/// The plain file at `path`, if there is one.
fn look(home: &Home, path: String) -> Option<SourceFile> {
    let meta = fs::symlink_metadata(home.root().join(&path)).ok()?;
    meta.is_file().then(|| SourceFile { path, size: meta.len(), modified: modified(&meta) })
}

fn modified(meta: &fs::Metadata) -> i64 {
    meta.mtime().saturating_mul(1000).saturating_add(meta.mtime_nsec() / 1_000_000)
}

/// Reads the first MiB of a source file; `None` if there is none, or it must not be read.
pub fn read(home: &Home, workspace: &Workspace, path: &str) -> Option<SourceText> {
    let (bytes, size, modified) = match path.strip_prefix("workspace/") {
        Some(way) => {
            let head = workspace.head(way, MAX_TEXT_FILE_BYTES).ok()??;
            (head.bytes, head.size, head.mtime.millis())
        }
        None => {
            let file = open_plain(&home.root().join(path), OFlags::NOFOLLOW).ok()?;
            let meta = file.metadata().ok().filter(|meta| meta.nlink() == 1)?;
            let mut bytes = Vec::new();
            file.take(MAX_TEXT_FILE_BYTES).read_to_end(&mut bytes).ok()?;
            (bytes, meta.len(), self::modified(&meta))
        }
    };
    let hash = hex(&bytes);
    let text = String::from_utf8_lossy(&bytes).replace('\0', "");
    Some(SourceText { found: SourceFile { path: path.to_owned(), size, modified }, text, hash })
}

impl SourceText {
    /// When the file was last modified.
    pub fn at(&self) -> Instant {
        Instant(self.found.modified)
    }
}

/// The path of an agent's index.
pub fn index(home: &Home, agent: &str) -> PathBuf {
    home.root().join("memory").join(format!("{agent}.sqlite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_memory_is_remembered() {
        let of = |path: &str| SourceKind::of(path, "dev");
        for path in [
            "workspace/MEMORY.md",
            "workspace/memory.md",
            "agents/dev/MEMORY.md",
            "MEMORY.md",
            "workspace/memory/notes.md",
        ] {
            assert_eq!(of(path), Some(SourceKind::Curated), "{path}");
        }
        assert_eq!(of("workspace/memory/2026-03-01.md"), Some(SourceKind::Daily(jiff::civil::date(2026, 3, 1))));
        assert_eq!(of("agents/dev/sessions/ses_1.jsonl"), Some(SourceKind::Session("ses_1".to_owned())));
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
