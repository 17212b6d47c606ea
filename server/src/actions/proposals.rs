//! What agents would like to be changed, decided by a person: accepted, whole or in part or as they rewrote it, or rejected.

use std::collections::BTreeSet;

use protocol::{ProposalId, SessionId, TeamId};

use super::{After, plan};
use crate::{
    db,
    domain::{By, Edit, EditState, Proposal, ProposalState, file, plan as plans},
    error::{Error, Result},
    state::Board,
};

/// What a person decides.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// All of it.
    Accept,
    /// These pieces of the difference to the version `of`, by number.
    Take {
        pieces: BTreeSet<usize>,
        of: Option<String>,
    },
    /// This text instead.
    Rewrite(String),
    Reject,
}

/// A plan's proposal as it would be made now.
#[derive(Clone, Debug)]
pub struct Effect {
    /// The whole text after it.
    pub text: String,
    /// The plan was changed since the agent saw it.
    pub behind: bool,
}

/// What a proposal means for the plan as it is: what others changed since stays, as far as both can stand.
pub fn effect(proposal: &Proposal, base: Option<&str>, now: Option<(&str, &str)>) -> Effect {
    let (hash, text) = now.map_or((None, ""), |(hash, text)| (Some(hash), text));
    let behind = proposal.base_hash.as_deref() != hash;
    let merged = base.filter(|_| behind).map(|base| file::merge(base, text, &proposal.content));
    let text = match merged {
        Some((merged, false)) => merged,
        _ => proposal.content.clone(),
    };
    Effect { text, behind }
}

/// Decides a proposal about a plan that waits. With an acceptance comes the edit that it led to.
pub async fn decide(
    board: &Board,
    team: &TeamId,
    by: &By,
    (session, id): (&SessionId, &ProposalId),
    verdict: Verdict,
) -> Result<(Proposal, Option<Edit>)> {
    let (team_id, session_id, proposal_id) = (team.clone(), session.clone(), id.clone());
    let (proposal, now, base) = board
        .db
        .read(move |tx| {
            Box::pin(async move {
                let (team, session) = (&team_id, &session_id);
                let found = db::proposals::load(tx, team, session, &proposal_id).await?.ok_or(Error::NotFound)?;
                let now = db::plans::newest(tx, team, session).await?;
                let base = match &found.base_hash {
                    Some(hash) => db::plans::of_hash(tx, team, session, hash).await?,
                    None => None,
                };
                Ok::<_, Error>((found, now, base))
            })
        })
        .await?;
    if proposal.state != ProposalState::Pending {
        return Err(Error::conflict("not_pending", format!("this proposal is {} already", proposal.state)));
    }
    let standing = now.as_ref().map(|now| (now.hash.as_str(), now.markdown.as_str()));
    let effect = effect(&proposal, base.as_ref().map(|base| base.markdown.as_str()), standing);
    let current = standing.map_or("", |(_, text)| text);
    let text = match verdict {
        Verdict::Reject => None,
        Verdict::Accept => Some(effect.text),
        Verdict::Rewrite(text) => Some(text),
        Verdict::Take { pieces, of } => {
            if of.as_deref() != standing.map(|(hash, _)| hash) {
                let message = "the plan was changed meanwhile; look at the difference again";
                return Err(Error::conflict("plan_changed", message));
            }
            Some(plans::take(current, &effect.text, &pieces))
        }
    };
    let state = if text.is_some() { ProposalState::Accepted } else { ProposalState::Rejected };
    let mut edit = None;
    if let Some(text) = text.filter(|text| text != current) {
        let base = standing.map(|(hash, _)| hash.to_owned());
        let made = plan::put(board, team, by, session, base, text).await?;
        if !matches!(made.state, EditState::Applied | EditState::Queued) {
            return Ok((proposal, Some(made)));
        }
        edit = Some(made);
    }
    let decided = close(board, team, by, &proposal, state).await?;
    Ok((decided, edit))
}

/// Notes what was decided.
async fn close(board: &Board, team: &TeamId, by: &By, proposal: &Proposal, state: ProposalState) -> Result<Proposal> {
    let now = board.clock.now();
    let (team_id, by, session, id) = (team.clone(), by.clone(), proposal.session_id.clone(), proposal.id.clone());
    let decided = board
        .db
        .write(move |tx| {
            let (team, by, session, id) = (team_id.clone(), by.clone(), session.clone(), id.clone());
            Box::pin(async move {
                if !db::proposals::decide(tx, &team, &id, state, by.actor.id(), now).await? {
                    return Err(Error::conflict("not_pending", "somebody else decided it just now"));
                }
                let verb = if state == ProposalState::Accepted { "proposal.accept" } else { "proposal.reject" };
                db::audit::append(tx, &team, now, &by, verb, id.as_str(), session.as_str(), None, None).await?;
                db::proposals::load(tx, &team, &session, &id).await?.ok_or(Error::NotFound)
            })
        })
        .await?;
    let mut after = After::default();
    after.session(&decided.session_id);
    after.tell(board, team);
    Ok(decided)
}
