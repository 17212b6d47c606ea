//! From which share of its room on a session is compacted by itself.

use std::ops::RangeInclusive;

use protocol::{SessionId, TeamId, context::DEFAULT_THRESHOLD_PERCENT};

use crate::{
    actions::AfterCommit,
    db::{self, audit::Entry, messages::summaries},
    domain::{By, Team},
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
    percent.map_or(Ok(()), check)?;
    let session = session.clone();
    let after = board
        .change(team, by, move |tx| {
            let session = session.clone();
            Box::pin(async move {
                let mut after = AfterCommit::default();
                if !db::sessions::set_own_percent(tx, &session, percent).await? {
                    return Err(Error::NotFound);
                }
                let chosen = percent.map_or("as the team says".to_owned(), words);
                db::audit::append(tx, Entry::new("context.automatic", session.as_str()).after(chosen.as_str())).await?;
                after.session(&session);
                Ok::<_, Error>(after)
            })
        })
        .await?;
    after.publish(board, team);
    Ok(())
}

/// Chooses it for the sessions of a team that have none of their own.
pub async fn set_team_percent(board: &Board, by: &By, team: &Team, percent: u64) -> Result<()> {
    check(percent)?;
    let slug = team.slug.clone();
    let done = board.change(&team.id, by, move |tx| {
        let slug = slug.clone();
        Box::pin(async move {
            let (old, new) = (words(summaries::team_percent(tx).await?), words(percent));
            summaries::set_team_percent(tx, percent).await?;
            let entry = Entry::new("team.compaction", &slug).before(old.as_str()).after(new.as_str());
            Ok(db::audit::append(tx, entry).await?)
        })
    });
    done.await
}

fn check(percent: u64) -> Result<()> {
    if percent == 0 || PERCENTS.contains(&percent) {
        return Ok(());
    }
    Err(Error::unacceptable("bad_percent", "choose 30 to 70 percent, or 0 for never"))
}

fn words(percent: u64) -> String {
    match percent {
        0 => "never by itself".to_owned(),
        percent => format!("by itself from {percent} % on"),
    }
}
