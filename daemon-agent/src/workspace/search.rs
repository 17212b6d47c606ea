//! Searches names and files for plain words, ignoring case, as far as time and the answer's size allow.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, MmapChoice, Searcher, SearcherBuilder, sinks};
use protocol::{EntryKind, FileMatch, FileMatches, path, text};
use rustix::fs::OFlags;

use super::{
    Workspace, WorkspaceError,
    read::joined,
    resolve::{ResolvedPath, open},
};

/// Longest search text, bytes.
const MAX_QUERY_BYTES: usize = 200;
/// Most hits in one answer.
const MAX_HITS: usize = 200;
/// Most hits in one file.
const MAX_HITS_PER_FILE: usize = 5;
/// Longest part of a line that is shown, bytes.
const MAX_LINE_BYTES: usize = 300;
/// Most of that part that may precede the match, bytes.
const MAX_LEAD_BYTES: usize = 80;
/// Largest file that is searched, bytes; larger ones are found only by name.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;
/// Deepest folder that is entered.
const MAX_DEPTH: usize = 32;
/// How long a search may take: the Board does not wait much longer.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Memory that a single line may take, bytes.
const MAX_LINE_MEMORY_BYTES: usize = 4 * 1024 * 1024;

/// A search in progress.
struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    until: Instant,
    found: FileMatches,
}

impl Workspace {
    /// Files and folders whose names contain `query`, and lines of files that do; in each folder, names come before
    /// lines.
    pub fn search(&self, query: &str) -> Result<FileMatches, WorkspaceError> {
        let query = query.trim();
        if query.is_empty() || query.len() > MAX_QUERY_BYTES || query.contains(['\n', '\r', '\0']) {
            return Err(WorkspaceError::Name(format!(
                "the search text must have 1 to {MAX_QUERY_BYTES} bytes, on one line"
            )));
        }
        let mut builder = RegexMatcherBuilder::new();
        builder.case_insensitive(true).fixed_strings(true).line_terminator(Some(b'\n'));
        let matcher = builder.build(query).map_err(|error| WorkspaceError::Name(error.to_string()))?;
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_LINE_MEMORY_BYTES))
            .build();
        let mut search =
            Search { matcher, searcher, until: Instant::now() + SEARCH_TIMEOUT, found: FileMatches::default() };
        let root = self.root()?;
        let mut folders = vec![(String::new(), 0)];
        while let Some((way, depth)) = folders.pop() {
            if search.is_over() {
                break;
            }
            // Gone or closed in the meantime: nothing in it is found.
            let Ok(folder) = open(&root, &way, OFlags::RDONLY | OFlags::DIRECTORY) else { continue };
            let Ok(names) = self.names(&folder, &way) else { continue };
            let mut below = Vec::new();
            for (kind, name) in &names {
                let path = joined(&way, name);
                if path::file(&path).is_err() {
                    continue;
                }
                search.name(&path, name, *kind);
                match kind {
                    EntryKind::Folder if depth < MAX_DEPTH => below.push((path, depth + 1)),
                    EntryKind::File => search.file(&folder, name, &path),
                    _ => {}
                }
                if search.is_over() {
                    break;
                }
            }
            folders.extend(below.into_iter().rev());
        }
        search.found.cut |= search.is_over();
        Ok(search.found)
    }
}

impl Search {
    fn is_over(&self) -> bool {
        self.found.hits.len() >= MAX_HITS || Instant::now() >= self.until
    }

    fn name(&mut self, path: &str, name: &str, kind: EntryKind) {
        if self.place(name.as_bytes()).is_some() {
            self.found.hits.push(FileMatch { path: path.to_owned(), kind, line: None, text: None });
        }
    }

