//! Slack's Web API: calls that wait when Slack says so, and files. A token goes to the API's own host alone and is in no
//! message.

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use reqwest::{
    Client, StatusCode, Url,
    header::{CONTENT_TYPE, RETRY_AFTER},
    redirect,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::config::SlackConfig;

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a file may take on its way.
const FILE_TIMEOUT: Duration = Duration::from_secs(300);
/// The longest wait that Slack is believed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);
/// Waits before a call is made again that did not get through.
pub const RETRY_WAITS: [Duration; 5] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(10),
    Duration::from_secs(30),
];
/// How the arguments of a call are written.
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
/// Largest file that is fetched or sent, bytes.
pub const MAX_FILE_BYTES: u64 = 100 * 1024 * 1024;
/// The host beside the API's own from which files are fetched with the token.
const FILE_HOST: &str = "files.slack.com";
/// Refusals that say that Slack is out of order.
const OUT_OF_ORDER: [&str; 6] =
    ["internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited", "team_added_to_org"];
/// Refusals that whoever runs the app can do something about: another token, more scopes.
const OF_THE_APP: [&str; 9] = [
    "invalid_auth",
    "not_authed",
    "token_revoked",
    "token_expired",
    "account_inactive",
    "missing_scope",
    "not_allowed_token_type",
    "no_permission",
    "org_login_required",
];
/// Refusals after which nothing can be said in a conversation any more.
const OF_THE_CONVERSATION: [&str; 6] =
    ["channel_not_found", "is_archived", "not_in_channel", "thread_not_found", "restricted_action", "is_inactive"];

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlackError {
    /// Slack answered `ok: false` with this word.
    Refused(String),
    /// It did not answer, or not in its format.
    Unreachable(String),
}

impl fmt::Display for SlackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(code) => write!(f, "Slack refuses: {code}"),
            Self::Unreachable(why) => write!(f, "Slack cannot be reached: {why}"),
        }
    }
}

impl SlackError {
    /// Whether the same may succeed later: Slack is away, or takes the app's token no longer.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused(code) => OF_THE_APP.contains(&code.as_str()),
        }
    }

    /// Whether nothing can be said in that conversation any more.
    pub fn is_lasting(&self) -> bool {
        matches!(self, Self::Refused(code) if OF_THE_CONVERSATION.contains(&code.as_str()))
    }
}

/// Which of the two tokens a call is made with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SlackToken {
    App,
    Bot,
}

/// The API of one app. Cheap to clone.
#[derive(Clone)]
pub struct SlackApi {
    client: Client,
    config: Arc<SlackConfig>,
    /// Whether the app can stream, as far as Slack has said.
    streams: Arc<AtomicBool>,
    /// The newest `ts` that Slack has answered.
    newest: Arc<Mutex<String>>,
}

impl SlackApi {
    /// The API that the configuration names.
    pub fn new(config: SlackConfig) -> Result<Self, String> {
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .timeout(CALL_TIMEOUT)
            .build()
            .map_err(|error| format!("no HTTP client: {error}"))?;
        let streams = Arc::new(AtomicBool::new(true));
        Ok(Self { client, config: Arc::new(config), streams, newest: Arc::default() })
    }

    /// Calls a method as the bot. What did not get through is tried again some times; what Slack limits waits as long as it
    /// says.
    pub async fn call(&self, method: &str, body: &Value) -> Result<Value, SlackError> {
        let mut waits = RETRY_WAITS.iter();
        loop {
            match (self.call_once(method, body).await, waits.next()) {
                (Err(SlackError::Unreachable(_)), Some(wait)) => tokio::time::sleep(*wait).await,
                (answered, _) => return answered,
            }
        }
    }

    /// The same, but what did not get through is not tried again: Slack may have done it.
    pub async fn call_once(&self, method: &str, body: &Value) -> Result<Value, SlackError> {
        let answer = self.when_let(method, SlackToken::Bot, body).await?;
        if let Some(ts) = answer["ts"].as_str() {
            let mut newest = self.newest();
            // Seconds with six decimals: a longer one is later.
            if (newest.len(), newest.as_str()) < (ts.len(), ts) {
                ts.clone_into(&mut newest);
            }
        }
        Ok(answer)
    }

