//! Programs that call often, call again, or call wrongly; streams that go on; and what the Board tells about itself.

use std::time::Instant;

use board_tests::{
    Board, Engine, FakeDaemon, Fixture, Person,
    board::HOME,
    canary::Canary,
    fake_daemon::{accepted, completed, started, text},
    person::{EventStream, StreamFrame},
    programs::free_port,
    tasks::id,
};
use protocol::{ErrorCode, EventBody, TaskError};
use reqwest::{Method, header};
use serde_json::json;

crate::on_both_databases!(
    a_call_sent_again_is_answered_again,
    a_stream_goes_on_through_a_retry_and_resumes_exactly,
    a_stream_tells_of_contact_and_of_the_end_of_the_board,
);

async fn a_call_sent_again_is_answered_again(engine: Engine) {
    let mut board = Board::start(engine).await;
    let admin = board.token(HOME, "admin").await;
    let viber = FakeDaemon::connected(&board, "lab").await;
    for (path, body) in [
        ("/api/v1/tasks", json!({"goal": "once", "viberId": viber.id})),
        ("/api/v1/sessions", json!({"viberId": viber.id})),
        ("/api/v1/tokens", json!({"name": "ci", "role": "viewer"})),
        ("/api/v1/invitations", json!({"email": "", "role": "viewer"})),
        ("/api/v1/join-tokens", json!({})),
    ] {
        let first = admin.post_once(path, path, &body).await.expect(201);
        let again = admin.post_once(path, path, &body).await.expect(201);
        assert_eq!(first.body, again.body, "{path}");
        let mut other = body.clone();
        other["labels"] = json!({"a": "b"});
        assert_eq!(admin.post_once(path, path, &other).await.expect(422).code(), "idempotency_mismatch", "{path}");
    }
    let tokens = admin.get("/api/v1/tokens").await.expect(200).json();
    let made = tokens["items"].as_array().expect("a list").iter().filter(|token| token["name"] == "ci").count();
    assert_eq!(made, 1);
    // A key belongs to its caller: another program's same key is another call.
    let other = board.token(HOME, "operator").await;
    let body = json!({"goal": "once", "viberId": viber.id});
    let theirs = other.post_once("/api/v1/tasks", "/api/v1/tasks", &body).await.expect(201).json();
    let tasks = admin.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(tasks["items"].as_array().expect("a list").len(), 2, "{theirs}");
    // Two at the same time are one.
    let body = json!({"name": "twice", "role": "viewer"});
    let (one, two) =
        tokio::join!(admin.post_once("k", "/api/v1/tokens", &body), admin.post_once("k", "/api/v1/tokens", &body));
    assert_eq!(one.expect(201).body, two.expect(201).body);
    // What failed did nothing, and may be tried again.
    let refused = admin.post_once("f", "/api/v1/tasks", &json!({"goal": ""})).await;
    assert_eq!(refused.status, 422);
    assert_eq!(admin.post_once("f", "/api/v1/tasks", &body).await.expect(422).code(), "invalid_body");
    // The answers that are kept do not give the secrets in them away.
    let secret = admin.post_once("k", "/api/v1/tokens", &body).await.json()["token"].as_str().map(str::to_owned);
    let canary = Canary::of("a token in a kept answer", &secret.expect("told again"));
    board.stop().await;
    canary.not_below(board.data(), |_| false);
    board.assert_invariants().await;
}

fn failed() -> EventBody {
    let message = "the model was away".to_owned();
    let code = ErrorCode::ProviderUnavailable;
    EventBody::Error { error: TaskError { code, message, retryable: true, suggestion: None, details: None } }
}

/// The ids of what comes, until the frame with this id.
async fn ids_until(stream: &mut EventStream, last: &str) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.last().is_none_or(|id| id != last) {
        let frame = stream.next().await.unwrap_or_else(|| panic!("ended before {last}: {ids:?}"));
        ids.extend(frame.id);
    }
    ids
}

