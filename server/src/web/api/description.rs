//! The OpenAPI 3.1 description of the API: what utoipa collects from the handlers, completed by what operations have in
//! common, so that it lists every response of an operation with its codes and headers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use axum::{
    body::Bytes,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{collected, refusals, versions::IfChanged};
use crate::{secret, state::Board};

pub fn routes() -> OpenApiRouter<Board> {
    OpenApiRouter::new().routes(routes!(read))
}

/// This OpenAPI description. It is the same for everybody and needs no credential.
#[utoipa::path(get, path = "/api/v1/openapi.json", operation_id = "openapi.read", tag = "description", security(()),
    params(IfChanged), responses(
        (status = 200, body = Object, headers(("ETag" = String, description = "Its version"))),
        (status = 304, description = "Unchanged: `If-None-Match` names the current version")))]
async fn read(headers: HeaderMap) -> Response {
    let (bytes, tag) = served();
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let tags = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if known.is_some_and(|known| known.split(',').any(|one| one.trim().as_bytes() == tag.as_bytes())) {
        return (StatusCode::NOT_MODIFIED, tags).into_response();
    }
    (tags, [(header::CONTENT_TYPE, "application/json")], bytes.clone()).into_response()
}

/// The description as it is sent, and its version; made once.
fn served() -> &'static (Bytes, HeaderValue) {
    static SERVED: OnceLock<(Bytes, HeaderValue)> = OnceLock::new();
    SERVED.get_or_init(|| {
        let bytes = document().to_string();
        let tag = format!("\"{}\"", secret::hex(&Sha256::digest(&bytes)));
        (bytes.into(), HeaderValue::from_str(&tag).expect("hexadecimal digits"))
    })
}

/// The whole description.
pub fn document() -> Value {
    let mut document = serde_json::to_value(collected()).expect("a description is JSON");
    let paths = document["paths"].take();
    let mut described = Map::new();
    for (path, mut methods) in paths.as_object().into_iter().flatten().map(|(path, item)| (path, item.clone())) {
        for (method, operation) in methods.as_object_mut().into_iter().flatten() {
            complete(method, operation);
        }
        // Axum's syntax for a parameter that may contain slashes. OpenAPI has none: its description says so.
        described.insert(path.replace("{*", "{"), methods);
    }
    document["paths"] = Value::Object(described);
    name_lists(&mut document);
    document["components"]["responses"] = common();
    document["components"]["headers"] = json!({
        "RequestId": { "description": "Identifies the request in the Board's log", "required": true,
            "schema": { "type": "string" } },
        "RetryAfter": { "description": "Seconds until a retry makes sense", "required": true,
            "schema": { "type": "integer", "minimum": 0 } },
    });
    document
}

/// Calls a list of tasks a `TaskList`, with tasks as its items: utoipa writes `List_Task`, and all of a task into it.
fn name_lists(document: &mut Value) {
    let schemas = document["components"]["schemas"].as_object_mut().expect("schemas");
    let lists: Vec<String> = schemas.keys().filter_map(|name| Some(name.strip_prefix("List_")?.to_owned())).collect();
    for of in &lists {
        let mut list = schemas.remove(&format!("List_{of}")).expect("it was listed");
        list["properties"]["items"]["items"] = json!({ "$ref": format!("#/components/schemas/{of}") });
        schemas.insert(format!("{of}List"), list);
    }
    let mut text = document.to_string();
    for of in lists {
        text = text.replace(&format!("/List_{of}\""), &format!("/{of}List\""));
    }
    *document = serde_json::from_str(&text).expect("only names have changed");
}

/// Errors that every operation may answer: the status, its codes, and their meaning.
const COMMON_REFUSALS: &[(u16, &[&str], &str)] = &[
    (400, &["malformed"], "Malformed: invalid JSON, no team, or contradictory headers"),
    (401, &["unauthenticated"], "Not signed in"),
    (403, &["csrf_failed", "forbidden"], "The role is too low, or another site may have caused the request"),
    (404, &["not_found"], "It does not exist, or belongs to another team"),
    (413, &["too_large"], "The body, or what it would create, is too large"),
    (415, &["unsupported_media_type"], "A media type that this operation does not accept, or a compressed body"),
    (421, &["misdirected"], "This Board does not answer to that host name"),
    (429, &["throttled"], "Too many requests, or too many open streams"),
    (503, &["unavailable"], "The Board, or something it depends on, is not available right now"),
];

