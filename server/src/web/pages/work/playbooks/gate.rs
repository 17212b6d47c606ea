//! The gate of a step: what somebody lets pass or denies, exactly, and who may.

use protocol::{Instant, playbook::GatePoint};

use super::{steps::StepFrame, words};
use crate::{
    domain::{ApprovalSettings, Role, RunStep, StepPhase},
    web::{
        extract::Caller,
        pages::{
            asks::{hides_something, revealed},
            skills::words::short_digest,
        },
        urls,
    },
};

/// HTML of what would run, bytes: what is longer is not shown, and so it is not let pass from the page.
const MAX_GATE_HTML_BYTES: usize = 100_000;
/// Longest text of what a step did that the card shows, bytes.
const MAX_SUMMARY_BYTES: usize = 4_000;

/// The card.
#[derive(Clone, Debug)]
pub struct GateCard {
    pub point: GatePoint,
    pub opened: Option<Instant>,
    /// What would run, or ran: HTML in which everything shows.
    pub text: String,
    pub is_odd: bool,
    /// It is more than can be shown.
    pub is_cut: bool,
    /// What the step did, when the gate is behind it.
    pub summary: String,
    /// The playbook and the inputs that the decision is bound to.
    pub playbook: String,
    pub inputs: String,
    /// Of everything that it is bound to.
    pub digest: String,
    pub short_digest: String,
    pub if_denied: &'static str,
    /// Where the two answers go; `None`: the reader may not decide.
    pub answers: Option<GateAnswers>,
    /// Why not, or why only with a reason.
    pub objection: Option<&'static str>,
}

/// Where the two answers of a gate go.
#[derive(Clone, Debug)]
pub struct GateAnswers {
    pub allow: String,
    pub deny: String,
}

impl GateCard {
    /// `None` when no gate of the step is open.
    pub fn of(frame: &StepFrame<'_>, step: &RunStep) -> Option<Self> {
        let digest = step.gate_digest.clone().filter(|_| step.phase == StepPhase::Gate)?;
        if frame.run.state.is_final() {
            return None;
        }
        let point = step.gate?;
        let source = text(step);
        let html = revealed(&source);
        let is_cut = html.len() > MAX_GATE_HTML_BYTES;
        let objection = objection(frame.caller, frame.settings, &frame.run.started_by);
        let address = |verb| urls::playbook_step_verb(&frame.caller.team.slug, &step.run_id, &step.label, verb);
        Some(Self {
            point,
            opened: step.gate_opened_at,
            is_odd: hides_something(&source),
            text: if is_cut { String::new() } else { html },
            is_cut,
            summary: match point {
                GatePoint::After => {
                    protocol::text::head(step.summary.as_deref().unwrap_or_default(), MAX_SUMMARY_BYTES).to_owned()
                }
                GatePoint::Before => String::new(),
            },
            playbook: short_digest(&frame.run.hash, 2),
            inputs: words::inputs(&frame.run.inputs),
            short_digest: short_digest(&digest, 2),
            digest,
            if_denied: match (frame.run.supervised, point) {
                (true, _) => "your note goes to the supervisor",
                (false, GatePoint::Before) => "the step fails with your note, and nothing of it runs",
                (false, GatePoint::After) => "the step fails with your note",
            },
            answers: (objection.is_none() || frame.caller.role == Role::Owner)
                .then(|| GateAnswers { allow: address("allow"), deny: address("deny") }),
            objection,
        })
    }

    pub fn is_after(&self) -> bool {
        self.point == GatePoint::After
    }
}

/// The instruction with what is said about it, as it would run.
fn text(step: &RunStep) -> String {
    let bullets = step.bullets.iter().map(|bullet| format!("- {bullet}"));
    std::iter::once(step.instruction.clone()).chain(bullets).collect::<Vec<_>>().join("\n")
}

/// Why this reader does not decide about a gate of a run that somebody started. The action asks again, also who is
/// behind a token.
fn objection(caller: &Caller, settings: &ApprovalSettings, started_by: &str) -> Option<&'static str> {
    match settings.min_role {
        _ if caller.role < Role::Operator => {
            Some("Viewers read alone; an operator decides. Ask an admin of the team for that role.")
        }
        Role::Owner if caller.role < Role::Owner => Some("The team’s settings let owners alone decide this."),
        least if caller.role < least => Some("The team’s settings let admins and owners alone decide this."),
        _ if settings.not_requester && caller.by.actor.id() == started_by => {
            Some("Whoever started a run does not decide its gates here: somebody else does, or an owner with a reason.")
        }
        _ => None,
    }
}
