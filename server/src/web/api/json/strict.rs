//! Reads structs from objects only, and names the field that was wrong. Code that serde derives also takes a list,
//! its items as the fields in order: nobody means that, and a field that is added later would change its meaning.

use serde::{
    Deserializer,
    de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Unexpected, Visitor},
    forward_to_deserialize_any,
};
use serde_json::{Error, Map, Value, map};

/// A JSON value whose structs are objects.
pub struct StrictValue(pub Value);

impl<'de> Deserializer<'de> for StrictValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => visitor.visit_map(Fields::of(fields)),
            Value::Array(items) => visitor.visit_seq(Items { items: items.into_iter(), at: 0 }),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &"an object")),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// The API's enums are strings; serde would also accept `{"word": null}`.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(_) => Err(Error::invalid_type(Unexpected::Map, &"a word")),
            other => other.deserialize_enum(name, variants, visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map identifier ignored_any
    }
}

struct Fields {
    fields: map::IntoIter,
    /// The key that was handed out last, and its value.
    next: Option<(String, Value)>,
}

impl Fields {
    fn of(fields: Map<String, Value>) -> Self {
        Self { fields: fields.into_iter(), next: None }
    }
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.fields.next() else { return Ok(None) };
        let found = seed.deserialize(Value::String(key.clone()))?;
        self.next = Some((key, value));
        Ok(Some(found))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let (key, value) = self.next.take().ok_or_else(|| Error::custom("a value without a key"))?;
        seed.deserialize(StrictValue(value)).map_err(|error| at(&key, &error))
    }
}

struct Items {
    items: std::vec::IntoIter<Value>,
    at: usize,
}

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(item) = self.items.next() else { return Ok(None) };
        let at_item = self.at.to_string();
        self.at += 1;
        seed.deserialize(StrictValue(item)).map(Some).map_err(|error| at(&at_item, &error))
    }
}

/// The error with the path of its field: `limits.steps`.
fn at(key: &str, error: &Error) -> Error {
    let key = protocol::text::head(key, 100);
    let text = error.to_string();
    match text.strip_prefix('`').filter(|_| text.contains("`: ")) {
        Some(rest) => Error::custom(format_args!("`{key}.{rest}")),
        None => Error::custom(format_args!("`{key}`: {text}")),
    }
}
