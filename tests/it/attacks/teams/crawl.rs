//! A31: whatever one team asks, nothing of another team is in the answer, and no number in it counts it.

use std::collections::BTreeSet;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    canary::Canary,
    fake_daemon::{Attending, SPACE, accepted, completed, progress, started, text},
    tasks::{self, id},
    wait::SLACK,
};
use protocol::FromDaemon;
use reqwest::{Method, header};
use serde_json::{Value, json};
use server::web::authority::ROUTES;

crate::on_both_databases!(a31_nothing_of_another_team_is_seen_or_counted);

/// Pages that one crawl follows at most; there are fewer.
const CRAWLED_PAGES_MAX: usize = 600;

/// What a stream has to say at once it says in this time.
const FIRST_FRAMES_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(600);

/// A team with something in every list, each text of it unique.
struct Populated {
    secrets: Vec<Canary>,
    ids: Vec<String>,
    _viber: Attending,
}

async fn populate(board: &Board, team: &str) -> Populated {
    let mut secrets = Vec::new();
    let mut secret = |kind| {
        let canary = Canary::new(kind);
        secrets.push(canary.clone());
        canary.secret
    };
    let operator = board.token(team, "operator").await;
    let admin = board.token(team, "admin").await;
    let mut viber = FakeDaemon::enrol_in(board, team, &secret("a viber's name")).await;
    let mut hello = viber.hello_frame();
    hello.hostname = secret("a host's name");
    hello.platform = secret("a platform");
    if let Some(agent) = hello.state.agents.as_mut().and_then(|agents| agents.first_mut()) {
        (agent.name, agent.description) = (secret("an agent's name"), secret("an agent's description"));
    }
    viber.dial().await.expect("an upgrade");
    viber.send(&FromDaemon::Hello(Box::new(hello))).await;
    let mut ids = vec![viber.id.to_string()];
    let labels = json!({"labels": {"place": secret("a label")}});
    admin.patch(&format!("/api/v1/vibers/{}", viber.id), &labels).await.expect(200);
    for kind in ["a goal", "another goal"] {
        let task = operator.submit(viber.id.as_str(), &secret(kind)).await;
        let submit = viber.submitted().await;
        let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": secret("a call")}});
        let result = json!({
            "type": "tool-result", "callId": "c1", "tool": "shell", "result": secret("a result"), "ok": true, "durationMs": 1,
        });
        let words = secret("an answer");
        let bodies = vec![accepted(), started(), progress(&call), progress(&result), text(&words), completed(&words)];
        viber.report(&submit.task_id, 1, 1, bodies).await;
        ids.extend([id(&task, "id").to_owned(), id(&task, "sessionId").to_owned()]);
        let title = json!({"title": secret("a title")});
        operator.patch(&format!("/api/v1/sessions/{}", id(&task, "sessionId")), &title).await.expect(200);
    }
    operator.submit(viber.id.as_str(), &secret("a waiting goal")).await;
    let email = format!("{}@example.org", secret("an address"));
    let invited = admin.post("/api/v1/invitations", &json!({"role": "viewer", "email": email})).await.expect(201);
    let token = json!({"name": secret("a token's name"), "role": "viewer"});
    let token = admin.post("/api/v1/tokens", &token).await.expect(201);
    ids.extend([id(&invited.json(), "id").to_owned(), id(&token.json(), "id").to_owned()]);
    board.make_operator(team, &format!("{}@example.org", secret("a member")), "operator").await;
    let members = admin.get("/api/v1/members").await.expect(200).json();
    ids.extend(members["items"].as_array().expect("members").iter().map(|member| id(member, "id").to_owned()));
    // It stays connected however long the crawl takes.
    Populated { secrets, ids, _viber: viber.attend() }
}

/// The addresses on this Board that a page leads to.
fn links(body: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for piece in body.split("=\"/").skip(1) {
        let path = piece.split('"').next().unwrap_or_default().replace("&amp;", "&").replace("&#38;", "&");
        let path = path.split('#').next().unwrap_or_default();
        if !path.starts_with('/') && !path.starts_with("static/") {
            found.insert(format!("/{path}"));
        }
    }
    found
}

