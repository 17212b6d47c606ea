//! What a run asks people, what becomes of it, and what was done that somebody allowed.
//!
//! A viber decides nothing by its reports. What it asks beyond `MAX_PENDING_APPROVALS` is denied at once, so that its agent
//! goes on, and a call with other arguments counts as allowed only with those that a person gave.

use protocol::{
    AgentQuestion, AgentStreamEvent, AnswerOption, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalResponse,
    Decision, Instant, ReachedLimit, rules::MAX_RULE_BYTES, text::head,
};
use serde_json::Value;

use super::Recording;
use crate::{
    actions::approvals::respond,
    db::{self, approvals::MAX_PENDING_APPROVALS},
    domain::{Approval, ApprovalState, By, Report, approval::MAX_EXPIRY_MINUTES},
    error::Result,
};

/// The adapter whose decisions the Board made itself.
const BOARD_ADAPTER: &str = "board";
/// Longest name of whoever decided at a machine, and what they said at most, bytes.
const MAX_NAME_BYTES: usize = 120;
const MAX_NOTE_BYTES: usize = 8 * 1024;
/// Longest preview of an approval, bytes.
const MAX_PREVIEW_BYTES: usize = 64 * 1024;
/// Largest arguments of an approval, bytes of JSON.
pub(super) const MAX_ARGS_BYTES: usize = 32 * 1024;
/// Longest text of a question, bytes.
const MAX_QUESTION_BYTES: usize = 8 * 1024;
/// Most options of a question.
const MAX_OPTIONS: usize = 4;
/// The longest wait that a viber may name, milliseconds.
const MAX_WAIT_MS: i64 = MAX_EXPIRY_MINUTES as i64 * 60_000;
/// Most files of an approval.
const MAX_FILES: usize = 100;

impl Recording<'_, '_> {
    /// Stores what an event asks, or what it says of a question.
    pub(super) async fn record_question(&mut self, report: &Report, event: &AgentStreamEvent) -> Result<()> {
        let of = (self.task, self.attempt);
        let changed = match event {
            AgentStreamEvent::ApprovalRequired(asked) => self.record_approval(report, asked).await?,
            AgentStreamEvent::ApprovalExpired { approval_id, reason } => {
                // An id is that of a question or of a supervisor's call.
                !db::playbook_runs::expire_call(self.tx, of, approval_id).await?
                    && db::approvals::expire(self.tx, of, approval_id, &db::clean(head(reason, 500))).await?
            }
            AgentStreamEvent::ApprovalDecided { approval_id, digest, decision, by, adapter, note, answer } => {
                if adapter == BOARD_ADAPTER {
                    // It is the Board's own decision.
                    return Ok(());
                }
                let by =
                    format!("{} decided at the machine ({})", head(by, MAX_NAME_BYTES), head(adapter, MAX_NAME_BYTES));
                let note = note.as_deref().map_or_else(|| by.clone(), |note| format!("{by}: {note}"));
                let followed = db::approvals::FollowedDecision {
                    state: match decision {
                        Decision::Allow => ApprovalState::Allowed,
                        Decision::Deny => ApprovalState::Denied,
                        Decision::Answer => ApprovalState::Answered,
                    },
                    digest,
                    note: &text(&note, MAX_NOTE_BYTES),
                    answer: answer.as_deref().map(|answer| text(answer, MAX_NOTE_BYTES)),
                    by: self.connection.viber.as_str(),
                };
                db::approvals::follow(self.tx, of, approval_id, &followed).await?
            }
            AgentStreamEvent::ApprovalOutcome { approval_id, call_id, ok } => {
                db::approvals::conclude(self.tx, of, approval_id, (call_id, *ok)).await?
            }
            _ => false,
        };
        if changed {
            self.book.after.task(&self.held.session_id, self.task);
        }
        Ok(())
    }

    /// Stores a question. `false`: it is known, or its task asked too much before.
    async fn record_approval(&mut self, report: &Report, asked: &ApprovalRequest) -> Result<bool> {
        if asked.kind == ApprovalKind::Step {
            self.record_step_call(report, asked).await?;
            return Ok(false);
        }
        if db::approvals::is_full(self.tx, self.task).await? {
            // Nothing of it is stored any more.
            let why = "this task has asked as much as one may: end it, and go on in another".to_owned();
            self.deny(asked, why).await?;
            return Ok(false);
        }
        let mut approval = self.approval(report, asked);
        let of = (self.task, self.attempt);
        if let Some(replaced) = &asked.replaces {
            return self.record_replacement(approval, replaced).await;
        }
        if !self.is_newest() || self.held.state.is_final() {
            let why = "Its task did not wait for an answer any more.";
            return self.insert_expired(approval, why).await;
        }
        if approval.kind == ApprovalKind::Plan {
            // An agent has one plan: what it asked before about another text is not asked any more.
            db::approvals::expire_plan(self.tx, of).await?;
        }
        if db::approvals::pending_count(self.tx, of).await? < MAX_PENDING_APPROVALS {
            return Ok(db::approvals::insert(self.tx, &approval).await?);
        }
        let note = format!("{MAX_PENDING_APPROVALS} questions of this task wait already; ask again later");
        approval.state = ApprovalState::Denied;
        approval.decided_by = Some(By::board().actor.id().to_owned());
        approval.decided_at = Some(self.tx.now);
        approval.note = Some(note.clone());
        if !db::approvals::insert(self.tx, &approval).await? {
            return Ok(false);
        }
        self.deny(asked, note).await?;
        Ok(true)
    }

