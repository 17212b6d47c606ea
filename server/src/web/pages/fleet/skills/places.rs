//! What of the library is where, as the vibers reported it, against the newest version that was approved.

use std::collections::BTreeMap;

use protocol::{Instant, SkillInfo, SkillState, TeamId, ViberId};

use super::words;
use crate::{
    db,
    domain::{ContactState, LibrarySkill, SkillOp, SkillOrder, SkillReviewState, Viber, skills::marked},
    error::Result,
    state::Board,
    web::{urls, view::Badge},
};

/// Versions that are read: as many as a library may have.
const MAX_VERSIONS: u64 = 2_000;
/// Vibers that are looked at.
const MAX_VIBERS: u64 = 500;
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
    /// Nothing of the library is approved, or these files are not in it.
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
    pub viber: ViberId,
    pub viber_name: String,
    pub standing: SkillStanding,
    pub words: String,
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
    /// Vibers that are looked at.
    pub vibers: usize,
    pub calls: u64,
}

impl LibraryRow {
    pub fn has_drift(&self) -> bool {
        self.placements.iter().any(|place| place.standing.is_drift())
    }

    pub fn version(&self) -> &str {
        self.skill.version.as_deref().unwrap_or("—")
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

    /// Vibers that have it; an order that waits is none.
    pub fn installed(&self) -> usize {
        self.placements.iter().filter(|place| place.standing != SkillStanding::Queued).count()
    }

    /// `1 behind, 1 queued`.
    pub fn standings(&self) -> String {
        let mut counts: BTreeMap<SkillStanding, usize> = BTreeMap::new();
        self.placements.iter().for_each(|place| *counts.entry(place.standing).or_default() += 1);
        let counted = counts.into_iter().filter_map(|(standing, n)| Some(format!("{n} {}", standing.word()?)));
        counted.collect::<Vec<_>>().join(", ")
    }
}

/// A library, and the vibers that have something of it.
pub struct SkillPlaces {
    /// The newest first.
    pub versions: Vec<LibrarySkill>,
    pub vibers: Vec<Viber>,
    pub orders: Vec<SkillOrder>,
    /// There are more vibers.
    pub is_cut: bool,
}

impl SkillPlaces {
    pub async fn load(board: &Board, team: &TeamId) -> Result<Self> {
        let mut tx = board.db.reader_of(team).await?;
        let versions = db::skills::list(&mut tx, None, MAX_VERSIONS).await?;
        let mut vibers = db::vibers::list(&mut tx, None, MAX_VIBERS + 1).await?;
        let orders = db::skill_orders::queued(&mut tx, MAX_ORDERS).await?;
        let is_cut = vibers.len() as u64 > MAX_VIBERS;
        vibers.truncate(MAX_VIBERS as usize);
        Ok(Self { versions, vibers, orders, is_cut })
    }

    pub fn names(&self) -> BTreeMap<ViberId, String> {
        self.vibers.iter().map(|viber| (viber.id.clone(), viber.name.clone())).collect()
    }

