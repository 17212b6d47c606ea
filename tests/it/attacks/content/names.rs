//! Hostile names: of machines, agents, models, files, people and what they make, on every page that shows them.

use std::collections::BTreeMap;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::{HOME, PASSWORD},
    fake_daemon::{accepted, completed, progress},
    hostile_site::Collector,
    tasks::id,
};
use protocol::{
    AgentInfo, ConfigError, ConfinedSubject, Confinement, DamageInfo, EventBody, FromDaemon, Granted, HiddenSecret,
    JobInfo, ProviderInfo, SkillCheck, SkillInfo, SkillState, ToDaemon, ViberState,
};
use reqwest::{Method, header};
use serde_json::{Value, json};

use crate::attacks::page_watch::PageWatch;

/// Short enough for a name; each breaks out of another place.
const NAMES: &[&str] = &[
    "<script>pwn(1)</script>",
    "\"><img src=x onerror=pwn(2)>",
    "' autofocus onfocus=pwn(3) x='",
    "</title></textarea><svg onload=pwn(4)>",
    "pwn5 x=\" hx-get=/account hx-trigger=load \"",
    "javascript:pwn(6)//",
    "</option></select><iframe src=javascript:pwn(7)>",
    "`<b>pwn8</b>` ``",
    "&lt;script&gt;pwn(9)&lt;/script&gt;",
    "{{7*7}}${pwn10}<%=1%>",
    "../../pwn11?x#y",
    "<a id=htmx name=pwn12><form id=composer>",
];

/// A viber that calls everything it has `name`.
async fn hostile(board: &Board, owner: &Person, name: &str) -> FakeDaemon {
    let token = owner.post("/api/v1/join-tokens", &json!({})).await.expect(201).json();
    let labels = BTreeMap::from([(name.to_owned(), name.to_owned()), ("zone".to_owned(), name.to_owned())]);
    let body = json!({"token": token["token"], "name": name, "labels": labels, "hostname": name,
        "platform": name, "version": name});
    let joined = board.anon().post("/api/daemon/join", &body).await.expect(201).json();
    let mut viber = FakeDaemon::enrolled(board, &joined, name);
    viber.dial().await.expect("its credential is good");
    let text = || name.to_owned();
    let agent = |id: String| AgentInfo {
        id,
        name: text(),
        description: text(),
        model: text(),
        tools: vec![text(), text()],
        spaces: vec![text()],
        max_steps: 3,
        skills: vec!["*".to_owned()],
        not_in_effect: vec![text()],
        refuses: Some(text()),
        ..AgentInfo::default()
    };
    let broken = ConfigError { file: text(), line: 3, message: text() };
    let mut hello = viber.hello_frame();
    hello.version = text();
    hello.platform = text();
    hello.hostname = text();
    hello.capabilities = vec![text()];
    hello.labels = BTreeMap::from([(text(), text())]);
    hello.state = ViberState {
        adapters: None,
        mcp: None,
        agents: Some(vec![
            AgentInfo { refuses: None, ..agent("default".into()) },
            agent(text()),
            AgentInfo { error: Some(broken), ..agent("broken".into()) },
        ]),
        skills: Some(vec![
            SkillInfo {
                name: text(),
                description: text(),
                runs: text(),
                path: text(),
                warnings: vec![text()],
                ..SkillInfo::default()
            },
            SkillInfo {
                name: text(),
                state: SkillState::NeedsSetup,
                checks: vec![SkillCheck { kind: text(), label: text(), ok: false, fix: Some(text()) }],
                ..SkillInfo::default()
            },
            SkillInfo {
                name: "good".to_owned(),
                description: text(),
                agents: vec!["default".to_owned()],
                ..SkillInfo::default()
            },
        ]),
        jobs: Some(vec![JobInfo { id: text(), name: text(), schedule: text() }]),
        providers: Some(vec![ProviderInfo {
            id: text(),
            api: text(),
            has_key: true,
            models: vec![text()],
            warning: Some(text()),
            ..ProviderInfo::default()
        }]),
        damage: Some(vec![DamageInfo { file: text(), at: protocol::Instant(1_700_000_000_000), bytes: 7 }]),
        confinement: Some(Box::new(Confinement {
            layers: vec![text()],
            subjects: vec![ConfinedSubject { name: text(), sentence: text(), ..ConfinedSubject::default() }],
            granted: Granted { write: vec![text()], network: text(), ..Granted::default() },
            hidden: vec![HiddenSecret { word: text(), places: vec![text()] }],
        })),
    };
    viber.send(&FromDaemon::Hello(Box::new(hello))).await;
    viber.until("a welcome", |frame| matches!(frame, ToDaemon::Welcome(_)).then_some(())).await;
    viber
}

