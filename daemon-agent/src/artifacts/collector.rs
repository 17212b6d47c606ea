//! Collects the artifacts of one attempt: writes them into its folder, measures them, and reports each version once.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{
    AgentStreamEvent, ArtifactId, ArtifactRef, COMMAND_OUTPUT_TYPE, NoticeLevel, TaskId, TaskResult, text::head,
};
use rustix::fs::{AtFlags, Dir, OFlags};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    FencedSource, FileDigest, deltas,
    read_limits::{READ_TIME_AFTER_STOP, ReadWindow, checked as bytes_of},
    reference::{SMALL_FILE_BYTES, beneath, copy, open_plain, open_root},
    versions,
};
use crate::{
    clock::Clock,
    home::{Home, private_folder},
    report::Sink,
};

/// Most artifacts of one task; files beyond that stay on the machine.
const MAX_ARTIFACTS: usize = 1_000;
/// Longest id, bytes.
const MAX_ID_BYTES: usize = 80;
/// Largest content that may be given as text, bytes.
const MAX_CONTENT_BYTES: usize = 16 * 1024 * 1024;
/// Longest title or type, bytes.
const MAX_LABEL_BYTES: usize = 300;
/// Most artifacts listed in `result.artifactRefs`.
const MAX_RESULT_REFS: usize = 64;
/// Most names in the folder that are looked at.
const MAX_NAMES: usize = 100_000;
/// Most notices per scan, and per answer.
const MAX_NOTICES: usize = 8;
/// Whole outputs of commands that one attempt keeps: how many, and their bytes together.
const MAX_OUTPUTS: usize = 500;
const MAX_OUTPUT_BYTES: u64 = 4 * 1024 * 1024 * 1024;
/// How long after a stop a read may hang before it is abandoned: the file system does not respond.
const STUCK_READ_TIMEOUT: Duration = READ_TIME_AFTER_STOP.saturating_add(Duration::from_secs(1));

/// An artifact to be added.
#[derive(Debug)]
pub struct NewArtifact {
    pub id: String,
    pub title: Option<String>,
    pub kind: Option<String>,
    pub from: ArtifactSource,
}

/// Where an artifact's bytes come from.
#[derive(Debug)]
pub enum ArtifactSource {
    Content(String),
    /// An open file and its name.
    File(File, String),
    /// An address or a name that is only shown.
    Reference(String),
}

/// Collects the artifacts of one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Collector(Arc<Inner>);

struct Inner {
    home: Home,
    task: TaskId,
    clock: Clock,
    sink: Sink,
    /// Cancelled when nothing more is to be read.
    stop: CancellationToken,
    reported: Mutex<ReportedArtifacts>,
}

/// What an attempt reported until now.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReportedArtifacts {
    /// The newest version of each artifact, by the agent's id, in order.
    refs: Vec<ArtifactRef>,
    /// How many versions were reported.
    count: usize,
    /// The timestamp in the newest artifact id, milliseconds.
    last: i64,
    /// How many outputs of commands were reported, and their bytes.
    outputs: (usize, u64),
    /// By file name: size, modification time and inode of files that were reported or are too large.
    files: BTreeMap<String, (u64, i64, i64, u64)>,
}

/// What a scan of the folder found.
#[derive(Default)]
struct FolderScan {
    artifacts: Vec<ArtifactRef>,
    /// Why some files are not among them.
    wrong: Vec<String>,
}

impl Collector {
    /// A collector for `task` that reports through `sink`. Soon after `stop` no file is read any more.
    pub fn new(home: Home, task: TaskId, clock: Clock, sink: Sink, stop: &CancellationToken) -> Self {
        Self(Arc::new(Inner { home, task, clock, sink, stop: stop.child_token(), reported: Mutex::default() }))
    }

    /// What the attempt reported until now.
    pub fn progress(&self) -> ReportedArtifacts {
        self.0.reported().clone()
    }

    /// Goes on from what the attempt reported before a restart.
    pub fn go_on_from(&self, reported: ReportedArtifacts) {
        *self.0.reported() = reported;
    }

    /// The attempt's time is over: files that cannot be read within a short time are no longer reported.
    pub fn hurry(&self) {
        self.0.stop.cancel();
    }

    /// Adds an artifact. The id becomes the file's name: using it again makes a new version.
    pub async fn add(&self, new: NewArtifact) -> Result<ArtifactRef, String> {
        let (inner, reading) = (self.0.clone(), ReadWindow::until(self.0.stop.clone()));
        let reported = self.settled(tokio::task::spawn_blocking(move || inner.add(new, &reading))).await;
        let reported = reported.ok_or("its file could not be read to the end")??;
        self.0.sink.emit(AgentStreamEvent::Artifact { artifact: reported.clone() }).await;
        Ok(reported)
    }

