//! Slack as an app in Socket Mode sees it: its Web API, its sockets and its files. It delivers again what was not acknowledged
//! when a test says so, limits calls, closes sockets, and keeps what was posted.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{
        Path, State,
        ws::{Message, WebSocket, WebSocketUpgrade},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get, post},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wait::{EVENT_TIMEOUT, until};

/// The tokens that it knows.
pub const APP_TOKEN: &str = "xapp-1-FAKE";
pub const BOT_TOKEN: &str = "xoxb-2-FAKE";
/// Who the bot is.
pub const BOT: &str = "UBOT";
/// Its team.
pub const SLACK_TEAM: &str = "T1";

/// A message in a channel, as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlackMessage {
    pub channel: String,
    pub thread: String,
    pub ts: String,
    pub text: String,
    pub blocks: Value,
    /// It was streamed, and whether that has ended.
    pub is_streamed: bool,
    pub is_closed: bool,
    /// Only this person sees it.
    pub only_to: Option<String>,
}

/// A running fake.
#[derive(Debug)]
pub struct FakeSlack {
    pub url: String,
    shared: Arc<Mutex<SlackState>>,
    end: CancellationToken,
}

#[derive(Debug, Default)]
struct SlackState {
    address: String,
    messages: Vec<SlackMessage>,
    calls: Vec<(String, Value)>,
    /// What the next calls of a method are answered with instead: 429 and seconds, or a refusal.
    faults: BTreeMap<String, VecDeque<Fault>>,
    /// Open sockets, the newest last.
    sockets: Vec<mpsc::UnboundedSender<Value>>,
    opened: usize,
    acknowledged: Vec<String>,
    /// Files that people sent, and that the bot did.
    files: BTreeMap<String, Vec<u8>>,
    uploads: BTreeMap<String, (String, Vec<u8>)>,
    number: u64,
}

#[derive(Clone, Debug)]
enum Fault {
    Limited(u64),
    Refused(String),
    /// It is done, and nobody hears of that.
    Lost,
}

type Shared = Arc<Mutex<SlackState>>;

