//! Calls against a scripted endpoint.

use protocol::UsageSource;
use serde_json::{Value, json};

use super::*;
use crate::model::{
    FinishReason, Message,
    scripted::{ScriptedProvider, ScriptedReply},
};

/// How long something may take that happens at once on an idle machine: only a call that hangs takes longer.
const HANG_TIMEOUT: Duration = Duration::from_secs(60);

fn request() -> ModelRequest {
    ModelRequest {
        model: "m1".to_owned(),
        system: "rules".to_owned(),
        messages: vec![Message::User("hello".to_owned())],
        tools: vec![],
        temperature: Some(0.5),
        max_tokens: Some(100_000),
        context_window: 1000,
    }
}

fn http(endpoint: &ScriptedProvider, api: ProviderApi) -> HttpProvider {
    HttpProvider::new("acme", &endpoint.provider(api)).expect("a client")
}

async fn call(http: &HttpProvider) -> (Vec<Delta>, Result<Answer, ModelError>) {
    let (to, mut from) = mpsc::channel(1000);
    let answer = http.call(&request(), &to).await;
    drop(to);
    let mut deltas = Vec::new();
    while let Some(delta) = from.recv().await {
        deltas.push(delta);
    }
    (deltas, answer)
}

fn word(text: &str) -> Value {
    json!({ "choices": [{ "delta": { "content": text } }] })
}

fn stop() -> Value {
    json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }] })
}

#[tokio::test]
async fn each_format_has_its_path_its_key_and_its_words() {
    for (api, path, key, reply) in [
        (
            ProviderApi::OpenAi,
            "/v1/chat/completions",
            ("authorization", "Bearer sk-very-secret"),
            ScriptedReply::chunks(&[word("hi"), stop()]),
        ),
        (
            ProviderApi::Anthropic,
            "/v1/messages",
            ("x-api-key", "sk-very-secret"),
            ScriptedReply::stream(concat!(
                "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"hi\"}}\n\n",
                "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
            )),
        ),
        (
            ProviderApi::Ollama,
            "/api/chat",
            ("authorization", "Bearer sk-very-secret"),
            ScriptedReply::stream("{\"message\":{\"content\":\"hi\"},\"done\":false}\n{\"done\":true}\n"),
        ),
    ] {
        let endpoint = ScriptedProvider::start(vec![reply]).await;
        let (deltas, answer) = call(&http(&endpoint, api)).await;
        let answer = answer.expect("an answer");
        assert_eq!(
            (deltas, answer.message.text.as_str(), answer.finish),
            (vec![Delta::Text("hi".to_owned())], "hi", FinishReason::Stop)
        );
        assert_eq!(answer.usage.source, UsageSource::Estimated);
        let seen = &endpoint.seen()[0];
        assert_eq!((seen.path.as_str(), seen.headers.get(key.0).map(String::as_str)), (path, Some(key.1)));
        assert_eq!((&seen.body["model"], &seen.body["stream"]), (&json!("m1"), &json!(true)));
    }
}

#[tokio::test]
async fn what_the_formats_ask_for_is_sent() {
    let openai = openai::body(&request(), false);
    assert_eq!(
        (&openai["stream_options"]["include_usage"], &openai["max_tokens"], &openai["temperature"]),
        (&json!(true), &json!(100_000), &json!(0.5))
    );
    assert_eq!(openai::body(&request(), true)["max_completion_tokens"], json!(100_000));
    let ollama = ollama::body(&request());
    assert_eq!((&ollama["truncate"], &ollama["options"]["num_ctx"]), (&json!(false), &json!(1000)));
    assert_eq!(ollama["messages"][1], json!({ "role": "user", "content": "hello" }));
}

#[tokio::test]
async fn a_dropped_call_closes_the_connection_at_once() {
    let mut endpoint =
        ScriptedProvider::start(vec![ScriptedReply::stream(&format!("data: {}\n\n", word("hi"))).silent()]).await;
    let http = http(&endpoint, ProviderApi::OpenAi);
    let (to, mut from) = mpsc::channel(10);
    let request = request();
    let asking = http.call(&request, &to);
    tokio::select! {
        answer = asking => panic!("the stream is silent, but gave {answer:?}"),
        delta = from.recv() => assert_eq!(delta, Some(Delta::Text("hi".to_owned()))),
    }
    timeout(HANG_TIMEOUT, endpoint.hang_up()).await.expect("the endpoint sees it");
}

#[tokio::test]
async fn silence_is_given_up_and_comments_are_no_silence() {
    let quiet = ScriptedReply::stream(&format!("data: {}\n\n", word("hi"))).silent();
    // Together the pauses are longer than the idle limit, while each is a tenth of it: a busy machine may be late.
    let (limit, pause, pauses) = (Duration::from_secs(2), Duration::from_millis(200), 11);
    let begun = ScriptedReply::stream(&format!("data: {}\n\n", word("worth")));
    let comments = (0..pauses).fold(begun, |reply, _| reply.then(pause, ": still here\n\n"));
    let patient = comments.then(Duration::ZERO, &format!("data: {}\n\ndata: {}\n\n", word(" it"), stop()));
    let endpoint = ScriptedProvider::start(vec![quiet, patient]).await;
    // The first byte may take as long as the machine needs; after it, the endpoint is silent for an hour.
    let impatient = HttpProvider { idle: Duration::from_millis(100), ..http(&endpoint, ProviderApi::OpenAi) };
    let (deltas, answer) = timeout(HANG_TIMEOUT, call(&impatient)).await.expect("silence is given up");
    let failure = answer.expect_err("silence");
    assert_eq!((deltas.len(), failure.code, failure.retryable), (1, ErrorCode::ProviderUnavailable, true));
    let patient = HttpProvider { idle: limit, ..http(&endpoint, ProviderApi::OpenAi) };
    let (_, answer) = timeout(HANG_TIMEOUT, call(&patient)).await.expect("the answer ends");
    assert_eq!(answer.expect("an answer").message.text, "worth it");
}

