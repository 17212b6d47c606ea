//! `list_files`, `glob` and `grep`.

mod pattern_limits;
mod walk;

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, sinks};
use rustix::fs::FileType;
use serde_json::Value;

use super::{
    ToolFailure,
    args::{CallArgs, wrong},
    paths::{FoundPath, Roots},
    timeout::{CallDeadline, DeadlineReader},
    truncate::{self, TruncatedLines},
};
use walk::WalkStep;

/// Most entries that a listing or `glob` shows.
const MAX_ENTRIES: usize = 1_000;
/// Most lines that `grep` shows.
const MAX_MATCHES: usize = 300;
/// Longest part of a matching line that is shown, bytes.
const MAX_LINE_BYTES: usize = 500;
/// Deepest listing.
const MAX_DEPTH: u64 = 10;
/// Memory that a search may use for one line or one expression, bytes.
const MAX_SEARCH_MEMORY_BYTES: usize = 16 * 1024 * 1024;

/// Lists a folder.
pub fn list(roots: &Roots, args: &Value, deadline: &CallDeadline) -> Result<String, ToolFailure> {
    let args = CallArgs::new(args, &["path", "depth"])?;
    let depth = args.count("depth")?.unwrap_or(1);
    if depth > MAX_DEPTH {
        return Err(wrong("depth", "at most 10", &depth.into()).into());
    }
    let path = args.optional_text("path")?.unwrap_or(".");
    let start = folder(roots, path)?;
    let mut shown = TruncatedLines::default();
    let mut count = 0;
    let mut full = false;
    // Level by level, so that the limit reduces the depth and not the end of the alphabet.
    let mut level = vec![start.path.clone()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for folder in std::mem::take(&mut level) {
            deadline.go_on()?;
            let handle = match roots.open_folder(&folder) {
                Ok(handle) => handle,
                Err(error) if folder == start.path => return Err(format!("{path}: {error}").into()),
                Err(_) => continue,
            };
            for entry in walk::entries(&handle, &folder) {
                let is_folder = entry.kind == FileType::Directory;
                let name = entry.path.strip_prefix(&start.path).unwrap_or(&entry.path).display().to_string();
                let mark = match entry.kind {
                    FileType::Directory => "/",
                    FileType::Symlink => "@",
                    FileType::RegularFile => "",
                    _ => " (not a regular file)",
                };
                count += 1;
                full |= count > MAX_ENTRIES || !shown.push(&format!("{name}{mark}"));
                if is_folder && !name.ends_with(".git") && !name.ends_with("node_modules") {
                    next.push(entry.path);
                }
            }
            if full {
                return Ok(shown.end(Some("[more entries follow: list a folder below]")));
            }
        }
        level = next;
    }
    if shown.is_empty() {
        return Ok("(the folder is empty)".into());
    }
    Ok(shown.end(None))
}

/// Finds files by name.
pub fn glob(roots: &Roots, args: &Value, deadline: &CallDeadline) -> Result<String, ToolFailure> {
    let args = CallArgs::new(args, &["pattern", "path"])?;
    let wanted = pattern("pattern", args.text("pattern")?)?;
    let start = folder(roots, args.optional_text("path")?.unwrap_or("."))?;
    let mut shown = TruncatedLines::default();
    let mut count = 0;
    let mut full = false;
    let walked = walk::walk(roots, &start.path, deadline, |entry| {
        let name = entry.path.strip_prefix(&start.path).unwrap_or(&entry.path);
        // Checked again without links: a folder that was replaced by a link must not reveal where it leads.
        if entry.kind == FileType::Directory
            || !wanted.is_match(name)
            || roots.find_again_or_link(&entry.path).is_none()
        {
            return WalkStep::GoOn;
        }
        count += 1;
        full = count > MAX_ENTRIES || !shown.push(&roots.show(&entry.path));
        if full { WalkStep::End } else { WalkStep::GoOn }
    });
    ended(shown, walked, full, "no file matches", "[more files match: narrow the pattern or the path]")
}

