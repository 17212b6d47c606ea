//! Messages that a former process had accepted: told or begun after a restart, each once.

use std::{collections::BTreeSet, time::Duration};

use protocol::AttemptRef;

use super::store::{SaidMessage, SaidState};
use crate::{mesh::Mesh, session_log};

/// How long the Board may take to say which attempts go on, before what waits begins without it.
const BOARD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl Mesh {
    /// Lets what a former process left go on: at once where nothing is in doubt, and the rest when the Board has said which
    /// attempts go on. Messages to attempts at rest go to these again.
    pub async fn resume_messages(&self) {
        self.forget_said().await;
        let left = self.shared.local.store.open_messages();
        if left.is_empty() {
            return;
        }
        let ready = async {
            while !self.state().ready {
                tokio::time::sleep(CHECK_INTERVAL).await;
            }
        };
        let is_ready = tokio::time::timeout(BOARD_TIMEOUT, ready).await.is_ok();
        let ids = left.iter().map(|said| said.message_id.clone()).collect();
        if !is_ready {
            self.resume_some(&ids, false).await;
            while !self.state().ready {
                tokio::time::sleep(CHECK_INTERVAL * 20).await;
            }
        }
        self.resume_some(&ids, true).await;
    }

    /// Handles those of `ids` of which is known what became of their attempts.
    async fn resume_some(&self, ids: &BTreeSet<protocol::MessageId>, is_ready: bool) {
        let _turn = self.shared.local.turn.lock().await;
        let at_rest: BTreeSet<AttemptRef> = self.records().await.into_keys().collect();
        let open = self.shared.local.store.open_messages();
        for said in open.into_iter().filter(|said| ids.contains(&said.message_id)) {
            let session_rests = at_rest.iter().any(|attempt| self.rests_in(attempt, &said));
            let done = match said.state.clone() {
                SaidState::Waits if session_rests && !is_ready => continue,
                SaidState::Waits => self.place(said).await.map(drop),
                SaidState::Begun => self.resume_begun(said).await,
                SaidState::Given(_) if !is_ready => continue,
                SaidState::Given(attempt) => self.resume_given(said, &attempt).await,
                SaidState::Done(_) => continue,
            };
            if let Err(error) = done {
                tracing::error!("a message cannot be begun yet: {error}");
            }
        }
    }

    /// Whether the attempt may be one of the message's session: sessions of attempts at rest are known when they go on.
    fn rests_in(&self, attempt: &AttemptRef, said: &SaidMessage) -> bool {
        self.session_of(attempt).is_none_or(|session| session == said.session_id)
    }

    /// A message that was about to begin begins, unless it did.
    async fn resume_begun(&self, mut said: SaidMessage) -> std::io::Result<()> {
        let attempt = AttemptRef { task_id: said.task_id.clone(), attempt: 1 };
        if self.state().holds(&attempt) || self.outbox().next(&attempt) != 0 {
            // Its log says how it ends.
            return Ok(());
        }
        let path = self.home().session_log(&said.agent_id, said.session_id.as_str());
        let named = attempt.clone();
        let has_begun = tokio::task::spawn_blocking(move || session_log::names(&path, &named)).await;
        if has_begun.unwrap_or(true) {
            said.state = SaidState::Done(None);
            return self.write_said(&said).await;
        }
        self.begin_said(&said).await;
        Ok(())
    }

    /// A message to an attempt of a former process goes to it again, which changes nothing if it was told; where that
    /// attempt is over it is the session's next task.
    async fn resume_given(&self, mut said: SaidMessage, attempt: &AttemptRef) -> std::io::Result<()> {
        if self.state().running.contains_key(attempt) && self.give(&said, attempt).await {
            return Ok(());
        }
        said.state = SaidState::Waits;
        self.write_said(&said).await?;
        self.place(said).await.map(drop)
    }
}
