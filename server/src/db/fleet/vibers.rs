//! Vibers: the machines of a team, their credentials, counters and contact.

use std::collections::BTreeMap;

use protocol::{
    AgentInfo, BootId, Confinement, Hello, Instant, JobInfo, McpServerInfo, ProviderInfo, SkillInfo, TeamId, ViberId,
    ViberState,
};

mod candidates;
mod ending;
mod leases;
mod skills;

use crate::{
    args,
    db::{Change, DbError, Query, Row, TeamTx, Tx},
    domain::{Contact, ContactState, Viber, name},
};

pub use candidates::*;
pub use ending::*;
pub use leases::*;
pub use skills::*;

/// Adapters that are stored of one viber.
const MAX_ADAPTERS: usize = 16;
/// Reports of damaged files that are stored of one viber.
const MAX_DAMAGED_FILES: usize = 64;

macro_rules! select {
    (with $more:literal $($from:tt)+) => {
        concat!(
            "SELECT ",
            $more,
            "v.viber_id, v.name, v.labels, v.hostname, v.platform, v.version, v.capabilities, v.agents, \
             v.jobs, v.providers, v.confinement, v.adapters, v.drained, v.conn_epoch, \
             CASE WHEN v.unheard <> 0 THEN 'unheard' ELSE v.contact END AS contact, v.contact_since, v.seen_at, \
             v.cloned_at, v.damage, v.created_at, \
             (SELECT COUNT(*) FROM tasks t WHERE t.team_id = v.team_id AND t.viber_id = v.viber_id \
              AND t.state <> 'completed' AND t.state = 'running') AS running, \
             (SELECT COUNT(*) FROM tasks t WHERE t.team_id = v.team_id AND t.viber_id = v.viber_id \
              AND t.state <> 'completed' AND t.state = 'pending') AS queued FROM ",
            $($from)+
        )
    };
    ($($from:tt)+) => { select!(with "" $($from)+) };
}

// It uses this macro.
mod search;

pub use search::*;