    /// Bytes that the whole output of a further command may have.
    pub fn output_room(&self) -> u64 {
        let (count, bytes) = self.0.reported().outputs;
        if count < MAX_OUTPUTS { MAX_OUTPUT_BYTES.saturating_sub(bytes) } else { 0 }
    }

    /// Reports a file of the task's folder as the whole output of a call. It belongs to the call: it is no artifact of the
    /// answer, and does not count as one.
    pub async fn keep_output(&self, call_id: &str, name: &str, digest: FileDigest) {
        let artifact = {
            let mut reported = self.0.reported();
            reported.outputs = (reported.outputs.0 + 1, reported.outputs.1.saturating_add(digest.size));
            let artifact_id = self.0.next_id(&mut reported);
            ArtifactRef {
                // Of its own, so that the outputs of two tasks are not two versions of one.
                id: format!("output-{artifact_id}"),
                title: Some(format!("Output of {}", head(call_id, MAX_ID_BYTES))),
                kind: Some(COMMAND_OUTPUT_TYPE.to_owned()),
                reference: Some(format!("artifacts/{}/{name}", self.0.task)),
                artifact_id: Some(artifact_id),
                size: Some(digest.size),
                sha256: Some(digest.sha256),
                sniffed: Some(digest.sniffed.to_owned()),
                call_id: Some(call_id.to_owned()),
            }
        };
        self.0.sink.emit(AgentStreamEvent::Artifact { artifact }).await;
    }

    /// Reports files that appeared in the folder, or changed.
    pub async fn look(&self) {
        let (inner, reading) = (self.0.clone(), ReadWindow::until(self.0.stop.clone()));
        let looked = self.settled(tokio::task::spawn_blocking(move || inner.look(&reading))).await;
        let found = looked.unwrap_or_else(|| FolderScan {
            wrong: vec!["the folder of artifacts could not be scanned".to_owned()],
            ..FolderScan::default()
        });
        for artifact in found.artifacts {
            self.0.sink.emit(AgentStreamEvent::Artifact { artifact }).await;
        }
        self.warn(found.wrong).await;
    }

    /// The result of `work`; `None` if it panicked, or hangs although it was asked to end.
    async fn settled<T>(&self, work: JoinHandle<T>) -> Option<T> {
        let stuck = async {
            self.0.stop.cancelled().await;
            sleep(STUCK_READ_TIMEOUT).await;
        };
        tokio::select! {
            done = work => done.ok(),
            () = stuck => None,
        }
    }

    async fn warn(&self, wrong: Vec<String>) {
        for text in wrong.into_iter().take(MAX_NOTICES) {
            self.0.sink.emit(AgentStreamEvent::Notice { level: NoticeLevel::Warning, text }).await;
        }
    }

    /// At the end of the attempt: adds what the answer names, and lists all artifacts in the result. `open` opens files
    /// that the agent may read.
    pub async fn finish(&self, result: &mut TaskResult, open: impl Fn(&str) -> Result<(File, String), String>) {
        let (named, mut wrong) = deltas(&result.text);
        for delta in named {
            let from = match delta.source {
                FencedSource::Content(text) => Ok(ArtifactSource::Content(text)),
                FencedSource::Reference(reference) => Ok(ArtifactSource::Reference(reference)),
                FencedSource::Path(path) => {
                    self.open(&path).unwrap_or_else(|| open(&path)).map(|(file, name)| ArtifactSource::File(file, name))
                }
            };
            let id = delta.id.clone();
            let added = match from {
                Ok(from) => self.add(NewArtifact { id: delta.id, title: delta.title, kind: delta.kind, from }).await,
                Err(why) => Err(why),
            };
            if let Err(why) = added {
                wrong.push(format!("the artifact {:?} was not kept: {why}", head(&id, 100)));
            }
        }
        self.look().await;
        self.warn(wrong).await;
        let known = self.0.reported().refs.clone();
        result.artifact_refs.extend(known.into_iter().rev().take(MAX_RESULT_REFS).rev());
    }

    /// Opens a file of this task's own folder by the name that commands use for it, such as the output of one. `None`:
    /// the path lies elsewhere.
    pub fn open(&self, path: &str) -> Option<Result<(File, String), String>> {
        let folder = self.0.home.artifacts(self.0.task.as_str());
        let own = Path::new("artifacts").join(self.0.task.as_str());
        let name = Path::new(path).strip_prefix(&folder).or_else(|_| Path::new(path).strip_prefix(&own)).ok()?;
        let opened = open_root(&self.0.home).map_err(|error| error.to_string());
        let opened = opened.and_then(|root| open_plain(root, &own.join(name)));
        Some(opened.map(|file| (file, name.to_string_lossy().into_owned())))
    }
}

