//! Composes commands when they are sent, from the stored row and its session. What a command refers to never changes, so
//! that a repeated command is the same.

use std::collections::HashSet;

use protocol::{
    AgentInfo, ArtifactRef, ChildReport, ChildState, Command, EditId, Instant, NumberedCommand, ParentCall,
    PlaybookLedger, Policy, RunId, SessionId, TaskId, TaskSubmit, TeamId, Turn, TurnPart, Usage, ViberId,
    WorkspaceWrite, WriteOp, limits, tokens,
};
use serde_json::{Value, json};

use crate::{
    actions::{
        playbooks, reconcile,
        tasks::{children, compact},
    },
    db::{
        self, TeamTx,
        commands::StoredCommand,
        messages::{
            past::{self, PastRange},
            pins, summaries,
        },
        plans::SentWithTask,
    },
    domain::{
        AllowedTools, ApprovalSettings, Connection, Delivery, EditState, OrderState, OrderedSkill, OverflowRung,
        Policies, Task, TaskKind, TeamPrices,
        context::{
            Exchange, ModelLimits, Past, PlanSettings,
            compaction::{self, Carried},
            plan,
        },
    },
    error::{Error, Result},
    hub::InlineCommand,
    state::Board,
};

/// Commands that are composed at a time.
pub(super) const COMMANDS_PER_READ: u64 = 8;
/// What ends the part of an answer that another attempt goes on from.
const GOES_ON: &str = "Here the request became too long for the model. What was done stands: go on from here, and do none of \
                       it again. What was asked follows once more.";
/// Artifacts that a task gets references to.
const MAX_ARTIFACTS: usize = 50;
/// Versions of artifacts that are read to find the newest of each.
const MAX_VERSIONS_READ: u64 = 500;

/// The next commands after `cmd_seq`, in order.
pub(super) async fn next(board: &Board, connection: &Connection, cmd_seq: u64) -> Result<Vec<NumberedCommand>> {
    let Connection { team, viber, .. } = connection;
    let (mut composed, mut withdrawn) = (Vec::new(), Vec::new());
    {
        let mut tx = board.db.reader_of(team).await?;
        for stored in db::commands::after(&mut tx, viber, cmd_seq, COMMANDS_PER_READ).await? {
            let command = compose(&mut tx, viber, &stored, &mut withdrawn).await?;
            composed.push(NumberedCommand { cmd_seq: stored.cmd_seq, command });
        }
    }
    if !withdrawn.is_empty() {
        reconcile::withdraw(board, connection, &withdrawn).await?;
    }
    Ok(composed)
}

