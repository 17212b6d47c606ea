//! A86: JSON and forms that are too deep, too many, twice, or hold what a database cannot keep. Both databases answer alike.

use board_tests::Engine;
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::{World, fingerprint, lists};

/// A call with a good body, and its fields that are text of people or machines, as paths.
struct Call {
    method: Method,
    path: String,
    good: Value,
    texts: &'static [&'static str],
}

fn calls(world: &World) -> Vec<Call> {
    let call = |method, path: &str, good, texts| Call { method, path: path.to_owned(), good, texts };
    let join =
        json!({"token": "vbj_x", "name": "a", "labels": {"a": "b"}, "hostname": "a", "platform": "a", "version": "a"});
    vec![
        call(
            Method::POST,
            "/api/v1/tasks",
            json!({
                "goal": "x", "viberId": world.fixture.viber.id, "labels": {"a": "b"}, "agentId": "default",
                "attachments": ["a"], "context": {"a": "b"}, "plan": {"goal": "a"}, "artifacts": [{"title": "a"}],
                "memory": [{"text": "a"}],
            }),
            &[
                "/goal",
                "/labels/a",
                "/agentId",
                "/attachments/0",
                "/context/a",
                "/plan/goal",
                "/artifacts/0/title",
                "/memory/0/text",
            ],
        ),
        call(
            Method::POST,
            "/api/v1/sessions",
            json!({"viberId": world.fixture.viber.id, "agentId": "default", "title": "a", "labels": {"a": "b"}}),
            &["/title", "/agentId", "/labels/a"],
        ),
        call(
            Method::PATCH,
            &format!("/api/v1/sessions/{}", world.fixture.session()),
            json!({"title": "a"}),
            &["/title"],
        ),
        call(
            Method::PATCH,
            &format!("/api/v1/vibers/{}", world.fixture.viber.id),
            json!({"name": "lab", "labels": {"a": "b"}}),
            &["/name", "/labels/a"],
        ),
        call(Method::POST, "/api/v1/join-tokens", json!({"labels": {"a": "b"}}), &["/labels/a"]),
        call(Method::POST, "/api/v1/tokens", json!({"name": "a", "role": "viewer"}), &["/name", "/role"]),
        call(
            Method::POST,
            "/api/v1/invitations",
            json!({"email": "a@b.example", "role": "viewer"}),
            &["/email", "/role"],
        ),
        call(Method::POST, "/api/v1/members", json!({"email": "a@b.example", "role": "viewer"}), &["/email", "/role"]),
        call(Method::PATCH, &format!("/api/v1/members/{}", world.member), json!({"role": "viewer"}), &["/role"]),
        call(
            Method::POST,
            &format!("/api/v1/tasks/{}/stop", world.fixture.task()),
            json!({"reason": "a"}),
            &["/reason"],
        ),
        call(Method::POST, &format!("/api/v1/tasks/{}/retry", world.fixture.task()), json!({}), &[]),
        call(
            Method::POST,
            "/api/daemon/join",
            join,
            &["/token", "/name", "/labels/a", "/hostname", "/platform", "/version"],
        ),
    ]
}

/// A body with this raw JSON in the place of a field.
fn with(good: &Value, field: &str, raw: &str) -> String {
    let mut body = good.clone();
    *body.pointer_mut(field).expect("a field") = json!("PLACE");
    body.to_string().replacen("\"PLACE\"", raw, 1)
}

