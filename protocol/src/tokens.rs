//! How many tokens a text is likely to cost: one estimate, shared by the Board and the daemon.

/// Estimated tokens of `text`: one per four bytes of UTF-8, rounded up.
pub fn estimate(text: &str) -> u64 {
    (text.len() as u64).div_ceil(4)
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_empty_text_costs_nothing_and_a_short_one_something() {
        assert_eq!((super::estimate(""), super::estimate("a"), super::estimate("12345678")), (0, 1, 2));
    }
}
