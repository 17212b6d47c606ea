//! The files of a version as a tree: what became of each since another version, and how much was found in it.

use std::collections::BTreeMap;

use crate::domain::skills::{SkillFile, SkillFileChange, SkillFileChangeKind, SkillFinding, marked};

/// Files that are shown at once.
const MAX_FILES: usize = 200;

/// A folder, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// Absent: a folder.
    pub path: Option<String>,
    pub name: String,
    /// Within a folder.
    pub is_inside: bool,
    pub is_current: bool,
    pub findings: usize,
    /// What became of it.
    pub change: &'static str,
}

/// The part of the tree that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTree {
    pub rows: Vec<TreeRow>,
    /// Files before and after the shown part.
    pub before: usize,
    pub after: usize,
    /// How many files before the next, and before the previous part.
    pub next: usize,
    pub previous: usize,
}

/// A path, with what became of it.
pub type ChangedPath = (String, &'static str);

/// Each path with what became of it, sorted.
pub fn changed_paths(files: &[SkillFile], changes: Option<&[SkillFileChange]>) -> Vec<ChangedPath> {
    match changes {
        Some(changes) => changes.iter().map(|file| (file.path.clone(), word(file.change))).collect(),
        None => files.iter().map(|file| (file.path.clone(), "")).collect(),
    }
}

fn word(change: SkillFileChangeKind) -> &'static str {
    match change {
        SkillFileChangeKind::Same => "same",
        SkillFileChangeKind::Added => "new",
        SkillFileChangeKind::Removed => "removed",
        SkillFileChangeKind::Changed => "changed",
    }
}

impl FileTree {
    /// The files from the `from`th on.
    pub fn of(paths: &[ChangedPath], current: &str, findings: &[SkillFinding], from: usize) -> Self {
        let mut found: BTreeMap<&str, usize> = BTreeMap::new();
        findings.iter().for_each(|finding| *found.entry(&finding.path).or_default() += 1);
        let from = from.min(paths.len());
        let shown = paths.iter().skip(from).take(MAX_FILES);
        let mut rows = Vec::new();
        let mut folder = "";
        for (path, change) in shown {
            let (inside, name) = path.rsplit_once('/').unwrap_or(("", path));
            if inside != folder && !inside.is_empty() {
                rows.push(TreeRow {
                    path: None,
                    name: marked(inside),
                    is_inside: false,
                    is_current: false,
                    findings: 0,
                    change: "",
                });
            }
            folder = inside;
            rows.push(TreeRow {
                path: Some(path.clone()),
                name: marked(name),
                is_inside: !inside.is_empty(),
                is_current: path == current,
                findings: found.get(path.as_str()).copied().unwrap_or(0),
                change,
            });
        }
        Self {
            rows,
            before: from,
            after: paths.len().saturating_sub(from + MAX_FILES),
            next: from + MAX_FILES,
            previous: from.saturating_sub(MAX_FILES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_stand_above_what_they_hold() {
        let paths: Vec<ChangedPath> =
            ["LICENSE", "scripts/a.sh", "scripts/b.sh"].map(|path| (path.to_owned(), "same")).into();
        let tree = FileTree::of(&paths, "scripts/b.sh", &[], 0);
        let rows: Vec<_> = tree.rows.iter().map(|row| (row.name.as_str(), row.is_inside, row.is_current)).collect();
        let expected =
            [("LICENSE", false, false), ("scripts", false, false), ("a.sh", true, false), ("b.sh", true, true)];
        assert_eq!(rows, expected);
        let many: Vec<ChangedPath> = (0..450).map(|n| (format!("{n:03}"), "")).collect();
        let tree = FileTree::of(&many, "", &[], 200);
        assert_eq!((tree.rows.len(), tree.before, tree.after, tree.next, tree.previous), (200, 200, 50, 400, 0));
    }
}
