//! Agents of one machine that give work to each other, with a Board and without.

use std::collections::BTreeSet;

use board_tests::{llm::Piece, programs::ProgramOutput};

use super::*;

crate::on_both_databases!(
    an_agent_has_another_one_do_a_part,
    parts_run_side_by_side,
    one_place_is_enough_for_a_tree,
    an_agent_that_goes_on_asks_later,
    limits_of_a_child_come_out_of_its_parents,
    nobody_is_called_who_is_not_listed,
    who_may_be_called_and_is_not_there_stands_on_the_page,
    a_loop_ends_where_it_closes,
    what_was_asked_for_without_the_board_is_told_to_it_later,
);

/// What an agent gives to the coder.
fn gives(goal: &str) -> Reply {
    Reply::call("delegate", json!({ "agent": "coder", "goal": goal }))
}

async fn an_agent_has_another_one_do_a_part(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder]").await;
    fixture.llm.answers(|body| match (leads(body), results(body)) {
        (true, 0) => gives("Count the files. Say only the number."),
        (true, _) => Reply::text("There are 7."),
        (false, _) => Reply::text("seven"),
    });
    let task = fixture.play("How many files are there?").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let all = tree(&fixture.operator, id(&task, "id")).await;
    let [child] = items(&all) else { panic!("{all:#}") };
    let read = fixture.operator.task(id(child, "id")).await;
    assert_eq!(
        (&read["state"], &read["agentId"], &read["viberId"]),
        (&json!("completed"), &json!("coder"), &task["viberId"])
    );
    assert_eq!(read["goal"], "Count the files. Say only the number.");
    let told = fixture.llm.requests();
    let last = told.iter().rfind(|request| leads(&request.body)).expect("a request").body["messages"].to_string();
    assert!(last.contains("seven") && last.contains("coder"), "the result is in the call's answer: {last}");
    // The child knows nothing of the conversation, and cannot call anybody.
    let of_child = told.iter().find(|request| !leads(&request.body)).expect("a request of the child");
    assert!(!of_child.body["messages"].to_string().contains("How many files are there?"));
    assert_eq!(fixture.operator.get("/api/v1/approvals").await.expect(200).json()["items"], json!([]));
    fixture.board.assert_invariants().await;
}

async fn parts_run_side_by_side(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder]").await;
    let part = |n: usize| {
        Piece::call(&format!("call_{n}"), "delegate", json!({ "agent": "coder", "goal": format!("Part {n}") }))
    };
    fixture.llm.answers(move |body| match (leads(body), results(body)) {
        (true, 0) => Reply::Stream((1..=3).map(part).collect()),
        (true, 3) => Reply::text("All parts are there."),
        (true, n) => Reply::text(&format!("only {n} results")),
        (false, 0) => Reply::call("shell", json!({ "command": "sleep 2" })),
        (false, _) => Reply::text("done"),
    });
    let began = std::time::Instant::now();
    let task = fixture.play("Do three things").await;
    assert_eq!(task["result"]["text"], "All parts are there.", "{task:#}");
    assert!(began.elapsed() < Duration::from_secs(20), "one after the other: {:?}", began.elapsed());
    let all = tree(&fixture.operator, id(&task, "id")).await;
    let goals: BTreeSet<&str> = items(&all).iter().map(|item| id(item, "title")).collect();
    assert_eq!(goals, ["Part 1", "Part 2", "Part 3"].into());
    fixture.board.assert_invariants().await;
}

async fn one_place_is_enough_for_a_tree(engine: Engine) {
    let fixture = Fixture::on(engine).owner().scripted_model([]).with_enrolled_viber().await;
    furnish(&fixture.viber, &fixture.llm, "[coder]");
    let config = format!("{}maxTasks: 1\n", fixture.llm.config("openai"));
    fixture.viber.write("config.yaml", &config);
    let fixture = fixture.running().await;
    fixture.llm.answers(|body| match (leads(body), results(body)) {
        (true, 0) => gives("Do it"),
        (true, _) => Reply::text("It is done."),
        (false, _) => Reply::text("done"),
    });
    let task = fixture.play("Have it done").await;
    assert_eq!(task["state"], "completed", "a parent that waits holds no place: {task:#}");
    fixture.board.assert_invariants().await;
}

