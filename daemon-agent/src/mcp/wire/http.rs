//! Streamable HTTP: the requests themselves, with bounds on what is read, and with what somebody got when they signed in.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream::BoxStream};
use reqwest::{
    StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE},
};
use rmcp::{
    model::{ClientJsonRpcMessage, ServerJsonRpcMessage},
    transport::streamable_http_client::{
        AuthRequiredError, SseError, StreamableHttpClient, StreamableHttpClientTransportConfig, StreamableHttpError,
        StreamableHttpPostResponse,
    },
};
use sse_stream::{Sse, SseStream};
use tokio::time::{Instant, sleep_until};

use super::{MAX_MESSAGE_BYTES, heard::Heard, pace::ListeningPace};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest time between two streams that are opened: a server that ends each at once is not asked on and on.
const STREAM_INTERVAL: Duration = Duration::from_millis(500);
/// How long a stream that broke off is asked for again. A server that is not there after that has forgotten the call.
const RESUME_TIME: Duration = Duration::from_secs(4);
/// Longest body of a refusal that is read, bytes.
const MAX_REFUSAL_BYTES: usize = 16 * 1024;
const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const PLAIN: &str = "text/plain";
const SESSION: &str = "Mcp-Session-Id";
const LAST_EVENT: &str = "Last-Event-Id";
/// What is said when signing in would not help.
const HEADER_REFUSED: &str = "it refuses the Authorization header that config.yaml has for it";

/// Gives the bearer token for the next request, if there is one; another one than the server refused, if it did.
pub type TokenSource =
    Arc<dyn Fn(Option<String>) -> Pin<Box<dyn Future<Output = Option<String>> + Send>> + Send + Sync>;

/// Where a server is, and what goes with every request.
pub struct HttpEndpoint {
    pub url: String,
    pub headers: BTreeMap<String, String>,
    pub token: TokenSource,
}

impl HttpEndpoint {
    pub(super) fn into_transport(self, heard: Arc<Heard>) -> (BoundedHttp, StreamableHttpClientTransportConfig) {
        // No redirects: the headers are for this server alone.
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap_or_default();
        let named = self.headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
        });
        let config = StreamableHttpClientTransportConfig::with_uri(self.url.clone()).custom_headers(named.collect());
        (BoundedHttp { client, token: self.token, stream_due: Arc::default(), heard }, config)
    }
}

/// An HTTP client that reads no more than a message.
#[derive(Clone)]
pub struct BoundedHttp {
    client: reqwest::Client,
    token: TokenSource,
    /// When the next stream may be opened.
    stream_due: Arc<Mutex<Option<Instant>>>,
    /// Of the connection that this one carries.
    heard: Arc<Heard>,
}

type Failure = StreamableHttpError<reqwest::Error>;

impl BoundedHttp {
    async fn send(
        &self,
        mut request: reqwest::RequestBuilder,
        session: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<reqwest::Response, Failure> {
        let is_signed = headers.contains_key(&reqwest::header::AUTHORIZATION);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        let again = request.try_clone();
        let token = if is_signed { None } else { (self.token)(None).await };
        if let Some(token) = &token {
            request = request.bearer_auth(token);
        }
        let mut response = request.send().await.map_err(StreamableHttpError::Client)?;
        // Not every token says when it ends.
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(again), Some(refused)) = (again, token)
            && let Some(renewed) = (self.token)(Some(refused)).await
        {
            response = again.bearer_auth(renewed).send().await.map_err(StreamableHttpError::Client)?;
        }
        if response.status() == StatusCode::UNAUTHORIZED && is_signed {
            return Err(StreamableHttpError::UnexpectedServerResponse(HEADER_REFUSED.into()));
        }
        if response.status() == StatusCode::UNAUTHORIZED {
            let asked = response.headers().get(WWW_AUTHENTICATE).and_then(|asked| asked.to_str().ok());
            let asked = asked.unwrap_or("HTTP 401").to_owned();
            return Err(StreamableHttpError::AuthRequired(AuthRequiredError::new(asked)));
        }
        Ok(response)
    }

