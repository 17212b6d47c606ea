//! A94: headers in which a proxy would say who somebody is. Nobody's word is taken unless the administrator said whose.

use board_tests::{
    Board, Engine, Person,
    board::{HOME, PASSWORD},
};
use reqwest::{Method, header};
use serde_json::json;

/// Everything a proxy might have said, about somebody who came from far away to another place, safely.
const CLAIMS: [(&str, &str); 17] = [
    ("x-forwarded-for", "203.0.113.9"),
    ("x-forwarded-for", "127.0.0.1, 203.0.113.9, 10.0.0.1"),
    ("x-forwarded-for", "' OR 1=1--, <script>"),
    ("x-forwarded-host", "evil.example"),
    ("x-forwarded-server", "evil.example"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-scheme", "https"),
    ("x-forwarded-port", "443"),
    ("x-forwarded-prefix", "/evil"),
    ("x-real-ip", "203.0.113.9"),
    ("x-client-ip", "203.0.113.9"),
    ("x-cluster-client-ip", "203.0.113.9"),
    ("true-client-ip", "203.0.113.9"),
    ("cf-connecting-ip", "203.0.113.9"),
    ("x-host", "evil.example"),
    ("x-original-url", "/t/home/settings/audit"),
    ("forwarded", "for=203.0.113.9;host=evil.example;proto=https;by=203.0.113.1"),
];

/// The address of the newest audit row.
async fn address(owner: &Person) -> String {
    let page = owner.get("/api/v1/audit?limit=1").await.expect(200).json();
    page["items"][0]["address"].as_str().expect("an address").to_owned()
}

#[tokio::test]
async fn a94_what_a_stranger_says_about_itself_is_not_believed() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let program = board.token(HOME, "owner").await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let plain = board.anon().try_sign_in("ada@example.org", PASSWORD).await.expect(303);
    let shape = |answer: &board_tests::Answer| {
        let cookie = answer.header("set-cookie");
        let (name, attributes) = (cookie.split('=').next(), cookie.split_once(';'));
        (name.map(str::to_owned), attributes.map(|(_, rest)| rest.to_owned()), answer.header("location").to_owned())
    };
    for (name, value) in CLAIMS {
        let made = program.request(Method::POST, "/api/v1/join-tokens").header(name, value).json(&json!({}));
        let made = program.send(made).await.expect(201);
        assert!(!made.body.contains("evil") && !made.body.contains("https:"), "{name}: {}", made.body);
        assert_eq!(address(&owner).await, "127.0.0.1", "{name}: {value}");
        let invited = json!({"email": "", "role": "viewer"});
        let invited = owner.request(Method::POST, "/api/v1/invitations").header(name, value).json(&invited);
        let invited = owner.send(invited).await.expect(201);
        assert!(!invited.body.contains("evil") && invited.body.contains(&board.url), "{name}: {}", invited.body);

        // The same cookie, the same way on: nobody is made to believe in another scheme, host or path.
        let guest = board.anon();
        let fields = format!("email=ada%40example.org&password={}", board_tests::person::escape(PASSWORD));
        let request = guest.request(Method::POST, "/login").header(header::ORIGIN, &board.url).header(name, value);
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(fields);
        assert_eq!(shape(&guest.send(request).await.expect(303)), shape(&plain), "{name}: {value}");
        let devices = guest.page("/account").await.expect(200).body;
        assert!(devices.contains("127.0.0.1") && !devices.contains("203.0.113"), "{name}: {value}");
        // Another site stays another site, also when it says that it is the Board's own host.
        let request = board.anon().request(Method::POST, "/login").header(header::ORIGIN, "http://evil.example");
        let request = request.header(name, value).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        assert_eq!(request.body("email=a&password=b").send().await.expect("an answer").status(), 403, "{name}");
        let request = board.anon().request(Method::GET, "/login").header(header::HOST, "evil.example");
        assert_eq!(request.header(name, value).send().await.expect("an answer").status(), 421, "{name}");
        let script = board.anon();
        let script = script.send(script.request(Method::GET, "/install.sh").header(name, value)).await.expect(200).body;
        assert!(!script.contains("evil"), "{name}");
    }
    let rows = owner.get("/api/v1/audit?limit=200").await.expect(200).body;
    assert!(!rows.contains("203.0.113") && !rows.contains("evil"), "{rows}");
    assert!(!board.log().contains("203.0.113"), "the log has the peer, too");
    board.assert_invariants().await;
}

