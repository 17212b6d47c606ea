//! Submitting: a goal becomes a message, a task and, when its session is free, a command. All of it or nothing.

use std::{collections::BTreeMap, iter, sync::Arc};

use protocol::{
    AgentMode, ArtifactId, ArtifactRef, Attachment, CommentId, Instant, MessageId, PlaybookTask, ReportedDetail,
    SessionId, TaskId, TaskLimits, TeamId, TreePlace, ViberId, limits::MAX_GOAL_BYTES,
};
use serde_json::{Value, json};

use super::{
    compact::{ComingTask, Foreseen, compact_first, foresee},
    placement,
};
use crate::{
    actions::{
        AfterCommit,
        artifacts::{self, HandedArtifact},
        comments,
        dispatch::{self, BegunSession},
        idempotency,
        vibers::MAX_LABELS,
    },
    db::{self, Change, DbError, audit::Entry},
    domain::{
        ApprovalSettings, By, Contact, ContactState, Delivery, Message, MessageRole, Part, Policies, PolicyChange,
        Session, Task, TaskKind, TaskState, TeamPrices,
        idempotency::{IdempotentCall, KeptAnswer},
        task::{AGENT_ORIGIN, PLAYBOOK_ORIGIN},
    },
    error::{Error, Result},
    state::Board,
};

/// Largest `payload`, bytes of JSON.
const MAX_PAYLOAD_BYTES: usize = 1024 * 1024;
/// How deep a `payload` nests at most: its viber reads it within frames and records that nest deeper.
const MAX_PAYLOAD_LEVELS: usize = 33;

/// A task to be submitted.
#[derive(Clone, Debug, Default)]
pub struct NewTask {
    /// 1 byte to 256 KiB, without U+0000.
    pub goal: String,
    /// The session that it continues; a new one when absent.
    pub session: Option<SessionId>,
    /// With a session it can only be the session's viber; otherwise one is chosen when absent.
    pub viber: Option<ViberId>,
    /// With a session it is the session's agent when absent, and replaces it otherwise; without one it is `default` when
    /// absent.
    pub agent: Option<String>,
    /// `provider/model`, one that the viber offers; the agent's own when absent.
    pub model: Option<String>,
    /// Labels that the chosen viber must have, when `viber` is absent.
    pub labels: BTreeMap<String, String>,
    pub stream: ReportedDetail,
    pub mode: Option<AgentMode>,
    pub limits: TaskLimits,
    /// The agent checks in after so many calls of tools.
    pub leash: Option<u32>,
    /// `{plan?, artifacts?, memory?, context?, attachments?}`.
    pub payload: Option<Value>,
    /// Policies of the session from this task on.
    pub policies: PolicyChange,
    /// A repeated call returns the same task.
    pub once: Option<IdempotentCall>,
    /// Files that came with the message that it was, beside `payload.attachments`.
    pub handed_on: Vec<Attachment>,
    /// Comments that the goal was composed of: they are removed with it.
    pub takes: Option<Vec<CommentId>>,
    /// Set when the Board submits it for a run of a playbook.
    pub of_run: Option<RunTask>,
    /// Set when another task asked for it.
    pub of_call: Option<AskedTask>,
}

/// What a task is to the run of a playbook.
#[derive(Clone, Debug)]
pub struct RunTask {
    pub playbook: PlaybookTask,
    /// Who started the run: the task is theirs.
    pub started_by: String,
    /// What lies before it.
    pub files: Vec<HandedArtifact>,
}

/// What a task is to the one that asked for it.
#[derive(Clone, Debug)]
pub struct AskedTask {
    pub place: TreePlace,
    /// Who started the tree: the task is theirs.
    pub started_by: String,
    /// What goes along.
    pub files: Vec<HandedArtifact>,
}

/// Submits a task. `Ok` means that it is durable, whatever happens to the Board or the viber.
pub async fn submit(board: &Board, team: &TeamId, by: &By, submit: NewTask) -> Result<Task> {
    let submit = check(submit)?;
    let foreseen = submit.foresee(board, team).await?;
    let submit = Arc::new((submit, foreseen));
    let (task, after) = board
        .change(team, by, move |tx| {
            let submit = submit.clone();
            Box::pin(async move { submit.0.run(tx, submit.1.as_ref()).await })
        })
        .await?;
    crate::fault::at("submit::before_wake");
    after.publish(board, team);
    crate::fault::at("submit::before_answer");
    Ok(task)
}

