//! The forms of the cards: one decision, or the same one about every call that waits.

use askama::Template;
use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{ApprovalId, ApprovalKind, Decision, DecisionScope, SessionId, TaskLimits};
use serde::Deserialize;
use serde_json::Value;

use super::{Asks, RefusedDecision};
use crate::{
    actions::approvals::{self, NewDecision},
    db,
    domain::{Approval, Role},
    error::{Error, Result},
    state::Board,
    web::pages::{
        Wants,
        cache::SessionPageData,
        conversation::Conversation,
        pane::{self, PaneSelection, Tab},
        session,
        status_panel::StatusPanel,
    },
    web::{
        AsOperator, Rejection,
        extract::{Caller, Id},
        html_with, urls,
    },
};

/// Most calls that one form decides.
const MAX_DECIDED_AT_ONCE: usize = 100;

/// What a card sends.
#[derive(Debug, Deserialize)]
pub struct DecisionForm {
    decision: AskedVerb,
    digest: String,
    #[serde(default)]
    scope: DecisionScope,
    #[serde(default)]
    rule: String,
    #[serde(default)]
    note: String,
    /// Arguments of a call: a command, or JSON.
    #[serde(default)]
    args: String,
    /// The label of an option.
    #[serde(default)]
    answer: String,
    /// Their own words.
    #[serde(default)]
    reply: String,
    /// How much more a task may use.
    #[serde(default)]
    amount: String,
    /// Why an owner decides who otherwise may not.
    #[serde(default)]
    reason: String,
    /// `pane`: the plan's tab is shown again.
    #[serde(default)]
    place: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AskedVerb {
    Allow,
    /// With the arguments of the form.
    AllowChanged,
    Grant,
    Deny,
    DenyStop,
    Answer,
}

/// `POST /t/{team}/approvals/{id}`
pub async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ApprovalId>,
    wants: Wants,
    Form(form): Form<DecisionForm>,
) -> Result<Response, Rejection> {
    let found = db::approvals::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    let asked = found.ok_or(Error::NotFound)?;
    let done = match form.decision_on(&asked) {
        Ok(word) => approvals::decide(&board, &caller.team.id, caller.maker(), &id, word).await.map(drop),
        Err(error) => Err(error),
    };
    let refused = match done {
        Ok(()) => None,
        Err(Error::Conflict { message, .. } | Error::Unacceptable { message, .. }) => Some(form.refused(message)),
        Err(Error::Forbidden(message)) => {
            let asks_reason = caller.role == Role::Owner;
            Some(RefusedDecision { asks_reason, ..form.refused(message.to_owned()) })
        }
        Err(error) => return Err(error.into()),
    };
    if form.place == "pane" && refused.is_none() {
        return pane::answer(&board, &caller, &asked.session_id, wants, Tab::Plan).await;
    }
    answer(&board, &caller, &asked.session_id, wants, refused.map(|refused| (id, refused))).await
}

/// The calls that a form is about, as they were when it was shown.
#[derive(Debug, Deserialize)]
pub struct AllDecidedForm {
    decision: Decision,
    /// `{approval}:{digest}`
    #[serde(default)]
    asked: Vec<String>,
}

/// `POST /t/{team}/sessions/{id}/approvals`
pub async fn decide_all(
    State(board): State<Board>,
    caller: AsOperator,
    Id(session): Id<SessionId>,
    wants: Wants,
    Form(form): Form<AllDecidedForm>,
) -> Result<Response, Rejection> {
    let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, &session).await?;
    found.ok_or(Error::NotFound)?;
    let mut refused = None;
    for asked in form.asked.iter().take(MAX_DECIDED_AT_ONCE) {
        let Some((id, digest)) = asked.split_once(':') else { continue };
        let Ok(id) = id.parse::<ApprovalId>() else { continue };
        let word = NewDecision::new(form.decision, digest.to_owned());
        match approvals::decide(&board, &caller.team.id, caller.maker(), &id, word).await {
            Ok(_) => {}
            // Somebody was faster with this one.
            Err(Error::Conflict { code: "not_pending", .. } | Error::NotFound) => {}
            Err(error @ (Error::Forbidden(_) | Error::Unacceptable { .. } | Error::Conflict { .. })) => {
                refused =
                    Some((id, RefusedDecision { why: format!("Not done: {error}."), ..RefusedDecision::default() }));
            }
            Err(error) => return Err(error.into()),
        }
    }
    answer(&board, &caller, &session, wants, refused).await
}

/// The answer to a form that htmx sent.
#[derive(Template)]
#[template(path = "work/asks/_decided.html")]
struct Decided {
    asks: Asks,
    dock: String,
}

