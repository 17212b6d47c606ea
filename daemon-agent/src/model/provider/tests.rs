//! Where the window of a model is known from, and what its calls tell about it, against a scripted provider.

use std::time::Duration;

use protocol::{Instant, context::WindowSource};
use serde_json::{Value, json};

use super::*;
use crate::{
    config::{ConfigSnapshot, Variables, known_models::KnownModels},
    model::{
        Message,
        scripted::{ScriptedProvider, ScriptedReply},
    },
};

/// A viber whose only agent uses `acme/m1`.
struct Viber {
    _folder: tempfile::TempDir,
    home: Home,
    config: Config,
    agent: Agent,
}

impl Viber {
    fn of(provider: Provider) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let Provider { api, base_url, api_key, .. } = provider;
        let (api, key) = (api.as_str(), api_key.expect("a key"));
        let config = format!("providers: {{ acme: {{ api: {api}, baseUrl: \"{base_url}\", apiKey: {key} }} }}");
        std::fs::write(home.config(), config).expect("written");
        std::fs::write(home.agents().join("dev.yaml"), "model: acme/m1\n").expect("written");
        let files = ConfigSnapshot::read(&home, &Variables::default());
        let agent = Agent::clone(&files.agent("dev").expect("there").expect("good"));
        Self { _folder: folder, home, config: Config::clone(&files.config), agent }
    }

    async fn model_at(&self, now: i64) -> Model {
        let model = Model::for_agent(&self.agent, &self.config).expect("a model");
        model.with_findings(&self.agent, &self.home, &Clock::fixed(Instant(now))).await
    }

    async fn window(&self) -> (u64, WindowSource) {
        let window = self.model_at(1_000).await.window().clone();
        let told = ConfigSnapshot::read(&self.home, &Variables::default()).state().agents.expect("agents").remove(0);
        let known = Some(window.tokens).filter(|_| window.source != WindowSource::Assumed);
        assert!(
            self.agent.context_window.is_some()
                || (told.context_window, told.context_window_source) == (known, Some(window.source)),
            "the Board is told the same: {told:?}"
        );
        (window.tokens, window.source)
    }
}

const ASSUMED: (u64, WindowSource) = (32_768, WindowSource::Assumed);

fn body(value: &Value) -> ScriptedReply {
    ScriptedReply::stream(&value.to_string())
}

fn list(entry: Value) -> ScriptedReply {
    let mut entry = entry;
    entry["id"] = json!("m1");
    body(&json!({ "data": [{ "id": "m10", "context_length": 5_000 }, entry] }))
}

fn request(text: &str) -> ModelRequest {
    ModelRequest {
        model: "m1".to_owned(),
        system: String::new(),
        messages: vec![Message::User(text.to_owned())],
        tools: Vec::new(),
        temperature: None,
        max_tokens: None,
        context_window: 32_768,
    }
}

async fn call(model: &Model, text: &str) -> Result<Answer, ModelError> {
    model.call(&request(text), &mpsc::channel(64).0).await
}

