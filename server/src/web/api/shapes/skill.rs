//! Skills as the API shows them: of the library, and of vibers.

use protocol::{Instant, RolloutId, SkillId, SkillInfo};
use serde::Serialize;
use utoipa::ToSchema;

use crate::domain::{
    self, LibrarySkill, OrderState, RolloutCounts, RolloutState, SkillContents, SkillOp, SkillOrder, SkillOrigin,
    SkillReviewState, SkillRollout,
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
    pub state: OrderState,
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
            op: order.subject.op,
            name: order.name,
            digest: order.subject.digest,
            version: order.subject.version,
            agents: order.subject.agents,
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

/// A rollout of a version, label by label.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SkillRollout)]
pub struct RolloutResource {
    pub id: RolloutId,
    /// The version, which may be deleted meanwhile.
    pub skill_id: SkillId,
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub digest: String,
    /// Each as `key=value`, in their order.
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    pub state: RolloutState,
    /// The label that it is at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The id and name of whoever began it.
    pub begun_by: String,
    pub beginner: String,
    pub begun_at: Instant,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Instant>,
}

impl From<SkillRollout> for RolloutResource {
    fn from(rollout: SkillRollout) -> Self {
        Self {
            label: rollout.label().map(str::to_owned),
            id: rollout.id,
            skill_id: rollout.skill_id,
            name: rollout.name,
            version: rollout.version,
            digest: rollout.digest,
            labels: rollout.labels,
            agents: rollout.agents,
            state: rollout.state,
            why: rollout.why,
            begun_by: rollout.begun_by,
            beginner: rollout.beginner,
            begun_at: rollout.begun_at,
            ended_at: rollout.ended_at,
        }
    }
}

/// A rollout with what came of it so far.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SkillRolloutWithProgress)]
pub struct WholeRolloutResource {
    #[serde(flatten)]
    pub rollout: RolloutResource,
    /// For each of its labels.
    pub progress: Vec<RolloutLabelResource>,
}

/// How many vibers of a label have what was ordered. One that has an earlier label, too, is counted there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SkillRolloutLabel)]
pub struct RolloutLabelResource {
    pub label: String,
    /// It reported success.
    pub done: u64,
    /// It reported a failure, or the order was withdrawn.
    pub failed: u64,
    /// It has not answered.
    pub queued: u64,
}

impl WholeRolloutResource {
    /// A rollout with the counts of its labels, by their places.
    pub fn of(rollout: SkillRollout, counts: &[(u64, RolloutCounts)]) -> Self {
        let labels = rollout.labels.iter().zip(0_u64..);
        let progress = labels.map(|(label, stage)| {
            let found = counts.iter().find(|(known, _)| *known == stage);
            let RolloutCounts { done, failed, queued } = found.map(|(_, counts)| *counts).unwrap_or_default();
            RolloutLabelResource { label: label.clone(), done, failed, queued }
        });
        Self { progress: progress.collect(), rollout: rollout.into() }
    }
}
