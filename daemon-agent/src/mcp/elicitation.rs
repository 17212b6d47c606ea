//! What a server asks people for, as questions that they can answer one by one, and their answers as what it asked for.
//!
//! Pure. The words are the server's: they are shown as text, and say whose they are.

use protocol::{
    AgentQuestion, AnswerOption,
    text::{head, printable},
};
use serde_json::{Map, Value, json};

/// Most fields of one form; a server that asks for more is declined.
const MAX_FIELDS: usize = 16;
/// Longest message, and longest words of a field, bytes.
const MAX_MESSAGE_BYTES: usize = 4 * 1024;
const MAX_WORDS_BYTES: usize = 300;
/// Options that a question has.
const MIN_OPTIONS: usize = 2;
const MAX_OPTIONS: usize = 4;
/// Words by which a server asks for what no server is to be told. Compared in small letters, `_` and `-` as blanks.
const SECRET_WORDS: &[&str] = &[
    "password",
    "passwort",
    "passphrase",
    "passcode",
    "api key",
    "apikey",
    "private key",
    "secret",
    "access token",
    "credential",
    "recovery phrase",
    "seed phrase",
    "one time code",
];
/// What leaves out a field that need not be there, or takes its default.
const LEFT_OUT: &str = "-";
const YES: &str = "Yes";
const NO: &str = "No";

/// A form: its fields in order.
#[derive(Clone, Debug, PartialEq)]
pub struct ElicitationForm {
    server: String,
    message: String,
    fields: Vec<Field>,
}

#[derive(Clone, Debug, PartialEq)]
struct Field {
    name: String,
    /// What people read.
    label: String,
    is_required: bool,
    kind: FieldKind,
    /// What a text is to look like.
    format: &'static str,
    /// What the server takes for it if people say nothing else.
    default: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
enum FieldKind {
    Text,
    Number,
    Integer,
    Boolean,
    /// Values, each with what is shown of it.
    Choice(Vec<(String, String)>),
    /// Several of such values.
    Choices(Vec<(String, String)>),
}

impl ElicitationForm {
    /// The form in `params`; `None` if it is none that people can be asked.
    pub fn read(server: &str, params: &Value) -> Option<Self> {
        if params["mode"].as_str().is_some_and(|mode| mode != "form") {
            return None;
        }
        let schema = &params["requestedSchema"];
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if properties.len() > MAX_FIELDS {
            return None;
        }
        let fields = properties.iter().map(|(name, property)| Field::read(name, property, &required));
        let message = printable(head(params["message"].as_str()?.trim(), MAX_MESSAGE_BYTES));
        let mut fields: Vec<Field> = fields.collect::<Option<_>>()?;
        // Members of an object have no order here; what has to be there comes first, as the server lists it.
        fields.sort_by_key(|field| required.iter().position(|name| *name == field.name).unwrap_or(required.len()));
        // Whoever wants a secret has a page of its own for it, or an `env` on the machine.
        let wants_secret = properties.values().any(|property| property["format"] == "password")
            || fields.iter().any(|field| field.is_typed() && (field.names_secret() || names_secret(&message)));
        (!wants_secret).then(|| Self { server: server.to_owned(), message, fields })
    }

    /// How many questions it is: one at least, because people also say whether they agree.
    pub fn count(&self) -> usize {
        self.fields.len().max(1)
    }

    /// The question number `n`, from 0. `wrong`: why the answer before was none.
    pub fn question(&self, n: usize, wrong: Option<&str>) -> AgentQuestion {
        let mut text = format!("The MCP server {} asks: {}", self.server, self.message);
        let mut options = Vec::new();
        if let Some(field) = self.fields.get(n) {
            let place =
                if self.fields.len() > 1 { format!(" ({} of {})", n + 1, self.fields.len()) } else { String::new() };
            text.push_str(&format!("\n\n{}{place}", field.label));
            options = field.options();
            if options.is_empty() {
                text.push_str(&format!(": {}", field.expects()));
            }
            if field.kind == FieldKind::Text {
                text.push_str(" What you answer goes to the server: no password, no key.");
            }
            match &field.default {
                Some(default) => text.push_str(&format!("\nAnswer {LEFT_OUT} for “{}”.", field.shown(default))),
                None if !field.is_required => text.push_str(&format!("\nAnswer {LEFT_OUT} to leave it out.")),
                None => {}
            }
        } else {
            options.push(option(YES));
            options.push(option(NO));
        }
        if let Some(wrong) = wrong {
            text.push_str(&format!("\n\nThe answer before was none: {wrong}"));
        }
        let on_timeout = "The server is told that nobody answered.".to_owned();
        AgentQuestion { text, options, recommended: None, on_timeout }
    }

