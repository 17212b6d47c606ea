//! How long a provider asks to wait: headers, durations in bodies, and words for people.

use std::{sync::LazyLock, time::Duration};

use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};
use regex::Regex;
use reqwest::header::HeaderMap;

/// The wait that the headers of a refusal at `now` ask for, if any (RFC 9110 `Retry-After`, OpenAI's and Anthropic's
/// own).
pub(in crate::model) fn in_headers(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(wait) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()).and_then(|ms| seconds(ms / 1000.0))
    {
        return Some(wait);
    }
    if let Some(after) = text("retry-after") {
        let date = || DateTimeParser::new().parse_zoned(after).ok().map(|at| until(at.timestamp(), now));
        return after.parse::<f64>().ok().and_then(seconds).or_else(date);
    }
    // Only an exhausted bucket says when the next request can pass.
    let openai = ["requests", "tokens"].into_iter().filter_map(|what| {
        let empty = text(&format!("x-ratelimit-remaining-{what}")) == Some("0");
        text(&format!("x-ratelimit-reset-{what}")).filter(|_| empty).and_then(duration)
    });
    let anthropic = ["requests", "tokens", "input-tokens", "output-tokens"].into_iter().filter_map(|what| {
        let empty = text(&format!("anthropic-ratelimit-{what}-remaining")) == Some("0");
        let at = text(&format!("anthropic-ratelimit-{what}-reset")).filter(|_| empty)?;
        Some(until(at.parse().ok()?, now))
    });
    openai.chain(anthropic).max()
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// `secs` as a duration, if it is a sensible number.
pub(in crate::model) fn seconds(secs: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(secs).ok()
}

/// Go's notation: `1s`, `6m0s`, `1.574s`, `174ms`, `1h2m3s`.
pub(in crate::model) fn duration(text: &str) -> Option<Duration> {
    static DURATION_PATTERN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"^(?:[\d.]+(?:ms|h|m|s))+$").expect("a pattern of ours compiles"));
    static DURATION_PART_PATTERN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"([\d.]+)(ms|h|m|s)").expect("a pattern of ours compiles"));
    let text = text.trim();
    if !DURATION_PATTERN.is_match(text) {
        return text.parse::<f64>().ok().and_then(seconds);
    }
    let mut sum = 0.0;
    for part in DURATION_PART_PATTERN.captures_iter(text) {
        let unit = match &part[2] {
            "ms" => 0.001,
            "h" => 3600.0,
            "m" => 60.0,
            _ => 1.0,
        };
        sum += part[1].parse::<f64>().ok()? * unit;
    }
    seconds(sum)
}

/// "Please try again in 1.574s." and "Please retry in 22s".
pub(in crate::model) fn in_text(text: &str) -> Option<Duration> {
    static RETRY_PATTERN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)(?:try again|retry) (?:in|after) ((?:[\d.]+\s?(?:ms|h|m|s)[a-z]*\s?)+)")
            .expect("a pattern of ours compiles")
    });
    static UNIT_PATTERN: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"([\d.]+)\s?(ms|h|m|s)[a-z]*").expect("a pattern of ours compiles"));
    let found = RETRY_PATTERN.captures(text)?;
    let compact: String =
        UNIT_PATTERN.captures_iter(&found[1]).map(|part| format!("{}{}", &part[1], &part[2])).collect();
    duration(&compact)
}

/// `wait` in words for people.
pub(in crate::model) fn words(wait: Duration) -> String {
    match wait.as_secs_f64().ceil() as u64 {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_notation_of_a_wait_is_read() {
        let ms = |text| duration(text).map(|wait| wait.as_millis());
        assert_eq!(
            [ms("1s"), ms("6m0s"), ms("1.574s"), ms("174ms"), ms("22")],
            [Some(1000), Some(360_000), Some(1574), Some(174), Some(22_000)]
        );
        assert_eq!([ms("soon"), ms("-1s"), ms("")], [None; 3]);
        let text = |text| in_text(text).map(|wait| wait.as_millis());
        assert_eq!(text("Please try again in 1.574s. Visit"), Some(1574));
        assert_eq!(text("try again in 7m12s"), Some(432_000));
        assert_eq!(text("Try again in 174ms."), Some(174));
        assert_eq!(text("Please retry after 20 seconds."), Some(20_000));
        assert_eq!(text("try again later"), None);
    }

    #[test]
    fn headers_win_in_their_order() {
        let now: Timestamp = "2026-11-20T10:00:00Z".parse().expect("an instant");
        let wait = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().expect("a value"));
            }
            in_headers(&headers, now).map(|wait| wait.as_millis())
        };
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "1")]), Some(250));
        assert_eq!(wait(&[("retry-after", "2")]), Some(2000));
        assert_eq!(wait(&[("retry-after", "Fri, 20 Nov 2026 10:00:30 GMT")]), Some(30_000));
        assert_eq!(wait(&[("retry-after", "Fri, 20 Nov 2026 09:00:30 GMT")]), Some(0));
        assert_eq!(wait(&[("x-ratelimit-reset-tokens", "6m0s")]), None);
        assert_eq!(wait(&[("x-ratelimit-reset-tokens", "3s"), ("x-ratelimit-remaining-tokens", "0")]), Some(3000));
        let anthropic = [
            ("anthropic-ratelimit-requests-remaining", "0"),
            ("anthropic-ratelimit-requests-reset", "2026-11-20T10:00:05Z"),
        ];
        assert_eq!(wait(&anthropic), Some(5000));
        assert_eq!(wait(&[]), None);
    }
}
