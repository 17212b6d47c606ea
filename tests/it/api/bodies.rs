//! Bodies that are not what is meant: a list where an object is meant, keys twice, numbers as texts, numbers too large, U+0000.
//! The description says where objects are meant; whatever is registered is tried.

use board_tests::{Answer, Engine, seed::SeededRandom};
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{
    examples,
    generate::Generator,
    spec::{Operation, Spec},
    world::World,
};

/// The places in a value where a schema means an object with fields of its own, as JSON pointers.
fn objects(spec: &Spec, schema: &Value, at: &str, found: &mut Vec<String>) {
    let schema = spec.resolve(schema);
    for one in ["oneOf", "anyOf", "allOf"].iter().flat_map(|of| schema[*of].as_array().into_iter().flatten()) {
        objects(spec, one, at, found);
    }
    let Some(fields) = schema["properties"].as_object() else { return };
    found.push(at.to_owned());
    for (name, field) in fields {
        objects(spec, field, &format!("{at}/{name}"), found);
    }
}

/// A good body with something else at a place.
fn with(body: &Value, at: &str, raw: &str) -> String {
    let mut body = body.clone();
    match at.rsplit_once('/') {
        Some((parent, name)) => {
            let parent = body.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
            parent.insert(name.to_owned(), json!("PLACE"));
        }
        None => body = json!("PLACE"),
    }
    body.to_string().replacen("\"PLACE\"", raw, 1)
}

/// Each of the owners has its own share of requests: they take turns, by how many were made before.
async fn send(world: &World, before: usize, operation: &Operation, path: &str, body: String) -> Answer {
    let owner = &world.owners[before % world.owners.len()];
    let request = owner.request(operation.method.parse::<Method>().expect("a method"), path);
    owner.send(request.header(header::CONTENT_TYPE, "application/json").body(body)).await
}

async fn a156_a_list_is_no_object(engine: Engine) {
    let world = World::start(engine).await;
    let spec = Spec::read(&world.board).await;
    let mut tried = 0;
    for operation in spec.operations() {
        let Some(schema) = operation.json_body() else { continue };
        let path = examples::path(&world, &spec, &operation);
        let mut good = Generator::new(&spec, &world.known, SeededRandom::of(1)).whole(schema);
        let mut places = Vec::new();
        objects(&spec, schema, "", &mut places);
        for at in &places {
            // The objects on the way are there, so that the one that is meant is what is wrong.
            let parents: Vec<&String> = places.iter().filter(|one| at.starts_with(&format!("{one}/"))).collect();
            for parent in parents {
                if !good.pointer(parent).is_some_and(Value::is_object) {
                    good = serde_json::from_str(&with(&good, parent, "{}")).expect("JSON");
                }
            }
            for raw in ["[]", "[null]", "[\"a\", 1, true, {}]", "\"text\"", "7", "true"] {
                let body = with(&good, at, raw);
                // Where a text is meant as well, a text is good.
                if spec.complaints(schema, &serde_json::from_str(&body).expect("JSON")).is_empty() {
                    continue;
                }
                let answer = send(&world, tried, &operation, &path, body).await;
                assert_eq!(
                    (answer.status, answer.code()),
                    (422, "invalid_body".to_owned()),
                    "{} {at} {raw}",
                    operation.id
                );
                let wrong = spec.judge(&operation, &answer);
                assert!(wrong.is_empty(), "{} {at} {raw}: {wrong:?}", operation.id);
                tried += 1;
            }
        }
        let object = good.as_object().expect("an object");
        let field = object.keys().next().map_or("x", String::as_str);
        let rest = good.to_string();
        let first = object.get(field).unwrap_or(&Value::Null);
        for (body, codes) in [
            (
                format!("{{\"{field}\":{first},{}", rest.trim_start_matches('{')).replace(",}", "}"),
                ["invalid_body"].as_slice(),
            ),
            (format!("{{\"nobody knows it\":1,{}", rest.trim_start_matches('{')).replace(",}", "}"), &["invalid_body"]),
            (format!("{{\"{field}\":\"a\\u0000b\"}}"), &["nul", "invalid_body"]),
            (format!("{{\"{field}\":1e400}}"), &["malformed"]),
            (format!("{{\"{field}\":{}}}", "[".repeat(200)), &["malformed"]),
            (rest[..rest.len() - 1].to_owned(), &["malformed"]),
            ("\u{feff}{}".to_owned(), &["malformed"]),
        ] {
            let answer = send(&world, tried, &operation, &path, body.clone()).await;
            assert!(codes.contains(&answer.code().as_str()), "{} {body}: {answer:?}", operation.id);
            assert!(spec.judge(&operation, &answer).is_empty(), "{} {body}: {answer:?}", operation.id);
            tried += 1;
        }
    }
    assert!(tried > 200, "only {tried} bodies");
    world.board.assert_invariants().await;
}

crate::on_both_databases!(a156_a_list_is_no_object);