    /// The `ts` that a message has at least that is written next: that of the newest one of which Slack has told; empty if it
    /// has told of none.
    pub fn newest_ts(&self) -> String {
        self.newest().clone()
    }

    fn newest(&self) -> MutexGuard<'_, String> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a method as soon as Slack's limits let it.
    async fn when_let(&self, method: &str, token: SlackToken, body: &Value) -> Result<Value, SlackError> {
        loop {
            match self.once(method, token, body).await {
                Err(Attempted::Limited(wait)) => tokio::time::sleep(wait).await,
                Err(Attempted::Lost(why)) => return Err(SlackError::Unreachable(why)),
                Err(Attempted::Refused(code)) => return Err(SlackError::Refused(code)),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    /// Whether a message may be streamed.
    pub fn may_stream(&self) -> bool {
        self.streams.load(Ordering::Relaxed)
    }

    /// A message could not be streamed. Where that is the app's, no other one is tried.
    pub fn stream_refused(&self, code: &str) {
        tracing::debug!("Slack does not stream here: {code}");
        let is_of_app =
            ["unknown_method", "missing_scope", "not_allowed_token_type", "feature_not_enabled", "access_denied"];
        if is_of_app.contains(&code) {
            self.streams.store(false, Ordering::Relaxed);
        }
    }

    /// The address of a new socket. It holds a ticket: it is not logged.
    pub async fn open_socket(&self) -> Result<String, SlackError> {
        let answer = self.when_let("apps.connections.open", SlackToken::App, &json!({})).await?;
        let url = answer["url"].as_str().map(str::to_owned);
        url.ok_or_else(|| SlackError::Unreachable("it names no socket".to_owned()))
    }

    async fn once(&self, method: &str, token: SlackToken, body: &Value) -> Result<Value, Attempted> {
        let token = match token {
            SlackToken::App => &self.config.app_token,
            SlackToken::Bot => &self.config.bot_token,
        };
        let url = format!("{}/{method}", self.config.api_url);
        let call = self.client.post(url).bearer_auth(token).header(CONTENT_TYPE, FORM_TYPE).body(form(body)).send();
        let answer = call.await.map_err(|error| Attempted::Lost(without_address(error)))?;
        if answer.status() == StatusCode::TOO_MANY_REQUESTS {
            let seconds = answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
            let wait = Duration::from_secs(seconds.unwrap_or(1)).max(Duration::from_millis(200));
            return Err(Attempted::Limited(wait.min(MAX_RETRY_AFTER)));
        }
        let status = answer.status();
        if !status.is_success() {
            return Err(Attempted::Lost(format!("{method} answers {status}")));
        }
        let answer: Value = answer.json().await.map_err(|error| Attempted::Lost(without_address(error)))?;
        if answer["ok"] == true {
            return Ok(answer);
        }
        let code = protocol::text::head(answer["error"].as_str().unwrap_or("no reason"), 100);
        match OUT_OF_ORDER.contains(&code) {
            true => Err(Attempted::Lost(format!("{method} answers {code}"))),
            false => Err(Attempted::Refused(code.to_owned())),
        }
    }

    /// Fetches a file that somebody sent into `to`, or says why not.
    pub async fn fetch(&self, url: &str, to: &Path) -> Result<(), String> {
        let url = Url::parse(url).map_err(|_| "Slack does not say where it lies".to_owned())?;
        if !self.is_own(&url) {
            return Err("it lies elsewhere than at Slack".to_owned());
        }
        let call = self.client.get(url).bearer_auth(&self.config.bot_token).timeout(FILE_TIMEOUT).send();
        let mut answer = call.await.map_err(without_address)?;
        if !answer.status().is_success() {
            return Err(format!("Slack answers {}", answer.status()));
        }
        let disk = |error: std::io::Error| format!("it cannot be written: {error}");
        let mut file = tokio::fs::File::create(to).await.map_err(disk)?;
        let mut size = 0;
        while let Some(piece) = answer.chunk().await.map_err(without_address)? {
            size += piece.len() as u64;
            if size > MAX_FILE_BYTES {
                return Err(format!("it is larger than {} MiB", MAX_FILE_BYTES >> 20));
            }
            file.write_all(&piece).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)
    }

    /// Sends a file to a thread.
    pub async fn upload(&self, thread: (&str, &str), name: &str, bytes: Vec<u8>) -> Result<(), SlackError> {
        let asked = json!({ "filename": name, "length": bytes.len() });
        let place = self.call("files.getUploadURLExternal", &asked).await?;
        let (url, id) = (place["upload_url"].as_str().unwrap_or_default(), &place["file_id"]);
        let url = Url::parse(url).ok().filter(|url| self.is_private(url, "https"));
        let url = url.ok_or_else(|| SlackError::Unreachable("it names no place for a file".to_owned()))?;
        // The address itself permits it: no token goes there.
        let sent = self.client.post(url).body(bytes).timeout(FILE_TIMEOUT).send().await;
        let status = sent.map_err(|error| SlackError::Unreachable(without_address(error)))?.status();
        if !status.is_success() {
            return Err(SlackError::Unreachable(format!("the file is answered with {status}")));
        }
        let done = json!({ "files": [{ "id": id, "title": name }], "channel_id": thread.0, "thread_ts": thread.1 });
        self.call("files.completeUploadExternal", &done).await.map(drop)
    }

    /// Whether nobody on the way reads what goes there: it has this scheme, or the API is on this machine.
    pub fn is_private(&self, url: &Url, scheme: &str) -> bool {
        url.scheme() == scheme || self.config.api_url.starts_with("http://")
    }

    /// Whether the token may go there.
    fn is_own(&self, url: &Url) -> bool {
        let api = Url::parse(&self.config.api_url).ok();
        let is_api = api.is_some_and(|api| api.origin() == url.origin());
        is_api || url.scheme() == "https" && url.host_str() == Some(FILE_HOST)
    }
}

/// The arguments of a call as a form: Slack reads these in every method, JSON only in some. What is not a text is JSON in it.
fn form(arguments: &Value) -> String {
    let fields = arguments.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
    let pairs = fields.map(|(name, value)| (name, value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
    // An address has nothing of its own here: its query is the form.
    let form = Url::parse_with_params("form:", pairs).ok();
    form.and_then(|form| form.query().map(str::to_owned)).unwrap_or_default()
}

/// How one try went.
enum Attempted {
    Limited(Duration),
    Lost(String),
    Refused(String),
}

/// An error without the address, which may hold a ticket.
fn without_address(error: reqwest::Error) -> String {
    crate::adapters::board::credential::causes(&error.without_url())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_goes_to_slack_alone() {
        let config = SlackConfig {
            app_token: "xapp-1".to_owned(),
            bot_token: "xoxb-1".to_owned(),
            agent: "default".to_owned(),
            channels: Vec::new(),
            users: Vec::new(),
            approvers: Vec::new(),
            api_url: "https://slack.com/api".to_owned(),
        };
        let api = SlackApi::new(config).expect("an API");
        let is_own = |url: &str| api.is_own(&Url::parse(url).expect("an address"));
        assert!(is_own("https://files.slack.com/files-pri/T1-F1/a.txt") && is_own("https://slack.com/x"));
        for other in ["http://files.slack.com/a", "https://files.slack.com.evil.example/a", "https://evil.example/a"] {
            assert!(!is_own(other), "{other}");
        }
        let url = |url: &str| Url::parse(url).expect("an address");
        assert!(api.is_private(&url("wss://wss.slack.com/x"), "wss"));
        assert!(!api.is_private(&url("ws://wss.slack.com/x"), "wss"), "an address holds a ticket");
        assert!(!api.is_private(&url("http://files.slack.com/upload"), "https"));
    }

    #[test]
    fn arguments_are_a_form() {
        assert_eq!(form(&json!({})), "");
        let all = form(&json!({ "files": [{ "id": "F1" }], "length": 3, "text": "a & b=c\nd", "thread_ts": null }));
        assert_eq!(all, "files=%5B%7B%22id%22%3A%22F1%22%7D%5D&length=3&text=a+%26+b%3Dc%0Ad");
    }

    #[test]
    fn a_refusal_says_whether_waiting_helps() {
        let refused = |code: &str| SlackError::Refused(code.to_owned());
        assert!(refused("token_revoked").may_pass() && !refused("token_revoked").is_lasting());
        assert!(refused("is_archived").is_lasting() && !refused("is_archived").may_pass());
        assert!(!refused("invalid_blocks").is_lasting() && !refused("invalid_blocks").may_pass());
        assert!(SlackError::Unreachable("no answer".to_owned()).may_pass());
    }
}
