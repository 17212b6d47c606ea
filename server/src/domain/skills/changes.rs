//! What differs between two versions of a skill: permissions first, then files.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::{
    bundle::{BundledFile, SkillBundle, SkillFileMode},
    permissions::SkillPermissions,
    text,
};

crate::words! {
    /// What became of a file.
    SkillFileChangeKind {
        Same = "same",
        Added = "added",
        Removed = "removed",
        /// Its bytes or its mode.
        Changed = "changed",
    }
}

/// One file in two versions. The difference of its texts is made of [`SkillBundle::text`] of both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFileChange {
    pub path: String,
    pub change: SkillFileChangeKind,
    /// Absent if it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old_mode: Option<SkillFileMode>,
    /// Absent if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_mode: Option<SkillFileMode>,
    /// Whether it can be shown as text in each version that has it.
    pub text: bool,
}

/// What one version may do and the other may not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionChanges {
    pub added: SkillPermissions,
    pub removed: SkillPermissions,
}

/// What differs between two versions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillDiff {
    pub permissions: PermissionChanges,
    /// The files of both, sorted by path.
    pub files: Vec<SkillFileChange>,
}

impl SkillDiff {
    /// From one version to another, each with its permissions: finding those out takes far longer than this does.
    pub fn between(
        (old, before): (&SkillBundle, &SkillPermissions),
        (new, now): (&SkillBundle, &SkillPermissions),
    ) -> Self {
        let mut both: BTreeMap<&str, (Option<&BundledFile>, Option<&BundledFile>)> = BTreeMap::new();
        for file in &old.files {
            both.entry(&file.path).or_default().0 = Some(file);
        }
        for file in &new.files {
            both.entry(&file.path).or_default().1 = Some(file);
        }
        let files = both.into_iter().map(|(path, (old, new))| change(path, old, new)).collect();
        let permissions = PermissionChanges { added: now.without(before), removed: before.without(now) };
        Self { permissions, files }
    }
}

fn change(path: &str, old: Option<&BundledFile>, new: Option<&BundledFile>) -> SkillFileChange {
    let change = match (old, new) {
        (None, _) => SkillFileChangeKind::Added,
        (_, None) => SkillFileChangeKind::Removed,
        (Some(old), Some(new)) if old.sha256 == new.sha256 && old.mode == new.mode => SkillFileChangeKind::Same,
        _ => SkillFileChangeKind::Changed,
    };
    SkillFileChange {
        path: path.to_owned(),
        change,
        old_mode: old.map(|file| file.mode),
        new_mode: new.map(|file| file.mode),
        text: [old, new].into_iter().flatten().all(|file| text::shown(&file.bytes).is_some()),
    }
}