async fn a_stream_goes_on_through_a_retry_and_resumes_exactly(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(viber.id.as_str(), "try twice").await;
    let submit = viber.submitted().await;
    let path = format!("/api/v1/tasks/{}/events", submit.task_id);
    let mut live = operator.stream(&path, None).await;
    assert_eq!(live.next().await.expect("the task").event, "task");
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("a")]).await;
    assert_eq!(ids_until(&mut live, "1.3").await, ["1.1", "1.2", "1.3"]);
    viber.report(&submit.task_id, 1, 4, vec![text("b"), failed()]).await;
    assert_eq!(ids_until(&mut live, "1.5").await, ["1.4", "1.5"]);
    let end = live.until("end").await.pop().expect("the end");
    assert_eq!((end.id.as_deref(), end.json()["reason"].as_str()), (None, Some("terminal")));
    assert_eq!(live.next().await, None);

    operator.retry(id(&task, "id")).await.expect(200);
    let mut live = operator.stream(&path, Some("1.4")).await;
    let again = viber.submitted().await;
    assert_eq!(again.attempt, 2);
    viber.report(&again.task_id, 2, 1, vec![accepted(), started(), text("c"), completed("c")]).await;
    let frames = live.until("end").await;
    let ids: Vec<&str> = frames.iter().filter_map(|frame| frame.id.as_deref()).collect();
    assert_eq!(ids, ["1.5", "2.1", "2.2", "2.3", "2.4"]);
    for unknown in ["garbage", "3.1", "2.5", "2.99999999999999999999", ""] {
        let frames = operator.stream(&path, Some(unknown)).await.until("end").await;
        let resets = frames.iter().filter(|frame| frame.event == "reset").count();
        // An empty one is what a browser sends that has none yet.
        assert_eq!(resets, usize::from(!unknown.is_empty()), "{unknown}");
        assert_eq!(frames.iter().filter(|frame| frame.id.is_some()).count(), 9, "{unknown}");
    }
    let mut pages = Vec::new();
    let mut after = String::new();
    loop {
        let page = operator.get(&format!("{path}?limit=2{after}")).await.expect(200).json();
        let items = page["items"].as_array().expect("a list");
        assert!(!items.is_empty() && items.len() <= 2, "{page}");
        pages.extend(items.iter().map(|event| format!("{}.{}", page["attempt"], event["seq"])));
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(pages, ["1.1", "1.2", "1.3", "1.4", "1.5", "2.1", "2.2", "2.3", "2.4"]);
    for bad in ["x", "3.1", "1"] {
        operator.get(&format!("{path}?after={bad}")).await.expect(422);
    }
    board.assert_invariants().await;
}

async fn a_stream_tells_of_contact_and_of_the_end_of_the_board(engine: Engine) {
    let board = Board::start(engine).await;
    let operator = board.token(HOME, "operator").await;
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    operator.submit(viber.id.as_str(), "be cut off").await;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    let mut live = operator.stream(&format!("/api/v1/tasks/{}/events", submit.task_id), None).await;
    ids_until(&mut live, "1.2").await;
    viber.cut();
    let gone = |frame: &StreamFrame| frame.event == "task" && frame.json()["contact"]["state"] == "disconnected";
    while !gone(&live.next().await.expect("a frame")) {}
    board.begin_stop();
    let end = live.until("end").await.pop().expect("the end");
    assert_eq!(end.json()["reason"], "shutdown");
    board.assert_invariants().await;
}

