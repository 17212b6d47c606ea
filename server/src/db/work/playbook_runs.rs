//! Runs of playbooks: what was frozen when each was started, its steps, what happened, and what its supervisor asked.

use protocol::{RunId, TaskId, TeamId, ViberId};

use crate::{
    args,
    db::{Arg, Change, DbError, Row, TeamTx, Tx, json},
    domain::{PlaybookRun, RunNeed, RunState},
};

macro_rules! columns {
    ($text:literal) => {
        concat!(
            "r.run_id, r.viber_id, r.playbook, r.path, r.hash, ",
            $text,
            " AS text, r.inputs, r.supervised, r.steps, r.state, r.paused, r.needs, r.summary, r.supervisor, \
             r.supervisor_session, r.supervisor_attempts, r.told_by, r.by_viber, r.started_by, r.starter, r.created_at, \
             r.ended_at, r.version, r.ledger_version, r.settled"
        )
    };
}

mod call_rows;
mod event_rows;
mod page;
// It uses this macro.
mod step_rows;

pub use call_rows::*;
pub use event_rows::*;
pub use page::{StepArtifact, StepWork, artifacts, playbook_name, step_files, works};
pub use step_rows::*;

/// One run.
pub async fn load(tx: &mut TeamTx<'_>, id: &RunId) -> Result<Option<PlaybookRun>, DbError> {
    let sql = concat!("SELECT ", columns!("r.text"), " FROM playbook_runs r WHERE r.team_id = $1 AND r.run_id = $2");
    tx.row(sql, args![id]).await?.as_ref().map(run).transpose()
}

/// The same without its text, unless its team is suspended: then nothing is done with it.
pub async fn load_open(tx: &mut TeamTx<'_>, id: &RunId) -> Result<Option<PlaybookRun>, DbError> {
    let sql = concat!(
        "SELECT ",
        columns!("''"),
        " FROM playbook_runs r JOIN teams t ON t.team_id = r.team_id AND t.deleted_at IS NULL AND t.suspended_at IS NULL \
         WHERE r.team_id = $1 AND r.run_id = $2"
    );
    tx.row(sql, args![id]).await?.as_ref().map(run).transpose()
}

/// One run with its text, locked until the change ends.
pub async fn lock(tx: &mut Change<'_>, id: &RunId) -> Result<Option<PlaybookRun>, DbError> {
    let sql = "UPDATE playbook_runs SET settled = settled WHERE team_id = $1 AND run_id = $2";
    if tx.execute(sql, args![id]).await? == 0 {
        return Ok(None);
    }
    load(tx, id).await
}

/// Which runs a list shows.
#[derive(Clone, Debug, Default)]
pub struct RunFilter<'a> {
    pub viber: Option<&'a ViberId>,
    /// Only those of which something waits for a person.
    pub needing: bool,
}

/// Runs without their texts, the newest first, after `after`.
pub async fn list(
    tx: &mut TeamTx<'_>,
    viber: Option<&ViberId>,
    after: Option<&RunId>,
    limit: u64,
) -> Result<Vec<PlaybookRun>, DbError> {
    filtered(tx, RunFilter { viber, needing: false }, after, limit).await
}

/// The same of some of them.
pub async fn filtered(
    tx: &mut TeamTx<'_>,
    filter: RunFilter<'_>,
    after: Option<&RunId>,
    limit: u64,
) -> Result<Vec<PlaybookRun>, DbError> {
    macro_rules! page {
        ($filter:literal) => {
            concat!(
                "SELECT ",
                columns!("''"),
                " FROM playbook_runs r WHERE r.team_id = $1 AND r.run_id < $2",
                $filter,
                " ORDER BY r.run_id DESC LIMIT $3 + 0"
            )
        };
    }
    // Behind every run when there is no cursor.
    let mut args = args![after.map_or("run_g", RunId::as_str), limit].to_vec();
    args.extend(filter.viber.map(Arg::from));
    // Each has an index that ends in the order of the list.
    let sql = match (filter.viber.is_some(), filter.needing) {
        (false, false) => page!(""),
        (true, false) => page!(" AND r.viber_id = $4"),
        (false, true) => page!(" AND r.needs IS NOT NULL"),
        (true, true) => page!(" AND r.needs IS NOT NULL AND r.viber_id = $4"),
    };
    tx.rows(sql, &args).await?.iter().map(run).collect()
}

/// The newest run of a file of a viber, without its text.
pub async fn last_of(tx: &mut TeamTx<'_>, viber: &ViberId, path: &str) -> Result<Option<PlaybookRun>, DbError> {
    let sql = concat!(
        "SELECT ",
        columns!("''"),
        " FROM playbook_runs r WHERE r.team_id = $1 AND r.viber_id = $2 AND r.path = $3 ORDER BY r.run_id DESC LIMIT 1"
    );
    tx.row(sql, args![viber, path]).await?.as_ref().map(run).transpose()
}

/// Runs of all teams that are not suspended with which something is left to do, after `after`.
pub async fn open_of_all(
    tx: &mut Tx,
    after: Option<&(TeamId, RunId)>,
    limit: u64,
) -> Result<Vec<(TeamId, RunId)>, DbError> {
    let sql = "SELECT r.team_id, r.run_id FROM playbook_runs r JOIN teams t ON t.team_id = r.team_id \
               AND t.deleted_at IS NULL AND t.suspended_at IS NULL WHERE r.settled = 0 AND (r.team_id, r.run_id) > ($1, $2) \
               ORDER BY r.team_id, r.run_id LIMIT $3 + 0";
    let (team, id) = after.map_or(("", ""), |(team, id)| (team.as_str(), id.as_str()));
    let rows = tx.rows(sql, args![team, id, limit]).await?;
    rows.iter().map(|row| Ok((row.parse("team_id")?, row.parse("run_id")?))).collect()
}

