//! Deals with what arrived from Slack: the envelopes of a thread one after the other, each until it is done; those of some
//! threads at once, so that nobody waits for another's files.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use protocol::{InjectionPoint, InterruptSignal, LocalFile, SessionId, UserMessage};
use serde_json::Value;

use super::{
    SlackAdapter,
    answer::post,
    inbound::{self, SlackInput, SlackPress, SlackSaid},
    question::ShownQuestion,
    store::{KeptEnvelope, SlackThread},
    text::escaped,
};
use crate::{
    adapters::Callbacks,
    home::private_folder,
    mesh::{DecideError, SayError},
};

/// Wait before something is tried again that the disk or Slack refused.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Tries of something that Slack may refuse for good.
const MAX_ATTEMPTS: u32 = 5;
/// Envelopes that are under way at once.
const MAX_UNDER_WAY: usize = 8;

/// Why an envelope is not done with: it is tried again.
struct NotDone(String);

impl SlackAdapter {
    /// Deals with envelopes, the oldest first.
    pub(super) async fn work(&self, callbacks: &Callbacks) {
        let mut arrivals = self.envelopes.arrivals();
        let (mut busy, mut under_way) = (BTreeMap::new(), FuturesUnordered::new());
        loop {
            arrivals.mark_unchanged();
            while under_way.len() < MAX_UNDER_WAY
                && let Some(KeptEnvelope { name, group, payload }) = self.next_envelope(&busy).await
            {
                busy.insert(name.clone(), group);
                under_way.push(async move {
                    self.deal_with(&name, &payload, callbacks).await;
                    name
                });
            }
            tokio::select! {
                Some(name) = under_way.next(), if !under_way.is_empty() => drop(busy.remove(&name)),
                arrived = arrivals.changed() => if arrived.is_err() { return },
            }
        }
    }

    async fn next_envelope(&self, busy: &BTreeMap<String, String>) -> Option<KeptEnvelope> {
        let (store, busy) = (self.envelopes.clone(), busy.clone());
        tokio::task::spawn_blocking(move || store.next(&busy)).await.ok().flatten()
    }

