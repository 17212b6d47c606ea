//! Answers kept for callers that may repeat a call.

use std::sync::Arc;

use protocol::{Instant, TeamId};
use serde_json::Value;

use crate::{
    db::{self, Change, TeamTx},
    domain::{
        By,
        idempotency::{EarlierCall, IdempotentCall, KeptAnswer},
    },
    error::{Error, Result},
    state::Board,
};

/// The body of the answer that the same call got before, if it was made before. Fails when another call had its key.
pub(in crate::actions) async fn earlier_answer(
    tx: &mut Change<'_>,
    once: Option<&IdempotentCall>,
) -> Result<Option<Value>> {
    let (actor, now) = (tx.by.actor.id().to_owned(), tx.now);
    find(tx, (&actor, now), once).await
}

/// The same before a change, for a call that looks up what it names: what was answered does not depend on that any more.
pub async fn answered_before(
    board: &Board,
    team: &TeamId,
    by: &By,
    once: Option<&IdempotentCall>,
) -> Result<Option<Value>> {
    find(&mut board.db.reader_of(team).await?, (by.actor.id(), board.clock.now()), once).await
}

async fn find(
    tx: &mut TeamTx<'_>,
    (actor, now): (&str, Instant),
    once: Option<&IdempotentCall>,
) -> Result<Option<Value>> {
    let Some(once) = once else { return Ok(None) };
    match db::idempotency::find(tx, actor, once, now).await? {
        EarlierCall::No => Ok(None),
        EarlierCall::Other => {
            let message = "this Idempotency-Key was used for another call";
            Err(Error::unacceptable("idempotency_mismatch", message))
        }
        EarlierCall::Same(kept) => Ok(Some(serde_json::from_str(&kept.answer).unwrap_or_default())),
    }
}

/// Keeps the answer to a call for 24 h.
pub async fn keep(board: &Board, team: &TeamId, actor: &str, once: &IdempotentCall, kept: KeptAnswer) -> Result<()> {
    let answered = Arc::new((team.clone(), actor.to_owned(), once.clone(), kept));
    let keeping = board.db.write(move |tx| {
        let answered = answered.clone();
        Box::pin(async move {
            let (team, actor, once, kept) = &*answered;
            db::idempotency::keep(&mut tx.of(team), actor, once, kept).await
        })
    });
    Ok(keeping.await?)
}
