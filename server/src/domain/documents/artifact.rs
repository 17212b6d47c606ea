//! Artifacts: what tasks produced and operators attached, where their bytes are, and how they may be shown.

use protocol::{ArtifactId, Instant, SessionId, TaskId, ViberId};

use crate::domain::{Contact, ContactState, name};

/// Longest file name, characters.
const MAX_FILE_NAME_CHARS: usize = 120;
/// How much of a claimed name is examined, characters.
const MAX_EXAMINED_CHARS: usize = 16 * 1024;

crate::words! {
    /// Where an artifact comes from.
    ArtifactOrigin {
        /// An agent reported it, by a tool or in an answer.
        Agent = "agent",
        /// It appeared in the task's folder.
        File = "file",
        Operator = "operator",
    }
}

crate::words! {
    /// Where an artifact's bytes are.
    ArtifactState {
        /// Only on the machine, which is connected.
        Viber = "viber",
        /// In the Board's store.
        Stored = "stored",
        /// Only on the machine, which is away.
        Offline = "offline",
        /// Nowhere: they are lost.
        Gone = "gone",
        /// An address that is only shown; there are no bytes.
        Link = "link",
    }
}

/// Something a task produced, or an operator attached.
#[derive(Clone, Debug, PartialEq)]
pub struct Artifact {
    pub id: ArtifactId,
    pub viber_id: ViberId,
    pub session_id: SessionId,
    /// `None` for an attachment that no task has yet.
    pub task_id: Option<TaskId>,
    pub attempt: Option<u32>,
    /// The agent's id for it, or the file's name: versions share it.
    pub name: String,
    pub title: String,
    /// The media type that was claimed.
    pub claimed: String,
    /// The media type that the bytes look like.
    pub sniffed: String,
    /// A path beneath the viber's home, or an address.
    pub reference: String,
    pub size: Option<u64>,
    pub sha256: Option<String>,
    pub origin: ArtifactOrigin,
    pub created_by: String,
    pub created_at: Instant,
    pub gone_at: Option<Instant>,
    /// Since when the store has its bytes.
    pub stored_at: Option<Instant>,
    /// Of its viber.
    pub contact: Contact,
}

impl Artifact {
    /// Where its bytes are, and since when.
    pub fn place(&self) -> (ArtifactState, Instant) {
        if self.is_link() {
            return (ArtifactState::Link, self.created_at);
        }
        match (self.stored_at, self.gone_at, self.contact.state) {
            (Some(at), ..) => (ArtifactState::Stored, at),
            (None, Some(at), _) => (ArtifactState::Gone, at),
            (None, None, ContactState::Connected) => (ArtifactState::Viber, self.created_at),
            (None, None, ContactState::Disconnected | ContactState::Unheard) => {
                (ArtifactState::Offline, self.contact.since)
            }
        }
    }

    /// Whether it only points somewhere: nothing of it is ever fetched.
    pub fn is_link(&self) -> bool {
        !self.reference.starts_with("artifacts/")
            && !self.reference.starts_with("workspace/")
            && self.origin != ArtifactOrigin::Operator
    }

    /// Whether a text of its session means it by this path: the whole reference, a path that ends like it, or its name.
    pub fn is_at(&self, path: &str) -> bool {
        let path = path.trim_start_matches("~/.openviber/").trim_start_matches("./").trim_start_matches("../");
        let last = path.rsplit('/').next().unwrap_or(path);
        let name = self.reference.rsplit('/').next().unwrap_or("");
        !self.is_link() && !path.contains(':') && (self.reference == path || name == last || self.name == last)
    }

