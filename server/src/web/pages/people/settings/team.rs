//! The team itself: name, address, when tasks of offline vibers are lost, how long events and artifacts are kept, and
//! how large artifacts may be.

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use super::Tabs;
use crate::{
    actions::{tasks::compact, teams},
    db,
    domain::{Role, StorageUse, Team, context::compaction::OFFERED_PERCENTS},
    error::Error,
    state::Board,
    web::{
        AsOwner, AsViewer, Caller, Rejection, html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

#[derive(Template)]
#[template(path = "people/settings/team.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    owner: bool,
    typed: TeamForm,
    bounds: ArtifactLimitsForm,
    /// From which share on conversations are compacted by themselves, percent; 0: never.
    compact_at: u64,
    storage: StorageUse,
    engine: &'static str,
    error: Option<String>,
}

/// How long artifacts are kept, and how large one may be.
#[derive(Clone, Deserialize)]
pub(super) struct ArtifactLimitsForm {
    artifact_days: String,
    artifact_mib: String,
}

#[derive(Clone, Deserialize)]
pub(super) struct TeamForm {
    name: String,
    slug: String,
    lost_after_minutes: String,
    retention_days: String,
}

async fn show(
    board: &Board,
    caller: &Caller,
    typed: Option<TeamForm>,
    bounds: Option<ArtifactLimitsForm>,
    error: Option<Error>,
) -> Result<Response, Rejection> {
    let (storage, kept, compact_at) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        (
            db::usage::load(&mut tx).await?,
            db::blobs::bounds(&mut tx).await?,
            db::messages::summaries::team_percent(&mut tx).await?,
        )
    };
    let kept = kept.ok_or(Error::NotFound)?;
    let kept = || ArtifactLimitsForm {
        artifact_days: kept.days.to_string(),
        artifact_mib: (kept.bytes / (1024 * 1024)).to_string(),
    };
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "team"),
        owner: caller.role == Role::Owner,
        typed: typed.unwrap_or_else(|| TeamForm::of(&caller.team)),
        bounds: bounds.unwrap_or_else(kept),
        compact_at,
        storage: storage.ok_or(Error::NotFound)?,
        engine: if board.db.is_sqlite() { "SQLite" } else { "PostgreSQL" },
        error: error.as_ref().map(ToString::to_string),
    };
    html_with(error.as_ref().map_or(axum::http::StatusCode::OK, respond::status), &page)
}

/// As it is.
pub(super) async fn page(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    show(&board, &caller, None, None, None).await
}

impl Page {
    fn percents(&self) -> &'static [u64] {
        &OFFERED_PERCENTS
    }
}

impl TeamForm {
    fn of(team: &Team) -> Self {
        Self {
            name: team.name.clone(),
            slug: team.slug.clone(),
            lost_after_minutes: (team.lost_after_ms / 60_000).to_string(),
            retention_days: team.retention_days.to_string(),
        }
    }
}

/// A number that somebody typed.
fn number<T: std::str::FromStr>(text: &str, what: &str) -> Result<T, Error> {
    text.trim().parse().map_err(|_| Error::unacceptable("bad_number", format!("{what} has to be a whole number.")))
}

/// Changes how long artifacts are kept, and how large one may be.
pub(super) async fn bound_artifacts(
    State(board): State<Board>,
    caller: AsOwner,
    Form(typed): Form<ArtifactLimitsForm>,
) -> Result<Response, Rejection> {
    let bounds = |typed: &ArtifactLimitsForm| {
        let mib: u64 = number(&typed.artifact_mib, "The size of an artifact")?;
        let bytes = mib.saturating_mul(1024 * 1024);
        Ok(db::blobs::ArtifactLimits { days: number(&typed.artifact_days, "The number of days")?, bytes })
    };
    let outcome = match bounds(&typed) {
        Ok(bounds) => teams::bound_artifacts(&board, &caller.by, &caller.team, bounds).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => Ok(Redirect::to(&urls::settings(&caller.team.slug)).into_response()),
        Err(error @ Error::Unacceptable { .. }) => show(&board, &caller, None, Some(typed), Some(error)).await,
        Err(error) => Err(error.into()),
    }
}

/// When conversations are compacted by themselves.
#[derive(Deserialize)]
pub(super) struct CompactionForm {
    /// Percent; 0: never.
    compact_at: u64,
}

/// Chooses when conversations are compacted by themselves that say nothing else.
pub(super) async fn choose_compaction(
    State(board): State<Board>,
    caller: AsOwner,
    Form(chosen): Form<CompactionForm>,
) -> Result<Response, Rejection> {
    match compact::set_team_percent(&board, &caller.by, &caller.team, chosen.compact_at).await {
        Ok(()) => Ok(Redirect::to(&urls::settings(&caller.team.slug)).into_response()),
        Err(error @ Error::Unacceptable { .. }) => show(&board, &caller, None, None, Some(error)).await,
        Err(error) => Err(error.into()),
    }
}

/// Changes it; the address may be another one afterwards.
pub(super) async fn update(
    State(board): State<Board>,
    caller: AsOwner,
    Form(typed): Form<TeamForm>,
) -> Result<Response, Rejection> {
    let change = |typed: &TeamForm| {
        Ok(teams::TeamSettings {
            slug: typed.slug.trim().to_owned(),
            name: typed.name.clone(),
            lost_after_minutes: number(&typed.lost_after_minutes, "The time until a task is lost")?,
            retention_days: number(&typed.retention_days, "The number of days")?,
        })
    };
    let outcome = match change(&typed) {
        Ok(change) => teams::update(&board, &caller.by, &caller.team, change).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(team) => Ok(Redirect::to(&urls::settings(&team.slug)).into_response()),
        Err(error @ Error::Unacceptable { .. }) => show(&board, &caller, Some(typed), None, Some(error)).await,
        Err(error) => Err(error.into()),
    }
}
