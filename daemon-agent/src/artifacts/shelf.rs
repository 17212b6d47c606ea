//! The artifacts of one attempt: written into its folder, measured, told once each.

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

use protocol::{AgentStreamEvent, ArtifactId, ArtifactRef, NoticeLevel, TaskId, TaskResult, text::head};
use rustix::fs::{AtFlags, Dir, OFlags};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Measure, Source, VERSIONS, deltas,
    place::{SMALL, beneath, copy, open_plain, open_root},
    reading::{AFTER_STOP, Reading, checked as bytes_of},
};
use crate::{
    clock::Clock,
    home::{Home, private_folder},
    report::Sink,
};

/// Of one task; what appears beyond that stays on the machine.
const MOST: usize = 1_000;
/// Longest id, bytes.
const LONGEST_ID: usize = 80;
/// Longest content that is given as text, bytes.
const LARGEST: usize = 16 * 1024 * 1024;
/// Longest title and type, bytes.
const LONGEST_WORDS: usize = 300;
/// In `result.artifactRefs`.
const TOLD: usize = 64;
/// Names in the folder that are looked at.
const MAX_NAMES: usize = 100_000;
/// Notices of one look, and of one answer.
const MAX_NOTICES: usize = 8;
/// So long after a stop, what reads a file is left alone: the file system does not answer.
const STUCK: Duration = AFTER_STOP.saturating_add(Duration::from_secs(1));

/// Something to put on the shelf.
#[derive(Debug)]
pub struct New {
    pub id: String,
    pub title: Option<String>,
    pub kind: Option<String>,
    pub from: From,
}

/// Where it comes from.
#[derive(Debug)]
pub enum From {
    Content(String),
    /// An open file, and the name it has.
    File(File, String),
    /// Only shown.
    Reference(String),
}

/// The shelf of one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Shelf(Arc<Inner>);

struct Inner {
    home: Home,
    task: TaskId,
    clock: Clock,
    sink: Sink,
    /// Cancelled when nothing is to be read any more.
    stop: CancellationToken,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    /// By the agent's id, the newest version of each, in order.
    refs: Vec<ArtifactRef>,
    /// How many versions were told.
    count: usize,
    /// The time in the newest one's id, milliseconds.
    last: i64,
    /// By file name: size, modification time and inode of what is known, or is too large to be an artifact.
    files: BTreeMap<String, (u64, i64, i64, u64)>,
}

/// What a look at the folder came to.
#[derive(Default)]
struct Found {
    artifacts: Vec<ArtifactRef>,
    /// Why something is not among them.
    wrong: Vec<String>,
}

impl Shelf {
    /// An empty shelf for `task`; what it gets is told through `sink`. Soon after `stop` no file is read any more.
    pub fn new(home: Home, task: TaskId, clock: Clock, sink: Sink, stop: &CancellationToken) -> Self {
        Self(Arc::new(Inner { home, task, clock, sink, stop: stop.child_token(), told: Mutex::default() }))
    }

    /// Time is up: what is not read in a moment is not told any more.
    pub fn hurry(&self) {
        self.0.stop.cancel();
    }

    /// Puts something on it. The id is the file's name: the same one again is a new version.
    pub async fn add(&self, new: New) -> Result<ArtifactRef, String> {
        let (inner, reading) = (self.0.clone(), Reading::until(self.0.stop.clone()));
        let told = self.settled(tokio::task::spawn_blocking(move || inner.add(new, &reading))).await;
        let told = told.ok_or("its file could not be read to the end")??;
        self.0.sink.emit(AgentStreamEvent::Artifact { artifact: told.clone() }).await;
        Ok(told)
    }

    /// Tells of files that appeared in the folder, or changed.
    pub async fn look(&self) {
        let (inner, reading) = (self.0.clone(), Reading::until(self.0.stop.clone()));
        let looked = self.settled(tokio::task::spawn_blocking(move || inner.look(&reading))).await;
        let found = looked.unwrap_or_else(|| Found {
            wrong: vec!["the folder of artifacts could not be looked through".to_owned()],
            ..Found::default()
        });
        for artifact in found.artifacts {
            self.0.sink.emit(AgentStreamEvent::Artifact { artifact }).await;
        }
        self.warn(found.wrong).await;
    }

