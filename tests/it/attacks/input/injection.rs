//! A92: SQL in every parameter, field, header and path. Nothing runs, nothing leaks, what is text is kept to the letter,
//! and the two databases answer alike. (sqlmap itself was run by hand against a loopback Board; this is what stays.)

use std::time::{Duration, Instant};

use board_tests::{Engine, Person, person::escape, wait::SLACK};
use reqwest::{Method, header};
use serde_json::json;

use super::{World, fingerprint, lists, patiently};

crate::on_both_databases!(a92_wildcards_of_a_search_are_letters);

/// What sqlmap's techniques come down to, for both databases: quotes out of balance, conditions, unions, stacked
/// statements, comments, errors that tell, sleeps, places where an encoding could undo an escape.
const PAYLOADS: &[&str] = &[
    "'",
    "\"",
    "`",
    "''",
    "\\",
    "\\'",
    "%",
    "_",
    "!",
    ";",
    "--",
    "/*",
    "x' OR '1'='1",
    "x' OR 1=1--",
    "x' OR 1=1/*",
    "x\" OR \"\"=\"",
    "x' AND 1=2--",
    "1 OR 1=1",
    "1) OR (1=1",
    "1)) OR ((1=1",
    "x') OR ('1'='1",
    "x%' OR '1' LIKE '1",
    "x' UNION SELECT NULL--",
    "x' UNION ALL SELECT password_hash,NULL,NULL FROM operators--",
    "-1 UNION SELECT 1,2,3,4,5,6,7,8,9,10",
    "x' AND (SELECT COUNT(*) FROM sqlite_master)>0--",
    "x' AND (SELECT sql FROM sqlite_master LIMIT 1) IS NOT NULL--",
    "x' AND 1=CAST((SELECT version()) AS INT)--",
    "x' AND extractvalue(1,concat(0x7e,version()))--",
    "x'; DROP TABLE tasks;--",
    "x'; DELETE FROM audit;--",
    "x'; UPDATE members SET role='owner';--",
    "1; DROP TABLE tasks",
    "x'; SELECT pg_sleep(30);--",
    "x'||pg_sleep(30)--",
    "x' AND 5=(SELECT 5 FROM pg_sleep(30))--",
    "(SELECT 5 FROM pg_sleep(30))",
    "x' AND 1=LIKE('ABCDEFG',UPPER(HEX(RANDOMBLOB(300000000/2))))--",
    "1 AND 1=LIKE('ABCDEFG',UPPER(HEX(RANDOMBLOB(300000000/2))))",
    "x' AND load_extension('/tmp/x')--",
    "x'; COPY (SELECT '') TO PROGRAM 'touch /tmp/viber-pwned';--",
    "x'; ATTACH DATABASE '/tmp/viber-pwned.db' AS p;--",
    "x' ORDER BY 99--",
    "name; DROP TABLE tasks",
    "(CASE WHEN 1=1 THEN created_at ELSE title END)",
    "created_at,(SELECT 1)",
    "1 ASC, (SELECT 1 FROM pg_sleep(30)) DESC",
    "$1",
    "$99",
    "?",
    "?1",
    ":name",
    "@x",
    "{{7*7}}",
    "${7*7}",
    "x\u{2019} OR 1=1--",
    "x\u{ff07} OR 1=1--",
    "x\u{bf}\u{27} OR 1=1--",
    "0x27204f5220313d31",
    "E'\\x27'",
    "$$x$$; DROP TABLE tasks; --",
    "NULL",
    "true",
    "9999999999999999999999",
    "-9223372036854775808",
    "1e308",
    "NaN",
];

/// Words that only a database says.
const TELLTALES: &[&str] =
    &["sqlite", "syntax error", "SQLSTATE", "pg_", "unterminated", "near \"", "no such column", "argon2"];

