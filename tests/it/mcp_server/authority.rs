//! Who may use which tool: the token's role and team, and nobody without a token.

use std::time::Instant;

use board_tests::{
    Board, Engine, FakeMachine, Fixture, Neighbour,
    board::HOME,
    eventually,
    fake_daemon::{accepted, started},
    tasks::id,
};

use super::{
    tools::{PLAYBOOK, PLAYBOOK_PATH, announced},
    *,
};

crate::on_both_databases!(
    a_viewers_token_only_looks,
    another_teams_things_do_not_exist,
    only_a_token_opens_the_door_and_only_while_it_is_good,
);

async fn a_viewers_token_only_looks(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let (viewer, admin) = (fixture.board.token(HOME, "viewer").await, fixture.board.token(HOME, "admin").await);
    let looks = ["list_vibers", "get_task", "list_artifacts", "read_artifact", "search", "list_playbooks"];
    assert_eq!(shown_tools(&viewer).await, looks);
    fixture.viber.write(PLAYBOOK_PATH, PLAYBOOK).await;
    let task = fixture.submit("stay").await;
    let seen = told(&viewer, "get_task", json!({ "taskId": task["id"] })).await;
    assert_eq!((&seen["taskId"], &seen["goal"]), (&task["id"], &json!("stay")));
    told(&viewer, "list_vibers", json!({})).await;
    let playbooks = told(&viewer, "list_playbooks", json!({ "viber": "lab" })).await;
    assert_eq!(playbooks["items"][0]["playbook"], "release", "{playbooks:#}");
    told(&viewer, "search", json!({ "query": "nothing" })).await;

    let tries = [
        ("submit_task", json!({ "goal": "more", "viber": fixture.viber_id })),
        ("send_message", json!({ "content": "more", "taskId": task["id"] })),
        ("stop_task", json!({ "taskId": task["id"] })),
        ("run_playbook", json!({ "viber": fixture.viber_id, "playbook": "release" })),
        // A role is looked at before anything else.
        ("stop_task", json!({ "nonsense": 1 })),
    ];
    for (tool, arguments) in &tries {
        assert_eq!(refused(&viewer, tool, arguments.clone()).await, "forbidden", "{tool}");
    }
    assert_eq!(fixture.operator.task(id(&task, "id")).await["state"], "pending");
    let audit = admin.get("/api/v1/audit?limit=200").await.expect(200).json();
    let rows = audit["items"].as_array().expect("rows").iter().filter(|row| row["action"] == "refused");
    let mut objects: Vec<&str> = rows.filter_map(|row| row["object"].as_str()).collect();
    objects.sort_unstable();
    let mut expected: Vec<String> = tries.iter().map(|(tool, _)| format!("POST /mcp {tool}")).collect();
    expected.sort_unstable();
    assert_eq!(objects, expected, "each try is written down");
    // No role approves: there is no tool for it.
    let owner = fixture.board.token(HOME, "owner").await;
    assert_eq!(shown_tools(&owner).await, TOOLS);
    fixture.board.assert_invariants().await;
}

async fn another_teams_things_do_not_exist(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let far = Neighbour::of(&fixture.board).await;
    fixture.viber.write(PLAYBOOK_PATH, PLAYBOOK).await;
    let task = fixture.submit("a canary of ours").await;
    let artifact = made(&fixture, b"ours").await;
    let inputs = json!({ "version": "1" });
    let start = json!({ "viber": "lab", "playbook": "release", "inputs": inputs, "supervised": false });
    let run = told(&fixture.operator, "run_playbook", start).await["runId"].clone();
    let unknown = |id: &Value| {
        let (prefix, _) = id.as_str().expect("an id").split_once('_').expect("a prefix");
        json!(format!("{prefix}_{}", "0123456789abcdef".repeat(2)))
    };
    let (task_id, session) = (task["id"].clone(), task["sessionId"].clone());
    let (artifact, viber) = (json!(artifact), json!(fixture.viber_id));
    for (tool, field, ours, more) in [
        ("get_task", "taskId", &task_id, json!({})),
        ("get_task", "runId", &run, json!({})),
        ("stop_task", "taskId", &task_id, json!({})),
        ("send_message", "taskId", &task_id, json!({ "content": "x" })),
        ("send_message", "sessionId", &session, json!({ "content": "x" })),
        ("submit_task", "sessionId", &session, json!({ "goal": "x" })),
        ("submit_task", "viber", &viber, json!({ "goal": "x" })),
        ("list_artifacts", "taskId", &task_id, json!({})),
        ("list_artifacts", "sessionId", &session, json!({})),
        ("read_artifact", "artifactId", &artifact, json!({})),
        ("list_playbooks", "viber", &viber, json!({})),
        ("run_playbook", "viber", &viber, json!({ "playbook": "release" })),
    ] {
        let asked = |id: &Value| {
            let mut arguments = more.clone();
            arguments[field] = id.clone();
            arguments
        };
        let nowhere = unknown(ours);
        let seen = call(&far.operator, tool, &asked(ours)).await;
        let none = call(&far.operator, tool, &asked(&nowhere)).await;
        assert_eq!(seen["isError"], true, "{tool} {field}: {seen:#}");
        let plain = |result: &Value, id: &Value| result.to_string().replace(id.as_str().expect("an id"), "");
        assert_eq!(plain(&seen, ours), plain(&none, &nowhere), "{tool} {field}: a foreign one is like none");
    }
    let named = refused(&far.operator, "submit_task", json!({ "goal": "x", "viber": "lab" })).await;
    assert_eq!(named, "viber_not_found");
    let searched = json!({ "query": "canary" });
    for (tool, arguments) in [("list_vibers", json!({})), ("search", searched), ("list_playbooks", json!({}))] {
        let seen = told(&far.operator, tool, arguments).await.to_string();
        for canary in [fixture.viber_id.as_str(), id(&task, "id"), "canary of ours", "release"] {
            assert!(!seen.contains(canary), "{tool} shows {canary}: {seen}");
        }
    }
    assert_eq!(fixture.operator.task(id(&task, "id")).await["state"], "running");
    fixture.board.assert_invariants().await;
}

