//! What people do with a run and its steps. A refusal is said where something was asked, and what was typed stays.

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::RunId;
use serde::Deserialize;

use super::{
    run::{self, RefusedVerb},
    steps::RefusedStep,
};
use crate::{
    actions::playbooks::{self, GateDecision},
    db,
    domain::{PlaybookRun, Role, StepPhase},
    error::{Error, Result},
    state::Board,
    web::{
        AsOperator, Rejection,
        extract::{Caller, Id, Ids},
        html, html_with,
        pages::skills::refusal,
        urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Asks for confirmation before a run is stopped.
#[derive(Template)]
#[template(path = "work/playbooks/stop.html")]
struct Confirm {
    shell: Shell,
    slug: String,
    run: PlaybookRun,
    /// Steps that run.
    running: usize,
}

/// `GET /t/{team}/playbook-runs/{id}/stop`. Of a run that has ended there is nothing to ask: its page says so.
pub async fn confirm_stop(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<RunId>,
) -> Result<Response, Rejection> {
    let (run, steps) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let run = db::playbook_runs::load(&mut tx, &id).await?.ok_or(Error::NotFound)?;
        (run, db::playbook_runs::steps(&mut tx, &id).await?)
    };
    let slug = caller.team.slug.clone();
    if run.state.is_final() {
        return Ok(Redirect::to(&urls::playbook_run(&slug, &id)).into_response());
    }
    let running = steps.iter().filter(|step| step.phase == StepPhase::Running).count();
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Playbooks).still();
    Ok(html(&Confirm { shell, slug, run, running })?.into_response())
}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        pub async fn $name(
            State(board): State<Board>,
            caller: AsOperator,
            Id(id): Id<RunId>,
        ) -> Result<Response, Rejection> {
            let done = playbooks::$name(&board, &caller.team.id, &caller.by, &id).await;
            answer(&board, &caller, &id, done.map(drop), RefusedVerb::default()).await
        }
    )*};
}

verbs! {
    /// `POST /t/{team}/playbook-runs/{id}/stop`
    stop;
    /// `POST /t/{team}/playbook-runs/{id}/pause`
    pause;
    /// `POST /t/{team}/playbook-runs/{id}/resume`
    resume;
}

/// The run's page, at the step that it was about; with why nothing was done.
async fn answer(
    board: &Board,
    caller: &Caller,
    id: &RunId,
    done: Result<()>,
    typed: RefusedVerb,
) -> Result<Response, Rejection> {
    let slug = &caller.team.slug;
    match done {
        Ok(()) => {
            let to = match &typed.step {
                Some(label) => urls::playbook_step(slug, id, label),
                None => urls::playbook_run(slug, id),
            };
            Ok(Redirect::to(&to).into_response())
        }
        Err(error) => {
            let (status, why) = refusal(error)?;
            let refused = RefusedVerb { said: RefusedStep { why, ..typed.said }, ..typed };
            html_with(status, &run::page(board, caller, id, Some(refused)).await?)
        }
    }
}

/// `POST /t/{team}/playbook-runs/{id}/steps/{label}/retry`
pub async fn retry(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, label)): Ids<(RunId, String)>,
) -> Result<Response, Rejection> {
    let done = playbooks::retry_step(&board, &caller.team.id, &caller.by, (&id, label.as_str()), None).await;
    answer(&board, &caller, &id, done.map(drop), RefusedVerb { step: Some(label), ..RefusedVerb::default() }).await
}

/// Why a step is left out.
#[derive(Debug, Deserialize)]
pub struct SkipStepForm {
    #[serde(default)]
    reason: String,
}

/// `POST /t/{team}/playbook-runs/{id}/steps/{label}/skip`
pub async fn skip(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, label)): Ids<(RunId, String)>,
    Form(form): Form<SkipStepForm>,
) -> Result<Response, Rejection> {
    let done = playbooks::skip_step(&board, &caller.team.id, caller.maker(), (&id, label.as_str()), &form.reason).await;
    let said = RefusedStep { reason: form.reason, ..RefusedStep::default() };
    answer(&board, &caller, &id, done.map(drop), RefusedVerb { step: Some(label), said }).await
}

/// A decision about a gate.
#[derive(Debug, Deserialize)]
pub struct GateForm {
    /// Of what was seen.
    #[serde(default)]
    digest: String,
    #[serde(default)]
    note: String,
    /// Why an owner decides who otherwise may not.
    #[serde(default)]
    reason: String,
}

/// `POST /t/{team}/playbook-runs/{id}/steps/{label}/allow`
pub async fn allow(
    state: State<Board>,
    caller: AsOperator,
    step: Ids<(RunId, String)>,
    Form(form): Form<GateForm>,
) -> Result<Response, Rejection> {
    decide(state, caller, step, (true, form)).await
}

/// `POST /t/{team}/playbook-runs/{id}/steps/{label}/deny`
pub async fn deny(
    state: State<Board>,
    caller: AsOperator,
    step: Ids<(RunId, String)>,
    Form(form): Form<GateForm>,
) -> Result<Response, Rejection> {
    decide(state, caller, step, (false, form)).await
}

async fn decide(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, label)): Ids<(RunId, String)>,
    (allow, form): (bool, GateForm),
) -> Result<Response, Rejection> {
    let GateForm { digest, note, reason } = form;
    let decision = GateDecision { allow, digest, note: Some(note.clone()), reason: Some(reason.clone()) };
    let step = (&id, label.as_str());
    let done = playbooks::decide_gate(&board, &caller.team.id, caller.maker(), step, decision).await;
    let asks_reason = caller.role == Role::Owner && matches!(done, Err(Error::Forbidden(_)));
    let said = RefusedStep { note, because: reason, asks_reason, ..RefusedStep::default() };
    answer(&board, &caller, &id, done.map(drop), RefusedVerb { step: Some(label), said }).await
}
