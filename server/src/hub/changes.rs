//! Bells: who listens to a team is told what changed, never how.

use std::{collections::HashMap, sync::Mutex};

use protocol::{LoginId, OperatorId, SessionId, TaskId, TeamId, TokenId, ViberId};
use tokio::sync::broadcast;

/// Rings that a slow listener may be behind before it is told that anything may have changed.
const BACKLOG: usize = 256;

/// What changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Its row or its list of messages; also a new or deleted session.
    Session(SessionId),
    /// A task's state, delivery, waiting, result, stop or attempt.
    Task { session: SessionId, task: TaskId },
    /// Contact, lists, name, labels, revocation.
    Viber(ViberId),
    /// A file of a workspace, or what became of a change of it; an empty path: many of them.
    File { viber: ViberId, path: String },
    /// The team itself: members, name, invitations, tokens.
    Team,
    /// Somebody lost access: streams that hold it end.
    Revoked(Revoked),
    /// The listener was too slow to be told one by one.
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

/// One who listens to a team.
pub struct Listener {
    rings: broadcast::Receiver<News>,
}

impl Listener {
    /// The next change. A listener that fell behind hears `Anything` and goes on from there.
    pub async fn next(&mut self) -> News {
        loop {
            match self.rings.recv().await {
                Ok(news) => return news,
                Err(broadcast::error::RecvError::Lagged(_)) => return News::Anything,
                // The hub is gone, and with it whoever could ring.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

/// Everything but `Revoked` rings in `news`, that alone in `revoked`.
#[derive(Default)]
pub(super) struct Bells {
    news: Teams,
    revoked: Teams,
}

#[derive(Default)]
struct Teams {
    map: Mutex<HashMap<TeamId, broadcast::Sender<News>>>,
}

impl Bells {
    pub(super) fn ring(&self, team: &TeamId, news: News) {
        let teams = if matches!(news, News::Revoked(_)) { &self.revoked } else { &self.news };
        teams.ring(team, news);
    }

    pub(super) fn listen(&self, team: &TeamId) -> Listener {
        self.news.listen(team)
    }

    pub(super) fn listen_revoked(&self, team: &TeamId) -> Listener {
        self.revoked.listen(team)
    }
}

impl Teams {
    fn ring(&self, team: &TeamId, news: News) {
        let mut teams = self.map.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(bell) = teams.get(team) else { return };
        if bell.send(news).is_err() {
            teams.remove(team);
        }
    }

    fn listen(&self, team: &TeamId) -> Listener {
        let mut teams = self.map.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bell = teams.entry(team.clone()).or_insert_with(|| broadcast::Sender::new(BACKLOG));
        Listener { rings: bell.subscribe() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_listener_hears_its_own_team_and_learns_that_it_was_slow() {
        let (bells, ours, theirs) = (Bells::default(), TeamId::new(1), TeamId::new(1));
        let mut listener = bells.listen(&ours);
        bells.ring(&theirs, News::Team);
        bells.ring(&ours, News::Viber(ViberId::new(1)));
        assert!(matches!(listener.next().await, News::Viber(_)));
        for _ in 0..=BACKLOG {
            bells.ring(&ours, News::Team);
        }
        assert_eq!(listener.next().await, News::Anything);
        assert_eq!(listener.next().await, News::Team);
    }
}
