//! Whoever speaks HTTP to the Board: nobody in particular, an operator with a cookie, a program with a token.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use reqwest::{Client, Method, RequestBuilder, header, redirect};
use serde_json::Value;

use crate::ledger::{self, Ledger, Submit, View};

/// A client with its credential. Redirects are shown, not followed.
#[derive(Debug)]
pub struct Person {
    board: String,
    client: Client,
    team: Option<String>,
    token: Option<String>,
    cookies: Mutex<BTreeMap<String, String>>,
    ledger: Arc<Ledger>,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: header::HeaderMap,
    pub body: String,
}

impl Person {
    /// Somebody without a credential.
    pub fn anonymous(board: &str) -> Self {
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy().build().expect("a client");
        let ledger = ledger::at(board);
        Self { board: board.to_owned(), client, team: None, token: None, cookies: Mutex::default(), ledger }
    }

    /// Somebody without a credential who comes from another address of the loopback network.
    pub fn from_address(board: &str, address: [u8; 4]) -> Self {
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy();
        let client = client.local_address(std::net::IpAddr::from(address)).build().expect("a client");
        Self { client, ..Self::anonymous(board) }
    }

    /// A program with a bearer token.
    pub fn with_token(board: &str, token: &str) -> Self {
        let anonymous = Self::anonymous(board);
        anonymous.ledger.secret("an API token", token);
        Self { token: Some(token.to_owned()), ..anonymous }
    }

    /// Names the team (`X-Team`) in every request.
    pub fn in_team(mut self, team: &str) -> Self {
        self.team = Some(team.to_owned());
        self
    }

    /// Signs in at the sign-in page; panics when that does not work.
    pub async fn sign_in(&self, email: &str, password: &str) {
        let answer = self.try_sign_in(email, password).await;
        assert!(answer.status == 303 && self.cookie().is_some(), "signing in as {email}: {answer:#?}");
        self.ledger.secret("a password", password);
    }

    /// Tries to sign in.
    pub async fn try_sign_in(&self, email: &str, password: &str) -> Answer {
        self.post_form("/login", &[("email", email), ("password", password)]).await
    }

