//! Proposals: changes that agents would like, until a person decides.

use protocol::{ProposalId, SessionId, TaskId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::{Proposal, ProposalState, plan::ProposalKind},
};

macro_rules! columns {
    () => {
        "proposal_id, kind, session_id, task_id, attempt, seq, base_hash, base, content, note, state, decided_by, \
         created_at, decided_at"
    };
}

/// Inserts a proposal; `false` when its event was seen before.
pub async fn insert(tx: &mut TeamTx<'_>, proposal: &Proposal) -> Result<bool, DbError> {
    let sql = "INSERT INTO proposals (team_id, proposal_id, kind, session_id, task_id, attempt, seq, base_hash, content, \
               note, state, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING";
    let args = args![
        &proposal.id,
        proposal.kind,
        &proposal.session_id,
        &proposal.task_id,
        proposal.attempt,
        proposal.seq,
        proposal.base_hash.as_deref(),
        &proposal.content,
        &proposal.note,
        proposal.state,
        proposal.created_at
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// One proposal of a session.
pub async fn load(tx: &mut TeamTx<'_>, session: &SessionId, id: &ProposalId) -> Result<Option<Proposal>, DbError> {
    let sql =
        concat!("SELECT ", columns!(), " FROM proposals WHERE team_id = $1 AND session_id = $2 AND proposal_id = $3");
    tx.row(sql, args![session, id]).await?.as_ref().map(proposal).transpose()
}

/// A session's proposals of a kind, the newest first: those in `state`, or all.
pub async fn list(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    kind: ProposalKind,
    state: Option<ProposalState>,
    limit: u64,
) -> Result<Vec<Proposal>, DbError> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM proposals WHERE team_id = $1 AND session_id = $2 AND kind = $3 AND ($4 IS NULL OR state = $4) \
         ORDER BY proposal_id DESC LIMIT $5 + 0"
    );
    let args = args![session, kind, state.map(ProposalState::as_str), limit];
    tx.rows(sql, args).await?.iter().map(proposal).collect()
}

/// How many of a session's proposals are pending: about its plan, and about `MEMORY.md`.
pub async fn waiting(tx: &mut TeamTx<'_>, session: &SessionId) -> Result<[usize; 2], DbError> {
    let sql = "SELECT kind, COUNT(*) AS n FROM proposals WHERE team_id = $1 AND session_id = $2 AND state = 'pending' \
               GROUP BY kind";
    let mut counts = [0; 2];
    for row in tx.rows(sql, args![session]).await? {
        let place = usize::from(row.parse::<ProposalKind>("kind")? == ProposalKind::Memory);
        counts[place] = usize::try_from(row.count("n")?).unwrap_or(usize::MAX);
    }
    Ok(counts)
}

/// Decides a pending proposal; `false` when it is no longer pending.
pub async fn decide(tx: &mut Change<'_>, id: &ProposalId, state: ProposalState) -> Result<bool, DbError> {
    let sql = "UPDATE proposals SET state = $3, decided_by = $4, decided_at = $5 \
               WHERE team_id = $1 AND proposal_id = $2 AND state = 'pending'";
    Ok(tx.execute(sql, args![id, state, tx.by.actor.id(), tx.now]).await? > 0)
}

/// Supersedes older pending proposals: for a plan all of the session, for `MEMORY.md` those of the same task, which this one
/// builds on.
pub async fn supersede(tx: &mut Change<'_>, newer: &Proposal) -> Result<(), DbError> {
    let sql = "UPDATE proposals SET state = 'superseded', decided_at = $5 WHERE team_id = $1 AND session_id = $2 \
               AND kind = $3 AND proposal_id <> $4 AND state = 'pending' AND (kind = 'plan' OR task_id = $6)";
    tx.execute(sql, args![&newer.session_id, newer.kind, &newer.id, tx.now, &newer.task_id]).await.map(drop)
}

/// Has people decide about the change of `MEMORY.md` that came with a draft, now that the draft is applied: about the newest,
/// which contains the others. `false`: there is none, or they were asked before.
pub async fn release(tx: &mut Change<'_>, session: &SessionId, draft: &TaskId) -> Result<bool, DbError> {
    let sql = "UPDATE proposals SET state = 'pending' WHERE team_id = $1 AND session_id = $2 AND kind = 'memory' \
               AND state = 'superseded' AND decided_at IS NULL AND proposal_id = (SELECT p.proposal_id FROM proposals p \
               WHERE p.team_id = $1 AND p.session_id = $2 AND p.kind = 'memory' AND p.task_id = $3 \
               ORDER BY p.attempt DESC, p.seq DESC LIMIT 1)";
    Ok(tx.execute(sql, args![session, draft]).await? > 0)
}

/// The sessions of a viber with a pending proposal about `MEMORY.md`.
pub async fn about_memory(tx: &mut TeamTx<'_>, viber: &ViberId) -> Result<Vec<SessionId>, DbError> {
    let sql = "SELECT DISTINCT p.session_id FROM proposals p JOIN sessions s ON s.team_id = p.team_id \
               AND s.session_id = p.session_id AND s.deleted_at IS NULL WHERE p.team_id = $1 AND s.viber_id = $2 AND p.kind = 'memory' \
               AND p.state = 'pending' ORDER BY p.session_id LIMIT 1000";
    tx.rows(sql, args![viber]).await?.iter().map(|row| row.parse("session_id")).collect()
}

/// Stores the text of a version of `MEMORY.md` with proposals made for it, at most `limit`; returns how many.
pub async fn keep_base(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    (hash, text): (&str, &str),
    limit: u64,
) -> Result<u64, DbError> {
    let sql = "UPDATE proposals SET base = $4 WHERE team_id = $1 AND proposal_id IN (SELECT p.proposal_id \
               FROM proposals p JOIN sessions s ON s.team_id = p.team_id AND s.session_id = p.session_id \
               WHERE p.team_id = $1 AND p.kind = 'memory' AND p.state = 'pending' AND p.base IS NULL \
               AND p.base_hash = $3 AND s.viber_id = $2 LIMIT $5 + 0)";
    tx.execute(sql, args![viber, hash, text, limit]).await
}

fn proposal(row: &Row) -> Result<Proposal, DbError> {
    Ok(Proposal {
        id: row.parse("proposal_id")?,
        kind: row.parse("kind")?,
        session_id: row.parse("session_id")?,
        task_id: row.parse("task_id")?,
        attempt: u32::try_from(row.count("attempt")?).unwrap_or(u32::MAX),
        seq: row.count("seq")?,
        base_hash: row.optional_text("base_hash")?,
        base: row.optional_text("base")?,
        content: row.text("content")?,
        note: row.text("note")?,
        state: row.parse("state")?,
        decided_by: row.optional_text("decided_by")?,
        created_at: row.instant("created_at")?,
        decided_at: row.optional_instant("decided_at")?,
    })
}
