//! Teams, the people in them, and the credentials they hold.

use protocol::{Instant, InvitationId, OperatorId, TeamId, TokenId};

crate::words! {
    /// What a member or token may do; each includes the ones before it.
    Role {
        Viewer = "viewer",
        Operator = "operator",
        Admin = "admin",
        Owner = "owner",
    }
}

/// The tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    pub id: TeamId,
    /// In addresses: lower-case letters, digits and hyphens.
    pub slug: String,
    pub name: String,
    pub claimed_at: Option<Instant>,
    pub suspended_at: Option<Instant>,
    /// Milliseconds of silence after which a task is declared lost; 0 never.
    pub lost_after_ms: i64,
    pub retention_days: i64,
    pub created_at: Instant,
}

/// A person with an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    pub id: OperatorId,
    pub email: String,
    pub name: String,
    /// `system`, `light` or `dark`.
    pub theme: String,
    pub disabled_at: Option<Instant>,
    pub created_at: Instant,
}

/// An operator in a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub operator: Operator,
    pub role: Role,
    pub since: Instant,
}

/// An invitation: a link that makes its bearer a member, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invitation {
    pub id: InvitationId,
    pub email: String,
    pub role: Role,
    pub invited_by: String,
    pub created_at: Instant,
    pub expires_at: Instant,
    pub used_at: Option<Instant>,
    pub revoked_at: Option<Instant>,
}

/// An API token; the secret itself is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    pub role: Role,
    pub created_by: String,
    pub created_at: Instant,
    pub seen_at: Option<Instant>,
    pub revoked_at: Option<Instant>,
}
