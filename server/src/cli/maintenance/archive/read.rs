//! Reading an archive. Nothing in it is trusted: names are looked up and never become paths, sizes are bounded, and
//! [`verify`] compares every byte with the manifest before anything is done with them.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
};

use protocol::TeamId;
use sha2::{Digest as _, Sha256};
use tar::Entry;

use super::{
    ArchiveHead, BlobCounts, FORMAT, FORMAT_VERSION, FileEntry, HEAD_FILE, MANIFEST_FILE, Manifest, SEAL_FILE,
};
use crate::{db::copy::Cell, secret::hex};

/// The largest file of rows that is read, bytes: a row may be as large as a request, and a file ends only after the row that
/// fills it.
const MAX_CHUNK_BYTES: u64 = 512 * 1024 * 1024;
/// Bytes that are read at a time.
const READ_BUFFER_BYTES: usize = 128 * 1024;

/// The kind of a file that somebody wants to restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    Archive,
    /// An SQLite database, as older versions of `backup` wrote.
    Sqlite,
    /// What `pg_dump` wrote.
    PgDump,
    Other,
}

/// One entry of an archive.
pub enum ArchivePart<'a> {
    /// Rows of a table.
    Rows {
        table: String,
        rows: Vec<Vec<Cell>>,
    },
    Blob(BlobEntry<'a>),
}

/// A blob that can be read once.
pub struct BlobEntry<'a> {
    pub team: TeamId,
    pub sha256: String,
    pub bytes: &'a mut dyn Read,
}

/// Tells the kind of a file from its first bytes.
pub fn kind(path: &Path) -> io::Result<ArchiveKind> {
    let mut head = Vec::new();
    File::open(path)?.take(1024).read_to_end(&mut head)?;
    Ok(match head {
        head if head.starts_with(b"SQLite format 3\0") => ArchiveKind::Sqlite,
        head if head.starts_with(b"PGDMP") => ArchiveKind::PgDump,
        head if head.starts_with(HEAD_FILE.as_bytes()) => ArchiveKind::Archive,
        _ => ArchiveKind::Other,
    })
}

/// Compares the whole archive with its manifest; the error says what is wrong.
pub fn verify(path: &Path) -> Result<Manifest, String> {
    let mut found: BTreeMap<String, FileEntry> = BTreeMap::new();
    // The number of columns in each table's rows.
    let mut widths: BTreeMap<String, usize> = BTreeMap::new();
    let (mut blobs, mut manifest, mut seal) = (BlobCounts::default(), None, None);
    let mut first = true;
    walk(path, |name, entry| {
        if std::mem::take(&mut first) != (name == HEAD_FILE) || seal.is_some() {
            return Err(format!("{name} is in the wrong place"));
        }
        match name {
            HEAD_FILE => check_head(&bytes(entry, 4096)?),
            MANIFEST_FILE => {
                manifest = Some(bytes(entry, MAX_CHUNK_BYTES)?);
                Ok(())
            }
            SEAL_FILE => {
                seal = Some(bytes(entry, 4096)?);
                Ok(())
            }
            _ if name.starts_with("blobs/") => {
                let (_, sha256) = blob_name(name)?;
                let size = entry.size();
                if hash(entry)? != sha256 {
                    return Err(format!("{name} does not match the hash in its name"));
                }
                (blobs.count, blobs.bytes) = (blobs.count + 1, blobs.bytes + size);
                Ok(())
            }
            _ => {
                let table = table_name(name)?.to_owned();
                let text = bytes(entry, MAX_CHUNK_BYTES)?;
                let rows = rows(&text).map_err(|error| format!("{name}: {error}"))?;
                let width = *widths.entry(table).or_insert_with(|| rows.first().map_or(0, Vec::len));
                if rows.iter().any(|row| row.len() != width) {
                    return Err(format!("{name} has rows of different widths"));
                }
                let sha256 = hex(&Sha256::digest(&text));
                let file =
                    FileEntry { path: name.to_owned(), rows: rows.len() as u64, bytes: text.len() as u64, sha256 };
                match found.insert(name.to_owned(), file) {
                    None => Ok(()),
                    Some(_) => Err(format!("{name} occurs twice")),
                }
            }
        }
    })?;
    let (text, seal) = manifest.zip(seal).ok_or("it ends before its manifest: the file is truncated")?;
    if String::from_utf8_lossy(&seal).trim() != hex(&Sha256::digest(&text)) {
        return Err("its manifest was changed".to_owned());
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| format!("its manifest: {error}"))?;
    compare(&manifest, found, &widths, blobs)?;
    Ok(manifest)
}

