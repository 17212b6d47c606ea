//! A scripted model behind the three wire formats that daemons speak: OpenAI chat completions, Anthropic messages, Ollama.
//!
//! A script is a list of answers, used one after the other; the last one repeats. In its place a function may make each answer
//! of its request. Each request is kept with its body and with whether the client hung up before the end of the answer.

mod formats;

use std::{
    collections::VecDeque,
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use formats::Format;

/// A running endpoint.
#[derive(Debug)]
pub struct Llm {
    /// Without a path: what `baseUrl` is built from.
    pub url: String,
    inner: Arc<Inner>,
    end: CancellationToken,
}

/// A piece of a streamed answer.
#[derive(Clone, Debug)]
pub enum Piece {
    Text(String),
    Reasoning(String),
    /// A whole tool call; the formats that stream arguments send them in fragments.
    Call {
        id: String,
        name: String,
        args: Value,
    },
    /// How many tokens the request is said to have had; at Anthropic an answer begins with that, and it is always the same.
    Input(u64),
    Pause(Duration),
    /// Nothing more until the gate is opened, or for ever.
    Wait(Gate),
    /// A comment line (or ping) that carries nothing.
    KeepAlive,
    /// Bytes as they are.
    Raw(String),
    /// The connection ends here without the format's own end.
    Cut,
}

/// What one request gets.
#[derive(Clone, Debug)]
pub enum Reply {
    Stream(Vec<Piece>),
    Fault { status: u16, headers: Vec<(&'static str, String)>, body: String },
}

/// Opened by the test.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
    /// The answer was sent to its end.
    pub finished: bool,
    /// The client hung up before.
    pub aborted: bool,
}

/// What the endpoint makes of texts for `/embeddings`.
#[derive(Debug, Default)]
struct Embedder {
    /// Words that mean the same, a group a direction.
    groups: Vec<Vec<String>>,
    down: bool,
    texts: Vec<String>,
}

/// Makes the answer to a request with this body.
type Answering = Box<dyn Fn(&Value) -> Reply + Send>;

#[derive(Default)]
struct Inner {
    embedder: Mutex<Embedder>,
    script: Mutex<VecDeque<Reply>>,
    answering: Mutex<Option<Answering>>,
    requests: Mutex<Vec<Request>>,
    arrived: watch::Sender<usize>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("script", &self.script).field("requests", &self.requests).finish_non_exhaustive()
    }
}

impl Gate {
    /// A closed gate.
    #[expect(clippy::new_without_default, reason = "a gate that is nobody's makes no sense")]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Lets everything through, from now on.
    pub fn open(&self) {
        self.0.send_replace(true);
    }

    async fn pass(&self) {
        let mut seen = self.0.subscribe();
        // The sender lives as long as the gate.
        let _ = seen.wait_for(|open| *open).await;
    }
}

impl Reply {
    /// A short text.
    pub fn text(text: &str) -> Self {
        Self::Stream(vec![Piece::Text(text.to_owned())])
    }

    /// One tool call.
    pub fn call(name: &str, args: Value) -> Self {
        Self::Stream(vec![Piece::call("call_1", name, args)])
    }

    /// An error status with a JSON body.
    pub fn fault(status: u16, body: &Value) -> Self {
        Self::Fault { status, headers: Vec::new(), body: body.to_string() }
    }
}

impl Piece {
    /// Some text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    /// Some reasoning.
    pub fn reasoning(text: &str) -> Self {
        Self::Reasoning(text.to_owned())
    }

    /// A tool call.
    pub fn call(id: &str, name: &str, args: Value) -> Self {
        Self::Call { id: id.to_owned(), name: name.to_owned(), args }
    }
}

impl Llm {
    /// Starts an endpoint that answers with `script`.
    pub async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let inner = Arc::new(Inner { script: Mutex::new(script.into_iter().collect()), ..Inner::default() });
        let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let end = CancellationToken::new();
        let app = Router::new().fallback(answer).with_state(Arc::clone(&inner));
        let stopped = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, app).into_future() => served.expect("the endpoint serves"),
                () = stopped.cancelled() => {}
            }
        });
        Self { url, inner, end }
    }

    /// Replaces what is left of the script.
    pub fn script(&self, script: impl IntoIterator<Item = Reply>) {
        *self.inner.script.lock().expect("not poisoned") = script.into_iter().collect();
    }

    /// From now on makes each answer of its request.
    pub fn answers(&self, answering: impl Fn(&Value) -> Reply + Send + 'static) {
        *self.inner.answering.lock().expect("not poisoned") = Some(Box::new(answering));
    }

    /// All requests for an answer so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.inner.requests.lock().expect("not poisoned").clone()
    }

    /// How many of their answers the client hung up on.
    pub fn given_up(&self) -> usize {
        self.inner.requests.lock().expect("not poisoned").iter().filter(|request| request.aborted).count()
    }

    /// From now on it makes vectors in which the words of a group mean the same.
    pub fn understands(&self, groups: &[&[&str]]) {
        let groups = groups.iter().map(|group| group.iter().map(|word| (*word).to_owned()).collect()).collect();
        self.inner.embedder.lock().expect("not poisoned").groups = groups;
    }

    /// Whether it refuses to make vectors.
    pub fn embeds_nothing(&self, down: bool) {
        self.inner.embedder.lock().expect("not poisoned").down = down;
    }

    /// The texts that it made vectors of.
    pub fn embedded(&self) -> Vec<String> {
        self.inner.embedder.lock().expect("not poisoned").texts.clone()
    }

    /// Waits until `n` requests have come.
    pub async fn asked(&self, n: usize) -> Vec<Request> {
        let mut arrived = self.inner.arrived.subscribe();
        tokio::time::timeout(crate::wait::EVENT_TIMEOUT, arrived.wait_for(|count| *count >= n))
            .await
            .unwrap_or_else(|_| panic!("only {} of {n} requests came", self.requests().len()))
            .expect("the endpoint lives");
        self.requests()
    }

    /// The `config.yaml` and default agent of a viber that uses this endpoint: `api` is `openai`, `anthropic` or `ollama`.
    pub fn config(&self, api: &str) -> String {
        let base = if api == "openai" { format!("{}/v1", self.url) } else { self.url.clone() };
        format!(
            "providers:\n  lab: {{ api: {api}, baseUrl: {base}, apiKey: \"lab-key\" }}\ndefaults: {{ model: lab/scripted }}\n"
        )
    }
}