/// A viber that was not revoked, with its skills and MCP servers.
pub async fn load(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<Viber>, DbError> {
    let sql =
        select!(with "v.skills, v.mcp, " "vibers v WHERE v.team_id = $1 AND v.viber_id = $2 AND v.revoked_at IS NULL");
    let row = tx.row(sql, args![id]).await?;
    row.map(|row| Ok(Viber { skills: row.json("skills")?, mcp: row.json("mcp")?, ..viber(&row)? })).transpose()
}

/// The team's vibers in order of joining, after `cursor`, without revoked ones.
pub async fn list(tx: &mut TeamTx<'_>, cursor: Option<&ViberId>, limit: u64) -> Result<Vec<Viber>, DbError> {
    let sql = select!(
        "vibers v WHERE v.team_id = $1 AND v.revoked_at IS NULL AND ($2 IS NULL OR v.viber_id > $2) \
         ORDER BY v.viber_id LIMIT $3 + 0"
    );
    tx.rows(sql, args![cursor, limit]).await?.iter().map(viber).collect()
}

/// The viber of this name, if it was not revoked.
pub async fn called(tx: &mut TeamTx<'_>, name: &str) -> Result<Option<Viber>, DbError> {
    let sql =
        select!("vibers v WHERE v.team_id = $1 AND v.revoked_at IS NULL AND v.name = $2 ORDER BY v.viber_id LIMIT 1");
    tx.row(sql, args![name]).await?.as_ref().map(viber).transpose()
}

/// Vibers with a label, in order of joining, without revoked ones.
pub async fn labeled(tx: &mut TeamTx<'_>, (label, value): (&str, &str), limit: u64) -> Result<Vec<Viber>, DbError> {
    let sql = select!(
        "viber_labels l CROSS JOIN vibers v WHERE l.team_id = $1 AND l.label = $2 AND l.value = $3 AND v.team_id = $1 \
         AND v.viber_id = l.viber_id AND v.revoked_at IS NULL ORDER BY l.viber_id LIMIT $4 + 0"
    );
    tx.rows(sql, args![label, value, limit]).await?.iter().map(viber).collect()
}

/// Vibers whose oldest stored command was given before an instant, in order, after `cursor`.
pub async fn with_commands_before(
    tx: &mut TeamTx<'_>,
    cursor: Option<&ViberId>,
    before: Instant,
    limit: u64,
) -> Result<Vec<ViberId>, DbError> {
    let sql = "SELECT v.viber_id FROM vibers v WHERE v.team_id = $1 AND v.viber_id > $2 AND (SELECT c.created_at \
               FROM commands c WHERE c.team_id = v.team_id AND c.viber_id = v.viber_id ORDER BY c.cmd_seq LIMIT 1) < $3 \
               ORDER BY v.viber_id LIMIT $4 + 0";
    let args = args![cursor.map_or("", ViberId::as_str), before, limit];
    tx.rows(sql, args).await?.iter().map(|row| row.parse("viber_id")).collect()
}

/// How many vibers the team has, and how many of them are connected. Triggers count them
/// (`migrations/*/0014_viber_counts.sql`).
pub async fn connectivity(tx: &mut TeamTx<'_>) -> Result<(usize, usize), DbError> {
    let sql = "SELECT CAST(COALESCE(SUM(vibers), 0) AS BIGINT) AS n, \
               CAST(COALESCE(SUM(connected), 0) AS BIGINT) AS connected FROM viber_counts WHERE team_id = $1";
    let Some(row) = tx.row(sql, &[]).await? else { return Ok((0, 0)) };
    // A counter that somebody changed by hand may be anything until it is recounted.
    let count = |column| row.int(column).map(|n| usize::try_from(n).unwrap_or(0));
    let all = count("n")?;
    Ok((all, count("connected")?.min(all)))
}

/// By how much the counters of [`connectivity`] are wrong, as of one moment: a query of `vibers` and `connected`.
macro_rules! drift {
    () => {
        "SELECT CAST(a.vibers - c.vibers AS BIGINT) AS vibers, CAST(a.connected - c.connected AS BIGINT) AS connected \
         FROM (SELECT COUNT(*) AS vibers, COUNT(CASE WHEN contact = 'connected' THEN 1 END) AS connected FROM vibers \
         WHERE team_id = $1 AND revoked_at IS NULL) a CROSS JOIN (SELECT COALESCE(SUM(vibers), 0) AS vibers, \
         COALESCE(SUM(connected), 0) AS connected FROM viber_counts WHERE team_id = $1) c"
    };
}

/// Whether the counters of [`connectivity`] are right. Reads all vibers of the team.
pub async fn is_counted(tx: &mut TeamTx<'_>) -> Result<bool, DbError> {
    let Some(row) = tx.row(drift!(), &[]).await? else { return Ok(true) };
    Ok((row.int("vibers")?, row.int("connected")?) == (0, 0))
}

/// Adds to the counters what they lack, so that they are right whatever is counted meanwhile.
pub async fn recount(tx: &mut TeamTx<'_>) -> Result<(), DbError> {
    let sql = concat!(
        "INSERT INTO viber_counts (team_id, slot, vibers, connected) SELECT $1, 0, d.vibers, d.connected FROM (",
        drift!(),
        ") d WHERE d.vibers <> 0 OR d.connected <> 0 ON CONFLICT (team_id, slot) DO UPDATE SET \
         vibers = viber_counts.vibers + excluded.vibers, connected = viber_counts.connected + excluded.connected"
    );
    tx.execute(sql, &[]).await.map(drop)
}

fn viber(row: &Row) -> Result<Viber, DbError> {
    Ok(Viber {
        id: row.parse("viber_id")?,
        name: row.text("name")?,
        labels: row.json("labels")?,
        hostname: row.text("hostname")?,
        platform: row.text("platform")?,
        version: row.text("version")?,
        capabilities: row.json("capabilities")?,
        agents: row.json("agents")?,
        skills: Vec::new(),
        mcp: Vec::new(),
        jobs: row.json("jobs")?,
        providers: row.json("providers")?,
        damage: row.json("damage")?,
        confinement: row.optional_json("confinement")?,
        adapters: row.json("adapters")?,
        drained: row.flag("drained")?,
        conn_epoch: row.count("conn_epoch")?,
        contact: contact(row)?,
        seen_at: row.optional_instant("seen_at")?,
        cloned_at: row.optional_instant("cloned_at")?,
        running: row.count("running")?,
        queued: row.count("queued")?,
        created_at: row.instant("created_at")?,
    })
}

/// The team, id and name of the viber whose credential has this SHA-256, unless it is revoked or its team suspended.
pub async fn by_credential(tx: &mut Tx, hash: &str) -> Result<Option<(TeamId, ViberId, String)>, DbError> {
    let sql = "SELECT v.team_id, v.viber_id, v.name FROM vibers v JOIN teams t ON t.team_id = v.team_id \
               WHERE v.credential_hash = $1 AND v.revoked_at IS NULL AND t.suspended_at IS NULL";
    let row = tx.row(sql, args![hash]).await?;
    row.map(|row| Ok((row.parse("team_id")?, row.parse("viber_id")?, row.text("name")?))).transpose()
}

/// A viber as it joins.
pub struct NewViber<'a> {
    pub id: &'a ViberId,
    pub name: &'a str,
    pub labels: &'a BTreeMap<String, String>,
    pub hostname: &'a str,
    pub platform: &'a str,
    pub version: &'a str,
    pub credential_hash: &'a str,
}