/// The machine begins its task and tells of an artifact; answers its id.
async fn made(fixture: &Fixture<FakeMachine>, bytes: &[u8]) -> protocol::ArtifactId {
    let submit = fixture.viber.submitted().await;
    let (artifact, event) = announced(&fixture.viber, &submit.task_id, ("notes.txt", bytes));
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), event]).await;
    let path = format!("/api/v1/artifacts/{artifact}");
    eventually("the artifact is there", async || (fixture.operator.get(&path).await.status == 200).then_some(())).await;
    artifact
}

async fn only_a_token_opens_the_door_and_only_while_it_is_good(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let ping = |person: &Person| after_handshake(person, "ping", &json!({}));
    // A login is for pages, also with the right origin and team.
    let answer = owner.send(ping(&owner)).await.expect(401);
    assert_eq!((answer.code().as_str(), answer.header("www-authenticate")), ("unauthenticated", "Bearer"));
    board.anon().send(ping(&board.anon())).await.expect(401);
    for wrong in ["vbt_x", "vbc_x", ""] {
        let stranger = Person::with_token(&board.url, wrong);
        stranger.send(ping(&stranger)).await.expect(401);
    }
    // Beside a token a cookie says nothing: the token's team and role count.
    let program = board.token(HOME, "viewer").await;
    let cookie = owner.cookie().expect("signed in");
    let both = ping(&program).header(header::COOKIE, cookie).header(header::ORIGIN, &board.url);
    program.send(both).await.expect(200);
    assert_eq!(shown_tools(&program).await.len(), 6);

    board.cli(&["team", "suspend", "--team", HOME]).await.good();
    eventually("the team is shut", async || (program.send(ping(&program)).await.status == 403).then_some(())).await;
    board.cli(&["team", "suspend", "--team", HOME, "--resume"]).await.good();
    eventually("it is open", async || (program.send(ping(&program)).await.status == 200).then_some(())).await;
    let tokens = owner.get("/api/v1/tokens").await.expect(200).json();
    let token = tokens["items"].as_array().expect("tokens").iter().find(|token| token["name"] == "test viewer");
    owner.delete(&format!("/api/v1/tokens/{}", id(token.expect("its token"), "id"))).await.expect(204);
    program.send(ping(&program)).await.expect(401);
    board.assert_invariants().await;
}

#[tokio::test]
async fn calls_count_with_those_of_the_api() {
    let board = Board::start(Engine::Sqlite).await;
    let program = board.token(HOME, "viewer").await;
    let began = Instant::now();
    // Half of them by each door, which would let through 400 at once if it counted by itself.
    let calls = (0..900).map(|n| {
        let request = match n % 2 {
            0 => after_handshake(&program, "ping", &json!({})),
            _ => program.request(Method::GET, "/api/v1/prices"),
        };
        program.send(request)
    });
    let answers = futures_util::future::join_all(calls).await;
    // And 100 more in each second that it took.
    let most = 400 + 100 * (began.elapsed().as_secs() as usize + 1);
    let throttled: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert!(answers.len() - throttled.len() <= most, "{} of 900 were throttled", throttled.len());
    assert!(throttled.iter().all(|answer| answer.code() == "throttled" && !answer.header("retry-after").is_empty()));
    board.assert_invariants().await;
}
