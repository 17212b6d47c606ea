//! The authority walk: every route of the Board, as everybody. A route that the table lacks does not pass its own test
//! beside the table; one that the walk has no path for fails here.

use std::collections::BTreeMap;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    fake_daemon::{SPACE, accepted, completed, progress, started, text},
    tasks::{self, id},
};
use reqwest::{Method, header};
use serde_json::{Value, json};
use server::web::authority::{Access, ROUTES, Route};

use crate::library::{self, NOTES, archive};

/// Everybody who might call, and what the team `home` has that they might call for.
pub(crate) struct Callers {
    pub(crate) board: Board,
    anon: Person,
    /// By login and by token, each role of `home`, lowest first.
    pub(crate) roles: Vec<(Access, Person)>,
    /// The owner of another team, by login (naming our team) and by its own team's token.
    strangers: Vec<Person>,
    viber: Person,
    foreign_viber: Person,
    /// What stands for a placeholder, by the word before it in the path.
    pub(crate) ours: BTreeMap<&'static str, String>,
    unknown: BTreeMap<&'static str, String>,
}

/// Digits of an identifier that nobody has.
const NOBODYS_DIGITS: &str = "_00000000000000000000000000000000";

/// What a probe sees.
#[derive(Debug)]
struct Seen {
    status: u16,
    location: String,
    body: String,
}

