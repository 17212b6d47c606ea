//! What the rail shows: what waits for a person, the sessions by age, the fleet, and how much the reader has not seen.

use std::collections::BTreeSet;

use protocol::{Instant, OperatorId, RunId, SessionId};

use crate::{
    db::{
        self, DbError, TeamTx,
        playbook_runs::RunFilter,
        sessions::{SessionFilter, UnreadCount},
    },
    domain::{PlaybookRun, RunNeed, RunState, RunStep, SessionLine, SessionState, StepPhase},
    web::{
        urls,
        view::{Badge, truncate::truncate_escaped},
    },
};

/// Sessions that the rail shows beside those that need a person.
const MAX_RAIL_SESSIONS: u64 = 60;
/// Sessions that need a person: how many of them the rail lists, and how many it counts.
const MAX_NEEDING: usize = 20;
const MAX_COUNTED_NEEDING: u64 = 120;
/// Newest runs of playbooks that the rail shows.
const MAX_NEWEST_RUNS: u64 = 10;
/// Runs of playbooks of which something waits for a person, and steps of them, that the rail shows.
const MAX_RAIL_RUNS: u64 = 20;
const MAX_RAIL_STEPS: u64 = 20;
/// Longest title of a session in the rail, bytes of HTML: a line there is shorter.
const MAX_RAIL_TITLE_BYTES: usize = 240;
/// A day, milliseconds.
pub(super) const DAY_MS: i64 = 86_400_000;

/// Where a row of the rail leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RailPlace {
    Session(SessionId),
    /// A run of a playbook: the sessions of its steps have no rows of their own.
    Run(RunId),
}

/// A session, or a run of a playbook, in the rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailRow {
    pub place: RailPlace,
    pub title: String,
    /// What stands below the title: the viber, or that it is a run.
    pub under: String,
    pub badge: Badge,
    pub unread: bool,
    pub active_at: Instant,
}

/// What of a run of a playbook waits for a person: a gate, a step that failed, or its supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingStep {
    run: RunId,
    /// The step's label; `None`: the supervisor.
    label: Option<String>,
    pub title: String,
    pub playbook: String,
    pub badge: Badge,
    pub since: Instant,
}

/// Sessions of one age or need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailGroup {
    pub title: &'static str,
    /// They stand before the sessions.
    pub steps: Vec<WaitingStep>,
    pub rows: Vec<RailRow>,
    /// How many more need a person than are listed: `7`, `99+`; empty for none.
    pub more: String,
}

/// How many vibers there are, and how many of them can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub all: usize,
    pub connected: usize,
}

/// What the rail shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rail {
    pub groups: Vec<RailGroup>,
    /// More of playbooks waits for a person than is listed.
    pub more_steps: bool,
    /// The team has run a playbook.
    pub has_runs: bool,
    pub fleet: Fleet,
    pub unread: Unread,
}

/// How many sessions the reader has not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread(pub UnreadCount);

impl Unread {
    pub(in crate::web) fn is_none(self) -> bool {
        self.0.count == 0
    }

    /// `7`, `99+`; empty for none.
    pub(in crate::web) fn words(self) -> String {
        let more = if self.0.or_more { "+" } else { "" };
        if self.is_none() { String::new() } else { format!("{}{more}", self.0.count) }
    }
}

impl Rail {
    /// What of playbooks waits for a person.
    pub fn steps(&self) -> impl Iterator<Item = &WaitingStep> {
        self.groups.iter().flat_map(|group| &group.steps)
    }

    /// How much of playbooks waits for a person: `7`, `20+`; empty for nothing.
    pub(in crate::web) fn waiting(&self) -> String {
        match self.steps().count() {
            0 => String::new(),
            count => format!("{count}{}", if self.more_steps { "+" } else { "" }),
        }
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        let rows = self.groups.iter().flat_map(|group| &group.rows);
        let rows = rows.map(|row| size_of::<RailRow>() + row.place.bytes() + row.title.len() + row.under.len());
        let steps = self.steps().map(|step| size_of::<WaitingStep>() + step.title.len() + step.playbook.len());
        rows.sum::<usize>() + steps.sum::<usize>()
    }

