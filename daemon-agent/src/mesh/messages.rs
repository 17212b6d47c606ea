//! Messages to attempts: each goes into the inbox of the attempt that it is for, from the request to the end.

use protocol::{AttemptRef, TaskMessage, TaskSubmit};

use super::{Mesh, attempt_of};
use crate::report::Inbox;

impl Mesh {
    /// Gives a message to the newest attempt of its task that has not ended, except `newer` ones. Without one it is
    /// dropped: the Board keeps what no agent was told, and decides about it.
    pub(super) fn talk(&self, message: TaskMessage, newer: &[AttemptRef]) {
        let inbox = {
            let state = self.state();
            let mut live = state.inboxes.iter().filter(|(attempt, _)| attempt.task_id == message.task_id);
            live.rfind(|(attempt, _)| !newer.contains(attempt)).map(|(_, inbox)| inbox.clone())
        };
        if let Some(inbox) = inbox {
            inbox.put(message);
        }
    }

    /// Queues an attempt, with what was said to it already.
    pub(super) fn enqueue(&self, submit: TaskSubmit, messages: Vec<TaskMessage>) {
        let inbox = Inbox::default();
        messages.into_iter().for_each(|message| inbox.put(message));
        let mut state = self.state();
        state.inboxes.insert(attempt_of(&submit), inbox);
        state.queue.push_back(submit);
    }
}
