//! This viber's identity at its Board: `state/credential` (0600), and how it is obtained.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Seek},
    path::Path,
    time::Duration,
};

use protocol::{Attachment, RunId, ViberId};
use reqwest::{StatusCode, Url, redirect};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::address;
use crate::{
    artifacts::measure,
    home::{Home, open_to_others, read_plain, write_private},
    mesh::FetchError,
    workspace::{Workspace, WorkspaceError},
};

/// How often the start of a run is asked for while the Board gives no answer.
const MAX_START_ATTEMPTS: u32 = 4;
/// Before the first repetition; twice as long before each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest that a call to the Board may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer that is read: a task with its whole history.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// What enrolment returned.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credential {
    pub viber_id: ViberId,
    /// A bearer token: whoever holds it is this viber.
    pub credential: String,
    pub board_url: String,
    #[serde(default)]
    pub team: Option<String>,
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// The address is not encrypted, and a person allowed that explicitly.
    #[serde(default)]
    pub insecure: bool,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("viber_id", &self.viber_id)
            .field("board_url", &self.board_url)
            .finish_non_exhaustive()
    }
}

/// What is sent to the Board when this machine joins.
pub struct JoinRequest<'a> {
    pub token: &'a str,
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub insecure: bool,
}

/// A run of a playbook that is to be started.
#[derive(Debug, Serialize)]
pub struct RunRequest<'a> {
    /// The name of its file, without `.md`.
    pub playbook: &'a str,
    pub text: &'a str,
    pub inputs: &'a BTreeMap<String, String>,
    /// Whether an agent supervises it; else its steps run as they are written.
    pub supervised: bool,
}

/// A run that the Board has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    pub run_id: RunId,
    /// Its page.
    pub url: String,
}

/// Why a run was not started when the Board was asked.
#[derive(Debug)]
enum StartError {
    /// It never will be.
    Refused(String),
    /// It was not, and may be later.
    Later(String),
    /// Nobody here knows whether it was: the answer was lost.
    Unknown(String),
}

/// What a Board knows of a viber that left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// It revoked the credential.
    Said,
    /// It did not know the credential any more.
    Unknown,
    /// It was not told.
    Unsaid,
}

impl Credential {
    /// Reads the credential; `None` if this home has not joined a Board. A credential that others can read is refused.
    pub fn read(home: &Home) -> io::Result<Option<Self>> {
        let path = home.credential();
        let text = match read_plain(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(damaged(&path, &error)),
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
        };
        if open_to_others(&path) {
            let message =
                format!("{} can be read by others: chmod 600 it, or join again with a new token", path.display());
            return Err(io::Error::other(message));
        }
        serde_json::from_str(&text).map(Some).map_err(|error| damaged(&path, &error))
    }

    /// Writes the credential so that only its owner can read it.
    pub fn write(&self, home: &Home) -> io::Result<()> {
        write_private(&home.credential(), &serde_json::to_vec_pretty(self)?)
    }

    /// The Board's root address.
    pub fn board(&self) -> Result<Url, String> {
        address::parse(&self.board_url, self.insecure)
    }

