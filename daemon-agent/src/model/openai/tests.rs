//! What is sent: reasoning goes back to the provider that sent it, and pictures of results follow them.

use super::*;
use crate::model::testing::{picture, results_with_pictures};

fn answer(deltas: &[Value]) -> AssistantMessage {
    let mut decoder = OpenAiDecoder::default();
    for delta in deltas {
        let chunk = json!({ "choices": [{ "delta": delta }] });
        decoder.take(chunk, &CallContext::default(), &mut vec![]).expect("no error");
    }
    Box::new(decoder).message().0
}

fn call(extra: Value) -> Value {
    json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "read", "arguments": "{}" }, "extra_content": extra }] })
}

#[test]
fn deepseeks_reasoning_goes_back_beside_calls_only() {
    let thought = json!({ "reasoning_content": "hm" });
    let said = message(&Message::Assistant(answer(&[thought.clone(), thought.clone(), call(Value::Null)])));
    assert_eq!((&said["reasoning_content"], &said["content"]), (&json!("hmhm"), &Value::Null));
    let plain = message(&Message::Assistant(answer(&[thought, json!({ "content": "done" })])));
    assert_eq!(plain, json!({ "role": "assistant", "content": "done" }));
}

#[test]
fn geminis_signature_stays_on_its_call() {
    let extra = json!({ "google": { "thought_signature": "c2ln" } });
    let said = message(&Message::Assistant(answer(&[call(extra.clone())])));
    assert_eq!(said["tool_calls"][0]["extra_content"], extra);
    assert!(message(&Message::Assistant(answer(&[call(Value::Null)])))["tool_calls"][0].get("extra_content").is_none());
}

#[test]
fn openrouters_details_are_put_together() {
    let piece = |detail: Value| json!({ "reasoning": "x", "reasoning_details": [detail] });
    let said = answer(&[
        piece(json!({ "type": "reasoning.text", "index": 0, "text": "a", "signature": null })),
        piece(json!({ "type": "reasoning.text", "index": 0, "text": "b", "signature": "c2ln" })),
        piece(json!({ "type": "reasoning.encrypted", "index": 1, "data": "e" })),
        json!({ "content": "done" }),
    ]);
    let details = &message(&Message::Assistant(said))["reasoning_details"];
    let text = json!({ "type": "reasoning.text", "index": 0, "text": "ab", "signature": "c2ln" });
    assert_eq!(*details, json!([text, { "type": "reasoning.encrypted", "index": 1, "data": "e" }]));
}

#[test]
fn pictures_of_results_follow_all_results_of_an_answer() {
    let body = body(&results_with_pictures(), false);
    let sent = body["messages"].as_array().expect("messages");
    let roles: Vec<_> = sent.iter().map(|message| message["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "tool", "user", "assistant", "tool", "user"]);
    assert_eq!((&sent[3]["content"], &sent[4]["content"]), (&json!("Look."), &json!("Look.")), "text alone");
    let text = |text: &str| json!({ "type": "text", "text": text });
    let image =
        |data: &str| json!({ "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{data}") } });
    let words =
        |id: &str| text(&format!("Pictures in the result of look, call {id}. The tool sent them, no person did:"));
    let parts = [words("a"), text("/a.png:"), image("AAAA"), words("b"), text("/b.png:"), image("BBBB")];
    assert_eq!(sent[5]["content"], json!(parts));
    assert_eq!(sent[8]["content"], json!([words("c"), text("/gone.png (not shown):")]));
    let mine = message(&Message::Pictures(vec![picture("/c.png", Some("CCCC"))]));
    assert_eq!(mine, json!({ "role": "user", "content": [text("/c.png:"), image("CCCC")] }));
}
