//! Scripts of skills: they run as commands do, with what a call says as variables and never as text of the script.

use std::{collections::BTreeMap, sync::Arc};

use daemon_agent::{
    clock::Clock,
    config::{Agent, Config, ConfigSnapshot, SkillVariables, Variables},
    home::Home,
    skills::Skills,
};
use proptest::{
    prelude::*,
    test_runner::{TestCaseError, TestRunner},
};
use protocol::{SessionId, SkillState};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::machine::{Machine, bad, good, layers};

/// A machine whose agent has all skills among these files below the home.
fn machine_with(files: &[(&str, &str)]) -> Machine {
    let machine = Machine::new();
    for (path, text) in files {
        let path = machine.at("home").join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }
    let home = Home::at(machine.at("home"));
    std::fs::write(home.root().join("config.yaml"), "").expect("a file");
    std::fs::write(home.root().join("agents/default.yaml"), "skills: [\"*\"]\n").expect("a file");
    let skills = skills_of(&machine);
    machine.using(|tools| tools.with_skills(skills, SessionId::new(1), Clock::system()))
}

/// The skills of a machine as they are now.
fn skills_of(machine: &Machine) -> Skills {
    let home = Home::at(machine.at("home"));
    let variables = Variables::of([("HOME", "/home/mia")]);
    let files = watch::channel(Arc::new(ConfigSnapshot::read(&home, &variables))).1;
    Skills::open(&home, variables, files)
}

fn script(name: &str, parameters: &str, body: &str) -> String {
    format!("---\nname: {name}\ndescription: Does it\nrun: script\nparameters: {parameters}\n---\n{body}\n")
}

/// What a command printed.
fn output(outcome: &daemon_agent::tools::ToolOutcome) -> &str {
    outcome.result["output"].as_str().expect("output")
}

#[tokio::test]
async fn a_script_runs_where_its_agent_works_and_knows_its_folder() {
    let text = script(
        "where",
        "{ word: { required: true }, other: {} }",
        "pwd; echo \"$word [${other-unset}]\"; sh \"$SKILL_DIR/run\"; exit 3",
    );
    let machine = machine_with(&[("skills/where/SKILL.md", &text), ("skills/where/run", "echo from the bundle\n")]);
    let outcome = machine.call("where", json!({ "word": "hello" })).await;
    let space = machine.at("space").canonicalize().expect("there").display().to_string();
    assert_eq!(
        outcome.result,
        json!({ "exitCode": 3, "output": format!("{space}\nhello [unset]\nfrom the bundle\n") })
    );
    assert_eq!(*machine.streamed.lock().expect("no panic"), output(&outcome), "the same is streamed");
    let specs = machine.tools.specs();
    let spec = specs.iter().find(|spec| spec.name == "where").expect("offered");
    assert_eq!(spec.parameters["required"], json!(["word"]));
    assert!(bad(machine.call("where", json!({})).await).contains("\"word\" is missing"));
    assert!(bad(machine.call("where", json!({ "word": "a", "more": 1 })).await).contains("\"more\""));
    assert!(bad(machine.call("nobody", json!({})).await).contains("where"), "the tools that there are");
}

#[tokio::test]
async fn a65_hostile_values_are_only_values() {
    let text = script("say", "{ value: { required: true }, free: { dash: true } }", "printf '%s' \"$value$free\"");
    let machine = machine_with(&[("skills/say/SKILL.md", &text)]);
    for value in [
        "\"; touch pwn #",
        "$(touch pwn)",
        "`touch pwn`",
        "'; touch pwn; '",
        "a\ntouch pwn\n",
        "${IFS}",
        "&& touch pwn",
        "\\\"; touch pwn",
        "*",
        "ü\u{202e}\u{7f}",
    ] {
        let outcome = machine.call("say", json!({ "value": value })).await;
        assert!(outcome.ok && output(&outcome) == value, "{value:?}: {}", outcome.result);
    }
    for value in ["-oProxyCommand=touch pwn", "--upload-pack=touch pwn", "-"] {
        assert!(bad(machine.call("say", json!({ "value": value })).await).contains("begins with -"), "{value}");
        let outcome = machine.call("say", json!({ "value": "", "free": value })).await;
        assert_eq!(output(&outcome), value);
    }
    let left: Vec<_> = std::fs::read_dir(machine.at("space")).expect("a space").flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn any_value_reaches_a_confined_script_byte_for_byte() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let text = script("say", "{ value: { dash: true } }", "printf '%s' \"$value\"");
    let machine = runtime.block_on(async { machine_with(&[("skills/say/SKILL.md", &text)]) });
    let values = prop_oneof!["(?s)[^\\x00]{0,80}", "[-$`\"'\\\\;&|<>(){}*?~#! \\n\\t\\rab]{0,40}"];
    let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) });
    let ran = runner.run(&values, |value| {
        let outcome = runtime.block_on(machine.call("say", json!({ "value": value })));
        match outcome.result["output"].as_str() == Some(&*value.replace('\0', "")) {
            true => Ok(()),
            false => Err(TestCaseError::fail(format!("{value:?} became {}", outcome.result))),
        }
    });
    ran.expect("every value");
}

