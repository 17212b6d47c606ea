//! The same with a real viber: what is asked is what runs, once, and nothing of it without a word, also when the Board restarts.

use board_tests::{
    Answer, Engine, Fixture, Viber, eventually,
    llm::{Reply, Request},
    tasks::id,
};
use serde_json::{Value, json};

crate::on_both_databases!(
    what_is_allowed_runs_once_and_what_is_denied_never,
    other_arguments_run_instead,
    a_rule_for_the_team_asks_no_more,
    an_agent_asks_and_is_answered,
    a_budget_is_granted,
    a_held_task_goes_on,
    what_is_decided_after_somebody_stepped_in_is_over,
    a_board_that_restarts_asks_the_same,
    what_the_team_decided_holds_for_a_task_of_the_machine,
);

/// A viber whose agent may do everything, and asks before it changes anything.
pub(super) async fn asking(engine: Engine, script: Vec<Reply>) -> Fixture<Viber> {
    Fixture::on(engine)
        .owner()
        .scripted_model(script)
        .tools(&["shell", "file", "ask"])
        .agent("mode: always_ask")
        .with_viber()
        .await
}

/// The questions that wait, when there are so many.
pub(super) async fn waiting(fixture: &Fixture<Viber>, n: usize) -> Vec<Value> {
    eventually("an agent asks", async || {
        let list = fixture.operator.get("/api/v1/approvals?state=pending").await.expect(200).json();
        let mut items = list["items"].as_array().expect("a list").clone();
        items.reverse();
        (items.len() == n).then_some(items)
    })
    .await
}

pub(super) async fn decide(fixture: &Fixture<Viber>, asked: &Value, word: Value) -> Answer {
    let mut body = json!({ "digest": asked["digest"] });
    body.as_object_mut().expect("an object").extend(word.as_object().expect("an object").clone());
    fixture.owner().post(&format!("/api/v1/approvals/{}", id(asked, "id")), &body).await
}

pub(super) async fn approval(fixture: &Fixture<Viber>, asked: &Value) -> Value {
    fixture.operator.get(&format!("/api/v1/approvals/{}", id(asked, "id"))).await.expect(200).json()
}

pub(super) fn said(request: &Request) -> String {
    request.body["messages"].to_string()
}

pub(super) fn shell(command: &str) -> Reply {
    Reply::call("shell", json!({ "command": command }))
}

pub(super) fn lines(fixture: &Fixture<Viber>, name: &str) -> usize {
    std::fs::read_to_string(fixture.viber.space().join(name)).unwrap_or_default().lines().count()
}

async fn what_is_allowed_runs_once_and_what_is_denied_never(engine: Engine) {
    let script = vec![
        Reply::call("list_files", json!({ "path": "." })),
        shell("echo one >> ran"),
        shell("echo two >> never"),
        Reply::text("Done."),
    ];
    let fixture = asking(engine, script).await;
    let task = fixture.submit("go").await;
    let first = waiting(&fixture, 1).await.remove(0);
    assert_eq!((&first["kind"], &first["tool"]), (&json!("tool"), &json!("shell")), "looking needs no word: {first:#}");
    assert!(first["preview"].as_str().is_some_and(|text| text.contains("echo one >> ran")), "{first:#}");
    assert!(first["reason"].as_str().is_some_and(|text| !text.is_empty()), "{first:#}");
    let waits = fixture.operator.task(id(&task, "id")).await;
    assert_eq!(waits["waiting"]["for"], "approval", "{waits:#}");
    assert_eq!(lines(&fixture, "ran"), 0);
    decide(&fixture, &first, json!({ "decision": "allow" })).await.expect(200);
    let second = waiting(&fixture, 1).await.remove(0);
    assert_eq!(lines(&fixture, "ran"), 1);
    decide(&fixture, &second, json!({ "decision": "deny", "note": "Not on a Friday." })).await.expect(200);
    let done = fixture.ended(&task).await;
    assert_eq!(done["result"]["text"], "Done.", "{done:#}");
    assert_eq!((lines(&fixture, "ran"), lines(&fixture, "never")), (1, 0));
    let told = said(fixture.llm.requests().last().expect("a request"));
    assert!(told.contains("Not on a Friday.") && told.contains("owner"), "{told}");
    let first = approval(&fixture, &first).await;
    assert_eq!((&first["state"], &first["consequence"]["ok"]), (&json!("allowed"), &json!(true)), "{first:#}");
    fixture.board.assert_invariants().await;
}

