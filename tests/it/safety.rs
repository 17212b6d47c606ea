//! What a hostile page, a guesser and a clumsy client get. The status codes are those of `architecture.md`.

use std::time::Duration;

use board_tests::{
    Board, Engine,
    board::{HOME, PASSWORD},
    canary::Canary,
    wait::SLACK,
};
use reqwest::{Method, header};
use serde_json::json;

/// The rules hold before any database is asked; one engine is enough.
const ANY_ENGINE: Engine = Engine::Sqlite;

#[tokio::test]
async fn pages_carry_their_protection() {
    let board = Board::start(ANY_ENGINE).await;
    let owner = board.owner().await;
    for (path, person) in
        [("/login", &board.anon()), ("/t/home", &owner), ("/account", &owner), ("/t/home/nowhere", &owner)]
    {
        let page = person.page(path).await;
        let policy = page.header("content-security-policy");
        for rule in ["default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"] {
            assert!(policy.contains(rule), "{path} lacks {rule}: {policy}");
        }
        assert!(!policy.contains("unsafe-inline") && !policy.contains("unsafe-eval"), "{path}: {policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
        assert!(
            !page.body.contains(" style=\"") && !page.body.contains(" onclick="),
            "{path} styles or scripts inline"
        );
        assert!(
            page.header("referrer-policy").contains("no-referrer") || page.header("referrer-policy") == "same-origin"
        );
        if path.starts_with("/t/") {
            assert!(page.header("cache-control").contains("no-store"), "{path}: {:?}", page.headers);
        }
    }
    let asset = owner.page("/t/home").await.body;
    let at = asset.find("href=\"/static").or_else(|| asset.find("href=\"/assets")).expect("a style sheet");
    let path = asset[at + 6..].split('"').next().expect("a path").to_owned();
    let sheet = board.anon().get(&path).await.expect(200);
    assert!(sheet.header("cache-control").contains("immutable"), "{path}: {:?}", sheet.headers);
}

/// Announces a body of `length` bytes without sending it; answers the status.
async fn announce(board: &Board, token: &str, length: usize) -> u16 {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let host = board.url.trim_start_matches("http://");
    let mut line = tokio::net::TcpStream::connect(host).await.expect("a connection");
    let head = format!(
        "POST /api/v1/tasks HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    line.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    BufReader::new(line).read_line(&mut answer).await.expect("an answer");
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status: {answer}"))
}

#[tokio::test]
async fn bad_bodies_are_named_and_refused() {
    let board = Board::start(ANY_ENGINE).await;
    let token = board.token(HOME, "operator").await;
    let post = |kind: &str, body: String| {
        let request = token.request(Method::POST, "/api/v1/tasks").header(header::CONTENT_TYPE, kind);
        token.send(request.body(body))
    };
    assert_eq!(post("application/json", "{\"goal\": ".into()).await.expect(400).code(), "malformed");
    assert!([400, 422].contains(&post("application/json", "[]".into()).await.status));
    assert!([400, 422].contains(&post("application/json", "{\"goal\": 7}".into()).await.status));
    let deep = format!("{}{}", "[".repeat(50_000), "]".repeat(50_000));
    assert_eq!(post("application/json", format!("{{\"goal\":\"x\",\"context\":{deep}}}")).await.status, 400);
    post("text/plain", "{}".into()).await.expect(415);
    // Nothing of the body is ever sent: who waits for it has no answer.
    assert_eq!(announce(&board, token.bearer().expect("a token"), 8 * 1024 * 1024).await, 413);
    let nul = post("application/json", json!({"goal": "a\u{0}b"}).to_string()).await;
    assert!((400..500).contains(&nul.status), "{nul:?}");
    let unknown = post("application/json", json!({"goal": "x", "viberId": "vib_nonsense"}).to_string()).await;
    assert!([400, 404, 422].contains(&unknown.status), "{unknown:?}");
    let long = "x".repeat(300_000);
    let request = token.request(Method::GET, "/api/v1/tasks").header("x-long", long);
    let status = token.send(request).await.status;
    assert!([431, 400].contains(&status), "{status}");
    // And it still works.
    token.get("/api/v1/tasks").await.expect(200);
}

#[tokio::test]
async fn a_revoked_token_and_a_removed_member_end_open_streams() {
    let board = Board::start(ANY_ENGINE).await;
    let owner = board.owner().await;
    let made = owner.post("/api/v1/tokens", &json!({"name": "ci", "role": "viewer"})).await.expect(201).json();
    let secret = made["token"].as_str().or(made["secret"].as_str()).expect("shown once");
    let program = board_tests::Person::with_token(&board.url, secret);
    let viber = board_tests::FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "watch me").await;
    let path = format!("/api/v1/tasks/{}/events", board_tests::tasks::id(&task, "id"));
    let mut stream = program.stream(&path, None).await;
    stream.next().await.expect("the task");
    owner.delete(&format!("/api/v1/tokens/{}", made["id"].as_str().expect("an id"))).await;
    let end = async { while stream.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(5) * SLACK, end).await.expect("the stream ends");
    program.get("/api/v1/tasks").await.expect(401);
}

#[tokio::test]
async fn secrets_stay_at_home() {
    let mut board = Board::start(ANY_ENGINE).await;
    let owner = board.owner().await;
    let viber = board_tests::FakeDaemon::connected(&board, "lab").await;
    let token = board.token(HOME, "admin").await;
    let join = board.join_token(HOME).await;
    let secrets = [
        Canary::of("the password", PASSWORD),
        Canary::of("the viber's credential", &viber.credential),
        Canary::of("an API token", token.bearer().expect("a token")),
        Canary::of("a join token", &join),
        Canary::of("the cookie", owner.cookie().expect("signed in").split_once('=').expect("a value").1),
    ];
    let pages = [
        "/t/home",
        "/t/home/vibers",
        "/t/home/settings",
        "/account",
        "/api/v1/vibers",
        "/api/v1/tokens",
        "/api/v1/audit",
    ];
    for path in pages {
        let body = owner.send(owner.request(Method::GET, path).header("x-team", HOME)).await.body;
        for secret in &secrets {
            secret.not_in(path, &body);
        }
    }
    board.stop().await;
    for secret in &secrets {
        secret.not_in("the log", &board.log());
        secret.not_below(board.data(), |_| false);
    }
}
