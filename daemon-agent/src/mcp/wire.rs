//! Talking to one server. The only place that knows the protocol's library: requests go in as JSON, and results come out as
//! JSON, whichever revision the server speaks.
//!
//! Owns the handshake, the bounds of what a server may send, and what it may ask of its client: questions for people and
//! nothing else. Sampling is refused, and there are no roots.

mod answers;
mod http;
mod lines;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use protocol::{TaskId, text::head};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient,
    model::{
        ClientConfig, ClientRequest, ElicitRequestParams, ElicitResult, ProgressNotificationParam, ProgressToken,
        ProtocolVersion, SubscriptionFilter,
    },
    service::{ClientInitializeError, NotificationContext, PeerRequestOptions, RequestContext, RunningService},
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use answers::{ServerFacts, WireError};
use answers::{needs_sign_in, service_error, words};
pub use http::{HttpEndpoint, TokenSource};
use lines::BoundedLines;

/// Longest message of a server, bytes. A server that sends a longer one is cut off.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// How long the handshake may take: the library waits ten seconds for a server that does not answer its first question.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(45);
/// How long a server may take to list something.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a call takes, whatever it says meanwhile.
const MAX_CALL_TIME: Duration = Duration::from_secs(3_600);
/// Pages of a list that are read.
const MAX_PAGES: usize = 100;
/// Rounds of questions in one call.
const MAX_ROUNDS: usize = 10;
/// Events of a call that wait for whoever made it; progress beyond that is dropped.
const EVENT_BUFFER: usize = 64;
/// Longest text of progress, bytes.
const MAX_PROGRESS_BYTES: usize = 1_000;

/// How the handshake begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The revision of 2026-07-28, and what came before it if the server does not know that.
    Newest,
    /// Only `initialize`, for a server that is known not to know more.
    Initialize,
}

/// Something that happens during a call.
#[derive(Debug)]
pub enum CallEvent {
    Progress(String),
    /// The server asks people for something. Without an answer it is declined.
    Asked(Elicitation),
}

/// What a server asks.
#[derive(Debug)]
pub struct Elicitation {
    /// `{mode?, message, requestedSchema}`.
    pub params: Value,
    /// `{action: accept | decline | cancel, content?}`.
    pub answer: oneshot::Sender<Value>,
}

/// A call under way, as its maker sees it.
pub struct CallTerms<'c> {
    /// Whose questions these are.
    pub task: &'c TaskId,
    /// How long it may take without a word.
    pub silence: Duration,
    pub stop: &'c CancellationToken,
    /// Where its events go.
    pub events: mpsc::Sender<CallEvent>,
}

/// A channel for the events of one call.
pub fn call_events() -> (mpsc::Sender<CallEvent>, mpsc::Receiver<CallEvent>) {
    mpsc::channel(EVENT_BUFFER)
}

/// One connection.
pub struct WireClient {
    service: RunningService<RoleClient, Listener>,
    heard: Arc<Heard>,
    pub facts: ServerFacts,
}

/// What arrives without being an answer.
struct Heard {
    /// Where progress of calls goes. Held while a request is sent, so that no word of it comes too early.
    progress: tokio::sync::Mutex<HashMap<ProgressToken, CallSeat>>,
    /// Calls under way, by number.
    calls: Mutex<(u64, BTreeMap<u64, (TaskId, mpsc::Sender<CallEvent>)>)>,
    /// Questions that wait for people.
    questions: AtomicUsize,
    /// Rises whenever the list of tools may have changed.
    changes: watch::Sender<u64>,
}

struct CallSeat {
    events: mpsc::Sender<CallEvent>,
    /// When something was heard last.
    news: watch::Sender<Instant>,
}

impl Heard {
    fn calls(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, (TaskId, mpsc::Sender<CallEvent>)>)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the time anew that calls have without a word.
    async fn wake(&self) {
        for seat in self.progress.lock().await.values() {
            seat.news.send_replace(Instant::now());
        }
    }

