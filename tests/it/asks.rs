//! What agents ask people: questions of every kind, side by side, decided once by whoever may; and holding what they do.

mod changed;
mod decided;
mod failing;
mod hold;
mod hostile;
mod rules;

use board_tests::{
    Answer, Engine, FakeDaemon, Fixture, Person, eventually,
    fake_daemon::{accepted, completed, progress, started, text},
    tasks::id,
};
use protocol::{ApprovalId, Capability, Decision, DecisionScope, EventBody, TaskLimits, TaskSubmit};
use serde_json::{Value, json};

crate::on_both_databases!(
    each_kind_is_decided,
    questions_wait_side_by_side,
    a_decision_fits_what_was_asked,
    nobody_decides_too_late,
    a_vibers_clock_neither_refuses_nor_accepts,
    what_steers_denies_all_but_a_limit,
    the_end_of_a_task_expires_what_it_asked,
    a_denial_may_stop_the_task,
);

/// A fixture whose agent can do everything, and a task of it that runs. Its next event is the fourth.
async fn asking(engine: Engine) -> (Fixture<FakeDaemon>, Value, TaskSubmit) {
    let mut fixture = Fixture::on(engine).owner().with_fake().await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer, Capability::Queue, Capability::Approve, Capability::Pause];
    fixture.viber.connect().await;
    let viber_id = fixture.viber_id.clone();
    let task = fixture.operator.submit(&viber_id, "Fix the flaky test").await;
    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("I begin. ")]).await;
    (fixture, task, submit)
}

fn named(n: u32) -> ApprovalId {
    format!("apr_{n:032x}").parse().expect("an id")
}

/// The question whether a command may be run.
fn command(approval: &ApprovalId, command: &str) -> Value {
    json!({ "type": "approval-required", "approvalId": approval, "kind": "tool", "digest": format!("digest of {command}"),
        "tool": "shell", "args": { "command": command }, "callId": "c1", "cwd": "/srv/app", "preview": command,
        "risk": "It runs a program.", "reason": "mode: always_ask", "rule": format!("shell({command})") })
}

fn budget(approval: &ApprovalId, limit: &str) -> Value {
    json!({ "type": "approval-required", "approvalId": approval, "kind": "budget", "digest": "b", "tool": "budget",
        "limit": { "name": limit, "allowed": 2.0, "used": 2.1 } })
}

fn question(approval: &ApprovalId) -> Value {
    json!({ "type": "approval-required", "approvalId": approval, "kind": "question", "digest": "q", "tool": "ask_operator",
        "question": { "text": "Which one?", "options": [{ "label": "A", "tradeOff": "fast" }, { "label": "B" }],
            "recommended": 1, "onTimeout": "I take B." } })
}

async fn ask(fixture: &mut Fixture<FakeDaemon>, submit: &TaskSubmit, from: u64, events: &[Value]) {
    fixture.viber.report(&submit.task_id, 1, from, events.iter().map(progress).collect()).await;
}

async fn approval(person: &Person, approval: &ApprovalId) -> Value {
    person.get(&format!("/api/v1/approvals/{approval}")).await.expect(200).json()
}

async fn decide(person: &Person, approval: &ApprovalId, word: Value) -> Answer {
    person.post(&format!("/api/v1/approvals/{approval}"), &word).await
}

async fn waiting(fixture: &Fixture<FakeDaemon>, task: &Value) -> Value {
    fixture.operator.task(id(task, "id")).await["waiting"].clone()
}