async fn an_agent_that_goes_on_asks_later(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder]").await;
    fixture.llm.answers(|body| {
        let text = body["messages"].to_string();
        let task = text
            .find("task_")
            .map(|at| text[at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>());
        match (leads(body), results(body), task) {
            (true, 0, _) => Reply::call("delegate", json!({ "agent": "coder", "goal": "Do it", "wait": false })),
            (true, 1, Some(task)) => Reply::call("check_task", json!({ "task": task, "wait": true })),
            (true, ..) => Reply::text("It is done."),
            (false, ..) => Reply::text("the heron"),
        }
    });
    let task = fixture.play("Have it done").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let requests = fixture.llm.requests();
    let last = requests.iter().rfind(|request| leads(&request.body)).expect("a request");
    assert!(last.body["messages"].to_string().contains("the heron"), "{}", last.body["messages"]);
    fixture.board.assert_invariants().await;
}

async fn limits_of_a_child_come_out_of_its_parents(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder]").await;
    fixture.llm.answers(|body| match (leads(body), results(body)) {
        (true, 0) => {
            Reply::call("delegate", json!({ "agent": "coder", "goal": "Go on and on", "limits": { "steps": 2 } }))
        }
        (true, _) => Reply::text("It got no further."),
        (false, _) => Reply::call("shell", json!({ "command": "true" })),
    });
    let task = fixture.play("Have it done").await;
    let all = tree(&fixture.operator, id(&task, "id")).await;
    let child = fixture.operator.task(id(&items(&all)[0], "id")).await;
    assert_eq!(child["limits"]["steps"], 2, "{child:#}");
    let calls = fixture.llm.requests().iter().filter(|request| !leads(&request.body)).count();
    assert!(calls <= 3, "{calls} calls of a child that may make two");
    assert_eq!(task["state"], "completed", "its parent goes on: {task:#}");
    // What a child used is in the sum of the tree.
    let used = all["usage"]["modelCalls"].as_u64().unwrap_or_default();
    assert!(used >= 3, "{all:#}");
    // More than the rest is not to be had.
    fixture.llm.answers(|body| match (leads(body), results(body)) {
        (true, 0) => Reply::call("delegate", json!({ "agent": "coder", "goal": "Go", "limits": { "steps": 100_000 } })),
        (true, _) => Reply::text("Done."),
        (false, _) => Reply::text("done"),
    });
    let task = fixture.play_with("Once more", json!({ "limits": { "steps": 5 } })).await;
    let all = tree(&fixture.operator, id(&task, "id")).await;
    let child = fixture.operator.task(id(&items(&all)[0], "id")).await;
    assert!(child["limits"]["steps"].as_u64().is_some_and(|steps| steps <= 5), "{child:#}");
    fixture.board.assert_invariants().await;
}

async fn nobody_is_called_who_is_not_listed(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder]").await;
    fixture.llm.answers(|body| match (leads(body), results(body)) {
        (true, 0) => Reply::call("delegate", json!({ "agent": "default", "goal": "Do it" })),
        (true, 1) => Reply::call("delegate", json!({ "agent": "coder", "viber": "den", "goal": "Do it" })),
        _ => Reply::text("Nobody may."),
    });
    let task = fixture.play("Have it done").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let answer = fixture.operator.get(&format!("/api/v1/tasks/{}/tree", id(&task, "id"))).await;
    assert!(answer.status == 404 || items(&answer.json()).is_empty(), "{answer:#?}");
    // An agent whose file names nobody does not even have the tools.
    fixture.llm.answers(|_| Reply::text("done"));
    fixture.play_with("Alone", json!({ "agentId": "coder" })).await;
    let requests = fixture.llm.requests();
    assert!(!leads(&requests.last().expect("a request").body));
    fixture.board.assert_invariants().await;
}

