//! From which share of its room on a session is compacted by itself.

use std::ops::RangeInclusive;

use protocol::{SessionId, TeamId, context::DEFAULT_THRESHOLD_PERCENT};

use crate::{
    actions::AfterCommit,
    db::{self, audit::Entry},
    domain::By,
    error::{Error, Result},
    state::Board,
};

/// Shares that can be chosen, percent. From the largest on a request is shortened in other ways, too.
const PERCENTS: RangeInclusive<u64> = 30..=DEFAULT_THRESHOLD_PERCENT;

/// Chooses it for a session; `None`: as the team says.
pub async fn set_percent(
    board: &Board,
    team: &TeamId,
    by: &By,
    session: &SessionId,
    percent: Option<u64>,
) -> Result<()> {
    if percent.is_some_and(|percent| percent != 0 && !PERCENTS.contains(&percent)) {
        return Err(Error::unacceptable("bad_percent", "choose 30 to 70 percent, or 0 for never"));
    }
    let session = session.clone();
    let after = board
        .change(team, by, move |tx| {
            let session = session.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                if !db::sessions::set_own_percent(tx, &session, percent).await? {
                    return Err(Error::NotFound);
                }
                let chosen = percent.map_or("as the team says".to_owned(), |percent| match percent {
                    0 => "never by itself".to_owned(),
                    percent => format!("by itself from {percent} % on"),
                });
                db::audit::append(tx, Entry::new("context.automatic", session.as_str()).after(chosen.as_str())).await?;
                after.session(&session);
                Ok::<_, Error>(after)
            })
        })
        .await?;
    after.publish(board, team);
    Ok(())
}
