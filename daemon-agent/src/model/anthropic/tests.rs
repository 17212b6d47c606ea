//! What is sent: turns, breakpoints, and thinking that goes back.

use super::*;
use crate::model::ToolSpec;

fn request(messages: Vec<Message>) -> ModelRequest {
    let tool = |name: &'static str| ToolSpec {
        name: name.into(),
        description: "does it".into(),
        parameters: json!({ "type": "object" }),
    };
    ModelRequest {
        model: "claude".to_owned(),
        system: "rules".to_owned(),
        messages,
        tools: vec![tool("read"), tool("list")],
        temperature: Some(1.5),
        max_tokens: None,
        context_window: 200_000,
    }
}

fn conversation() -> Vec<Message> {
    let call = |id: &str, args| ToolCall { id: id.to_owned(), name: "read".to_owned(), args };
    let result = |id: &str, ok| Message::Tool {
        call_id: id.to_owned(),
        tool: "read".to_owned(),
        content: "text".to_owned(),
        ok,
    };
    let thought = json!({ "type": "thinking", "thinking": "hm", "signature": "c2ln" });
    vec![
        Message::User("first".to_owned()),
        Message::Assistant(AssistantMessage {
            text: String::new(),
            calls: vec![call("a", Ok(json!({ "p": 1 }))), call("b", Err("{\"p".to_owned()))],
            reasoning: vec![thought, json!({ "type": "other" })],
        }),
        result("a", true),
        result("b", false),
        Message::Assistant(AssistantMessage { text: "done".to_owned(), ..AssistantMessage::default() }),
        Message::User("second".to_owned()),
    ]
}

#[test]
fn results_share_a_turn_and_thinking_goes_back_before_the_calls() {
    let body = body(&request(conversation()));
    let turns = body["messages"].as_array().expect("turns");
    let roles: Vec<_> = turns.iter().map(|turn| turn["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let said = &turns[1]["content"];
    assert_eq!(
        (&said[0]["signature"], &said[1]["id"], &said[1]["input"]),
        (&json!("c2ln"), &json!("a"), &json!({ "p": 1 }))
    );
    assert_eq!(said[2]["input"], json!({ "unparsed": "{\"p" }));
    assert_eq!(
        (&turns[2]["content"][0]["is_error"], &turns[2]["content"][1]["is_error"]),
        (&json!(false), &json!(true))
    );
    assert_eq!((&body["max_tokens"], &body["temperature"]), (&json!(8192), &json!(1.0)));
}

#[test]
fn the_breakpoints_are_tools_system_and_the_last_two_turns() {
    let body = body(&request(conversation()));
    let marked = |place: &str| body.pointer(place).expect(place).get("cache_control").is_some();
    for place in ["/tools/1", "/system/0", "/messages/2/content/1", "/messages/4/content/0"] {
        assert!(marked(place), "{place}");
    }
    assert_eq!(body.to_string().matches("cache_control").count(), 4, "the format allows no more");
}

#[test]
fn a_conversation_grows_at_its_end_only() {
    let short = body(&request(conversation()[..4].to_vec()));
    let long = body(&request(conversation()));
    let unmarked = |body: &Value, turns: usize| {
        let text =
            body["messages"].as_array().expect("turns")[..turns].iter().map(Value::to_string).collect::<String>();
        text.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
            .replace("\"cache_control\":{\"type\":\"ephemeral\"},", "")
    };
    assert_eq!(unmarked(&short, 3), unmarked(&long, 3));
    assert_eq!((&short["system"], &short["tools"]), (&long["system"], &long["tools"]));
}
