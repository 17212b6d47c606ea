//! When a running task is told what an operator sends with Enter.

use protocol::{InjectionPoint, OperatorId, SessionId, TeamId};

use crate::{
    db::{self, tasks::message_modes},
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// What an operator chose.
#[derive(Clone, Debug)]
pub struct ChosenMode {
    pub session: SessionId,
    /// In all sessions, not in this one alone.
    pub everywhere: bool,
    pub mode: InjectionPoint,
}

/// Records it for this operator.
pub async fn choose_mode(
    board: &Board,
    team: &TeamId,
    by: &By,
    operator: &OperatorId,
    chosen: ChosenMode,
) -> Result<()> {
    let asked = (operator.clone(), chosen);
    board
        .change(team, by, move |tx| {
            let (operator, ChosenMode { session, everywhere, mode }) = asked.clone();
            Box::pin(async move {
                db::sessions::load(tx, &session).await?.ok_or(Error::NotFound)?;
                match everywhere {
                    true => message_modes::choose_everywhere(tx, &operator, &session, mode).await?,
                    false => message_modes::choose_here(tx, &operator, &session, mode).await?,
                }
                Ok(())
            })
        })
        .await
}