    /// The cookies as a request carries them, if there are any.
    pub fn cookie(&self) -> Option<String> {
        let cookies = self.cookies.lock().expect("not poisoned");
        let all: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// The bearer token.
    pub fn bearer(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The Board's address.
    pub fn board(&self) -> &str {
        &self.board
    }

    /// A request with this person's credential and, when it changes something, the Origin of the Board's own pages.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let unsafe_ = !matches!(method, Method::GET | Method::HEAD | Method::OPTIONS);
        let mut request = self.client.request(method, format!("{}{path}", self.board));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(cookie) = self.cookie() {
            request = request.header(header::COOKIE, cookie);
        }
        if let Some(team) = &self.team {
            request = request.header("x-team", team);
        }
        if unsafe_ && self.token.is_none() && self.cookie().is_some() {
            request = request.header(header::ORIGIN, &self.board);
        }
        request
    }

    /// Sends a request and keeps the cookies of its answer.
    pub async fn send(&self, request: RequestBuilder) -> Answer {
        self.try_send(request).await.unwrap_or_else(|error| panic!("no answer: {error:?}"))
    }

    /// The same when the Board may go away meanwhile.
    pub async fn try_send(&self, request: RequestBuilder) -> reqwest::Result<Answer> {
        let (client, request) = request.build_split();
        let request = request.expect("a good request");
        let submits = submits(&request);
        let key = request.headers().get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
        if submits.is_some() {
            self.ledger.asked();
        }
        let call = matches!(submits, Some(Submits::Tool)).then(|| body(&request));
        let answer = client.execute(request).await?;
        self.keep(answer.headers());
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let answer = Answer { status, headers, body: answer.text().await? };
        match submits {
            Some(Submits::Tool) if status < 500 => {
                let who = format!("{:?} {:?} {:?}", self.team, self.token, self.cookie());
                let key = call.as_deref().and_then(key_of).map(|key| (who, key));
                self.ledger.answered(answer.made_by_tool(key));
            }
            Some(Submits::Api) if status == 201 => {
                let task = answer.json();
                let text = |field: &str| task[field].as_str().unwrap_or_default().to_owned();
                let key = key.map(|key| (format!("{:?} {:?} {:?}", self.team, self.token, self.cookie()), key));
                self.ledger.answered(Some(Submit { task: text("id"), session: text("sessionId"), key }));
            }
            // It was a message to a task that runs.
            Some(Submits::Api) if status == 202 => self.ledger.answered(None),
            // A form's answer does not name the task, and a failure may come after the commit.
            Some(_) if (400..500).contains(&status) => self.ledger.answered(None),
            _ => {}
        }
        Ok(answer)
    }

    /// GET, as a browser that navigates (`Accept: text/html`).
    pub async fn page(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path).header(header::ACCEPT, "text/html")).await
    }

    /// GET.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    /// POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    /// POST of JSON with an `Idempotency-Key`.
    pub async fn post_once(&self, key: &str, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::POST, path).header("idempotency-key", key).json(body)).await
    }

    /// PUT of JSON.
    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    /// PATCH of JSON.
    pub async fn patch(&self, path: &str, body: &Value) -> Answer {
        self.send(self.request(Method::PATCH, path).json(body)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// POST of a form, as a page without JavaScript does it.
    pub async fn post_form(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.send(self.form(path, fields)).await
    }

    /// The request of such a POST.
    pub fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let body = fields.iter().map(|(k, v)| format!("{}={}", escape(k), escape(v))).collect::<Vec<_>>().join("&");
        let mut request = self.request(Method::POST, path).header(header::ACCEPT, "text/html");
        if self.cookie().is_none() {
            request = request.header(header::ORIGIN, &self.board);
        }
        request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body)
    }

    /// Opens a server-sent event stream.
    pub async fn stream(&self, path: &str, last: Option<&str>) -> EventStream {
        self.opened(path, last).await.unwrap_or_else(|why| panic!("not a stream: {why}"))
    }

    /// The same when the Board may be away.
    pub async fn try_stream(&self, path: &str, last: Option<&str>) -> Option<EventStream> {
        self.opened(path, last).await.ok()
    }

    async fn opened(&self, path: &str, last: Option<&str>) -> Result<EventStream, String> {
        let mut request = self.request(Method::GET, path).header(header::ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !answer.status().is_success() || !kind.starts_with("text/event-stream") {
            return Err(format!("{} {kind}", answer.status()));
        }
        let task = path.strip_prefix("/api/v1/tasks/").and_then(|rest| rest.split_once("/events"));
        let after = task.and_then(|(_, query)| query.split_once("after=")).map(|(_, after)| after);
        let view = task.map(|(task, _)| self.ledger.view(task, last.or(after)));
        Ok(EventStream { answer, buffer: String::new(), bytes: Vec::new(), view })
    }

    fn keep(&self, headers: &header::HeaderMap) {
        let mut cookies = self.cookies.lock().expect("not poisoned");
        for value in headers.get_all(header::SET_COOKIE) {
            let text = value.to_str().expect("cookies are ASCII");
            let (pair, attributes) = text.split_once(';').unwrap_or((text, ""));
            let (name, value) = pair.split_once('=').expect("a cookie has a name");
            if value.is_empty() || attributes.to_ascii_lowercase().contains("max-age=0") {
                cookies.remove(name.trim());
            } else {
                if value.len() >= 40 {
                    self.ledger.secret("a session cookie", value.trim());
                }
                cookies.insert(name.trim().to_owned(), value.trim().to_owned());
            }
        }
    }
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:#?}"))
    }

    /// Panics unless the status is `status`.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:#?}");
        self
    }

    /// The task that a tool made, if one did.
    fn made_by_tool(&self, key: Option<(String, String)>) -> Option<Submit> {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        let (result, made) = (&body["result"], &body["result"]["structuredContent"]);
        let text = |field: &str| made[field].as_str().map(str::to_owned);
        let is_task = result["isError"] == false && made["became"] != "message";
        let (task, session) = text("taskId").zip(text("sessionId")).filter(|_| is_task)?;
        Some(Submit { task, session, key })
    }

    /// A header's text, or "".
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The stable code of a problem+json body.
    pub fn code(&self) -> String {
        assert!(self.header("content-type").starts_with("application/problem+json"), "not a problem: {self:#?}");
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }
}

