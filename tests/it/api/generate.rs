//! Values made at random from a schema, and values that spoil them.

use std::collections::BTreeMap;

use board_tests::seed::SeededRandom;
use proptest::{
    strategy::{Strategy, ValueTree},
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use serde_json::{Map, Value, json};

use super::spec::Spec;

/// Texts that have broken programs before.
const ODD_TEXTS: &[&str] = &[
    "",
    " ",
    "a\nb\r\n",
    "\u{202e}desrever",
    "\u{200b}",
    "ä𝄞",
    "'; DROP TABLE tasks; --",
    "<script>alert(1)</script>",
    "%00",
    "../../etc/passwd",
    "null",
    "-1",
    "\u{fffd}",
    "{{7*7}}",
];

/// Makes values. The same seed, the same values.
pub struct Generator<'a> {
    spec: &'a Spec,
    known: &'a BTreeMap<String, Vec<String>>,
    pub seeded: SeededRandom,
    patterns: TestRunner,
}

impl<'a> Generator<'a> {
    pub fn new(spec: &'a Spec, known: &'a BTreeMap<String, Vec<String>>, mut seeded: SeededRandom) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&seeded.draw().to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        Self { spec, known, seeded, patterns: TestRunner::new_with_rng(Config::default(), random) }
    }

    /// One of these.
    pub fn pick<'b, T>(&mut self, all: &'b [T]) -> &'b T {
        &all[usize::try_from(self.seeded.between(0, all.len() as u64)).expect("small")]
    }

    /// An object with its required fields alone.
    pub fn whole(&mut self, schema: &Value) -> Value {
        self.made(schema, 0, 0.0)
    }

    /// A value as the schema has it, with some of what may be left out.
    pub fn value(&mut self, schema: &Value) -> Value {
        self.made(schema, 0, 0.4)
    }

    fn made(&mut self, schema: &Value, depth: usize, optional: f64) -> Value {
        let spec = self.spec;
        let schema = spec.resolve(schema);
        if let Some(one) = schema.get("const") {
            return one.clone();
        }
        if let Some(all) = schema["enum"].as_array() {
            return self.pick(all).clone();
        }
        if let Some(all) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
            let one = self.pick(all).clone();
            return self.made(&one, depth, optional);
        }
        if let Some(all) = schema["allOf"].as_array() {
            let mut whole = Map::new();
            for one in all {
                if let Value::Object(fields) = self.made(one, depth, optional) {
                    whole.extend(fields);
                }
            }
            return Value::Object(whole);
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.pick(kinds).as_str().unwrap_or_default().to_owned(),
            kind => kind.as_str().unwrap_or_default().to_owned(),
        };
        match kind.as_str() {
            "object" => self.object(schema, depth, optional),
            "array" if depth < 4 => {
                let n = self.seeded.between(0, 3);
                (0..n).map(|_| self.made(&schema["items"], depth + 1, optional)).collect()
            }
            "array" => json!([]),
            "string" => json!(self.text(schema)),
            "integer" => self.integer(schema),
            "number" => json!(self.seeded.between(0, 1000) as f64 / 8.0),
            "boolean" => json!(self.seeded.chance() < 0.5),
            "null" => Value::Null,
            _ => self.pick(&[json!({}), json!({ "a": [1, "b"] }), json!("text"), json!([]), Value::Null]).clone(),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize, optional: f64) -> Value {
        let mut whole = Map::new();
        let required = |name: &String| schema["required"].as_array().is_some_and(|all| all.contains(&json!(name)));
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if required(name) || (depth < 4 && self.seeded.chance() < optional) {
                whole.insert(name.clone(), self.made(field, depth + 1, optional));
            }
        }
        if schema["additionalProperties"].is_object() {
            for n in 0..self.seeded.between(0, 3) {
                whole.insert(format!("key-{n}"), self.made(&schema["additionalProperties"], depth + 1, optional));
            }
        }
        Value::Object(whole)
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let least = schema["minimum"].as_i64().unwrap_or(0);
        let usual = if schema["format"] == "int32" { i64::from(i32::MAX) } else { i64::MAX };
        let most = schema["maximum"].as_i64().unwrap_or(usual);
        let middle = least + i64::try_from(self.seeded.draw() % 1000).expect("small").min(most - least);
        json!(*self.pick(&[least, most, middle, middle]))
    }

    /// A text: an identifier that is known, what the pattern asks for, or anything within its bounds.
    pub fn text(&mut self, schema: &Value) -> String {
        let pattern = schema["pattern"].as_str().unwrap_or_default().to_owned();
        let prefix = pattern.trim_start_matches('^').split_once("_[").map(|(prefix, _)| prefix.to_owned());
        if let Some(known) = prefix.and_then(|prefix| self.known.get(&prefix)).filter(|known| !known.is_empty())
            && self.seeded.chance() < 0.85
        {
            // The first ones are of things that stay; of the others some are gone by now.
            let some = if self.seeded.chance() < 0.5 { &known[..known.len().min(4)] } else { known.as_slice() };
            return self.pick(some).clone();
        }
        if !pattern.is_empty() {
            return self.matching(&pattern);
        }
        if schema["format"] == "date-time" {
            return "2026-11-20T09:57:19.000Z".to_owned();
        }
        let (least, most) = (schema["minLength"].as_u64().unwrap_or(0), schema["maxLength"].as_u64().unwrap_or(200));
        let odd = self.pick(ODD_TEXTS).to_string();
        let text = match self.seeded.between(0, 4) {
            0 => odd,
            1 => "x".repeat(usize::try_from(most.min(2000)).expect("small")),
            _ => format!("words {}", self.seeded.between(0, 1000)),
        };
        let fits = text.chars().count() as u64;
        if (least..=most).contains(&fits) { text } else { "a".repeat(usize::try_from(least.max(1)).expect("small")) }
    }

    fn matching(&mut self, pattern: &str) -> String {
        let bare = pattern.trim_start_matches('^').trim_end_matches('$');
        let strategy = proptest::string::string_regex(bare).expect("a pattern of the description is a plain one");
        strategy.new_tree(&mut self.patterns).expect("a text").current()
    }

    /// Something else in one place of the value. Whether it is wrong there is for the schema to say.
    pub fn spoil(&mut self, value: &mut Value) {
        let mut places = Vec::new();
        pointers(value, String::new(), &mut places);
        let at = self.pick(&places).clone();
        let place = value.pointer_mut(&at).expect("a place");
        if let Value::Object(fields) = place
            && self.seeded.chance() < 0.5
        {
            let key = fields.keys().next().cloned();
            match key {
                Some(key) if self.seeded.chance() < 0.5 => drop(fields.remove(&key)),
                _ => drop(fields.insert("unknown".into(), json!(1))),
            }
            return;
        }
        let odd = [
            Value::Null,
            json!([]),
            json!({}),
            json!(true),
            json!(0),
            json!(-1),
            json!(1.5),
            json!(1e300),
            json!(u64::MAX),
            json!("12"),
            json!("x".repeat(5000)),
            json!({ "a": { "b": { "c": [[[[]]]] } } }),
        ];
        *place = if self.seeded.chance() < 0.25 { json!(*self.pick(ODD_TEXTS)) } else { self.pick(&odd).clone() };
    }
}

fn pointers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| pointers(field, format!("{at}/{}", name.replace('/', "~1")), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| pointers(item, format!("{at}/{n}"), found));
        }
        _ => {}
    }
    found.push(at);
}
