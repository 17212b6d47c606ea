//! The playbooks of the vibers as their files are now, and the runs of all of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

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
    actions::{
        files::VIBER_AWAY,
        playbooks::{self, PlaybookFile},
    },
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
/// Playbooks of a viber that are shown: on its own page, and among all vibers.
const FILES_PER_PAGE: usize = 50;
const MAX_FILES_AMONG_ALL: usize = 20;
/// Mistakes of one file that are shown.
const MAX_ERRORS: usize = 5;
/// Longest goal that a row shows, bytes.
const MAX_GOAL_BYTES: usize = 240;
/// Runs of a page.
const RUNS_PER_PAGE: u64 = 25;
/// The agents that the first steps name, for whoever has no playbook yet.
const MAX_NAMED_AGENTS: usize = 8;
/// What somebody copies who has no playbook yet.
const EXAMPLE: &str = "# Playbook: release-feature

## Goal
Prepare a feature branch for release.

## Steps
1. [Coder] Run all tests and ensure they pass.
2. [Coder] Bump the version in package.json.
3. [Git] Create a new branch named `release/v<version>`.
4. [Git] Push the branch and open a PR.
";

/// Which part of the page is wanted.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PlaybooksQuery {
    /// One viber; empty: all of them.
    #[serde(default)]
    viber: String,
    /// The last file of the page before, without `.md`.
    #[serde(default)]
    after: String,
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
    /// How many more vibers there are, in words; empty: none.
    unread: String,
    /// The team has a viber at all.
    has_vibers: bool,
    first: Option<FirstPlaybook>,
    /// It begins with the first file.
    is_first: bool,
    runs: RunRows,
    may_run: bool,
}

/// How somebody comes to a playbook who has none.
struct FirstPlaybook {
    /// A viber that waits for one.
    viber: String,
    /// Its agents, as a list.
    agents: String,
    /// Where the file is written.
    href: String,
    /// What is copied into it.
    text: &'static str,
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
    /// Of its agents, as a list.
    agents: String,
    files: Vec<FileRow>,
    /// They are as they were seen last.
    is_away: bool,
    /// Where those are that come after them.
    next: Option<String>,
    /// How many entries of the folder are not listed, and where it is.
    unlisted: u64,
    folder: String,
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
    /// How many more mistakes there are, in words; empty: none.
    omitted: String,
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
            badge: Badge::run(run),
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
        (viber, after): (Option<&ViberId>, Option<&RunId>),
        now: Instant,
    ) -> Result<Self> {
        let mut runs = db::playbook_runs::list(tx, viber, after, RUNS_PER_PAGE + 1).await?;
        let is_more = runs.len() as u64 > RUNS_PER_PAGE;
        runs.truncate(RUNS_PER_PAGE as usize);
        let names = names(tx, &runs).await?;
        let last = runs.last().filter(|_| is_more).map(|run| run.id.to_string());
        let of = viber.map(ToString::to_string).unwrap_or_default();
        Ok(Self {
            now,
            rows: runs.iter().map(|run| RunRow::of(slug, run, &names)).collect(),
            next: last.map(|last| urls::playbook_runs(slug, &[("viber", &of), ("after", &last)])),
            is_first: after.is_none(),
        })
    }

    /// The newest of the team.
    pub async fn newest(board: &Board, caller: &Caller) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        Self::load(&mut tx, &caller.team.slug, (None, None), board.clock.now()).await
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }
}

/// The names of the vibers of these runs.
async fn names(tx: &mut TeamTx<'_>, runs: &[PlaybookRun]) -> Result<BTreeMap<ViberId, String>> {
    let mut names = BTreeMap::new();
    for id in runs.iter().map(|run| &run.viber_id).collect::<BTreeSet<_>>() {
        names.extend(db::vibers::named(tx, id).await?.map(|viber| (viber.id, viber.name)));
    }
    Ok(names)
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
    let (vibers, runs, total) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let vibers = match &one {
            Some(id) => vec![db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?],
            None => db::vibers::list(&mut tx, None, MAX_VIBERS).await?,
        };
        let runs = RunRows::load(&mut tx, &slug, (one.as_ref(), None), board.clock.now()).await?;
        let total = if one.is_some() { 1 } else { db::vibers::connectivity(&mut tx).await?.0 };
        (vibers, runs, total)
    };
    let has_vibers = !vibers.is_empty();
    let narrowed = one.is_some().then(|| vibers.first()).flatten();
    let narrowed = narrowed.map(|viber| (urls::viber(&slug, &viber.id), viber.name.clone()));
    // Those that can answer come first.
    let (mut all, away): (Vec<Viber>, Vec<Viber>) = vibers.into_iter().partition(is_here);
    all.extend(away);
    let unread = total.saturating_sub(all.len().min(MAX_READ_VIBERS));
    let page = if one.is_some() { (asked.after, FILES_PER_PAGE) } else { (String::new(), MAX_FILES_AMONG_ALL) };
    let reads = futures_util::stream::iter(all.into_iter().take(MAX_READ_VIBERS).map(|viber| {
        let (board, caller, page) = (board.clone(), caller.0.clone(), page.clone());
        async move { read(&board, &caller, &viber, page).await }
    }));
    let reads: Vec<Result<ViberPlaybooks, Rejection>> = reads.buffered(READS_AT_ONCE).collect().await;
    let shown = reads.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (may_run, is_first) = (caller.role >= Role::Operator, page.0.is_empty());
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Playbooks);
    let shell = if narrowed.is_some() { shell.still() } else { shell };
    html(&Page {
        shell,
        one: narrowed,
        unread: match unread {
            0 => String::new(),
            n => words::count(n as u64, "more viber is", "more vibers are"),
        },
        first: FirstPlaybook::of(&slug, &shown).filter(|_| may_run && is_first),
        is_first,
        vibers: shown,
        has_vibers,
        runs,
        may_run,
        slug,
    })
}

