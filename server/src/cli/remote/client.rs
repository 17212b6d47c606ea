//! Calls of the API with a token, again when that may help. The token goes to the named Board alone, never in the clear,
//! and into no message.

use std::{net::IpAddr, time::Duration};

use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, header, redirect};
use serde_json::Value;
use tokio::time::sleep;

use super::{super::CliError, RemoteArgs};

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a call may take. A stream has no such limit.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// A stream that brings nothing for this long is broken: the Board sends a comment every 15 seconds.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(45);
/// How often a call is made before its failure is reported.
const MAX_CALL_ATTEMPTS: u32 = 4;
/// The pause before the second attempt; it doubles with each.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(300);
/// Longest pause, also when the Board asks for more.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);

/// One Board, called with one token.
pub struct ApiClient {
    http: reqwest::Client,
    base: Url,
    token: String,
}

/// Why a call brought no result.
pub enum CallError {
    /// Trying again may help, after at least this long.
    Passing(String, Duration),
    Final(String),
}

impl From<CallError> for CliError {
    fn from(error: CallError) -> Self {
        let (CallError::Passing(why, _) | CallError::Final(why)) = error;
        Self::Failed(why)
    }
}

impl ApiClient {
    /// A client of the Board that the arguments name.
    pub fn new(args: &RemoteArgs) -> Result<Self, CliError> {
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(SILENCE_TIMEOUT)
            .build()
            .map_err(|error| CliError::Failed(format!("no HTTP client: {error}")))?;
        let base = address(&args.board, args.insecure).map_err(CliError::Usage)?;
        Ok(Self { http, base, token: args.token.trim().to_owned() })
    }

    /// Reads a resource.
    pub async fn get(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Value, CliError> {
        let mut url = self.url(path);
        url.query_pairs_mut().extend_pairs(query);
        self.call(|| self.request(Method::GET, url.clone())).await
    }

    /// Changes something, once: each attempt has the same key.
    pub async fn post(&self, path: &[&str], body: &Value, key: &str) -> Result<Value, CliError> {
        let url = self.url(path);
        self.call(|| self.request(Method::POST, url.clone()).header("idempotency-key", key).json(body)).await
    }

    /// Opens the stream of a task's events after a cursor.
    pub async fn stream(&self, id: &str, after: Option<&str>) -> Result<Response, CallError> {
        let mut url = self.url(&["tasks", id, "events"]);
        url.query_pairs_mut().extend_pairs(after.map(|after| ("after", after)));
        let request = self.request(Method::GET, url).header(header::ACCEPT, "text/event-stream");
        self.checked(request).await
    }

    fn url(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        url
    }

    fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.http.request(method, url).bearer_auth(&self.token)
    }

    async fn call(&self, request: impl Fn() -> RequestBuilder) -> Result<Value, CliError> {
        let mut delay = FIRST_RETRY_DELAY;
        for _ in 1..MAX_CALL_ATTEMPTS {
            match self.answer(request()).await {
                Err(CallError::Passing(_, least)) => sleep(least.max(delay).min(MAX_RETRY_DELAY)).await,
                done => return Ok(done?),
            }
            delay *= 2;
        }
        Ok(self.answer(request()).await?)
    }

    async fn answer(&self, request: RequestBuilder) -> Result<Value, CallError> {
        let answer = self.checked(request.timeout(CALL_TIMEOUT)).await?;
        answer.json().await.map_err(|error| self.broken(&error))
    }

    async fn checked(&self, request: RequestBuilder) -> Result<Response, CallError> {
        let answer = request.send().await.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let wait = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let why = refusal(status, &answer.json().await.unwrap_or_default());
        let passing = matches!(status.as_u16(), 429 | 502..=504);
        Err(match passing {
            true => CallError::Passing(why, Duration::from_secs(wait.unwrap_or(0))),
            false => CallError::Final(why),
        })
    }

    /// A failure on the way.
    fn broken(&self, error: &reqwest::Error) -> CallError {
        let mut why = format!("the Board at {} cannot be reached", self.base);
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            cause = inner.source();
            if cause.is_none() {
                why.push_str(&format!(": {inner}"));
            }
        }
        match error.is_builder() {
            true => CallError::Final("the token is no token: vbt_… is expected".to_owned()),
            false => CallError::Passing(why, Duration::ZERO),
        }
    }
}

/// A refusal of the Board as one sentence.
fn refusal(status: StatusCode, problem: &Value) -> String {
    let text = |name: &str| problem[name].as_str().filter(|text| !text.is_empty());
    if status == StatusCode::UNAUTHORIZED {
        return "the Board does not know this token, or it was revoked".to_owned();
    }
    if status.is_redirection() {
        return format!("the Board answers {status}: is this its own address?");
    }
    match (text("detail").or(text("title")), text("code")) {
        (Some(what), Some(code)) => format!("the Board refuses: {what} ({code})"),
        (Some(what), None) => format!("the Board refuses: {what}"),
        _ => format!("the Board answers {status}"),
    }
}

/// The Board's address; a token travels unencrypted to this machine alone.
fn address(text: &str, insecure: bool) -> Result<Url, String> {
    let whole = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let mut url = Url::parse(&whole).map_err(|error| format!("--board: {text:?} is not an address: {error}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("--board: the address of a Board has no user and no password in it".to_owned());
    }
    let bare = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let local = bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    match url.scheme() {
        "https" => {}
        "http" if local || insecure => {}
        "http" => {
            return Err(format!(
                "--board: {text} is not encrypted, and the token could be read on the way: use https://"
            ));
        }
        _ => return Err(format!("--board: {text:?} is not an address such as https://board.example.com")),
    }
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_travels_in_the_clear_to_this_machine_alone() {
        for good in
            ["https://b.example", "b.example:8443", "http://127.0.0.1:7400", "http://[::1]:1/x", "http://localhost"]
        {
            assert!(address(good, false).is_ok(), "{good}");
        }
        for bad in ["http://b.example", "http://127.0.0.1.evil.example", "ftp://x", "https://u:p@b", ""] {
            assert!(address(bad, false).is_err(), "{bad}");
        }
        assert!(address("http://b.example", true).is_ok());
    }

    #[test]
    fn a_refusal_is_one_sentence() {
        let problem =
            serde_json::json!({ "title": "Unprocessable", "detail": "no such viber", "code": "unknown_viber" });
        assert_eq!(
            refusal(StatusCode::UNPROCESSABLE_ENTITY, &problem),
            "the Board refuses: no such viber (unknown_viber)"
        );
        assert_eq!(refusal(StatusCode::BAD_GATEWAY, &Value::Null), "the Board answers 502 Bad Gateway");
    }
}
