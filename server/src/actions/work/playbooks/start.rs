//! Starting a run: the text, its digest and the inputs are frozen, and each step of it becomes a row.

use std::{collections::BTreeMap, sync::Arc};

use protocol::{
    AgentInfo, PLAYBOOKS_CAPABILITY, RunId, TeamId, ViberId,
    playbook::{self, MAX_PLAYBOOK_BYTES, Playbook, PlaybookError, PlaybookStep, StepViber},
};
use serde_json::json;

use super::files::{self, MAX_OTHER_VIBERS};
use crate::{
    actions::{AfterCommit, idempotency},
    db::{self, Change, TeamTx, audit::Entry},
    domain::{
        By, PlaybookRun, RunEvent, RunEventKind, RunState, RunStep, Viber,
        idempotency::{IdempotentCall, KeptAnswer},
        name,
    },
    error::{Error, Result},
    state::Board,
};

/// Runs of a team that are under way at the same time.
const MAX_OPEN_RUNS: u64 = 100;
/// Those of them that were started on one machine: whatever starts them there, people can start others.
const MAX_MACHINE_RUNS: u64 = 20;
/// Steps that one change stores.
const STEPS_PER_CHANGE: usize = 100;
/// Longest name of a playbook, characters.
const MAX_NAME_CHARS: usize = 120;

/// A run to be started.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub viber: ViberId,
    /// The name of the file without its ending.
    pub playbook: String,
    /// Of the text that was seen; another one is not run.
    pub hash: Option<String>,
    pub inputs: BTreeMap<String, String>,
    /// A supervisor starts the steps; otherwise they run as they are written.
    pub supervised: bool,
    /// A repeated call returns the same run.
    pub once: Option<IdempotentCall>,
}

/// A run that somebody on its machine starts, with the text as it is there.
#[derive(Clone, Debug)]
pub struct SentPlaybook {
    /// The name of the file without its ending.
    pub playbook: String,
    pub text: String,
    pub inputs: BTreeMap<String, String>,
    pub supervised: bool,
    pub once: Option<IdempotentCall>,
}

/// Starts a run of a playbook of a viber. `Ok` means that it is durable, whatever happens to the Board or the viber.
pub async fn start(board: &Board, team: &TeamId, by: &By, new: NewRun) -> Result<PlaybookRun> {
    let NewRun { viber, playbook, hash, inputs, supervised, once } = new;
    if let Some(run) = made_before(board, team, by, once.as_ref()).await? {
        return Ok(run);
    }
    let known = db::vibers::load(&mut board.db.reader_of(team).await?, &viber).await?;
    let known = known.ok_or_else(|| Error::unacceptable("viber_not_found", format!("there is no viber {viber}")))?;
    let file = files::read_anew(board, team, &known, &playbook).await?;
    if hash.is_some_and(|seen| seen != file.hash) {
        return Err(Error::conflict("raced", "the playbook was changed meanwhile; look at it again"));
    }
    refuse(&file.errors)?;
    let frozen = FrozenPlaybook { text: file.text, playbook: file.playbook, path: file.path, name: playbook };
    insert(board, team, by, RunToStart { viber: known, frozen, inputs, supervised, by_viber: false, once }).await
}