/// A new viber, not connected yet.
pub async fn insert(tx: &mut Change<'_>, viber: NewViber<'_>) -> Result<(), DbError> {
    let sql = "INSERT INTO vibers (team_id, viber_id, name, labels, hostname, platform, version, credential_hash, \
               contact_since, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)";
    let args = args![
        viber.id,
        viber.name,
        crate::db::json(viber.labels)?,
        viber.hostname,
        viber.platform,
        viber.version,
        viber.credential_hash,
        tx.now
    ];
    tx.execute(sql, args).await?;
    insert_labels(tx, viber.id, viber.labels).await?;
    refresh_words(tx, viber.id).await
}

/// Lists labels where [`ready`] looks for them.
async fn insert_labels(tx: &mut TeamTx<'_>, id: &ViberId, labels: &BTreeMap<String, String>) -> Result<(), DbError> {
    let sql = "INSERT INTO viber_labels (team_id, viber_id, label, value) VALUES ($1, $2, $3, $4)";
    for (label, value) in labels {
        tx.defer(sql, args![id, label, value]).await?;
    }
    Ok(())
}

/// The names in use, except that of `except`.
pub async fn names(tx: &mut TeamTx<'_>, except: Option<&ViberId>) -> Result<Vec<String>, DbError> {
    let sql = "SELECT name FROM vibers WHERE team_id = $1 AND revoked_at IS NULL \
               AND ($2 IS NULL OR viber_id <> $2) LIMIT 10000";
    tx.rows(sql, args![except]).await?.iter().map(|row| row.text("name")).collect()
}

/// Renames a viber.
pub async fn rename(tx: &mut TeamTx<'_>, id: &ViberId, name: &str) -> Result<bool, DbError> {
    let sql = "UPDATE vibers SET name = $3 WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL";
    if tx.execute(sql, args![id, name]).await? == 0 {
        return Ok(false);
    }
    refresh_words(tx, id).await?;
    Ok(true)
}

/// Replaces its labels.
pub async fn set_labels(tx: &mut TeamTx<'_>, id: &ViberId, labels: &BTreeMap<String, String>) -> Result<bool, DbError> {
    let sql = "UPDATE vibers SET labels = $3 WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL";
    if tx.execute(sql, args![id, crate::db::json(labels)?]).await? == 0 {
        return Ok(false);
    }
    tx.execute("DELETE FROM viber_labels WHERE team_id = $1 AND viber_id = $2", args![id]).await?;
    insert_labels(tx, id, labels).await?;
    refresh_words(tx, id).await?;
    Ok(true)
}

/// Sets whether it is drained. Returns whether that changed.
pub async fn set_drained(tx: &mut TeamTx<'_>, id: &ViberId, drained: bool) -> Result<bool, DbError> {
    let sql = "UPDATE vibers SET drained = $3 WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL \
               AND drained <> $3";
    Ok(tx.execute(sql, args![id, drained]).await? > 0)
}

/// Revokes its credential.
pub async fn revoke(tx: &mut Change<'_>, id: &ViberId) -> Result<bool, DbError> {
    let sql = "UPDATE vibers SET revoked_at = $3, contact = 'disconnected', unheard = 0, contact_since = $3 \
               WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL";
    Ok(tx.execute(sql, args![id, tx.now]).await? > 0)
}

/// What a new connection needs of its viber's row.
#[derive(Clone, Debug)]
pub struct ConnectionCounters {
    pub conn_epoch: u64,
    pub boot_id: String,
    pub cmd_seq: u64,
    pub acked_cmd_seq: u64,
    pub drained: bool,
    pub contact: ContactState,
    pub name: String,
}

