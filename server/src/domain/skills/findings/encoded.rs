//! Content that only a program can read: long runs of the letters of base64 or of hexadecimal digits.

/// Letters in a row that no word, path or checksum has.
const MIN_RUN_BYTES: usize = 160;
/// Letters of a line that has nothing else, where such lines follow each other.
const MIN_WRAPPED_BYTES: usize = 56;
/// So many such lines make a block.
const MIN_WRAPPED_LINES: u32 = 4;

/// What is known of the lines before.
#[derive(Debug, Default)]
pub struct EncodedLines {
    wrapped: u32,
}

impl EncodedLines {
    /// Where encoded content begins in the line, in bytes; of a block of lines in one of its first.
    pub fn look(&mut self, line: &str) -> Option<usize> {
        let text = line.trim_matches(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\' | ',' | '+'));
        let is_wrapped = text.len() >= MIN_WRAPPED_BYTES && text.len() < MIN_RUN_BYTES && is_encoded(text.as_bytes());
        self.wrapped = if is_wrapped { self.wrapped.saturating_add(1) } else { 0 };
        let begins_block = self.wrapped == MIN_WRAPPED_LINES;
        begins_block.then_some(0).or_else(|| long_run(line.as_bytes()))
    }
}

fn long_run(line: &[u8]) -> Option<usize> {
    let mut at = 0;
    for run in line.split(|byte| !is_letter(*byte)) {
        if run.len() >= MIN_RUN_BYTES && is_encoded(run) {
            return Some(at);
        }
        at += run.len() + 1;
    }
    None
}

/// Of base64, also in its form for addresses.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_')
}

/// Whether all are such letters, and mixed as nobody writes them.
fn is_encoded(run: &[u8]) -> bool {
    let has = |is: fn(&u8) -> bool| run.iter().any(is);
    let digits = run.iter().filter(|byte| byte.is_ascii_digit()).count();
    let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase) && digits > 0;
    let is_hex = run.iter().all(u8::is_ascii_hexdigit) && digits > 0 && digits < run.len();
    let separators = run.iter().filter(|byte| matches!(byte, b'-' | b'_' | b'/')).count();
    run.iter().all(|byte| is_letter(*byte)) && (is_hex || (is_mixed && separators * 8 < run.len()))
}
