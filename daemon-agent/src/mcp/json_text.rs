//! JSON that is kept for long and read seldom.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// A value as its text, without spaces and with sorted keys: as a tree a schema takes some twenty times as much memory. Cheap to
/// clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(Arc<str>);

impl JsonText {
    pub fn of(value: &Value) -> Self {
        Self(canonical(value).into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }

    pub fn is_object(&self) -> bool {
        self.0.starts_with('{')
    }
}

impl Default for JsonText {
    fn default() -> Self {
        Self::of(&Value::Null)
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::of(&value))
    }
}

/// JSON without spaces, keys sorted.
pub(super) fn canonical(value: &Value) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let fields: BTreeMap<&String, Value> = fields.iter().map(|(key, value)| (key, sorted(value))).collect();
                Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), value)).collect::<Map<_, _>>())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    sorted(value).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_text_is_the_value_it_was_made_of() {
        let value = json!({ "b": [1, { "z": null, "a": "ö" }], "a": true });
        let text = JsonText::of(&value);
        assert_eq!(text.as_str(), r#"{"a":true,"b":[1,{"a":"ö","z":null}]}"#);
        assert_eq!((text.value(), text.is_object()), (value.clone(), true));
        assert_eq!(serde_json::to_value(&text).expect("JSON"), value);
        assert_eq!(serde_json::from_value::<JsonText>(value).expect("JSON"), text);
        assert_eq!((JsonText::default().value(), JsonText::default().is_object()), (Value::Null, false));
    }
}