/// A task of the viber, whose model, error and files have the same name.
async fn worked(operator: &Person, viber: &mut FakeDaemon, name: &str) -> Value {
    let task = operator.submit(viber.id.as_str(), name).await;
    let submit = viber.submitted().await;
    let started = EventBody::Started { pid: None, model: name.into(), engine: name.into() };
    let edit = json!({"type": "tool-call", "callId": name, "tool": "edit_file",
        "args": {"path": name, "oldText": name, "newText": name}});
    let result = json!({"type": "tool-result", "callId": name, "tool": "edit_file", "ok": false, "durationMs": 1,
        "result": {"output": name, "signal": name}});
    let error = json!({"code": "tool_failed", "message": name, "retryable": true, "suggestion": name});
    let error = EventBody::Error { error: serde_json::from_value(error).expect("an error") };
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started, progress(&edit), progress(&result), error]).await;
    task
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a56_hostile_names_are_names_on_every_page() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let collector = Collector::start([127, 0, 0, 2]).await;
    let watch = PageWatch::open(&board, &owner, &collector.address.to_string()).await;
    // The fleet, live: rows come into the table as the machines do.
    let first = FakeDaemon::connected(&board, "lab").await;
    watch.go("/t/home/vibers").await;
    let mut vibers = Vec::new();
    for name in NAMES {
        vibers.push(hostile(&board, &owner, name).await);
    }
    let rows = format!("return document.querySelectorAll('#fleet > tbody > tr').length === {}", NAMES.len() + 1);
    watch.until("all rows", &rows).await;
    watch.clean("the fleet, live").await;
    let body = watch.browser.content_of("#fleet").await;
    for name in NAMES {
        assert!(body.contains(name), "{name} is not shown in:\n{body}");
    }

    // What a test of a provider says.
    watch.go(&format!("/t/home/vibers/{}", vibers[1].id)).await;
    watch.browser.click(".provider form button").await;
    let asked = loop {
        let (id, method) = vibers[1]
            .until("a test", |frame| match frame {
                ToDaemon::Request { id, method, .. } => Some((*id, method.clone())),
                _ => None,
            })
            .await;
        if method == "provider.test" {
            break id;
        }
        // The page asks for the machine's own sessions, too.
        let refused = FromDaemon::Response { id, ok: false, result: Value::Null, error: Some(NAMES[1].into()) };
        vibers[1].send(&refused).await;
    };
    let failed = FromDaemon::Response {
        id: asked,
        ok: true,
        result: json!({"ok": false, "error": NAMES[1], "model": NAMES[1]}),
        error: Some(NAMES[1].into()),
    };
    vibers[1].send(&failed).await;
    watch.browser.find(".provider .outcome").await;
    watch.clean("a provider's answer").await;

    // A session for each, watched while it works, and what people name.
    let mut sessions = Vec::new();
    for (viber, name) in vibers.iter_mut().zip(NAMES) {
        let task = worked(&owner, viber, name).await;
        sessions.push(format!("/t/home/sessions/{}", id(&task, "sessionId")));
    }
    for (n, name) in NAMES.iter().enumerate() {
        owner.post("/api/v1/tokens", &json!({"name": name, "role": "viewer"})).await.expect(201);
        // An e-mail address has no spaces.
        let email = format!("pwn{n}<img/src=x/onerror=pwn({n})>\"'@{}", name.replace(' ', "/"));
        owner.post("/api/v1/invitations", &json!({"role": "viewer", "email": email})).await.expect(201);
        // What costs a hash or a process of its own, for some of them.
        if n >= 4 {
            continue;
        }
        let (email, team) = (format!("pwn{n}@example.org"), format!("team-{n}"));
        let person = ["operator", "add", "--team", HOME, "--email", &email, "--role", "viewer", "--name", name];
        board.cli(&person).await.good();
        board.cli(&["team", "add", &team, "--name", name]).await.good();
        let own = ["operator", "add", "--team", &team, "--email", "owner@example.org", "--role", "owner"];
        board.cli(&own).await.good();
        // Devices: a browser that calls itself so.
        let fields = format!("email=owner%40example.org&password={}", PASSWORD.replace(' ', "+"));
        let device = board.anon();
        let signed = device
            .request(Method::POST, "/login")
            .header(header::ORIGIN, &board.url)
            .header(header::USER_AGENT, *name)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        device.send(signed.body(fields)).await.expect(303);
    }
    owner.post_form("/account", &[("name", NAMES[1]), ("theme", "dark")]).await.expect(303);
    owner
        .post_form(
            "/t/home/settings",
            &[("name", NAMES[3]), ("slug", HOME), ("lost_after_minutes", "15"), ("retention_days", "30")],
        )
        .await
        .expect(303);

    // A session that is open while its machine gets a name.
    watch.go(&sessions[0]).await;
    owner
        .patch(&format!("/api/v1/vibers/{}", vibers[0].id), &json!({"name": "\"'><svg onload=pwn(0)>"}))
        .await
        .expect(200);
    watch.browser.sees("#where", "onload=pwn(0)").await;
    watch.clean("a session, live").await;

    let one = |verb: &str| format!("/t/home/vibers/{}{verb}", vibers[1].id);
    let mut pages: Vec<String> = [
        "",
        "/sessions",
        "/sessions?q=%22%3E%3Cimg+src%3Dx+onerror%3Dpwn(1)%3E",
        "/sessions?person=%22%3E%3Cimg+src%3Dx+onerror%3Dpwn(1)%3E&agent=%22%3E%3Cb%3Epwn",
        "/search?q=pwn",
        "/search?q=%22%3E%3Cimg+src%3Dx+onerror%3Dpwn(1)%3E",
        "/vibers",
        "/vibers?q=pwn",
        "/vibers?q=%22%3E%3Cimg+src%3Dx+onerror%3Dpwn(1)%3E",
        "/settings",
        "/settings/members",
        "/settings/invitations",
        "/settings/tokens",
        "/settings/audit",
        "/welcome",
    ]
    .map(|page| format!("/t/home{page}"))
    .to_vec();
    pages.extend([
        one("/revoke"),
        format!("/t/home?viber={}", vibers[6].id),
        format!("{}/delete", sessions[3]),
        "/account".into(),
    ]);
    pages.extend(vibers.iter().map(|viber| format!("/t/home/vibers/{}", viber.id)));
    pages.extend(sessions.iter().cloned());
    pages.push("/t/%3Cscript%3Epwn(1)%3C%2Fscript%3E".into());
    for page in &pages {
        watch.browser.go(&format!("{}{page}", board.url)).await;
        watch.browser.find("main").await;
        let _expected_404 = if page.contains("%3Cscript") { watch.browser.console_errors().await } else { Vec::new() };
        watch.clean(page).await;
    }
    watch.go("/login").await;
    drop(first);
    assert_eq!(collector.heard(), Vec::<String>::new());
    board.assert_invariants().await;
}

