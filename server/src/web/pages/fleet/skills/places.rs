//! What of the library is where, as the vibers reported it, against the newest version that was approved.
//!
//! Vibers are looked at some at a time, and what they have is kept of the skills that a page asks for alone.

use std::collections::{BTreeMap, BTreeSet};

use protocol::{Instant, SkillState, ViberId};

use super::words;
use crate::{
    db::{self, DbError, TeamTx},
    domain::{
        HeldSkill, LibrarySkill, NamedViber, QueuedInstall, SkillHolder, SkillReviewState, SkillVersion, skills::marked,
    },
    web::{urls, view::Badge},
};

/// Versions that are looked at: as many as a library may have.
const MAX_VERSIONS: u64 = 2_000;
/// Vibers with skills that are looked at.
const MAX_VIBERS: usize = 500;
/// Vibers whose reports are in memory at once.
const VIBERS_AT_ONCE: u64 = 20;
/// Orders without an answer that are looked at.
const MAX_ORDERS: u64 = 2_000;
/// Vibers beside each other in the matrix.
const MAX_COLUMNS: usize = 100;
/// Cells of the matrix: they are most of the page.
const MAX_CELLS: usize = 1_000;
/// Longest description that the list shows, bytes.
const MAX_SUMMARY_BYTES: usize = 160;
/// Longest name of something that is missing, bytes.
const MAX_LABEL_BYTES: usize = 20;

/// How what a viber has of a skill stands to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkillStanding {
    /// The newest approved version, ready.
    Current,
    /// Another version of the library.
    Behind,
    /// It was changed there.
    Modified,
    NeedsSetup,
    /// Nothing of it can be used.
    Broken,
    /// Nobody accepted its files.
    Untrusted,
    /// Nothing of the library is approved, these files are not in it, or the viber did not say what its files are.
    Other,
    /// An order waits for the viber.
    Queued,
}

impl SkillStanding {
    fn is_drift(self) -> bool {
        matches!(self, Self::Behind | Self::Modified)
    }

    /// What a count of it is called.
    fn word(self) -> Option<&'static str> {
        Some(match self {
            Self::Current | Self::Other => return None,
            Self::Behind => "behind",
            Self::Modified => "modified",
            Self::NeedsSetup => "needs setup",
            Self::Broken => "broken",
            Self::Untrusted => "not accepted",
            Self::Queued => "queued",
        })
    }

    /// The class of its cell.
    pub fn class(self) -> &'static str {
        match self {
            Self::Current => "at-newest",
            Self::Other => "at-other",
            Self::Queued => "at-queued",
            Self::Behind => "at-behind",
            Self::Broken => "at-broken",
            Self::Modified | Self::NeedsSetup | Self::Untrusted => "at-wait",
        }
    }
}

/// What one viber has of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillPlacement {
    pub viber: NamedViber,
    pub standing: SkillStanding,
    pub words: String,
    /// Of its files there; empty if it has none, or did not say.
    pub digest: String,
    /// Whether its files are the library's, or were before somebody changed them; else the skill there has only its name in
    /// common with the library's.
    pub is_of_library: bool,
    pub calls: u64,
}

/// Where one skill is.
#[derive(Clone, Debug)]
pub struct PlacedSkill {
    pub name: String,
    pub href: String,
    pub placements: Vec<SkillPlacement>,
}

/// A skill of the library: its newest version, and where it is.
#[derive(Clone, Debug)]
pub struct LibraryRow {
    pub skill: LibrarySkill,
    pub href: String,
    pub badge: Badge,
    pub origin: String,
    /// The version that is approved, when the newest one is not.
    pub in_use: Option<String>,
    pub placements: Vec<SkillPlacement>,
    /// Vibers of the team.
    pub vibers: usize,
    /// More vibers have skills than were looked at.
    pub is_cut: bool,
}

impl LibraryRow {
    pub fn version(&self) -> String {
        self.skill.version.as_deref().map_or_else(|| "—".to_owned(), marked)
    }

