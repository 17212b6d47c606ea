//! Changes that agents propose: a person accepts them, whole, in part or rewritten, or rejects them.

use std::collections::BTreeSet;

use protocol::{ProposalId, SessionId, TeamId, ViberId};

use crate::{
    actions::{
        AfterCommit, files,
        memory::{self, MemoryDraft, MemoryState},
        plan::{self, PlanDraft},
    },
    db::{self, audit::Entry},
    domain::{
        By, Edit, EditState, Proposal, ProposalState, file,
        plan::{self as plans, ProposalKind},
    },
    error::{Error, Result},
    state::Board,
};

/// Which proposal of a session is meant.
#[derive(Clone, Copy, Debug)]
pub struct ProposalRef<'a> {
    pub kind: ProposalKind,
    pub session: &'a SessionId,
    pub id: &'a ProposalId,
}

/// What a person decides.
#[derive(Clone, Debug)]
pub enum ProposalVerdict {
    /// All of it.
    Accept,
    /// These pieces, by number, of the difference from the version `of`.
    Take {
        pieces: BTreeSet<usize>,
        of: Option<String>,
    },
    /// This text instead, written against the version `of`; `None`: against the current one.
    Rewrite {
        text: String,
        of: Option<String>,
    },
    Reject,
}

/// What accepting a proposal would do now.
#[derive(Clone, Debug)]
pub struct ProposalEffect {
    /// The whole text afterwards.
    pub text: String,
    /// The file was changed since the agent saw it.
    pub behind: bool,
    /// Both changed the same lines, or the agent's base is not known: accepting would undo what others wrote.
    pub clash: bool,
}

/// Merges a proposal into the current file: what others changed since is kept where both changes fit.
pub fn effect(proposal: &Proposal, base: Option<&str>, now: Option<(&str, &str)>) -> ProposalEffect {
    let (hash, text) = now.map_or((None, ""), |(hash, text)| (Some(hash), text));
    let behind = proposal.base_hash.as_deref() != hash;
    let merged = base.filter(|_| behind).map(|base| file::merge(base, text, &proposal.content));
    match merged {
        Some((text, false)) => ProposalEffect { text, behind, clash: false },
        _ => ProposalEffect { text: proposal.content.clone(), behind, clash: behind },
    }
}

/// Decides a pending proposal. An acceptance returns the edit that it led to.
pub async fn decide(
    board: &Board,
    team: &TeamId,
    by: &By,
    proposed: ProposalRef<'_>,
    verdict: ProposalVerdict,
) -> Result<(Proposal, Option<Edit>)> {
    let ProposalRef { kind, session, id } = proposed;
    let (proposal, session, now, base) = {
        let mut tx = board.db.reader_of(team).await?;
        let whole = db::sessions::load(&mut tx, session).await?.ok_or(Error::NotFound)?;
        let found = db::proposals::load(&mut tx, session, id).await?;
        let found = found.filter(|found| found.kind == kind).ok_or(Error::NotFound)?;
        let now = db::plans::newest(&mut tx, session).await?;
        let base = match &found.base_hash {
            Some(hash) => db::plans::of_hash(&mut tx, session, hash).await?,
            None => None,
        };
        (found, whole, now, base)
    };
    if proposal.state != ProposalState::Pending {
        return Err(Error::conflict("not_pending", format!("this proposal is {} already", proposal.state)));
    }
    let deciding = Deciding { board, team, by };
    let edit = match (kind, verdict) {
        (_, ProposalVerdict::Reject) => return Ok((deciding.close(&proposal, ProposalState::Rejected).await?, None)),
        (ProposalKind::Plan, verdict) => {
            let now = now.map(|now| (now.hash, now.markdown));
            let text = wanted(&proposal, base.as_ref().map(|base| base.markdown.as_str()), now.as_ref(), verdict)?;
            if changes(&text, now.as_ref()) {
                let base = now.map(|(hash, _)| hash);
                Some(plan::put(board, team, by, &session.id, PlanDraft { base, text }).await?)
            } else {
                None
            }
        }
        (ProposalKind::Memory, verdict) => deciding.remember(&session.viber_id, &proposal, verdict).await?,
    };
    if edit.as_ref().is_some_and(|edit| !matches!(edit.state, EditState::Applied | EditState::Queued)) {
        return Ok((proposal, edit));
    }
    Ok((deciding.close(&proposal, ProposalState::Accepted).await?, edit))
}

/// A person who decides.
struct Deciding<'a> {
    board: &'a Board,
    team: &'a TeamId,
    by: &'a By,
}