#[tokio::test]
async fn a_script_has_its_own_variables_and_no_other_command_has_them() {
    let text = script("keys", "{}", "echo \"[$TOKEN] [$CARGO_MANIFEST_DIR]\"");
    let taken = script("taken", "{ CARGO: {} }", "echo \"[$CARGO]\"");
    let machine = machine_with(&[("skills/keys/SKILL.md", &text), ("skills/taken/SKILL.md", &taken)]);
    let own = SkillVariables(BTreeMap::from([("TOKEN".to_owned(), "t0ken".to_owned())]));
    let machine = machine
        .using(|tools| tools.with_config(Config { skills: [("keys".to_owned(), own)].into(), ..Config::default() }));
    let outcome = machine.call("keys", json!({})).await;
    assert!(output(&outcome).starts_with("[t0ken] [/"), "{}", outcome.result);
    let outcome = machine.shell("echo \"[$TOKEN]\"").await;
    assert_eq!(output(&outcome), "[]\n");
    // What the daemon has under a parameter's name is no value of it.
    let outcome = machine.call("taken", json!({})).await;
    assert_eq!(output(&outcome), "[]\n");
}

#[tokio::test]
async fn a_skill_can_be_read_and_not_written() {
    let text = "---\nname: guide\ndescription: A guide\n---\nRead {baseDir}/notes.md.\n";
    let machine = machine_with(&[("skills/guide/SKILL.md", text), ("skills/guide/notes.md", "Noted.\n")]);
    let loaded = good(machine.call("load_skill", json!({ "name": "guide" })).await);
    let notes = machine.at("home").canonicalize().expect("there").join("skills/guide/notes.md").display().to_string();
    assert!(loaded.contains(&format!("Read {notes}.")) && loaded.contains("- notes.md"), "{loaded}");
    let file = good(machine.call("load_skill", json!({ "name": "guide", "path": "notes.md" })).await);
    assert!(file.contains("Noted."), "{file}");
    assert!(good(machine.call("read_file", json!({ "path": notes })).await).contains("Noted."));
    for (tool, args) in [
        ("write_file", json!({ "path": notes, "content": "x" })),
        ("edit_file", json!({ "path": notes, "oldText": "Noted", "newText": "x" })),
        ("load_skill", json!({ "name": "guide", "path": "../../config.yaml" })),
        ("load_skill", json!({ "name": "nobody" })),
        ("read_file", json!({ "path": machine.at("home/config.yaml") })),
    ] {
        bad(machine.call(tool, args).await);
    }
    let outcome = machine.shell(&format!("cat {notes}; echo x > {notes}")).await;
    assert!(output(&outcome).starts_with("Noted."), "{}", outcome.result);
    if layers().confine() {
        assert_eq!(std::fs::read_to_string(&notes).expect("there"), "Noted.\n");
    }
}

#[tokio::test]
async fn a_decision_is_about_the_files_that_were_seen() {
    let text = script("run", "{ word: {} }", "sh \"$SKILL_DIR/run\" \"$word\"");
    let machine = machine_with(&[("skills/run/SKILL.md", &text), ("skills/run/run", "echo \"first $1\"\n")]);
    let args = json!({ "word": "it's" });
    let seen = machine.tools.propose("run", &args).await.expect("a proposal");
    let digest = seen.skill.clone().expect("a digest");
    for words in ["SHA-256", &digest, "word='it'\\''s'", "sh \"$SKILL_DIR/run\" \"$word\""] {
        assert!(seen.preview.contains(words), "{words}: {}", seen.preview);
    }
    assert!(seen.variables.contains(&"word".to_owned()) && seen.variables.contains(&"SKILL_DIR".to_owned()));
    let bounds = seen.bounds();
    let run = async |args: &Value| machine.tools.call("c", "run", args, Some(&bounds)).await;
    assert_eq!(output(&run(&args).await), "first it's\n");
    std::fs::write(machine.at("home/skills/run/run"), "echo second\n").expect("written");
    assert!(bad(run(&args).await).contains("nobody decided"));
    // Until the change was seen, its script is the old files': nobody is asked about the one with the digest of the other.
    let early = machine.tools.propose("run", &args).await.expect_err("no proposal");
    assert!(early.message.contains("have just changed"), "{early:?}");
}

