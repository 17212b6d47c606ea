//! The page of one run: facts, steps, ledger, the playbook against what was done. Each is a region of the live stream.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use askama::Template;
use axum::{extract::State, response::Html};
use protocol::{Instant, RunId, SessionId, Usage, playbook::PLAYBOOKS_CAPABILITY};

use super::{
    compare,
    steps::{RefusedStep, StepFrame, StepSurroundings, StepView},
    words,
};
use crate::{
    db::{
        self,
        playbook_runs::{StepArtifact, StepWork},
    },
    domain::{
        ApprovalSettings, PlaybookRun, Role, RunEvent, RunEventKind, RunNeed, RunState, RunStep, StepPhase, Task, Viber,
    },
    error::{Error, Result},
    state::Board,
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        html,
        pages::skills::words::short_digest,
        urls,
        view::{Badge, PageLocation, Shell, diff::Diff, filters},
    },
};

/// Events that are read, and those that the page shows as lines of the ledger; the file has more of them.
const MAX_EVENTS: u64 = 300;
const MAX_SHOWN_LINES: usize = 100;
/// Longest text of a line, bytes.
const MAX_EVENT_BYTES: usize = 1_000;
/// Longest summary that the page shows, bytes.
const MAX_SUMMARY_BYTES: usize = 16 * 1024;

/// The page.
#[derive(Template)]
#[template(path = "work/playbooks/run.html")]
pub struct Page {
    shell: Shell,
    slug: String,
    view: RunView,
    /// Why something was not done with the run.
    refused: Option<String>,
}

/// What was sent and refused.
#[derive(Clone, Debug, Default)]
pub struct RefusedVerb {
    /// The label of the step that it was about; `None`: the run itself.
    pub step: Option<String>,
    pub said: RefusedStep,
}

/// Everything of the page that follows the run.
pub struct RunView {
    id: RunId,
    name: String,
    /// The sessions of its tasks: what happens there changes the page.
    pub sessions: Vec<SessionId>,
    bar: RunBar,
    facts: RunFacts,
    steps: Vec<StepView>,
    ledger: LedgerView,
    pub compared: ComparedView,
}

/// A part of the page that changes by itself.
pub struct RunRegion<'v> {
    /// The id of its element.
    pub name: String,
    /// Of what it shows, without ages: the page itself keeps these current.
    pub hash: u64,
    html: Box<dyn Fn() -> String + 'v>,
}

/// The run's state, and what can be done with it.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/run/_bar.html")]
struct RunBar {
    badge: Badge,
    pause: Option<String>,
    resume: Option<String>,
    stop: Option<String>,
}

/// What is known of the run as a whole.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/run/_facts.html")]
struct RunFacts {
    now: Instant,
    run: PlaybookRun,
    inputs: String,
    /// The viber's page and name; `None` when it was removed.
    viber: Option<(String, String)>,
    cost: String,
    supervisor: Option<SupervisorView>,
    /// The playbook's file.
    file: String,
    digest: String,
    summary: String,
    done: usize,
    skipped: usize,
    all: usize,
}

/// Who plans.
#[derive(Clone, Debug)]
struct SupervisorView {
    /// Its session.
    href: String,
    name: String,
    badge: Badge,
}

/// What happened, the newest first.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/run/_ledger.html")]
struct LedgerView {
    lines: Vec<LedgerLine>,
    /// There are older ones.
    is_cut: bool,
    /// The file in the workspace, where the viber keeps one.
    file: Option<String>,
}

/// A line of it, which the live stream puts before the others.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/run/_line.html")]
struct LedgerLine {
    /// Counted from 1.
    n: u64,
    at: Instant,
    icon: &'static str,
    state: &'static str,
    text: String,
    by: Option<String>,
}

/// The playbook's steps against those of the ledger.
#[derive(Clone, Debug, Template)]
#[template(path = "work/playbooks/run/_compared.html")]
pub struct ComparedView {
    /// Of the run.
    version: u64,
    diff: Diff,
}

