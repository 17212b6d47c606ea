//! Template filters: `{{ "done"|icon }}`, `{{ at|ago(now) }}`. A module with templates says `use crate::web::view::filters;`.

use askama::{Result, Values, filters::Safe};
use protocol::{Instant, NoticeLevel};

use super::time::{Time, TimeFormat};
use crate::web::assets;

/// An icon of the sprite, for sighted readers only: the word stands beside it.
#[askama::filter_fn]
pub fn icon(name: &str, _: &dyn Values) -> Result<Safe<String>> {
    let sprite = assets::path("icons.svg");
    Ok(Safe(format!(r##"<svg class="icon" aria-hidden="true"><use href="{sprite}#{name}"/></svg>"##)))
}

/// The same with more classes: `{{ "chevron"|icon_as("turn") }}`.
#[askama::filter_fn]
pub fn icon_as(name: &str, _: &dyn Values, class: &str) -> Result<Safe<String>> {
    let sprite = assets::path("icons.svg");
    Ok(Safe(format!(r##"<svg class="icon {class}" aria-hidden="true"><use href="{sprite}#{name}"/></svg>"##)))
}

/// The address of an embedded file.
#[askama::filter_fn]
pub fn asset(name: &str, _: &dyn Values) -> Result<&'static str> {
    Ok(assets::path(name))
}

/// The clock: `14:09`.
#[askama::filter_fn]
pub fn clock(at: &Instant, _: &dyn Values) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: TimeFormat::Clock }))
}

/// Date and clock.
#[askama::filter_fn]
pub fn full(at: &Instant, _: &dyn Values) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: TimeFormat::Full }))
}

/// How long since: `4 min`.
#[askama::filter_fn]
pub fn since(at: &Instant, _: &dyn Values, now: &Instant) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: TimeFormat::Since(*now) }))
}

/// How long ago: `4 min ago`.
#[askama::filter_fn]
pub fn ago(at: &Instant, _: &dyn Values, now: &Instant) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: TimeFormat::Ago(*now) }))
}

/// How long still: `4 min`.
#[askama::filter_fn]
pub fn left(at: &Instant, _: &dyn Values, now: &Instant) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: TimeFormat::Left(*now) }))
}

/// The clock today, the day within a week, the date before.
#[askama::filter_fn]
pub fn short(at: &Instant, _: &dyn Values, now: &Instant) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: TimeFormat::Short(*now) }))
}

/// How long something took, from milliseconds.
#[askama::filter_fn]
pub fn took(millis: &u64, _: &dyn Values) -> Result<String> {
    Ok(super::time::took(*millis))
}

/// A size: `512 B`, `1.4 kB`, `3.2 GB`.
#[askama::filter_fn]
pub fn bytes(size: impl Into<ByteCount>, _: &dyn Values) -> Result<String> {
    Ok(crate::domain::size_words(size.into().0))
}

/// A number of tokens: `812`, `14.6k`, `200k`, `1.2M`.
#[askama::filter_fn]
pub fn tokens(count: &u64, _: &dyn Values) -> Result<String> {
    Ok(token_words(*count))
}

/// The same for code.
pub fn token_words(tokens: u64) -> String {
    match tokens {
        0..1_000 => tokens.to_string(),
        1_000..99_950 => tenths(tokens / 100 + u64::from(tokens % 100 >= 50), 'k'),
        99_950..999_500 => format!("{}k", tokens / 1_000 + u64::from(tokens % 1_000 >= 500)),
        _ => tenths(tokens / 100_000 + u64::from(tokens % 100_000 >= 50_000), 'M'),
    }
}

fn tenths(count: u64, unit: char) -> String {
    format!("{}.{}{unit}", count / 10, count % 10)
}

/// A number of bytes, whatever integer it comes as.
#[derive(Clone, Copy, Debug)]
pub struct ByteCount(u64);

impl From<usize> for ByteCount {
    fn from(size: usize) -> Self {
        Self(u64::try_from(size).unwrap_or(u64::MAX))
    }
}

impl From<&usize> for ByteCount {
    fn from(size: &usize) -> Self {
        Self::from(*size)
    }
}

impl From<u64> for ByteCount {
    fn from(size: u64) -> Self {
        Self(size)
    }
}

impl From<&&u64> for ByteCount {
    fn from(size: &&u64) -> Self {
        Self(**size)
    }
}

impl From<&u64> for ByteCount {
    fn from(size: &u64) -> Self {
        Self(*size)
    }
}

/// A sentence in which `backticks` mark code; everything else is text.
#[askama::filter_fn]
pub fn code(text: &str, _: &dyn Values) -> Result<Safe<String>> {
    let pieces = text.split('`').map(ammonia::clean_text).enumerate();
    let last = text.matches('`').count();
    Ok(Safe(pieces.fold(String::new(), |html, (n, piece)| match n % 2 {
        1 if n < last => format!("{html}<code class=\"mono\">{piece}</code>"),
        1 => format!("{html}`{piece}"),
        _ => html + &piece,
    })))
}

/// How much a notice matters, as a word.
#[askama::filter_fn]
pub fn level(level: &NoticeLevel, _: &dyn Values) -> Result<&'static str> {
    Ok(match level {
        NoticeLevel::Info => "info",
        NoticeLevel::Warning => "warning",
        NoticeLevel::Error => "error",
    })
}

/// What somebody did who said this to a running task.
#[askama::filter_fn]
pub fn said(mode: &protocol::InjectionPoint, _: &dyn Values) -> Result<&'static str> {
    Ok(match mode {
        protocol::InjectionPoint::Steer => "Steered",
        protocol::InjectionPoint::Collect => "Collected",
        protocol::InjectionPoint::Followup => "Next turn",
    })
}

/// When a running task is told something.
#[askama::filter_fn]
pub fn told(mode: &protocol::InjectionPoint, _: &dyn Values) -> Result<&'static str> {
    Ok(match mode {
        protocol::InjectionPoint::Steer => "Steer",
        protocol::InjectionPoint::Collect => "Collect",
        protocol::InjectionPoint::Followup => "Next",
    })
}

/// The icon of a notice.
#[askama::filter_fn]
pub fn level_icon(level: &NoticeLevel, _: &dyn Values) -> Result<&'static str> {
    Ok(match level {
        NoticeLevel::Info => "info",
        NoticeLevel::Warning => "note",
        NoticeLevel::Error => "failed",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_rounded_to_the_nearest_number_that_is_shown() {
        for (tokens, words) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (8_649, "8.6k"),
            (8_657, "8.7k"),
            (99_949, "99.9k"),
            (99_950, "100k"),
            (999_499, "999k"),
            (999_500, "1.0M"),
            (1_250_000, "1.3M"),
            (u64::MAX, "18446744073709.6M"),
        ] {
            assert_eq!(token_words(tokens), words);
        }
    }
}
