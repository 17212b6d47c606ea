//! What a command printed: head and tail for the result, and the whole in a file if that is not everything.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use protocol::{OutputPlace, sniff, text::omission};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::{
    fs::{File, OpenOptions},
    io::AsyncWriteExt,
};

use super::{super::truncate, live_output::readable};
use crate::artifacts::FileDigest;

/// Bytes kept in memory at each end.
const MAX_END_BYTES: usize = 24 * 1024;
/// Largest output file, bytes: a command that prints endlessly must not fill the disk.
const MAX_FILE_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// The output of one command; its memory use is bounded.
pub struct CommandOutput {
    folder: PathBuf,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// Line ends in it.
    lines: u64,
    /// Largest file, bytes.
    room: u64,
    kept: Option<OutputFile>,
    /// Why the full output could not be kept.
    lost: Option<String>,
}

struct OutputFile {
    file: File,
    path: PathBuf,
    bytes: u64,
    /// Of what was written: whoever reads the file later gets this or nothing.
    hash: Sha256,
    start: Vec<u8>,
    /// Its end is unknown: something could not be written, and the file could not be cut where it ended before.
    torn: bool,
}

/// The file with a command's whole output, or with its beginning where that was too much.
#[derive(Debug)]
pub struct KeptOutput {
    /// Its name in the task's folder.
    pub name: String,
    pub digest: FileDigest,
}

impl CommandOutput {
    /// Output that is kept in full in `folder` if necessary, at most `room` bytes of it.
    pub fn new(folder: PathBuf, room: u64) -> Self {
        let (head, tail, room) = (Vec::new(), VecDeque::new(), room.min(MAX_FILE_BYTES));
        Self { folder, head, tail, total: 0, lines: 0, room, kept: None, lost: None }
    }

    /// Adds what was printed next.
    pub async fn take(&mut self, bytes: &[u8]) {
        let fits = self.total + bytes.len() as u64 <= 2 * MAX_END_BYTES as u64;
        if !fits && self.kept.is_none() && self.lost.is_none() {
            self.keep_all_so_far().await;
        }
        self.append(bytes).await;
        self.total += bytes.len() as u64;
        self.lines += bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(MAX_END_BYTES - self.head.len()));
        self.head.extend_from_slice(head);
        let rest = &rest[rest.len().saturating_sub(MAX_END_BYTES)..];
        self.tail.extend(rest);
        self.tail.drain(..self.tail.len().saturating_sub(MAX_END_BYTES));
    }

    /// The end of the output, as text.
    pub fn tail(&self) -> String {
        let mut text = String::new();
        readable(&self.tail.iter().copied().collect::<Vec<_>>(), &mut text);
        text
    }

    /// The place behind all that was printed.
    pub fn place(&self) -> OutputPlace {
        OutputPlace { bytes: self.total, lines: self.lines }
    }

    /// Adds `output` to a result's `fields` and, if that is not everything, `omitted`, `file`, `bytes` and `lines`. Returns
    /// them with the file.
    pub async fn finish(mut self, mut fields: Map<String, Value>) -> (Map<String, Value>, Option<KeptOutput>) {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        let between = self.total - (self.head.len() + tail.len()) as u64;
        let (mut first, mut last) = (String::new(), String::new());
        if between == 0 {
            let whole = [&self.head[..], &tail].concat();
            readable(&whole, &mut first);
            let exact = std::str::from_utf8(&whole).is_ok();
            if (!exact || truncate::json_len(&first) > truncate::MAX_TEXT_BYTES - 1024) && self.kept.is_none() {
                self.keep_all_so_far().await;
            }
        } else {
            readable(&self.head, &mut first);
            readable(&tail, &mut last);
        }
        let (text, omitted) = fitted(&first, &last, between);
        fields.insert("output".into(), text.into());
        if omitted > 0 {
            fields.insert("omitted".into(), omitted.into());
        }
        if let Some(kept) = &self.kept {
            if kept.is_of_use() {
                fields.insert("file".into(), kept.path.display().to_string().into());
            } else if let Err(error) = tokio::fs::remove_file(&kept.path).await {
                tracing::warn!(path = %kept.path.display(), "an output that could not be kept is not removed: {error}");
            }
            fields.insert("bytes".into(), self.total.into());
            fields.insert("lines".into(), self.lines.into());
        }
        if let Some(lost) = self.lost {
            fields.insert("fileNote".into(), format!("the whole output could not be kept: {lost}").into());
        }
        (fields, self.kept.filter(OutputFile::is_of_use).and_then(OutputFile::done))
    }

    async fn keep_all_so_far(&mut self) {
        match create(&self.folder).await {
            Ok((file, path)) => {
                self.kept =
                    Some(OutputFile { file, path, bytes: 0, hash: Sha256::new(), start: Vec::new(), torn: false });
                let so_far = [&self.head[..], &self.tail.iter().copied().collect::<Vec<_>>()].concat();
                self.append(&so_far).await;
            }
            Err(error) => self.lost = Some(error.to_string()),
        }
    }

    async fn append(&mut self, bytes: &[u8]) {
        let Some(kept) = self.kept.as_mut().filter(|_| self.lost.is_none()) else { return };
        let left = usize::try_from(self.room - kept.bytes).unwrap_or(usize::MAX);
        let fits = &bytes[..bytes.len().min(left)];
        if let Err(error) = kept.write(fits).await {
            // A part of it may be there, which is in no hash: the file ends before it.
            kept.torn = kept.file.set_len(kept.bytes).await.is_err();
            self.lost = Some(format!("only its first {} bytes are in the file: {error}", kept.bytes));
            return;
        }
        kept.bytes += fits.len() as u64;
        kept.hash.update(fits);
        let missing = sniff::HEAD_BYTES.saturating_sub(kept.start.len());
        kept.start.extend_from_slice(&fits[..fits.len().min(missing)]);
        if fits.len() < bytes.len() {
            self.lost = Some(format!("only its first {} bytes are in the file", kept.bytes));
        }
    }
}

