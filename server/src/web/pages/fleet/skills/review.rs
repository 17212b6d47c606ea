//! The review of one version: what it may do, every file exactly, what stands out, and what can be decided about it.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{SkillId, ViberId};
use serde::Deserialize;

use super::{
    permissions::PermissionsView,
    places::SkillPlacement,
    surroundings::Surroundings,
    text::{FileRows, LinePiece, TextPlace, no_text},
    tree::{FileTree, changed_paths},
    words,
};
use crate::{
    actions::skills,
    domain::{
        LibrarySkill, Role, SkillContents, SkillOrderState, SkillReviewState,
        skills::{FindingKind, SkillBundle, SkillDiff, SkillFileChange, SkillFileChangeKind, SkillFinding, marked},
    },
    error::{Error, Result},
    state::Board,
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        html, urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Vibers that one form installs on.
pub const MAX_TARGETS: usize = 200;
/// Text of a finding that the page shows, bytes.
const MAX_FINDING_BYTES: usize = 160;

/// What the page shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SkillReviewQuery {
    /// The version that this one is compared with.
    #[serde(default)]
    from: String,
    #[serde(default)]
    file: String,
    /// `diff` or `whole`; by itself what the file asks for.
    #[serde(default)]
    view: String,
    /// Where in the file to begin, bytes.
    #[serde(default)]
    at: usize,
    line: Option<usize>,
    /// How many files of the tree come before.
    #[serde(default)]
    files: usize,
}

/// What somebody just sent, and what came of it.
#[derive(Default)]
pub struct ReviewOutcome {
    pub decide_error: Option<String>,
    pub note: String,
    pub install_error: Option<String>,
    pub label: String,
    pub agents: String,
    pub orders: Vec<OrderOutcome>,
}

/// What came of an order for one viber.
#[derive(Clone, Debug)]
pub struct OrderOutcome {
    pub viber: String,
    pub href: String,
    /// `Err`: it was not ordered, or the viber refused it, with the reason.
    pub result: std::result::Result<SkillOrderState, String>,
}

impl OrderOutcome {
    pub(super) fn badge(&self) -> Badge {
        match self.result {
            Ok(SkillOrderState::Queued) => Badge { state: "pending", icon: "pending", word: "Queued" },
            Ok(_) => Badge { state: "done", icon: "done", word: "Done" },
            Err(_) => Badge { state: "failed", icon: "failed", word: "Refused" },
        }
    }

    pub(super) fn words(&self) -> &str {
        match &self.result {
            Ok(SkillOrderState::Queued) => "it is installed when the viber answers",
            Ok(_) => "the viber has it",
            Err(reason) => reason,
        }
    }
}

/// A finding with where it is.
struct FindingView {
    icon: &'static str,
    label: &'static str,
    place: String,
    href: String,
    text: String,
}

/// Another version of the name.
struct VersionLine {
    skill: LibrarySkill,
    badge: Badge,
    version: String,
    digest: String,
    href: String,
    /// This version against it.
    compare: String,
    is_this: bool,
    /// Vibers that have these files.
    on: usize,
}

impl VersionLine {
    fn places(&self) -> String {
        match self.on {
            0 => "on no viber".to_owned(),
            n => format!("on {}", words::count(n, "viber", "vibers")),
        }
    }
}

/// A viber that it can be installed on.
struct InstallChoice {
    viber: ViberId,
    name: String,
    has: String,
    is_away: bool,
}

/// The file that is shown.
struct FileView {
    path: String,
    facts: String,
    is_diff: bool,
    rows: FileRows,
    /// Why there are no rows.
    trouble: Option<String>,
    /// What was found in the file as a whole.
    notes: Vec<String>,
}

/// The files, and one of them.
struct FilesView {
    tree: FileTree,
    file: FileView,
}

/// The page.
#[derive(Template)]
#[template(path = "fleet/skills/show.html")]
pub struct Page {
    shell: Shell,
    slug: String,
    skill: LibrarySkill,
    contents: SkillContents,
    badge: Badge,
    origin: String,
    /// What it is compared with.
    base: Option<LibrarySkill>,
    permissions: PermissionsView,
    files: Option<FilesView>,
    /// Why there are no files.
    trouble: Option<&'static str>,
    findings: Vec<FindingView>,
    history: Vec<VersionLine>,
    choices: Vec<InstallChoice>,
    more_choices: u64,
    said: ReviewOutcome,
    is_admin: bool,
}

