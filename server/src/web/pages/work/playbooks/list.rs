//! The playbooks of the vibers as their files are now, and the runs of all of them.

use std::{collections::BTreeMap, time::Duration};

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use futures_util::StreamExt as _;
use protocol::{Instant, RunId, ViberId, playbook::PlaybookError};
use serde::Deserialize;
use tokio::time::timeout;

use super::words;
use crate::{
    actions::playbooks::{self, PlaybookFile},
    db::{self, TeamTx},
    domain::{ContactState, PlaybookRun, Role, Viber},
    error::{Error, Result},
    state::Board,
    web::{
        AsViewer, Rejection,
        extract::Caller,
        html,
        pages::{skills::refusal, vibers},
        urls,
        view::{Badge, PageLocation, Shell, filters},
    },
};

/// Vibers that are looked at.
const MAX_VIBERS: u64 = 500;
/// Vibers whose files are read for one page, and how many of them at once.
const MAX_READ_VIBERS: usize = 30;
const READS_AT_ONCE: usize = 8;
/// How long one of them has for its answer: the others are shown meanwhile.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Playbooks of one viber that are shown.
const MAX_FILES: usize = 50;
/// Mistakes of one file that are shown.
const MAX_ERRORS: usize = 5;
/// Longest goal that a row shows, bytes.
const MAX_GOAL_BYTES: usize = 240;
/// Runs of a page.
const RUNS_PER_PAGE: u64 = 25;

/// Which part of the page is wanted.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PlaybooksQuery {
    /// One viber; empty: all of them.
    #[serde(default)]
    viber: String,
}

/// Where a list of runs begins.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct RunListQuery {
    /// One viber; empty: all of them.
    #[serde(default)]
    viber: String,
    /// The last run of the page before.
    #[serde(default)]
    after: String,
}

/// The page.
#[derive(Template)]
#[template(path = "work/playbooks/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    /// The page and the name of the viber that it is narrowed to.
    one: Option<(String, String)>,
    /// Those that can be read now, and why others cannot.
    vibers: Vec<ViberPlaybooks>,
    /// Vibers that are connected and were not asked.
    unread: usize,
    /// The team has a viber at all.
    has_vibers: bool,
    runs: RunRows,
    may_run: bool,
}

/// Runs alone, older than those of the page of all.
#[derive(Template)]
#[template(path = "work/playbooks/runs.html")]
struct OlderPage {
    shell: Shell,
    slug: String,
    runs: RunRows,
}

/// The playbooks of a viber.
struct ViberPlaybooks {
    id: ViberId,
    name: String,
    href: String,
    badge: Badge,
    files: Vec<FileRow>,
    omitted: usize,
    /// Why its files cannot be read.
    trouble: Option<String>,
    /// Where a new file is written.
    new: String,
}

/// A file.
struct FileRow {
    /// Of the playbook, or of its file where it says none.
    title: String,
    path: String,
    goal: String,
    facts: String,
    errors: Vec<PlaybookError>,
    omitted: usize,
    last: Option<RunRow>,
    /// Its form.
    form: String,
    edit: String,
}

/// A run in a list.
#[derive(Clone, Debug)]
pub struct RunRow {
    href: String,
    playbook: String,
    badge: Badge,
    viber: String,
    starter: String,
    inputs: String,
    steps: String,
    at: Instant,
}

/// The runs of a page: the newest ones are a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/_runs.html")]
pub struct RunRows {
    now: Instant,
    rows: Vec<RunRow>,
    next: Option<String>,
    /// It begins with the newest run.
    is_first: bool,
}

impl RunRow {
    fn of(slug: &str, run: &PlaybookRun, names: &BTreeMap<ViberId, String>) -> Self {
        Self {
            href: urls::playbook_run(slug, &run.id),
            playbook: run.playbook.clone(),
            badge: words::run_badge(run),
            viber: names.get(&run.viber_id).map_or_else(|| "a removed viber".to_owned(), Clone::clone),
            starter: run.starter.clone(),
            inputs: words::inputs(&run.inputs),
            steps: words::count(u64::from(run.step_count), "step", "steps"),
            at: run.created_at,
        }
    }
}

