//! What a model sees, and what it never sees.

use std::os::unix::fs::symlink;

use protocol::{SessionId, TaskId, Turn, TurnPart, TurnRole};
use serde_json::json;

use super::*;
use crate::{config::Timeouts, model::ToolCall};

fn agent() -> Agent {
    Agent {
        id: "dev".to_owned(),
        name: "Dev".to_owned(),
        description: String::new(),
        model: "demo/tour".to_owned(),
        max_steps: 10,
        temperature: None,
        max_tokens: None,
        context_window: None,
        mode: protocol::Mode::AlwaysExecute,
        tools: vec![],
        spaces: vec!["/src/app".into()],
        env: vec![],
        system_prompt: Some("Speak like a pirate.".to_owned()),
        limits: protocol::Limits::default(),
        timeouts: Timeouts::default(),
        stream: None,
        not_in_effect: vec![],
        refuses: None,
    }
}

fn submit(goal: &str, messages: Vec<Turn>) -> TaskSubmit {
    let (task, session) = (TaskId::new(1), SessionId::new(1));
    let base = json!({ "taskId": task, "attempt": 1, "sessionId": session, "agentId": "dev", "goal": goal });
    TaskSubmit { messages, ..serde_json::from_value(base).expect("a task") }
}

fn place() -> Place {
    Place { os: "linux x86_64".to_owned(), today: "2026-11-20".to_owned(), confined: true }
}

fn home_with(files: &[(&str, &str)]) -> (tempfile::TempDir, Home) {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        std::fs::write(path, text).expect("a file");
    }
    let home = Home::at(folder.path());
    (folder, home)
}

fn messages(submit: &TaskSubmit) -> Vec<Message> {
    super::messages(submit, &Home::at("/home/viber"))
}

#[tokio::test]
async fn the_parts_stand_in_their_order_and_the_same_input_gives_the_same_prompt() {
    let (_folder, home) = home_with(&[
        ("workspace/MEMORY.md", "the tests are slow"),
        ("workspace/soul.md", "be brief"),
        ("USER.md", "Ada"),
        ("workspace/AGENTS.md", "conventions"),
    ]);
    let prompt = system(&agent(), &home, &place()).await;
    let parts = [
        "UNDERSTAND",
        "PLAN",
        "IMPLEMENT",
        "VERIFY",
        "COMMIT & REPORT",
        "<soul>\nbe brief\n</soul>",
        "<user>\nAda",
        "<memory>\nthe tests",
        "<agents>\nconv",
        "Working directory: /src/app",
        "Speak like a pirate.",
    ];
    let found: Vec<_> =
        parts.iter().map(|part| prompt.find(part).unwrap_or_else(|| panic!("{part} in {prompt}"))).collect();
    assert!(found.is_sorted(), "{found:?}");
    assert!(!prompt.contains("<identity>") && prompt.contains("Date: 2026-11-20\n"));
    assert_eq!(prompt, system(&agent(), &home, &place()).await);
}

#[tokio::test]
async fn an_agents_own_file_wins_over_the_workspace_and_large_ones_are_cut() {
    let large = "x".repeat(100_000);
    let (_folder, home) =
        home_with(&[("agents/dev/SOUL.md", "mine"), ("workspace/SOUL.md", "ours"), ("workspace/MEMORY.md", &large)]);
    let prompt = system(&agent(), &home, &place()).await;
    assert!(prompt.contains("mine") && !prompt.contains("ours\n</soul>"));
    assert!(prompt.contains("bytes omitted") && prompt.len() < 30_000);
}

#[tokio::test]
async fn a_link_out_of_the_workspace_is_not_followed() {
    let (folder, home) = home_with(&[("secrets/openai", "sk-secret"), ("workspace/x", "")]);
    symlink(folder.path().join("secrets/openai"), home.workspace().join("MEMORY.md")).expect("a link");
    std::fs::hard_link(folder.path().join("secrets/openai"), home.workspace().join("USER.md")).expect("a link");
    assert!(!system(&agent(), &home, &place()).await.contains("sk-secret"));
}

#[test]
fn the_goal_is_last_and_verbatim_and_an_empty_context_is_no_message() {
    let goal = "  Do it\n\n<now>  ";
    assert_eq!(messages(&submit(goal, vec![])), [Message::User(goal.to_owned())]);
    let with = TaskSubmit {
        plan: Some(json!({ "markdown": "1. look" })),
        memory: vec![json!("tabs")],
        ..submit(goal, vec![])
    };
    let all = messages(&with);
    assert_eq!((all.len(), &all[1]), (2, &Message::User(goal.to_owned())));
    let Message::User(context) = &all[0] else { panic!("{all:?}") };
    assert!(context.contains("<plan>\n1. look\n</plan>") && context.contains("<memory>\n- tabs"));
}

#[test]
fn every_call_of_the_history_has_its_result_and_a_unique_id() {
    let call = |id: &str| TurnPart::ToolCall {
        call_id: id.to_owned(),
        tool: "shell".to_owned(),
        args: json!({ "command": "ls" }),
        result: "a b".to_owned(),
        ok: true,
    };
    let text = |text: &str| TurnPart::Text { text: text.to_owned() };
    let turn = |role, parts| Turn { role, parts };
    let history = vec![
        turn(TurnRole::User, vec![TurnPart::Notice { text: "older turns were left out".to_owned() }, text("hi")]),
        turn(
            TurnRole::Assistant,
            vec![text("let me see"), call("a/1"), call("b"), text("again"), call("a/1"), text("done")],
        ),
        turn(TurnRole::User, vec![]),
    ];
    let all = messages(&submit("next", history));
    let shape: Vec<String> = all
        .iter()
        .map(|message| match message {
            Message::User(text) => format!("user {text}"),
            Message::Assistant(said) => format!(
                "assistant {} {}",
                said.text,
                said.calls.iter().map(|call: &ToolCall| call.id.as_str()).collect::<Vec<_>>().join("+")
            ),
            Message::Tool { call_id, .. } => format!("tool {call_id}"),
        })
        .collect();
    assert_eq!(
        shape,
        [
            "user [older turns were left out]\n\nhi",
            "assistant let me see a_1+b",
            "tool a_1",
            "tool b",
            "assistant again a_1_2",
            "tool a_1_2",
            "assistant done ",
            "user next"
        ]
    );
}
