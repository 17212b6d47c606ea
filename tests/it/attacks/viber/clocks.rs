//! A52: a viber's clock is shown to nobody and decides nothing.

use board_tests::{Engine, Fixture, tasks::id};
use serde_json::{Value, json};

crate::on_both_databases!(a52_a_clock_that_is_wrong_changes_neither_order_nor_time);

async fn a52_a_clock_that_is_wrong_changes_neither_order_nor_time(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let owner = fixture.board.owner().await;
    let task = fixture.submit("tell the time").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    let times = [
        json!("2026-11-20T10:00:00.000Z"),
        json!("9999-12-31T23:59:59.999Z"),
        json!("-009999-01-01T00:00:00Z"),
        json!("NaN"),
        json!("1970-01-01T00:00:00Z"),
        json!("2026-11-20T10:00:00+14:00"),
        json!("2026-11-20T10:00:00-12:00"),
        json!("2026-02-30T25:61:61Z"),
        json!("2016-12-31T23:59:60Z"),
        json!(""),
        json!(1e300),
        json!(-1),
        json!(null),
        json!({"year": 2026}),
        json!("10000000000000000000000"),
    ];
    let mut items = vec![json!({"seq": 1, "at": times[1], "type": "task:accepted"})];
    items.push(json!({"seq": 2, "at": times[3], "type": "task:started", "model": "demo/tour", "engine": "fake"}));
    for (seq, at) in (3..).zip(&times) {
        let event = json!({"type": "text-delta", "agentId": "default", "content": format!("{seq} ")});
        items.push(json!({"seq": seq, "at": at, "type": "task:progress", "event": event}));
    }
    // One without any time, and an end from the year 9999.
    let n = items.len() as u64;
    let event = json!({"type": "text-delta", "agentId": "default", "content": "end"});
    items.push(json!({"seq": n + 1, "type": "task:progress", "event": event}));
    items.push(
        json!({"seq": n + 2, "at": times[1], "type": "task:completed", "result": {"text": "end", "summary": "end"}}),
    );
    let frame = json!({"type": "task:events", "taskId": task_id, "attempt": 1, "from": 1, "items": items});
    viber.send_text(frame.to_string()).await;
    viber.acked(&task_id, 1, n + 2).await;

    // Order is that of the seqs; times are those of the Board, and now.
    let ended = fixture.operator.task(task_id.as_str()).await;
    assert_eq!(ended["state"], "completed", "{ended:#}");
    let words: String = (3..3 + times.len()).map(|seq| format!("{seq} ")).collect::<String>() + "end";
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    assert_eq!(board_tests::tasks::said(&messages[1], "text"), words);
    let events = fixture.operator.events(task_id.as_str()).await;
    assert_eq!(events, items, "kept as they came");
    let year = &ended["createdAt"].as_str().expect("a time")[..10].to_owned();
    for field in ["startedAt", "endedAt"] {
        assert!(ended[field].as_str().is_some_and(|at| at.starts_with(&year[..7])), "{field}: {ended:#}");
    }
    assert!(messages.iter().all(|message| message["createdAt"].as_str().is_some_and(|at| at.starts_with(&year[..7]))));
    for path in [
        format!("/t/home/sessions/{}", id(&task, "sessionId")),
        format!("/t/home/sessions/{}/transcript.md", id(&task, "sessionId")),
        "/t/home/sessions".to_owned(),
        "/t/home".to_owned(),
        format!("/t/home/vibers/{}", fixture.viber.id),
    ] {
        let page = owner.page(&path).await.expect(200).body;
        assert!(!page.contains("9999-12-31") && !page.contains("NaN"), "{path}: {page}");
    }
    let frames = fixture.operator.stream(&format!("/api/v1/tasks/{task_id}/events"), None).await.until("end").await;
    assert_eq!(frames.iter().filter(|frame| frame.id.is_some()).count(), items.len());

    // Where the protocol itself has a time, a wrong one is no frame, or nothing.
    fixture.viber.send_text(r#"{"type":"workspace:changed","path":"x","mtime":"NaN"}"#).await;
    assert_eq!(fixture.viber.closed().await.0, protocol::limits::close::PROTOCOL);
    fixture.viber.connect().await;
    let metrics =
        |value: Value| json!({"type": "heartbeat", "running": [], "metrics": {"cpuPercent": value}}).to_string();
    fixture.viber.send_text(metrics(json!(-1e308))).await;
    fixture.viber.until("an answer", |frame| matches!(frame, protocol::ToDaemon::Heartbeat { .. }).then_some(())).await;
    owner.page(&format!("/t/home/vibers/{}", fixture.viber.id)).await.expect(200);
    fixture.board.assert_invariants().await;
}
