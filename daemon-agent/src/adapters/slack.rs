//! The Slack adapter: a mention or a direct message begins, its thread is the session. It dials out (Socket Mode), so that no
//! port is open; its tokens stay on this machine.
//!
//! Owns how a conversation of Slack becomes messages and decisions, and an agent's events messages of a thread. What arrived is
//! on disk before Slack is told so, and what Slack has not is told again after a restart.

mod answer;
mod api;
mod beginning;
mod inbound;
mod outbound;
mod question;
mod socket;
mod store;
mod text;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use protocol::{AdapterState, AttemptRef};
use serde_json::json;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use self::{
    answer::ThreadAnswer,
    api::{SlackApi, SlackError},
    inbound::BotIdentity,
    store::{DamagedFiles, EnvelopeStore, ThreadStore},
};
use super::{
    Callbacks, CommandCenterAdapter, StreamedEvent,
    pump::{self, Cursors},
};
use crate::{artifacts, config::SlackConfig, mesh::Mesh};

/// The adapter's name.
pub const SLACK: &str = protocol::adapter::SLACK_ORIGIN;
/// Time between two attempts to find out who the bot is.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// How long the name of somebody is waited for.
const NAME_TIMEOUT: Duration = Duration::from_secs(3);
/// Files of a result that are sent to the thread.
const MAX_SENT_FILES: usize = 10;

/// One Slack app.
pub struct SlackAdapter {
    config: SlackConfig,
    mesh: Mesh,
    api: Result<SlackApi, String>,
    envelopes: Arc<EnvelopeStore>,
    threads: ThreadStore,
    cursors: Arc<Cursors>,
    /// Who the bot is, once Slack has said so.
    own: OnceLock<BotIdentity>,
    /// Names of people, by their ids.
    names: Mutex<HashMap<String, String>>,
    answers: Mutex<HashMap<AttemptRef, Arc<tokio::sync::Mutex<ThreadAnswer>>>>,
    /// Flushes that come by themselves.
    flushes: TaskTracker,
    finish: OnceLock<CancellationToken>,
}

/// Runs the adapter and its pump until `finish` is cancelled.
pub async fn run(adapter: Arc<SlackAdapter>, mesh: Mesh, finish: CancellationToken) {
    let callbacks = Callbacks::of(SLACK, mesh.clone(), finish.clone());
    let _ = adapter.finish.set(finish.clone());
    let follows = |session: &protocol::SessionId| adapter.threads.of_session(session).is_some();
    let connected = async {
        if let Err(why) = adapter.connect(callbacks).await {
            tracing::error!("Slack: {why}");
            mesh.report_adapter(SLACK, AdapterState::Failed, Some(why));
        }
    };
    tokio::join!(connected, pump::run(adapter.clone(), &mesh, &adapter.cursors, follows, &finish));
    adapter.flushes.close();
    adapter.flushes.wait().await;
}

/// Keeps what is still to be told while the adapter cannot run, and nothing else, until `finish` is cancelled.
pub async fn keep(mesh: Mesh, finish: CancellationToken) {
    let (threads, cursors) = (thread_store(&mesh), cursors(&mesh));
    let follows = |session: &protocol::SessionId| threads.of_session(session).is_some();
    pump::keep(SLACK, &mesh, &cursors, follows, &finish).await;
}

fn damaged_files(mesh: &Mesh) -> DamagedFiles {
    DamagedFiles { folder: mesh.home().damaged(), clock: mesh.clock().clone() }
}

fn thread_store(mesh: &Mesh) -> ThreadStore {
    ThreadStore::open(mesh.home().adapter_state(SLACK).join("threads.json"), &damaged_files(mesh))
}

fn cursors(mesh: &Mesh) -> Cursors {
    Cursors::open(mesh.home().adapter_state(SLACK).join("cursors.json"))
}

impl SlackAdapter {
    /// The app of the configuration, with what a former process left.
    pub fn open(config: SlackConfig, mesh: &Mesh) -> Self {
        let inbox = mesh.home().adapter_state(SLACK).join("inbox");
        Self {
            api: SlackApi::new(config.clone()),
            config,
            envelopes: Arc::new(EnvelopeStore::open(inbox, damaged_files(mesh))),
            threads: thread_store(mesh),
            cursors: Arc::new(cursors(mesh)),
            own: OnceLock::new(),
            names: Mutex::default(),
            answers: Mutex::default(),
            flushes: TaskTracker::new(),
            finish: OnceLock::new(),
            mesh: mesh.clone(),
        }
    }

    fn api(&self) -> Result<&SlackApi, String> {
        self.api.as_ref().map_err(Clone::clone)
    }