/// Searches the content of files.
pub fn grep(roots: &Roots, args: &Value, deadline: &CallDeadline) -> Result<String, ToolFailure> {
    let args = CallArgs::new(args, &["pattern", "path", "glob", "ignoreCase"])?;
    let expression = args.text("pattern")?;
    pattern_limits::check_expression(expression).map_err(|why| unusable("pattern", &why))?;
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(args.flag("ignoreCase")?).line_terminator(Some(b'\n'));
    builder.size_limit(MAX_SEARCH_MEMORY_BYTES).dfa_size_limit(MAX_SEARCH_MEMORY_BYTES);
    let matcher = builder.build(expression).map_err(|error| unusable("pattern", &error.to_string()))?;
    let only = args.optional_text("glob")?.map(|glob| pattern("glob", glob)).transpose()?;
    let path = args.optional_text("path")?.unwrap_or(".");
    let start = roots.find(path)?;

    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_SEARCH_MEMORY_BYTES))
        .build();
    let mut shown = TruncatedLines::default();
    let mut count = 0;
    let mut search = |file: &FoundPath| {
        let mut full = false;
        search_file(roots, &mut searcher, &matcher, (file, deadline), |line| {
            count += 1;
            full = count > MAX_MATCHES || !shown.push(line);
            !full
        });
        full
    };
    let mut full = false;
    let walked = match start.kind() {
        FileType::RegularFile => {
            full = search(&start);
            deadline.go_on()
        }
        FileType::Directory => walk::walk(roots, &start.path, deadline, |entry| {
            let name = entry.path.strip_prefix(&start.path).unwrap_or(&entry.path);
            if entry.kind != FileType::RegularFile || only.as_ref().is_some_and(|glob| !glob.is_match(name)) {
                return WalkStep::GoOn;
            }
            let file = roots.find_again(&entry.path).filter(|file| file.kind() == FileType::RegularFile);
            full = file.is_some_and(|file| search(&file));
            if full { WalkStep::End } else { WalkStep::GoOn }
        }),
        _ => return Err(format!("{path} is neither a file nor a folder").into()),
    };
    ended(shown, walked, full, "no line matches", "[more lines match: narrow the pattern, path or glob]")
}

/// Reports the matching lines of one file until `take` has enough.
fn search_file(
    roots: &Roots,
    searcher: &mut Searcher,
    matcher: &grep_regex::RegexMatcher,
    (file, deadline): (&FoundPath, &CallDeadline),
    mut take: impl FnMut(&str) -> bool,
) {
    let Ok(content) = file.open() else { return };
    let name = roots.show(&file.path);
    let sink = sinks::Lossy(|number, line| {
        let line = truncate::line(line.trim_end_matches(['\n', '\r']), MAX_LINE_BYTES);
        Ok(take(&format!("{name}:{number}:{line}")))
    });
    // A file that cannot be read to the end has still reported some matches.
    let _ = searcher.search_reader(matcher, DeadlineReader { inner: content, deadline }, sink);
}

fn folder(roots: &Roots, path: &str) -> Result<FoundPath, ToolFailure> {
    let found = roots.find(path)?;
    if found.kind() == FileType::Directory { Ok(found) } else { Err(format!("{path} is not a folder").into()) }
}

/// A glob on paths relative to the start; without a slash it matches names at any depth.
fn pattern(argument: &str, glob: &str) -> Result<GlobMatcher, String> {
    let glob = glob.trim_start_matches("./");
    pattern_limits::check_glob(glob).map_err(|why| unusable(argument, &why))?;
    let glob = if glob.contains('/') { PathBuf::from(glob) } else { Path::new("**").join(glob) };
    let built = GlobBuilder::new(&glob.to_string_lossy()).literal_separator(true).build();
    let built = built.map_err(|error| unusable(argument, &error.kind().to_string()))?;
    Ok(built.compile_matcher())
}

fn unusable(argument: &str, why: &str) -> String {
    format!("argument {argument:?} cannot be used: {why}")
}

/// The answer, with a remark if it is incomplete.
fn ended(
    shown: TruncatedLines,
    walked: Result<(), String>,
    full: bool,
    none: &str,
    more: &str,
) -> Result<String, ToolFailure> {
    match walked {
        Err(why) if shown.is_empty() => Err(format!("{none} so far: {why}").into()),
        Err(why) => Ok(shown.end(Some(&format!("[not everything was searched: {why}]")))),
        Ok(()) if full => Ok(shown.end(Some(more))),
        Ok(()) if shown.is_empty() => Ok(none.into()),
        Ok(()) => Ok(shown.end(None)),
    }
}