#[tokio::test]
async fn a_token_may_ask_often_and_not_too_often() {
    let board = Board::start(Engine::Sqlite).await;
    let hasty = board.token(HOME, "viewer").await;
    let calm = board.token(HOME, "viewer").await;
    let began = Instant::now();
    let calls = (0..900).map(|_| hasty.get("/api/v1/vibers/vib_x"));
    let answers = futures_util::future::join_all(calls).await;
    // 400 at once, and 100 more in each second that it took.
    let most = 400 + 100 * (began.elapsed().as_secs() as usize + 1);
    let throttled: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    let passed = answers.iter().filter(|answer| answer.status == 404).count();
    // On a busy machine no reader of the database is free for some of those that were let through; they are told so.
    let busy: Vec<_> = answers.iter().filter(|answer| answer.status == 503).collect();
    let let_through = passed + busy.len();
    assert_eq!(throttled.len() + let_through, 900);
    assert!((400..=most).contains(&let_through), "{let_through} were let through, at most {most} may be");
    assert!(passed > busy.len(), "{passed} passed, {} were told to wait", busy.len());
    assert!(busy.iter().all(|answer| answer.code() == "unavailable" && !answer.header("retry-after").is_empty()));
    assert!(throttled.iter().all(|answer| answer.header("retry-after").parse::<u64>().is_ok_and(|s| s > 0)));
    assert!(throttled.iter().all(|answer| answer.code() == "throttled"));
    calm.get("/api/v1/vibers").await.expect(200);
    board.assert_invariants().await;
}

#[tokio::test]
async fn a_token_holds_fifty_streams_and_no_more() {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let viber = FakeDaemon::connected(&board, "lab").await;
    let task = operator.submit(viber.id.as_str(), "be watched").await;
    let path = format!("/api/v1/tasks/{}/events", id(&task, "id"));
    let mut open = Vec::new();
    for _ in 0..50 {
        let mut stream = operator.stream(&path, None).await;
        assert_eq!(stream.next().await.expect("the task").event, "task");
        open.push(stream);
    }
    let stream = || operator.request(Method::GET, &path).header(header::ACCEPT, "text/event-stream");
    let refused = operator.send(stream()).await.expect(429);
    assert!(refused.header("retry-after").parse::<u64>().is_ok_and(|seconds| seconds > 0));
    open.pop();
    board_tests::eventually("a closed stream gives its place back", || async {
        (stream().send().await.expect("an answer").status() == 200).then_some(())
    })
    .await;
    board.assert_invariants().await;
}

#[tokio::test]
async fn the_board_tells_how_it_is_to_those_who_may_know() {
    let port = free_port();
    let (address, token) = (format!("127.0.0.1:{port}"), "a-token-for-metrics");
    let flags = ["--metrics-listen", &address, "--metrics-token", token];
    let fixture = Fixture::on(Engine::Sqlite).flags(&flags).with_fake().await;
    fixture.submit("be counted").await;
    let board = &fixture.board;
    assert_eq!(board.anon().get("/healthz").await.expect(200).body, "ok\n");
    board.anon().get("/readyz").await.expect(200);
    board.anon().get("/metrics").await.expect(401);
    Person::with_token(&board.url, "another-token-than-that").get("/metrics").await.expect(401);
    let figures = Person::with_token(&board.url, token).get("/metrics").await.expect(200).body;
    let open = Person::anonymous(&format!("http://{address}")).get("/metrics").await.expect(200).body;
    for figures in [figures, open] {
        for name in [
            "viber_board_links 1",
            "viber_board_viewers 0",
            "viber_board_http_requests_total{",
            "viber_board_db_writes_total{",
            "viber_board_db_commit_changes_bucket",
            "viber_board_db_write_queue",
            "route=\"/api/v1/tasks\"",
        ] {
            assert!(figures.contains(name), "no {name} in {figures}");
        }
        assert!(!figures.contains(&fixture.viber_id), "figures name nobody");
    }
    // Without a token the figures do not exist on the main listener.
    let plain = Board::start(Engine::Sqlite).await;
    plain.anon().get("/metrics").await.expect(404);
    let weak = Board::prepare(Engine::Sqlite, &[]).await.cli(&["serve", "--metrics-token", "short"]).await;
    assert_eq!(weak.code(), 78, "{}", weak.err);
    board.assert_invariants().await;
}
