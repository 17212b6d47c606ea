//! The Artifacts tab: what the session's tasks produced, newest first, versions folded, and files that wait for its next
//! task.

use std::collections::HashSet;

use askama::Template;
use protocol::{Instant, ViberId};

use super::Place;
use crate::{
    db::{self, TeamTx},
    domain::{self, Artifact, Kind, Origin, Session, StorageUse},
    web::{links, view::filters},
};

/// Artifacts that are looked at.
const READ: u64 = 500;

/// What the database holds for it.
#[derive(Clone, Debug)]
pub struct Held {
    all: Vec<Artifact>,
    /// Whose workspace has artifacts of its own.
    viber: ViberId,
    /// Whether there is room for more.
    storage: StorageUse,
}

impl Held {
    pub(super) async fn read(tx: &mut TeamTx<'_>, session: &Session) -> Result<Self, db::Error> {
        let all = db::artifacts::of_session(tx, &session.id, None, READ).await?;
        let storage = db::usage::load(tx).await?.ok_or_else(|| db::Error::Broken("no such team".into()))?;
        Ok(Self { all, viber: session.viber_id.clone(), storage })
    }
}

/// The tab as a reader sees it.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/artifacts/pane.html")]
pub struct ArtifactsView {
    place: Place,
    now: Instant,
    /// The newest version of each.
    lines: Vec<Line>,
    /// Files that go with the next task.
    waiting: Vec<Line>,
    storage: StorageUse,
    /// The workspace's own artifacts, among its files.
    folder: String,
}

/// One artifact in a list.
#[derive(Clone, Debug)]
struct Line {
    artifact: Artifact,
    /// How many versions there are.
    versions: usize,
    /// Since when its bytes are where they are.
    since: Instant,
}

impl Line {
    fn new(artifact: Artifact, versions: usize) -> Self {
        Self { since: artifact.place().1, artifact, versions }
    }

    fn words(&self) -> &'static str {
        words(self.artifact.place().0)
    }

    fn icon(&self) -> &'static str {
        icon(&self.artifact)
    }
}

/// Where bytes are, in words.
pub fn words(place: domain::Place) -> &'static str {
    match place {
        domain::Place::Viber => "still on the viber",
        domain::Place::Stored => "stored",
        domain::Place::Offline => "viber offline",
        domain::Place::Gone => "gone",
        domain::Place::Link => "address",
    }
}

/// The icon of what an artifact is.
pub fn icon(artifact: &Artifact) -> &'static str {
    match artifact.kind() {
        _ if artifact.is_link() => "external",
        Kind::Image(_) => "artifact",
        _ => "file",
    }
}

impl ArtifactsView {
    pub(super) fn of(held: &Held, place: &Place) -> Self {
        let waits = |one: &&Artifact| one.origin == Origin::Operator && one.task_id.is_none();
        let known: Vec<&Artifact> = held.all.iter().filter(|one| !waits(one)).collect();
        let mut names = HashSet::new();
        let newest = known.iter().filter(|one| names.insert(one.name.as_str()));
        let versions = |name: &str| known.iter().filter(|one| one.name == name).count();
        Self {
            place: place.clone(),
            now: place.now,
            storage: held.storage,
            folder: links::folder(&place.slug, &held.viber, "artifacts"),
            lines: newest.map(|one| Line::new((*one).clone(), versions(&one.name))).collect(),
            waiting: held.all.iter().rev().filter(waits).map(|one| Line::new(one.clone(), 1)).collect(),
        }
    }
}
