//! What a server may say without being asked: a few questions at once, and news of its calls and of its tools. Everything else
//! is answered here or goes nowhere, so that a server can have the daemon keep no more than that for it.

use std::{
    borrow::Cow,
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rmcp::{
    ErrorData, RoleClient,
    model::{ClientResult, ErrorCode, JsonRpcMessage, RequestId, ServerNotification, ServerRequest},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::pace::ListeningPace;

/// Questions of one server that wait for their answers at the same time.
const MAX_OPEN_REQUESTS: usize = 8;
/// Longest id of a request, bytes: it is kept until the answer.
const MAX_ID_BYTES: usize = 256;

/// Requests of the server that are not answered yet, each with what says that it was withdrawn.
#[derive(Default)]
pub struct OpenRequests(Mutex<HashMap<RequestId, CancellationToken>>);

impl OpenRequests {
    /// What is cancelled when the server takes this request back.
    pub fn withdrawn(&self, id: &RequestId) -> CancellationToken {
        self.open().get(id).cloned().unwrap_or_default()
    }

    /// Begins one; `false`: there are too many, or it has begun already.
    fn begin(&self, id: &RequestId) -> bool {
        let mut open = self.open();
        let is_good = open.len() < MAX_OPEN_REQUESTS && !open.contains_key(id);
        if is_good {
            open.insert(id.clone(), CancellationToken::new());
        }
        is_good
    }

    fn end(&self, id: &RequestId) {
        self.open().remove(id);
    }

    /// Tells whoever answers it that nobody waits any more. `false`: it is none of these.
    fn withdraw(&self, id: &RequestId) -> bool {
        let Some(token) = self.open().get(id).cloned() else { return false };
        token.cancel();
        true
    }

    fn open(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transport that passes on what a server may say.
pub struct GuardedTransport<T: Transport<RoleClient>> {
    inner: T,
    open: Arc<OpenRequests>,
    pace: ListeningPace,
    /// When to listen again.
    rest: Option<Instant>,
    /// An answer that is on its way. Nothing is read before the server took it.
    reply: Option<Reply<T::Error>>,
    /// Cancelled when nothing comes any more.
    closed: CancellationToken,
}

type Reply<E> = Pin<Box<dyn Future<Output = Result<(), E>> + Send>>;

/// What becomes of a message of the server.
enum Judgement {
    PassOn,
    Answer(Box<TxJsonRpcMessage<RoleClient>>),
    Ignore,
}

impl<T: Transport<RoleClient>> GuardedTransport<T> {
    pub fn new(inner: T, open: Arc<OpenRequests>, closed: CancellationToken) -> Self {
        Self { inner, open, pace: ListeningPace::new(), rest: None, reply: None, closed }
    }
}

impl<T: Transport<RoleClient>> Drop for GuardedTransport<T> {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl<T: Transport<RoleClient> + 'static> Transport<RoleClient> for GuardedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        Cow::Borrowed("MCP")
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answered = match &item {
            JsonRpcMessage::Response(answer) => Some(answer.id.clone()),
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let (open, sending) = (self.open.clone(), self.inner.send(item));
        async move {
            let sent = sending.await;
            // Not before the server has taken it: one that takes nothing has no room for more.
            answered.iter().for_each(|id| open.end(id));
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let message = self.next().await;
        if message.is_none() {
            self.closed.cancel();
        }
        message
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}

impl<T: Transport<RoleClient> + 'static> GuardedTransport<T> {
    /// The next message that is passed on. What it waits for meanwhile is kept when this is dropped and called again.
    async fn next(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(reply) = &mut self.reply {
                let sent = reply.await;
                self.reply = None;
                sent.ok()?;
            }
            if let Some(until) = self.rest {
                sleep_until(until).await;
                self.rest = None;
            }
            let message = self.inner.receive().await?;
            self.rest = self.pace.count(1, 0);
            match judge(&message, &self.open) {
                Judgement::PassOn => return Some(message),
                Judgement::Answer(answer) => self.reply = Some(Box::pin(self.inner.send(*answer))),
                Judgement::Ignore => {}
            }
        }
    }
}

fn judge(message: &RxJsonRpcMessage<RoleClient>, open: &OpenRequests) -> Judgement {
    let (id, request) = match message {
        JsonRpcMessage::Request(asked) => (&asked.id, &asked.request),
        JsonRpcMessage::Notification(told) => return judge_news(&told.notification, open),
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => return Judgement::PassOn,
    };
    if matches!(id, RequestId::String(text) if text.len() > MAX_ID_BYTES) {
        return Judgement::Ignore;
    }
    let answer = |answer| Judgement::Answer(Box::new(answer));
    let refused =
        |code, why: &'static str| answer(JsonRpcMessage::error(ErrorData::new(code, why, None), Some(id.clone())));
    match request {
        ServerRequest::PingRequest(_) => answer(JsonRpcMessage::response(ClientResult::empty(()), id.clone())),
        ServerRequest::ElicitRequest(_) | ServerRequest::ListRootsRequest(_) if open.begin(id) => Judgement::PassOn,
        ServerRequest::ElicitRequest(_) | ServerRequest::ListRootsRequest(_) => {
            refused(ErrorCode::INVALID_REQUEST, "too many requests at once, or an id that is in use")
        }
        _ => refused(ErrorCode::METHOD_NOT_FOUND, "this client has no such method"),
    }
}

fn judge_news(told: &ServerNotification, open: &OpenRequests) -> Judgement {
    match told {
        ServerNotification::CancelledNotification(cancelled) => {
            // Its answer goes out nevertheless: only then does nothing wait for it here any more.
            let id = cancelled.params.request_id.as_ref();
            if id.is_some_and(|id| open.withdraw(id)) { Judgement::Ignore } else { Judgement::PassOn }
        }
        ServerNotification::ProgressNotification(_)
        | ServerNotification::ToolListChangedNotification(_)
        | ServerNotification::SubscriptionsAcknowledgedNotification(_) => Judgement::PassOn,
        // Logs, and news of what nobody uses here.
        _ => Judgement::Ignore,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(message: Value, open: &OpenRequests) -> Judgement {
        judge(&serde_json::from_value(message).expect("a message"), open)
    }

    fn answer(judgement: Judgement) -> Value {
        match judgement {
            Judgement::Answer(answer) => serde_json::to_value(answer).expect("JSON"),
            Judgement::PassOn => json!("passed on"),
            Judgement::Ignore => json!("ignored"),
        }
    }

    fn request(id: Value, method: &str) -> Value {
        let schema = json!({ "type": "object", "properties": {} });
        let params = match method {
            "elicitation/create" => json!({ "message": "m", "requestedSchema": schema }),
            _ => json!({ "messages": [], "maxTokens": 1 }),
        };
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    #[test]
    fn pings_are_answered_and_nothing_but_questions_is_heard() {
        let open = OpenRequests::default();
        let ping = json!({ "jsonrpc": "2.0", "id": "p", "method": "ping" });
        assert_eq!(answer(judged(ping, &open)), json!({ "jsonrpc": "2.0", "id": "p", "result": {} }));
        for method in ["sampling/createMessage", "shell/run"] {
            assert_eq!(answer(judged(request(json!(1), method), &open))["error"]["code"], -32601, "{method}");
        }
        let long = request(json!("x".repeat(MAX_ID_BYTES + 1)), "elicitation/create");
        assert_eq!(answer(judged(long, &open)), "ignored");
        let log =
            json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": { "level": "info", "data": "x" } });
        assert_eq!(answer(judged(log, &open)), "ignored");
        let news = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        assert_eq!(answer(judged(news, &open)), "passed on");
    }

    #[test]
    fn so_many_questions_wait_and_one_that_is_taken_back_is_told() {
        let open = OpenRequests::default();
        let ask = |id: usize| answer(judged(request(json!(id), "elicitation/create"), &open));
        for id in 0..MAX_OPEN_REQUESTS {
            assert_eq!(ask(id), "passed on");
        }
        assert_eq!(ask(99)["error"]["code"], -32600, "too many");
        open.end(&RequestId::Number(0));
        assert_eq!(ask(1)["error"]["code"], -32600, "an id that is in use");
        assert_eq!(ask(99), "passed on");
        let withdrawn = open.withdrawn(&RequestId::Number(2));
        let cancelled =
            |id: usize| json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
        assert_eq!(answer(judged(cancelled(2), &open)), "ignored");
        assert!(withdrawn.is_cancelled() && ask(100)["error"]["code"] == -32600, "it holds its place until its answer");
        assert_eq!(answer(judged(cancelled(500), &open)), "passed on", "a subscription, perhaps");
    }
}
