//! Instants on the wire: RFC 3339, UTC, milliseconds.

use std::fmt;

use jiff::{Timestamp, fmt::temporal::DateTimePrinter};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));

/// Milliseconds since 1970-01-01T00:00:00Z; on the wire `2026-11-20T09:57:19.000Z` (RFC 3339).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub i64);

impl Instant {
    /// The instant as milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = Timestamp::from_millisecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH);
        f.write_str(&PRINTER.timestamp_to_string(&at))
    }
}

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Instant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let at: Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(at.as_millisecond()))
    }
}

#[cfg(feature = "schema")]
impl utoipa::PartialSchema for Instant {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        let text = utoipa::openapi::Object::builder()
            .schema_type(utoipa::openapi::Type::String)
            .description(Some("An instant (RFC 3339), in UTC, with milliseconds"))
            .format(Some(utoipa::openapi::SchemaFormat::KnownFormat(utoipa::openapi::KnownFormat::DateTime)))
            .examples(["2026-11-20T09:57:19.000Z"]);
        text.into()
    }
}

#[cfg(feature = "schema")]
impl utoipa::ToSchema for Instant {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_always_written() {
        assert_eq!(Instant(1_700_000_000_000).to_string(), "2023-11-14T22:13:20.000Z");
        let back: Instant = serde_json::from_str("\"2023-11-14T22:13:20.5Z\"").expect("an instant");
        assert_eq!(back, Instant(1_700_000_000_500));
    }
}