    /// Asks Slack who the bot is, until it says so.
    async fn identify(&self, callbacks: &Callbacks) -> Result<(), String> {
        let api = self.api()?;
        callbacks.mesh.report_adapter(SLACK, AdapterState::Connecting, None);
        loop {
            match api.call("auth.test", &json!({})).await {
                Ok(who) => {
                    let word = |key: &str| who[key].as_str().unwrap_or_default().to_owned();
                    let own = BotIdentity { user: word("user_id"), team: word("team_id") };
                    tracing::info!(team = own.team, "Slack knows this viber's bot");
                    let _ = self.own.set(own);
                    return Ok(());
                }
                Err(error) => {
                    tracing::warn!("{error}");
                    callbacks.mesh.report_adapter(SLACK, AdapterState::Failed, Some(error.to_string()));
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
            }
        }
    }

    /// The name of a person, as Slack shows it; their id while Slack does not say.
    async fn name_of(&self, user: &str) -> String {
        if let Some(known) = self.names().get(user) {
            return known.clone();
        }
        let Ok(api) = self.api() else { return user.to_owned() };
        let asked = json!({ "user": user });
        let found = tokio::time::timeout(NAME_TIMEOUT, api.call("users.info", &asked)).await;
        let Ok(Ok(found)) = found else { return user.to_owned() };
        let profile = &found["user"]["profile"];
        let names = [&profile["display_name"], &profile["real_name"], &found["user"]["name"]];
        let name = names.into_iter().filter_map(|name| name.as_str()).find(|name| !name.trim().is_empty());
        let name = protocol::text::head(name.unwrap_or(user), 80).to_owned();
        self.names().insert(user.to_owned(), name.clone());
        name
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<AttemptRef, Arc<tokio::sync::Mutex<ThreadAnswer>>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the files that a task produced. One that cannot be sent is named.
    async fn send_files(&self, answer: &mut ThreadAnswer, files: &[protocol::ArtifactRef]) -> Result<(), SlackError> {
        let Ok(api) = self.api() else { return Ok(()) };
        // What it links to needs no copy.
        let is_file = |file: &&protocol::ArtifactRef| file.reference.as_ref().is_some_and(|at| !at.contains("://"));
        let produced = files.iter().filter(|file| file.call_id.is_none()).filter(is_file).take(MAX_SENT_FILES);
        for file in produced.skip(usize::try_from(answer.sent_files).unwrap_or(usize::MAX)) {
            let reference = file.reference.clone().unwrap_or_default();
            let (home, sha256, size) = (self.mesh.home().clone(), file.sha256.clone(), file.size);
            let name = reference.rsplit('/').next().unwrap_or("file").to_owned();
            let read = tokio::task::spawn_blocking(move || {
                use std::io::Read;
                let found = artifacts::find(&home, &reference, size, sha256.as_deref())?;
                let mut bytes = Vec::new();
                let read = found.take(api::MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
                match read {
                    Ok(_) if bytes.len() as u64 <= api::MAX_FILE_BYTES => Ok(bytes),
                    Ok(_) => Err("it is too large".to_owned()),
                    Err(error) => Err(error.to_string()),
                }
            });
            let sent = match read.await.unwrap_or_else(|error| Err(error.to_string())) {
                Ok(bytes) if bytes.is_empty() => Err("it is empty".to_owned()),
                Ok(bytes) => {
                    let thread = (answer.thread.channel.as_str(), answer.thread.root.as_str());
                    api.upload(thread, &name, bytes).await.map_err(|error| error.to_string())
                }
                Err(why) => Err(why),
            };
            if let Err(why) = sent {
                let why = format!("The file `{name}` could not be sent: {why}.");
                answer.post(api, &text::escaped(&why), None).await?;
            }
            answer.sent_files += 1;
            self.note(answer).await;
        }
        Ok(())
    }
}

impl CommandCenterAdapter for SlackAdapter {
    fn id(&self) -> &'static str {
        SLACK
    }

    async fn connect(&self, callbacks: Callbacks) -> Result<(), String> {
        let api = self.api()?;
        let finish = callbacks.finish.clone();
        match finish.run_until_cancelled(self.identify(&callbacks)).await {
            None => return Ok(()),
            Some(identified) => identified?,
        }
        tokio::select! {
            ended = socket::run(api, &self.envelopes, &callbacks) => ended,
            () = self.work(&callbacks) => Ok(()),
        }
    }

    async fn stream(&self, event: StreamedEvent) -> Result<(), String> {
        self.tell(event).await
    }
}
