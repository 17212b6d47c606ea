//! Streams as providers really send them, and the same streams split anywhere.

use proptest::prelude::*;
use protocol::ErrorCode;
use serde_json::json;

use super::*;

fn origin() -> CallContext {
    CallContext { provider: "acme".to_owned(), model: "m1".to_owned(), key: None, estimate: 50, window: 1000 }
}

type Said = (String, String, Vec<(String, String, Value)>, FinishReason, Usage);

fn read_parts(api: ProviderApi, parts: &[&[u8]]) -> Result<Said, ModelError> {
    let mut reader = ResponseReader::new(api, origin());
    let mut deltas = Vec::new();
    for part in parts {
        deltas.extend(reader.feed(part)?);
    }
    let (rest, answer) = reader.end()?;
    deltas.extend(rest);
    let (mut text, mut thought) = (String::new(), String::new());
    for delta in deltas {
        match delta {
            Delta::Text(piece) => text.push_str(&piece),
            Delta::Reasoning(piece) => thought.push_str(&piece),
        }
    }
    assert_eq!(text, answer.message.text, "what streams is what is kept");
    let calls = answer
        .message
        .calls
        .into_iter()
        .map(|call| (call.id.clone(), call.name.clone(), call.args.unwrap_or_else(Value::String)));
    Ok((text, thought, calls.collect(), answer.finish, answer.usage))
}

fn read(api: ProviderApi, body: &str) -> Result<Said, ModelError> {
    read_parts(api, &[body.as_bytes()])
}

fn sse(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn says(delta: Value) -> Value {
    json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn ends(reason: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

#[test]
fn chat_completions_with_every_oddity_between_the_words() {
    let body = [
        ": OPENROUTER PROCESSING\n\n".to_owned(),
        sse(&[says(json!({ "role": "assistant" })), json!({ "choices": null }), json!({ "choices": [] })]),
        sse(&[
            says(json!({ "reasoning": "hm" })),
            says(json!({ "reasoning_content": "m" })),
            says(json!({ "content": null })),
        ]),
        "data: [HEARTBEAT]\n\ndata:\n\n".to_owned(),
        sse(&[says(json!({ "content": "grüße " })), says(json!({ "content": [{ "type": "text", "text": "🎉" }] }))]),
        sse(&[says(
            json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "read", "arguments": "" } }] }),
        )]),
        sse(&[
            ends("stop"),
            json!({ "choices": [], "usage": { "prompt_tokens": 1000, "completion_tokens": 50, "prompt_tokens_details": { "cached_tokens": 800 } } }),
        ]),
        "data: [DONE]\n\ndata: {\"error\":\"after the end\"}\n\n".to_owned(),
    ];
    let (text, thought, calls, finish, usage) = read(ProviderApi::OpenAi, &body.concat()).expect("an answer");
    assert_eq!((text.as_str(), thought.as_str()), ("grüße 🎉", "hmm"));
    assert_eq!(calls, [("a".to_owned(), "read".to_owned(), json!({}))]);
    assert_eq!(
        (finish, usage.input_tokens, usage.output_tokens, usage.cached_tokens),
        (FinishReason::Stop, 1000, 50, 800)
    );
    assert_eq!(usage.source, UsageSource::Measured);
}

#[test]
fn usage_is_the_last_told_or_an_estimate() {
    let usage = |n: u64| json!({ "choices": [{ "delta": { "content": "x" } }], "usage": { "prompt_tokens": 7, "completion_tokens": n } });
    let body = sse(&[usage(1), usage(2), ends("stop")]);
    assert_eq!(read(ProviderApi::OpenAi, &body).expect("an answer").4.output_tokens, 2);
    let none =
        read(ProviderApi::OpenAi, &sse(&[says(json!({ "content": "12345678" })), ends("stop")])).expect("an answer").4;
    assert_eq!((none.source, none.input_tokens, none.output_tokens), (UsageSource::Estimated, 50, 3));
}

#[test]
fn how_a_stream_may_end() {
    let word = sse(&[says(json!({ "content": "half" }))]);
    let done = "data: [DONE]\n\n";
    let finish = |body: String| read(ProviderApi::OpenAi, &body).map(|said| said.3);
    assert_eq!(finish(format!("{word}{}", sse(&[ends("stop")]))), Ok(FinishReason::Stop), "no [DONE]");
    assert_eq!(finish(format!("{word}{done}")), Ok(FinishReason::Stop), "no finish reason, but an end mark");
    assert_eq!(finish(format!("{word}{}", sse(&[ends("length")]))), Ok(FinishReason::Length));
    assert_eq!(finish(format!("{word}{}", sse(&[ends("content_filter")]))), Ok(FinishReason::ContentFilter));
    for body in [
        word.clone(),
        done.to_owned(),
        String::new(),
        sse(&[says(json!({ "role": "assistant" }))]),
        format!("{word}data: {{\"cho\n\n{done}"),
    ] {
        let failure = read(ProviderApi::OpenAi, &body).expect_err("no whole answer");
        assert_eq!((failure.code, failure.retryable), (ErrorCode::ProviderUnavailable, true), "{body}");
    }
    let late = sse(&[ends("stop"), json!({ "error": { "message": "overloaded" } })]);
    assert_eq!(finish(format!("{word}{late}data: {{\"cho\n\n")), Ok(FinishReason::Stop), "too late to fail");
    let (text, ..) =
        read(ProviderApi::OpenAi, &format!("{}{done}", sse(&[ends("stop")]))).expect("an empty answer is one");
    assert_eq!(text, "");
}

