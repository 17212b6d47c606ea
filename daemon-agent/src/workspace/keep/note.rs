//! A note in `state/` of what a running command must not change: a daemon that is killed meanwhile puts it back at its next
//! start.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::Running;
use rustix::fs::Mode;
use serde::{Deserialize, Serialize};

use super::{
    super::{Workspace, versions::Stamp},
    Closed, Keeper, Known, Overstep, Version, Watched,
    watched::Memory,
};
use crate::home::{Home, write_private};

/// Where notes lie, below `state/`.
const FOLDER: &str = "closed";
/// What a note holds of files' contents, bytes: it is written before every command. Of others it holds when they changed.
const MAX_CONTENT: usize = 256 * 1024;
/// A supervisor ends its command within 12 s when its daemon is gone; looked for this often, this far apart.
const LOOKS: u32 = 650;
const LOOK: Duration = Duration::from_millis(20);

/// What commands of an attempt did that the daemon could not undo while it lived.
#[derive(Clone, Debug)]
pub struct Undone {
    /// Whose command it was, if that is known.
    pub attempt: Option<Running>,
    pub over: Vec<Overstep>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    attempt: Option<Running>,
    closed: Closed,
    walled: bool,
    whole: bool,
    beside: Vec<Closed>,
    known: BTreeMap<String, Option<Noted>>,
}

/// A version of a file.
#[derive(Serialize, Deserialize)]
struct Noted {
    stamp: Option<Stamp>,
    mode: Option<u32>,
    content: Option<String>,
}

/// Where the note of a command is to lie.
pub fn place(state: &Path) -> PathBuf {
    state.join(FOLDER).join(uuid::Uuid::now_v7().simple().to_string())
}

/// Writes it anew.
pub fn write(path: &Path, watched: &Watched, memory: &Memory) {
    let Watched { closed, walled, attempt, .. } = watched;
    let (mut room, mut whole, mut known) = (MAX_CONTENT, memory.whole, BTreeMap::new());
    let by_name = |path: &&String| closed.files.contains(path);
    // Those that are closed by name first: they matter most.
    let paths = memory.known.keys().filter(by_name).chain(memory.known.keys().filter(|path| !by_name(path)));
    for path in paths {
        let Some(version) = &memory.known[path] else {
            known.insert(path.clone(), None);
            continue;
        };
        let content = version.content.as_deref().filter(|content| content.len() <= room);
        room -= content.map_or(0, <[u8]>::len);
        if content.is_none() && version.stamp.is_none() {
            // Nothing would tell this version from another one: it must not be taken for a file that was not there.
            whole = false;
            continue;
        }
        let content = content.map(|content| BASE64_STANDARD.encode(content));
        let mode = version.mode.map(|mode| mode.bits());
        known.insert(path.clone(), Some(Noted { stamp: version.stamp, mode, content }));
    }
    let note = Note {
        attempt: attempt.clone(),
        closed: closed.clone(),
        walled: *walled,
        whole,
        beside: memory.beside.clone(),
        known,
    };
    let written = serde_json::to_vec(&note).map_err(io::Error::other).and_then(|note| write_private(path, &note));
    if let Err(error) = written {
        tracing::warn!(note = %path.display(), "after a kill nothing is put back that a command changes now: {error}");
    }
}

/// Removes it.
pub fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(note = %path.display(), "a note on what was closed to a command cannot be removed: {error}");
    }
}

/// Puts back what commands of a former process of this home changed although it was closed to them. Called once the home's
/// lock is held, before any task runs.
pub async fn recover(home: &Home, workspace: &Workspace) -> Vec<Undone> {
    let found: Vec<PathBuf> =
        fs::read_dir(home.state().join(FOLDER)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    if found.is_empty() {
        return Vec::new();
    }
    for _ in 0..LOOKS {
        if !is_running(home) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let workspace = workspace.clone();
    let done = tokio::task::spawn_blocking(move || put_back(&workspace, &found)).await;
    done.unwrap_or_else(|error| {
        tracing::error!(%error, "what commands may have changed before a kill could not be compared");
        Vec::new()
    })
}

/// Whether a supervisor of this home still ends its command.
fn is_running(home: &Home) -> bool {
    let is_ours = |line: &[u8]| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let named = |pair: &[&[u8]]| pair[0] == b"--home" && pair[1] == home.root().as_os_str().as_encoded_bytes();
        words.get(1) == Some(&&b"hold"[..]) && words.windows(2).any(named)
    };
    let lines = fs::read_dir("/proc").into_iter().flatten().flatten();
    lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok()).any(|line| is_ours(&line))
}

pub(super) fn put_back(workspace: &Workspace, notes: &[PathBuf]) -> Vec<Undone> {
    let mut all = Vec::new();
    for path in notes {
        match read(path) {
            Ok(watched) => {
                let watched = Arc::new(watched);
                workspace.shared.attribution.tell(&watched);
                let (walls, cleared) = Default::default();
                all.push(Keeper { workspace: workspace.clone(), watched, walls, cleared });
            }
            Err(error) => {
                tracing::warn!(note = %path.display(), "what was closed to a command before a kill is not known: {error}");
                if let Err(error) = crate::removal::remove(path) {
                    tracing::warn!(note = %path.display(), "it stays there: {error}");
                }
            }
        }
    }
    let put_back = |keeper: Keeper| Undone { attempt: keeper.watched.attempt.clone(), over: keeper.put_back() };
    all.into_iter().map(put_back).filter(|undone| !undone.over.is_empty()).collect()
}

fn read(path: &Path) -> io::Result<Watched> {
    let bytes = crate::damaged::read(path)?.ok_or_else(|| io::Error::other("it is no file"))?;
    let Note { attempt, closed, walled, whole, beside, known } = serde_json::from_slice(&bytes)?;
    let version = |noted: Noted| -> io::Result<Version> {
        let content = noted.content.map(|content| BASE64_STANDARD.decode(content)).transpose();
        let content = content.map_err(io::Error::other)?.map(Arc::from);
        Ok(Version { stamp: noted.stamp, mode: noted.mode.map(Mode::from_raw_mode), content })
    };
    let known: io::Result<Known> =
        known.into_iter().map(|(path, noted)| Ok((path, noted.map(version).transpose()?))).collect();
    Ok(Watched::of_note(closed, walled, attempt, Memory { known: known?, beside, whole, over: false }, path))
}
