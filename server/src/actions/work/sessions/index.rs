//! Keeping the indexes of titles and of messages: a piece for one team, a rest, a piece for the next one. What is new comes
//! before what is older than the index, and no team waits until another one has nothing left.

use std::time::{Duration, Instant};

use protocol::TeamId;

use crate::{
    db::sessions::{Unindexed, index_some, next_unindexed},
    domain::By,
    error::Result,
    state::Board,
};

/// After this long a round ends, and a team that failed in it is tried again.
const MAX_ROUND: Duration = Duration::from_secs(30);
/// Pieces of what is new, while more comes than is indexed, until there is one of what is older.
const MAX_URGENT_PIECES: u32 = 20;

/// Adds to an index what is not in it yet, and remembers which team had the last turn.
#[derive(Debug)]
pub struct Indexer {
    /// The most urgent first.
    queues: Vec<IndexQueue>,
    /// Pieces of the first queue, one after the other.
    urgent: u32,
}

/// Teams that wait for the same.
#[derive(Debug)]
struct IndexQueue {
    what: Unindexed,
    /// How many times as long as a piece took the next one waits: with 9, indexing takes a tenth of a core at most.
    rest_factor: u32,
    /// The team that had the last turn.
    last: Option<TeamId>,
}

impl Indexer {
    /// Of the titles of sessions.
    pub fn of_titles() -> Self {
        Self::over(&[(Unindexed::Titles, 9)])
    }

    /// Of what people and agents write. Somebody may look for what is new; what is older than the index, perhaps for hours,
    /// takes less of the machine.
    pub fn of_texts() -> Self {
        Self::over(&[(Unindexed::NewTexts, 4), (Unindexed::OlderTexts, 9)])
    }

    fn over(queues: &[(Unindexed, u32)]) -> Self {
        let queue =
            |(what, rest_factor): &(Unindexed, u32)| IndexQueue { what: *what, rest_factor: *rest_factor, last: None };
        Self { queues: queues.iter().map(queue).collect(), urgent: 0 }
    }

    /// One round: ends when nothing is left, after half a minute, or when the Board stops. A team whose rows cannot be read
    /// does not keep the others from theirs; its error is returned in the end.
    pub async fn round(&mut self, board: &Board) -> Result<()> {
        let (began, mut failed, mut result) = (Instant::now(), Vec::new(), Ok(()));
        while began.elapsed() < MAX_ROUND && !board.shutdown.soft.is_cancelled() {
            let Some((what, team, rest_factor)) = self.next(board, &failed).await? else { break };
            let started = Instant::now();
            if let Err(error) = piece(board, &team, what).await {
                failed.push(team);
                result = Err(error);
                continue;
            }
            tokio::select! {
                () = board.shutdown.soft.cancelled() => {}
                () = tokio::time::sleep(started.elapsed() * rest_factor) => {}
            }
        }
        result
    }

    /// Whose turn it is, and the rest after it.
    async fn next(&mut self, board: &Board, failed: &[TeamId]) -> Result<Option<(Unindexed, TeamId, u32)>> {
        let mut order: Vec<usize> = (0..self.queues.len()).collect();
        if self.urgent >= MAX_URGENT_PIECES {
            order.rotate_left(1);
        }
        for n in order {
            let queue = &mut self.queues[n];
            if let Some(team) = queue.next(board, failed).await? {
                self.urgent = if n == 0 { self.urgent.saturating_add(1) } else { 0 };
                return Ok(Some((queue.what, team, queue.rest_factor)));
            }
        }
        self.urgent = 0;
        Ok(None)
    }
}

impl IndexQueue {
    /// The team behind the one that had the last turn, or else the first one.
    async fn next(&mut self, board: &Board, failed: &[TeamId]) -> Result<Option<TeamId>> {
        let mut reader = board.db.reader().await?;
        for mut after in [self.last.clone(), None] {
            while let Some(team) = next_unindexed(&mut reader, self.what, after.as_ref()).await? {
                if !failed.contains(&team) {
                    self.last = Some(team.clone());
                    return Ok(Some(team));
                }
                after = Some(team);
            }
        }
        Ok(None)
    }
}

async fn piece(board: &Board, team: &TeamId, what: Unindexed) -> Result<()> {
    board.piece(team, &By::board(), move |tx| Box::pin(async move { Ok(index_some(tx, what).await?) })).await
}

#[cfg(test)]
mod tests;