/// Bodies that are wrong as a whole: each with what it may be answered.
fn broken(call: &Call) -> Vec<(String, String, &'static [u16])> {
    let good = call.good.to_string();
    let deep = 100_000;
    let more = |raw: &str| {
        let comma = if good == "{}" { "" } else { "," };
        format!("{}{comma}{raw}}}", &good[..good.len() - 1])
    };
    let keys = |n: usize| (0..n).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(",");
    let mut all: Vec<(String, String, &'static [u16])> = vec![
        ("deep lists".into(), "[".repeat(deep), &[400, 422]),
        ("deep lists, closed".into(), format!("{}{}", "[".repeat(deep), "]".repeat(deep)), &[400, 422]),
        ("deep objects".into(), format!("{}1{}", "{\"a\":".repeat(deep), "}".repeat(deep)), &[400, 422]),
        ("a deep field".into(), more(&format!("\"z\":{}{}", "[".repeat(deep), "]".repeat(deep))), &[400, 422]),
        ("a key with U+0000".into(), more("\"a\\u0000\":1"), &[400, 422]),
        ("a number too large".into(), more("\"z\":1e400"), &[400, 422]),
        ("a number too small".into(), more("\"z\":-1e400"), &[400, 422]),
        ("not a number".into(), more("\"z\":NaN"), &[400, 422]),
        ("a lone surrogate as key".into(), more("\"\\ud800\":1"), &[400, 422]),
        ("a comment".into(), format!("/* x */{good}"), &[400, 422]),
        ("a byte order mark".into(), format!("\u{feff}{good}"), &[400, 422]),
        ("something after it".into(), format!("{good} {good}"), &[400, 422]),
        ("single quotes".into(), more("\"z\":1").replace('"', "'"), &[400, 422]),
        ("a list".into(), format!("[{good}]"), &[400, 422]),
        ("a text".into(), "\"x\"".into(), &[400, 422]),
        ("null".into(), "null".into(), &[400, 422]),
    ];
    if ["/api/v1/tasks", "/api/daemon/join"].contains(&&*call.path) {
        all.push(("a million keys".into(), more(&keys(1_000_000)), &[413]));
        // A daemon of a later version may say more than we know: its token is looked at, and is none.
        let ours: &[u16] = if call.path.contains("/daemon/") { &[401] } else { &[400, 422] };
        all.push(("sixty thousand keys".into(), more(&keys(60_000)), ours));
    }
    for (field, value) in call.good.as_object().expect("an object") {
        all.push((format!("{field} twice"), more(&format!("\"{field}\":{value}")), &[400, 422]));
    }
    for field in call.texts {
        for (what, raw) in [
            ("U+0000", "\"a\\u0000b\"".to_owned()),
            ("only U+0000", "\"\\u0000\"".into()),
            ("a lone high surrogate", "\"\\ud800\"".into()),
            ("a control character", "\"a\u{1}b\"".into()),
            ("1e400", "1e400".into()),
        ] {
            all.push((format!("{field}: {what}"), with(&call.good, field, &raw), &[400, 422]));
        }
    }
    if call.path == "/api/v1/tasks" {
        for field in ["/context", "/plan"] {
            for (what, raw) in [
                ("a key twice", "{\"a\":1,\"a\":2}".to_owned()),
                ("a key twice, spelled in two ways", "{\"a\":1,\"\\u0061\":2}".into()),
                ("a key twice, further down", "{\"x\":[{\"a\":{\"b\":1,\"b\":2}}]}".into()),
                ("100,000 deep", format!("{}{}", "[".repeat(deep), "]".repeat(deep))),
                ("129 deep", format!("{}{}", "[".repeat(129), "]".repeat(129))),
                ("1e400", "{\"a\":1e400}".into()),
                ("a lone surrogate", "{\"a\":\"\\ud800\"}".into()),
            ] {
                all.push((format!("{field}: {what}"), with(&call.good, field, &raw), &[400, 422]));
            }
        }
    }
    all
}

/// All of them on one Board; what each was answered.
async fn play(world: &World) -> Vec<(String, String)> {
    let before = lists(&world.program).await;
    let mut answers = Vec::new();
    for call in calls(world) {
        for (what, body, good) in broken(&call) {
            let person = if call.path.contains("/daemon/") { &world.fixture.board.anon() } else { &world.program };
            let request = person.request(call.method.clone(), &call.path);
            let sent = request.header(header::CONTENT_TYPE, "application/json").body(body).send().await;
            let path = call
                .path
                .replace(world.fixture.session(), "S")
                .replace(world.fixture.task().as_str(), "T")
                .replace(&world.member, "M");
            let name = format!("{} {}: {what}", call.method, path.replace(world.fixture.viber.id.as_str(), "V"));
            // A body of many megabytes may be cut off before its sender reads why.
            let Ok(answer) = sent else {
                assert_eq!(good, [413], "{name}: {sent:?}");
                answers.push((name, "413".into()));
                continue;
            };
            let status = answer.status().as_u16();
            let text = answer.text().await.unwrap_or_default();
            let code =
                serde_json::from_str::<Value>(&text).map(|problem| problem["code"].to_string()).unwrap_or_default();
            // Whoever asks to join too often is told to wait: the same for all of it.
            if status == 429 {
                continue;
            }
            assert!(good.contains(&status), "{name}: {status} {text}");
            answers.push((name, if status == 413 { "413".into() } else { format!("{status} {code}") }));
        }
    }
    assert_eq!(lists(&world.program).await, before, "something was changed");
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a86_broken_json_is_refused_alike_on_both_databases() {
    let (sqlite, postgres) = tokio::join!(World::make(Engine::Sqlite), World::make(Engine::Postgres));
    let (one, two) = tokio::join!(play(&sqlite), play(&postgres));
    assert!(one.len() > 300, "{}", one.len());
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(one, two);
    }
    assert_eq!(one.len(), two.len());
    for world in [sqlite, postgres] {
        world.fixture.board.assert_invariants().await;
    }
}

