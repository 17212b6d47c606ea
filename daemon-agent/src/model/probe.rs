//! Trying a provider, and listing what it has.

use std::time::Duration;

use protocol::TaskError;
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{Message, Model, Request, failure::Origin, http::Http};
use crate::config::{Api, Config};

/// How long a trial may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    pub latency_ms: u64,
    /// For people.
    pub sentence: String,
}

/// Asks `model` (the provider's own name) of `provider` for one word: a real call, as cheap as one can be.
pub async fn test(provider: &str, model: &str, config: &Config) -> Result<Probe, TaskError> {
    let route = Model::named(&format!("{provider}/{model}"), config)?;
    if route.is_scripted() {
        let sentence = "demo/tour is built in: a script that needs no key and no network.".to_owned();
        return Ok(Probe { latency_ms: 0, sentence });
    }
    let request = Request {
        model: model.to_owned(),
        system: "Answer with the single word OK.".to_owned(),
        messages: vec![Message::User("Say OK.".to_owned())],
        tools: vec![],
        temperature: None,
        // Room for models that think before they speak.
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
    let Ok((answer, ())) = timeout(PATIENCE, async { tokio::join!(call, drained) }).await else {
        let origin = Origin { provider: provider.to_owned(), ..Origin::default() };
        return Err(origin.unavailable(format_args!("no answer within {} s", PATIENCE.as_secs())).into());
    };
    let answer = answer.map_err(TaskError::from)?;
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let said = answer.message.text.trim();
    let said = if said.is_empty() {
        "nothing, but ended well".to_owned()
    } else {
        format!("“{}”", protocol::text::title(said))
    };
    Ok(Probe { latency_ms, sentence: format!("{provider}/{model} answered {said} after {latency_ms} ms.") })
}

/// The models that `provider` offers, as `provider/model` refers to them, sorted.
pub async fn list(provider: &str, config: &Config) -> Result<Vec<String>, TaskError> {
    let entry = config.providers.get(provider);
    if provider == "demo" || entry.is_some_and(|entry| entry.api == Api::Demo) {
        return Ok(vec!["tour".to_owned()]);
    }
    // The same refusals as for a task: unknown provider, missing key.
    Model::named(&format!("{provider}/models"), config)?;
    let Some(entry) = entry else { return Ok(vec![]) };
    let http = Http::new(provider, entry).map_err(TaskError::from)?;
    let (path, place, field) = match http.api() {
        Api::Anthropic => ("/v1/models?limit=1000", "/data", "id"),
        Api::Ollama => ("/api/tags", "/models", "name"),
        Api::OpenAi | Api::Demo => ("/models", "/data", "id"),
    };
    let body = http.get(path, Duration::from_secs(15)).await.map_err(TaskError::from)?;
    let origin = Origin { provider: provider.to_owned(), ..Origin::default() };
    let body: Value = serde_json::from_str(&body)
        .map_err(|_| TaskError::from(origin.unavailable("the list of models is not JSON")))?;
    let items = body.pointer(place).or(Some(&body)).and_then(Value::as_array);
    let mut names: Vec<String> = items
        .into_iter()
        .flatten()
        .filter_map(|item| item.get(field).and_then(Value::as_str))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests;