/// How many runs of the team have not ended, counted up to `limit`.
pub async fn open_count(tx: &mut TeamTx<'_>, limit: u64) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM (SELECT r.run_id FROM playbook_runs r WHERE r.team_id = $1 AND r.settled = 0 \
               LIMIT $2 + 0) AS under_way";
    tx.row(sql, args![limit]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// How many of those were started on the machine of this viber.
pub async fn open_count_of_machine(tx: &mut TeamTx<'_>, viber: &ViberId, limit: u64) -> Result<u64, DbError> {
    let sql = "SELECT COUNT(*) AS n FROM (SELECT r.run_id FROM playbook_runs r WHERE r.team_id = $1 AND r.settled = 0 \
               AND r.viber_id = $2 AND r.by_viber <> 0 LIMIT $3 + 0) under_way";
    tx.row(sql, args![viber, limit]).await?.map_or(Ok(0), |row| row.count("n"))
}

/// The run that a task supervises with its newest attempts.
pub async fn supervised_by(tx: &mut TeamTx<'_>, task: &TaskId) -> Result<Option<(RunId, RunState)>, DbError> {
    let sql =
        "SELECT run_id, state FROM playbook_runs WHERE team_id = $1 AND supervisor = $2 AND supervisor IS NOT NULL";
    tx.row(sql, args![task]).await?.map(|row| Ok((row.parse("run_id")?, row.parse("state")?))).transpose()
}

/// Adds a run.
pub async fn insert(tx: &mut Change<'_>, run: &PlaybookRun) -> Result<(), DbError> {
    let sql = "INSERT INTO playbook_runs (team_id, run_id, viber_id, playbook, path, hash, text, inputs, supervised, steps, \
               state, by_viber, started_by, starter, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, \
               $13, $14, $15)";
    let args = args![
        &run.id,
        &run.viber_id,
        &run.playbook,
        &run.path,
        &run.hash,
        &run.text,
        json(&run.inputs)?,
        run.supervised,
        run.step_count,
        run.state,
        run.by_viber,
        &run.started_by,
        &run.starter,
        run.created_at
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Stores what changes of a run, as its next version.
pub async fn save(tx: &mut Change<'_>, run: &PlaybookRun) -> Result<(), DbError> {
    let sql = "UPDATE playbook_runs SET state = $3, paused = $4, needs = $5, summary = $6, supervisor = $7, \
               supervisor_session = $8, supervisor_attempts = $9, ended_at = $10, told_by = $11, version = version + 1 \
               WHERE team_id = $1 AND run_id = $2";
    let args = args![
        &run.id,
        run.state,
        run.paused,
        run.needs.map(RunNeed::as_str),
        run.summary.as_deref(),
        run.supervisor.as_ref(),
        run.supervisor_session.as_ref(),
        run.supervisor_attempts,
        run.ended_at,
        json(&run.told_by)?
    ];
    tx.execute(sql, args).await.map(drop)
}

/// Records that nothing is left to do with a run.
pub async fn settle(tx: &mut Change<'_>, id: &RunId) -> Result<(), DbError> {
    let sql = "UPDATE playbook_runs SET settled = 1 WHERE team_id = $1 AND run_id = $2";
    tx.execute(sql, args![id]).await.map(drop)
}

/// Records that the viber was sent the ledger of this version.
pub async fn sent_ledger(tx: &mut Change<'_>, id: &RunId, version: u64) -> Result<(), DbError> {
    let sql = "UPDATE playbook_runs SET ledger_version = $3 WHERE team_id = $1 AND run_id = $2 AND ledger_version < $3";
    tx.execute(sql, args![id, version]).await.map(drop)
}

fn run(row: &Row) -> Result<PlaybookRun, DbError> {
    Ok(PlaybookRun {
        id: row.parse("run_id")?,
        viber_id: row.parse("viber_id")?,
        playbook: row.text("playbook")?,
        path: row.text("path")?,
        hash: row.text("hash")?,
        text: row.text("text")?,
        inputs: row.json("inputs")?,
        supervised: row.flag("supervised")?,
        step_count: number(row, "steps")?,
        state: row.parse("state")?,
        paused: row.flag("paused")?,
        needs: row.optional_parse("needs")?,
        summary: row.optional_text("summary")?,
        supervisor: row.optional_parse("supervisor")?,
        supervisor_session: row.optional_parse("supervisor_session")?,
        supervisor_attempts: number(row, "supervisor_attempts")?,
        told_by: row.json("told_by")?,
        by_viber: row.flag("by_viber")?,
        started_by: row.text("started_by")?,
        starter: row.text("starter")?,
        created_at: row.instant("created_at")?,
        ended_at: row.optional_instant("ended_at")?,
        version: row.count("version")?,
        ledger_version: row.count("ledger_version")?,
        settled: row.flag("settled")?,
    })
}

fn number(row: &Row, column: &'static str) -> Result<u32, DbError> {
    row.int(column)?.try_into().map_err(|_| DbError::Broken(format!("{column} is out of range")))
}
