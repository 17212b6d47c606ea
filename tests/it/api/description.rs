//! The description itself: every name says one thing, every reference leads somewhere, every code of the Board is in it.

use std::collections::{BTreeMap, BTreeSet};

use board_tests::{Board, Engine, canary::files, programs::root};
use serde_json::Value;

use super::spec::Spec;

/// Sources, with their paths.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let all = folders.iter().flat_map(|folder| files(&root().join(folder)));
    all.filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .map(|file| (file.display().to_string(), std::fs::read_to_string(&file).expect("a source")))
        .collect()
}

/// The words between double quotes that follow a mark.
fn quoted_after<'a>(text: &'a str, mark: &str) -> Vec<&'a str> {
    let after = text.split(mark).skip(1).map(str::trim_start);
    after.filter_map(|rest| rest.strip_prefix('"')?.split('"').next()).collect()
}

/// What the types of a source are called in the description.
fn schemas(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for piece in text.split("ToSchema").skip(1) {
        // From the derive on, to the type that it is for.
        let head: String = piece.lines().take_while(|line| !line.contains('{') || line.contains("#[")).collect();
        let own = head.split("as = ").nth(1).and_then(|rest| rest.split([')', ',']).next());
        let item = piece
            .lines()
            .find_map(|line| line.trim().strip_prefix("pub struct ").or(line.trim().strip_prefix("pub enum ")));
        let derived = piece.trim_start().starts_with([')', ',']);
        if let (true, Some(item)) = (derived, item) {
            let item = item.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            names.push(own.unwrap_or(item).to_owned());
        }
    }
    for words in text.split("words! {").skip(1) {
        let name = words.lines().map(str::trim).find(|line| line.ends_with('{') && !line.starts_with("//"));
        let name = name.map(|name| name.trim_end_matches([' ', '{']));
        names.extend(name.map(|name| name.rsplit(" as ").next().unwrap_or(name).to_owned()));
    }
    names
}

#[test]
fn a157_a_schemas_name_is_one_types() {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources(&["server/src", "protocol/src"]) {
        for name in schemas(&text) {
            all.entry(name).or_default().push(path.clone());
        }
    }
    assert!(all.len() > 60 && all.contains_key("TaskLimits") && all.contains_key("Role"), "{all:#?}");
    let twice: Vec<_> = all.iter().filter(|(_, paths)| paths.len() > 1).collect();
    assert!(twice.is_empty(), "one of each takes the other's place in the description: {twice:#?}");
}

#[test]
fn the_test_reads_names() {
    let text = "#[derive(Debug, ToSchema)]\n#[schema(as = B)]\npub struct A {\n}\n#[derive(ToSchema, Debug)]\npub enum C {}\n\
                use utoipa::ToSchema;\nwords! {\n    /// D.\n    D {\n";
    assert_eq!(schemas(text), ["B", "C", "D"]);
}

fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

async fn a157_the_description_holds_together(engine: Engine) {
    let board = Board::start(engine).await;
    let spec = Spec::read(&board).await;
    let mut used = BTreeSet::new();
    references(&spec.document, &mut used);
    for place in &used {
        assert!(spec.document.pointer(place.trim_start_matches('#')).is_some(), "{place} leads nowhere");
    }
    let schemas = spec.document["components"]["schemas"].as_object().expect("schemas");
    for (name, schema) in schemas {
        assert!(used.contains(&*format!("#/components/schemas/{name}")), "nothing is a {name}");
        assert!(jsonschema::meta::is_valid(schema), "{name} is no schema: {schema:#}");
    }
    let mut ids = BTreeSet::new();
    for operation in spec.operations() {
        let (resource, verb) =
            operation.id.split_once('.').unwrap_or_else(|| panic!("{}: resource.verb", operation.id));
        let plain = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        assert!(plain(resource) && plain(verb), "{}: resource.verb", operation.id);
        assert!(ids.insert(operation.id.clone()), "two operations are called {}", operation.id);
        let holes: BTreeSet<String> = operation
            .path
            .split('/')
            .filter_map(|piece| Some(piece.strip_prefix('{')?.strip_suffix('}')?.to_owned()))
            .collect();
        let named = operation.parameters_in("path").map(|one| one["name"].as_str().unwrap_or_default().to_owned());
        assert_eq!(named.collect::<BTreeSet<_>>(), holes, "{}: {}", operation.id, operation.path);
        for parameter in &operation.parameters {
            assert!(parameter["in"] != "path" || parameter["required"] == true, "{}: {parameter}", operation.id);
            bounded(&spec, &operation.id, parameter);
        }
        let statuses: Vec<&String> = operation.responses.as_object().expect("answers").keys().collect();
        assert!(statuses.iter().any(|status| status.starts_with('2')), "{}: {statuses:?}", operation.id);
        for status in ["400", "413", "415", "503"] {
            assert!(statuses.iter().any(|one| *one == status), "{} does not describe {status}", operation.id);
        }
        if let Some(schema) = operation.json_body() {
            let schema = spec.resolve(schema);
            assert_eq!(schema["additionalProperties"], false, "{}: unknown fields are refused", operation.id);
        }
    }
    board.assert_invariants().await;
}