/// One command. A submission that must no longer start becomes a stop, and is added to `withdrawn`.
async fn compose(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    stored: &StoredCommand,
    withdrawn: &mut Vec<(TaskId, u32)>,
) -> Result<Command> {
    let body: Value = serde_json::from_str(&stored.body).unwrap_or_default();
    let reason = body["reason"].as_str().unwrap_or_default().to_owned();
    Ok(match (stored.kind.as_str(), &stored.task_id, stored.attempt) {
        ("task:submit", Some(id), Some(attempt)) => {
            let source = SubmitSource::read(tx, viber, id, &body, stored).await?;
            // At most once: an attempt that the daemon had before, or that is no longer wanted, must not start.
            let is_wanted = |task: &Task| {
                task.attempt == attempt && task.delivery == Some(Delivery::Offered) && task.viber_id == *viber
            };
            match source.filter(|source| is_wanted(&source.task) && !stored.acked) {
                Some(source) => Command::Submit(Box::new(fit(submit(tx, source, stored).await?))),
                None => {
                    if !stored.acked {
                        withdrawn.push((id.clone(), attempt));
                    }
                    let reason = "it was withdrawn before it began".to_owned();
                    Command::Stop { task_id: id.clone(), attempt, reason }
                }
            }
        }
        ("task:stop", Some(id), Some(attempt)) => Command::Stop { task_id: id.clone(), attempt, reason },
        ("task:pause", Some(id), Some(attempt)) => {
            let at = serde_json::from_value(body["at"].clone()).map_err(|error| Error::Internal(error.to_string()))?;
            Command::Pause { task_id: id.clone(), attempt, at }
        }
        ("task:resume", Some(id), Some(attempt)) => Command::Resume { task_id: id.clone(), attempt },
        ("viber:stop", ..) => Command::StopAll { reason },
        ("viber:drain", ..) => Command::Drain { drained: body["drained"].as_bool().unwrap_or_default() },
        ("approval:response", ..) => {
            let response = serde_json::from_value(body).map_err(|error| Error::Internal(error.to_string()))?;
            Command::Approval(Box::new(response))
        }
        ("task:message", ..) => {
            let message = serde_json::from_value(body).map_err(|error| Error::Internal(error.to_string()))?;
            Command::Message(Box::new(message))
        }
        ("workspace:write", ..) => Command::Write(Box::new(write(tx, &body).await?)),
        ("skill:install" | "skill:remove" | "skill:accept" | "skill:enable", ..) => {
            let order = db::orders::load::<OrderedSkill>(tx, viber, stored.cmd_seq).await?;
            // At most once: a daemon that lost its journal gets the number of what it did before, and refuses a nameless skill.
            if order.is_none_or(|order| order.state != OrderState::Queued) {
                return Ok(Command::RemoveSkill { name: String::new() });
            }
            let mut tagged = body;
            tagged["type"] = json!(stored.kind);
            serde_json::from_value(tagged).map_err(|error| Error::Internal(error.to_string()))?
        }
        ("mcp:allow", ..) => {
            let order = db::orders::load::<AllowedTools>(tx, viber, stored.cmd_seq).await?;
            // The same: no server has this name.
            let order = order.filter(|order| order.state == OrderState::Queued);
            let (name, hash) = order.map(|order| (order.name, order.subject.hash)).unwrap_or_default();
            Command::AllowMcp { name, hash }
        }
        ("task:child", Some(id), _) => Command::Child(Box::new(child(tx, id, &body).await?)),
        ("playbook:ledger", ..) => Command::Ledger(Box::new(ledger(tx, &body).await?)),
        (kind, ..) => return Err(Error::Internal(format!("a stored command has the kind {kind}"))),
    })
}

/// What became of what a call asked for, as it is now.
async fn child(tx: &mut TeamTx<'_>, parent: &TaskId, body: &Value) -> Result<ChildReport> {
    let call = ParentCall {
        task_id: parent.clone(),
        attempt: body["attempt"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or_default(),
        call_id: body["callId"].as_str().unwrap_or_default().to_owned(),
    };
    if let Some(report) = children::report_of(tx, &call).await? {
        return Ok(report);
    }
    // Its call was one too many to be kept, or the Board was set back.
    let error = Some("the Board has no such task: too much was asked for, or it was set back since".to_owned());
    let (agent_id, title) = (String::new(), String::new());
    let usage = Usage::default();
    let state = ChildState::Refused;
    Ok(ChildReport {
        call,
        child_task_id: None,
        state,
        agent_id,
        viber: None,
        title,
        follows: None,
        result: None,
        error,
        usage,
    })
}

/// The ledger of a run as it is now: whichever of its commands comes last tells the newest.
async fn ledger(tx: &mut TeamTx<'_>, body: &Value) -> Result<PlaybookLedger> {
    let run_id: Option<RunId> = body["runId"].as_str().and_then(|id| id.parse().ok());
    let run_id = run_id.ok_or_else(|| Error::Internal("a playbook:ledger names no run".into()))?;
    let text = playbooks::ledger(tx, &run_id).await?;
    Ok(PlaybookLedger {
        text: text.unwrap_or_else(|| "The Board does not have this run any more.\n".to_owned()),
        run_id,
    })
}

/// The command of a task that began its session: there is neither a history nor any other context.
pub(super) fn inline(command: InlineCommand) -> NumberedCommand {
    let InlineCommand { policies, approvals, prices, .. } = command;
    let context = SessionContext { policies, approvals, prices, ..SessionContext::default() };
    let whole = submission(*command.task, Vec::new(), context);
    NumberedCommand { cmd_seq: command.cmd_seq, command: Command::Submit(Box::new(fit(whole))) }
}

/// An edit of a file. One that has ended before it is sent (a daemon that lost its journal gets it again), or is not even
/// kept any more, is sent without its content and is therefore refused: it must not be applied, even if the file is again
/// what the author saw.
async fn write(tx: &mut TeamTx<'_>, body: &Value) -> Result<WorkspaceWrite> {
    let id: Option<EditId> = body["editId"].as_str().and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| Error::Internal("a workspace:write names no edit".into()))?;
    let Some(edit) = db::edits::load(tx, &id).await? else {
        let path = body["path"].as_str().unwrap_or_default().to_owned();
        let (op, base_hash, content) = (WriteOp::Put, None, None);
        return Ok(WorkspaceWrite { edit_id: id, path, base_hash, op, content, content_url: None, to: None });
    };
    let open = edit.state == EditState::Queued;
    let content = edit.content.filter(|_| open);
    let fits = content
        .as_ref()
        .is_none_or(|text| serde_json::to_string(text).is_ok_and(|t| t.len() <= limits::MAX_INLINE_WRITE_BYTES));
    let content_url = (!fits).then(|| format!("/api/daemon/edits/{id}"));
    let (op, to) = (if open { edit.op } else { WriteOp::Put }, edit.to.filter(|_| open));
    let content = content.filter(|_| fits);
    Ok(WorkspaceWrite { edit_id: id, path: edit.path, base_hash: edit.base_hash, op, content, content_url, to })
}

