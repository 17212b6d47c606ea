//! The files of a skill as a page shows them: the tree and one of them, exactly, whole or against another version; what stands
//! out in them, and what they may do.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{
    permissions::PermissionsView,
    text::{FileRows, TextPlace, no_text},
    tree::{FileTree, changed_paths},
};
use crate::domain::{
    SkillContents,
    skills::{
        FindingKind, SkillBundle, SkillDiff, SkillFileChange, SkillFileChangeKind, SkillFinding, SkillPermissions,
        marked,
    },
};

/// Text of a finding that the page shows, bytes.
const MAX_FINDING_BYTES: usize = 160;

/// The addresses of a page that shows the files of a skill.
pub trait SkillFileLinks {
    /// The page with these parameters, keeping what else it was asked for.
    fn link(&self, parameters: &[(&str, &str)]) -> String;

    fn file_link(&self, path: &str) -> String {
        format!("{}#files", self.link(&[("file", path)]))
    }

    fn view_link(&self, file: &SkillFileView, view: &str) -> String {
        format!("{}#files", self.link(&[("file", &file.path), ("view", view)]))
    }

    fn part_link(&self, file: &SkillFileView, at: &usize) -> String {
        format!("{}#files", self.link(&[("file", &file.path), ("view", "whole"), ("at", &at.to_string())]))
    }

    fn begin_link(&self, file: &SkillFileView) -> String {
        format!("{}#files", self.link(&[("file", &file.path), ("view", "whole")]))
    }

    fn shown_file<'f>(&self, files: &'f SkillFilesView) -> &'f SkillFileView {
        &files.file
    }

    fn tree_link(&self, before: &usize) -> String {
        format!("{}#files", self.link(&[("files", &before.to_string())]))
    }
}

/// Which of the files a page shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SkillReviewQuery {
    /// The version that this one is compared with.
    #[serde(default)]
    pub from: String,
    #[serde(default)]
    pub file: String,
    /// `diff` or `whole`; by itself what the file asks for.
    #[serde(default)]
    pub view: String,
    /// Where in the file to begin, bytes.
    #[serde(default)]
    pub at: usize,
    pub line: Option<usize>,
    /// How many files of the tree come before.
    #[serde(default)]
    pub files: usize,
    /// Orders that were just given, as `orders::told` names them.
    #[serde(default)]
    pub ordered: String,
}

/// A finding with where it is.
pub struct FindingView {
    pub icon: &'static str,
    pub label: &'static str,
    pub place: String,
    pub href: String,
    pub text: String,
}

impl FindingView {
    /// A finding on a page that `link` leads to, with parameters and a place in it.
    pub fn of(finding: &SkillFinding, link: impl Fn(&[(&str, &str)], &str) -> String) -> Self {
        let line = if finding.line == 0 { String::new() } else { finding.line.to_string() };
        let place = if line.is_empty() { "files".to_owned() } else { format!("L{line}") };
        Self {
            icon: finding_icon(finding.kind),
            label: finding.kind.label(),
            place: if line.is_empty() { marked(&finding.path) } else { format!("{}:{line}", marked(&finding.path)) },
            href: link(&[("file", finding.path.as_str()), ("view", "whole"), ("line", line.as_str())], &place),
            text: protocol::text::head(&finding.text, MAX_FINDING_BYTES).to_owned(),
        }
    }
}

fn finding_icon(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Secrets => "key",
        FindingKind::Privilege => "lock",
        FindingKind::Network => "external",
        FindingKind::Binary => "file",
        FindingKind::Invisible => "unknown",
        _ => "note",
    }
}

/// The file that is shown.
pub struct SkillFileView {
    pub path: String,
    pub facts: String,
    pub is_diff: bool,
    pub rows: FileRows,
    /// Why there are no rows.
    pub trouble: Option<String>,
    /// What was found in the file as a whole.
    pub notes: Vec<String>,
}

/// The files, and one of them.
pub struct SkillFilesView {
    pub tree: FileTree,
    pub file: SkillFileView,
}

/// What a page shows of a bundle, against an older one and what that may do. Takes time in proportion to their size.
pub fn compare(
    (new, contents): (&SkillBundle, &SkillContents),
    old: Option<(&SkillBundle, &SkillPermissions)>,
    asked: &SkillReviewQuery,
) -> (PermissionsView, SkillFilesView) {
    let now = &contents.permissions;
    let diff = old.map(|(old, before)| SkillDiff::between((old, before), (new, now)));
    let permissions = PermissionsView::of(now, diff.as_ref().map(|diff| &diff.permissions));
    let changes = diff.as_ref().map(|diff| diff.files.as_slice());
    let compared = Compared { new, old: old.map(|(old, _)| old), changes };
    (permissions, look(&compared, contents, asked))
}

/// A version, and the one before.
struct Compared<'b> {
    new: &'b SkillBundle,
    old: Option<&'b SkillBundle>,
    changes: Option<&'b [SkillFileChange]>,
}

