//! Artifacts: metadata of what tasks produced and operators attached. The bytes are elsewhere.

use protocol::{ArtifactId, COMMAND_OUTPUT_TYPE, Instant, SessionId, TaskId, ViberId};

use crate::{
    args,
    db::{Change, DbError, Row, TeamTx},
    domain::{Artifact, Contact},
};

/// Artifacts of a session among which those of one sort are looked for, the newest: what a look costs does not grow with
/// the session.
const MAX_SEARCHED: u64 = 2_000;

macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT a.artifact_id, a.viber_id, a.session_id, a.task_id, a.attempt, a.name, a.title, a.claimed, a.sniffed, \
             a.reference, a.size, a.sha256, a.origin, a.created_by, a.created_at, a.gone_at, b.stored_at, \
             CASE WHEN v.unheard <> 0 THEN 'unheard' ELSE v.contact END AS contact, v.contact_since FROM artifacts a \
             JOIN vibers v ON v.team_id = a.team_id AND v.viber_id = a.viber_id \
             JOIN sessions s ON s.team_id = a.team_id AND s.session_id = a.session_id AND s.deleted_at IS NULL \
             LEFT JOIN blobs b ON b.team_id = a.team_id AND b.sha256 = a.sha256 ",
            $rest
        )
    };
}