#[tokio::test]
async fn a_provider_is_asked_once_for_the_window() {
    let show = |parameters: &str, length: u64| {
        body(
            &json!({ "parameters": parameters, "model_info": { "general.architecture": "llama", "clip.context_length": 77, "llama.context_length": length } }),
        )
    };
    let provider = |tokens| (tokens, WindowSource::Provider);
    for (api, reply, path, expected) in [
        (ProviderApi::OpenAi, list(json!({ "context_length": 131_072 })), "/v1/models", provider(131_072)),
        (ProviderApi::OpenAi, list(json!({ "max_model_len": 6_048 })), "/v1/models", provider(6_048)),
        (ProviderApi::OpenAi, list(json!({ "inputTokenLimit": 1_048_576 })), "/v1/models", provider(1_048_576)),
        (
            ProviderApi::OpenAi,
            body(&json!({ "models": [{ "name": "models/m1", "inputTokenLimit": 1_048_576 }] })),
            "/v1/models",
            provider(1_048_576),
        ),
        (
            ProviderApi::OpenAi,
            list(json!({ "context_length": 200_000, "top_provider": { "context_length": 65_536 } })),
            "/v1/models",
            provider(65_536),
        ),
        (ProviderApi::OpenAi, list(json!({})), "/v1/models", ASSUMED),
        (ProviderApi::Ollama, show("", 8_192), "/api/show", provider(8_192)),
        (ProviderApi::Ollama, show("stop \"x\"\nnum_ctx   65536", 131_072), "/api/show", provider(65_536)),
        (ProviderApi::Ollama, show("", 131_072), "/api/show", provider(32_768)),
    ] {
        let endpoint = ScriptedProvider::start(vec![reply]).await;
        let viber = Viber::of(endpoint.provider(api));
        assert_eq!((viber.window().await, viber.window().await), (expected, expected));
        let seen = endpoint.seen();
        assert_eq!((seen.len(), seen[0].path.as_str()), (1, path));
        if api == ProviderApi::Ollama {
            assert_eq!(seen[0].body, json!({ "model": "m1" }));
        }
        let files = KnownModels::read(&viber.home);
        let known = files.find("acme/m1", &endpoint.provider(api).base_url).expect("kept");
        assert_eq!(known.asked.expect("asked").at, Instant(1_000));
        assert!(!std::fs::read_to_string(viber.home.models()).expect("there").contains("sk-very-secret"));
        viber.model_at(1_000 + 8 * 24 * 60 * 60 * 1_000).await;
        assert_eq!(endpoint.seen().len(), 2, "after a week again");
    }
}

#[tokio::test]
async fn gemini_is_asked_in_its_own_way_behind_its_interface_for_others() {
    let told = body(&json!({ "name": "models/m1", "inputTokenLimit": 1_048_576, "outputTokenLimit": 65_536 }));
    for (reply, expected) in [
        (told, (1_048_576, WindowSource::Provider)),
        (body(&json!({ "name": "models/m1", "inputTokenLimit": "many" })), ASSUMED),
        (ScriptedReply::refusal(404, r#"{"error":{"code":404,"status":"NOT_FOUND"}}"#), ASSUMED),
    ] {
        let endpoint = ScriptedProvider::start(vec![reply]).await;
        let base_url = format!("{}beta/openai", endpoint.provider(ProviderApi::OpenAi).base_url);
        let viber = Viber::of(Provider { base_url, ..endpoint.provider(ProviderApi::OpenAi) });
        assert_eq!((viber.window().await, viber.window().await), (expected, expected));
        let seen = endpoint.seen();
        assert_eq!((seen.len(), seen[0].path.as_str()), (1, "/v1beta/models/m1"));
        assert_eq!(seen[0].headers.get("x-goog-api-key").map(String::as_str), Some("sk-very-secret"));
        assert!(!seen[0].headers.contains_key("authorization"), "{:?}", seen[0].headers);
    }
}

#[tokio::test]
async fn nobody_is_asked_where_the_answer_is_known() {
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::refusal(404, "")]).await;
    let mut viber = Viber::of(endpoint.provider(ProviderApi::OpenAi));
    viber.agent.context_window = Some(9_000);
    assert_eq!(viber.window().await, (9_000, WindowSource::Configured));
    let anthropic = Viber::of(endpoint.provider(ProviderApi::Anthropic));
    assert_eq!(anthropic.window().await, ASSUMED);
    assert!(endpoint.seen().is_empty());
}

