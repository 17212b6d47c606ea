//! `read_output`: the whole result of a call that the model was given in part, or that has become a line since.
//!
//! Owns where such results are kept: beside the task's artifacts, under names that no artifact has. Only calls of the same
//! attempt are found; an id is hashed and never a path.

use std::{
    collections::BTreeSet,
    fs::{self, DirEntry, OpenOptions},
    io::{self, BufRead, BufReader, ErrorKind, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use protocol::{
    text::head,
    tokens::{estimate, head_and_tail},
};
use rustix::fs::OFlags;
use serde_json::Value;

use super::{CallArgs, CallDeadline, DeadlineReader, MAX_LINES, ToolErrorKind, ToolFailure, TruncatedLines};
use crate::{
    home::{open_plain, private_folder},
    workspace::hex,
};

/// Longest line, bytes: what is longer counts as several, so that all of it can be read.
const MAX_LINE_BYTES: usize = 2_000;
/// Shortest line that a longer one is divided into, bytes.
const MIN_LINE_BYTES: usize = 64;
/// Tokens for the remark at the end.
const REMARK_TOKENS: u64 = 16;
/// What the lines of a part may cost more together than one by one: at most this part of it, as its divisor.
const ROUNDING_SHARE: u64 = 50;
/// Least that is left of a result with a hint, tokens.
const MIN_CUT_TOKENS: u64 = 48;
/// Longest id that a failure repeats, bytes.
const MAX_SHOWN_ID_BYTES: usize = 80;
/// Most that is written of one attempt's results, bytes. Whole outputs of commands have a bound of their own.
const MAX_WRITTEN_BYTES: u64 = 256 * 1024 * 1024;
/// What the names of kept results begin with.
const NAME_START: &str = ".result-";

/// Whole results of one attempt's calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct KeptResults {
    folder: PathBuf,
    attempt: u32,
    /// Bytes that were written; `None` until the folder was looked at.
    written: Arc<Mutex<Option<u64>>>,
}

impl KeptResults {
    /// Results in the task's folder of artifacts.
    pub fn of(folder: PathBuf, attempt: u32) -> Self {
        Self { folder, attempt, written: Arc::default() }
    }

    /// Keeps what the model was to read of a call. What is kept already stays: it is the whole. Blocks.
    pub fn keep(&self, call_id: &str, text: &str) -> io::Result<()> {
        private_folder(&self.folder)?;
        let path = self.path(call_id);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(());
        }
        let before = match *written {
            Some(bytes) => bytes,
            None => self.bytes_on_disk()?,
        };
        let after = before.saturating_add(text.len() as u64);
        if after > MAX_WRITTEN_BYTES {
            let why = format!("{} MiB of results are kept already", MAX_WRITTEN_BYTES >> 20);
            return Err(io::Error::new(ErrorKind::QuotaExceeded, why));
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path)?;
        file.write_all(text.as_bytes()).inspect_err(|_| {
            // A part of it would be taken for the whole.
            let _ = fs::remove_file(&path);
        })?;
        *written = Some(after);
        Ok(())
    }

    /// Keeps results by the ids of their calls, each that can be kept. Returns the ids of the others, and why. Blocks.
    pub fn keep_all(&self, results: &[(String, String)]) -> Vec<(String, io::Error)> {
        let failed = |(id, text): &(String, String)| Some((id.clone(), self.keep(id, text).err()?));
        results.iter().filter_map(failed).collect()
    }

    /// Removes what is kept: the attempt is over. Blocks.
    pub fn forget(&self) -> io::Result<()> {
        let mut removed = Ok(());
        for entry in self.entries()? {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => removed = Err(error),
                _ => {}
            }
        }
        removed
    }

    /// The attempts of which results are kept below `artifacts`, each with the name of its task's folder. Blocks.
    pub fn attempts(artifacts: &Path) -> BTreeSet<(String, u32)> {
        let mut all = BTreeSet::new();
        for folder in fs::read_dir(artifacts).into_iter().flatten().flatten().filter(is_folder) {
            let name = folder.file_name().to_string_lossy().into_owned();
            let files = fs::read_dir(folder.path()).into_iter().flatten().flatten().filter(|file| !is_folder(file));
            all.extend(files.filter_map(|file| Some((name.clone(), attempt_of(&file)?))));
        }
        all
    }

    /// Bytes of the results that have no other name: outputs of commands have one.
    fn bytes_on_disk(&self) -> io::Result<u64> {
        let found = self.entries()?.into_iter().filter_map(|entry| entry.metadata().ok());
        Ok(found.filter(|found| found.nlink() == 1).map(|found| found.len()).sum())
    }

    fn entries(&self) -> io::Result<Vec<DirEntry>> {
        let folder = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            read => read?,
        };
        let is_ours = |entry: &DirEntry| attempt_of(entry) == Some(self.attempt) && !is_folder(entry);
        Ok(folder.flatten().filter(is_ours).collect())
    }

    /// Keeps a file of the task's folder as the result of a call: all that a command put out. Blocks.
    pub fn keep_file(&self, call_id: &str, file: &Path) -> io::Result<()> {
        match fs::hard_link(file, self.path(call_id)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn open(&self, call_id: &str) -> Result<fs::File, ToolFailure> {
        open_plain(&self.path(call_id), OFlags::NOFOLLOW).map_err(|error| {
            let id = head(call_id, MAX_SHOWN_ID_BYTES);
            if error.kind() != ErrorKind::NotFound {
                return ToolErrorKind::Unknown.because(format!("the result of {id:?} cannot be read: {error}"));
            }
            let message = format!(
                "no result of a call {id:?} is kept: only results of this task that you were given in part are"
            );
            let suggestion = Some("Use the callId that a result names, or make the call again.");
            ToolFailure { suggestion, ..ToolErrorKind::NotFound.because(message) }
        })
    }

    fn path(&self, call_id: &str) -> PathBuf {
        self.folder.join(format!("{NAME_START}{}-{}.txt", self.attempt, hex(call_id.as_bytes())))
    }
}

/// The attempt whose result a file is, by its name.
fn attempt_of(file: &DirEntry) -> Option<u32> {
    let name = file.file_name();
    name.to_str()?.strip_prefix(NAME_START)?.split_once('-')?.0.parse().ok()
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// What follows a result that was cut: how to read the rest.
const HINT_START: &str = "\n[read_output with callId ";

/// The result of a call within so many tokens: its ends, and how to read all of it. A result that was cut so is cut again
/// as if it had been whole; the same bound leaves it as it is.
pub fn cut(result: &str, call_id: &str, most_tokens: u64) -> String {
    if estimate(result) <= most_tokens {
        return result.to_owned();
    }
    let (result, hint) = (without_hint(result), format!("{HINT_START}{call_id:?} reads all of it]"));
    // In a few words a hint would leave no room for the result.
    match most_tokens.checked_sub(estimate(&hint)).filter(|room| *room >= MIN_CUT_TOKENS) {
        Some(room) => format!("{}{hint}", head_and_tail(result, room)),
        None => head_and_tail(result, most_tokens),
    }
}

/// The result without the hint that [`cut`] adds.
pub fn without_hint(result: &str) -> &str {
    match result.rsplit_once(HINT_START) {
        Some((before, hint)) if hint.ends_with(" reads all of it]") && !hint.contains('\n') => before,
        _ => result,
    }
}

/// Reads the result that `args` name, at most `most_tokens` of it.
pub fn run(kept: &KeptResults, args: &Value, most_tokens: u64, deadline: &CallDeadline) -> Result<String, ToolFailure> {
    let args = CallArgs::new(args, &["callId", "offset", "limit"])?;
    let id = args.text("callId")?;
    let first = args.count("offset")?.unwrap_or(1);
    let limit = args.count("limit")?.unwrap_or(MAX_LINES).min(MAX_LINES);
    let explain = |error: io::Error| ToolErrorKind::Unknown.because(format!("the result: {error}"));
    let file = DeadlineReader { inner: kept.open(id)?, deadline };
    let width = usize::try_from(most_tokens).unwrap_or(usize::MAX).clamp(MIN_LINE_BYTES, MAX_LINE_BYTES);
    let mut lines = DividedLines { reader: BufReader::with_capacity(64 * 1024, file), width, over: Vec::new() };
    let mut shown = TruncatedLines::default();
    let (mut number, mut room) = (0, most_tokens.saturating_sub(REMARK_TOKENS + most_tokens / ROUNDING_SHARE));
    while let Some(line) = lines.next().map_err(explain)? {
        number += 1;
        if number < first {
            continue;
        }
        let cost = estimate(&line) + 1;
        let fits = shown.is_empty() || cost <= room;
        if number - first >= limit || !fits || !shown.push(&line) {
            return Ok(shown.end(Some(&format!("[more lines follow: continue with offset {number}]"))));
        }
        room = room.saturating_sub(cost);
    }
    match (number, shown.is_empty()) {
        (0, _) => Ok("(the result is empty)".into()),
        (_, true) => Err(format!("the result has only {number} lines; argument \"offset\" is {first}").into()),
        (_, false) => Ok(shown.end(None)),
    }
}

/// The lines of a text, long ones divided between characters.
struct DividedLines<R> {
    reader: R,
    /// Bytes of a line.
    width: usize,
    /// The beginning of the next line: a character that did not fit whole.
    over: Vec<u8>,
}

impl<R: BufRead> DividedLines<R> {
    /// The next line without its end; what is no text becomes U+FFFD, and so does a NUL, which not every store accepts.
    fn next(&mut self) -> io::Result<Option<String>> {
        let mut line = std::mem::take(&mut self.over);
        loop {
            let chunk = self.reader.fill_buf()?;
            let Some(first) = chunk.first() else {
                return Ok((!line.is_empty()).then(|| readable(&line)));
            };
            if *first == b'\n' {
                self.reader.consume(1);
                return Ok(Some(readable(line.strip_suffix(b"\r").unwrap_or(&line))));
            }
            let room = self.width.saturating_sub(line.len());
            if room == 0 {
                let last = line.utf8_chunks().last().map_or(&[][..], |last| last.invalid());
                let begun = if is_begun(last) { last.len() } else { 0 };
                self.over = line.split_off(line.len() - begun);
                return Ok(Some(readable(&line)));
            }
            let end = chunk.iter().position(|byte| *byte == b'\n').unwrap_or(chunk.len()).min(room);
            line.extend_from_slice(&chunk[..end]);
            self.reader.consume(end);
        }
    }
}

/// Whether these bytes, which are no character, are the beginning of one.
fn is_begun(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn readable(line: &[u8]) -> String {
    String::from_utf8_lossy(line).replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;

    fn kept() -> (tempfile::TempDir, KeptResults) {
        let folder = tempfile::tempdir().expect("a folder");
        let kept = KeptResults::of(folder.path().join("artifacts/task"), 1);
        (folder, kept)
    }

    fn read(kept: &KeptResults, args: Value, most_tokens: u64) -> Result<String, ToolFailure> {
        run(kept, &args, most_tokens, &CallDeadline::within(30, CancellationToken::new()))
    }

    #[test]
    fn a_result_is_read_in_parts_until_its_end() {
        let (_folder, kept) = kept();
        let text: String = (1..=3_000).map(|n| format!("line {n}\n")).collect();
        kept.keep("c1", &text).expect("kept");
        kept.keep("c1", "a cut one").expect("the whole stays");
        let (mut all, mut offset) = (String::new(), 1);
        loop {
            let part = read(&kept, json!({ "callId": "c1", "offset": offset }), 2_000).expect("a part");
            assert!(estimate(&part) <= 2_000, "{}", estimate(&part));
            all.extend(part.lines().filter(|line| !line.starts_with('[')).map(|line| format!("{line}\n")));
            let Some((_, next)) = part.rsplit_once("[more lines follow: continue with offset ") else { break };
            offset = next.trim_end_matches(']').parse().expect("a number");
        }
        assert!(all == text, "{} lines", all.lines().count());
        let some = read(&kept, json!({ "callId": "c1", "offset": "2999", "limit": 1 }), 8_000).expect("a line");
        assert_eq!(some, "line 2999\n[more lines follow: continue with offset 3000]");
        let beyond = read(&kept, json!({ "callId": "c1", "offset": 9_999 }), 8_000).expect_err("no line");
        assert!(beyond.message.contains("only 3000 lines"), "{beyond:?}");
    }

    #[test]
    fn an_id_is_no_path_and_finds_only_its_own_attempt() {
        let (folder, kept) = kept();
        std::fs::write(folder.path().join("secret"), "pin").expect("written");
        kept.keep("c/../1", "mine").expect("kept");
        assert_eq!(read(&kept, json!({ "callId": "c/../1" }), 8_000).expect("kept"), "mine");
        let other = KeptResults::of(kept.folder.clone(), 2);
        let long = "x".repeat(100_000);
        for (results, id) in [
            (&kept, "../../secret"),
            (&kept, "/etc/passwd"),
            (&kept, ""),
            (&kept, "c\0"),
            (&kept, &long),
            (&other, "c/../1"),
        ] {
            let failure = read(results, json!({ "callId": id }), 8_000).expect_err("nothing is kept");
            assert!(failure.kind == ToolErrorKind::NotFound && failure.message.len() < 300, "{failure:?}");
        }
        std::os::unix::fs::symlink(folder.path().join("secret"), kept.path("link")).expect("a link");
        read(&kept, json!({ "callId": "link" }), 8_000).expect_err("a link is not followed");
        let whole = kept.folder.join(".output-1.log");
        std::fs::write(&whole, "all of it").expect("written");
        kept.keep_file("c2", &whole).expect("kept");
        assert_eq!(read(&kept, json!({ "callId": "c2" }), 8_000).expect("kept"), "all of it");
        kept.keep_file("c3", &folder.path().join("nothing")).expect_err("no file");
    }

    #[test]
    fn beyond_the_bound_only_small_results_are_kept() {
        let (_folder, kept) = kept();
        kept.keep("first", "a").expect("kept");
        // As if a former process had written them.
        let others = OpenOptions::new().write(true).create_new(true).open(kept.path("others")).expect("a file");
        others.set_len(MAX_WRITTEN_BYTES - 11).expect("a sparse file");
        let other = OpenOptions::new().write(true).create_new(true).open(kept.folder.join(".output-1.log"));
        other.expect("a file").set_len(MAX_WRITTEN_BYTES).expect("a sparse file");
        let kept = KeptResults::of(kept.folder.clone(), 1);
        kept.keep_file("output", &kept.folder.join(".output-1.log")).expect("kept");
        let results = [("long", "eleven char"), ("first", "eleven char"), ("short", "ten chars."), ("last", "b")];
        let failed = kept.keep_all(&results.map(|(id, text)| (id.to_owned(), text.to_owned())));
        let ids: Vec<&str> = failed.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!((ids, failed[0].1.kind()), (vec!["long", "last"], ErrorKind::QuotaExceeded));
        assert_eq!(failed[1].1.to_string(), "256 MiB of results are kept already");
        assert_eq!(read(&kept, json!({ "callId": "short" }), 8_000).expect("kept"), "ten chars.");
        KeptResults::of(kept.folder.clone(), 2).keep("long", "eleven char").expect("another attempt has its own bound");
    }

    #[test]
    fn an_attempts_results_go_and_nothing_else() {
        let (folder, kept) = kept();
        let other = KeptResults::of(kept.folder.clone(), 11);
        kept.keep("a", "1").expect("kept");
        other.keep("a", "11").expect("kept");
        for name in [".output-1.log", "report.md", ".result-x-1.txt"] {
            std::fs::write(kept.folder.join(name), "x").expect("written");
        }
        std::fs::create_dir(kept.path("folder")).expect("a folder of the agent's");
        kept.keep_file("b", &kept.folder.join(".output-1.log")).expect("kept");
        let task = || "task".to_owned();
        let artifacts = folder.path().join("artifacts");
        assert_eq!(KeptResults::attempts(&artifacts), BTreeSet::from([(task(), 1), (task(), 11)]));
        kept.forget().expect("removed");
        assert_eq!(KeptResults::attempts(&artifacts), BTreeSet::from([(task(), 11)]));
        assert_eq!(std::fs::read_dir(&kept.folder).expect("the folder").count(), 5);
        KeptResults::of(folder.path().join("nowhere"), 1).forget().expect("nothing is there");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such() {
        let (_folder, kept) = kept();
        kept.keep("other", "").expect("a folder");
        std::fs::write(kept.path("c"), b"a\0b\xff\xe6\r\n\nd").expect("written");
        let read = read(&kept, json!({ "callId": "c" }), 8_000).expect("lines");
        assert_eq!(read, "a\u{fffd}b\u{fffd}\u{fffd}\n\nd");
    }

    #[test]
    fn a_cut_result_says_how_to_read_it() {
        let text = "line of text\n".repeat(1_000);
        let once = cut(&text, "c7", 200);
        assert!(
            once.contains(" tokens omitted]\n") && once.ends_with("\n[read_output with callId \"c7\" reads all of it]")
        );
        assert_eq!(cut(&once, "c7", 200), once);
        let twice = cut(&once, "c7", 100);
        assert!(estimate(&twice) <= 100 && twice.matches("read_output").count() == 1, "{twice}");
        assert_eq!(twice, cut(&text, "c7", 100), "it says how much of the whole is missing");
        assert!(estimate(&cut(&once, "c7", 16)) <= 16);
        assert_eq!((cut("short", "c7", 16), without_hint("no\n[x]")), ("short".to_owned(), "no\n[x]"));
    }

    proptest! {
        #[test]
        fn lines_put_together_are_the_text(text in "[aß日🦀\n]{0,120}", width in 4usize..20, buffer in 1usize..9) {
            let reader = BufReader::with_capacity(buffer, text.as_bytes());
            let mut lines = DividedLines { reader, width, over: Vec::new() };
            let mut all = Vec::new();
            while let Some(line) = lines.next().expect("readable") {
                prop_assert!(line.len() <= width);
                all.push(line);
            }
            prop_assert_eq!(all.concat(), text.replace('\n', ""));
            if text.lines().all(|line| line.len() <= width) {
                prop_assert_eq!(all, text.lines().collect::<Vec<_>>());
            }
        }
    }
}
