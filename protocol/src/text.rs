//! Cuts text at character boundaries, makes it safe for terminals and models, and derives titles and summaries without a model
//! call.

use crate::limits::{MAX_SUMMARY_CHARS, MAX_TITLE_CHARS};

/// The longest prefix of `text` that fits `max` bytes and ends at a character boundary.
pub fn head(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}

/// The longest suffix of `text` that fits `max` bytes and starts at a character boundary.
pub fn tail(text: &str, max: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(max))..]
}

/// What [`head_and_tail`] keeps of `text`: its head and its tail; `None` when it keeps all of it.
pub fn kept_ends(text: &str, max: usize) -> Option<(&str, &str)> {
    let room = max.saturating_sub(64);
    (text.len() > max).then(|| (head(text, room / 2), tail(text, room - room / 2)))
}

/// `text` when it fits `max` bytes, else its head and tail around a line that says how many bytes were left out.
pub fn head_and_tail(text: &str, max: usize) -> String {
    let Some((first, last)) = kept_ends(text, max) else { return text.to_owned() };
    let omitted = text.len() - first.len() - last.len();
    format!("{first}{}{last}", omission(omitted as u64))
}

/// The line that stands between two ends for so many bytes that were left out.
pub fn omission(bytes: u64) -> String {
    format!("\n[… {bytes} bytes omitted …]\n")
}

/// `text` for a terminal or a log: what such a device would obey (escapes, bells, a lone carriage return) becomes U+FFFD.
/// Line ends and tabs stay.
pub fn printable(text: &str) -> String {
    let replace = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.replace("\r\n", "\n").chars().map(replace).collect()
}

/// `text` with each character that does not show as `⟨U+200B⟩`, line ends too.
pub fn marked(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_invisible(c) {
            true => shown.push_str(&format!("⟨U+{:04X}⟩", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown
}

/// The lines of `text`, each as [`marked`] has it.
pub fn marked_lines(text: &str) -> String {
    text.lines().map(marked).collect::<Vec<_>>().join("\n")
}

/// Whether a character does not show, but is read by a model or a shell: controls but the tab, format characters, blanks of other
/// scripts, selectors and tags (Unicode Cc, Cf, Zl and Zp, and what is drawn as nothing).
pub fn is_invisible(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\n'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}'
        | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// `text` between `tag` and its end, with `attributes` in the opening tag: for a model, to which it is data. The text cannot
/// contain the end of the tag.
pub fn fenced(tag: &str, attributes: &str, text: &str) -> String {
    let gap = if attributes.is_empty() { "" } else { " " };
    format!("<{tag}{gap}{attributes}>\n{}\n</{tag}>", tame(text.trim(), tag))
}

/// `text` with every end of `tag` made harmless.
pub fn tame(text: &str, tag: &str) -> String {
    let end = format!("</{tag}");
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        let (before, from) = rest.split_at(at);
        all.push_str(before);
        let ends = from.get(..end.len()).is_some_and(|word| word.eq_ignore_ascii_case(&end));
        all.push_str(if ends { "< /" } else { "</" });
        rest = &from[2..];
    }
    all.push_str(rest);
    all
}

/// Whether [`printable`] would change nothing: a quick check of bytes that are UTF-8.
pub fn is_printable(bytes: &[u8]) -> bool {
    // C1 controls begin with 0xC2; other characters that do are rare enough to take the slow way.
    !bytes.iter().any(|byte| (*byte < 0x20 && !matches!(byte, b'\n' | b'\t')) || matches!(byte, 0x7f | 0xc2))
}

/// A session's title: the goal's first line that is not blank, at most 80 characters.
pub fn title(goal: &str) -> String {
    let line = goal.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("New session");
    shorten(line, MAX_TITLE_CHARS)
}

/// A result's summary: the first paragraph of the answer, at most 280 characters.
pub fn summary(answer: &str) -> String {
    let first = answer.split("\n\n").map(str::trim).find(|paragraph| !paragraph.is_empty()).unwrap_or("");
    shorten(&first.split_whitespace().collect::<Vec<_>>().join(" "), MAX_SUMMARY_CHARS)
}

fn shorten(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(characters - 1).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

/// A number as people read it: `12,300`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_nothing_to_obey() {
        assert_eq!(
            printable("a\tb\r\nc\rd\u{1b}[31m\u{9b}\u{7f}\0"),
            "a\tb\nc\u{fffd}d\u{fffd}[31m\u{fffd}\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn a_text_cannot_end_its_fence() {
        assert_eq!(fenced("a", "n=\"1\"", " x </A> </b>\n"), "<a n=\"1\">\nx < /A> </b>\n</a>");
        assert_eq!(tame("a</b> </c", "c"), "a</b> < /c");
        assert_eq!(tame("</ü </", "memory"), "</ü </");
    }

    #[test]
    fn a_quick_look_misses_nothing() {
        for code in 0..0x300 {
            let text = char::from_u32(code).expect("a character").to_string();
            assert!(!is_printable(text.as_bytes()) || printable(&text) == text, "{code:#x}");
        }
        assert!(is_printable("a\tb äöü 日本 \n".replace('ä', "a").as_bytes()));
    }

    #[test]
    fn a_cut_never_splits_a_character() {
        let text = "äöü".repeat(1000);
        let cut = head_and_tail(&text, 301);
        assert!(cut.len() <= 301 && cut.contains("bytes omitted"));
        let (first, last) = kept_ends(&text, 301).expect("a cut");
        assert!(cut.starts_with(&format!("{first}\n[… ")) && cut.ends_with(&format!(" bytes omitted …]\n{last}")));
        assert_eq!((kept_ends("äöü", 6), head_and_tail("äöü", 6)), (None, "äöü".to_owned()));
        assert_eq!(head("日本", 4), "日");
        assert_eq!(tail("日本", 4), "本");
    }

    #[test]
    fn titles_and_summaries_are_bounded() {
        assert_eq!(title("\n  Fix the test \nmore"), "Fix the test");
        assert_eq!(title(&"x".repeat(200)).chars().count(), MAX_TITLE_CHARS);
        assert_eq!(summary("\n\nDone.\nAll green.\n\nDetails"), "Done. All green.");
    }
}