impl Page {
    fn version(&self) -> String {
        words::version(self.skill.version.as_deref(), &self.skill.digest)
    }

    fn base_version(&self) -> String {
        self.base.as_ref().map(|base| words::version(base.version.as_deref(), &base.digest)).unwrap_or_default()
    }

    fn verb(&self, verb: &str) -> String {
        urls::skill_verb(&self.slug, &self.skill.id, verb)
    }

    fn is_approved(&self) -> bool {
        self.skill.review.state == SkillReviewState::Approved
    }

    /// The page with a file, keeping what it is compared with.
    fn link(&self, parameters: &[(&str, &str)]) -> String {
        let from = self.base.as_ref().map(|base| base.id.to_string()).unwrap_or_default();
        let mut all = vec![("from", from.as_str())];
        all.extend(parameters);
        urls::skill_with(&self.slug, &self.skill.id, &all)
    }

    fn file_link(&self, path: &str) -> String {
        format!("{}#files", self.link(&[("file", path)]))
    }

    fn view_link(&self, file: &FileView, view: &str) -> String {
        format!("{}#files", self.link(&[("file", &file.path), ("view", view)]))
    }

    fn part_link(&self, file: &FileView, at: &usize) -> String {
        format!("{}#files", self.link(&[("file", &file.path), ("view", "whole"), ("at", &at.to_string())]))
    }

    fn begin_link(&self, file: &FileView) -> String {
        format!("{}#files", self.link(&[("file", &file.path), ("view", "whole")]))
    }

    fn shown_file<'f>(&self, files: &'f FilesView) -> &'f FileView {
        &files.file
    }

    fn tree_link(&self, before: &usize) -> String {
        format!("{}#files", self.link(&[("files", &before.to_string())]))
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

/// `GET /t/{team}/skills/{id}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SkillId>,
    Query(asked): Query<SkillReviewQuery>,
) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, &id, asked, ReviewOutcome::default()).await?)
}

/// The bundle of a version; `Err` says why the store does not have it any more.
async fn stored(board: &Board, caller: &Caller, skill: &LibrarySkill) -> Result<Result<SkillBundle, &'static str>> {
    match skills::bundle(board, &caller.team.id, skill).await {
        Ok(bundle) => Ok(Ok(bundle)),
        Err(Error::Gone(why)) => Ok(Err(why)),
        Err(error) => Err(error),
    }
}

pub async fn page(
    board: &Board,
    caller: &Caller,
    id: &SkillId,
    asked: SkillReviewQuery,
    said: ReviewOutcome,
) -> Result<Page> {
    let (skill, contents) = skills::with_contents(board, &caller.team.id, id).await?;
    let shell = Shell::load(board, caller).await?.at(PageLocation::Skills);
    let around = Surroundings::load(board, caller, &skill, &asked.from).await?;
    let turn = skills::turn().await?;
    let new = stored(board, caller, &skill).await?;
    let old = match &around.base {
        Some((base, before)) if new.is_ok() => {
            stored(board, caller, base).await?.ok().map(|old| (old, before.permissions.clone()))
        }
        _ => None,
    };
    let base = around.base.map(|(base, _)| base).filter(|_| old.is_some());
    let trouble = new.as_ref().err().copied();
    let listed = contents.clone();
    let work = tokio::task::spawn_blocking(move || {
        let now = &listed.permissions;
        let Ok(new) = new else { return (PermissionsView::of(now, None), None) };
        let diff = old.as_ref().map(|(old, before)| SkillDiff::between((old, before), (&new, now)));
        let permissions = PermissionsView::of(now, diff.as_ref().map(|diff| &diff.permissions));
        let changes = diff.as_ref().map(|diff| diff.files.as_slice());
        let compared = Compared { new: &new, old: old.as_ref().map(|(old, _)| old), changes };
        (permissions, Some(look(&compared, &listed, &asked)))
    });
    let (permissions, files) = work.await.map_err(|error| Error::Internal(error.to_string()))?;
    drop(turn);
    let slug = caller.team.slug.clone();
    let there: BTreeMap<&ViberId, &SkillPlacement> =
        around.placements.iter().map(|place| (&place.viber.id, place)).collect();
    let choices = around.choices.iter().map(|viber| InstallChoice {
        viber: viber.id.clone(),
        name: viber.name.clone(),
        has: there.get(&viber.id).map_or_else(|| "does not have it".to_owned(), |place| format!("has {}", place.words)),
        is_away: !viber.is_connected,
    });
    let history = around.history.iter().map(|other| version_line(&slug, other, &skill, &around.placements));
    Ok(Page {
        shell,
        badge: words::review_badge(skill.review.state),
        origin: words::origin(&skill, around.giver.as_deref()),
        permissions,
        files,
        trouble,
        findings: contents.findings.iter().map(|finding| finding_view(&slug, &skill, base.as_ref(), finding)).collect(),
        history: history.collect(),
        more_choices: around.choice_count.saturating_sub(around.choices.len() as u64),
        choices: choices.collect(),
        said,
        is_admin: caller.role >= Role::Admin,
        base,
        contents,
        skill,
        slug,
    })
}

