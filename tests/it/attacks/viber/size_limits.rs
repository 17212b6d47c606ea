//! A50: what is too heavy is refused before it is held, and nobody else feels it.

use board_tests::{
    Board, Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{accepted, completed, started},
    tasks::id,
    wait::EVENT_TIMEOUT,
};
use protocol::limits::{MAX_FRAME_BYTES, close};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

crate::on_both_databases!(a50_a_report_of_fifty_megabytes_is_not_held);

const MIB: u64 = 1024 * 1024;
/// By how much a Board may grow meanwhile.
const GROWTH_MAX_BYTES: u64 = 64 * MIB;

/// A figure of a process's memory, bytes (proc(5), `status`).
fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
    let found = status.lines().find_map(|text| text.strip_prefix(line)).expect("a line");
    found.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// A neighbour's task from submit to its end, while something goes on.
async fn unaffected(fixture: &Fixture<FakeDaemon>, neighbour: &mut FakeDaemon, goal: &str) {
    let task = fixture.operator.submit(neighbour.id.as_str(), goal).await;
    let submit = neighbour.submitted().await;
    neighbour.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed(goal)]).await;
    assert_eq!(fixture.operator.task(id(&task, "id")).await["result"]["text"], goal);
}

async fn a50_a_report_of_fifty_megabytes_is_not_held(engine: Engine) {
    // Made before anybody connects: a connection whose daemon is silent for long is closed.
    let many = (0..1_000_000).map(|n| format!("{{\"id\":{n}}}")).collect::<Vec<_>>().join(",");
    let heavy_results = [
        format!(r#"{{"text":"{}","summary":"x"}}"#, "x".repeat(50_000_000)),
        format!(r#"{{"text":"x","summary":"x","title":"{}"}}"#, "t".repeat(10_000_000)),
        format!(r#"{{"text":"x","summary":"x","artifactRefs":[{many}]}}"#),
        format!(r#"{{"text":"{}","summary":"x"}}"#, "x".repeat(MAX_FRAME_BYTES)),
    ];
    let mut fixture = Fixture::on(engine).with_fake().await;
    let mut neighbour = FakeDaemon::connected(&fixture.board, "neighbour").await;
    unaffected(&fixture, &mut neighbour, "before").await;
    let before = memory(fixture.board.pid(), "VmHWM:");
    let task = fixture.submit("be heavy").await;
    let task_id = fixture.viber.submitted().await.task_id;
    fixture.viber.report(&task_id, 1, 1, vec![accepted(), started()]).await;
    let end = |result: &str| {
        format!(
            r#"{{"type":"task:events","taskId":"{task_id}","attempt":1,"from":3,"items":[{{"seq":3,"at":"2026-11-20T10:00:00.000Z","type":"task:completed","result":{result}}}]}}"#
        )
    };
    for result in heavy_results {
        fixture.viber.try_send_text(end(&result)).await;
        let (code, _) = fixture.viber.closed().await;
        assert_eq!(code, close::TOO_LARGE, "{} bytes", result.len());
        unaffected(&fixture, &mut neighbour, "meanwhile").await;
        fixture.viber.connect().await;
    }
    let now = fixture.operator.task(id(&task, "id")).await;
    assert_eq!((&now["state"], &now["result"]), (&json!("running"), &json!(null)));

    // As much as a frame takes, in the shapes that a page would show.
    let refs = (0..10_000).map(|_| r#"{"id":"x"}"#).collect::<Vec<_>>().join(",");
    let wide = format!(r#"{{"text":"x","summary":"{}","artifactRefs":[{refs}]}}"#, "s".repeat(100_000));
    fixture.viber.send_text(end(&wide)).await;
    let ended = fixture.operator.task_that(id(&task, "id"), "ended", |task| task["endedAt"].is_string()).await;
    let (good, bad) = (ended["state"] == "completed", ended["error"]["code"] == "bad_request");
    assert!(good || bad, "{}", ended["state"]);
    if good {
        assert!(ended["result"]["summary"].as_str().is_some_and(|text| text.chars().count() <= 280));
    }
    unaffected(&fixture, &mut neighbour, "after").await;
    let grown = memory(fixture.board.pid(), "VmHWM:").saturating_sub(before);
    assert!(grown <= GROWTH_MAX_BYTES, "the Board grew by {} MiB", grown / MIB);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a50_a_gibibyte_in_one_parameter_is_cut_off() {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let before = memory(board.pid(), "VmHWM:");
    let host = board.url.trim_start_matches("http://").to_owned();
    let bearer = operator.bearer().expect("a token").to_owned();
    for (path, head, start) in [
        ("/api/v1/tasks", format!("Authorization: Bearer {bearer}\r\nContent-Type: application/json"), "{\"goal\":\""),
        ("/api/daemon/join", "Content-Type: application/json".to_owned(), "{\"token\":\""),
        ("/login", "Content-Type: application/x-www-form-urlencoded".to_owned(), "password="),
    ] {
        for chunked in [true, false] {
            let mut line = TcpStream::connect(&host).await.expect("a connection");
            let length =
                if chunked { "Transfer-Encoding: chunked".into() } else { format!("Content-Length: {}", 1 << 30) };
            let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\n{head}\r\n{length}\r\n\r\n");
            line.write_all(head.as_bytes()).await.expect("sent");
            let piece = "x".repeat(64 * 1024);
            let first = if chunked { format!("{:x}\r\n{start}\r\n", start.len()) } else { start.to_owned() };
            let next = if chunked { format!("{:x}\r\n{piece}\r\n", piece.len()) } else { piece };
            let (mut reader, mut writer) = line.split();
            let send = async {
                let mut sent = 0u64;
                let mut more = first.as_bytes();
                while sent < 1 << 30 && writer.write_all(more).await.is_ok() {
                    sent += more.len() as u64;
                    more = next.as_bytes();
                }
                sent
            };
            let read = async {
                let mut answer = vec![0; 512];
                let n = reader.read(&mut answer).await.unwrap_or(0);
                let text = String::from_utf8_lossy(&answer[..n]).into_owned();
                // To the end, so that whoever sends notices.
                while reader.read(&mut answer).await.is_ok_and(|n| n > 0) {}
                text
            };
            let both = async { tokio::join!(send, read) };
            let (sent, answer) = tokio::time::timeout(EVENT_TIMEOUT, both).await.expect("it is cut off");
            assert!(sent < 64 * MIB, "{path}: {} MiB were taken", sent / MIB);
            // A body whose length says it all is refused unread; the answer to the other may be lost with the line.
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{path}: {answer}");
            assert!(chunked || !answer.is_empty(), "{path}: no answer");
        }
    }
    operator.get("/api/v1/tasks").await.expect(200);
    let grown = memory(board.pid(), "VmHWM:").saturating_sub(before);
    assert!(grown <= GROWTH_MAX_BYTES, "the Board grew by {} MiB", grown / MIB);
    board.assert_invariants().await;
}
