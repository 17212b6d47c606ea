//! What the search indexes do not have yet: which team has some, and adding a little of it in one change.

use protocol::TeamId;

use super::search::index_titles;
use crate::{
    args,
    db::{DbError, TeamTx, Tx, messages::text_index},
};

/// What may wait to be added to an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unindexed {
    /// Of sessions.
    Titles,
    /// What people and agents have written lately.
    NewTexts,
    /// What they wrote before there was an index.
    OlderTexts,
}

/// The first team behind `after` that has some, in the order of their ids: however many there are and however much one of
/// them has, asking on finds each of them.
pub async fn next_unindexed(tx: &mut Tx, what: Unindexed, after: Option<&TeamId>) -> Result<Option<TeamId>, DbError> {
    // One step in an index, which does not look at how much a team has.
    macro_rules! next_of {
        ($table:literal) => {
            concat!(
                "SELECT u.team_id, t.deleted_at FROM (SELECT team_id FROM ",
                $table,
                " WHERE team_id > $1 ORDER BY team_id LIMIT 1) u LEFT JOIN teams t ON t.team_id = u.team_id"
            )
        };
    }
    let sql = match what {
        Unindexed::Titles => next_of!("unindexed_titles"),
        Unindexed::NewTexts => next_of!("unindexed_texts"),
        Unindexed::OlderTexts => next_of!("unindexed_history"),
    };
    let mut after = after.map(TeamId::to_string).unwrap_or_default();
    while let Some(row) = tx.row(sql, args![&after]).await? {
        if row.optional_instant("deleted_at")?.is_none() {
            return row.parse("team_id").map(Some);
        }
        // All that it has is being taken away.
        after = row.text("team_id")?;
    }
    Ok(None)
}

/// Adds some of what a team has.
pub async fn index_some(tx: &mut TeamTx<'_>, what: Unindexed) -> Result<(), DbError> {
    match what {
        Unindexed::Titles => index_titles(tx).await,
        Unindexed::NewTexts => text_index::index_new(tx).await,
        Unindexed::OlderTexts => text_index::index_older(tx).await,
    }
}