#[tokio::test]
async fn a94_a_proxy_that_nobody_named_is_told_once() {
    let board = Board::start(Engine::Sqlite).await;
    let says = async |board: &Board, name: &'static str, value: &'static str| {
        let anon = board.anon();
        anon.send(anon.request(Method::GET, "/login").header(name, value)).await.expect(200);
        board.log().lines().filter(|line| line.contains("--trusted-proxy")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(says(&board, "accept", "text/html").await, Vec::<String>::new());
    let told = says(&board, "x-forwarded-for", "203.0.113.9").await;
    let [line] = told.as_slice() else { panic!("{told:?}") };
    assert!(line.contains("WARN") && line.contains("127.0.0.0/24"), "{line}");
    assert!(!line.contains("203.0.113"), "the header is not believed, and not logged: {line}");
    assert_eq!(says(&board, "forwarded", "for=203.0.113.9").await, told, "once for a network");

    let named = Board::start_with(Engine::Sqlite, &["--trusted-proxy", "127.0.0.1/32"]).await;
    assert_eq!(says(&named, "x-forwarded-for", "203.0.113.9").await, Vec::<String>::new());
}

#[tokio::test]
async fn a94_a_guesser_stays_the_same_guesser_under_every_address() {
    let board = Board::start(Engine::Sqlite).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let mut throttled = false;
    for n in 0..30 {
        let guest = board.anon();
        let fields = format!("email=ada%40example.org&password=wrong-password-{n}");
        let request = guest.request(Method::POST, "/login").header(header::ORIGIN, &board.url);
        let request =
            request.header("x-forwarded-for", format!("203.0.113.{n}")).header("x-real-ip", format!("198.51.100.{n}"));
        let request = request.header("forwarded", format!("for=192.0.2.{n}"));
        let request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(fields);
        throttled |= guest.send(request).await.status == 429;
    }
    assert!(throttled, "thirty guesses from one place under thirty names");
    board.assert_invariants().await;
}

#[tokio::test]
async fn a94_this_machine_itself_has_no_privilege() {
    let board = Board::start(Engine::Sqlite).await;
    let anon = board.anon();
    for path in ["/api/v1/vibers", "/api/v1/audit", "/api/v1/members"] {
        anon.get(path).await.expect(401);
    }
    anon.get("/metrics").await.expect(404);
    for path in ["/setup/", "/setup/x", "/debug", "/admin", "/t/home/settings"] {
        let answer = anon.page(path).await;
        assert!([303, 404, 410].contains(&answer.status), "{path}: {}", answer.status);
    }
    anon.post("/api/daemon/join", &json!({"token": "", "name": "local"})).await.expect(401);
    board.assert_invariants().await;
}

#[tokio::test]
async fn a94_a_trusted_proxy_is_believed_about_addresses_and_nothing_else() {
    let board = Board::start_with(Engine::Sqlite, &["--trusted-proxy", "127.0.0.1/32"]).await;
    let owner = board.owner().await;
    let program = board.token(HOME, "owner").await;
    for (said, believed) in [
        ("203.0.113.9", "203.0.113.9"),
        // What the client itself wrote stands before what the proxy added.
        ("127.0.0.1, 198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("junk", "127.0.0.1"),
        ("203.0.113.9, junk", "127.0.0.1"),
        ("2001:db8::1", "2001:db8::1"),
    ] {
        let request = program.request(Method::POST, "/api/v1/join-tokens").header("x-forwarded-for", said);
        let request = request.header("x-forwarded-host", "evil.example").header("x-forwarded-proto", "https");
        let made = program.send(request.json(&json!({}))).await.expect(201);
        assert!(!made.body.contains("evil"), "{}", made.body);
        assert_eq!(address(&owner).await, believed, "{said}");
    }
    board.assert_invariants().await;
}