impl Inner {
    fn add(&self, new: NewArtifact, reading: &ReadWindow) -> Result<ArtifactRef, String> {
        let id = checked(&new.id)?;
        if self.reported().count >= MAX_ARTIFACTS {
            return Err(format!("a task has at most {MAX_ARTIFACTS} artifacts"));
        }
        let words = |text: Option<String>| {
            text.map(|text| head(text.trim(), MAX_LABEL_BYTES).to_owned()).filter(|text| !text.is_empty())
        };
        // That type says something about a call, which a model cannot.
        let (title, kind) = (words(new.title), words(new.kind).filter(|kind| kind != COMMAND_OUTPUT_TYPE));
        let reported = ArtifactRef { id: id.clone(), title, kind: kind.clone(), ..ArtifactRef::default() };
        let (file, measure) = match new.from {
            ArtifactSource::Reference(reference) => {
                let reference = Some(head(&reference, 1000).to_owned());
                return Ok(self.note(ArtifactRef { reference, ..reported }, None));
            }
            ArtifactSource::Content(text) if text.len() > MAX_CONTENT_BYTES => {
                return Err("the content is larger than 16 MiB".into());
            }
            ArtifactSource::Content(text) => {
                let file = file_name(&id, ending_of(kind.as_deref()).unwrap_or("txt"));
                let measure = self.write(&file, text.as_bytes());
                (file, measure)
            }
            ArtifactSource::File(source, name) => {
                let ending = Path::new(&name).extension().and_then(|ending| ending.to_str());
                let ending = ending.filter(|ending| is_plain(ending) && ending.len() <= 12);
                let file = file_name(&id, ending.or(ending_of(kind.as_deref())).unwrap_or("bin"));
                let measure = bytes_of(&source).and_then(|bytes| self.write(&file, reading.of(bytes)));
                (file, measure)
            }
        };
        let measure = measure.map_err(|error| format!("it could not be written: {error}"))?;
        Ok(self.note(reported, Some((file, measure))))
    }

    /// Replaces a file of the folder; the earlier version is kept under its hash.
    fn write(&self, name: &str, from: impl io::Read) -> io::Result<FileDigest> {
        let folder = self.home.artifacts(self.task.as_str());
        private_folder(&folder)?;
        let new = folder.join(format!(".{name}.new"));
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        let done = copy(from, &mut file).and_then(|measure| {
            file.sync_all()?;
            fs::rename(&new, folder.join(name))?;
            Ok(measure)
        });
        if done.is_err() {
            let _ = fs::remove_file(&new);
        }
        done
    }

    /// Records the artifact and returns it with a fresh id.
    fn note(&self, reported: ArtifactRef, file: Option<(String, FileDigest)>) -> ArtifactRef {
        let mut known = self.reported();
        let mut reported = ArtifactRef { artifact_id: Some(self.next_id(&mut known)), ..reported };
        if let Some((name, measure)) = file {
            if let Err(error) = versions::keep(&self.home, &self.task, &name, &measure) {
                tracing::warn!(task.id = %self.task, "a version of an artifact is not kept: {error}");
            }
            if let Ok(meta) = fs::symlink_metadata(self.home.artifacts(self.task.as_str()).join(&name)) {
                known.files.insert(name.clone(), stamp(&meta));
            }
            reported.reference = Some(format!("artifacts/{}/{name}", self.task));
            reported.size = Some(measure.size);
            reported.sha256 = Some(measure.sha256);
            reported.sniffed = Some(measure.sniffed.to_owned());
        }
        known.refs.retain(|other| other.id != reported.id);
        known.refs.push(reported.clone());
        known.count += 1;
        reported
    }

    /// Ids are ordered by time, so no two of one task share a millisecond.
    fn next_id(&self, known: &mut ReportedArtifacts) -> ArtifactId {
        known.last = self.clock.now().millis().max(known.last + 1);
        ArtifactId::new(known.last)
    }