#[tokio::test]
async fn an_answer_that_cannot_be_believed_changes_nothing() {
    let elsewhere = ScriptedProvider::start(vec![list(json!({ "context_length": 50_000 }))]).await;
    let elsewhere_url = format!("{}/models", elsewhere.provider(ProviderApi::OpenAi).base_url);
    let huge = format!("[{}", " ".repeat(9 << 20));
    for reply in [
        ScriptedReply::refusal(404, "no such path"),
        ScriptedReply::refusal(401, "sk-very-secret"),
        ScriptedReply::refusal(302, "").header("Location", &elsewhere_url),
        ScriptedReply::stream("<html>"),
        ScriptedReply::stream(""),
        ScriptedReply::stream(&"[".repeat(100_000)),
        ScriptedReply::stream(&huge),
        ScriptedReply::stream("{\"data\":[{\"id\":\"m1\",").cut(),
        body(&json!({ "data": { "m1": 7 } })),
        body(&json!({ "data": [7, null, { "id": 7 }, { "id": "m1", "context_length": "large" }] })),
        list(json!({ "context_length": 0 })),
        list(json!({ "context_length": -1 })),
        list(json!({ "context_length": 1e300 })),
        list(json!({ "context_length": u64::MAX })),
    ] {
        let endpoint = ScriptedProvider::start(vec![reply.clone()]).await;
        let viber = Viber::of(endpoint.provider(ProviderApi::OpenAi));
        assert_eq!(viber.window().await, ASSUMED);
        assert_eq!(viber.window().await, ASSUMED);
        assert_eq!(endpoint.seen().len(), 1, "it is not asked at every task");
    }
    assert!(elsewhere.seen().is_empty(), "a redirect is not followed");
    for info in [json!(null), json!([]), json!({ "a.context_length": "x" }), json!({ "context_length": 9_000 })] {
        let reply = body(&json!({ "parameters": ["num_ctx 5000"], "model_info": info }));
        let endpoint = ScriptedProvider::start(vec![reply]).await;
        assert_eq!(Viber::of(endpoint.provider(ProviderApi::Ollama)).window().await, ASSUMED);
    }
}

#[tokio::test]
async fn a_slow_provider_holds_up_nobody() {
    for reply in [ScriptedReply::stream("{").silent(), ScriptedReply::stream("").then(Duration::from_secs(60), "{}")] {
        let endpoint = ScriptedProvider::start(vec![reply]).await;
        let viber = Viber::of(endpoint.provider(ProviderApi::OpenAi));
        let begun = tokio::time::Instant::now();
        assert_eq!(viber.window().await, ASSUMED);
        assert_eq!(viber.window().await, ASSUMED);
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
        viber.model_at(1_000 + 2 * 60 * 60 * 1_000).await;
        assert_eq!(endpoint.seen().len(), 2, "after an hour again");
    }
}

#[tokio::test]
async fn an_overflow_tells_the_window() {
    let refusal = |max: u64| {
        let message =
            format!("This model's maximum context length is {max} tokens. However, you requested 99999 tokens.");
        ScriptedReply::refusal(
            400,
            &json!({ "error": { "message": message, "code": "context_length_exceeded" } }).to_string(),
        )
    };
    for (max, expected) in [
        (8_192, (8_192, WindowSource::Learnt)),
        (131_072, (131_072, WindowSource::Learnt)),
        (0, ASSUMED),
        (32_768, ASSUMED),
        (17_000_000, ASSUMED),
    ] {
        let endpoint = ScriptedProvider::start(vec![list(json!({})), refusal(max)]).await;
        let viber = Viber::of(endpoint.provider(ProviderApi::OpenAi));
        let model = viber.model_at(1_000).await;
        assert_eq!(call(&model, "long").await.expect_err("too long").code, ErrorCode::ContextOverflow);
        assert_eq!(viber.window().await, expected);
    }
}

#[tokio::test]
async fn estimates_follow_what_the_provider_counts() {
    let counted = |tokens: u64| {
        ScriptedReply::chunks(&[
            json!({ "choices": [{ "delta": { "content": "OK" }, "finish_reason": "stop" }] }),
            json!({ "choices": [], "usage": { "prompt_tokens": tokens, "completion_tokens": 1 } }),
        ])
    };
    let text = "word ".repeat(1_000);
    let estimated = request(&text).estimated_tokens();
    let script =
        vec![list(json!({})), counted(estimated * 13 / 10), counted(estimated), counted(1), counted(estimated * 40)];
    let endpoint = ScriptedProvider::start(script).await;
    let viber = Viber::of(endpoint.provider(ProviderApi::OpenAi));
    let model = viber.model_at(1_000).await;
    assert_eq!(model.estimate_percent(), 100);
    let mut percents = Vec::new();
    for _ in 0..4 {
        call(&model, &text).await.expect("an answer");
        percents.push(model.estimate_percent());
    }
    assert_eq!(percents, [129, 123, 123, 123], "what is not of the same text is not compared");
    call(&model, "short").await.expect("an answer");
    assert_eq!(viber.model_at(2_000).await.estimate_percent(), 123);
    std::fs::write(viber.home.models(), "{").expect("written");
    assert_eq!(viber.model_at(2_000).await.estimate_percent(), 100, "a damaged file is no error");
}
