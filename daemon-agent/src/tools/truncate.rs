//! Truncates results to fit an event: measured as JSON, cut between characters, with the omitted amount stated.

/// Longest text of a result as JSON, bytes. Below the wire's 64 KiB, so that the fields around it fit too.
pub const MAX_TEXT_BYTES: usize = 60 * 1024;

/// Bytes that `character` takes in a JSON string.
fn cost(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => character.len_utf8(),
    }
}

/// Bytes that `text` takes inside a JSON string.
pub fn json_len(text: &str) -> usize {
    text.chars().map(cost).sum()
}

/// The longest prefix that takes at most `max` bytes in JSON.
pub fn head(text: &str, max: usize) -> &str {
    &text[..taken(text.char_indices().map(|(at, character)| (at + character.len_utf8(), character)), max, 0)]
}

/// The longest suffix that takes at most `max` bytes in JSON.
pub fn tail(text: &str, max: usize) -> &str {
    &text[taken(text.char_indices().rev(), max, text.len())..]
}

fn taken(characters: impl Iterator<Item = (usize, char)>, max: usize, start: usize) -> usize {
    let mut room = max;
    let mut end = start;
    for (at, character) in characters {
        let Some(left) = room.checked_sub(cost(character)) else { break };
        (room, end) = (left, at);
    }
    end
}

/// A line for people and models, cut if it is longer than `max` bytes.
pub fn line(text: &str, max: usize) -> String {
    let cut = protocol::text::head(text, max);
    if cut.len() == text.len() {
        return text.to_owned();
    }
    format!("{cut} [… {} bytes cut]", text.len() - cut.len())
}

/// Collects lines until the result is full.
#[derive(Debug, Default)]
pub struct TruncatedLines {
    text: String,
    used: usize,
}

impl TruncatedLines {
    /// Adds a line; `false` when it no longer fits.
    pub fn push(&mut self, line: &str) -> bool {
        let needed = json_len(line) + 2;
        if self.used + needed > MAX_TEXT_BYTES - 512 {
            return false;
        }
        self.used += needed;
        self.text.push_str(line);
        self.text.push('\n');
        true
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// The lines, with a final remark, for which there is always room.
    pub fn end(mut self, remark: Option<&str>) -> String {
        if let Some(remark) = remark {
            self.text.push_str(remark);
        } else {
            self.text.truncate(self.text.trim_end_matches('\n').len());
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_measure_is_that_of_json(text in any::<String>()) {
            prop_assert_eq!(json_len(&text) + 2, serde_json::to_string(&text).expect("JSON").len());
        }

        #[test]
        fn head_and_tail_keep_within_their_bound_and_whole_characters(text in any::<String>(), max in 0usize..200) {
            prop_assert!(text.starts_with(head(&text, max)) && json_len(head(&text, max)) <= max);
            prop_assert!(text.ends_with(tail(&text, max)) && json_len(tail(&text, max)) <= max);
            if json_len(&text) <= max {
                prop_assert_eq!(head(&text, max), text.as_str());
                prop_assert_eq!(tail(&text, max), text.as_str());
            }
        }
    }
}
