//! Answers kept for callers that may repeat a call.

use std::sync::Arc;

use protocol::TeamId;

use crate::{
    db,
    domain::idempotency::{IdempotentCall, KeptAnswer},
    error::Result,
    state::Board,
};

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
