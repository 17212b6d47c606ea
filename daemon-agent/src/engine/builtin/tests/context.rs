//! After every model call the agent reports what filled the window: as the provider counted it, or estimated.

use super::*;

fn told(fixture: &Fixture) -> Vec<Value> {
    let told = fixture.events().into_iter().filter_map(|event| match event {
        AgentStreamEvent::Context(fields) => Some(json!(fields)),
        _ => None,
    });
    told.collect()
}

fn used(count: u64) -> Value {
    json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }], "usage": { "prompt_tokens": count, "completion_tokens": 5 } })
}

#[tokio::test]
async fn every_call_tells_what_filled_the_window() {
    let call = json!([{ "index": 0, "id": "c", "function": { "name": "list_files", "arguments": "{}" } }]);
    let endpoint = ScriptedProvider::start(vec![
        ScriptedReply::chunks(&[delta(json!({ "tool_calls": call })), used(2_345)]),
        ScriptedReply::chunks(&[delta(json!({ "tool_calls": call })), used(2_501)]),
        ScriptedReply::chunks(&[
            delta(json!({ "content": "Done." })),
            json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] }),
        ]),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    result(run(fixture.run("Look around")).await);
    let told = told(&fixture);
    let brief: Vec<_> = told.iter().map(|one| (one["step"].as_u64(), one["source"].as_str().unwrap_or(""))).collect();
    let expected = [(None, "estimated"), (Some(1), "measured"), (Some(2), "measured"), (Some(3), "estimated")];
    assert_eq!(brief, expected);
    assert_eq!((&told[1]["used"], &told[2]["used"]), (&json!(2_345), &json!(2_501)));
    for one in &told {
        let layers = one["layers"].as_array().expect("layers");
        let sum: u64 = layers.iter().filter_map(|layer| layer["tokens"].as_u64()).sum();
        assert_eq!(one["used"], sum, "{one:#}");
        assert_eq!((&one["window"], &one["windowSource"]), (&json!(100_000), &json!("configured")));
        assert_eq!(one["model"], "acme/m1");
        assert!(one["estimatePercent"].as_u64().is_some_and(|percent| (50..=200).contains(&percent)), "{one:#}");
    }
    let has_results =
        |one: &Value| one["layers"].as_array().expect("layers").iter().any(|layer| layer["layer"] == "results");
    assert_eq!(told.iter().map(has_results).collect::<Vec<_>>(), [false, false, true, true]);
    let has_memory: Vec<_> = told.iter().map(|one| one.get("memory").is_some()).collect();
    assert_eq!(has_memory, [true, false, false, false], "excerpts go once");
}
