//! Footnotes of a complete text as links: from where a note is named to the note, and back.
//!
//! A rendered text is shared by all who show it, so that the ids, which say whose text it is, come afterwards. While a text
//! is written its notes are only raised: a name comes before its note, and stands in a piece that is finished.

use std::{collections::HashSet, sync::Arc};

use super::rewrite::NOTE_TAG;

/// Where a note is named.
const MARK_TAG: &str = "<sup>";
/// Longer names are raised and not linked.
const MAX_NAME_BYTES: usize = 32;

/// The name of a note in HTML, where it is named or where it stands.
struct RaisedName<'h> {
    is_note: bool,
    /// Where its element begins and ends.
    at: usize,
    end: usize,
    name: &'h str,
}

/// `html` as it was rendered, with its footnotes linked. `place`: the seq of the message that shows it and the place of the
/// text in it, with which the ids begin (`m-{seq}-{place}-`).
pub fn linked(html: Arc<str>, (seq, place): (u64, usize)) -> Arc<str> {
    if !html.contains(NOTE_TAG) {
        return html;
    }
    let raised = raised_names(&html);
    let slugs = |is_note: bool| -> HashSet<String> {
        raised.iter().filter(|one| one.is_note == is_note).map(|one| one.name.to_ascii_lowercase()).collect()
    };
    let (notes, marks) = (slugs(true), slugs(false));
    // What takes the place of which bytes.
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    let mut seen = HashSet::new();
    for one in &raised {
        let slug = one.name.to_ascii_lowercase();
        let (note, mark) = (format!("m-{seq}-{place}-note-{slug}"), format!("m-{seq}-{place}-mark-{slug}"));
        let is_first = seen.insert((one.is_note, slug.clone()));
        let name = one.name;
        if one.is_note && is_first {
            edits.push((one.at, one.end, format!(r#"<sup class="note" id="{note}">{name}</sup>"#)));
            if let Some(end) = html[one.end..].find("</p>").map(|end| one.end + end).filter(|_| marks.contains(&slug)) {
                let back = format!(r##" <a class="note-back" href="#{mark}" aria-label="Back to the text">↩</a>"##);
                edits.push((end, end, back));
            }
        } else if !one.is_note && notes.contains(&slug) {
            let id = if is_first { format!(r#" id="{mark}""#) } else { String::new() };
            let link = format!(r##"<sup{id}><a href="#{note}" aria-label="Note {name}">{name}</a></sup>"##);
            edits.push((one.at, one.end, link));
        }
    }
    edits.sort_by_key(|(at, ..)| *at);
    let mut linked = String::with_capacity(html.len() + edits.iter().map(|(.., text)| text.len()).sum::<usize>());
    let mut shown = 0;
    for (at, end, text) in edits {
        linked.push_str(&html[shown..at]);
        linked.push_str(&text);
        shown = end;
    }
    linked.push_str(&html[shown..]);
    linked.into()
}

/// The names that can be linked, in order. What is in a link stays as it is.
fn raised_names(html: &str) -> Vec<RaisedName<'_>> {
    let mut found = Vec::new();
    let mut in_link = false;
    // In sanitised HTML such a character begins a tag.
    for (at, _) in html.match_indices('<') {
        let rest = &html[at..];
        in_link = rest.starts_with("<a ") || in_link && !rest.starts_with("</a>");
        let is_note = rest.starts_with(NOTE_TAG);
        if in_link || !is_note && !rest.starts_with(MARK_TAG) {
            continue;
        }
        let inside = &rest[if is_note { NOTE_TAG.len() } else { MARK_TAG.len() }..];
        let Some((name, _)) = inside.split_once("</sup>").filter(|(name, _)| is_linkable(name)) else { continue };
        let end = html.len() - inside.len() + name.len() + "</sup>".len();
        found.push(RaisedName { is_note, at, end, name });
    }
    found
}

/// Whether a name can be part of an id as it is.
fn is_linkable(name: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::markdown::{TextAuthor, render};

    fn agent(source: &str, place: (u64, usize)) -> String {
        linked(render(source, TextAuthor::Agent), place).to_string()
    }

    #[test]
    fn a_name_leads_to_its_note_and_the_note_back() {
        let html = agent("Fast[^1], and[^1] safe[^Why].\n\n[^1]: Measured *twice*[^why].\n[^why]: See.\n", (7, 2));
        let expected = "<p>Fast<sup id=\"m-7-2-mark-1\"><a href=\"#m-7-2-note-1\" aria-label=\"Note 1\">1</a></sup>, \
            and<sup><a href=\"#m-7-2-note-1\" aria-label=\"Note 1\">1</a></sup> \
            safe<sup id=\"m-7-2-mark-why\"><a href=\"#m-7-2-note-why\" aria-label=\"Note why\">why</a></sup>.</p>\n\
            <p><sup class=\"note\" id=\"m-7-2-note-1\">1</sup> Measured <em>twice</em><sup>\
            <a href=\"#m-7-2-note-why\" aria-label=\"Note why\">why</a></sup>. \
            <a class=\"note-back\" href=\"#m-7-2-mark-1\" aria-label=\"Back to the text\">↩</a></p>\n\
            <p><sup class=\"note\" id=\"m-7-2-note-why\">why</sup> See. \
            <a class=\"note-back\" href=\"#m-7-2-mark-why\" aria-label=\"Back to the text\">↩</a></p>\n";
        assert_eq!(html, expected);
        // Elsewhere the same text has other ids.
        let other = agent("Fast[^1].\n\n[^1]: Measured.\n", (8, 2));
        assert!(other.contains("id=\"m-8-2-note-1\"") && other.contains("href=\"#m-8-2-mark-1\""), "{other}");
    }

    #[test]
    fn nothing_leads_nowhere_and_no_id_is_there_twice() {
        // No note, no name, a name in a link, the same note twice.
        assert_eq!(agent("Fast[^1].\n", (1, 0)), "<p>Fast<sup>1</sup>.</p>\n");
        assert_eq!(
            agent("Fast.\n\n[^1]: Measured.\n", (1, 0)),
            "<p>Fast.</p>\n<p><sup class=\"note\" id=\"m-1-0-note-1\">1</sup> Measured.</p>\n"
        );
        let inside = agent("[so[^1] fast](https://e.example)[^1]\n\n[^1]: a\n\n[^1]: b\n", (1, 0));
        assert_eq!(inside.matches("<a ").count(), 3, "{inside}");
        assert!(!inside.contains("<a href=\"https://e.example\" rel=\"noopener nofollow ugc\">so<sup id"), "{inside}");
        for part in ["id=\"m-1-0-note-1\"", "id=\"m-1-0-mark-1\""] {
            assert_eq!(inside.matches(part).count(), 1, "{inside}");
        }
        // Names that could be more than names are raised alone.
        for name in ["a\"onclick=pwn(1)", "<b>", "&quot;", "ä", "a/b", &"x".repeat(40)] {
            let html = agent(&format!("Fast[^{name}].\n\n[^{name}]: Measured.\n"), (1, 0));
            assert!(!html.contains(" id=") && !html.contains("<a "), "{name}: {html}");
        }
    }
}
