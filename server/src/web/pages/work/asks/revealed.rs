//! A text that a person decides about, with everything in it that does not show, or looks like something else, made visible.
//!
//! Nothing is left out: what has no picture stands there as its code point, and long emptiness as its length.

use std::{fmt::Write, iter};

use crate::web::view::escape;

/// Spaces in a row that are shown as they are; more of them could push what follows out of sight.
const MAX_SHOWN_SPACES: usize = 40;
/// Empty lines in a row that are shown as they are.
const MAX_SHOWN_EMPTY_LINES: usize = 3;
/// Longest name of a language of code, bytes.
const MAX_LANGUAGE_BYTES: usize = 20;
/// Letters outside of Latin that are of one shape with a Latin one stand in these ranges, and mixed with it in a word they are
/// a disguise: Greek and Cyrillic with what extends them, Armenian, Cherokee, letters as signs, full width, mathematical letters.
const LOOKALIKE_RANGES: &[(u32, u32)] = &[
    (0x0250, 0x02AF),
    (0x0370, 0x052F),
    (0x0531, 0x0587),
    (0x13A0, 0x13FF),
    (0x1D00, 0x1DBF),
    (0x1F00, 0x1FFF),
    (0x2100, 0x218F),
    (0x2C60, 0x2C7F),
    (0xA640, 0xA69F),
    (0xAB30, 0xABBF),
    (0xFF10, 0xFF5A),
    (0x1D400, 0x1D7FF),
];

/// The text as HTML for a `pre`.
pub fn revealed(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let run = match first {
            ' ' | '\t' => blank_run(&mut html, rest),
            '\n' => empty_lines(&mut html, rest),
            c if c.is_alphanumeric() && meaning(c).is_none() => word(&mut html, rest),
            c => sign(&mut html, rest, c),
        };
        rest = rest.get(run..).unwrap_or_default();
    }
    html
}