/// Starts a run for somebody on the machine of `viber`. It uses no other machine.
pub async fn start_sent(
    board: &Board,
    team: &TeamId,
    by: &By,
    viber: &ViberId,
    new: SentPlaybook,
) -> Result<PlaybookRun> {
    let SentPlaybook { playbook, text, inputs, supervised, once } = new;
    if let Some(run) = made_before(board, team, by, once.as_ref()).await? {
        return Ok(run);
    }
    let bad_name = |_| Error::unacceptable("bad_playbook", "a playbook’s name is that of its file, without .md");
    let path = files::path(&playbook).map_err(bad_name)?;
    if text.len() > MAX_PLAYBOOK_BYTES {
        return Err(Error::unacceptable("bad_playbook", "a playbook has at most 256 KiB"));
    }
    let known = db::vibers::load(&mut board.db.reader_of(team).await?, viber).await?.ok_or(Error::NotFound)?;
    let (read, errors) = files::checked(board, team, &known, &text).await?;
    // Said before what is wrong with the text, which may tell of other vibers' agents.
    if let Some(other) = read.steps.iter().find(|step| !runs_on(step, &known)) {
        let why = format!("line {}: a run that is started on a machine uses that machine alone", other.line);
        return Err(Error::unacceptable("other_viber", why));
    }
    refuse(&errors)?;
    let frozen = FrozenPlaybook { text, playbook: read, path, name: playbook };
    insert(board, team, by, RunToStart { viber: known, frozen, inputs, supervised, by_viber: true, once }).await
}

/// Whether this viber is one that the step may run on.
fn runs_on(step: &PlaybookStep, viber: &Viber) -> bool {
    match &step.viber {
        None => true,
        Some(StepViber::Name(name)) => *name == viber.name,
        Some(StepViber::Labels(labels)) => labels.iter().all(|(key, value)| viber.labels.get(key) == Some(value)),
    }
}

/// Refuses a playbook with mistakes, and names the first.
fn refuse(errors: &[PlaybookError]) -> Result<()> {
    let Some(first) = errors.first() else { return Ok(()) };
    let more = match errors.len() - 1 {
        0 => String::new(),
        more => format!(" ({more} more)"),
    };
    Err(Error::unacceptable("bad_playbook", format!("{}{more}", in_words(first))))
}

fn in_words(error: &PlaybookError) -> String {
    match error.line {
        0 => error.message.clone(),
        line => format!("line {line}: {}", error.message),
    }
}

/// A playbook that was checked.
struct FrozenPlaybook {
    text: String,
    playbook: Playbook,
    path: String,
    /// Of its file.
    name: String,
}

struct RunToStart {
    viber: Viber,
    frozen: FrozenPlaybook,
    inputs: BTreeMap<String, String>,
    supervised: bool,
    by_viber: bool,
    once: Option<IdempotentCall>,
}

impl RunToStart {
    /// The playbook with its inputs in their places.
    fn filled(&self) -> Result<Playbook> {
        let given = |name: &String| self.inputs.get(name).is_some_and(|value| !value.trim().is_empty());
        let missing = |input: &&playbook::PlaybookInput| input.required && !given(&input.name);
        if let Some(input) = self.frozen.playbook.inputs.iter().find(missing) {
            let text = if input.text.is_empty() { String::new() } else { format!(": {}", input.text) };
            let message = format!("line {}: the input {} is missing{text}", input.line, input.name);
            return Err(Error::unacceptable("missing_input", message));
        }
        self.frozen.playbook.fill(&self.inputs).map_err(|errors| {
            let said = errors.iter().take(3).map(in_words).collect::<Vec<_>>().join("; ");
            Error::unacceptable("bad_input", said)
        })
    }

    fn run(&self, by: &By, now: protocol::Instant, step_count: u32) -> PlaybookRun {
        let frozen = &self.frozen;
        PlaybookRun {
            id: RunId::new(now.0),
            viber_id: self.viber.id.clone(),
            playbook: name::clean(&frozen.playbook.name, MAX_NAME_CHARS).unwrap_or_else(|| frozen.name.clone()),
            path: frozen.path.clone(),
            hash: playbook::digest(&frozen.text),
            text: frozen.text.clone(),
            inputs: self.inputs.clone(),
            supervised: self.supervised,
            step_count,
            state: RunState::Running,
            paused: false,
            needs: None,
            summary: None,
            supervisor: None,
            supervisor_session: None,
            supervisor_attempts: 0,
            told_by: Vec::new(),
            by_viber: self.by_viber,
            started_by: by.actor.id().to_owned(),
            starter: by.actor.name().to_owned(),
            created_at: now,
            ended_at: None,
            version: 1,
            ledger_version: 0,
            settled: false,
        }
    }
}

