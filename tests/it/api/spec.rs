//! The API's description as a program reads it: its operations, and whether an answer is one that it promises.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use board_tests::{Answer, Board};
use jsonschema::Validator;
use serde_json::{Value, json};

/// The document that a Board serves.
pub struct Spec {
    pub document: Value,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Operation {
    pub id: String,
    pub method: String,
    pub path: String,
    pub parameters: Vec<Value>,
    /// Its media type, its schema, and whether it must be there.
    pub body: Option<(String, Value, bool)>,
    pub responses: Value,
}

impl Operation {
    /// Parameters in the path, the query or a header.
    pub fn parameters_in<'a>(&'a self, place: &'a str) -> impl Iterator<Item = &'a Value> {
        self.parameters.iter().filter(move |one| one["in"] == place)
    }

    /// The JSON schema of its body.
    pub fn json_body(&self) -> Option<&Value> {
        self.body.as_ref().filter(|(media, ..)| media == "application/json").map(|(_, schema, _)| schema)
    }
}

impl Spec {
    pub async fn read(board: &Board) -> Self {
        let document = board.anon().get("/api/v1/openapi.json").await.expect(200).json();
        Self { document, validators: Mutex::default() }
    }

    /// Every operation, in the order of the paths.
    pub fn operations(&self) -> Vec<Operation> {
        let mut all = Vec::new();
        for (path, methods) in self.document["paths"].as_object().expect("paths") {
            for (method, described) in methods.as_object().expect("methods") {
                let content = described["requestBody"]["content"].as_object();
                let body = content
                    .and_then(|content| content.get_key_value("application/json").or(content.iter().next()))
                    .map(|(media, one)| {
                        (media.clone(), one["schema"].clone(), described["requestBody"]["required"] == true)
                    });
                all.push(Operation {
                    id: described["operationId"].as_str().expect("an operationId").to_owned(),
                    method: method.to_uppercase(),
                    path: path.clone(),
                    parameters: described["parameters"].as_array().cloned().unwrap_or_default(),
                    body,
                    responses: described["responses"].clone(),
                });
            }
        }
        assert!(all.len() > 50, "only {} operations", all.len());
        all
    }

    /// What stands at the end of a `$ref`, or the value itself.
    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(place) => {
                let found = self.document.pointer(place.trim_start_matches('#'));
                self.resolve(found.unwrap_or_else(|| panic!("{place} leads nowhere")))
            }
            None => value,
        }
    }

    /// Whether a value is as a schema has it, and why not.
    pub fn complaints(&self, schema: &Value, value: &Value) -> Vec<String> {
        let validator = {
            let mut known = self.validators.lock().expect("not poisoned");
            let made = known.entry(schema.to_string()).or_insert_with(|| {
                let whole = json!({ "allOf": [schema], "components": self.document["components"] });
                let made = jsonschema::options().should_validate_formats(true).build(&whole);
                Arc::new(made.unwrap_or_else(|error| panic!("no schema ({error}): {schema}")))
            });
            made.clone()
        };
        validator.iter_errors(value).map(|error| format!("at {:?}: {error}", error.instance_path().as_str())).collect()
    }

    /// What is wrong with an answer: nothing, when the operation promises one like it.
    pub fn judge(&self, operation: &Operation, answer: &Answer) -> Vec<String> {
        let mut wrong = Vec::new();
        let promised = self.resolve(&operation.responses[answer.status.to_string()]);
        if promised.is_null() {
            return vec![format!("{} is not described", answer.status)];
        }
        for (name, header) in promised["headers"].as_object().into_iter().flatten() {
            let header = self.resolve(header);
            let text = answer.header(name);
            if text.is_empty() && header["required"] == true {
                wrong.push(format!("the header {name} is missing"));
            }
            if !text.is_empty() && header["schema"]["type"] == "integer" && text.parse::<u64>().is_err() {
                wrong.push(format!("the header {name} is no number: {text}"));
            }
        }
        let media = answer.header("content-type").split(';').next().unwrap_or_default().trim();
        let content = promised["content"].as_object();
        match content.and_then(|content| content.get(media)) {
            Some(one) if media.ends_with("json") => match serde_json::from_str::<Value>(&answer.body) {
                Ok(value) => {
                    wrong.extend(self.complaints(&one["schema"], &value));
                    if answer.status >= 400 && value["requestId"] != answer.header("x-request-id") {
                        wrong.push("requestId and x-request-id differ".to_owned());
                    }
                }
                Err(error) => wrong.push(format!("no JSON: {error}")),
            },
            Some(_) => {}
            None if content.is_none_or(serde_json::Map::is_empty) && answer.body.is_empty() => {}
            None => wrong.push(format!("a body of type {media:?} is not described")),
        }
        wrong
    }
}
