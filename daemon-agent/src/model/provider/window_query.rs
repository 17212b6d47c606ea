//! Asks a provider how much a model reads at once.

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    config::{ProviderApi, known_models::is_plausible},
    model::{ModelError, http::HttpProvider},
};

/// How long a task may wait for the answer.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest window that Ollama is asked for unless somebody chose one, tokens: it reserves memory for all of it.
const MAX_UNCHOSEN_OLLAMA_TOKENS: u64 = 32_768;
/// Names that servers with a list like OpenAI's have for it: OpenRouter and Together, vLLM, Groq, Mistral, Gemini.
const WINDOW_FIELDS: [&str; 5] =
    ["context_length", "max_model_len", "context_window", "max_context_length", "inputTokenLimit"];

/// Tokens of the window of `model`; `None` if its provider does not say, or nothing that can be believed.
pub(super) async fn ask(http: &HttpProvider, model: &str) -> Result<Option<u64>, ModelError> {
    let (body, read): (_, fn(&Value, &str) -> Option<u64>) = match (http.api(), http.gemini()) {
        (ProviderApi::Ollama, _) => {
            (http.post("/api/show", &json!({ "model": model }), QUERY_TIMEOUT).await?, of_ollama)
        }
        (ProviderApi::OpenAi, Some(address)) => (http.gemini_model(address, model, QUERY_TIMEOUT).await?, of_gemini),
        (ProviderApi::OpenAi, None) => (http.get("/models", QUERY_TIMEOUT).await?, of_list),
        (ProviderApi::Anthropic | ProviderApi::Demo, _) => return Ok(None),
    };
    let body = serde_json::from_str(&body).unwrap_or(Value::Null);
    Ok(read(&body, model).filter(|tokens| is_plausible(*tokens)))
}

/// `num_ctx` of the model's parameters, else the length for which the model was made.
fn of_ollama(body: &Value, _model: &str) -> Option<u64> {
    let parameters = body["parameters"].as_str().unwrap_or_default();
    let chosen = parameters.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("num_ctx")).then(|| words.next()?.parse().ok())?
    });
    let info = body["model_info"].as_object();
    let made_for = info.and_then(|info| {
        let named = info.get("general.architecture").and_then(Value::as_str);
        let named = named.and_then(|family| info.get(&format!("{family}.context_length")));
        named.or_else(|| Some(info.iter().find(|(name, _)| name.ends_with(".context_length"))?.1))?.as_u64()
    });
    chosen.or(made_for.map(|tokens| tokens.min(MAX_UNCHOSEN_OLLAMA_TOKENS)))
}

/// Gemini's own word on a model: its list for clients of OpenAI's interface names no windows.
fn of_gemini(body: &Value, _model: &str) -> Option<u64> {
    body["inputTokenLimit"].as_u64()
}

/// The model's entry in a list; behind a gateway the smaller of the model's and its host's window.
fn of_list(body: &Value, model: &str) -> Option<u64> {
    let list = ["/data", "/models"].iter().find_map(|place| body.pointer(place)).unwrap_or(body).as_array()?;
    let is_it = |entry: &&Value| {
        let names = [&entry["id"], &entry["name"]].into_iter().filter_map(Value::as_str);
        names.map(|name| name.strip_prefix("models/").unwrap_or(name)).any(|name| name == model)
    };
    let entry = list.iter().find(is_it)?;
    let number = |of: &Value| WINDOW_FIELDS.iter().find_map(|field| of.get(field)?.as_u64());
    number(entry).into_iter().chain(number(&entry["top_provider"])).min()
}
