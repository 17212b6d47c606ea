//! A team's library of skills, and what people order of the skills of vibers.

use protocol::{Instant, SkillId, ViberId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::skills::{SkillBundle, SkillFile, SkillFinding, SkillPermissions};

crate::words! {
    /// Where a skill of a library comes from.
    SkillOrigin {
        /// Somebody uploaded it.
        Upload = "upload",
        /// The registry that the administrator named.
        Clawhub = "clawhub",
        /// The files of a viber.
        Viber = "viber",
    }
}

crate::words! {
    /// Whether a skill may be installed.
    SkillReviewState {
        Unreviewed = "unreviewed",
        Approved = "approved",
        Rejected = "rejected",
    }
}

crate::words! {
    /// What is ordered of a skill of a viber.
    SkillOp {
        /// Put it into the home, or another version in its place.
        Install = "install",
        Remove = "remove",
        /// Let its files be used as they are now.
        Accept = "accept",
        /// Offer it to other agents.
        Enable = "enable",
    }
}

crate::words! {
    /// What came of an order.
    SkillOrderState {
        /// The viber has not answered.
        Queued = "queued",
        Done = "done",
        Failed = "failed",
    }
}

/// One version of a skill in a library. It never changes, but for its review.
#[derive(Clone, Debug, PartialEq)]
pub struct LibrarySkill {
    pub id: SkillId,
    pub name: String,
    pub description: String,
    pub version: Option<String>,
    pub origin: SkillOrigin,
    /// What it is called there: `slug@version`, or the viber's id.
    pub reference: Option<String>,
    /// Of its files, as vibers report it.
    pub digest: String,
    /// SHA-256 of the blob with its files.
    pub archive: String,
    /// Of its files together, bytes.
    pub size: u64,
    pub findings: u64,
    pub review: SkillReview,
    /// Who added it: an operator or a token, and the name then.
    pub added_by: String,
    pub adder: String,
    pub added_at: Instant,
}

/// What people decided about a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillReview {
    pub state: SkillReviewState,
    /// Who, and when; absent while nobody has decided.
    pub by: Option<String>,
    pub reviewer: Option<String>,
    pub at: Option<Instant>,
    pub note: String,
}

/// What is in a version, for whoever reviews it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillContents {
    pub files: Vec<SkillFile>,
    pub permissions: SkillPermissions,
    /// Hints, no verdict.
    pub findings: Vec<SkillFinding>,
    /// What of its text is not used, and why.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl From<&SkillBundle> for SkillContents {
    fn from(bundle: &SkillBundle) -> Self {
        Self {
            files: bundle.files(),
            permissions: bundle.permissions(),
            findings: bundle.findings(),
            warnings: bundle.warnings.clone(),
        }
    }
}

/// Something that people ordered of a skill of a viber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillOrder {
    pub viber_id: ViberId,
    pub cmd_seq: u64,
    pub op: SkillOp,
    pub name: String,
    pub digest: Option<String>,
    pub version: Option<String>,
    pub agents: Option<Vec<String>>,
    pub state: SkillOrderState,
    /// Why it failed, in the viber's words.
    pub error: Option<String>,
    pub ordered_by: String,
    pub orderer: String,
    pub ordered_at: Instant,
    pub ended_at: Option<Instant>,
}
