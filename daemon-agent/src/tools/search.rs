//! `list_files`, `glob` and `grep`.

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::RegexMatcherBuilder;
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, sinks};
use rustix::fs::FileType;
use serde_json::Value;

use super::{
    args::{Args, wrong},
    fit::{self, Lines},
    paths::{Found, Roots},
    patterns,
    walk::{self, Next},
    work::{Bounded, Work},
};

/// Most entries that a listing or `glob` shows.
const MAX_ENTRIES: usize = 1_000;
/// Most lines that `grep` shows.
const MAX_MATCHES: usize = 300;
/// Longest part of a matching line that is shown, bytes.
const MAX_LINE: usize = 500;
/// Deepest listing.
const MAX_DEPTH: u64 = 10;
/// Memory that a search may take for one line or one expression, bytes.
const MAX_MEMORY: usize = 16 * 1024 * 1024;

/// Lists a folder.
pub fn list(roots: &Roots, args: &Value, work: &Work) -> Result<String, String> {
    let args = Args::new(args, &["path", "depth"])?;
    let depth = args.count("depth")?.unwrap_or(1);
    if depth > MAX_DEPTH {
        return Err(wrong("depth", "at most 10", &depth.into()));
    }
    let path = args.optional_text("path")?.unwrap_or(".");
    let start = folder(roots, path)?;
    let mut shown = Lines::default();
    let mut count = 0;
    let mut full = false;
    // Level by level, so that a bound cuts the depth and not the end of the alphabet.
    let mut level = vec![start.path.clone()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for folder in std::mem::take(&mut level) {
            work.go_on()?;
            let handle = match roots.open_folder(&folder) {
                Ok(handle) => handle,
                Err(error) if folder == start.path => return Err(format!("{path}: {error}")),
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
pub fn glob(roots: &Roots, args: &Value, work: &Work) -> Result<String, String> {
    let args = Args::new(args, &["pattern", "path"])?;
    let wanted = pattern("pattern", args.text("pattern")?)?;
    let start = folder(roots, args.optional_text("path")?.unwrap_or("."))?;
    let mut shown = Lines::default();
    let mut count = 0;
    let mut full = false;
    let walked = walk::walk(roots, &start.path, work, |entry| {
        let name = entry.path.strip_prefix(&start.path).unwrap_or(&entry.path);
        // Asked again without links: a folder that was swapped for one meanwhile tells nothing of where it leads.
        if entry.kind == FileType::Directory
            || !wanted.is_match(name)
            || roots.find_again_or_link(&entry.path).is_none()
        {
            return Next::GoOn;
        }
        count += 1;
        full = count > MAX_ENTRIES || !shown.push(&roots.show(&entry.path));
        if full { Next::End } else { Next::GoOn }
    });
    ended(shown, walked, full, "no file matches", "[more files match: narrow the pattern or the path]")
}

/// Searches the content of files.
pub fn grep(roots: &Roots, args: &Value, work: &Work) -> Result<String, String> {
    let args = Args::new(args, &["pattern", "path", "glob", "ignoreCase"])?;
    let expression = args.text("pattern")?;
    patterns::check_expression(expression).map_err(|why| unusable("pattern", &why))?;
    let mut builder = RegexMatcherBuilder::new();
    builder.case_insensitive(args.flag("ignoreCase")?).line_terminator(Some(b'\n'));
    builder.size_limit(MAX_MEMORY).dfa_size_limit(MAX_MEMORY);
    let matcher = builder.build(expression).map_err(|error| unusable("pattern", &error.to_string()))?;
    let only = args.optional_text("glob")?.map(|glob| pattern("glob", glob)).transpose()?;
    let path = args.optional_text("path")?.unwrap_or(".");
    let start = roots.find(path)?;

    let mut searcher = SearcherBuilder::new()
        .line_number(true)
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_MEMORY))
        .build();
    let mut shown = Lines::default();
    let mut count = 0;
    let mut search = |file: &Found| {
        let mut full = false;
        search_file(roots, &mut searcher, &matcher, (file, work), |line| {
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
            work.go_on()
        }
        FileType::Directory => walk::walk(roots, &start.path, work, |entry| {
            let name = entry.path.strip_prefix(&start.path).unwrap_or(&entry.path);
            if entry.kind != FileType::RegularFile || only.as_ref().is_some_and(|glob| !glob.is_match(name)) {
                return Next::GoOn;
            }
            let file = roots.find_again(&entry.path).filter(|file| file.kind() == FileType::RegularFile);
            full = file.is_some_and(|file| search(&file));
            if full { Next::End } else { Next::GoOn }
        }),
        _ => return Err(format!("{path} is neither a file nor a folder")),
    };
    ended(shown, walked, full, "no line matches", "[more lines match: narrow the pattern, path or glob]")
}

/// Reports the matching lines of one file until `take` has enough.
fn search_file(
    roots: &Roots,
    searcher: &mut Searcher,
    matcher: &grep_regex::RegexMatcher,
    (file, work): (&Found, &Work),
    mut take: impl FnMut(&str) -> bool,
) {
    let Ok(content) = file.open() else { return };
    let name = roots.show(&file.path);
    let sink = sinks::Lossy(|number, line| {
        let line = fit::line(line.trim_end_matches(['\n', '\r']), MAX_LINE);
        Ok(take(&format!("{name}:{number}:{line}")))
    });
    // A file that cannot be read further has told what it could.
    let _ = searcher.search_reader(matcher, Bounded { inner: content, work }, sink);
}

fn folder(roots: &Roots, path: &str) -> Result<Found, String> {
    let found = roots.find(path)?;
    if found.kind() == FileType::Directory { Ok(found) } else { Err(format!("{path} is not a folder")) }
}

/// A glob on paths relative to the start; without a slash it matches the name at any depth.
fn pattern(argument: &str, glob: &str) -> Result<GlobMatcher, String> {
    let glob = glob.trim_start_matches("./");
    patterns::check_glob(glob).map_err(|why| unusable(argument, &why))?;
    let glob = if glob.contains('/') { PathBuf::from(glob) } else { Path::new("**").join(glob) };
    let built = GlobBuilder::new(&glob.to_string_lossy()).literal_separator(true).build();
    let built = built.map_err(|error| unusable(argument, &error.kind().to_string()))?;
    Ok(built.compile_matcher())
}

fn unusable(argument: &str, why: &str) -> String {
    format!("argument {argument:?} cannot be used: {why}")
}

/// The answer, whether it is complete or not.
fn ended(shown: Lines, walked: Result<(), String>, full: bool, none: &str, more: &str) -> Result<String, String> {
    match walked {
        Err(why) if shown.is_empty() => Err(format!("{none} so far: {why}")),
        Err(why) => Ok(shown.end(Some(&format!("[not everything was searched: {why}]")))),
        Ok(()) if full => Ok(shown.end(Some(more))),
        Ok(()) if shown.is_empty() => Ok(none.into()),
        Ok(()) => Ok(shown.end(None)),
    }
}