#[test]
fn errors_inside_a_stream_in_every_shape() {
    let overflow = "This model's maximum context length is 10 tokens";
    for body in [
        sse(&[json!({ "error": { "message": overflow, "code": 400 } })]),
        sse(&[json!({ "choices": [{ "delta": {}, "finish_reason": "error" }], "error": { "message": overflow } })]),
        sse(&[json!({ "choices": null, "error_type": "BadRequestError", "error_message": overflow })]),
        format!("event: error\ndata: {{\"error\":\"{overflow}\"}}\n\n"),
        format!("event: error\ndata: {overflow}\n\n"),
        sse(&[json!({ "type": "error", "error": { "message": overflow } })]),
        json!({ "error": { "message": overflow } }).to_string(),
    ] {
        let failure = read(ProviderApi::OpenAi, &format!("{}{body}", if body.starts_with('{') { "" } else { ":\n\n" }))
            .expect_err("an error");
        assert_eq!(failure.code, ErrorCode::ContextOverflow, "{body}");
    }
    let throttled =
        "event:error\n:HTTP_STATUS/429\ndata:{\"code\":\"Throttling.AllocationQuota\",\"message\":\"later\"}\n\n";
    assert_eq!(read(ProviderApi::OpenAi, throttled).expect_err("an error").code, ErrorCode::ProviderRateLimited);
    let ollama = "{\"message\":{\"content\":\"a\"},\"done\":false}\n{\"error\":\"the model runner has stopped\"}\n";
    assert_eq!(read(ProviderApi::Ollama, ollama).expect_err("an error").code, ErrorCode::ProviderUnavailable);
    let anthropic = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    assert!(read(ProviderApi::Anthropic, anthropic).expect_err("an error").retryable);
}

#[test]
fn a_server_that_does_not_stream_is_understood() {
    let body = json!({ "choices": [{ "message": { "content": "whole", "tool_calls": [{ "id": "a", "function": { "name": "read", "arguments": { "p": 1 } } }] }, "finish_reason": "tool_calls" }] });
    let (text, _, calls, ..) = read(ProviderApi::OpenAi, &format!("\n {body}")).expect("an answer");
    assert_eq!((text.as_str(), &calls[0].2), ("whole", &json!({ "p": 1 })));
}

fn ollama_stream() -> String {
    [
        json!({ "message": { "role": "assistant", "content": "", "thinking": "hm" }, "done": false }),
        json!({ "message": { "content": "grüße 🎉" }, "done": false }),
        json!({ "message": { "content": "", "tool_calls": [{ "function": { "name": "read", "arguments": { "p": "ä" } } }, { "function": { "name": "list", "arguments": {} } }] }, "done": false }),
        json!({ "message": { "content": "" }, "done": true, "done_reason": "stop", "prompt_eval_count": 40, "eval_count": 6 }),
    ]
    .map(|line| format!("{line}\n"))
    .concat()
}

#[test]
fn ollama_calls_come_whole_and_without_ids() {
    let (text, thought, calls, finish, usage) = read(ProviderApi::Ollama, &ollama_stream()).expect("an answer");
    assert_eq!((text.as_str(), thought.as_str(), finish), ("grüße 🎉", "hm", FinishReason::Stop));
    assert_eq!(
        calls,
        [(String::new(), "read".to_owned(), json!({ "p": "ä" })), (String::new(), "list".to_owned(), json!({}))]
    );
    assert_eq!((usage.input_tokens, usage.output_tokens), (40, 6));
    let cut = ollama_stream().lines().take(2).collect::<Vec<_>>().join("\n");
    assert!(read(ProviderApi::Ollama, &cut).expect_err("no end").retryable);
}

#[test]
fn a_count_of_a_part_of_the_request_is_not_taken_for_the_whole() {
    let counted = |counted: u64, estimate: u64| {
        let origin = CallContext { estimate, window: 32_768, ..origin() };
        let mut reader = ResponseReader::new(ProviderApi::Ollama, origin);
        let line =
            json!({ "message": { "content": "a" }, "done": true, "prompt_eval_count": counted, "eval_count": 1 });
        reader.feed(format!("{line}\n").as_bytes()).expect("it is read");
        let usage = reader.end().expect("an answer").1.usage;
        (usage.source, usage.input_tokens)
    };
    assert_eq!(counted(2_048, 9_400), (UsageSource::Estimated, 9_400));
    assert_eq!(counted(2_048, 2_900), (UsageSource::Estimated, 2_900));
    assert_eq!(counted(2_300, 2_900), (UsageSource::Measured, 2_300));
    assert_eq!(counted(11_000, 9_400), (UsageSource::Measured, 11_000));
}

