//! What people are needed for: by a task, by those that it gave to others, by the steps of a run. Tools say it, and
//! decide nothing of it.

use board_tests::{
    Engine, Fixture, eventually,
    fake_daemon::{accepted, completed, progress, started},
    tasks::id,
};
use protocol::{ApprovalId, Command, EventBody};

use super::{
    tools::{PLAYBOOK, PLAYBOOK_PATH},
    waiting::Messages,
    *,
};
use crate::mesh::{Job, end_of, two_machines};

crate::on_both_databases!(
    a_task_tells_of_those_that_it_gave_to_others,
    a_run_tells_that_a_step_waits_for_a_person,
    nothing_that_is_said_decides_anything,
);

/// An agent wants to run a command.
fn asks(approval: &ApprovalId) -> EventBody {
    progress(&json!({ "type": "approval-required", "approvalId": approval, "kind": "tool", "digest": "d",
        "tool": "shell", "args": { "command": "rm -r build" }, "preview": "rm -r build", "risk": "deletes files" }))
}

/// An agent wants to know something.
fn wonders(approval: &ApprovalId) -> EventBody {
    progress(&json!({ "type": "approval-required", "approvalId": approval, "kind": "question", "digest": "q",
        "tool": "ask_operator", "question": { "text": "Which one?", "options": [{ "label": "A" }, { "label": "B" }],
            "recommended": 1, "onTimeout": "I take B." } }))
}

async fn allow(fixture: &Fixture<impl Sized>, approval: &ApprovalId) {
    let word = json!({ "decision": "allow", "digest": "d" });
    fixture.owner().post(&format!("/api/v1/approvals/{approval}"), &word).await.expect(200);
}

/// Waits for something, and knows what `seen` says of it.
async fn wait_after(person: &Person, of: &Value, seen: &Value) -> Messages {
    let mut params = of_call("get_task", of);
    params["arguments"]["after"] = seen["next"].clone();
    params["arguments"]["waitSeconds"] = json!(50);
    params["_meta"] = json!({ "progressToken": "p" });
    let mut messages = Messages::of(stateless(person, "tools/call", &params)).await;
    messages.next().await.expect("it waits");
    messages
}

async fn a_task_tells_of_those_that_it_gave_to_others(engine: Engine) {
    let (fixture, den) = two_machines(engine).await;
    let (lab, program) = (&fixture.viber, &fixture.operator);
    let task = told(program, "submit_task", json!({ "goal": "Ready the release", "viber": "lab" })).await;
    let of = json!({ "taskId": task["taskId"] });
    let mut lead = Job::next(lab).await;
    assert!(told(program, "get_task", of.clone()).await.get("children").is_none());
    lead.asks(lab, "call_1", ("tester", "den"), "Run the suite").await;
    let mut tester = Job::next(&den).await;
    lead.asks(lab, "call_2", ("nobody", "den"), "Run nothing").await;
    end_of(lab, "call_2").await;
    let waits = json!({ "type": "state-change", "state": "waiting", "waiting": { "for": "child" } });
    lead.tell(lab, vec![progress(&waits)]).await;
    let seen = eventually("it waits for its children", async || {
        let seen = told(program, "get_task", of.clone()).await;
        (seen["waiting"]["for"] == "child").then_some(seen)
    })
    .await;
    assert_eq!(seen["needsPerson"], false, "{seen:#}");
    let [child, refused] = seen["children"].as_array().expect("children").as_slice() else { panic!("{seen:#}") };
    assert_eq!((&child["taskId"], &child["agentId"]), (&json!(tester.submit.task_id), &json!("tester")));
    assert_eq!((&child["viberId"], &child["title"]), (&json!(den.id), &json!("Run the suite")));
    assert_eq!((&child["state"], &child["needsPerson"]), (&json!("running"), &json!(false)));
    assert_eq!((&refused["state"], refused.get("taskId")), (&json!("refused"), None), "{refused:#}");
    assert!(refused["refusal"].as_str().is_some_and(|why| !why.is_empty()), "{refused:#}");

    // Whoever waits for the task hears that one beneath it waits for a person, and where that is decided.
    let messages = wait_after(program, &of, &seen).await;
    let approval = ApprovalId::new(1_790_000_000_000);
    tester.tell(&den, vec![asks(&approval)]).await;
    let result = messages.last().await;
    let needy = &result["structuredContent"];
    assert_eq!((&needy["state"], &needy["needsPerson"]), (&json!("running"), &json!(true)), "{result:#}");
    assert!(needy["cause"].as_str().is_some_and(|words| words.contains("children")), "{needy:#}");
    let child = &needy["children"][0];
    let page = format!("{}/t/home/sessions/{}", fixture.board.url, id(child, "sessionId"));
    assert_eq!((&child["needsPerson"], &child["url"]), (&json!(true), &json!(page)), "{needy:#}");
    let own = told(program, "get_task", json!({ "taskId": tester.submit.task_id, "waitSeconds": 50 })).await;
    assert_eq!((&own["needsPerson"], &own["waiting"]["id"]), (&json!(true), &json!(approval)), "told at once: {own:#}");

    allow(&fixture, &approval).await;
    tester.completes(&den, "All 96 specs pass.").await;
    end_of(lab, "call_1").await;
    lead.completes(lab, "Ready.").await;
    program.task_in(id(&task, "taskId"), "completed").await;
    let done = told(program, "get_task", of).await;
    let child = &done["children"][0];
    assert_eq!((&child["state"], &child["needsPerson"]), (&json!("completed"), &json!(false)), "{done:#}");
    fixture.board.assert_invariants().await;
}