/// The meaning of statuses that only some operations answer.
const STATUS_MEANINGS: &[(u16, &str)] = &[
    (409, "The current state does not allow it"),
    (410, "It existed and is gone"),
    (412, "The current version is not the one that the request names"),
    (416, "The requested range lies outside the content"),
    (422, "Understood, but not acceptable"),
    (428, "It exists: name its version in `If-Match`"),
];

/// The answers of [`COMMON_REFUSALS`], as components: most calls refer to them.
fn common() -> Value {
    let all =
        COMMON_REFUSALS.iter().map(|(status, codes, means)| (name(*status), problem(*status, &set(codes), means)));
    Value::Object(all.collect())
}

/// The name of the component for a status.
fn name(status: u16) -> String {
    let status = StatusCode::from_u16(status).expect("a status");
    status.canonical_reason().unwrap_or("Other").split([' ', '-']).collect()
}

fn set(codes: &[&'static str]) -> BTreeSet<&'static str> {
    codes.iter().copied().collect()
}

/// An answer with a problem that has one of these codes.
fn problem(status: u16, codes: &BTreeSet<&str>, means: &str) -> Value {
    let mut headers = json!({ "X-Request-Id": { "$ref": "#/components/headers/RequestId" } });
    let text = |means: &str| json!({ "description": means, "required": true, "schema": { "type": "string" } });
    match status {
        401 => headers["WWW-Authenticate"] = text("`Bearer`"),
        412 => headers["ETag"] = json!({ "description": "The current version", "schema": { "type": "string" } }),
        416 => headers["Content-Range"] = text("The size of the content: `bytes */SIZE`"),
        429 | 503 => headers["Retry-After"] = json!({ "$ref": "#/components/headers/RetryAfter" }),
        _ => {}
    }
    let shape = if matches!(status, 412 | 428) { "VersionProblem" } else { "Problem" };
    let narrowed = json!({ "properties": { "code": { "enum": codes }, "status": { "const": status } } });
    let schema = json!({ "allOf": [{ "$ref": format!("#/components/schemas/{shape}") }, narrowed] });
    json!({ "description": means, "headers": headers, "content": { "application/problem+json": { "schema": schema } } })
}

/// Adds to an operation what its handler does not say itself.
fn complete(method: &str, operation: &mut Value) {
    let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
    let open = operation["security"] == json!([{}]);
    let changes = method != "get";
    if changes {
        let key = json!({ "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "Identifies the call for 24 hours: a repetition gets the first response and does nothing",
            "schema": { "type": "string", "minLength": 1, "maxLength": 255 } });
        let parameters = operation.as_object_mut().expect("an operation").entry("parameters").or_insert(json!([]));
        parameters.as_array_mut().expect("a list").push(key);
    }
    optional_body(operation);
    let codes = codes(&id, operation, open, changes);
    let responses = operation["responses"].as_object_mut().expect("an operation has answers");
    for (status, response) in responses.iter_mut().filter(|(status, _)| status.starts_with(['2', '3'])) {
        succeed(status, response);
        if changes && status.starts_with('2') {
            response["headers"]["Idempotency-Replayed"] = json!({ "description": "`true` when this is the stored response of an earlier call", "schema": { "const": "true" } });
        }
    }
    for (status, codes) in codes {
        let usual = COMMON_REFUSALS.iter().find(|(usual, ..)| *usual == status);
        let response = match usual {
            Some((_, known, _)) if set(known) == codes => {
                json!({ "$ref": format!("#/components/responses/{}", name(status)) })
            }
            _ => {
                let means = STATUS_MEANINGS.iter().find(|(some, _)| *some == status).map(|(_, means)| *means);
                let means = means.or(usual.map(|(.., means)| *means)).unwrap_or_default();
                problem(status, &codes, means)
            }
        };
        responses.insert(status.to_string(), response);
    }
    if open {
        responses.retain(|status, _| !["401", "403", "404", "429"].contains(&status.as_str()));
    }
}

/// The codes that an operation may answer, by status.
fn codes(id: &str, operation: &Value, open: bool, changes: bool) -> BTreeMap<u16, BTreeSet<&'static str>> {
    let mut all: BTreeMap<u16, BTreeSet<&'static str>> = BTreeMap::new();
    let mut add = |status: u16, codes: &[&'static str]| all.entry(status).or_default().extend(codes);
    for (status, codes, _) in
        COMMON_REFUSALS.iter().filter(|(status, ..)| !open || !matches!(status, 401 | 403 | 404 | 429))
    {
        add(*status, codes);
    }
    let asks = |name: &str| {
        let all = operation["parameters"].as_array().into_iter().flatten();
        all.filter(|one| one["in"] == "query").any(|one| name.is_empty() || one["name"] == name)
    };
    if asks("") {
        add(422, &["bad_query", "nul"]);
    }
    if asks("cursor") {
        add(422, &["bad_cursor"]);
    }
    if asks("limit") {
        add(422, &["bad_limit"]);
    }
    if operation["requestBody"]["content"]["application/json"].is_object() {
        add(422, &["invalid_body", "nul"]);
    }
    if changes {
        add(409, &["idempotency_lost", "taken"]);
        add(422, &["bad_idempotency_key", "idempotency_mismatch"]);
    }
    for (status, codes) in refusals::of(id) {
        add(*status, codes);
    }
    all
}

/// A body that may be left out is described so; it is not `null`.
fn optional_body(operation: &mut Value) {
    let Some(body) = operation.get_mut("requestBody") else { return };
    let schema = &body["content"]["application/json"]["schema"];
    let there = schema["oneOf"].as_array().and_then(|all| all.iter().find(|one| one["$ref"].is_string())).cloned();
    body["required"] = json!(there.is_none());
    if let Some(there) = there {
        body["content"]["application/json"]["schema"] = there;
    }
}

/// The headers of a successful answer: those that its handler declares are required, except those declared as an
/// `Option`.
fn succeed(status: &str, response: &mut Value) {
    if !response["headers"].is_object() {
        response["headers"] = json!({});
    }
    if response["description"].as_str().is_none_or(str::is_empty) {
        let means = match status {
            "201" => "Created",
            "204" => "Done; the response has no body",
            _ => "Success",
        };
        response["description"] = json!(means);
    }
    for header in response["headers"].as_object_mut().expect("an object").values_mut() {
        let optional = header["schema"].to_string().contains("\"null\"");
        header["required"] = json!(!optional);
        if optional {
            header["schema"] = json!({ "type": "string" });
        }
    }
    if status == "206" {
        response["headers"]["Content-Range"] =
            json!({ "description": "`bytes FROM-TO/SIZE`", "required": true, "schema": { "type": "string" } });
    }
    response["headers"]["X-Request-Id"] = json!({ "$ref": "#/components/headers/RequestId" });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn operations(document: &Value) -> Vec<(String, String, Value)> {
        let mut all = Vec::new();
        for (path, methods) in document["paths"].as_object().expect("paths") {
            for (method, operation) in methods.as_object().expect("methods") {
                all.push((method.to_uppercase(), path.clone(), operation.clone()));
            }
        }
        all
    }

    #[test]
    fn it_is_openapi_3_1_and_says_what_a_call_answers() {
        let document = document();
        assert_eq!(document["openapi"], "3.1.0");
        let submit = &document["paths"]["/api/v1/tasks"]["post"];
        assert_eq!(submit["responses"]["201"]["headers"]["Location"]["required"], true, "{submit:#}");
        assert_eq!(submit["responses"]["429"]["$ref"], "#/components/responses/TooManyRequests");
        let codes = submit["responses"]["422"]["content"]["application/problem+json"]["schema"]["allOf"][1].to_string();
        assert!(codes.contains("\"bad_goal\"") && codes.contains("\"invalid_body\""), "{codes}");
        assert!(document["components"]["schemas"]["Task"]["properties"]["stopConfirmedAt"].is_object());
        let stop = &document["paths"]["/api/v1/tasks/{id}/stop"]["post"]["requestBody"];
        assert_eq!(stop["required"], false);
        assert_eq!(stop["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/StopTask");
    }

    #[test]
    fn every_operation_has_an_id_of_its_own_and_every_row_an_operation() {
        let document = document();
        let all = operations(&document);
        let ids: Vec<&str> = all.iter().filter_map(|(.., operation)| operation["operationId"].as_str()).collect();
        let unique: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!((ids.len(), unique.len()), (all.len(), all.len()));
        for row in refusals::operations() {
            assert!(unique.contains(row), "no operation is called {row}");
        }
        assert!(refusals::operations().is_sorted(), "the table is in order, so that nobody stands there twice");
    }

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let table = crate::web::authority::ROUTES.iter().filter(|route| route.path.starts_with("/api/v1/"));
        let routes: BTreeSet<_> = table.map(|route| (route.method.to_owned(), route.path.replace("{*", "{"))).collect();
        let described: BTreeSet<_> =
            operations(&document()).into_iter().map(|(method, path, _)| (method, path)).collect();
        assert_eq!(routes, described);
    }
}
