//! Reasoning goes back to the provider that sent it.

use super::*;

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
