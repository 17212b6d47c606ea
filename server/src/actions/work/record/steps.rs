//! Calls of supervisors: they go to the run of their playbook, never to people. What no supervisor asked is denied at once.

use protocol::ApprovalRequest;

use super::{
    Recording,
    approvals::{MAX_ARGS_BYTES, text},
};
use crate::{
    actions::tasks::is_within,
    db::{self, approvals::MAX_PENDING_APPROVALS},
    domain::{Report, SupervisorCall},
    error::Result,
};

/// Calls of one run at most, whatever became of them.
const MAX_RUN_CALLS: u64 = 2_000;
/// How deep arguments nest at most.
const MAX_ARGS_LEVELS: usize = 4;

impl Recording<'_, '_> {
    /// Stores a call for the run that the task supervises; the run is told after the commit.
    pub(super) async fn record_step_call(&mut self, report: &Report, asked: &ApprovalRequest) -> Result<()> {
        if !self.is_newest() || self.held.state.is_final() {
            // Nobody waits for an answer.
            return Ok(());
        }
        let Some((run, state)) = db::playbook_runs::supervised_by(self.tx, self.task).await? else {
            return self.deny(asked, "This task supervises no run of a playbook.".to_owned()).await;
        };
        if state.is_final() {
            return self.deny(asked, format!("The run is {state} already.")).await;
        }
        let (made, waiting) = db::playbook_runs::call_count(self.tx, &run, MAX_RUN_CALLS + 1).await?;
        if made >= MAX_RUN_CALLS {
            let why = "This run has made as many calls as one may: end it, and start another.".to_owned();
            return self.deny(asked, why).await;
        }
        if waiting >= MAX_PENDING_APPROVALS {
            let why = format!("{MAX_PENDING_APPROVALS} calls of this run wait already; make this one later.");
            return self.deny(asked, why).await;
        }
        if asked.args.to_string().len() > MAX_ARGS_BYTES || !is_within(&asked.args, MAX_ARGS_LEVELS) {
            return self.deny(asked, "The arguments are too large.".to_owned()).await;
        }
        let call = SupervisorCall {
            id: asked.approval_id.clone(),
            run_id: run.clone(),
            task_id: self.task.clone(),
            attempt: self.attempt,
            seq: report.seq,
            digest: text(&asked.digest, 200),
            tool: text(&asked.tool, 200),
            args: asked.args.clone(),
            waits_for: None,
            created_at: self.tx.now,
        };
        if db::playbook_runs::insert_call(self.tx, &call).await? {
            self.book.after.run(&run);
        }
        Ok(())
    }
}
