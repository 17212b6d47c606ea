//! The arguments of calls: what a model is told about them, and what it wrote, checked by name, with mistakes explained in
//! words.

use serde_json::{Map, Value};

pub mod specs;

/// Reads the arguments of one call.
pub struct CallArgs<'a>(&'a Map<String, Value>);

impl<'a> CallArgs<'a> {
    /// `known` are the tool's argument names; any other name is most likely misspelt.
    pub fn new(args: &'a Value, known: &[&str]) -> Result<Self, String> {
        let map = args.as_object().ok_or("the arguments are not a JSON object")?;
        match map.keys().find(|name| !known.contains(&name.as_str())) {
            Some(name) => Err(format!("unknown argument {name:?}: expected {}", known.join(", "))),
            None => Ok(Self(map)),
        }
    }

    /// The value of an argument that was given; `null` counts as not given.
    pub fn value(&self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Result<&'a str, String> {
        self.optional_text(name)?.ok_or_else(|| format!("argument {name:?} is missing"))
    }

    pub fn optional_text(&self, name: &str) -> Result<Option<&'a str>, String> {
        let Some(value) = self.value(name) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| wrong(name, "a string", value))
    }

    /// A whole number of at least 1; `"5"` is accepted as 5, because small models write that.
    pub fn count(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(name) else { return Ok(None) };
        let whole = value.as_f64().filter(|number| number.fract() == 0.0 && (1.0..1e15).contains(number));
        let number = whole.map(|number| number as u64).or_else(|| value.as_str()?.trim().parse().ok());
        let number = number.filter(|number| *number >= 1);
        number.map(Some).ok_or_else(|| wrong(name, "a whole number from 1", value))
    }

    pub fn flag(&self, name: &str) -> Result<bool, String> {
        match self.value(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(value) => Err(wrong(name, "true or false", value)),
        }
    }
}

/// The message for an argument of the wrong kind.
pub fn wrong(name: &str, expected: &str, value: &Value) -> String {
    format!("argument {name:?} must be {expected}, not {}", protocol::text::head_and_tail(&value.to_string(), 200))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_mistake_names_its_argument() {
        let value = json!({ "path": 5, "limit": -1, "all": "perhaps", "depth": 2.5 });
        let args = CallArgs::new(&value, &["path", "limit", "all", "depth", "offset"]).expect("known names");
        assert!(args.text("path").expect_err("a number").contains("\"path\""));
        assert!(args.text("offset").expect_err("absent").contains("\"offset\" is missing"));
        assert!(args.count("limit").expect_err("negative").contains("\"limit\""));
        assert!(args.count("depth").expect_err("a fraction").contains("\"depth\""));
        assert!(args.flag("all").expect_err("a word").contains("\"all\""));
        assert!(CallArgs::new(&value, &["path"]).is_err_and(|error| error.contains("unknown argument")));
        assert!(CallArgs::new(&json!("{}"), &[]).is_err());
    }

    #[test]
    fn what_small_models_write_is_understood() {
        let value = json!({ "limit": "12", "all": "true", "offset": null, "depth": 3.0 });
        let args = CallArgs::new(&value, &["limit", "all", "offset", "depth"]).expect("known names");
        assert_eq!(args.count("limit"), Ok(Some(12)));
        assert_eq!(args.count("depth"), Ok(Some(3)));
        assert_eq!(args.flag("all"), Ok(true));
        assert_eq!(args.count("offset"), Ok(None));
    }
}
