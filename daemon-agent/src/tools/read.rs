//! `read_file`: the numbered lines of a text file, as many as fit.

pub mod output;
pub mod skill;

use std::io::{self, BufRead, BufReader, Read};

use serde_json::Value;

use super::{
    ToolErrorKind, ToolFailure,
    args::CallArgs,
    paths::Roots,
    timeout::{CallDeadline, DeadlineReader},
    truncate::{self, TruncatedLines},
};

/// Most lines that a call reads.
const MAX_LINES: u64 = 2_000;
/// Longest part of a line that is shown, bytes.
const MAX_LINE_BYTES: usize = 4_000;
/// A NUL among this many first bytes shows that a file is not text.
const SNIFFED_BYTES: u64 = 8_192;

/// Reads the file that `args` name.
pub fn run(roots: &Roots, args: &Value, deadline: &CallDeadline) -> Result<String, ToolFailure> {
    let args = CallArgs::new(args, &["path", "offset", "limit"])?;
    let path = args.text("path")?;
    let first = args.count("offset")?.unwrap_or(1);
    let limit = args.count("limit")?.unwrap_or(MAX_LINES).min(MAX_LINES);
    let explain = |error: io::Error| ToolErrorKind::Unknown.because(format!("{path}: {error}"));

    let (file, found) = roots.read(path)?;
    let mut file = DeadlineReader { inner: file, deadline };
    let mut start = Vec::new();
    file.by_ref().take(SNIFFED_BYTES).read_to_end(&mut start).map_err(explain)?;
    if start.contains(&0) {
        return Err(format!("{path} is a binary file of {} bytes", found.stat.st_size).into());
    }
    let mut reader = BufReader::with_capacity(64 * 1024, start.chain(file));
    let mut shown = TruncatedLines::default();
    let mut number = 0;
    while let Some(line) = next_line(&mut reader).map_err(explain)? {
        number += 1;
        if number < first {
            continue;
        }
        if number - first >= limit || !shown.push(&format!("{number:>6}\t{line}")) {
            let rest = format!("[more lines follow: continue with offset {number}]");
            return Ok(shown.end(Some(&rest)));
        }
    }
    match (number, shown.is_empty()) {
        (0, _) => Ok("(the file is empty)".into()),
        (_, true) => Err(format!("{path} has only {number} lines; argument \"offset\" is {first}").into()),
        (_, false) => Ok(shown.end(None)),
    }
}

/// The next line without its end, cut at [`MAX_LINE_BYTES`]; bytes that are not UTF-8 become U+FFFD. However long the
/// line is, only the part that is shown is kept in memory.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut kept = Vec::new();
    let mut length = 0;
    loop {
        let chunk = reader.fill_buf()?;
        if chunk.is_empty() {
            if length == 0 {
                return Ok(None);
            }
            break;
        }
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let part = &chunk[..end.unwrap_or(chunk.len())];
        kept.extend_from_slice(&part[..part.len().min(MAX_LINE_BYTES + 4 - kept.len().min(MAX_LINE_BYTES + 4))]);
        length += part.len();
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            break;
        }
    }
    let text = String::from_utf8_lossy(&kept);
    let text = text.strip_suffix('\r').unwrap_or(&text);
    if length <= MAX_LINE_BYTES {
        return Ok(Some(text.to_owned()));
    }
    let cut = truncate::head(text, MAX_LINE_BYTES);
    Ok(Some(format!("{cut} [… the line has {length} bytes]")))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    #[test]
    fn lines_end_where_they_should() {
        let mut reader = Cursor::new("one\r\n\nthree");
        let mut next = || next_line(&mut reader).expect("readable");
        assert_eq!(
            [next(), next(), next(), next()],
            [Some("one".into()), Some(String::new()), Some("three".into()), None]
        );
    }

    #[test]
    fn an_endless_line_is_cut_at_a_character() {
        let long = "ä".repeat(1_000_000);
        let line = next_line(&mut Cursor::new(&long)).expect("readable").expect("a line");
        assert!(line.len() < MAX_LINE_BYTES + 100 && line.contains("2000000 bytes"), "{}", line.len());
        assert!(!line.contains('\u{fffd}'));
    }
}