async fn each_kind_is_decided(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (tool, asked, limit, plan) = (named(1), named(2), named(3), named(4));
    ask(&mut fixture, &submit, 4, &[command(&tool, "ls")]).await;
    assert_eq!(waiting(&fixture, &task).await, json!({ "for": "approval", "id": tool }));
    let allow = json!({ "decision": "allow", "digest": "digest of ls", "scope": "task", "note": " quickly " });
    let allowed = decide(&fixture.operator, &tool, allow).await.expect(200).json();
    assert_eq!(
        (&allowed["state"], &allowed["scope"], &allowed["note"]),
        (&json!("allowed"), &json!("task"), &json!("quickly"))
    );
    let told = fixture.viber.decided().await;
    assert_eq!(
        (told.decision, told.scope, told.note.as_deref()),
        (Decision::Allow, Some(DecisionScope::Task), Some("quickly"))
    );
    assert_eq!((told.digest.as_str(), told.by.is_empty()), ("digest of ls", false), "the agent is told who decided");
    assert_eq!(waiting(&fixture, &task).await, Value::Null);

    ask(&mut fixture, &submit, 5, &[question(&asked)]).await;
    assert_eq!(waiting(&fixture, &task).await["for"], "input");
    let kept = approval(&fixture.operator, &asked).await;
    assert_eq!((&kept["kind"], &kept["question"]["options"][0]["label"]), (&json!("question"), &json!("A")));
    let answer = json!({ "decision": "answer", "digest": "q", "answer": "Neither" });
    let answered = decide(&fixture.operator, &asked, answer).await.expect(200).json();
    assert_eq!((&answered["state"], &answered["answer"]), (&json!("answered"), &json!("Neither")));
    assert_eq!(fixture.viber.decided().await.answer.as_deref(), Some("Neither"));

    ask(&mut fixture, &submit, 6, &[budget(&limit, "costUsd")]).await;
    assert_eq!(waiting(&fixture, &task).await["for"], "budget");
    let grant = json!({ "decision": "allow", "digest": "b", "grant": { "costUsd": 1.5 } });
    let granted = decide(&fixture.operator, &limit, grant).await.expect(200).json();
    assert_eq!((&granted["grant"], &granted["limit"]["name"]), (&json!({ "costUsd": 1.5 }), &json!("costUsd")));
    assert_eq!(fixture.viber.decided().await.grant.and_then(|grant| grant.cost_usd), Some(1.5));

    let whole =
        json!({ "type": "approval-required", "approvalId": plan, "digest": "p", "tool": "plan", "preview": "1. Go" });
    ask(&mut fixture, &submit, 7, &[whole]).await;
    let deny = json!({ "decision": "deny", "digest": "p", "note": "Measure first" });
    assert_eq!(decide(&fixture.operator, &plan, deny).await.expect(200).json()["kind"], "plan");
    assert_eq!(fixture.viber.decided().await.decision, Decision::Deny);

    let audit = fixture.owner().get("/api/v1/audit").await.expect(200).body;
    for verb in ["approval.allow", "approval.answer", "approval.deny", "digest of ls task"] {
        assert!(audit.contains(verb), "{verb}: {audit}");
    }
    fixture.board.assert_invariants().await;
}

async fn questions_wait_side_by_side(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (first, second) = (named(9), named(1));
    ask(&mut fixture, &submit, 4, &[command(&first, "ls"), command(&second, "rm x")]).await;
    let waits = json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "approval" } });
    ask(&mut fixture, &submit, 6, &[waits]).await;
    assert_eq!(waiting(&fixture, &task).await["id"], json!(first), "the one that was asked first");
    let word = |digest: &str| json!({ "decision": "allow", "digest": digest });
    let other = decide(&fixture.operator, &second, word("digest of ls")).await.expect(409).code();
    assert_eq!(other, "other_digest");
    decide(&fixture.operator, &second, word("digest of rm x")).await.expect(200);
    assert_eq!(fixture.viber.decided().await.approval_id, second);
    assert_eq!(waiting(&fixture, &task).await["id"], json!(first));
    let acts = json!({ "type": "state-change", "state": "tool" });
    ask(&mut fixture, &submit, 7, &[acts]).await;
    assert_eq!(waiting(&fixture, &task).await["id"], json!(first), "whatever it does meanwhile");
    decide(&fixture.operator, &first, word("digest of ls")).await.expect(200);
    assert_eq!(waiting(&fixture, &task).await, Value::Null);
    fixture.viber.decided().await;
    assert_eq!(decide(&fixture.operator, &first, word("digest of ls")).await.expect(409).code(), "not_pending");

    let page = |query: &str| format!("/api/v1/approvals?{query}");
    let found = |answer: &Value| answer["items"].as_array().expect("a list").len();
    for (query, count) in [
        ("state=allowed", 2),
        ("state=pending", 0),
        ("kind=tool&state=allowed", 2),
        ("kind=budget", 0),
        (&format!("taskId={}", submit.task_id), 2),
        (&format!("taskId={}&state=expired&kind=tool", submit.task_id), 0),
    ] {
        let answer = fixture.operator.get(&page(query)).await.expect(200).json();
        assert_eq!(found(&answer), count, "{query}: {answer}");
    }
    let one = fixture.operator.get(&page("limit=1&state=allowed")).await.expect(200).json();
    let next = fixture.operator.get(&page(&format!("limit=1&state=allowed&cursor={}", id(&one, "next")))).await;
    assert_eq!((&one["items"][0]["id"], &next.expect(200).json()["items"][0]["id"]), (&json!(first), &json!(second)));
    assert_eq!(fixture.operator.get(&page("kind=dance")).await.expect(422).code(), "bad_query");
    fixture.board.assert_invariants().await;
}