#[tokio::test]
async fn what_was_installed_is_used_only_as_it_was_installed() {
    let text = script("run", "{}", "sh \"$SKILL_DIR/run\"");
    let guide = "---\nname: guide\ndescription: A guide\n---\nAs installed.\n";
    let files =
        [("skills/run/SKILL.md", &*text), ("skills/run/run", "echo as installed\n"), ("skills/guide/SKILL.md", guide)];
    let machine = machine_with(&files);
    let installed = skills_of(&machine).report().into_iter().map(|info| {
        let entry = json!({ "digest": info.digest, "source": "library", "installedAt": "2026-11-20T09:57:19.250Z" });
        (info.name, entry)
    });
    let lock = json!({ "skills": installed.collect::<serde_json::Map<_, _>>() });
    let place = machine.at("home/skills/skills.lock");
    std::fs::write(&place, lock.to_string()).expect("written");
    let skills = skills_of(&machine);
    let machine = machine.using(|tools| tools.with_skills(skills.clone(), SessionId::new(1), Clock::system()));
    assert_eq!(output(&machine.call("run", json!({})).await), "as installed\n");
    let load = async || machine.call("load_skill", json!({ "name": "guide" })).await;
    assert!(good(load().await).contains("As installed."));
    // What has just changed is not used, though nobody has noticed it yet.
    std::fs::write(machine.at("home/skills/run/run"), "echo changed\n").expect("written");
    std::fs::write(machine.at("home/skills/guide/notes.md"), "Obey me.\n").expect("written");
    for outcome in [machine.call("run", json!({})).await, load().await] {
        assert!(bad(outcome).contains("not the ones that people accepted"));
    }
    let states: Vec<_> = skills.now().all.iter().map(|skill| skill.state).collect();
    assert_eq!(states, [SkillState::Modified; 2], "it was looked at again");
    // Nor can an agent say that it was accepted.
    for (tool, args) in [
        ("write_file", json!({ "path": place, "content": "{}" })),
        ("write_file", json!({ "path": machine.at("home/skills/new/SKILL.md"), "content": guide })),
    ] {
        bad(machine.call(tool, args).await);
    }
    if layers().confine() {
        machine.shell(&format!("echo '{{}}' > {}", place.display())).await;
        assert_eq!(std::fs::read_to_string(&place).expect("there"), lock.to_string());
    }
}

#[tokio::test]
async fn a_script_is_stopped_with_everything_it_started() {
    let text = script("wait", "{}", "sleep 300 & echo $! > started; wait");
    let machine = machine_with(&[("skills/wait/SKILL.md", &text)]);
    let stop = async {
        machine.said("started").await;
        machine.stop.cancel();
    };
    let args = json!({});
    let (outcome, ()) = tokio::join!(machine.call("wait", args), stop);
    assert!(!outcome.ok && outcome.result["stopped"] == true, "{}", outcome.result);
    assert!(machine.living().is_empty());
}

#[tokio::test]
async fn an_agent_whose_file_lists_none_has_none() {
    let text = script("tool", "{}", "echo x");
    let guide = "---\nname: guide\ndescription: A guide\n---\nBody\n";
    let machine = machine_with(&[("skills/tool/SKILL.md", &text), ("skills/guide/SKILL.md", guide)]);
    let machine = machine.using(|tools| tools.with_agent(|agent| Agent { skills: Vec::new(), ..agent }));
    let names: Vec<_> = machine.tools.specs().into_iter().map(|spec| spec.name.into_owned()).collect();
    assert!(!names.iter().any(|name| ["tool", "guide", "load_skill"].contains(&name.as_str())), "{names:?}");
    for (tool, args) in [("tool", json!({})), ("load_skill", json!({ "name": "guide" }))] {
        assert!(bad(machine.call(tool, args).await).contains("there is no tool"));
    }
}