    async fn deal_with(&self, name: &str, payload: &Value, callbacks: &Callbacks) {
        let own = self.own.get().cloned().unwrap_or_default();
        let input = inbound::read(payload, &own);
        for attempt in 1.. {
            let done = match &input {
                SlackInput::Said(said) => self.hear(said, callbacks).await,
                SlackInput::Pressed(press) => self.press(press, callbacks).await,
                SlackInput::Nothing => Ok(()),
            };
            let Err(NotDone(why)) = done else { break };
            tracing::warn!("something that came from Slack is not done with yet: {why}");
            if attempt >= MAX_ATTEMPTS && matches!(input, SlackInput::Pressed(_)) {
                break;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        let (store, name) = (self.envelopes.clone(), name.to_owned());
        let removed = tokio::task::spawn_blocking(move || store.done(&name)).await;
        if let Err(error) = removed.map_err(std::io::Error::other).flatten() {
            // It is dealt with once more, which changes nothing.
            tracing::warn!("an envelope of Slack stays: {error}");
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
    }

    /// Somebody says something: in a thread that is known, or to the bot.
    async fn hear(&self, said: &SlackSaid, callbacks: &Callbacks) -> Result<(), NotDone> {
        let known = self.threads.find(&said.channel, &said.root);
        let is_here = self.config.channels.is_empty() || said.is_direct || self.config.channels.contains(&said.channel);
        if !is_here || (known.is_none() && !said.is_addressed) {
            return Ok(());
        }
        if !self.config.users.contains(&said.user) {
            return self.refuse(said).await;
        }
        if is_stop(&said.text) {
            match &known {
                Some(thread) => return self.stop(said, thread, callbacks).await,
                // It would be a task of its own.
                None => self.reply(&nobodys(said), "Say stop in the thread of what is to stop.").await,
            }
            return Ok(());
        }
        // A thread stays with the agent that it began with.
        let begins = || (SessionId::new(callbacks.mesh.clock().now().millis()), self.config.agent.clone());
        let (session, agent) = known.map_or_else(begins, |thread| (thread.session, thread.agent));
        let agent_id = Some(agent.clone()).filter(|agent| !agent.is_empty());
        let thread = SlackThread { agent, ..thread_of(said, session.clone()) };
        // Before anything begins: the pump asks whose session it is.
        self.threads.keep(thread.clone()).map_err(|error| NotDone(error.to_string()))?;
        let (attachments, missing) = self.fetch_files(said).await;
        let message = UserMessage {
            // A mention arrives twice, as that and as a message.
            id: format!("{}:{}", said.channel, said.ts),
            content: format!("{}{missing}", said.text),
            attachments,
            agent_id,
            session_id: Some(session),
            injection_mode: Some(InjectionPoint::Collect),
            ..UserMessage::default()
        };
        let author = self.name_of(&said.user).await;
        let accepted = callbacks.on_message(&author, message).await;
        let _ = tokio::fs::remove_dir_all(self.arriving(said)).await;
        match accepted {
            Ok(_) => Ok(()),
            Err(SayError::Refused { message, .. }) => {
                self.reply(&thread, &format!("Not taken: {}.", escaped(&message))).await;
                Ok(())
            }
            Err(SayError::Disk(error)) => Err(NotDone(error.to_string())),
        }
    }

    /// Tells somebody once that they may not talk to the agent.
    async fn refuse(&self, said: &SlackSaid) -> Result<(), NotDone> {
        let is_first = self.threads.refuse(&said.user).map_err(|error| NotDone(error.to_string()))?;
        if is_first {
            let text = "You may not talk to this agent: whoever runs it lists the people who may, by their member ids.";
            self.reply(&nobodys(said), text).await;
        }
        Ok(())
    }

    /// Ends what runs in a thread.
    async fn stop(&self, said: &SlackSaid, thread: &SlackThread, callbacks: &Callbacks) -> Result<(), NotDone> {
        let signal = InterruptSignal {
            target_agent_id: "*".to_owned(),
            session_id: Some(thread.session.clone()),
            reason: format!("{} said stop in Slack", self.name_of(&said.user).await),
        };
        let ended = callbacks.on_interrupt(signal).await.map_err(|error| NotDone(error.to_string()))?;
        if ended.0.is_empty() {
            self.reply(thread, "Nothing runs in this thread.").await;
        }
        Ok(())
    }

    /// Somebody presses a button. Who may not decide is told so, and nothing changes.
    async fn press(&self, press: &SlackPress, callbacks: &Callbacks) -> Result<(), NotDone> {
        let kept = self.threads.question(&press.approval);
        let Some(question) = kept.as_ref().and_then(ShownQuestion::read) else { return Ok(()) };
        if (&press.channel, &press.message) != (&question.channel, &question.ts) {
            tracing::warn!("a button of Slack is not one of the message that asks");
            return Ok(());
        }
        if !self.config.approvers.contains(&press.user) {
            self.whisper(&question, &press.user, "You may not decide this: ask one of the agent's approvers.").await;
            return Ok(());
        }
        let Some(response) = question.decision(press) else { return Ok(()) };
        let by = self.name_of(&press.user).await;
        match callbacks.on_decision(&by, response).await {
            // The event that tells it replaces the buttons.
            Ok(()) => Ok(()),
            Err(DecideError::Disk(error)) => Err(NotDone(error.to_string())),
            Err(why) => {
                self.whisper(&question, &press.user, &escaped(&format!("This was not taken: {why}."))).await;
                Ok(())
            }
        }
    }

    async fn reply(&self, thread: &SlackThread, text: &str) {
        let Ok(api) = self.api() else { return };
        if let Err(error) = post(api, thread, text, None).await {
            tracing::warn!("a reply could not be written: {error}");
        }
    }

    /// Says something that only one person sees.
    async fn whisper(&self, question: &ShownQuestion, user: &str, text: &str) {
        let Ok(api) = self.api() else { return };
        let body = serde_json::json!({
            "channel": question.channel, "thread_ts": question.root, "user": user, "text": text,
        });
        if let Err(error) = api.call("chat.postEphemeral", &body).await {
            tracing::warn!("a reply could not be written: {error}");
        }
    }

    /// Fetches the files of a message. Returns those that came, and a remark on the others for the agent.
    async fn fetch_files(&self, said: &SlackSaid) -> (Vec<LocalFile>, String) {
        let (mut files, mut missing): (Vec<LocalFile>, String) = Default::default();
        let folder = self.arriving(said);
        for file in &said.files {
            let is_taken = |name: &str| files.iter().any(|known: &LocalFile| known.name == name);
            let name = match is_taken(&file.name) {
                true => format!("{}-{}", files.len(), file.name),
                false => file.name.clone(),
            };
            let path = folder.join(files.len().to_string());
            let fetched = match (private_folder(&folder), self.api()) {
                (Ok(()), Ok(api)) => api.fetch(&file.url, &path).await,
                (Err(error), _) => Err(error.to_string()),
                (_, Err(why)) => Err(why),
            };
            match fetched {
                Ok(()) => files.push(LocalFile { name, path: path.display().to_string() }),
                Err(why) => missing.push_str(&format!("\n\n(The file {name:?} could not be fetched: {why}.)")),
            }
        }
        (files, missing)
    }

    /// Where the files of a message lie until it is said.
    fn arriving(&self, said: &SlackSaid) -> PathBuf {
        let plain = |text: &str| text.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>();
        let folder = self.mesh.home().adapter_state(super::SLACK).join("arriving");
        folder.join(format!("{}{}", plain(&said.channel), plain(&said.ts)))
    }
}

/// The thread that something was said in, as that of `session`.
fn thread_of(said: &SlackSaid, session: SessionId) -> SlackThread {
    SlackThread {
        channel: said.channel.clone(),
        root: said.root.clone(),
        session,
        agent: String::new(),
        user: said.user.clone(),
        team: said.team.clone(),
    }
}

/// The thread that something was said in which is no session.
fn nobodys(said: &SlackSaid) -> SlackThread {
    thread_of(said, SessionId::new(0))
}

fn is_stop(text: &str) -> bool {
    text.trim_end_matches(['.', '!']).eq_ignore_ascii_case("stop")
}