/// How a request may make a task.
enum Submits {
    Api,
    Form,
    /// By the Model Context Protocol.
    Tool,
}

/// A request's body as text.
fn body(request: &reqwest::Request) -> String {
    let bytes = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// The key of a tool's call.
fn key_of(body: &str) -> Option<String> {
    let body: Value = serde_json::from_str(body).ok()?;
    let name = body["params"]["name"].as_str()?;
    Some(format!("{name} {}", body["params"]["arguments"]["key"].as_str()?))
}

fn submits(request: &reqwest::Request) -> Option<Submits> {
    let path = request.url().path();
    if request.method() != Method::POST {
        None
    } else if path == "/mcp" && ["submit_task", "send_message"].iter().any(|tool| body(request).contains(tool)) {
        Some(Submits::Tool)
    } else if path == "/api/v1/tasks" || (path.starts_with("/api/v1/") && path.ends_with("/messages")) {
        Some(Submits::Api)
    } else if path.starts_with("/t/") && ["/tasks", "/messages", "/comments/send"].iter().any(|end| path.ends_with(end))
    {
        Some(Submits::Form)
    } else {
        None
    }
}

/// An open server-sent event stream. What a stream of a task's events shows is written down.
pub struct EventStream {
    answer: reqwest::Response,
    buffer: String,
    bytes: Vec<u8>,
    view: Option<Arc<Mutex<View>>>,
}

/// One frame of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamFrame {
    pub id: Option<String>,
    pub event: String,
    pub data: String,
}

impl StreamFrame {
    /// The data as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }
}

impl EventStream {
    /// The next frame; comments are skipped. `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<StreamFrame> {
        tokio::time::timeout(crate::wait::EVENT_TIMEOUT, self.read()).await.expect("a frame or the end within patience")
    }

    /// Frames until one is called `event`, that one included.
    pub async fn until(&mut self, event: &str) -> Vec<StreamFrame> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("ended before {event:?}: {frames:#?}"));
            let last = frame.event == event;
            frames.push(frame);
            if last {
                return frames;
            }
        }
    }

    /// The same without a limit.
    pub async fn read(&mut self) -> Option<StreamFrame> {
        loop {
            while let Some(end) = self.buffer.find("\n\n") {
                let block: String = self.buffer.drain(..end + 2).collect();
                if let Some(frame) = parse(&block) {
                    if let Some(view) = &self.view {
                        view.lock().expect("not poisoned").frames.push(frame.clone());
                    }
                    return Some(frame);
                }
            }
            let chunk = self.answer.chunk().await.ok()??;
            self.bytes.extend_from_slice(&chunk);
            let whole = match std::str::from_utf8(&self.bytes) {
                Ok(text) => text.len(),
                Err(error) => error.valid_up_to(),
            };
            let rest = self.bytes.split_off(whole);
            let text = String::from_utf8(std::mem::replace(&mut self.bytes, rest)).expect("checked above");
            self.buffer.push_str(&text.replace("\r\n", "\n"));
        }
    }
}

fn parse(block: &str) -> Option<StreamFrame> {
    let mut frame = StreamFrame::default();
    let mut data: Vec<&str> = Vec::new();
    let mut any = false;
    for line in block.lines().filter(|line| !line.starts_with(':')) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => frame.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut frame.event),
            "data" => data.push(value),
            _ => continue,
        }
        any = true;
    }
    frame.data = data.join("\n");
    any.then_some(frame)
}

/// Percent-encodes for `application/x-www-form-urlencoded` and query strings.
pub fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
