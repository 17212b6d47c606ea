//! Skills on a viber: files that people drop into its home, tools and instructions for agents that are given them.

use std::{path::PathBuf, sync::Arc};

use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply, tasks::id};
use serde_json::{Value, json};

/// The specification's own example.
const GIT_COMMIT: &str = "---\nname: git-commit\ndescription: Stage changes and commit with a message.\nparameters:\n  message:\n    type: string\n    description: The commit message\n    required: true\n---\ngit add .\ngit commit -m \"$message\"\n";
/// Instructions with a file beside them.
const RELEASE: &str = "---\nname: release\ndescription: How releases are made here. Use it before a release.\n---\n# Releases\n\nAsk the owl first; {baseDir}/owl.md says where it lives.\n";

crate::on_both_databases!(the_specifications_example_commits, instructions_are_listed_and_loaded_when_they_are_needed,);

/// A viber with these files below its home, whose agent has these further keys.
async fn with_skills(engine: Engine, agent: &str, files: &[(&str, &str)], script: Vec<Reply>) -> Fixture<Viber> {
    let fixture = Fixture::on(engine).scripted_model(script).agent(agent).with_enrolled_viber().await;
    files.iter().for_each(|(path, text)| fixture.viber.write(path, text));
    fixture.running().await
}

fn offered(body: &Value) -> Vec<String> {
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().filter_map(|tool| tool["function"]["name"].as_str().map(str::to_owned)).collect()
}

fn system(body: &Value) -> &str {
    body["messages"][0]["content"].as_str().expect("a system prompt")
}

/// What the `n`th call (from 0) of a task came back with, as text.
async fn result(fixture: &Fixture<Viber>, task: &Value, n: usize) -> (bool, String) {
    let results = fixture.events_of_kind(task, "tool-result").await;
    let found = results.get(n).unwrap_or_else(|| panic!("no result {n} in {results:#?}"));
    let text = found["result"].as_str().or(found["result"]["output"].as_str());
    (found["ok"] == true, text.map_or_else(|| found["result"].to_string(), str::to_owned))
}

