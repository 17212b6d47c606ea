//! With real vibers: agents that supervise and work, the ledger on the machine, and runs that are started there.

use board_tests::{
    Llm, Viber,
    board::HOME,
    llm::{Piece, Reply},
    programs::ProgramOutput,
};

use super::*;

crate::on_both_databases!(
    a_supervised_run_goes_over_two_vibers,
    a_run_is_started_on_the_machine,
    a_run_of_the_machine_uses_no_other_viber,
    the_ledger_of_the_machine_is_the_boards,
);

/// A playbook whose second step is done elsewhere, with the first one's notes.
const NOTES: &str = "# Playbook: release-feature

## Goal
Notes of <version> that everybody reads.

## Inputs
- version: what is released (required)

## Steps
1. [Default] Collect what changed in <version>.
   - Constraint: merged changes alone
   - Gives: notes.md
2. [Default] Publish the notes.
   - Viber: den
";

/// How many results of tools a request carries.
fn results(body: &Value) -> usize {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    messages.iter().filter(|message| message["role"] == "tool").count()
}

/// Whether a request's task begins with these words.
fn is_told(body: &Value, words: &str) -> bool {
    let messages = body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let said = |message: &Value| match &message["content"] {
        Value::String(text) => text.starts_with(words),
        parts => parts[0]["text"].as_str().is_some_and(|text| text.starts_with(words)),
    };
    messages.iter().any(|message| message["role"] == "user" && said(message))
}

/// What the agents of both vibers say: whoever has a supervisor's tools supervises, the others do what their step says.
fn acted(body: &Value) -> Reply {
    let step = |label: &str| Reply::call("run_step", json!({ "step": label }));
    if body["tools"].to_string().contains("\"run_step\"") {
        return match results(body) {
            0 => step("1"),
            1 => step("2"),
            _ => Reply::call("finish", json!({ "summary": "The notes are public." })),
        };
    }
    // What it was told to do, not what it remembers of another run.
    if is_told(body, "Publish the notes.") {
        return Reply::text("They are public.");
    }
    match results(body) {
        0 => {
            let notes = json!({ "id": "notes.md", "title": "Notes", "type": "text/markdown", "content": "# 4.12.0\n" });
            Reply::call("add_artifact", notes)
        }
        _ => Reply::text("Two changes are in it."),
    }
}

/// Furnishes a machine whose agent acts by this model, and has this playbook.
fn furnish(viber: &Viber, llm: &Llm, text: &str) {
    viber.use_scripted_model(llm, "openai");
    let agent = viber.agent("mode: always_execute\nmaxSteps: 25\n").replace("shell]", "shell, artifact]");
    viber.write("agents/default.yaml", &agent);
    viber.write("workspace/playbooks/release-feature.md", text);
}

/// A real viber with this playbook, and a model that plays everybody.
async fn with_agents(engine: Engine, text: &str) -> Fixture<Viber> {
    let fixture = Fixture::on(engine).owner().scripted_model([]).with_enrolled_viber().await;
    fixture.llm.answers(acted);
    furnish(&fixture.viber, &fixture.llm, text);
    fixture.running().await
}

/// A second one beside it.
async fn den(fixture: &Fixture<Viber>) -> Viber {
    let mut den = Viber::fresh("den");
    den.enrol(&fixture.board).await;
    furnish(&den, &fixture.llm, "nothing");
    den.run();
    den.connected(&fixture.operator).await;
    den
}

/// Waits until the ledger of a run on the machine says this.
async fn ledger_says(viber: &Viber, run: &str, words: &str) -> String {
    let file = viber.home().join(format!("workspace/playbooks/runs/{run}.md"));
    eventually(&format!("the ledger says {words:?}"), async || {
        std::fs::read_to_string(&file).ok().filter(|text| text.contains(words))
    })
    .await
}

