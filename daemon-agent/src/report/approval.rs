//! Questions that wait for a person: asked by a task, answered by a command of the Board.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{ApprovalId, ApprovalResponse, Decision};
use tokio::sync::watch;

use super::inbox::author;

/// The open questions of this daemon. Cheap to clone.
#[derive(Clone, Default)]
pub struct Approvals(Arc<Mutex<HashMap<ApprovalId, Registered>>>);

/// An open question.
struct Registered {
    digest: String,
    answer: watch::Sender<Option<ApprovalResponse>>,
}

/// A question that stays open until this is dropped.
pub struct Question {
    id: ApprovalId,
    answer: PendingAnswer,
    all: Approvals,
}

/// What is answered to one question. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PendingAnswer(watch::Receiver<Option<ApprovalResponse>>);

impl Approvals {
    /// Opens a question about the content with this digest. One that is open already is the same.
    pub fn ask(&self, id: ApprovalId, digest: String) -> Question {
        let answer = match self.open().entry(id.clone()) {
            Entry::Occupied(known) if known.get().digest == digest => known.get().answer.subscribe(),
            known => {
                let (answer, answered) = watch::channel(None);
                known.insert_entry(Registered { digest, answer });
                answered
            }
        };
        Question { id, answer: PendingAnswer(answer), all: self.clone() }
    }

    /// Passes on a person's answer; the first one to a question counts. Answers about anything but what was asked, and to
    /// questions that are no longer open, are dropped. Whether it is the one that counts.
    pub fn answer(&self, response: ApprovalResponse) -> bool {
        let open = self.open();
        let Some(asked) = open.get(&response.approval_id).filter(|asked| asked.digest == response.digest) else {
            return false;
        };
        asked.answer.send_if_modified(|answer| {
            let is_first = answer.is_none();
            answer.get_or_insert_with(|| named(response));
            is_first
        })
    }

    /// Whether the question with this digest is open and nobody answered it.
    pub fn is_pending(&self, id: &ApprovalId, digest: &str) -> bool {
        self.open().get(id).is_some_and(|asked| asked.digest == digest && asked.answer.borrow().is_none())
    }

    /// Gives everybody the same answer who waits with this digest and was not answered.
    pub fn answer_all(&self, digest: &str, answer: &str) {
        for (id, asked) in self.open().iter().filter(|(_, asked)| asked.digest == digest) {
            let bare = ApprovalResponse::new(id.clone(), digest.to_owned(), Decision::Answer);
            let response = ApprovalResponse { answer: Some(answer.to_owned()), ..bare };
            asked.answer.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert_with(|| named(response));
                is_first
            });
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<ApprovalId, Registered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Question {
    /// What is answered to it.
    pub fn answer(&self) -> PendingAnswer {
        self.answer.clone()
    }
}

impl PendingAnswer {
    /// The answer, if it was given already.
    pub fn given(&self) -> Option<ApprovalResponse> {
        self.0.borrow().clone()
    }

    /// Waits for the answer; forever if the question is closed without one.
    pub async fn wait(mut self) -> ApprovalResponse {
        match self.0.wait_for(Option::is_some).await.map(|answer| answer.clone()) {
            Ok(Some(response)) => response,
            Ok(None) | Err(_) => std::future::pending().await,
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
    async fn only_the_first_word_about_what_was_asked_counts() {
        let all = Approvals::default();
        let id = ApprovalId::new(1);
        let question = all.ask(id.clone(), "d".to_owned());
        let word = |digest: &str, decision| ApprovalResponse::new(id.clone(), digest.to_owned(), decision);
        all.answer(word("other", Decision::Allow));
        assert_eq!(question.answer().given(), None);
        all.answer(word("d", Decision::Deny));
        all.answer(ApprovalResponse { by: "Ada\n".to_owned(), ..word("d", Decision::Allow) });
        let answer = question.answer().wait().await;
        assert_eq!((answer.decision, answer.by.as_str()), (Decision::Deny, "an operator"));
        assert_eq!(question.answer().given(), Some(answer));
        drop(question);
        all.answer(word("d", Decision::Allow));
        assert!(all.open().is_empty());
    }

    #[test]
    fn a_question_that_is_opened_again_has_its_answer() {
        let all = Approvals::default();
        let (id, digest) = (ApprovalId::new(1), "d".to_owned());
        let first = all.ask(id.clone(), digest.clone());
        let response = ApprovalResponse::new(id.clone(), digest.clone(), Decision::Allow);
        all.answer(ApprovalResponse { by: "Ada\n".to_owned(), ..response });
        let again = all.ask(id.clone(), digest);
        assert_eq!(again.answer().given().map(|answer| answer.by).as_deref(), Some("Ada"));
        let other = all.ask(id, "other".to_owned());
        assert_eq!(other.answer().given(), None);
        drop((first, again, other));
    }
}