    /// Opens a stream of events when it is its turn: the one that belongs to no call, or the rest of one behind `last_event`.
    async fn open_stream(
        &self,
        uri: &str,
        session: Option<&str>,
        last_event: Option<&str>,
        headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let due = {
            let mut next = self.stream_due.lock().unwrap_or_else(PoisonError::into_inner);
            let due = next.map_or_else(Instant::now, |next| next.max(Instant::now()));
            *next = Some(due + STREAM_INTERVAL);
            due
        };
        sleep_until(due).await;
        let mut request = self.client.get(uri).header(ACCEPT, EVENTS);
        if let Some(last) = last_event {
            request = request.header(LAST_EVENT, last);
        }
        let response = self.send(request, session, headers).await?;
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        }
        let response = response.error_for_status().map_err(StreamableHttpError::Client)?;
        Ok(self.events(response))
    }

    fn events(&self, response: reqwest::Response) -> BoxStream<'static, Result<Sse, SseError>> {
        let known = self.heard.task_tools.clone();
        let events = SseStream::from_bytes_stream(within_bounds(response.bytes_stream()));
        let seen = events.inspect(move |event| {
            if let Ok(Sse { data: Some(data), .. }) = event {
                known.look(data.as_bytes());
            }
        });
        seen.boxed()
    }
}

/// Whether a stream may be there when it is asked for again: the server could not be reached, or has too much to do.
fn is_passing(failure: &reqwest::Error) -> bool {
    failure.status().is_none_or(|status| status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS)
}

impl StreamableHttpClient for BoundedHttp {
    type Error = reqwest::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let request = self.client.post(uri.as_ref()).header(ACCEPT, format!("{EVENTS}, {JSON}")).json(&message);
        let response = self.send(request, session_id.as_deref(), custom_headers).await?;
        let status = response.status();
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && session_id.is_some() {
            return Err(StreamableHttpError::SessionExpired);
        }
        let of = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let (kind, session) = (of(CONTENT_TYPE.as_str()).unwrap_or_default(), of(SESSION));
        if status.is_success() && kind.starts_with(EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response), session));
        }
        let asked = match message {
            ClientJsonRpcMessage::Request(request) => Some(request.id),
            _ => None,
        };
        let body = if status.is_success() { body(response).await? } else { beginning(response).await };
        let is_json = kind.starts_with(JSON);
        self.heard.task_tools.look(&body);
        match serde_json::from_slice::<ServerJsonRpcMessage>(&body) {
            Ok(message) if is_json && status.is_success() => Ok(StreamableHttpPostResponse::Json(message, session)),
            // Some servers, started anew, refuse the session that they do not know in their own way.
            Ok(ServerJsonRpcMessage::Error(refusal))
                if status == StatusCode::BAD_REQUEST
                    && session_id.is_some()
                    && asked.is_some()
                    && refusal.id != asked =>
            {
                Err(StreamableHttpError::SessionExpired)
            }
            // A refusal may say why as a message of the protocol: it is about this request, whatever it calls it.
            Ok(ServerJsonRpcMessage::Error(mut refusal)) if is_json => {
                refusal.id = asked.or(refusal.id);
                Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::Error(refusal), session))
            }
            // Some servers answer notifications with something.
            _ if status.is_success() && asked.is_none() => Ok(StreamableHttpPostResponse::Accepted),
            Err(error) if status.is_success() && is_json => Err(StreamableHttpError::Deserialize(error)),
            _ if status.is_success() => Err(StreamableHttpError::UnexpectedContentType(Some(kind))),
            _ => {
                // Nobody reads a page of HTML in a line.
                let is_text = is_json || kind.is_empty() || kind.starts_with(PLAIN);
                let said = if is_text { String::from_utf8_lossy(&body) } else { Cow::Borrowed("") };
                let said = protocol::text::head(said.trim(), 500);
                let colon = if said.is_empty() { "" } else { ": " };
                Err(StreamableHttpError::UnexpectedServerResponse(Cow::Owned(format!(
                    "it answered HTTP {status}{colon}{said}"
                ))))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        // Whether the server ends it now or later is its own matter.
        self.send(self.client.delete(uri.as_ref()), Some(&*session_id), custom_headers).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        let (last, until) = (last_event_id.as_deref(), Instant::now() + RESUME_TIME);
        loop {
            let opening = self.open_stream(&uri, session_id.as_deref(), last, custom_headers.clone());
            match opening.await {
                Err(StreamableHttpError::Client(failure)) if last.is_some() && is_passing(&failure) => {
                    if Instant::now() >= until {
                        self.heard.cut_off("it cannot be reached any more");
                        return Err(StreamableHttpError::ServerDoesNotSupportSse);
                    }
                }
                // The rest is not to be had. The library would ask for it on and on, and whoever called would wait.
                Err(StreamableHttpError::Client(_) | StreamableHttpError::UnexpectedServerResponse(_))
                    if last.is_some() =>
                {
                    return Err(StreamableHttpError::ServerDoesNotSupportSse);
                }
                opened => return opened,
            }
        }
    }
}