async fn a_decision_fits_what_was_asked(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let (tool, asked, limit, leash) = (named(1), named(2), named(3), named(4));
    let all = [command(&tool, "ls"), question(&asked), budget(&limit, "toolCalls"), budget(&leash, "leash")];
    ask(&mut fixture, &submit, 4, &all).await;
    let long = "x".repeat(17_000);
    for (approval, word, code) in [
        (&tool, json!({ "decision": "answer", "digest": "digest of ls", "answer": "yes" }), "not_a_question"),
        (&tool, json!({ "decision": "deny", "digest": "digest of ls", "args": {} }), "contradictory"),
        (&tool, json!({ "decision": "allow", "digest": "digest of ls", "thenStop": true }), "contradictory"),
        (&tool, json!({ "decision": "allow", "digest": "digest of ls", "rule": "shell(ls)" }), "contradictory"),
        (&tool, json!({ "decision": "allow", "digest": "digest of ls", "grant": { "steps": 1 } }), "not_a_budget"),
        (
            &tool,
            json!({ "decision": "allow", "digest": "digest of ls", "args": { "command": "x".repeat(33_000) } }),
            "bad_args",
        ),
        (&tool, json!({ "decision": "deny", "digest": "digest of ls", "note": long }), "note_too_long"),
        (&asked, json!({ "decision": "allow", "digest": "q" }), "answer_required"),
        (&asked, json!({ "decision": "answer", "digest": "q", "answer": " " }), "answer_required"),
        (&asked, json!({ "decision": "answer", "digest": "q", "answer": long }), "answer_too_long"),
        (&limit, json!({ "decision": "allow", "digest": "b" }), "grant_required"),
        (&limit, json!({ "decision": "allow", "digest": "b", "grant": { "minutes": 5 } }), "grant_required"),
        (&limit, json!({ "decision": "allow", "digest": "b", "grant": { "toolCalls": 0 } }), "grant_required"),
        (
            &limit,
            json!({ "decision": "allow", "digest": "b", "scope": "task", "grant": { "toolCalls": 5 } }),
            "not_a_tool",
        ),
    ] {
        let answer = decide(&fixture.operator, approval, word.clone()).await;
        assert_eq!((answer.status, answer.code().as_str()), (422, code), "{word}");
    }
    decide(&fixture.operator, &asked, json!({ "decision": "deny", "digest": "q" })).await.expect(200);
    decide(&fixture.operator, &leash, json!({ "decision": "allow", "digest": "b" })).await.expect(200);
    let told = [fixture.viber.decided().await, fixture.viber.decided().await];
    assert_eq!((told[0].decision, told[1].decision, told[1].grant.clone()), (Decision::Deny, Decision::Allow, None));
    fixture.board.assert_invariants().await;
}

async fn nobody_decides_too_late(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (past, given_up, late, denied) = (named(1), named(2), named(3), named(4));
    let mut over = command(&past, "ls");
    over["expiresAt"] = json!("2020-01-01T00:00:00.000Z");
    let all = [over, command(&given_up, "a"), command(&late, "b"), command(&denied, "c")];
    ask(&mut fixture, &submit, 4, &all).await;
    let word = |decision: &str, digest: &str| json!({ "decision": decision, "digest": digest });
    let code = decide(&fixture.operator, &past, word("allow", "digest of ls")).await.expect(409).code();
    assert_eq!(code, "expired");
    decide(&fixture.operator, &late, word("allow", "digest of b")).await.expect(200);
    decide(&fixture.operator, &denied, word("deny", "digest of c")).await.expect(200);
    fixture.viber.decided().await;
    fixture.viber.decided().await;
    let gone =
        |approval: &ApprovalId| json!({ "type": "approval-expired", "approvalId": approval, "reason": "too late" });
    ask(&mut fixture, &submit, 8, &[gone(&past), gone(&given_up), gone(&late), gone(&denied)]).await;
    for (approval_id, state) in [(&past, "expired"), (&given_up, "expired"), (&late, "expired"), (&denied, "denied")] {
        assert_eq!(approval(&fixture.operator, approval_id).await["state"], state, "{approval_id}");
    }
    assert_eq!(approval(&fixture.operator, &late).await["expiry"], "too late");
    assert_eq!(waiting(&fixture, &task).await, Value::Null);
    let code = decide(&fixture.operator, &given_up, word("allow", "digest of a")).await.expect(409).code();
    assert_eq!(code, "not_pending");
    fixture.board.assert_invariants().await;
}

