//! Where a request says it comes from, and what kind of body it has.

use board_tests::{Board, Engine, Person, board::HOME};
use reqwest::{Method, StatusCode, header};
use serde_json::json;
use server::web::authority::{Access, ROUTES};

use super::forms::{contents, still_callers, unchanged};

/// Makes a join token with an operator's cookie and these headers; what the harness adds for our own pages is taken back.
async fn join_token(board: &Board, cookie: &str, headers: &[(&'static str, &str)]) -> (StatusCode, String) {
    let request = board.anon().request(Method::POST, "/api/v1/join-tokens").header(header::COOKIE, cookie);
    let request = request.header("x-team", HOME).json(&json!({"labels": {}}));
    let mut request = request.build().expect("a request");
    request.headers_mut().remove(header::ORIGIN);
    for (name, value) in headers {
        request.headers_mut().append(*name, value.parse().expect("a header"));
    }
    let answer = reqwest::Client::new().execute(request).await.expect("an answer");
    (answer.status(), answer.text().await.expect("a body"))
}

fn refused(what: &str, (status, body): (StatusCode, String)) {
    assert_eq!(status, 403, "{what}: {body}");
    assert!(body.contains("csrf_failed"), "{what}: {body}");
}

#[tokio::test]
async fn a18_a_cookie_alone_changes_nothing() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let cookie = owner.cookie().expect("signed in");
    let before = contents(&board).await;
    refused("neither header", join_token(&board, &cookie, &[]).await);
    for site in ["cross-site", "same-site", "none", "", "SAME-ORIGIN", "same-origin, cross-site"] {
        refused(site, join_token(&board, &cookie, &[("sec-fetch-site", site)]).await);
    }
    // What a browser adds for a proxy's sake says nothing about who asked; a token that is none is no login either.
    refused("a proxy's password", join_token(&board, &cookie, &[("authorization", "Basic YTpi")]).await);
    assert_eq!(join_token(&board, &cookie, &[("authorization", "Bearer vbt_x")]).await.0, 401);
    // A form, too, whatever else it carries.
    for authorization in ["", "Basic YTpi", "Bearer vbt_x"] {
        let form = board.anon().request(Method::POST, "/t/home/vibers/join").header(header::COOKIE, &cookie);
        let form = form.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body("");
        let mut form = form.header(header::AUTHORIZATION, authorization).build().expect("a request");
        form.headers_mut().remove(header::ORIGIN);
        let status = reqwest::Client::new().execute(form).await.expect("an answer").status();
        assert_eq!(status, 403, "{authorization}");
    }
    unchanged(&board, &before).await;
    let (status, _) = join_token(&board, &cookie, &[("sec-fetch-site", "same-origin")]).await;
    assert_eq!(status, 201);
    // A program has no cookie, and no browser behind it that could be led.
    let token = board.token(HOME, "owner").await;
    let request = token.request(Method::POST, "/api/v1/join-tokens").json(&json!({}));
    let request = request.build().expect("a request");
    assert!(!request.headers().contains_key(header::ORIGIN));
    assert_eq!(reqwest::Client::new().execute(request).await.expect("an answer").status(), 201);
    board.assert_invariants().await;
}

#[tokio::test]
async fn a19_only_the_exact_origin_is_ours() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let cookie = owner.cookie().expect("signed in");
    let host = board.url.trim_start_matches("http://");
    let port = host.rsplit_once(':').expect("a port").1;
    let local = format!("http://localhost:{port}");
    let before = contents(&board).await;
    let foreign = [
        "null".to_owned(),
        String::new(),
        format!("https://{host}"),
        format!("http://{host}."),
        format!("http://{host}/"),
        format!("http://{host}@evil.test"),
        format!("http://u@{host}"),
        format!("http://u:p@{host}"),
        format!("http://127.0.0.1.evil.test:{port}"),
        format!("http://evil127.0.0.1:{port}"),
        "http://127.0.0.1".to_owned(),
        "http://127.0.0.1:1".to_owned(),
        format!("http://127.0.0.1:{port}0"),
        format!("http://127.0.0.01:{port}"),
        format!("http://127.1:{port}"),
        format!("http://2130706433:{port}"),
        format!("http://[::ffff:127.0.0.1]:{port}"),
        format!("HTTP://{host}"),
        format!("http://LOCALHOST:{port}"),
        format!("http://localhost.:{port}"),
        format!("http://localhost:{port} http://evil.test"),
        format!("http://{host}, http://evil.test"),
        "https://board.test.evil.test".to_owned(),
        "chrome-extension://abcdefgh".to_owned(),
        "file://".to_owned(),
        "*".to_owned(),
    ];
    for origin in &foreign {
        refused(origin, join_token(&board, &cookie, &[("origin", origin)]).await);
        refused(origin, join_token(&board, &cookie, &[("origin", origin), ("sec-fetch-site", "same-origin")]).await);
    }
    refused("two", join_token(&board, &cookie, &[("origin", &board.url), ("origin", "null")]).await);
    refused("two of ours", join_token(&board, &cookie, &[("origin", &board.url), ("origin", &local)]).await);
    unchanged(&board, &before).await;
    for origin in [board.url.as_str(), &local, &format!("http://[::1]:{port}")] {
        assert_eq!(join_token(&board, &cookie, &[("origin", origin)]).await.0, 201, "{origin}");
    }
    board.assert_invariants().await;
}

