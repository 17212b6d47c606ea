//! Calls made at random from the description, good ones and spoilt ones: whatever comes back is described, body, headers and
//! code; nothing that the description forbids is done; nothing breaks. The same seed plays the same calls.

use std::{collections::BTreeMap, time::Duration};

use board_tests::{Answer, Engine, Person, person::escape, seed::SeededRandom, wait::EVENT_TIMEOUT};
use reqwest::{Method, RequestBuilder, header};
use serde_json::{Value, json};

use super::{
    generate::Generator,
    spec::{Operation, Spec},
    world::World,
};

/// Calls on each database; about ten seconds.
const CALL_COUNT: usize = 1_500;
/// An answer takes no longer than this.
const ANSWER_TIMEOUT: Duration = EVENT_TIMEOUT;
/// Files that paths name.
const PATHS: &[&str] = &[
    "notes/today.md",
    "notes/old.md",
    "MEMORY.md",
    "notes/new.md",
    "notes/",
    "..%2Fx",
    "a%00b",
    "%ff",
    "notes%2Ftoday.md",
    ".trash/x",
    "%20",
    "a\u{301}.md",
    "a%0Ab",
];

/// One call, and whether the description allows it.
struct Call {
    path: String,
    headers: Vec<(&'static str, String)>,
    body: Option<(String, String)>,
    allowed: bool,
}

impl Call {
    fn request(&self, operation: &Operation, person: &Person) -> RequestBuilder {
        let mut request = person.request(operation.method.parse::<Method>().expect("a method"), &self.path);
        for (name, value) in &self.headers {
            request = request.header(*name, value.as_str());
        }
        if let Some((media, body)) = &self.body {
            request = request.header(header::CONTENT_TYPE, media.as_str()).body(body.clone());
        }
        request.timeout(ANSWER_TIMEOUT)
    }

    fn describe(&self, operation: &Operation) -> String {
        let body =
            self.body.as_ref().map(|(media, body)| format!(" {media} {}", &body[..body.floor_char_boundary(400)]));
        format!("{} {} {} {:?}{}", operation.id, operation.method, self.path, self.headers, body.unwrap_or_default())
    }
}

/// Whether the call would take away what the others need.
fn spares(world: &World, operation: &Operation, id: &str) -> bool {
    let takes = operation.method == "DELETE" || ["members.change", "vibers.change"].contains(&operation.id.as_str());
    !takes || !world.kept.contains(id)
}

fn path(world: &World, make: &mut Generator<'_>, spec: &Spec, operation: &Operation) -> (String, bool) {
    let (mut path, mut allowed) = (operation.path.clone(), true);
    for parameter in operation.parameters_in("path") {
        let name = parameter["name"].as_str().expect("a name");
        let schema = spec.resolve(&parameter["schema"]).clone();
        let text = match name {
            "path" => {
                let chosen = *make.pick(PATHS);
                allowed = false;
                chosen.to_owned()
            }
            "space" if make.seeded.chance() < 0.8 => world.space.clone(),
            _ if make.seeded.chance() < 0.05 => {
                allowed = false;
                make.pick(&["nothing", "task_", "%00", "%ff", "%2F", "ses_0192D1C7A0F07A3CB1F0C6F8D1F1A2B3"])
                    .to_string()
            }
            _ => make.text(&schema),
        };
        let text =
            if spares(world, operation, &text) { text } else { make.text(&json!({ "pattern": schema["pattern"] })) };
        let text = if spares(world, operation, &text) { text } else { text.replace(['1', '2', '3'], "0") };
        path = path.replace(&format!("{{{name}}}"), &text);
    }
    (path, allowed)
}

fn query(make: &mut Generator<'_>, spec: &Spec, operation: &Operation) -> (String, bool) {
    let (mut pairs, mut allowed) = (Vec::new(), true);
    for parameter in operation.parameters_in("query") {
        let schema = spec.resolve(&parameter["schema"]).clone();
        let required = parameter["required"] == true;
        if !required && make.seeded.chance() < 0.6 {
            continue;
        }
        let mut value = make.value(&schema);
        if ["cursor", "before"].iter().any(|place| parameter["name"] == *place) && make.seeded.chance() < 0.3 {
            value = json!(*make.pick(&[
                "",
                "0",
                "+5",
                "18446744073709551615",
                "99999999999999999999",
                "9223372036854775808"
            ]));
        } else if make.seeded.chance() < 0.25 {
            make.spoil(&mut value);
        }
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Null => continue,
            other => other.to_string(),
        };
        // In an address everything is text: what reads as the number that is meant is that number.
        let read = |text: &str| match text.parse::<i64>() {
            Ok(number) if number.to_string() == text && !spec.complaints(&schema, &json!(text)).is_empty() => {
                json!(number)
            }
            _ if text == "true" || text == "false" => json!(text == "true"),
            _ => json!(text),
        };
        let as_text = spec.complaints(&schema, &json!(text)).is_empty();
        allowed &= as_text || spec.complaints(&schema, &read(&text)).is_empty();
        pairs.push(format!("{}={}", parameter["name"].as_str().expect("a name"), escape(&text)));
    }
    if make.seeded.chance() < 0.05 {
        // A call that takes no query does not look at one.
        allowed &= operation.parameters_in("query").next().is_none();
        pairs.push(make.pick(&["nobody=1", "limit=1&limit=2", "q=%00", "%ff=%ff"]).to_string());
    }
    (if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }, allowed)
}

