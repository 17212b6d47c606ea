//! Answers kept for callers that may ask again.

use std::sync::Arc;

use protocol::TeamId;

use crate::{
    db,
    domain::idempotency::{Kept, Once},
    error::Result,
    state::Board,
};

/// Keeps what a call was answered, for 24 h.
pub async fn keep(board: &Board, team: &TeamId, actor: &str, once: &Once, kept: Kept) -> Result<()> {
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
