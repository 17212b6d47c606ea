//! What is sent: turns, breakpoints, and thinking that goes back; and how blocks of an answer are told apart.

use super::*;
use crate::model::{ToolSpec, testing::picture};

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
        pictures: vec![],
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

#[test]
fn pictures_of_results_stand_in_them() {
    let result = |id: &str, pictures| Message::Tool {
        call_id: id.to_owned(),
        tool: "look".to_owned(),
        content: "Look.".to_owned(),
        ok: true,
        pictures,
    };
    let pictures = vec![picture("/a.png", Some("AAAA")), picture("/gone.png", None)];
    let body = body(&request(vec![
        Message::User("first".to_owned()),
        result("a", pictures),
        result("b", vec![]),
        Message::Pictures(vec![picture("/c.png", Some("BBBB"))]),
    ]));
    let results = &body["messages"][1]["content"];
    let image = json!({ "type": "image", "source": { "type": "base64", "media_type": "image/png", "data": "AAAA" } });
    let text = |text: &str| json!({ "type": "text", "text": text });
    let content = json!([text("Look."), text("/a.png:"), image, text("/gone.png (not shown):")]);
    assert_eq!((&results[0]["content"], &results[0]["tool_use_id"]), (&content, &json!("a")));
    assert_eq!((&results[1]["content"], &results[1]["tool_use_id"]), (&json!("Look."), &json!("b")));
    assert_eq!(body["messages"][2]["content"][1]["source"]["data"], "BBBB");
}

/// The answer of these events.
fn answer(events: Vec<Value>) -> AssistantMessage {
    let mut decoder = AnthropicDecoder::default();
    for event in events {
        decoder.take(event, &CallContext::default(), &mut Vec::new()).expect("an event");
    }
    Box::new(decoder).message().0
}

fn begins(index: u64, block: &Value) -> Value {
    json!({ "type": "content_block_start", "index": index, "content_block": block })
}

fn goes_on(index: u64, delta: &Value) -> Value {
    json!({ "type": "content_block_delta", "index": index, "delta": delta })
}

#[test]
fn blocks_that_share_an_index_are_blocks_of_their_own() {
    let call = |id: &str| json!({ "type": "tool_use", "id": id, "name": "read", "input": {} });
    let args = |json: &str| json!({ "type": "input_json_delta", "partial_json": json });
    let text = |text: &str| json!({ "type": "text_delta", "text": text });
    let said = answer(vec![
        begins(0, &json!({ "type": "thinking", "thinking": "" })),
        goes_on(0, &json!({ "type": "thinking_delta", "thinking": "hm" })),
        goes_on(0, &json!({ "type": "signature_delta", "signature": "c2ln" })),
        begins(0, &json!({ "type": "text", "text": "" })),
        goes_on(0, &text("I ")),
        goes_on(0, &text("look.")),
        begins(0, &call("a")),
        goes_on(0, &args("{\"p\":")),
        goes_on(0, &args("1}")),
        begins(0, &call("b")),
        goes_on(0, &args("{\"p\":2}")),
        begins(0, &call("b")),
        goes_on(0, &args("{\"p\":3}")),
    ]);
    assert_eq!(said.text, "I look.");
    assert_eq!(said.reasoning, [json!({ "type": "thinking", "thinking": "hm", "signature": "c2ln" })]);
    let calls: Vec<_> = said.calls.into_iter().map(|call| (call.id, call.args.expect("an object"))).collect();
    let of = |id: &str, p: u64| (id.to_owned(), json!({ "p": p }));
    assert_eq!(calls, [of("a", 1), of("b", 2), of("b", 3)]);
}

#[test]
fn a_block_that_is_begun_twice_before_anything_came_is_one() {
    let call = json!({ "type": "tool_use", "id": "a", "name": "read", "input": {} });
    let args = json!({ "type": "input_json_delta", "partial_json": "{\"p\":1}" });
    let thinking = json!({ "type": "thinking", "thinking": "" });
    let said = answer(vec![
        begins(0, &thinking),
        begins(0, &thinking),
        goes_on(0, &json!({ "type": "thinking_delta", "thinking": "hm" })),
        begins(1, &call),
        begins(1, &call),
        begins(2, &json!({ "type": "tool_use", "id": "b", "name": "read", "input": {} })),
        goes_on(1, &args),
    ]);
    let calls: Vec<_> = said.calls.into_iter().map(|call| (call.id, call.args.expect("an object"))).collect();
    assert_eq!((said.reasoning.len(), calls.len()), (1, 2));
    assert_eq!(calls[0], ("a".to_owned(), json!({ "p": 1 })));
}