#[test]
fn an_empty_answer_to_a_request_that_fills_the_window_is_an_overflow() {
    let answer = |estimate: u64, counted: u64, text: &str, reason: &str| {
        let mut reader = ResponseReader::new(ProviderApi::OpenAi, CallContext { estimate, ..origin() });
        let usage = json!({ "choices": [], "usage": { "prompt_tokens": counted, "completion_tokens": 0 } });
        let body = sse(&[says(json!({ "content": text })), ends(reason), usage]);
        reader.feed(body.as_bytes()).expect("it is read");
        reader.end().map(|(_, answer)| answer.finish).map_err(|error| error.code)
    };
    for (estimate, counted) in [(1_200, 40), (1_200, 1_200), (800, 1_000)] {
        for reason in ["length", "stop"] {
            assert_eq!(answer(estimate, counted, "", reason), Err(ErrorCode::ContextOverflow), "{estimate} {counted}");
        }
    }
    assert_eq!(answer(1_200, 1_200, "", "content_filter"), Ok(FinishReason::ContentFilter));
    assert_eq!(answer(1_200, 1_200, "a", "length"), Ok(FinishReason::Length));
    assert_eq!(answer(800, 800, "", "length"), Ok(FinishReason::Length));
}

fn anthropic_stream() -> String {
    [
        json!({ "type": "message_start", "message": { "usage": { "input_tokens": 10, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 5, "output_tokens": 1 } } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "thinking_delta", "thinking": "hm" } }),
        json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "signature_delta", "signature": "c2ln" } }),
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({ "type": "ping" }),
        json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "" } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": "grüße " } }),
        json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": "🎉" } }),
        json!({ "type": "content_block_start", "index": 2, "content_block": { "type": "tool_use", "id": "toolu_1", "name": "read", "input": {} } }),
        json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "input_json_delta", "partial_json": "" } }),
        json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "input_json_delta", "partial_json": "{\"p\":" } }),
        json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "input_json_delta", "partial_json": "\"ä\"}" } }),
        json!({ "type": "content_block_start", "index": 3, "content_block": { "type": "tool_use", "id": "toolu_2", "name": "list", "input": {} } }),
        json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 20 } }),
        json!({ "type": "message_stop" }),
    ]
    .map(|event| format!("event: {}\r\ndata: {event}\r\n\r\n", event["type"].as_str().expect("a type")))
    .concat()
}

#[test]
fn anthropic_blocks_and_counts() {
    let (text, thought, calls, finish, usage) = read(ProviderApi::Anthropic, &anthropic_stream()).expect("an answer");
    assert_eq!((text.as_str(), thought.as_str(), finish), ("grüße 🎉", "hm", FinishReason::Stop));
    assert_eq!(
        calls,
        [
            ("toolu_1".to_owned(), "read".to_owned(), json!({ "p": "ä" })),
            ("toolu_2".to_owned(), "list".to_owned(), json!({}))
        ]
    );
    assert_eq!((usage.input_tokens, usage.cached_tokens, usage.output_tokens), (45, 30, 20));
    for (reason, finish) in [
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::ContentFilter),
        ("pause_turn", FinishReason::Stop),
    ] {
        let body = anthropic_stream().replace("\"tool_use\"}", &format!("{reason:?}}}"));
        assert_eq!(read(ProviderApi::Anthropic, &body).expect("an answer").3, finish, "{reason}");
    }
}

fn openai_stream() -> String {
    let part = |id: &str, args: &str| {
        says(json!({ "tool_calls": [{ "index": 0, "id": id, "function": { "name": "read", "arguments": args } }] }))
    };
    let body = sse(&[
        says(json!({ "reasoning_content": "hm" })),
        says(json!({ "content": "grüße 🎉" })),
        part("a", "{\"p\":"),
        part("a", "\"ä\"}"),
        part("b", "{}"),
        ends("tool_calls"),
    ]);
    format!("{body}: ping\r\n\r\ndata:[DONE]\r\n\r\n")
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_answer(cuts in proptest::collection::vec(0usize..4000, 0..20), which in 0usize..3) {
        let (api, body) = [(ProviderApi::OpenAi, openai_stream()), (ProviderApi::Anthropic, anthropic_stream()), (ProviderApi::Ollama, ollama_stream())][which].clone();
        let bytes = body.as_bytes();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let parts: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read_parts(api, &parts), read(api, &body));
    }

    #[test]
    fn no_bytes_at_all_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..400), which in 0usize..3) {
        let api = [ProviderApi::OpenAi, ProviderApi::Anthropic, ProviderApi::Ollama][which];
        prop_assert!(read_parts(api, &[&bytes]).is_err());
    }
}
