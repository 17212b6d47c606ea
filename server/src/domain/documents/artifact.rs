//! Artifacts: what tasks produced and operators attached, where their bytes are, and how they may be shown.

use protocol::{ArtifactId, Instant, SessionId, TaskId, ViberId};

use crate::domain::{Contact, ContactState, name};

/// Longest name of a file that is kept, characters.
const MAX_FILE_NAME: usize = 120;
/// Of a longer one nothing is looked at, characters.
const MAX_WORDS: usize = 16 * 1024;

crate::words! {
    /// Who brought it.
    Origin as ArtifactOrigin {
        /// By a tool or in an answer.
        Agent = "agent",
        /// It appeared in the task's folder.
        File = "file",
        Operator = "operator",
    }
}

crate::words! {
    /// Where the bytes are.
    Place as ArtifactState {
        /// Only on the machine, which is connected.
        Viber = "viber",
        /// In the Board's store.
        Stored = "stored",
        /// Only on the machine, which is away.
        Offline = "offline",
        /// Nowhere any more.
        Gone = "gone",
        /// It has none here: an address that is only shown.
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
    /// The agent's id of it, or the file's name: versions share it.
    pub name: String,
    pub title: String,
    /// The type that was said.
    pub claimed: String,
    /// The type that the bytes look like.
    pub sniffed: String,
    /// A path beneath the viber's home, or an address.
    pub reference: String,
    pub size: Option<u64>,
    pub sha256: Option<String>,
    pub origin: Origin,
    pub created_by: String,
    pub created_at: Instant,
    pub gone_at: Option<Instant>,
    /// Since when the store has its bytes.
    pub stored_at: Option<Instant>,
    /// Of its viber.
    pub contact: Contact,
}

impl Artifact {
    /// Where its bytes are, and since when it is so.
    pub fn place(&self) -> (Place, Instant) {
        if self.is_link() {
            return (Place::Link, self.created_at);
        }
        match (self.stored_at, self.gone_at, self.contact.state) {
            (Some(at), ..) => (Place::Stored, at),
            (None, Some(at), _) => (Place::Gone, at),
            (None, None, ContactState::Connected) => (Place::Viber, self.created_at),
            (None, None, ContactState::Disconnected | ContactState::Unheard) => (Place::Offline, self.contact.since),
        }
    }

    /// Whether it only points somewhere: nothing of it is ever fetched.
    pub fn is_link(&self) -> bool {
        !self.reference.starts_with("artifacts/")
            && !self.reference.starts_with("workspace/")
            && self.origin != Origin::Operator
    }

    /// Whether a text of its session means it by this path: the whole reference, a path that ends like it, or its name.
    pub fn is_at(&self, path: &str) -> bool {
        let path = path.trim_start_matches("~/.openviber/").trim_start_matches("./").trim_start_matches("../");
        let last = path.rsplit('/').next().unwrap_or(path);
        let name = self.reference.rsplit('/').next().unwrap_or("");
        !self.is_link() && !path.contains(':') && (self.reference == path || name == last || self.name == last)
    }

    /// The name that a download gets: one visible part of a path.
    pub fn file_name(&self) -> String {
        let last = if self.is_link() { "" } else { self.reference.rsplit('/').next().unwrap_or("") };
        file_name(if self.origin == Origin::Operator { &self.name } else { last })
            .or_else(|| file_name(&self.name))
            .unwrap_or_else(|| "artifact".to_owned())
    }

    /// How it may be shown.
    pub fn kind(&self) -> Kind {
        kind(&self.sniffed, &self.claimed, &self.file_name())
    }
}

/// `text` as the name of a file: what hides, turns or leads elsewhere is left out. `None` when nothing is left.
pub fn file_name(text: &str) -> Option<String> {
    let last = text.rsplit(['/', '\\']).next().unwrap_or(text);
    let kept: String = last.chars().filter(|c| !matches!(c, '"' | '<' | '>' | '|' | ':' | '*' | '?')).collect();
    let clean = name::clean(&kept, MAX_WORDS)?;
    let clean = clean.trim_start_matches('.').trim();
    // The end says what it is: it is kept.
    let (stem, ending) = match clean.rsplit_once('.') {
        Some((stem, ending)) if ending.chars().count() <= 12 && !stem.is_empty() => (stem, format!(".{ending}")),
        _ => (clean, String::new()),
    };
    let stem: String = stem.chars().take(MAX_FILE_NAME - ending.chars().count()).collect();
    let name = format!("{}{ending}", stem.trim_end());
    (!name.is_empty()).then_some(name)
}

/// How something may be shown. Everything else is only downloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Markdown,
    Code,
    Diff,
    /// Lines with ANSI colours.
    Log,
    Json,
    Csv,
    /// The type that it is answered with: only types that run nothing.
    Image(&'static str),
    Audio(&'static str),
    Video(&'static str),
    Pdf,
    /// HTML or SVG: in a sandbox without scripts and without an origin.
    Page(&'static str),
    Other,
}

/// Types that a browser shows without running anything, by what the bytes look like.
const MEDIA: &[(&str, Kind)] = &[
    ("image/png", Kind::Image("image/png")),
    ("image/jpeg", Kind::Image("image/jpeg")),
    ("image/gif", Kind::Image("image/gif")),
    ("image/webp", Kind::Image("image/webp")),
    ("image/avif", Kind::Image("image/avif")),
    ("image/bmp", Kind::Image("image/bmp")),
    ("audio/mpeg", Kind::Audio("audio/mpeg")),
    ("audio/ogg", Kind::Audio("audio/ogg")),
    ("audio/x-wav", Kind::Audio("audio/wav")),
    ("audio/wav", Kind::Audio("audio/wav")),
    ("audio/x-flac", Kind::Audio("audio/flac")),
    ("audio/m4a", Kind::Audio("audio/mp4")),
    ("video/mp4", Kind::Video("video/mp4")),
    ("video/webm", Kind::Video("video/webm")),
    ("application/pdf", Kind::Pdf),
];

/// Endings of texts, beside those that say code.
const TEXTS: &[(&str, Kind)] = &[
    ("md", Kind::Markdown),
    ("markdown", Kind::Markdown),
    ("diff", Kind::Diff),
    ("patch", Kind::Diff),
    ("log", Kind::Log),
    ("ansi", Kind::Log),
    ("json", Kind::Json),
    ("csv", Kind::Csv),
    ("tsv", Kind::Csv),
    ("html", Kind::Page("text/html; charset=utf-8")),
    ("htm", Kind::Page("text/html; charset=utf-8")),
    ("xhtml", Kind::Page("text/html; charset=utf-8")),
    ("svg", Kind::Page("image/svg+xml")),
    ("txt", Kind::Text),
    ("text", Kind::Text),
];

/// Types of texts, as they are claimed.
const CLAIMED: &[(&str, Kind)] = &[
    ("text/markdown", Kind::Markdown),
    ("text/x-diff", Kind::Diff),
    ("text/x-patch", Kind::Diff),
    ("text/x-log", Kind::Log),
    ("application/json", Kind::Json),
    ("text/csv", Kind::Csv),
    ("text/html", Kind::Page("text/html; charset=utf-8")),
    ("application/xhtml+xml", Kind::Page("text/html; charset=utf-8")),
    ("image/svg+xml", Kind::Page("image/svg+xml")),
    ("text/plain", Kind::Text),
];

/// The bytes decide between media and text; the claim and the name only between ways to show a text.
fn kind(sniffed: &str, claimed: &str, name: &str) -> Kind {
    let find =
        |table: &[(&str, Kind)], word: &str| table.iter().find(|(known, _)| *known == word).map(|(_, kind)| *kind);
    if let Some(kind) = find(MEDIA, sniffed) {
        return kind;
    }
    if !sniffed.starts_with("text/") && sniffed != "image/svg+xml" {
        return Kind::Other;
    }
    let claimed = claimed.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    let by_word = || match claimed.as_str() {
        "markdown" => Some(Kind::Markdown),
        "diff" => Some(Kind::Diff),
        "log" => Some(Kind::Log),
        "json" => Some(Kind::Json),
        "csv" => Some(Kind::Csv),
        "html" | "page" => Some(Kind::Page("text/html; charset=utf-8")),
        "svg" => Some(Kind::Page("image/svg+xml")),
        "code" => Some(Kind::Code),
        _ => None,
    };
    find(CLAIMED, sniffed)
        .filter(|kind| matches!(kind, Kind::Page(_)))
        .or_else(|| find(TEXTS, &ending))
        .or_else(by_word)
        .or_else(|| find(CLAIMED, &claimed))
        .unwrap_or(if ending.is_empty() { Kind::Text } else { Kind::Code })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_decide_what_runs_in_a_browser() {
        assert_eq!(kind("image/png", "text/html", "x.html"), Kind::Image("image/png"));
        assert_eq!(kind("text/html", "image/png", "x.png"), Kind::Page("text/html; charset=utf-8"));
        assert_eq!(kind("text/plain", "", "a.svg"), Kind::Page("image/svg+xml"));
        assert_eq!(kind("image/svg+xml", "", "a.svg"), Kind::Page("image/svg+xml"));
        assert_eq!(kind("application/x-executable", "text/plain", "a.txt"), Kind::Other);
        assert_eq!(kind("", "image/png", "a.png"), Kind::Other);
        assert_eq!(kind("text/plain", "text/markdown", "notes"), Kind::Markdown);
        assert_eq!(kind("text/plain", "", "main.rs"), Kind::Code);
        assert_eq!(kind("text/plain", "text/html\r\nSet-Cookie: x", "notes"), Kind::Text);
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
        assert!(long.chars().count() == MAX_FILE_NAME && long.ends_with("x.csv"), "{long}");
    }
}