    /// The skills, those with the newest versions first.
    pub fn rows(&self, slug: &str) -> Vec<LibraryRow> {
        let mut by_name: BTreeMap<&str, Vec<&LibrarySkill>> = BTreeMap::new();
        self.versions.iter().for_each(|skill| by_name.entry(&skill.name).or_default().push(skill));
        let mut on: BTreeMap<&str, Vec<(&Viber, Option<&SkillInfo>)>> = BTreeMap::new();
        for viber in &self.vibers {
            for info in viber.skills.iter().filter(|info| info.state != SkillState::Shadowed) {
                on.entry(&info.name).or_default().push((viber, Some(info)));
            }
        }
        for order in self.orders.iter().filter(|order| order.op == SkillOp::Install) {
            let there = on.entry(&order.name).or_default();
            if !there.iter().any(|(viber, _)| viber.id == order.viber_id)
                && let Some(viber) = self.vibers.iter().find(|viber| viber.id == order.viber_id)
            {
                there.push((viber, None));
            }
        }
        let names = self.names();
        let row = |(name, versions): (&str, Vec<&LibrarySkill>)| {
            let there = on.get(name).map(Vec::as_slice).unwrap_or_default();
            let newest = *versions.first()?;
            let approved = versions.iter().find(|skill| skill.review.state == SkillReviewState::Approved);
            let placement = |(viber, info): &(&Viber, Option<&SkillInfo>)| self.placement(&versions, viber, *info);
            Some(LibraryRow {
                href: urls::skill(slug, &newest.id),
                badge: words::review_badge(newest.review.state),
                origin: words::origin(newest, &names),
                in_use: approved.filter(|skill| skill.id != newest.id).map(|skill| version(skill)),
                placements: there.iter().filter_map(placement).collect(),
                vibers: self.vibers.len(),
                calls: there.iter().filter_map(|(_, info)| info.map(|info| info.calls)).sum(),
                skill: newest.clone(),
            })
        };
        let mut rows: Vec<LibraryRow> = by_name.into_iter().filter_map(row).collect();
        rows.sort_by(|a, b| b.skill.id.cmp(&a.skill.id));
        rows
    }

