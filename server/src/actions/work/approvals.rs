//! A person's decision about what an agent asks: durable, only for exactly what they saw, and theirs to take.

mod settings;
mod word;

use std::sync::Arc;

use protocol::{ApprovalId, ApprovalKind, ApprovalResponse, Decision, DecisionScope, TeamId, ViberId, text::head};
use serde_json::json;

use crate::{
    actions::{AfterCommit, dispatch, members::Requester, refusals, tasks, team_rules, tokens},
    db::{self, Change, approvals::ApprovalDecision, audit::Entry},
    domain::{Approval, ApprovalSettings, ApprovalState, Role, Task},
    error::{Error, Result},
    state::Board,
};

pub use settings::change as change_settings;
pub use word::NewDecision;
use word::Outcome;

/// Decides a pending approval. The viber gets the response as soon as it is connected.
pub async fn decide(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    id: &ApprovalId,
    word: NewDecision,
) -> Result<Approval> {
    let asked = Arc::new((id.clone(), word.checked()?));
    let role = who.role;
    let decided = board
        .change(team, who.by, move |tx| {
            let asked = asked.clone();
            Box::pin(async move { run(tx, role, &asked.0, &asked.1).await })
        })
        .await;
    match decided {
        Ok((approval, after)) => {
            after.publish(board, team);
            if approval.scope == Some(DecisionScope::Rule) {
                team_rules::tell(board, team);
            }
            Ok(approval)
        }
        Err(Error::Forbidden(why)) => {
            refusals::note(board, team, who.by, id.as_str(), why).await?;
            Err(Error::Forbidden(why))
        }
        Err(error) => Err(error),
    }
}

async fn run(tx: &mut Change<'_>, role: Role, id: &ApprovalId, word: &NewDecision) -> Result<(Approval, AfterCommit)> {
    let asked = db::approvals::load(tx, id).await?.ok_or(Error::NotFound)?;
    if asked.state != ApprovalState::Pending {
        let message = format!("this question is {} already", asked.state);
        return Err(Error::conflict("not_pending", message));
    }
    if asked.digest != word.digest {
        return Err(Error::conflict("other_digest", "what is asked is not what you decided about; look at it again"));
    }
    if asked.expires_at.is_some_and(|at| at <= tx.now) {
        return Err(Error::conflict("expired", "nobody answered in time: this question counts as denied"));
    }
    let task = db::tasks::load(tx, &asked.task_id).await?.ok_or(Error::NotFound)?;
    if word.scope == Some(DecisionScope::Rule) {
        db::teams::lock(tx).await?;
    }
    let settings = db::approvals::settings::load(tx).await?;
    let objection = match objection(tx, role, &asked, &task, &settings).await? {
        // They would be what one person both wants and allows.
        None if settings.not_requester && word.changes(&asked) => Some(
            "whoever wants other arguments does not allow them; deny the call with a note. An owner may, with a reason",
        ),
        found => found,
    };
    let break_glass = match (objection, word.break_glass()) {
        (None, _) => None,
        (Some(_), Some(reason)) if role == Role::Owner => Some(reason),
        (Some(why), _) => return Err(Error::Forbidden(why)),
    };
    let outcome = word.about(&asked)?;
    if let Some(rule) = &outcome.rule {
        if role < Role::Admin {
            return Err(Error::Forbidden("a rule for the team needs the role admin; allow it once, or for this task"));
        }
        settings::allow(tx, settings, rule.as_str()).await?;
    }
    let by = tx.by.actor.clone();
    let kept = ApprovalDecision {
        state: outcome.state,
        scope: outcome.scope,
        rule: outcome.rule.as_ref().map(protocol::rules::Rule::as_str),
        note: outcome.note,
        answer: outcome.answer,
        allowed_args: outcome.args,
        grant: outcome.grant.as_ref(),
        break_glass,
        by: by.id(),
    };
    if !db::approvals::decide(tx, id, &kept).await? {
        return Err(Error::conflict("not_pending", "somebody else decided it just now"));
    }
    note(tx, &asked, word.decision, &kept).await?;
    let mut after = AfterCommit::default();
    if word.then_stop {
        // Sessions are locked before their viber.
        db::sessions::lock(tx, &asked.session_id).await?;
    }
    if !respond(tx, &task.viber_id, &response(&asked, word.decision, &outcome, by.name()), &mut after).await? {
        return Err(Error::conflict("viber_revoked", "the viber of this session was revoked"));
    }
    if word.then_stop {
        let reason = outcome.note.unwrap_or("stopped by a person");
        if tasks::end(tx, &task, head(reason, 500), &mut after).await? {
            dispatch::next(tx, &task.session_id, &mut after).await?;
        }
    } else {
        go_on(tx, &asked, &task).await?;
    }
    after.task(&asked.session_id, &asked.task_id);
    let approval = db::approvals::load(tx, id).await?.ok_or(Error::NotFound)?;
    Ok((approval, after))
}