    /// The one task whose calls are under way; `None` if it cannot be told who is asked.
    fn only_caller(&self) -> Option<mpsc::Sender<CallEvent>> {
        let calls = self.calls();
        let mut all = calls.1.values();
        let (task, events) = all.next_back()?;
        all.all(|(other, _)| other == task).then(|| events.clone())
    }
}

/// A call in [`Heard::calls`] until this is dropped.
struct RegisteredCall {
    heard: Arc<Heard>,
    number: u64,
}

impl RegisteredCall {
    fn begin(heard: &Arc<Heard>, bounds: &CallTerms<'_>) -> Self {
        let mut calls = heard.calls();
        calls.0 += 1;
        let number = calls.0;
        calls.1.insert(number, (bounds.task.clone(), bounds.events.clone()));
        drop(calls);
        Self { heard: heard.clone(), number }
    }
}

impl Drop for RegisteredCall {
    fn drop(&mut self) {
        self.heard.calls().1.remove(&self.number);
    }
}

/// Answers what the server asks.
#[derive(Clone)]
struct Listener {
    heard: Arc<Heard>,
    info: ClientConfig,
}

impl ClientHandler for Listener {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(&request).unwrap_or_default();
        let answer = match self.heard.only_caller() {
            Some(events) => {
                self.heard.questions.fetch_add(1, Ordering::SeqCst);
                self.heard.wake().await;
                let answer = asked(&events, params).await;
                self.heard.questions.fetch_sub(1, Ordering::SeqCst);
                self.heard.wake().await;
                answer
            }
            None => json!({ "action": "decline" }),
        };
        serde_json::from_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let seats = self.heard.progress.lock().await;
        let Some(seat) = seats.get(&params.progress_token) else { return };
        seat.news.send_replace(Instant::now());
        let _ = seat.events.try_send(CallEvent::Progress(progress_text(&params)));
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.heard.changes.send_modify(|n| *n = n.wrapping_add(1));
    }

    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }
}

/// Passes a question on, and waits for its answer.
async fn asked(events: &mpsc::Sender<CallEvent>, params: Value) -> Value {
    let (answer, answered) = oneshot::channel();
    let declined = json!({ "action": "decline" });
    if events.send(CallEvent::Asked(Elicitation { params, answer })).await.is_err() {
        return declined;
    }
    answered.await.unwrap_or(declined)
}

fn progress_text(params: &ProgressNotificationParam) -> String {
    let count = match params.total {
        Some(total) => format!("{} of {total}", params.progress),
        None => params.progress.to_string(),
    };
    let message = params.message.as_deref().map(|text| head(text.trim(), MAX_PROGRESS_BYTES)).unwrap_or_default();
    if message.is_empty() { count } else { format!("{count}: {message}") }
}

impl WireClient {
    /// Over the standard input and output of a program.
    pub async fn over_stdio(socket: UnixStream, handshake: Handshake) -> Result<Self, WireError> {
        let (reader, writer) = socket.into_split();
        let (listener, heard) = listener()?;
        let serving = listener.serve_with_lifecycle((BoundedLines::new(reader), writer), lifecycle(handshake));
        Self::begun(timeout(HANDSHAKE_TIMEOUT, serving).await, heard).await
    }

    /// Over HTTP.
    pub async fn over_http(endpoint: HttpEndpoint, handshake: Handshake) -> Result<Self, WireError> {
        let (listener, heard) = listener()?;
        let (client, config) = endpoint.into_transport();
        let transport = StreamableHttpClientTransport::with_client(client, config);
        let serving = listener.serve_with_lifecycle(transport, lifecycle(handshake));
        Self::begun(timeout(HANDSHAKE_TIMEOUT, serving).await, heard).await
    }