/// The tree and the file that was asked for; by itself the one with the most serious finding, of those that changed if some did.
fn look(of: &Compared<'_>, contents: &SkillContents, asked: &SkillReviewQuery) -> SkillFilesView {
    let paths = changed_paths(&contents.files, of.changes);
    let is_there = |path: &str| paths.iter().any(|(there, _)| there == path);
    let mut changed = paths.iter().filter(|(_, change)| matches!(*change, "changed" | "new" | "removed"));
    let those: BTreeSet<&str> = changed.clone().map(|(path, _)| path.as_str()).collect();
    let is_meant = |path: &str| those.is_empty() || those.contains(path);
    let findings = contents.findings.iter().filter(|finding| is_meant(&finding.path));
    let serious = findings.min_by_key(|finding| finding.kind).map(|finding| finding.path.as_str());
    let path = match is_there(&asked.file) {
        true => asked.file.as_str(),
        false => serious.or(changed.next().map(|(path, _)| path.as_str())).unwrap_or(&of.new.main),
    };
    let change = of.changes.and_then(|changes| changes.iter().find(|change| change.path == path));
    let tree = FileTree::of(&paths, path, &contents.findings, asked.files);
    SkillFilesView { tree, file: file(of, (path, change), contents, asked) }
}

fn file(
    of: &Compared<'_>,
    (path, change): (&str, Option<&SkillFileChange>),
    contents: &SkillContents,
    asked: &SkillReviewQuery,
) -> SkillFileView {
    let findings: Vec<&SkillFinding> = contents.findings.iter().filter(|finding| finding.path == path).collect();
    let listed = contents.files.iter().find(|file| file.path == path);
    let mut facts = listed
        .map(|file| format!("mode {}, {}", file.mode, crate::domain::size_words(file.size)))
        .unwrap_or_else(|| "removed".to_owned());
    if let Some(SkillFileChange { old_mode: Some(old), new_mode: Some(new), .. }) = change
        && old != new
    {
        facts = format!("{facts}, mode {old} before");
    }
    let is_removed = change.is_some_and(|change| change.change == SkillFileChangeKind::Removed);
    let differs = change.is_some_and(|change| change.change != SkillFileChangeKind::Same);
    // A whole file is shown part by part, however large it is.
    let is_large = |bundle: &SkillBundle| bundle.text(path).is_none() && bundle.whole_text(path).is_some();
    let is_incomparable = is_large(of.new) || of.old.is_some_and(is_large);
    let is_wanted = (change.is_some() && asked.view == "diff") || (differs && asked.view != "whole");
    let is_diff = is_removed || (is_wanted && !is_incomparable);
    let mut view = SkillFileView {
        path: path.to_owned(),
        facts,
        is_diff,
        rows: FileRows::default(),
        trouble: None,
        notes: findings.iter().filter(|finding| finding.line == 0).map(|finding| finding.text.clone()).collect(),
    };
    let old = of.old.and_then(|old| old.bytes(path).map(|bytes| (old.text(path), bytes)));
    let new = of.new.bytes(path).map(|bytes| (of.new.whole_text(path), bytes));
    if is_incomparable && differs && !is_removed {
        view.notes.push("It differs, and is too large to be compared: this is all of it.".to_owned());
    }
    match (is_diff, old, new) {
        (true, Some((None, bytes)), None) | (_, _, Some((None, bytes))) => view.trouble = Some(no_text(bytes)),
        (true, old, new) => {
            let text = |side: Option<(Option<&str>, &[u8])>| side.and_then(|(text, _)| text).unwrap_or("").to_owned();
            view.rows = FileRows::between(&text(old), &text(new), &findings);
            if old.is_some_and(|(text, _)| text.is_none()) {
                view.notes.push("The version before is not text: all lines count as new.".to_owned());
            }
        }
        (false, _, Some((Some(text), _))) => {
            view.rows = FileRows::whole(text, TextPlace { at: asked.at, line: asked.line }, &findings);
        }
        (false, _, None) => view.trouble = Some("This version does not have it.".to_owned()),
    }
    view
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::skills::SkillFileMode;

    fn bundle(script: &str) -> SkillBundle {
        let file = |path: &str, text: &str| (path.to_owned(), SkillFileMode::Plain, text.as_bytes().to_vec());
        let main = "---\nname: notes\ndescription: Keeps notes\n---\nBody\n";
        SkillBundle::from_files([file("SKILL.md", main), file("run.sh", script)]).expect("a skill")
    }

    #[test]
    fn a_script_is_shown_however_large_it_is() {
        let (old, new) = (bundle("exit\n"), bundle(&format!("{}curl evil\n", "# nothing\n".repeat(200_000))));
        let contents = SkillContents::from(&new);
        let diff = SkillDiff::between((&old, &contents.permissions), (&new, &contents.permissions));
        let of = Compared { new: &new, old: Some(&old), changes: Some(&diff.files) };
        for view in ["", "diff", "whole"] {
            let (file, view) = ("run.sh".to_owned(), view.to_owned());
            let asked = SkillReviewQuery { file, view, line: Some(200_001), ..SkillReviewQuery::default() };
            let shown = look(&of, &contents, &asked).file;
            assert!(shown.trouble.is_none() && !shown.is_diff && shown.notes.len() == 1, "{:?}", shown.notes);
            assert!(shown.rows.rows.iter().any(|row| row.new == Some(200_001)), "{}", asked.view);
        }
        let small = SkillReviewQuery { file: "SKILL.md".to_owned(), ..SkillReviewQuery::default() };
        assert!(look(&of, &contents, &small).file.notes.is_empty());
    }
}
