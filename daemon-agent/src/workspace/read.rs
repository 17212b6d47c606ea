//! Reads: the entries of a folder, a piece of a file, a whole text.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::fd::OwnedFd,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::{
    Entry, EntryKind, FilePiece, Listing,
    limits::{MAX_ENTRIES, MAX_LISTING_BYTES, MAX_PIECE_BYTES, MAX_TEXT_FILE_BYTES},
    path,
};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat};

use super::{
    Workspace, WorkspaceError, hash,
    resolve::{from_errno, from_io_error, open},
    version_cache::{CachedListing, FileStamp},
};

/// Largest file that is read for its hash, bytes: a larger one that keeps growing would be read over and over.
const MAX_HASHED_BYTES: u64 = 64 * 1024 * 1024;
/// What an entry takes as JSON besides its name and its size, bytes: `{"name":,"kind":"folder","size":,"mtime":"…Z"},`.
const ENTRY_JSON_BYTES: usize = 72;

/// The beginning of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHead {
    pub bytes: Vec<u8>,
    /// Size of the whole file, bytes.
    pub size: u64,
    pub mtime: protocol::Instant,
}

impl Workspace {
    /// The entries of the folder at `path` (empty: the root), after the first `from` ones.
    pub fn list(&self, path: &str, from: u64) -> Result<Listing, WorkspaceError> {
        path::folder(path)?;
        self.hidden.admit(path)?;
        let folder = open(&self.root()?, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let names = self.named(path, from, &folder)?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (kind, name) in names.iter().skip(usize::try_from(from).unwrap_or(usize::MAX)) {
            let entry = entry(&folder, *kind, name.clone());
            // JSON may take six bytes for a character of a name.
            bytes +=
                ENTRY_JSON_BYTES + json_length(&entry.name) + entry.size.checked_ilog10().unwrap_or(0) as usize + 1;
            if entries.len() == MAX_ENTRIES || (bytes > MAX_LISTING_BYTES && !entries.is_empty()) {
                break;
            }
            entries.push(entry);
        }
        let omitted = (names.len() as u64).saturating_sub(from.saturating_add(entries.len() as u64));
        Ok(Listing { path: path.to_owned(), from, entries, omitted })
    }

    /// The names in a folder. Whoever continues with a long list gets the same one, if the folder did not change.
    fn named(&self, path: &str, from: u64, folder: &OwnedFd) -> Result<Arc<Vec<(EntryKind, String)>>, WorkspaceError> {
        let stamp = FileStamp::of(&rustix::fs::fstat(folder).map_err(from_errno)?);
        if from > 0
            && let Some(names) = self.shared.versions.listed(path, &stamp)
        {
            return Ok(names);
        }
        let names = Arc::new(self.names(folder, path)?);
        if names.len() > MAX_ENTRIES / 2 {
            self.shared.versions.list(CachedListing { path: path.to_owned(), stamp, names: names.clone() });
        }
        Ok(names)
    }

    /// At most `limit` bytes of the file at `path`, starting at `offset`, with the hash of the whole file.
    pub fn read(&self, path: &str, offset: u64, limit: u64) -> Result<FilePiece, WorkspaceError> {
        path::file(path)?;
        self.hidden.admit(path)?;
        let (mut file, stat) = self.place(path)?.file()?.ok_or(WorkspaceError::Missing)?;
        let limit = limit.min(MAX_PIECE_BYTES);
        if let Some(whole) = small(&mut file, &stat).map_err(from_io_error)? {
            let from = whole.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
            let content = &whole[from..whole.len().min(from + limit as usize)];
            return Ok(piece(path, (hash::hex(&whole), whole.len() as u64), &stat, offset, content));
        }
        let (hash, size) = self.version(path, &mut file, &stat)?;
        let mut content = Vec::new();
        if offset < size {
            file.seek(SeekFrom::Start(offset)).map_err(from_io_error)?;
            file.take(limit.min(size - offset)).read_to_end(&mut content).map_err(from_io_error)?;
        }
        Ok(piece(path, (hash, size), &stat, offset, &content))
    }

    /// The first bytes of the file at `path`, at most `limit`, and the file's size.
    pub(crate) fn beginning(&self, path: &str, limit: u64) -> Result<(Vec<u8>, u64), WorkspaceError> {
        path::file(path)?;
        self.hidden.admit(path)?;
        let (file, stat) = self.place(path)?.file()?.ok_or(WorkspaceError::Missing)?;
        let mut bytes = Vec::new();
        file.take(limit).read_to_end(&mut bytes).map_err(from_io_error)?;
        Ok((bytes, FileStamp::of(&stat).size))
    }

    /// The text at `path` and its hash, or `None` if there is no file.
    pub fn text(&self, path: &str) -> Result<Option<(String, String)>, WorkspaceError> {
        path::file(path)?;
        self.hidden.admit(path)?;
        let found = match self.place(path) {
            Err(WorkspaceError::Missing) => None,
            placed => placed?.file()?,
        };
        let Some((file, _)) = found else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(MAX_TEXT_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(from_io_error)?;
        if bytes.len() as u64 > MAX_TEXT_FILE_BYTES {
            return Err(WorkspaceError::TooLarge);
        }
        let hash = hash::hex(&bytes);
        Ok(Some((String::from_utf8(bytes).map_err(|_| WorkspaceError::NoText)?, hash)))
    }

    /// The first `most` bytes of the file at `path`; `None` if there is none, or if it has a second name: files that
    /// lie elsewhere are not read through the workspace.
    pub fn head(&self, path: &str, most: u64) -> Result<Option<FileHead>, WorkspaceError> {
        path::file(path)?;
        let found = match self.place(path) {
            Err(WorkspaceError::Missing) => None,
            placed => placed?.file()?,
        };
        let Some((file, stat)) = found.filter(|(_, stat)| stat.st_nlink == 1) else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).map_err(from_io_error)?;
        let stamp = FileStamp::of(&stat);
        Ok(Some(FileHead { bytes, size: stamp.size, mtime: stamp.mtime() }))
    }

    /// The names in a folder, sorted, folders first.
    pub(super) fn names(&self, folder: &OwnedFd, path: &str) -> Result<Vec<(EntryKind, String)>, WorkspaceError> {
        let mut all = Vec::new();
        for entry in Dir::read_from(folder).map_err(from_errno)? {
            let entry = entry.map_err(from_errno)?;
            let name = entry.file_name();
            let kind = match entry.file_type() {
                FileType::Unknown => match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => FileType::from_raw_mode(stat.st_mode),
                    Err(_) => continue,
                },
                known => known,
            };
            let kind = match (kind, name.to_str()) {
                (FileType::Directory, Ok(_)) => EntryKind::Folder,
                (FileType::RegularFile, Ok(_)) => EntryKind::File,
                _ => EntryKind::Other,
            };
            let name = name.to_string_lossy().into_owned();
            if name != "." && name != ".." && !self.hidden.leaves_out(path, &name) {
                all.push((kind, name.to_lowercase(), name));
            }
        }
        all.sort_unstable();
        Ok(all.into_iter().map(|(kind, _, name)| (kind, name)).collect())
    }

