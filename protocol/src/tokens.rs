//! How many tokens a text is likely to cost: one estimate, shared by the Board and the daemon.
//!
//! Tokenizers split a text into runs of letters, digits, signs and whitespace, and merge what is frequent within a run. The
//! estimate splits in the same way and adds up what a run of a class and a length costs on average: the numbers are means
//! over prose, code, data and logs, counted with OpenAI's `o200k_base`. It makes one pass and needs no vocabulary.

use std::ops::Range;

/// The line that says how much was left out: what stands before the number, and after it.
const MARK_START: &str = "\n[truncated, ";
const MARK_END: &str = " tokens omitted]\n";
/// Tokens that this line takes, at most.
const MARK_TOKENS: u64 = 14;
/// The most that it says.
const MAX_OMITTED_TOKENS: u64 = 999_999_999;
/// Parts of a token in which runs are counted.
const UNIT: u64 = 64;
/// Directly adjacent runs of letters and digits after which they are no words any more: base64, hashes.
const MAX_WORD_SWITCHES: u32 = 8;

/// Estimated tokens of `text`, at least one unless it is empty.
pub fn estimate(text: &str) -> u64 {
    rounded(units(text))
}

/// The longest beginning of `text` that is likely to cost at most `max` tokens.
pub fn head(text: &str, max: u64) -> &str {
    &text[..head_end(text, max.saturating_mul(UNIT))]
}

/// `text` when it is likely to cost at most `max` tokens, else its head and tail around a line that says how many were left
/// out. The same bound leaves what was cut as it is; a smaller one cuts it as if it had been whole, and says how many are
/// missing of that.
pub fn head_and_tail(text: &str, max: u64) -> String {
    let all = units(text);
    if rounded(all) <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(MARK_TOKENS).saturating_mul(UNIT);
    let end = head_end(text, room / 2);
    let start = tail_start(text, all, room - room / 2).max(end);
    let (first, last) = (&text[..end], &text[start..]);
    let kept = rounded(units(first)) + rounded(units(last));
    let omitted = tokens_of_whole(text, end..start).unwrap_or(rounded(all)).saturating_sub(kept);
    format!("{first}{}{last}", mark(omitted))
}

/// The line that stands for `bytes` of a text between its ends: they are likely to have cost as much for each byte as the ends,
/// or a token for four where these are empty.
pub fn omission(first: &str, last: &str, bytes: u64) -> String {
    let (kept, length) = match (first.len() + last.len()) as u64 {
        0 => (UNIT, 4),
        length => (units(first) + units(last), length),
    };
    let cost = u128::from(kept) * u128::from(bytes) / u128::from(length * UNIT);
    mark(u64::try_from(cost).unwrap_or(MAX_OMITTED_TOKENS))
}

fn mark(omitted: u64) -> String {
    format!("{MARK_START}{}{MARK_END}", omitted.min(MAX_OMITTED_TOKENS))
}

/// Tokens of what `text` was before it was cut, when the `middle` of it says that it was. Whole tokens are added up, so that
/// each cut comes to the same.
fn tokens_of_whole(text: &str, middle: Range<usize>) -> Option<u64> {
    let (mut sum, mut from, mut at) = (0_u64, 0, middle.start);
    while let Some(found) = text[at..middle.end].find(MARK_START) {
        let (start, number) = (at + found, at + found + MARK_START.len());
        let digits = text[number..middle.end].bytes().take_while(u8::is_ascii_digit).count();
        let end = number + digits + MARK_END.len();
        let is_mark = end <= middle.end && text[number + digits..].starts_with(MARK_END);
        // Whoever put a longer number there, it was not counted.
        match text[number..number + digits].parse::<u64>().ok().filter(|omitted| *omitted <= MAX_OMITTED_TOKENS) {
            Some(omitted) if is_mark => {
                sum = sum.saturating_add(rounded(units(&text[from..start]))).saturating_add(omitted);
                (from, at) = (end, end);
            }
            _ => at = number,
        }
    }
    (from > 0).then(|| sum.saturating_add(rounded(units(&text[from..]))))
}