impl RunRows {
    /// A page of the runs; of one viber, after a run.
    async fn load(
        tx: &mut TeamTx<'_>,
        slug: &str,
        names: &BTreeMap<ViberId, String>,
        (viber, after): (Option<&ViberId>, Option<&RunId>),
        now: Instant,
    ) -> Result<Self> {
        let mut runs = db::playbook_runs::list(tx, viber, after, RUNS_PER_PAGE + 1).await?;
        let is_more = runs.len() as u64 > RUNS_PER_PAGE;
        runs.truncate(RUNS_PER_PAGE as usize);
        let last = runs.last().filter(|_| is_more).map(|run| run.id.to_string());
        let of = viber.map(ToString::to_string).unwrap_or_default();
        Ok(Self {
            now,
            rows: runs.iter().map(|run| RunRow::of(slug, run, names)).collect(),
            next: last.map(|last| urls::playbook_runs(slug, &[("viber", &of), ("after", &last)])),
            is_first: after.is_none(),
        })
    }

    /// The newest of the team.
    pub async fn newest(board: &Board, caller: &Caller) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let names = names(&db::vibers::list(&mut tx, None, MAX_VIBERS).await?);
        Self::load(&mut tx, &caller.team.slug, &names, (None, None), board.clock.now()).await
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }
}

fn names(vibers: &[Viber]) -> BTreeMap<ViberId, String> {
    vibers.iter().map(|viber| (viber.id.clone(), viber.name.clone())).collect()
}

/// The viber that an address names; what is no id is no viber.
fn named(viber: &str) -> Result<Option<ViberId>> {
    match viber {
        "" => Ok(None),
        id => id.parse().map(Some).map_err(|_| Error::NotFound),
    }
}

/// `GET /t/{team}/playbooks`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<PlaybooksQuery>,
) -> Result<Html<String>, Rejection> {
    let slug = caller.team.slug.clone();
    let one = named(&asked.viber)?;
    let (vibers, runs) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let vibers = match &one {
            Some(id) => vec![db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?],
            None => db::vibers::list(&mut tx, None, MAX_VIBERS).await?,
        };
        let runs = RunRows::load(&mut tx, &slug, &names(&vibers), (one.as_ref(), None), board.clock.now()).await?;
        (vibers, runs)
    };
    let has_vibers = !vibers.is_empty();
    let narrowed = one.is_some().then(|| vibers.first()).flatten();
    let narrowed = narrowed.map(|viber| (urls::viber(&slug, &viber.id), viber.name.clone()));
    let is_here = |viber: &Viber| viber.contact.state == ContactState::Connected;
    let (here, away): (Vec<Viber>, Vec<Viber>) = vibers.into_iter().partition(is_here);
    let unread = here.len().saturating_sub(MAX_READ_VIBERS);
    let reads = futures_util::stream::iter(here.into_iter().take(MAX_READ_VIBERS).map(|viber| {
        let (board, caller) = (board.clone(), caller.0.clone());
        async move { read(&board, &caller, &viber).await }
    }));
    let reads: Vec<Result<ViberPlaybooks, Rejection>> = reads.buffered(READS_AT_ONCE).collect().await;
    let mut shown = reads.into_iter().collect::<Result<Vec<_>, _>>()?;
    let why = "It is away: its playbooks cannot be read now, and are shown here when it reconnects.";
    shown.extend(away.iter().take(MAX_READ_VIBERS).map(|viber| without_files(&slug, viber, why)));
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Playbooks);
    let shell = if narrowed.is_some() { shell.still() } else { shell };
    html(&Page {
        shell,
        one: narrowed,
        vibers: shown,
        unread,
        has_vibers,
        runs,
        may_run: caller.role >= Role::Operator,
        slug,
    })
}

