//! What the agent's newest request contained, as the run reports it: stored to be shown.

use protocol::{AgentStreamEvent, EventBody};
use serde_json::Value;

use super::Recording;
use crate::{db, domain::memory::RequestContext, error::Result};

impl Recording<'_, '_> {
    /// Stores what the run reports about its request.
    pub(super) async fn record_context(&mut self) -> Result<()> {
        let reported = self.run.reports.iter().filter_map(|report| match &report.body {
            Some(EventBody::Progress { event }) => match &event.event {
                AgentStreamEvent::Context(fields) => Some((fields, report.at)),
                _ => None,
            },
            _ => None,
        });
        let now = self.tx.now;
        let contexts = reported.map(|(fields, at)| RequestContext {
            task_id: self.task.clone(),
            attempt: self.attempt,
            body: Value::Object(fields.clone().into_iter().collect()),
            at: at.map_or(now, |at| at.min(now)),
        });
        let Some(newest) = contexts.reduce(|earlier, later| later.after(Some(earlier))) else { return Ok(()) };
        if !self.is_newest() {
            return Ok(());
        }
        let session = &self.held.session_id;
        let earlier = db::contexts::load(self.tx, session).await?;
        db::contexts::keep(self.tx, session, &newest.after(earlier)).await?;
        self.book.after.session(session);
        Ok(())
    }
}