async fn a_vibers_clock_neither_refuses_nor_accepts(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let asked = named(1);
    // The clock of this viber is months behind: an hour from there is over here.
    let mut hour = command(&asked, "ls");
    hour["expiresAt"] = json!(protocol::Instant(1_790_000_000_000 + 60 * 60_000));
    ask(&mut fixture, &submit, 4, &[hour]).await;
    let found = approval(&fixture.operator, &asked).await;
    let time = |name: &str| serde_json::from_value::<protocol::Instant>(found[name].clone()).expect("a time").millis();
    let minutes = (time("expiresAt") - time("createdAt")) / 60_000;
    assert!((59..=60).contains(&minutes), "an hour from when it was asked: {found}");
    let word = json!({ "decision": "allow", "digest": "digest of ls" });
    decide(&fixture.operator, &asked, word).await.expect(200);
    fixture.board.assert_invariants().await;
}

async fn what_steers_denies_all_but_a_limit(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (tool, asked, limit) = (named(1), named(2), named(3));
    ask(&mut fixture, &submit, 4, &[command(&tool, "ls"), question(&asked), budget(&limit, "steps")]).await;
    let path = format!("/api/v1/sessions/{}/messages", id(&task, "sessionId"));
    let words = json!({ "content": "Not like that", "injectionMode": "steer" });
    fixture.operator.post(&path, &words).await.expect(202);
    let told = fixture.viber.told().await;
    let consumed = json!({ "type": "message-state", "messageId": told.message_id, "rev": told.rev, "state": "consumed", "turn": 1 });
    ask(&mut fixture, &submit, 7, &[consumed]).await;
    for (approval_id, state) in [(&tool, "denied"), (&asked, "denied"), (&limit, "pending")] {
        assert_eq!(approval(&fixture.operator, approval_id).await["state"], state, "{approval_id}");
    }
    assert_eq!(approval(&fixture.operator, &tool).await["note"], "Not like that");
    assert_eq!(waiting(&fixture, &task).await, json!({ "for": "budget", "id": limit }));
    fixture.board.assert_invariants().await;
}

async fn the_end_of_a_task_expires_what_it_asked(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let all: Vec<ApprovalId> = (1..=64).map(named).collect();
    let asks: Vec<Value> = all.iter().map(|one| command(one, "ls")).collect();
    ask(&mut fixture, &submit, 4, &asks).await;
    assert_eq!(approval(&fixture.operator, &named(64)).await["state"], "pending", "as many as one answer has calls");
    fixture.viber.report(&submit.task_id, 1, 68, vec![completed("done")]).await;
    for one in &all {
        assert_eq!(approval(&fixture.operator, one).await["state"], "expired");
    }
    eventually("all of them are known to be over", || async {
        let list = fixture.operator.get("/api/v1/approvals?limit=200&state=expired").await.expect(200).json();
        list["items"].as_array().expect("a list").iter().all(|one| !one["decidedAt"].is_null()).then_some(())
    })
    .await;
    let list = |state: &str| format!("/api/v1/approvals?limit=5&state={state}");
    let expired = fixture.operator.get(&list("expired")).await.expect(200).json();
    let next = fixture.operator.get(&format!("{}&cursor={}", list("expired"), id(&expired, "next"))).await.expect(200);
    let next = next.json();
    let ids: Vec<&Value> = [&expired, &next]
        .iter()
        .flat_map(|page| page["items"].as_array().expect("a list"))
        .map(|one| &one["id"])
        .collect();
    let newest: Vec<Value> = all.iter().rev().take(10).map(|one| json!(one)).collect();
    assert_eq!(ids, newest.iter().collect::<Vec<_>>());
    assert_eq!(fixture.operator.get(&list("pending")).await.expect(200).json()["items"], json!([]));
    let word = json!({ "decision": "allow", "digest": "digest of ls" });
    assert_eq!(decide(&fixture.operator, &all[0], word).await.expect(409).code(), "not_pending");
    assert_eq!(fixture.operator.task(id(&task, "id")).await["state"], "completed");
    fixture.board.assert_invariants().await;
}

async fn a_denial_may_stop_the_task(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (tool, other) = (named(1), named(2));
    ask(&mut fixture, &submit, 4, &[command(&tool, "ls"), command(&other, "ls")]).await;
    let word = json!({ "decision": "deny", "digest": "digest of ls", "note": "Enough", "thenStop": true });
    assert_eq!(decide(&fixture.operator, &tool, word).await.expect(200).json()["state"], "denied");
    assert_eq!(fixture.viber.decided().await.decision, Decision::Deny);
    match fixture.viber.command().await {
        protocol::Command::Stop { task_id, reason, .. } => {
            assert_eq!((task_id, reason.as_str()), (submit.task_id.clone(), "Enough"));
        }
        other => panic!("expected a stop: {other:?}"),
    }
    assert_eq!(fixture.operator.task(id(&task, "id")).await["state"], "stopped");
    assert_eq!(approval(&fixture.operator, &other).await["state"], "expired");
    fixture.board.assert_invariants().await;
}