/// What each place of a call was answered, and that none of it took as long as a sleep.
struct Prober<'a> {
    world: &'a World,
    answers: Vec<(String, String)>,
    times: Vec<Duration>,
}

impl Prober<'_> {
    async fn send(&mut self, name: String, payload: &str, request: reqwest::RequestBuilder) {
        let mut began = Instant::now();
        let mut answer = request.try_clone().expect("a body").send().await.unwrap_or_else(|e| panic!("{name}: {e:?}"));
        if answer.status() == 429 {
            answer = patiently(request).await;
            began = Instant::now();
        }
        let status = answer.status().as_u16();
        let headers = answer.headers().clone();
        let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        // Of a stream the beginning is enough.
        let body = if kind.starts_with("text/event-stream") {
            let first = tokio::time::timeout(Duration::from_secs(2), answer.chunk()).await;
            first.ok().and_then(Result::ok).flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        } else {
            answer.text().await.ok()
        };
        let (body, took) = (body.unwrap_or_default(), began.elapsed());
        assert!(status < 500, "{name} with {payload:?}: {status} {body}");
        assert!(took < Duration::from_secs(25), "{name} with {payload:?} took {took:?}");
        // A page may say what was asked for; beyond that it says nothing that a database would.
        let said = body.replace(payload, "").replace(&payload.replace('\'', "&#39;").replace('"', "&#34;"), "");
        if ![200, 201, 303].contains(&status) {
            for word in TELLTALES.iter().filter(|word| !payload.contains(**word)) {
                assert!(!said.contains(word), "{name} with {payload:?} says {word}: {said}");
            }
        }
        let answer = board_tests::person::Answer { status, headers, body };
        let place = name
            .replace(self.world.fixture.session(), "S")
            .replace(self.world.fixture.task().as_str(), "T")
            .replace(&self.world.member, "M");
        let place = place.replace(self.world.fixture.viber.id.as_str(), "V");
        self.answers.push((format!("{place} {payload:?}"), fingerprint(&answer)));
        self.times.push(took);
    }

    async fn get(&mut self, place: &str, payload: &str, page: bool) {
        let person = if page { self.world.fixture.owner() } else { &self.world.program };
        let mut request = person.request(Method::GET, &format!("{place}{}", escape(payload)));
        if page {
            request = request.header(header::ACCEPT, "text/html");
        }
        self.send(format!("GET {place}"), payload, request).await;
    }
}

/// Addresses that end where the payload goes.
fn places(world: &World) -> (Vec<String>, Vec<String>) {
    let mut calls = Vec::new();
    for list in ["vibers", "sessions", "tasks", "members", "invitations", "tokens", "audit"] {
        for key in ["cursor", "limit", "sort", "order", "q"] {
            calls.push(format!("/api/v1/{list}?{key}="));
        }
    }
    for key in ["title", "viberId", "archived"] {
        calls.push(format!("/api/v1/sessions?{key}="));
    }
    for key in ["state", "sessionId", "viberId"] {
        calls.push(format!("/api/v1/tasks?{key}="));
    }
    for key in ["before", "limit"] {
        calls.push(format!("/api/v1/sessions/{}/messages?{key}=", world.fixture.session()));
    }
    for key in ["after", "limit"] {
        calls.push(format!("/api/v1/tasks/{}/events?{key}=", world.fixture.task()));
    }
    for kind in ["vibers", "sessions", "tasks"] {
        calls.push(format!("/api/v1/{kind}/"));
    }
    let mut pages = Vec::new();
    for key in ["q", "archived", "after"] {
        pages.push(format!("/t/home/sessions?{key}="));
    }
    for key in ["q", "show", "after"] {
        pages.push(format!("/t/home/vibers?{key}="));
    }
    for key in ["goal", "viber", "agent", "find"] {
        pages.extend([format!("/t/home?{key}="), format!("/t/home/preflight?{key}=")]);
    }
    pages.extend(["/t/home/settings/audit?before=".into(), "/login?next=".into(), "/t/home/live?view=".into()]);
    for key in ["cursor", "last"] {
        pages.push(format!("/t/home/live?view=session:{}&{key}=", world.fixture.session()));
    }
    pages.push(format!("/t/home/sessions/{}?before=", world.fixture.session()));
    for path in ["sessions", "vibers"] {
        pages.push(format!("/t/home/{path}/"));
    }
    pages.extend(["/t/".to_owned(), format!("/t/home/sessions/{}/messages/2/calls/", world.fixture.session())]);
    (calls, pages)
}

