//! What a connection has to do beside recording: one thing at a time, and what waits merges with its like.

use std::{collections::BTreeMap, pin::Pin, time::Duration};

use protocol::{EditId, Numbered, Running, ViberState, WorkspaceWritten};

use super::compose;
use crate::{
    actions::{
        files,
        reconcile::{self, Verdict},
        record::Speaker,
    },
    domain::Heard,
    error::Error,
    state::Board,
};

/// Changed files that may wait for the change in progress.
const FILES: usize = 10_000;

/// A change that the database refused for now is tried again after this time.
pub const AGAIN: Duration = Duration::from_millis(500);

/// Something under way.
pub type Task<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What else is to be done, one at a time; the same kind merges while it waits.
#[derive(Debug, Default)]
pub struct Chores {
    /// There may be new commands.
    pub commands: bool,
    /// The daemon has commands up to here on disk.
    pub acked: Option<u64>,
    pub lists: Option<ViberState>,
    pub claims: Vec<Running>,
    pub settle: Vec<Running>,
    /// Files that are others now, by path.
    pub heard: BTreeMap<String, Heard>,
    /// What became of changes of files.
    pub written: Vec<WorkspaceWritten>,
}

/// What a chore came to.
pub enum Chore {
    Done,
    Commands(Vec<Numbered>),
    /// The Board has what became of these changes.
    Written(Vec<EditId>),
    /// The database is away: once more.
    Again(Box<Chores>),
}

impl Chores {
    /// The next one, if there is one. New commands are composed only with `sent`, the last one that was sent: without it
    /// there is no room for them.
    pub fn next(&mut self, board: &Board, speaker: &Speaker, sent: Option<u64>) -> Option<Task<Chore>> {
        let nothing = self.acked.is_none() && self.lists.is_none() && self.claims.is_empty() && self.settle.is_empty();
        let nothing = nothing && self.heard.is_empty() && self.written.is_empty();
        if nothing && !(self.commands && sent.is_some()) {
            return None;
        }
        let (board, who) = (board.clone(), speaker.clone());
        if let Some(cmd_seq) = self.acked.take() {
            return Some(Box::pin(async move {
                match reconcile::ack_commands(&board, &who, cmd_seq).await {
                    Ok(()) => Chore::Done,
                    Err(error) => again(error, Self { acked: Some(cmd_seq), ..Self::default() }).await,
                }
            }));
        }
        if let Some(lists) = self.lists.take() {
            return Some(Box::pin(async move {
                match reconcile::lists(&board, &who, &lists).await {
                    Ok(()) => Chore::Done,
                    Err(error) => again(error, Self { lists: Some(lists), ..Self::default() }).await,
                }
            }));
        }
        if !self.claims.is_empty() {
            let claims = std::mem::take(&mut self.claims);
            return Some(Box::pin(async move {
                match reconcile::claims(&board, &who, &claims).await {
                    Ok(()) => Chore::Done,
                    Err(error) => again(error, Self { claims, ..Self::default() }).await,
                }
            }));
        }
        if !self.settle.is_empty() {
            let settle = std::mem::take(&mut self.settle);
            return Some(Box::pin(async move {
                let verdict = Verdict::DaemonRestarted;
                match reconcile::settle(&board, &who.team, &who.viber, who.epoch, &settle, verdict).await {
                    Ok(()) => Chore::Done,
                    Err(error) => again(error, Self { settle, ..Self::default() }).await,
                }
            }));
        }
        if !self.written.is_empty() {
            let written = std::mem::take(&mut self.written);
            return Some(Box::pin(async move {
                match files::written(&board, &who, &written).await {
                    Ok(()) => Chore::Written(written.into_iter().map(|one| one.edit_id).collect()),
                    Err(error) => again(error, Self { written, ..Self::default() }).await,
                }
            }));
        }
        if !self.heard.is_empty() {
            let heard = std::mem::take(&mut self.heard);
            return Some(Box::pin(async move {
                match files::heard(&board, &who, heard.values().cloned().collect()).await {
                    Ok(()) => Chore::Done,
                    Err(error) => again(error, Self { heard, ..Self::default() }).await,
                }
            }));
        }
        let sent = sent?;
        self.commands = false;
        Some(Box::pin(async move {
            match compose::next(&board, &who, sent).await {
                Ok(commands) => Chore::Commands(commands),
                Err(error) => again(error, Self { commands: true, ..Self::default() }).await,
            }
        }))
    }

    /// Lists that changed again before they were kept.
    pub fn merge_lists(&mut self, newer: ViberState) {
        let lists = self.lists.get_or_insert_default();
        lists.agents = newer.agents.or(lists.agents.take());
        lists.skills = newer.skills.or(lists.skills.take());
        lists.jobs = newer.jobs.or(lists.jobs.take());
        lists.providers = newer.providers.or(lists.providers.take());
        lists.confinement = newer.confinement.or(lists.confinement.take());
    }

    /// A file that changed again before it was kept is kept once. Too many are left out: whoever looks at one asks for it.
    pub fn hear(&mut self, heard: Heard) {
        if self.heard.len() < FILES || self.heard.contains_key(&heard.path) {
            self.heard.insert(heard.path.clone(), heard);
        }
    }

    /// What could not be done, unless something newer of its kind waits by now.
    pub fn restore(&mut self, old: Self) {
        self.commands |= old.commands;
        self.acked = self.acked.max(old.acked);
        if let Some(older) = old.lists {
            let newer = self.lists.replace(older);
            newer.into_iter().for_each(|newer| self.merge_lists(newer));
        }
        self.claims.extend(old.claims);
        self.settle.extend(old.settle);
        self.written.extend(old.written);
        for (path, heard) in old.heard {
            self.heard.entry(path).or_insert(heard);
        }
    }
}

/// A chore that failed: once more when the database is only away.
async fn again(error: Error, chores: Chores) -> Chore {
    match error {
        Error::Unavailable { .. } | Error::Conflict { .. } => {
            tokio::time::sleep(AGAIN).await;
            Chore::Again(Box::new(chores))
        }
        error => {
            tracing::error!(%error, "something that a viber told could not be kept");
            Chore::Done
        }
    }
}