    /// Whether it is the file that a playbook calls so: by its name, its title, or where it lies, from whichever folder on. If
    /// nothing says in which folder it was, its last part is enough.
    pub fn is_file(&self, path: &str) -> bool {
        let words = [self.name.as_str(), self.title.as_str(), self.reference.as_str()];
        let ends_with = |word: &&str, end: &str| {
            word.strip_suffix(end).is_some_and(|above| above.is_empty() || above.ends_with('/'))
        };
        let last = path.rsplit('/').next().unwrap_or(path);
        let named: Vec<&str> = words.into_iter().filter(|word| ends_with(word, last)).collect();
        // The folder of a task's own artifacts says nothing.
        let own = |word: &str| {
            word.strip_prefix("artifacts/").and_then(|word| word.split_once('/')).map(|(_, name)| name.len())
        };
        let is_elsewhere = |word: &&str| own(word).unwrap_or(word.len()) > last.len();
        let is_there = named.iter().any(|word| ends_with(word, path)) || !named.iter().any(is_elsewhere);
        !self.is_link() && !last.is_empty() && !named.is_empty() && is_there
    }

    /// The name that a download gets: one visible part of a path.
    pub fn file_name(&self) -> String {
        let last = if self.is_link() { "" } else { self.reference.rsplit('/').next().unwrap_or("") };
        file_name(if self.origin == ArtifactOrigin::Operator { &self.name } else { last })
            .or_else(|| file_name(&self.name))
            .unwrap_or_else(|| "artifact".to_owned())
    }

    /// How it may be shown.
    pub fn kind(&self) -> ArtifactKind {
        ArtifactKind::of(&self.sniffed, &self.claimed, &self.file_name())
    }
}

/// `text` as a file name, without hidden or direction characters and without a path. `None` when nothing is left.
pub fn file_name(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or(text);
    let kept: String = last.chars().filter(|c| !matches!(c, '"' | '<' | '>' | '|' | ':' | '*' | '?')).collect();
    let clean = name::clean(&kept, MAX_EXAMINED_CHARS)?;
    let clean = clean.trim_start_matches('.').trim();
    // The extension says what the file is, so it is never cut off.
    let (stem, ending) = match clean.rsplit_once('.') {
        Some((stem, ending)) if ending.chars().count() <= 12 && !stem.is_empty() => (stem, format!(".{ending}")),
        _ => (clean, String::new()),
    };
    let stem: String = stem.chars().take(MAX_FILE_NAME_CHARS - ending.chars().count()).collect();
    let name = format!("{}{ending}", stem.trim_end());
    (!name.is_empty()).then_some(name)
}