impl FakeSlack {
    /// Starts it on a port of its own.
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let shared: Shared = Arc::new(Mutex::new(SlackState { address: address.clone(), ..SlackState::default() }));
        let app = Router::new()
            .route("/api/{method}", post(call))
            .route("/socket", any(socket))
            .route("/files/{name}", get(file))
            .route("/upload/{id}", post(upload))
            .with_state(shared.clone());
        let end = CancellationToken::new();
        let stopped = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, app).into_future() => served.expect("the fake serves"),
                () = stopped.cancelled() => {}
            }
        });
        Self { url: format!("http://{address}"), shared, end }
    }

    /// The section of `config.yaml` with which a viber uses it: `U1` may talk, `U2` may decide as well.
    pub fn config(&self) -> String {
        format!(
            "adapters:\n  slack: {{ appToken: \"{APP_TOKEN}\", botToken: \"{BOT_TOKEN}\", users: [U1, U2], approvers: [U2], \
             apiUrl: \"{}/api\" }}\n",
            self.url
        )
    }

    /// Waits until a socket is open.
    pub async fn connected(&self) {
        let open = || async { json!(self.state().sockets.iter().filter(|socket| !socket.is_closed()).count()) };
        until(EVENT_TIMEOUT, "a socket of Slack", open, |open| *open != json!(0)).await;
    }

    /// How many sockets were opened so far.
    pub fn opened(&self) -> usize {
        self.state().opened
    }

    /// Somebody writes to the bot alone; answers the `ts`.
    pub fn direct(&self, user: &str, text: &str) -> String {
        self.say(json!({ "type": "message", "channel": "D1", "channel_type": "im", "user": user, "text": text }))
    }

    /// Somebody answers in the thread of a direct message.
    pub fn reply(&self, root: &str, user: &str, text: &str) -> String {
        let event = json!({ "channel": "D1", "channel_type": "im", "user": user, "text": text, "thread_ts": root });
        self.say(with(event, "type", "message"))
    }

    /// An event of a message, whatever it says; answers its `ts`.
    pub fn say(&self, event: Value) -> String {
        let n = self.number();
        let ts = format!("1700000000.{n:06}");
        let event = with(event, "ts", &ts);
        self.deliver(&format!("Ev{n}"), &format!("env-{n}"), event);
        ts
    }

    /// Delivers an event under these ids; again under another envelope when it was delivered before.
    pub fn deliver(&self, event_id: &str, envelope: &str, event: Value) {
        let payload = json!({ "type": "event_callback", "team_id": SLACK_TEAM, "event_id": event_id, "event": event });
        self.send(json!({ "type": "events_api", "envelope_id": envelope, "payload": payload }));
    }

    /// Somebody presses the button of a message with this action.
    pub fn press(&self, user: &str, message: &SlackMessage, action: &str) {
        let blocks = message.blocks.as_array().cloned().unwrap_or_default();
        let found = blocks.iter().find_map(|block| {
            let elements = block["elements"].as_array()?;
            let element = elements.iter().find(|element| element["action_id"] == action)?;
            Some((block["block_id"].clone(), element["value"].clone()))
        });
        let (block, value) = found.unwrap_or_else(|| panic!("no {action} in {:#}", message.blocks));
        let n = self.number();
        let pressed = json!({ "action_id": action, "block_id": block, "value": value, "action_ts": n.to_string() });
        let container = json!({ "type": "message", "message_ts": message.ts, "channel_id": message.channel });
        let payload =
            json!({ "type": "block_actions", "user": { "id": user }, "container": container, "actions": [pressed] });
        self.send(json!({ "type": "interactive", "envelope_id": format!("env-{n}"), "payload": payload }));
    }

    /// Tells the newest socket that it is closed soon; it stays open.
    pub fn refresh(&self) {
        self.send(json!({ "type": "disconnect", "reason": "refresh_requested" }));
    }

    /// Sends an envelope on the oldest socket that is open.
    pub fn send_on_oldest(&self, envelope: Value) {
        let state = self.state();
        let oldest = state.sockets.iter().find(|socket| !socket.is_closed()).expect("an open socket");
        oldest.send(envelope).expect("it is open");
    }

    /// Cuts all sockets.
    pub fn cut(&self) {
        self.state().sockets.clear();
    }

    /// The next call of a method is answered with 429 and this wait.
    pub fn limit(&self, method: &str, seconds: u64) {
        self.fault(method, Fault::Limited(seconds));
    }

    /// The next call of a method is carried out, and its answer is lost.
    pub fn lose(&self, method: &str) {
        self.fault(method, Fault::Lost);
    }

    /// The next call of a method is refused.
    pub fn refuse_once(&self, method: &str, code: &str) {
        self.fault(method, Fault::Refused(code.to_owned()));
    }

    /// Every call of a method from now on is refused.
    pub fn refuse(&self, method: &str, code: &str) {
        (0..1_000).for_each(|_| self.fault(method, Fault::Refused(code.to_owned())));
    }

    /// A file that somebody can send; answers how an event names it.
    pub fn file(&self, name: &str, bytes: &[u8]) -> Value {
        self.state().files.insert(name.to_owned(), bytes.to_vec());
        json!({ "name": name, "url_private_download": format!("{}/files/{name}", self.url) })
    }

    /// The files that the bot sent, by their names.
    pub fn uploaded(&self) -> Vec<(String, Vec<u8>)> {
        self.state().uploads.values().filter(|(_, bytes)| !bytes.is_empty()).cloned().collect()
    }

    /// Envelopes that were acknowledged, in order.
    pub fn acknowledged(&self) -> Vec<String> {
        self.state().acknowledged.clone()
    }

    /// The bodies of all calls of a method.
    pub fn calls(&self, method: &str) -> Vec<Value> {
        self.state().calls.iter().filter(|(name, _)| name == method).map(|(_, body)| body.clone()).collect()
    }

    /// What stands in a thread, in order.
    pub fn thread(&self, root: &str) -> Vec<SlackMessage> {
        self.state().messages.iter().filter(|message| message.thread == root).cloned().collect()
    }

    /// Waits until a message of the thread is as `wanted` says.
    pub async fn message(&self, root: &str, what: &str, wanted: impl Fn(&SlackMessage) -> bool) -> SlackMessage {
        let found = || async {
            let messages = self.thread(root);
            json!({ "found": messages.iter().position(&wanted), "thread": format!("{messages:#?}") })
        };
        let at = until(EVENT_TIMEOUT, what, found, |found| found["found"].is_u64()).await["found"].as_u64();
        self.thread(root)[usize::try_from(at.expect("found")).expect("small")].clone()
    }

    fn fault(&self, method: &str, fault: Fault) {
        self.state().faults.entry(method.to_owned()).or_default().push_back(fault);
    }

    fn send(&self, envelope: Value) {
        let state = self.state();
        let newest = state.sockets.iter().rfind(|socket| !socket.is_closed()).expect("an open socket");
        newest.send(envelope).expect("it is open");
    }

    fn number(&self) -> u64 {
        let mut state = self.state();
        state.number += 1;
        state.number
    }

    fn state(&self) -> MutexGuard<'_, SlackState> {
        self.shared.lock().expect("not poisoned")
    }
}

