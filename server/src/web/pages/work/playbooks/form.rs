//! A playbook before it runs: what it is for, its steps as they will run, and the form that starts exactly this text.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{ViberId, playbook::PlaybookStep};

use super::words;
use crate::{
    actions::playbooks::{self, NewRun, PlaybookFile},
    db,
    domain::{ContactState, Role, Viber},
    error::{Error, Result},
    state::Board,
    web::{
        AsOperator, AsViewer, Rejection,
        extract::{Caller, Ids},
        html, html_with,
        pages::{
            asks::{hides_something, revealed},
            busy, nonce, once,
            skills::{refusal, words::short_digest},
        },
        urls,
        view::{PageLocation, Shell, filters},
    },
};

/// What the names of fields begin with that are inputs of the playbook.
const INPUT_PREFIX: &str = "input.";
/// The agent that supervises where there is one of this name.
const SUPERVISOR_AGENT: &str = "supervisor";

/// The page.
#[derive(Template)]
#[template(path = "work/playbooks/form.html")]
struct Page {
    shell: Shell,
    slug: String,
    viber: Viber,
    /// Of the file.
    name: String,
    action: String,
    file: Option<PlaybookFile>,
    /// Why its file cannot be read.
    trouble: Option<String>,
    /// It is shown as it was seen last.
    is_away: bool,
    /// Something in its steps does not show by itself, or looks like something else.
    is_odd: bool,
    steps: Vec<PlannedStep>,
    inputs: Vec<InputField>,
    supervised: bool,
    supervisor: &'static str,
    key: String,
    error: Option<String>,
    may_run: bool,
}

/// A step as it will run.
struct PlannedStep {
    step: PlaybookStep,
    /// The instruction and the bullets: HTML in which everything shows.
    instruction: String,
    bullets: Vec<String>,
    viber: String,
    after: String,
    /// How often it is started again by itself; empty: never.
    retry: String,
    limits: String,
}

/// An input of the playbook, with what was typed.
struct InputField {
    name: String,
    text: String,
    required: bool,
    value: String,
    error: Option<String>,
}

/// What somebody sent.
#[derive(Clone, Debug)]
struct TypedForm {
    inputs: BTreeMap<String, String>,
    supervised: bool,
    /// Of the text that was seen.
    hash: String,
    key: String,
}

impl Page {
    fn title(&self) -> &str {
        let named = self.file.as_ref().map(|file| file.playbook.name.as_str()).filter(|name| !name.is_empty());
        named.unwrap_or(&self.name)
    }

    fn digest(&self, file: &PlaybookFile) -> String {
        short_digest(&file.hash, 2)
    }

    fn source(&self, file: &PlaybookFile) -> String {
        urls::file(&self.slug, &self.viber.id, &file.path)
    }

    fn edit(&self, file: &PlaybookFile) -> String {
        urls::file_edit(&self.slug, &self.viber.id, &file.path)
    }

    fn can_run(&self, file: &PlaybookFile) -> bool {
        self.may_run && file.errors.is_empty()
    }
}

impl TypedForm {
    fn read(fields: Vec<(String, String)>) -> Self {
        let mut typed = Self { inputs: BTreeMap::new(), supervised: true, hash: String::new(), key: String::new() };
        for (name, value) in fields {
            match (name.strip_prefix(INPUT_PREFIX), name.as_str()) {
                // What is not given has no value, and nothing stands in its place.
                (Some(_), _) if value.trim().is_empty() => {}
                (Some(input), _) => {
                    typed.inputs.insert(input.to_owned(), value);
                }
                (None, "plan") => typed.supervised = value != "written",
                (None, "hash") => typed.hash = value,
                (None, "key") => typed.key = value,
                _ => {}
            }
        }
        typed
    }

    /// Everything that two equal forms have in common.
    fn said(&self) -> Vec<&str> {
        let plan = if self.supervised { "supervisor" } else { "written" };
        let inputs = self.inputs.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
        [self.hash.as_str(), plan].into_iter().chain(inputs).collect()
    }
}

/// `GET /t/{team}/vibers/{id}/playbooks/{name}`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Ids((id, name)): Ids<(ViberId, String)>,
) -> Result<Html<String>, Rejection> {
    html(&page(&board, &caller, (&id, name.as_str()), None).await?)
}