/// Reads the counters and locks the row.
pub async fn counters(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<ConnectionCounters>, DbError> {
    // SQLite has one writer; PostgreSQL takes the row's lock.
    let sql = "UPDATE vibers SET conn_epoch = conn_epoch WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL \
               RETURNING conn_epoch, boot_id, cmd_seq, acked_cmd_seq, drained, contact, name";
    let row = tx.row(sql, args![id]).await?;
    let counters = |row: Row| {
        Ok(ConnectionCounters {
            conn_epoch: row.count("conn_epoch")?,
            boot_id: row.text("boot_id")?,
            cmd_seq: row.count("cmd_seq")?,
            acked_cmd_seq: row.count("acked_cmd_seq")?,
            drained: row.flag("drained")?,
            contact: row.parse("contact")?,
            name: row.text("name")?,
        })
    };
    row.map(counters).transpose()
}

/// A viber's counters, as a change of its connection needs them.
#[derive(Clone, Copy, Debug)]
pub struct CommandCounters {
    /// The newest connection's number.
    pub epoch: u64,
    /// The last command that was given to it.
    pub cmd_seq: u64,
    /// The last command known to be in the daemon's journal.
    pub acked: u64,
}

/// A viber's counters; `None` when it was revoked.
pub async fn command_counters(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<CommandCounters>, DbError> {
    let sql = "SELECT conn_epoch, cmd_seq, acked_cmd_seq FROM vibers WHERE team_id = $1 AND viber_id = $2 \
               AND revoked_at IS NULL";
    let Some(row) = tx.row(sql, args![id]).await? else { return Ok(None) };
    Ok(Some(CommandCounters {
        epoch: row.count("conn_epoch")?,
        cmd_seq: row.count("cmd_seq")?,
        acked: row.count("acked_cmd_seq")?,
    }))
}

/// The newest connection's number; `None` when the viber was revoked.
pub async fn epoch(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<u64>, DbError> {
    let sql = "SELECT conn_epoch FROM vibers WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL";
    tx.row(sql, args![id]).await?.map(|row| row.count("conn_epoch")).transpose()
}

/// The query for the agents that a viber reported, to be sent together with others.
pub fn agents_query(id: &ViberId) -> Query<Vec<AgentInfo>> {
    let sql = "SELECT agents FROM vibers WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL";
    Query::new(sql, args![id], |answer| answer.row().map_or(Ok(Vec::new()), |row| row.json("agents")))
}

/// Accepts a connection: stores what `hello` reports, its epoch, and the counters.
pub async fn connect(tx: &mut Change<'_>, hello: &Hello, epoch: u64, counters: (u64, u64)) -> Result<(), DbError> {
    let sql = "UPDATE vibers SET conn_epoch = $3, boot_id = $4, version = $5, platform = $6, hostname = $7, \
               capabilities = $8, confinement = NULL, adapters = '[]', cmd_seq = $9, acked_cmd_seq = $10, seen_at = $11, \
               contact_since = CASE WHEN contact = 'connected' THEN contact_since ELSE $11 END, contact = 'connected', \
               unheard = 0 \
               WHERE team_id = $1 AND viber_id = $2";
    let short = |text: &str| name::clean(text, 200).unwrap_or_default();
    let args = args![
        &hello.viber_id,
        epoch,
        &hello.boot_id,
        short(&hello.version),
        short(&hello.platform),
        short(&hello.hostname),
        crate::db::json(&hello.capabilities)?,
        counters.0,
        counters.1,
        tx.now
    ];
    tx.execute(sql, args).await?;
    store_lists(tx, &hello.viber_id, &hello.state).await?;
    refresh_words(tx, &hello.viber_id).await
}

/// The boot whose journal the counters belong to.
pub fn boot(text: &str) -> Option<BootId> {
    text.parse().ok()
}

/// Stores whole lists as the daemon reports them; an absent list stays.
pub async fn lists(tx: &mut TeamTx<'_>, id: &ViberId, state: &ViberState) -> Result<(), DbError> {
    store_lists(tx, id, state).await?;
    if state.agents.is_some() { refresh_words(tx, id).await } else { Ok(()) }
}

async fn store_lists(tx: &mut TeamTx<'_>, id: &ViberId, state: &ViberState) -> Result<(), DbError> {
    let sql = "UPDATE vibers SET agents = COALESCE($3, agents), skills = COALESCE($4, skills), \
               jobs = COALESCE($5, jobs), providers = COALESCE($6, providers), damage = COALESCE($7, damage), \
               confinement = COALESCE($8, confinement), mcp = COALESCE($9, mcp), \
               adapters = COALESCE($10, adapters) WHERE team_id = $1 AND viber_id = $2";
    let agents = state.agents.as_ref().map(crate::db::json::<Vec<AgentInfo>>).transpose()?;
    let skills = state.skills.as_ref().map(crate::db::json::<Vec<SkillInfo>>).transpose()?;
    let jobs = state.jobs.as_ref().map(crate::db::json::<Vec<JobInfo>>).transpose()?;
    let providers = state.providers.as_ref().map(crate::db::json::<Vec<ProviderInfo>>).transpose()?;
    let damage = state
        .damage
        .as_ref()
        .map(|damage| crate::db::json(&damage[..damage.len().min(MAX_DAMAGED_FILES)]))
        .transpose()?;
    let confinement = state.confinement.as_deref().map(crate::db::json::<Confinement>).transpose()?;
    let mcp = state.mcp.as_ref().map(crate::db::json::<Vec<McpServerInfo>>).transpose()?;
    let adapters = state
        .adapters
        .as_ref()
        .map(|adapters| crate::db::json(&adapters[..adapters.len().min(MAX_ADAPTERS)]))
        .transpose()?;
    let args = args![id, agents, skills, jobs, providers, damage, confinement, mcp, adapters];
    tx.execute(sql, args).await.map(drop)
}

/// Records that the connection `epoch` ended. Returns whether contact was lost: a newer connection keeps it.
pub async fn disconnect(tx: &mut Change<'_>, id: &ViberId, epoch: u64) -> Result<bool, DbError> {
    let sql = "UPDATE vibers SET contact = 'disconnected', contact_since = $4 \
               WHERE team_id = $1 AND viber_id = $2 AND conn_epoch = $3 AND contact = 'connected'";
    Ok(tx.execute(sql, args![id, epoch, tx.now]).await? > 0)
}

/// Marks vibers as unheard that were connected when the Board stopped, at most `limit`; returns how many.
pub async fn forget_contact(tx: &mut Change<'_>, limit: u64) -> Result<u64, DbError> {
    let sql = "UPDATE vibers SET contact = 'disconnected', unheard = 1, contact_since = $2 WHERE team_id = $1 \
               AND viber_id IN (SELECT viber_id FROM vibers WHERE team_id = $1 AND contact = 'connected' \
               AND revoked_at IS NULL LIMIT $3)";
    tx.execute(sql, args![tx.now, limit]).await
}

/// The next command's number.
pub async fn next_cmd_seq(tx: &mut TeamTx<'_>, id: &ViberId) -> Result<Option<u64>, DbError> {
    Ok(tx.query(next_cmd_seq_query(id)).await?.map(|(cmd_seq, _)| cmd_seq))
}

/// The same as a query, which also returns the viber's contact, to be sent together with others.
pub fn next_cmd_seq_query(id: &ViberId) -> Query<Option<(u64, Contact)>> {
    let sql = "UPDATE vibers SET cmd_seq = cmd_seq + 1 WHERE team_id = $1 AND viber_id = $2 AND revoked_at IS NULL \
               RETURNING cmd_seq, CASE WHEN unheard <> 0 THEN 'unheard' ELSE contact END AS contact, contact_since";
    Query::new(sql, args![id], |answer| answer.row().map(|row| Ok((row.count("cmd_seq")?, contact(row)?))).transpose())
}

fn contact(row: &Row) -> Result<Contact, DbError> {
    Ok(Contact { state: row.parse("contact")?, since: row.instant("contact_since")? })
}

/// Records that commands up to `cmd_seq` are in the daemon's journal, as the connection `epoch` reports.
pub async fn set_acked(tx: &mut TeamTx<'_>, id: &ViberId, epoch: u64, cmd_seq: u64) -> Result<bool, DbError> {
    let sql = "UPDATE vibers SET acked_cmd_seq = $4 WHERE team_id = $1 AND viber_id = $2 AND conn_epoch = $3 \
               AND revoked_at IS NULL AND acked_cmd_seq < $4 AND cmd_seq >= $4";
    Ok(tx.execute(sql, args![id, epoch, cmd_seq]).await? > 0)
}

/// Marks that somebody else may have its credential.
pub async fn mark_cloned(tx: &mut Change<'_>, id: &ViberId) -> Result<(), DbError> {
    let sql = "UPDATE vibers SET cloned_at = $3 WHERE team_id = $1 AND viber_id = $2";
    tx.execute(sql, args![id, tx.now]).await.map(drop)
}

/// Records when it was last heard.
pub async fn seen(tx: &mut TeamTx<'_>, id: &ViberId, at: Instant) -> Result<(), DbError> {
    let sql =
        "UPDATE vibers SET seen_at = $3 WHERE team_id = $1 AND viber_id = $2 AND (seen_at IS NULL OR seen_at < $3)";
    tx.execute(sql, args![id, at]).await.map(drop)
}
