//! Every route, as nobody.

use board_tests::{Board, Engine, FakeDaemon, board::HOME, canary::Canary};
use reqwest::{Method, header};
use serde_json::json;
use server::web::authority::{Access, ROUTES, Route};

/// All that answers 2xx to somebody without a credential. Whatever is added here is open to the world.
const OPEN_ROUTES: &[(&str, &str)] = &[
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/install.sh"),
    ("GET", "/download/daemon-agent"),
    ("GET", "/download/daemon-agent.sha256"),
    ("GET", "/static/{hash}/{name}"),
    ("GET", "/login"),
    ("GET", "/api/v1/openapi.json"),
];

/// Every method that the Board has a handler for somewhere, and some that it has not.
const METHODS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"];

/// The route's path with something plausible in its places.
fn filled(route: &Route, asset: &str) -> String {
    if route.path == "/static/{hash}/{name}" {
        return asset.to_owned();
    }
    let id = "0".repeat(32);
    let mut path =
        route.path.replace("{team}", HOME).replace("{attempt}", "1").replace("{seq}", "1").replace("{part}", "0");
    for (place, prefix) in [
        ("/vibers/{id}", "vib"),
        ("/sessions/{id}", "ses"),
        ("/tasks/{id}", "task"),
        ("/devices/{id}", "sid"),
        ("/members/{id}", "op"),
        ("/artifacts/{id}", "art"),
        ("/blobs/{id}", "art"),
        ("/approvals/{id}", "apr"),
        ("/edits/{id}", "edt"),
        ("/playbook-runs/{id}", "run"),
        ("/skill-rollouts/{id}", "rol"),
    ] {
        path = path.replace(place, &format!("{}/{prefix}_{id}", &place[..place.len() - 5]));
    }
    let path = path.replace("{proposal}", &format!("prp_{id}")).replace("{edit}", &format!("edt_{id}"));
    let path = path.replace("{upload}", &format!("art_{id}")).replace("{message}", &format!("msg_{id}"));
    let path = path.replace("{session}", &format!("ses_{id}")).replace("{space}", &"0".repeat(16));
    let path = path.replace("{digest}", &"0".repeat(64)).replace("{name}", "git-commit");
    let path = path.replace("{label}", "1").replace("{n}", "1");
    path.replace("{id}", &id).replace("{code}", &id).replace("{call}", "c1").replace("{*path}", "notes.md")
}

/// The address of the style sheet.
async fn asset(board: &Board) -> String {
    let page = board.anon().page("/login").await.expect(200).body;
    let at = page.find("/static/").expect("a style sheet");
    page[at..].split('"').next().expect("a path").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a01_nobody_gets_through_any_door_but_the_open_ones() {
    let board = Board::start(Engine::Sqlite).await;
    board.owner().await;
    let asset = asset(&board).await;
    let anon = board.anon();
    let mut wrong = Vec::new();
    let mut open = std::collections::BTreeSet::new();
    let mut paths: Vec<&Route> = ROUTES.iter().collect();
    paths.dedup_by_key(|route| route.path);
    for route in paths {
        let path = filled(route, &asset);
        assert!(!path.contains('{'), "{path} is not filled in");
        for method in METHODS {
            let mut request = anon.request(method.parse::<Method>().expect("a method"), &path);
            if path.starts_with("/api/") || path == "/mcp" {
                request = request.header(header::CONTENT_TYPE, "application/json").body("{}");
            } else if path.starts_with("/ws/") {
                request = request.header(header::CONNECTION, "upgrade").header(header::UPGRADE, "websocket");
            } else {
                request = request
                    .header(header::ACCEPT, "text/html")
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
            }
            let answer = request.send().await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
            let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
            let to = headers.get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
            let known = ROUTES.iter().find(|known| known.path == route.path && known.method == *method);
            // HEAD is GET without its body.
            let known = known.or_else(|| {
                ROUTES.iter().find(|known| *method == "HEAD" && known.path == route.path && known.method == "GET")
            });
            let good = match known {
                None => [400, 403, 404, 405].contains(&status),
                Some(Route { who: Access::MetricsToken, .. }) => [401, 404].contains(&status),
                Some(route) if OPEN_ROUTES.contains(&(route.method, route.path)) => {
                    open.insert(route.path);
                    status == 200 || (status == 503 && route.path.starts_with("/download"))
                }
                // A code, an invitation, a join token or a password is wrong; signing out is possible for everybody.
                Some(Route { who: Access::Anyone, path, .. }) => match *path {
                    "/logout" => status == 303 && to == "/login",
                    "/login" => [400, 401, 422].contains(&status),
                    "/api/daemon/join" => [400, 401, 422].contains(&status),
                    _ => [404, 410, 422].contains(&status),
                },
                Some(_) if path.starts_with("/api/") || path.starts_with("/ws/") || path == "/mcp" => status == 401,
                Some(_) => status == 303 && to.starts_with("/login"),
            };
            if !good || (headers.contains_key(header::SET_COOKIE) && *method != "POST") {
                wrong.push(format!("{method} {path}: {status} {to} {headers:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(open.len(), OPEN_ROUTES.len(), "the list of what is open names only what there is");
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a12_a_credential_in_an_address_is_none() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let (token, asset) = (board.token(HOME, "owner").await, asset(&board).await);
    let mut viber = FakeDaemon::enrol(&board, "lab").await;
    let cookie = owner.cookie().expect("signed in");
    let (_, login) = cookie.split_once('=').expect("a value");
    let credential = viber.credential.clone();
    let secrets = [token.bearer().expect("a token"), &credential, login];
    let anon = board.anon();
    let mut wrong = Vec::new();
    for secret in secrets {
        for route in ROUTES.iter().filter(|route| !matches!(route.who, Access::Anyone | Access::MetricsToken)) {
            let names = ["token", "access_token", "auth", "key", "api_key", "jwt", "vb"];
            let query: Vec<String> = names.iter().map(|name| format!("{name}={secret}")).collect();
            let path = format!("{}?{}&view=rail", filled(route, &asset), query.join("&"));
            let mut request = anon.request(route.method.parse().expect("a method"), &path).header("x-team", HOME);
            let mcp = route.path == "/mcp";
            if path.starts_with("/api/") || mcp {
                request = request.json(&json!({"token": secret, "access_token": secret}));
            } else {
                let kind = "application/x-www-form-urlencoded";
                request = request
                    .header(header::ACCEPT, "text/html")
                    .header(header::CONTENT_TYPE, kind)
                    .body(query.join("&"));
            }
            let answer = anon.send(request).await;
            let api = path.starts_with("/api/") || path.starts_with("/ws/") || mcp;
            let good = if api {
                answer.status == 401
            } else {
                answer.status == 303 && answer.header("location").starts_with("/login")
            };
            if !good {
                wrong.push(format!("{} {}: {}", route.method, route.path, answer.status));
            }
            // Whatever page comes next, its own links tell no other site where they are.
            assert_eq!(answer.header("referrer-policy"), "same-origin", "{}", route.path);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for path in [
        format!("/ws/daemon?token={credential}"),
        format!("/ws/daemon?access_token={credential}&authorization=Bearer+{credential}"),
    ] {
        let refused = viber.dial_to(&path, &[]).await.expect_err("no header, no credential").to_string();
        assert!(refused.contains("401"), "{path}: {refused}");
    }
    for (kind, secret) in ["an API token", "a viber's credential", "a login"].into_iter().zip(secrets) {
        Canary::of(kind, secret).not_in("the log", &board.log());
    }
    board.assert_invariants().await;
}
