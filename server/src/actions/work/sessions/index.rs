//! Keeping the indexes of titles and of messages: team by team, piece by piece, with a rest after each piece.

use std::time::{Duration, Instant};

use protocol::TeamId;

use crate::{
    db::{self, messages::text_index},
    domain::By,
    error::Result,
    state::Board,
};

/// How many times as long as a piece took the next one waits: indexing takes a tenth of a core at most.
const REST_FACTOR: u32 = 9;
/// After this long it is the next team's turn.
const MAX_INDEXING_TURN: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
enum Index {
    Titles,
    Texts,
}

/// Adds the titles that are not in the search index yet. Ends when each team has had its turn, or the Board stops. A team
/// whose rows cannot be read does not keep the others from theirs; its error is returned in the end.
pub async fn index_titles(board: &Board) -> Result<()> {
    let teams = db::sessions::unindexed(&mut *board.db.reader().await?).await?;
    each(board, teams, Index::Titles).await
}

/// The same for what people and agents wrote.
pub async fn index_texts(board: &Board) -> Result<()> {
    let teams = text_index::unindexed(&mut *board.db.reader().await?).await?;
    each(board, teams, Index::Texts).await
}

async fn each(board: &Board, teams: Vec<TeamId>, index: Index) -> Result<()> {
    let mut result = Ok(());
    for team in teams {
        if let Err(error) = one(board, &team, index).await {
            result = Err(error);
        }
    }
    result
}

async fn one(board: &Board, team: &TeamId, index: Index) -> Result<()> {
    let turn = Instant::now();
    while turn.elapsed() < MAX_INDEXING_TURN && !board.shutdown.soft.is_cancelled() {
        let began = Instant::now();
        let some = board.piece(team, &By::board(), move |tx| {
            Box::pin(async move {
                match index {
                    Index::Titles => db::sessions::index_titles(tx).await,
                    Index::Texts => text_index::index_texts(tx).await,
                }
            })
        });
        let more = some.await?;
        tokio::select! {
            () = board.shutdown.soft.cancelled() => {}
            () = tokio::time::sleep(began.elapsed() * REST_FACTOR) => {}
        }
        if !more {
            break;
        }
    }
    Ok(())
}
