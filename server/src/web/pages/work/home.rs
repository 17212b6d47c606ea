//! A team's home: the form for a new task, and the recent sessions.

use askama::Template;
use axum::{
    Form,
    extract::{Query, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{Policy, ViberId};
use serde::Deserialize;

use crate::{
    actions,
    db::{self, sessions::SessionFilter},
    domain::{PolicyChange, Role},
    error::{Error, Result},
    state::Board,
    web::pages::{
        busy,
        join::JoinCard,
        nonce, once,
        preflight::{ChoiceAnswer, ChoiceQuery, ViberChoice},
        sessions::SessionRow,
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::Caller,
        html, html_with, urls,
        view::{PageLocation, Shell, filters},
    },
};

/// Sessions under the composer.
const MAX_RECENT_SESSIONS: u64 = 8;

/// The page.
#[derive(Template)]
#[template(path = "work/home/show.html")]
struct Page {
    shell: Shell,
    slug: String,
    goal: String,
    key: String,
    first: bool,
    propose: bool,
    error: Option<String>,
    choice: ViberChoice,
    recent: Vec<SessionRow>,
    joining: JoinCard,
    may_send: bool,
}

/// What the form starts with.
#[derive(Debug, Default, Deserialize)]
pub struct HomeQuery {
    goal: Option<String>,
    viber: Option<String>,
    agent: Option<String>,
    /// Words of the vibers that are offered.
    find: Option<String>,
    /// There when they are on.
    first: Option<String>,
    propose: Option<String>,
}

impl HomeQuery {
    fn choice(&self) -> ChoiceQuery<'_> {
        let find = self.find.as_deref().unwrap_or_default();
        ChoiceQuery { viber: self.viber.as_deref(), agent: self.agent.as_deref(), find }
    }
}

/// `GET /t/{team}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Query(start): Query<HomeQuery>,
) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, start, None).await?)
}

async fn page(board: &Board, caller: &Caller, start: HomeQuery, error: Option<String>) -> Result<Page> {
    let recent = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        db::sessions::list(&mut tx, caller.reader(), &SessionFilter::default(), None, MAX_RECENT_SESSIONS).await?
    };
    let shell = Shell::load(board, caller).await?.at(PageLocation::Home);
    let slug = caller.team.slug.clone();
    let choice = ViberChoice::load(board, caller, start.choice()).await?;
    Ok(Page {
        joining: JoinCard::offer(board, caller),
        shell,
        slug,
        goal: start.goal.unwrap_or_default(),
        key: nonce(board),
        first: start.first.is_some(),
        propose: start.propose.is_some(),
        error,
        choice,
        recent: recent.into_iter().map(SessionRow::from).collect(),
        may_send: caller.role >= Role::Operator,
    })
}

/// `GET /t/{team}/preflight`: the choice and its facts, after one chose.
pub async fn preflight(
    State(board): State<Board>,
    caller: AsViewer,
    Query(start): Query<HomeQuery>,
) -> Result<Html<String>, Rejection> {
    html(&ChoiceAnswer { choice: ViberChoice::load(&board, &caller, start.choice()).await? })
}

/// A goal for a viber.
#[derive(Debug, Deserialize)]
pub struct GoalForm {
    pub(in crate::web::pages) goal: String,
    #[serde(default)]
    viber: String,
    #[serde(default)]
    agent: String,
    /// Words of the vibers that are offered.
    #[serde(default)]
    find: String,
    /// There when the vibers are searched, and nothing is submitted yet.
    look: Option<String>,
    #[serde(default)]
    key: String,
    /// The agent plans first, and waits.
    first: Option<String>,
    /// Its changes of the plan are proposed.
    propose: Option<String>,
}

impl GoalForm {
    /// What the form starts with when it comes back.
    fn again(self) -> HomeQuery {
        HomeQuery {
            goal: Some(self.goal),
            viber: Some(self.viber),
            agent: Some(self.agent),
            find: Some(self.find),
            first: self.first,
            propose: self.propose,
        }
    }

    fn viber(&self) -> Result<Option<ViberId>> {
        match self.viber.as_str() {
            "" => Ok(None),
            id => id.parse().map(Some).map_err(|_| Error::NotFound),
        }
    }

    fn agent(&self) -> Option<String> {
        (!self.agent.is_empty()).then(|| self.agent.clone())
    }

    fn policies(&self) -> PolicyChange {
        PolicyChange {
            plan: self.propose.as_ref().map(|_| Policy::Propose),
            memory: None,
            approve_first: self.first.as_ref().map(|_| true),
        }
    }

    /// A session for it, without a task.
    pub(in crate::web::pages) fn start(&self) -> Result<actions::sessions::NewSession> {
        let (viber, agent, policies) = (self.viber()?, self.agent(), self.policies());
        Ok(actions::sessions::NewSession { viber, agent, policies, about: self.goal.clone(), ..Default::default() })
    }
}

/// `POST /t/{team}/tasks`: a new session with its first task, or the form with the vibers that were looked for.
pub async fn submit(
    State(board): State<Board>,
    caller: AsOperator,
    Form(form): Form<GoalForm>,
) -> Result<Response, Rejection> {
    if form.look.is_some() {
        return Ok(html(&page(&board, &caller, form.again(), None).await?)?.into_response());
    }
    let words = |word: &Option<String>| word.clone().unwrap_or_default();
    let (first, propose) = (words(&form.first), words(&form.propose));
    let submit = actions::tasks::NewTask {
        goal: form.goal.replace("\r\n", "\n"),
        viber: form.viber()?,
        agent: form.agent(),
        once: once(&form.key, &[&form.goal, &form.viber, &form.agent, &first, &propose]),
        policies: form.policies(),
        ..Default::default()
    };
    match actions::tasks::submit(&board, &caller.team.id, &caller.by, submit).await {
        Ok(task) => Ok(Redirect::to(&urls::session(&caller.team.slug, &task.session_id)).into_response()),
        Err(error) => Ok(again(&board, &caller, form, error).await?),
    }
}

/// The form as it was filled in, with what is wrong: nothing that was written is lost.
pub(in crate::web::pages) async fn again(
    board: &Board,
    caller: &Caller,
    form: GoalForm,
    error: Error,
) -> Result<Response, Rejection> {
    match error {
        Error::Unacceptable { message, .. } | Error::Conflict { message, .. } => {
            html_with(StatusCode::UNPROCESSABLE_ENTITY, &page(board, caller, form.again(), Some(message)).await?)
        }
        Error::Unavailable { what, retry_after } => {
            // The same key, in case it has arrived after all.
            let key = form.key.clone();
            let mut page = page(board, caller, form.again(), Some(busy(what))).await?;
            page.key = key;
            let answer = html_with(StatusCode::SERVICE_UNAVAILABLE, &page)?;
            Ok(([(header::RETRY_AFTER, retry_after.to_string())], answer).into_response())
        }
        error => Err(error.into()),
    }
}