impl Callers {
    pub(crate) async fn make() -> Self {
        let board = Board::start(Engine::Sqlite).await;
        let mut roles = Vec::new();
        for (who, role) in [
            (Access::Viewer, "viewer"),
            (Access::Operator, "operator"),
            (Access::Admin, "admin"),
            (Access::Owner, "owner"),
        ] {
            roles.push((who, board.operator(HOME, &format!("{role}@example.org"), role).await));
            roles.push((who, board.token(HOME, role).await));
        }
        board.make_operator("elsewhere", "stranger@example.org", "owner").await;
        let stranger = board.anon().in_team(HOME);
        stranger.sign_in("stranger@example.org", PASSWORD).await;
        let foreign_token = board.token("elsewhere", "owner").await;

        let mut viber = FakeDaemon::connected(&board, "lab").await;
        let far = FakeDaemon::connected_in(&board, "elsewhere", "far").await;
        let owner = board.token(HOME, "owner").await;
        let task = owner.submit(viber.id.as_str(), "be walked over").await;
        let submit = viber.submitted().await;
        let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "ls"}});
        let result =
            json!({"type": "tool-result", "callId": "c1", "tool": "shell", "result": "a", "ok": true, "durationMs": 1});
        let hash = "d096c58462f15a86ae358c72dd34e246f29755a2649578e85af9a86040be12e7";
        let path = format!("sessions/{}/task.md", id(&task, "sessionId"));
        let plan = json!({"type": "plan", "plan": {"markdown": "- [ ] walk\n", "hash": hash, "path": path}});
        let changed = json!({"type": "workspace:changed", "path": path, "hash": hash, "size": 11, "by": "agent"});
        viber.send_text(changed.to_string()).await;
        let calls = [progress(&call), progress(&result), progress(&plan)];
        let bodies: Vec<_> =
            [accepted(), started()].into_iter().chain(calls).chain([text("here"), completed("here")]).collect();
        viber.report(&submit.task_id, 1, 1, bodies).await;
        let spare = board.operator(HOME, "spare@example.org", "viewer").await;
        drop(spare);
        let members = owner.get("/api/v1/members").await.expect(200).json();
        let spare =
            members["items"].as_array().expect("a list").iter().find(|member| member["email"] == "spare@example.org");
        let invited =
            owner.post("/api/v1/invitations", &json!({"role": "viewer", "email": ""})).await.expect(201).json();
        let token = owner.post("/api/v1/tokens", &json!({"name": "spare", "role": "viewer"})).await.expect(201).json();
        let attach = format!("/api/v1/sessions/{}/artifacts?name=picture.svg", id(&task, "sessionId"));
        let attached = owner.send(owner.request(Method::POST, &attach).body("<svg/>")).await.expect(201).json();
        let skill = archive(&[("SKILL.md", 0o644, NOTES)]);
        let skill = library::add(&owner, skill).await.expect(201).json();
        let ours = BTreeMap::from([
            ("skills", id(&skill, "id").to_owned()),
            ("artifacts", id(&attached, "id").to_owned()),
            ("blobs", id(&attached, "id").to_owned()),
            ("vibers", viber.id.to_string()),
            ("tasks", id(&task, "id").to_owned()),
            ("sessions", id(&task, "sessionId").to_owned()),
            ("members", id(spare.expect("the spare member"), "id").to_owned()),
            ("invitations", id(&invited, "id").to_owned()),
            ("tokens", id(&token, "id").to_owned()),
            // Nobody's: a device is looked for among one's own.
            ("devices", "sid_00000000000000000000000000000000".to_owned()),
            ("approvals", "apr_00000000000000000000000000000000".to_owned()),
            ("edits", "edt_00000000000000000000000000000000".to_owned()),
            ("playbook-runs", "run_00000000000000000000000000000000".to_owned()),
            ("skill-rollouts", "rol_00000000000000000000000000000000".to_owned()),
        ]);
        let unknown = ours.iter().map(|(kind, known)| (*kind, another(known))).collect();
        let bearer = |daemon: &FakeDaemon| Person::with_token(&board.url, &daemon.credential);
        Self {
            anon: board.anon(),
            roles,
            strangers: vec![stranger, foreign_token],
            viber: bearer(&viber),
            foreign_viber: bearer(&far),
            ours,
            unknown,
            board,
        }
    }

    /// A path with everything filled in, or `None` when it needs a secret of its own (a code, a hash).
    pub(crate) fn path(&self, route: &Route, ids: &BTreeMap<&'static str, String>) -> Option<String> {
        let mut path = String::new();
        let mut before = "";
        for piece in route.path.split('/').skip(1) {
            path.push('/');
            match piece {
                "{team}" => path.push_str(HOME),
                "{attempt}" => path.push('1'),
                "{seq}" => path.push('2'),
                "{part}" => path.push('0'),
                "{call}" => path.push_str("c1"),
                "{*path}" => path.push_str("notes.md"),
                "{space}" => path.push_str(&tasks::space(SPACE)),
                // Nobody's.
                "{session}" => path.push_str("ses_00000000000000000000000000000000"),
                "{proposal}" => path.push_str("prp_00000000000000000000000000000000"),
                "{edit}" => path.push_str("edt_00000000000000000000000000000000"),
                "{message}" => path.push_str("msg_00000000000000000000000000000000"),
                "{upload}" => path.push_str("art_00000000000000000000000000000000"),
                "{name}" => path.push_str("git-commit"),
                "{label}" | "{n}" => path.push('1'),
                "{code}" | "{secret}" | "{hash}" => return None,
                _ if piece.starts_with('{') => match ids.get(before) {
                    Some(id) => path.push_str(id),
                    None => return None,
                },
                word => path.push_str(word),
            }
            before = piece;
        }
        Some(path)
    }
}

/// An identifier of the same kind that nobody has.
fn another(id: &str) -> String {
    let (prefix, _) = id.split_once('_').expect("a prefix");
    format!("{prefix}_{}", "0123456789abcdef".repeat(2))
}

fn is_api(route: &Route) -> bool {
    route.path.starts_with("/api/") || route.path.starts_with("/ws/") || route.path == "/mcp"
}