fn check_head(text: &[u8]) -> Result<(), String> {
    let head: ArchiveHead = serde_json::from_slice(text).map_err(|error| format!("{HEAD_FILE}: {error}"))?;
    match head {
        ArchiveHead { format, .. } if format != FORMAT => Err("it is not a backup of a Board".to_owned()),
        ArchiveHead { format_version, .. } if format_version > FORMAT_VERSION => {
            Err(format!("it is of format {format_version}, this binary knows only {FORMAT_VERSION}"))
        }
        _ => Ok(()),
    }
}

fn compare(
    manifest: &Manifest,
    mut found: BTreeMap<String, FileEntry>,
    widths: &BTreeMap<String, usize>,
    blobs: BlobCounts,
) -> Result<(), String> {
    for table in &manifest.tables {
        let mut rows = 0;
        for file in &table.files {
            let there = found.remove(&file.path).ok_or_else(|| format!("{} is missing", file.path))?;
            if there != *file || table_name(&file.path)? != table.name {
                return Err(format!("{} does not match the manifest", file.path));
            }
            rows += there.rows;
        }
        if rows != table.rows || widths.get(&table.name).is_some_and(|width| *width != table.columns.len()) {
            return Err(format!("the rows of {} do not match the manifest", table.name));
        }
    }
    if let Some(name) = found.keys().next() {
        return Err(format!("{name} is not in the manifest"));
    }
    let named = manifest.blobs.unwrap_or_default();
    if (named.count, named.bytes) != (blobs.count, blobs.bytes) {
        return Err(format!("it has {} blobs, its manifest says {}", blobs.count, named.count));
    }
    Ok(())
}

/// Walks through a verified archive, rows first. `visit` returns whether to go on.
pub fn parts(path: &Path, mut visit: impl FnMut(ArchivePart) -> Result<bool, String>) -> Result<(), String> {
    let mut going = true;
    walk(path, |name, entry| {
        if !going || [HEAD_FILE, MANIFEST_FILE, SEAL_FILE].contains(&name) {
            return Ok(());
        }
        going = if name.starts_with("blobs/") {
            let (team, sha256) = blob_name(name)?;
            visit(ArchivePart::Blob(BlobEntry { team, sha256, bytes: entry }))?
        } else {
            let table = table_name(name)?.to_owned();
            let rows = rows(&bytes(entry, MAX_CHUNK_BYTES)?).map_err(|error| format!("{name}: {error}"))?;
            visit(ArchivePart::Rows { table, rows })?
        };
        Ok(())
    })
}

type ArchiveEntry<'a> = Entry<'a, BufReader<File>>;

fn walk(path: &Path, mut visit: impl FnMut(&str, &mut ArchiveEntry) -> Result<(), String>) -> Result<(), String> {
    let words = |error: io::Error| error.to_string();
    let file = BufReader::with_capacity(READ_BUFFER_BYTES, File::open(path).map_err(words)?);
    let mut archive = tar::Archive::new(file);
    for entry in archive.entries().map_err(words)? {
        let mut entry = entry.map_err(words)?;
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| "a name that is not UTF-8")?;
        visit(&name, &mut entry)?;
    }
    Ok(())
}

fn bytes(entry: &mut ArchiveEntry, max_bytes: u64) -> Result<Vec<u8>, String> {
    let size = entry.size();
    if size > max_bytes {
        return Err(format!("an entry of {size} bytes"));
    }
    let mut text = Vec::new();
    entry.take(size).read_to_end(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 == size {
        Ok(text)
    } else {
        Err("it ends in the middle of an entry: the file is truncated".to_owned())
    }
}

fn hash(entry: &mut ArchiveEntry) -> Result<String, String> {
    let (mut hash, mut piece) = (Sha256::new(), vec![0; READ_BUFFER_BYTES]);
    loop {
        match entry.read(&mut piece).map_err(|error| error.to_string())? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&piece[..read]),
        }
    }
}

fn rows(text: &[u8]) -> Result<Vec<Vec<Cell>>, serde_json::Error> {
    text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(serde_json::from_slice).collect()
}

fn table_name(name: &str) -> Result<&str, String> {
    let mut parts = name.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some("tables"), Some(table), Some(file), None) if !table.is_empty() && file.ends_with(".jsonl") => Ok(table),
        _ => Err(format!("{name:?} is not part of a backup")),
    }
}

fn blob_name(name: &str) -> Result<(TeamId, String), String> {
    let wrong = || format!("{name:?} is not part of a backup");
    let (team, sha256) = name.strip_prefix("blobs/").and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
    let good = sha256.len() == 64 && sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if !good {
        return Err(wrong());
    }
    Ok((team.parse().map_err(|_| wrong())?, sha256.to_owned()))
}
