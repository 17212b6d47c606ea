//! A team's home: the form for a new task, and the recent sessions.

mod form;

use askama::Template;
use axum::{
    body::Body,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;

use crate::{
    actions,
    db::{self, sessions::SessionFilter},
    domain::Role,
    error::{Error, Result},
    state::Board,
    web::pages::{
        busy,
        join::JoinCard,
        nonce, once,
        preflight::{ChoiceAnswer, ChoiceQuery, ViberChoice},
        session,
        sessions::SessionRow,
    },
    web::{
        AsOperator, AsViewer, Rejection,
        extract::Caller,
        html, html_with, urls,
        view::{PageLocation, Shell, filters},
    },
};

pub use form::{GoalForm, GoalRequest};

/// When an agent asks before it acts: the form's value and its words.
const MODES: &[(&str, &str)] = &[
    ("", "as its file says"),
    ("always_ask", "before every call that changes something"),
    ("viber_decides", "before risky calls"),
    ("always_execute", "only where a rule asks"),
];
/// Goals to begin with, until the team has a session.
const EXAMPLE_GOALS: &[&str] = &[
    "Look around and write a short README that says what is here and how to run it.",
    "Run the tests, find out why some fail, and show me the smallest fix.",
    "Make a table of what changed here in the last seven days, as a CSV artifact.",
];
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
    mode: String,
    leash: String,
    cost: String,
    error: Option<String>,
    choice: ViberChoice,
    recent: Vec<SessionRow>,
    /// Each with the address that fills it in.
    examples: Vec<(String, &'static str)>,
    joining: JoinCard,
    may_send: bool,
}

/// What the form starts with.
#[derive(Debug, Default, Deserialize)]
pub struct HomeQuery {
    goal: Option<String>,
    viber: Option<String>,
    agent: Option<String>,
    model: Option<String>,
    /// Words of the vibers that are offered.
    find: Option<String>,
    /// There when they are on.
    first: Option<String>,
    propose: Option<String>,
    #[serde(default)]
    mode: String,
    #[serde(default)]
    leash: String,
    #[serde(default)]
    cost: String,
}

impl Page {
    fn has_options(&self) -> bool {
        self.first || self.propose || [&self.mode, &self.leash, &self.cost].iter().any(|text| !text.is_empty())
    }
}

impl HomeQuery {
    fn choice(&self) -> ChoiceQuery<'_> {
        let find = self.find.as_deref().unwrap_or_default();
        let (viber, agent, model) = (self.viber.as_deref(), self.agent.as_deref(), self.model.as_deref());
        ChoiceQuery { viber, agent, model, find }
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
        let filter = SessionFilter { own: true, ..SessionFilter::default() };
        db::sessions::list(&mut tx, caller.reader(), &filter, None, MAX_RECENT_SESSIONS).await?
    };
    let shell = Shell::load(board, caller).await?.at(PageLocation::Home);
    let slug = caller.team.slug.clone();
    let examples = EXAMPLE_GOALS.iter().filter(|_| recent.is_empty());
    let examples = examples.map(|goal| (urls::home_with_goal(&slug, goal), *goal)).collect();
    let choice = ViberChoice::load(board, caller, start.choice()).await?;
    Ok(Page {
        examples,
        joining: JoinCard::offer(board, caller),
        shell,
        slug,
        goal: start.goal.unwrap_or_default(),
        key: nonce(board),
        first: start.first.is_some(),
        propose: start.propose.is_some(),
        mode: start.mode,
        leash: start.leash,
        cost: start.cost,
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

/// `POST /t/{team}/tasks`: a new session with its first task, or the form with the vibers that were looked for.
pub async fn submit(
    State(board): State<Board>,
    caller: AsOperator,
    request: Request<Body>,
) -> Result<Response, Rejection> {
    let GoalRequest { form, files } = GoalRequest::read(request).await?;
    if form.look.is_some() {
        return Ok(html(&page(&board, &caller, form.again(), None).await?)?.into_response());
    }
    let words = |word: &Option<String>| word.clone().unwrap_or_default();
    let (first, propose) = (words(&form.first), words(&form.propose));
    // Said before anything is made of the form.
    let control = match form.control() {
        Ok(control) => control,
        Err(error) => return again(&board, &caller, form, error).await,
    };
    let prepared = match files {
        Some(files) => match form.begin(&board, &caller).await {
            Ok(session) => {
                if let Err(error) = files.attach(&board, &caller, &session).await {
                    return session::prepared(&board, &caller, &session, form.goal, Some(error)).await;
                }
                Some(session)
            }
            Err(error) => return again(&board, &caller, form, error).await,
        },
        None => None,
    };
    let submit = actions::tasks::NewTask {
        goal: form.goal.replace("\r\n", "\n"),
        viber: form.viber()?.filter(|_| prepared.is_none()),
        agent: form.agent(),
        model: form.model(),
        once: once(
            &form.key,
            &[&form.goal, &form.viber, &form.agent, &form.model, &first, &propose, &form.mode, &form.leash, &form.cost],
        ),
        mode: control.mode,
        leash: control.leash,
        limits: control.limits,
        policies: form.policies(),
        session: prepared.clone(),
        ..Default::default()
    };
    match (actions::tasks::submit(&board, &caller.team.id, &caller.by, submit).await, prepared) {
        (Ok(task), prepared) => {
            // The same form was sent before: its session has the task, and its files.
            if let Some(other) = prepared.filter(|prepared| *prepared != task.session_id) {
                actions::sessions::delete(&board, &caller.team.id, &caller.by, &other).await?;
            }
            Ok(Redirect::to(&urls::session(&caller.team.slug, &task.session_id)).into_response())
        }
        (Err(error), Some(session)) => session::prepared(&board, &caller, &session, form.goal, Some(error)).await,
        (Err(error), None) => Ok(again(&board, &caller, form, error).await?),
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