/// The task waits for its next question, or for none any more.
async fn go_on(tx: &mut Change<'_>, asked: &Approval, task: &Task) -> Result<()> {
    let next = db::approvals::waiting(tx, (&asked.task_id, asked.attempt)).await?;
    let waits = task.waiting.as_ref().is_some_and(|waiting| waiting.id.is_some());
    if waits || next.is_some() {
        db::tasks::wait(tx, &asked.task_id, asked.attempt, next.as_ref()).await?;
    }
    Ok(())
}

/// Why the team's settings do not let the actor decide. What an agent wants to know any operator answers: an answer permits
/// nothing.
async fn objection(
    tx: &mut Change<'_>,
    role: Role,
    asked: &Approval,
    task: &Task,
    settings: &ApprovalSettings,
) -> Result<Option<&'static str>> {
    if asked.kind == ApprovalKind::Question {
        return Ok(None);
    }
    if let Some(why) = role_objection(role, settings) {
        return Ok(Some(why));
    }
    let is_own = settings.not_requester && is_requester(tx, task).await?;
    let why = "whoever gave a task, or told it something, does not decide what it asks; an owner may, with a reason";
    Ok(is_own.then_some(why))
}

/// Why the team's settings let nobody of this role decide.
pub(in crate::actions) fn role_objection(role: Role, settings: &ApprovalSettings) -> Option<&'static str> {
    match settings.min_role {
        Role::Owner if role < Role::Owner => Some("the team's settings let owners alone decide this"),
        least if role < least => Some("the team's settings let admins and owners alone decide this"),
        _ => None,
    }
}

/// Whether whoever acts gave the task, or said something to it that its agent was told, also with a decision, with whatever
/// token.
async fn is_requester(tx: &mut Change<'_>, task: &Task) -> Result<bool> {
    let mut authors = db::tasks::messages::authors_told(tx, &task.session_id, &task.id).await?;
    authors.extend(db::approvals::authors_told(tx, &task.id).await?);
    authors.push(task.created_by.clone());
    tokens::is_one_of(tx, &authors).await
}

/// Writes the decision into the audit: what it was about, how far it reaches, and what was said.
async fn note(tx: &mut Change<'_>, asked: &Approval, decision: Decision, kept: &ApprovalDecision<'_>) -> Result<()> {
    let verb = match decision {
        Decision::Allow => "approval.allow",
        Decision::Deny => "approval.deny",
        Decision::Answer => "approval.answer",
    };
    let scope = kept.scope.map_or(String::new(), |scope| format!(" {}", scope.as_str()));
    let instead = if kept.allowed_args.is_some() { " with other arguments" } else { "" };
    let detail = format!("{} {}{scope}{instead}", asked.tool, asked.digest);
    let said = json!({
        "note": kept.note, "answer": kept.answer, "rule": kept.rule, "args": kept.allowed_args, "grant": kept.grant,
    });
    let said = said.to_string();
    let entry = Entry::new(verb, asked.id.as_str()).detail(head(&detail, 300)).after(said.as_str());
    db::audit::append(tx, entry).await?;
    if let Some(reason) = kept.break_glass {
        let entry = Entry::new("approval.break_glass", asked.id.as_str()).detail(head(reason, 300)).after(reason);
        db::audit::append(tx, entry).await?;
    }
    Ok(())
}

fn response(asked: &Approval, decision: Decision, outcome: &Outcome<'_>, by: &str) -> ApprovalResponse {
    ApprovalResponse {
        scope: outcome.scope,
        rule: outcome.rule.as_ref().map(|rule| rule.as_str().to_owned()),
        note: outcome.note.map(str::to_owned),
        args: outcome.args.cloned(),
        answer: outcome.answer.map(str::to_owned),
        grant: outcome.grant.clone(),
        by: by.to_owned(),
        ..ApprovalResponse::new(asked.id.clone(), asked.digest.clone(), decision)
    }
}

/// Stores the command that tells a viber of a decision. `false` when the viber was revoked.
pub(in crate::actions) async fn respond(
    tx: &mut Change<'_>,
    viber: &ViberId,
    response: &ApprovalResponse,
    after: &mut AfterCommit,
) -> Result<bool> {
    let body = serde_json::to_string(response).map_err(|error| Error::Internal(error.to_string()))?;
    let command = db::commands::NewCommand { kind: "approval:response", attempt: None, body };
    let is_told = db::commands::enqueue(tx, viber, command).await?.is_some();
    if is_told {
        after.command(viber);
    }
    Ok(is_told)
}
