//! The beginning of a text as a card shows it: a few short lines, or the first rows of a table.

use super::{super::escape, ansi};
use crate::domain::ArtifactKind;

/// Bytes of a text that are read for a card.
pub const MAX_GLIMPSE_BYTES: u64 = 4 * 1024;
/// Lines of a text, and characters of each.
const MAX_LINES: usize = 8;
const MAX_LINE_CHARS: usize = 120;
/// Rows and columns of a table, and characters of a cell.
const MAX_ROWS: usize = 6;
const MAX_COLUMNS: usize = 6;
const MAX_CELL_CHARS: usize = 32;

/// The beginning of a text of this kind as HTML; `None` when there is nothing to see.
pub fn glimpse(kind: ArtifactKind, text: &str, name: &str) -> Option<String> {
    let lines: String = text.lines().take(MAX_LINES).map(|line| short(line, MAX_LINE_CHARS) + "\n").collect();
    if lines.trim().is_empty() {
        return None;
    }
    Some(match kind {
        ArtifactKind::Csv => table(text, name).unwrap_or_else(|| format!("<pre>{}</pre>", escape(&lines))),
        ArtifactKind::Log => format!("<pre><samp>{}</samp></pre>", ansi::html(&lines)),
        _ => format!("<pre>{}</pre>", escape(&lines)),
    })
}

fn table(text: &str, name: &str) -> Option<String> {
    // A row in which the text breaks off would be shown as if it were whole.
    let whole = if text.ends_with('\n') { text } else { text.rsplit_once('\n').map_or(text, |(whole, _)| whole) };
    let delimiter = if name.ends_with(".tsv") { b'\t' } else { b',' };
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).delimiter(delimiter).from_reader(whole.as_bytes());
    let mut html = String::from("<table>");
    for (row, record) in reader.records().take(MAX_ROWS).enumerate() {
        let record = record.ok()?;
        let (open, close) = if row == 0 { ("<th scope=\"col\">", "</th>") } else { ("<td>", "</td>") };
        html.push_str("<tr>");
        for cell in record.iter().take(MAX_COLUMNS) {
            html.push_str(&format!("{open}{}{close}", escape(&short(cell, MAX_CELL_CHARS))));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table>");
    Some(html)
}

fn short(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_shows_the_beginning_and_no_markup() {
        let text = format!("<b>{}\n{}", "x".repeat(500), "line\n".repeat(50));
        let html = glimpse(ArtifactKind::Text, &text, "a.txt").expect("lines");
        assert!(html.starts_with("<pre>&lt;b&gt;xxx") && html.contains('…'), "{html}");
        assert_eq!(html.matches('\n').count(), MAX_LINES);
        assert_eq!(glimpse(ArtifactKind::Text, " \n\n", "a.txt"), None);
    }

    #[test]
    fn a_table_has_its_first_whole_rows() {
        let html = glimpse(ArtifactKind::Csv, "name,<i>\na,1\nb,2\nc,", "x.csv").expect("a table");
        assert!(html.contains("<th scope=\"col\">&lt;i&gt;</th>") && html.contains("<td>2</td>"), "{html}");
        assert!(!html.contains("<td>c</td>"), "{html}");
        let wide = glimpse(ArtifactKind::Csv, &"a,b,c,d,e,f,g,h\n".repeat(40), "x.csv").expect("a table");
        assert_eq!((wide.matches("<tr>").count(), wide.contains(">g<")), (MAX_ROWS, false));
    }
}
