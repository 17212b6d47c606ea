//! How many tokens a text is likely to cost: the one estimate that the Board's and the daemon's gauges share.

/// Estimated tokens of `text`: a token every four bytes of UTF-8, rounded up.
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
