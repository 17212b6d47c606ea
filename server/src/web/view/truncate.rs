//! Truncates texts by their size as escaped HTML, in which a quotation mark takes five bytes.

/// The longest beginning of `text` that takes at most `bytes` bytes once it is escaped.
pub fn truncate_escaped(text: &str, bytes: usize) -> String {
    let mut left = bytes;
    let fits = |c: &char| {
        let rest = left.checked_sub(escaped(*c));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    text.chars().take_while(fits).collect()
}

/// Bytes of a character in HTML, as templates escape it.
fn escaped(c: char) -> usize {
    match c {
        '<' | '>' | '&' | '"' | '\'' => "&#38;".len(),
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_fits_as_it_is_sent() {
        assert_eq!(truncate_escaped("plain", 5), "plain");
        assert_eq!(truncate_escaped("plain", 4), "plai");
        assert_eq!(truncate_escaped("\"\"\"", 10), "\"\"");
        assert_eq!(truncate_escaped("\"\"\"", 14), "\"\"");
        assert_eq!(truncate_escaped("ab\"c", 3), "ab", "nothing stands behind what is left out");
        assert_eq!(truncate_escaped("éé", 3), "é");
        assert_eq!(truncate_escaped("", 0), "");
    }
}
