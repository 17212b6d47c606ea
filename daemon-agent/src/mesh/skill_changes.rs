//! Makes the changes of skills that people want, and lets MCP servers offer what people have seen: one after another, each
//! once. The outcome is kept until the Board has acknowledged it.

use std::time::Duration;

use protocol::{Command, CommandDone, NumberedCommand, SkillInstall, limits::MAX_SKILL_ARCHIVE_BYTES};
use tokio::time::{sleep, timeout};

use super::{FetchError, Mesh, attempts::RETRY_INTERVAL};
use crate::{
    config::{check_skill_agents, forget_skill, set_skill_agents},
    fault,
    skills::{LibraryError, Skills},
};

/// How often the Board may put off the files of a skill while this viber is connected to it: two minutes. Then the change has
/// failed, and those behind it are made.
const MAX_FETCH_FAILURES: u32 = 60;
/// How long the daemon's own configuration may take to follow a changed file before the outcome is reported without it.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(5);

impl Mesh {
    /// Makes a change, which is in the journal already, after those that arrived before it.
    pub(super) fn change_skills(&self, change: NumberedCommand) {
        let first = {
            let mut state = self.state();
            if state.skill_changes.iter().any(|known| known.cmd_seq == change.cmd_seq) {
                return;
            }
            state.skill_changes.push_back(change);
            state.skill_changes.len() == 1
        };
        if first {
            let mesh = self.clone();
            self.shared.tracker.spawn(async move { mesh.change_all_skills().await });
        }
    }

    /// Outcomes of changes that the Board has not acknowledged yet.
    pub fn commands_done(&self) -> Vec<CommandDone> {
        self.shared.context.journal.unacknowledged_outcomes()
    }

    /// The Board has acknowledged the outcomes of these commands.
    pub async fn outcomes_acknowledged(&self, cmd_seqs: Vec<u64>) {
        let noted = self.blocking(move |journal| journal.outcomes_acknowledged(&cmd_seqs)).await.flatten();
        if let Err(error) = noted {
            tracing::warn!("the journal cannot be written: {error}");
        }
    }

    async fn change_all_skills(&self) {
        loop {
            let next = self.state().skill_changes.front().cloned();
            let Some(NumberedCommand { cmd_seq, command }) = next else { return };
            let changed = self.change_skill(command).await;
            // Reported before the outcome is.
            self.skills().rescan().await;
            let (ok, error) = (changed.is_ok(), changed.err());
            tracing::info!(command.seq = cmd_seq, ok, error, "a change that the Board ordered");
            let done = CommandDone { cmd_seq, ok, error };
            fault::at("skills::before_done");
            loop {
                let outcome = done.clone();
                match self.blocking(move |journal| journal.done(outcome)).await.flatten() {
                    Ok(()) => break,
                    Err(error) => tracing::warn!("the journal cannot be written: {error}"),
                }
                sleep(RETRY_INTERVAL).await;
            }
            fault::at("skills::after_done");
            self.shared.outcomes.send_modify(|n| *n = n.wrapping_add(1));
            let mut state = self.state();
            state.skill_changes.pop_front();
            if state.skill_changes.is_empty() {
                return;
            }
        }
    }

    /// Makes one change; `Err` says why it was not made.
    async fn change_skill(&self, command: Command) -> Result<(), String> {
        // They may have changed since they were read last.
        self.skills().rescan().await;
        match command {
            Command::InstallSkill(wanted) => self.install_skill(*wanted).await,
            Command::RemoveSkill { name } => self.remove_skill(name).await,
            Command::AcceptSkill { name, digest } => self.in_library(move |skills| skills.accept(&name, &digest)).await,
            Command::EnableSkill { name, agents } => {
                if !agents.is_empty() && self.skills().now().all.iter().all(|skill| skill.name != name) {
                    return Err(format!("there is no skill {} on this viber", protocol::text::head(&name, 80)));
                }
                self.offer_skill(name, agents).await
            }
            Command::AllowMcp { name, hash } => {
                let mcp = self.mcp().clone();
                let allowing = tokio::task::spawn_blocking(move || mcp.allow(&name, &hash)).await;
                allowing.map_err(|error| error.to_string())?
            }
            _ => Err("the command changes no skill".to_owned()),
        }
    }

