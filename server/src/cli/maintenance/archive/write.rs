//! Writing an archive: rows as they come, with at most a few megabytes of them in memory.

use std::{
    fs::File,
    io::{self, BufWriter, Write as _},
};

use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use super::{
    ArchiveHead, BlobCounts, FORMAT, FORMAT_VERSION, FileEntry, HEAD_FILE, MANIFEST_FILE, Manifest, SEAL_FILE,
    TableEntry,
};
use crate::{artifacts::Bytestream, db::copy::Cell, secret::hex};

/// Target size of a file of rows, bytes.
const CHUNK_BYTES: usize = 4 * 1024 * 1024;
/// The block size of a tar, to which entries are padded, bytes.
const TAR_BLOCK_BYTES: u64 = 512;

/// An archive that is being written.
#[derive(Debug)]
pub struct ArchiveWriter {
    out: BufWriter<File>,
    tables: Vec<TableEntry>,
    /// Rows of the last table that are not in a file yet.
    chunk: Vec<u8>,
    chunk_rows: u64,
    blobs: Option<BlobCounts>,
    at: protocol::Instant,
}

impl ArchiveWriter {
    /// Begins an archive in an empty file.
    pub fn begin(file: File, at: protocol::Instant) -> io::Result<Self> {
        let out = BufWriter::with_capacity(256 * 1024, file);
        let mut writer = Self { out, tables: Vec::new(), chunk: Vec::new(), chunk_rows: 0, blobs: None, at };
        let head = ArchiveHead { format: FORMAT.to_owned(), format_version: FORMAT_VERSION };
        writer.entry(HEAD_FILE, &serde_json::to_vec(&head)?)?;
        Ok(writer)
    }

    /// Begins a table; the rows that follow belong to it.
    pub fn table(&mut self, name: &str, columns: Vec<String>) -> io::Result<()> {
        self.end_chunk()?;
        self.tables.push(TableEntry { name: name.to_owned(), columns, rows: 0, files: Vec::new() });
        Ok(())
    }

    /// Adds a row to the last table.
    pub fn row(&mut self, cells: &[Cell]) -> io::Result<()> {
        serde_json::to_writer(&mut self.chunk, cells)?;
        self.chunk.push(b'\n');
        self.chunk_rows += 1;
        if self.chunk.len() >= CHUNK_BYTES { self.end_chunk() } else { Ok(()) }
    }

    fn end_chunk(&mut self) -> io::Result<()> {
        let (chunk, rows) = (std::mem::take(&mut self.chunk), std::mem::take(&mut self.chunk_rows));
        if rows == 0 {
            return Ok(());
        }
        let table = self.tables.last_mut().ok_or_else(|| io::Error::other("a row belongs to a table"))?;
        let path = format!("tables/{}/{:06}.jsonl", table.name, table.files.len() + 1);
        let (bytes, sha256) = (chunk.len() as u64, hex(&Sha256::digest(&chunk)));
        table.rows += rows;
        table.files.push(FileEntry { path: path.clone(), rows, bytes, sha256 });
        self.entry(&path, &chunk)?;
        // The next chunk reuses the memory.
        self.chunk = chunk;
        self.chunk.clear();
        Ok(())
    }

    /// Notes that the archive includes blobs, even if there are none.
    pub fn with_blobs(&mut self) {
        self.blobs = Some(BlobCounts::default());
    }

    /// Counts a blob that the store does not have.
    pub fn missing_blob(&mut self) {
        self.blobs.get_or_insert_default().missing += 1;
    }

    /// Adds a blob of exactly `size` bytes.
    pub async fn blob(&mut self, team: &str, sha256: &str, size: u64, mut bytes: Bytestream) -> io::Result<()> {
        self.end_chunk()?;
        self.header(&format!("blobs/{team}/{sha256}"), size)?;
        let mut written = 0;
        while let Some(piece) = bytes.next().await {
            let piece = piece?;
            written += piece.len() as u64;
            self.out.write_all(&piece)?;
        }
        if written != size {
            return Err(io::Error::other(format!("the blob {sha256} has {written} bytes instead of {size}")));
        }
        self.fill(size)?;
        let blobs = self.blobs.get_or_insert_default();
        (blobs.count, blobs.bytes) = (blobs.count + 1, blobs.bytes + size);
        Ok(())
    }

    /// Writes the manifest and syncs the file to the disk.
    pub fn finish(mut self, schema: i64, engine: &str) -> io::Result<Manifest> {
        self.end_chunk()?;
        let manifest = Manifest {
            schema,
            engine: engine.to_owned(),
            board_version: env!("CARGO_PKG_VERSION").to_owned(),
            created_at: self.at,
            tables: std::mem::take(&mut self.tables),
            blobs: self.blobs,
        };
        let text = serde_json::to_vec_pretty(&manifest)?;
        self.entry(MANIFEST_FILE, &text)?;
        self.entry(SEAL_FILE, format!("{}\n", hex(&Sha256::digest(&text))).as_bytes())?;
        // Two empty blocks end a tar.
        self.out.write_all(&[0; 2 * TAR_BLOCK_BYTES as usize])?;
        let file = self.out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()?;
        Ok(manifest)
    }

    fn entry(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.header(path, bytes.len() as u64)?;
        self.out.write_all(bytes)?;
        self.fill(bytes.len() as u64)
    }

    fn header(&mut self, path: &str, size: u64) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_path(path)?;
        header.set_size(size);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(self.at.0 / 1000).unwrap_or_default());
        header.set_entry_type(EntryType::Regular);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    fn fill(&mut self, size: u64) -> io::Result<()> {
        let rest =
            usize::try_from((TAR_BLOCK_BYTES - size % TAR_BLOCK_BYTES) % TAR_BLOCK_BYTES).map_err(io::Error::other)?;
        self.out.write_all(&[0; TAR_BLOCK_BYTES as usize][..rest])
    }
}