    /// The beginning of what it says of itself.
    pub fn summary(&self) -> String {
        let head = protocol::text::head(&self.skill.description, MAX_SUMMARY_BYTES);
        let cut = if head.len() < self.skill.description.len() { "…" } else { "" };
        format!("{}{cut}", marked(head))
    }

    pub fn digest(&self) -> String {
        words::short_digest(&self.skill.digest, 2)
    }

    /// Vibers that have it; an order that waits is none, and neither is a skill of its name with files of its own.
    pub fn installed(&self) -> usize {
        self.of_library().filter(|place| place.standing != SkillStanding::Queued).count()
    }

    pub fn calls(&self) -> u64 {
        self.of_library().fold(0, |sum, place| sum.saturating_add(place.calls))
    }

    fn of_library(&self) -> impl Iterator<Item = &SkillPlacement> {
        self.placements.iter().filter(|place| place.is_of_library)
    }

    /// `1 behind, 1 queued, 1 with other files`.
    pub fn standings(&self) -> String {
        let mut counts: BTreeMap<SkillStanding, usize> = BTreeMap::new();
        self.of_library().for_each(|place| *counts.entry(place.standing).or_default() += 1);
        let counted = counts.into_iter().filter_map(|(standing, n)| Some(format!("{n} {}", standing.word()?)));
        let others = self.placements.len() - self.of_library().count();
        let others = (others > 0).then(|| format!("{others} with other files"));
        counted.chain(others).collect::<Vec<_>>().join(", ")
    }
}

/// What a library has, and what of it is ordered.
#[derive(Default)]
pub struct SkillPlaces {
    /// By their names; of each the newest first.
    pub versions: BTreeMap<String, Vec<SkillVersion>>,
    /// The newest installation of each skill for each viber, if it waits for an answer.
    queued: BTreeMap<(String, ViberId), QueuedInstall>,
}

/// What vibers have of a library.
#[derive(Debug, Default)]
pub struct FoundPlaces {
    /// By the names of the skills that were asked for.
    pub placements: BTreeMap<String, Vec<SkillPlacement>>,
    /// Skills of the library that are behind, or were changed, on some viber.
    pub drifting: BTreeSet<String>,
    /// There are more vibers.
    pub is_cut: bool,
}

impl SkillPlaces {
    /// Of the skill of this name, or of all of them.
    pub async fn load(tx: &mut TeamTx<'_>, name: Option<&str>) -> Result<Self, DbError> {
        let mut places = Self::default();
        for version in db::skills::versions(tx, name, MAX_VERSIONS).await? {
            places.versions.entry(version.name.clone()).or_default().push(version);
        }
        for order in db::skill_orders::queued_installs(tx, name, MAX_ORDERS).await? {
            places.queued.entry((order.name.clone(), order.viber.id.clone())).or_insert(order);
        }
        Ok(places)
    }

    /// The newest version of each skill, the newest first.
    pub fn newest(&self) -> Vec<&SkillVersion> {
        let mut newest: Vec<_> = self.versions.values().filter_map(|versions| versions.first()).collect();
        newest.sort_by(|a, b| b.id.cmp(&a.id));
        newest
    }

    /// What vibers have of the skills with these names.
    pub async fn find(&self, tx: &mut TeamTx<'_>, names: &BTreeSet<String>) -> Result<FoundPlaces, DbError> {
        let (mut found, mut looked, mut last) = (FoundPlaces::default(), 0, None);
        loop {
            let holders = db::vibers::skill_holders(tx, last.as_ref(), VIBERS_AT_ONCE).await?;
            let is_last = (holders.len() as u64) < VIBERS_AT_ONCE;
            for holder in holders {
                found.is_cut = looked == MAX_VIBERS;
                if found.is_cut {
                    break;
                }
                looked += 1;
                last = Some(holder.viber.id.clone());
                self.look(holder, names, &mut found);
            }
            if is_last || found.is_cut {
                break;
            }
        }
        for ((name, viber), order) in self.queued.iter().filter(|((name, _), _)| names.contains(name)) {
            let there = found.placements.entry(name.clone()).or_default();
            if there.iter().all(|place| place.viber.id != *viber) {
                let (standing, words) = (SkillStanding::Queued, queued_words(order));
                let viber = order.viber.clone();
                let (digest, is_of_library, calls) = (String::new(), true, 0);
                there.push(SkillPlacement { viber, standing, words, digest, is_of_library, calls });
            }
        }
        Ok(found)
    }