    /// Takes a skill away, and first its name out of the files of agents, unless another skill has that name.
    async fn remove_skill(&self, name: String) -> Result<(), String> {
        let (asked, gone) = (name.clone(), name.clone());
        let is_only_one = self.in_library(move |skills| skills.check_removal(&asked)).await?;
        let forgotten = match is_only_one {
            true => {
                let home = self.home().clone();
                let forgetting = tokio::task::spawn_blocking(move || forget_skill(&home, &gone));
                forgetting.await.map_err(|error| error.to_string())?
            }
            false => Ok(()),
        };
        self.in_library(move |skills| skills.remove_installed(&name)).await?;
        forgotten.map_err(|why| format!("it is removed, but an agent's file still names it: {why}"))
    }

    async fn install_skill(&self, wanted: SkillInstall) -> Result<(), String> {
        if let Some(agents) = wanted.agents.clone() {
            let (home, name) = (self.home().clone(), wanted.name.clone());
            let checked = tokio::task::spawn_blocking(move || check_skill_agents(&home, &name, &agents));
            checked.await.map_err(|error| error.to_string())??;
        }
        let needed = wanted.clone();
        let archive = match self.in_library(move |skills| skills.needs_files(&needed)).await? {
            true => Some(self.archive(&wanted).await?),
            false => None,
        };
        fault::at("skills::fetched");
        let (name, agents, now) = (wanted.name.clone(), wanted.agents.clone(), self.clock().now());
        self.in_library(move |skills| skills.install(&wanted, archive.as_deref(), now)).await?;
        fault::at("skills::installed");
        match agents {
            Some(agents) => {
                self.offer_skill(name, agents).await.map_err(|why| format!("it is installed, but not offered: {why}"))
            }
            None => Ok(()),
        }
    }

    /// Fetches the files of a skill.
    async fn archive(&self, wanted: &SkillInstall) -> Result<Vec<u8>, String> {
        let fetch = || (self.shared.context.fetch)(wanted.url.clone());
        let fetched = fetch_patiently(fetch, || self.standing().connected, RETRY_INTERVAL).await;
        let bytes = fetched.map_err(|why| format!("its files could not be fetched from the Board: {why}"))?;
        match bytes.len() as u64 > MAX_SKILL_ARCHIVE_BYTES {
            true => Err(format!("its files take more than {} MiB", MAX_SKILL_ARCHIVE_BYTES / 1024 / 1024)),
            false => Ok(bytes),
        }
    }

    /// Has the files of agents list the skill, or not, and waits until the configuration says so.
    async fn offer_skill(&self, name: String, agents: Vec<String>) -> Result<(), String> {
        let (home, listed, offered) = (self.home().clone(), name.clone(), agents.clone());
        let written = tokio::task::spawn_blocking(move || set_skill_agents(&home, &listed, &offered));
        written.await.map_err(|error| error.to_string())??;
        let mut files = self.files();
        let is_read = files.wait_for(|files| {
            files.agents.iter().all(|(id, agent)| match agent {
                Ok(agent) => {
                    let lists = agent.skills.iter().any(|listed| *listed == name || listed == "*");
                    lists == agents.contains(id)
                }
                Err(_) => true,
            })
        });
        if timeout(RELOAD_TIMEOUT, is_read).await.is_err() {
            tracing::warn!(skill = name, "the agents' files were changed, and have not been read yet");
        }
        Ok(())
    }

    async fn in_library<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Skills) -> Result<T, LibraryError> + Send + 'static,
    ) -> Result<T, String> {
        let skills = self.skills().clone();
        let changed = tokio::task::spawn_blocking(move || change(&skills)).await;
        changed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }
}

/// Fetches until there is an answer. A Board that is away is waited for; one that is there and puts it off has so many tries,
/// and the last reason is returned.
async fn fetch_patiently<F>(
    fetch: impl Fn() -> F,
    is_connected: impl Fn() -> bool,
    interval: Duration,
) -> Result<Vec<u8>, String>
where
    F: Future<Output = Result<Vec<u8>, FetchError>>,
{
    let mut failures = 0;
    loop {
        match fetch().await {
            Ok(bytes) => return Ok(bytes),
            Err(FetchError::Never(why)) => return Err(why),
            Err(FetchError::Later(why)) => {
                failures += u32::from(is_connected());
                if failures >= MAX_FETCH_FAILURES {
                    return Err(format!("{why} ({failures} times)"));
                }
                tracing::warn!("the files of a skill could not be fetched yet: {why}");
                sleep(interval).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
