//! The words of a text as the search for messages compares them, and the snippet that shows where they stand.
//!
//! A word is a run of letters and digits, in lower case. `PaymentStep` is also found by its parts, and text of scripts that
//! put no spaces between words by its characters and pairs of neighbours. Both databases get the same words from here, so
//! that both find the same.

use std::collections::{BTreeSet, HashSet};

use serde::Serialize;
use utoipa::ToSchema;

/// Longest word, characters: what is longer (a key, encoded bytes) is nothing that anybody looks for.
const MAX_WORD_CHARS: usize = 64;
/// Different words of one text that are found; those of the rest of a very long text are not.
pub const MAX_WORDS_PER_TEXT: usize = 2_000;
/// The part of a text that is read for its words, bytes.
const MAX_READ_BYTES: usize = 64 * 1024;
/// Words that a search compares; more are left out.
pub const MAX_ASKED_WORDS: usize = 16;
/// Length of a snippet, bytes, and of what stands before its first word.
const SNIPPET_BYTES: usize = 240;
const SNIPPET_LEAD_BYTES: usize = 60;
/// Places of a text that are looked at for the best snippet.
const MAX_SNIPPET_PLACES: usize = 50;

/// A piece of a snippet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct SnippetPiece {
    pub text: String,
    /// It is one of the words that were looked for.
    pub hit: bool,
}

/// The different words of a text, for the index.
pub fn of_text(text: &str) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    each(text, Purpose::Index, &mut |word, _| {
        words.insert(word);
        words.len() < MAX_WORDS_PER_TEXT
    });
    words
}

/// What a search compares: the different words of what was typed, in order. Empty when there is none.
pub fn asked(query: &str) -> Vec<String> {
    let mut words = Vec::new();
    each(query, Purpose::Query, &mut |word, _| {
        if !words.contains(&word) {
            words.push(word);
        }
        words.len() < MAX_ASKED_WORDS
    });
    words
}

/// The place in a text that has the most of the words close together, with the words marked.
pub fn snippet(text: &str, words: &[String]) -> Vec<SnippetPiece> {
    let wanted: HashSet<&str> = words.iter().map(String::as_str).collect();
    let mut found: Vec<(usize, usize, String)> = Vec::new();
    each(text, Purpose::Index, &mut |word, (start, end)| {
        if wanted.contains(word.as_str()) {
            found.push((start, end, word));
        }
        found.len() < MAX_SNIPPET_PLACES
    });
    found.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
    let room = SNIPPET_BYTES - SNIPPET_LEAD_BYTES;
    let different = |from: usize| {
        let start = found[from].0;
        let near = found[from..].iter().take_while(|(_, end, _)| *end <= start + room);
        near.map(|(_, _, word)| word.as_str()).collect::<HashSet<_>>().len()
    };
    let mut best = (0, 0);
    for from in 0..found.len() {
        let count = different(from);
        if count > best.1 {
            best = (from, count);
        }
        if best.1 == wanted.len() {
            break;
        }
    }
    let first = found.get(best.0).map_or(0, |(start, ..)| *start);
    let from = beginning(text, first);
    let to = text.ceil_char_boundary((from + SNIPPET_BYTES).max(found.get(best.0).map_or(0, |(_, end, _)| *end)));
    let mut pieces = Vec::new();
    let mut at = from;
    if from > 0 {
        push(&mut pieces, "… ", false);
    }
    for (start, end, _) in found.iter().filter(|(start, end, _)| *start >= from && *end <= to) {
        // A part of a word that is marked already.
        if *start < at {
            if *end > at {
                push(&mut pieces, &text[at..*end], true);
                at = *end;
            }
            continue;
        }
        push(&mut pieces, &text[at..*start], false);
        push(&mut pieces, &text[*start..*end], true);
        at = *end;
    }
    push(&mut pieces, &text[at..to.max(at)], false);
    if to < text.len() {
        push(&mut pieces, " …", false);
    }
    pieces
}

