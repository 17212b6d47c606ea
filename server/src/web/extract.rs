//! Authority is an extractor: a handler that takes `AsOperator` runs only for somebody who may operate in that team.
//!
//! `AsViewer`, `AsOperator`, `AsAdmin`, `AsOwner` need a team: the one in a page's path, an API token's, or the one
//! that `X-Team` names beside a cookie. A team one is not in does not exist. `SignedIn` needs none.

pub mod cookie;
pub(super) mod identity;
mod path;
pub(super) mod refused_upgrades;
mod rotation;

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use axum::{
    extract::{FromRequestParts, MatchedPath, OptionalFromRequestParts},
    http::{Method, request::Parts},
};
use protocol::OperatorId;

pub use path::{Id, Ids};

use super::{layers, respond::Rejection, urls};
use crate::{
    actions::{members::Requester, refusals},
    domain::{Actor, By, Login, Operator, Role, Team, Token},
    error::Error,
    state::Board,
};

/// The caller: who they are, their team and their role.
#[derive(Clone, Debug)]
pub struct Caller {
    pub team: Team,
    pub by: By,
    pub role: Role,
    /// `None` for an API token.
    pub operator: Option<Operator>,
    credential: Credential,
}

/// Where an extractor leaves the caller whom it let into a team, for the form of a refusal.
#[derive(Clone, Debug, Default)]
pub struct Admitted(Arc<OnceLock<Caller>>);

impl Admitted {
    fn set(&self, caller: &Caller) {
        // The first one: a request has one team.
        let _ = self.0.set(caller.clone());
    }

    /// The caller, if there is one.
    pub fn caller(&self) -> Option<&Caller> {
        self.0.get()
    }
}

#[derive(Clone, Debug)]
enum Credential {
    Login(Arc<(Login, Operator)>),
    /// The hash of its secret.
    Token(String),
}

impl Caller {
    /// The caller with their role, for actions that depend on it.
    pub fn maker(&self) -> Requester<'_> {
        Requester { by: &self.by, role: self.role }
    }

    /// The person who reads, if it is one: what was seen is noted for each person.
    pub fn reader(&self) -> Option<&OperatorId> {
        self.operator.as_ref().map(|operator| &operator.id)
    }

    /// Whether the credential still opens this team in the same role, at most two seconds old. Long answers ask
    /// repeatedly.
    pub async fn still(&self, board: &Board) -> bool {
        let found = match &self.credential {
            Credential::Login(login) => match identity::login(board, &login.0.id).await {
                Ok(Some(login)) => {
                    let member = identity::member(board, &login.1.id, &self.team.slug).await;
                    member.map(|found| found.is_some_and(|found| is_active(&found.0) && found.1 == self.role))
                }
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            },
            Credential::Token(hash) => identity::token(board, hash).await.map(|t| t.is_some_and(|t| is_active(&t.0))),
        };
        // A database that does not answer revokes nobody.
        found.unwrap_or(true)
    }

    async fn find(parts: &mut Parts, board: &Board) -> Result<Self, Error> {
        let path = parts.uri.path();
        let (api, mcp) = (path.starts_with("/api/"), path == urls::MCP);
        if (api || mcp)
            && let Some(secret) = identity::bearer(&parts.headers)?
        {
            let hash = crate::secret::hash(secret);
            let found = identity::token(board, &hash).await?.ok_or(Error::Unauthenticated)?;
            return Self::token(&found, hash, address(parts));
        }
        if mcp {
            // No client of that protocol has a login, and no page is one.
            return Err(Error::Unauthenticated);
        }
        let login = identity::signed_in(parts, board).await?;
        let slug = identity::slug(parts).await?;
        let found = identity::member(board, &login.1.id, &slug).await?.ok_or(Error::NotFound)?;
        let (team, role) = (&found.0, found.1);
        open(team)?;
        let caller = Self {
            team: team.clone(),
            by: By { actor: actor(&login), address: address(parts) },
            role,
            operator: Some(login.1.clone()),
            credential: Credential::Login(login),
        };
        if let Some(admitted) = parts.extensions.get::<Admitted>() {
            admitted.set(&caller);
        }
        Ok(caller)
    }

    fn token(found: &(Team, Token), hash: String, address: String) -> Result<Self, Error> {
        let (team, token) = found;
        open(team)?;
        let actor = Actor::Token { id: token.id.clone(), name: token.name.clone() };
        Ok(Self {
            team: team.clone(),
            by: By { actor, address },
            role: token.role,
            operator: None,
            credential: Credential::Token(hash),
        })
    }

    /// Refuses a role that is too low, and leaves a trace of who tried what (`object`) to change something.
    pub async fn require(&self, role: Role, board: &Board, object: &str) -> Result<(), Error> {
        if self.role >= role {
            return Ok(());
        }
        let detail = format!("{} needs {role}", self.role);
        refusals::note(board, &self.team.id, &self.by, object, &detail).await?;
        Err(too_low(role))
    }

    /// The same for a request: one that only reads leaves no trace.
    async fn at_least(self, role: Role, parts: &Parts, board: &Board) -> Result<Self, Error> {
        if self.role >= role {
            return Ok(self);
        }
        if parts.method == Method::GET {
            return Err(too_low(role));
        }
        let route = parts.extensions.get::<MatchedPath>().map_or("-", MatchedPath::as_str);
        let object = format!("{} {route}", parts.method);
        self.require(role, board, &object).await?;
        Ok(self)
    }
}

