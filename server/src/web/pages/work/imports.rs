//! Sessions in the logs of a machine that the Board does not have: the list, one read from its log, and the import.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::{Html, Redirect},
};
use protocol::{LogPlace, SessionId, ViberId};
use serde::Deserialize;

use crate::{
    actions::imports::{self, LogExcerpt, MachineSession},
    db,
    domain::{
        ContactState, Message, MessageRole, Role, Viber,
        logbook::{Ending, LoggedTask},
    },
    error::{Error, Result},
    state::Board,
    web::pages::memory::trouble,
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Caller, Id, Ids},
        html, urls,
        view::{
            PageLocation, Shell, filters,
            message::{self, MessageView, TaskEnding},
            timeline::Decisions,
        },
    },
};

async fn viber(board: &Board, caller: &Caller, id: &ViberId) -> Result<Viber> {
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?;
    found.ok_or(Error::NotFound)
}

/// Which part of the list.
#[derive(Debug, Default, Deserialize)]
pub struct ImportListQuery {
    #[serde(default)]
    from: u64,
}

/// The list.
#[derive(Template)]
#[template(path = "work/imports/list.html")]
struct ListPage {
    shell: Shell,
    slug: String,
    viber: Viber,
    lines: Vec<MachineSession>,
    next: Option<u64>,
    /// Why the viber could not be asked.
    trouble: Option<String>,
    may_act: bool,
}

impl ListPage {
    fn show(&self, line: &MachineSession) -> String {
        urls::machine_session(&self.slug, &self.viber.id, &line.logged.session_id)
    }

    fn import(&self, line: &MachineSession) -> String {
        urls::machine_import(&self.slug, &self.viber.id, &line.logged.session_id)
    }

    fn later(&self, from: &u64) -> String {
        urls::machine_sessions(&self.slug, &self.viber.id, *from)
    }
}

/// `GET /t/{team}/vibers/{id}/sessions`
pub async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<ViberId>,
    Query(from): Query<ImportListQuery>,
) -> Result<Html<String>, Rejection> {
    let viber = viber(&board, &caller, &id).await?;
    let (lines, next, trouble) = match imports::list(&board, &caller.team.id, &id, from.from).await {
        Ok((lines, next)) => (lines, next, None),
        Err(error) => (Vec::new(), None, Some(trouble(error)?)),
    };
    html(&ListPage {
        shell: Shell::load(&board, &caller).await?.at(PageLocation::Elsewhere),
        slug: caller.team.slug.clone(),
        may_act: caller.role >= Role::Operator,
        viber,
        lines,
        next,
        trouble,
    })
}

/// Which part of a log.
#[derive(Debug, Default, Deserialize)]
pub struct LogQuery {
    #[serde(default)]
    line: u64,
    #[serde(default)]
    at: u64,
}

/// One session.
#[derive(Template)]
#[template(path = "work/imports/show.html")]
struct Page {
    shell: Shell,
    slug: String,
    viber: Viber,
    session: SessionId,
    title: String,
    agent: String,
    messages: Vec<String>,
    /// It begins in the middle of the log.
    partial: bool,
    next: Option<String>,
    runs: bool,
    known: bool,
    /// Why nothing can be said.
    trouble: Option<String>,
    may_act: bool,
}

impl Page {
    fn import(&self) -> String {
        urls::machine_import(&self.slug, &self.viber.id, &self.session)
    }

    fn is_offline(&self) -> bool {
        self.viber.contact.state != ContactState::Connected
    }
}

/// `GET /t/{team}/vibers/{id}/sessions/{session}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, session)): Ids<(ViberId, SessionId)>,
    Query(at): Query<LogQuery>,
) -> Result<Html<String>, Rejection> {
    let viber = viber(&board, &caller, &id).await?;
    let from = LogPlace { line: at.line, at: at.at };
    let looked = imports::look(&board, &caller.team.id, &id, &session, from).await;
    let slug = caller.team.slug.clone();
    let mut page = Page {
        shell: Shell::load(&board, &caller).await?.at(PageLocation::Elsewhere),
        title: "Session on this machine".to_owned(),
        agent: String::new(),
        messages: Vec::new(),
        partial: from.line > 0,
        next: None,
        runs: false,
        known: false,
        trouble: None,
        may_act: caller.role >= Role::Operator,
        slug,
        viber,
        session,
    };
    match looked {
        Ok(look) => page.fill(look),
        Err(error) => page.trouble = Some(trouble(error)?),
    }
    html(&page)
}

impl Page {
    fn fill(&mut self, look: LogExcerpt) {
        let mut seq = 1;
        for task in &look.tasks {
            let messages = task.messages(&self.session, &look.agent, self.viber.id.as_str(), seq);
            seq += messages.len() as u64;
            let count = messages.len();
            for (n, message) in messages.iter().enumerate() {
                let last = n + 1 == count;
                self.messages.push(self.view(&look, task, message, last).to_string());
            }
        }
        if !look.title.trim().is_empty() {
            self.title = look.title;
        }
        self.next = look.next.map(|next| urls::machine_session_from(&self.slug, &self.viber.id, &self.session, next));
        (self.agent, self.runs, self.known) = (look.agent, look.runs, look.known);
    }

    fn view(&self, look: &LogExcerpt, task: &LoggedTask, message: &Message, last: bool) -> MessageView {
        let attempt = task.attempts.iter().find(|attempt| attempt.number == message.attempt);
        let newest = task.attempts.last().filter(|_| last);
        let cut = newest.is_some_and(|attempt| attempt.ending.is_none()) && (look.next.is_some() || look.runs);
        let ended = newest.filter(|_| !cut).and_then(|attempt| match attempt.end() {
            Ending::Completed(_) => None,
            Ending::Stopped => {
                Some(TaskEnding { level: "info", icon: "stopped", words: "Stopped on the machine".to_owned() })
            }
            Ending::Failed(error) => {
                Some(TaskEnding { level: "error", icon: "failed", words: format!("Failed: {}", error.message) })
            }
        });
        let asked = message.role == MessageRole::User;
        MessageView {
            slug: self.slug.clone(),
            session: self.session.clone(),
            seq: message.seq,
            author: message.role,
            name: if asked { format!("On {}", self.viber.name) } else { look.agent.clone() },
            at: message.created_at,
            about: attempt.and_then(|attempt| attempt.model.clone()).filter(|_| !asked).into_iter().collect(),
            delivery: None,
            open: false,
            entries: message::timeline(message, 0, (&[], &[]), &Decisions::default(), false),
            outcome: ended,
            may_send: false,
            kept: false,
            earlier: None,
            summary: None,
            notes: None,
            pins: None,
            children: Vec::new(),
        }
    }
}

/// `POST /t/{team}/vibers/{id}/sessions/{session}/import`
pub async fn import(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, session)): Ids<(ViberId, SessionId)>,
) -> Result<Redirect, Rejection> {
    let taken = imports::import(&board, &caller.team.id, &caller.by, &id, &session).await?;
    Ok(Redirect::to(&urls::session(&caller.team.slug, &taken.session.id)))
}
