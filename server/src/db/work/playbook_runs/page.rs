//! What a run's page shows beside the rows of its steps: where each runs, how its task stands, and what it produced.
//! One statement each, however many steps there are.

use protocol::{ArtifactId, COMMAND_OUTPUT_TYPE, RunId};

use crate::{
    args,
    db::{DbError, Row, TeamTx},
    domain::{Brief, Contact},
};

/// Steps that are looked at: more than a playbook and its supervisor may have.
const MAX_STEPS: u64 = 1_000;
/// Artifacts of a run that are read.
const MAX_ARTIFACTS: u64 = 2_000;

/// Where a step runs, or ran.
#[derive(Clone, Debug, PartialEq)]
pub struct StepWork {
    /// The step's.
    pub label: String,
    /// The viber's name.
    pub viber: String,
    pub contact: Contact,
    /// Its newest task.
    pub task: Option<Brief>,
}

/// Something that a step produced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepArtifact {
    /// The step's.
    pub label: String,
    pub id: ArtifactId,
    /// The agent's id for it, or the file's name: versions share it.
    pub name: String,
    /// The media type that was claimed.
    pub claimed: String,
    /// The media type that the bytes look like.
    pub sniffed: String,
    /// A path beneath the viber's home, or an address.
    pub reference: String,
}

/// Where the steps of a run are whose viber is chosen, in order.
pub async fn works(tx: &mut TeamTx<'_>, run: &RunId) -> Result<Vec<StepWork>, DbError> {
    let sql = "SELECT p.label, v.name AS viber, CASE WHEN v.unheard <> 0 THEN 'unheard' ELSE v.contact END AS contact, \
               v.contact_since, t.task_id, t.state, t.delivery, t.waiting, t.ended_at FROM playbook_steps p \
               JOIN vibers v ON v.team_id = p.team_id AND v.viber_id = p.viber_id \
               LEFT JOIN tasks t ON t.team_id = p.team_id AND t.task_id = p.task_id \
               WHERE p.team_id = $1 AND p.run_id = $2 ORDER BY p.place LIMIT $3 + 0";
    tx.rows(sql, args![run, MAX_STEPS]).await?.iter().map(work).collect()
}

/// What the tasks of a run's steps produced, but for whole outputs of commands: by step, the newest first.
pub async fn artifacts(tx: &mut TeamTx<'_>, run: &RunId) -> Result<Vec<StepArtifact>, DbError> {
    let sql = "SELECT p.label, a.artifact_id, a.name, a.claimed, a.sniffed, a.reference FROM playbook_steps p \
               JOIN sessions s ON s.team_id = p.team_id AND s.session_id = p.session_id AND s.deleted_at IS NULL \
               JOIN artifacts a ON a.team_id = p.team_id AND a.session_id = p.session_id AND a.task_id = p.task_id \
               WHERE p.team_id = $1 AND p.run_id = $2 AND a.claimed <> $3 AND a.origin <> 'operator' \
               ORDER BY p.place, a.artifact_id DESC LIMIT $4 + 0";
    tx.rows(sql, args![run, COMMAND_OUTPUT_TYPE, MAX_ARTIFACTS]).await?.iter().map(artifact).collect()
}

/// The names of what the newest task of one step produced, the newest first, but for whole outputs of commands.
pub async fn step_files(tx: &mut TeamTx<'_>, run: &RunId, label: &str, limit: u64) -> Result<Vec<String>, DbError> {
    let sql = "SELECT a.name FROM playbook_steps p \
               JOIN sessions s ON s.team_id = p.team_id AND s.session_id = p.session_id AND s.deleted_at IS NULL \
               JOIN artifacts a ON a.team_id = p.team_id AND a.session_id = p.session_id AND a.task_id = p.task_id \
               WHERE p.team_id = $1 AND p.run_id = $2 AND p.label = $3 AND a.claimed <> $4 AND a.origin <> 'operator' \
               GROUP BY a.name ORDER BY MAX(a.artifact_id) DESC LIMIT $5 + 0";
    tx.rows(sql, args![run, label, COMMAND_OUTPUT_TYPE, limit]).await?.iter().map(|row| row.text("name")).collect()
}

/// The name of the playbook of a run.
pub async fn playbook_name(tx: &mut TeamTx<'_>, run: &RunId) -> Result<Option<String>, DbError> {
    let sql = "SELECT playbook FROM playbook_runs WHERE team_id = $1 AND run_id = $2";
    tx.row(sql, args![run]).await?.map(|row| row.text("playbook")).transpose()
}

fn work(row: &Row) -> Result<StepWork, DbError> {
    let task = match row.optional_parse("task_id")? {
        Some(id) => Some(Brief {
            id,
            state: row.parse("state")?,
            delivery: row.optional_parse("delivery")?,
            waiting: row.optional_json("waiting")?,
            ended_at: row.optional_instant("ended_at")?,
        }),
        None => None,
    };
    Ok(StepWork {
        label: row.text("label")?,
        viber: row.text("viber")?,
        contact: Contact { state: row.parse("contact")?, since: row.instant("contact_since")? },
        task,
    })
}

fn artifact(row: &Row) -> Result<StepArtifact, DbError> {
    Ok(StepArtifact {
        label: row.text("label")?,
        id: row.parse("artifact_id")?,
        name: row.text("name")?,
        claimed: row.text("claimed")?,
        sniffed: row.text("sniffed")?,
        reference: row.text("reference")?,
    })
}
