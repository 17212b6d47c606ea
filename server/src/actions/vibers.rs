//! Vibers: join tokens, names, labels, drain, stop, revoke.

use std::collections::BTreeMap;

use protocol::{Instant, JoinTokenId, TeamId, ViberId, limits};
use serde_json::json;

use super::{After, purge};
use crate::{
    db::{self, Tx},
    domain::{By, JoinToken, Viber, name},
    error::{Error, Result},
    secret::Secret,
    state::Board,
};

/// Most labels a viber or token may have.
const MAX_LABELS: usize = 32;

/// Makes a token that enrols one viber within 15 minutes. The secret is shown now or never.
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
    let (team, by, hash, made) = (team.clone(), by.clone(), secret.hash(), token.clone());
    board
        .db
        .write(move |tx| {
            let (team, by, hash, token) = (team.clone(), by.clone(), hash.clone(), made.clone());
            Box::pin(async move {
                db::join_tokens::insert(tx, &team, &token, &hash, by.actor.id()).await?;
                let id = token.id.as_str();
                db::audit::append(tx, &team, now, &by, "join_token.create", id, "", None, None).await?;
                Ok::<_, Error>(())
            })
        })
        .await?;
    Ok((secret, token))
}

/// Ends a join token before it was used.
pub async fn revoke_join_token(board: &Board, team: &TeamId, by: &By, id: &JoinTokenId) -> Result<()> {
    let now = board.clock.now();
    let (team, by, id) = (team.clone(), by.clone(), id.clone());
    board
        .db
        .write(move |tx| {
            let (team, by, id) = (team.clone(), by.clone(), id.clone());
            Box::pin(async move {
                if !db::join_tokens::revoke(tx, &team, &id, now).await? {
                    return Err(Error::NotFound);
                }
                db::audit::append(tx, &team, now, &by, "join_token.revoke", id.as_str(), "", None, None).await?;
                Ok(())
            })
        })
        .await
}

/// What people decide about a viber.
#[derive(Clone, Debug)]
enum Change {
    Rename(String),
    Labels(BTreeMap<String, String>),
    Drain(bool),
    Stop(String),
    Revoke,
}

/// Another name; refused when another viber of the team has it.
pub async fn rename(board: &Board, team: &TeamId, by: &By, id: &ViberId, name: &str) -> Result<Viber> {
    let name = name::clean(name, name::MAX_NAME);
    let name = name.ok_or_else(|| Error::unacceptable("bad_name", "a name needs at least one visible character"))?;
    change(board, team, by, id, Change::Rename(name)).await?.ok_or(Error::NotFound)
}

/// Other labels, all of them.
pub async fn set_labels(
    board: &Board,
    team: &TeamId,
    by: &By,
    id: &ViberId,
    labels: &BTreeMap<String, String>,
) -> Result<Viber> {
    change(board, team, by, id, Change::Labels(check_labels(labels)?)).await?.ok_or(Error::NotFound)
}

/// Whether it begins new tasks: a drained viber goes on with what runs.
pub async fn drain(board: &Board, team: &TeamId, by: &By, id: &ViberId, drained: bool) -> Result<Viber> {
    change(board, team, by, id, Change::Drain(drained)).await?.ok_or(Error::NotFound)
}

/// Stops every task of the viber, those that wait too.
pub async fn stop(board: &Board, team: &TeamId, by: &By, id: &ViberId, reason: &str) -> Result<Viber> {
    let reason = db::clean(protocol::text::head(reason, 500));
    change(board, team, by, id, Change::Stop(reason)).await?;
    purge::stop_viber(board, team, id).await?;
    let (team, id) = (team.clone(), id.clone());
    let read = board.db.read(|tx| Box::pin(async move { db::vibers::load(tx, &team, &id).await }));
    read.await?.ok_or(Error::NotFound)
}

/// Takes its credential away and closes its connection. Its unfinished tasks are lost.
pub async fn revoke(board: &Board, team: &TeamId, by: &By, id: &ViberId) -> Result<()> {
    change(board, team, by, id, Change::Revoke).await?;
    board.hub.close(id, limits::close::AUTH);
    purge::abandon(board, team, id).await
}

async fn change(board: &Board, team: &TeamId, by: &By, id: &ViberId, change: Change) -> Result<Option<Viber>> {
    let now = board.clock.now();
    let (team_id, by, id) = (team.clone(), by.clone(), id.clone());
    let (viber, after) = board
        .db
        .write(move |tx| {
            let (team, by, id, change) = (team_id.clone(), by.clone(), id.clone(), change.clone());
            Box::pin(async move {
                let mut after = After::default();
                after.viber(&id);
                let before = db::vibers::load(tx, &team, &id).await?.ok_or(Error::NotFound)?;
                apply(tx, &team, &by, &before, &change, now, &mut after).await?;
                Ok::<_, Error>((db::vibers::load(tx, &team, &id).await?, after))
            })
        })
        .await?;
    after.tell(board, team);
    Ok(viber)
}

async fn apply(
    tx: &mut Tx,
    team: &TeamId,
    by: &By,
    viber: &Viber,
    change: &Change,
    now: Instant,
    after: &mut After,
) -> Result<()> {
    let id = &viber.id;
    let (action, before, now_is) = match change {
        Change::Rename(name) => {
            let taken = db::vibers::names(tx, team, Some(id)).await?;
            if taken.iter().any(|other| other.eq_ignore_ascii_case(name)) {
                return Err(Error::unacceptable("name_taken", format!("another viber is called {name}")));
            }
            db::vibers::rename(tx, team, id, name).await?;
            ("viber.rename", viber.name.clone(), name.clone())
        }
        Change::Labels(labels) => {
            db::vibers::set_labels(tx, team, id, labels).await?;
            ("viber.labels", format!("{:?}", viber.labels), format!("{labels:?}"))
        }
        Change::Drain(drained) => {
            if !db::vibers::set_drained(tx, team, id, *drained).await? {
                return Ok(());
            }
            let body = json!({ "drained": drained }).to_string();
            db::commands::give(tx, team, id, db::commands::New { kind: "viber:drain", attempt: None, body }, now)
                .await?;
            after.command(id);
            ("viber.drain", viber.drained.to_string(), drained.to_string())
        }
        Change::Stop(reason) => {
            // The tasks are stopped one after the other by `purge`.
            let stop = db::vibers::Stop { at: now, by: by.actor.id().to_owned(), reason: reason.clone() };
            db::vibers::set_stop(tx, team, id, &stop).await?;
            let body = json!({ "reason": reason }).to_string();
            db::commands::give(tx, team, id, db::commands::New { kind: "viber:stop", attempt: None, body }, now)
                .await?;
            after.command(id);
            ("viber.stop", String::new(), reason.clone())
        }
        Change::Revoke => {
            // Its row is the lock on new commands: no task is given to it from now on. Those that are there are given up
            // by `purge`, and so is one that just queued up in a session.
            if !db::vibers::revoke(tx, team, id, now).await? {
                return Err(Error::NotFound);
            }
            ("viber.revoke", viber.name.clone(), String::new())
        }
    };
    db::audit::append(tx, team, now, by, action, id.as_str(), &viber.name, Some(&before), Some(&now_is)).await?;
    Ok(())
}

/// Labels within bounds, without characters that hide.
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
