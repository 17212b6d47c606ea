//! A person's decision about a gate: durable, only for exactly what they saw, and theirs to take.

use protocol::{RunId, TeamId, text::head};

use super::{control, play::Play};
use crate::{
    actions::{members::Requester, refusals, tokens},
    db,
    domain::{GateWord, PlaybookRun, Role, RunEventKind, StepPhase},
    error::{Error, Result},
    state::Board,
};

/// Longest note, bytes.
const MAX_NOTE_BYTES: usize = 8 * 1024;

/// The decision.
#[derive(Clone, Debug)]
pub struct GateDecision {
    pub allow: bool,
    /// Digest of what they saw.
    pub digest: String,
    /// What they say: to the supervisor, and to people.
    pub note: Option<String>,
}

/// Decides an open gate of a step.
pub async fn decide_gate(
    board: &Board,
    team: &TeamId,
    who: Requester<'_>,
    step: (&RunId, &str),
    decision: GateDecision,
) -> Result<PlaybookRun> {
    if decision.note.as_ref().is_some_and(|note| note.len() > MAX_NOTE_BYTES) {
        return Err(Error::unacceptable("note_too_long", "a note has at most 8 KiB"));
    }
    let decided = control::decide(board, team, who, step, decision).await;
    if let Err(Error::Forbidden(why)) = decided {
        refusals::note(board, team, who.by, step.0.as_str(), why).await?;
    }
    decided
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
        if let Some(why) = self.objection(role).await? {
            return Err(Error::Forbidden(why));
        }
        let (actor, at) = (self.tx.by.actor.clone(), self.tx.now);
        let note = decision.note.as_deref().map(str::trim).filter(|note| !note.is_empty()).map(db::clean);
        let said = note.as_deref().map(|note| format!(": {}", head(note, 500))).unwrap_or_default();
        let word =
            GateWord { allowed: decision.allow, by: actor.id().to_owned(), by_name: actor.name().to_owned(), note, at };
        self.change(label, |step, run| step.decide(word, run)).await?;
        let (kind, what, action) = match decision.allow {
            true => (RunEventKind::GateAllowed, format!("was let pass{said}"), "gate.allow"),
            false => (RunEventKind::GateDenied, format!("was denied{said}"), "gate.deny"),
        };
        self.note_step((kind, label), &what, action).await
    }

    /// Why the team's settings do not let the actor decide.
    async fn objection(&mut self, role: Role) -> Result<Option<&'static str>> {
        let settings = db::approvals::settings::load(self.tx).await?;
        Ok(match settings.min_role {
            Role::Owner if role < Role::Owner => Some("the team's settings let owners alone decide this"),
            least if role < least => Some("the team's settings let admins and owners alone decide this"),
            _ if settings.not_requester && tokens::is_same_person(self.tx, &self.now.run.started_by).await? => {
                Some("the team's settings do not let whoever started a run decide its gates")
            }
            _ => None,
        })
    }
}