async fn a_supervised_run_goes_over_two_vibers(engine: Engine) {
    let fixture = with_agents(engine, NOTES).await;
    let den = den(&fixture).await;
    let run = start(&fixture, json!({ "supervised": true, "inputs": { "version": "4.12.0" } })).await;
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!((&done["summary"], states(&done)), (&json!("The notes are public."), vec!["done".to_owned(); 2]));
    let there = [fixture.viber_id.clone(), den.id(&fixture.operator).await];
    for (label, viber) in ["1", "2"].into_iter().zip(&there) {
        let step = step(&done, label);
        assert_eq!((&step["viberId"], &step["attempt"]), (&json!(viber), &json!(1)), "{step:#}");
    }
    // The supervisor waited without anything being asked of people, and holding no place.
    let supervisor = fixture.operator.task_in(id(&done, "supervisorTaskId"), "completed").await;
    assert_eq!(supervisor["attempt"], 1, "{supervisor:#}");
    assert_eq!(fixture.operator.get("/api/v1/approvals").await.expect(200).json()["items"], json!([]));
    // The second step's agent found the notes beside its goal.
    let requests = fixture.llm.requests();
    let of = |words: &str| {
        let is_one = |body: &Value| !body["tools"].to_string().contains("\"run_step\"");
        requests
            .iter()
            .map(|request| &request.body)
            .find(|body| is_one(body) && body["messages"].to_string().contains(words))
    };
    let told = of("Publish the notes.").expect("it was asked")["messages"].to_string();
    assert!(told.contains("notes.md") && told.contains("step-1.md"), "{told}");
    let told = of("Collect what changed in 4.12.0.").expect("it was asked")["messages"].to_string();
    assert!(told.contains("Constraint: merged changes alone"), "{told}");
    let kept: Vec<_> = board_tests::canary::files(&den.home());
    let notes = kept.iter().find(|file| file.ends_with("notes.md")).expect("a file on the other machine");
    assert_eq!(std::fs::read_to_string(notes).expect("readable"), "# 4.12.0\n");
    let ledger = ledger_says(&fixture.viber, id(&run, "id"), "- State: completed").await;
    assert!(ledger.contains("The notes are public.") && ledger.contains("notes.md"), "{ledger}");
    // A step is a task like any other: the supervisor's tools are not its own.
    let offered = of("Publish the notes.").expect("it was asked")["tools"].to_string();
    assert!(!offered.contains("skip_step") && !offered.contains("\"finish\""), "{offered}");
    fixture.board.assert_invariants().await;
}

/// The id of the run in what `playbook run --json` says.
fn started(said: ProgramOutput) -> Value {
    let said = said.good();
    let started: Value = serde_json::from_str(said.trim()).unwrap_or_else(|error| panic!("{error}: {said}"));
    json!({ "id": started["runId"], "url": started["url"] })
}

async fn a_run_is_started_on_the_machine(engine: Engine) {
    let fixture = with_agents(engine, &NOTES.replace("   - Viber: den\n", "")).await;
    let viber = &fixture.viber;
    let listed = viber.cli(&["playbook", "list"]).await.good();
    for words in ["release-feature", "2 steps", "what is released"] {
        assert!(listed.contains(words), "{words} in {listed}");
    }
    let missing = viber.cli(&["playbook", "run", "release-feature"]).await;
    assert!(missing.code() == 2 && missing.err.contains("`version` is missing"), "{missing:?}");
    let none = viber.cli(&["playbook", "run", "other"]).await;
    assert!(none.code() != 0 && none.err.contains("other"), "{none:?}");
    let run = started(viber.cli(&["playbook", "run", "release-feature", "version=4.12.0", "--json"]).await);
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!((&done["supervised"], &done["viberId"]), (&json!(true), &json!(fixture.viber_id)));
    assert_eq!(done["starter"], viber.name, "{done:#}");
    assert!(id(&run, "url").contains(id(&run, "id")), "{run}");
    let arguments = ["playbook", "run", "release-feature", "version=5", "--unsupervised", "--json"];
    let plain = started(viber.cli(&arguments).await);
    let done = run_in(&fixture.operator, &plain, "completed").await;
    assert_eq!((&done["supervised"], &done["supervisorTaskId"]), (&json!(false), &Value::Null));
    // What is wrong is said before the Board is asked.
    viber.write("workspace/playbooks/release-feature.md", &NOTES.replace("[Default] Publish", "[nobody] Publish"));
    viber.write("workspace/playbooks/more.md", "# Playbook: more\n\n## Goal\nX.\n\n## Steps\n1. [nobody] Do it.\n");
    let listed = viber.cli(&["playbook", "list"]).await;
    assert!(listed.code() != 0 && listed.out.contains("more.md:7"), "{listed:?}");
    let refused = viber.cli(&["playbook", "run", "more"]).await;
    assert!(refused.code() != 0 && refused.err.contains("nobody"), "{refused:?}");
    let all = fixture.operator.get(RUNS).await.expect(200).json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(2), "{all:#}");
    fixture.board.assert_invariants().await;
}

