//! Saying something in a session: to its running task or as its next one, and when a running task is told what Enter sends.

use askama::Template;
use axum::{
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use axum_extra::extract::Form;
use protocol::{InjectionPoint, SessionId};
use serde::Deserialize;
use serde_json::json;

use super::{SessionQuery, composer, composer::Composer, page, slash::SlashCommand};
use crate::{
    actions::{
        self,
        tasks::{ChosenMode, Said, WhyNextTask},
    },
    error::Error,
    state::Board,
    web::pages::{
        Wants, busy, cache::SessionPageData, conversation::Conversation, once, pane::PaneSelection,
        preflight::OWN_MODEL, status_panel::StatusPanel,
    },
    web::{AsOperator, Rejection, extract::Id, html, html_with, urls},
};

/// The form of a message.
#[derive(Debug, Deserialize)]
pub struct MessageForm {
    content: String,
    #[serde(default)]
    key: String,
    /// Who answers from now on; empty: who answered before.
    #[serde(default)]
    agent: String,
    /// Empty: the one before; `own`: the agent's own.
    #[serde(default)]
    model: String,
    /// When a task that runs is told; absent: as with Enter.
    mode: Option<InjectionPoint>,
    /// The same of Enter.
    #[serde(default)]
    usual_mode: InjectionPoint,
    /// There when a task that is held goes on with it.
    resume: Option<String>,
    /// There when the form showed which files go with it; what somebody else attached meanwhile waits.
    shows_files: Option<String>,
    #[serde(default)]
    attached: Vec<String>,
}

/// The answer to a message that htmx sent: an empty composer, and the dock as it is now.
#[derive(Template)]
#[template(path = "work/session_forms/_sent.html")]
pub(super) struct Sent {
    pub(super) composer: Composer,
    pub(super) dock: String,
}

/// What is said of a message that became the next task although one runs.
pub(super) fn queued_words(why: WhyNextTask) -> String {
    format!("Queued as the next task: {}.", why.sentence())
}

/// `POST /t/{team}/sessions/{id}/messages`: to the session's task while that has not ended, else its next task.
pub async fn say(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(words): Form<MessageForm>,
) -> Result<Response, Rejection> {
    if let Some((command, rest)) = SlashCommand::read(&words.content) {
        return command.run(&board, &caller, &id, (wants, &words.content, rest)).await;
    }
    let mode = words.mode.unwrap_or(words.usual_mode);
    let resume = words.resume.is_some();
    let how = if resume { "resume" } else { "" };
    let chosen = |word: &String| Some(word.clone()).filter(|word| !word.is_empty());
    let submit = actions::tasks::NewTask {
        goal: words.content.replace("\r\n", "\n"),
        session: Some(id.clone()),
        agent: chosen(&words.agent),
        model: composer::model(&board, &caller.team.id, &id, &words.model).await?,
        payload: words.shows_files.as_ref().map(|_| json!({ "attachments": words.attached })),
        once: once(&words.key, &[id.as_str(), &words.content, &words.agent, &words.model, mode.as_str(), how]),
        ..Default::default()
    };
    let own_model = words.model == OWN_MODEL;
    let said = actions::tasks::NewMessage { task: submit, mode, own_model, resume, ..Default::default() };
    let submitted = actions::tasks::say(&board, &caller.team.id, &caller.by, said).await;
    if let (Ok(_), Some(operator)) = (&submitted, &caller.operator) {
        board.hub.has_sent(&caller.team.id, &id, &operator.id);
    }
    // Whose agent takes no messages, the composer says all the time.
    let (queued, collects) = match &submitted {
        Ok(Said::Task(_, why)) => (why.filter(|why| *why != WhyNextTask::NoMessages), None),
        Ok(Said::Message(message)) => (None, message.why.clone()),
        Err(_) => (None, None),
    };
    match submitted {
        Ok(_) if wants == Wants::Page => {
            let place = urls::session(&caller.team.slug, &id);
            let place = queued.map_or_else(|| place.clone(), |why| format!("{place}?queued={why}"));
            Ok(Redirect::to(&place).into_response())
        }
        Ok(_) => {
            let conversation = Conversation::load(&board, &caller.team.id, &id, None).await?;
            let dock = StatusPanel::of(&conversation, &caller, board.clock.now()).out_of_band();
            let waiting = composer::waiting(&board, &caller.team.id, &id).await?;
            let modes = composer::modes(&board, &caller, &id).await?;
            let mut composer = Composer::of(&board, &conversation, (&waiting, modes), &caller);
            let collects = collects.map(|why| format!("Told at the end of this turn: {why}."));
            composer.notice = queued.map(queued_words).or(collects);
            Ok(html(&Sent { composer, dock })?.into_response())
        }
        Err(Error::Unacceptable { message, .. } | Error::Conflict { message, .. }) => {
            let read = SessionPageData::load(&board, &caller, &id, None, &PaneSelection::default()).await?;
            let mut page = page(&board, &caller, &id, &SessionQuery::default(), &read).await?;
            (page.composer.content, page.composer.error) = (words.content, Some(message));
            match wants {
                Wants::Page => html_with(StatusCode::UNPROCESSABLE_ENTITY, &page),
                Wants::Fragment => html_with(StatusCode::UNPROCESSABLE_ENTITY, &page.composer),
            }
        }
        Err(Error::Unavailable { what, retry_after }) if wants == Wants::Page => {
            // What was written is kept, with the same key in case it has arrived after all.
            let read = SessionPageData::load(&board, &caller, &id, None, &PaneSelection::default()).await?;
            let mut page = page(&board, &caller, &id, &SessionQuery::default(), &read).await?;
            (page.composer.content, page.composer.key) = (words.content, words.key);
            page.composer.error = Some(busy(what));
            let answer = html_with(StatusCode::SERVICE_UNAVAILABLE, &page)?;
            Ok(([(header::RETRY_AFTER, retry_after.to_string())], answer).into_response())
        }
        Err(error) => Err(error.into()),
    }
}

/// What Enter does from now on.
#[derive(Debug, Deserialize)]
pub struct ModeForm {
    enter: InjectionPoint,
    /// There when it is meant for all sessions.
    everywhere: Option<String>,
}

/// `POST /t/{team}/sessions/{id}/message-mode`
pub async fn choose_mode(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
    Form(form): Form<ModeForm>,
) -> Result<Response, Rejection> {
    let operator = caller.operator.as_ref().ok_or(Error::NotFound)?;
    let chosen = ChosenMode { session: id.clone(), everywhere: form.everywhere.is_some(), mode: form.enter };
    actions::tasks::choose_mode(&board, &caller.team.id, &caller.by, &operator.id, chosen).await?;
    Ok(Redirect::to(&urls::session(&caller.team.slug, &id)).into_response())
}
