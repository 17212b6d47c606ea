//! Messages to attempts: each goes into the inbox of the attempt that it is for, from the request to the end, and the files
//! that came with it beside the workspace before.

use protocol::{AttemptRef, TaskMessage, TaskSubmit};
use tokio::time::sleep;

use super::{FetchError, Mesh, attempt_of, attempts::RETRY_INTERVAL};
use crate::report::Inbox;

/// Files of one message at most; a Board sends no more.
const MAX_FILES: usize = 16;

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
            self.put(inbox, message);
        }
    }

    /// Queues an attempt, with what was said to it already.
    pub(super) fn enqueue(&self, submit: TaskSubmit, messages: Vec<TaskMessage>) {
        let inbox = Inbox::default();
        messages.into_iter().for_each(|message| self.put(inbox.clone(), message));
        let mut state = self.state();
        state.inboxes.insert(attempt_of(&submit), inbox);
        state.queue.push_back(submit);
    }

    /// Puts a message into an inbox, once its files are there: a newer version or the end of the attempt may come first.
    fn put(&self, inbox: Inbox, message: TaskMessage) {
        if message.attachments.is_empty() || message.withdrawn {
            return inbox.put(message);
        }
        let mesh = self.clone();
        self.shared.tracker.spawn(async move {
            let fetched = mesh.with_files(message);
            tokio::select! {
                message = fetched => inbox.put(message),
                () = inbox.closed() => {}
            }
        });
    }

    /// The message, with its files in place. What is said of one that cannot be fetched stands after its words.
    async fn with_files(&self, mut message: TaskMessage) -> TaskMessage {
        for file in std::mem::take(&mut message.attachments).into_iter().take(MAX_FILES) {
            let place = self.home().message_file(message.task_id.as_str(), message.message_id.as_str(), &file.name);
            let failed = match place {
                None => Some("its name is no plain one".to_owned()),
                Some(place) => loop {
                    match (self.shared.context.carry)(file.clone(), place.clone()).await {
                        Ok(()) => break None,
                        Err(FetchError::Never(why)) => break Some(why),
                        Err(FetchError::Later(why)) => {
                            tracing::warn!(task.id = %message.task_id, "a message's file could not be fetched yet: {why}");
                            sleep(RETRY_INTERVAL).await;
                        }
                    }
                },
            };
            match failed {
                None => message.attachments.push(file),
                Some(why) => {
                    let name = protocol::text::head(&file.name, 100);
                    message.content.push_str(&format!("\n\n(The file {name:?} could not be fetched: {why}.)"));
                }
            }
        }
        message
    }
}