    async fn begun(
        served: Result<
            Result<RunningService<RoleClient, Listener>, ClientInitializeError>,
            tokio::time::error::Elapsed,
        >,
        heard: Arc<Heard>,
    ) -> Result<Self, WireError> {
        let service = match served {
            Ok(Ok(service)) => service,
            Ok(Err(error)) if needs_sign_in(&error) => return Err(WireError::AuthRequired),
            Ok(Err(error)) => return Err(WireError::Closed(format!("the handshake failed: {}", words(&error)))),
            Err(_) => return Err(WireError::TimedOut("it did not answer the handshake in time".to_owned())),
        };
        let info = service.peer().peer_info();
        let facts = ServerFacts::of(&info.and_then(|info| serde_json::to_value(&*info).ok()).unwrap_or_default());
        let client = Self { service, heard, facts };
        client.listen_for_changes();
        Ok(client)
    }

    /// Servers of the newest revision tell of changes to whoever listens.
    fn listen_for_changes(&self) {
        let is_new = self.facts.revision.as_str() >= ProtocolVersion::V_2026_07_28.as_str();
        if !is_new || !self.facts.tells_changes {
            return;
        }
        let (peer, heard) = (self.service.peer().clone(), self.heard.clone());
        tokio::spawn(async move {
            let Ok(filter) = serde_json::from_value::<SubscriptionFilter>(json!({ "toolsListChanged": true })) else {
                return;
            };
            let Ok(mut told) = peer.listen(filter).await else { return };
            while let Ok(Some(_)) = told.next().await {
                heard.changes.send_modify(|n| *n = n.wrapping_add(1));
            }
        });
    }