    /// Takes in what one viber has.
    fn look(&self, holder: SkillHolder, names: &BTreeSet<String>, found: &mut FoundPlaces) {
        let SkillHolder { viber, mut skills } = holder;
        skills.retain(|skill| skill.state != SkillState::Shadowed && self.versions.contains_key(&skill.name));
        // Of several with one name the one that the library put there, else the one that goes first.
        skills.sort_by_key(|skill| !skill.is_installed());
        let mut seen = BTreeSet::new();
        for skill in &skills {
            let Some(versions) = self.versions.get(&skill.name).filter(|_| seen.insert(skill.name.as_str())) else {
                continue;
            };
            let queued = match self.queued.is_empty() {
                true => None,
                false => self.queued.get(&(skill.name.clone(), viber.id.clone())),
            };
            let standing = if queued.is_some() { SkillStanding::Queued } else { standing(versions, skill) };
            if standing.is_drift() && !found.drifting.contains(&skill.name) {
                found.drifting.insert(skill.name.clone());
            }
            if names.contains(&skill.name) {
                let placement = SkillPlacement {
                    viber: viber.clone(),
                    standing,
                    words: queued.map_or_else(|| words_of(versions, skill), queued_words),
                    digest: skill.digest.clone(),
                    is_of_library: queued.is_some() || is_of_library(versions, skill),
                    calls: skill.calls,
                };
                found.placements.entry(skill.name.clone()).or_default().push(placement);
            }
        }
    }
}

fn queued_words(order: &QueuedInstall) -> String {
    let version = words::version(order.version.as_deref(), order.digest.as_deref().unwrap_or(""));
    format!("{version}, queued")
}

/// The newest version that may be installed.
pub fn approved(versions: &[SkillVersion]) -> Option<&SkillVersion> {
    versions.iter().find(|version| version.state == SkillReviewState::Approved)
}

/// The version with the files that a viber has.
pub fn known<'v>(versions: &'v [SkillVersion], digest: &str) -> Option<&'v SkillVersion> {
    versions.iter().find(|version| version.digest == digest)
}

/// Whether a viber's files are those of a version, or were installed as one.
fn is_of_library(versions: &[SkillVersion], held: &HeldSkill) -> bool {
    known(versions, &held.digest).is_some() || held.is_installed()
}

/// How a viber's files stand to these versions, of which the newest comes first.
pub fn standing(versions: &[SkillVersion], held: &HeldSkill) -> SkillStanding {
    let approved = approved(versions);
    let is_current = approved.is_some_and(|version| version.digest == held.digest);
    let is_behind = approved.is_some() && !is_current && is_of_library(versions, held) && !held.digest.is_empty();
    match held.state {
        SkillState::Modified => SkillStanding::Modified,
        SkillState::Untrusted => SkillStanding::Untrusted,
        SkillState::Error => SkillStanding::Broken,
        _ if is_behind => SkillStanding::Behind,
        SkillState::NeedsSetup => SkillStanding::NeedsSetup,
        _ if is_current => SkillStanding::Current,
        _ => SkillStanding::Other,
    }
}

/// What a cell says of it.
fn words_of(versions: &[SkillVersion], held: &HeldSkill) -> String {
    let known = known(versions, &held.digest);
    let version = match known {
        Some(version) => words::version(version.version.as_deref(), &version.digest),
        None => words::version(held.source.version.as_deref(), &held.digest),
    };
    match standing(versions, held) {
        SkillStanding::Modified => "modified".to_owned(),
        SkillStanding::Untrusted => "not accepted".to_owned(),
        SkillStanding::Broken => "broken".to_owned(),
        SkillStanding::Behind => format!("{version}, behind"),
        SkillStanding::NeedsSetup => {
            let missing = held.checks.iter().find(|check| !check.ok).map_or("setup", |check| check.label.as_str());
            format!("needs {}", marked(protocol::text::head(missing, MAX_LABEL_BYTES)))
        }
        SkillStanding::Other if version.is_empty() => "there".to_owned(),
        SkillStanding::Other if known.is_none() && !held.is_installed() => format!("{version}, its own"),
        SkillStanding::Current | SkillStanding::Other | SkillStanding::Queued => version,
    }
}

