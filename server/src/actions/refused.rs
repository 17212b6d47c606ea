//! What was tried and refused leaves a trace too.

use protocol::TeamId;

use crate::{db, domain::By, error::Result, state::Board};

/// Notes that somebody tried what their role does not allow: `object` is the method and route.
pub async fn note(board: &Board, team: &TeamId, by: &By, object: &str, detail: &str) -> Result<()> {
    let now = board.clock.now();
    let args = (team.clone(), by.clone(), object.to_owned(), detail.to_owned());
    let noted: Result<(), db::Error> = board
        .db
        .write(move |tx| {
            let (team, by, object, detail) = args.clone();
            Box::pin(
                async move { db::audit::append(tx, &team, now, &by, "refused", &object, &detail, None, None).await },
            )
        })
        .await;
    Ok(noted?)
}