    /// Exchanges the join token for a credential.
    pub async fn join(board: &Url, joining: &JoinRequest<'_>) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Joined {
            viber_id: ViberId,
            credential: String,
            #[serde(default)]
            team: serde_json::Value,
        }
        let body = json!({
            "token": joining.token,
            "name": joining.name,
            "labels": joining.labels,
            "hostname": super::hostname(),
            "platform": super::platform(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        let call = client()?.post(address::join(board, "api/daemon/join")).json(&body);
        let answer =
            call.send().await.map_err(|error| format!("the Board at {board} cannot be reached: {}", causes(&error)))?;
        let status = answer.status();
        let text =
            answer.text().await.map_err(|error| format!("the Board's answer was interrupted: {}", causes(&error)))?;
        match status {
            StatusCode::CREATED | StatusCode::OK => {}
            StatusCode::UNAUTHORIZED => return Err("the Board does not accept this join token: it was used, has expired or never existed. Create a new one on the Board.".to_owned()),
            status if status.is_redirection() => return Err(format!("{board} redirects elsewhere ({status}): use the Board's own address")),
            status => return Err(format!("the Board answered {status}: {}", protocol::text::head(text.trim(), 300))),
        }
        let joined: Joined =
            serde_json::from_str(&text).map_err(|error| format!("the Board's answer cannot be parsed: {error}"))?;
        let team = joined.team.as_str().or_else(|| joined.team["slug"].as_str()).map(str::to_owned);
        Ok(Self {
            viber_id: joined.viber_id,
            credential: joined.credential,
            board_url: board.to_string(),
            team,
            name: Some(joining.name.to_owned()),
            labels: joining.labels.clone(),
            insecure: joining.insecure,
        })
    }

    /// Asks the Board to revoke this credential.
    pub async fn leave(&self) -> Result<Farewell, String> {
        let board = self.board()?;
        let call = client()?.delete(address::join(&board, "api/daemon/enrolment")).bearer_auth(&self.credential);
        let answer =
            call.send().await.map_err(|error| format!("the Board at {board} cannot be reached: {}", causes(&error)))?;
        match answer.status() {
            status if status.is_success() => Ok(Farewell::Said),
            StatusCode::UNAUTHORIZED => Ok(Farewell::Unknown),
            status => Err(format!("the Board at {board} answers {status}")),
        }
    }

    /// Has the Board start a run, once, however often it has to be asked. `key` is of this one start.
    pub async fn start_run(&self, run: &RunRequest<'_>, key: &str) -> Result<StartedRun, String> {
        let (mut left, mut delay, mut is_lost) = (MAX_START_ATTEMPTS, FIRST_RETRY_DELAY, false);
        loop {
            let why = match self.try_start_run(run, key).await {
                Ok(started) => return Ok(started),
                Err(StartError::Refused(why)) => return Err(why),
                Err(StartError::Later(why)) => why,
                Err(StartError::Unknown(why)) => {
                    is_lost = true;
                    why
                }
            };
            left -= 1;
            if left == 0 {
                return Err(given_up(why, is_lost));
            }
            tokio::time::sleep(delay).await;
            delay *= 2;
        }
    }

    async fn try_start_run(&self, run: &RunRequest<'_>, key: &str) -> Result<StartedRun, StartError> {
        let board = self.board().map_err(StartError::Refused)?;
        let url = address::join(&board, "api/daemon/playbook-runs");
        let call = client().map_err(StartError::Refused)?.post(url).bearer_auth(&self.credential);
        let answer = call.header("Idempotency-Key", key).json(run).send().await;
        let lost = |error: reqwest::Error| {
            let why = format!("the Board at {board} cannot be reached: {}", causes(&error));
            if error.is_connect() { StartError::Later(why) } else { StartError::Unknown(why) }
        };
        let answer = answer.map_err(lost)?;
        let status = answer.status();
        let text = answer.text().await.map_err(lost)?;
        if !status.is_success() {
            return Err(refusal(&board, status, &text));
        }
        let started: StartedRun = serde_json::from_str(&text)
            .map_err(|error| StartError::Refused(format!("the Board's answer cannot be parsed: {error}")))?;
        // The Board may not know under which address it is reached.
        let is_path = started.url.starts_with('/');
        let url = if is_path { String::from(address::join(&board, &started.url)) } else { started.url };
        Ok(StartedRun { url, ..started })
    }

    /// Fetches a file that people sent, unless it is there already. What arrives is verified before it gets its place in the
    /// workspace, where commands of agents may have left anything, or do so meanwhile.
    pub async fn carry(
        &self,
        attachment: &Attachment,
        (home, workspace): (&Home, &Workspace),
        place: &Path,
    ) -> Result<(), FetchError> {
        let way = place.strip_prefix(home.workspace()).ok().and_then(Path::to_str);
        let way = way.ok_or_else(|| FetchError::Never("it has no place in the workspace".to_owned()))?.to_owned();
        let (there, wanted, path) = (workspace.clone(), attachment.clone(), way.clone());
        let looked = tokio::task::spawn_blocking(move || there.holds(&path, wanted.size, &wanted.sha256)).await;
        if looked.unwrap_or(false) {
            return Ok(());
        }
        let url =
            address::join(&self.board().map_err(FetchError::Never)?, &format!("api/daemon/blobs/{}", attachment.id));
        let call = blob_client().map_err(FetchError::Later)?.get(url).bearer_auth(&self.credential);
        let mut answer = call.send().await.map_err(|error| FetchError::Later(causes(&error)))?;
        check(answer.status())?;
        let disk = |error: io::Error| FetchError::Later(format!("{}: {error}", place.display()));
        let mut file = tokio::fs::File::from_std(home.nameless_file().map_err(disk)?);
        let mut left = attachment.size;
        while let Some(piece) = answer.chunk().await.map_err(|error| FetchError::Later(causes(&error)))? {
            left = left
                .checked_sub(piece.len() as u64)
                .ok_or_else(|| FetchError::Never("it is larger than announced".into()))?;
            file.write_all(&piece).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        let (mut file, workspace, sha256) = (file.into_std().await, workspace.clone(), attachment.sha256.clone());
        let placed = tokio::task::spawn_blocking(move || {
            file.rewind()?;
            if measure(&file)?.sha256 != sha256 {
                return Ok(None);
            }
            file.rewind()?;
            Ok(Some(workspace.place_file(&way, &mut file)))
        });
        match placed.await.map_err(io::Error::other).flatten() {
            Ok(Some(Ok(()))) => Ok(()),
            Ok(None) => Err(FetchError::Never(format!("{:?} was damaged on the way", attachment.name))),
            Ok(Some(Err(WorkspaceError::Disk(error)))) | Err(error) => Err(disk(error)),
            Ok(Some(Err(error))) => Err(FetchError::Never(error.to_string())),
        }
    }

    /// Fetches a payload that was too large for a frame.
    pub async fn fetch(&self, path: &str) -> Result<Vec<u8>, FetchError> {
        let url = self.board().map_err(FetchError::Never)?;
        // Only below the Board's own address: the credential must not go anywhere else.
        if !path.starts_with('/') || path.starts_with("//") {
            return Err(FetchError::Never(format!("{path:?} is not a path of the Board")));
        }
        let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
        let mut url = address::join(&url, path);
        url.set_query(query);
        let call = blob_client().map_err(FetchError::Later)?.get(url).bearer_auth(&self.credential);
        let mut answer = call.send().await.map_err(|error| FetchError::Later(causes(&error)))?;
        check(answer.status())?;
        let mut bytes = Vec::new();
        while let Some(more) = answer.chunk().await.map_err(|error| FetchError::Later(causes(&error)))? {
            if bytes.len() + more.len() > MAX_ANSWER_BYTES {
                return Err(FetchError::Never("it is too large".to_owned()));
            }
            bytes.extend_from_slice(&more);
        }
        Ok(bytes)
    }
}

fn damaged(path: &Path, error: &dyn fmt::Display) -> io::Error {
    let path = path.display();
    io::Error::other(format!("{path} is damaged ({error}): join again with a new token, or restore a copy of it"))
}

/// Why the Board did not start a run, in words; it says so as `application/problem+json`.
fn refusal(board: &Url, status: StatusCode, text: &str) -> StartError {
    let problem: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
    let said = |name: &str| problem[name].as_str().filter(|said| !said.is_empty());
    let why = match (status, said("detail").or(said("title"))) {
        (StatusCode::UNAUTHORIZED, _) => format!("the Board at {board} does not know this viber any more"),
        (StatusCode::NOT_FOUND, _) => format!("the Board at {board} starts no playbooks for vibers: it may be older"),
        (_, Some(said)) => format!("the Board refuses: {said}"),
        (_, None) => format!("the Board at {board} answers {status}"),
    };
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => StartError::Later(why),
        // Behind a gateway the Board may have started it.
        status if status.is_server_error() => StartError::Unknown(why),
        _ => StartError::Refused(why),
    }
}

/// What is said once nobody asks any more. `is_lost`: an answer may have been that it was started.
fn given_up(why: String, is_lost: bool) -> String {
    let unknown = "; it is not known whether the run was started: look at the Board before you start it again";
    if is_lost { format!("{why}{unknown}") } else { why }
}

fn check(status: StatusCode) -> Result<(), FetchError> {
    let said = format!("the Board answered {status}");
    match status {
        StatusCode::OK => Ok(()),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::UNAUTHORIZED => Err(FetchError::Later(said)),
        status if status.is_server_error() => Err(FetchError::Later(said)),
        _ => Err(FetchError::Never(said)),
    }
}

/// An HTTP client for large bodies: no time limit as long as bytes keep moving.
pub fn blob_client() -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .read_timeout(CALL_TIMEOUT);
    builder.build().map_err(|error| format!("no HTTP client: {error}"))
}

/// An HTTP client that follows no redirects: a credential is only for the address it was issued by.
pub fn client() -> Result<reqwest::Client, String> {
    let builder = reqwest::Client::builder()
        .redirect(redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .timeout(CALL_TIMEOUT);
    builder.build().map_err(|error| format!("no HTTP client: {error}"))
}

/// An error together with its causes, which contain the reason that helps a person.
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_of_a_start_is_said() {
        let board = address::parse("https://b.example/team", false).expect("good");
        let of = |status: u16| refusal(&board, StatusCode::from_u16(status).expect("a status"), r#"{"title":"No"}"#);
        let is_later = |status| matches!(of(status), StartError::Later(_));
        let is_unknown = |status| matches!(of(status), StartError::Unknown(_));
        let is_refused = |status| matches!(of(status), StartError::Refused(_));
        assert!([429, 503].into_iter().all(is_later) && [500, 502, 504].into_iter().all(is_unknown));
        assert!([301, 400, 401, 403, 404, 409, 413, 415, 422].into_iter().all(is_refused));
        assert_eq!(given_up("away".to_owned(), false), "away");
        assert!(given_up("away".to_owned(), true).contains("not known whether the run was started"));
    }

    #[tokio::test]
    async fn a_start_whose_answer_is_lost_is_unknown_and_one_that_nobody_hears_is_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let board = format!("http://{}", listener.local_addr().expect("an address"));
        let viber = "vib_00000000000070008000000000000001";
        let credential = json!({ "viberId": viber, "credential": "x", "boardUrl": board });
        let credential: Credential = serde_json::from_value(credential).expect("a credential");
        let inputs = BTreeMap::new();
        let run = RunRequest { playbook: "p", text: "x", inputs: &inputs, supervised: true };
        let hang_up = async {
            let _heard = listener.accept().await.expect("a call");
        };
        let (lost, ()) = tokio::join!(credential.try_start_run(&run, "k"), hang_up);
        assert!(matches!(lost, Err(StartError::Unknown(_))), "{lost:?}");
        drop(listener);
        let unheard = credential.try_start_run(&run, "k").await;
        assert!(matches!(unheard, Err(StartError::Later(_))), "{unheard:?}");
    }
}
