//! What an operator chose to see beside a conversation.

use protocol::{OperatorId, SessionId, TeamId};

use crate::{
    db,
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// Records it, for this session and this operator. `pane` is a tab's word, or `closed`.
pub async fn choose(
    board: &Board,
    team: &TeamId,
    by: &By,
    operator: &OperatorId,
    id: &SessionId,
    pane: &'static str,
) -> Result<()> {
    let (operator, id) = (operator.clone(), id.clone());
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
