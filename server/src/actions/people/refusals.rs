//! Refused attempts, recorded in the audit.

use protocol::TeamId;

use crate::{
    db::{self, audit::Entry},
    domain::By,
    error::Result,
    state::Board,
};

/// Records that somebody tried what their role does not allow. `object` is the method and route.
pub async fn note(board: &Board, team: &TeamId, by: &By, object: &str, detail: &str) -> Result<()> {
    let tried = (object.to_owned(), detail.to_owned());
    let noted = board.change(team, by, move |tx| {
        let (object, detail) = tried.clone();
        Box::pin(async move { db::audit::append(tx, Entry::new("refused", &object).detail(&detail)).await })
    });
    Ok(noted.await?)
}
