//! What changed in one file: git's unified diff, or all lines of a file that git does not know.

use base64::{Engine, prelude::BASE64_STANDARD};
use protocol::{DiffPiece, SessionId, limits::MAX_PIECE_BYTES, path, space::MAX_DIFF_BYTES};

use super::{Space, SpaceError, changes::ComparisonBase, git::Git};
use crate::workspace::{WorkspaceError, hex};

/// Which diff to show.
#[derive(Clone, Debug, Default)]
pub struct DiffQuery {
    pub path: String,
    /// The file's former name, if it was renamed.
    pub from: Option<String>,
    pub session: Option<SessionId>,
}

/// A diff, possibly incomplete.
#[derive(Debug, Default)]
struct DiffText {
    bytes: Vec<u8>,
    cut: bool,
    binary: bool,
}

impl Space {
    /// A piece of one file's diff, starting at `offset`.
    pub async fn diff(&self, which: &DiffQuery, offset: u64) -> Result<DiffPiece, SpaceError> {
        for path in which.from.iter().chain([&which.path]) {
            path::file(path).map_err(WorkspaceError::from)?;
            self.files.hidden().admit(path)?;
        }
        let text = self.text(which).await?;
        let size = text.bytes.len();
        let from = usize::try_from(offset).unwrap_or(size).min(size);
        let to = (from + MAX_PIECE_BYTES as usize).min(size);
        Ok(DiffPiece {
            hash: hex(&text.bytes),
            size: size as u64,
            offset: from as u64,
            binary: text.binary,
            cut: text.cut,
            content: BASE64_STANDARD.encode(&text.bytes[from..to]),
        })
    }

    async fn text(&self, which: &DiffQuery) -> Result<DiffText, SpaceError> {
        let git = Git::of(self).await?;
        let base = ComparisonBase::of(self, &git, which.session.as_ref()).await?;
        let mut args = vec![
            "diff",
            "--no-color",
            "-M",
            "--relative",
            "--no-ext-diff",
            "--no-textconv",
            "--ignore-submodules=dirty",
            &base.tree,
            "--",
        ];
        args.extend(which.from.as_deref());
        args.push(&which.path);
        let output = git.ask(&args, MAX_DIFF_BYTES).await?;
        if !output.bytes.is_empty() {
            let binary = is_binary(&output.bytes);
            return Ok(DiffText { bytes: output.bytes, cut: output.cut, binary });
        }
        let known = git.ask(&["ls-files", "-z", "--", &which.path], MAX_DIFF_BYTES).await?;
        if !known.bytes.is_empty() {
            return Ok(DiffText::default());
        }
        let (files, path) = (self.files.clone(), which.path.clone());
        let read = tokio::task::spawn_blocking(move || files.beginning(&path, MAX_DIFF_BYTES as u64));
        let (bytes, size) = read.await.map_err(|error| SpaceError::Git(error.to_string()))??;
        Ok(whole(&which.path, &bytes, size))
    }
}

/// Whether git reports a binary file instead of showing lines.
fn is_binary(diff: &[u8]) -> bool {
    let mut lines = diff.split(|byte| *byte == b'\n').take_while(|line| !line.starts_with(b"@@"));
    lines.any(|line| line.starts_with(b"Binary files ") || line.starts_with(b"GIT binary patch"))
}

/// A new file as a diff that adds all of its lines.
fn whole(path: &str, content: &[u8], size: u64) -> DiffText {
    let head = format!("diff --git a/{path} b/{path}\nnew file\n--- /dev/null\n+++ b/{path}\n");
    if content.contains(&0) {
        return DiffText { bytes: head.into_bytes(), cut: false, binary: true };
    }
    let mut bytes = head.into_bytes();
    let lines = content.split_inclusive(|byte| *byte == b'\n').count();
    if lines > 0 {
        bytes.extend_from_slice(format!("@@ -0,0 +1,{lines} @@\n").as_bytes());
    }
    for line in content.split_inclusive(|byte| *byte == b'\n') {
        bytes.push(b'+');
        bytes.extend_from_slice(line);
    }
    if !content.is_empty() && !content.ends_with(b"\n") {
        bytes.extend_from_slice(b"\n\\ No newline at end of file\n");
    }
    let cut = bytes.len() > MAX_DIFF_BYTES || (content.len() as u64) < size;
    bytes.truncate(MAX_DIFF_BYTES);
    DiffText { bytes, cut, binary: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_file_is_all_its_lines() {
        let text = whole("a b.txt", b"one\ntwo", 7);
        let shown = String::from_utf8(text.bytes).expect("text");
        assert!(shown.ends_with("@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file\n"), "{shown}");
        assert!(!text.cut && !text.binary);
        assert!(whole("x", b"a\0b", 3).binary && whole("x", b"", 0).bytes.ends_with(b"+++ b/x\n"));
        let long = whole("x", &b"y\n".repeat(MAX_DIFF_BYTES), 2 * MAX_DIFF_BYTES as u64);
        assert!(long.cut && long.bytes.len() == MAX_DIFF_BYTES);
        assert!(whole("x", b"begin\n", 1_000_000).cut, "only the beginning was read");
    }

    #[test]
    fn a_line_that_speaks_of_binary_files_is_a_line() {
        assert!(is_binary(b"diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n"));
        assert!(!is_binary(b"diff --git a/x b/x\n@@ -1 +1 @@\n-a\n+Binary files a and b differ\nBinary files \n"));
    }
}