/// Puts payloads into places: of each pair one in `share`, so that every place and every payload has its turn.
async fn probe(world: &World, share: usize) -> Vec<(String, String)> {
    let before = lists(&world.program).await;
    let audited = rows(&world.program).await;
    let mut prober = Prober { world, answers: Vec::new(), times: Vec::new() };
    let (calls, pages) = places(world);
    for (n, payload) in PAYLOADS.iter().enumerate() {
        let value = escape(payload);
        let turn = |(place, _): &(usize, &String)| (place + n).is_multiple_of(share);
        for (_, path) in calls.iter().enumerate().filter(turn) {
            prober.get(path, payload, false).await;
        }
        for (_, path) in pages.iter().enumerate().filter(turn) {
            prober.get(path, payload, true).await;
        }
        // Headers that somebody looks up.
        let headers = ["x-team", "last-event-id", "user-agent", "cookie", "x-forwarded-for", "if-match"];
        for (_, name) in headers.iter().enumerate().filter(|(place, _)| (place + n).is_multiple_of(share)) {
            let Ok(value) = header::HeaderValue::from_bytes(payload.as_bytes()) else { continue };
            let path = format!("/api/v1/tasks/{}/events", world.fixture.task());
            let request = world.program.request(Method::GET, &path).header(*name, value);
            prober.send(format!("header {name}"), payload, request).await;
        }
        let tries: [(&str, serde_json::Value); 5] = [
            ("/api/v1/tasks", json!({"goal": "x", "viberId": payload})),
            ("/api/v1/tasks", json!({"goal": "x", "viberId": world.fixture.viber.id, "agentId": payload})),
            ("/api/v1/tasks", json!({"goal": "x", "labels": {"a": payload}})),
            ("/api/v1/tokens", json!({"name": "x", "role": payload})),
            ("/api/v1/members", json!({"email": payload, "role": "viewer"})),
        ];
        for (place, (path, body)) in tries.iter().enumerate().filter(|(place, _)| (place + n).is_multiple_of(share)) {
            let request = world.program.request(Method::POST, path).json(body);
            // An address with a sign in its middle may be one.
            if place < 4 || !payload.contains('@') {
                prober.send(format!("POST {path} {place}"), payload, request).await;
            }
        }
        if !n.is_multiple_of(share) {
            continue;
        }
        let anon = world.fixture.board.anon();
        let fields = format!("email={value}&password={value}");
        let request = anon.request(Method::POST, "/login").header(header::ORIGIN, &world.fixture.board.url);
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(fields);
        if let Ok(answer) = request.send().await {
            assert!([401, 422, 429].contains(&answer.status().as_u16()), "{payload:?}: {}", answer.status());
        }
        for path in [format!("/setup/{value}"), format!("/invite/{value}")] {
            let answer = anon.page(&path).await;
            assert!([404, 410].contains(&answer.status), "{path}: {}", answer.status);
        }
        // What is text is kept to the letter.
        let title = format!("a{payload}b");
        let session = format!("/api/v1/sessions/{}", world.fixture.session());
        let kept = world.program.request(Method::PATCH, &session).json(&json!({"title": title}));
        let kept: serde_json::Value = patiently(kept).await.json().await.expect("JSON");
        assert_eq!(kept["title"], title);
        let found = format!("/api/v1/sessions?title={}", escape(&title));
        let found = patiently(world.program.request(Method::GET, &found)).await;
        let found: serde_json::Value = found.json().await.expect("JSON");
        assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{payload:?} is not found again");
    }
    let session = format!("/api/v1/sessions/{}", world.fixture.session());
    let restored = world.program.request(Method::PATCH, &session).json(&json!({"title": "First things first"}));
    assert_eq!(patiently(restored).await.status(), 200);
    assert_eq!(lists(&world.program).await, before, "something was changed");
    assert!(rows(&world.program).await >= audited);
    assert!(
        !std::path::Path::new("/tmp/viber-pwned").exists() && !std::path::Path::new("/tmp/viber-pwned.db").exists()
    );
    prober.times.sort_unstable();
    let middle = prober.times[prober.times.len() / 2];
    assert!(middle <= Duration::from_millis(200) * SLACK, "half of the queries took longer than {middle:?}");
    prober.answers
}