    /// Notifies when the list of tools may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.heard.changes.subscribe()
    }

    /// Whether the server can be asked no more.
    pub fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Every item of a list, such as `tools/list` with its `tools`.
    pub async fn list(&self, method: &str, items: &str) -> Result<Vec<Value>, WireError> {
        let (mut all, mut cursor, mut bytes) = (Vec::new(), None::<String>, 0);
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let answered = timeout(LIST_TIMEOUT, self.ask(method, params)).await;
            let mut page =
                answered.map_err(|_| WireError::TimedOut(format!("it did not answer {method} in time")))??;
            bytes += page.to_string().len();
            if bytes > MAX_MESSAGE_BYTES {
                return Err(WireError::Refused(format!("its answer to {method} is too long")));
            }
            if let Some(Value::Array(some)) = page.get_mut(items).map(Value::take) {
                all.extend(some);
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(all)
    }

    /// A request that nobody is asked about meanwhile.
    async fn ask(&self, method: &str, params: Value) -> Result<Value, WireError> {
        let request = request(method, params)?;
        let answer = self.service.peer().send_request(request).await.map_err(|error| service_error(&error))?;
        serde_json::to_value(&answer).map_err(|error| WireError::Refused(error.to_string()))
    }

    /// Calls a method that takes its time, with rounds of questions if the server has some.
    pub async fn call(&self, method: &str, params: Value, bounds: &CallTerms<'_>) -> Result<Value, WireError> {
        let _registered = RegisteredCall::begin(&self.heard, bounds);
        let ends = Instant::now() + MAX_CALL_TIME;
        let mut params = params;
        for _ in 0..MAX_ROUNDS {
            let answer = self.call_once(method, params.clone(), bounds, ends).await?;
            if answer["resultType"] != "input_required" {
                return Ok(answer);
            }
            params["inputResponses"] = self.responses(&answer["inputRequests"], bounds).await?;
            match &answer["requestState"] {
                Value::Null => {}
                state => params["requestState"] = state.clone(),
            }
        }
        Err(WireError::Refused(format!("it asked for more input {MAX_ROUNDS} times")))
    }

    /// Answers what a result asks for before it can be complete.
    async fn responses(&self, requests: &Value, bounds: &CallTerms<'_>) -> Result<Value, WireError> {
        let mut responses = serde_json::Map::new();
        for (id, request) in requests.as_object().into_iter().flatten() {
            let response = match request["method"].as_str() {
                Some("elicitation/create") => {
                    let answered = asked(&bounds.events, request["params"].clone());
                    bounds.stop.run_until_cancelled(answered).await.ok_or(WireError::Stopped)?
                }
                Some("roots/list") => json!({ "roots": [] }),
                other => {
                    let other = head(other.unwrap_or("something"), 80);
                    return Err(WireError::Refused(format!("it asked for {other}, which is refused")));
                }
            };
            responses.insert(id.clone(), response);
        }
        Ok(Value::Object(responses))
    }

    async fn call_once(
        &self,
        method: &str,
        params: Value,
        bounds: &CallTerms<'_>,
        ends: Instant,
    ) -> Result<Value, WireError> {
        let request = request(method, params)?;
        let news = watch::Sender::new(Instant::now());
        let mut heard_last = news.subscribe();
        let mut handle = {
            let mut seats = self.heard.progress.lock().await;
            let sending = self.service.peer().send_cancellable_request(request, PeerRequestOptions::no_options());
            let handle = sending.await.map_err(|error| service_error(&error))?;
            seats.insert(handle.progress_token.clone(), CallSeat { events: bounds.events.clone(), news });
            handle
        };
        let token = handle.progress_token.clone();
        let given_up = loop {
            let due = (*heard_last.borrow_and_update() + bounds.silence).min(ends);
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    self.heard.progress.lock().await.remove(&token);
                    let answer = answer.map_err(|_| WireError::Closed("the connection ended".to_owned()))?;
                    let answer = answer.map_err(|error| service_error(&error))?;
                    return serde_json::to_value(&answer).map_err(|error| WireError::Refused(error.to_string()));
                }
                () = bounds.stop.cancelled() => break WireError::Stopped,
                // What people take to answer is not the server's time.
                () = sleep_until(due), if self.heard.questions.load(Ordering::SeqCst) == 0 => {
                    let seconds = bounds.silence.as_secs();
                    break WireError::TimedOut(format!("it did not answer within {seconds} seconds"));
                }
                changed = heard_last.changed() => {
                    if changed.is_err() {
                        break WireError::Closed("the connection ended".to_owned());
                    }
                }
            }
        };
        self.heard.progress.lock().await.remove(&token);
        // A server that does not listen any more is not waited for.
        let _ = timeout(Duration::from_secs(1), handle.cancel(Some(given_up.to_string()))).await;
        Err(given_up)
    }

    /// Ends the connection; what is under way fails.
    pub fn end(&self) {
        self.service.cancellation_token().cancel();
    }
}

fn listener() -> Result<(Listener, Arc<Heard>), WireError> {
    let info = json!({
        "protocolVersion": ProtocolVersion::V_2025_11_25.as_str(),
        "capabilities": { "elicitation": { "form": {} } },
        "clientInfo": { "name": "daemon-agent", "version": env!("CARGO_PKG_VERSION") },
    });
    let info = serde_json::from_value(info).map_err(|error| WireError::Closed(error.to_string()))?;
    let heard = Arc::new(Heard {
        progress: Default::default(),
        calls: Mutex::default(),
        questions: AtomicUsize::new(0),
        changes: watch::Sender::new(0),
    });
    Ok((Listener { heard: heard.clone(), info }, heard))
}

fn lifecycle(handshake: Handshake) -> ClientLifecycleMode {
    match handshake {
        Handshake::Newest => ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: Some(ProtocolVersion::V_2025_11_25),
        },
        Handshake::Initialize => ClientLifecycleMode::Initialize,
    }
}

fn request(method: &str, params: Value) -> Result<ClientRequest, WireError> {
    let request = json!({ "method": method, "params": params });
    serde_json::from_value(request).map_err(|error| WireError::Refused(format!("no such request: {error}")))
}
