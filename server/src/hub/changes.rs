//! Change notifications: subscribers of a team learn what changed, never how.

use std::{collections::HashMap, sync::Mutex};

use protocol::{LoginId, OperatorId, RunId, SessionId, TaskId, TeamId, TokenId, ViberId};
use tokio::sync::broadcast;

/// Notifications that a slow subscriber may fall behind before it is told that anything may have changed.
const MAX_BACKLOG: usize = 256;

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// A session's row or its list of messages; also a new or deleted session.
    Session(SessionId),
    /// A task's state, delivery, waiting, result, stop or attempt.
    Task { session: SessionId, task: TaskId },
    /// A run of a playbook: its state, or that of its steps.
    Run(RunId),
    /// A viber's contact, lists, name, labels or revocation.
    Viber(ViberId),
    /// A file of a workspace, or the outcome of an edit of it; an empty path stands for many files.
    File { viber: ViberId, path: String },
    /// An operator has read something: nobody else's pages show that.
    Read(OperatorId),
    /// The team itself: members, name, invitations, tokens; also a rollout of a skill.
    Team,
    /// Somebody lost access: streams that hold it end.
    Revoked(Revoked),
    /// The subscriber fell too far behind to be told one by one.
    Anything,
}

/// Whose access ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revoked {
    Login(LoginId),
    /// A member was removed, disabled, or has another role.
    Operator(OperatorId),
    Token(TokenId),
    /// The team was suspended or deleted.
    Everyone,
}

/// A subscription to the changes of a team.
pub struct Subscription {
    changes: broadcast::Receiver<Changed>,
}

impl Subscription {
    /// The next change. A subscriber that fell behind gets `Anything` and goes on from there.
    pub async fn next(&mut self) -> Changed {
        loop {
            match self.changes.recv().await {
                Ok(change) => return change,
                Err(broadcast::error::RecvError::Lagged(_)) => return Changed::Anything,
                // The hub is gone, and with it everybody who could notify.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// `Revoked` is sent over `revoked` only, everything else over `changes`.
#[derive(Default)]
pub(super) struct ChangeChannels {
    changes: Teams,
    revoked: Teams,
}

#[derive(Default)]
struct Teams {
    map: Mutex<HashMap<TeamId, broadcast::Sender<Changed>>>,
}

impl ChangeChannels {
    pub(super) fn notify(&self, team: &TeamId, change: Changed) {
        let teams = if matches!(change, Changed::Revoked(_)) { &self.revoked } else { &self.changes };
        teams.notify(team, change);
    }

    pub(super) fn subscribe(&self, team: &TeamId) -> Subscription {
        self.changes.subscribe(team)
    }

    pub(super) fn subscribe_revoked(&self, team: &TeamId) -> Subscription {
        self.revoked.subscribe(team)
    }
}

impl Teams {
    fn notify(&self, team: &TeamId, change: Changed) {
        let mut teams = self.map.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(sender) = teams.get(team) else { return };
        if sender.send(change).is_err() {
            teams.remove(team);
        }
    }

    fn subscribe(&self, team: &TeamId) -> Subscription {
        let mut teams = self.map.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let sender = teams.entry(team.clone()).or_insert_with(|| broadcast::Sender::new(MAX_BACKLOG));
        Subscription { changes: sender.subscribe() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_subscriber_hears_its_own_team_and_learns_that_it_was_slow() {
        let (channels, ours, theirs) = (ChangeChannels::default(), TeamId::new(1), TeamId::new(1));
        let mut subscription = channels.subscribe(&ours);
        channels.notify(&theirs, Changed::Team);
        channels.notify(&ours, Changed::Viber(ViberId::new(1)));
        assert!(matches!(subscription.next().await, Changed::Viber(_)));
        for _ in 0..=MAX_BACKLOG {
            channels.notify(&ours, Changed::Team);
        }
        assert_eq!(subscription.next().await, Changed::Anything);
        assert_eq!(subscription.next().await, Changed::Team);
    }
}