impl Drop for Llm {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn answer(State(inner): State<Arc<Inner>>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let path = uri.path().to_owned();
    if path.ends_with("/embeddings") {
        return embed(&inner, &body);
    }
    let Some(format) = Format::of(&path) else { return formats::look_up(&path) };
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answered = inner.answering.lock().expect("not poisoned").as_ref().map(|answering| answering(&body));
    let n = {
        let mut requests = inner.requests.lock().expect("not poisoned");
        requests.push(Request { path, headers, body, finished: false, aborted: false });
        requests.len()
    };
    inner.arrived.send_replace(n);
    let scripted = || {
        let mut script = inner.script.lock().expect("not poisoned");
        match script.len() {
            0 => Reply::text("nothing more is scripted"),
            1 => script[0].clone(),
            _ => script.pop_front().expect("not empty"),
        }
    };
    let reply = answered.unwrap_or_else(scripted);
    let watch = Watch { inner, n: n - 1, done: false };
    match reply {
        Reply::Fault { status, headers, body } => {
            let mut watch = watch;
            watch.finish();
            let mut answer = (StatusCode::from_u16(status).expect("a status"), body).into_response();
            answer.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().expect("a type"));
            for (name, value) in headers {
                answer.headers_mut().insert(name, value.parse().expect("a header"));
            }
            answer
        }
        Reply::Stream(pieces) => {
            let kind = format.content_type();
            let frames = format.frames(pieces);
            let state = (frames.into_iter(), watch);
            let body = Body::from_stream(stream::unfold(state, |(mut frames, mut watch)| async move {
                loop {
                    match frames.next() {
                        None => {
                            watch.finish();
                            return None;
                        }
                        Some(Step::Send(text)) => return Some((Ok(Bytes::from(text)), (frames, watch))),
                        Some(Step::Pause(time)) => tokio::time::sleep(time).await,
                        Some(Step::Wait(gate)) => gate.pass().await,
                        Some(Step::Cut) => {
                            watch.finish();
                            return Some((Err(std::io::Error::other("cut")), (Vec::new().into_iter(), watch)));
                        }
                    }
                }
            }));
            ([(header::CONTENT_TYPE, kind)], body).into_response()
        }
    }
}

/// Vectors of texts: how often words of each group stand in them.
fn embed(inner: &Inner, body: &[u8]) -> Response {
    let body: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let mut embedder = inner.embedder.lock().expect("not poisoned");
    if embedder.down {
        return (StatusCode::SERVICE_UNAVAILABLE, "{}").into_response();
    }
    let texts: Vec<String> =
        body["input"].as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_lowercase())).collect();
    let direction = |text: &String| -> Vec<f64> {
        let groups = embedder.groups.iter();
        let counts = groups.map(|group| group.iter().map(|word| text.matches(word.as_str()).count() as f64).sum());
        counts.chain([0.01]).collect()
    };
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(n, text)| json!({"object": "embedding", "index": n, "embedding": direction(text)}))
        .collect();
    embedder.texts.extend(texts);
    axum::Json(json!({"object": "list", "data": data, "model": "scripted"})).into_response()
}

/// What the encoded answer does next.
#[derive(Debug)]
enum Step {
    Send(String),
    Pause(Duration),
    Wait(Gate),
    Cut,
}

/// Notes how an answer ended.
struct Watch {
    inner: Arc<Inner>,
    n: usize,
    done: bool,
}

impl Watch {
    fn finish(&mut self) {
        self.done = true;
        self.inner.requests.lock().expect("not poisoned")[self.n].finished = true;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.done {
            self.inner.requests.lock().expect("not poisoned")[self.n].aborted = true;
        }
    }
}

/// The body of an error as OpenAI and most compatible endpoints shape it.
pub fn openai_error(code: &str, message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": null, "code": code}})
}
