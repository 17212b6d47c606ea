//! A35–A37, A40, A43, A44: a role is what the database says at this moment, and every attempt beyond it is written down.

use std::collections::BTreeSet;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    tasks::id,
};
use protocol::ToDaemon;
use reqwest::{Method, header};
use serde_json::json;
use server::web::authority::{Access, ROUTES, Route};

use super::{ELSEWHERE, audit, member, turned_away};

crate::on_both_databases!(
    a35_who_is_not_a_member_any_more_gets_nowhere,
    a36_a_viewer_changes_nothing_and_every_try_is_written_down,
    a37_of_two_admins_who_demote_each_other_one_stays,
    a40_a_role_that_somebody_claims_is_ignored,
    a43_identifiers_are_random_enough_and_open_nothing,
    a44_a_lowered_role_counts_from_the_next_request_on,
);

/// A route's path in the first team, with well-formed ids of nothing.
fn filled(route: &Route) -> Option<String> {
    let mut path = String::new();
    let mut before = "";
    for piece in route.path.split('/').skip(1) {
        path.push('/');
        match piece {
            "{team}" => path.push_str(HOME),
            "{attempt}" | "{seq}" | "{part}" => path.push('1'),
            "{call}" => path.push_str("c1"),
            "{id}" => {
                let prefix = match before {
                    "vibers" => "vib",
                    "tasks" => "task",
                    "sessions" => "ses",
                    "members" => "op",
                    "invitations" => "inv",
                    "tokens" => "tok",
                    "artifacts" => "art",
                    _ => return None,
                };
                path.push_str(&format!("{prefix}_{}", "0123456789abcdef".repeat(2)));
            }
            _ if piece.starts_with('{') => return None,
            word => path.push_str(word),
        }
        before = piece;
    }
    Some(path)
}

fn needs_a_role(route: &Route) -> bool {
    matches!(route.who, Access::Viewer | Access::Operator | Access::Admin | Access::Owner)
}

