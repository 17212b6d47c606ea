//! Composing commands when they are sent: the row says which task, the conversation says the rest. What a command refers
//! to never changes, so a resend says the same again.

use std::collections::HashSet;

use protocol::{
    AgentInfo, ArtifactRef, Command, EditId, Instant, Numbered, SessionId, TaskId, TaskSubmit, TeamId, Turn, ViberId,
    WorkspaceWrite, WriteOp, limits,
};
use serde_json::{Value, json};

use crate::{
    actions::reconcile,
    db::{self, TeamTx, commands::Stored},
    domain::{Author, Connection, Delivery, EditState, Policies, Task, history::Exchange, history::History},
    error::{Error, Result},
    hub::First,
    state::Board,
};

/// Commands composed at a time.
pub(super) const BATCH: u64 = 8;
/// Earlier tasks read at a time.
const PAGE: u64 = 16;
/// Artifacts that a task is told of, and versions that are looked at for them.
const ARTIFACTS: usize = 50;
const ARTIFACTS_READ: u64 = 500;

/// The next commands after `cmd_seq`, in order.
pub(super) async fn next(board: &Board, connection: &Connection, cmd_seq: u64) -> Result<Vec<Numbered>> {
    let Connection { team, viber, .. } = connection;
    let (mut composed, mut withdrawn) = (Vec::new(), Vec::new());
    {
        let mut tx = board.db.reader_of(team).await?;
        for stored in db::commands::after(&mut tx, viber, cmd_seq, BATCH).await? {
            let command = one(&mut tx, viber, &stored, &mut withdrawn).await?;
            composed.push(Numbered { cmd_seq: stored.cmd_seq, command });
        }
    }
    if !withdrawn.is_empty() {
        reconcile::withdraw(board, connection, &withdrawn).await?;
    }
    Ok(composed)
}

async fn one(
    tx: &mut TeamTx<'_>,
    viber: &ViberId,
    stored: &Stored,
    withdrawn: &mut Vec<(TaskId, u32)>,
) -> Result<Command> {
    let body: Value = serde_json::from_str(&stored.body).unwrap_or_default();
    let reason = body["reason"].as_str().unwrap_or_default().to_owned();
    Ok(match (stored.kind.as_str(), &stored.task_id, stored.attempt) {
        ("task:submit", Some(id), Some(attempt)) => {
            let known = Known::read(tx, viber, id, &body, stored).await?;
            // At most once: what the daemon had before, or what nobody wants any more, is not begun.
            let wanted = |task: &Task| {
                task.attempt == attempt && task.delivery == Some(Delivery::Offered) && task.viber_id == *viber
            };
            match known.filter(|known| wanted(&known.task) && !stored.acked) {
                Some(known) => Command::Submit(Box::new(fit(submit(tx, known, stored).await?))),
                None => {
                    if !stored.acked {
                        withdrawn.push((id.clone(), attempt));
                    }
                    let reason = "it was withdrawn before it was begun".to_owned();
                    Command::Stop { task_id: id.clone(), attempt, reason }
                }
            }
        }
        ("task:stop", Some(id), Some(attempt)) => Command::Stop { task_id: id.clone(), attempt, reason },
        ("viber:stop", ..) => Command::StopAll { reason },
        ("viber:drain", ..) => Command::Drain { drained: body["drained"].as_bool().unwrap_or_default() },
        ("approval:response", ..) => {
            let response = serde_json::from_value(body).map_err(|error| Error::Internal(error.to_string()))?;
            Command::Approval(response)
        }
        ("workspace:write", ..) => Command::Write(Box::new(write(tx, &body).await?)),
        (kind, ..) => return Err(Error::Internal(format!("a stored command has the kind {kind}"))),
    })
}

/// The command of a task that began its session: there is neither history nor anything beside it.
pub(super) fn first(first: First) -> Numbered {
    let beside = Beside { policies: first.policies, ..Beside::default() };
    let whole = submission(*first.task, Vec::new(), beside);
    Numbered { cmd_seq: first.cmd_seq, command: Command::Submit(Box::new(fit(whole))) }
}

/// A change of a file. One that is over before it is sent (a daemon that lost its disk is told all commands again) is sent
/// without its content, and so refused: the file may be what the author saw once more, but nobody means it any longer.
async fn write(tx: &mut TeamTx<'_>, body: &Value) -> Result<WorkspaceWrite> {
    let id: Option<EditId> = body["editId"].as_str().and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| Error::Internal("a workspace:write names no edit".into()))?;
    let edit = db::edits::load(tx, &id).await?;
    let edit = edit.ok_or_else(|| Error::Internal(format!("{id} is not there any more")))?;
    let open = edit.state == EditState::Queued;
    let content = edit.content.filter(|_| open);
    let fits = content
        .as_ref()
        .is_none_or(|text| serde_json::to_string(text).is_ok_and(|t| t.len() <= limits::MAX_INLINE_WRITE));
    let content_url = (!fits).then(|| format!("/api/daemon/edits/{id}"));
    let (op, to) = (if open { edit.op } else { WriteOp::Put }, edit.to.filter(|_| open));
    let content = content.filter(|_| fits);
    Ok(WorkspaceWrite { edit_id: id, path: edit.path, base_hash: edit.base_hash, op, content, content_url, to })
}

/// Everything that an attempt needs, however large: for the daemon that fetches it.
pub async fn payload(board: &Board, team: &TeamId, viber: &ViberId, task: &TaskId, attempt: u32) -> Result<TaskSubmit> {
    let mut tx = board.db.reader_of(team).await?;
    let stored = db::commands::submit_of(&mut tx, viber, task, attempt).await?.ok_or(Error::NotFound)?;
    let body = serde_json::from_str(&stored.body).unwrap_or_default();
    let known = Known::read(&mut tx, viber, task, &body, &stored).await?;
    let known = known.filter(|known| known.task.attempt == attempt && !known.task.state.is_final());
    submit(&mut tx, known.ok_or(Error::NotFound)?, &stored).await
}