    /// Takes the answer to question `n` into `content`; `Err` says why it is none. `Ok(false)`: it declines.
    pub fn take(&self, n: usize, answer: &str, content: &mut Map<String, Value>) -> Result<bool, String> {
        let answer = answer.trim();
        let Some(field) = self.fields.get(n) else { return Ok(answer.eq_ignore_ascii_case(YES)) };
        if answer == LEFT_OUT && (field.default.is_some() || !field.is_required) {
            content.extend(field.default.iter().map(|default| (field.name.clone(), default.clone())));
            return Ok(true);
        }
        content.insert(field.name.clone(), field.value(answer)?);
        Ok(true)
    }
}

impl Field {
    fn read(name: &str, property: &Value, required: &[&str]) -> Option<Self> {
        let words = |key: &str| property[key].as_str().map(|text| printable(head(text.trim(), MAX_WORDS_BYTES)));
        let title = words("title").unwrap_or_else(|| printable(head(name, MAX_WORDS_BYTES)));
        let label = words("description").map_or(title.clone(), |description| format!("{title}: {description}"));
        let kind = match (choices(property), property["type"].as_str()) {
            (Some(choices), _) => FieldKind::Choice(choices),
            (None, Some("string")) => FieldKind::Text,
            (None, Some("number")) => FieldKind::Number,
            (None, Some("integer")) => FieldKind::Integer,
            (None, Some("boolean")) => FieldKind::Boolean,
            (None, Some("array")) => FieldKind::Choices(choices(&property["items"])?),
            _ => return None,
        };
        let default = Some(property["default"].clone()).filter(|default| !default.is_null());
        let format = match property["format"].as_str() {
            Some("email") => "an email address.",
            Some("uri") => "an address such as https://example.com.",
            Some("date") => "a date such as 2026-12-31.",
            Some("date-time") => "a time such as 2026-12-31T18:00:00Z.",
            _ => "a text.",
        };
        Some(Self { name: name.to_owned(), label, is_required: required.contains(&name), kind, format, default })
    }

    /// A value as people read it.
    fn shown(&self, value: &Value) -> String {
        let words = |value: &Value| match value {
            Value::Bool(true) => YES.to_owned(),
            Value::Bool(false) => NO.to_owned(),
            Value::String(text) => {
                let title = self.choices().iter().find(|(value, _)| value == text).map(|(_, title)| title);
                printable(head(title.unwrap_or(text), MAX_WORDS_BYTES))
            }
            other => printable(head(&other.to_string(), MAX_WORDS_BYTES)),
        };
        match value.as_array() {
            Some(all) => all.iter().take(MAX_FIELDS).map(words).collect::<Vec<_>>().join(", "),
            None => words(value),
        }
    }

    /// What can be chosen, each value with what is shown of it.
    fn choices(&self) -> &[(String, String)] {
        match &self.kind {
            FieldKind::Choice(all) | FieldKind::Choices(all) => all,
            FieldKind::Text | FieldKind::Number | FieldKind::Integer | FieldKind::Boolean => &[],
        }
    }

    /// Whether people write something into it.
    fn is_typed(&self) -> bool {
        matches!(self.kind, FieldKind::Text | FieldKind::Number | FieldKind::Integer)
    }

    fn names_secret(&self) -> bool {
        names_secret(&self.name) || names_secret(&self.label)
    }

