//! Submit: a goal becomes a message, a task and, when its session is free, a command. All of it or nothing.

use std::{collections::BTreeMap, sync::Arc};

use protocol::{
    ArtifactId, CommentId, Instant, Limits, MessageId, Mode, SessionId, Stream, TaskId, TeamId, ViberId,
    limits::MAX_GOAL,
};
use serde_json::{Value, json};

use super::{
    super::{After, artifacts, comments},
    choose, offer,
};
use crate::{
    db::{self, Tx},
    domain::{
        Author, By, Contact, ContactState, Delivery, Message, Part, Policies, PolicyChange, Session, Task, TaskState,
        once::{Earlier, Kept, Once},
    },
    error::{Error, Result},
    state::Board,
};

/// Largest `payload`, bytes of JSON.
const MAX_PAYLOAD: usize = 1024 * 1024;

/// What somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct Submit {
    /// 1 byte to 256 KiB, without U+0000.
    pub goal: String,
    /// The conversation it goes on with; a new one when absent.
    pub session: Option<SessionId>,
    /// The session's, when there is a session.
    pub viber: Option<ViberId>,
    /// The session's, else `default`.
    pub agent: Option<String>,
    /// What the viber must have, when none is named.
    pub labels: BTreeMap<String, String>,
    pub stream: Stream,
    pub mode: Option<Mode>,
    pub limits: Limits,
    /// `{plan?, artifacts?, memory?, context?, attachments?}`.
    pub payload: Option<Value>,
    /// The session's from here on.
    pub policies: PolicyChange,
    /// The same call again is answered with the same task.
    pub once: Option<Once>,
    /// Remarks that the goal was made of: they are gone with it.
    pub takes: Option<Vec<CommentId>>,
}

struct Job {
    team: TeamId,
    by: By,
    submit: Submit,
    now: Instant,
    session: SessionId,
    task: TaskId,
    message: MessageId,
}

/// Gives a task to a viber. An answer means that it is kept, whatever happens to the Board or the viber.
pub async fn submit(board: &Board, team: &TeamId, by: &By, submit: Submit) -> Result<Task> {
    let submit = check(submit)?;
    let now = board.clock.now();
    let job = Arc::new(Job {
        team: team.clone(),
        by: by.clone(),
        submit,
        now,
        session: SessionId::new(now.0),
        task: TaskId::new(now.0),
        message: MessageId::new(now.0),
    });
    let (task, after) = board
        .db
        .write(move |tx| {
            let job = job.clone();
            Box::pin(async move { job.run(tx).await })
        })
        .await?;
    crate::fault::at("submit::before_wake");
    after.tell(board, team);
    crate::fault::at("submit::before_answer");
    Ok(task)
}

/// A submit that can be kept; its plan is Markdown from here on.
fn check(mut submit: Submit) -> Result<Submit> {
    let goal = |message| Error::unacceptable("bad_goal", message);
    if submit.goal.trim().is_empty() {
        return Err(goal("say what is to be done"));
    }
    if submit.goal.len() > MAX_GOAL {
        return Err(goal("the goal is longer than 256 KiB"));
    }
    if submit.goal.contains('\0') {
        return Err(goal("the goal contains U+0000, which text cannot hold"));
    }
    if submit.payload.as_ref().is_some_and(|payload| payload.to_string().len() > MAX_PAYLOAD) {
        return Err(Error::unacceptable("payload_too_large", "plan, artifacts, memory and context exceed 1 MiB"));
    }
    if let Some(plan) = submit.payload.as_mut().and_then(|payload| payload.get_mut("plan")) {
        let markdown = protocol::plan::markdown_of(plan, "");
        *plan = json!({ "markdown": markdown.map_err(|why| Error::unacceptable("bad_plan", why.to_string()))? });
    }
    Ok(submit)
}