/// Whether something in the text does not show, or looks like something else.
pub fn hides_something(text: &str) -> bool {
    revealed(text).contains(r#"<span class="odd""#)
}

/// Whether some words of a Markdown text do not stand, in their order, in what it is rendered as: comments, addresses and
/// definitions show nothing.
pub fn leaves_out(source: &str, html: &str) -> bool {
    let text = text_of(html);
    let mut shown = words(&text);
    !source.lines().map(content).flat_map(words).all(|word| shown.any(|other| other == word))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// A line without what only says how it is rendered: the number and the box of an item, the language of code.
fn content(line: &str) -> &str {
    let line = line.trim_start_matches([' ', '\t', '>', '-', '*', '+']);
    let unnumbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let line = match unnumbered.strip_prefix(['.', ')']) {
        Some(rest) if unnumbered.len() < line.len() => rest.trim_start(),
        _ => line,
    };
    let line = ["[x] ", "[X] "].iter().find_map(|checked| line.strip_prefix(*checked)).unwrap_or(line);
    let language = ["```", "~~~"].iter().find_map(|fence| line.strip_prefix(*fence));
    match language {
        Some(language) if language.len() <= MAX_LANGUAGE_BYTES && words(language).count() <= 1 => "",
        _ => line,
    }
}

/// What stands between the tags. An attribute may hold `>`.
fn text_of(html: &str) -> String {
    let (mut text, mut in_tag, mut quote) = (String::with_capacity(html.len()), false, None);
    for c in html.chars() {
        match c {
            '<' if !in_tag => {
                in_tag = true;
                text.push(' ');
            }
            c if !in_tag => text.push(c),
            c if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            '>' if quote.is_none() => in_tag = false,
            _ => {}
        }
    }
    text
}

fn blank_run(html: &mut String, text: &str) -> usize {
    let run = text.len() - text.trim_start_matches([' ', '\t']).len();
    let (blank, rest) = text.split_at(run);
    // At the end of a line it hides nothing.
    if run <= MAX_SHOWN_SPACES || rest.starts_with('\n') || rest.is_empty() {
        html.push_str(blank);
    } else {
        odd(html, &format!("{run} spaces"), "A long gap before more text");
    }
    run
}

fn empty_lines(html: &mut String, text: &str) -> usize {
    let (mut end, mut lines) = (1, 0);
    while let Some(next) = text.get(end..) {
        let blank = next.len() - next.trim_start_matches([' ', '\t']).len();
        if next.get(blank..).is_none_or(|next| !next.starts_with('\n')) {
            break;
        }
        (end, lines) = (end + blank + 1, lines + 1);
    }
    html.push('\n');
    if lines <= MAX_SHOWN_EMPTY_LINES {
        html.extend(iter::repeat_n('\n', lines));
    } else {
        odd(html, &format!("{lines} empty lines"), "A long gap before more text");
        html.push('\n');
    }
    end
}

/// A run of letters and digits: when some of them are Latin, lookalikes are not.
fn word(html: &mut String, text: &str) -> usize {
    let is_shown = |c: char| c.is_alphanumeric() && meaning(c).is_none();
    let run = text.len() - text.trim_start_matches(is_shown).len();
    let (word, _) = text.split_at(run);
    let has_latin = word.chars().any(|c| c.is_ascii_alphabetic());
    for c in word.chars() {
        let code = u32::from(c);
        let is_lookalike = LOOKALIKE_RANGES.iter().any(|(first, last)| (*first..=*last).contains(&code));
        if is_lookalike && (has_latin || code >= 0xFF10) {
            point(html, c, "Another letter than it looks like");
            html.push_str(&escape(c.encode_utf8(&mut [0; 4])));
        } else {
            html.push(c);
        }
    }
    run
}

/// A character that is no letter, or a run of the same one that does not show.
fn sign(html: &mut String, text: &str, c: char) -> usize {
    let Some(why) = meaning(c) else {
        html.push_str(&escape(c.encode_utf8(&mut [0; 4])));
        return c.len_utf8();
    };
    let run = text.len() - text.trim_start_matches(c).len();
    match run / c.len_utf8() {
        1 => point(html, c, why),
        n => odd(html, &format!("{n} × U+{:04X}", u32::from(c)), why),
    }
    run
}

/// What is to be said of a character that does not show, or looks like another; `None` for others.
fn meaning(c: char) -> Option<&'static str> {
    Some(match u32::from(c) {
        0x0A => return None,
        0x0D => "Carriage return: what follows may overwrite what stands before it",
        0x1B => "Escape: begins a command to a terminal",
        0x00..=0x1F | 0x7F..=0x9F => "A control character",
        0x202A..=0x202E | 0x2066..=0x2069 | 0x200E | 0x200F | 0x061C => "Turns the direction of writing",
        0x00AD | 0x034F | 0x115F | 0x1160 | 0x17B4 | 0x17B5 | 0x180B..=0x180F | 0x200B..=0x200D | 0x2060..=0x206F => {
            "Does not show"
        }
        0x2800 | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF | 0xFFA0 | 0xFFF0..=0xFFFB | 0x1D159 | 0x1D173..=0x1D17A => {
            "Does not show"
        }
        0xE0000..=0xE0FFF => "Does not show",
        0x2028 | 0x2029 => "Another end of a line",
        0x00A0 | 0x1680 | 0x2000..=0x200A | 0x202F | 0x205F | 0x3000 => "Another space",
        0x2010..=0x2015 | 0x2212 | 0xFE58 | 0xFE63 | 0xFF0D => "Another dash",
        0x02B9..=0x02BC | 0x2018..=0x201F | 0x2032..=0x2037 | 0xFF02 | 0xFF07 | 0xFF40 => "Another quotation mark",
        0x037E | 0xFF1B | 0x204F => "Another semicolon",
        0x2044 | 0x2215 | 0x29F8 | 0xFF0F => "Another slash",
        0x01C0 | 0x2223 | 0xFF5C => "Another bar",
        0x2024 | 0xFF0E => "Another full stop",
        0x2236 | 0xA789 | 0xFF1A => "Another colon",
        0x0300..=0x036F | 0x0483..=0x0489 | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE20..=0xFE2F => {
            "Is drawn over the character before it"
        }
        0xE000..=0xF8FF | 0xF0000.. => "Has no meaning of its own",
        _ => return None,
    })
}

fn point(html: &mut String, c: char, why: &str) {
    odd(html, &format!("U+{:04X}", u32::from(c)), why);
}

fn odd(html: &mut String, shown: &str, why: &str) {
    // Writing to a string does not fail.
    let _ = write!(html, r#"<span class="odd" title="{why}">{shown}</span>"#);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_show_is_shown() {
        for (text, due) in [
            ("a\u{200b}b", "U+200B"),
            ("run-\u{202e}piz.exe", "U+202E"),
            ("safe\rrm -rf", "U+000D"),
            ("\u{1b}[2K", "U+001B"),
            ("a\0b", "U+0000"),
            ("p\u{0430}ypal", "U+0430"),
            ("\u{ff52}\u{ff4d}", "U+FF52"),
            ("a\u{a0}b", "U+00A0"),
            ("a \u{2013}b", "U+2013"),
            ("e\u{301}", "U+0301"),
            ("x\u{e0041}", "U+E0041"),
            ("a\u{2028}b", "U+2028"),
            ("a\u{3164}\u{3164}b", "2 × U+3164"),
            ("a\u{2800}b", "U+2800"),
            ("a \u{1c0} b", "U+01C0"),
            ("\r\r\r", "3 × U+000D"),
        ] {
            assert!(revealed(text).contains(due), "{text:?}: {}", revealed(text));
            assert!(hides_something(text));
        }
    }

    #[test]
    fn what_markdown_leaves_out_is_noticed() {
        let plan = "# Say *hello*\n\n1. One\n2) [x] Two\n- [ ] a_b\n\n```sh\nls -l\n```\n";
        let html = "<h1>Say <em>hello</em></h1><ol><li>One</li><li><input type=\"checkbox\" checked> Two</li></ul>\
                    <p>a_b</p><pre><code class=\"language-sh\">ls -l\n</code></pre>";
        assert!(!leaves_out(plan, html));
        assert!(!leaves_out("a & b < c", "<p>a &amp; b &lt; c</p>") && !leaves_out("", ""));
        for (source, html) in [
            ("Go <!-- remove all -->on", "<p>Go on</p>"),
            ("> [x]: /u 'remove all'", "<blockquote></blockquote>"),
            ("[x\ny]: /u 'remove all'", ""),
            ("[docs](https://evil.example)", "<p><a href=\"https://evil.example\">docs</a></p>"),
            ("```sh remove all\nls\n```", "<pre><code class=\"language-sh\">ls</code></pre>"),
            ("a ![b](c 'd > e')", "<p>a <img alt=\"b\" title=\"d > e\"> b c</p>"),
        ] {
            assert!(leaves_out(source, html), "{source:?}");
        }
    }

    #[test]
    fn long_emptiness_hides_nothing() {
        let text = format!("ls{}\n{}rm -rf /", "\n".repeat(500), " ".repeat(10_240));
        let html = revealed(&text);
        assert!(
            html.contains("500 empty lines") && html.contains("10240 spaces") && html.ends_with("rm -rf /"),
            "{html}"
        );
        assert!(html.len() < 400);
        assert_eq!(revealed("a    b\n\n\nc  \n"), "a    b\n\n\nc  \n");
    }

    #[test]
    fn plain_text_stays_and_markup_is_text() {
        for text in ["cargo test --all", "größe naïve", "привет", "日本語", "a\tb\nc"] {
            assert_eq!(revealed(text), text);
            assert!(!hides_something(text));
        }
        assert_eq!(revealed("<b>&\"'"), "&lt;b&gt;&amp;&quot;&#39;");
        assert_eq!(revealed(""), "");
    }
}
