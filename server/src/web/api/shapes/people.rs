//! Members, invitations, tokens and the audit as the API shows them.

use protocol::{Instant, InvitationId, OperatorId, TokenId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{db::audit::SealedEntry, domain};

/// An operator in the team.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Member)]
pub struct MemberResource {
    pub id: OperatorId,
    pub name: String,
    pub email: String,
    pub role: domain::Role,
    /// May not sign in.
    pub disabled: bool,
    pub created_at: Instant,
}

impl From<domain::Member> for MemberResource {
    fn from(member: domain::Member) -> Self {
        Self {
            id: member.operator.id,
            name: member.operator.name,
            email: member.operator.email,
            role: member.role,
            disabled: member.operator.disabled_at.is_some(),
            created_at: member.since,
        }
    }
}

/// A link that makes its bearer a member, once. Only the response to its creation contains the link.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Invitation)]
pub struct InvitationResource {
    pub id: InvitationId,
    /// Empty when anyone with the link may accept it.
    pub email: String,
    pub role: domain::Role,
    pub invited_by: String,
    pub created_at: Instant,
    pub expires_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Instant>,
}

impl From<domain::Invitation> for InvitationResource {
    fn from(invitation: domain::Invitation) -> Self {
        Self {
            id: invitation.id,
            email: invitation.email,
            role: invitation.role,
            invited_by: invitation.invited_by,
            created_at: invitation.created_at,
            expires_at: invitation.expires_at,
            used_at: invitation.used_at,
            revoked_at: invitation.revoked_at,
        }
    }
}

/// An API token. Only the response to its creation contains the secret.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Token)]
pub struct TokenResource {
    pub id: TokenId,
    pub name: String,
    pub role: domain::Role,
    pub created_by: String,
    pub created_at: Instant,
    /// Last use, to the minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seen_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Instant>,
}

impl From<domain::Token> for TokenResource {
    fn from(token: domain::Token) -> Self {
        Self {
            id: token.id,
            name: token.name,
            role: token.role,
            created_by: token.created_by,
            created_at: token.created_at,
            seen_at: token.seen_at,
            revoked_at: token.revoked_at,
        }
    }
}

/// One row of the audit: who did what, from where, on what.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// The number of the row in the team: 1, 2, …
    pub seq: u64,
    pub at: Instant,
    /// The id of the operator, token or viber, or `console` or `board`.
    pub actor: String,
    pub actor_name: String,
    pub address: String,
    pub action: String,
    pub object: String,
    pub detail: String,
    /// SHA-256 of the object before and after the change, empty where there was none.
    pub before_hash: String,
    pub after_hash: String,
    /// The hash of the previous row; `hash` covers it.
    pub prev_hash: String,
    pub hash: String,
}

impl From<SealedEntry> for AuditEntry {
    fn from(entry: SealedEntry) -> Self {
        Self {
            seq: entry.seq,
            at: entry.at,
            actor: entry.actor,
            actor_name: entry.actor_name,
            address: entry.address,
            action: entry.action,
            object: entry.object,
            detail: entry.detail,
            before_hash: entry.before_hash,
            after_hash: entry.after_hash,
            prev_hash: entry.prev_hash,
            hash: entry.hash,
        }
    }
}