/// One artifact.
pub async fn load(tx: &mut TeamTx<'_>, id: &ArtifactId) -> Result<Option<Artifact>, DbError> {
    let sql = select!("WHERE a.team_id = $1 AND a.artifact_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(artifact).transpose()
}

/// A session's artifacts, the newest first, before `cursor`.
pub async fn of_session(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    cursor: Option<&ArtifactId>,
    limit: u64,
) -> Result<Vec<Artifact>, DbError> {
    let sql = select!(
        "WHERE a.team_id = $1 AND a.session_id = $2 AND ($3 IS NULL OR a.artifact_id < $3) \
         ORDER BY a.artifact_id DESC LIMIT $4 + 0"
    );
    tx.rows(sql, args![session, cursor, limit]).await?.iter().map(artifact).collect()
}

/// A session's artifacts but for whole outputs of commands, which belong to their calls: the newest first, among the newest
/// that there are of both.
pub async fn products(tx: &mut TeamTx<'_>, session: &SessionId, limit: u64) -> Result<Vec<Artifact>, DbError> {
    let sql = select!(
        "WHERE a.team_id = $1 AND a.session_id = $2 AND (a.claimed <> $4 OR a.origin = 'operator') \
         AND a.artifact_id IN (SELECT n.artifact_id FROM artifacts n WHERE n.team_id = $1 AND n.session_id = $2 \
         ORDER BY n.artifact_id DESC LIMIT $5 + 0) ORDER BY a.artifact_id DESC LIMIT $3 + 0"
    );
    let args = args![session, limit, COMMAND_OUTPUT_TYPE, MAX_SEARCHED];
    tx.rows(sql, args).await?.iter().map(artifact).collect()
}

/// A session's newest whole outputs of commands, the newest first, among the newest artifacts that there are.
pub async fn outputs(tx: &mut TeamTx<'_>, session: &SessionId, limit: u64) -> Result<Vec<Artifact>, DbError> {
    let sql = select!(
        "WHERE a.team_id = $1 AND a.session_id = $2 AND a.claimed = $4 AND a.origin <> 'operator' \
         AND a.artifact_id IN (SELECT n.artifact_id FROM artifacts n WHERE n.team_id = $1 AND n.session_id = $2 \
         ORDER BY n.artifact_id DESC LIMIT $5 + 0) ORDER BY a.artifact_id DESC LIMIT $3 + 0"
    );
    let args = args![session, limit, COMMAND_OUTPUT_TYPE, MAX_SEARCHED];
    tx.rows(sql, args).await?.iter().map(artifact).collect()
}

/// The versions of what a session calls `name`, the newest first.
pub async fn versions(
    tx: &mut TeamTx<'_>,
    session: &SessionId,
    name: &str,
    limit: u64,
) -> Result<Vec<Artifact>, DbError> {
    let sql =
        select!("WHERE a.team_id = $1 AND a.session_id = $2 AND a.name = $3 ORDER BY a.artifact_id DESC LIMIT $4 + 0");
    tx.rows(sql, args![session, name, limit]).await?.iter().map(artifact).collect()
}

/// Attachments of a session that no task has yet, in order.
pub async fn waiting(tx: &mut TeamTx<'_>, session: &SessionId, limit: u64) -> Result<Vec<Artifact>, DbError> {
    let sql = select!(
        "WHERE a.team_id = $1 AND a.session_id = $2 AND a.origin = 'operator' AND a.task_id IS NULL \
         ORDER BY a.artifact_id LIMIT $3 + 0"
    );
    tx.rows(sql, args![session, limit]).await?.iter().map(artifact).collect()
}

/// How many artifacts of its sort, product or output of a command, a task has reported, and whether one of them has this
/// name, reference and content.
pub async fn count_reported(tx: &mut TeamTx<'_>, task: &TaskId, new: &Artifact) -> Result<(u64, bool), DbError> {
    let sql = "SELECT COUNT(CASE WHEN (claimed = $7) = (CAST($8 AS TEXT) = $7) THEN 1 END) AS n, \
               COUNT(CASE WHEN name = $3 AND reference = $4 \
               AND COALESCE(sha256, '') = COALESCE($5, '') THEN 1 END) AS same \
               FROM artifacts WHERE team_id = $1 AND session_id = $6 AND task_id = $2";
    let args = args![
        task,
        &new.name,
        &new.reference,
        new.sha256.as_deref(),
        &new.session_id,
        COMMAND_OUTPUT_TYPE,
        &new.claimed
    ];
    let row = tx.row(sql, args).await?;
    row.map_or(Ok((0, false)), |row| Ok((row.count("n")?, row.count("same")? > 0)))
}

/// Inserts an artifact; `false` when the id is taken, in whatever team.
pub async fn insert(tx: &mut TeamTx<'_>, new: &Artifact) -> Result<bool, DbError> {
    let sql = "INSERT INTO artifacts (team_id, artifact_id, viber_id, session_id, task_id, attempt, name, title, claimed, \
               sniffed, reference, size, sha256, origin, created_by, created_at) \
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT DO NOTHING";
    let args = args![
        &new.id,
        &new.viber_id,
        &new.session_id,
        new.task_id.as_ref(),
        new.attempt.map(i64::from),
        &new.name,
        &new.title,
        &new.claimed,
        &new.sniffed,
        &new.reference,
        new.size.and_then(|size| i64::try_from(size).ok()),
        new.sha256.as_deref(),
        new.origin,
        &new.created_by,
        new.created_at
    ];
    Ok(tx.execute(sql, args).await? > 0)
}

/// Stores the size, hash and type that a viber reported later.
pub async fn measured(
    tx: &mut TeamTx<'_>,
    id: &ArtifactId,
    size: u64,
    sha256: &str,
    sniffed: &str,
) -> Result<bool, DbError> {
    let sql = "UPDATE artifacts SET size = $3, sha256 = $4, sniffed = CASE WHEN sniffed = '' THEN $5 ELSE sniffed END \
               WHERE team_id = $1 AND artifact_id = $2 AND sha256 IS NULL";
    Ok(tx.execute(sql, args![id, size, sha256, sniffed]).await? > 0)
}

/// Marks that nobody has its bytes any more, or that somebody has them again.
pub async fn set_gone(tx: &mut TeamTx<'_>, id: &ArtifactId, at: Option<Instant>) -> Result<(), DbError> {
    let sql = "UPDATE artifacts SET gone_at = $3 WHERE team_id = $1 AND artifact_id = $2";
    tx.execute(sql, args![id, at]).await.map(drop)
}

/// Gives an attachment to a task; `false` when it went to another one, or is no attachment.
pub async fn attach(tx: &mut TeamTx<'_>, session: &SessionId, id: &ArtifactId, task: &TaskId) -> Result<bool, DbError> {
    let sql = "UPDATE artifacts SET task_id = $4, attempt = 1 WHERE team_id = $1 AND session_id = $2 \
               AND artifact_id = $3 AND origin = 'operator' AND task_id IS NULL";
    Ok(tx.execute(sql, args![session, id, task]).await? > 0)
}

/// Gives an attachment that went with a message to the task that the message became.
pub async fn hand_on(tx: &mut TeamTx<'_>, session: &SessionId, id: &ArtifactId, task: &TaskId) -> Result<(), DbError> {
    let sql = "UPDATE artifacts SET task_id = $4, attempt = 1 WHERE team_id = $1 AND session_id = $2 \
               AND artifact_id = $3 AND origin = 'operator'";
    tx.execute(sql, args![session, id, task]).await.map(drop)
}

/// Lets an attachment wait for its session's next message again.
pub async fn detach(tx: &mut TeamTx<'_>, session: &SessionId, id: &ArtifactId) -> Result<(), DbError> {
    let sql = "UPDATE artifacts SET task_id = NULL, attempt = NULL WHERE team_id = $1 AND session_id = $2 \
               AND artifact_id = $3 AND origin = 'operator'";
    tx.execute(sql, args![session, id]).await.map(drop)
}

/// Deletes an attachment that no task has yet.
pub async fn withdraw(tx: &mut TeamTx<'_>, id: &ArtifactId) -> Result<bool, DbError> {
    let sql =
        "DELETE FROM artifacts WHERE team_id = $1 AND artifact_id = $2 AND origin = 'operator' AND task_id IS NULL";
    Ok(tx.execute(sql, args![id]).await? > 0)
}

/// Marks operators' attachments with this content as gone, because only the blob had their bytes. Returns how many were
/// marked, at most `limit`.
pub async fn lose(tx: &mut Change<'_>, sha256: &str, limit: u64) -> Result<u64, DbError> {
    let sql = "UPDATE artifacts SET gone_at = $3 WHERE team_id = $1 AND artifact_id IN (SELECT artifact_id FROM artifacts \
               WHERE team_id = $1 AND sha256 = $2 AND origin = 'operator' AND gone_at IS NULL LIMIT $4 + 0)";
    tx.execute(sql, args![sha256, tx.now, limit]).await
}

/// An artifact, if it belongs to this viber.
pub async fn of_viber(tx: &mut TeamTx<'_>, viber: &ViberId, id: &ArtifactId) -> Result<Option<Artifact>, DbError> {
    let sql = select!("WHERE a.team_id = $1 AND a.artifact_id = $2 AND a.viber_id = $3");
    tx.row(sql, args![id, viber]).await?.as_ref().map(artifact).transpose()
}

fn artifact(row: &Row) -> Result<Artifact, DbError> {
    Ok(Artifact {
        id: row.parse("artifact_id")?,
        viber_id: row.parse("viber_id")?,
        session_id: row.parse("session_id")?,
        task_id: row.optional_parse("task_id")?,
        attempt: row.optional_int("attempt")?.and_then(|attempt| u32::try_from(attempt).ok()),
        name: row.text("name")?,
        title: row.text("title")?,
        claimed: row.text("claimed")?,
        sniffed: row.text("sniffed")?,
        reference: row.text("reference")?,
        size: row.optional_int("size")?.and_then(|size| u64::try_from(size).ok()),
        sha256: row.optional_text("sha256")?,
        origin: row.parse("origin")?,
        created_by: row.text("created_by")?,
        created_at: row.instant("created_at")?,
        gone_at: row.optional_instant("gone_at")?,
        stored_at: row.optional_instant("stored_at")?,
        contact: Contact { state: row.parse("contact")?, since: row.instant("contact_since")? },
    })
}
