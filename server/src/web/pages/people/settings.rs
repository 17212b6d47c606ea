//! A team's settings: the team itself, members, invitations, API tokens, connected tools, the audit.

mod approvals;
mod audit;
mod audit_words;
mod connect;
mod invitations;
mod members;
mod mesh;
mod prices;
mod team;
mod tokens;

use std::collections::HashMap;

use axum::{
    Router,
    routing::{get, post},
};

use crate::{
    db,
    domain::{Role, Word as _},
    error::Result,
    state::Board,
    web::{Caller, urls},
};

/// The settings' routes.
pub fn routes() -> Router<Board> {
    Router::new()
        .route("/t/{team}/settings", get(team::page).post(team::update))
        .route("/t/{team}/settings/artifacts", post(team::bound_artifacts))
        .route("/t/{team}/settings/context", post(team::choose_compaction))
        .route("/t/{team}/settings/leave", post(members::leave))
        .route("/t/{team}/settings/members", get(members::page))
        .route("/t/{team}/settings/members/{id}/role", post(members::set_role))
        .route("/t/{team}/settings/members/{id}/remove", post(members::remove))
        .route("/t/{team}/settings/invitations", get(invitations::page).post(invitations::invite))
        .route("/t/{team}/settings/invitations/{id}/revoke", post(invitations::revoke))
        .route("/t/{team}/settings/tokens", get(tokens::page).post(tokens::create))
        .route("/t/{team}/settings/tokens/{id}/revoke", post(tokens::revoke))
        .route("/t/{team}/settings/connect", get(connect::page).post(connect::create))
        .route("/t/{team}/settings/approvals", get(approvals::page).post(approvals::update))
        .route("/t/{team}/settings/prices", get(prices::page).post(prices::update))
        .route("/t/{team}/settings/mesh", get(mesh::page).post(mesh::update))
        .route("/t/{team}/settings/audit", get(audit::page))
}

/// The links over each of the pages.
struct Tabs {
    slug: String,
    here: &'static str,
    admin: bool,
}

impl Tabs {
    fn new(caller: &Caller, here: &'static str) -> Self {
        Self { slug: caller.team.slug.clone(), here, admin: caller.role >= Role::Admin }
    }

    /// Address, title, whether one is there.
    fn all(&self) -> Vec<(String, &'static str, bool)> {
        let link = |(page, title)| (urls::settings_page(&self.slug, page), title, self.here == page);
        let team = (urls::settings(&self.slug), "Team", self.here == "team");
        std::iter::once(team).chain(pages(self.admin).map(link)).collect()
    }
}

/// The pages beside that of the team: how the address calls each, and its title.
pub(in crate::web::pages) fn pages(is_admin: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
    let pages = [
        ("members", "Members"),
        ("approvals", "Approvals"),
        ("prices", "Prices"),
        ("mesh", "Mesh"),
        ("invitations", "Invitations"),
        ("tokens", "API tokens"),
        ("connect", "Connect a tool"),
        ("audit", "Audit"),
    ];
    let is_for_all = |page: &str| matches!(page, "members" | "approvals" | "prices" | "mesh" | "connect");
    pages.into_iter().filter(move |(page, _)| is_admin || is_for_all(page))
}

/// The roles somebody may give, the lowest first.
fn roles_up_to(role: Role) -> Vec<Role> {
    Role::ALL.iter().copied().filter(|given| *given <= role).collect()
}

/// The names behind the ids of who made something.
struct Names(HashMap<String, String>);

impl Names {
    async fn load(board: &Board, caller: &Caller) -> Result<Self> {
        let members = db::members::list(&mut board.db.reader_of(&caller.team.id).await?).await?;
        Ok(Self(members.into_iter().map(|member| (member.operator.id.to_string(), member.operator.name)).collect()))
    }

    /// The name, or what kind of actor it was.
    fn of(&self, id: &str) -> String {
        match id {
            "console" => "Console".to_owned(),
            "board" => "Board".to_owned(),
            id if id.starts_with("tok_") => "an API token".to_owned(),
            id => self.0.get(id).cloned().unwrap_or_else(|| "a former member".to_owned()),
        }
    }
}