    /// What `work` came to; `None` when it failed inside, or hangs although it was to end.
    async fn settled<T>(&self, work: JoinHandle<T>) -> Option<T> {
        let stuck = async {
            self.0.stop.cancelled().await;
            sleep(STUCK).await;
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

    /// The end of the attempt: what the answer names is put on it, and the result names what is on it. `open` opens what
    /// the agent may read.
    pub async fn finish(&self, result: &mut TaskResult, open: impl Fn(&str) -> Result<(File, String), String>) {
        let (named, mut wrong) = deltas(&result.text);
        for delta in named {
            let from = match delta.source {
                Source::Content(text) => Ok(From::Content(text)),
                Source::Reference(reference) => Ok(From::Reference(reference)),
                Source::Path(path) => {
                    self.open(&path).unwrap_or_else(|| open(&path)).map(|(file, name)| From::File(file, name))
                }
            };
            let id = delta.id.clone();
            let added = match from {
                Ok(from) => self.add(New { id: delta.id, title: delta.title, kind: delta.kind, from }).await,
                Err(why) => Err(why),
            };
            if let Err(why) = added {
                wrong.push(format!("the artifact {:?} was not kept: {why}", head(&id, 100)));
            }
        }
        self.look().await;
        self.warn(wrong).await;
        let known = self.0.told().refs.clone();
        result.artifact_refs.extend(known.into_iter().rev().take(TOLD).rev());
    }

    /// A file of this task's own folder, named as commands name it: the output of one, for instance. `None`: another path.
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
    fn add(&self, new: New, reading: &Reading) -> Result<ArtifactRef, String> {
        let id = checked(&new.id)?;
        if self.told().count >= MOST {
            return Err(format!("a task has at most {MOST} artifacts"));
        }
        let words = |text: Option<String>| {
            text.map(|text| head(text.trim(), LONGEST_WORDS).to_owned()).filter(|text| !text.is_empty())
        };
        let (title, kind) = (words(new.title), words(new.kind));
        let told = ArtifactRef { id: id.clone(), title, kind: kind.clone(), ..ArtifactRef::default() };
        let (file, measure) = match new.from {
            From::Reference(reference) => {
                let reference = Some(head(&reference, 1000).to_owned());
                return Ok(self.note(ArtifactRef { reference, ..told }, None));
            }
            From::Content(text) if text.len() > LARGEST => return Err("the content is larger than 16 MiB".into()),
            From::Content(text) => {
                let file = file_name(&id, ending_of(kind.as_deref()).unwrap_or("txt"));
                let measure = self.write(&file, text.as_bytes());
                (file, measure)
            }
            From::File(source, name) => {
                let ending = Path::new(&name).extension().and_then(|ending| ending.to_str());
                let ending = ending.filter(|ending| is_plain(ending) && ending.len() <= 12);
                let file = file_name(&id, ending.or(ending_of(kind.as_deref())).unwrap_or("bin"));
                let measure = bytes_of(&source).and_then(|bytes| self.write(&file, reading.of(bytes)));
                (file, measure)
            }
        };
        let measure = measure.map_err(|error| format!("it could not be written: {error}"))?;
        Ok(self.note(told, Some((file, measure))))
    }

    /// Replaces a file of the folder; the earlier version stays under its hash.
    fn write(&self, name: &str, from: impl io::Read) -> io::Result<Measure> {
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

    /// Remembers it and makes it what is told.
    fn note(&self, told: ArtifactRef, file: Option<(String, Measure)>) -> ArtifactRef {
        let mut known = self.told();
        // Ids are in order of time: no two of one task are of the same millisecond.
        known.last = self.clock.now().millis().max(known.last + 1);
        let mut told = ArtifactRef { artifact_id: Some(ArtifactId::new(known.last)), ..told };
        if let Some((name, measure)) = file {
            if let Err(error) = self.keep(&name, &measure) {
                tracing::warn!(task.id = %self.task, "a version of an artifact is not kept: {error}");
            }
            if let Ok(meta) = fs::symlink_metadata(self.home.artifacts(self.task.as_str()).join(&name)) {
                known.files.insert(name.clone(), stamp(&meta));
            }
            told.reference = Some(format!("artifacts/{}/{name}", self.task));
            told.size = Some(measure.size);
            told.sha256 = Some(measure.sha256);
            told.sniffed = Some(measure.sniffed.to_owned());
        }
        known.refs.retain(|other| other.id != told.id);
        known.refs.push(told.clone());
        known.count += 1;
        told
    }

    /// A copy under its hash, so that this version can be opened when a newer one has its name.
    fn keep(&self, name: &str, measure: &Measure) -> io::Result<()> {
        if measure.size > SMALL {
            return Ok(());
        }
        let folder = self.home.artifacts(self.task.as_str());
        let versions = folder.join(VERSIONS);
        private_folder(&versions)?;
        let kept = versions.join(&measure.sha256);
        if !kept.exists() {
            fs::copy(folder.join(name), &kept)?;
        }
        Ok(())
    }

    /// What appeared in the folder, or changed since it was told.
    fn look(&self, reading: &Reading) -> Found {
        let way = PathBuf::from("artifacts").join(self.task.as_str());
        let Ok(root) = open_root(&self.home) else { return Found::default() };
        let Ok(folder) = beneath(&root, &way, OFlags::RDONLY | OFlags::DIRECTORY) else { return Found::default() };
        let Ok(entries) = Dir::read_from(&folder) else { return Found::default() };
        let names = entries.flatten().filter_map(|entry| Some(entry.file_name().to_str().ok()?.to_owned()));
        let mut names: Vec<String> = names.take(MAX_NAMES).collect();
        names.retain(|name| !name.starts_with('.') && !is_ours(name) && !name.chars().any(char::is_control));
        // A large one keeps none of the small ones from being told.
        let is_large = |name: &str| {
            rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_size as u64 > SMALL)
        };
        names.sort_by_cached_key(|name| (is_large(name), name.clone()));
        let mut found = Found::default();
        for name in names {
            if self.is_full() {
                break;
            }
            match self.appeared(&root, &way, &name, reading) {
                Ok(artifact) => found.artifacts.extend(artifact),
                Err(why) => found.wrong.push(format!("{:?} is no artifact: {why}", head(&name, 100))),
            }
            if reading.is_over() {
                break;
            }
        }
        found
    }

    /// What is new about the file `name`; `Err` tells people why nothing is told of it.
    fn appeared(
        &self,
        root: &OwnedFd,
        way: &Path,
        name: &str,
        reading: &Reading,
    ) -> Result<Option<ArtifactRef>, String> {
        let Ok(file) = open_plain(root, &way.join(name)) else { return Ok(None) };
        let Ok(meta) = file.metadata() else { return Ok(None) };
        if self.told().files.get(name) == Some(&stamp(&meta)) {
            return Ok(None);
        }
        let bytes = bytes_of(&file).map_err(|error| {
            // Told once, not after every command.
            self.told().files.insert(name.to_owned(), stamp(&meta));
            error.to_string()
        })?;
        let measure = copy(reading.of(bytes), &mut io::sink()).map_err(|error| error.to_string())?;
        let known = self.told().refs.iter().find(|told| ends_with(told, name)).cloned();
        if known.as_ref().is_some_and(|known| known.sha256.as_deref() == Some(&measure.sha256)) {
            self.told().files.insert(name.to_owned(), stamp(&meta));
            return Ok(None);
        }
        let told = known.map_or_else(
            || ArtifactRef { id: head(name, LONGEST_ID).to_owned(), ..ArtifactRef::default() },
            |known| ArtifactRef { id: known.id, title: known.title, kind: known.kind, ..ArtifactRef::default() },
        );
        Ok(Some(self.note(told, Some((name.to_owned(), measure)))))
    }

    fn is_full(&self) -> bool {
        let told = self.told();
        told.count >= MOST || told.files.len() >= 2 * MOST
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ends_with(told: &ArtifactRef, name: &str) -> bool {
    told.reference.as_deref().and_then(|path| path.rsplit('/').next()) == Some(name)
}

fn stamp(meta: &fs::Metadata) -> (u64, i64, i64, u64) {
    (meta.len(), meta.mtime(), meta.mtime_nsec(), meta.ino())
}

/// What the daemon keeps there for itself: whole outputs and answers that were cut.
fn is_ours(name: &str) -> bool {
    let numbered = name.strip_prefix("output-").and_then(|rest| rest.strip_suffix(".txt"));
    name == "answer.md"
        || numbered.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        || name.ends_with("-args.txt")
        || name.ends_with("-result.txt")
}

/// An id is a file's name: letters, digits and `.-_`, not beginning with a dot.
fn checked(id: &str) -> Result<String, String> {
    let id = id.trim();
    if !is_plain(id) || id.len() > LONGEST_ID || id.starts_with('.') || is_ours(id) {
        return Err(format!("an id has 1 to {LONGEST_ID} letters, digits or .-_ and does not begin with a dot"));
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

/// The ending of a type as models name them.
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