/// Forms with their good fields; those that are text come first.
fn forms(world: &World) -> Vec<(String, Vec<(&'static str, String)>, usize)> {
    let s = |text: &str| text.to_owned();
    let (session, viber) = (world.fixture.session(), &world.fixture.viber.id);
    vec![
        (
            s("/t/home/tasks"),
            vec![("goal", s("x")), ("agent", s("default")), ("key", s("k")), ("viber", viber.to_string())],
            3,
        ),
        (format!("/t/home/sessions/{session}/messages"), vec![("content", s("x")), ("key", s("k2"))], 2),
        (format!("/t/home/sessions/{session}/rename"), vec![("title", s("x"))], 1),
        (format!("/t/home/vibers/{viber}/rename"), vec![("name", s("x"))], 1),
        (format!("/t/home/vibers/{viber}/test"), vec![("provider", s("x"))], 1),
        (
            s("/t/home/settings"),
            vec![
                ("name", s("Home")),
                ("slug", s("home")),
                ("lost_after_minutes", s("15")),
                ("retention_days", s("30")),
            ],
            4,
        ),
        (s("/t/home/settings/invitations"), vec![("email", s("a@b.example")), ("role", s("viewer"))], 2),
        (s("/t/home/settings/tokens"), vec![("name", s("x")), ("role", s("viewer"))], 2),
        (s("/account"), vec![("name", s("Ada")), ("theme", s("dark"))], 2),
        (s("/account/password"), vec![("old", s("x")), ("new", s("another long password"))], 2),
        (s("/account/theme"), vec![("theme", s("dark"))], 1),
        (s("/login"), vec![("email", s("a@b.example")), ("password", s("x")), ("next", s("/"))], 3),
    ]
}

async fn play_forms(world: &World) -> Vec<(String, String)> {
    let before = lists(&world.program).await;
    let mut answers = Vec::new();
    for (path, fields, texts) in forms(world) {
        let person = if path == "/login" { &world.fixture.board.anon() } else { world.fixture.owner() };
        let post = |body: String| {
            let request = person.request(Method::POST, &path).header(header::ACCEPT, "text/html");
            let request =
                if path == "/login" { request.header(header::ORIGIN, &world.fixture.board.url) } else { request };
            person.send(request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body))
        };
        let escape = board_tests::person::escape;
        let body = |n: usize, value: &str| {
            let field = |(m, (name, good)): (usize, &(&str, String))| {
                format!("{name}={}", if n == m { value.to_owned() } else { escape(good) })
            };
            fields.iter().enumerate().map(field).collect::<Vec<_>>().join("&")
        };
        let name = path.replace(world.fixture.session(), "S").replace(world.fixture.viber.id.as_str(), "V");
        for (n, (field, _)) in fields.iter().enumerate().take(texts) {
            for value in ["a%00b", "%00", "%00%00a", "a\0b"] {
                let answer = post(body(n, value)).await;
                assert!([400, 422].contains(&answer.status), "{name} {field}={value:?}: {answer:#?}");
                answers.push((format!("{name} {field}={value:?}"), fingerprint(&answer)));
            }
            let twice = format!("{}&{field}=x", body(usize::MAX, ""));
            let answer = post(twice).await;
            assert!([400, 422].contains(&answer.status), "{name} {field} twice: {answer:#?}");
            answers.push((format!("{name} {field} twice"), fingerprint(&answer)));
        }
        let many = (0..300_000).map(|n| format!("&k{n}=1")).collect::<String>();
        let request =
            person.request(Method::POST, &path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request = if path == "/login" { request.header(header::ORIGIN, &world.fixture.board.url) } else { request };
        // On a connection of its own: the Board closes one whose body it did not read.
        let request = request.header(header::CONNECTION, "close");
        match request.body(body(usize::MAX, "") + &many).send().await {
            Ok(answer) => assert_eq!(answer.status(), 413, "{name}"),
            // Cut off before it was read to its end.
            Err(error) => assert!(!error.is_timeout(), "{name}: {error:?}"),
        }
    }
    assert_eq!(lists(&world.program).await, before, "something was changed");
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a86_broken_forms_are_refused_alike_on_both_databases() {
    let (sqlite, postgres) = tokio::join!(World::make(Engine::Sqlite), World::make(Engine::Postgres));
    let (one, two) = tokio::join!(play_forms(&sqlite), play_forms(&postgres));
    assert_eq!(one, two);
    for world in [sqlite, postgres] {
        world.fixture.board.assert_invariants().await;
    }
}
