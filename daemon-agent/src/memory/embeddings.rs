//! Embeddings from an OpenAI-compatible `POST {baseUrl}/embeddings`: used if the owner of the machine configured it,
//! never required.

use std::time::Duration;

use protocol::text::head;
use reqwest::{Client, header::CONTENT_TYPE, redirect::Policy};
use serde::Deserialize;
use serde_json::json;

use crate::config::{Config, ProviderApi};

/// How long a search waits for the embedding of its query.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a batch of passages may take.
const BATCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Passages in one request.
pub const BATCH_PASSAGES: u32 = 64;
/// Longest text that is sent of a passage or a query, bytes.
const MAX_TEXT_BYTES: usize = 6 * 1024;
/// Largest answer that is read, bytes.
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;
/// How many numbers a vector may have.
const DIMENSIONS: std::ops::RangeInclusive<usize> = 1..=16_384;

/// A model that computes embeddings.
pub struct EmbeddingsClient {
    /// The model's name in the configuration; vectors of other models are not comparable.
    pub model: String,
    /// What the vectors depend on: address, key, model.
    pub made_of: (String, Option<String>, String),
    client: Client,
}

#[derive(Deserialize)]
struct EmbeddingsResponse {
    data: Vec<EmbeddingDatum>,
}

#[derive(Deserialize)]
struct EmbeddingDatum {
    #[serde(default)]
    index: usize,
    embedding: Vec<f32>,
}

impl EmbeddingsClient {
    /// What the configuration names: address, key, and the provider's own name of the model.
    pub fn configured(config: &Config) -> Option<(String, Option<String>, String)> {
        let (provider, model) = config.embeddings.as_deref()?.split_once('/')?;
        let entry = config.providers.get(provider)?;
        let base = entry.base_url.trim_end_matches('/');
        let url = match entry.api {
            ProviderApi::Ollama => format!("{base}/v1/embeddings"),
            _ => format!("{base}/embeddings"),
        };
        Some((url, entry.api_key.clone(), model.to_owned()))
    }

    /// A client for this configuration.
    pub fn new(made_of: (String, Option<String>, String)) -> Result<Self, String> {
        let url = reqwest::Url::parse(&made_of.0).map_err(|error| error.to_string())?;
        // No redirects: a key must only go to the configured address.
        let mut client = Client::builder().connect_timeout(Duration::from_secs(10)).redirect(Policy::none());
        if matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]")) {
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| error.to_string())?;
        Ok(Self { model: format!("{} {}", made_of.0, made_of.2), made_of, client })
    }

    /// The embedding of a query.
    pub async fn of(&self, text: &str) -> Result<Vec<u8>, String> {
        let texts = [text];
        let asked = tokio::time::timeout(QUERY_TIMEOUT, self.ask(&texts));
        let all = asked.await.map_err(|_| format!("no answer within {} s", QUERY_TIMEOUT.as_secs()))??;
        all.into_iter().next().ok_or_else(|| "an empty answer".to_owned())
    }

    /// The embeddings of passages.
    pub async fn of_all(&self, texts: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let asked = tokio::time::timeout(BATCH_TIMEOUT, self.ask(texts));
        asked.await.map_err(|_| format!("no answer within {} s", BATCH_TIMEOUT.as_secs()))?
    }

    async fn ask(&self, texts: &[&str]) -> Result<Vec<Vec<u8>>, String> {
        let (url, key, model) = &self.made_of;
        let input: Vec<&str> =
            texts.iter().map(|text| if text.trim().is_empty() { "-" } else { head(text, MAX_TEXT_BYTES) }).collect();
        let body = json!({ "model": model, "input": input }).to_string();
        let mut request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(body);
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let describe = |error: reqwest::Error| error.without_url().to_string();
        let mut response = request.send().await.map_err(describe)?;
        if !response.status().is_success() {
            return Err(format!("it answered {}", response.status()));
        }
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(describe)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ANSWER_BYTES {
                return Err("its answer is too large".to_owned());
            }
        }
        let answer: EmbeddingsResponse =
            serde_json::from_slice(&bytes).map_err(|error| format!("not understood: {error}"))?;
        let mut data = answer.data;
        data.sort_by_key(|datum| datum.index);
        if data.len() != texts.len() || data.iter().any(|datum| !DIMENSIONS.contains(&datum.embedding.len())) {
            return Err("its answer contains other vectors than were requested".to_owned());
        }
        Ok(data.iter().map(|datum| packed(&datum.embedding)).collect())
    }
}

/// A direction with one byte per number: a quarter of the space, and hardly any change in ranking.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between -127 and 127, kept as its bits")]
fn packed(vector: &[f32]) -> Vec<u8> {
    let longest = vector.iter().filter(|n| n.is_finite()).fold(0.0_f32, |most, n| most.max(n.abs()));
    if longest == 0.0 {
        return vec![0; vector.len()];
    }
    let one = |n: &f32| if n.is_finite() { (n / longest * 127.0).round() as i8 as u8 } else { 0 };
    vector.iter().map(one).collect()
}

/// The cosine similarity of two directions, -1 to 1; 0 if they cannot be compared.
pub fn cosine_similarity(a: &[u8], b: &[u8]) -> f64 {
    if a.len() != b.len() {
        return 0.0;
    }
    let (mut ab, mut aa, mut bb) = (0_i64, 0_i64, 0_i64);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (i64::from(a.cast_signed()), i64::from(b.cast_signed()));
        ab += a * b;
        aa += a * a;
        bb += b * b;
    }
    if aa == 0 || bb == 0 { 0.0 } else { ab as f64 / (aa as f64 * bb as f64).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directions_are_compared_whatever_their_length() {
        let [east, far_east, north, west] = [[1.0, 0.0], [8.0, 0.1], [0.0, 0.3], [-2.0, 0.0]].map(|v| packed(&v));
        assert!(cosine_similarity(&east, &far_east) > 0.99 && cosine_similarity(&east, &north).abs() < 0.01);
        assert!(cosine_similarity(&east, &west) < -0.99);
        assert!(cosine_similarity(&packed(&[0.0, 0.0]), &east).abs() < f64::EPSILON);
        assert!(cosine_similarity(&packed(&[f32::NAN, 1.0, 2.0]), &east).abs() < f64::EPSILON);
    }
}