/// Everything that an attempt needs, however large: what a daemon fetches when the command had no room for it.
pub async fn payload(board: &Board, team: &TeamId, viber: &ViberId, task: &TaskId, attempt: u32) -> Result<TaskSubmit> {
    let mut tx = board.db.reader_of(team).await?;
    let stored = db::commands::submit_of(&mut tx, viber, task, attempt).await?.ok_or(Error::NotFound)?;
    let body = serde_json::from_str(&stored.body).unwrap_or_default();
    let source = SubmitSource::read(&mut tx, viber, task, &body, &stored).await?;
    let source = source.filter(|source| source.task.attempt == attempt && !source.task.state.is_final());
    submit(&mut tx, source.ok_or(Error::NotFound)?, &stored).await
}

/// The rows that a `task:submit` is composed from, read at once.
struct SubmitSource {
    task: Task,
    agents: Vec<AgentInfo>,
    /// The newest turns before it.
    earlier: Vec<Exchange>,
}

impl SubmitSource {
    async fn read(
        tx: &mut TeamTx<'_>,
        viber: &ViberId,
        id: &TaskId,
        body: &Value,
        stored: &StoredCommand,
    ) -> Result<Option<Self>> {
        let session = body["sessionId"].as_str().and_then(|id| id.parse().ok());
        let session: SessionId = session.ok_or_else(|| Error::Internal("a task:submit names no session".into()))?;
        let below = body["upToSeq"].as_u64().unwrap_or_default() + 1;
        let range = PastRange { session: &session, below, until: stored.created_at };
        let (task, agents, mut earlier) = tx
            .query_three(db::tasks::load_query(id), db::vibers::agents_query(viber), past::newest_query(range))
            .await?;
        if let Some(task) = task.as_ref().filter(|task| task.goes_on_from.is_some()) {
            let own = PastRange { below: task.message_seq + 1, ..range };
            earlier = tx.query(past::newest_query(own)).await?;
        }
        Ok(task.map(|task| Self { task, agents, earlier }))
    }
}

