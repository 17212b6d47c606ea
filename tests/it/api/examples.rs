//! Every example of a body that the description gives is sent to its call, and does what the call is for.

use board_tests::{Answer, Board, Engine};
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{
    spec::{Operation, Spec},
    world::{EXAMPLE, World},
};

/// What this machine refuses: with a bucket behind the Board these are played by `artifacts::s3`, with an agent that
/// summarizes by `context::compact`.
const REFUSED_HERE: &[(&str, u16)] = &[
    ("uploads.start", 422),
    ("uploads.finish", 404),
    ("context.compact", 422),
    ("context.flush", 422),
    ("context.reset", 422),
    ("context.uncompact", 404),
];

/// The example of a call's body, with identifiers of things that are there.
fn example(world: &World, spec: &Spec, operation: &Operation) -> Option<Value> {
    let schema = spec.resolve(operation.json_body()?);
    let given = schema["examples"][0].clone();
    assert!(!given.is_null(), "{} has no example: {schema:#}", operation.id);
    assert!(spec.complaints(schema, &given).is_empty(), "{}: {:?}", operation.id, spec.complaints(schema, &given));
    let mut text = given.to_string();
    for seen in ["the digest of the approval", "the digest of the skill", "the gateDigest of the step"] {
        text = text.replace(seen, &special(world, operation, "digest"));
    }
    text = text.replace("the hash of the tools", &special(world, operation, "hash"));
    for prefix in ["vib", "ses", "skl", "task", "art", "msg", "run"] {
        text = text.replace(&format!("{prefix}_{EXAMPLE}"), &world.first(prefix));
    }
    Some(serde_json::from_str(&text).expect("JSON"))
}