/// Where a snippet around `first` begins: some bytes before it, behind a space when there is one.
fn beginning(text: &str, first: usize) -> usize {
    if first <= SNIPPET_LEAD_BYTES {
        return 0;
    }
    let from = text.ceil_char_boundary(first - SNIPPET_LEAD_BYTES);
    let lead = &text[from..first];
    let space = lead.char_indices().find(|(_, c)| c.is_whitespace());
    space.map_or(from, |(at, c)| from + at + c.len_utf8())
}

/// Adds a piece with its runs of spaces shortened; what is like the piece before it joins that.
fn push(pieces: &mut Vec<SnippetPiece>, text: &str, hit: bool) {
    let mut plain = String::with_capacity(text.len());
    let mut after_space = pieces.last().is_none_or(|last| last.text.ends_with(' '));
    for c in text.chars().map(|c| if c.is_whitespace() || c.is_control() { ' ' } else { c }) {
        if c != ' ' || !after_space {
            plain.push(c);
        }
        after_space = c == ' ';
    }
    match pieces.last_mut() {
        _ if plain.is_empty() => {}
        Some(last) if last.hit == hit => last.text.push_str(&plain),
        _ => pieces.push(SnippetPiece { text: plain, hit }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Index,
    Query,
}

/// What is told of each word: the word, and where it stands. `false`: enough.
type Tell<'a> = &'a mut dyn FnMut(String, (usize, usize)) -> bool;

fn each(text: &str, purpose: Purpose, tell: Tell<'_>) {
    let head = protocol::text::head(text, MAX_READ_BYTES);
    // A word that is cut is none.
    let text = if head.len() < text.len() { head.trim_end_matches(char::is_alphanumeric) } else { head };
    let mut chars = text.char_indices().peekable();
    while let Some(&(start, c)) = chars.peek() {
        if !c.is_alphanumeric() {
            chars.next();
            continue;
        }
        let spaced = !is_unspaced(c);
        let mut end = start;
        while let Some(&(at, c)) = chars.peek() {
            if !c.is_alphanumeric() || is_unspaced(c) == spaced {
                break;
            }
            end = at + c.len_utf8();
            chars.next();
        }
        let run = (start, end);
        let goes_on = if spaced { word(text, run, purpose, tell) } else { pairs(text, run, purpose, tell) };
        if !goes_on {
            return;
        }
    }
}

/// A word, and its parts where its letters change from small to large.
fn word(text: &str, (start, end): (usize, usize), purpose: Purpose, tell: Tell<'_>) -> bool {
    let written = &text[start..end];
    if written.chars().count() > MAX_WORD_CHARS {
        return true;
    }
    if !tell(written.to_lowercase(), (start, end)) {
        return false;
    }
    if purpose == Purpose::Query {
        return true;
    }
    let chars: Vec<(usize, char)> = written.char_indices().collect();
    let mut from = 0;
    for n in 1..=chars.len() {
        let begins = |n: usize| {
            let (before, here) = (chars[n - 1].1, chars[n].1);
            let next_is_small = chars.get(n + 1).is_some_and(|(_, next)| next.is_lowercase());
            here.is_uppercase() && (!before.is_uppercase() || next_is_small)
        };
        if n < chars.len() && !begins(n) {
            continue;
        }
        let (a, b) = (chars[from].0, chars.get(n).map_or(written.len(), |(at, _)| *at));
        if n - from > 1 && b - a < written.len() && !tell(written[a..b].to_lowercase(), (start + a, start + b)) {
            return false;
        }
        from = n;
    }
    true
}

/// The characters of a run without spaces, and each two neighbours; for a query only what covers it.
fn pairs(text: &str, (start, end): (usize, usize), purpose: Purpose, tell: Tell<'_>) -> bool {
    let chars: Vec<(usize, char)> = text[start..end].char_indices().map(|(at, c)| (start + at, c)).collect();
    for (n, (at, c)) in chars.iter().enumerate() {
        if (purpose == Purpose::Index || chars.len() == 1) && !tell(fold(&[*c]), (*at, at + c.len_utf8())) {
            return false;
        }
        if let Some((next, d)) = chars.get(n + 1)
            && !tell(fold(&[*c, *d]), (*at, next + d.len_utf8()))
        {
            return false;
        }
    }
    true
}

fn fold(chars: &[char]) -> String {
    chars.iter().flat_map(|c| c.to_lowercase()).collect()
}

/// Whether a script puts no spaces between words, or hangs on to them what is no part of them.
fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x2_0000..=0x3_FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        of_text(text).into_iter().collect()
    }

    fn marked(text: &str, query: &str) -> String {
        let pieces = snippet(text, &asked(query));
        pieces.iter().map(|p| if p.hit { format!("[{}]", p.text) } else { p.text.clone() }).collect()
    }

    #[test]
    fn a_text_has_the_words_that_people_look_for() {
        assert_eq!(words("The cart's total: 4_200 €, the TOTAL"), ["200", "4", "cart", "s", "the", "total"]);
        assert_eq!(words("PaymentStep"), ["payment", "paymentstep", "step"]);
        assert_eq!(words("HTTPServer2"), ["http", "httpserver2", "server2"]);
        assert_eq!(words("Größe İ"), ["größe", "i\u{307}"]);
        assert_eq!(words("数据库"), ["库", "据", "据库", "数", "数据"]);
        assert!(words("… -- \"'*:^ \0").is_empty());
        assert!(words(&"x".repeat(65)).is_empty());
        let long: String = (0..10_000).map(|n| format!("w{n} ")).collect();
        assert_eq!(words(&long).len(), MAX_WORDS_PER_TEXT);
    }

    #[test]
    fn what_is_asked_is_words_and_nothing_else() {
        assert_eq!(asked("Flaky OR \"voucher\" NEAR(test*)"), ["flaky", "or", "voucher", "near", "test"]);
        assert_eq!(asked("PaymentStep paymentstep"), ["paymentstep"]);
        assert_eq!(asked("数据库 慢"), ["数据", "据库", "慢"]);
        assert!(asked("'; DROP TABLE").len() == 2 && asked("%_!").is_empty());
        assert_eq!(asked(&(0..99).map(|n| format!("w{n} ")).collect::<String>()).len(), MAX_ASKED_WORDS);
        // Whatever a text has is found by it.
        for text in ["PaymentStep", "数据库", "Größe", "HTTPServer2", "İstanbul", "x_y"] {
            let there = of_text(text);
            assert!(asked(text).iter().all(|word| there.contains(word)), "{text}");
        }
    }

    #[test]
    fn a_snippet_marks_the_words_where_most_of_them_are() {
        assert_eq!(marked("Only a PaymentStep", "payment"), "Only a [Payment]Step");
        assert_eq!(marked("one\n\n  two", "TWO"), "one [two]");
        assert_eq!(marked("数据库慢", "据库"), "数[据库]慢");
        assert_eq!(marked("数据库慢", "数据库"), "[数据库]慢");
        let far = format!("cart {} the cart is slow {}", "x ".repeat(300), "y ".repeat(300));
        let shown = marked(&far, "slow cart");
        assert!(shown.contains("the [cart] is [slow]") && shown.starts_with("… ") && shown.ends_with(" …"), "{shown}");
        assert!(shown.len() < SNIPPET_BYTES + 20);
        assert_eq!(marked("nothing of it", "else"), "nothing of it");
        // Spaces of two and three bytes before the first word.
        for space in ["\u{a0}", "\u{2009}", "\u{3000}"] {
            let shown = marked(&format!("{}{space}{} cart", "x".repeat(40), "y".repeat(30)), "cart");
            assert_eq!(shown, format!("… {} [cart]", "y".repeat(30)));
        }
        for text in ["é".repeat(500), "据".repeat(500), format!("{}word", "é".repeat(500))] {
            assert!(!marked(&text, "word 据").is_empty());
        }
    }
}
