//! What a hostile page, a guesser and a clumsy client get. The status codes are those of `architecture.md`.

use std::time::Duration;

use board_tests::{
    Board, Engine,
    board::{HOME, PASSWORD},
    canary::Canary,
};
use reqwest::{Method, header};
use serde_json::json;

/// The rules hold before any database is asked; one engine is enough.
const ANY: Engine = Engine::Sqlite;

#[tokio::test]
async fn another_site_cannot_act_for_an_operator() {
    let board = Board::start(ANY).await;
    let owner = board.owner().await;
    let cookie = owner.cookie().expect("signed in");
    let send = |method: Method, path: &str, extra: &[(&'static str, &str)]| {
        let mut request =
            board.anon().request(method, path).header(header::COOKIE, cookie.clone()).header("x-team", HOME);
        // What the harness adds for our own pages is taken back.
        request = request.header(header::CONTENT_TYPE, "application/json").body(json!({"labels": {}}).to_string());
        let mut request = request.build().expect("a request");
        request.headers_mut().remove(header::ORIGIN);
        for (name, value) in extra {
            request.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        async move { reqwest::Client::new().execute(request).await.expect("an answer") }
    };
    let path = "/api/v1/join-tokens";
    let foreign: [&[(&'static str, &str)]; 6] = [
        &[],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example"), ("sec-fetch-site", "same-origin")],
    ];
    for headers in foreign {
        let answer = send(Method::POST, path, headers).await;
        assert_eq!(answer.status(), 403, "{headers:?}");
        let body = answer.text().await.expect("a body");
        assert!(body.contains("csrf_failed"), "{headers:?}: {body}");
    }
    for headers in [[("origin", board.url.as_str())], [("sec-fetch-site", "same-origin")]] {
        let answer = send(Method::POST, path, &headers).await;
        assert_eq!(answer.status(), 201, "{headers:?}");
    }
    // Another port of the same machine is another site.
    assert_eq!(send(Method::POST, path, &[("origin", "http://127.0.0.1:1")]).await.status(), 403);
}

#[tokio::test]
async fn only_our_own_name_is_answered() {
    let board = Board::start(ANY).await;
    for (host, good) in [
        (board.url.trim_start_matches("http://").to_owned(), true),
        (board.url.replace("http://127.0.0.1", "localhost"), true),
        ("evil.example".to_owned(), false),
        ("127.0.0.1:1".to_owned(), false),
        ("127.0.0.1.evil.example".to_owned(), false),
    ] {
        let request = board.anon().request(Method::GET, "/login").header(header::HOST, &host);
        let status = request.send().await.expect("an answer").status().as_u16();
        assert_eq!(status == 200, good, "{host}: {status}");
        assert!(good || status == 421 || status == 400 || status == 403, "{host}: {status}");
    }
}

#[tokio::test]
async fn pages_carry_their_protection() {
    let board = Board::start(ANY).await;
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

#[tokio::test]
async fn the_cookie_is_closed_and_signing_out_ends_it() {
    let board = Board::start(ANY).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let ada = board.anon();
    let answer = ada.try_sign_in("ada@example.org", PASSWORD).await.expect(303);
    let cookies: Vec<&str> =
        answer.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok()).collect();
    let login = cookies.iter().find(|cookie| cookie.contains("HttpOnly")).expect("a closed cookie");
    assert!(login.contains("SameSite=") && login.contains("Path=/") && !login.contains("Domain="), "{login}");
    assert!(!login.contains("Secure"), "plain http on loopback");
    ada.page("/t/home").await.expect(200);
    let stolen = ada.cookie().expect("signed in");
    ada.post_form("/logout", &[]).await.expect(303);
    ada.page("/t/home").await.expect(303);
    let request =
        board.anon().request(Method::GET, "/api/v1/vibers").header(header::COOKIE, stolen).header("x-team", HOME);
    assert_eq!(request.send().await.expect("an answer").status(), 401, "the row decides, not the cookie");
}

#[tokio::test]
async fn a_guesser_is_slowed_down_and_learns_nothing() {
    let board = Board::start(ANY).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let guesser = board.anon();
    let wrong = guesser.try_sign_in("ada@example.org", "wrong password 1").await.expect(401);
    let unknown = guesser.try_sign_in("nobody@example.org", "wrong password 1").await.expect(401);
    let strip = |body: &str, email: &str| body.replace(email, "");
    assert_eq!(strip(&wrong.body, "ada@example.org"), strip(&unknown.body, "nobody@example.org"));
    let mut throttled = None;
    for n in 0..30 {
        let answer = guesser.try_sign_in("ada@example.org", &format!("wrong password {n}")).await;
        if answer.status == 429 {
            throttled = Some(answer);
            break;
        }
        assert_eq!(answer.status, 401);
    }
    let throttled = throttled.expect("thirty guesses are too many");
    assert!(throttled.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0), "{throttled:?}");
}

#[tokio::test]
async fn a_link_cannot_lead_away_after_signing_in() {
    let board = Board::start(ANY).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    for (next, lands) in [
        ("/t/home/vibers", "/t/home/vibers"),
        ("//evil.example", "/"),
        ("https://evil.example", "/"),
        ("/\\evil.example", "/"),
    ] {
        let fields = [("email", "ada@example.org"), ("password", PASSWORD), ("next", next)];
        let answer = board.anon().post_form("/login", &fields).await.expect(303);
        assert_eq!(answer.header("location"), lands, "{next}");
    }
    let away = board.anon().page("/t/home/vibers").await.expect(303);
    assert!(away.header("location").starts_with("/login"), "{:?}", away.headers);
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
    let board = Board::start(ANY).await;
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
    let board = Board::start(ANY).await;
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
    tokio::time::timeout(Duration::from_secs(5), end).await.expect("the stream ends within 5 s");
    program.get("/api/v1/tasks").await.expect(401);
}

#[tokio::test]
async fn secrets_stay_at_home() {
    let mut board = Board::start(ANY).await;
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
