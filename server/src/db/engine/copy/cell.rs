//! One value of a row, as it is written into a backup: JSON's null, text and number, and `{"base64": …}` for bytes.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, MapAccess, Visitor},
    ser::SerializeMap as _,
};

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// The only key of the object that holds bytes.
const BASE64_KEY: &str = "base64";

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Int(value) => serializer.serialize_i64(*value),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bytes(bytes) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry(BASE64_KEY, &STANDARD.encode(bytes))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CellVisitor)
    }
}

struct CellVisitor;

impl<'de> Visitor<'de> for CellVisitor {
    type Value = Cell;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null, a whole number, text, or {\"base64\": …}")
    }

    fn visit_unit<E>(self) -> Result<Cell, E> {
        Ok(Cell::Null)
    }

    fn visit_i64<E>(self, value: i64) -> Result<Cell, E> {
        Ok(Cell::Int(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Cell, E> {
        i64::try_from(value).map(Cell::Int).map_err(|_| E::custom("a number beyond 64 bits"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Cell, E> {
        Ok(Cell::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Cell, E> {
        Ok(Cell::Text(text))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell, A::Error> {
        match map.next_entry::<String, String>()? {
            Some((key, value)) if key == BASE64_KEY => {
                STANDARD.decode(value).map(Cell::Bytes).map_err(A::Error::custom)
            }
            _ => Err(A::Error::custom("expected {\"base64\": …}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_survives_its_text() {
        let odd = "\u{1}\\N\t\n\r\"\u{2028}é漢字😀\u{10ffff}";
        let row = vec![
            Cell::Null,
            Cell::Int(i64::MIN),
            Cell::Int(i64::MAX),
            Cell::Text(odd.repeat(1000)),
            Cell::Text(String::new()),
            Cell::Bytes((0..=255).collect()),
        ];
        let line = serde_json::to_string(&row).expect("JSON");
        assert!(!line.contains('\n'), "one row, one line");
        assert_eq!(serde_json::from_str::<Vec<Cell>>(&line).expect("a row"), row);
        for bad in ["[1.5]", "[true]", "[[]]", "[{\"base64\": \"*\"}]", "[{}]", "[18446744073709551615]"] {
            assert!(serde_json::from_str::<Vec<Cell>>(bad).is_err(), "{bad}");
        }
    }
}
