//! Characters that do not show, but are read by a model or a shell: where they are, and how a person sees them.

pub use protocol::text::{is_invisible, marked};

/// Where the first one stands that does not belong there, in bytes. A mark of the encoding belongs to the beginning of a text,
/// joiners and selectors to emoji and to scripts that need them.
pub fn first(line: &str, is_first_line: bool) -> Option<usize> {
    // Most lines have nothing but ASCII.
    if line.bytes().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e)) {
        return None;
    }
    let mut before = None;
    for (at, c) in line.char_indices() {
        let is_mark = is_first_line && at == 0 && c == '\u{feff}';
        let after = line.get(at + c.len_utf8()..).and_then(|rest| rest.chars().next());
        if is_invisible(c) && !is_mark && !belongs(c, before, after) {
            return Some(at);
        }
        before = Some(c);
    }
    None
}

fn belongs(c: char, before: Option<char>, after: Option<char>) -> bool {
    match c {
        // Shown as text or as a picture.
        '\u{fe0e}' | '\u{fe0f}' => before.is_some_and(is_pictured),
        '\u{200d}' => {
            let is_joined = before.is_some_and(|c| is_pictured(c) || c == '\u{fe0f}') && after.is_some_and(is_pictured);
            is_joined || (before.is_some_and(needs_joiners) && after.is_some_and(needs_joiners))
        }
        '\u{200c}' => before.is_some_and(needs_joiners) && after.is_some_and(needs_joiners),
        _ => false,
    }
}

/// Whether there is an emoji of it.
fn is_pictured(c: char) -> bool {
    matches!(c,
        '#' | '*' | '0'..='9' | '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
        | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{24c2}' | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{297f}'
        | '\u{2b00}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f000}'..='\u{1faff}')
}

/// Arabic, Syriac and their kin, and the scripts of India.
fn needs_joiners(c: char) -> bool {
    matches!(c, '\u{600}'..='\u{8ff}' | '\u{900}'..='\u{dff}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
}