fn git(folder: PathBuf, args: &[&str]) -> String {
    let mut command = std::process::Command::new("git");
    let done = command.arg("-C").arg(folder).args(args).output().expect("git runs");
    assert!(done.status.success(), "{args:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

async fn the_specifications_example_commits(engine: Engine) {
    let message = "Mend the owl's \"house\" $(touch pwn)";
    let script = vec![Reply::call("git-commit", json!({ "message": message })), Reply::text("Committed.")];
    let files = [("skills/git/commit.skill.md", GIT_COMMIT)];
    let fixture = with_skills(engine, "mode: always_execute\nskills: [git-commit]\n", &files, script).await;
    let space = fixture.viber.space();
    git(space.clone(), &["init", "-q"]);
    for (key, value) in [("user.name", "Owl"), ("user.email", "owl@example.org")] {
        git(space.clone(), &["config", key, value]);
    }
    std::fs::write(space.join("house.txt"), "mended\n").expect("written");
    let task = fixture.play("Commit this").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(ok, "{said}");
    assert_eq!(git(space.clone(), &["log", "--format=%s", "-n1"]).trim(), message);
    assert!(!space.join("pwn").exists());
    let request = &fixture.llm.requests()[0].body;
    let tools = request["tools"].as_array().expect("tools");
    let tool = tools.iter().find(|tool| tool["function"]["name"] == "git-commit").expect("offered");
    let schema = &tool["function"]["parameters"];
    assert_eq!((&schema["required"], &schema["additionalProperties"]), (&json!(["message"]), &json!(false)));
    assert!(!offered(request).contains(&"load_skill".to_owned()), "there is nothing to load");
    fixture.board.assert_invariants().await;
}

async fn instructions_are_listed_and_loaded_when_they_are_needed(engine: Engine) {
    let script = vec![
        Reply::call("load_skill", json!({ "name": "release" })),
        Reply::call("load_skill", json!({ "name": "release", "path": "owl.md" })),
        Reply::text("Asked."),
        Reply::text("Released."),
    ];
    let files = [("skills/release/SKILL.md", RELEASE), ("skills/release/owl.md", "In the oak.\n")];
    let fixture = with_skills(engine, "mode: always_ask\nskills: [\"*\"]\n", &files, script).await;
    let task = fixture.play("Make a release").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    let requests = fixture.llm.requests();
    assert!(offered(&requests[0].body).contains(&"load_skill".to_owned()));
    let prompt = system(&requests[0].body);
    assert!(prompt.contains("- release: How releases are made here."), "{prompt}");
    assert!(!requests[0].body.to_string().contains("Ask the owl first"), "it costs nothing until it is loaded");
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(ok && said.contains("Ask the owl first; /") && said.contains("- owl.md"), "{said}");
    assert!(result(&fixture, &task, 1).await.1.contains("In the oak."));
    let context = fixture.events_of_kind(&task, "context").await;
    let layers = context.last().expect("a report")["layers"].as_array().cloned().expect("layers");
    let skills = layers.iter().find(|layer| layer["layer"] == "skills").expect("the layer of skills");
    let items: Vec<_> = skills["items"].as_array().expect("items").iter().map(|item| &item["name"]).collect();
    assert_eq!(items, ["index", "loaded in the conversation"], "{skills:#}");
    // The conversation has its text: it is not sent twice.
    fixture.play_with("Go on", json!({ "sessionId": id(&task, "sessionId") })).await;
    let last = fixture.llm.requests().pop().expect("a request").body.to_string();
    assert_eq!(last.matches("Ask the owl first").count(), 1, "{last}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_goal_that_names_a_skill_loads_it_for_its_session() {
    let files = [("skills/release/SKILL.md", RELEASE)];
    let script = vec![Reply::text("One."), Reply::text("Two."), Reply::text("Three.")];
    let mut fixture = with_skills(Engine::Sqlite, "skills: [release]\n", &files, script).await;
    let task = fixture.play("/release the next version").await;
    let first = fixture.llm.requests()[0].body.clone();
    assert!(system(&first).contains("Ask the owl first"), "{first}");
    let goal = first["messages"].as_array().expect("messages").last().expect("the goal")["content"].clone();
    assert_eq!(goal, "/release the next version", "verbatim");
    let notices = fixture.events_of_kind(&task, "notice").await;
    assert!(notices.iter().any(|notice| notice["text"] == "The skill release was loaded."), "{notices:#?}");
    // It stays with the session, also when another process goes on with it.
    fixture.viber.stop().await;
    let fixture = fixture.running().await;
    fixture.play_with("And now?", json!({ "sessionId": id(&task, "sessionId") })).await;
    fixture.play("Another session").await;
    let requests = fixture.llm.requests();
    let has = |n: usize| system(&requests[n].body).contains("Ask the owl first");
    assert!(has(1) && !has(2));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn an_agent_whose_file_lists_no_skills_has_none() {
    let files = [("skills/git/commit.skill.md", GIT_COMMIT), ("skills/release/SKILL.md", RELEASE)];
    let script = vec![Reply::call("git-commit", json!({ "message": "x" })), Reply::text("No.")];
    let fixture = with_skills(Engine::Sqlite, "mode: always_execute\n", &files, script).await;
    let task = fixture.play("/release it").await;
    let request = fixture.llm.requests()[0].body.clone();
    let tools = offered(&request);
    assert!(!tools.contains(&"git-commit".to_owned()) && !tools.contains(&"load_skill".to_owned()), "{tools:?}");
    assert!(!system(&request).contains("release") && !system(&request).contains("skill"), "{}", system(&request));
    let (ok, said) = result(&fixture, &task, 0).await;
    assert!(!ok && said.contains("there is no tool"), "{said}");
    let notices = fixture.events_of_kind(&task, "notice").await;
    let said = "The skill release was not loaded: this agent does not have it.";
    assert!(notices.iter().any(|notice| notice["text"] == said), "{notices:#?}");
}

#[tokio::test]
async fn an_edit_is_in_effect_at_the_next_call_and_a_broken_one_keeps_the_last() {
    let fixture = with_skills(Engine::Sqlite, "mode: always_execute\nskills: [echo]\n", &[], vec![]).await;
    let skill = |word: &str| {
        format!("---\nname: echo\ndescription: Says {word}\nparameters: {{}}\n---\n```sh\necho {word}\n```\n")
    };
    let file = fixture.viber.home().join("skills/echo/SKILL.md");
    let steps = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let (written, counted) = (file.clone(), steps.clone());
    let texts = [skill("first"), skill("second"), "---\nname: echo\ndescription: [broken]\n---\n".to_owned()];
    fixture.llm.answers(move |_| {
        let n = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        match (n % 2, texts.get(n / 2)) {
            (_, None) => Reply::text("Done."),
            // Each change comes while the task runs, a second before the next call of the model.
            (0, Some(text)) => {
                std::fs::create_dir_all(written.parent().expect("a folder")).expect("a folder");
                std::fs::write(&written, text).expect("written");
                Reply::call("shell", json!({ "command": "sleep 1" }))
            }
            _ => Reply::call("echo", json!({})),
        }
    });
    let task = fixture.play("Say it").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    for (n, expected) in [(1, "first\n"), (3, "second\n"), (5, "second\n")] {
        assert_eq!(result(&fixture, &task, n).await, (true, expected.to_owned()), "{n}");
    }
    let description = |n: usize| fixture.llm.requests()[n].body["tools"].to_string();
    assert!(!description(0).contains("Says") && description(1).contains("Says first"));
    assert!(description(3).contains("Says second") && description(5).contains("Says second"));
    let viber = &fixture.viber;
    let said = viber.cli(&["skill", "validate", &file.parent().expect("a folder").display().to_string()]).await;
    assert!(said.code() == 1 && said.err.contains("SKILL.md:3: description: expected text"), "{said:?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a65_what_a_call_says_is_never_text_of_the_script() {
    let say = "---\nname: say\ndescription: Says it\nparameters: { value: { required: true } }\n---\n```sh\nprintf '%s' \"$value\"\n```\n";
    let values = [
        "\"; touch pwn #",
        "$(touch pwn)",
        "`touch pwn`",
        "a\ntouch pwn",
        "-oProxyCommand=touch pwn",
        "--upload-pack=x",
    ];
    let calls = values.iter().map(|value| Reply::call("say", json!({ "value": value })));
    let script = calls.chain([Reply::text("Said.")]).collect();
    let files = [("skills/say/SKILL.md", say)];
    let fixture = with_skills(Engine::Sqlite, "mode: always_execute\nskills: [say]\n", &files, script).await;
    let task = fixture.play("Say it").await;
    assert_eq!(task["state"], "completed", "{task:#}");
    for (n, value) in values.iter().enumerate() {
        let (ok, said) = result(&fixture, &task, n).await;
        if value.starts_with('-') {
            assert!(!ok && said.contains("begins with -"), "{value}: {said}");
        } else {
            assert_eq!((ok, said.as_str()), (true, *value));
        }
    }
    let left: Vec<_> = std::fs::read_dir(fixture.viber.space()).expect("a space").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn what_an_agent_lacks_is_told_until_it_is_there() {
    let fixture = with_skills(Engine::Sqlite, "skills: [release]\n", &[], vec![]).await;
    let agent = async || {
        let viber = fixture.operator.get(&format!("/api/v1/vibers/{}", fixture.viber_id)).await.expect(200).json();
        viber["agents"][0].clone()
    };
    let told = eventually("what is missing", async || {
        let agent = agent().await;
        (!agent["notInEffect"].is_null()).then_some(agent)
    });
    let told = told.await;
    assert_eq!((&told["notInEffect"], &told["skills"]), (&json!(["skills: release"]), &json!(["release"])), "{told:#}");
    fixture.viber.write("skills/release/SKILL.md", RELEASE);
    eventually("the skill", async || agent().await["notInEffect"].is_null().then_some(())).await;
}

#[tokio::test]
async fn rules_for_commands_hold_for_scripts_and_what_they_may_not_is_not_run() {
    let push = "---\nname: publish\ndescription: Publish it\nparameters: {}\n---\ngit push origin main\n";
    for rule in ["shell(git push **)", "skill:publish"] {
        let policy = format!("deny: [\"{rule}\"]\n");
        let files = [("skills/publish/SKILL.md", push), ("policy.yaml", policy.as_str())];
        let script = vec![Reply::call("publish", json!({})), Reply::text("No.")];
        let fixture = with_skills(Engine::Sqlite, "mode: always_execute\nskills: [publish]\n", &files, script).await;
        let task = fixture.play("Publish").await;
        let (ok, said) = result(&fixture, &task, 0).await;
        assert!(!ok && said.contains(rule) && said.contains("policy.yaml"), "{said}");
    }
}

#[tokio::test]
async fn a_question_shows_the_script_and_its_values_and_is_about_this_version() {
    let files = [("skills/git/commit.skill.md", GIT_COMMIT)];
    let call = || Reply::call("git-commit", json!({ "message": "It's mended" }));
    let script = vec![call(), call(), Reply::text("Done.")];
    let fixture = with_skills(Engine::Sqlite, "mode: always_ask\nskills: [git-commit]\n", &files, script).await;
    let task = fixture.submit("Commit").await;
    let asked = async |but: &Value| {
        eventually("a question", async || {
            let list = fixture.operator.get("/api/v1/approvals?state=pending").await.expect(200).json();
            list["items"].get(0).filter(|asked| asked["digest"] != *but).cloned()
        })
        .await
    };
    let first = asked(&Value::Null).await;
    let preview = first["preview"].as_str().expect("a preview");
    assert!(
        preview.contains("git commit -m \"$message\"") && preview.contains("message='It'\\''s mended'"),
        "{preview}"
    );
    assert!(first["rule"].is_null(), "a rule would allow every version: {first:#}");
    let other = GIT_COMMIT.replace("git add .", "git add --all .");
    fixture.viber.write("skills/git/commit.skill.md", &other);
    let allow = async |asked: &Value| {
        let body = json!({ "decision": "allow", "digest": asked["digest"] });
        fixture.operator.post(&format!("/api/v1/approvals/{}", id(asked, "id")), &body).await.expect(200);
    };
    allow(&first).await;
    let second = asked(&first["digest"]).await;
    allow(&second).await;
    let ended = fixture.ended(&task).await;
    assert_eq!(ended["state"], "completed", "{ended:#}");
    let results = fixture.events_of_kind(&task, "tool-result").await;
    // The space is no repository, which only a script that runs finds out.
    let ran: Vec<_> = results.iter().map(|result| result["result"]["exitCode"].is_number()).collect();
    assert_eq!(ran, [false, true], "what was seen first was not run: {results:#?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn skills_are_listed_checked_and_run_by_hand() {
    let needs = "---\nname: needy\ndescription: Needs something\nrequires: { bins: [no-such-program] }\n---\nBody\n";
    let hello = "---\nname: hello\ndescription: Says hello\nparameters: { who: { required: true } }\n---\n```sh\necho \"hello $who\"\n```\n";
    let files = [
        ("skills/hello/SKILL.md", hello),
        ("skills/needy/SKILL.md", needs),
        ("skills/bad/SKILL.md", "---\nname: ../bad\ndescription: d\n---\n"),
    ];
    let viber = Viber::fresh("lab");
    viber.write("agents/default.yaml", &format!("skills: [hello]\nspaces: [{}]\n", viber.space().display()));
    files.iter().for_each(|(path, text)| viber.write(path, text));
    let listed = viber.cli(&["skill", "list"]).await;
    assert!(listed.code() == 1 && listed.err.contains("a skill is broken"), "{listed:?}");
    let list = listed.out;
    for words in [
        "hello (ready) skills/hello",
        "a script: 1 sh block",
        "offered to default",
        "needy (needs setup)",
        "missing bin: no-such-program",
        "bad (error)",
        "skills/bad/SKILL.md:2:",
    ] {
        assert!(list.contains(words), "{words}: {list}");
    }
    let lines = viber.cli(&["skill", "list", "--json"]).await.out;
    let all: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let hello = all.iter().find(|skill| skill["name"] == "hello").expect("listed");
    assert_eq!(
        (&hello["kind"], &hello["state"], &hello["agents"]),
        (&json!("tool"), &json!("ready"), &json!(["default"]))
    );
    let ran = viber.cli(&["skill", "run", "hello", "who=$(world)"]).await.good();
    assert_eq!(ran, "hello $(world)\n");
    for (args, words) in [
        (["run", "hello", "whom=x"], "whom"),
        (["run", "needy", "x=y"], "no skill"),
        (["run", "hello", "who"], "NAME=VALUE"),
    ] {
        let said = viber.cli(&[&["skill"], &args[..]].concat()).await;
        assert!(said.code() != 0 && said.err.contains(words), "{said:?}");
    }
    let good = viber.cli(&["skill", "validate", &viber.home().join("skills/hello").display().to_string()]).await.good();
    assert!(good.contains("hello: good"), "{good}");
}
