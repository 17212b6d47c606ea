//! What a run says of plans: versions that are in force, changes that an agent proposes, questions that wait for a person.

use protocol::{AgentStreamEvent, ApprovalId, EventBody, Instant, ProposalId, TaskId, plan::MAX_PLAN, text::head};
use serde_json::Value;

use super::{Book, Run, Speaker};
use crate::{
    actions::plan,
    db::{self, Tx, attempts::Held},
    domain::{Approval, ApprovalState, File, Proposal, ProposalState, Source, Text, plan::ProposalKind},
    error::Result,
    secret,
};

/// Longest preview of a question, bytes.
const MAX_PREVIEW: usize = 64 * 1024;
/// Largest arguments of a question, bytes of JSON.
const MAX_ARGS: usize = 32 * 1024;

/// Keeps it.
pub(super) async fn keep(
    tx: &mut Tx,
    who: &Speaker,
    at: (&TaskId, u32),
    held: &Held,
    run: &Run,
    now: Instant,
    book: &mut Book,
) -> Result<()> {
    let mut locked = false;
    for report in &run.reports {
        let Some(EventBody::Progress { event }) = &report.body else { continue };
        let (kind, value) = match &event.event {
            AgentStreamEvent::Plan { plan } => (ProposalKind::Plan, plan),
            AgentStreamEvent::Memory { memory } => (ProposalKind::Memory, memory),
            AgentStreamEvent::ApprovalRequired(asked) => {
                if let Some(approval) = approval(at, held, asked, now) {
                    db::approvals::expire(tx, &who.team, at.0, Some(&approval.id), now).await?;
                    db::approvals::insert(tx, &who.team, &approval).await?;
                    book.after.session(&held.session_id);
                }
                continue;
            }
            _ => continue,
        };
        if !std::mem::replace(&mut locked, true) {
            db::sessions::lock(tx, &who.team, &held.session_id).await?;
        }
        if let Some(proposal) = proposal(at, held, (kind, report.seq), value, now) {
            if db::proposals::insert(tx, &who.team, &proposal).await? {
                db::proposals::supersede(tx, &who.team, &proposal, now).await?;
                book.remembers |= kind == ProposalKind::Memory;
            }
        } else if let Some(text) = value["markdown"].as_str().filter(|_| kind == ProposalKind::Plan) {
            let text = db::clean(text);
            let hash = secret::hash(&text);
            // Told late, after the file was heard to be another one: it is that one which counts.
            let file = db::files::load(tx, &who.team, &who.viber, &plan::path(&held.session_id)).await?;
            let later =
                |file: &File| file.hash.as_ref() != Some(&hash) && file.mtime > report.at && report.at.is_some();
            if file.as_ref().is_some_and(later) {
                continue;
            }
            let fresh = db::plans::Fresh {
                hash: &hash,
                markdown: &text,
                source: Source::Agent,
                author: &held.agent_id,
                task: Some(at.0),
            };
            db::plans::add(tx, &who.team, &held.session_id, &fresh, now).await?;
            if value["hash"] == hash.as_str() && value["path"] == plan::path(&held.session_id).as_str() {
                // Whether the file still says this is told by what is heard of it; what it says need not be fetched then.
                let path = plan::path(&held.session_id);
                let text = Text { content: text, hash, at: now };
                db::files::keep(tx, &who.team, &who.viber, &path, &text, now).await?;
            }
        }
        book.after.session(&held.session_id);
    }
    Ok(())
}

fn proposal(
    (task, attempt): (&TaskId, u32),
    held: &Held,
    (kind, seq): (ProposalKind, u64),
    value: &Value,
    now: Instant,
) -> Option<Proposal> {
    let content = value["proposal"].as_str().filter(|text| text.len() <= 2 * MAX_PLAN)?;
    Some(Proposal {
        id: ProposalId::new(now.0),
        kind,
        session_id: held.session_id.clone(),
        task_id: task.clone(),
        attempt,
        seq,
        base_hash: value["base"].as_str().map(|hash| head(hash, 80).to_owned()),
        base: None,
        content: db::clean(content),
        note: db::clean(head(value["note"].as_str().unwrap_or_default(), 2000)),
        state: ProposalState::Pending,
        decided_by: None,
        created_at: now,
        decided_at: None,
    })
}

/// A question as the database keeps it; none when it has no usable name.
fn approval(
    (task, attempt): (&TaskId, u32),
    held: &Held,
    asked: &std::collections::BTreeMap<String, Value>,
    now: Instant,
) -> Option<Approval> {
    let text = |key: &str, most: usize| {
        let text = asked.get(key).and_then(Value::as_str).unwrap_or_default();
        db::clean(head(text, most))
    };
    let id: ApprovalId = asked.get("approvalId")?.as_str()?.parse().ok()?;
    let args = asked.get("args").cloned().unwrap_or_default();
    let args = if args.to_string().len() <= MAX_ARGS { args } else { Value::Null };
    Some(Approval {
        id,
        session_id: held.session_id.clone(),
        task_id: task.clone(),
        attempt,
        tool: text("tool", 200),
        digest: text("digest", 200),
        args,
        cwd: text("cwd", 2000),
        preview: text("preview", MAX_PREVIEW),
        risk: text("risk", 2000),
        state: ApprovalState::Pending,
        scope: None,
        note: None,
        decided_by: None,
        created_at: now,
        decided_at: None,
        expires_at: asked.get("expiresAt").and_then(|at| serde_json::from_value(at.clone()).ok()),
    })
}
