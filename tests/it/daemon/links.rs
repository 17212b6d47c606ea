//! Spaces that lie in what agents write to: a link in their place leads nowhere.

use std::{fs, path::Path};

use board_tests::{Board, Engine, Llm, Viber, board::HOME, llm::Reply, tasks::id};
use serde_json::{Value, json};

/// What the two agents of a machine try after one of them has swapped everything that it can for links out of its space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a174_a_space_that_became_a_link_leads_nowhere() {
    for missing in [&[][..], &["namespaces"], &["namespaces", "landlock", "seccomp"]] {
        swapped(missing).await;
    }
}

async fn swapped(missing: &[&str]) {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let llm = Llm::start(Vec::<Reply>::new()).await;
    let mut viber = Viber::fresh_below(&super::escape::base(), "lab", None);
    viber.enrol(&board).await;
    viber.use_scripted_model(&llm, "openai");
    let (space, root) = (viber.space(), viber.root().to_owned());
    for folder in ["a/sub", "app"] {
        viber.write_at(&space.join(folder).join("file"), "inside\n");
    }
    for (file, text) in [("private/key", "SECRET"), (".ssh/id", "SECRET"), ("note", "a note")] {
        viber.write_at(&root.join(file), text);
    }
    let agent = |spaces: &[&Path]| {
        let spaces: Vec<_> = spaces.iter().map(|path| path.display().to_string()).collect();
        format!(
            "model: lab/scripted\nmode: always_execute\nmaxSteps: 25\ntools: [file, search, shell]\nspaces: [{}]\n",
            spaces.join(", ")
        )
    };
    viber.write("agents/default.yaml", &agent(&[&space, &space.join("a/sub"), &space.join("newapp")]));
    viber.write("agents/other.yaml", &agent(&[&space.join("app")]));
    for layer in missing {
        viber.fail(&format!("sandbox::{layer}"), "return").await;
    }
    viber.run();
    viber.connected(&operator).await;
    let viber_id = viber.id(&operator).await;
    let run = async |agent: &str, calls: Vec<Value>| -> Vec<Value> {
        let calls = calls.iter().map(|call| Reply::call(call["tool"].as_str().expect("a name"), call["args"].clone()));
        llm.script(calls.chain([Reply::text("done")]));
        let body = json!({ "goal": "work", "viberId": viber_id, "agentId": agent });
        let task = operator.post("/api/v1/tasks", &body).await.expect(201).json();
        let over = |task: &Value| matches!(task["state"].as_str(), Some("completed" | "error"));
        let task = operator.task_that(id(&task, "id"), "it is over", over).await;
        let events = operator.events(id(&task, "id")).await.into_iter().map(|event| event["event"].clone());
        events.filter(|event| event["type"] == "tool-result").collect()
    };
    let call = |tool: &str, args: Value| json!({ "tool": tool, "args": args });
    let shell = |line: String| call("shell", json!({ "command": line }));
    let good = run("other", vec![call("read_file", json!({ "path": "file" }))]).await;
    assert!(good[0]["result"].to_string().contains("inside"), "{good:#?}");
    let (private, home) = (root.join("private").display().to_string(), root.display().to_string());
    let swap = format!(
        "mv a old && mkdir a && ln -s {private} a/sub && ln -s {private} newapp && mv app app.old && ln -s {home} app"
    );
    let done = run("default", vec![shell(swap)]).await;
    assert!(space.join("newapp").is_symlink() && space.join("app").is_symlink(), "{done:#?}");
    let tries = run(
        "default",
        vec![
            call("read_file", json!({ "path": root.join("private/key") })),
            call("read_file", json!({ "path": "newapp/key" })),
            call("write_file", json!({ "path": space.join("a/sub/planted"), "content": "x" })),
            call("write_file", json!({ "path": root.join("private/planted"), "content": "x" })),
        ],
    )
    .await;
    assert!(tries.iter().all(|said| said["ok"] == false), "{missing:?}: {tries:#?}");
    let others = run(
        "other",
        vec![
            call("read_file", json!({ "path": ".ssh/id" })),
            call("read_file", json!({ "path": root.join("note") })),
            call("write_file", json!({ "path": "planted", "content": "x" })),
            shell("echo x > planted".to_owned()),
        ],
    )
    .await;
    assert!(others.iter().take(3).all(|said| said["ok"] == false), "{missing:?}: {others:#?}");
    assert!(!tries.iter().chain(&others).any(|said| said.to_string().contains("SECRET")), "{tries:#?} {others:#?}");
    if !missing.contains(&"landlock") {
        run("default", vec![shell(format!("echo x > {private}/planted; echo x > newapp/planted"))]).await;
    }
    for place in ["private", "."] {
        assert!(!root.join(place).join("planted").exists(), "{missing:?}: {place}");
    }
    assert_eq!(fs::read_to_string(root.join("private/key")).expect("there"), "SECRET");
    board.assert_invariants().await;
}

/// The file tools see as little of the user's secrets as commands do, though the space holds them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a175_file_tools_read_no_secret_in_a_space() {
    let mut fixture = super::with_scripted_model(Vec::new()).await;
    let root = fixture.viber.root().to_owned();
    for file in [".ssh/id", ".aws/credentials", "code/file"] {
        fixture.viber.write_at(&root.join(file), "SECRET or not\n");
    }
    let agent = fixture.viber.agent("mode: always_execute\nmaxSteps: 25\n");
    let wide = agent.replace(&format!("[{}]", fixture.viber.space().display()), &format!("[{}]", root.display()));
    fixture.viber.stop().await;
    fixture.viber.write("agents/default.yaml", &wide);
    fixture.viber.run();
    fixture.viber.connected(&fixture.operator).await;
    let read = |path: &str| Reply::call("read_file", json!({ "path": path }));
    let grep = Reply::call("grep", json!({ "pattern": "SECRET" }));
    fixture.llm.script([read("code/file"), read(".ssh/id"), read(".aws/credentials"), grep, Reply::text("done")]);
    let task = fixture.submit("read").await;
    let task = fixture.operator.task_that(id(&task, "id"), "it is over", |task| task["state"] == "completed").await;
    let events = fixture.operator.events(id(&task, "id")).await.into_iter().map(|event| event["event"].clone());
    let said: Vec<Value> = events.filter(|event| event["type"] == "tool-result").collect();
    let ok: Vec<_> = said.iter().map(|said| said["ok"] == true).collect();
    assert_eq!(ok, [true, false, false, true], "{said:#?}");
    let found = said[3]["result"].to_string();
    assert!(found.contains("code/file") && !found.contains(".ssh") && !found.contains(".aws"), "{found}");
    fixture.board.assert_invariants().await;
}
