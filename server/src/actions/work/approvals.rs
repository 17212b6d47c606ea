//! A person's decision about what an agent asks approval for: durable, and only for exactly what they saw.

use std::sync::Arc;

use protocol::{ApprovalId, ApprovalResponse, Decision, TeamId, text::head};

use crate::{
    actions::AfterCommit,
    db::{self, Change, audit::Entry},
    domain::{Approval, ApprovalState, By},
    error::{Error, Result},
    state::Board,
};

/// Longest note to the agent, bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;
/// How far a decision may reach.
const DECISION_SCOPES: &[&str] = &["once", "task", "rule"];

/// The decision of a person.
#[derive(Clone, Debug)]
pub struct NewDecision {
    pub decision: Decision,
    /// Digest of what they saw.
    pub digest: String,
    pub scope: Option<String>,
    pub note: Option<String>,
}

/// Decides a pending approval. The viber gets the response as soon as it is connected.
pub async fn decide(board: &Board, team: &TeamId, by: &By, id: &ApprovalId, word: NewDecision) -> Result<Approval> {
    if word.note.as_ref().is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
        return Err(Error::unacceptable("note_too_long", "a note has at most 8 KiB"));
    }
    if word.scope.as_deref().is_some_and(|scope| !DECISION_SCOPES.contains(&scope)) {
        return Err(Error::unacceptable("bad_scope", "scope is once, task or rule"));
    }
    let asked = Arc::new((id.clone(), word));
    let (approval, after) = board
        .change(team, by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move { run(tx, &asked.0, &asked.1).await })
        })
        .await?;
    after.publish(board, team);
    Ok(approval)
}

async fn run(tx: &mut Change<'_>, id: &ApprovalId, word: &NewDecision) -> Result<(Approval, AfterCommit)> {
    let asked = db::approvals::load(tx, id).await?.ok_or(Error::NotFound)?;
    if asked.state != ApprovalState::Pending {
        let message = format!("this question is {} already", asked.state);
        return Err(Error::conflict("not_pending", message));
    }
    if asked.digest != word.digest {
        return Err(Error::conflict("other_digest", "what is asked is not what you decided about; look at it again"));
    }
    let task = db::tasks::load(tx, &asked.task_id).await?.ok_or(Error::NotFound)?;
    let state = match word.decision {
        Decision::Allow => ApprovalState::Allowed,
        Decision::Deny => ApprovalState::Denied,
    };
    let note = word.note.as_deref().map(str::trim).filter(|note| !note.is_empty());
    let by = tx.by.actor.id().to_owned();
    let kept = db::approvals::ApprovalDecision { state, scope: word.scope.as_deref(), note, by: &by };
    if !db::approvals::decide(tx, id, &kept).await? {
        return Err(Error::conflict("not_pending", "somebody else decided it just now"));
    }
    let response = ApprovalResponse {
        approval_id: id.clone(),
        digest: asked.digest.clone(),
        decision: word.decision,
        scope: word.scope.clone(),
        note: note.map(str::to_owned),
    };
    let body = serde_json::to_string(&response).map_err(|error| Error::Internal(error.to_string()))?;
    let command = db::commands::NewCommand { kind: "approval:response", attempt: None, body };
    if db::commands::enqueue(tx, &task.viber_id, command).await?.is_none() {
        return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
    }
    let verb = if state == ApprovalState::Allowed { "approval.allow" } else { "approval.deny" };
    let (object, detail) = (id.as_str(), format!("{} {}", asked.tool, asked.digest));
    db::audit::append(tx, Entry::new(verb, object).detail(head(&detail, 300)).after(note)).await?;
    let mut after = AfterCommit::default();
    after.command(&task.viber_id);
    after.task(&asked.session_id, &asked.task_id);
    let approval = db::approvals::load(tx, id).await?.ok_or(Error::NotFound)?;
    Ok((approval, after))
}
