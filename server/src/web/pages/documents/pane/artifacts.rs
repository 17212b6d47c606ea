//! The Artifacts tab: what the session's tasks produced, newest first, versions folded, and files that wait for its next
//! task.

use std::collections::HashSet;

use askama::Template;
use protocol::{Instant, ViberId};

use super::PaneContext;
use crate::{
    db::{self, DbError, TeamTx},
    domain::{self, Artifact, ArtifactOrigin, Session, StorageUse},
    web::{
        urls,
        view::{filters, timeline},
    },
};

/// Artifacts that are looked at.
const MAX_ARTIFACTS: u64 = 500;

/// Whole outputs of commands that are listed.
const MAX_OUTPUTS: u64 = 50;

/// What the database holds for it.
#[derive(Clone, Debug)]
pub struct ArtifactsPane {
    all: Vec<Artifact>,
    /// Whole outputs of commands.
    outputs: Vec<Artifact>,
    /// Whose workspace has artifacts of its own.
    viber: ViberId,
    /// Whether there is room for more.
    storage: StorageUse,
}

impl ArtifactsPane {
    pub(super) async fn read(tx: &mut TeamTx<'_>, session: &Session) -> Result<Self, DbError> {
        let all = db::artifacts::products(tx, &session.id, MAX_ARTIFACTS).await?;
        let outputs = db::artifacts::outputs(tx, &session.id, MAX_OUTPUTS).await?;
        let storage = db::usage::load(tx).await?.ok_or_else(|| DbError::Broken("no such team".into()))?;
        Ok(Self { all, outputs, viber: session.viber_id.clone(), storage })
    }
}

/// The tab as a reader sees it.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/artifacts/pane.html")]
pub struct ArtifactsView {
    context: PaneContext,
    now: Instant,
    /// The newest version of each.
    lines: Vec<ArtifactLine>,
    /// Whole outputs of commands, folded: each is one click from its row in the conversation.
    outputs: Vec<ArtifactLine>,
    /// Files that go with the next task.
    waiting: Vec<ArtifactLine>,
    storage: StorageUse,
    /// The workspace's own artifacts, among its files.
    folder: String,
}

/// One artifact in a list.
#[derive(Clone, Debug)]
struct ArtifactLine {
    artifact: Artifact,
    /// How many versions there are.
    versions: usize,
    /// Since when its bytes are where they are.
    since: Instant,
}

impl ArtifactLine {
    fn new(artifact: Artifact, versions: usize) -> Self {
        Self { since: artifact.place().1, artifact, versions }
    }

    fn words(&self) -> &'static str {
        words(self.artifact.place().0)
    }

    fn icon(&self) -> &'static str {
        icon(&self.artifact)
    }

    fn noun(&self) -> &'static str {
        if self.artifact.is_link() { "address" } else { self.artifact.kind().noun() }
    }
}

/// Where bytes are, in words.
pub fn words(place: domain::ArtifactState) -> &'static str {
    match place {
        domain::ArtifactState::Viber => "still on the viber",
        domain::ArtifactState::Stored => "stored",
        domain::ArtifactState::Offline => "viber offline",
        domain::ArtifactState::Gone => "gone",
        domain::ArtifactState::Link => "address",
    }
}

/// The icon of what an artifact is.
pub fn icon(artifact: &Artifact) -> &'static str {
    timeline::icon(artifact.kind(), artifact.is_link())
}

impl ArtifactsView {
    pub(super) fn of(data: &ArtifactsPane, context: &PaneContext) -> Self {
        let waits = |one: &&Artifact| one.origin == ArtifactOrigin::Operator && one.task_id.is_none();
        let known: Vec<&Artifact> = data.all.iter().filter(|one| !waits(one)).collect();
        let mut names = HashSet::new();
        let newest = known.iter().filter(|one| names.insert(one.name.as_str()));
        let versions = |name: &str| known.iter().filter(|one| one.name == name).count();
        Self {
            context: context.clone(),
            now: context.now,
            storage: data.storage,
            folder: urls::folder(&context.slug, &data.viber, "artifacts"),
            outputs: data.outputs.iter().map(|one| ArtifactLine::new(one.clone(), 1)).collect(),
            lines: newest.map(|one| ArtifactLine::new((*one).clone(), versions(&one.name))).collect(),
            waiting: data.all.iter().rev().filter(waits).map(|one| ArtifactLine::new(one.clone(), 1)).collect(),
        }
    }
}