/// What somebody can ask beside what pages lead to: lists in every spelling, with places and ids of the others.
fn asked(theirs: &Populated, cursors: &[String], slug: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for route in ROUTES.iter().filter(|route| route.method == "GET") {
        // Their team, and each of their things in ours.
        for (team, id) in std::iter::once((slug, None)).chain(theirs.ids.iter().map(|id| (HOME, Some(id)))) {
            if !route.path.contains(if id.is_none() { "{team}" } else { "{id}" }) || route.path.contains("{code}") {
                continue;
            }
            let id = id.unwrap_or(&theirs.ids[0]);
            let path = route.path.replace("{team}", team).replace("{id}", id).replace("{attempt}", "1");
            let path = path
                .replace("{seq}", "2")
                .replace("{part}", "0")
                .replace("{call}", "c1")
                .replace("{*path}", "notes.md");
            let path = path.replace("{edit}", id).replace("{proposal}", id).replace("{upload}", id);
            paths.push(path.replace("{space}", &tasks::space(SPACE)));
        }
    }
    for list in ["vibers", "sessions", "tasks", "members", "invitations", "tokens", "audit"] {
        let path = format!("/api/v1/{list}");
        for query in ["", "?limit=200", "?limit=1", "?sort=name", "?order=desc", "?team=elsewhere", "?X-Team=elsewhere"]
        {
            paths.push(format!("{path}{query}"));
        }
        paths.extend(cursors.iter().map(|cursor| format!("{path}?cursor={cursor}")));
    }
    for query in ["archived=true", "archived=false", "title=canary", "title=%25", "title=_", "title=CANARY"] {
        paths.push(format!("/api/v1/sessions?{query}"));
    }
    for state in ["pending", "running", "completed", "error", "stopped"] {
        paths.push(format!("/api/v1/tasks?state={state}&limit=200"));
    }
    for id in &theirs.ids {
        for query in ["viberId", "sessionId"] {
            paths.push(format!("/api/v1/tasks?{query}={id}"));
            paths.push(format!("/api/v1/sessions?{query}={id}"));
        }
        paths.push(format!("/t/{HOME}?viber={id}"));
        paths.push(format!("/t/{HOME}/preflight?viber={id}&agent=default"));
        paths.push(format!("/t/{HOME}/preflight?find={id}"));
        paths.push(format!("/t/{HOME}/vibers?after={id}"));
        paths.push(format!("/t/{HOME}/sessions?after=9999999999999.{id}"));
        for view in ["session", "viber", "join"] {
            paths.push(format!("/t/{HOME}/live?view={view}:{id}"));
        }
    }
    for query in ["q=canary", "q=%25", "q=_", "q=&archived=1", "q=canary&archived=1", "archived=1&after=0.x"] {
        paths.push(format!("/t/{HOME}/sessions?{query}"));
    }
    for query in ["q=canary", "show=all", "show=online", "show=offline", "show=working&q=canary", "q=place"] {
        paths.push(format!("/t/{HOME}/vibers?{query}"));
    }
    paths
}

/// One answer as text; of a stream what comes at once.
async fn answer(person: &Person, path: &str) -> (u16, String) {
    let mut request = person.request(Method::GET, path);
    if !path.starts_with("/api/") {
        request = request.header(header::ACCEPT, "text/html");
    }
    let mut answer = request.send().await.unwrap_or_else(|error| panic!("{path}: {error}"));
    let status = answer.status().as_u16();
    assert!(status < 500, "{path}: {status}");
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut body = format!("{:?}\n", answer.headers());
    if kind.starts_with("text/event-stream") {
        // The first word takes its time on a busy machine; what belongs to it comes with it.
        let mut limit = FIRST_FRAMES_TIMEOUT * SLACK;
        while let Ok(Ok(Some(chunk))) = tokio::time::timeout(limit, answer.chunk()).await {
            body.push_str(&String::from_utf8_lossy(&chunk));
            limit = FIRST_FRAMES_TIMEOUT;
        }
    } else {
        body.push_str(&answer.text().await.unwrap_or_default());
    }
    (status, body)
}