    /// Tells the viber at once that something is denied, so that its agent goes on.
    pub(super) async fn deny(&mut self, asked: &ApprovalRequest, note: String) -> Result<()> {
        // Sessions are locked before their viber.
        db::sessions::lock(self.tx, &self.held.session_id).await?;
        let by = By::board().actor.name().to_owned();
        let denial = ApprovalResponse::new(asked.approval_id.clone(), asked.digest.clone(), Decision::Deny);
        let denial = ApprovalResponse { note: Some(note), by, ..denial };
        respond(self.tx, &self.connection.viber, &denial, &mut self.book.after).await?;
        Ok(())
    }

    /// Stores the call that a person allowed instead of another one: what they allowed, decided when they did.
    async fn record_replacement(&mut self, mut approval: Approval, replaced: &ApprovalId) -> Result<bool> {
        let allowed = db::approvals::load(self.tx, replaced).await?.filter(|replaced| {
            (&replaced.task_id, replaced.attempt) == (&approval.task_id, approval.attempt)
                && replaced.state == ApprovalState::Allowed
                && replaced.becomes.is_none()
                && (&replaced.tool, &replaced.call_id) == (&approval.tool, &approval.call_id)
        });
        let given = allowed.as_ref().and_then(|replaced| replaced.allowed_args.clone());
        let Some((allowed, given)) = allowed.zip(given) else {
            let why = "It stands for an approval that nobody allowed with other arguments.";
            return self.insert_expired(approval, why).await;
        };
        // What the viber says of it was not what the person read.
        approval.preview = text(&shown(&approval.tool, &given), MAX_PREVIEW_BYTES);
        approval.args = given;
        approval.kind = allowed.kind;
        approval.state = allowed.state;
        approval.scope = allowed.scope;
        approval.rule = allowed.rule;
        approval.note = allowed.note;
        approval.decided_by = allowed.decided_by;
        approval.decided_at = allowed.decided_at;
        approval.replaces = Some(allowed.id);
        let new = db::approvals::insert(self.tx, &approval).await?;
        if new {
            db::approvals::become_other(self.tx, replaced, &approval.id).await?;
        }
        Ok(new)
    }

    async fn insert_expired(&mut self, approval: Approval, why: &str) -> Result<bool> {
        let (state, decided_at) = (ApprovalState::Expired, Some(self.tx.now));
        let approval = Approval { state, decided_at, expiry: Some(why.to_owned()), ..approval };
        Ok(db::approvals::insert(self.tx, &approval).await?)
    }

    /// An approval as it is stored.
    fn approval(&self, report: &Report, asked: &ApprovalRequest) -> Approval {
        let ApprovalRequest { kind, args, .. } = asked;
        let args = if args.to_string().len() <= MAX_ARGS_BYTES { args.clone() } else { Value::Null };
        let files = asked.files.iter().filter(|file| file.path.len() <= 4096).take(MAX_FILES);
        let rule = asked.rule.as_deref().filter(|rule| rule.len() <= MAX_RULE_BYTES);
        Approval {
            id: asked.approval_id.clone(),
            kind: *kind,
            session_id: self.held.session_id.clone(),
            task_id: self.task.clone(),
            attempt: self.attempt,
            seq: report.seq,
            call_id: asked.call_id.as_deref().map(|id| text(id, 200)),
            tool: text(&asked.tool, 200),
            digest: text(&asked.digest, 200),
            args,
            cwd: text(&asked.cwd, 4096),
            preview: text(&asked.preview, MAX_PREVIEW_BYTES),
            risk: text(&asked.risk, 2000),
            reason: text(&asked.reason, 2000),
            rule: rule.map(|rule| text(rule, MAX_RULE_BYTES)),
            files: files.cloned().collect(),
            question: (*kind == ApprovalKind::Question).then(|| question(asked.question.as_ref())),
            limit: (*kind == ApprovalKind::Budget).then(|| limit(asked.limit.as_ref())),
            state: ApprovalState::Pending,
            scope: None,
            note: None,
            answer: None,
            allowed_args: None,
            grant: None,
            break_glass: None,
            decided_by: None,
            created_at: self.tx.now,
            decided_at: None,
            expires_at: asked.expires_at.and_then(|end| by_our_clock(end, report, self.tx.now)),
            expiry: None,
            replaces: None,
            becomes: None,
            consequence: None,
        }
    }
}

/// When a time that a viber named will have come, by the Board's clock: as long from now as the viber said that it would take.
pub(super) fn by_our_clock(end: Instant, report: &Report, now: Instant) -> Option<Instant> {
    let left = end.millis().saturating_sub(report.at?.millis());
    Some(Instant(now.millis().saturating_add(left.clamp(0, MAX_WAIT_MS))))
}

/// A call as a person reads it: its command, else its arguments.
fn shown(tool: &str, args: &Value) -> String {
    match args.get("command").and_then(Value::as_str) {
        Some(command) if tool == "shell" => command.to_owned(),
        _ => serde_json::to_string_pretty(args).unwrap_or_default(),
    }
}

pub(super) fn text(text: &str, most: usize) -> String {
    db::clean(head(text, most))
}

/// A question within its limits.
fn question(asked: Option<&AgentQuestion>) -> AgentQuestion {
    let Some(asked) = asked else { return AgentQuestion::default() };
    let option = |option: &AnswerOption| AnswerOption {
        label: text(&option.label, 500),
        trade_off: text(&option.trade_off, 2000),
    };
    let options: Vec<AnswerOption> = asked.options.iter().take(MAX_OPTIONS).map(option).collect();
    AgentQuestion {
        text: text(&asked.text, MAX_QUESTION_BYTES),
        recommended: asked.recommended.filter(|at| (*at as usize) < options.len()),
        options,
        on_timeout: text(&asked.on_timeout, 2000),
    }
}

fn limit(asked: Option<&ReachedLimit>) -> ReachedLimit {
    let asked = asked.cloned().unwrap_or_default();
    ReachedLimit { name: text(&asked.name, 64), ..asked }
}
