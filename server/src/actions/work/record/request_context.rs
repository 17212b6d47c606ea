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
        let (task, attempt) = (self.task.clone(), self.attempt);
        let contexts = reported.map(|(fields, at)| {
            let fields = Value::Object(fields.clone().into_iter().collect());
            RequestContext::reported(task.clone(), attempt, &fields, at.map_or(now, |at| at.min(now)))
        });
        let Some(newest) = contexts.reduce(|earlier, later| later.after(earlier)) else { return Ok(()) };
        if !self.is_newest() {
            return Ok(());
        }
        let session = &self.held.session_id;
        db::contexts::keep(self.tx, session, &newest).await?;
        self.book.after.session(session);
        Ok(())
    }
}