fn special(world: &World, operation: &Operation, name: &str) -> String {
    let found = world.special.iter().find(|((id, parameter), _)| *id == operation.id && *parameter == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// The path with something that is there for each of its parameters.
pub fn path(world: &World, spec: &Spec, operation: &Operation) -> String {
    let mut path = operation.path.clone();
    for parameter in operation.parameters_in("path") {
        let name = parameter["name"].as_str().expect("a name");
        let pattern = spec.resolve(&parameter["schema"])["pattern"].as_str().unwrap_or_default().to_owned();
        let usual = match pattern.trim_start_matches('^').split_once("_[") {
            Some((prefix, _)) => world.first(prefix),
            None if name == "space" => world.space.clone(),
            None => "notes/today.md".to_owned(),
        };
        let meant = special(world, operation, name);
        path = path.replace(&format!("{{{name}}}"), if meant.is_empty() { &usual } else { &meant });
    }
    path
}

async fn play(world: &World, spec: &Spec, operation: &Operation) -> (Option<Value>, Answer) {
    let mut path = path(world, spec, operation);
    for parameter in operation.parameters_in("query").filter(|one| one["required"] == true) {
        let name = parameter["name"].as_str().expect("a name");
        let meant = special(world, operation, name);
        let usual = if name == "path" { "src/main.rs" } else { "rain" };
        path = format!("{path}?{name}={}", if meant.is_empty() { usual } else { &meant });
    }
    let person = world.owner();
    let mut request = person.request(operation.method.parse::<Method>().expect("a method"), &path);
    let body = example(world, spec, operation);
    if let Some(body) = &body {
        request = request.json(body);
    } else if operation.body.is_some() {
        request = request.body("# Changed\n");
    }
    if operation.parameters_in("header").any(|one| one["name"] == "If-Match") {
        let now = person.get(&path).await;
        request = match now.header("etag") {
            "" => request.header(header::IF_NONE_MATCH, "*"),
            tag => request.header(header::IF_MATCH, tag.to_owned()),
        };
    }
    (body, person.send(request).await)
}

async fn a158_each_documented_example_works(engine: Engine) {
    let world = World::start(engine).await;
    let spec = Spec::read(&world.board).await;
    let mut operations = spec.operations();
    // What takes things away comes last, and what it takes away things of comes after that.
    let order = |one: &Operation| match (one.method.as_str(), one.id.as_str()) {
        ("DELETE", "sessions.delete") => 3,
        ("DELETE", "vibers.revoke") => 4,
        ("DELETE", _) => 2,
        ("GET", _) => 0,
        _ => 1,
    };
    operations.sort_by_key(order);
    let mut examples = 0;
    for operation in &operations {
        let (body, answer) = play(&world, &spec, operation).await;
        examples += u32::from(body.is_some());
        let wrong = spec.judge(operation, &answer);
        assert!(wrong.is_empty(), "{} {body:?}: {wrong:?} {answer:#?}", operation.id);
        let expected = REFUSED_HERE.iter().find(|(id, _)| *id == operation.id).map(|(_, status)| *status);
        let good = expected.map_or((200..300).contains(&answer.status), |expected| answer.status == expected);
        // A diff and a file of a space come in pieces that this machine does not make.
        let refused = ["spaces.diff", "spaces.file"].contains(&operation.id.as_str()) && answer.status == 422;
        assert!(good || refused, "{} {body:?}: {answer:#?}", operation.id);
    }
    assert!(examples >= 15, "only {examples} examples");
    world.board.assert_invariants().await;
}

/// A call that names itself is done once, and answered alike: the body, and what its headers say.
async fn a161_a_call_sent_again_is_answered_alike(engine: Engine) {
    let world = World::start(engine).await;
    let spec = Spec::read(&world.board).await;
    let mut replayed = 0;
    for operation in spec.operations().iter().filter(|one| one.method == "POST" && one.json_body().is_some()) {
        let (path, body) = (path(&world, &spec, operation), example(&world, &spec, operation).expect("a body"));
        let key = format!("again {}", operation.id).replace(' ', "-");
        let one = world.owner().post_once(&key, &path, &body).await;
        let two = world.owner().post_once(&key, &path, &body).await;
        for answer in [&one, &two] {
            assert!(spec.judge(operation, answer).is_empty(), "{}: {answer:#?}", operation.id);
        }
        assert_eq!(one.status, two.status, "{}: {one:#?} {two:#?}", operation.id);
        if (200..300).contains(&one.status) {
            replayed += 1;
            assert_eq!((&one.body, one.header("location")), (&two.body, two.header("location")), "{}", operation.id);
            assert_eq!(two.header("idempotency-replayed"), "true", "{}: {two:#?}", operation.id);
            let other = world.owner().post_once(&key, &path, &json!({ "another": "body" })).await;
            assert_eq!((other.status, other.code()), (422, "idempotency_mismatch".to_owned()), "{}", operation.id);
        }
    }
    assert!(replayed >= 10, "only {replayed} calls");
    world.board.assert_invariants().await;
}

/// The description is the same for everybody and on both databases, and is not sent to somebody who has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a162_the_description_is_the_same_for_everybody() {
    let (board, other) = tokio::join!(Board::start(Engine::Sqlite), Board::start(Engine::Postgres));
    let path = "/api/v1/openapi.json";
    let one = board.anon().get(path).await.expect(200);
    let two = board.owner().await.get(path).await.expect(200);
    let three = other.anon().get(path).await.expect(200);
    for answer in [&two, &three] {
        assert_eq!((&one.body, one.header("etag")), (&answer.body, answer.header("etag")));
    }
    let again = board.anon().request(Method::GET, path);
    let again = again.header(header::IF_NONE_MATCH, format!("\"x\", {}", one.header("etag")));
    let again = board.anon().send(again).await.expect(304);
    assert!(again.body.is_empty() && again.header("etag") == one.header("etag"), "{again:?}");
    assert_eq!(one.json()["info"]["version"], env!("CARGO_PKG_VERSION"));
    assert!(one.body.len() < 512 * 1024, "{} bytes", one.body.len());
    board.assert_invariants().await;
    other.assert_invariants().await;
}

crate::on_both_databases!(a158_each_documented_example_works, a161_a_call_sent_again_is_answered_alike);