/// Checks a submitted task and turns its plan into Markdown.
pub(in crate::actions) fn check(mut submit: NewTask) -> Result<NewTask> {
    let goal = |message| Error::unacceptable("bad_goal", message);
    if submit.goal.trim().is_empty() {
        return Err(goal("say what is to be done"));
    }
    if submit.goal.len() > MAX_GOAL_BYTES {
        return Err(goal("the goal is longer than 256 KiB"));
    }
    if submit.goal.contains('\0') {
        return Err(goal("the goal contains U+0000, which text cannot hold"));
    }
    // Each is looked up.
    if submit.labels.len() > MAX_LABELS {
        return Err(Error::unacceptable("bad_labels", format!("name at most {MAX_LABELS} labels")));
    }
    if submit.payload.as_ref().is_some_and(|payload| payload.to_string().len() > MAX_PAYLOAD_BYTES) {
        return Err(Error::unacceptable("payload_too_large", "plan, artifacts, memory and context exceed 1 MiB"));
    }
    if submit.payload.as_ref().is_some_and(|payload| !is_within(payload, MAX_PAYLOAD_LEVELS)) {
        return Err(Error::unacceptable("too_deep", "plan, artifacts, memory or context nests deeper than 32 levels"));
    }
    if let Some(plan) = submit.payload.as_mut().and_then(|payload| payload.get_mut("plan")) {
        let markdown = protocol::plan::markdown_of(plan, "");
        *plan = json!({ "markdown": markdown.map_err(|why| Error::unacceptable("bad_plan", why.to_string()))? });
    }
    Ok(submit)
}

/// Whether a value nests at most so many levels deep; one that holds no other is none.
pub(in crate::actions) fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|field| is_within(field, levels - 1)),
        _ => true,
    }
}

/// How a task is queued that somebody asked for before.
pub(super) struct QueuedAs<'a> {
    pub author: &'a str,
    /// Who answers, whoever answers in the session from now on.
    pub agent: &'a str,
    pub said_at: Instant,
}

impl NewTask {
    /// Finds out, before that change, whether its session has to be compacted first.
    pub(super) async fn foresee(&self, board: &Board, team: &TeamId) -> Result<Option<Foreseen>> {
        let Some(session) = &self.session else { return Ok(None) };
        foresee(board, team, session, (&self.goal, self.model.as_deref())).await.map(Some)
    }

    /// Stores it in a change of the caller's.
    pub(super) async fn run(&self, tx: &mut Change<'_>, foreseen: Option<&Foreseen>) -> Result<(Task, AfterCommit)> {
        if let Some(task) = self.answered_before(tx).await? {
            return Ok((task, AfterCommit::default()));
        }
        if let (Some(takes), Some(session)) = (&self.takes, &self.session) {
            comments::take(tx, session, takes).await?;
        }
        let mut after = AfterCommit::default();
        if let Some(session) = &self.session {
            let coming = ComingTask { goal: &self.goal, model: self.model.as_deref(), below: db::contexts::ALL_SEQS };
            compact_first(tx, session, coming, foreseen, &mut after).await?;
        }
        let (session, seq, busy, rules) = match &self.session {
            Some(id) => {
                let (session, seq, busy) = self.known_session(tx, id).await?;
                (session, seq, busy, tx.query(db::team_rules::load_query()).await?)
            }
            None => {
                let (session, rules) = self.new_session(tx).await?;
                (session, 1, false, rules)
            }
        };
        let (approvals, prices) = rules;
        if let Some(model) = &self.model {
            placement::check_model(tx, &session.viber_id, model).await?;
        }
        if self.mode.is_some() || self.leash.is_some() || self.limits.on_limit.is_some() {
            let NewTask { mode, leash, ref limits, .. } = *self;
            let wanted = placement::WantedControl { mode, leash, on_limit: limits.on_limit };
            placement::check_control(tx, &session.viber_id, &session.agent_id, wanted).await?;
        }
        let mut task = self.task(tx, &session, seq, if busy { Delivery::Queued } else { Delivery::Offered });
        self.attach(tx, &mut task).await?;
        self.keep(tx, &task).await?;
        if busy {
            db::attempts::insert(tx, (&task.id, task.attempt), &task.viber_id, seq + 1, None).await?;
            placement::check_rules(tx, &task.viber_id, &task.agent_id, &approvals).await?;
            // The answer contains the contact of the viber.
            task = db::tasks::load(tx, &task.id).await?.ok_or(Error::NotFound)?;
        } else {
            let revoked = || Error::conflict("viber_revoked", "the viber of this session was revoked");
            let reserved = tx.query(db::vibers::next_cmd_seq_query(&task.viber_id)).await?;
            let (number, contact) = reserved.ok_or_else(revoked)?;
            task.contact = contact;
            db::attempts::insert(tx, (&task.id, task.attempt), &task.viber_id, seq + 1, Some(number)).await?;
            placement::check_rules(tx, &task.viber_id, &task.agent_id, &approvals).await?;
            let begun =
                self.session.is_none().then_some(BegunSession { policies: session.policies, approvals, prices });
            dispatch::numbered(tx, &task, (task.attempt, number), begun, &mut after).await?;
        }
        db::audit::append(tx, Entry::new("task.submit", task.id.as_str()).after(task.goal.as_str())).await?;
        if let Some(once) = &self.once {
            let kept = KeptAnswer { status: 201, answer: json!({ "id": task.id }).to_string(), at: tx.now };
            let actor = tx.by.actor.id().to_owned();
            db::idempotency::keep(tx, &actor, once, &kept).await?;
        }
        after.task(&session.id, &task.id);
        Ok((task, after))
    }

