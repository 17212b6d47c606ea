//! What an operator chose to see beside a conversation.

use protocol::{OperatorId, SessionId, TeamId};

use crate::{
    db,
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// What somebody wants to see beside a session.
pub struct ChosenPane {
    pub session: SessionId,
    /// A tab's word, or `closed`.
    pub pane: &'static str,
}

/// Records it for this operator.
pub async fn choose(board: &Board, team: &TeamId, by: &By, operator: &OperatorId, chosen: ChosenPane) -> Result<()> {
    let (operator, id, pane) = (operator.clone(), chosen.session, chosen.pane);
    board
        .change(team, by, move |tx| {
            let (operator, id) = (operator.clone(), id.clone());
            Box::pin(async move {
                db::sessions::load(tx, &id).await?.ok_or(Error::NotFound)?;
                Ok(db::panes::choose(tx, &operator, &id, pane).await?)
            })
        })
        .await
}