/// The run that the same call started before.
async fn made_before(
    board: &Board,
    team: &TeamId,
    by: &By,
    once: Option<&IdempotentCall>,
) -> Result<Option<PlaybookRun>> {
    let Some(once) = once.cloned() else { return Ok(None) };
    let looking = board.change(team, by, move |tx| {
        let once = once.clone();
        Box::pin(async move { started_before(tx, Some(&once)).await })
    });
    looking.await
}

async fn started_before(tx: &mut Change<'_>, once: Option<&IdempotentCall>) -> Result<Option<PlaybookRun>> {
    let Some(answer) = idempotency::earlier_answer(tx, once).await? else { return Ok(None) };
    let id = answer["id"].as_str().and_then(|id| id.parse().ok());
    let id: RunId = id.ok_or_else(|| Error::Internal("a kept answer names no run".into()))?;
    db::playbook_runs::load(tx, &id).await?.ok_or(Error::NotFound).map(Some)
}

/// Refuses a viber whose daemon knows no supervisors: the task would be one like any other.
pub(super) fn can_supervise(viber: &Viber) -> Result<()> {
    if viber.capabilities.iter().any(|known| known == PLAYBOOKS_CAPABILITY) {
        return Ok(());
    }
    let why = format!(
        "the daemon of {} cannot supervise a playbook, or was never connected: update it, or run the playbook as it is written",
        viber.name
    );
    Err(Error::conflict("no_playbooks", why))
}

async fn insert(board: &Board, team: &TeamId, by: &By, new: RunToStart) -> Result<PlaybookRun> {
    if new.supervised {
        can_supervise(&new.viber)?;
    }
    let filled = new.filled()?;
    let now = board.clock.now();
    let run = new.run(by, now, u32::try_from(filled.steps.len()).unwrap_or(u32::MAX));
    let there = agents_there(&mut board.db.reader_of(team).await?, &filled).await?;
    let steps = steps_of(&run.id, &filled, (new.viber.agents.as_slice(), &there));
    let all = Arc::new((run, steps, new.once));
    let starting = board.db.change(team, by, now, move |tx| {
        let all = all.clone();
        Box::pin(async move {
            let (run, steps, once) = &*all;
            if let Some(run) = started_before(tx, once.as_ref()).await? {
                return Ok((run, AfterCommit::default()));
            }
            // Two that start the last one at once.
            db::teams::lock(tx).await?;
            check_room(tx, run).await?;
            db::playbook_runs::insert(tx, run).await?;
            db::playbook_runs::insert_steps(tx, &steps[..steps.len().min(STEPS_PER_CHANGE)]).await?;
            db::playbook_runs::add_event(tx, &run.id, &begun(run)).await?;
            let detail = format!("{} {}", run.playbook, run.hash);
            db::audit::append(tx, Entry::new("playbook.start", run.id.as_str()).detail(&detail)).await?;
            if let Some(once) = once {
                let kept = KeptAnswer { status: 201, answer: json!({ "id": run.id }).to_string(), at: tx.now };
                let actor = tx.by.actor.id().to_owned();
                db::idempotency::keep(tx, &actor, once, &kept).await?;
            }
            let mut after = AfterCommit::default();
            after.run(&run.id);
            Ok::<_, Error>((run.clone(), after))
        })
    });
    let (run, after) = starting.await?;
    after.publish(board, team);
    Ok(run)
}

/// Refuses a run while as many are under way as may be.
async fn check_room(tx: &mut Change<'_>, run: &PlaybookRun) -> Result<()> {
    let full = |most: u64, whose: &str| {
        Err(Error::conflict("too_many_runs", format!("{most} runs {whose} are under way: let one end first")))
    };
    if db::playbook_runs::open_count(tx, MAX_OPEN_RUNS).await? >= MAX_OPEN_RUNS {
        return full(MAX_OPEN_RUNS, "of this team");
    }
    let of_machine = match run.by_viber {
        true => db::playbook_runs::open_count_of_machine(tx, &run.viber_id, MAX_MACHINE_RUNS).await?,
        false => 0,
    };
    if of_machine >= MAX_MACHINE_RUNS { full(MAX_MACHINE_RUNS, "that were started on this machine") } else { Ok(()) }
}

