//! Answers kept for callers that may ask again.

use protocol::TeamId;

use crate::{
    db,
    domain::once::{Kept, Once},
    error::Result,
    state::Board,
};

/// Keeps what a call was answered, for 24 h.
pub async fn keep(board: &Board, team: &TeamId, actor: &str, once: &Once, kept: Kept) -> Result<()> {
    let args = (team.clone(), actor.to_owned(), once.clone(), kept);
    let kept: Result<(), db::Error> = board
        .db
        .write(move |tx| {
            let (team, actor, once, kept) = args.clone();
            Box::pin(async move { db::idempotency::keep(tx, &team, &actor, &once, &kept).await })
        })
        .await;
    Ok(kept?)
}