async fn submit(tx: &mut TeamTx<'_>, source: SubmitSource, stored: &StoredCommand) -> Result<TaskSubmit> {
    let SubmitSource { task, agents, earlier } = source;
    if task.kind != TaskKind::Work {
        return conversation(tx, task, &agents, stored.created_at).await;
    }
    let messages = carried(tx, &task, &agents, (earlier, stored.created_at)).await?;
    let SentWithTask { policies, mut plan, continues } =
        db::plans::sent(tx, &task.session_id).await?.unwrap_or_default();
    let earlier_session = |what| continues.as_ref().filter(|(_, carries)| carries.contains(&what)).map(|(id, _)| id);
    if earlier_session(Carried::Plan).is_some() && plan.is_none() {
        plan = db::plans::carried(tx, &task.session_id).await?.map(|carried| (carried.markdown, carried.hash));
    }
    let plan = plan.map(|(markdown, hash)| json!({ "markdown": markdown, "hash": hash }));
    let given = task.payload.get("artifacts").is_some_and(|given| !given.is_null());
    let mut known = if given { Vec::new() } else { artifacts(tx, &task.session_id, stored.created_at).await? };
    if let Some(earlier) = earlier_session(Carried::Artifacts).filter(|_| !given) {
        let carried = artifacts(tx, earlier, stored.created_at).await?;
        known.extend(carried.into_iter().take(MAX_ARTIFACTS.saturating_sub(known.len())));
    }
    let (approvals, prices) = tx.query(db::team_rules::load_query()).await?;
    // An earlier attempt may have asked for others.
    let children = if task.attempt > 1 { children::reports(tx, &task.id).await? } else { Vec::new() };
    let context = SessionContext { policies, approvals, prices, plan, artifacts: known, children };
    Ok(submission(task, messages, context))
}

/// What a task's request carries of its session's past, as it was when the task was submitted.
async fn carried(
    tx: &mut TeamTx<'_>,
    task: &Task,
    agents: &[AgentInfo],
    (newest, until): (Vec<Exchange>, Instant),
) -> Result<Vec<Turn>> {
    // What the attempts did that it goes on from is part of its past.
    let goes_on = task.goes_on_from.is_some();
    let below = task.message_seq + u64::from(goes_on);
    let session = &task.session_id;
    let (pins, reported, standing) = tx
        .query_three(
            pins::load_query(session),
            db::contexts::load_query(session),
            summaries::standing_query(session, task.message_seq, until),
        )
        .await?;
    let model = ModelLimits::asked(agents, &task.agent_id, task.model_asked(), reported.as_ref());
    let settings = PlanSettings { asked: tokens::estimate(&task.goal), ..PlanSettings::of(&model, reported.as_ref()) };
    let settings = match task.rung_of(task.attempt) {
        Some(how) => settings.smaller(how, reported.as_ref().map_or(0, |reported| reported.report().left_out_files())),
        None => settings,
    };
    let mut found = Past::new(settings.estimated_room(), pins, standing.map(|standing| standing.summary));
    past::read(tx, PastRange { session, below, until }, newest, &mut found).await?;
    let mut turns = plan(&found, &settings).turns;
    if let Some(last) = turns.last_mut().filter(|_| goes_on) {
        last.parts.push(TurnPart::Notice { text: GOES_ON.to_owned() });
    }
    Ok(turns)
}

/// What is done with a conversation: what its model reads is the conversation itself.
async fn conversation(tx: &mut TeamTx<'_>, task: Task, agents: &[AgentInfo], until: Instant) -> Result<TaskSubmit> {
    let (session, compaction) = (&task.session_id, compact::of_task(&task)?);
    let model = ModelLimits::of(agents.iter().find(|agent| agent.id == task.agent_id));
    let range = PastRange { session, below: compaction.up_to + 1, until };
    let (newest, pins, prices) =
        tx.query_three(past::newest_query(range), pins::load_query(session), db::prices::load_query()).await?;
    let base = compact::base_of(tx, session, compaction.base.as_ref()).await?;
    let mut found = Past::new(compaction::readable(model.window.tokens), pins, base);
    past::read(tx, range, newest, &mut found).await?;
    let request = compaction.request(task.kind != TaskKind::Flush);
    let messages = compaction::conversation(&found, compaction.notes_after);
    let mut policies = db::plans::sent(tx, session).await?.unwrap_or_default().policies;
    if !compaction.applies {
        // A draft changes nothing, the memory included.
        policies.memory = Policy::Propose;
    }
    let approvals = db::approvals::settings::load(tx).await?;
    let context = SessionContext { policies, approvals, prices, ..SessionContext::default() };
    // A daemon that does not know what `compact` is takes its goal for work: it asks before it does any.
    Ok(TaskSubmit { compact: Some(request), approve_first: true, ..submission(task, messages, context) })
}

