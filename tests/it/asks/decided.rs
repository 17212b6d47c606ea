//! What people decided stands where it was asked: in the row of its call, or as a line of its own; live and reloaded.

use super::*;

crate::on_both_databases!(decisions_stand_where_they_were_made, every_question_about_a_call_has_its_line);

/// The call of a tool, before its result.
fn called(call: &str, tool: &str, args: &Value) -> Value {
    json!({ "type": "tool-call", "callId": call, "tool": tool, "args": args })
}

fn result(call: &str, tool: &str, ok: bool) -> Value {
    json!({ "type": "tool-result", "callId": call, "tool": tool, "result": "out", "ok": ok, "durationMs": 5 })
}

async fn page(fixture: &Fixture<FakeDaemon>, task: &Value) -> String {
    let path = format!("/t/home/sessions/{}", id(task, "sessionId"));
    fixture.owner().page(&path).await.expect(200).body
}

async fn decisions_stand_where_they_were_made(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (tool, asked, limit, plan) = (named(1), named(2), named(3), named(4));
    let mut asks_operator = question(&asked);
    asks_operator["callId"] = json!("c2");
    let whole =
        json!({ "type": "approval-required", "approvalId": plan, "digest": "p", "tool": "plan", "preview": "1. Go" });
    let ls = json!({ "command": "ls <b>" });
    let events = [
        called("c1", "shell", &ls),
        command(&tool, "ls <b>"),
        called("c2", "ask_operator", &json!({})),
        asks_operator,
        budget(&limit, "costUsd"),
        whole,
    ];
    ask(&mut fixture, &submit, 4, &events).await;
    let html = page(&fixture, &task).await;
    for line in
        ["Waits for a decision", "Waits for an answer", "reached: a person is asked", "plan waits for a decision"]
    {
        assert!(html.contains(line), "{line}: {html}");
    }
    for (approval_id, word) in [
        (&tool, json!({ "decision": "deny", "digest": "digest of ls <b>", "note": "Not <i>there</i>" })),
        (&asked, json!({ "decision": "answer", "digest": "q", "answer": "Neither & both" })),
        (&limit, json!({ "decision": "allow", "digest": "b", "grant": { "costUsd": 1.5, "steps": 1 } })),
        (&plan, json!({ "decision": "deny", "digest": "p", "note": "Measure first" })),
    ] {
        decide(fixture.owner(), approval_id, word).await.expect(200);
        fixture.viber.decided().await;
    }
    let lines = [
        "Denied by owner",
        "Not &#60;i&#62;there",
        "Answered by owner",
        "Neither &#38; both",
        "The limit of $2.00 was reached: owner granted 1 model call, $1.50 more",
        "The plan was denied by owner",
        "Measure first",
    ];
    let html = page(&fixture, &task).await;
    assert!(lines.iter().all(|line| html.contains(line)), "while it runs: {html}");
    ask(&mut fixture, &submit, 10, &[result("c1", "shell", false), result("c2", "ask_operator", true)]).await;
    fixture.viber.report(&submit.task_id, 1, 12, vec![completed("done")]).await;
    for time in 1..=2 {
        let html = page(&fixture, &task).await;
        assert!(lines.iter().all(|line| html.contains(line)), "when it is over, {time}: {html}");
    }
    let session = id(&task, "sessionId");
    let text = fixture.owner().get(&format!("/t/home/sessions/{session}/transcript.md")).await.expect(200).body;
    for line in ["*Denied by owner*", "Not <i>there</i>", "*The plan was denied by owner*"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let messages = fixture.operator.get(&format!("/api/v1/sessions/{session}/messages")).await.expect(200).json();
    let parts = messages["items"].as_array().expect("messages").iter().flat_map(|message| message["parts"].as_array());
    let asked: Vec<&Value> = parts.flatten().filter(|part| part["type"] == "approval").collect();
    let expected = [
        json!({ "type": "approval", "approvalId": limit, "kind": "budget" }),
        json!({ "type": "approval", "approvalId": plan, "kind": "plan" }),
    ];
    assert_eq!(asked, expected.iter().collect::<Vec<_>>());
    fixture.board.assert_invariants().await;
}

/// A call may be asked about more than once, and of two tasks with calls of one name each has its own.
async fn every_question_about_a_call_has_its_line(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (first, second) = (named(1), named(2));
    let ls = json!({ "command": "ls" });
    ask(&mut fixture, &submit, 4, &[called("c1", "shell", &ls), command(&first, "ls")]).await;
    let gone = json!({ "type": "approval-expired", "approvalId": first, "reason": "A file had changed." });
    ask(&mut fixture, &submit, 6, &[gone, command(&second, "ls")]).await;
    let allow = json!({ "decision": "allow", "digest": "digest of ls", "scope": "task" });
    decide(fixture.owner(), &second, allow).await.expect(200);
    fixture.viber.decided().await;
    let html = page(&fixture, &task).await;
    let places =
        ["Nobody answered", "A file had changed.", "Allowed for this task by owner"].map(|line| html.find(line));
    assert!(places.iter().all(Option::is_some) && html.matches("Allowed for this task").count() == 1, "{html}");
    fixture.viber.report(&submit.task_id, 1, 8, vec![completed("done")]).await;

    fixture.operator.follow_up(&task, "Again").await;
    let next = fixture.viber.submitted().await;
    fixture.viber.report(&next.task_id, 1, 1, vec![accepted(), started(), progress(&called("c1", "shell", &ls))]).await;
    let html = page(&fixture, &task).await;
    assert_eq!(html.matches("Allowed for this task").count(), 1, "the second task asked nobody: {html}");
    fixture.board.assert_invariants().await;
}
