//! A viber that asks too much, or about what is not its own; and another team.

use protocol::Command;

use super::*;

crate::on_both_databases!(
    what_is_asked_beyond_the_bound_is_denied_at_once,
    what_is_asked_is_bounded,
    a_call_whose_id_is_no_text_is_shown,
    a_viber_asks_for_its_own_tasks_alone,
    another_team_sees_nothing,
);

async fn what_is_asked_beyond_the_bound_is_denied_at_once(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let asks: Vec<EventBody> = (1..=200).map(|n| progress(&command(&named(n), "ls"))).collect();
    fixture.viber.report_unacked(&submit.task_id, 1, 4, asks).await;
    let mut denied = Vec::new();
    while denied.len() < 136 {
        match fixture.viber.command().await {
            Command::Approval(response) => {
                assert_eq!((response.decision, response.by.as_str()), (Decision::Deny, "Board"));
                assert!(response.note.is_some_and(|note| note.contains("64 questions")));
                denied.push(response.approval_id);
            }
            other => panic!("expected a denial: {other:?}"),
        }
    }
    assert_eq!(denied[0], named(65), "the first that were asked wait");
    let pending = fixture.operator.get("/api/v1/approvals?state=pending&limit=200").await.expect(200).json();
    assert_eq!(pending["items"].as_array().map(Vec::len), Some(64));
    let found = approval(&fixture.operator, &denied[0]).await;
    assert_eq!((&found["state"], &found["decidedBy"]), (&json!("denied"), &json!("board")));
    fixture.board.assert_invariants().await;
}

