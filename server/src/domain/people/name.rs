//! Names that machines and people give: one line, no characters that hide or turn text.

/// Longest name of a viber, characters.
pub const MAX_NAME_CHARS: usize = 80;

/// `text` as a name, without control, format and bidi characters, with single spaces, cut to `max` characters. `None`
/// when nothing is left.
pub fn clean(text: &str, max: usize) -> Option<String> {
    let visible: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).filter(|c| !is_hidden(*c)).collect();
    let name: String = visible.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(max).collect();
    let name = name.trim_end().to_owned();
    (!name.is_empty()).then_some(name)
}

/// Zero-width, bidi and other format characters (Unicode Cf as far as they matter in a name), and tags.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// `name`, or the first of `name-2`, `name-3` … that is not taken.
pub fn unique(name: &str, taken: &[String]) -> String {
    let free = |candidate: &String| !taken.iter().any(|other| other.eq_ignore_ascii_case(candidate));
    let numbered = (2..).map(|n| {
        let tail = format!("-{n}");
        let head: String = name.chars().take(MAX_NAME_CHARS - tail.len()).collect();
        head + &tail
    });
    std::iter::once(name.to_owned()).chain(numbered).find(free).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_visible_line() {
        assert_eq!(clean("  kiln\n\u{202e}03\0 ", 80).as_deref(), Some("kiln 03"));
        assert_eq!(clean("\u{200b}\t", 80), None);
        assert_eq!(clean(&"ä".repeat(100), 80).map(|name| name.chars().count()), Some(80));
    }

    #[test]
    fn a_second_one_of_the_same_name_gets_a_number() {
        let taken = ["kiln".to_owned(), "Kiln-2".to_owned()];
        assert_eq!((unique("kiln", &taken), unique("kiln", &[])), ("kiln-3".to_owned(), "kiln".to_owned()));
        let long = "x".repeat(MAX_NAME_CHARS);
        assert_eq!(unique(&long, std::slice::from_ref(&long)).chars().count(), MAX_NAME_CHARS);
    }
}
