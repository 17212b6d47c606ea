//! Tests and lists against a scripted provider.

use protocol::ErrorCode;
use serde_json::json;

use super::*;
use crate::{
    config::Provider,
    model::scripted::{ScriptedProvider, ScriptedReply},
};

fn config(provider: Provider) -> Config {
    let demo = Provider {
        api: ProviderApi::Demo,
        base_url: String::new(),
        api_key: None,
        key_source: None,
        models: Vec::new(),
        images: None,
        warning: None,
    };
    Config { providers: [("acme".to_owned(), provider), ("demo".to_owned(), demo)].into(), ..Config::default() }
}

#[tokio::test]
async fn a_trial_says_what_was_answered_or_what_to_mend() {
    let chunk = json!({ "choices": [{ "delta": { "content": "OK" }, "finish_reason": "stop" }] });
    let endpoint =
        ScriptedProvider::start(vec![ScriptedReply::chunks(&[chunk]), ScriptedReply::refusal(401, "")]).await;
    let config = config(endpoint.provider(ProviderApi::OpenAi));
    let probe = test("acme", "m1", &config).await.expect("an answer");
    assert!(probe.sentence.starts_with("acme/m1 answered “OK” after "), "{}", probe.sentence);
    let refused = test("acme", "m1", &config).await.expect_err("refused");
    assert_eq!(refused.code, ErrorCode::ProviderAuth);
    assert!(refused.suggestion.expect("a suggestion").contains("key set acme"));
    assert!(test("demo", "tour", &config).await.expect("it is built in").sentence.contains("script"));
    assert_eq!(test("nobody", "m1", &config).await.expect_err("unknown").code, ErrorCode::NotFound);
}

#[tokio::test]
async fn a_provider_that_repeats_the_key_is_not_quoted_with_it() {
    let key = "0123-not-like-a-key";
    let chunk = json!({ "choices": [{ "delta": { "content": format!("You sent {key}.") }, "finish_reason": "stop" }] });
    let list_body = json!({ "data": [{ "id": key }, { "id": "a" }] }).to_string();
    let endpoint = ScriptedProvider::start(vec![
        ScriptedReply::chunks(&[chunk]),
        ScriptedReply::refusal(400, key),
        ScriptedReply::stream(&list_body),
    ])
    .await;
    let config = config(Provider { api_key: Some(format!(" {key}\n")), ..endpoint.provider(ProviderApi::OpenAi) });
    let sentence = test("acme", "m1", &config).await.expect("an answer").sentence;
    assert!(sentence.contains("You sent [key].") && !sentence.contains(key), "{sentence}");
    let refused = test("acme", "m1", &config).await.expect_err("refused");
    assert!(!format!("{refused:?}").contains(key), "{refused:?}");
    assert_eq!(list("acme", &config).await.expect("a list"), ["[key]", "a"]);
}

#[tokio::test]
async fn each_format_lists_its_models() {
    for (api, path, body) in [
        (ProviderApi::OpenAi, "/v1/models", r#"{"data":[{"id":"b"},{"id":"a"}]}"#),
        (ProviderApi::Anthropic, "/v1/models?limit=1000", r#"{"data":[{"id":"b"},{"id":"a"}]}"#),
        (ProviderApi::Ollama, "/api/tags", r#"{"models":[{"name":"b"},{"name":"a"}]}"#),
    ] {
        let endpoint =
            ScriptedProvider::start(vec![ScriptedReply::stream(body), ScriptedReply::stream("<html>")]).await;
        let config = config(endpoint.provider(api));
        assert_eq!(list("acme", &config).await.expect("a list"), ["a", "b"]);
        assert_eq!(endpoint.seen()[0].path, path);
        assert!(list("acme", &config).await.is_err());
    }
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::stream("")]).await;
    assert_eq!(list("demo", &config(endpoint.provider(ProviderApi::OpenAi))).await.expect("a list"), ["tour"]);
}