    /// Stores it in a change of the caller's, about whose session nothing was found out before.
    pub(in crate::actions) async fn run_within(&self, tx: &mut Change<'_>) -> Result<(Task, AfterCommit)> {
        self.run(tx, None).await
    }

    /// Stores it behind the other tasks of its session.
    pub(super) async fn queue(&self, tx: &mut Change<'_>, queued: QueuedAs<'_>) -> Result<Task> {
        let QueuedAs { author, agent, said_at } = queued;
        let id = self.session.as_ref().ok_or(Error::NotFound)?;
        let (session, seq, _) = self.known_session(tx, id).await?;
        let mut task = self.task(tx, &session, seq, Delivery::Queued);
        self.hand_on(tx, &mut task).await?;
        let task = Task { created_by: author.to_owned(), agent_id: agent.to_owned(), created_at: said_at, ..task };
        self.keep(tx, &task).await?;
        db::attempts::insert(tx, (&task.id, task.attempt), &task.viber_id, seq + 1, None).await?;
        let entry = Entry::new("task.submit", task.id.as_str()).detail(author).after(task.goal.as_str());
        db::audit::append(&mut tx.by(&By::board()), entry).await?;
        Ok(task)
    }

    /// Stores what is done with the conversation of its session, which nobody works in.
    pub(super) async fn insert(&self, tx: &mut Change<'_>, kind: TaskKind) -> Result<Task> {
        let id = self.session.as_ref().ok_or(Error::NotFound)?;
        let (session, seq, _) = self.known_session(tx, id).await?;
        let task = Task { kind, ..self.task(tx, &session, seq, Delivery::Offered) };
        self.keep(tx, &task).await?;
        db::attempts::insert(tx, (&task.id, task.attempt), &task.viber_id, seq + 1, None).await?;
        Ok(task)
    }

    async fn answered_before(&self, tx: &mut Change<'_>) -> Result<Option<Task>> {
        let Some(answer) = idempotency::earlier_answer(tx, self.once.as_ref()).await? else { return Ok(None) };
        let id = answer["id"].as_str().and_then(|id| id.parse().ok());
        let id: TaskId = id.ok_or_else(|| Error::Internal("a kept answer names no task".into()))?;
        // Its session may have been deleted meanwhile.
        db::tasks::load(tx, &id).await?.ok_or(Error::NotFound).map(Some)
    }

    /// The session, the question's seq in it, and whether a task of it is active.
    async fn known_session(&self, tx: &mut Change<'_>, id: &SessionId) -> Result<(Session, u64, bool)> {
        let mut session = db::sessions::load(tx, id).await?.ok_or(Error::NotFound)?;
        if self.viber.as_ref().is_some_and(|viber| *viber != session.viber_id) {
            return Err(Error::unacceptable("other_viber", "the session belongs to another viber"));
        }
        if let Some(agent) = self.agent.as_ref().filter(|agent| **agent != session.agent_id) {
            self.change_agent(tx, &mut session, agent).await?;
        }
        // One seq for the question and one reserved for its answer. From here on the session is locked.
        let seqs = db::sessions::reserve_seqs_query(id, 2, tx.now);
        let (last, busy) = tx.query_two(seqs, db::tasks::is_busy_query(id)).await?;
        let last = last.ok_or(Error::NotFound)?;
        if session.last_seq == 0 {
            let title = protocol::text::title(&self.goal);
            db::sessions::entitle(tx, id, &title).await?;
        }
        let policies = session.policies.with(self.policies);
        if policies != session.policies {
            db::sessions::set_policies(tx, id, policies).await?;
        }
        if session.archived_at.is_some() {
            db::sessions::set_archived(tx, id, None).await?;
        }
        Ok((session, last - 1, busy))
    }