impl OutputFile {
    /// Writes `bytes`, not only into a buffer: an error belongs to them.
    async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.file.write_all(bytes).await?;
        self.file.flush().await
    }

    /// Whether whoever opens it finds what its digest says.
    fn is_of_use(&self) -> bool {
        self.bytes > 0 && !self.torn
    }

    /// `None` when its name is no text, which it is.
    fn done(self) -> Option<KeptOutput> {
        let name = self.path.file_name()?.to_str()?.to_owned();
        let sha256 = self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Some(KeptOutput { name, digest: FileDigest { size: self.bytes, sha256, sniffed: sniff::sniff(&self.start) } })
    }
}

/// Both ends around a line that says what is missing, within a result's limit; and how many bytes are missing.
fn fitted(first: &str, last: &str, between: u64) -> (String, u64) {
    let room = truncate::MAX_TEXT_BYTES - 1024;
    if between == 0 && truncate::json_len(first) <= room {
        return (first.to_owned(), 0);
    }
    let all_last = if between == 0 { first } else { last };
    let (head, tail) = (truncate::head(first, room / 2), truncate::tail(all_last, room / 2));
    let cut = if between == 0 {
        first.len() - head.len() - tail.len()
    } else {
        first.len() - head.len() + last.len() - tail.len()
    };
    let omitted = between + cut as u64;
    (format!("{head}{}{tail}", omission(omitted)), omitted)
}

