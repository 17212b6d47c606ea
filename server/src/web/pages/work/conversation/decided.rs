//! What people decided, read for the parts of a conversation that a page shows: one query, whatever their number.

use std::collections::HashMap;

use protocol::{AgentStreamEvent, ApprovalKind, EventBody, TaskId};

use super::person_name;
use crate::{
    db::{self, TeamTx},
    domain::{Message, Part, committed::Report},
    error::Result,
    web::view::timeline::Decisions,
};

/// Longest id of a call that a question is found by, bytes.
const MAX_CALL_ID_BYTES: usize = 200;

/// What was decided about the parts of these messages.
pub async fn of_messages(
    tx: &mut TeamTx<'_>,
    names: &HashMap<String, String>,
    messages: &[Message],
) -> Result<HashMap<(TaskId, u32), Decisions>> {
    let mut places = AskedPlaces::default();
    for message in messages {
        message.parts.iter().for_each(|part| places.part(&message.task_id, part));
    }
    places.read(tx, names).await
}

/// What was decided about the parts of a message that grows, and about what has not become a part.
pub async fn of_growing(
    tx: &mut TeamTx<'_>,
    names: &HashMap<String, String>,
    message: &Message,
    tail: &[Report],
) -> Result<Decisions> {
    let mut places = AskedPlaces::default();
    message.parts.iter().for_each(|part| places.part(&message.task_id, part));
    tail.iter().for_each(|report| places.report(&message.task_id, report));
    let mut found = places.read(tx, names).await?;
    Ok(found.remove(&(message.task_id.clone(), message.attempt)).unwrap_or_default())
}

/// Where people may have been asked: calls of tools, and questions that are about none.
#[derive(Default)]
struct AskedPlaces<'m> {
    calls: Vec<(&'m TaskId, &'m str)>,
    ids: Vec<(&'m TaskId, &'m str)>,
}

impl<'m> AskedPlaces<'m> {
    fn part(&mut self, task: &'m TaskId, part: &'m Part) {
        match part {
            Part::ToolCall { call_id, .. } => self.calls.push((task, call_id)),
            Part::Approval { approval_id, .. } => self.ids.push((task, approval_id.as_str())),
            _ => {}
        }
    }

    fn report(&mut self, task: &'m TaskId, report: &'m Report) {
        let Some(EventBody::Progress { event }) = &report.body else { return };
        match &event.event {
            AgentStreamEvent::ToolCall { call_id, .. } => self.calls.push((task, call_id)),
            AgentStreamEvent::ApprovalRequired(asked)
                if matches!(asked.kind, ApprovalKind::Plan | ApprovalKind::Budget) =>
            {
                self.ids.push((task, asked.approval_id.as_str()));
            }
            _ => {}
        }
    }

    async fn read(
        mut self,
        tx: &mut TeamTx<'_>,
        names: &HashMap<String, String>,
    ) -> Result<HashMap<(TaskId, u32), Decisions>> {
        // Nothing is kept of a question about a call whose id is longer, or no text for every database.
        self.calls.retain(|(_, id)| id.len() <= MAX_CALL_ID_BYTES && !id.contains('\0'));
        // A call that was changed is there twice.
        for places in [&mut self.calls, &mut self.ids] {
            places.sort_unstable();
            places.dedup();
        }
        let mut decisions: HashMap<_, Decisions> = HashMap::new();
        for asked in db::approvals::outlines(tx, &self.calls, &self.ids).await? {
            let by = asked.decided_by.as_deref().map(|id| person_name(names, id)).unwrap_or_default();
            decisions.entry((asked.task_id.clone(), asked.attempt)).or_default().add(&asked, &by);
        }
        Ok(decisions)
    }
}
