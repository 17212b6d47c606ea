//! A person's decision about a gate: durable, only for exactly what they saw, and theirs to take.

use protocol::{RunId, TeamId, text::head};

use super::{control, play::Play};
use crate::{
    actions::{approvals::role_objection, members::Requester, tokens},
    db::{self, audit::Entry},
    domain::{GateWord, PlaybookRun, Role, RunEventKind, RunStep, StepPhase},
    error::{Error, Result},
    state::Board,
};

/// Longest note, bytes; also of a reason.
pub(super) const MAX_NOTE_BYTES: usize = 8 * 1024;

/// Why the people of a run do not decide its gates where the team's settings say so.
const OWN_RUN: &str =
    "whoever started a run, or told its agents something, does not decide its gates; an owner may, with a reason";

/// The decision.
#[derive(Clone, Debug)]
pub struct GateDecision {
    pub allow: bool,
    /// Digest of what they saw.
    pub digest: String,
    /// What they say: to the supervisor, and to people.
    pub note: Option<String>,
    /// Why an owner decides what the team's settings do not let them.
    pub reason: Option<String>,
}

/// Decides an open gate of a step.
pub async fn decide_gate(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    step: (&RunId, &str),
    decision: GateDecision,
) -> Result<PlaybookRun> {
    let is_longer = |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > MAX_NOTE_BYTES);
    if is_longer(&decision.note) || is_longer(&decision.reason) {
        return Err(note_too_long());
    }
    control::decide(board, team, who, step, decision).await
}

impl Play<'_, '_> {
    pub(super) async fn decide(&mut self, label: &str, role: Role, decision: &GateDecision) -> Result<()> {
        let step = self.step_of_person(label)?;
        if step.phase != StepPhase::Gate {
            return Err(Error::conflict("not_pending", format!("nobody is asked about step {label} now")));
        }
        if step.gate_digest.as_deref() != Some(decision.digest.as_str()) {
            let message = "what would run is not what you decided about; look at it again";
            return Err(Error::conflict("other_digest", message));
        }
        let step = step.clone();
        let break_glass = self.check_decider(role, &step, decision.reason.as_deref()).await?;
        let (actor, at) = (self.tx.by.actor.clone(), self.tx.now);
        let note = said(decision.note.as_deref());
        // A denial's note is told to the agents; an allowance's is no order to any.
        if note.is_some() && !decision.allow {
            self.note_author();
        }
        let past = if break_glass.is_some() { " past the team's settings" } else { "" };
        let told = note.as_deref().map(|note| format!(": {}", head(note, 500))).unwrap_or_default();
        let word = GateWord {
            allowed: decision.allow,
            by: actor.id().to_owned(),
            by_name: actor.name().to_owned(),
            note,
            break_glass,
            at,
        };
        self.change(label, |step, run| step.decide(word, run)).await?;
        let (kind, what, action) = match decision.allow {
            true => (RunEventKind::GateAllowed, format!("was let pass{past}{told}"), "gate.allow"),
            false => (RunEventKind::GateDenied, format!("was denied{past}{told}"), "gate.deny"),
        };
        self.note_step((kind, label), &what, action).await
    }

    /// Whether the actor may decide about the gate of a step. `Some`: an owner does past the team's settings, for this reason.
    pub(super) async fn check_decider(
        &mut self,
        role: Role,
        step: &RunStep,
        reason: Option<&str>,
    ) -> Result<Option<String>> {
        let reason = match (self.objection(role, step).await?, said(reason)) {
            (None, _) => return Ok(None),
            (Some(_), Some(reason)) if role == Role::Owner => reason,
            (Some(why), _) => return Err(Error::Forbidden(why)),
        };
        let entry = Entry::new("gate.break_glass", self.now.run.id.as_str()).detail(head(&reason, 300));
        db::audit::append(self.tx, entry.after(reason.as_str())).await?;
        Ok(Some(reason))
    }

    /// Why the team's settings do not let the actor decide: the same as of what an agent asks.
    async fn objection(&mut self, role: Role, step: &RunStep) -> Result<Option<&'static str>> {
        let settings = db::approvals::settings::load(self.tx).await?;
        if let Some(why) = role_objection(role, &settings) {
            return Ok(Some(why));
        }
        let is_own = settings.not_requester && self.is_requester(step).await?;
        Ok(is_own.then_some(OWN_RUN))
    }

    /// Whether whoever acts started the run, or told its supervisor or the step's agent something, also with a denial or a retry,
    /// with whatever token.
    async fn is_requester(&mut self, step: &RunStep) -> Result<bool> {
        let run = &self.now.run;
        let mut authors = run.told_by.clone();
        authors.push(run.started_by.clone());
        for session in [run.supervisor_session.as_ref(), step.session_id.as_ref()].into_iter().flatten() {
            authors.extend(db::sessions::authors(self.tx, session).await?);
        }
        tokens::is_one_of(self.tx, &authors).await
    }

    /// Whoever acts told the run's agents something.
    pub(super) fn note_author(&mut self) {
        let actor = self.tx.by.actor.id();
        let told_by = &mut self.now.run.told_by;
        if !told_by.iter().any(|known| known == actor) {
            told_by.push(actor.to_owned());
        }
    }
}

/// Why a note is refused.
pub(super) fn note_too_long() -> Error {
    Error::unacceptable("note_too_long", "a note or a reason has at most 8 KiB")
}

/// What somebody said, if it is anything.
pub(super) fn said(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(db::clean)
}