    /// What can be chosen, if it is not too much.
    fn options(&self) -> Vec<AnswerOption> {
        match &self.kind {
            FieldKind::Boolean => vec![option(YES), option(NO)],
            FieldKind::Choice(all) if (MIN_OPTIONS..=MAX_OPTIONS).contains(&all.len()) => {
                all.iter().map(|(_, shown)| option(shown)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn expects(&self) -> String {
        match &self.kind {
            FieldKind::Text => self.format.to_owned(),
            FieldKind::Number => "a number.".to_owned(),
            FieldKind::Integer => "a whole number.".to_owned(),
            FieldKind::Boolean => format!("{YES} or {NO}."),
            FieldKind::Choice(all) | FieldKind::Choices(all) => {
                let shown: Vec<&str> = all.iter().map(|(_, shown)| shown.as_str()).collect();
                let shown = shown.join(", ");
                let shown = head(&shown, 2 * MAX_WORDS_BYTES);
                match self.kind {
                    FieldKind::Choices(_) => format!("some of {shown}, with commas between them."),
                    _ => format!("one of {shown}."),
                }
            }
        }
    }

    fn value(&self, answer: &str) -> Result<Value, String> {
        let wrong = || format!("expected {}", self.expects());
        match &self.kind {
            FieldKind::Text => Ok(answer.into()),
            FieldKind::Number => {
                answer.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| json!(n)).ok_or_else(wrong)
            }
            FieldKind::Integer => answer.parse::<i64>().map(|n| json!(n)).map_err(|_| wrong()),
            FieldKind::Boolean if answer.eq_ignore_ascii_case(YES) || answer == "true" => Ok(true.into()),
            FieldKind::Boolean if answer.eq_ignore_ascii_case(NO) || answer == "false" => Ok(false.into()),
            FieldKind::Boolean => Err(wrong()),
            FieldKind::Choice(_) => self.chosen(answer).ok_or_else(wrong),
            FieldKind::Choices(_) => {
                let one_by_one = answer.split(',').map(|one| self.chosen(one.trim())).collect::<Option<Vec<_>>>();
                // A title may have a comma in it.
                let all = self.chosen(answer).map(|one| vec![one]).or(one_by_one);
                all.map(Value::Array).ok_or_else(wrong)
            }
        }
    }

    /// The value that an answer chooses.
    fn chosen(&self, answer: &str) -> Option<Value> {
        let found = self.choices().iter().find(|(value, shown)| shown == answer || value == answer);
        found.map(|(value, _)| value.as_str().into())
    }
}

fn names_secret(text: &str) -> bool {
    let plain = text.to_lowercase().replace(['_', '-'], " ");
    SECRET_WORDS.iter().any(|word| plain.contains(word))
}

/// The values of a choice: `enum` with `enumNames`, or `oneOf` (of several: `anyOf`) with `const` and `title`.
fn choices(property: &Value) -> Option<Vec<(String, String)>> {
    let shown = |text: &str| printable(head(text.trim(), MAX_WORDS_BYTES)).replace('\n', " ");
    if let Some(values) = property["enum"].as_array() {
        let names = property["enumNames"].as_array();
        let one = |(n, value): (usize, &Value)| {
            let value = value.as_str()?;
            let name = names.and_then(|names| names.get(n)?.as_str()).unwrap_or(value);
            Some((value.to_owned(), shown(name)))
        };
        return values.iter().enumerate().map(one).collect();
    }
    let values = property["oneOf"].as_array().or_else(|| property["anyOf"].as_array())?;
    let one = |value: &Value| {
        let constant = value["const"].as_str()?;
        Some((constant.to_owned(), shown(value["title"].as_str().unwrap_or(constant))))
    };
    values.iter().map(one).collect()
}

fn option(label: &str) -> AnswerOption {
    AnswerOption { label: label.to_owned(), trade_off: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(properties: Value, required: Value) -> Option<ElicitationForm> {
        let schema = json!({ "type": "object", "properties": properties, "required": required });
        ElicitationForm::read("fs", &json!({ "message": "Which one?\u{1b}[2J", "requestedSchema": schema }))
    }

    #[test]
    fn each_field_is_a_question_and_each_answer_a_value() {
        let properties = json!({
            "count": { "type": "integer", "title": "Copies" },
            "kind": { "type": "string", "enum": ["a", "b"], "enumNames": ["First", "Second"] },
            "note": { "type": "string", "description": "for the log" },
            "sure": { "type": "boolean" },
        });
        let form = form(properties, json!(["count", "kind", "sure"])).expect("a form");
        assert_eq!(form.count(), 4);
        let first = form.question(0, None);
        assert!(
            first.text.contains("The MCP server fs asks: Which one?") && !first.text.contains('\u{1b}'),
            "{}",
            first.text
        );
        assert!(first.text.contains("Copies (1 of 4): a whole number"), "{}", first.text);
        let labels: Vec<String> = form.question(1, None).options.into_iter().map(|option| option.label).collect();
        assert_eq!(labels, ["First", "Second"]);
        assert!(form.question(3, None).text.contains("for the log"), "what may be left out comes last");
        let mut content = Map::new();
        assert!(form.take(0, "three", &mut content).is_err());
        for (n, answer) in ["3", "Second", "No", "-"].into_iter().enumerate() {
            assert_eq!(form.take(n, answer, &mut content), Ok(true), "{answer}");
        }
        assert_eq!(Value::Object(content), json!({ "count": 3, "kind": "b", "sure": false }));
        assert!(form.question(0, Some("expected a whole number.")).text.ends_with("expected a whole number."));
    }

    #[test]
    fn several_can_be_chosen_and_a_default_is_taken_as_it_is() {
        let titled = json!([{ "const": "o", "title": "Oak" }, { "const": "e", "title": "Elm" }]);
        let properties = json!({
            "birds": { "type": "array", "items": { "type": "string", "enum": ["owl", "jay"] }, "default": ["jay"] },
            "name": { "type": "string", "format": "email", "default": "Ada" },
            "trees": { "type": "array", "items": { "anyOf": titled } },
        });
        let form = form(properties, json!(["birds", "trees"])).expect("a form");
        let asked = form.question(0, None).text;
        assert!(asked.contains("some of owl, jay, with commas between them.\nAnswer - for “jay”."), "{asked}");
        let asked = form.question(2, None).text;
        assert!(asked.contains("an email address.") && asked.contains("Answer - for “Ada”."), "{asked}");
        let mut content = Map::new();
        assert!(form.take(1, "Oak, Ash", &mut content).is_err() && form.take(1, "-", &mut content).is_err());
        for (n, answer) in ["-", "Oak, e", "-"].into_iter().enumerate() {
            assert_eq!(form.take(n, answer, &mut content), Ok(true), "{answer}");
        }
        assert_eq!(Value::Object(content), json!({ "birds": ["jay"], "name": "Ada", "trees": ["o", "e"] }));
    }

    #[test]
    fn a_form_without_fields_is_a_yes_or_no() {
        let form = form(json!({}), json!([])).expect("a form");
        assert_eq!((form.count(), form.question(0, None).options.len()), (1, 2));
        assert_eq!(form.take(0, "yes", &mut Map::new()), Ok(true));
        assert_eq!(form.take(0, "No", &mut Map::new()), Ok(false));
    }

    #[test]
    fn what_people_cannot_be_asked_is_no_form() {
        assert!(form(json!({ "a": { "type": "array", "items": {} } }), json!([])).is_none());
        let many: Map<String, Value> =
            (0..=MAX_FIELDS).map(|n| (format!("f{n}"), json!({ "type": "string" }))).collect();
        assert!(form(Value::Object(many), json!([])).is_none());
        assert!(ElicitationForm::read("fs", &json!({ "mode": "url", "message": "m", "url": "https://a" })).is_none());
    }

    #[test]
    fn nobody_is_asked_for_a_password_or_a_key() {
        let field = |name: &str, more: Value| {
            let mut property = json!({ "type": "string" });
            property.as_object_mut().expect("an object").extend(more.as_object().cloned().expect("an object"));
            form(json!({ name: property }), json!([]))
        };
        assert!(field("name", json!({})).is_some());
        assert!(field("API_KEY", json!({})).is_none());
        assert!(field("a", json!({ "title": "Your Passphrase" })).is_none());
        assert!(field("a", json!({ "description": "the private-key of the machine" })).is_none());
        assert!(field("a", json!({ "format": "password" })).is_none());
        let sure = json!({ "sure": { "type": "boolean", "title": "Change the password?" } });
        assert!(form(sure, json!([])).is_some(), "nobody writes one");
        let asked = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        let params = json!({ "message": "Please enter your password", "requestedSchema": asked });
        assert!(ElicitationForm::read("fs", &params).is_none());
    }
}