    /// The hash and the size of an open file; afterwards its position is at the end, or unchanged.
    pub(super) fn version(&self, path: &str, file: &mut File, stat: &Stat) -> Result<(String, u64), WorkspaceError> {
        let stamp = FileStamp::of(stat);
        if stamp.size > MAX_HASHED_BYTES {
            return Ok((format!("~{}", &hash::hex(format!("{stamp:?}").as_bytes())[..32]), stamp.size));
        }
        let large = stamp.size > MAX_TEXT_FILE_BYTES;
        if large && let Some(hash) = self.shared.versions.known(path, &stamp) {
            return Ok((hash, stamp.size));
        }
        let (hash, size) = hash::of(Read::by_ref(file).take(MAX_HASHED_BYTES)).map_err(from_io_error)?;
        let after = FileStamp::of(&rustix::fs::fstat(&*file).map_err(from_errno)?);
        // A file that changes while it is read will be read again.
        if large && after == stamp {
            self.shared.versions.keep(path, stamp, &hash);
        }
        Ok((hash, size))
    }
}

/// A whole file that fits into a piece. It is read once, so that its hash matches what is shown even if somebody writes
/// to it.
fn small(file: &mut File, stat: &Stat) -> io::Result<Option<Vec<u8>>> {
    if FileStamp::of(stat).size > MAX_PIECE_BYTES {
        return Ok(None);
    }
    let mut whole = Vec::new();
    Read::by_ref(file).take(MAX_PIECE_BYTES + 1).read_to_end(&mut whole)?;
    if whole.len() as u64 <= MAX_PIECE_BYTES {
        return Ok(Some(whole));
    }
    file.rewind()?;
    Ok(None)
}

fn piece(path: &str, (hash, size): (String, u64), stat: &Stat, offset: u64, content: &[u8]) -> FilePiece {
    let content = BASE64_STANDARD.encode(content);
    FilePiece { path: path.to_owned(), hash, size, mtime: Some(FileStamp::of(stat).mtime()), offset, content }
}

/// The path of `name` in a folder.
pub fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The size of a text in JSON, bytes.
fn json_length(text: &str) -> usize {
    let plain = text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\');
    if plain { text.len() + 2 } else { serde_json::to_string(text).map_or(text.len() * 6 + 2, |json| json.len()) }
}

fn entry(folder: &OwnedFd, kind: EntryKind, name: String) -> Entry {
    let stat = rustix::fs::statat(folder, name.as_str(), AtFlags::SYMLINK_NOFOLLOW).ok();
    let stamp = stat.map(|stat| FileStamp::of(&stat));
    let size = if kind == EntryKind::File { stamp.map_or(0, |stamp| stamp.size) } else { 0 };
    Entry { name, kind, size, mtime: stamp.map(|stamp| stamp.mtime()) }
}
