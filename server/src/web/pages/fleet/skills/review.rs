//! The review of one version: what it may do, every file exactly, what stands out, and what can be decided about it.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{SKILLS_CAPABILITY, SkillId, ViberId};
use serde::Deserialize;

use super::{
    permissions::PermissionsView,
    places::SkillPlaces,
    text::{FileRows, LinePiece, TextPlace, no_text},
    tree::{FileTree, changed_paths},
    words,
};
use crate::{
    actions::skills,
    domain::{
        ContactState, LibrarySkill, Role, SkillContents, SkillOrderState, SkillReviewState,
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

/// Versions that the history shows.
const MAX_HISTORY: usize = 50;
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
    more_choices: usize,
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
    let _turn = skills::turn().await?;
    let places = SkillPlaces::load(board, &caller.team.id).await?;
    let versions: Vec<&LibrarySkill> = places.versions.iter().filter(|other| other.name == skill.name).collect();
    let named: Option<SkillId> = asked.from.parse().ok();
    let named = versions.iter().find(|other| Some(&other.id) == named.as_ref() && other.id != skill.id);
    let is_approved = |other: &&&LibrarySkill| other.id != skill.id && other.review.state == SkillReviewState::Approved;
    let base = named.or_else(|| versions.iter().find(is_approved)).map(|base| (*base).clone());
    let new = stored(board, caller, &skill).await?;
    let old = match &base {
        Some(base) if new.is_ok() => stored(board, caller, base).await?.ok(),
        _ => None,
    };
    let base = base.filter(|_| old.is_some());
    let trouble = new.as_ref().err().copied();
    let listed = contents.clone();
    let work = tokio::task::spawn_blocking(move || {
        let Ok(new) = new else { return (PermissionsView::of(&listed.permissions, None), None) };
        let diff = old.as_ref().map(|old| SkillDiff::between(old, &new));
        let permissions = PermissionsView::of(&listed.permissions, diff.as_ref().map(|diff| &diff.permissions));
        let changes = diff.as_ref().map(|diff| diff.files.as_slice());
        (permissions, Some(look(&Compared { new: &new, old: old.as_ref(), changes }, &listed, &asked)))
    });
    let (permissions, files) = work.await.map_err(|error| Error::Internal(error.to_string()))?;
    let shell = Shell::load(board, caller).await?.at(PageLocation::Skills);
    let slug = caller.team.slug.clone();
    let can_take = |viber: &&crate::domain::Viber| viber.capabilities.iter().any(|word| word == SKILLS_CAPABILITY);
    let able: Vec<_> = places.vibers.iter().filter(can_take).collect();
    let choice = |viber: &&crate::domain::Viber| {
        let info = viber.skills.iter().find(|info| info.name == skill.name);
        let place = places.placement(&versions, viber, info);
        InstallChoice {
            viber: viber.id.clone(),
            name: viber.name.clone(),
            has: place.map_or_else(|| "does not have it".to_owned(), |place| format!("has {}", place.words)),
            is_away: viber.contact.state != ContactState::Connected,
        }
    };
    let history = versions.iter().take(MAX_HISTORY).map(|other| version_line(&slug, other, &skill, &places));
    Ok(Page {
        shell,
        badge: words::review_badge(skill.review.state),
        origin: words::origin(&skill, &places.names()),
        permissions,
        files,
        trouble,
        findings: contents.findings.iter().map(|finding| finding_view(&slug, &skill, base.as_ref(), finding)).collect(),
        history: history.collect(),
        choices: able.iter().take(MAX_TARGETS).map(choice).collect(),
        more_choices: able.len().saturating_sub(MAX_TARGETS),
        said,
        is_admin: caller.role >= Role::Admin,
        base,
        contents,
        skill,
        slug,
    })
}

fn version_line(slug: &str, other: &LibrarySkill, this: &LibrarySkill, places: &SkillPlaces) -> VersionLine {
    let has = |viber: &&crate::domain::Viber| {
        viber.skills.iter().any(|info| info.name == other.name && info.digest == other.digest)
    };
    VersionLine {
        badge: words::review_badge(other.review.state),
        version: words::version(other.version.as_deref(), &other.digest),
        digest: words::short_digest(&other.digest, 2),
        href: urls::skill(slug, &other.id),
        compare: urls::skill_with(slug, &this.id, &[("from", other.id.as_str())]),
        is_this: other.id == this.id,
        on: places.vibers.iter().filter(has).count(),
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
    let is_diff = is_removed || (change.is_some() && asked.view == "diff") || (differs && asked.view != "whole");
    let mut view = FileView {
        path: path.to_owned(),
        facts,
        is_diff,
        rows: FileRows::default(),
        trouble: None,
        notes: findings.iter().filter(|finding| finding.line == 0).map(|finding| finding.text.clone()).collect(),
    };
    let old = of.old.and_then(|old| old.bytes(path).map(|bytes| (old.text(path), bytes)));
    let new = of.new.bytes(path).map(|bytes| (of.new.text(path), bytes));
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
