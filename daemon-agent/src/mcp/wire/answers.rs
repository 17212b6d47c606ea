//! What a server said about itself, and why one did not answer, in words.

use std::error::Error as StdError;

use protocol::text::{head, marked, printable};
use rmcp::{ServiceError, service::ClientInitializeError, transport::streamable_http_client::AuthRequiredError};
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
    /// The server's own word.
    Refused(String),
    /// The call was given up.
    Stopped,
}

impl std::fmt::Display for WireError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AuthRequired => f.write_str("somebody has to sign in: daemon-agent mcp login NAME"),
            Self::Closed(why) | Self::TimedOut(why) | Self::Refused(why) => f.write_str(why),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

pub fn service_error(error: &ServiceError) -> WireError {
    match error {
        ServiceError::McpError(data) => WireError::Refused(cut(&data.message)),
        ServiceError::TransportSend(failed) if is_unauthorized(failed) => WireError::AuthRequired,
        // Without the names of the library's types.
        ServiceError::TransportSend(failed) => WireError::Closed(words(failed.error.as_ref())),
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

/// A failure with its causes, in one line.
pub fn words(error: &(dyn StdError + 'static)) -> String {
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