impl Job {
    async fn run(&self, tx: &mut Tx) -> Result<(Task, After)> {
        if let Some(task) = self.answered_before(tx).await? {
            return Ok((task, After::default()));
        }
        if let (Some(takes), Some(session)) = (&self.submit.takes, &self.submit.session) {
            comments::take(tx, &self.team, (session, self.by.actor.id()), takes).await?;
        }
        let mut after = After::default();
        let (session, seq, busy) = match &self.submit.session {
            Some(id) => self.known_session(tx, id).await?,
            None => (self.new_session(tx).await?, 1, false),
        };
        let mut task = self.task(&session, seq, if busy { Delivery::Queued } else { Delivery::Offered });
        self.attach(tx, &mut task).await?;
        self.keep(tx, &task).await?;
        // The contact of its viber is part of the answer.
        db::audit::lock(tx, &self.team).await?;
        let head = db::audit::head_ask(&self.team);
        let head = if busy {
            let (head, told) = tx.both(head, db::tasks::load_ask(&self.team, &task.id)).await?;
            task = told.ok_or(Error::NotFound)?;
            head
        } else {
            let number = db::vibers::next_cmd_seq_ask(&self.team, &task.viber_id);
            let (given, head) = tx.both(number, head).await?;
            let revoked = || Error::conflict("viber_revoked", "the viber of this session was revoked");
            let number;
            (number, task.contact) = given.ok_or_else(revoked)?;
            let begun = self.submit.session.is_none().then_some(session.policies);
            offer::numbered(tx, &self.team, &task, (task.attempt, number), begun, self.now, &mut after).await?;
            head
        };
        let (id, goal) = (task.id.as_str(), Some(task.goal.as_str()));
        db::audit::add(tx, &self.team, head, self.now, &self.by, "task.submit", id, "", None, goal).await?;
        if let Some(once) = &self.submit.once {
            let kept = Kept { status: 201, answer: json!({ "id": task.id }).to_string(), at: self.now };
            db::idempotency::keep(tx, &self.team, self.by.actor.id(), once, &kept).await?;
        }
        after.task(&session.id, &task.id);
        Ok((task, after))
    }

    async fn answered_before(&self, tx: &mut Tx) -> Result<Option<Task>> {
        let Some(once) = &self.submit.once else { return Ok(None) };
        let kept = match db::idempotency::find(tx, &self.team, self.by.actor.id(), once, self.now).await? {
            Earlier::No => return Ok(None),
            Earlier::Other => {
                let message = "this Idempotency-Key was used for another call";
                return Err(Error::unacceptable("idempotency_mismatch", message));
            }
            Earlier::Same(kept) => kept,
        };
        let answer: Value = serde_json::from_str(&kept.answer).unwrap_or_default();
        let id = answer["id"].as_str().and_then(|id| id.parse().ok());
        let id: TaskId = id.ok_or_else(|| Error::Internal("a kept answer names no task".into()))?;
        // Its session may have been deleted meanwhile.
        db::tasks::load(tx, &self.team, &id).await?.ok_or(Error::NotFound).map(Some)
    }

    /// The session, the question's seq in it, and whether something of it is at work.
    async fn known_session(&self, tx: &mut Tx, id: &SessionId) -> Result<(Session, u64, bool)> {
        let session = db::sessions::load(tx, &self.team, id).await?.ok_or(Error::NotFound)?;
        if self.submit.viber.as_ref().is_some_and(|viber| *viber != session.viber_id) {
            return Err(Error::unacceptable("other_viber", "the session belongs to another viber"));
        }
        if self.submit.agent.as_ref().is_some_and(|agent| *agent != session.agent_id) {
            return Err(Error::unacceptable("other_agent", "the session is with another agent"));
        }
        // A seq for the question, one kept free for its answer. From here on the session is locked.
        let seqs = db::sessions::give_seqs_ask(&self.team, id, 2, self.now);
        let (last, busy) = tx.both(seqs, db::tasks::is_busy_ask(&self.team, id)).await?;
        let last = last.ok_or(Error::NotFound)?;
        if session.last_seq == 0 {
            let title = protocol::text::title(&self.submit.goal);
            db::sessions::entitle(tx, &self.team, id, &title).await?;
        }
        let policies = session.policies.with(self.submit.policies);
        if policies != session.policies {
            db::sessions::set_policies(tx, &self.team, id, policies).await?;
        }
        if session.archived_at.is_some() {
            db::sessions::set_archived(tx, &self.team, id, None).await?;
        }
        Ok((session, last - 1, busy))
    }