impl RunFacts {
    fn is_open(&self) -> bool {
        !self.run.state.is_final()
    }

    fn is_failed(&self) -> bool {
        self.run.state == RunState::Error
    }

    fn needs_supervisor(&self) -> bool {
        self.run.needs == Some(RunNeed::Supervisor)
    }

    /// How long it took, milliseconds.
    fn took(&self) -> u64 {
        let end = self.run.ended_at.map_or(self.run.created_at.millis(), Instant::millis);
        u64::try_from(end - self.run.created_at.millis()).unwrap_or(0)
    }

    fn over(&self) -> usize {
        self.done + self.skipped
    }
}

/// What the database has of a run.
struct RunRecord {
    run: PlaybookRun,
    steps: Vec<RunStep>,
    works: BTreeMap<String, StepWork>,
    artifacts: BTreeMap<String, Vec<StepArtifact>>,
    /// With the number of each, the newest first.
    events: Vec<(u64, RunEvent)>,
    viber: Option<Viber>,
    supervisor: Option<Task>,
    settings: ApprovalSettings,
}

impl RunRecord {
    /// As many statements however many steps there are.
    async fn load(board: &Board, caller: &Caller, id: &RunId) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let run = db::playbook_runs::load(&mut tx, id).await?.ok_or(Error::NotFound)?;
        let steps = db::playbook_runs::steps(&mut tx, id).await?;
        let works = db::playbook_runs::works(&mut tx, id).await?;
        let made = db::playbook_runs::artifacts(&mut tx, id).await?;
        let events = db::playbook_runs::numbered_events(&mut tx, id, MAX_EVENTS).await?;
        let viber = db::vibers::load(&mut tx, &run.viber_id).await?;
        let supervisor = match &run.supervisor {
            Some(task) => db::tasks::load(&mut tx, task).await?,
            None => None,
        };
        let settings = db::approvals::settings::load(&mut tx).await?;
        let mut artifacts: BTreeMap<String, Vec<StepArtifact>> = BTreeMap::new();
        for one in made {
            let of_step = artifacts.entry(one.label.clone()).or_default();
            // The newest version of each comes first.
            if !of_step.iter().any(|newer| newer.name == one.name) {
                of_step.push(one);
            }
        }
        let works = works.into_iter().map(|work| (work.label.clone(), work)).collect();
        Ok(Self { run, steps, works, artifacts, events, viber, supervisor, settings })
    }

    /// What became of a step's attempt before this one, as the ledger says it.
    fn tried(&self, step: &RunStep) -> Option<&str> {
        // One that waits to be started again is at its next attempt.
        let attempt = step.attempt + u32::from(step.phase == StepPhase::Pending);
        if attempt < 2 || matches!(step.phase, StepPhase::Failed | StepPhase::Skipped) {
            return None;
        }
        let is_its_failure = |event: &&RunEvent| {
            event.kind == RunEventKind::StepFailed && event.step.as_deref() == Some(step.label.as_str())
        };
        let mut events = self.events.iter().map(|(_, event)| event);
        events.find(is_its_failure).map(|event| event.text.as_str())
    }
}

impl RunView {
    /// As it is now. `compared`: what is known of an earlier version, which may be this one.
    pub async fn load(board: &Board, caller: &Caller, id: &RunId, compared: Option<ComparedView>) -> Result<Self> {
        let rows = RunRecord::load(board, caller, id).await?;
        let (slug, now) = (caller.team.slug.as_str(), board.clock.now());
        let run = &rows.run;
        let known = compared.filter(|compared| compared.version == run.version);
        let of_steps = rows.steps.iter().filter_map(|step| step.session_id.clone());
        Ok(Self {
            id: run.id.clone(),
            name: run.playbook.clone(),
            sessions: of_steps.chain(run.supervisor_session.clone()).collect(),
            bar: RunBar::of(run, slug, caller.role >= Role::Operator),
            facts: RunFacts::of(&rows, slug, now),
            steps: steps(&rows, caller, now),
            ledger: LedgerView::of(&rows, slug),
            compared: known.unwrap_or_else(|| ComparedView {
                version: run.version,
                diff: compare::against_done(run, &rows.steps),
            }),
        })
    }