async fn a_call_whose_id_is_no_text_is_shown(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    for (n, id) in ["a\u{0}b".to_owned(), "c".repeat(5_000)].iter().enumerate() {
        let call = json!({ "type": "tool-call", "callId": id, "tool": "shell", "args": { "command": "ls" } });
        fixture.viber.report(&submit.task_id, 1, 4 + n as u64, vec![progress(&call)]).await;
    }
    let page = format!("/t/home/sessions/{}", id(&task, "sessionId"));
    assert!(fixture.owner().page(&page).await.expect(200).body.contains("2 commands"));
    fixture.viber.report(&submit.task_id, 1, 6, vec![completed("done")]).await;
    for path in [page.clone(), format!("{page}/transcript.md")] {
        let answer = fixture.owner().page(&path).await;
        assert!(answer.status < 500, "{path}: {answer:?}");
    }
    fixture.owner().page(&page).await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn what_is_asked_is_bounded(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let asked = named(1);
    let (long, whole) = ("<b>\u{1}x".repeat(1_000), "<b>\u{1}x".repeat(14_000));
    let event = json!({ "type": "approval-required", "approvalId": asked, "kind": "question", "digest": "q",
        "tool": long, "args": { "a": "x".repeat(33_000) }, "preview": whole, "risk": long, "reason": long, "rule": long,
        "files": (0..300).map(|n| json!({ "path": format!("/f{n}") })).collect::<Vec<_>>(),
        "question": { "text": "Which?", "recommended": 9,
            "options": (0..40).map(|n| json!({ "label": n.to_string() })).collect::<Vec<_>>() } });
    let other = json!({ "type": "approval-required", "approvalId": named(2), "kind": "dance", "digest": "d" });
    ask(&mut fixture, &submit, 4, &[event.clone(), other]).await;
    let found = approval(&fixture.operator, &asked).await;
    let bytes = |name: &str| found[name].as_str().expect("a text").len();
    for (name, most) in [("tool", 200), ("risk", 2_000), ("reason", 2_000), ("preview", 64 * 1024)] {
        assert!(bytes(name) <= most, "{name} has {} bytes", bytes(name));
    }
    assert_eq!(found["files"].as_array().map(Vec::len), Some(100));
    assert_eq!((&found["args"], &found["rule"]), (&Value::Null, &Value::Null));
    assert_eq!(found["question"]["options"].as_array().map(Vec::len), Some(4));
    assert_eq!(found["question"]["recommended"], Value::Null);
    assert_eq!(approval(&fixture.operator, &named(2)).await["kind"], "unknown");
    let page = fixture.owner().get(&format!("/t/home/sessions/{}", id(&task, "sessionId"))).await.expect(200).body;
    assert!(!page.contains("<b>x"));

    // The same question again is the same question.
    let again =
        json!({ "type": "approval-required", "approvalId": asked, "kind": "tool", "digest": "mine", "tool": "shell" });
    ask(&mut fixture, &submit, 6, &[again]).await;
    assert_eq!(approval(&fixture.operator, &asked).await["digest"], "q");
    fixture.board.assert_invariants().await;
}

async fn a_viber_asks_for_its_own_tasks_alone(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let (mine, stolen) = (named(1), named(2));
    ask(&mut fixture, &submit, 4, &[command(&mine, "ls")]).await;
    decide(&fixture.operator, &mine, json!({ "decision": "allow", "digest": "digest of ls" })).await.expect(200);
    let mut thief = FakeDaemon::connected(&fixture.board, "den").await;
    thief.report_unacked(&submit.task_id, 1, 5, vec![progress(&command(&stolen, "ls"))]).await;
    thief.until("a refusal", |frame| matches!(frame, protocol::ToDaemon::Error { .. }).then_some(())).await;
    fixture.operator.get(&format!("/api/v1/approvals/{stolen}")).await.expect(404);

    // Its own task says nothing of another's question.
    let own = fixture.operator.submit(thief.id.as_str(), "Mine").await;
    let own = {
        let _ = own;
        thief.submitted().await
    };
    let lies = [
        json!({ "type": "approval-outcome", "approvalId": mine, "callId": "c1", "ok": false }),
        json!({ "type": "approval-expired", "approvalId": mine, "reason": "mine now" }),
        json!({ "type": "approval-required", "approvalId": mine, "kind": "tool", "digest": "x", "tool": "shell" }),
    ];
    let events = [accepted(), started()].into_iter().chain(lies.iter().map(progress)).collect();
    thief.report(&own.task_id, 1, 1, events).await;
    let found = approval(&fixture.operator, &mine).await;
    assert_eq!(
        (&found["state"], &found["consequence"], &found["taskId"]),
        (&json!("allowed"), &Value::Null, &json!(submit.task_id))
    );
    fixture.board.assert_invariants().await;
}

async fn another_team_sees_nothing(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let asked = named(1);
    ask(&mut fixture, &submit, 4, &[command(&asked, "ls")]).await;
    let stranger = fixture.board.operator("elsewhere", "stranger@example.org", "owner").await;
    stranger.get(&format!("/api/v1/approvals/{asked}")).await.expect(404);
    decide(&stranger, &asked, json!({ "decision": "allow", "digest": "digest of ls" })).await.expect(404);
    assert_eq!(stranger.get("/api/v1/approvals").await.expect(200).json()["items"], json!([]));
    let of_task = format!("/api/v1/approvals?taskId={}", submit.task_id);
    assert_eq!(stranger.get(&of_task).await.expect(200).json()["items"], json!([]));
    stranger.put("/api/v1/approval-rules", &json!({ "allow": ["read_file"] })).await.expect(200);
    assert_eq!(fixture.operator.get("/api/v1/approval-rules").await.expect(200).json()["allow"], json!([]));
    for path in [format!("tasks/{}/pause", submit.task_id), format!("vibers/{}/stop", fixture.viber_id)] {
        stranger.post(&format!("/api/v1/{path}"), &json!({})).await.expect(404);
    }
    let interrupt = format!("/api/v1/vibers/{}/interrupt", fixture.viber_id);
    stranger.post(&interrupt, &json!({ "targetAgentId": "*" })).await.expect(404);

    // A viber of another team that names the same question makes none.
    let mut far = FakeDaemon::connected_in(&fixture.board, "elsewhere", "far").await;
    stranger.submit(far.id.as_str(), "Theirs").await;
    let theirs = far.submitted().await;
    far.report(&theirs.task_id, 1, 1, vec![accepted(), started(), progress(&command(&asked, "rm"))]).await;
    eventually("the question is still theirs alone", || async {
        let found = approval(&fixture.operator, &asked).await;
        (found["digest"] == "digest of ls" && found["state"] == "pending").then_some(())
    })
    .await;
    stranger.get(&format!("/api/v1/approvals/{asked}")).await.expect(404);
    fixture.board.assert_invariants().await;
}

mod long {
    //! What takes a while.

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_task_asks_two_thousand_times_at_most() {
        let (mut fixture, _task, submit) = asking(Engine::Sqlite).await;
        let mut seq = 4;
        for n in 1..=2_100 {
            let over = json!({ "type": "approval-expired", "approvalId": named(n), "reason": "never mind" });
            fixture
                .viber
                .report(&submit.task_id, 1, seq, vec![progress(&command(&named(n), "ls")), progress(&over)])
                .await;
            seq += 2;
        }
        let count = fixture.board.sql("UPDATE approvals SET note = note").await;
        assert_eq!(count, 2_000);
        // Its agent goes on: it is told at once.
        let last = progress(&command(&named(2_101), "ls"));
        fixture.viber.report_unacked(&submit.task_id, 1, seq, vec![last]).await;
        let denied = loop {
            let decided = fixture.viber.decided().await;
            if decided.approval_id == named(2_101) {
                break decided;
            }
        };
        assert_eq!((denied.decision, denied.by.as_str()), (Decision::Deny, "Board"));
        seq += 1;
        fixture.viber.report(&submit.task_id, 1, seq, vec![completed("done")]).await;
        fixture.board.assert_invariants().await;
    }
}