/// Status and where it leads to.
async fn probe(person: &Person, route: &Route, path: &str) -> (u16, String) {
    let method: Method = route.method.parse().expect("a method");
    let api = path.starts_with("/api/");
    let mut request = person.request(method.clone(), path);
    if api && method != Method::GET {
        request = request.json(&json!({}));
    } else if !api {
        request = request.header(header::ACCEPT, "text/html");
        if method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
    }
    let answer = request.send().await.unwrap_or_else(|error| panic!("{} {path}: {error}", route.method));
    let to = answer.headers().get(header::LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default().to_owned();
    (answer.status().as_u16(), to)
}

async fn a35_who_is_not_a_member_any_more_gets_nowhere(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    // Each of them had a login that was good in this team, or an invitation that they have not taken.
    let removed = board.operator(HOME, "removed@example.org", "admin").await;
    let disabled = board.operator(HOME, "disabled@example.org", "admin").await;
    let invited = board.operator(ELSEWHERE, "invited@example.org", "owner").await.in_team(HOME);
    let key = board.token(HOME, "admin").await;
    for person in [&removed, &disabled] {
        person.get("/api/v1/vibers").await.expect(200);
    }
    key.get("/api/v1/vibers").await.expect(200);
    let made = owner.post("/api/v1/invitations", &json!({"email": "invited@example.org", "role": "admin"})).await;
    made.expect(201);
    owner.delete(&format!("/api/v1/members/{}", member(&owner, "removed@example.org").await)).await.expect(204);
    let tokens = owner.get("/api/v1/tokens").await.expect(200).json();
    let token =
        tokens["items"].as_array().expect("tokens").iter().find(|t| t["name"] == "test admin").expect("its token");
    owner.delete(&format!("/api/v1/tokens/{}", id(token, "id"))).await.expect(204);
    board.cli(&["operator", "disable", "--email", "disabled@example.org"]).await.good();
    board_tests::eventually("the console is noticed", || async {
        (disabled.get("/api/v1/vibers").await.status == 401).then_some(())
    })
    .await;

    let mut walked = 0;
    for route in ROUTES.iter().filter(|route| needs_a_role(route)) {
        let Some(path) = filled(route) else { continue };
        // Who has no account (any more) is nobody; whose account is not in the team finds no such team.
        for (who, person, in_no_team) in [
            ("removed", &removed, true),
            ("invited", &invited, true),
            ("disabled", &disabled, false),
            ("key", &key, false),
        ] {
            let (status, to) = probe(person, route, &path).await;
            let good = turned_away(status, &to) || (in_no_team && status == 404);
            assert!(good, "{} {path} as the {who}: {status} {to}", route.method);
            walked += 1;
        }
    }
    assert!(walked > 200, "{walked}");
    board.anon().try_sign_in("disabled@example.org", PASSWORD).await.expect(401);

    // A team that is shut answers its own members and programs 403, and opens again.
    let program = board.token(HOME, "owner").await;
    program.get("/api/v1/vibers").await.expect(200);
    board.cli(&["team", "suspend", "--team", HOME]).await.good();
    board_tests::eventually("the team is shut", || async {
        let answers = [owner.get("/api/v1/vibers").await.status, program.get("/api/v1/vibers").await.status];
        (answers == [403, 403]).then_some(())
    })
    .await;
    for route in ROUTES.iter().filter(|route| needs_a_role(route)) {
        let Some(path) = filled(route) else { continue };
        for person in [&owner, &program] {
            let (status, to) = probe(person, route, &path).await;
            assert!(turned_away(status, &to), "{} {path} of a shut team: {status} {to}", route.method);
        }
    }
    board.assert_invariants().await;
}

async fn a36_a_viewer_changes_nothing_and_every_try_is_written_down(engine: Engine) {
    let board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let people = [board.operator(HOME, "viewer@example.org", "viewer").await, board.token(HOME, "viewer").await];
    let viber = FakeDaemon::connected(&board, "lab").await;
    let task = board.token(HOME, "operator").await.submit(viber.id.as_str(), "stay").await;
    let rows = |rows: &[serde_json::Value]| rows.iter().filter(|row| row["action"] == "refused").count();
    let mut tried = BTreeSet::new();
    let mut refused = rows(&audit(&admin).await);
    assert_eq!(refused, 0);
    let writes =
        ROUTES.iter().filter(|route| route.method != "GET" && needs_a_role(route) && route.who > Access::Viewer);
    for route in writes {
        let Some(path) = filled(route) else { continue };
        // On what there is: a refusal does not depend on it.
        let path = path.replace(&format!("task_{}", "0123456789abcdef".repeat(2)), id(&task, "id"));
        let path = path.replace(&format!("ses_{}", "0123456789abcdef".repeat(2)), id(&task, "sessionId"));
        let path = path.replace(&format!("vib_{}", "0123456789abcdef".repeat(2)), viber.id.as_str());
        for person in &people {
            if person.bearer().is_some() && !path.starts_with("/api/") {
                continue;
            }
            let (status, _) = probe(person, route, &path).await;
            assert_eq!(status, 403, "{} {path}", route.method);
            tried.insert(format!("{} {}", route.method, route.path));
            refused += 1;
        }
    }
    assert!(tried.len() >= 30, "{tried:?}");
    let all = audit(&admin).await;
    assert_eq!(rows(&all), refused, "one row for each try");
    for object in &tried {
        let row =
            all.iter().find(|row| row["object"] == object.as_str()).unwrap_or_else(|| panic!("no row of {object}"));
        assert!(row["detail"].as_str().is_some_and(|why| why.starts_with("viewer needs ")), "{row}");
        assert_eq!(row["address"], "127.0.0.1", "{row}");
    }
    let task = admin.task(id(&task, "id")).await;
    assert_eq!((&task["state"], &task["attempt"]), (&json!("pending"), &json!(1)));
    assert_eq!(admin.get("/api/v1/tasks").await.expect(200).json()["items"].as_array().expect("tasks").len(), 1);
    board.assert_invariants().await;
}

async fn a37_of_two_admins_who_demote_each_other_one_stays(engine: Engine) {
    let board = Board::start(engine).await;
    demote(&board, 3).await;
    board.assert_invariants().await;
}

/// Two admins make each other viewers at the same time, again and again.
async fn demote(board: &Board, rounds: usize) {
    let owner = board.owner().await;
    let (bo, cy) =
        (board.operator(HOME, "bo@example.org", "admin").await, board.operator(HOME, "cy@example.org", "admin").await);
    let path = |id: &str| format!("/api/v1/members/{id}");
    let (bos, cys) = (path(&member(&owner, "bo@example.org").await), path(&member(&owner, "cy@example.org").await));
    for round in 0..rounds {
        let viewer = json!({"role": "viewer"});
        let (one, two) = tokio::join!(bo.patch(&cys, &viewer), cy.patch(&bos, &viewer));
        let mut statuses = [one.status, two.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 403], "round {round}: {one:#?}{two:#?}");
        let members = owner.get("/api/v1/members").await.expect(200).json();
        let admins = members["items"].as_array().expect("members").iter().filter(|member| member["role"] == "admin");
        assert_eq!(admins.count(), 1, "round {round}: {members:#}");
        for path in [&bos, &cys] {
            owner.patch(path, &json!({"role": "admin"})).await.expect(200);
        }
    }
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a37_two_hundred_rounds_on_sqlite() {
        demote(&Board::start(Engine::Sqlite).await, 200).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a37_two_hundred_rounds_on_postgres() {
        demote(&Board::start(Engine::Postgres).await, 200).await;
    }
}

async fn a40_a_role_that_somebody_claims_is_ignored(engine: Engine) {
    let board = Board::start(engine).await;
    let viewer = board.token(HOME, "viewer").await;
    let by_login = board.operator(HOME, "viewer@example.org", "viewer").await;
    let claims = [
        ("x-openclaw-scopes", "admin"),
        ("x-viber-scopes", "operator.admin"),
        ("x-openviber-scopes", "admin"),
        ("x-scopes", "admin"),
        ("x-role", "owner"),
        ("x-user-role", "owner"),
        ("x-roles", "owner,admin"),
        ("x-forwarded-user", "owner@example.org"),
        ("x-forwarded-email", "owner@example.org"),
        ("x-remote-user", "owner@example.org"),
        ("remote-user", "owner@example.org"),
        ("x-authenticated-userid", "owner@example.org"),
        ("x-original-url", "/api/v1/audit"),
        ("x-http-method-override", "GET"),
        ("x-admin", "true"),
    ];
    for person in [&viewer, &by_login] {
        for (name, value) in claims {
            let read = person.send(person.request(Method::GET, "/api/v1/audit").header(name, value)).await;
            assert_eq!(read.status, 403, "{name}");
            let write = person.request(Method::POST, "/api/v1/join-tokens").header(name, value).json(&json!({}));
            assert_eq!(person.send(write).await.status, 403, "{name}");
        }
    }
    for (name, value) in claims {
        let nobody = board.anon();
        assert_eq!(
            nobody.send(nobody.request(Method::GET, "/api/v1/vibers").header(name, value)).await.status,
            401,
            "{name}"
        );
    }

    // A daemon that says it is more than a viber is a viber.
    let mut daemon = FakeDaemon::enrol(&board, "lab").await;
    let bearer = format!("Bearer {}", daemon.credential);
    let headers = [("authorization", bearer.as_str()), ("x-openviber-scopes", "admin"), ("x-role", "owner")];
    daemon.dial_with(&headers).await.expect("an upgrade");
    let mut hello = serde_json::to_value(daemon.hello_frame()).expect("JSON");
    for (field, value) in [
        ("type", json!("hello")),
        ("role", json!("operator")),
        ("scopes", json!(["operator.admin", "operator.write"])),
        ("team", json!(ELSEWHERE)),
        ("teamId", json!("team_00000000000000000000000000000000")),
        ("auth", json!({"token": "x", "role": "admin"})),
    ] {
        hello[field] = value;
    }
    hello["capabilities"] = json!(["landlock", "admin", "operator.admin"]);
    daemon.send_text(hello.to_string()).await;
    daemon.until("a welcome", |frame| matches!(frame, ToDaemon::Welcome(_)).then_some(())).await;
    // What an operator's socket would be asked is nothing that this one knows.
    daemon
        .send_text(json!({"type": "task:submit", "taskId": "task_00000000000000000000000000000000"}).to_string())
        .await;
    daemon.until("unsupported", |frame| matches!(frame, ToDaemon::Unsupported { .. }).then_some(())).await;
    daemon
        .send_text(json!({"type": "req", "id": 1, "method": "tasks.submit", "params": {"goal": "x"}}).to_string())
        .await;
    daemon.until("a refusal", |frame| matches!(frame, ToDaemon::Response { ok: false, .. }).then_some(())).await;
    let as_person = Person::with_token(&board.url, &daemon.credential);
    as_person.get("/api/v1/vibers").await.expect(401);
    as_person.post("/api/v1/join-tokens", &json!({})).await.expect(401);
    let vibers = viewer.get("/api/v1/vibers").await.expect(200).json();
    assert_eq!(vibers["items"].as_array().expect("vibers").len(), 1);
    assert_eq!(viewer.get("/api/v1/tasks").await.expect(200).json()["items"], json!([]));
    board.assert_invariants().await;
}

async fn a43_identifiers_are_random_enough_and_open_nothing(engine: Engine) {
    // What makes ids is one function: ten thousand of the same millisecond.
    let made: Vec<u128> = (0..10_000).map(|_| bits(protocol::TaskId::new(1_790_000_000_000).as_str())).collect();
    assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), made.len());
    let free: Vec<u32> = (0..128).filter(|bit| made.iter().any(|id| (id ^ made[0]) >> bit & 1 == 1)).collect();
    assert!(free.len() >= 74, "{} bits vary", free.len());
    for bit in &free {
        let ones = made.iter().filter(|id| *id >> bit & 1 == 1).count();
        // Six standard deviations of a fair coin thrown 10,000 times are 300.
        assert!((4_700..=5_300).contains(&ones), "bit {bit} is set {ones} times");
    }
    for (one, other) in free.iter().zip(free.iter().skip(1)) {
        let same = made.iter().filter(|id| (*id >> one & 1) == (*id >> other & 1)).count();
        assert!((4_700..=5_300).contains(&same), "bits {one} and {other} agree {same} times");
    }

    // Those that the Board gives are of that kind.
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let viber = FakeDaemon::enrol(&board, "lab").await;
    let mut tails = BTreeSet::new();
    for _ in 0..40 {
        let session = operator.post("/api/v1/sessions", &json!({"viberId": viber.id})).await.expect(201).json();
        let id = bits(id(&session, "id"));
        assert_eq!((id >> 76 & 0xf, id >> 62 & 0b11), (7, 0b10), "a UUID of version 7");
        tails.insert((id & ((1 << 62) - 1)) >> 30);
    }
    assert_eq!(tails.len(), 40, "no counter stands where chance should");
    // Knowing an id opens nothing: the authority walk shows it for every route, this is one of them.
    let known = operator.get("/api/v1/sessions").await.expect(200).json();
    let path = format!("/api/v1/sessions/{}", id(&known["items"][0], "id"));
    board.anon().get(&path).await.expect(401);
    board.make_operator(ELSEWHERE, "far@example.org", "owner").await;
    board.token(ELSEWHERE, "owner").await.get(&path).await.expect(404);
    board.assert_invariants().await;
}

