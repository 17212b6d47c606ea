//! Questions that wait for a person: asked by a task, answered by a command of the Board.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{ApprovalId, ApprovalResponse};
use tokio::sync::mpsc;

use super::inbox::author;

/// Answers to one question that may be queued; more than one is a mistake of the other side.
const MAX_QUEUED_ANSWERS: usize = 4;

/// The open questions of this daemon. Cheap to clone.
#[derive(Clone, Default)]
pub struct Approvals(Arc<Mutex<HashMap<ApprovalId, mpsc::Sender<ApprovalResponse>>>>);

/// A question that stays open until this is dropped.
pub struct Question {
    id: ApprovalId,
    digest: String,
    answers: mpsc::Receiver<ApprovalResponse>,
    all: Approvals,
}

impl Approvals {
    /// Opens a question about the content with this digest.
    pub fn ask(&self, id: ApprovalId, digest: String) -> Question {
        let (to, answers) = mpsc::channel(MAX_QUEUED_ANSWERS);
        self.open().insert(id.clone(), to);
        Question { id, digest, answers, all: self.clone() }
    }

    /// Passes on a person's answer. Answers to questions that are no longer open are dropped.
    pub fn answer(&self, response: ApprovalResponse) {
        let to = self.open().get(&response.approval_id).cloned();
        if let Some(to) = to {
            // A full queue contains an answer already.
            let _ = to.try_send(response);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<ApprovalId, mpsc::Sender<ApprovalResponse>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// The answer about this content, if it was given already.
    pub fn decided(&mut self) -> Option<ApprovalResponse> {
        while let Ok(response) = self.answers.try_recv() {
            if response.digest == self.digest {
                return Some(named(response));
            }
        }
        None
    }

    /// Waits for the answer about this content; answers about anything else are ignored.
    pub async fn answer(&mut self) -> ApprovalResponse {
        loop {
            match self.answers.recv().await {
                Some(response) if response.digest == self.digest => return named(response),
                Some(_) => {}
                // Cannot happen: the sender stays in the registry as long as this question exists.
                None => std::future::pending().await,
            }
        }
    }
}

/// The response with a name that fits a line.
fn named(response: ApprovalResponse) -> ApprovalResponse {
    ApprovalResponse { by: author(&response.by), ..response }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.all.open().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use protocol::Decision;

    use super::*;

    #[tokio::test]
    async fn only_the_word_about_what_was_asked_counts() {
        let all = Approvals::default();
        let id = ApprovalId::new(1);
        let mut question = all.ask(id.clone(), "d".to_owned());
        let word = |digest: &str, decision| ApprovalResponse::new(id.clone(), digest.to_owned(), decision);
        all.answer(word("other", Decision::Allow));
        all.answer(word("d", Decision::Deny));
        let answer = question.answer().await;
        assert_eq!((answer.decision, answer.by.as_str()), (Decision::Deny, "an operator"));
        all.answer(ApprovalResponse { by: "Ada\n".to_owned(), ..word("d", Decision::Allow) });
        assert_eq!(question.decided().map(|answer| answer.by).as_deref(), Some("Ada"));
        assert_eq!(question.decided(), None);
        drop(question);
        all.answer(word("d", Decision::Allow));
        assert!(all.open().is_empty());
    }
}