impl Drop for FakeSlack {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

fn with(mut json: Value, key: &str, value: &str) -> Value {
    json[key] = json!(value);
    json
}

/// Whether a request shows this token.
fn shows(headers: &HeaderMap, token: &str) -> bool {
    headers.get(header::AUTHORIZATION).is_some_and(|shown| shown.as_bytes() == format!("Bearer {token}").as_bytes())
}

/// The arguments of a call. Of JSON Slack reads nothing where a method takes forms alone; lists in a form are JSON.
fn arguments(method: &str, headers: &HeaderMap, body: &[u8]) -> Value {
    let is_json =
        headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/json"));
    if is_json {
        let is_form_only = method.starts_with("files.") || method.starts_with("users.");
        return if is_form_only { json!({}) } else { serde_json::from_slice(body).unwrap_or_default() };
    }
    let query = format!("form:?{}", String::from_utf8_lossy(body));
    let form = reqwest::Url::parse(&query).expect("a form");
    let read = |(name, value): (std::borrow::Cow<'_, str>, std::borrow::Cow<'_, str>)| {
        let list = matches!(&*name, "blocks" | "files").then(|| serde_json::from_str(&value).expect("JSON"));
        (name.into_owned(), list.unwrap_or_else(|| json!(value)))
    };
    Value::Object(form.query_pairs().map(read).collect())
}

async fn call(State(shared): State<Shared>, Path(method): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    let token = if method == "apps.connections.open" { APP_TOKEN } else { BOT_TOKEN };
    if !shows(&headers, token) {
        return Json(json!({ "ok": false, "error": "invalid_auth" })).into_response();
    }
    let body = arguments(&method, &headers, &body);
    let mut state = shared.lock().expect("not poisoned");
    state.calls.push((method.clone(), body.clone()));
    match state.faults.get_mut(&method).and_then(VecDeque::pop_front) {
        Some(Fault::Limited(seconds)) => {
            return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds.to_string())]).into_response();
        }
        Some(Fault::Refused(code)) => return Json(json!({ "ok": false, "error": code })).into_response(),
        Some(Fault::Lost) => {
            state.answer(&method, &body);
            return StatusCode::BAD_GATEWAY.into_response();
        }
        None => {}
    }
    Json(state.answer(&method, &body)).into_response()
}

