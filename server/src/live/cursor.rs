//! A follower's position in a task.

use std::{fmt, str::FromStr};

/// The last event that a follower has: `{attempt}.{seq}` on the wire. `1.0` is the position before the first event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub attempt: u32,
    pub seq: u64,
}

impl Cursor {
    /// Before the first event of the first attempt.
    pub const START: Self = Self { attempt: 1, seq: 0 };
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.attempt, self.seq)
    }
}

/// The text is not `{attempt}.{seq}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadCursor;

impl fmt::Display for BadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a cursor of the form {attempt}.{seq}")
    }
}

impl std::error::Error for BadCursor {}

impl FromStr for Cursor {
    type Err = BadCursor;

    /// Takes exactly what `Display` writes: no signs, spaces or leading zeros, so that every place has one name.
    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let (attempt, seq) = text.split_once('.').ok_or(BadCursor)?;
        let cursor =
            Self { attempt: attempt.parse().map_err(|_| BadCursor)?, seq: seq.parse().map_err(|_| BadCursor)? };
        let known = cursor.attempt > 0 && i64::try_from(cursor.seq).is_ok() && cursor.to_string() == text;
        if known { Ok(cursor) } else { Err(BadCursor) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_its_text_form_and_sorts_by_attempt_first() {
        let cursor = Cursor { attempt: 2, seq: 57 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert!(Cursor { attempt: 1, seq: 999 } < cursor);
        assert_eq!("1.0".parse(), Ok(Cursor::START));
    }

    #[test]
    fn nonsense_is_refused() {
        let texts = [
            "",
            ".",
            "1",
            "1.",
            ".1",
            "1.2.3",
            "-1.2",
            "+1.2",
            "0.1",
            "01.2",
            "1.02",
            " 1.2",
            "1.2 ",
            "a.b",
            "4294967296.1",
            "1.9223372036854775808",
            "1.99999999999999999999",
            "1,2",
            "१.२",
        ];
        for text in texts {
            assert_eq!(text.parse::<Cursor>(), Err(BadCursor), "{text:?}");
        }
    }
}
