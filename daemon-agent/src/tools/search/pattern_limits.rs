//! Limits for patterns: file name patterns from models and `.gitignore` files, and regular expressions.
//!
//! `globset` parses, compiles and drops braces recursively, so some thousand nested ones overflow the stack and end the
//! whole daemon. Every pattern is checked here first.

/// Longest file name pattern, bytes.
const MAX_GLOB_BYTES: usize = 1024;
/// Deepest nesting of alternatives (`{a,b}`).
const MAX_NESTING: usize = 8;
/// Longest regular expression, bytes: a single item such as `\w` takes kilobytes before any memory limit applies.
const MAX_EXPRESSION_BYTES: usize = 4096;

/// Whether this file name pattern is safe to parse, or why not.
pub fn check_glob(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_GLOB_BYTES {
        return Err(format!("it is longer than {MAX_GLOB_BYTES} bytes"));
    }
    if nesting(pattern) > MAX_NESTING {
        return Err(format!("its braces are nested more than {MAX_NESTING} deep"));
    }
    Ok(())
}

/// Whether this regular expression is safe to parse. Its own parser limits nesting.
pub fn check_expression(expression: &str) -> Result<(), String> {
    if expression.len() > MAX_EXPRESSION_BYTES {
        return Err(format!("it is longer than {MAX_EXPRESSION_BYTES} bytes"));
    }
    Ok(())
}

/// How deep braces are nested, at least. If the pattern contains a class (`[…]`), every brace counts as never closed,
/// because what looks like its end may be part of the class.
fn nesting(pattern: &str) -> usize {
    let has_class = pattern.contains('[');
    let (mut open, mut deepest) = (0usize, 0);
    let mut letters = pattern.bytes();
    while let Some(letter) = letters.next() {
        match letter {
            // An escaped character is a literal.
            b'\\' => _ = letters.next(),
            b'{' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b'}' if !has_class => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_passes() {
        for good in ["*.rs", "**/{src,tests}/**/*.{rs,toml}", "[a-z]{1,2}", "a\\{b", &"{a,b}".repeat(100)] {
            assert_eq!(check_glob(good), Ok(()), "{good}");
        }
        assert_eq!(check_expression(r"fn \w+\("), Ok(()));
    }

    #[test]
    fn what_would_be_taken_apart_by_deep_recursion_does_not() {
        let nested = |n: usize, inside: &str| format!("{}{inside}{}", "{".repeat(n), "}".repeat(n));
        assert_eq!(check_glob(&nested(MAX_NESTING, "a")), Ok(()));
        let seeming_ends = ["{\\}".repeat(9), "{[}]".repeat(9), format!("{}[", "{".repeat(9)), "\\\\{".repeat(9)];
        for bad in [nested(9, "a"), nested(5_000, "a"), "a".repeat(1025)].iter().chain(&seeming_ends) {
            assert!(check_glob(bad).is_err(), "{}", &bad[..bad.len().min(80)]);
        }
        assert!(check_expression(&r"\w".repeat(3000)).is_err());
    }
}
