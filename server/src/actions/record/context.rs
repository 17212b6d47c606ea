//! What a run says of its request: what went with the newest one is kept for people.

use protocol::{AgentStreamEvent, EventBody, Instant, TaskId};
use serde_json::Value;

use super::{Book, Run, Speaker};
use crate::{
    db::{self, Tx, attempts::Held},
    domain::memory::Told,
    error::Result,
};

/// Keeps it.
pub(super) async fn keep(
    tx: &mut Tx,
    who: &Speaker,
    at: (&TaskId, u32),
    held: &Held,
    run: &Run,
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let told = run.reports.iter().filter_map(|report| match &report.body {
        Some(EventBody::Progress { event }) => match &event.event {
            AgentStreamEvent::Context(fields) => Some((fields, report.at)),
            _ => None,
        },
        _ => None,
    });
    let told = told.map(|(fields, said)| Told {
        task_id: at.0.clone(),
        attempt: at.1,
        body: Value::Object(fields.clone().into_iter().collect()),
        at: said.map_or(now, |said| said.min(now)),
    });
    let Some(told) = told.reduce(|earlier, later| later.after(Some(earlier))) else { return Ok(()) };
    if held.newest != at.1 {
        return Ok(());
    }
    let earlier = db::contexts::load(tx, &who.team, &held.session_id).await?;
    db::contexts::keep(tx, &who.team, &held.session_id, &told.after(earlier)).await?;
    book.after.session(&held.session_id);
    Ok(())
}
