//! An artifact's text as safe HTML, by its kind, cut to what a page can carry.

mod glimpse;
pub mod picture;

use similar::{ChangeTag, TextDiff};

use super::ansi;
use crate::{
    domain::ArtifactKind,
    web::markdown::{self, TextAuthor},
};

pub use glimpse::{MAX_GLIMPSE_BYTES, glimpse};

/// Bytes of a text that are read for a page.
pub const MAX_PREVIEW_BYTES: u64 = 256 * 1024;
/// Rows and columns of a table on a page.
const MAX_TABLE_ROWS: usize = 500;
const MAX_TABLE_COLUMNS: usize = 60;
/// Unchanged lines around a change.
const CONTEXT_LINES: usize = 3;

/// A text of this kind as HTML. `name` tells the language of code.
pub fn text(kind: ArtifactKind, text: &str, name: &str) -> String {
    match kind {
        ArtifactKind::Markdown => format!("<div class=\"prose\">{}</div>", markdown::render(text, TextAuthor::Agent)),
        ArtifactKind::Json => code(&pretty(text), "json"),
        ArtifactKind::Diff => diff(text),
        ArtifactKind::Code => code(text, language(name)),
        ArtifactKind::Csv => table(text, name).unwrap_or_else(|| plain(text)),
        ArtifactKind::Log => {
            format!("<pre class=\"preview-text\" tabindex=\"0\"><samp>{}</samp></pre>", ansi::html(text))
        }
        _ => plain(text),
    }
}

/// What changed from one text to another, line by line; `None` when nothing did.
pub fn difference(old: &str, new: &str) -> Option<String> {
    let changes = TextDiff::from_lines(old, new);
    let mut html = String::new();
    for (n, group) in changes.grouped_ops(CONTEXT_LINES).iter().enumerate() {
        if n > 0 {
            html.push_str("<span class=\"diff-gap\">⋯\n</span>");
        }
        for change in group.iter().flat_map(|op| changes.iter_changes(op)) {
            let (class, sign) = match change.tag() {
                ChangeTag::Delete => ("del", '-'),
                ChangeTag::Insert => ("add", '+'),
                ChangeTag::Equal => ("same", ' '),
            };
            line(&mut html, class, sign, change.value());
        }
    }
    (!html.is_empty()).then(|| format!("<pre class=\"diff\" tabindex=\"0\">{html}</pre>"))
}

fn line(html: &mut String, class: &str, sign: char, text: &str) {
    let text = super::escape(text.trim_end_matches(['\n', '\r']));
    html.push_str(&format!("<span class=\"{class}\">{sign}{text}\n</span>"));
}

/// A patch that somebody wrote.
fn diff(text: &str) -> String {
    let mut html = String::new();
    for whole in text.lines() {
        let (class, sign, rest) = match whole.chars().next() {
            _ if whole.starts_with("+++") || whole.starts_with("---") => ("diff-gap", ' ', whole),
            Some('+') => ("add", '+', &whole[1..]),
            Some('-') => ("del", '-', &whole[1..]),
            Some('@') => ("diff-gap", ' ', whole),
            Some(' ') => ("same", ' ', &whole[1..]),
            _ => ("same", ' ', whole),
        };
        line(&mut html, class, sign, rest);
    }
    format!("<pre class=\"diff\" tabindex=\"0\">{html}</pre>")
}

fn plain(text: &str) -> String {
    format!("<pre class=\"preview-text\" tabindex=\"0\"><code>{}</code></pre>", super::escape(text))
}

/// Highlighted as a block of Markdown is: one way to do it.
fn code(text: &str, language: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!(
        "<div class=\"prose\">{}</div>",
        markdown::render(&format!("{fence}{language}\n{text}\n{fence}\n"), TextAuthor::Agent)
    )
}

fn pretty(text: &str) -> String {
    let read = serde_json::from_str::<serde_json::Value>(text);
    read.and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| text.to_owned())
}

/// The ending, when it can be the name of a language.
fn language(name: &str) -> &str {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    if ending.len() <= 12 && ending.bytes().all(|byte| byte.is_ascii_alphanumeric()) { ending } else { "" }
}

/// Rows with the first one as the head; `None` when the text is not a table.
fn table(text: &str, name: &str) -> Option<String> {
    let delimiter = if name.ends_with(".tsv") { b'\t' } else { b',' };
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(text.as_bytes());
    let mut html = String::from("<div class=\"preview-table\" tabindex=\"0\"><table>");
    let (mut rows, mut more) = (0, false);
    for record in reader.records() {
        let record = record.ok()?;
        if rows == MAX_TABLE_ROWS {
            more = true;
            break;
        }
        let (open, close) = if rows == 0 { ("<th scope=\"col\">", "</th>") } else { ("<td>", "</td>") };
        html.push_str("<tr>");
        for cell in record.iter().take(MAX_TABLE_COLUMNS) {
            html.push_str(&format!("{open}{}{close}", super::escape(cell)));
        }
        if record.len() > MAX_TABLE_COLUMNS {
            html.push_str(&format!("{open}…{close}"));
        }
        html.push_str("</tr>");
        rows += 1;
    }
    html.push_str("</table></div>");
    if more {
        html.push_str(&format!("<p class=\"meta\">The first {MAX_TABLE_ROWS} rows; the download has all of them.</p>"));
    }
    (rows > 0).then_some(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_becomes_markup() {
        let evil = "<script>alert(1)</script>,\"<img src=x onerror=y>\"\n</samp></code></pre><b>x\n```\n+<i>\n-<u>\n";
        let kinds = [
            ArtifactKind::Text,
            ArtifactKind::Markdown,
            ArtifactKind::Code,
            ArtifactKind::Diff,
            ArtifactKind::Log,
            ArtifactKind::Json,
            ArtifactKind::Csv,
        ];
        for kind in kinds {
            let html = text(kind, evil, "x.csv");
            for tag in ["<script", "<img", "<b>", "<i>", "<u>"] {
                assert!(!html.contains(tag), "{kind:?}: {html}");
            }
        }
        let html = difference("<b>a</b>\n", "<i>b</i>\n").expect("a change");
        assert!(html.contains("&lt;") && !html.contains("<b>") && !html.contains("<i>"), "{html}");
        assert_eq!(difference("same\n", "same\n"), None);
    }

    #[test]
    fn a_table_has_a_head_and_an_end() {
        let rows: String = (0..600).map(|n| format!("{n},b\n")).collect();
        let html = text(ArtifactKind::Csv, &format!("name,value\n{rows}"), "x.csv");
        assert!(html.contains("<th scope=\"col\">name</th>") && html.contains("<td>498</td>"), "{html}");
        assert!(!html.contains("<td>500</td>") && html.contains("first 500 rows"));
    }
}
