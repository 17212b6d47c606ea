//! A note in `state/` of what a running command must not change: if the daemon is killed in the meantime, its next
//! start restores the files.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::{
    super::{Workspace, version_cache::FileStamp},
    CommandOwner, FileVersion, KnownVersions, ProtectedFiles, ProtectedPaths, Protection, Violation,
    protection::ProtectionState,
};
use crate::home::{Home, write_private};

/// The folder for notes, below `state/`.
const NOTES_FOLDER: &str = "closed";
/// Most bytes of file contents in a note, which is written before every command. Other files are noted with the time at
/// which they changed.
const MAX_CONTENT_BYTES: usize = 256 * 1024;
/// How often to check for a supervisor: it ends its command within 12 s when its daemon is gone.
const MAX_SUPERVISOR_CHECKS: u32 = 650;
const SUPERVISOR_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// What an attempt's commands did that the daemon could not undo while it lived.
#[derive(Clone, Debug)]
pub struct LateRepair {
    /// Whose command it was, if that is known.
    pub owner: Option<CommandOwner>,
    pub over: Vec<Violation>,
}

#[derive(Serialize, Deserialize)]
struct ProtectionNote {
    // Some notes name the attempt alone.
    #[serde(alias = "attempt")]
    owner: Option<CommandOwner>,
    closed: ProtectedPaths,
    walled: bool,
    whole: bool,
    beside: Vec<ProtectedPaths>,
    known: BTreeMap<String, Option<NotedVersion>>,
}

/// A version of a file.
#[derive(Serialize, Deserialize)]
struct NotedVersion {
    stamp: Option<FileStamp>,
    mode: Option<u32>,
    content: Option<String>,
}

/// The path for a new note.
pub fn place(state: &Path) -> PathBuf {
    state.join(NOTES_FOLDER).join(uuid::Uuid::now_v7().simple().to_string())
}

/// Replaces the note.
pub fn write(path: &Path, watched: &Protection, memory: &ProtectionState) {
    let Protection { closed, walled, owner, .. } = watched;
    let (mut room, mut whole, mut known) = (MAX_CONTENT_BYTES, memory.whole, BTreeMap::new());
    let by_name = |path: &&String| closed.files.contains(path);
    // Individually protected files first: they matter most.
    let paths = memory.known.keys().filter(by_name).chain(memory.known.keys().filter(|path| !by_name(path)));
    for path in paths {
        let Some(version) = &memory.known[path] else {
            known.insert(path.clone(), None);
            continue;
        };
        let content = version.content.as_deref().filter(|content| content.len() <= room);
        room -= content.map_or(0, <[u8]>::len);
        if content.is_none() && version.stamp.is_none() {
            // The version could not be recognized: it must not be taken for a missing file.
            whole = false;
            continue;
        }
        let content = content.map(|content| BASE64_STANDARD.encode(content));
        let mode = version.mode.map(|mode| mode.bits());
        known.insert(path.clone(), Some(NotedVersion { stamp: version.stamp, mode, content }));
    }
    let note = ProtectionNote {
        owner: owner.clone(),
        closed: closed.clone(),
        walled: *walled,
        whole,
        beside: memory.beside.clone(),
        known,
    };
    let written = serde_json::to_vec(&note).map_err(io::Error::other).and_then(|note| write_private(path, &note));
    if let Err(error) = written {
        tracing::warn!(note = %path.display(), "after a kill, changes that a command makes now cannot be undone: {error}");
    }
}

/// Removes the note.
pub fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(note = %path.display(), "the note on files that were protected from a command cannot be removed: {error}");
    }
}

/// Restores what commands of a former process of this home changed although it was protected. To be called once the
/// home's lock is held, before any task runs.
pub async fn recover(home: &Home, workspace: &Workspace) -> Vec<LateRepair> {
    let found: Vec<PathBuf> = fs::read_dir(home.state().join(NOTES_FOLDER))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    if found.is_empty() {
        return Vec::new();
    }
    for _ in 0..MAX_SUPERVISOR_CHECKS {
        if !is_running(home) {
            break;
        }
        tokio::time::sleep(SUPERVISOR_CHECK_INTERVAL).await;
    }
    let workspace = workspace.clone();
    let done = tokio::task::spawn_blocking(move || put_back(&workspace, &found)).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "what commands may have changed before a kill could not be compared");
        Vec::new()
    })
}

/// Whether a supervisor of this home is still ending its command.
fn is_running(home: &Home) -> bool {
    let is_ours = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let named = |pair: &[&[u8]]| pair[0] == b"--home" && pair[1] == home.root().as_os_str().as_encoded_bytes();
        words.get(1) == Some(&&b"hold"[..]) && words.windows(2).any(named)
    };
    let lines = fs::read_dir("/proc").into_iter().flatten().flatten();
    lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| is_ours(&line))
}

pub(super) fn put_back(workspace: &Workspace, notes: &[PathBuf]) -> Vec<LateRepair> {
    let mut all = Vec::new();
    for path in notes {
        match read(path) {
            Ok(watched) => {
                let watched = Arc::new(watched);
                workspace.shared.attribution.tell(&watched);
                let (walls, cleared) = Default::default();
                all.push(ProtectedFiles { workspace: workspace.clone(), watched, walls, cleared });
            }
            Err(error) => {
                tracing::warn!(note = %path.display(), "which files were protected from a command before a kill is unknown: {error}");
                if let Err(error) = crate::removal::remove(path) {
                    tracing::warn!(note = %path.display(), "the note cannot be removed: {error}");
                }
            }
        }
    }
    let put_back = |keeper: ProtectedFiles| LateRepair { owner: keeper.watched.owner.clone(), over: keeper.put_back() };
    all.into_iter().map(put_back).filter(|undone| !undone.over.is_empty()).collect()
}

fn read(path: &Path) -> io::Result<Protection> {
    let bytes = crate::damaged::read(path)?.ok_or_else(|| io::Error::other("it is not a file"))?;
    let ProtectionNote { owner, closed, walled, whole, beside, known } = serde_json::from_slice(&bytes)?;
    let version = |noted: NotedVersion| -> io::Result<FileVersion> {
        let content = noted.content.map(|content| BASE64_STANDARD.decode(content)).transpose();
        let content = content.map_err(io::Error::other)?.map(Arc::from);
        Ok(FileVersion { stamp: noted.stamp, mode: noted.mode.map(Mode::from_raw_mode), content })
    };
    let known: io::Result<KnownVersions> =
        known.into_iter().map(|(path, noted)| Ok((path, noted.map(version).transpose()?))).collect();
    Ok(Protection::of_note(closed, walled, owner, ProtectionState { known: known?, beside, whole, over: false }, path))
}