    /// Every region but the ledger, which grows by lines.
    pub fn regions(&self) -> Vec<RunRegion<'_>> {
        let mut regions = vec![
            RunRegion::of("run-bar", &self.bar.to_string(), || self.bar.to_string()),
            RunRegion::of("run-facts", &self.facts.ageless(), || self.facts.to_string()),
        ];
        let steps = self.steps.iter();
        regions.extend(steps.map(|step| RunRegion::of(step.region(), &step.ageless(), move || step.to_string())));
        regions.push(RunRegion::of("run-compared", &self.compared.diff, || self.compared.to_string()));
        regions
    }

    /// Names what the page shows with these regions, and the newest line of its ledger.
    pub fn cursor(&self, regions: &[RunRegion<'_>]) -> String {
        let mut hasher = DefaultHasher::new();
        regions.iter().for_each(|region| (&region.name, region.hash).hash(&mut hasher));
        format!("{:016x}.{}", hasher.finish(), self.ledger.lines.first().map_or(0, |line| line.n))
    }

    /// What stands in the ledger before the lines of a page with this cursor, the oldest first; the whole ledger where others
    /// may be missing between them.
    pub fn happened_after(&self, cursor: &str) -> Vec<String> {
        let lines = &self.ledger.lines;
        let newest: Option<u64> = cursor.split_once('.').and_then(|(_, n)| n.parse().ok());
        let new = newest.map(|newest| lines.iter().take_while(|line| line.n > newest).count());
        match new {
            Some(new) if new < MAX_SHOWN_LINES => lines.iter().take(new).rev().map(ToString::to_string).collect(),
            _ => vec![self.ledger.to_string()],
        }
    }

    fn with_refusal(mut self, label: &str, said: RefusedStep) -> Self {
        let refused = |step: StepView| if step.step.label == label { step.with_refusal(said.clone()) } else { step };
        self.steps = self.steps.into_iter().map(refused).collect();
        self
    }

    fn has_step(&self, label: &str) -> bool {
        self.steps.iter().any(|step| step.step.label == label)
    }
}

fn steps(rows: &RunRecord, caller: &Caller, now: Instant) -> Vec<StepView> {
    let frame = StepFrame {
        caller,
        run: &rows.run,
        home: rows.viber.as_ref().map(|viber| viber.name.as_str()),
        settings: &rows.settings,
        may_act: caller.role >= Role::Operator,
        now,
    };
    let before = std::iter::once(None).chain(rows.steps.iter().map(|step| Some(step.label.as_str())));
    let view = |(step, behind): (&RunStep, Option<&str>)| {
        let around = StepSurroundings {
            behind,
            work: rows.works.get(&step.label),
            artifacts: rows.artifacts.get(&step.label).map(Vec::as_slice).unwrap_or_default(),
            tried: rows.tried(step),
        };
        StepView::of(&frame, step, around)
    };
    rows.steps.iter().zip(before).map(view).collect()
}

impl RunBar {
    fn of(run: &PlaybookRun, slug: &str, may_act: bool) -> Self {
        let can_act = may_act && !run.state.is_final();
        let verb = |verb: &str, can: bool| (can_act && can).then(|| urls::playbook_run_verb(slug, &run.id, verb));
        Self {
            badge: Badge::run(run),
            pause: verb("pause", !run.paused),
            // It also starts a supervisor again.
            resume: verb("resume", run.paused || run.needs == Some(RunNeed::Supervisor)),
            stop: verb("stop", true),
        }
    }
}