fn body(make: &mut Generator<'_>, spec: &Spec, operation: &Operation) -> (Option<(String, String)>, bool) {
    let Some((media, schema, required)) = &operation.body else { return (None, true) };
    if media != "application/json" {
        let media = make.pick(&["text/plain", "application/octet-stream", "application/json", "image/svg+xml", "?"]);
        return (Some(((*media).to_owned(), make.text(&json!({ "maxLength": 1000 })))), true);
    }
    let mut value = make.value(schema);
    if make.seeded.chance() < 0.45 {
        make.spoil(&mut value);
    }
    let (text, json) = (value.to_string(), "application/json".to_owned());
    let allowed = spec.complaints(schema, &value).is_empty();
    match make.seeded.between(0, 40) {
        0 => (None, !required),
        1 => (Some((json, text[..text.len() - 1].to_owned())), false),
        2 => (Some((json, format!("{}{text}", "[".repeat(500)))), false),
        3 => (Some(("text/plain".into(), text)), false),
        4 => (Some(("application/x-www-form-urlencoded".into(), "a=%00".into())), false),
        5 if text.len() > 2 => (Some((json, format!("{{\"a\\u0000\":1,{}", &text[1..]))), false),
        6 if make.seeded.chance() < 0.1 => (Some((json, format!("{text}{}", " ".repeat(1_200_000)))), false),
        _ => (Some((json, text)), allowed),
    }
}

fn headers(make: &mut Generator<'_>, operation: &Operation, tag: &str) -> (Vec<(&'static str, String)>, bool) {
    let (mut all, mut allowed) = (Vec::new(), true);
    for parameter in operation.parameters_in("header") {
        let name = parameter["name"].as_str().expect("a name");
        let odd = make.seeded.chance() < 0.2;
        let (name, value) = match name {
            "If-Match" => ("if-match", if odd { "nonsense".to_owned() } else { tag.to_owned() }),
            "If-None-Match" => ("if-none-match", if make.seeded.chance() < 0.5 { "*".into() } else { tag.to_owned() }),
            "Range" => ("range", if odd { "bytes=9999999-".into() } else { "bytes=1-2".into() }),
            "If-Range" => ("if-range", "\"x\"".to_owned()),
            "Last-Event-ID" => ("last-event-id", if odd { "nonsense".into() } else { "1.2".into() }),
            "Idempotency-Key" if odd => ("idempotency-key", "k".repeat(300)),
            "Idempotency-Key" => ("idempotency-key", format!("key-{}", make.seeded.between(0, 30))),
            other => panic!("{} has a header that the fuzz does not know: {other}", operation.id),
        };
        if make.seeded.chance() < 0.35 {
            allowed &= !(name == "idempotency-key" && odd);
            all.push((name, value));
        }
    }
    if ["bus.read", "events.list"].contains(&operation.id.as_str()) && make.seeded.chance() < 0.5 {
        all.push(("accept", "text/event-stream".into()));
    }
    if make.seeded.chance() < 0.02 {
        allowed = false;
        all.push(("content-encoding", "gzip".into()));
    }
    (all, allowed)
}

