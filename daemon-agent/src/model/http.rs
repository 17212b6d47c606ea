//! One model call over HTTP: sends the request, reads the stream, and gives up after a time without any bytes.

use std::{
    borrow::Cow,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use protocol::{ErrorCode, tokens};
use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect::Policy,
};
use serde_json::Value;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

mod pictures;

use super::{
    Answer, Delta, ModelError, ModelRequest, anthropic,
    failure::{CallContext, plain, retry_after},
    ollama, openai,
    reader::ResponseReader,
};
use crate::{
    clock::Clock,
    config::{Provider, ProviderApi},
};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest silence between two pieces of an answer; keep-alives count as pieces.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Longest silence before the first piece: some models think for minutes before they answer.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(300);
/// The same for a local model, which may have to be loaded first and reads a long conversation slowly.
const LOCAL_FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(600);
/// How long to wait for what may follow a finish reason (usage, the end mark).
const TRAILER_TIMEOUT: Duration = Duration::from_secs(3);
/// Longest that a whole call may take: keep-alives must not hold it open forever.
const CALL_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Longest part of an error body that is read, bytes.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// Largest list of models that is read.
const MAX_LIST_BYTES: usize = 8 << 20;
/// What Gemini's own address ends with, and what it adds for clients of OpenAI's interface.
const GEMINI_END: &str = "/v1beta";
const GEMINI_OPENAI_END: &str = "/openai";

/// A provider's endpoint.
pub(super) struct HttpProvider {
    provider: String,
    api: ProviderApi,
    base_url: String,
    /// The base address as it may be shown: without user name and password.
    shown: String,
    /// Whether the server does not know `stream_options`.
    usage_refused: AtomicBool,
    key: Option<String>,
    /// On this machine: no proxy is asked.
    local: bool,
    client: Client,
    clock: Clock,
    first: Duration,
    idle: Duration,
    trailer: Duration,
}

impl HttpProvider {
    pub fn new(id: &str, provider: &Provider) -> Result<Self, ModelError> {
        let origin = CallContext { provider: id.to_owned(), ..CallContext::default() };
        let bad = |message: String| plain(ErrorCode::BadRequest, message);
        let base_url = provider.base_url.trim_end_matches('/').to_owned();
        let mut url = reqwest::Url::parse(&base_url)
            .map_err(|error| bad(format!("{id}: baseUrl is not a valid address: {error}")))?;
        if url.set_username("").and_then(|()| url.set_password(None)).is_err() || !url.has_host() {
            return Err(bad(format!("{id}: baseUrl names no host")));
        }
        url.set_query(None);
        let shown = url.as_str().trim_end_matches('/').to_owned();
        let local = matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let key = provider.api_key.as_deref().map(str::trim).filter(|key| !key.is_empty()).map(str::to_owned);
        let client = client(local, headers(provider.api, key.as_deref(), &origin)?)?;
        let first =
            if local || provider.api == ProviderApi::Ollama { LOCAL_FIRST_BYTE_TIMEOUT } else { FIRST_BYTE_TIMEOUT };
        Ok(Self {
            provider: id.to_owned(),
            api: provider.api,
            base_url,
            shown,
            usage_refused: AtomicBool::new(false),
            key,
            local,
            client,
            clock: Clock::system(),
            first,
            idle: IDLE_TIMEOUT,
            trailer: TRAILER_TIMEOUT,
        })
    }

