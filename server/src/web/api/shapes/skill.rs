//! Skills as the API shows them: of the library, and of vibers.

use protocol::{Instant, SkillId, SkillInfo};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    self, LibrarySkill, SkillContents, SkillOp, SkillOrder, SkillOrderState, SkillOrigin, SkillReviewState,
};

/// One version of a skill in the team's library.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Skill)]
pub struct SkillResource {
    pub id: SkillId,
    pub name: String,
    pub description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub source: SkillSourceResource,
    /// SHA-256 over the sorted lines `path NUL mode NUL sha256 LF` of its files.
    pub digest: String,
    /// Of its files together, bytes.
    pub size: u64,
    /// How many findings there are.
    pub finding_count: u64,
    pub state: SkillReviewState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<SkillReviewResource>,
    /// The id and name of whoever added it.
    pub added_by: String,
    pub adder: String,
    pub added_at: Instant,
}

/// Where a version comes from.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LibrarySource)]
pub struct SkillSourceResource {
    pub kind: SkillOrigin,
    /// `slug@version` of the registry, or the id of the viber.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What a person decided about a version.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SkillReviewDecision)]
pub struct SkillReviewResource {
    pub by: String,
    /// Their name then.
    pub reviewer: String,
    pub at: Instant,
    pub note: String,
}

impl From<LibrarySkill> for SkillResource {
    fn from(skill: LibrarySkill) -> Self {
        let domain::SkillReview { state, by, reviewer, at, note } = skill.review;
        let review = by.zip(reviewer).zip(at);
        Self {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            version: skill.version,
            source: SkillSourceResource { kind: skill.origin, reference: skill.reference },
            digest: skill.digest,
            size: skill.size,
            finding_count: skill.findings,
            state,
            review: review.map(|((by, reviewer), at)| SkillReviewResource { by, reviewer, at, note }),
            added_by: skill.added_by,
            adder: skill.adder,
            added_at: skill.added_at,
        }
    }
}

/// A version with its files, what it declares and needs, and what stands out in it.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SkillWithContents)]
pub struct WholeSkillResource {
    #[serde(flatten)]
    pub skill: SkillResource,
    #[serde(flatten)]
    pub contents: SkillContents,
}

/// What was ordered of a skill of a viber.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SkillOrder)]
pub struct SkillOrderResource {
    pub op: SkillOp,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// `queued` until the viber has answered.
    pub state: SkillOrderState,
    /// Why it failed, in the viber's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub ordered_by: String,
    pub orderer: String,
    pub ordered_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

impl From<SkillOrder> for SkillOrderResource {
    fn from(order: SkillOrder) -> Self {
        Self {
            op: order.op,
            name: order.name,
            digest: order.digest,
            version: order.version,
            agents: order.agents,
            state: order.state,
            error: order.error,
            ordered_by: order.ordered_by,
            orderer: order.orderer,
            ordered_at: order.ordered_at,
            ended_at: order.ended_at,
        }
    }
}

/// The skills of a viber as it reports them, and the newest orders.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ViberSkills)]
pub struct ViberSkillsResource {
    pub items: Vec<SkillInfo>,
    /// What was ordered of them, the newest first.
    pub orders: Vec<SkillOrderResource>,
}