/// The line of a ledger about the beginning.
fn begun(run: &PlaybookRun) -> RunEvent {
    let inputs = run.inputs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ");
    let with = if inputs.is_empty() { String::new() } else { format!(" with {inputs}") };
    let way = if run.supervised { "supervised" } else { "as it is written" };
    RunEvent::of_run(RunEventKind::Started, &format!("Started {way}{with}"), Some(&run.starter), run.created_at)
}

/// The agents of vibers, by the viber's name.
type AgentsThere = BTreeMap<String, Vec<AgentInfo>>;

/// The agents of the vibers that steps name.
async fn agents_there(tx: &mut TeamTx<'_>, playbook: &Playbook) -> Result<AgentsThere> {
    let mut there = AgentsThere::new();
    for step in &playbook.steps {
        let Some(StepViber::Name(name)) = &step.viber else { continue };
        if there.len() < MAX_OTHER_VIBERS && !there.contains_key(name) {
            let known = db::vibers::candidate_named(tx, name).await?;
            there.insert(name.clone(), known.map(|known| known.agents).unwrap_or_default());
        }
    }
    Ok(there)
}

/// The steps of a filled playbook. They name their agent as it is called where they run, as far as that is known.
fn steps_of(run: &RunId, playbook: &Playbook, (own, there): (&[AgentInfo], &AgentsThere)) -> Vec<RunStep> {
    let step = |step: &PlaybookStep| {
        let agents: &[AgentInfo] = match &step.viber {
            None => own,
            Some(StepViber::Name(name)) => there.get(name).map(Vec::as_slice).unwrap_or_default(),
            Some(StepViber::Labels(_)) => &[],
        };
        let known: Vec<&str> = agents.iter().map(|agent| agent.id.as_str()).collect();
        let agent = playbook::agent_id(&known, &step.agent).unwrap_or_else(|| step.agent.clone());
        RunStep {
            position: step.n,
            bullets: step.bullets.clone(),
            target: step.viber.clone(),
            after: step.after.iter().map(u32::to_string).collect(),
            gate: step.gate,
            gives: step.gives.clone(),
            retry: step.retry,
            limits: step.limits.clone(),
            ..RunStep::new(run.clone(), step.n.to_string(), agent, step.instruction.clone())
        }
    };
    playbook.steps.iter().map(step).collect()
}

/// The playbook of a run with its inputs in their places, as when it was started.
pub(super) fn playbook_of(run: &PlaybookRun) -> Result<Playbook> {
    let (playbook, _) = playbook::parse(&run.text);
    let broken = |errors: Vec<PlaybookError>| {
        Error::Internal(format!("{}: {}", run.id, errors.iter().map(in_words).collect::<Vec<_>>().join("; ")))
    };
    playbook.fill(&run.inputs).map_err(broken)
}

/// Stores some of the steps of a run's playbook that are not stored yet: one change does not hold all of a long one.
pub(super) async fn store_steps(tx: &mut Change<'_>, run: &PlaybookRun, stored: &[RunStep]) -> Result<()> {
    let agents = db::vibers::load(tx, &run.viber_id).await?.map(|viber| viber.agents).unwrap_or_default();
    let playbook = playbook_of(run)?;
    let there = agents_there(tx, &playbook).await?;
    let all = steps_of(&run.id, &playbook, (agents.as_slice(), &there));
    let is_new = |step: &RunStep| !stored.iter().any(|known| known.label == step.label);
    let more: Vec<RunStep> = all.into_iter().filter(is_new).take(STEPS_PER_CHANGE).collect();
    Ok(db::playbook_runs::insert_steps(tx, &more).await?)
}
