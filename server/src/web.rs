//! Pages, fragments, the JSON API and the daemons' endpoints: everything that speaks HTTP.

pub mod api;
pub mod assets;
pub mod authority;
pub mod daemon;
pub mod extract;
pub mod health;
pub mod layers;
pub mod pages;
pub mod respond;
pub mod socket;
pub mod urls;
pub mod view;

pub use daemon::install;
pub use extract::cookie;
use layers::api_limits::ApiLimits;
pub use pages::accounts;
use pages::settings;
pub use respond::stream;
use respond::{blobs, content};
pub use view::markdown;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{FromRequestParts as _, State},
    http::{Method, request::Parts},
};

pub use extract::{AsAdmin, AsOperator, AsOwner, AsViewer, Caller, SignedIn};
pub use respond::{Rejection, html, html_with};
pub use stream::revoked;

use crate::{error::Error, state::Board};

/// Everything this Board answers to.
pub fn router(board: Board) -> Router {
    let limits = Arc::<ApiLimits>::default();
    let (calls, uploads) = api::routes(&board, limits.clone());
    let large = blobs::routes().merge(uploads).merge(pages::uploads());
    let routes = Router::new()
        .merge(accounts::routes())
        .merge(calls)
        .merge(assets::routes())
        .merge(health::routes())
        .merge(install::routes())
        .merge(pages::routes().route_layer(Extension(limits)))
        .merge(settings::routes())
        .merge(daemon::routes())
        .fallback(unknown)
        .method_not_allowed_fallback(async || axum::http::StatusCode::METHOD_NOT_ALLOWED);
    layers::around(routes, large, &board).with_state(board)
}

/// What no route answers to. A member of the team in the path sees it within the team's frame.
async fn unknown(State(board): State<Board>, mut parts: Parts) -> Rejection {
    if parts.method == Method::GET && parts.uri.path().starts_with("/t/") {
        // Whoever it is, the answer is the same; the refusal's form depends on it.
        let _ = AsViewer::from_request_parts(&mut parts, &board).await;
    }
    Rejection(Error::NotFound)
}