impl Deciding<'_> {
    /// Changes `MEMORY.md`. Nothing is overwritten that the person, or the agent, has not seen.
    async fn remember(&self, viber: &ViberId, proposal: &Proposal, verdict: ProposalVerdict) -> Result<Option<Edit>> {
        let Self { board, team, by } = *self;
        let rewrite = match (verdict, memory::current(board, team, viber).await?) {
            // What a person wrote is always kept: a clash becomes a conflict that shows both versions.
            (ProposalVerdict::Rewrite { text, of: Some(of) }, now) => {
                let seen = match now {
                    MemoryState::Known(Some((hash, text))) if hash == of => Some(text),
                    _ => None,
                };
                let base = Some(of).filter(|of| !of.is_empty());
                return Ok(Some(memory::put(board, team, by, viber, MemoryDraft { base, seen, text }).await?));
            }
            // The machine will report whether the file is still what the agent saw.
            (ProposalVerdict::Accept, MemoryState::Unknown) => MemoryDraft {
                base: proposal.base_hash.clone(),
                seen: proposal.base.clone(),
                text: proposal.content.clone(),
            },
            (_, MemoryState::Unknown) => return Err(changed()),
            (verdict, MemoryState::Known(now)) => {
                let standing = now.as_ref().map(|(hash, text)| (hash.as_str(), text.as_str()));
                if effect(proposal, proposal.base.as_deref(), standing).clash
                    && matches!(verdict, ProposalVerdict::Accept)
                {
                    let message = "MEMORY.md was changed since the agent saw it, in the same lines: send the text \
                                   that should stand";
                    return Err(Error::conflict("memory_changed", message));
                }
                let text = wanted(proposal, proposal.base.as_deref(), now.as_ref(), verdict)?;
                if !changes(&text, now.as_ref()) {
                    return Ok(None);
                }
                let (base, seen) = now.unzip();
                MemoryDraft { base, seen, text }
            }
        };
        let edit = memory::put(board, team, by, viber, rewrite).await?;
        if edit.state == EditState::Conflict {
            // The person who decides is told and sees the new difference; nobody else has to settle it.
            files::settle(board, team, by, &edit, None).await?;
            return Err(changed());
        }
        Ok(Some(edit))
    }

    /// Records the decision.
    async fn close(&self, proposal: &Proposal, state: ProposalState) -> Result<Proposal> {
        let (session, id) = (proposal.session_id.clone(), proposal.id.clone());
        let deciding = self.board.change(self.team, self.by, move |tx| {
            let (session, id) = (session.clone(), id.clone());
            Box::pin(async move {
                if !db::proposals::decide(tx, &id, state).await? {
                    return Err(Error::conflict("not_pending", "somebody else decided it just now"));
                }
                let verb = if state == ProposalState::Accepted { "proposal.accept" } else { "proposal.reject" };
                db::audit::append(tx, Entry::new(verb, id.as_str()).detail(session.as_str())).await?;
                db::proposals::load(tx, &session, &id).await?.ok_or(Error::NotFound)
            })
        });
        let decided = deciding.await?;
        let mut after = AfterCommit::default();
        after.session(&decided.session_id);
        after.publish(self.board, self.team);
        Ok(decided)
    }
}

fn changed() -> Error {
    Error::conflict("memory_changed", "MEMORY.md was changed meanwhile; look at the difference again")
}

/// The text that a verdict leads to.
fn wanted(
    proposal: &Proposal,
    base: Option<&str>,
    now: Option<&(String, String)>,
    verdict: ProposalVerdict,
) -> Result<String> {
    let standing = now.map(|(hash, text)| (hash.as_str(), text.as_str()));
    let version = standing.map(|(hash, _)| hash);
    let effect = effect(proposal, base, standing);
    Ok(match verdict {
        ProposalVerdict::Accept | ProposalVerdict::Reject => effect.text,
        ProposalVerdict::Rewrite { of: Some(of), .. } if !of.is_empty() && Some(of.as_str()) != version => {
            return Err(outdated(proposal.kind));
        }
        ProposalVerdict::Rewrite { text, .. } => text,
        ProposalVerdict::Take { pieces, of } => {
            if of.as_deref() != version {
                return Err(outdated(proposal.kind));
            }
            plans::take(standing.map_or("", |(_, text)| text), &effect.text, &pieces)
        }
    })
}

/// The error when a verdict was made for another version than the current one.
fn outdated(kind: ProposalKind) -> Error {
    match kind {
        ProposalKind::Plan => {
            Error::conflict("plan_changed", "the plan was changed meanwhile; look at the difference again")
        }
        ProposalKind::Memory => changed(),
    }
}

fn changes(text: &str, now: Option<&(String, String)>) -> bool {
    text != now.map_or("", |(_, text)| text.as_str())
}
