//! Vibers: join tokens, names, labels, drain, stopping and revoking them (except for what concerns their tasks), and the
//! words that they are found by.

use std::collections::BTreeMap;

use protocol::{Instant, JoinTokenId, TeamId, ViberId, limits};
use serde_json::json;

use crate::{
    actions::AfterCommit,
    db::{self, Change, audit::Entry},
    domain::{By, JoinToken, Viber, name},
    error::{Error, Result},
    secret::Secret,
    state::Board,
};

/// Most labels a viber or token may have.
pub(in crate::actions) const MAX_LABELS: usize = 32;

/// Makes a token that enrols one viber within 15 minutes. The secret is returned only here.
pub async fn join_token(
    board: &Board,
    team: &TeamId,
    by: &By,
    labels: &BTreeMap<String, String>,
) -> Result<(Secret, JoinToken)> {
    let now = board.clock.now();
    let secret = Secret::new("vbj_");
    let token = JoinToken {
        id: JoinTokenId::new(now.0),
        labels: check_labels(labels)?,
        created_at: now,
        expires_at: Instant(now.0 + limits::JOIN_TOKEN_SECONDS * 1000),
        used_at: None,
        viber_id: None,
    };
    let (hash, made) = (secret.hash(), token.clone());
    let kept = board.db.change(team, by, now, move |tx| {
        let (hash, token) = (hash.clone(), made.clone());
        Box::pin(async move {
            let maker = tx.by.actor.id().to_owned();
            db::join_tokens::insert(tx, &token, &hash, &maker).await?;
            db::audit::append(tx, Entry::new("join_token.create", token.id.as_str())).await
        })
    });
    kept.await?;
    Ok((secret, token))
}

/// Revokes an unused join token.
pub async fn revoke_join_token(board: &Board, team: &TeamId, by: &By, id: &JoinTokenId) -> Result<()> {
    let id = id.clone();
    let revoked = board.change(team, by, move |tx| {
        let id = id.clone();
        Box::pin(async move {
            if !db::join_tokens::revoke(tx, &id).await? {
                return Err(Error::NotFound);
            }
            Ok(db::audit::append(tx, Entry::new("join_token.revoke", id.as_str())).await?)
        })
    });
    revoked.await
}

/// What people decide about a viber.
#[derive(Clone, Debug)]
enum ViberChange {
    Rename(String),
    Labels(BTreeMap<String, String>),
    Drain(bool),
    Stop(String),
    /// One of its agents, with the reason.
    Interrupt(String, String),
    Revoke,
}

/// Renames a viber; refused when another viber of the team has the name.
pub async fn rename(board: &Board, team: &TeamId, by: &By, id: &ViberId, name: &str) -> Result<Viber> {
    let name = name::clean(name, name::MAX_NAME_CHARS);
    let name = name.ok_or_else(|| Error::unacceptable("bad_name", "a name needs at least one visible character"))?;
    change(board, team, by, id, ViberChange::Rename(name)).await?.ok_or(Error::NotFound)
}

/// Replaces all labels.
pub async fn set_labels(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &ViberId,
    labels: &BTreeMap<String, String>,
) -> Result<Viber> {
    change(board, team, by, id, ViberChange::Labels(check_labels(labels)?)).await?.ok_or(Error::NotFound)
}

/// Drains a viber, or lets it start new tasks again. A drained viber finishes what runs.
pub async fn drain(board: &Board, team: &TeamId, by: &By, id: &ViberId, drained: bool) -> Result<Viber> {
    change(board, team, by, id, ViberChange::Drain(drained)).await?.ok_or(Error::NotFound)
}

/// Records the order to stop every task that the viber has been given, and sends it the command.
pub(in crate::actions) async fn order_stop(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &ViberId,
    reason: &str,
) -> Result<()> {
    let reason = db::clean(protocol::text::head(reason, 500));
    change(board, team, by, id, ViberChange::Stop(reason)).await.map(drop)
}

/// Records the order to stop every task that an agent of the viber has been given.
pub(in crate::actions) async fn order_interrupt(
    board: &Board,
    team: &TeamId,
    by: &By,
    (id, agent): (&ViberId, &str),
    reason: &str,
) -> Result<()> {
    let reason = db::clean(protocol::text::head(reason, 500));
    change(board, team, by, id, ViberChange::Interrupt(agent.to_owned(), reason)).await.map(drop)
}

/// Revokes its credential and closes its connection.
pub(in crate::actions) async fn lock_out(board: &Board, team: &TeamId, by: &By, id: &ViberId) -> Result<()> {
    change(board, team, by, id, ViberChange::Revoke).await?;
    board.hub.close(id, limits::close::AUTH);
    Ok(())
}

