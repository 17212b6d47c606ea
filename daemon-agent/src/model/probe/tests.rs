//! Trials and lists against a scripted endpoint.

use protocol::ErrorCode;
use serde_json::json;

use super::*;
use crate::{
    config::Provider,
    model::endpoint::{Endpoint, Reply},
};

fn config(provider: Provider) -> Config {
    let demo = Provider { api: Api::Demo, base_url: String::new(), api_key: None, warning: None };
    Config { providers: [("acme".to_owned(), provider), ("demo".to_owned(), demo)].into(), ..Config::default() }
}

#[tokio::test]
async fn a_trial_says_what_was_answered_or_what_to_mend() {
    let chunk = json!({ "choices": [{ "delta": { "content": "OK" }, "finish_reason": "stop" }] });
    let endpoint = Endpoint::start(vec![Reply::chunks(&[chunk]), Reply::refusal(401, "")]).await;
    let config = config(endpoint.provider(Api::OpenAi));
    let probe = test("acme", "m1", &config).await.expect("an answer");
    assert!(probe.sentence.starts_with("acme/m1 answered “OK” after "), "{}", probe.sentence);
    let refused = test("acme", "m1", &config).await.expect_err("refused");
    assert_eq!(refused.code, ErrorCode::ProviderAuth);
    assert!(refused.suggestion.expect("a suggestion").contains("key set acme"));
    assert!(test("demo", "tour", &config).await.expect("it is built in").sentence.contains("script"));
    assert_eq!(test("nobody", "m1", &config).await.expect_err("unknown").code, ErrorCode::NotFound);
}

#[tokio::test]
async fn each_format_lists_its_models() {
    for (api, path, body) in [
        (Api::OpenAi, "/v1/models", r#"{"data":[{"id":"b"},{"id":"a"}]}"#),
        (Api::Anthropic, "/v1/models?limit=1000", r#"{"data":[{"id":"b"},{"id":"a"}]}"#),
        (Api::Ollama, "/api/tags", r#"{"models":[{"name":"b"},{"name":"a"}]}"#),
    ] {
        let endpoint = Endpoint::start(vec![Reply::stream(body), Reply::stream("<html>")]).await;
        let config = config(endpoint.provider(api));
        assert_eq!(list("acme", &config).await.expect("a list"), ["a", "b"]);
        assert_eq!(endpoint.seen()[0].path, path);
        assert!(list("acme", &config).await.is_err());
    }
    let endpoint = Endpoint::start(vec![Reply::stream("")]).await;
    assert_eq!(list("demo", &config(endpoint.provider(Api::OpenAi))).await.expect("a list"), ["tour"]);
}
