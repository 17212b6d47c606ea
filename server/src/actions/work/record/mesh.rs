//! What an attempt wants of other agents: a task that one is to do, the end of such a task, something that is said. Each is
//! carried out in the change that records it, so that it is neither lost nor done twice.

use protocol::AgentStreamEvent;

use super::{Recording, effects::stream_event};
use crate::{actions::tasks::children, db, error::Result};

impl Recording<'_, '_> {
    /// Carries out what these events want, in their order. Of an attempt that is not the newest only what its viber did counts.
    pub(super) async fn record_mesh(&mut self) -> Result<()> {
        let Self { run, .. } = *self;
        let wishes = run.reports.iter().filter_map(stream_event).filter(|event| is_wish(event));
        let wishes: Vec<&AgentStreamEvent> = wishes.collect();
        if wishes.is_empty() {
            return Ok(());
        }
        let is_newest = self.is_newest();
        let Some(task) = db::tasks::load(self.tx, self.task).await? else { return Ok(()) };
        for wish in wishes {
            let after = &mut self.book.after;
            match wish {
                AgentStreamEvent::Delegate(asked) if is_newest || asked.child_task_id.is_some() => {
                    children::ask(self.tx, &task, (self.attempt, asked), after).await?;
                }
                AgentStreamEvent::ChildStop { child_task_id, reason } if is_newest => {
                    children::stop_child(self.tx, &task, (child_task_id, reason), after).await?;
                }
                AgentStreamEvent::AgentMessage(message) if is_newest => {
                    children::say_to_agent(self.tx, &task, (self.attempt, message), after).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_wish(event: &AgentStreamEvent) -> bool {
    matches!(
        event,
        AgentStreamEvent::Delegate(_) | AgentStreamEvent::ChildStop { .. } | AgentStreamEvent::AgentMessage(_)
    )
}
