//! What arrives without being an answer: progress of calls, questions for people, and news of the list of tools.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use protocol::{TaskId, text::head};
use rmcp::{
    ClientHandler, ErrorData, RoleClient,
    model::{
        ClientConfig, ElicitRequestParams, ElicitResult, ProgressNotificationParam, ProgressToken, ProtocolVersion,
    },
    service::{NotificationContext, RequestContext},
};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{CallTerms, WireError, guard::OpenRequests, task_tools::TaskTools};

/// Longest text of progress, bytes.
const MAX_PROGRESS_BYTES: usize = 1_000;

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
    /// `{action: accept | decline | cancel, content?}`. Closed when the server does not ask any more.
    pub answer: oneshot::Sender<Value>,
}

/// What is heard of one server.
pub struct Heard {
    /// Where progress of calls goes. Held while a request is sent, so that no word of it comes too early.
    pub progress: tokio::sync::Mutex<HashMap<ProgressToken, CallSeat>>,
    /// Calls under way, by number.
    calls: Mutex<(u64, CallsUnderWay)>,
    /// Questions that wait for people.
    questions: AtomicUsize,
    /// How long people were waited for, all questions together.
    waited: Mutex<Duration>,
    /// Rises whenever the list of tools may have changed.
    pub changes: watch::Sender<u64>,
    pub open: Arc<OpenRequests>,
    /// Cancelled when nothing comes any more.
    pub closed: CancellationToken,
    /// Why it was cut off, if it did not end by itself.
    pub cut: OnceLock<String>,
    pub task_tools: Arc<TaskTools>,
}

type CallsUnderWay = BTreeMap<u64, (TaskId, mpsc::Sender<CallEvent>)>;

/// A call that hears of its progress.
pub struct CallSeat {
    pub events: mpsc::Sender<CallEvent>,
    /// When something was heard last.
    pub news: watch::Sender<Instant>,
}

impl Heard {
    pub fn new() -> Self {
        Self {
            progress: Default::default(),
            calls: Mutex::default(),
            questions: AtomicUsize::new(0),
            waited: Mutex::default(),
            changes: watch::Sender::new(0),
            open: Arc::default(),
            closed: CancellationToken::new(),
            cut: OnceLock::new(),
            task_tools: Arc::default(),
        }
    }

    /// Why the connection is over.
    pub fn why_closed(&self) -> String {
        let cut = self.cut.get().map(|why| format!("it was cut off: {why}"));
        cut.unwrap_or_else(|| "the connection ended".to_owned())
    }

    /// The same for whoever waits for an answer.
    pub fn closed_error(&self) -> WireError {
        WireError::Closed(self.why_closed())
    }

    /// Ends the connection: what is under way fails, and the next call makes another one.
    pub fn cut_off(&self, why: &str) {
        let _ = self.cut.set(why.to_owned());
        self.closed.cancel();
    }

    /// Notes that the list of tools may be another.
    pub fn tools_changed(&self) {
        self.changes.send_modify(|n| *n = n.wrapping_add(1));
    }

    /// Whether people are waited for, which is not the server's time.
    pub fn has_questions(&self) -> bool {
        self.questions.load(Ordering::SeqCst) > 0
    }

    /// How long people were waited for until now.
    pub fn waited(&self) -> Duration {
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a question on, and waits for its answer.
    pub async fn ask(&self, events: &mpsc::Sender<CallEvent>, params: Value) -> Value {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let _open = OpenQuestion { heard: self, began: Instant::now() };
        self.wake().await;
        let (answer, answered) = oneshot::channel();
        if events.send(CallEvent::Asked(Elicitation { params, answer })).await.is_err() {
            return declined();
        }
        answered.await.unwrap_or_else(|_| declined())
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

    fn calls(&self) -> MutexGuard<'_, (u64, CallsUnderWay)> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question in [`Heard::questions`] until this is dropped.
struct OpenQuestion<'h> {
    heard: &'h Heard,
    began: Instant,
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        self.heard.questions.fetch_sub(1, Ordering::SeqCst);
        *self.heard.waited.lock().unwrap_or_else(PoisonError::into_inner) += self.began.elapsed();
    }
}

/// A call in [`Heard::calls`] until this is dropped.
pub struct RegisteredCall {
    heard: Arc<Heard>,
    number: u64,
}

impl RegisteredCall {
    pub fn begin(heard: &Arc<Heard>, terms: &CallTerms<'_>) -> Self {
        let mut calls = heard.calls();
        calls.0 += 1;
        let number = calls.0;
        calls.1.insert(number, (terms.task.clone(), terms.events.clone()));
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
pub struct Listener {
    pub heard: Arc<Heard>,
    info: ClientConfig,
}

impl Listener {
    pub fn new() -> Result<Self, WireError> {
        let info = json!({
            "protocolVersion": ProtocolVersion::V_2025_11_25.as_str(),
            "capabilities": { "elicitation": { "form": {} } },
            "clientInfo": { "name": "daemon-agent", "version": env!("CARGO_PKG_VERSION") },
        });
        let info = serde_json::from_value(info).map_err(|error| WireError::Closed(error.to_string()))?;
        Ok(Self { heard: Arc::new(Heard::new()), info })
    }
}

impl ClientHandler for Listener {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let params = serde_json::to_value(&request).unwrap_or_default();
        let answer = match self.heard.only_caller() {
            Some(events) => {
                let withdrawn = self.heard.open.withdrawn(&context.id);
                let answer = withdrawn.run_until_cancelled(self.heard.ask(&events, params)).await;
                self.heard.wake().await;
                answer.unwrap_or_else(declined)
            }
            None => declined(),
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
        self.heard.tools_changed();
    }

    fn get_info(&self) -> ClientConfig {
        self.info.clone()
    }
}

fn declined() -> Value {
    json!({ "action": "decline" })
}

fn progress_text(params: &ProgressNotificationParam) -> String {
    let count = match params.total {
        Some(total) => format!("{} of {total}", params.progress),
        None => params.progress.to_string(),
    };
    let message = params.message.as_deref().map(|text| head(text.trim(), MAX_PROGRESS_BYTES)).unwrap_or_default();
    if message.is_empty() { count } else { format!("{count}: {message}") }
}