async fn change(board: &Board, team: &TeamId, by: &By, id: &ViberId, change: ViberChange) -> Result<Option<Viber>> {
    let id = id.clone();
    let changed = board.change(team, by, move |tx| {
        let (id, change) = (id.clone(), change.clone());
        Box::pin(async move {
            let mut after = AfterCommit::default();
            after.viber(&id);
            let before = db::vibers::load(tx, &id).await?.ok_or(Error::NotFound)?;
            apply(tx, &before, &change, &mut after).await?;
            Ok::<_, Error>((db::vibers::load(tx, &id).await?, after))
        })
    });
    let (viber, after) = changed.await?;
    after.publish(board, team);
    Ok(viber)
}

async fn apply(tx: &mut Change<'_>, viber: &Viber, change: &ViberChange, after: &mut AfterCommit) -> Result<()> {
    let id = &viber.id;
    let (action, before, now_is) = match change {
        ViberChange::Rename(name) => {
            let taken = db::vibers::names(tx, Some(id)).await?;
            if taken.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(Error::unacceptable("name_taken", format!("another viber is called {name}")));
            }
            db::vibers::rename(tx, id, name).await?;
            ("viber.rename", viber.name.clone(), name.clone())
        }
        ViberChange::Labels(labels) => {
            db::vibers::set_labels(tx, id, labels).await?;
            ("viber.labels", format!("{:?}", viber.labels), format!("{labels:?}"))
        }
        ViberChange::Drain(drained) => {
            if !db::vibers::set_drained(tx, id, *drained).await? {
                return Ok(());
            }
            let body = json!({ "drained": drained }).to_string();
            db::commands::enqueue(tx, id, db::commands::NewCommand { kind: "viber:drain", attempt: None, body })
                .await?;
            after.command(id);
            ("viber.drain", viber.drained.to_string(), drained.to_string())
        }
        ViberChange::Stop(reason) => {
            // `purge` stops the tasks one after the other.
            let stop = db::vibers::StopOrder { at: tx.now, by: tx.by.actor.id().to_owned(), reason: reason.clone() };
            db::vibers::set_stop(tx, id, &stop).await?;
            let body = json!({ "reason": reason }).to_string();
            db::commands::enqueue(tx, id, db::commands::NewCommand { kind: "viber:stop", attempt: None, body }).await?;
            after.command(id);
            ("viber.stop", String::new(), reason.clone())
        }
        ViberChange::Interrupt(agent, reason) => {
            // Nothing is kept of a name that no agent can have.
            let may_be = viber.agents.is_empty() && protocol::agent::is_id(agent);
            if !may_be && !viber.agents.iter().any(|known| known.id == *agent) {
                let message = format!("this viber has no agent {:?}", protocol::text::head(agent, 64));
                return Err(Error::unacceptable("unknown_agent", message));
            }
            let stop = db::vibers::StopOrder { at: tx.now, by: tx.by.actor.id().to_owned(), reason: reason.clone() };
            db::vibers::set_interrupt(tx, id, agent, &stop).await?;
            ("viber.interrupt", agent.clone(), reason.clone())
        }
        ViberChange::Revoke => {
            // Its row is the lock on new commands: no task is given to it from now on. `purge` ends the tasks that it has,
            // and those that just queued up in a session.
            if !db::vibers::revoke(tx, id).await? {
                return Err(Error::NotFound);
            }
            ("viber.revoke", viber.name.clone(), String::new())
        }
    };
    let entry = Entry::new(action, id.as_str()).detail(&viber.name).before(before.as_str()).after(now_is.as_str());
    Ok(db::audit::append(tx, entry).await?)
}

/// Writes the words of vibers that have none yet, team by team, unless the Board stops. A team whose rows cannot be read
/// does not keep the others from theirs; its error is returned in the end.
pub async fn write_words(board: &Board) -> Result<()> {
    let teams = db::vibers::teams_without_words(&mut *board.db.reader().await?).await?;
    let mut result = Ok(());
    for team in teams {
        if let Err(error) = write_words_of(board, &team).await {
            result = Err(error);
        }
    }
    result
}

async fn write_words_of(board: &Board, team: &TeamId) -> Result<()> {
    let some = || board.piece(team, &By::board(), |tx| Box::pin(async move { db::vibers::write_words(tx).await }));
    while !board.shutdown.soft.is_cancelled() && some().await? {}
    Ok(())
}

/// Refuses labels that are too many, too long or contain hidden characters.
pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>> {
    let bad = |message: String| Error::unacceptable("bad_labels", message);
    if labels.len() > MAX_LABELS {
        return Err(bad(format!("at most {MAX_LABELS} labels")));
    }
    let fits = |text: &str, max| text.is_empty() || name::clean(text, max).as_deref() == Some(text);
    match labels.iter().find(|(key, value)| key.is_empty() || !fits(key, 63) || !fits(value, 200)) {
        Some((key, _)) => Err(bad(format!("the label {key:?} is not a short line of visible text"))),
        None => Ok(labels.clone()),
    }
}