fn too_low(role: Role) -> Error {
    Error::Forbidden(match role {
        Role::Viewer => "you need to be a member of this team",
        Role::Operator => "viewers have read access only; ask an admin of the team for the role operator",
        Role::Admin => "this needs the role admin in the team",
        Role::Owner => "this needs the role owner in the team",
    })
}

fn is_active(team: &Team) -> bool {
    team.suspended_at.is_none()
}

fn open(team: &Team) -> Result<(), Error> {
    if !is_active(team) { Err(Error::Forbidden("this team is suspended")) } else { Ok(()) }
}

fn actor(login: &(Login, Operator)) -> Actor {
    Actor::Operator { id: login.1.id.clone(), name: login.1.name.clone(), login: login.0.id.clone() }
}

/// The sender's address, as the layers found it.
pub fn address(parts: &Parts) -> String {
    parts.extensions.get::<layers::ClientAddress>().map_or_else(String::new, |address| address.0.clone())
}

macro_rules! roles {
    ($($(#[$doc:meta])* $name:ident = $role:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name(pub Caller);

        impl Deref for $name {
            type Target = Caller;

            fn deref(&self) -> &Caller {
                &self.0
            }
        }

        impl FromRequestParts<Board> for $name {
            type Rejection = Rejection;

            async fn from_request_parts(parts: &mut Parts, board: &Board) -> Result<Self, Rejection> {
                let caller = Caller::find(parts, board).await?;
                Ok(Self(caller.at_least(Role::$role, parts, board).await?))
            }
        }
    )*};
}

roles! {
    /// May look.
    AsViewer = Viewer;
    /// May give work and step in.
    AsOperator = Operator;
    /// May change vibers, members and tokens.
    AsAdmin = Admin;
    /// May change owners and the team itself.
    AsOwner = Owner;
}

/// An operator with a good login, in whatever teams.
#[derive(Clone, Debug)]
pub struct SignedIn {
    pub operator: Operator,
    pub login: Login,
    pub by: By,
}

impl FromRequestParts<Board> for SignedIn {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, board: &Board) -> Result<Self, Rejection> {
        let found = identity::signed_in(parts, board).await?;
        let by = By { actor: actor(&found), address: address(parts) };
        Ok(Self { operator: found.1.clone(), login: found.0.clone(), by })
    }
}

impl OptionalFromRequestParts<Board> for SignedIn {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, board: &Board) -> Result<Option<Self>, Rejection> {
        match <Self as FromRequestParts<Board>>::from_request_parts(parts, board).await {
            Ok(signed_in) => Ok(Some(signed_in)),
            Err(Rejection(Error::Unauthenticated)) => Ok(None),
            Err(rejection) => Err(rejection),
        }
    }
}

/// The browser and address of somebody who is about to sign in.
#[derive(Clone, Debug)]
pub struct Device {
    pub user_agent: String,
    pub address: String,
}

impl<S: Sync> FromRequestParts<S> for Device {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let agent = parts.headers.get(axum::http::header::USER_AGENT).and_then(|value| value.to_str().ok());
        let user_agent = agent.unwrap_or("").chars().take(300).collect();
        Ok(Self { user_agent, address: address(parts) })
    }
}