/// The cards as they are now, with why nothing was done.
async fn answer(
    board: &Board,
    caller: &Caller,
    session: &SessionId,
    wants: Wants,
    refused: Option<(ApprovalId, RefusedDecision)>,
) -> Result<Response, Rejection> {
    let status = if refused.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    let now = board.clock.now();
    if wants == Wants::Page && refused.is_none() {
        return Ok(Redirect::to(&urls::session(&caller.team.slug, session)).into_response());
    }
    if wants == Wants::Fragment {
        let conversation = Conversation::load(board, &caller.team.id, session, None).await?;
        let asks = with_refusal(Asks::of(&conversation, caller, now), refused);
        let dock = StatusPanel::of(&conversation, caller, now).out_of_band();
        return html_with(status, &Decided { asks, dock });
    }
    let read = SessionPageData::load(board, caller, session, None, &PaneSelection::default()).await?;
    let asks = with_refusal(Asks::of(&read.conversation, caller, now), refused);
    session::page_with_asks(board, caller, session, &read, (status, asks)).await
}

fn with_refusal(asks: Asks, refused: Option<(ApprovalId, RefusedDecision)>) -> Asks {
    match refused {
        Some((id, refused)) => asks.with_refusal(&id, refused),
        None => asks,
    }
}

impl DecisionForm {
    /// What the form says about what it was shown for.
    fn decision_on(&self, asked: &Approval) -> Result<NewDecision> {
        let given = |text: &str| Some(text.replace("\r\n", "\n").trim().to_owned()).filter(|text| !text.is_empty());
        let decision = match self.decision {
            AskedVerb::Allow | AskedVerb::AllowChanged | AskedVerb::Grant => Decision::Allow,
            AskedVerb::Deny | AskedVerb::DenyStop => Decision::Deny,
            AskedVerb::Answer => Decision::Answer,
        };
        let allows = decision == Decision::Allow && asked.kind == ApprovalKind::Tool;
        let scope = if allows { self.scope } else { DecisionScope::Once };
        if scope == DecisionScope::Rule && self.rule.trim().is_empty() {
            return Err(Error::unacceptable("bad_rule", "write the rule that is to be allowed"));
        }
        Ok(NewDecision {
            decision,
            digest: self.digest.clone(),
            scope: allows.then_some(scope),
            rule: given(&self.rule).filter(|_| scope == DecisionScope::Rule),
            note: given(&self.note),
            args: if self.decision == AskedVerb::AllowChanged { self.changed_args(asked)? } else { None },
            answer: given(&self.reply).or_else(|| given(&self.answer)).filter(|_| decision == Decision::Answer),
            grant: if self.decision == AskedVerb::Grant { Some(self.grant(asked)?) } else { None },
            then_stop: self.decision == AskedVerb::DenyStop,
            reason: given(&self.reason),
        })
    }

    /// The arguments, when they are not what the agent asked for.
    fn changed_args(&self, asked: &Approval) -> Result<Option<Value>> {
        let typed = self.args.replace("\r\n", "\n");
        let args = match asked.args.get("command").and_then(Value::as_str) {
            Some(command) if asked.tool == "shell" => {
                // A form turns every end of a line into the same one.
                let sent = command.replace("\r\n", "\n").replace('\r', "\n");
                if typed.trim() == sent.trim() {
                    return Ok(None);
                }
                let mut args = asked.args.clone();
                args["command"] = Value::String(typed.trim().to_owned());
                args
            }
            _ => serde_json::from_str(&typed)
                .map_err(|error| Error::unacceptable("bad_args", format!("the arguments are no JSON: {error}")))?,
        };
        Ok((args != asked.args).then_some(args))
    }

    /// The amount as a grant of the limit that is reached.
    fn grant(&self, asked: &Approval) -> Result<TaskLimits> {
        let bad = || Error::unacceptable("bad_grant", "how much more is a number above 0");
        let amount: f64 = self.amount.trim().trim_start_matches('$').replace(',', ".").parse().map_err(|_| bad())?;
        if !amount.is_finite() || amount <= 0.0 {
            return Err(bad());
        }
        let whole = || serde_json::from_value::<u32>(Value::from(amount.ceil() as u64)).map_err(|_| bad());
        let none = TaskLimits::default();
        Ok(match asked.limit.as_ref().map(|limit| limit.name.as_str()) {
            Some("costUsd") => TaskLimits { cost_usd: Some(amount), ..none },
            Some("tokens") => TaskLimits { tokens: Some(amount.ceil() as u64), ..none },
            Some("steps") => TaskLimits { steps: Some(whole()?), ..none },
            Some("minutes") => TaskLimits { minutes: Some(whole()?), ..none },
            _ => TaskLimits { tool_calls: Some(whole()?), ..none },
        })
    }

    /// What was typed, to be shown again.
    fn refused(&self, message: String) -> RefusedDecision {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        RefusedDecision {
            why: format!("Not done: {message}."),
            note: self.note.clone(),
            rule: given(&self.rule),
            scope: Some(self.scope),
            args: given(&self.args),
            reply: self.reply.clone(),
            amount: self.amount.clone(),
            asks_reason: false,
        }
    }
}