/// Where the longest beginning of `text` ends that costs at most `room` units.
fn head_end(text: &str, room: u64) -> usize {
    let mut left = room;
    let mut runs = Runs::of(text.as_bytes());
    loop {
        let (before, start) = (runs, runs.at);
        match runs.next() {
            Some(cost) if cost <= left => left -= cost,
            Some(_) => {
                let fits = |len: usize| before.cost_up_to(start + len) <= left;
                return text.floor_char_boundary(start + last_that(runs.at - start, fits));
            }
            None => return text.len(),
        }
    }
}

/// Where the longest end of `text`, which costs `all` units, begins that costs at most `room`.
fn tail_start(text: &str, all: u64, room: u64) -> usize {
    let mut rest = all;
    let mut runs = Runs::of(text.as_bytes());
    loop {
        let start = runs.at;
        let Some(cost) = runs.next() else { return text.len() };
        rest = rest.saturating_sub(cost);
        if rest <= room {
            let end = runs.at;
            let fits = |len: usize| {
                let from = text.ceil_char_boundary(end - len);
                Runs::of(&text.as_bytes()[from..end]).sum::<u64>() <= room - rest
            };
            return text.ceil_char_boundary(end - last_that(end - start, fits));
        }
    }
}

/// The largest length up to `max` that `fits`, when all shorter ones do.
fn last_that(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, max + 1);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        *if fits(middle) { &mut good } else { &mut bad } = middle;
    }
    good
}

fn rounded(units: u64) -> u64 {
    if units < UNIT { u64::from(units > 0) } else { (units + UNIT / 2) / UNIT }
}

/// Cost of `text` in parts of a token.
fn units(text: &str) -> u64 {
    Runs::of(text.as_bytes()).sum()
}

/// What a byte of UTF-8 begins. The first byte of a character is enough to tell scripts apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Lower,
    Upper,
    Digit,
    Space,
    /// Line ends and tabs.
    Break,
    /// ASCII signs and control characters.
    Sign,
    /// A Latin letter with an accent.
    Accented,
    /// A letter of another alphabet.
    Script,
    /// Chinese, Japanese, Korean.
    Ideograph,
    /// Dashes, quotes, arrows, lines.
    Symbol,
    /// Emoji and rare scripts.
    Rare,
    /// The second byte of a character, or a later one.
    Continuation,
}

use Class::{Accented, Break, Continuation, Digit, Ideograph, Lower, Rare, Script, Sign, Space, Symbol, Upper};

static CLASSES: [Class; 256] = {
    let mut classes = [Sign; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'a'..=b'z' => Lower,
            b'A'..=b'Z' => Upper,
            b'0'..=b'9' => Digit,
            b' ' => Space,
            b'\t' | b'\r' | b'\n' => Break,
            0..0x80 => Sign,
            0x80..0xC0 => Continuation,
            0xC2 | 0xE2 => Symbol,
            0xC3..0xCA | 0xE1 => Accented,
            0xCA..0xE1 => Script,
            0xE3..0xF0 => Ideograph,
            _ => Rare,
        };
        byte += 1;
    }
    classes
};

/// The runs of a text, each with its cost. Where a run begins depends on nothing before it.
#[derive(Clone, Copy)]
struct Runs<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many runs of letters and digits followed each other.
    switches: u32,
}

