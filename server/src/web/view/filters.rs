//! Template filters: `{{ "done"|icon }}`, `{{ at|ago(now) }}`. A module with templates says `use crate::web::view::filters;`.

use askama::{Result, Values, filters::Safe};
use protocol::Instant;

use super::time::{As, Time};
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
    Ok(Safe(Time { at: *at, how: As::Clock }))
}

/// Date and clock.
#[askama::filter_fn]
pub fn full(at: &Instant, _: &dyn Values) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: As::Full }))
}

/// How long ago: `4 min`.
#[askama::filter_fn]
pub fn ago(at: &Instant, _: &dyn Values, now: &Instant) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: As::Ago(*now) }))
}

/// The clock today, the day within a week, the date before.
#[askama::filter_fn]
pub fn short(at: &Instant, _: &dyn Values, now: &Instant) -> Result<Safe<Time>> {
    Ok(Safe(Time { at: *at, how: As::Short(*now) }))
}
