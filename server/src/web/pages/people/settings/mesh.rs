//! What the team lets its agents ask of each other.

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use protocol::mesh::{MAX_CHILDREN_PER_TASK, MAX_TREE_CHILDREN, MAX_TREE_DEPTH};
use serde::Deserialize;

use super::Tabs;
use crate::{
    actions::{
        VersionedChange,
        mesh_settings::{self, MeshChange},
    },
    db,
    domain::{MeshSettings, Role},
    error::Error,
    state::Board,
    web::{
        AsAdmin, AsViewer, Caller, Rejection, html_with, respond, urls,
        view::{PageLocation, Shell, filters},
    },
};

#[derive(Template)]
#[template(path = "people/settings/mesh.html")]
struct Page {
    shell: Shell,
    tabs: Tabs,
    typed: MeshForm,
    is_admin: bool,
    error: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct MeshForm {
    /// Absent when it is not ticked.
    across_vibers: Option<String>,
    #[serde(default)]
    max_depth: u32,
    #[serde(default)]
    max_children: u32,
    /// The version that the form was made of.
    #[serde(default)]
    version: u64,
}

impl From<MeshSettings> for MeshForm {
    fn from(settings: MeshSettings) -> Self {
        let MeshSettings { across_vibers, max_depth, max_children, version } = settings;
        Self { across_vibers: across_vibers.then(|| "yes".to_owned()), max_depth, max_children, version }
    }
}

impl Page {
    fn depth_bound(&self) -> u32 {
        MAX_TREE_DEPTH
    }

    fn children_bound(&self) -> u32 {
        MAX_CHILDREN_PER_TASK
    }

    fn tree_bound(&self) -> u32 {
        MAX_TREE_CHILDREN
    }
}

async fn show(
    board: &Board,
    caller: &Caller,
    typed: Option<MeshForm>,
    refused: Option<(StatusCode, String)>,
) -> Result<Response, Rejection> {
    let settings = db::mesh_settings::load(&mut board.db.reader_of(&caller.team.id).await?).await?;
    let (status, error) = refused.map_or((StatusCode::OK, None), |(status, error)| (status, Some(error)));
    let typed = typed.map(|typed| MeshForm { version: settings.version, ..typed });
    let page = Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Settings),
        tabs: Tabs::new(caller, "mesh"),
        typed: typed.unwrap_or_else(|| settings.into()),
        is_admin: caller.role >= Role::Admin,
        error,
    };
    html_with(status, &page)
}

/// `GET /t/{team}/settings/mesh`
pub(super) async fn page(State(board): State<Board>, caller: AsViewer) -> Result<Response, Rejection> {
    show(&board, &caller, None, None).await
}

/// `POST /t/{team}/settings/mesh`
pub(super) async fn update(
    State(board): State<Board>,
    caller: AsAdmin,
    Form(typed): Form<MeshForm>,
) -> Result<Response, Rejection> {
    let wanted = MeshChange {
        across_vibers: Some(typed.across_vibers.is_some()),
        max_depth: Some(typed.max_depth),
        max_children: Some(typed.max_children),
    };
    let refused = match mesh_settings::change(&board, &caller.team.id, &caller.by, wanted, Some(typed.version)).await {
        Ok(VersionedChange::Made(_)) => {
            return Ok(Redirect::to(&urls::settings_page(&caller.team.slug, "mesh")).into_response());
        }
        Ok(VersionedChange::Stale(_)) => {
            (StatusCode::CONFLICT, "Somebody else changed this meanwhile: saving replaces what is there now".to_owned())
        }
        Err(error @ Error::Unacceptable { .. }) => (respond::status(&error), error.to_string()),
        Err(error) => return Err(error.into()),
    };
    show(&board, &caller, Some(typed), Some(refused)).await
}