/// Skill by viber: those that are somewhere, on the vibers that have one of them.
#[derive(Clone, Debug)]
pub struct PlaceMatrix {
    /// Name and page of each viber.
    pub vibers: Vec<(String, String)>,
    pub rows: Vec<MatrixRow>,
    /// Vibers and skills that are left out.
    pub more_vibers: usize,
    pub more_skills: usize,
    /// More vibers than are looked at.
    pub is_cut: bool,
    /// When the viber was heard that was heard least recently; absent when all are connected.
    pub oldest: Option<Instant>,
}

/// A skill, on each of the vibers.
#[derive(Clone, Debug)]
pub struct MatrixRow {
    pub name: String,
    pub href: String,
    pub cells: Vec<Option<SkillPlacement>>,
}

impl PlaceMatrix {
    /// `None` when none of them is anywhere; `unlooked` is how many skills there are beside them.
    pub fn of(slug: &str, placed: &[PlacedSkill], unlooked: usize, is_cut: bool) -> Option<Self> {
        let somewhere: Vec<&PlacedSkill> = placed.iter().filter(|row| !row.placements.is_empty()).collect();
        let places = somewhere.iter().flat_map(|row| &row.placements);
        let with: BTreeMap<&ViberId, &NamedViber> = places.map(|place| (&place.viber.id, &place.viber)).collect();
        let columns: Vec<&NamedViber> = with.values().copied().take(MAX_COLUMNS).collect();
        let lines = MAX_CELLS.checked_div(columns.len())?.max(1);
        let line = |row: &&PlacedSkill| {
            let of = |viber: &&NamedViber| row.placements.iter().find(|place| place.viber.id == viber.id).cloned();
            MatrixRow { name: row.name.clone(), href: row.href.clone(), cells: columns.iter().map(of).collect() }
        };
        let away = columns.iter().filter(|viber| !viber.is_connected);
        Some(Self {
            vibers: columns.iter().map(|viber| (viber.name.clone(), urls::viber_skills(slug, &viber.id))).collect(),
            rows: somewhere.iter().take(lines).map(line).collect(),
            more_vibers: with.len() - columns.len(),
            more_skills: somewhere.len().saturating_sub(lines) + unlooked,
            is_cut,
            oldest: away.filter_map(|viber| viber.seen_at).min(),
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::{SkillCheck, SkillId, SkillSource};

    use super::*;

    fn version(digest: &str, version: &str, state: SkillReviewState) -> SkillVersion {
        let (id, name) = (SkillId::new(1), "notes".to_owned());
        SkillVersion { id, name, version: Some(version.to_owned()), digest: digest.to_owned(), state }
    }

    /// Version 3 waits for a review, 2 is the newest approved one, and 1 was.
    fn versions() -> Vec<SkillVersion> {
        vec![
            version("cc", "3", SkillReviewState::Unreviewed),
            version("bb", "2", SkillReviewState::Approved),
            version("aa", "1", SkillReviewState::Approved),
        ]
    }

    fn held(digest: &str, state: SkillState) -> HeldSkill {
        HeldSkill { name: "notes".to_owned(), digest: digest.to_owned(), state, ..HeldSkill::default() }
    }

    fn of_library(held: HeldSkill, version: &str) -> HeldSkill {
        let source = SkillSource { kind: "library".to_owned(), reference: None, version: Some(version.to_owned()) };
        HeldSkill { source, ..held }
    }

    fn on(versions: &[SkillVersion], held: &HeldSkill) -> (SkillStanding, String) {
        (standing(versions, held), words_of(versions, held))
    }

    #[test]
    fn what_a_viber_has_is_compared_with_the_newest_approved_version() {
        let versions = versions();
        let of = |digest: &str, state| on(&versions, &held(digest, state));
        assert_eq!(of("bb", SkillState::Ready), (SkillStanding::Current, "2".to_owned()));
        assert_eq!(of("aa", SkillState::Ready), (SkillStanding::Behind, "1, behind".to_owned()));
        assert_eq!(of("aa", SkillState::NeedsSetup).0, SkillStanding::Behind);
        assert_eq!(of("dd", SkillState::Modified), (SkillStanding::Modified, "modified".to_owned()));
        assert_eq!(of("dddd1111", SkillState::Ready), (SkillStanding::Other, "dddd 1111, its own".to_owned()));
        let gone = of_library(held("00", SkillState::Ready), "0");
        assert_eq!(on(&versions, &gone), (SkillStanding::Behind, "0, behind".to_owned()));
        let check = |label: &str, ok| SkillCheck { label: label.to_owned(), ok, ..SkillCheck::default() };
        let checks = vec![check("git", true), check("gh", false)];
        let lacking = HeldSkill { checks, ..held("bb", SkillState::NeedsSetup) };
        assert_eq!(on(&versions, &lacking), (SkillStanding::NeedsSetup, "needs gh".to_owned()));
        assert_eq!(on(&versions[..1], &held("cc", SkillState::Ready)), (SkillStanding::Other, "3".to_owned()));
    }

    #[test]
    fn files_that_a_viber_did_not_tell_are_not_called_behind() {
        let versions = versions();
        let untold = of_library(held("", SkillState::Ready), "2");
        assert_eq!(on(&versions, &untold), (SkillStanding::Other, "2".to_owned()));
        assert_eq!(on(&versions, &held("", SkillState::Ready)), (SkillStanding::Other, "there".to_owned()));
    }

    #[test]
    fn a_skill_that_has_only_the_name_is_not_of_the_library() {
        let mut places = SkillPlaces::default();
        places.versions.insert("notes".to_owned(), versions());
        let mut found = FoundPlaces::default();
        let own = HeldSkill { calls: 7, ..held("dddd1111", SkillState::Ready) };
        let installed = HeldSkill { calls: 2, ..held("bb", SkillState::Ready) };
        for (n, skill) in (1..).zip([own, installed]) {
            let viber = NamedViber { id: ViberId::new(n), name: "lab".to_owned(), is_connected: true, seen_at: None };
            places.look(SkillHolder { viber, skills: vec![skill] }, &["notes".to_owned()].into(), &mut found);
        }
        let there: Vec<_> = found.placements["notes"].iter().map(|place| place.is_of_library).collect();
        assert_eq!(there, [false, true]);
        // What a page does not ask for is nowhere in the matrix, and is counted.
        let placements = found.placements["notes"].clone();
        let placed = PlacedSkill { name: "notes".to_owned(), href: String::new(), placements };
        let matrix = PlaceMatrix::of("home", &[placed], 3, false).expect("somewhere");
        assert_eq!((matrix.vibers.len(), matrix.rows.len(), matrix.more_skills), (2, 1, 3));
    }

    #[test]
    fn of_several_skills_of_one_name_the_installed_one_counts() {
        let mut places = SkillPlaces::default();
        places.versions.insert("notes".to_owned(), versions());
        let viber = NamedViber { id: ViberId::new(1), name: "lab".to_owned(), is_connected: true, seen_at: None };
        let own = HeldSkill { calls: 1, ..held("dddd1111", SkillState::Ready) };
        let shadowed = held("aa", SkillState::Shadowed);
        let other = HeldSkill { name: "other".to_owned(), ..held("aa", SkillState::Ready) };
        let skills = vec![own, shadowed, of_library(held("aa", SkillState::Ready), "1"), other];
        let mut found = FoundPlaces::default();
        places.look(SkillHolder { viber, skills }, &["notes".to_owned()].into(), &mut found);
        let places = found.placements["notes"].iter();
        let there: Vec<_> = places.map(|place| (place.standing, &*place.words, place.is_of_library)).collect();
        assert_eq!(there, [(SkillStanding::Behind, "1, behind", true)]);
        assert_eq!(found.drifting, ["notes".to_owned()].into());
    }
}
