//! The tour, called as the agent loop calls it.

use super::*;
use crate::model::ToolSpec;

fn request(goal: &str, tools: &[&'static str]) -> ModelRequest {
    let tools =
        tools.iter().map(|name| ToolSpec { name: (*name).into(), description: "".into(), parameters: json!({}) });
    ModelRequest {
        model: "tour".to_owned(),
        system: "rules\nWorkspace: /home/me/workspace\nmore".to_owned(),
        messages: vec![Message::User(goal.to_owned())],
        tools: tools.collect(),
        temperature: None,
        max_tokens: None,
        context_window: 1000,
    }
}

/// Plays to the end: the tools that were called, their arguments, everything that was said.
async fn play(request: &mut ModelRequest, ok: bool) -> (Vec<String>, Vec<Value>, String) {
    let demo = DemoModel::with_pace(Duration::ZERO);
    let (mut tools, mut all_args, mut text) = (vec![], vec![], String::new());
    for _ in 0..10 {
        let (to, mut from) = mpsc::channel(10_000);
        let answer = demo.call(request, &to).await;
        drop(to);
        let mut streamed = String::new();
        while let Some(delta) = from.recv().await {
            if let Delta::Text(word) = delta {
                streamed.push_str(&word);
            }
        }
        assert_eq!(streamed, answer.message.text);
        text.push_str(&streamed);
        let call = answer.message.calls.first().cloned();
        request.messages.push(Message::Assistant(answer.message));
        let Some(call) = call else { break };
        tools.push(call.name.clone());
        all_args.push(call.args.expect("an object"));
        request.messages.push(Message::Tool {
            call_id: call.id,
            tool: call.name,
            content: "it said so".to_owned(),
            ok,
            pictures: vec![],
        });
    }
    (tools, all_args, text)
}

#[tokio::test]
async fn the_tour_shows_every_kind_of_tool_in_the_workspace_and_says_what_it_is() {
    let mut request = request("Fix the build\nplease", &["read_file", "write_file", "list_files", "shell"]);
    let (tools, args, text) = play(&mut request, true).await;
    assert_eq!(tools, ["list_files", "write_file", "read_file", "shell"]);
    assert_eq!(
        (&args[0]["path"], &args[1]["path"]),
        (&json!("/home/me/workspace"), &json!("/home/me/workspace/tour.md"))
    );
    for part in
        ["a script and not a language model", "“Fix the build”", "daemon-agent key set", "config.yaml", "`shell`"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[tokio::test]
async fn a_follow_up_is_answered_for_what_it_is() {
    let all = ["read_file", "list_files", "write_file", "shell"];
    for (said, tool) in [
        ("run it again", Some("shell")),
        ("show me the file", Some("read_file")),
        ("thanks", Some("list_files")),
        ("how do I add a key?", None),
    ] {
        let mut request = request("begin", &all);
        play(&mut request, true).await;
        request.messages.push(Message::User(said.to_owned()));
        let (tools, _, text) = play(&mut request, true).await;
        assert_eq!(tools.first().map(String::as_str), tool, "{said}");
        assert!(tools.len() <= 1 && text.contains(&format!("“{said}”")) && text.contains("key set"), "{text}");
    }
}

#[tokio::test]
async fn tools_that_are_missing_or_fail_are_said_so() {
    let (tools, _, text) = play(&mut request("x", &["shell"]), false).await;
    assert_eq!(tools, ["shell"]);
    assert!(text.contains("did not work") && text.contains("No tool was used"), "{text}");
    assert!(play(&mut request("x", &[]), true).await.0.is_empty());
}

#[tokio::test]
async fn a_conversation_is_summarized_and_a_goal_without_tools_is_not() {
    let demo = DemoModel::with_pace(Duration::ZERO);
    let (to, _from) = mpsc::channel(10_000);
    let mut asked = request("<conversation>\nPerson:\nMake it blue\n\nAgent:\nDone.\n\n</conversation>", &[]);
    asked.system = format!("Summarize it.\n{}\n", protocol::context::SUMMARY_HEADING);
    let said = demo.call(&asked, &to).await.message;
    let expected =
        "## Session Summary (compacted)\n- The tour was shown; no model has read this.\n- Asked: “Make it blue”\n";
    assert_eq!((said.text.as_str(), said.calls.len()), (expected, 0));
    let plain = demo.call(&request("Make it blue", &[]), &to).await.message;
    assert!(!plain.text.contains("Session Summary"), "{}", plain.text);
}
