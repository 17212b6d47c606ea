//! A team's library of skills, and what vibers have of it.

use std::ops::Range;

use protocol::{Instant, SkillCheck, SkillId, SkillInfo, SkillSource, SkillState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::{
    NamedViber,
    skills::{SkillBundle, SkillFile, SkillFinding, SkillPermissions, range_in_tar},
};

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

/// As much of a version as says what the files on a viber are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillVersion {
    pub id: SkillId,
    pub name: String,
    pub version: Option<String>,
    pub digest: String,
    pub state: SkillReviewState,
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
    /// Lines with findings beyond these, for which there is no room.
    #[serde(default)]
    pub omitted_findings: u64,
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
            omitted_findings: bundle.omitted_findings(),
            warnings: bundle.warnings.clone(),
        }
    }
}

impl SkillContents {
    /// The file at `path`, and where its bytes are in the archive of the version.
    pub fn place(&self, path: &str) -> Option<(&SkillFile, Range<u64>)> {
        self.files.iter().find(|file| file.path == path).zip(range_in_tar(&self.files, path))
    }
}

/// As much of what a viber reported of a skill as says how it stands to the library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HeldSkill {
    pub name: String,
    pub source: SkillSource,
    /// Empty where the viber has too many skills to report it.
    pub digest: String,
    pub state: SkillState,
    pub checks: Vec<SkillCheck>,
    pub calls: u64,
}

impl HeldSkill {
    /// Whether the library put it there.
    pub fn is_installed(&self) -> bool {
        matches!(self.source.kind.as_str(), "library" | "clawhub")
    }
}

impl From<&SkillInfo> for HeldSkill {
    fn from(info: &SkillInfo) -> Self {
        Self {
            name: info.name.clone(),
            source: info.source.clone(),
            digest: info.digest.clone(),
            state: info.state,
            checks: info.checks.clone(),
            calls: info.calls,
        }
    }
}

/// A viber with its skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillHolder {
    pub viber: NamedViber,
    pub skills: Vec<HeldSkill>,
}

/// An installation that its viber has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedInstall {
    pub viber: NamedViber,
    pub name: String,
    pub digest: Option<String>,
    pub version: Option<String>,
}