/// How many rows the audit has.
async fn rows(program: &Person) -> u64 {
    let page = program.get("/api/v1/audit?limit=1").await.expect(200).json();
    page["items"][0]["seq"].as_u64().expect("a row")
}

/// Both databases at once; how many answers were compared.
async fn both(share: usize) -> usize {
    let (sqlite, postgres) = tokio::join!(World::make(Engine::Sqlite), World::make(Engine::Postgres));
    let (one, two) = tokio::join!(probe(&sqlite, share), probe(&postgres, share));
    for (one, two) in one.iter().zip(&two) {
        assert_eq!(one, two);
    }
    assert_eq!(one.len(), two.len());
    for world in [sqlite, postgres] {
        world.fixture.board.assert_invariants().await;
    }
    one.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a92_sql_is_text_wherever_it_stands() {
    assert!(both(16).await > 250);
}

mod long {
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a92_every_payload_in_every_place() {
        assert!(super::both(1).await > 4000);
    }
}

async fn a92_wildcards_of_a_search_are_letters(engine: Engine) {
    let world = World::make(engine).await;
    let titles = [
        "100% sure",
        "snake_case",
        "snakeXcase",
        "!bang",
        "back\\slash",
        "50/50",
        "Straße",
        "quote's",
        "[set]",
        "a*b",
        "100 sure",
    ];
    for title in titles {
        let body = json!({"viberId": world.fixture.viber.id, "title": title});
        world.program.post("/api/v1/sessions", &body).await.expect(201);
    }
    let wild: [(&str, &[&str]); 15] = [
        ("%", &["100% sure"]),
        ("%25", &[]),
        ("_", &["snake_case"]),
        ("e_c", &["snake_case"]),
        ("0%s", &[]),
        ("0% s", &["100% sure"]),
        ("%%", &[]),
        ("!", &["!bang"]),
        ("!%", &[]),
        ("\\", &["back\\slash"]),
        ("k\\s", &["back\\slash"]),
        ("'", &["quote's"]),
        ("[s", &["[set]"]),
        ("*", &["a*b"]),
        ("SNAKE_", &["snake_case"]),
    ];
    for (asked, expected) in wild {
        let found = world.program.get(&format!("/api/v1/sessions?title={}", escape(asked))).await.expect(200).json();
        let mut found: Vec<&str> = found["items"]
            .as_array()
            .expect("sessions")
            .iter()
            .filter_map(|session| session["title"].as_str())
            .collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{asked}");
        // The page's search is the same one.
        let page = world.fixture.owner().page(&format!("/t/home/sessions?q={}", escape(asked))).await.expect(200).body;
        let list = page.split("<main").nth(1).expect("the page's own part");
        for title in titles {
            let shown = list.contains(&title.replace('\'', "&#39;"));
            let only_asked = asked == title;
            assert_eq!(shown, expected.contains(&title) || only_asked, "{asked}: {title}");
        }
    }
    world.fixture.board.assert_invariants().await;
}