/// The beginning of what a server says to a refusal.
async fn beginning(response: reqwest::Response) -> Vec<u8> {
    let (mut stream, mut said) = (response.bytes_stream(), Vec::new());
    while let Some(Ok(piece)) = stream.next().await {
        said.extend_from_slice(&piece);
        if said.len() > MAX_REFUSAL_BYTES {
            break;
        }
    }
    said
}

/// The whole body; one that is longer than a message is an error.
async fn body(response: reqwest::Response) -> Result<Vec<u8>, Failure> {
    let (mut stream, mut whole) = (response.bytes_stream(), Vec::new());
    while let Some(piece) = stream.next().await {
        whole.extend_from_slice(&piece.map_err(StreamableHttpError::Client)?);
        if whole.len() > MAX_MESSAGE_BYTES {
            return Err(StreamableHttpError::UnexpectedServerResponse("the answer is too long".into()));
        }
    }
    Ok(whole)
}

/// The bytes, until more than a message came without the empty line that ends an event. Whoever sends too much of them waits.
fn within_bounds(
    bytes: impl Stream<Item = reqwest::Result<Bytes>> + Send + 'static,
) -> BoxStream<'static, io::Result<Bytes>> {
    let (mut event, mut pace) = (0, ListeningPace::new());
    let counted = bytes.map(move |piece| {
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => return (Err(io::Error::other(error)), None),
        };
        event = bytes_of_event(event, &piece);
        if event > MAX_MESSAGE_BYTES {
            return (Err(io::Error::other("an event of the server is too long")), None);
        }
        let ended = piece.windows(2).filter(|end| *end == b"\n\n").count();
        let rest = pace.count(ended, piece.len());
        (Ok(piece), rest)
    });
    let paced = counted.then(|(piece, rest)| async move {
        if let Some(until) = rest {
            sleep_until(until).await;
        }
        piece
    });
    paced.boxed()
}

/// Bytes of the event that is being read behind this piece. An empty line that is cut in two is missed: the event then seems
/// longer than it is.
fn bytes_of_event(before: usize, piece: &[u8]) -> usize {
    let ends = |end: &[u8]| piece.windows(end.len()).rposition(|window| window == end).map(|at| at + end.len());
    match ends(b"\n\n").max(ends(b"\r\n\r\n")).max(ends(b"\r\r")) {
        Some(end) => piece.len() - end,
        None => before + piece.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_begins_anew_behind_an_empty_line() {
        assert_eq!(bytes_of_event(5, b"data: a"), 12);
        assert_eq!(bytes_of_event(5, b"a\n\nbc"), 2);
        assert_eq!(bytes_of_event(5, b"a\r\n\r\n"), 0);
        assert_eq!(bytes_of_event(5, b"a\n\nb\r\n\r\nc"), 1);
    }
}