/// What composing a `task:submit` begins with, read at once.
struct Known {
    task: Task,
    agents: Vec<AgentInfo>,
    /// The newest earlier tasks.
    earlier: Vec<db::messages::Earlier>,
}

impl Known {
    async fn read(
        tx: &mut TeamTx<'_>,
        viber: &ViberId,
        id: &TaskId,
        body: &Value,
        stored: &Stored,
    ) -> Result<Option<Self>> {
        let session = body["sessionId"].as_str().and_then(|id| id.parse().ok());
        let session: SessionId = session.ok_or_else(|| Error::Internal("a task:submit names no session".into()))?;
        let below = body["upToSeq"].as_u64().unwrap_or_default() + 1;
        let (task, agents, earlier) = tx
            .three(
                db::tasks::load_ask(id),
                db::vibers::agents_ask(viber),
                db::messages::history_ask(&session, below, stored.created_at, PAGE),
            )
            .await?;
        Ok(task.map(|task| Self { task, agents, earlier }))
    }
}

async fn submit(tx: &mut TeamTx<'_>, known: Known, stored: &Stored) -> Result<TaskSubmit> {
    let Known { task, agents, earlier } = known;
    let window = agents.iter().find(|agent| agent.id == task.agent_id).and_then(|agent| agent.context_window);
    let mut history = History::new(window);
    let mut page = exchanges(earlier);
    while page.iter().all(|(_, exchange)| history.take(exchange)) {
        // A page that is not full is the last one.
        let Some((below, _)) = page.last().filter(|_| page.len() as u64 == PAGE) else { break };
        let session = &task.session_id;
        page = exchanges(db::messages::history(tx, session, *below, stored.created_at, PAGE).await?);
    }
    let (policies, plan) = db::plans::sent(tx, &task.session_id).await?.unwrap_or_default();
    let plan = plan.map(|(markdown, hash)| json!({ "markdown": markdown, "hash": hash }));
    let given = task.payload.get("artifacts").is_some_and(|given| !given.is_null());
    let artifacts = if given { Vec::new() } else { artifacts(tx, &task.session_id, stored.created_at).await? };
    Ok(submission(task, history.finish(), Beside { policies, plan, artifacts }))
}

/// What a session has beside its conversation.
#[derive(Default)]
struct Beside {
    policies: Policies,
    plan: Option<Value>,
    artifacts: Vec<ArtifactRef>,
}

fn submission(task: Task, messages: Vec<Turn>, beside: Beside) -> TaskSubmit {
    let part = |key: &str| task.payload.get(key).filter(|value| !value.is_null()).cloned();
    TaskSubmit {
        messages,
        // A plan that came with the task is for its first attempt: later ones go on with what became of it.
        plan: part("plan").filter(|_| task.attempt == 1 || beside.plan.is_none()).or(beside.plan),
        artifacts: match part("artifacts") {
            Some(given) => serde_json::from_value(given).unwrap_or_default(),
            None => beside.artifacts,
        },
        memory: part("memory").and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default(),
        context: part("context"),
        attachments: part("attachments").and_then(|value| serde_json::from_value(value).ok()).unwrap_or_default(),
        plan_policy: beside.policies.plan,
        memory_policy: beside.policies.memory,
        approve_first: beside.policies.approve_first,
        task_id: task.id,
        attempt: task.attempt,
        session_id: task.session_id,
        agent_id: task.agent_id,
        goal: task.goal,
        stream: task.stream,
        mode: task.mode,
        limits: task.limits,
        deadline: None,
        payload_url: None,
    }
}

/// What the session has so far: of everything the newest version, the newest first.
async fn artifacts(tx: &mut TeamTx<'_>, session: &SessionId, until: Instant) -> Result<Vec<ArtifactRef>> {
    let known = db::artifacts::of_session(tx, session, None, ARTIFACTS_READ).await?;
    let mut names = HashSet::new();
    let newest = known.into_iter().filter(|one| one.created_at <= until && one.task_id.is_some());
    let newest = newest.filter(|one| names.insert(one.name.clone())).take(ARTIFACTS);
    let told = newest.map(|one| ArtifactRef {
        id: one.name,
        title: Some(one.title),
        kind: Some(one.claimed).filter(|kind| !kind.is_empty()),
        reference: Some(one.reference),
        artifact_id: Some(one.id),
        size: one.size,
        sha256: one.sha256,
        sniffed: Some(one.sniffed).filter(|kind| !kind.is_empty()),
    });
    Ok(told.collect())
}

/// Rows of parts, newest task first, as exchanges with their places.
fn exchanges(rows: Vec<db::messages::Earlier>) -> Vec<(u64, Exchange)> {
    let mut exchanges: Vec<(u64, Exchange)> = Vec::new();
    for row in rows {
        if exchanges.last().is_none_or(|(place, _)| *place != row.place) {
            exchanges.push((row.place, Exchange { question: Vec::new(), answer: Vec::new(), state: row.state }));
        }
        let Some((_, exchange)) = exchanges.last_mut() else { continue };
        match row.role {
            Author::User => exchange.question.extend(row.part),
            Author::Assistant => exchange.answer.extend(row.part),
        }
    }
    exchanges
}

/// What is too large for a frame stays here, and the daemon is told where.
fn fit(whole: TaskSubmit) -> TaskSubmit {
    let size = serde_json::to_vec(&whole).map_or(usize::MAX, |json| json.len());
    if size <= limits::MAX_INLINE_PAYLOAD {
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
        ..whole
    }
}
