//! Instants as a reader wants them: `<time>` elements whose text is UTC until the page's script knows the reader's zone.

use std::fmt;

use jiff::{Timestamp, tz::TimeZone};
use protocol::Instant;

/// How an instant is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeFormat {
    /// `14:09`.
    Clock,
    /// `20 Nov 2026, 14:09`.
    Full,
    /// How long ago, in the largest fitting unit: `just now`, `38 s ago`, `4 min ago`, `3 h ago`, `2 d ago`.
    Ago(Instant),
    /// How long since, the same way, at least a second: `38 s`.
    Since(Instant),
    /// The clock of its beginning, until a script counts: `3 min 6 s`.
    Lasted,
    /// How long still, the same way.
    Left(Instant),
    /// The clock today, the day within a week, the date before.
    Short(Instant),
}

/// A `<time>` element.
#[derive(Clone, Copy, Debug)]
pub struct Time {
    pub at: Instant,
    pub how: TimeFormat,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let zoned = Timestamp::from_millisecond(self.at.millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        let zoned = zoned.to_zoned(TimeZone::UTC);
        let (how, text) = match self.how {
            TimeFormat::Clock => ("clock", zoned.strftime("%H:%M UTC").to_string()),
            TimeFormat::Full => ("full", zoned.strftime("%-d %b %Y, %H:%M UTC").to_string()),
            TimeFormat::Ago(now) => ("ago", ago(now.millis() - self.at.millis())),
            TimeFormat::Since(now) => ("since", span((now.millis() - self.at.millis()).max(1000))),
            TimeFormat::Lasted => ("lasted", zoned.strftime("since %H:%M UTC").to_string()),
            TimeFormat::Left(now) => ("left", span((self.at.millis() - now.millis()).max(0))),
            TimeFormat::Short(now) => {
                let today = Timestamp::from_millisecond(now.millis()).unwrap_or(Timestamp::UNIX_EPOCH);
                let days = (today.to_zoned(TimeZone::UTC).date() - zoned.date()).get_days();
                let pattern = match days {
                    ..=0 => "%H:%M",
                    1..7 => "%a",
                    _ => "%-d %b",
                };
                ("short", zoned.strftime(pattern).to_string())
            }
        };
        write!(f, r#"<time datetime="{}" data-as="{how}">{text}</time>"#, self.at)
    }
}

/// A length of time in the largest unit that fits: `now` below a second.
pub fn span(millis: i64) -> String {
    match millis / 1000 {
        ..1 => "now".to_owned(),
        seconds @ 1..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds @ 3600..86_400 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// How long ago something was: `just now` below a second.
fn ago(millis: i64) -> String {
    if millis < 1_000 { "just now".to_owned() } else { format!("{} ago", span(millis)) }
}

/// How long something took: `12 ms`, `1.4 s`, `3 min 6 s`, `2 h 5 min`.
pub fn took(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1000, millis % 1000 / 100),
        60_000..3_600_000 => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1000),
        _ => format!("{} h {} min", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_use_the_largest_unit_that_fits() {
        let words: Vec<_> = [0, 999, 38_000, 240_000, 7_200_000, 200_000_000].map(span).into();
        assert_eq!(words, ["now", "now", "38 s", "4 min", "2 h", "2 d"]);
        assert_eq!([-5, 999, 38_000].map(ago), ["just now", "just now", "38 s ago"]);
        assert_eq!([340, 12_400, 186_000, 7_500_000].map(took), ["340 ms", "12.4 s", "3 min 6 s", "2 h 5 min"]);
    }

    #[test]
    fn a_time_says_its_zone_until_a_script_knows_better() {
        let at = Instant(1_781_877_484_000);
        let clock = Time { at, how: TimeFormat::Clock }.to_string();
        assert_eq!(clock, r#"<time datetime="2026-06-19T13:58:04.000Z" data-as="clock">13:58 UTC</time>"#);
        let short = Time { at, how: TimeFormat::Short(Instant(at.millis() + 2 * 86_400_000)) }.to_string();
        assert!(short.ends_with(">Fri</time>"), "{short}");
    }
}
