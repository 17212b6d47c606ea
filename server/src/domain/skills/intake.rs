//! What is taken in of an archive: entries are counted, named, bounded and told apart before a byte of them is unpacked.

use std::{collections::BTreeMap, io::Read};

use protocol::{
    limits::{MAX_SKILL_BYTES, MAX_SKILL_FILES},
    path::collision_key,
    skill::is_left_out,
};
use sha2::{Digest as _, Sha256};

use super::{
    bundle::{BadBundle, BundledFile, SkillFileMode},
    main_file,
};
use crate::secret::hex;

/// Most entries of an archive, those that are left out among them.
pub const MAX_ENTRIES: usize = 10_000;
/// Folders within folders of a skill.
const MAX_DEPTH: usize = 8;
/// Largest record of a registry that is read, bytes.
const MAX_RECORD_BYTES: u64 = 64 * 1024;
/// What a registry writes beside a skill.
const RECORD_PATH: &str = ".clawhub/origin.json";

/// Where the bytes of an entry go.
#[derive(Debug)]
pub struct Place {
    path: String,
    size: u64,
    is_record: bool,
}

/// How a name is written, and whether it is a file's.
struct TakenName {
    path: String,
    is_file: bool,
}

/// The files of an archive while it is read.
#[derive(Default)]
pub struct Intake {
    entries: usize,
    /// Files that are kept, filled or not, and their bytes.
    count: usize,
    bytes: u64,
    /// Files and the folders above them, by what makes them collide.
    names: BTreeMap<String, TakenName>,
    files: Vec<BundledFile>,
    /// Whether there is room for the registry's record already: the first one counts.
    has_record: bool,
    record: Option<Vec<u8>>,
}

impl Intake {
    /// Takes note of a folder, whose name may end with a slash.
    pub fn folder(&mut self, name: &[u8]) -> Result<(), BadBundle> {
        self.entry(name.strip_suffix(b"/").unwrap_or(name)).map(drop)
    }

    /// Makes room for a file of `size` bytes; `None` if it is left out.
    pub fn file(&mut self, name: &[u8], size: u64) -> Result<Option<Place>, BadBundle> {
        let path = self.entry(name)?;
        if is_left_out(&path) {
            let is_record = is_record(&path) && !self.has_record && size <= MAX_RECORD_BYTES;
            self.has_record |= is_record;
            return Ok(is_record.then_some(Place { path, size, is_record }));
        }
        self.count += 1;
        self.bytes = self.bytes.saturating_add(size);
        if self.count > MAX_SKILL_FILES {
            return Err(BadBundle::entry(&path, format!("is one of more than {MAX_SKILL_FILES} files")));
        }
        if self.bytes > MAX_SKILL_BYTES {
            let most = MAX_SKILL_BYTES / 1024 / 1024;
            return Err(BadBundle::entry(&path, format!("with it, the files are larger than {most} MiB")));
        }
        self.claim(&path)?;
        Ok(Some(Place { path, size, is_record: false }))
    }

    /// Reads the bytes that were made room for, exactly as many.
    pub fn fill(&mut self, place: Place, mode: SkillFileMode, from: &mut dyn Read) -> Result<(), BadBundle> {
        let Place { path, size, is_record } = place;
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
        let read = from.take(size.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| BadBundle::entry(&path, format!("cannot be unpacked: {error}")))?;
        if bytes.len() as u64 != size {
            return Err(BadBundle::entry(&path, "has another size than the archive says"));
        }
        if is_record {
            self.record = Some(bytes);
        } else {
            let sha256 = hex(&Sha256::digest(&bytes));
            self.files.push(BundledFile { path, mode, sha256, bytes });
        }
        Ok(())
    }

    /// The files, sorted by path, and the registry's record.
    pub fn finish(self) -> Result<(Vec<BundledFile>, Option<Vec<u8>>), BadBundle> {
        let Self { mut files, record, .. } = self;
        if let Some(top) = top_folder(&files).map(|top| top.len() + 1) {
            files.iter_mut().for_each(|file| drop(file.path.drain(..top)));
        }
        if let Some(deep) = files.iter().find(|file| file.path.matches('/').count() > MAX_DEPTH) {
            return Err(BadBundle::entry(&deep.path, format!("lies deeper than {MAX_DEPTH} folders")));
        }
        files.sort_by(|a, b| a.path.as_bytes().cmp(b.path.as_bytes()));
        Ok((files, record))
    }

    fn entry(&mut self, name: &[u8]) -> Result<String, BadBundle> {
        self.entries += 1;
        let shown = String::from_utf8_lossy(name);
        if self.entries > MAX_ENTRIES {
            return Err(BadBundle::entry(&shown, format!("is one of more than {MAX_ENTRIES} entries")));
        }
        let path = std::str::from_utf8(name).map_err(|_| BadBundle::entry(&shown, "its name is not UTF-8"))?;
        protocol::path::file(path)
            .map_err(|bad| BadBundle::entry(path, format!("its path is not allowed: {}", bad.why)))?;
        if path.as_bytes().get(1) == Some(&b':') {
            return Err(BadBundle::entry(path, "its path is not allowed: it begins with a drive"));
        }
        Ok(path.to_owned())
    }

    /// Refuses what some file system would take for another file of the archive.
    fn claim(&mut self, path: &str) -> Result<(), BadBundle> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for end in ends {
            let (part, is_file) = (path.get(..end).unwrap_or(path), end == path.len());
            let name = TakenName { path: part.to_owned(), is_file };
            let Some(taken) = self.names.get(&collision_key(part)) else {
                self.names.insert(collision_key(part), name);
                continue;
            };
            if taken.path != name.path {
                return Err(BadBundle::entry(path, format!("its path can be taken for that of {}", taken.path)));
            }
            if taken.is_file || is_file {
                return Err(BadBundle::entry(path, format!("{} occurs twice", taken.path)));
            }
        }
        Ok(())
    }
}

/// Whether it is the registry's record of the skill, below a folder that holds everything or not.
fn is_record(path: &str) -> bool {
    path == RECORD_PATH || path.split_once('/').is_some_and(|(_, below)| below == RECORD_PATH)
}

/// The one folder in which everything lies, if no skill begins above it.
fn top_folder(files: &[BundledFile]) -> Option<&str> {
    let top = files.first()?.path.split_once('/')?.0;
    let is_below = |file: &BundledFile| file.path.split_once('/').is_some_and(|(first, _)| first == top);
    let is_skill = files.iter().any(|file| main_file::NAMES.contains(&file.path.as_str()));
    (!is_skill && files.iter().all(is_below)).then_some(top)
}
