//! What a call of `write_file` or `edit_file` would do, for a person to decide about. Nothing is written.

use std::{
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use serde_json::Value;
use similar::TextDiff;

use super::{MAX_FILE_BYTES, edited, new_content};
use crate::{
    tools::{
        ToolErrorKind, ToolFailure,
        paths::{FoundPath, Roots},
    },
    workspace::{hash_of, hex},
};

/// Largest file that a decision can be about, bytes: all of it is read to know that it is still the same.
pub(in crate::tools) const MAX_REPLACED_BYTES: u64 = 64 * 1024 * 1024;
/// Longest texts, together, whose lines are compared, bytes.
const MAX_COMPARED_BYTES: usize = 1024 * 1024;
/// How long lines are compared for the smallest difference; after that a larger one is shown.
const COMPARE_TIME: Duration = Duration::from_millis(500);
/// Unchanged lines around each change.
const CONTEXT_LINES: usize = 3;

/// A write that was not made.
#[derive(Debug)]
pub struct ProposedWrite {
    /// Where the file really lies.
    pub path: PathBuf,
    /// Of the file as it is; `None` if there is none.
    pub hash: Option<String>,
    /// A unified diff.
    pub diff: String,
}

/// What the call would write.
pub fn propose(roots: &Roots, tool: &str, args: &Value) -> Result<ProposedWrite, ToolFailure> {
    if tool == "edit_file" {
        let edit = edited(roots, args)?;
        let (path, _) = roots.destination(edit.path)?;
        if path != edit.found.path {
            return Err(format!("{} was replaced by another writer meanwhile: read it again", edit.path).into());
        }
        let diff = unified(&roots.show(&path), Some(&edit.before), &edit.after);
        return Ok(ProposedWrite { path, hash: Some(hex(edit.before.as_bytes())), diff });
    }
    let (path, content) = new_content(args)?;
    let (real, found) = roots.destination(path)?;
    let shown = roots.show(&real);
    let Some(found) = found else {
        return Ok(ProposedWrite { path: real, hash: None, diff: unified(&shown, None, content) });
    };
    if found.stat.st_size as u64 > MAX_REPLACED_BYTES {
        let size = found.stat.st_size;
        return Err(format!("{path} has {size} bytes; a file of at most {MAX_REPLACED_BYTES} can be replaced").into());
    }
    let (bytes, hash) = read(&found).map_err(|error| ToolErrorKind::Unknown.because(format!("{path}: {error}")))?;
    let diff = match bytes.map(String::from_utf8) {
        Some(Ok(before)) => unified(&shown, Some(&before), content),
        _ => replaced(&shown, found.stat.st_size as u64, content),
    };
    Ok(ProposedWrite { path: real, hash: Some(hash), diff })
}

/// A file's bytes, unless they are too many to compare, and the hash of all of them.
fn read(found: &FoundPath) -> std::io::Result<(Option<Vec<u8>>, String)> {
    let mut file = found.open()?;
    let mut bytes = Vec::new();
    (&mut file).take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() <= MAX_FILE_BYTES {
        let hash = hex(&bytes);
        return Ok((Some(bytes), hash));
    }
    file.seek(SeekFrom::Start(0))?;
    Ok((None, hash_of(file.take(MAX_REPLACED_BYTES))?.0))
}

fn unified(path: &str, before: Option<&str>, after: &str) -> String {
    let old = before.unwrap_or_default();
    if old.len() + after.len() > MAX_COMPARED_BYTES {
        return replaced(path, old.len() as u64, after);
    }
    let diff = TextDiff::configure().timeout(COMPARE_TIME).diff_lines(old, after);
    let from = if before.is_some() { format!("a/{path}") } else { "/dev/null".to_owned() };
    let text = diff.unified_diff().context_radius(CONTEXT_LINES).header(&from, &format!("b/{path}")).to_string();
    // An empty file has no lines to show.
    if text.is_empty() { format!("--- {from}\n+++ b/{path}\n") } else { text }
}

/// In the place of a diff that would be too long, or that cannot be made.
fn replaced(path: &str, bytes: u64, after: &str) -> String {
    format!("{path} with {bytes} bytes is replaced as a whole by {} bytes:\n\n{after}", after.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_by_its_lines() {
        let before = "one\ntwo\nthree\n";
        assert_eq!(
            unified("a.txt", Some(before), "one\n2\nthree\n"),
            "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        );
        assert_eq!(
            unified("n", None, "x"),
            "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
        );
        assert_eq!(unified("n", None, ""), "--- /dev/null\n+++ b/n\n");
        let long = "y\n".repeat(MAX_COMPARED_BYTES);
        assert!(
            unified("n", Some(before), &long).starts_with("n with 14 bytes is replaced as a whole by 2097152 bytes")
        );
    }
}
