//! The parameters of a skill that is a tool: its JSON Schema, and the arguments of a call as environment variables.
//!
//! Values never become text of the script.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use serde_saphyr::Spanned;

use super::variable_names::is_reserved;
use crate::{
    ConfigError,
    agent::is_variable_name,
    yaml::{brief_error, parse_bounded},
};

/// Most parameters of a skill.
const MAX_PARAMETERS: usize = 64;
/// Longest value, bytes: Linux limits a single variable of a program (MAX_ARG_STRLEN), less some room.
const MAX_VALUE_BYTES: usize = 120 * 1024;
/// Most bytes of all values.
const MAX_VALUES_BYTES: usize = 512 * 1024;
/// Longest description that a model is shown, bytes.
const MAX_DESCRIPTION_BYTES: usize = 1_000;

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillParameter {
    pub name: String,
    pub kind: ParameterType,
    pub description: String,
    pub is_required: bool,
    /// As a variable has it.
    pub default: Option<String>,
    pub choices: Option<Vec<Value>>,
    /// Whether a value may begin with `-`, which a program could take for an option.
    pub allows_dash: bool,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    String,
    Number,
    Integer,
    Boolean,
}

impl ParameterType {
    const ALL: [Self; 4] = [Self::String, Self::Number, Self::Integer, Self::Boolean];

    fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Number => "number",
            Self::Integer => "integer",
            Self::Boolean => "boolean",
        }
    }

    /// With its article.
    fn expected(self) -> String {
        let article = if self == Self::Integer { "an" } else { "a" };
        format!("{article} {}", self.as_str())
    }

    /// The value as text, if it is of this type. Small models write `"5"` and `"true"`.
    fn text_of(self, value: &Value) -> Option<String> {
        match (self, value) {
            (Self::String, Value::String(text)) => Some(text.clone()),
            (Self::Number, Value::Number(number)) => Some(number.to_string()),
            (Self::Number, Value::String(text)) => {
                text.parse::<f64>().ok().filter(|number| number.is_finite()).map(|_| text.clone())
            }
            (Self::Integer, Value::Number(number)) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            (Self::Integer, Value::String(text)) => text.parse::<i64>().ok().map(|number| number.to_string()),
            (Self::Boolean, Value::Bool(flag)) => Some(flag.to_string()),
            (Self::Boolean, Value::String(text)) if matches!(text.as_str(), "true" | "false") => Some(text.clone()),
            _ => None,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    parameters: Option<BTreeMap<String, Spanned<Option<WrittenParameter>>>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WrittenParameter {
    #[serde(rename = "type")]
    kind: Option<Spanned<Value>>,
    description: Option<String>,
    required: bool,
    default: Option<Spanned<Value>>,
    #[serde(rename = "enum")]
    choices: Option<Spanned<Vec<Value>>>,
    dash: bool,
}

/// The parameters in the front matter of `file`.
pub fn read(front: &str, file: &str) -> Result<Vec<SkillParameter>, ConfigError> {
    let written: Written = parse_bounded(&format!("---\n{front}"))
        .or_else(|error| {
            // Another key may be no YAML, which does not concern this one.
            let section = section(front).ok_or(error)?;
            parse_bounded(&section)
        })
        .map_err(|error| brief_error(&error, file))?;
    let all = written.parameters.unwrap_or_default();
    let wrong = |line: usize, message: String| {
        let line = u32::try_from(line).unwrap_or(0);
        ConfigError { file: file.to_owned(), line, message }
    };
    if let Some(surplus) = all.values().nth(MAX_PARAMETERS) {
        let line = surplus.referenced.line() as usize;
        return Err(wrong(line, format!("a skill has at most {MAX_PARAMETERS} parameters")));
    }
    all.into_iter()
        .map(|(name, found)| {
            let line = found.referenced.line() as usize;
            let written = found.value.unwrap_or_default();
            let kind = match &written.kind {
                Some(asked) if !asked.value.is_null() => {
                    let known = ParameterType::ALL.into_iter().find(|kind| asked.value == kind.as_str());
                    let line = asked.referenced.line() as usize;
                    known.ok_or_else(|| wrong(line, unknown_type(&name, &asked.value)))?
                }
                _ => ParameterType::String,
            };
            checked(name, kind, written).map_err(|why| wrong(line, why))
        })
        .collect()
}

/// The front matter with nothing but its parameters, on the lines where they stand.
fn section(front: &str) -> Option<String> {
    let lines: Vec<&str> = front.lines().collect();
    let first = lines.iter().position(|line| line.starts_with("parameters:"))?;
    let is_inside = |line: &&&str| line.trim().is_empty() || line.starts_with([' ', '\t', '#']);
    let rest = lines[first + 1..].iter().take_while(is_inside);
    let kept: Vec<&str> = std::iter::once(&lines[first]).chain(rest).copied().collect();
    Some(format!("---\n{}{}\n", "\n".repeat(first), kept.join("\n")))
}

fn unknown_type(name: &str, asked: &Value) -> String {
    let known = ParameterType::ALL.map(ParameterType::as_str).join(", ");
    let asked = crate::text::head_and_tail(&asked.to_string(), 80);
    format!("the type of the parameter {name:?} is {asked}: expected one of {known}")
}

fn checked(name: String, kind: ParameterType, written: WrittenParameter) -> Result<SkillParameter, String> {
    if !is_variable_name(&name) || name.len() > 64 {
        return Err(format!(
            "the parameter {name:?} becomes a variable of the script: expected letters, digits and _, not beginning with a digit"
        ));
    }
    if is_reserved(&name) {
        return Err(format!(
            "the parameter {name:?} is called like a variable that programs obey: expected another name"
        ));
    }
    let expected = |what: &str| format!("the {what} of the parameter {name:?}: expected {}", kind.expected());
    let choices = match written.choices {
        None => None,
        Some(choices) if choices.value.is_empty() => {
            return Err(format!("the enum of the parameter {name:?} is empty"));
        }
        Some(choices) if choices.value.iter().all(|choice| kind.text_of(choice).is_some()) => Some(choices.value),
        Some(_) => return Err(expected("enum")),
    };
    let default = match written.default {
        Some(value) if !value.value.is_null() => Some(kind.text_of(&value.value).ok_or_else(|| expected("default"))?),
        _ => None,
    };
    let description = crate::text::head(&written.description.unwrap_or_default(), MAX_DESCRIPTION_BYTES).to_owned();
    let parameter = SkillParameter {
        name,
        kind,
        description,
        is_required: written.required,
        default: None,
        choices,
        allows_dash: written.dash,
    };
    if let Some(text) = &default {
        parameter.check(text).map_err(|why| format!("the default of the parameter {:?} {why}", parameter.name))?;
    }
    Ok(SkillParameter { default, ..parameter })
}

impl SkillParameter {
    /// Whether the text of a value may become a variable; `Err` is the end of a sentence.
    fn check(&self, text: &str) -> Result<(), String> {
        if text.contains('\0') {
            return Err("contains a NUL character".to_owned());
        }
        if text.len() > MAX_VALUE_BYTES {
            return Err("is longer than 120 KiB: write it to a file and pass its path".to_owned());
        }
        if text.starts_with('-') && !self.allows_dash {
            return Err("begins with -, which a program could take for an option".to_owned());
        }
        let choices = self.choices.iter().flatten().filter_map(|choice| self.kind.text_of(choice));
        let choices: Vec<String> = choices.collect();
        if self.choices.is_some() && !choices.iter().any(|choice| choice == text) {
            return Err(format!("is none of {}", choices.join(", ")));
        }
        Ok(())
    }

    fn schema(&self) -> Value {
        let mut schema = json!({ "type": self.kind.as_str() });
        if !self.description.is_empty() {
            schema["description"] = self.description.as_str().into();
        }
        if let Some(choices) = &self.choices {
            let typed = choices.iter().filter_map(|choice| Some(self.typed(&self.kind.text_of(choice)?)));
            schema["enum"] = typed.collect();
        }
        if let Some(default) = &self.default {
            schema["default"] = self.typed(default);
        }
        schema
    }

    /// A text as the JSON value that it is of this type.
    fn typed(&self, text: &str) -> Value {
        let read = match self.kind {
            ParameterType::String => None,
            _ => serde_json::from_str(text).ok(),
        };
        read.unwrap_or_else(|| Value::String(text.to_owned()))
    }
}

/// The JSON Schema of the arguments: closed, so that what is misspelt is noticed.
pub fn schema(parameters: &[SkillParameter]) -> Value {
    let properties: Map<String, Value> =
        parameters.iter().map(|parameter| (parameter.name.clone(), parameter.schema())).collect();
    let is_needed = |parameter: &&SkillParameter| parameter.is_required && parameter.default.is_none();
    let required: Vec<&str> = parameters.iter().filter(is_needed).map(|parameter| parameter.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// The arguments of a call as variables; `Err` is a sentence for the model.
pub fn variables(parameters: &[SkillParameter], args: &Value) -> Result<Vec<(String, String)>, String> {
    let given = args.as_object().ok_or("the arguments are not a JSON object")?;
    if let Some(unknown) = given.keys().find(|name| parameters.iter().all(|parameter| parameter.name != **name)) {
        let known: Vec<&str> = parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(format!("unknown argument {unknown:?}: expected {known}"));
    }
    let mut variables = Vec::new();
    for parameter in parameters {
        let name = &parameter.name;
        let value = given.get(name).filter(|value| !value.is_null());
        let text = match (value, &parameter.default) {
            (Some(value), _) => {
                let text = parameter.kind.text_of(value);
                text.ok_or_else(|| mistake(name, parameter.kind, value))?
            }
            (None, Some(default)) => default.clone(),
            (None, None) if parameter.is_required => return Err(format!("argument {name:?} is missing")),
            (None, None) => continue,
        };
        parameter.check(&text).map_err(|why| format!("argument {name:?} {why}"))?;
        variables.push((name.clone(), text));
    }
    if variables.iter().map(|(_, text)| text.len()).sum::<usize>() > MAX_VALUES_BYTES {
        return Err("the arguments take more than 512 KiB together: write them to files".to_owned());
    }
    Ok(variables)
}

fn mistake(name: &str, kind: ParameterType, value: &Value) -> String {
    let value = crate::text::head_and_tail(&value.to_string(), 200);
    format!("argument {name:?} must be {}, not {value}", kind.expected())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    fn parameters(yaml: &str) -> Result<Vec<SkillParameter>, ConfigError> {
        read(&format!("name: x\nparameters:\n{yaml}"), "SKILL.md")
    }

    #[test]
    fn a_schema_is_closed_and_says_what_is_needed() {
        let all = parameters(
            "  message:\n    type: string\n    description: The words\n    required: true\n  depth: { type: integer, default: 3 }\n  mode: { enum: [fast, slow], default: fast, required: true }\n  dry: { type: boolean }\n",
        )
        .expect("good");
        let expected = json!({ "type": "object", "additionalProperties": false, "required": ["message"], "properties": {
            "depth": { "type": "integer", "default": 3 }, "dry": { "type": "boolean" },
            "message": { "type": "string", "description": "The words" },
            "mode": { "type": "string", "enum": ["fast", "slow"], "default": "fast" } } });
        assert_eq!(schema(&all), expected);
        let written = parameters("  n: { type: integer, enum: [\"1\", 2] }\n").expect("good");
        assert_eq!(schema(&written)["properties"]["n"]["enum"], json!([1, 2]), "of its type, however it is written");
        let variables = variables(&all, &json!({ "message": "a", "dry": "true" })).expect("good");
        let expected = [("depth", "3"), ("dry", "true"), ("message", "a"), ("mode", "fast")];
        assert_eq!(variables, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn mistakes_in_the_file_have_their_line() {
        for (yaml, line, word) in [
            ("  PATH: {}\n", 3, "PATH"),
            ("  x: {}\n  LD_PRELOAD: {}\n", 4, "LD_PRELOAD"),
            ("  a-b: {}\n", 3, "letters"),
            ("  x: { type: money }\n", 3, "is \"money\": expected one of string, number, integer, boolean"),
            ("  x: { type: integer, default: abc }\n", 3, "expected an integer"),
            ("  x:\n    type: strin\n", 4, "strin"),
            ("  x: { type: number, default: many }\n", 3, "default"),
            ("  x: { enum: [] }\n", 3, "enum"),
            ("  x: { enum: [a], default: b }\n", 3, "none of a"),
            ("  x: { default: -v }\n", 3, "begins with -"),
            ("  x: text\n", 3, ""),
        ] {
            let error = parameters(yaml).expect_err(yaml);
            assert_eq!(error.line, line + 1, "{yaml}: {}", error.message);
            assert!(error.message.contains(word), "{yaml}: {}", error.message);
        }
        let beside = "name: a\ndescription: b: c\n\nparameters:\n  x:\n    type: number\nversion: 1\n";
        assert_eq!(read(beside, "f").expect("good")[0].kind, ParameterType::Number);
    }

    #[test]
    fn wrong_arguments_are_told_to_the_model() {
        let all = parameters("  n: { type: number, required: true }\n  s: { dash: true }\n  t: {}\n").expect("good");
        for (args, word) in [
            (json!([]), "JSON object"),
            (json!({}), "\"n\" is missing"),
            (json!({ "n": "five" }), "\"n\""),
            (json!({ "n": -5 }), "begins with -"),
            (json!({ "n": 1, "m": 2 }), "unknown argument \"m\""),
            (json!({ "n": 1, "t": "--upload-pack=x" }), "begins with -"),
            (json!({ "n": 1, "t": "-oProxyCommand=x" }), "begins with -"),
            (json!({ "n": 1, "t": "a\u{0}b" }), "NUL"),
            (json!({ "n": 1, "t": 5 }), "\"t\""),
            (json!({ "n": 1, "t": "x".repeat(200_000) }), "120 KiB"),
        ] {
            let why = variables(&all, &args).expect_err("a mistake");
            assert!(why.contains(word), "{why}");
        }
        let good = variables(&all, &json!({ "n": "1e3", "s": "-v", "t": null })).expect("good");
        assert_eq!(good, [("n".to_owned(), "1e3".to_owned()), ("s".to_owned(), "-v".to_owned())]);
    }

    fn said_by_shell(text: &str) -> Vec<u8> {
        let all = parameters("  value: { dash: true, required: true }\n").expect("good");
        let variables = variables(&all, &json!({ "value": text })).expect("a value");
        let mut command = Command::new("sh");
        command.args(["-c", "printf %s \"$value\""]).env_clear().envs(variables);
        command.output().expect("a shell").stdout
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_value_reaches_the_script_byte_for_byte(text in "(?s)[^\\x00]{0,200}") {
            prop_assert_eq!(said_by_shell(&text), text.as_bytes());
        }

        #[test]
        fn what_a_shell_would_obey_reaches_it_too(text in "[-$`\"'\\\\;&|<>(){}*?~#! \\n\\t\\rab]{0,60}") {
            prop_assert_eq!(said_by_shell(&text), text.as_bytes());
        }
    }
}
