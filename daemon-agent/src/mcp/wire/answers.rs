//! What a server said about itself, and why one did not answer, in words.

use std::{error::Error as StdError, io};

use protocol::text::{head, marked, printable};
use rmcp::{
    ServiceError,
    service::ClientInitializeError,
    transport::streamable_http_client::{AuthRequiredError, StreamableHttpError},
};
use serde_json::Value;

/// Longest text of an error, bytes.
const MAX_ERROR_BYTES: usize = 4_000;

/// What a server says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFacts {
    /// Its name and version, in a line.
    pub version: Option<String>,
    /// The revision of the protocol that both speak.
    pub revision: String,
    pub has_tools: bool,
    pub has_resources: bool,
    /// Whether it tells when its list of tools changes.
    pub tells_changes: bool,
}

impl ServerFacts {
    /// Reads what the handshake told.
    pub fn of(info: &Value) -> Self {
        let word = |value: &Value| value.as_str().map(|text| head(text, 80).to_owned());
        let named = &info["serverInfo"];
        let version =
            [word(&named["name"]), word(&named["version"])].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let capabilities = &info["capabilities"];
        Self {
            version: Some(marked(&version)).filter(|version| !version.is_empty()),
            revision: word(&info["protocolVersion"]).unwrap_or_default(),
            has_tools: !capabilities["tools"].is_null(),
            has_resources: !capabilities["resources"].is_null(),
            tells_changes: capabilities["tools"]["listChanged"] == true,
        }
    }
}

/// Why a server did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Somebody has to sign in.
    AuthRequired,
    /// The connection is over, or never began.
    Closed(String),
    TimedOut(String),
    /// There was no connection to send a request over.
    Unreachable(String),
    /// The server's own word.
    Refused(String),
    /// The call was given up.
    Stopped,
}

impl WireError {
    /// The same for people who know the server as `server`: with what they can do about it.
    pub fn told(&self, server: &str) -> String {
        match self {
            Self::AuthRequired => format!("{self}: daemon-agent mcp login {server}"),
            _ => self.to_string(),
        }
    }

    /// The same of a call that had been sent: the server may have done it.
    pub fn of_sent_call(self) -> Self {
        let more = |text: String| format!("{text}; whether it did what it was asked is not known");
        match self {
            Self::Closed(text) => Self::Closed(more(text)),
            Self::TimedOut(text) => Self::TimedOut(more(text)),
            Self::AuthRequired | Self::Unreachable(_) | Self::Refused(_) | Self::Stopped => self,
        }
    }
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AuthRequired => f.write_str("somebody has to sign in"),
            Self::Closed(why) | Self::TimedOut(why) | Self::Unreachable(why) | Self::Refused(why) => f.write_str(why),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

pub fn service_error(error: &ServiceError) -> WireError {
    match error {
        ServiceError::McpError(data) => WireError::Refused(cut(&data.message)),
        ServiceError::TransportSend(failed) if is_unauthorized(failed) => WireError::AuthRequired,
        ServiceError::TransportSend(failed) if was_not_sent(failed.error.as_ref()) => {
            WireError::Unreachable(plain(failed.error.as_ref()))
        }
        ServiceError::TransportSend(failed) => WireError::Closed(plain(failed.error.as_ref())),
        ServiceError::TransportClosed => WireError::Closed("the connection ended".to_owned()),
        _ => WireError::Refused(cut(&error.to_string())),
    }
}

pub fn needs_sign_in(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => is_unauthorized(error),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => needs_sign_in(fallback),
        _ => false,
    }
}

/// Whether a failure, or what caused it, is the server's wish to know who asks.
fn is_unauthorized(error: &(dyn StdError + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<AuthRequiredError>() || error.to_string().contains("HTTP 401") {
            return true;
        }
        next = error.source();
    }
    false
}

/// Why a handshake failed, for people.
pub fn handshake_failure(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => plain(error.error.as_ref()),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => handshake_failure(fallback),
        ClientInitializeError::ConnectionClosed(_) => "it ended without answering the handshake".to_owned(),
        ClientInitializeError::JsonRpcError(refused) => {
            format!("it refused the handshake: {}", cut(&refused.message))
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "it speaks no revision of MCP that is known here".to_owned()
        }
        _ => format!("its answer to the handshake is not what MCP asks for: {}", causes(error)),
    }
}

/// A failure for people, without the names of the library's types.
fn plain(error: &(dyn StdError + 'static)) -> String {
    if let Some(io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =
        error.downcast_ref::<io::Error>().map(io::Error::kind)
    {
        return "its program ended".to_owned();
    }
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(failed)) => unreachable_words(failed),
        Some(StreamableHttpError::UnexpectedServerResponse(said)) => cut(said),
        Some(StreamableHttpError::UnexpectedContentType(_)) => {
            "what answers at its address does not speak MCP: it sent neither JSON nor events".to_owned()
        }
        Some(StreamableHttpError::Deserialize(_)) => {
            "what answers at its address does not speak MCP: its JSON is no message".to_owned()
        }
        Some(StreamableHttpError::SessionExpired) => "it does not know the session any more".to_owned(),
        _ => causes(error),
    }
}

/// Whether there was no connection to send anything over.
fn was_not_sent(error: &(dyn StdError + 'static)) -> bool {
    let http = error.downcast_ref::<StreamableHttpError<reqwest::Error>>();
    matches!(http, Some(StreamableHttpError::Client(failed)) if failed.is_connect())
}

/// Why nothing came from an address.
fn unreachable_words(error: &reqwest::Error) -> String {
    // Its query may hold a key.
    let place = error.url().map_or_else(
        || "it".to_owned(),
        |url| {
            let mut url = url.clone();
            url.set_query(None);
            url.to_string()
        },
    );
    if error.is_timeout() {
        return cut(&format!("{place} cannot be reached: it does not answer"));
    }
    let what = if error.is_connect() { "cannot be reached" } else { "broke off" };
    cut(&format!("{place} {what}: {}", innermost(error)))
}

/// The cause that people understand.
fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "connection reset".to_owned(),
        _ => cause.to_string(),
    }
}

/// A failure with its causes, in one line.
fn causes(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
        next = error.source();
    }
    cut(&text)
}

/// Words of a server, in part, which a terminal may show.
fn cut(text: &str) -> String {
    printable(&protocol::text::head_and_tail(text, MAX_ERROR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_cannot_be_reached_is_said_in_a_sentence() {
        let failed = reqwest::Client::new().get("http://127.0.0.1:1/mcp?key=owl").send().await;
        let failed = StreamableHttpError::Client(failed.expect_err("nobody listens there"));
        assert_eq!(plain(&failed), "http://127.0.0.1:1/mcp cannot be reached: connection refused");
        assert!(was_not_sent(&failed));
        let said = StreamableHttpError::<reqwest::Error>::UnexpectedServerResponse("HTTP 404 Not Found".into());
        assert_eq!(plain(&said), "HTTP 404 Not Found");
        assert_eq!(plain(&io::Error::from(io::ErrorKind::BrokenPipe)), "its program ended");
        assert_eq!(WireError::AuthRequired.told("wiki"), "somebody has to sign in: daemon-agent mcp login wiki");
    }
}
