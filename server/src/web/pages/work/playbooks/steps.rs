//! A step of a run as a row: its state, who works on it, what it produced, and what can be done with it.

use askama::Template;
use protocol::{Instant, playbook::GatePoint};

use super::{gate::GateCard, words};
use crate::{
    db::playbook_runs::{StepArtifact, StepWork},
    domain::{ApprovalSettings, ArtifactKind, ContactState, PlaybookRun, RunStep, StepPhase, artifact::file_name},
    web::{
        extract::Caller,
        urls,
        view::{Badge, filters, timeline},
    },
};

/// Artifacts that a row names.
const MAX_SHOWN_ARTIFACTS: usize = 8;
/// Longest name of one, bytes.
const MAX_CHIP_BYTES: usize = 80;
/// Longest text of what became of a step, bytes.
const MAX_TEXT_BYTES: usize = 4_000;

/// What the rows of a run have in common.
pub struct StepFrame<'f> {
    pub caller: &'f Caller,
    pub run: &'f PlaybookRun,
    /// The viber that the steps run on which name none; `None` when it was removed.
    pub home: Option<&'f str>,
    pub settings: &'f ApprovalSettings,
    /// Whether the reader may step in.
    pub may_act: bool,
    pub now: Instant,
}

/// What is known of a step beside its row.
#[derive(Clone, Copy, Default)]
pub struct StepSurroundings<'s> {
    /// The label of the step that stands before it.
    pub behind: Option<&'s str>,
    pub work: Option<&'s StepWork>,
    pub artifacts: &'s [StepArtifact],
    /// What the ledger says of its attempt before this one.
    pub tried: Option<&'s str>,
}

/// Something that was sent about a step and refused, with what was typed.
#[derive(Clone, Debug, Default)]
pub struct RefusedStep {
    pub why: String,
    pub note: String,
    /// Why it is skipped.
    pub reason: String,
    /// Why the reader decides about its gate all the same.
    pub because: String,
    /// The reader may decide all the same, with a reason.
    pub asks_reason: bool,
}

/// The row: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/run/_step.html")]
pub struct StepView {
    now: Instant,
    pub step: RunStep,
    behind: Option<String>,
    badge: Badge,
    viber: String,
    /// The session of its task.
    session: Option<String>,
    chips: Vec<ArtifactChip>,
    more_chips: usize,
    age: Option<StepAge>,
    cost: String,
    /// When its viber was heard last, while it is away and the step runs.
    heard: Option<Instant>,
    tried: Option<String>,
    gate: Option<GateCard>,
    retry: Option<String>,
    skip: Option<String>,
    refused: Option<RefusedStep>,
}

/// An artifact in short.
#[derive(Clone, Debug)]
struct ArtifactChip {
    name: String,
    icon: &'static str,
    href: String,
}

/// How long a step takes.
#[derive(Clone, Copy, Debug)]
enum StepAge {
    Since(Instant),
    /// Milliseconds.
    Took(u64),
}

impl StepView {
    pub fn of(frame: &StepFrame<'_>, step: &RunStep, around: StepSurroundings<'_>) -> Self {
        let slug = &frame.caller.team.slug;
        let is_open = !frame.run.state.is_final();
        let verb = |verb: &str, phases: &[StepPhase]| {
            let can = frame.may_act && is_open && phases.contains(&step.phase);
            can.then(|| urls::playbook_step_verb(slug, &step.run_id, &step.label, verb))
        };
        let away = around.work.filter(|work| work.contact.state != ContactState::Connected);
        Self {
            now: frame.now,
            behind: around.behind.map(str::to_owned),
            badge: words::step_badge(step, around.work),
            viber: viber(frame, step, around.work),
            session: step.session_id.as_ref().map(|session| urls::session(slug, session)),
            chips: around.artifacts.iter().take(MAX_SHOWN_ARTIFACTS).map(|made| ArtifactChip::of(slug, made)).collect(),
            more_chips: around.artifacts.len().saturating_sub(MAX_SHOWN_ARTIFACTS),
            age: StepAge::of(step),
            cost: words::cost(&step.usage),
            heard: away.filter(|_| step.phase == StepPhase::Running).map(|work| work.contact.since),
            tried: around.tried.map(|text| protocol::text::head(text, MAX_TEXT_BYTES).to_owned()),
            gate: GateCard::of(frame, step),
            retry: verb("retry", &[StepPhase::Failed]),
            skip: verb("skip", &[StepPhase::Pending, StepPhase::Gate, StepPhase::Failed]),
            refused: None,
            step: step.clone(),
        }
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }

    /// The same with something that was sent about it and refused.
    #[must_use]
    pub fn with_refusal(self, refused: RefusedStep) -> Self {
        Self { refused: Some(refused), ..self }
    }

    /// The id of its row.
    pub fn region(&self) -> String {
        format!("step-{}", self.step.label)
    }

    fn is_failed(&self) -> bool {
        self.step.phase == StepPhase::Failed
    }

    /// The labels that it comes after, as a list.
    fn after(&self) -> String {
        words::listed(&self.step.after)
    }

    /// Why it failed.
    fn failure(&self) -> &str {
        let failure = self.step.failure.as_deref().unwrap_or("Nobody said why.");
        protocol::text::head(failure, MAX_TEXT_BYTES)
    }

    /// What was typed before, or nothing.
    fn typed(&self) -> RefusedStep {
        self.refused.clone().unwrap_or_default()
    }

    /// Where its gate is, in words.
    fn gate_place(&self) -> &'static str {
        self.step.gate.map_or("before", GatePoint::as_str)
    }
}

/// Where it runs, ran, or is to run.
fn viber(frame: &StepFrame<'_>, step: &RunStep, work: Option<&StepWork>) -> String {
    if let Some(work) = work {
        return work.viber.clone();
    }
    words::target(step.target.as_ref()).unwrap_or_else(|| frame.home.unwrap_or("a removed viber").to_owned())
}

impl StepAge {
    fn of(step: &RunStep) -> Option<Self> {
        match (step.phase, step.started_at, step.ended_at) {
            (StepPhase::Gate, ..) => step.gate_opened_at.map(Self::Since),
            (StepPhase::Running, Some(begin), _) => Some(Self::Since(begin)),
            (StepPhase::Pending | StepPhase::Skipped, ..) => None,
            (_, Some(begin), Some(end)) => Some(Self::Took(u64::try_from(end.millis() - begin.millis()).unwrap_or(0))),
            _ => None,
        }
    }
}

impl ArtifactChip {
    fn of(slug: &str, made: &StepArtifact) -> Self {
        let name = file_name(&made.name).unwrap_or_else(|| "artifact".to_owned());
        let is_link = made.reference.contains("://");
        let icon = timeline::icon(ArtifactKind::of(&made.sniffed, &made.claimed, &name), is_link);
        Self {
            name: protocol::text::head(&name, MAX_CHIP_BYTES).to_owned(),
            icon,
            href: urls::artifact(slug, &made.id),
        }
    }
}
