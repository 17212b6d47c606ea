//! Turns a search into words: nothing that is typed is index syntax, and nothing is an error.

use std::collections::BTreeSet;

/// Most words of a query that are used.
const MAX_WORDS: usize = 32;
/// Longest word, characters.
const MAX_WORD_CHARS: usize = 64;
/// Shorter words match only exactly, characters.
const MIN_PREFIX_CHARS: usize = 3;
/// Longest excerpt, characters.
pub const MAX_EXCERPT_CHARS: usize = 600;
/// Most of an excerpt that may precede the match, characters.
const EXCERPT_LEAD_CHARS: usize = 160;

/// Words that occur in nearly every text: they are used only if there is no other.
const COMMON_WORDS: &[&str] = &[
    "a", "about", "all", "also", "an", "and", "are", "as", "at", "be", "but", "by", "can", "do", "does", "for", "from",
    "has", "have", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "no", "not", "of", "on", "or", "our",
    "please", "should", "so", "that", "the", "their", "then", "there", "this", "to", "up", "us", "was", "we", "what",
    "when", "where", "which", "who", "why", "will", "with", "you", "your", "aber", "als", "auch", "auf", "aus", "bei",
    "bitte", "das", "dass", "dem", "den", "der", "des", "die", "ein", "eine", "einen", "er", "es", "für", "hat", "ich",
    "im", "ist", "mit", "nach", "nicht", "oder", "sich", "sie", "sind", "so", "und", "vom", "von", "was", "wie", "wir",
    "zu", "zum", "zur",
];

/// The words of a query, each once, in lower case.
pub fn words(query: &str) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let all = query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let all = all.map(|word| word.chars().take(MAX_WORD_CHARS).collect::<String>().to_lowercase());
    let mut found: Vec<String> = Vec::new();
    let mut common: Vec<String> = Vec::new();
    for word in all.filter(|word| seen.insert(word.clone())) {
        let kept = if COMMON_WORDS.contains(&word.as_str()) { &mut common } else { &mut found };
        if kept.len() < MAX_WORDS {
            kept.push(word);
        }
    }
    if found.is_empty() { common } else { found }
}

/// An expression for passages that contain all of the words.
pub fn all(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" AND ")
}

/// An expression for passages that contain one of them, or a word that begins with one.
pub fn any(words: &[String]) -> String {
    let one = |word: &String| {
        let begins = if word.chars().count() >= MIN_PREFIX_CHARS { "*" } else { "" };
        format!("{}{begins}", quoted(word))
    };
    words.iter().map(one).collect::<Vec<_>>().join(" OR ")
}

/// A string in the index's query language: nothing between quotes is syntax, and words contain no quotes.
fn quoted(word: &str) -> String {
    format!("\"{}\"", spaced(word).replace('"', ""))
}

/// `text` with spaces between the characters of scripts that do not separate words: each counts as a word.
pub fn spaced(text: &str) -> String {
    if !text.chars().any(is_dense) {
        return text.to_owned();
    }
    let mut all = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is_dense(c) {
            all.extend([' ', c, ' ']);
        } else {
            all.push(c);
        }
    }
    all
}

/// Han, Hiragana, Katakana, Thai.
fn is_dense(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// At most [`MAX_EXCERPT_CHARS`] characters of a text, around the first occurrence of one of the words.
pub fn excerpt(text: &str, words: &[String]) -> String {
    let text = text.trim();
    if text.chars().count() <= MAX_EXCERPT_CHARS {
        return text.to_owned();
    }
    let hit = first(text, words).unwrap_or(0);
    let before = text[..hit].char_indices().rev().nth(EXCERPT_LEAD_CHARS).map_or(0, |(at, _)| at);
    // Start at the beginning of a line or a word.
    let lead = &text[before..hit];
    let skip = lead.find('\n').or_else(|| lead.find(' ')).map_or(0, |at| at + 1);
    let from = if before == 0 { 0 } else { before + skip };
    let rest = &text[from..];
    let room = MAX_EXCERPT_CHARS - 2;
    let cut = rest.char_indices().nth(room).map_or(rest, |(end, _)| {
        let piece = &rest[..end];
        // Stop at the end of a word.
        piece.rfind(char::is_whitespace).filter(|at| *at > end / 2).map_or(piece, |at| &piece[..at])
    });
    let (open, close) = (if from > 0 { "…" } else { "" }, if cut.len() < rest.len() { "…" } else { "" });
    format!("{open}{}{close}", cut.trim_end())
}

/// Where the first of the words occurs, as it is or with another ending.
fn first(text: &str, words: &[String]) -> Option<usize> {
    let stems: Vec<&str> = words.iter().map(|word| stem(word)).collect();
    let mut at = 0;
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let lower = word.to_lowercase();
        if stems.iter().any(|stem| lower.starts_with(stem) || (stem.chars().any(is_dense) && lower.contains(stem))) {
            return Some(at);
        }
        at += word.len();
    }
    None
}

/// A word without its possible endings.
fn stem(word: &str) -> &str {
    let count = word.chars().count();
    let kept = if count > 6 { count - 2 } else { count };
    word.char_indices().nth(kept).map_or(word, |(end, _)| &word[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_words_and_common_ones_count_alone_only() {
        assert_eq!(words("How do we deploy the Deploy-Script?"), ["deploy", "script"]);
        assert_eq!(words("to be or not to be"), ["to", "be", "or", "not"]);
        assert_eq!(words("NEAR(a b) \"x* -:^{}"), ["near", "b", "x"]);
        assert!(words("🎉 … \u{0}\"'").is_empty() && words("").is_empty());
        assert_eq!(words(&"long".repeat(2_500))[0].chars().count(), MAX_WORD_CHARS);
        assert_eq!(words(&(0..2_000).map(|n| format!("w{n} ")).collect::<String>()).len(), MAX_WORDS);
    }

    #[test]
    fn expressions_hold_quoted_words() {
        let found = words("tests on 日本語");
        assert_eq!(all(&found), "\"tests\" AND \" 日  本  語 \"");
        assert_eq!(any(&words("go tests")), "\"go\" OR \"tests\"*");
    }

    #[test]
    fn an_excerpt_is_about_what_was_found() {
        let text = format!("{} The deployment needs a key. {}", "before ".repeat(200), "after ".repeat(300));
        let found = excerpt(&text, &words("deployments"));
        assert!(found.contains("The deployment needs a key."), "{found}");
        assert!(
            found.starts_with('…') && found.ends_with('…') && found.chars().count() <= MAX_EXCERPT_CHARS,
            "{found}"
        );
        assert_eq!(excerpt(" short ", &[]), "short");
        for text in ["日本語".repeat(900), "x".repeat(5_000), "ä\n".repeat(2_000)] {
            assert!(excerpt(&text, &words("本")).chars().count() <= MAX_EXCERPT_CHARS);
        }
    }
}