/// A limit has both its ends, a cursor a length or a form, an identifier its form, a state its words.
fn bounded(spec: &Spec, id: &str, parameter: &Value) {
    let schema = spec.resolve(&parameter["schema"]);
    let name = parameter["name"].as_str().expect("a name");
    let schema = match schema["oneOf"].as_array() {
        Some(all) => all.iter().map(|one| spec.resolve(one)).find(|one| one["type"] != "null").expect("a type"),
        None => schema,
    };
    let good = match name {
        "limit" => schema["minimum"] == 1 && schema["maximum"].is_u64(),
        "cursor" | "after" => schema["maxLength"].is_u64() || schema["pattern"].is_string(),
        "id" | "session" | "proposal" | "upload" | "space" => schema["pattern"].is_string(),
        "state" => schema["enum"].is_array(),
        "path" => schema["maxLength"].is_u64(),
        _ => true,
    };
    assert!(good, "{id}: {name} is not bounded: {schema}");
    if name.ends_with("Id") && name != "agentId" {
        assert!(schema["pattern"].is_string(), "{id}: {name} has no form: {schema}");
    }
}

/// Codes of what is no call of the API: pages, the daemons' door, the command line.
const ELSEWHERE: &[&str] = &[
    "bad_comment",
    "bad_credentials",
    "bad_grant",
    "bad_key",
    "bad_limits",
    "bad_lost_after",
    "bad_mode",
    "bad_model",
    "bad_number",
    "bad_quota",
    "bad_retention",
    "bad_size",
    "bad_role",
    "bad_slug",
    "bad_step",
    "bad_theme",
    "comment_gone",
    "comment_kept",
    "comments_changed",
    "email_taken",
    "key_not_accepted",
    "long_password",
    "member_already",
    "no_action",
    "no_comments",
    "no_decision",
    "no_file",
    "no_skill",
    "no_such_step",
    "not_asked",
    "not_editable",
    "nothing",
    "other_email",
    "set_up",
    "short_password",
    "slug_taken",
    "space_not_found",
    "too_many_comments",
    "too_many_vibers",
    "unknown_provider",
    "upload_under_way",
    "viber_not_found",
];

async fn a160_every_code_is_described_or_is_no_answer_of_the_api(engine: Engine) {
    let board = Board::start(engine).await;
    let spec = Spec::read(&board).await;
    let text = spec.document["paths"].to_string() + &spec.document["components"]["responses"].to_string();
    let described = |code: &str| text.contains(&format!("\"{code}\""));
    let mut missing = BTreeSet::new();
    let mut known = BTreeSet::new();
    for (path, source) in sources(&["server/src"]) {
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        for mark in ["unacceptable(", "conflict("] {
            for code in quoted_after(source, mark) {
                known.insert(code.to_owned());
                if !described(code) && !ELSEWHERE.contains(&code) {
                    missing.insert(format!("{code}: {path}"));
                }
            }
        }
    }
    assert!(known.len() > 60, "only {} codes: the test no longer understands the sources", known.len());
    assert!(missing.is_empty(), "say in refusals.rs which calls answer these, or that none does: {missing:#?}");
    let gone: Vec<_> = ELSEWHERE.iter().filter(|code| !known.contains(**code)).collect();
    assert!(gone.is_empty(), "nothing says these any more: {gone:?}");
    let both: Vec<_> = ELSEWHERE.iter().filter(|code| described(code)).collect();
    assert!(both.is_empty(), "these are described: {both:?}");
    board.assert_invariants().await;
}

crate::on_both_databases!(a157_the_description_holds_together, a160_every_code_is_described_or_is_no_answer_of_the_api,);