async fn a_run_tells_that_a_step_waits_for_a_person(engine: Engine) {
    let fixture = Fixture::on(engine).owner().with_machine().await;
    let (machine, program) = (&fixture.viber, &fixture.operator);
    machine.write(PLAYBOOK_PATH, PLAYBOOK).await;
    let start = json!({ "viber": "lab", "playbook": "release", "inputs": { "version": "1" }, "supervised": false });
    let run = told(program, "run_playbook", start).await;
    assert_eq!((&run["needsPerson"], run["next"].is_string()), (&json!(false), true), "{run:#}");
    let submit = machine.submitted().await;
    let approval = ApprovalId::new(1_790_000_000_000);
    machine.report(&submit.task_id, 1, 1, vec![accepted(), started(), asks(&approval)]).await;
    let of = json!({ "runId": run["runId"] });
    let seen = eventually("its step waits", async || {
        let seen = told(program, "get_task", of.clone()).await;
        (seen["needsPerson"] == true).then_some(seen)
    })
    .await;
    let waiting = &seen["steps"][0]["waiting"];
    assert_eq!((&waiting["for"], &waiting["id"]), (&json!("approval"), &json!(approval)), "{seen:#}");
    assert!(seen["cause"].as_str().is_some_and(|words| words.contains("waits for a person")), "{seen:#}");
    // Who does not know it is told at once, and who does waits for what comes next.
    let unseen = json!({ "runId": run["runId"], "waitSeconds": 50 });
    assert_eq!(told(program, "get_task", unseen).await["needsPerson"], true);
    let messages = wait_after(program, &of, &seen).await;
    allow(&fixture, &approval).await;
    machine.report(&submit.task_id, 1, 4, vec![completed("shipped")]).await;
    let result = messages.last().await;
    let done = &result["structuredContent"];
    assert_eq!((&done["state"], &done["needsPerson"]), (&json!("completed"), &json!(false)), "{result:#}");
    assert!(done["steps"][0].get("waiting").is_none(), "{done:#}");
    fixture.board.assert_invariants().await;
}

async fn nothing_that_is_said_decides_anything(engine: Engine) {
    let fixture = Fixture::on(engine).with_machine().await;
    let (machine, program) = (&fixture.viber, &fixture.operator);
    for asked in [asks, wonders] {
        let task = told(program, "submit_task", json!({ "goal": "Clean up", "viber": "lab" })).await;
        let submit = machine.submitted().await;
        assert_eq!(json!(submit.task_id), task["taskId"]);
        let approval = ApprovalId::new(1_790_000_000_000);
        machine.report(&submit.task_id, 1, 1, vec![accepted(), started(), asked(&approval)]).await;
        let path = format!("/api/v1/approvals/{approval}");
        eventually("it asks", async || (program.get(&path).await.status == 200).then_some(())).await;
        for (mode, content) in [("followup", "/approve"), ("collect", "Yes, I allow it. A."), ("steer", "allow")] {
            let said = json!({ "content": content, "taskId": task["taskId"], "mode": mode });
            assert_eq!(told(program, "send_message", said).await["became"], "message", "{mode}");
            let is_it = |command: &Command| match command {
                Command::Message(message) => (message.content == content).then_some(()),
                _ => None,
            };
            machine.told(content, is_it).await;
        }
        assert_eq!(program.get(&path).await.expect(200).json()["state"], "pending");
        let decided = machine.state().told.iter().filter(|command| matches!(command, Command::Approval(_))).count();
        assert_eq!(decided, 0, "the machine was told words alone");
    }
    fixture.board.assert_invariants().await;
}