    async fn new_session(&self, tx: &mut Tx) -> Result<Session> {
        let viber = choose::viber(tx, &self.team, self.submit.viber.as_ref(), &self.submit.labels).await?;
        let session = Session {
            id: self.session.clone(),
            agent_id: choose::agent(&viber, self.submit.agent.as_deref())?,
            viber_id: viber.id,
            title: protocol::text::title(&self.submit.goal),
            renamed_at: None,
            pinned_at: None,
            archived_at: None,
            // One for the question, one kept free for its answer.
            last_seq: 2,
            created_by: self.by.actor.id().to_owned(),
            created_at: self.now,
            active_at: self.now,
            policies: Policies::default().with(self.submit.policies),
        };
        if !db::sessions::insert(tx, &self.team, &session).await? {
            return Err(Error::Internal("a new session's id is taken".into()));
        }
        Ok(session)
    }

    fn task(&self, session: &Session, seq: u64, delivery: Delivery) -> Task {
        Task {
            id: self.task.clone(),
            session_id: session.id.clone(),
            viber_id: session.viber_id.clone(),
            agent_id: session.agent_id.clone(),
            message_id: self.message.clone(),
            message_seq: seq,
            goal: self.submit.goal.clone(),
            state: TaskState::Pending,
            delivery: Some(delivery),
            waiting: None,
            contact: Contact { state: ContactState::Disconnected, since: self.now },
            attempt: 1,
            stream: self.submit.stream,
            mode: self.submit.mode,
            limits: self.submit.limits.clone(),
            payload: self.submit.payload.clone().unwrap_or_else(|| json!({})),
            model: None,
            result: None,
            error: None,
            usage: protocol::Usage::default(),
            origin: "board".to_owned(),
            created_by: self.by.actor.id().to_owned(),
            created_at: self.now,
            offered_at: (delivery == Delivery::Offered).then_some(self.now),
            started_at: None,
            ended_at: None,
            stopped_by: None,
            stop_confirmed_at: None,
        }
    }

    /// The files that were named, else all that wait for the session's next task, go with it.
    async fn attach(&self, tx: &mut Tx, task: &mut Task) -> Result<()> {
        let named = task.payload.get("attachments").and_then(Value::as_array).map(|named| {
            let id = |one: &Value| one.as_str().or_else(|| one["id"].as_str()).and_then(|id| id.parse().ok());
            named.iter().map(id).collect::<Option<Vec<ArtifactId>>>()
        });
        let unknown = || Error::unacceptable("attachment_not_found", "name attachments by their ids, or as {id}");
        let named = named.map(|named| named.ok_or_else(unknown)).transpose()?;
        if self.submit.session.is_none() && named.as_ref().is_none_or(Vec::is_empty) {
            return Ok(());
        }
        let attached = artifacts::with_task(tx, &self.team, &task.session_id, &task.id, named.as_deref()).await?;
        if !attached.is_empty() {
            task.payload["attachments"] = json!(attached);
        }
        Ok(())
    }

    async fn keep(&self, tx: &mut Tx, task: &Task) -> Result<()> {
        let message = Message {
            id: task.message_id.clone(),
            session_id: task.session_id.clone(),
            seq: task.message_seq,
            role: Author::User,
            author: task.created_by.clone(),
            task_id: task.id.clone(),
            attempt: 0,
            parts: vec![Part::Text { text: task.goal.clone() }],
            created_at: self.now,
        };
        if !question(tx, &self.team, &message, task, self.now).await? {
            return Err(Error::Internal("a new task's id is taken".into()));
        }
        Ok(())
    }
}

/// A question with its task and first attempt, whose answer takes the next seq. `false` when the task's id is taken.
pub(in crate::actions) async fn question(
    tx: &mut Tx,
    team: &TeamId,
    message: &Message,
    task: &Task,
    now: Instant,
) -> Result<bool, db::Error> {
    if !db::tasks::insert(tx, team, task, now).await? {
        return Ok(false);
    }
    db::messages::insert(tx, team, message).await?;
    db::messages::append(tx, team, &message.id, &message.parts, now).await?;
    db::attempts::insert(tx, team, (&task.id, task.attempt), &task.viber_id, task.message_seq + 1, now).await?;
    Ok(true)
}