    /// From this task on another agent of the same viber answers.
    async fn change_agent(&self, tx: &mut Change<'_>, session: &mut Session, agent: &str) -> Result<()> {
        let revoked = || Error::conflict("viber_revoked", "the viber of this session was revoked");
        let viber = db::vibers::candidate(tx, &session.viber_id).await?.ok_or_else(revoked)?;
        session.agent_id = placement::agent(&viber, Some(agent))?;
        db::sessions::set_agent(tx, &session.id, &session.agent_id).await?;
        Ok(())
    }

    async fn new_session(&self, tx: &mut Change<'_>) -> Result<(Session, (ApprovalSettings, TeamPrices))> {
        let (viber, rules) = placement::viber_and_rules(tx, self.viber.as_ref(), &self.labels).await?;
        // A session that its own viber made began on the machine: this one did not, whoever started the run.
        let author = Some(self.author(tx)).filter(|author| author != viber.id.as_str());
        let session = Session {
            id: SessionId::new(tx.now.0),
            agent_id: placement::agent(&viber, self.agent.as_deref())?,
            viber_id: viber.id,
            title: protocol::text::title(&self.goal),
            renamed_at: None,
            pinned_at: None,
            archived_at: None,
            // One for the question, one reserved for its answer.
            last_seq: 2,
            created_by: author.unwrap_or_else(|| tx.by.actor.id().to_owned()),
            created_at: tx.now,
            active_at: tx.now,
            policies: Policies::default().with(self.policies),
        };
        db::sessions::insert(tx, &session).await?;
        if let Some(of_run) = &self.of_run {
            db::sessions::set_run(tx, &session.id, &of_run.playbook.run_id).await?;
        }
        Ok((session, rules))
    }

    fn task(&self, tx: &Change<'_>, session: &Session, seq: u64, delivery: Delivery) -> Task {
        let mut payload = self.payload.clone().unwrap_or_else(|| json!({}));
        if let Some(model) = &self.model {
            payload["model"] = json!(model);
        }
        if let Some(leash) = self.leash {
            payload["leash"] = json!(leash);
        }
        if let Some(of_run) = &self.of_run {
            payload["playbook"] = json!(of_run.playbook);
        }
        if let Some(asked) = &self.of_call {
            payload["parent"] = json!(asked.place);
        }
        Task {
            id: TaskId::new(tx.now.0),
            session_id: session.id.clone(),
            viber_id: session.viber_id.clone(),
            agent_id: session.agent_id.clone(),
            message_id: MessageId::new(tx.now.0),
            message_seq: seq,
            goal: self.goal.clone(),
            state: TaskState::Pending,
            delivery: Some(delivery),
            waiting: None,
            pausing: None,
            smaller: Vec::new(),
            goes_on_from: None,
            kind: TaskKind::Work,
            contact: Contact { state: ContactState::Disconnected, since: tx.now },
            attempt: 1,
            stream: self.stream,
            mode: self.mode,
            limits: self.limits.clone(),
            payload,
            model: None,
            result: None,
            error: None,
            usage: protocol::Usage::default(),
            origin: self.origin().to_owned(),
            created_by: self.author(tx),
            created_at: tx.now,
            offered_at: (delivery == Delivery::Offered).then_some(tx.now),
            started_at: None,
            ended_at: None,
            stopped_by: None,
            stop_confirmed_at: None,
        }
    }