/// A new file in the task's folder: `.output-1.log`, `.output-2.log`, … No artifact has a name like that, so whatever a
/// command or an agent calls its files, they are not taken for this one.
async fn create(folder: &Path) -> std::io::Result<(File, PathBuf)> {
    let mut number = 1;
    loop {
        let path = folder.join(format!(".output-{number}.log"));
        // Only a new file: whatever the command put there under this name is neither followed nor overwritten.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).await {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 100_000 => number += 1,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{tokens, tool_result};

    use super::*;

    async fn printed(chunks: &[&[u8]]) -> (Map<String, Value>, tempfile::TempDir) {
        let (result, _, folder) = printed_within(u64::MAX, chunks).await;
        (result, folder)
    }

    async fn printed_within(
        room: u64,
        chunks: &[&[u8]],
    ) -> (Map<String, Value>, Option<KeptOutput>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut output = CommandOutput::new(folder.path().to_owned(), room);
        for chunk in chunks {
            output.take(chunk).await;
        }
        let (result, kept) = output.finish(Map::new()).await;
        (result, kept, folder)
    }

    #[tokio::test]
    async fn a_file_ends_at_its_bound_and_says_so() {
        let chunk = b"0123456789abcdef\n".repeat(1_000);
        let (result, kept, folder) = printed_within(100_000, &[&chunk[..]; 8]).await;
        assert_eq!((&result["bytes"], &result["lines"]), (&136_000.into(), &8_000.into()));
        assert_eq!(
            result["fileNote"],
            "the whole output could not be kept: only its first 100000 bytes are in the file"
        );
        let kept = kept.expect("its beginning");
        let file = std::fs::read(folder.path().join(&kept.name)).expect("the file");
        assert_eq!(file, chunk.repeat(8)[..100_000]);
        let measured = crate::artifacts::measure(&std::fs::File::open(folder.path().join(&kept.name)).expect("open"));
        assert_eq!(kept.digest, measured.expect("measured"));
    }

    #[tokio::test]
    async fn without_room_there_is_no_file_to_open() {
        let (result, kept, folder) = printed_within(0, &[&[b'x'; 100_000]]).await;
        assert!(kept.is_none() && result["fileNote"].as_str().is_some_and(|why| why.contains("first 0 bytes")));
        assert!(!result.contains_key("file") && std::fs::read_dir(folder.path()).expect("a folder").count() == 0);
    }

    #[tokio::test]
    async fn short_output_is_all_there_and_leaves_no_file() {
        let (result, folder) = printed(&[b"one\n", "zwei ü\n".as_bytes()]).await;
        assert_eq!(Value::Object(result), serde_json::json!({ "output": "one\nzwei ü\n" }));
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn long_output_is_kept_whole_and_shown_at_both_ends() {
        let line = |n: usize| format!("line {n:06}\n").into_bytes();
        let lines: Vec<_> = (0..20_000).map(line).collect();
        let chunks: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        let (result, _folder) = printed(&chunks).await;
        let text = result["output"].as_str().expect("text");
        assert!(text.starts_with("line 000000\n") && text.ends_with("line 019999\n"));
        assert!(text.contains(&format!("[… {} bytes omitted …]", result["omitted"])));
        assert!(serde_json::to_string(&result).expect("JSON").len() <= protocol::limits::MAX_TOOL_TEXT_BYTES);
        let kept = std::fs::read(result["file"].as_str().expect("a path")).expect("the file");
        assert_eq!(kept, lines.concat());
        // The model is told how many tokens of the whole are missing, however often it is cut.
        let whole = tokens::estimate(&String::from_utf8(kept).expect("text"));
        let told = tool_result::text(&Value::Object(result));
        for most in [u64::MAX, 8_000, 500] {
            let cut = tokens::head_and_tail(&told, most);
            let (_, rest) = cut.split_once("\n[truncated, ").expect("the mark");
            let (omitted, rest) = rest.split_once(" tokens omitted]\n").expect("the number");
            let all = tokens::estimate(&cut) + omitted.parse::<u64>().expect("a number");
            assert!(!rest.contains(" omitted") && all.abs_diff(whole) * 50 <= whole, "{most}: {all} of {whole}");
        }
    }

    #[tokio::test]
    async fn binary_output_fits_and_is_kept_byte_for_byte() {
        let bytes: Vec<u8> = (0..30_000u32).map(|n| (n % 256) as u8).collect();
        let (result, _folder) = printed(&[&bytes]).await;
        assert!(serde_json::to_string(&result).expect("JSON").len() <= protocol::limits::MAX_TOOL_TEXT_BYTES);
        let kept = std::fs::read(result["file"].as_str().expect("a path")).expect("the file");
        assert_eq!(kept, bytes);
    }

    #[tokio::test]
    async fn a_name_that_the_command_took_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let taken = folder.path().join(".output-1.log");
        std::os::unix::fs::symlink("/dev/full", &taken).expect("a link");
        let (_, path) = create(folder.path()).await.expect("a file");
        assert_eq!(path, folder.path().join(".output-2.log"));
    }
}