async fn probe(person: &Person, route: &Route, path: &str) -> Seen {
    let method: Method = route.method.parse().expect("a method");
    let mut request = person.request(method.clone(), path);
    if is_api(route) {
        if method != Method::GET && method != Method::DELETE {
            request = request.json(&json!({}));
        }
    } else {
        request = request.header(header::ACCEPT, "text/html");
        if method == Method::POST {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
    }
    let answer = request.send().await.unwrap_or_else(|error| panic!("{} {path}: {error}", route.method));
    let header =
        |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let (status, location) = (answer.status().as_u16(), header("location"));
    // A stream has no end to wait for.
    let body = if header("content-type").starts_with("text/event-stream") {
        String::new()
    } else {
        answer.text().await.unwrap_or_default()
    };
    assert!(status < 500, "{} {path}: {status} {body}", route.method);
    Seen { status, location, body }
}

/// A body without what differs from request to request.
fn plain(body: &str) -> String {
    match serde_json::from_str::<Value>(body) {
        Ok(mut problem) => {
            for field in ["requestId", "instance"] {
                problem.as_object_mut().map(|problem| problem.remove(field));
            }
            problem.to_string()
        }
        Err(_) => {
            let lines = body.lines().filter(|line| !line.to_lowercase().contains("request"));
            lines.collect::<Vec<_>>().join("\n")
        }
    }
}

fn is_turned_away(route: &Route, seen: &Seen) -> bool {
    if is_api(route) { seen.status == 401 } else { seen.status == 303 && seen.location.starts_with("/login") }
}

#[tokio::test]
async fn every_call_of_the_api_as_everybody() {
    assert!(walk(is_api).await > 200);
}

#[tokio::test]
async fn every_page_and_form_as_everybody() {
    assert!(walk(|route| !is_api(route)).await > 200);
}

/// Walks those routes; answers how many probes it took.
async fn walk(which: fn(&Route) -> bool) -> usize {
    let callers = Callers::make().await;
    let mut wrong = Vec::new();
    let mut walked = 0;
    let mut order: Vec<&Route> = ROUTES.iter().filter(|route| which(route)).collect();
    // What takes things away comes last.
    let takes = |route: &Route| {
        let last = route.path.rsplit('/').next().unwrap_or_default();
        route.method == "DELETE" || (route.method == "POST" && ["delete", "revoke", "remove", "leave"].contains(&last))
    };
    order.sort_by_key(|route| (takes(route), route.method != "GET"));

    // Those who may not, first: nothing changes meanwhile.
    for route in &order {
        let Some(path) = callers.path(route, &callers.ours) else { continue };
        let mut check = |who: &str, good: bool, seen: &Seen| {
            walked += 1;
            if !good {
                let body: String = seen.body.chars().take(200).collect();
                wrong.push(format!("{} {path} as {who}: {} {} {body}", route.method, seen.status, seen.location));
            }
        };
        if matches!(route.who, Access::Anyone | Access::MetricsToken) {
            continue;
        }
        let seen = probe(&callers.anon, route, &path).await;
        check("nobody", is_turned_away(route, &seen), &seen);
        match route.who {
            Access::Viber => {
                for (who, person) in &callers.roles {
                    let seen = probe(person, route, &path).await;
                    check(&format!("{who:?}"), [401, 403].contains(&seen.status), &seen);
                }
                if path.contains("/tasks/") {
                    let seen = probe(&callers.foreign_viber, route, &path).await;
                    check("a foreign viber", seen.status == 404, &seen);
                }
            }
            Access::Token => {
                let logins = callers.roles.iter().map(|(_, person)| person).chain(&callers.strangers);
                let logins = logins.filter(|person| person.bearer().is_none());
                for person in logins.chain([&callers.viber, &callers.foreign_viber]) {
                    let seen = probe(person, route, &path).await;
                    check("whoever has no token", seen.status == 401, &seen);
                }
            }
            Access::SignedIn => {
                let seen = probe(&callers.viber, route, &path).await;
                check("a viber", is_turned_away(route, &seen) || seen.status == 401, &seen);
            }
            _ => {
                for (name, viber) in [("a viber", &callers.viber), ("a foreign viber", &callers.foreign_viber)] {
                    let seen = probe(viber, route, &path).await;
                    check(name, is_turned_away(route, &seen) || seen.status == 401, &seen);
                }
                for (who, person) in callers.roles.iter().filter(|(who, _)| *who < route.who) {
                    let seen = probe(person, route, &path).await;
                    let by_token = person.bearer().is_some();
                    // Pages are for people: a token on a page may be as good as nobody.
                    let good = seen.status == 403 || (by_token && !is_api(route) && is_turned_away(route, &seen));
                    check(&format!("{who:?}"), good, &seen);
                }
                for stranger in &callers.strangers {
                    let ours = probe(stranger, route, &path).await;
                    let own_team = stranger.bearer().is_some();
                    if own_team && !route.path.contains('{') {
                        // A list or a verb of its own team: ours must not be in it.
                        let leaks = callers.ours.values().any(|id| ours.body.contains(id.as_str()));
                        check("a stranger's token", !leaks, &ours);
                        continue;
                    }
                    if own_team && !is_api(route) {
                        check("a stranger's token", ours.status == 404 || is_turned_away(route, &ours), &ours);
                        continue;
                    }
                    // A body that fits nobody's request may be named first, for everything in the stranger's own team.
                    let named = own_team && [400, 422].contains(&ours.status);
                    check("a stranger", ours.status == 404 || named, &ours);
                    if let Some(nowhere) = callers.path(route, &callers.unknown).filter(|other| *other != path) {
                        let unknown = probe(stranger, route, &nowhere).await;
                        check("a stranger, unknown id", unknown.status == ours.status, &unknown);
                        let same = plain(&ours.body).replace(&path, "") == plain(&unknown.body).replace(&nowhere, "");
                        check("a stranger, foreign as unknown", same, &ours);
                    }
                }
            }
        }
    }

    // Then those who may: whatever else is wrong with an empty request, it is not who sent it.
    for route in &order {
        if matches!(route.who, Access::Anyone | Access::MetricsToken | Access::Viber | Access::SignedIn) {
            continue;
        }
        let Some(path) = callers.path(route, &callers.ours) else { continue };
        let may = |(who, person): &&(Access, Person)| {
            *who >= route.who && (route.who != Access::Token || person.bearer().is_some())
        };
        let (_, person) = callers.roles.iter().find(may).expect("somebody may");
        let seen = probe(person, route, &path).await;
        walked += 1;
        // A test names one of the viber's providers, and an empty form names none; a page is no medium.
        if seen.status == 404 && (path.ends_with("/test") || path.ends_with("/view")) {
            continue;
        }
        if seen.status == 404 && path.contains(NOBODYS_DIGITS) {
            continue;
        }
        // The message begins with a call, which is no text.
        if seen.status == 404 && path.ends_with("/parts/0") {
            continue;
        }
        // The viber has no such playbook.
        if seen.status == 404 && path.ends_with("/playbooks/git-commit") {
            continue;
        }
        // The viber has no such server.
        if seen.status == 404 && route.path.contains("/vibers/{id}/mcp") {
            continue;
        }
        // The skill has no such file.
        if seen.status == 404 && route.path == "/api/v1/skills/{id}/files/{*path}" {
            continue;
        }
        // The attachment was withdrawn by the page's form before; the file was never written; the viber was revoked.
        let gone = path.starts_with("/api/v1/artifacts/")
            || path.ends_with("/notes.md")
            || path.ends_with("/skills/git-commit");
        if seen.status == 404 && route.method == "DELETE" && gone {
            continue;
        }
        if [401, 403, 404, 405].contains(&seen.status) || is_turned_away(route, &seen) {
            wrong.push(format!(
                "{} {path} as {:?}, who may: {} {}",
                route.method, route.who, seen.status, seen.location
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {walked} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    walked
}

#[tokio::test]
async fn a_path_that_is_no_route_says_nothing_about_anybody() {
    let callers = Callers::make().await;
    for path in ["/t/elsewhere/sessions", "/t/nowhere/sessions", "/t/home/no/such/page"] {
        let seen = callers.roles[0].1.page(path).await;
        assert_eq!(seen.status, 404, "{path}");
    }
    let foreign = callers.roles[0].1.page("/t/elsewhere/sessions").await;
    let unknown = callers.roles[0].1.page("/t/nowhere/sessions").await;
    assert_eq!(plain(&foreign.body).replace("elsewhere", ""), plain(&unknown.body).replace("nowhere", ""));
}