    /// What the rail shows to this reader.
    pub async fn read(tx: &mut TeamTx<'_>, reader: Option<&OperatorId>, now: Instant) -> Result<Self, DbError> {
        let lines = lines(tx, reader).await?;
        let runs = db::playbook_runs::list(tx, None, None, MAX_NEWEST_RUNS).await?;
        let has_runs = !runs.is_empty();
        let (all, connected) = db::vibers::connectivity(tx).await?;
        let (steps, more_steps) = WaitingStep::all(tx).await?;
        let unread = match reader {
            Some(reader) => db::sessions::count_unread(tx, reader).await?,
            None => UnreadCount::default(),
        };
        let groups = groups(steps, rows(lines, runs, now));
        Ok(Self { groups, more_steps, has_runs, fleet: Fleet { all, connected }, unread: Unread(unread) })
    }
}

/// The sessions that need a person, however old, and the newest others that are no step's.
async fn lines(tx: &mut TeamTx<'_>, reader: Option<&OperatorId>) -> Result<Vec<SessionLine>, DbError> {
    let mut lines = db::sessions::needing(tx, reader, MAX_COUNTED_NEEDING).await?;
    let listed: BTreeSet<SessionId> = lines.iter().map(|line| line.session.id.clone()).collect();
    let filter = SessionFilter { own: true, ..SessionFilter::default() };
    let newest = db::sessions::list(tx, reader, &filter, None, MAX_RAIL_SESSIONS).await?;
    lines.extend(newest.into_iter().filter(|line| !listed.contains(&line.session.id)));
    Ok(lines)
}

impl RailPlace {
    fn bytes(&self) -> usize {
        match self {
            Self::Session(id) => id.as_str().len(),
            Self::Run(id) => id.as_str().len(),
        }
    }
}

impl RailRow {
    fn of_session(line: SessionLine) -> Self {
        Self {
            unread: line.unread && ended(&line),
            badge: line.task.as_ref().map_or(Badge::IDLE, |task| Badge::brief(task, line.contact.state)),
            place: RailPlace::Session(line.session.id),
            title: truncate_escaped(&line.session.title, MAX_RAIL_TITLE_BYTES),
            under: line.viber_name,
            active_at: line.session.active_at,
        }
    }

    fn of_run(run: PlaybookRun) -> Self {
        Self {
            badge: Badge::run(&run),
            active_at: run.ended_at.unwrap_or(run.created_at),
            title: truncate_escaped(&run.playbook, MAX_RAIL_TITLE_BYTES),
            place: RailPlace::Run(run.id),
            under: "Playbook".to_owned(),
            unread: false,
        }
    }

    pub(in crate::web) fn address(&self, slug: &str) -> String {
        match &self.place {
            RailPlace::Session(id) => urls::session(slug, id),
            RailPlace::Run(id) => urls::playbook_run(slug, id),
        }
    }
}

impl RailGroup {
    /// The list of all that wait for a person.
    pub(in crate::web) fn all(&self, slug: &str) -> String {
        urls::sessions_with(slug, &[("state", SessionState::Waiting.as_str())])
    }
}

impl WaitingStep {
    /// The newest, and whether there are more. Most teams have none: that is found out by one look at an index that holds no
    /// others.
    async fn all(tx: &mut TeamTx<'_>) -> Result<(Vec<Self>, bool), DbError> {
        let filter = RunFilter { needing: true, ..RunFilter::default() };
        let runs = db::playbook_runs::filtered(tx, filter, None, MAX_RAIL_RUNS).await?;
        if runs.is_empty() {
            return Ok((Vec::new(), false));
        }
        let mut steps = db::playbook_runs::needing(tx, MAX_RAIL_STEPS + 1).await?;
        let is_more = steps.len() as u64 > MAX_RAIL_STEPS;
        steps.truncate(MAX_RAIL_STEPS as usize);
        let supervisors = runs.into_iter().filter(|run| run.needs == Some(RunNeed::Supervisor)).map(Self::supervisor);
        Ok((supervisors.chain(steps.into_iter().map(|(run, step)| Self::of(run, step))).collect(), is_more))
    }

    fn supervisor(run: PlaybookRun) -> Self {
        Self {
            run: run.id,
            label: None,
            title: "Its supervisor does not go on".to_owned(),
            playbook: run.playbook,
            badge: Badge { state: "failed", icon: "failed", word: "Failed" },
            since: run.created_at,
        }
    }