#[tokio::test]
async fn a19_a_public_name_is_matched_to_the_letter() {
    let board = Board::start_with(Engine::Sqlite, &["--public-url", "https://board.test"]).await;
    board.make_operator(HOME, "ada@example.org", "operator").await;
    let sign_in = async |origin: &str| {
        let body = format!("email=ada%40example.org&password={}", board_tests::board::PASSWORD.replace(' ', "+"));
        let request = board.anon().request(Method::POST, "/login").header(header::HOST, "board.test");
        let request =
            request.header(header::ORIGIN, origin).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        request.body(body).send().await.expect("an answer").status().as_u16()
    };
    for origin in [
        "null",
        "http://board.test",
        "https://board.test.evil.test",
        "https://evilboard.test",
        "https://board.test:444",
        "https://board.test:443",
        "https://BOARD.test",
        "https://board.test.",
        "https://u@board.test",
        "https://board.test/",
        "https://sub.board.test",
        "https://board.tes",
        "https://board.test\u{40}evil.test",
        "https://board-test",
    ] {
        assert_eq!(sign_in(origin).await, 403, "{origin}");
    }
    assert_eq!(sign_in("https://board.test").await, 303);
    board.assert_invariants().await;
}

/// Routes whose body is a file as it is, of any type.
const FILES: [&str; 3] =
    ["/api/daemon/blobs/{id}", "/api/v1/vibers/{id}/workspace/{*path}", "/api/v1/sessions/{id}/artifacts"];

/// What no form and no simple request can send is asked for by name; everything else is refused before it is read.
#[tokio::test]
async fn a23_a_call_of_the_api_takes_json_and_nothing_else() {
    let callers = still_callers().await;
    let board = &callers.board;
    let owners: Vec<&Person> =
        callers.roles.iter().filter(|(who, _)| *who == Access::Owner).map(|(_, person)| person).collect();
    let before = contents(board).await;
    let mut wrong = Vec::new();
    let mut tried = 0;
    let body = json!({"goal": "evil", "name": "evil", "role": "owner", "email": "evil@example.org", "title": "evil", "token": "vbj_x"});
    for route in
        ROUTES.iter().filter(|route| route.path.starts_with("/api/") && !["GET", "DELETE"].contains(&route.method))
    {
        let Some(path) = callers.path(route, &callers.ours) else { panic!("{} is not filled in", route.path) };
        for kind in [
            Some("text/plain"),
            Some("text/plain; charset=application/json"),
            Some("application/x-www-form-urlencoded"),
            Some("multipart/form-data; boundary=application/json"),
            Some("application/jsonp"),
            Some("text/json"),
            None,
        ] {
            for person in &owners {
                let method: Method = route.method.parse().expect("a method");
                let mut request = person.request(method, &path).body(body.to_string());
                if let Some(kind) = kind {
                    request = request.header(header::CONTENT_TYPE, kind);
                }
                let due = if FILES.contains(&route.path) {
                    // Any type may come: a cookie from another page must not.
                    let Some(cookie) = person.cookie() else { continue };
                    request = board.anon().request(route.method.parse().expect("a method"), &path);
                    request = request.header(header::COOKIE, cookie).header("x-team", HOME);
                    request = request.header("sec-fetch-site", "cross-site").body(body.to_string());
                    request = request.header(header::CONTENT_TYPE, kind.unwrap_or("text/plain"));
                    403
                } else if route.who == Access::Viber {
                    // No person has its credential, whatever they send.
                    401
                } else {
                    415
                };
                let answer = person.send(request).await;
                tried += 1;
                if answer.status != due {
                    wrong.push(format!("{} {path} as {kind:?}: {}", route.method, answer.status));
                }
            }
        }
    }
    assert!(wrong.is_empty() && tried > 100, "{} of {tried}:\n{}", wrong.len(), wrong.join("\n"));
    unchanged(board, &before).await;
    board.assert_invariants().await;
}