fn version_line(slug: &str, other: &LibrarySkill, this: &LibrarySkill, placements: &[SkillPlacement]) -> VersionLine {
    VersionLine {
        badge: words::review_badge(other.review.state),
        version: words::version(other.version.as_deref(), &other.digest),
        digest: words::short_digest(&other.digest, 2),
        href: urls::skill(slug, &other.id),
        compare: urls::skill_with(slug, &this.id, &[("from", other.id.as_str())]),
        is_this: other.id == this.id,
        on: placements.iter().filter(|place| place.digest == other.digest).count(),
        skill: other.clone(),
    }
}

fn finding_view(slug: &str, skill: &LibrarySkill, base: Option<&LibrarySkill>, finding: &SkillFinding) -> FindingView {
    let name = finding.path.rsplit('/').next().unwrap_or_default();
    let line = if finding.line == 0 { String::new() } else { finding.line.to_string() };
    let from = base.map(|base| base.id.to_string()).unwrap_or_default();
    let parameters = [("from", from.as_str()), ("file", &finding.path), ("view", "whole"), ("line", &line)];
    let place = if line.is_empty() { "files".to_owned() } else { format!("L{line}") };
    FindingView {
        icon: finding_icon(finding.kind),
        label: finding.kind.label(),
        place: if line.is_empty() { marked(name) } else { format!("{}:{line}", marked(name)) },
        href: format!("{}#{place}", urls::skill_with(slug, &skill.id, &parameters)),
        text: protocol::text::head(&finding.text, MAX_FINDING_BYTES).to_owned(),
    }
}

/// A version, and the one before.
struct Compared<'b> {
    new: &'b SkillBundle,
    old: Option<&'b SkillBundle>,
    changes: Option<&'b [SkillFileChange]>,
}

/// The tree and the file that was asked for; by itself the one with the most serious finding, else the first that changed.
fn look(of: &Compared<'_>, contents: &SkillContents, asked: &SkillReviewQuery) -> FilesView {
    let paths = changed_paths(&contents.files, of.changes);
    let is_there = |path: &str| paths.iter().any(|(there, _)| there == path);
    let serious = contents.findings.iter().min_by_key(|finding| finding.kind).map(|finding| finding.path.as_str());
    let changed = paths.iter().find(|(_, change)| matches!(*change, "changed" | "new" | "removed"));
    let path = match is_there(&asked.file) {
        true => asked.file.as_str(),
        false => serious.or(changed.map(|(path, _)| path.as_str())).unwrap_or(&of.new.main),
    };
    let change = of.changes.and_then(|changes| changes.iter().find(|change| change.path == path));
    let tree = FileTree::of(&paths, path, &contents.findings, asked.files);
    FilesView { tree, file: file(of, (path, change), contents, asked) }
}

fn file(
    of: &Compared<'_>,
    (path, change): (&str, Option<&SkillFileChange>),
    contents: &SkillContents,
    asked: &SkillReviewQuery,
) -> FileView {
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
    let mut view = FileView {
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