    /// Where it is decided.
    pub(in crate::web) fn address(&self, slug: &str) -> String {
        match &self.label {
            Some(label) => urls::playbook_step(slug, &self.run, label),
            None => urls::playbook_run(slug, &self.run),
        }
    }

    fn of(run: PlaybookRun, step: RunStep) -> Self {
        let (badge, since) = match step.phase {
            StepPhase::Failed => (Badge { state: "failed", icon: "failed", word: "Failed" }, step.ended_at),
            _ => (Badge { state: "waiting", icon: "gate", word: "Gate" }, step.gate_opened_at),
        };
        Self {
            since: since.unwrap_or(run.created_at),
            run: run.id,
            label: Some(step.label),
            title: truncate_escaped(&step.title, MAX_RAIL_TITLE_BYTES),
            playbook: run.playbook,
            badge,
        }
    }
}

/// Whether nothing is at work: only then is a session unread.
fn ended(line: &SessionLine) -> bool {
    line.task.as_ref().is_none_or(|task| task.state.is_final())
}

/// The groups of a list of sessions, in order.
pub const SESSION_GROUPS: [&str; 6] = ["Needs you", "Working", "Pinned", "Today", "Last 7 days", "Older"];

/// Which of [`SESSION_GROUPS`] a session belongs to.
pub fn group_of(line: &SessionLine, now: Instant) -> usize {
    let badge = line.task.as_ref().map_or(Badge::IDLE, |task| Badge::brief(task, line.contact.state));
    match badge.state {
        "waiting" => 0,
        "failed" if line.unread && ended(line) => 0,
        _ if !ended(line) => 1,
        _ if line.session.pinned_at.is_some() => 2,
        _ => by_age(line.session.active_at, now),
    }
}

fn by_age(active_at: Instant, now: Instant) -> usize {
    let today = now.millis() - now.millis().rem_euclid(DAY_MS);
    match active_at.millis() {
        at if at >= today => 3,
        at if at >= today - 6 * DAY_MS => 4,
        _ => 5,
    }
}

/// What is listed, the most recently active first, each with its group. A run of which something waits stands there with what
/// waits.
fn rows(lines: Vec<SessionLine>, runs: Vec<PlaybookRun>, now: Instant) -> Vec<(usize, RailRow)> {
    let runs = runs.into_iter().filter(|run| run.needs.is_none()).map(|run| {
        let is_under_way = run.state == RunState::Running;
        let row = RailRow::of_run(run);
        (if is_under_way { 1 } else { by_age(row.active_at, now) }, row)
    });
    let lines = lines.into_iter().map(|line| (group_of(&line, now), RailRow::of_session(line)));
    let mut rows: Vec<(usize, RailRow)> = lines.chain(runs).collect();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.active_at));
    rows
}

fn groups(steps: Vec<WaitingStep>, rows: Vec<(usize, RailRow)>) -> Vec<RailGroup> {
    let empty = |title| RailGroup { title, steps: Vec::new(), rows: Vec::new(), more: String::new() };
    let mut groups = SESSION_GROUPS.map(empty);
    let (needing, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(place, _)| *place == 0);
    groups[0].steps = steps;
    groups[0].more = match needing.len().saturating_sub(MAX_NEEDING) {
        0 => String::new(),
        n @ 1..=99 => n.to_string(),
        _ => "99+".to_owned(),
    };
    let shown = needing.into_iter().take(MAX_NEEDING).chain(others.into_iter().take(MAX_RAIL_SESSIONS as usize));
    for (place, row) in shown {
        groups[place].rows.push(row);
    }
    groups.into_iter().filter(|group| !group.rows.is_empty() || !group.steps.is_empty()).collect()
}

impl Fleet {
    pub(in crate::web) fn state(&self) -> &'static str {
        if self.connected > 0 { "online" } else { "offline" }
    }

    pub(in crate::web) fn icon(&self) -> &'static str {
        if self.all > self.connected || self.all == 0 { "offline" } else { "online" }
    }

    pub(in crate::web) fn words(&self) -> String {
        match (self.all, self.all - self.connected.min(self.all)) {
            (0, _) => "none yet".to_owned(),
            (all, 0) => format!("{all} online"),
            (all, offline) if all == offline => "all offline".to_owned(),
            (_, offline) => format!("{offline} offline"),
        }
    }
}