impl<'a> Runs<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, switches: 0 }
    }

    /// The cost of the next run, if the text ended there.
    fn cost_up_to(self, end: usize) -> u64 {
        Self { bytes: &self.bytes[..end], ..self }.sum()
    }

    /// The class of the byte before this run.
    fn before(&self) -> Option<Class> {
        self.at.checked_sub(1).map(|at| CLASSES[usize::from(self.bytes[at])])
    }

    fn class(&self) -> Option<Class> {
        self.bytes.get(self.at).map(|byte| CLASSES[usize::from(*byte)])
    }

    /// Passes over bytes of `class` and returns how many there were.
    fn pass(&mut self, class: Class) -> usize {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| CLASSES[usize::from(*byte)] != class).unwrap_or(rest.len());
        self.at += length;
        length
    }

    /// Passes over characters that begin with `class`, of several bytes each, and returns how many there were.
    fn pass_wide(&mut self, class: Class) -> u64 {
        let mut characters = 0;
        while let Some(next) = self.class() {
            if next == class {
                characters += 1;
            } else if next != Continuation {
                break;
            }
            self.at += 1;
        }
        characters
    }

    /// Letters from the current one on: a word, with one capital at its beginning, or capitals.
    fn word(&mut self) -> u64 {
        let before = self.before();
        let capitals = self.pass(Upper);
        let is_word = matches!(self.class(), Some(Lower | Accented));
        if capitals > 1 || (capitals == 1 && !is_word) {
            // The last capital of several belongs to the word after it.
            self.at -= usize::from(is_word);
            return by_length(&CAPITALS, 20, capitals - usize::from(is_word));
        }
        let mut length = capitals + self.pass(Lower);
        if matches!(self.class(), Some(Accented)) {
            let mut accents = 0;
            while let Some(next) = self.class() {
                match next {
                    Lower | Continuation => {}
                    // Those of Western Europe, and of Vietnam, are frequent.
                    Accented => accents += if matches!(self.bytes[self.at], 0xC3 | 0xE1) { 0 } else { 36 },
                    _ => break,
                }
                self.at += 1;
                length += 1;
            }
            return 40 + 12 * (length as u64) + accents;
        }
        if self.switches > MAX_WORD_SWITCHES {
            return UNIT + 28 * (length as u64 - 1);
        }
        if before == Some(Sign) { by_length(&WORDS_AFTER_SIGN, 10, length) } else { by_length(&WORDS, 24, length) }
    }

    /// A single space belongs to the word after it. Line ends are one token, an indentation after them is another.
    fn whitespace(&mut self) -> u64 {
        let start = self.at;
        let spaces = self.pass(Space);
        let mut tokens = u64::from(spaces > 1);
        if self.class() == Some(Break) {
            while matches!(self.class(), Some(Space | Break)) {
                self.at += 1;
            }
            tokens = 1 + u64::from(self.at - start > 2);
        }
        // No number begins with a space.
        let is_apart = self.class() == Some(Digit) && self.bytes[self.at - 1] == b' ';
        UNIT * (tokens + u64::from(is_apart)) + (self.at - start) as u64 / 2
    }

    /// One sign within a name belongs to what follows, and signs at the end of a line to the line's end.
    fn signs(&mut self) -> u64 {
        let before = self.before();
        let length = self.pass(Sign);
        match self.class() {
            Some(Lower | Upper) if length == 1 && before != Some(Space) => 6,
            Some(Break) => by_length(&SIGNS, 8, length) - 51,
            _ => by_length(&SIGNS, 8, length),
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        let class = self.class()?;
        let is_word = matches!(class, Lower | Upper | Accented | Digit);
        self.switches = if is_word { self.switches + 1 } else { 0 };
        Some(match class {
            Lower | Upper | Accented => self.word(),
            Digit => UNIT * self.pass(Digit).div_ceil(3) as u64,
            Space | Break => self.whitespace(),
            Sign => self.signs(),
            Script => 30 + 16 * self.pass_wide(Script),
            Ideograph => 48 * self.pass_wide(Ideograph),
            Symbol => 24 + 40 * self.pass_wide(Symbol),
            Rare => 100 * self.pass_wide(Rare),
            Continuation => {
                self.pass(Continuation);
                0
            }
        })
    }
}

/// Units by the number of letters of a word.
static WORDS: [u16; 16] = [0, 64, 64, 66, 66, 68, 69, 70, 71, 77, 78, 80, 82, 86, 92, 100];
/// The same after a sign, which many words do not have before them in a vocabulary.
static WORDS_AFTER_SIGN: [u16; 13] = [0, 64, 66, 70, 70, 74, 77, 86, 94, 103, 112, 120, 128];
/// The same of capitals.
static CAPITALS: [u16; 12] = [0, 61, 64, 80, 78, 90, 100, 106, 132, 146, 155, 170];
/// The same of signs.
static SIGNS: [u16; 7] = [0, 61, 64, 74, 102, 124, 140];

/// Units of a run, which costs `further` for each byte that the table does not know.
fn by_length(table: &[u16], further: u64, length: usize) -> u64 {
    match table.get(length) {
        Some(units) => u64::from(*units),
        None => u64::from(table[table.len() - 1]) + further * (length - table.len() + 1) as u64,
    }
}

#[cfg(test)]
mod tests;