impl RunFacts {
    fn of(rows: &RunRecord, slug: &str, now: Instant) -> Self {
        let run = &rows.run;
        let in_phase = |phase| rows.steps.iter().filter(|step| step.phase == phase).count();
        let mut usage = Usage::default();
        let supervisor = rows.supervisor.as_ref().map(|task| &task.usage);
        rows.steps.iter().map(|step| &step.usage).chain(supervisor).for_each(|one| usage.add(one));
        let home = rows.viber.as_ref().map_or("a removed viber", |viber| viber.name.as_str());
        Self {
            now,
            inputs: words::inputs(&run.inputs),
            viber: rows.viber.as_ref().map(|viber| (urls::viber(slug, &viber.id), viber.name.clone())),
            cost: words::cost(&usage),
            supervisor: rows.supervisor.as_ref().map(|task| SupervisorView {
                href: urls::session(slug, &task.session_id),
                name: format!("{}, {home}", task.agent_id),
                badge: Badge::task(task),
            }),
            file: urls::file(slug, &run.viber_id, &run.path),
            digest: short_digest(&run.hash, 2),
            summary: protocol::text::head(run.summary.as_deref().unwrap_or_default(), MAX_SUMMARY_BYTES).to_owned(),
            done: in_phase(StepPhase::Done),
            skipped: in_phase(StepPhase::Skipped),
            all: rows.steps.len(),
            // What it says is read elsewhere.
            run: PlaybookRun { text: String::new(), ..run.clone() },
        }
    }

    fn ageless(&self) -> String {
        Self { now: Instant(0), ..self.clone() }.to_string()
    }
}

impl<'v> RunRegion<'v> {
    fn of(name: impl Into<String>, shown: &impl Hash, html: impl Fn() -> String + 'v) -> Self {
        let mut hasher = DefaultHasher::new();
        shown.hash(&mut hasher);
        Self { name: name.into(), hash: hasher.finish(), html: Box::new(html) }
    }

    /// As it is now.
    pub fn html(&self) -> String {
        (self.html)()
    }
}

impl LedgerView {
    fn of(rows: &RunRecord, slug: &str) -> Self {
        let keeps = |viber: &&Viber| viber.capabilities.iter().any(|word| word == PLAYBOOKS_CAPABILITY);
        let path = format!("playbooks/runs/{}.md", rows.run.id);
        let line = |(n, event): &(u64, RunEvent)| {
            let (icon, state) = words::event_icon(event.kind);
            let text = protocol::text::head(&event.text, MAX_EVENT_BYTES).to_owned();
            LedgerLine { n: *n, at: event.at, icon, state, text, by: event.by.clone() }
        };
        Self {
            lines: rows.events.iter().take(MAX_SHOWN_LINES).map(line).collect(),
            is_cut: rows.events.len() > MAX_SHOWN_LINES,
            file: rows.viber.as_ref().filter(keeps).map(|viber| urls::file(slug, &viber.id, &path)),
        }
    }
}

/// `GET /t/{team}/playbook-runs/{id}`
pub async fn show(State(board): State<Board>, caller: AsViewer, Id(id): Id<RunId>) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, &id, None).await?)
}

/// The page, with what was refused beside it.
pub async fn page(board: &Board, caller: &Caller, id: &RunId, refused: Option<RefusedVerb>) -> Result<Page> {
    let view = RunView::load(board, caller, id, None).await?;
    let cursor = view.cursor(&view.regions());
    let shell = Shell::load(board, caller).await?.at(PageLocation::Run(id.clone())).from(cursor);
    let slug = caller.team.slug.clone();
    Ok(match refused {
        None => Page { shell, slug, view, refused: None },
        Some(RefusedVerb { step: Some(label), said }) if view.has_step(&label) => {
            Page { shell, slug, view: view.with_refusal(&label, said), refused: None }
        }
        Some(RefusedVerb { said, .. }) => Page { shell, slug, view, refused: Some(said.why) },
    })
}
