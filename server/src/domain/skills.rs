//! Skills as a team's library has them: archives that somebody else made, taken apart in memory, named by their digest and
//! looked through for what a person should see before they approve them.
//!
//! An archive that is odd in any way is refused whole, nothing of a skill is run, and what is found in it are hints, no verdict.

mod archive;
mod bundle;
mod canonical;
mod changes;
mod findings;
mod intake;
mod invisible;
mod main_file;
mod permissions;
mod text;

pub use self::{
    bundle::{BadBundle, SkillBundle, SkillFile, SkillFileMode},
    canonical::range_in_tar,
    changes::{PermissionChanges, SkillDiff, SkillFileChange, SkillFileChangeKind},
    findings::{FindingKind, SkillFinding},
    invisible::{is_invisible, marked},
    permissions::{SkillNetwork, SkillPermissions},
};

#[cfg(test)]
mod tests;