async fn who_may_be_called_and_is_not_there_stands_on_the_page(engine: Engine) {
    let fixture = lead_and_coder(engine, "[coder, ghost, coder@attic, coder@lab, \"coder@gpu=yes\"]").await;
    let viber = fixture.viber.id(&fixture.operator).await;
    eventually("the page says who is not there", async || {
        let page = fixture.owner().page(&format!("/t/{HOME}/vibers/{viber}")).await.expect(200).body;
        let says = [
            "May call: coder, ghost, coder@attic, coder@lab, coder@gpu=yes",
            "but not there: ghost, coder@attic, coder@gpu=yes<",
        ];
        says.iter().all(|said| page.contains(said)).then_some(())
    })
    .await;
    fixture.board.assert_invariants().await;
}

async fn a_loop_ends_where_it_closes(engine: Engine) {
    let fixture = lead_and_coder(engine, "[default]").await;
    fixture.llm.answers(|body| match results(body) {
        0 => Reply::call("delegate", json!({ "agent": "default", "goal": "Sort the shelf" })),
        _ => Reply::text("enough"),
    });
    let task = fixture.play("Sort the shelf").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let answer = fixture.operator.get(&format!("/api/v1/tasks/{}/tree", id(&task, "id"))).await;
    assert!(answer.status == 404 || items(&answer.json()).is_empty(), "with the same goal none is made: {answer:#?}");
    // With other goals it ends at the depth that a tree may have.
    fixture.llm.answers(|body| match results(body) {
        0 => {
            let depth = body["messages"].to_string().matches("deeper").count();
            Reply::call(
                "delegate",
                json!({ "agent": "default", "goal": format!("Go {}", "deeper ".repeat(depth + 1)) }),
            )
        }
        _ => Reply::text("enough"),
    });
    let task = fixture.play("Begin").await;
    let all = tree(&fixture.operator, id(&task, "id")).await;
    assert!(all["depth"].as_u64().is_some_and(|depth| depth <= 3), "{all:#}");
    fixture.board.assert_invariants().await;
}

async fn what_was_asked_for_without_the_board_is_told_to_it_later(engine: Engine) {
    let mut fixture = lead_and_coder(engine, "[coder]").await;
    fixture.llm.answers(|body| match (leads(body), results(body)) {
        (true, 0) => gives("Count the files"),
        (true, _) => Reply::text("There are 7."),
        (false, _) => Reply::text("seven"),
    });
    fixture.board.kill9();
    let said: ProgramOutput = fixture.viber.cli(&["task", "How many files are there?", "--json"]).await;
    let out = said.good();
    assert!(out.contains("There are 7."), "on one viber it works without the Board: {out}");
    fixture.board.restart().await;
    fixture.viber.connected(&fixture.operator).await;
    let found = eventually("both tasks are on the Board", async || {
        let tasks = fixture.operator.get("/api/v1/tasks").await.expect(200).json();
        let all = tasks["items"].as_array()?.clone();
        let ended = all.iter().filter(|task| task["state"] == "completed").count();
        (all.len() == 2 && ended == 2).then_some(all)
    })
    .await;
    let child = found.iter().find(|task| task["agentId"] == "coder").expect("the child");
    let parent = found.iter().find(|task| task["agentId"] == "default").expect("its parent");
    let child = fixture.operator.task(id(child, "id")).await;
    assert_eq!(child["parent"]["taskId"], parent["id"], "{child:#}");
    assert_eq!(items(&tree(&fixture.operator, id(parent, "id")).await).len(), 1);
    fixture.board.assert_invariants().await;
}
