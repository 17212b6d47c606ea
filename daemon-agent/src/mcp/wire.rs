//! Talking to one server. The only place that knows the protocol's library: requests go in as JSON, and results come out as
//! JSON, whichever revision the server speaks.
//!
//! Owns the handshake, the bounds of what a server may send, and what it may ask of its client: questions for people and
//! nothing else. Sampling is refused, and there are no roots.

mod answers;
mod guard;
mod heard;
mod http;
mod lines;
mod pace;
mod task_tools;

use std::{sync::Arc, time::Duration};

use protocol::{
    TaskId,
    text::{head, printable},
};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError,
    model::{ClientRequest, ProtocolVersion, ServerResult, SubscriptionFilter},
    service::{PeerRequestOptions, RequestHandle, RunningService},
    transport::{StreamableHttpClientTransport, Transport, async_rw::AsyncRwTransport},
};
use serde_json::{Value, json};
use tokio::{
    net::UnixStream,
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub use answers::{ServerFacts, WireError};
use answers::{handshake_failure, needs_sign_in, service_error};
use guard::GuardedTransport;
pub use heard::{CallEvent, Elicitation};
use heard::{CallSeat, Heard, Listener, RegisteredCall};
pub use http::{HttpEndpoint, TokenSource};
use lines::BoundedLines;

/// Longest message of a server, bytes. A server that sends a longer one is cut off.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// How long the handshake may take: the library waits ten seconds for a server that does not answer its first question.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(45);
/// How long a server may take to list something, all pages together.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a call takes, whatever it says meanwhile. What people take to answer does not count.
const MAX_CALL_TIME: Duration = Duration::from_secs(3_600);
/// Pages of a list that are read.
const MAX_PAGES: usize = 100;
/// Rounds of questions in one call.
const MAX_ROUNDS: usize = 10;
/// Inputs that are asked for in one of them.
const MAX_ROUND_REQUESTS: usize = 8;
/// Events of a call that wait for whoever made it; progress beyond that is dropped.
const EVENT_BUFFER: usize = 64;
/// How long a server is told that nobody waits for its answer.
const GIVE_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// The wait before a server is asked again to tell of changes, when it ended that.
const LISTEN_AGAIN_WAIT: Duration = Duration::from_secs(30);

/// How the handshake begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The revision of 2026-07-28, and what came before it if the server does not know that.
    Newest,
    /// Only `initialize`, for a server that is known not to know more.
    Initialize,
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

impl WireClient {
    /// Over the standard input and output of a program.
    pub async fn over_stdio(socket: UnixStream, handshake: Handshake) -> Result<Self, WireError> {
        let (reader, writer) = socket.into_split();
        let listener = Listener::new()?;
        let lines = BoundedLines::new(reader, listener.heard.clone());
        Self::over(listener, AsyncRwTransport::new_client(lines, writer), handshake).await
    }

    /// Over HTTP.
    pub async fn over_http(endpoint: HttpEndpoint, handshake: Handshake) -> Result<Self, WireError> {
        let listener = Listener::new()?;
        let (client, config) = endpoint.into_transport(listener.heard.clone());
        Self::over(listener, StreamableHttpClientTransport::with_client(client, config), handshake).await
    }

    async fn over<T>(listener: Listener, transport: T, handshake: Handshake) -> Result<Self, WireError>
    where
        T: Transport<RoleClient> + 'static,
    {
        let heard = listener.heard.clone();
        let guarded = GuardedTransport::new(transport, heard.open.clone(), heard.closed.clone());
        // What the library does for it is a large future.
        let serving = Box::pin(listener.serve_with_lifecycle(guarded, lifecycle(handshake)));
        let service = match timeout(HANDSHAKE_TIMEOUT, serving).await {
            Ok(Ok(service)) => service,
            Ok(Err(error)) if needs_sign_in(&error) => return Err(WireError::AuthRequired),
            Ok(Err(_)) if heard.cut.get().is_some() => return Err(heard.closed_error()),
            Ok(Err(error)) => return Err(WireError::Closed(handshake_failure(&error))),
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
            let listening = async {
                let mut has_listened = false;
                loop {
                    let filter = serde_json::from_value::<SubscriptionFilter>(json!({ "toolsListChanged": true }));
                    let Ok(filter) = filter else { return };
                    match peer.listen(filter).await {
                        Ok(mut told) => {
                            has_listened = true;
                            while let Ok(Some(_)) = told.next().await {
                                heard.tools_changed();
                            }
                        }
                        // It was away for a moment: whoever lists its tools finds out whether it still is.
                        Err(_) if has_listened => {}
                        Err(_) => return,
                    }
                    sleep(LISTEN_AGAIN_WAIT).await;
                    // What changed meanwhile was told to nobody.
                    heard.tools_changed();
                }
            };
            heard.closed.run_until_cancelled(listening).await;
        });
    }

    /// Notifies when the list of tools may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.heard.changes.subscribe()
    }

    /// Whether the server can be asked no more.
    pub fn is_closed(&self) -> bool {
        self.heard.closed.is_cancelled() || self.service.is_closed()
    }

    /// Returns when the server can be asked no more.
    pub async fn closed(&self) {
        self.heard.closed.cancelled().await;
    }

    /// Why that is so.
    pub fn why_closed(&self) -> String {
        self.heard.why_closed()
    }

    /// Every item of a list, such as `tools/list` with its `tools`.
    pub async fn list(&self, method: &str, items: &str) -> Result<Vec<Value>, WireError> {
        let until = Instant::now() + LIST_TIMEOUT;
        let (mut all, mut cursor, mut bytes) = (Vec::new(), None::<String>, 0);
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page = self.ask(method, params, until).await?;
            bytes += page.to_string().len();
            if bytes > MAX_MESSAGE_BYTES {
                return Err(WireError::Refused(format!("its answer to {method} is too long")));
            }
            if let Some(Value::Array(some)) = page.get_mut(items).map(Value::take) {
                all.extend(some);
            }
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                self.heard.task_tools.mark(&mut all);
                return Ok(all);
            }
        }
        Err(WireError::Refused(format!("its answer to {method} has more than {MAX_PAGES} pages")))
    }

    /// A request that nobody is asked about meanwhile.
    async fn ask(&self, method: &str, params: Value, until: Instant) -> Result<Value, WireError> {
        let request = request(method, params)?;
        let sending = self.service.peer().send_cancellable_request(request, PeerRequestOptions::no_options());
        let mut handle = sending.await.map_err(|error| service_error(&error))?;
        tokio::select! {
            biased;
            answer = &mut handle.rx => return self.taken(answer),
            () = self.heard.closed.cancelled() => return Err(self.heard.closed_error()),
            () = sleep_until(until) => {}
        }
        let why = WireError::TimedOut(format!("it did not answer {method} in time"));
        give_up(handle, &why).await;
        Err(why)
    }

    /// Calls a method that takes its time, with rounds of questions if the server has some.
    pub async fn call(&self, method: &str, params: Value, terms: &CallTerms<'_>) -> Result<Value, WireError> {
        let _registered = RegisteredCall::begin(&self.heard, terms);
        let ends = CallEnd { after: Instant::now() + MAX_CALL_TIME, waited: self.heard.waited() };
        let mut params = params;
        for _ in 0..MAX_ROUNDS {
            let once = self.call_once(method, params.clone(), terms, ends).await;
            let answer = once.map_err(WireError::of_sent_call)?;
            if answer["resultType"] != "input_required" {
                return Ok(answer);
            }
            params["inputResponses"] = self.responses(&answer["inputRequests"], terms).await?;
            match &answer["requestState"] {
                Value::Null => {}
                state => params["requestState"] = state.clone(),
            }
        }
        Err(WireError::Refused(format!("it asked for more input {MAX_ROUNDS} times")))
    }

    /// Answers what a result asks for before it can be complete.
    async fn responses(&self, requests: &Value, terms: &CallTerms<'_>) -> Result<Value, WireError> {
        let mut responses = serde_json::Map::new();
        let requests = requests.as_object().into_iter().flatten();
        for (n, (id, request)) in requests.enumerate() {
            if n >= MAX_ROUND_REQUESTS {
                return Err(WireError::Refused(format!("it asked for more than {MAX_ROUND_REQUESTS} inputs at once")));
            }
            let response = match request["method"].as_str() {
                Some("elicitation/create") => {
                    let answered = self.heard.ask(&terms.events, request["params"].clone());
                    terms.stop.run_until_cancelled(answered).await.ok_or(WireError::Stopped)?
                }
                Some("roots/list") => json!({ "roots": [] }),
                other => {
                    let other = printable(head(other.unwrap_or("something"), 80));
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
        terms: &CallTerms<'_>,
        ends: CallEnd,
    ) -> Result<Value, WireError> {
        let request = request(method, params)?;
        let news = watch::Sender::new(Instant::now());
        let mut heard_last = news.subscribe();
        let mut handle = {
            let mut seats = self.heard.progress.lock().await;
            let sending = self.service.peer().send_cancellable_request(request, PeerRequestOptions::no_options());
            let handle = sending.await.map_err(|error| service_error(&error))?;
            // Calls that nobody waits for any more left theirs.
            seats.retain(|_, seat| !seat.events.is_closed());
            seats.insert(handle.progress_token.clone(), CallSeat { events: terms.events.clone(), news });
            handle
        };
        let token = handle.progress_token.clone();
        let given_up = loop {
            let latest = ends.after + self.heard.waited().saturating_sub(ends.waited);
            let due = (*heard_last.borrow_and_update() + terms.silence).min(latest);
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    self.heard.progress.lock().await.remove(&token);
                    return self.taken(answer);
                }
                () = self.heard.closed.cancelled() => return Err(self.heard.closed_error()),
                () = terms.stop.cancelled() => break WireError::Stopped,
                // What people take to answer is not the server's time.
                () = sleep_until(due), if !self.heard.has_questions() => {
                    let seconds = terms.silence.as_secs();
                    break WireError::TimedOut(match due == latest {
                        true => format!("it did not come to an end within {} minutes", MAX_CALL_TIME.as_secs() / 60),
                        false => format!("it did not answer within {seconds} seconds"),
                    });
                }
                changed = heard_last.changed() => {
                    if changed.is_err() {
                        break self.heard.closed_error();
                    }
                }
            }
        };
        self.heard.progress.lock().await.remove(&token);
        give_up(handle, &given_up).await;
        Err(given_up)
    }

    fn taken(&self, answer: Answered) -> Result<Value, WireError> {
        let answer = answer.map_err(|_| self.heard.closed_error())?.map_err(|error| service_error(&error))?;
        serde_json::to_value(&answer).map_err(|error| WireError::Refused(error.to_string()))
    }

    /// Ends the connection; what is under way fails.
    pub fn end(&self) {
        self.heard.closed.cancel();
        self.service.cancellation_token().cancel();
    }
}

/// What a request came back with.
type Answered = Result<Result<ServerResult, ServiceError>, oneshot::error::RecvError>;

/// When a call is over at the latest, if people are not waited for.
#[derive(Clone, Copy)]
struct CallEnd {
    after: Instant,
    /// How long people had been waited for when it began.
    waited: Duration,
}

/// Tells a server that nobody waits for its answer. One that does not listen any more is not waited for.
async fn give_up(handle: RequestHandle<RoleClient>, why: &WireError) {
    let _ = timeout(GIVE_UP_TIMEOUT, handle.cancel(Some(why.to_string()))).await;
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