async fn other_arguments_run_instead(engine: Engine) {
    let fixture = asking(engine, vec![shell("echo theirs >> theirs"), Reply::text("Done.")]).await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let word = json!({ "decision": "allow", "args": { "command": "echo mine >> mine" } });
    decide(&fixture, &asked, word).await.expect(200);
    let done = fixture.ended(&task).await;
    assert_eq!(done["result"]["text"], "Done.", "{done:#}");
    assert_eq!((lines(&fixture, "theirs"), lines(&fixture, "mine")), (0, 1));
    let told = said(fixture.llm.requests().last().expect("a request"));
    assert!(told.contains("echo mine >> mine") && told.contains("changed the arguments"), "{told}");
    let asked = approval(&fixture, &asked).await;
    let became = fixture.operator.get(&format!("/api/v1/approvals/{}", id(&asked, "becomes"))).await.expect(200).json();
    assert_eq!(
        (&became["state"], &became["args"]["command"]),
        (&json!("allowed"), &json!("echo mine >> mine")),
        "{became:#}"
    );
    assert_ne!(became["digest"], asked["digest"]);
    assert_eq!(became["consequence"]["ok"], true, "{became:#}");
}

async fn a_rule_for_the_team_asks_no_more(engine: Engine) {
    let script = vec![
        shell("echo one >> ran"),
        Reply::text("Done."),
        Reply::call("shell", json!({ "command": "ls -la" })),
        Reply::call("shell", json!({ "command": "ls -la; echo two >> ran" })),
        Reply::text("Done again."),
    ];
    let fixture = asking(engine, script).await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let wide = json!({ "decision": "allow", "scope": "rule", "rule": "shell" });
    decide(&fixture, &asked, wide).await.expect(422);
    let other = json!({ "decision": "allow", "scope": "rule", "rule": "shell(ls **)" });
    decide(&fixture, &asked, other).await.expect(422);
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    fixture.ended(&task).await;
    let rules =
        json!({ "deny": [], "ask": [], "allow": ["shell(ls **)"], "minRole": "operator", "notRequester": false });
    fixture.owner().put("/api/v1/approval-rules", &rules).await.expect(200);
    let task = fixture.submit("again").await;
    // `ls -la` ran by the rule; what hides another command behind it did not.
    let asked = waiting(&fixture, 1).await.remove(0);
    assert!(asked["preview"].as_str().is_some_and(|text| text.contains("echo two")), "{asked:#}");
    decide(&fixture, &asked, json!({ "decision": "deny" })).await.expect(200);
    fixture.ended(&task).await;
    assert_eq!(lines(&fixture, "ran"), 1);
}

async fn an_agent_asks_and_is_answered(engine: Engine) {
    let question = json!({ "question": "Which colour?", "recommended": "teal",
        "options": [{ "label": "teal", "tradeOff": "calm" }, { "label": "red", "tradeOff": "loud" }] });
    let fixture = asking(engine, vec![Reply::call("ask_operator", question), Reply::text("Done.")]).await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    assert_eq!(
        (&asked["kind"], &asked["question"]["text"]),
        (&json!("question"), &json!("Which colour?")),
        "{asked:#}"
    );
    assert_eq!(asked["question"]["options"][0]["label"], "teal", "the recommended one first: {asked:#}");
    assert_eq!(fixture.operator.task(id(&task, "id")).await["waiting"]["for"], "input");
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(422);
    decide(&fixture, &asked, json!({ "decision": "answer", "answer": "green, please" })).await.expect(200);
    fixture.ended(&task).await;
    let told = said(fixture.llm.requests().last().expect("a request"));
    assert!(told.contains("green, please") && told.contains("owner"), "{told}");
}