/// `POST /t/{team}/vibers/{id}/playbooks/{name}`: starts a run.
pub async fn start(
    State(board): State<Board>,
    caller: AsOperator,
    Ids((id, name)): Ids<(ViberId, String)>,
    Form(fields): Form<Vec<(String, String)>>,
) -> Result<Response, Rejection> {
    let typed = TypedForm::read(fields);
    let run = NewRun {
        viber: id.clone(),
        playbook: name.clone(),
        hash: Some(typed.hash.clone()),
        inputs: typed.inputs.clone(),
        supervised: typed.supervised,
        once: once(&typed.key, &typed.said()),
    };
    let error = match playbooks::start(&board, &caller.team.id, &caller.by, run).await {
        Ok(run) => return Ok(Redirect::to(&urls::playbook_run(&caller.team.slug, &run.id)).into_response()),
        Err(error) => error,
    };
    let (status, why, key) = match error {
        // The same key, in case it has arrived after all.
        Error::Unavailable { what, .. } => (StatusCode::SERVICE_UNAVAILABLE, busy(what), Some(typed.key.clone())),
        error => {
            let (status, why) = refusal(error)?;
            (status, format!("Not started: {why}."), None)
        }
    };
    let mut page = page(&board, &caller, (&id, name.as_str()), Some(&typed)).await?;
    page.key = key.unwrap_or(page.key);
    page.error = Some(why);
    html_with(status, &page)
}

/// The page as the file is now, with what was typed.
async fn page(
    board: &Board,
    caller: &Caller,
    (id, name): (&ViberId, &str),
    typed: Option<&TypedForm>,
) -> Result<Page, Rejection> {
    let found = db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?;
    let viber = found.ok_or(Error::NotFound)?;
    let (file, trouble) = match playbooks::file(board, &caller.team.id, id, name).await {
        Ok(file) => (Some(file), None),
        Err(error) => (None, Some(refusal(error)?.1)),
    };
    let has_supervisor = viber.agents.iter().any(|agent| agent.id == SUPERVISOR_AGENT);
    Ok(Page {
        shell: Shell::load(board, caller).await?.at(PageLocation::Playbooks).still(),
        slug: caller.team.slug.clone(),
        name: name.to_owned(),
        action: urls::viber_playbook(&caller.team.slug, id, name),
        is_odd: file.as_ref().is_some_and(is_odd),
        steps: file.as_ref().map(|file| planned(file, &viber.name)).unwrap_or_default(),
        inputs: file.as_ref().map(|file| fields(file, typed)).unwrap_or_default(),
        supervised: typed.is_none_or(|typed| typed.supervised),
        supervisor: if has_supervisor { SUPERVISOR_AGENT } else { "default" },
        key: nonce(board),
        error: None,
        may_run: caller.role >= Role::Operator,
        file,
        trouble,
        is_away: viber.contact.state != ContactState::Connected,
        viber,
    })
}

fn is_odd(file: &PlaybookFile) -> bool {
    let hides = |step: &PlaybookStep| {
        hides_something(&step.instruction) || step.bullets.iter().any(|bullet| hides_something(bullet))
    };
    file.playbook.steps.iter().any(hides)
}

fn planned(file: &PlaybookFile, home: &str) -> Vec<PlannedStep> {
    let step = |step: &PlaybookStep| PlannedStep {
        instruction: revealed(&step.instruction),
        bullets: step.bullets.iter().map(|bullet| revealed(bullet)).collect(),
        retry: match step.retry {
            0 => String::new(),
            n => format!("started again {}", words::count(n.into(), "time", "times")),
        },
        viber: words::target(step.viber.as_ref()).unwrap_or_else(|| home.to_owned()),
        after: words::listed(&step.after.iter().map(u32::to_string).collect::<Vec<_>>()),
        limits: words::limits(&step.limits),
        step: step.clone(),
    };
    file.playbook.steps.iter().map(step).collect()
}

/// The inputs with what was typed, and with what is wrong with each.
fn fields(file: &PlaybookFile, typed: Option<&TypedForm>) -> Vec<InputField> {
    let wrong = typed.and_then(|typed| file.playbook.fill(&typed.inputs).err()).unwrap_or_default();
    let inputs = file.playbook.inputs.iter().map(|input| {
        // Two inputs may be first used on the same line.
        let named = format!("`{}`", input.name);
        let error = wrong.iter().find(|error| error.line == input.line && error.message.contains(&named));
        InputField {
            name: input.name.clone(),
            text: input.text.clone(),
            required: input.required,
            value: typed.and_then(|typed| typed.inputs.get(&input.name).cloned()).unwrap_or_default(),
            error: error.map(|error| error.message.clone()),
        }
    });
    inputs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_what_is_given() {
        let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let typed = TypedForm::read(vec![
            field("input.version", "4.12.0"),
            field("input.note", "  "),
            field("plan", "written"),
            field("hash", "a1"),
            field("key", "k"),
            field("other", "x"),
        ]);
        assert_eq!(typed.inputs, BTreeMap::from([field("version", "4.12.0")]));
        assert!(!typed.supervised);
        assert_eq!(typed.said(), ["a1", "written", "version", "4.12.0"]);
    }
}