impl FirstPlaybook {
    /// On a viber that has none, while no viber has one.
    fn of(slug: &str, vibers: &[ViberPlaybooks]) -> Option<Self> {
        let viber = vibers.iter().find(|viber| viber.trouble.is_none())?;
        let is_first = vibers.iter().all(|viber| viber.files.is_empty());
        is_first.then(|| Self {
            viber: viber.name.clone(),
            agents: viber.agents.clone(),
            href: urls::file_edit(slug, &viber.id, "playbooks/release-feature.md"),
            text: EXAMPLE,
        })
    }
}

fn is_here(viber: &Viber) -> bool {
    viber.contact.state == ContactState::Connected
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
        RunRows::load(&mut tx, &slug, (one.as_ref(), after.as_ref()), board.clock.now()).await?
    };
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Playbooks).still();
    html(&OlderPage { shell, slug, runs })
}

fn without_files(slug: &str, viber: &Viber, why: &str) -> ViberPlaybooks {
    let agents: Vec<&str> = viber.agents.iter().map(|agent| agent.id.as_str()).take(MAX_NAMED_AGENTS).collect();
    ViberPlaybooks {
        id: viber.id.clone(),
        name: viber.name.clone(),
        href: urls::viber(slug, &viber.id),
        badge: vibers::state(viber),
        agents: words::listed(&agents),
        files: Vec::new(),
        is_away: !is_here(viber),
        next: None,
        unlisted: 0,
        folder: urls::folder(slug, &viber.id, "playbooks"),
        trouble: Some(why.to_owned()),
        new: urls::file_edit(slug, &viber.id, "playbooks/new.md"),
    }
}

/// What a viber has, after a file, so many of them; what it does not answer is no failure of the page.
async fn read(
    board: &Board,
    caller: &Caller,
    viber: &Viber,
    (after, limit): (String, usize),
) -> Result<ViberPlaybooks, Rejection> {
    let slug = &caller.team.slug;
    let reading = playbooks::files_after(board, (&caller.team.id, &viber.id), &after, limit);
    let why = match timeout(READ_TIMEOUT, reading).await {
        Ok(Ok(found)) => {
            let next = found.next.map(|name| urls::playbooks_after(slug, &viber.id, &name));
            let files = rows(board, caller, viber, found.files).await?;
            let unlisted = found.unlisted;
            return Ok(ViberPlaybooks { files, next, unlisted, trouble: None, ..without_files(slug, viber, "") });
        }
        Ok(Err(Error::Conflict { code: VIBER_AWAY, .. })) => {
            "It is away, and nobody has looked at its playbooks yet: they are shown when it reconnects.".to_owned()
        }
        Ok(Err(error)) => format!("Its playbooks cannot be read now: {}.", refusal(error)?.1),
        Err(_) => "It did not answer in time: its playbooks cannot be read now.".to_owned(),
    };
    Ok(without_files(slug, viber, &why))
}

async fn rows(board: &Board, caller: &Caller, viber: &Viber, files: Vec<PlaybookFile>) -> Result<Vec<FileRow>> {
    let slug = &caller.team.slug;
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let names = BTreeMap::from([(viber.id.clone(), viber.name.clone())]);
    let mut rows = Vec::new();
    for file in files {
        let last = db::playbook_runs::last_of(&mut tx, &viber.id, &file.path).await?;
        rows.push(FileRow::of(slug, viber, file, last.map(|run| RunRow::of(slug, &run, &names))));
    }
    Ok(rows)
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
            omitted: match file.errors.len().saturating_sub(MAX_ERRORS) {
                0 => String::new(),
                n => words::count(n as u64, "more mistake", "more mistakes"),
            },
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
