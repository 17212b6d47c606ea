//! Questions that wait for a person: asked by a task, answered by a command of the Board.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{ApprovalId, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision};
use tokio::sync::watch;

use super::inbox::author;

/// The open questions of this daemon. Cheap to clone.
#[derive(Clone, Default)]
pub struct Approvals(Arc<Mutex<HashMap<ApprovalId, Registered>>>);

/// An open question.
struct Registered {
    digest: String,
    /// Only the Board answers it: what a step of a playbook came to.
    is_for_board: bool,
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
                known.insert_entry(Registered { digest, is_for_board: false, answer });
                answered
            }
        };
        Question { id, answer: PendingAnswer(answer), all: self.clone() }
    }

    /// The same of a request.
    pub fn ask_request(&self, request: &ApprovalRequest) -> Question {
        let question = self.ask(request.approval_id.clone(), request.digest.clone());
        if let Some(asked) = self.open().get_mut(&request.approval_id) {
            asked.is_for_board = request.kind == ApprovalKind::Step;
        }
        question
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

    /// Whether the question with this digest is open, nobody answered it, and people may.
    pub fn is_pending(&self, id: &ApprovalId, digest: &str) -> bool {
        let is_asked =
            |asked: &Registered| asked.digest == digest && !asked.is_for_board && asked.answer.borrow().is_none();
        self.open().get(id).is_some_and(is_asked)
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

    #[test]
    fn what_only_the_board_answers_no_person_does() {
        let all = Approvals::default();
        let request = |n, kind: &str| -> ApprovalRequest {
            let json = serde_json::json!({ "approvalId": ApprovalId::new(n), "kind": kind, "digest": "d" });
            serde_json::from_value(json).expect("a request")
        };
        let (tool, step) = (request(1, "tool"), request(2, "step"));
        let open = [&tool, &step].map(|request| all.ask_request(request));
        assert!(all.is_pending(&tool.approval_id, "d") && !all.is_pending(&tool.approval_id, "other"));
        assert!(!all.is_pending(&step.approval_id, "d"));
        assert!(
            all.answer(ApprovalResponse::new(step.approval_id, "d".to_owned(), Decision::Answer)),
            "the Board does"
        );
        drop(open);
    }
}