/// How an artifact may be shown. `Other` is only downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArtifactKind {
    Text,
    Markdown,
    Code,
    Diff,
    /// Lines with ANSI colours.
    Log,
    Json,
    Csv,
    /// With the media type of the response: only types that run nothing.
    Image(&'static str),
    Audio(&'static str),
    Video(&'static str),
    Pdf,
    /// HTML or SVG: in a sandbox without scripts and without an origin.
    Page(&'static str),
    Other,
}

/// Types that a browser shows without running anything, by what the bytes look like.
const MEDIA_KINDS: &[(&str, ArtifactKind)] = &[
    ("image/png", ArtifactKind::Image("image/png")),
    ("image/jpeg", ArtifactKind::Image("image/jpeg")),
    ("image/gif", ArtifactKind::Image("image/gif")),
    ("image/webp", ArtifactKind::Image("image/webp")),
    ("image/avif", ArtifactKind::Image("image/avif")),
    ("image/bmp", ArtifactKind::Image("image/bmp")),
    ("audio/mpeg", ArtifactKind::Audio("audio/mpeg")),
    ("audio/ogg", ArtifactKind::Audio("audio/ogg")),
    ("audio/x-wav", ArtifactKind::Audio("audio/wav")),
    ("audio/wav", ArtifactKind::Audio("audio/wav")),
    ("audio/x-flac", ArtifactKind::Audio("audio/flac")),
    ("audio/m4a", ArtifactKind::Audio("audio/mp4")),
    ("video/mp4", ArtifactKind::Video("video/mp4")),
    ("video/webm", ArtifactKind::Video("video/webm")),
    ("application/pdf", ArtifactKind::Pdf),
];

/// File extensions of texts; others are shown as code.
const TEXT_KINDS_BY_ENDING: &[(&str, ArtifactKind)] = &[
    ("md", ArtifactKind::Markdown),
    ("markdown", ArtifactKind::Markdown),
    ("diff", ArtifactKind::Diff),
    ("patch", ArtifactKind::Diff),
    ("log", ArtifactKind::Log),
    ("ansi", ArtifactKind::Log),
    ("json", ArtifactKind::Json),
    ("csv", ArtifactKind::Csv),
    ("tsv", ArtifactKind::Csv),
    ("html", ArtifactKind::Page("text/html; charset=utf-8")),
    ("htm", ArtifactKind::Page("text/html; charset=utf-8")),
    ("xhtml", ArtifactKind::Page("text/html; charset=utf-8")),
    ("svg", ArtifactKind::Page("image/svg+xml")),
    ("txt", ArtifactKind::Text),
    ("text", ArtifactKind::Text),
];

/// Claimed media types of texts.
const TEXT_KINDS_BY_TYPE: &[(&str, ArtifactKind)] = &[
    ("text/markdown", ArtifactKind::Markdown),
    ("text/x-diff", ArtifactKind::Diff),
    ("text/x-patch", ArtifactKind::Diff),
    ("text/x-log", ArtifactKind::Log),
    ("application/json", ArtifactKind::Json),
    ("text/csv", ArtifactKind::Csv),
    ("text/html", ArtifactKind::Page("text/html; charset=utf-8")),
    ("application/xhtml+xml", ArtifactKind::Page("text/html; charset=utf-8")),
    ("image/svg+xml", ArtifactKind::Page("image/svg+xml")),
    ("text/plain", ArtifactKind::Text),
];

impl ArtifactKind {
    /// From the media types that were detected and claimed, and the file's name.
    pub fn of(sniffed: &str, claimed: &str, name: &str) -> Self {
        kind(sniffed, claimed, name)
    }

    /// What people call it.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Markdown => "Markdown",
            Self::Code => "code",
            Self::Diff => "diff",
            Self::Log => "log",
            Self::Json => "JSON",
            Self::Csv => "table",
            Self::Image(_) => "image",
            Self::Audio(_) => "audio",
            Self::Video(_) => "video",
            Self::Pdf => "PDF",
            Self::Page("image/svg+xml") => "SVG image",
            Self::Page(_) => "web page",
            Self::Other => "file",
        }
    }
}

/// The bytes decide between media and text; the claim and the name only between ways to show a text.
fn kind(sniffed: &str, claimed: &str, name: &str) -> ArtifactKind {
    let find = |table: &[(&str, ArtifactKind)], word: &str| {
        table.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind)
    };
    if let Some(kind) = find(MEDIA_KINDS, sniffed) {
        return kind;
    }
    if !sniffed.starts_with("text/") && sniffed != "image/svg+xml" {
        return ArtifactKind::Other;
    }
    let claimed = claimed.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    let by_word = || match claimed.as_str() {
        "markdown" => Some(ArtifactKind::Markdown),
        "diff" => Some(ArtifactKind::Diff),
        "log" => Some(ArtifactKind::Log),
        "json" => Some(ArtifactKind::Json),
        "csv" => Some(ArtifactKind::Csv),
        "html" | "page" => Some(ArtifactKind::Page("text/html; charset=utf-8")),
        "svg" => Some(ArtifactKind::Page("image/svg+xml")),
        "code" => Some(ArtifactKind::Code),
        _ => None,
    };
    find(TEXT_KINDS_BY_TYPE, sniffed)
        .filter(|kind| matches!(kind, ArtifactKind::Page(_)))
        .or_else(|| find(TEXT_KINDS_BY_ENDING, &ending))
        .or_else(by_word)
        .or_else(|| find(TEXT_KINDS_BY_TYPE, &claimed))
        .unwrap_or(if ending.is_empty() { ArtifactKind::Text } else { ArtifactKind::Code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_decide_what_runs_in_a_browser() {
        assert_eq!(kind("image/png", "text/html", "x.html"), ArtifactKind::Image("image/png"));
        assert_eq!(kind("text/html", "image/png", "x.png"), ArtifactKind::Page("text/html; charset=utf-8"));
        assert_eq!(kind("text/plain", "", "a.svg"), ArtifactKind::Page("image/svg+xml"));
        assert_eq!(kind("image/svg+xml", "", "a.svg"), ArtifactKind::Page("image/svg+xml"));
        assert_eq!(kind("application/x-executable", "text/plain", "a.txt"), ArtifactKind::Other);
        assert_eq!(kind("", "image/png", "a.png"), ArtifactKind::Other);
        assert_eq!(kind("text/plain", "text/markdown", "notes"), ArtifactKind::Markdown);
        assert_eq!(kind("text/plain", "", "main.rs"), ArtifactKind::Code);
        assert_eq!(kind("text/plain", "text/html\r\nSet-Cookie: x", "notes"), ArtifactKind::Text);
    }

    #[test]
    fn a_file_is_known_by_its_name_and_by_where_it_lies() {
        let artifact = |name: &str, reference: &str| Artifact {
            id: ArtifactId::new(1),
            viber_id: ViberId::new(1),
            session_id: SessionId::new(1),
            task_id: None,
            attempt: None,
            name: name.to_owned(),
            title: String::new(),
            claimed: String::new(),
            sniffed: String::new(),
            reference: reference.to_owned(),
            size: None,
            sha256: None,
            origin: ArtifactOrigin::Agent,
            created_by: String::new(),
            created_at: Instant(1),
            gone_at: None,
            stored_at: None,
            contact: Contact { state: ContactState::Connected, since: Instant(1) },
        };
        let notes = artifact("The notes", "workspace/docs/notes.md");
        for path in ["notes.md", "docs/notes.md", "workspace/docs/notes.md", "The notes"] {
            assert!(notes.is_file(path), "{path}");
        }
        for path in ["other/notes.md", "es.md", "s/notes.md", "docs", "notes", "docs/notes.md/"] {
            assert!(!notes.is_file(path), "{path}");
        }
        assert!(artifact("docs/notes.md", "artifacts/task_1/1").is_file("docs/notes.md"));
        let titled = Artifact { title: "tests.md".to_owned(), ..artifact("f-tests", "artifacts/task_1/f-tests.md") };
        assert!(titled.is_file("tests.md") && titled.is_file("f-tests.md") && !titled.is_file("ests.md"));
        let table = artifact("b.csv", "artifacts/task_1/b.csv");
        assert!(table.is_file("docs/b.csv") && !table.is_file("docs/a.csv"), "nothing says where it was");
        let elsewhere = artifact("drafts/b.csv", "artifacts/task_1/drafts/b.csv");
        assert!(elsewhere.is_file("b.csv") && !elsewhere.is_file("docs/b.csv"));
        let from = Artifact { title: "docs/b.csv".to_owned(), ..artifact("t1", "artifacts/task_1/t1.csv") };
        assert!(from.is_file("docs/b.csv") && from.is_file("b.csv") && !from.is_file("other/b.csv"));
        assert!(!artifact("notes.md", "https://example.org/notes.md").is_file("notes.md"), "an address is no file");
    }

    #[test]
    fn a_file_name_is_one_visible_part() {
        assert_eq!(file_name("../../etc/passwd").as_deref(), Some("passwd"));
        assert_eq!(file_name("C:\\x\\re\u{202e}port.pdf").as_deref(), Some("report.pdf"));
        assert_eq!(file_name("a\r\nSet-Cookie: x\".html").as_deref(), Some("a Set-Cookie x.html"));
        assert_eq!(file_name(".bashrc").as_deref(), Some("bashrc"));
        for bad in ["", "..", "/", "\u{202e}", "\"\"", " . "] {
            assert_eq!(file_name(bad), None, "{bad:?}");
        }
        let long = file_name(&format!("{}.csv", "x".repeat(10_000))).expect("a name");
        assert!(long.chars().count() == MAX_FILE_NAME_CHARS && long.ends_with("x.csv"), "{long}");
    }
}
