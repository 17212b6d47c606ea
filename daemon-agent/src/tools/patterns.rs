//! How large a pattern may be: for names of files as models and `.gitignore` files write them, and for expressions.
//!
//! `globset` takes braces apart, compiles and drops them by recursion, so that some thousand nested ones overflow a stack and
//! with it end the whole daemon. Whatever it is to see passes here first.

/// Longest pattern of names, bytes.
const MAX_GLOB: usize = 1024;
/// Most alternatives (`{a,b}`) inside each other.
const MAX_NESTING: usize = 8;
/// Longest expression, bytes: one letter of it, such as `\w`, takes kilobytes before any limit of memory is looked at.
const MAX_EXPRESSION: usize = 4096;

/// Whether this pattern of names may be taken apart, and why not.
pub fn check_glob(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_GLOB {
        return Err(format!("it is longer than {MAX_GLOB} bytes"));
    }
    if nesting(pattern) > MAX_NESTING {
        return Err(format!("its braces are nested more than {MAX_NESTING} deep"));
    }
    Ok(())
}

/// The same for a regular expression. Its own parser bounds what is nested.
pub fn check_expression(expression: &str) -> Result<(), String> {
    if expression.len() > MAX_EXPRESSION {
        return Err(format!("it is longer than {MAX_EXPRESSION} bytes"));
    }
    Ok(())
}

/// How deep braces are nested, or more: with a class (`[…]`) in the pattern every brace counts as never closed, because what
/// looks like its end may stand in the class.
fn nesting(pattern: &str) -> usize {
    let has_class = pattern.contains('[');
    let (mut open, mut deepest) = (0usize, 0);
    let mut letters = pattern.bytes();
    while let Some(letter) = letters.next() {
        match letter {
            // What is escaped is a letter like any other.
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