/// `GET /t/{team}/playbook-runs`
pub async fn older(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<RunListQuery>,
) -> Result<Html<String>, Rejection> {
    let slug = caller.team.slug.clone();
    let one = named(&asked.viber)?;
    // An invalid cursor starts at the top.
    let after: Option<RunId> = asked.after.parse().ok();
    let runs = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let names = names(&db::vibers::list(&mut tx, None, MAX_VIBERS).await?);
        RunRows::load(&mut tx, &slug, &names, (one.as_ref(), after.as_ref()), board.clock.now()).await?
    };
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Playbooks).still();
    html(&OlderPage { shell, slug, runs })
}

fn without_files(slug: &str, viber: &Viber, why: &str) -> ViberPlaybooks {
    ViberPlaybooks {
        id: viber.id.clone(),
        name: viber.name.clone(),
        href: urls::viber(slug, &viber.id),
        badge: vibers::state(viber),
        files: Vec::new(),
        omitted: 0,
        trouble: Some(why.to_owned()),
        new: urls::file_edit(slug, &viber.id, "playbooks/new.md"),
    }
}

/// What a viber has; what it does not answer is no failure of the page.
async fn read(board: &Board, caller: &Caller, viber: &Viber) -> Result<ViberPlaybooks, Rejection> {
    let slug = &caller.team.slug;
    let why = match timeout(READ_TIMEOUT, playbooks::files(board, &caller.team.id, &viber.id)).await {
        Ok(Ok(files)) => return Ok(with_files(board, caller, viber, files).await?),
        Ok(Err(error)) => format!("Its playbooks cannot be read now: {}.", refusal(error)?.1),
        Err(_) => "It did not answer in time: its playbooks cannot be read now.".to_owned(),
    };
    Ok(without_files(slug, viber, &why))
}

async fn with_files(
    board: &Board,
    caller: &Caller,
    viber: &Viber,
    mut files: Vec<PlaybookFile>,
) -> Result<ViberPlaybooks> {
    let slug = &caller.team.slug;
    let omitted = files.len().saturating_sub(MAX_FILES);
    files.truncate(MAX_FILES);
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let names = BTreeMap::from([(viber.id.clone(), viber.name.clone())]);
    let mut rows = Vec::new();
    for file in files {
        let last = db::playbook_runs::last_of(&mut tx, &viber.id, &file.path).await?;
        rows.push(FileRow::of(slug, viber, file, last.map(|run| RunRow::of(slug, &run, &names))));
    }
    Ok(ViberPlaybooks { files: rows, omitted, trouble: None, ..without_files(slug, viber, "") })
}

impl FileRow {
    fn of(slug: &str, viber: &Viber, file: PlaybookFile, last: Option<RunRow>) -> Self {
        let goal = file.playbook.goal.trim();
        let head = protocol::text::head(goal, MAX_GOAL_BYTES);
        let inputs = file.playbook.inputs.len() as u64;
        let steps = words::count(file.playbook.steps.len() as u64, "step", "steps");
        Self {
            title: if file.playbook.name.is_empty() { file.name.clone() } else { file.playbook.name },
            goal: format!("{head}{}", if head.len() < goal.len() { "…" } else { "" }),
            facts: match inputs {
                0 => steps,
                n => format!("{steps}, {}", words::count(n, "input", "inputs")),
            },
            omitted: file.errors.len().saturating_sub(MAX_ERRORS),
            errors: file.errors.into_iter().take(MAX_ERRORS).collect(),
            last,
            form: urls::viber_playbook(slug, &viber.id, &file.name),
            edit: urls::file_edit(slug, &viber.id, &file.path),
            path: file.path,
        }
    }

    fn is_broken(&self) -> bool {
        !self.errors.is_empty()
    }
}