async fn a_budget_is_granted(engine: Engine) {
    let script = vec![
        Reply::call("list_files", json!({ "path": "." })),
        Reply::call("list_files", json!({ "path": "." })),
        Reply::call("list_files", json!({ "path": "." })),
        Reply::text("Done."),
    ];
    let fixture = asking(engine, script).await;
    let task = fixture.submit_with("go", json!({ "limits": { "toolCalls": 1 } })).await;
    let asked = waiting(&fixture, 1).await.remove(0);
    assert_eq!((&asked["kind"], &asked["limit"]["name"]), (&json!("budget"), &json!("toolCalls")), "{asked:#}");
    decide(&fixture, &asked, json!({ "decision": "allow", "grant": { "toolCalls": 1 } })).await.expect(200);
    let again = eventually("it asks again", async || {
        let now = waiting(&fixture, 1).await.remove(0);
        (now["id"] != asked["id"]).then_some(now)
    })
    .await;
    decide(&fixture, &again, json!({ "decision": "allow", "grant": { "toolCalls": 5 } })).await.expect(200);
    let done = fixture.ended(&task).await;
    assert_eq!(done["result"]["text"], "Done.", "{done:#}");

    fixture
        .llm
        .script([Reply::call("list_files", json!({ "path": "." })), Reply::call("list_files", json!({ "path": "." }))]);
    let task = fixture.submit_with("go", json!({ "limits": { "toolCalls": 1 } })).await;
    let asked = waiting(&fixture, 1).await.remove(0);
    decide(&fixture, &asked, json!({ "decision": "deny" })).await.expect(200);
    let done = fixture.ended(&task).await;
    assert_eq!(done["error"]["code"], "budget_exceeded", "{done:#}");
}

async fn a_held_task_goes_on(engine: Engine) {
    let fixture = asking(engine, vec![shell("echo one >> ran"), Reply::text("Done.")]).await;
    let task = fixture.submit("go").await;
    let asked = waiting(&fixture, 1).await.remove(0);
    let verb = |verb: &str| format!("/api/v1/tasks/{}/{verb}", id(&task, "id"));
    fixture.operator.post(&verb("pause"), &json!({})).await.expect(200);
    decide(&fixture, &asked, json!({ "decision": "allow" })).await.expect(200);
    let held = fixture.operator.task_that(id(&task, "id"), "held", |task| task["waiting"]["for"] == "paused").await;
    assert_eq!((lines(&fixture, "ran"), fixture.llm.requests().len()), (1, 1), "{held:#}");
    fixture.operator.post(&verb("resume"), &json!({})).await.expect(200);
    let done = fixture.ended(&task).await;
    assert_eq!(done["result"]["text"], "Done.", "{done:#}");
}

