//! Starting a session without a task, on a chosen viber.

use std::collections::BTreeMap;

use protocol::{SessionId, TeamId, ViberId};

use super::MAX_GIVEN_TITLE_CHARS;
use crate::{
    actions::{AfterCommit, tasks::placement},
    db::{self, audit::Entry},
    domain::{By, Policies, PolicyChange, Session, name},
    error::{Error, Result},
    state::Board,
};

/// Title of a session that has no other.
const UNTITLED_SESSION: &str = "New session";

/// A session to be started.
#[derive(Clone, Debug, Default)]
pub struct NewSession {
    pub viber: Option<ViberId>,
    /// What the viber must have, when none is named.
    pub labels: BTreeMap<String, String>,
    /// `default` when absent.
    pub agent: Option<String>,
    /// When absent the first goal names it.
    pub title: Option<String>,
    /// Its probable first goal, which names it until then.
    pub about: String,
    pub policies: PolicyChange,
}

fn about(goal: &str) -> String {
    let title = protocol::text::title(goal);
    if title.trim().is_empty() { UNTITLED_SESSION.to_owned() } else { title }
}

/// Starts a session.
pub async fn create(board: &Board, team: &TeamId, by: &By, start: NewSession) -> Result<Session> {
    let refused = || Error::unacceptable("bad_title", "a title needs at least one visible character");
    let title = start.title.as_deref().map(|title| name::clean(title, MAX_GIVEN_TITLE_CHARS).ok_or_else(refused));
    let title = title.transpose()?;
    let session = board
        .change(team, by, move |tx| {
            let (start, title) = (start.clone(), title.clone());
            Box::pin(async move {
                let now = tx.now;
                let viber = placement::viber(tx, start.viber.as_ref(), &start.labels).await?;
                let session = Session {
                    id: SessionId::new(now.0),
                    agent_id: placement::agent(&viber, start.agent.as_deref())?,
                    viber_id: viber.id,
                    title: title.clone().unwrap_or_else(|| about(&start.about)),
                    renamed_at: title.is_some().then_some(now),
                    pinned_at: None,
                    archived_at: None,
                    last_seq: 0,
                    created_by: tx.by.actor.id().to_owned(),
                    created_at: now,
                    active_at: now,
                    policies: Policies::default().with(start.policies),
                };
                if !db::sessions::insert_unless_taken(tx, &session).await? {
                    return Err(Error::Internal("a new session's id is taken".into()));
                }
                if let Some(title) = &title {
                    db::sessions::rename(tx, &session.id, title).await?;
                }
                let created = Entry::new("session.create", session.id.as_str()).after(session.title.as_str());
                db::audit::append(tx, created).await?;
                Ok(session)
            })
        })
        .await?;
    let mut after = AfterCommit::default();
    after.session(&session.id);
    after.publish(board, team);
    Ok(session)
}
