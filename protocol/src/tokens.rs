//! How many tokens a text is likely to cost: one estimate, shared by the Board and the daemon.

use crate::text::{head, tail};

/// Tokens that the line takes which says how much was left out, about.
const MARK_TOKENS: u64 = 12;

/// Estimated tokens of `text`: one per four bytes of UTF-8, rounded up.
pub fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

/// `text` when it is likely to cost at most `max` tokens, else its head and tail around a line that says how many were left
/// out. The same bound leaves what was cut as it is.
pub fn head_and_tail(text: &str, max: u64) -> String {
    let all = estimate(text);
    if all <= max {
        return text.to_owned();
    }
    let room = usize::try_from(max.saturating_sub(MARK_TOKENS) * 4).unwrap_or(usize::MAX);
    let (first, last) = (head(text, room / 2), tail(text, room - room / 2));
    let omitted = all - estimate(first) - estimate(last).min(all - estimate(first));
    format!("{first}\n[truncated, {omitted} tokens omitted]\n{last}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_text_costs_nothing_and_a_short_one_something() {
        assert_eq!((estimate(""), estimate("a"), estimate("12345678")), (0, 1, 2));
    }

    #[test]
    fn what_was_left_out_is_said() {
        let cut = head_and_tail(&"line of text\n".repeat(1_000), 100);
        assert!(cut.starts_with("line of text\n") && cut.ends_with("line of text\n"), "{cut}");
        assert!(cut.contains("\n[truncated, 3162 tokens omitted]\n"), "{cut}");
    }

    proptest! {
        #[test]
        fn a_cut_text_keeps_its_bound_and_is_cut_once(text in any::<String>(), repeats in 1usize..40, max in 16u64..200) {
            let cut = head_and_tail(&text.repeat(repeats), max);
            prop_assert!(estimate(&cut) <= max);
            prop_assert_eq!(&head_and_tail(&cut, max), &cut);
        }
    }
}