/// What a list or page says, without what changes by itself: times, ages, the keys of forms.
fn lasting(body: &str) -> String {
    let mut text = body.to_owned();
    for (open, close) in [("<time", "</time>"), ("name=\"key\" value=\"", "\""), ("<header", ">")] {
        while let Some(at) = text.find(open) {
            let end = text[at + open.len()..].find(close).map_or(text.len(), |end| at + open.len() + end + close.len());
            text.replace_range(at..end, "");
        }
    }
    text
}

async fn a31_nothing_of_another_team_is_seen_or_counted(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let program = board.token(HOME, "owner").await;
    let ours = populate(&board, HOME).await;
    let lists =
        ["vibers", "sessions", "tasks", "members", "invitations", "tokens", "audit"].map(|l| format!("/api/v1/{l}"));
    let pages =
        ["", "/sessions", "/vibers", "/settings", "/settings/members", "/settings/invitations", "/settings/tokens"]
            .map(|page| format!("/t/{HOME}{page}"));
    let mut before = Vec::new();
    for path in lists.iter().chain(&pages) {
        before.push(lasting(&owner.page(path).await.expect(200).body));
    }

    let slug = Canary::new("a team's name");
    let (slug, name) = (slug.secret.clone(), slug);
    board.make_operator(&slug, "stranger@example.org", "owner").await;
    let theirs = populate(&board, &slug).await;
    let stranger = board.token(&slug, "owner").await;
    let mut cursors = Vec::new();
    for path in &lists {
        let page = stranger.get(&format!("{path}?limit=1")).await.expect(200).json();
        cursors.extend(page["next"].as_str().map(str::to_owned));
    }
    assert!(cursors.len() >= 4, "{cursors:?}");

    // Counts and lists are what they were when there was nobody else.
    for (path, before) in lists.iter().chain(&pages).zip(before) {
        let now = lasting(&owner.page(path).await.expect(200).body);
        let changed: Vec<_> = before.lines().zip(now.lines()).filter(|(before, now)| before != now).collect();
        assert!(changed.is_empty() && before.len() == now.len(), "{path} changed with another team: {changed:#?}");
    }
    let count = |value: &Value| value["items"].as_array().expect("items").len();
    assert_eq!(count(&program.get("/api/v1/tasks?limit=200").await.expect(200).json()), 3);

    // Everything that pages lead to, and everything else that can be asked.
    let mut seen = BTreeSet::new();
    let mut open: Vec<String> = vec!["/".into(), "/account".into(), format!("/t/{HOME}")];
    let mut walked = 0;
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) || seen.len() > CRAWLED_PAGES_MAX {
            continue;
        }
        let (status, body) = answer(&owner, &path).await;
        walked += usize::from(status == 200);
        for canary in theirs.secrets.iter().chain([&name]) {
            canary.not_in(&path, &body);
        }
        for id in &theirs.ids {
            assert!(!body.contains(id), "{path} shows the foreign {id}");
        }
        open.extend(links(&body));
    }
    assert!((30..CRAWLED_PAGES_MAX).contains(&walked), "{walked} pages");
    let ours_seen = seen.iter().filter(|path| ours.ids.iter().any(|id| path.contains(id.as_str()))).count();
    assert!(ours_seen >= 5, "the crawl finds its own team's things: {seen:#?}");

    let paths = asked(&theirs, &cursors, &slug);
    for (who, person) in [("login", &owner), ("token", &program)] {
        for path in paths.iter().filter(|path| who == "login" || path.starts_with("/api/")) {
            let (status, body) = answer(person, path).await;
            for canary in &theirs.secrets {
                canary.not_in(&format!("{path} by {who}"), &body);
            }
            let named = theirs.ids.iter().find(|id| path.contains(id.as_str()));
            for id in theirs.ids.iter().filter(|id| named != Some(*id)) {
                assert!(!body.contains(id.as_str()), "{path} by {who} shows the foreign {id}");
            }
            if path.starts_with(&format!("/t/{slug}")) {
                assert_eq!(status, 404, "{path} by {who}");
            }
        }
    }
    // By signing in with another team's name in the header, too.
    let guest = board.anon().in_team(&slug);
    guest.sign_in("owner@example.org", PASSWORD).await;
    for path in &lists {
        guest.get(path).await.expect(404);
    }
}