/// The 128 bits of an identifier.
fn bits(id: &str) -> u128 {
    let (_, digits) = id.split_once('_').expect("a prefix");
    u128::from_str_radix(digits, 16).expect("hexadecimal digits")
}

async fn a44_a_lowered_role_counts_from_the_next_request_on(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let bo = board.operator(HOME, "bo@example.org", "admin").await;
    bo.page("/t/home/settings/tokens").await.expect(200);
    let cookie = bo.cookie();
    let id = member(&owner, "bo@example.org").await;
    // An admin makes nobody an owner and touches none.
    let raise = format!("/t/home/settings/members/{id}/role");
    bo.post_form(&raise, &[("role", "owner")]).await.expect(403);
    bo.post_form("/t/home/settings/tokens", &[("name", "too much"), ("role", "owner")]).await.expect(403);
    owner.post_form(&raise, &[("role", "viewer")]).await.expect(303);
    bo.page("/t/home/settings/tokens").await.expect(403);
    bo.post_form("/t/home/settings/tokens", &[("name", "x"), ("role", "viewer")]).await.expect(403);
    bo.get("/api/v1/audit").await.expect(403);
    let page = owner.page("/t/home/settings/audit").await.expect(200).body;
    assert!(page.contains("refused") && page.contains("viewer needs admin"), "{page}");
    // At the console, which is another process: within five seconds.
    owner.post_form(&raise, &[("role", "operator")]).await.expect(303);
    bo.post("/api/v1/join-tokens", &json!({})).await.expect(201);
    board.cli(&["operator", "role", "--team", HOME, "--email", "bo@example.org", "--role", "viewer"]).await.good();
    board_tests::eventually("the console's word counts", || async {
        (bo.post("/api/v1/join-tokens", &json!({})).await.status == 403).then_some(())
    })
    .await;
    assert_eq!(bo.cookie(), cookie, "it is the same cookie all along");
    owner.post_form(&format!("/t/home/settings/members/{id}/remove"), &[]).await.expect(303);
    bo.page("/t/home").await.expect(404);
    bo.page("/account").await.expect(200);
    board.assert_invariants().await;
}