    /// Finds files that appeared in the folder, or changed since they were reported.
    fn look(&self, reading: &ReadWindow) -> FolderScan {
        let way = PathBuf::from("artifacts").join(self.task.as_str());
        let Ok(root) = open_root(&self.home) else { return FolderScan::default() };
        let Ok(folder) = beneath(&root, &way, OFlags::RDONLY | OFlags::DIRECTORY) else { return FolderScan::default() };
        let Ok(entries) = Dir::read_from(&folder) else { return FolderScan::default() };
        let names = entries.flatten().filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
        let mut names: Vec<String> = names.take(MAX_NAMES).collect();
        names.retain(|name| !name.starts_with('.') && !name.chars().any(char::is_control));
        // Small files first, so that a large one does not keep them from being reported.
        let is_large = |name: &str| {
            rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)
                .is_ok_and(|stat| stat.st_size as u64 > SMALL_FILE_BYTES)
        };
        names.sort_by_cached_key(|name| (is_large(name), name.clone()));
        let mut found = FolderScan::default();
        for name in names {
            if self.is_full() {
                break;
            }
            match self.appeared(&root, &way, &name, reading) {
                Ok(artifact) => found.artifacts.extend(artifact),
                Err(why) => found.wrong.push(format!("{:?} is not an artifact: {why}", head(&name, 100))),
            }
            if reading.is_over() {
                break;
            }
        }
        found
    }

    /// The artifact for the file `name` if it is new or changed; `Err` tells people why it is not one.
    fn appeared(
        &self,
        root: &OwnedFd,
        way: &Path,
        name: &str,
        reading: &ReadWindow,
    ) -> Result<Option<ArtifactRef>, String> {
        let Ok(file) = open_plain(root, &way.join(name)) else { return Ok(None) };
        let Ok(meta) = file.metadata() else { return Ok(None) };
        if self.reported().files.get(name) == Some(&stamp(&meta)) {
            return Ok(None);
        }
        let bytes = bytes_of(&file).map_err(|error| {
            // Reported once, not after every command.
            self.reported().files.insert(name.to_owned(), stamp(&meta));
            error.to_string()
        })?;
        let measure = copy(reading.of(bytes), &mut io::sink()).map_err(|error| error.to_string())?;
        let known = self.reported().refs.iter().find(|reported| ends_with(reported, name)).cloned();
        if known.as_ref().is_some_and(|known| known.sha256.as_deref() == Some(&measure.sha256)) {
            self.reported().files.insert(name.to_owned(), stamp(&meta));
            return Ok(None);
        }
        let reported = known.map_or_else(
            || ArtifactRef { id: head(name, MAX_ID_BYTES).to_owned(), ..ArtifactRef::default() },
            |known| ArtifactRef { id: known.id, title: known.title, kind: known.kind, ..ArtifactRef::default() },
        );
        Ok(Some(self.note(reported, Some((name.to_owned(), measure)))))
    }

    fn is_full(&self) -> bool {
        let reported = self.reported();
        reported.count >= MAX_ARTIFACTS || reported.files.len() >= 2 * MAX_ARTIFACTS
    }

    fn reported(&self) -> MutexGuard<'_, ReportedArtifacts> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ends_with(reported: &ArtifactRef, name: &str) -> bool {
    reported.reference.as_deref().and_then(|path| path.rsplit('/').next()) == Some(name)
}

fn stamp(meta: &fs::Metadata) -> (u64, i64, i64, u64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ino())
}

/// Checks an id, which becomes a file name: letters, digits and `.-_`, not starting with a dot. Names that do are the
/// daemon's own, full outputs and answers that had to be shortened, or hidden by whoever made them.
fn checked(id: &str) -> Result<String, String> {
    let id = id.trim();
    if !is_plain(id) || id.len() > MAX_ID_BYTES || id.starts_with('.') {
        return Err(format!("an id has 1 to {MAX_ID_BYTES} letters, digits or .-_ and does not begin with a dot"));
    }
    Ok(id.to_owned())
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
}

fn file_name(id: &str, ending: &str) -> String {
    let has_it = id.to_ascii_lowercase().ends_with(&format!(".{}", ending.to_ascii_lowercase()));
    let has_one = ending == "txt" && Path::new(id).extension().is_some_and(|other| other.len() <= 5);
    if has_it || has_one { id.to_owned() } else { format!("{id}.{ending}") }
}

/// The file extension for a type as models name them.
fn ending_of(kind: Option<&str>) -> Option<&'static str> {
    let kind = kind?.to_ascii_lowercase();
    let kind = kind.split(';').next().unwrap_or("").trim();
    let table: &[(&[&str], &str)] = &[
        (&["markdown", "text/markdown", "md"], "md"),
        (&["html", "text/html"], "html"),
        (&["json", "application/json"], "json"),
        (&["csv", "text/csv"], "csv"),
        (&["svg", "image/svg+xml"], "svg"),
        (&["diff", "patch", "text/x-diff", "text/x-patch"], "diff"),
        (&["log", "text/x-log"], "log"),
        (&["png", "image/png"], "png"),
        (&["jpeg", "jpg", "image/jpeg"], "jpg"),
        (&["pdf", "application/pdf"], "pdf"),
        (&["text", "text/plain", "txt"], "txt"),
    ];
    table.iter().find(|(names, _)| names.contains(&kind)).map(|(_, ending)| *ending)
}

#[cfg(test)]
mod tests;