impl SlackState {
    fn answer(&mut self, method: &str, body: &Value) -> Value {
        let word = |key: &str| body[key].as_str().unwrap_or_default().to_owned();
        match method {
            "auth.test" => json!({ "ok": true, "user_id": BOT, "bot_id": "BBOT", "team_id": SLACK_TEAM }),
            "apps.connections.open" => json!({ "ok": true, "url": format!("ws://{}/socket", self.address) }),
            "users.info" if word("user").is_empty() => json!({ "ok": false, "error": "user_not_found" }),
            "users.info" => {
                json!({ "ok": true, "user": { "profile": { "display_name": format!("Person {}", word("user")) } } })
            }
            "chat.postMessage" | "chat.postEphemeral" | "chat.startStream" => {
                let is_streamed = method == "chat.startStream";
                self.number += 1;
                let ts = format!("1700000001.{:06}", self.number);
                self.messages.push(SlackMessage {
                    channel: word("channel"),
                    thread: word("thread_ts"),
                    ts: ts.clone(),
                    text: word(if is_streamed { "markdown_text" } else { "text" }),
                    blocks: body["blocks"].clone(),
                    is_streamed,
                    is_closed: !is_streamed,
                    only_to: (method == "chat.postEphemeral").then(|| word("user")),
                });
                json!({ "ok": true, "ts": ts })
            }
            // Its clock stands still: everything that stands in a thread is new.
            "conversations.replies" if word("oldest").is_empty() => {
                json!({ "ok": false, "error": "invalid_arguments" })
            }
            "conversations.replies" => {
                let here = self
                    .messages
                    .iter()
                    .filter(|said| (&said.channel, &said.thread) == (&word("channel"), &word("ts")));
                let shown = here.map(|said| json!({ "ts": said.ts, "text": said.text, "user": BOT, "bot_id": "BBOT" }));
                json!({ "ok": true, "messages": shown.collect::<Vec<_>>() })
            }
            "chat.delete" => {
                let before = self.messages.len();
                self.messages.retain(|message| message.ts != word("ts"));
                match before == self.messages.len() {
                    true => json!({ "ok": false, "error": "message_not_found" }),
                    false => json!({ "ok": true, "ts": word("ts") }),
                }
            }
            "chat.update" | "chat.appendStream" | "chat.stopStream" => {
                let Some(message) = self.messages.iter_mut().find(|message| message.ts == word("ts")) else {
                    return json!({ "ok": false, "error": "message_not_found" });
                };
                match method {
                    "chat.update" => {
                        message.text = word("text");
                        message.blocks = body["blocks"].clone();
                    }
                    "chat.appendStream" => message.text.push_str(&word("markdown_text")),
                    _ => message.is_closed = true,
                }
                json!({ "ok": true, "ts": word("ts") })
            }
            "files.getUploadURLExternal" if word("filename").is_empty() || word("length").is_empty() => {
                json!({ "ok": false, "error": "invalid_arguments" })
            }
            "files.getUploadURLExternal" => {
                self.number += 1;
                let id = format!("F{}", self.number);
                self.uploads.insert(id.clone(), (word("filename"), Vec::new()));
                json!({ "ok": true, "file_id": id, "upload_url": format!("http://{}/upload/{id}", self.address) })
            }
            "files.completeUploadExternal" if !body["files"].is_array() => {
                json!({ "ok": false, "error": "invalid_arguments" })
            }
            "files.completeUploadExternal" => json!({ "ok": true }),
            _ => json!({ "ok": false, "error": "unknown_method" }),
        }
    }
}

async fn file(State(shared): State<Shared>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    if !shows(&headers, BOT_TOKEN) {
        return StatusCode::FORBIDDEN.into_response();
    }
    let found = shared.lock().expect("not poisoned").files.get(&name).cloned();
    found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

async fn upload(State(shared): State<Shared>, Path(id): Path<String>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if headers.contains_key(header::AUTHORIZATION) {
        // A token has no business there.
        return StatusCode::BAD_REQUEST;
    }
    if let Some((_, bytes)) = shared.lock().expect("not poisoned").uploads.get_mut(&id) {
        *bytes = body.to_vec();
    }
    StatusCode::OK
}

async fn socket(State(shared): State<Shared>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |socket| serve(socket, shared))
}

async fn serve(mut socket: WebSocket, shared: Shared) {
    #[expect(clippy::disallowed_methods, reason = "a test sends few envelopes")]
    let (to, mut envelopes) = mpsc::unbounded_channel();
    let hello = json!({ "type": "hello", "num_connections": 1 }).to_string();
    if socket.send(Message::text(hello)).await.is_err() {
        return;
    }
    {
        let mut state = shared.lock().expect("not poisoned");
        state.opened += 1;
        state.sockets.push(to);
    }
    loop {
        tokio::select! {
            // Ends when the test has cut it.
            envelope = envelopes.recv() => match envelope {
                Some(envelope) => {
                    if socket.send(Message::text(Value::to_string(&envelope))).await.is_err() {
                        return;
                    }
                }
                None => return,
            },
            frame = socket.recv() => match frame {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap_or_default();
                    if let Some(id) = frame["envelope_id"].as_str() {
                        shared.lock().expect("not poisoned").acknowledged.push(id.to_owned());
                    }
                }
                Some(Ok(_)) => {}
                None | Some(Err(_)) => return,
            },
        }
    }
}