    fn file(&mut self, folder: &OwnedFd, name: &str, path: &str) {
        let Some((file, size)) = plain(folder, name) else { return };
        if size > MAX_FILE_BYTES {
            return;
        }
        let (matcher, most, mut hits) = (self.matcher.clone(), MAX_HITS_PER_FILE, Vec::new());
        let sink = sinks::Lossy(|number, line| {
            hits.push((number, line.trim_end_matches(['\n', '\r']).to_owned()));
            Ok(hits.len() < most)
        });
        // A file that cannot be read to the end has still reported some matches.
        let _ = self.searcher.search_reader(&matcher, TimedReader { file, until: self.until }, sink);
        self.found.cut |= hits.len() == most;
        for (number, line) in hits {
            let text = Some(self.around(&line));
            self.found.hits.push(FileMatch { path: path.to_owned(), kind: EntryKind::File, line: Some(number), text });
        }
    }

    /// The part of a line around the match.
    fn around(&self, line: &str) -> String {
        let at = self.place(line.as_bytes()).unwrap_or(0);
        let mut from = at.saturating_sub(MAX_LEAD_BYTES);
        while !line.is_char_boundary(from) {
            from -= 1;
        }
        let before = if from > 0 { "…" } else { "" };
        let shown = text::head(&line[from..], MAX_LINE_BYTES);
        let after = if from + shown.len() < line.len() { "…" } else { "" };
        format!("{before}{shown}{after}")
    }

    fn place(&self, bytes: &[u8]) -> Option<usize> {
        use grep_matcher::Matcher;
        self.matcher.find(bytes).ok().flatten().map(|found| found.start())
    }
}

fn plain(folder: &OwnedFd, name: &str) -> Option<(File, u64)> {
    let folder = open(folder, "", OFlags::PATH | OFlags::DIRECTORY).ok()?;
    let (file, stat) = ResolvedPath { folder, name }.file().ok()??;
    Some((file, u64::try_from(stat.st_size).unwrap_or(0)))
}

/// A reader that fails once the search's time is over.
struct TimedReader {
    file: File,
    until: Instant,
}

impl Read for TimedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if Instant::now() >= self.until {
            return Err(io::Error::other("it took too long"));
        }
        self.file.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::home::Home;

    #[test]
    fn names_and_lines_are_found_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        let at = |path: &str| home.workspace().join(path);
        fs::create_dir_all(at("notes/Budget")).expect("made");
        fs::create_dir_all(at(".trash")).expect("made");
        fs::write(at("notes/a.md"), "first\nthe BUDGET of today\n").expect("written");
        fs::write(at("notes/b.md"), "nothing of the kind\n").expect("written");
        fs::write(at(".trash/c.md"), "budget\n").expect("written");
        fs::write(at("image.png"), b"\x89PNG\0\0budget\n").expect("written");
        fs::write(folder.path().join("outside.md"), "budget\n").expect("written");
        std::os::unix::fs::symlink(folder.path().join("outside.md"), at("link.md")).expect("linked");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            at("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .expect("a pipe");
        let workspace = Workspace::open(&home);
        let found = workspace.search("budget").expect("searched");
        let hits: Vec<_> = found.hits.iter().map(|hit| (hit.path.as_str(), hit.line)).collect();
        assert_eq!(hits, [("notes/Budget", None), ("notes/a.md", Some(2))]);
        assert_eq!(found.hits[1].text.as_deref(), Some("the BUDGET of today"));
        assert!(!found.cut);
        // Words, not an expression.
        assert!(workspace.search("b.dget").expect("searched").hits.is_empty());
        assert!(workspace.search(" ").is_err() && workspace.search(&"x".repeat(201)).is_err());
    }

    #[test]
    fn a_long_line_is_shown_around_what_was_found_and_too_many_hits_are_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let line = format!("{}needle{}\n", "ä".repeat(500), "ö".repeat(500));
        fs::write(home.workspace().join("long.md"), line.repeat(10)).expect("written");
        let found = Workspace::open(&home).search("NEEDLE").expect("searched");
        let text = found.hits[0].text.as_deref().expect("a line");
        assert!(text.starts_with('…') && text.contains("needle") && text.ends_with('…') && text.len() < 320, "{text}");
        assert_eq!((found.hits.len(), found.cut), (5, true));
    }
}