/// Names of an artifact that would like to be headers, paths or a page of their own.
fn artifacts() -> Vec<String> {
    [
        "text/html\r\nSet-Cookie: pwn=1".to_owned(),
        "pwn.txt\r\n\r\n<script>pwn(1)</script>".to_owned(),
        "\"pwn\"; filename*=UTF-8''x.html".to_owned(),
        "\u{202e}lmth.pwn".to_owned(),
        "../../pwn".to_owned(),
        "pwn\0.txt".to_owned(),
        format!("pwn{}", "x".repeat(10 * 1024)),
    ]
    .to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a57_what_an_artifact_calls_itself_is_text_and_no_header() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let collector = Collector::start([127, 0, 0, 2]).await;
    let watch = PageWatch::open(&board, &owner, &collector.address.to_string()).await;
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "pwn\"; filename=x.html").await;
    let submit = viber.submitted().await;
    let session = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    watch.go(&session).await;
    let mut events = vec![accepted(), board_tests::fake_daemon::started()];
    for name in artifacts() {
        let artifact = json!({"id": name, "title": name, "type": name, "ref": name});
        events.push(progress(&json!({"type": "artifact", "artifact": artifact})));
    }
    let refs: Vec<Value> =
        artifacts().iter().map(|name| json!({"id": name, "title": name, "type": name, "ref": name})).collect();
    events.push(completed("Here they are."));
    if let Some(EventBody::Completed { result }) = events.last_mut() {
        result.artifact_refs =
            refs.iter().map(|one| serde_json::from_value(one.clone()).expect("a reference")).collect();
    }
    viber.report(&submit.task_id, 1, 1, events).await;
    watch.browser.find("[data-task-state=completed]").await;
    let shown = format!("return document.querySelectorAll('.cards .card').length === {}", refs.len());
    watch.until("every artifact", &shown).await;
    watch.clean("live").await;
    watch.go(&session).await;
    watch.until("every artifact", &shown).await;
    watch.clean("reloaded").await;
    // Programs get the names as they are, as JSON; nothing of them stands in a header, the transcript's neither.
    let paths = [
        session.clone(),
        format!("{session}/transcript.md"),
        format!("/api/v1/tasks/{}", submit.task_id),
        format!("/api/v1/sessions/{}/messages", id(&task, "sessionId")),
    ];
    let program = board.token(HOME, "viewer").await;
    for path in &paths {
        let answer = if path.starts_with("/api/") { program.get(path).await } else { owner.page(path).await };
        let answer = answer.expect(200);
        assert!(answer.headers.get("set-cookie").is_none_or(|cookie| !format!("{cookie:?}").contains("pwn")), "{path}");
        for (name, value) in &answer.headers {
            assert!(!format!("{value:?}").contains("pwn"), "{path}: {name}: {value:?}");
        }
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
    }
    let told = program.task(submit.task_id.as_str()).await;
    assert_eq!(told["result"]["artifactRefs"].as_array().map(Vec::len), Some(refs.len()), "{told:#}");
    let transcript = owner.page(&paths[1]).await;
    let disposition = transcript.header("content-disposition");
    assert!(disposition.starts_with("attachment; filename=\"ses") && disposition.ends_with(".md\""), "{disposition}");
    assert_eq!(collector.heard(), Vec::<String>::new());
    board.assert_invariants().await;
}