    /// The request with its pictures, for models that see.
    pub async fn with_pictures<'a>(&self, request: &'a ModelRequest) -> Cow<'a, ModelRequest> {
        pictures::filled(request).await
    }

    /// Makes a call, and a second one if only the room for the answer was too large, or the server is too old to report
    /// usage.
    pub async fn call(&self, request: &ModelRequest, to: &mpsc::Sender<Delta>) -> Result<Answer, ModelError> {
        match self.once(request, to).await {
            Err(ModelError { fits: Some(fits), .. }) if self.api == ProviderApi::Anthropic => {
                let smaller = ModelRequest { max_tokens: Some(fits), ..request.clone() };
                self.once(&smaller, to).await
            }
            Err(ModelError { code: ErrorCode::ProviderBadRequest, message, .. })
                if message.contains("stream_options") =>
            {
                self.usage_refused.store(true, Ordering::Relaxed);
                self.once(request, to).await
            }
            other => other,
        }
    }

    async fn once(&self, request: &ModelRequest, to: &mpsc::Sender<Delta>) -> Result<Answer, ModelError> {
        let (path, body) = self.written(request);
        let tokens = if request.has_pictures() { request.estimated_tokens() } else { tokens::estimate(&body) };
        let origin = self.origin(&request.model, tokens, request.context_window);
        let until = Instant::now() + CALL_TIMEOUT;
        let sending = self.client.post(self.url(path)).header(CONTENT_TYPE, "application/json").body(body).send();
        let response = match timeout(self.first, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.unreachable(&origin, &error)),
            Err(_) => return Err(origin.unavailable(format_args!("no answer for {} s", self.first.as_secs()))),
        };
        if !response.status().is_success() {
            return Err(self.refusal(response, &origin).await);
        }
        self.read(response, origin, until, to).await
    }

    /// The path of a request and its body, as text alone: a conversation with pictures is long, and an answer takes minutes.
    fn written(&self, request: &ModelRequest) -> (&'static str, String) {
        let (path, mut body) = match self.api {
            ProviderApi::Anthropic => ("/v1/messages", anthropic::body(request)),
            ProviderApi::Ollama => ("/api/chat", ollama::body(request)),
            ProviderApi::OpenAi | ProviderApi::Demo => {
                ("/chat/completions", openai::body(request, self.base_url.starts_with("https://api.openai.com/")))
            }
        };
        if self.usage_refused.load(Ordering::Relaxed)
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("stream_options");
        }
        (path, body.to_string())
    }

    async fn read(
        &self,
        mut response: Response,
        origin: CallContext,
        until: Instant,
        to: &mpsc::Sender<Delta>,
    ) -> Result<Answer, ModelError> {
        let mut reader = ResponseReader::new(self.api, origin.clone());
        loop {
            let patience = match (reader.finished(), reader.begun()) {
                (true, _) => self.trailer,
                (false, true) => self.idle,
                (false, false) => self.first,
            };
            let piece = match timeout_at(until.min(Instant::now() + patience), response.chunk()).await {
                Ok(Ok(Some(piece))) => piece,
                Ok(Ok(None)) => break,
                // The answer is complete: how the connection ends no longer matters.
                Ok(Err(_)) | Err(_) if reader.finished() => break,
                Ok(Err(error)) => {
                    return Err(origin.unavailable(format_args!("the connection broke ({})", root_cause(&error))));
                }
                Err(_) if Instant::now() >= until => {
                    return Err(origin.unavailable(format_args!(
                        "the answer was not complete after {} min",
                        CALL_TIMEOUT.as_secs() / 60
                    )));
                }
                Err(_) => {
                    return Err(origin.unavailable(format_args!("the stream was silent for {} s", patience.as_secs())));
                }
            };
            for delta in reader.feed(&piece)? {
                // Fails only when this future is about to be dropped.
                let _ = to.send(delta).await;
            }
            if reader.over() {
                break;
            }
        }
        let (rest, answer) = reader.end()?;
        for delta in rest {
            let _ = to.send(delta).await;
        }
        Ok(answer)
    }

    /// The body of a `GET` below the base address, for lists of models.
    pub async fn get(&self, path: &str, limit: Duration) -> Result<String, ModelError> {
        self.look_up(self.client.get(self.url(path)), limit).await
    }

    /// The same of a `POST` with a JSON body.
    pub async fn post(&self, path: &str, body: &Value, limit: Duration) -> Result<String, ModelError> {
        let request = self.client.post(self.url(path)).header(CONTENT_TYPE, "application/json").body(body.to_string());
        self.look_up(request, limit).await
    }

    /// The address of Gemini's own interface, if this is the one that it has for clients of OpenAI's.
    pub fn gemini(&self) -> Option<&str> {
        let own = self.base_url.strip_suffix(GEMINI_OPENAI_END).filter(|own| own.ends_with(GEMINI_END));
        own.filter(|_| self.api == ProviderApi::OpenAi)
    }

    /// What Gemini's own interface at `address` says of a model; it wants the key in a header of its own.
    pub async fn gemini_model(&self, address: &str, name: &str, limit: Duration) -> Result<String, ModelError> {
        let bad = |why: &str| plain(ErrorCode::ProviderBadRequest, format!("{}: {why}", self.provider));
        let mut url = reqwest::Url::parse(address).map_err(|_| bad("its address is not valid"))?;
        let name = name.strip_prefix("models/").unwrap_or(name);
        url.path_segments_mut().map_err(|()| bad("its address has no path"))?.extend(["models", name]);
        let mut headers = HeaderMap::new();
        if let Some(key) = &self.key {
            let mut value = HeaderValue::from_str(key).map_err(|_| bad("the key cannot be sent"))?;
            value.set_sensitive(true);
            headers.insert("x-goog-api-key", value);
        }
        self.look_up(client(self.local, headers)?.get(url), limit).await
    }

    async fn look_up(&self, request: RequestBuilder, limit: Duration) -> Result<String, ModelError> {
        let origin = self.origin("", 0, 1);
        let asking = async {
            let mut response = request.send().await.map_err(|error| self.unreachable(&origin, &error))?;
            if !response.status().is_success() {
                return Err(self.refusal(response, &origin).await);
            }
            let mut body = Vec::new();
            while let Some(piece) = response.chunk().await.map_err(|error| self.unreachable(&origin, &error))? {
                body.extend_from_slice(&piece);
                if body.len() > MAX_LIST_BYTES {
                    return Err(origin.unavailable("an answer that is too long"));
                }
            }
            Ok(String::from_utf8_lossy(&body).into_owned())
        };
        timeout(limit, asking).await.unwrap_or_else(|_| Err(origin.unavailable("no answer")))
    }

    /// The address from the configuration.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The wire format.
    pub fn api(&self) -> ProviderApi {
        self.api
    }

    /// The provider and a request, for what fails.
    pub(super) fn origin(&self, model: &str, estimate: u64, window: u64) -> CallContext {
        CallContext {
            provider: self.provider.clone(),
            model: model.to_owned(),
            key: self.key.clone(),
            estimate,
            window,
        }
    }

    /// Anthropic's paths start with the version, which people may also have put into the base address.
    fn url(&self, path: &str) -> String {
        let base = self.base_url.as_str();
        let base = if path.starts_with("/v1/") { base.strip_suffix("/v1").unwrap_or(base) } else { base };
        let base = if path.starts_with("/api/") { base.strip_suffix("/api").unwrap_or(base) } else { base };
        format!("{base}{path}")
    }

    async fn refusal(&self, mut response: Response, origin: &CallContext) -> ModelError {
        let status = response.status();
        let now = jiff::Timestamp::from_millisecond(self.clock.now().millis()).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let hint = retry_after::in_headers(response.headers(), now);
        let mut body = Vec::new();
        let reading = async {
            while let Ok(Some(piece)) = response.chunk().await {
                body.extend_from_slice(&piece);
                if body.len() > MAX_ERROR_BODY_BYTES {
                    break;
                }
            }
        };
        // Use as much of the body as has arrived by then.
        let _ = timeout(Duration::from_secs(10), reading).await;
        if status.is_redirection() || status == StatusCode::METHOD_NOT_ALLOWED {
            let suggestion =
                Some("Check `baseUrl` in config.yaml: nothing that speaks this API answers there.".to_owned());
            return ModelError {
                suggestion,
                ..plain(ErrorCode::ProviderBadRequest, format!("{}: HTTP {status}", origin.provider))
            };
        }
        origin.classify(Some(status.as_u16()), hint, &String::from_utf8_lossy(&body))
    }

    fn unreachable(&self, origin: &CallContext, error: &reqwest::Error) -> ModelError {
        let suggestion =
            format!("Check that {} is running and can be reached from this viber, then retry the task.", self.shown);
        let failure = origin.unavailable(format_args!("{} cannot be reached ({})", self.shown, root_cause(error)));
        ModelError { suggestion: Some(suggestion), ..failure }
    }
}

fn client(local: bool, headers: HeaderMap) -> Result<Client, ModelError> {
    // No redirects: a key must only go to the configured address.
    let client = Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none()).default_headers(headers);
    let client = if local { client.no_proxy() } else { client };
    client.build().map_err(|error| plain(ErrorCode::Internal, format!("no HTTP client: {error}")))
}

fn headers(api: ProviderApi, key: Option<&str>, origin: &CallContext) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    if api == ProviderApi::Anthropic {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    let Some(key) = key else { return Ok(headers) };
    let text = if api == ProviderApi::Anthropic { key.to_owned() } else { format!("Bearer {key}") };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| origin.auth("the key contains characters that are not allowed in a key"))?;
    value.set_sensitive(true);
    if api == ProviderApi::Anthropic {
        headers.insert("x-api-key", value)
    } else {
        headers.insert(AUTHORIZATION, value)
    };
    Ok(headers)
}

/// The innermost cause, which is the one that people understand.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests;