/// What a task gets of its session and team beside the conversation.
#[derive(Default)]
struct SessionContext {
    policies: Policies,
    approvals: ApprovalSettings,
    prices: TeamPrices,
    plan: Option<Value>,
    artifacts: Vec<ArtifactRef>,
    children: Vec<ChildReport>,
}

fn submission(task: Task, messages: Vec<Turn>, session: SessionContext) -> TaskSubmit {
    let part = |key: &str| task.payload.get(key).filter(|value| !value.is_null()).cloned();
    let model = task.model_asked().map(str::to_owned);
    let leash = task.leash();
    let (playbook, parent) = (task.playbook(), task.parent());
    let smaller = task.rung_of(task.attempt);
    let no_files = smaller.is_some_and(|how| how.rung >= OverflowRung::NoFiles);
    let spent = smaller.map(|how| how.spent.clone());
    let budget = smaller.and_then(|how| how.budget.clone());
    TaskSubmit {
        messages,
        // A plan that came with the task is for its first attempt: later attempts go on with what became of it.
        plan: part("plan").filter(|_| task.attempt == 1 || session.plan.is_none()).or(session.plan),
        artifacts: match part("artifacts") {
            Some(given) => serde_json::from_value(given).unwrap_or_default(),
            None => session.artifacts,
        },
        memory: part("memory")
            .filter(|_| !no_files)
            .and_then(|value| serde_json::from_value(value).ok())
            .unwrap_or_default(),
        context: part("context").filter(|_| !no_files),
        attachments: part("attachments").and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default(),
        plan_policy: session.policies.plan,
        memory_policy: session.policies.memory,
        approve_first: session.policies.approve_first,
        task_id: task.id,
        attempt: task.attempt,
        session_id: task.session_id,
        agent_id: task.agent_id,
        goal: task.goal,
        stream: task.stream,
        mode: task.mode,
        model,
        limits: task.limits.smallest(&session.approvals.limits),
        rules: session.approvals.rules,
        approval_minutes: Some(session.approvals.expiry_minutes),
        prices: session.prices.list,
        leash,
        deadline: None,
        no_files,
        spent,
        budget,
        compact: None,
        playbook,
        parent,
        children: session.children,
        payload_url: None,
    }
}

/// The session's artifacts so far: the newest version of each, newest first.
async fn artifacts(tx: &mut TeamTx<'_>, session: &SessionId, until: Instant) -> Result<Vec<ArtifactRef>> {
    let known = db::artifacts::products(tx, session, MAX_VERSIONS_READ).await?;
    let mut names = HashSet::new();
    let newest = known.into_iter().filter(|artifact| artifact.created_at <= until && artifact.task_id.is_some());
    let newest = newest.filter(|artifact| names.insert(artifact.name.clone())).take(MAX_ARTIFACTS);
    let references = newest.map(|artifact| ArtifactRef {
        id: artifact.name,
        title: Some(artifact.title),
        kind: Some(artifact.claimed).filter(|kind| !kind.is_empty()),
        reference: Some(artifact.reference),
        artifact_id: Some(artifact.id),
        size: artifact.size,
        sha256: artifact.sha256,
        sniffed: Some(artifact.sniffed).filter(|kind| !kind.is_empty()),
        call_id: None,
    });
    Ok(references.collect())
}

/// The submission when it fits a frame, else one without its large parts and with the path where the daemon fetches all of
/// it.
fn fit(whole: TaskSubmit) -> TaskSubmit {
    let size = serde_json::to_vec(&whole).map_or(usize::MAX, |json| json.len());
    if size <= limits::MAX_INLINE_PAYLOAD_BYTES {
        return whole;
    }
    TaskSubmit {
        payload_url: Some(format!("/api/daemon/tasks/{}/{}", whole.task_id, whole.attempt)),
        goal: String::new(),
        messages: Vec::new(),
        plan: None,
        artifacts: Vec::new(),
        memory: Vec::new(),
        context: None,
        children: Vec::new(),
        ..whole
    }
}
