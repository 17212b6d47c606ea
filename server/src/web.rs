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
pub use pages::accounts;
use pages::settings;
pub use respond::stream;
use respond::{blobs, content};
pub use view::markdown;

use axum::Router;

pub use extract::{AsAdmin, AsOperator, AsOwner, AsViewer, Caller, SignedIn};
pub use respond::{Rejection, html, html_with};
pub use stream::revoked;

use crate::{error::Error, state::Board};

/// Everything this Board answers to.
pub fn router(board: Board) -> Router {
    let (calls, uploads) = api::routes(&board);
    let large = blobs::routes().merge(uploads).merge(pages::uploads());
    let routes = Router::new()
        .merge(accounts::routes())
        .merge(calls)
        .merge(assets::routes())
        .merge(health::routes())
        .merge(install::routes())
        .merge(pages::routes())
        .merge(settings::routes())
        .merge(daemon::routes())
        .fallback(async || Rejection(Error::NotFound))
        .method_not_allowed_fallback(async || axum::http::StatusCode::METHOD_NOT_ALLOWED);
    layers::around(routes, large, &board).with_state(board)
}