    /// What a viber has of the skill with these versions, the newest first.
    pub fn placement(
        &self,
        versions: &[&LibrarySkill],
        viber: &Viber,
        info: Option<&SkillInfo>,
    ) -> Option<SkillPlacement> {
        let name = versions.first().map(|skill| skill.name.as_str())?;
        let is_install = |order: &&SkillOrder| order.op == SkillOp::Install && order.name == name;
        let queued = self.orders.iter().filter(|order| order.viber_id == viber.id).find(is_install);
        let (standing, words) = match (queued, info) {
            (Some(order), _) => {
                let version = words::version(order.version.as_deref(), order.digest.as_deref().unwrap_or(""));
                (SkillStanding::Queued, format!("{version}, queued"))
            }
            (None, Some(info)) => standing(versions, info),
            (None, None) => return None,
        };
        Some(SkillPlacement { viber: viber.id.clone(), viber_name: viber.name.clone(), standing, words })
    }
}

fn version(skill: &LibrarySkill) -> String {
    words::version(skill.version.as_deref(), &skill.digest)
}

/// How a viber's files stand to these versions.
pub fn standing(versions: &[&LibrarySkill], info: &SkillInfo) -> (SkillStanding, String) {
    let known = versions.iter().find(|skill| skill.digest == info.digest);
    let approved = versions.iter().find(|skill| skill.review.state == SkillReviewState::Approved);
    let words =
        known.map_or_else(|| words::version(info.source.version.as_deref(), &info.digest), |skill| version(skill));
    let is_current = approved.is_some_and(|skill| skill.digest == info.digest);
    let is_installed = matches!(info.source.kind.as_str(), "library" | "clawhub");
    match info.state {
        SkillState::Modified => (SkillStanding::Modified, "modified".to_owned()),
        SkillState::Untrusted => (SkillStanding::Untrusted, "not accepted".to_owned()),
        SkillState::Error => (SkillStanding::Broken, "broken".to_owned()),
        _ if approved.is_some() && !is_current && (known.is_some() || is_installed) => {
            (SkillStanding::Behind, format!("{words}, behind"))
        }
        SkillState::NeedsSetup => {
            let missing = info.checks.iter().find(|check| !check.ok).map_or("setup", |check| check.label.as_str());
            (SkillStanding::NeedsSetup, format!("needs {}", marked(protocol::text::head(missing, MAX_LABEL_BYTES))))
        }
        _ if is_current => (SkillStanding::Current, words),
        _ if known.is_none() => (SkillStanding::Other, format!("{words}, its own")),
        _ => (SkillStanding::Other, words),
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
    /// `None` when none of them is anywhere.
    pub fn of(slug: &str, rows: &[LibraryRow], places: &SkillPlaces) -> Option<Self> {
        let somewhere: Vec<&LibraryRow> = rows.iter().filter(|row| !row.placements.is_empty()).collect();
        let has =
            |viber: &&Viber| somewhere.iter().any(|row| row.placements.iter().any(|place| place.viber == viber.id));
        let with: Vec<&Viber> = places.vibers.iter().filter(has).collect();
        let columns = with.get(..MAX_COLUMNS.min(with.len())).unwrap_or_default();
        let lines = MAX_CELLS.checked_div(columns.len())?.max(1);
        let line = |row: &&LibraryRow| MatrixRow {
            name: row.skill.name.clone(),
            href: row.href.clone(),
            cells: columns
                .iter()
                .map(|viber| row.placements.iter().find(|place| place.viber == viber.id).cloned())
                .collect(),
        };
        let away = columns.iter().filter(|viber| viber.contact.state != ContactState::Connected);
        Some(Self {
            vibers: columns.iter().map(|viber| (viber.name.clone(), urls::viber_skills(slug, &viber.id))).collect(),
            rows: somewhere.iter().take(lines).map(line).collect(),
            more_vibers: with.len() - columns.len(),
            more_skills: somewhere.len().saturating_sub(lines),
            is_cut: places.is_cut,
            oldest: away.filter_map(|viber| viber.seen_at).min(),
        })
    }
}

#[cfg(test)]
mod tests {
    use protocol::{SkillCheck, SkillId, SkillSource};

    use super::*;
    use crate::domain::{SkillOrigin, SkillReview};

    fn library(digest: &str, version: &str, state: SkillReviewState) -> LibrarySkill {
        LibrarySkill {
            id: SkillId::new(1),
            name: "notes".to_owned(),
            description: String::new(),
            version: Some(version.to_owned()),
            origin: SkillOrigin::Upload,
            reference: None,
            digest: digest.to_owned(),
            archive: String::new(),
            size: 1,
            findings: 0,
            review: SkillReview { state, by: None, reviewer: None, at: None, note: String::new() },
            added_by: String::new(),
            adder: String::new(),
            added_at: Instant(0),
        }
    }

    #[test]
    fn what_a_viber_has_is_compared_with_the_newest_approved_version() {
        let newest = library("cc", "3", SkillReviewState::Unreviewed);
        let approved = library("bb", "2", SkillReviewState::Approved);
        let old = library("aa", "1", SkillReviewState::Approved);
        let versions = [&newest, &approved, &old];
        let info = |digest: &str, state| SkillInfo { digest: digest.to_owned(), state, ..SkillInfo::default() };
        let on = |digest, state| standing(&versions, &info(digest, state));
        assert_eq!(on("bb", SkillState::Ready), (SkillStanding::Current, "2".to_owned()));
        assert_eq!(on("aa", SkillState::Ready), (SkillStanding::Behind, "1, behind".to_owned()));
        assert_eq!(on("aa", SkillState::NeedsSetup).0, SkillStanding::Behind);
        assert_eq!(on("dd", SkillState::Modified), (SkillStanding::Modified, "modified".to_owned()));
        assert_eq!(on("dddd1111", SkillState::Ready), (SkillStanding::Other, "dddd 1111, its own".to_owned()));
        let gone = SkillSource { kind: "library".to_owned(), reference: None, version: Some("0".to_owned()) };
        let gone = SkillInfo { source: gone, ..info("00", SkillState::Ready) };
        assert_eq!(standing(&versions, &gone), (SkillStanding::Behind, "0, behind".to_owned()));
        let check = |label: &str, ok| SkillCheck { label: label.to_owned(), ok, ..SkillCheck::default() };
        let lacking =
            SkillInfo { checks: vec![check("git", true), check("gh", false)], ..info("bb", SkillState::NeedsSetup) };
        assert_eq!(standing(&versions, &lacking), (SkillStanding::NeedsSetup, "needs gh".to_owned()));
        assert_eq!(standing(&[&newest], &info("cc", SkillState::Ready)), (SkillStanding::Other, "3".to_owned()));
    }
}