/// What came back; of a stream only how it begins, because it has no end to wait for.
async fn send(call: &Call, operation: &Operation, person: &Person) -> Result<Answer, String> {
    let request = call.request(operation, person);
    if !call.headers.contains(&("accept", "text/event-stream".to_owned())) {
        return person.try_send(request).await.map_err(|error| format!("{error:?}"));
    }
    let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
    let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
    let streams = status == 200;
    let body = if streams { String::new() } else { answer.text().await.unwrap_or_default() };
    Ok(Answer { status, headers, body })
}

/// Plays so many calls; what was wrong, and how often each status came.
async fn play(world: &mut World, seed: u64, calls: usize) -> (Vec<String>, BTreeMap<u16, u32>) {
    let spec = Spec::read(&world.board).await;
    let operations = spec.operations();
    let mut seeded = SeededRandom::of(seed);
    let nobody = world.board.anon();
    let stranger = Person::with_token(&world.board.url, "vbt_0000000000000000000000000000000000000000000");
    let (mut wrong, mut seen, mut tag) = (Vec::new(), BTreeMap::new(), "\"x\"".to_owned());
    for n in 0..calls {
        let operation = &operations[n % operations.len()];
        let known = world.known.clone();
        let mut make = Generator::new(&spec, &known, SeededRandom::of(seeded.draw()));
        let (path, path_allowed) = path(world, &mut make, &spec, operation);
        let (query, query_allowed) = query(&mut make, &spec, operation);
        let (body, body_allowed) = body(&mut make, &spec, operation);
        let (headers, headers_allowed) = headers(&mut make, operation, &tag);
        let who = make.seeded.between(0, 20);
        let person = match who {
            0 => &nobody,
            1 => &stranger,
            2 => &world.viewer,
            _ => &world.owners[n % world.owners.len()],
        };
        let allowed =
            query_allowed && body_allowed && headers_allowed && (path_allowed || operation.path.contains("{path}"));
        // A stream has no limit, and begins anew at a cursor that it does not know.
        let streams = headers.iter().any(|(name, _)| *name == "accept");
        let call = Call { path: format!("{path}{query}"), headers, body, allowed: allowed || streams };
        let answer = match send(&call, operation, person).await {
            Ok(answer) => answer,
            Err(error) => {
                wrong.push(format!("{}: {error}", call.describe(operation)));
                continue;
            }
        };
        *seen.entry(answer.status).or_insert(0) += 1;
        let mut complaints = spec.judge(operation, &answer);
        // A call with the key of one that was good is answered as that was, whatever media type it names.
        let is_replay = answer.header("idempotency-replayed") == "true";
        if !call.allowed && !is_replay && answer.status < 300 && operation.id != "openapi.read" {
            complaints.push(format!("{} for what the description does not allow", answer.status));
        }
        if !complaints.is_empty() {
            let body = &answer.body[..answer.body.floor_char_boundary(600)];
            wrong.push(format!("{}\n  {} {body}\n  {complaints:?}", call.describe(operation), answer.status));
        }
        if answer.status < 300 {
            world.learn(&answer.body);
            if !answer.header("etag").is_empty() {
                answer.header("etag").clone_into(&mut tag);
            }
        }
    }
    (wrong, seen)
}

async fn fuzz(engine: Engine, seed: u64, calls: usize) {
    let mut world = World::start(engine).await;
    let (wrong, seen) = play(&mut world, seed, calls).await;
    eprintln!("{calls} calls, seed {seed}: {seen:?}");
    let told = wrong.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} of {calls} calls, seed {seed}:\n{told}", wrong.len());
    let good: u32 = seen.iter().filter(|(status, _)| **status < 300).map(|(_, count)| count).sum();
    assert!(good as usize > calls / 5, "hardly anything worked, so hardly anything was tried: {seen:?}");
    assert!(seen.len() >= 8, "{seen:?}");
    world.board.assert_invariants().await;
}

async fn a159_nothing_undocumented_is_answered(engine: Engine) {
    fuzz(engine, 20_261_122, CALL_COUNT).await;
}

crate::on_both_databases!(a159_nothing_undocumented_is_answered);

mod long {
    use super::{Engine, fuzz};

    /// The same for many seeds, each of them printed.
    async fn a159_many_seeds_answer_nothing_undocumented(engine: Engine) {
        for seed in 1..=10 {
            fuzz(engine, seed, 3_000).await;
        }
    }

    crate::on_both_databases!(a159_many_seeds_answer_nothing_undocumented);
}
