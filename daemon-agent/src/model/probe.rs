//! Tests a provider, and lists its models.

use std::time::Duration;

use protocol::TaskError;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{Message, Model, ModelRequest, failure::CallContext, http::HttpProvider};
use crate::config::{Config, ProviderApi};

/// How long a test may take.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a test.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeResult {
    pub latency_ms: u64,
    /// For people.
    pub sentence: String,
}

/// Asks `model` (the provider's own name) of `provider` for one word: a real call, as cheap as possible.
pub async fn test(provider: &str, model: &str, config: &Config) -> Result<ProbeResult, TaskError> {
    let route = Model::named(&format!("{provider}/{model}"), config)?;
    if route.is_scripted() {
        let sentence = "demo/tour is built in: a script that needs no key and no network.".to_owned();
        return Ok(ProbeResult { latency_ms: 0, sentence });
    }
    let request = ModelRequest {
        model: model.to_owned(),
        system: "Answer with the single word OK.".to_owned(),
        messages: vec![Message::User("Say OK.".to_owned())],
        tools: vec![],
        temperature: None,
        // Room for models that think before they answer.
        max_tokens: Some(256),
        context_window: 4096,
    };
    let (to, mut deltas) = mpsc::channel(16);
    let begun = Instant::now();
    let drained = async { while deltas.recv().await.is_some() {} };
    let call = async {
        let answer = route.call(&request, &to).await;
        drop(to);
        answer
    };
    let origin = origin(provider, config);
    let Ok((answer, ())) = timeout(PROBE_TIMEOUT, async { tokio::join!(call, drained) }).await else {
        return Err(origin.unavailable(format_args!("no answer within {} s", PROBE_TIMEOUT.as_secs())).into());
    };
    let answer = answer.map_err(TaskError::from)?;
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    // Before it is cut: a part of the key at the end would not be found.
    let said = origin.redact(answer.message.text.trim());
    let said = if said.is_empty() {
        "nothing, but ended well".to_owned()
    } else {
        format!("“{}”", protocol::text::title(&said))
    };
    Ok(ProbeResult { latency_ms, sentence: format!("{provider}/{model} answered {said} after {latency_ms} ms.") })
}

/// The models that `provider` offers, sorted, in the form that `provider/model` uses.
pub async fn list(provider: &str, config: &Config) -> Result<Vec<String>, TaskError> {
    let entry = config.providers.get(provider);
    if provider == "demo" || entry.is_some_and(|entry| entry.api == ProviderApi::Demo) {
        return Ok(vec!["tour".to_owned()]);
    }
    // The same errors as for a task: unknown provider, missing key.
    Model::named(&format!("{provider}/models"), config)?;
    let Some(entry) = entry else { return Ok(vec![]) };
    let http = HttpProvider::new(provider, entry).map_err(TaskError::from)?;
    let (path, place, field) = match http.api() {
        ProviderApi::Anthropic => ("/v1/models?limit=1000", "/data", "id"),
        ProviderApi::Ollama => ("/api/tags", "/models", "name"),
        ProviderApi::OpenAi | ProviderApi::Demo => ("/models", "/data", "id"),
    };
    let body = http.get(path, Duration::from_secs(15)).await.map_err(TaskError::from)?;
    let origin = origin(provider, config);
    let body: Value = serde_json::from_str(&body)
        .map_err(|_| TaskError::from(origin.unavailable("the list of models is not JSON")))?;
    let items = body.pointer(place).or(Some(&body)).and_then(Value::as_array);
    let mut names: Vec<String> = items
        .into_iter()
        .flatten()
        .filter_map(|item| item.get(field).and_then(Value::as_str))
        .map(|name| origin.redact(name))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// The provider with its key, which is removed from what it says.
fn origin(provider: &str, config: &Config) -> CallContext {
    let key = config.providers.get(provider).and_then(|found| found.api_key.as_deref()).map(str::trim);
    CallContext { provider: provider.to_owned(), key: key.map(str::to_owned), ..CallContext::default() }
}

#[cfg(test)]
mod tests;