    fn origin(&self) -> &'static str {
        match (&self.of_run, &self.of_call) {
            (Some(_), _) => PLAYBOOK_ORIGIN,
            (None, Some(_)) => AGENT_ORIGIN,
            (None, None) => "board",
        }
    }

    /// Who started what the Board submits it for, and what goes along.
    fn on_behalf(&self) -> Option<(&str, &[HandedArtifact])> {
        let of_run = self.of_run.as_ref().map(|of_run| (of_run.started_by.as_str(), of_run.files.as_slice()));
        of_run.or_else(|| self.of_call.as_ref().map(|asked| (asked.started_by.as_str(), asked.files.as_slice())))
    }

    /// Whose task it is.
    fn author(&self, tx: &Change<'_>) -> String {
        self.on_behalf().map_or_else(|| tx.by.actor.id().to_owned(), |(started_by, _)| started_by.to_owned())
    }

    /// Attaches the files that were named, else all that wait for the session's next task.
    async fn attach(&self, tx: &mut Change<'_>, task: &mut Task) -> Result<()> {
        if let Some((_, files)) = self.on_behalf() {
            let attached = artifacts::hand_over(tx, task, files).await?;
            if !attached.is_empty() {
                task.payload["attachments"] = json!(attached);
            }
            return Ok(());
        }
        if !self.handed_on.is_empty() {
            return self.hand_on(tx, task).await;
        }
        let named = named_files(&task.payload)?;
        if self.session.is_none() && named.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let attached = artifacts::with_task(tx, &task.session_id, &task.id, named.as_deref()).await?;
        if !attached.is_empty() {
            task.payload["attachments"] = json!(attached);
        }
        Ok(())
    }

    /// Takes over the files of the message that it was.
    async fn hand_on(&self, tx: &mut Change<'_>, task: &mut Task) -> Result<()> {
        for file in &self.handed_on {
            db::artifacts::hand_on(tx, &task.session_id, &file.id, &task.id).await?;
        }
        if !self.handed_on.is_empty() {
            task.payload["attachments"] = json!(self.handed_on);
        }
        Ok(())
    }

    async fn keep(&self, tx: &mut Change<'_>, task: &Task) -> Result<()> {
        let message = Message {
            id: task.message_id.clone(),
            session_id: task.session_id.clone(),
            seq: task.message_seq,
            role: MessageRole::User,
            author: task.created_by.clone(),
            task_id: task.id.clone(),
            attempt: 0,
            parts: iter::once(Part::text(&task.goal)).chain(attached(task)).collect(),
            created_at: tx.now,
        };
        db::tasks::insert(tx, task).await?;
        Ok(asked(tx, &message).await?)
    }
}

/// The files that a payload names, by their ids or as `{id}`; `None` when it does not say.
pub(super) fn named_files(payload: &Value) -> Result<Option<Vec<ArtifactId>>> {
    let Some(named) = payload.get("attachments").and_then(Value::as_array) else { return Ok(None) };
    let id = |one: &Value| one.as_str().or_else(|| one["id"].as_str()).and_then(|id| id.parse().ok());
    let named: Option<Vec<ArtifactId>> = named.iter().map(id).collect();
    let unknown = || Error::unacceptable("attachment_not_found", "name attachments by their ids, or as {id}");
    named.map(Some).ok_or_else(unknown)
}

/// The files that go with a task, as parts of its question.
fn attached(task: &Task) -> Vec<Part> {
    let attachments = task.payload.get("attachments").cloned().unwrap_or_default();
    let attachments: Vec<Attachment> = serde_json::from_value(attachments).unwrap_or_default();
    let part = |file: Attachment| Part::Artifact {
        artifact: json!(ArtifactRef {
            reference: Some(format!("attachments/{}", file.id)),
            artifact_id: Some(file.id),
            title: Some(file.name.clone()),
            id: file.name,
            kind: file.kind,
            size: Some(file.size),
            sha256: Some(file.sha256),
            sniffed: None,
            call_id: None,
        }),
    };
    attachments.into_iter().map(part).collect()
}

/// Stores a question with its task and first attempt; the answer takes the next seq. `false` when the task's id, which came
/// from elsewhere, is taken.
pub(in crate::actions) async fn question(tx: &mut Change<'_>, message: &Message, task: &Task) -> Result<bool, DbError> {
    let new = db::tasks::insert_unless_taken(tx, task).await?;
    if new {
        asked(tx, message).await?;
        db::attempts::insert(tx, (&task.id, task.attempt), &task.viber_id, task.message_seq + 1, None).await?;
    }
    Ok(new)
}

/// Stores a new task's question.
async fn asked(tx: &mut Change<'_>, message: &Message) -> Result<(), DbError> {
    db::messages::insert(tx, message).await?;
    db::messages::begin(tx, &message.id, &message.parts).await
}