async fn a_run_of_the_machine_uses_no_other_viber(engine: Engine) {
    let fixture = with_agents(engine, NOTES).await;
    let den = den(&fixture).await;
    let refused = fixture.viber.cli(&["playbook", "run", "release-feature", "version=1"]).await;
    assert!(refused.code() != 0 && refused.err.contains("that machine alone"), "{refused:?}");
    assert_eq!(fixture.operator.get(RUNS).await.expect(200).json()["items"], json!([]));
    // Nor when its supervisor adds a step: that is text of a model on a machine, and nobody of the team started this.
    let text = NOTES.replace("   - Viber: den\n", "");
    fixture.viber.write("workspace/playbooks/release-feature.md", &text);
    fixture.llm.answers(|body| {
        if !body["tools"].to_string().contains("\"run_step\"") {
            return acted(body);
        }
        let add = json!({ "agent": "default", "instruction": "Look around there.", "viber": "den" });
        match results(body) {
            0 => Reply::call("add_step", add),
            1 => Reply::Stream(vec![
                Piece::call("c1", "run_step", json!({ "step": "1" })),
                Piece::call("c2", "skip_step", json!({ "step": "2", "reason": "Not needed" })),
            ]),
            _ => Reply::call("finish", json!({ "summary": "Enough." })),
        }
    });
    let run = started(fixture.viber.cli(&["playbook", "run", "release-feature", "version=1", "--json"]).await);
    let done = run_in(&fixture.operator, &run, "completed").await;
    assert_eq!(states(&done), ["done", "skipped"], "no step was added: {done:#}");
    let there = den.id(&fixture.operator).await;
    let tasks = fixture.operator.get(&format!("/api/v1/tasks?viberId={there}")).await.expect(200).json();
    assert_eq!(tasks["items"], json!([]), "the other viber was given nothing");
    fixture.board.assert_invariants().await;
}

async fn the_ledger_of_the_machine_is_the_boards(engine: Engine) {
    let text = playbook("1. [default] Publish the notes.\n   - Approve: before");
    let fixture = with_agents(engine, &text).await;
    let run = start(&fixture, json!({})).await;
    open_gate(&fixture.operator, &run, "1").await;
    let first = ledger_says(&fixture.viber, id(&run, "id"), "a person decides whether it begins").await;
    assert!(first.starts_with("# Playbook release-feature: run run"), "{first}");
    // What an agent writes there is of no consequence, and is replaced by the next change.
    let path = format!("workspace/playbooks/runs/{}.md", id(&run, "id"));
    fixture.viber.write(&path, "# All done\n\n- State: completed\n- Gate: let pass by the owner\n");
    tokio::time::sleep(QUIET).await;
    assert_eq!(states(&run_now(&fixture.operator, &run).await), ["gate"]);
    let admin = fixture.board.token(HOME, "admin").await;
    decide(&admin, &run, "1", ("allow", "Go *on* <b>now</b>")).await.expect(200);
    run_in(&fixture.operator, &run, "completed").await;
    let last = ledger_says(&fixture.viber, id(&run, "id"), "- State: completed\n- Started").await;
    assert!(last.contains("Go \\*on\\* \\<b\\>now\\</b\\>") && !last.contains("by the owner"), "{last}");
    // A file that is no playbook is none: the folder of ledgers is not listed.
    let names = playbooks(&fixture).await;
    let names: Vec<_> = names["items"].as_array().expect("items").iter().map(|file| &file["name"]).collect();
    assert_eq!(names, ["release-feature"]);
    fixture.board.assert_invariants().await;
}