async fn what_is_decided_after_somebody_stepped_in_is_over(engine: Engine) {
    let question = json!({ "question": "Which colour?", "options": [{ "label": "teal" }, { "label": "red" }] });
    for (call, word) in [
        (shell("echo one >> ran"), json!({ "decision": "allow" })),
        (Reply::call("ask_operator", question), json!({ "decision": "answer", "answer": "teal" })),
    ] {
        let fixture = asking(engine, vec![call, Reply::text("As you wish.")]).await;
        let task = fixture.submit("go").await;
        let asked = waiting(&fixture, 1).await.remove(0);
        let verb = |verb: &str| format!("/api/v1/tasks/{}/{verb}", id(&task, "id"));
        fixture.operator.post(&verb("pause"), &json!({})).await.expect(200);
        let steer = json!({ "content": "Leave it", "injectionMode": "steer" });
        fixture.operator.post(&verb("messages"), &steer).await.expect(202);
        // The agent passes the call over, and is held before it is told.
        eventually("it is held", async || {
            let states = fixture.events_of_kind(&task, "state-change").await;
            states.iter().any(|state| state["waiting"]["for"] == "paused").then_some(())
        })
        .await;
        decide(&fixture, &asked, word).await.expect(200);
        fixture.operator.post(&verb("resume"), &json!({})).await.expect(200);
        let done = fixture.ended(&task).await;
        assert_eq!((&done["result"]["text"], lines(&fixture, "ran")), (&json!("As you wish."), 0), "{done:#}");
        let asked = approval(&fixture, &asked).await;
        assert_eq!(asked["state"], "expired", "it was not followed: {asked:#}");
        fixture.board.assert_invariants().await;
    }
}

async fn a_board_that_restarts_asks_the_same(engine: Engine) {
    let mut fixture = asking(engine, vec![shell("echo one >> ran"), Reply::text("Done.")]).await;
    let task = fixture.submit("go").await;
    let before = waiting(&fixture, 1).await.remove(0);
    fixture.board.kill9();
    fixture.board.restart().await;
    let after = waiting(&fixture, 1).await.remove(0);
    assert_eq!((&after["id"], &after["digest"]), (&before["id"], &before["digest"]));
    assert_eq!(lines(&fixture, "ran"), 0);
    // Decided while the viber is away, which hears of it when it is back.
    decide(&fixture, &after, json!({ "decision": "allow" })).await.expect(200);
    fixture.ended(&task).await;
    assert_eq!((lines(&fixture, "ran"), fixture.llm.requests().len()), (1, 2));
    fixture.board.assert_invariants().await;
}

async fn what_the_team_decided_holds_for_a_task_of_the_machine(engine: Engine) {
    let script = vec![shell("echo one >> never"), Reply::text("So be it.")];
    let fixture = Fixture::on(engine).owner().scripted_model(script).tools(&["shell", "file"]).with_viber().await;
    let decides = async |settings: Value, word: &str| {
        fixture.owner().put("/api/v1/approval-rules", &settings).await.expect(200);
        let file = fixture.viber.home().join("state/team.json");
        eventually("the viber was told", async || {
            std::fs::read_to_string(&file).ok().filter(|kept| kept.contains(word))
        })
        .await
    };
    let kept = decides(json!({ "deny": ["shell(echo **)"], "limits": { "steps": 9 } }), "echo **").await;
    let ran = fixture.viber.cli(&["task", "go"]).await;
    assert!(ran.code() == 0 && ran.out.contains("So be it."), "{ran:?}");
    let told = said(fixture.llm.requests().last().expect("a request"));
    assert!(told.contains("under `deny` of the team's rules"), "{told}");

    // A limit ends it, because nobody is asked on a machine.
    fixture.llm.script([Reply::call("list_files", json!({ "path": "." })), Reply::text("Too far.")]);
    decides(json!({ "limits": { "steps": 1 } }), "\"steps\":1").await;
    let ran = fixture.viber.cli(&["task", "go"]).await;
    assert!(ran.code() != 0 && ran.err.contains("it may make 1 model call (limits.steps)"), "{ran:?}");
    assert_eq!(fixture.llm.requests().len(), 3, "{kept}");

    // What cannot be read may restrict something.
    std::fs::write(fixture.viber.home().join("state/team.json"), "{").expect("written");
    let ran = fixture.viber.cli(&["task", "go"]).await;
    assert!(ran.code() != 0 && ran.err.contains("state/team.json"), "{ran:?}");
    assert_eq!(fixture.llm.requests().len(), 3, "nothing was asked of the model");
    fixture.board.assert_invariants().await;
}