#[tokio::test]
async fn broken_connections_are_worth_another_try_unless_the_answer_was_complete() {
    let half = format!("data: {}\n\n", word("half"));
    let whole = format!("{half}data: {}\n\n", stop());
    let endpoint = ScriptedProvider::start(vec![
        ScriptedReply::stream(&half).cut(),
        ScriptedReply::stream(&half),
        ScriptedReply::stream(&whole).cut(),
        ScriptedReply::stream(&whole).silent(),
    ])
    .await;
    let http = http(&endpoint, ProviderApi::OpenAi);
    for _ in 0..2 {
        let failure = call(&http).await.1.expect_err("half an answer");
        assert_eq!((failure.code, failure.retryable), (ErrorCode::ProviderUnavailable, true));
    }
    for _ in 0..2 {
        assert_eq!(call(&http).await.1.expect("an answer").message.text, "half");
    }
}

#[tokio::test]
async fn a_stream_that_says_it_is_over_is_not_waited_for() {
    let anthropic = "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
    for (api, body) in [
        (ProviderApi::Anthropic, anthropic),
        (ProviderApi::Ollama, "{\"done\":true}\n"),
        (ProviderApi::OpenAi, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"),
    ] {
        let endpoint = ScriptedProvider::start(vec![ScriptedReply::stream(body).silent()]).await;
        let http = HttpProvider { trailer: 10 * HANG_TIMEOUT, ..http(&endpoint, api) };
        let answer = timeout(HANG_TIMEOUT, call(&http)).await.expect("not after the wait for a trailer").1;
        assert_eq!(answer.expect("an answer").finish, FinishReason::Stop);
    }
}

#[tokio::test]
async fn nobody_there_says_where() {
    let provider = Provider {
        api: ProviderApi::OpenAi,
        base_url: "http://127.0.0.1:9/v1".to_owned(),
        api_key: None,
        key_source: None,
        models: Vec::new(),
        images: None,
        warning: None,
    };
    let failure = call(&HttpProvider::new("acme", &provider).expect("a client")).await.1.expect_err("nobody listens");
    assert_eq!((failure.code, failure.retryable), (ErrorCode::ProviderUnavailable, true));
    assert!(failure.message.contains("http://127.0.0.1:9/v1 cannot be reached"), "{}", failure.message);
}

#[tokio::test]
async fn headers_of_a_refusal_tell_the_wait_and_redirects_are_not_followed() {
    let endpoint = ScriptedProvider::start(vec![
        ScriptedReply::refusal(429, "{}").header("Retry-After", "7"),
        ScriptedReply::refusal(307, "").header("Location", "http://127.0.0.1:9/"),
    ])
    .await;
    let http = http(&endpoint, ProviderApi::OpenAi);
    let failure = call(&http).await.1.expect_err("a refusal");
    assert_eq!((failure.code, failure.wait), (ErrorCode::ProviderRateLimited, Some(Duration::from_secs(7))));
    assert_eq!(call(&http).await.1.expect_err("a redirect").code, ErrorCode::ProviderBadRequest);
}

#[tokio::test]
async fn a_smaller_answer_is_tried_once_when_only_its_room_was_too_large() {
    let body = r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 100 + 100000 > 1000, decrease"}}"#;
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::refusal(400, body)]).await;
    let failure = call(&http(&endpoint, ProviderApi::Anthropic)).await.1.expect_err("refused twice");
    assert_eq!(failure.code, ErrorCode::ContextOverflow);
    let asked: Vec<_> = endpoint.seen().iter().map(|seen| seen.body["max_tokens"].clone()).collect();
    assert_eq!(asked, [json!(100_000), json!(836)]);
}

#[tokio::test]
async fn a_server_too_old_for_usage_is_asked_without_it() {
    let refusal = ScriptedReply::refusal(
        400,
        r#"{"error":{"message":"Unrecognized request argument supplied: stream_options"}}"#,
    );
    let endpoint = ScriptedProvider::start(vec![refusal, ScriptedReply::chunks(&[word("hi"), stop()])]).await;
    let http = http(&endpoint, ProviderApi::OpenAi);
    assert_eq!(call(&http).await.1.expect("an answer").message.text, "hi");
    assert_eq!(call(&http).await.1.expect("an answer").message.text, "hi");
    let asked: Vec<_> = endpoint.seen().iter().map(|seen| seen.body.get("stream_options").is_some()).collect();
    assert_eq!(asked, [true, false, false]);
}

#[tokio::test]
async fn an_address_is_shown_without_its_password() {
    let provider = Provider {
        api: ProviderApi::OpenAi,
        base_url: "http://ada:hunter2@127.0.0.1:9/v1?key=hunter3".to_owned(),
        api_key: None,
        key_source: None,
        models: Vec::new(),
        images: None,
        warning: None,
    };
    let failure = call(&HttpProvider::new("acme", &provider).expect("a client")).await.1.expect_err("nobody listens");
    let shown = format!("{} {:?}", failure.message, failure.suggestion);
    assert!(shown.contains("127.0.0.1:9/v1") && !shown.contains("hunter"), "{shown}");
}
