//! A call that is allowed with other arguments, and what an allowed call then did.

use super::*;

crate::on_both_databases!(
    other_arguments_become_an_approval_of_their_own,
    a_viber_cannot_allow_itself_anything,
    what_a_call_did_is_kept_once,
);

/// The event that stands for the call with other arguments.
fn instead(replaces: &ApprovalId, approval: &ApprovalId, what: &str) -> Value {
    let mut event = command(approval, what);
    event["replaces"] = json!(replaces);
    event
}

fn outcome(approval: &ApprovalId, call: &str, ok: bool) -> Value {
    json!({ "type": "approval-outcome", "approvalId": approval, "callId": call, "ok": ok })
}

async fn other_arguments_become_an_approval_of_their_own(engine: Engine) {
    let (mut fixture, task, submit) = asking(engine).await;
    let (asked, made) = (named(1), named(2));
    let call = json!({ "type": "tool-call", "callId": "c1", "tool": "shell", "args": { "command": "rm -r build" } });
    ask(&mut fixture, &submit, 4, &[call, command(&asked, "rm -r build")]).await;
    let word = json!({ "decision": "allow", "digest": "digest of rm -r build", "args": { "command": "rm build/x" }, "note": "Only that" });
    decide(&fixture.operator, &asked, word).await.expect(200);
    assert_eq!(fixture.viber.decided().await.args, Some(json!({ "command": "rm build/x" })));
    let again = json!({ "type": "tool-call", "callId": "c1", "tool": "shell", "args": { "command": "rm build/x" } });
    let result =
        json!({ "type": "tool-result", "callId": "c1", "tool": "shell", "result": "", "ok": true, "durationMs": 1 });
    // What the viber says that was allowed is not what counts.
    ask(&mut fixture, &submit, 6, &[instead(&asked, &made, "rm -rf /"), again, result, outcome(&made, "c1", true)])
        .await;
    let (old, new) = (approval(&fixture.operator, &asked).await, approval(&fixture.operator, &made).await);
    assert_eq!((&old["becomes"], &new["replaces"]), (&json!(made), &json!(asked)));
    assert_eq!((&old["preview"], &new["preview"]), (&json!("rm -r build"), &json!("rm build/x")), "each its own call");
    assert_eq!(
        (&new["state"], &new["args"], &new["note"]),
        (&json!("allowed"), &json!({ "command": "rm build/x" }), &json!("Only that"))
    );
    assert_eq!((&new["decidedBy"], &new["decidedAt"]), (&old["decidedBy"], &old["decidedAt"]), "one decision");
    assert_eq!((&old["consequence"]["ok"], &new["consequence"]["ok"]), (&json!(true), &json!(true)));
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    let parts = messages.last().expect("a message")["parts"].as_array().expect("parts").clone();
    let calls: Vec<&Value> =
        parts.iter().filter(|part| part["type"] == "tool-call").map(|part| &part["args"]).collect();
    assert_eq!(calls, [&json!({ "command": "rm build/x" })], "the transcript has what was run");
    fixture.board.assert_invariants().await;
}

async fn a_viber_cannot_allow_itself_anything(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let (pending, plain, changed) = (named(1), named(2), named(3));
    let all = [command(&pending, "a"), command(&plain, "b"), command(&changed, "c")];
    ask(&mut fixture, &submit, 4, &all).await;
    let allow = |digest: &str, args: Value| json!({ "decision": "allow", "digest": digest, "args": args });
    // The same arguments are no others.
    decide(&fixture.operator, &plain, allow("digest of b", json!({ "command": "b" }))).await.expect(200);
    decide(&fixture.operator, &changed, allow("digest of c", json!({ "command": "cc" }))).await.expect(200);
    fixture.viber.decided().await;
    fixture.viber.decided().await;
    let mut other_tool = instead(&changed, &named(13), "cc");
    other_tool["tool"] = json!("write_file");
    let lies = [
        instead(&pending, &named(11), "x"),
        instead(&plain, &named(12), "x"),
        other_tool,
        instead(&named(77), &named(14), "x"),
        instead(&changed, &named(15), "cc"),
        instead(&changed, &named(16), "cc"),
    ];
    ask(&mut fixture, &submit, 7, &lies).await;
    for (n, state) in
        [(11, "expired"), (12, "expired"), (13, "expired"), (14, "expired"), (15, "allowed"), (16, "expired")]
    {
        let found = approval(&fixture.operator, &named(n)).await;
        assert_eq!((found["state"].as_str(), found["decidedBy"].is_null()), (Some(state), state == "expired"), "{n}");
    }
    assert_eq!(approval(&fixture.operator, &pending).await["state"], "pending");
    assert_eq!(approval(&fixture.operator, &changed).await["becomes"], json!(named(15)));
    fixture.board.assert_invariants().await;
}

async fn what_a_call_did_is_kept_once(engine: Engine) {
    let (mut fixture, _task, submit) = asking(engine).await;
    let (undecided, denied, allowed) = (named(1), named(2), named(3));
    let all = [command(&undecided, "a"), command(&denied, "b"), command(&allowed, "c")];
    ask(&mut fixture, &submit, 4, &all).await;
    decide(&fixture.operator, &denied, json!({ "decision": "deny", "digest": "digest of b" })).await.expect(200);
    decide(&fixture.operator, &allowed, json!({ "decision": "allow", "digest": "digest of c" })).await.expect(200);
    fixture.viber.decided().await;
    fixture.viber.decided().await;
    let said = [
        outcome(&undecided, "c1", true),
        outcome(&denied, "c1", true),
        outcome(&allowed, "other", true),
        outcome(&allowed, "c1", false),
        outcome(&allowed, "c1", true),
        json!({ "type": "approval-expired", "approvalId": allowed, "reason": "never mind" }),
    ];
    ask(&mut fixture, &submit, 7, &said).await;
    assert_eq!(approval(&fixture.operator, &undecided).await["consequence"], Value::Null);
    assert_eq!(approval(&fixture.operator, &denied).await["consequence"], Value::Null);
    let found = approval(&fixture.operator, &allowed).await;
    assert_eq!((&found["consequence"]["ok"], &found["state"]), (&json!(false), &json!("allowed")), "the first counts");
    fixture.board.assert_invariants().await;
}
