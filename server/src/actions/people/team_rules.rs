//! What a team decided for all its tasks, told to its machines: it holds for tasks that begin there, too.

use std::time::Duration;

use futures_util::future::join_all;
use protocol::{TeamId, TeamRules};
use serde_json::json;

use crate::{
    db::{self, DbError, TeamTx},
    error::Result,
    state::Board,
};

/// How long a machine may take to keep it.
const TELL_TIMEOUT: Duration = Duration::from_secs(10);

/// What holds now.
pub(in crate::actions) async fn load(tx: &mut TeamTx<'_>) -> Result<TeamRules, DbError> {
    let (approvals, prices) = tx.query(db::team_rules::load_query()).await?;
    Ok(TeamRules {
        rules: approvals.rules,
        limits: approvals.limits,
        approval_minutes: Some(approvals.expiry_minutes),
        prices: prices.list,
    })
}

/// Tells the team's connected vibers; the others are told when they connect.
pub(in crate::actions) fn tell(board: &Board, team: &TeamId) {
    let (told, team) = (board.clone(), team.clone());
    board.shutdown.spawn(async move {
        if let Err(error) = tell_connected(&told, &team).await {
            tracing::warn!(team.id = %team, %error, "the team's vibers were not told its rules");
        }
    });
}

async fn tell_connected(board: &Board, team: &TeamId) -> Result<()> {
    loop {
        let rules = load(&mut board.db.reader_of(team).await?).await?;
        let params = json!(rules);
        let vibers = board.hub.connected_vibers().into_iter().filter(|connected| connected.team == *team);
        let told = vibers.map(|connected| {
            let params = params.clone();
            async move {
                let answer = board.hub.request(&connected.viber, "team.rules", params, TELL_TIMEOUT).await;
                // An older daemon does not know this: there the machine's and the agent's rules hold alone.
                if let Err(error) = answer {
                    tracing::debug!(viber.id = %connected.viber, %error, "a viber does not keep the team's rules");
                }
            }
        });
        join_all(told).await;
        // Two changes at once may be told in the other order.
        if load(&mut board.db.reader_of(team).await?).await? == rules {
            return Ok(());
        }
    }
}
