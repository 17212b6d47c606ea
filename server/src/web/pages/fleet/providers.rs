//! The model providers of a viber: where their keys come from, their tests, and, where the machine allows it, the form that
//! sets a key. A key that was sent is never shown again, whatever becomes of the form.

use std::time::Duration;

use askama::Template;
use axum::{
    Form,
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{AgentInfo, KeySource, ProviderInfo, ViberId, provider_key::MAX_PROVIDER_NAME_BYTES};
use serde::Deserialize;
use serde_json::json;

use crate::{
    actions::provider_keys::{self, NewProviderKey},
    db,
    domain::{ContactState, Role, Viber},
    error::{Error, Result},
    secret::provider_key::ProviderKey,
    state::Board,
    web::pages::{
        Wants,
        preflight::{ChoiceQuery, ViberChoice},
        viber,
    },
    web::{
        AsAdmin, AsOperator, Rejection,
        extract::{Caller, Id},
        html, html_with,
        respond::status,
        urls,
        view::filters,
    },
};

/// How long a provider may take to answer a test.
const PROVIDER_TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Providers that a form offers.
const MAX_OFFERED_PROVIDERS: usize = 50;
/// Commands that set a key, where one of several is run.
const MAX_COMMANDS: usize = 4;
/// Those of a viber that reports no provider without a key.
const USUAL_PROVIDERS: &[&str] = &["anthropic", "openai"];

/// The providers of a viber and what can be done about them.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/providers/_section.html")]
pub struct ProvidersSection {
    /// What was just done.
    said: Option<String>,
    /// Why nothing was done, when there is no form to say it.
    refusal: Option<String>,
    providers: Vec<ProviderView>,
    form: Option<KeyForm>,
    /// Providers whose keys are set on the machine, a command each.
    commands: Vec<String>,
}

/// A provider and its test.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/providers/_provider.html")]
struct ProviderView {
    slug: String,
    viber: ViberId,
    viber_name: String,
    provider: ProviderInfo,
    may_test: bool,
    may_change: bool,
    outcome: Option<TestOutcome>,
}

/// What a test of a provider showed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TestOutcome {
    Works(String),
    Fails(String),
}

/// The form for a key. It holds none.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/providers/_form.html")]
pub struct KeyForm {
    action: String,
    place: FormPlace,
    viber_name: String,
    providers: Vec<String>,
    chosen: String,
    model: String,
    error: Option<String>,
}

/// What the home page says when the chosen agent has no model to talk to.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/providers/_card.html")]
pub struct KeyCard {
    viber_name: String,
    agent: String,
    /// The viber's page.
    page: String,
    form: Option<KeyForm>,
    /// Providers whose keys are set on the machine, a command each.
    commands: Vec<String>,
    said: Option<String>,
    outcome: Option<TestOutcome>,
}

/// The answer to the home page's form: what became of it, and the choice with its facts as they are now.
#[derive(Template)]
#[template(path = "fleet/providers/added.html")]
struct KeyAdded {
    card: KeyCard,
    choice: ViberChoice,
}

/// Where a form stands, and so what its answer replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FormPlace {
    Home,
    #[default]
    Viber,
}

impl FormPlace {
    fn word(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Viber => "viber",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Home => "#key-card",
            Self::Viber => "#providers",
        }
    }

    fn swap(self) -> &'static str {
        match self {
            Self::Home => "innerHTML",
            Self::Viber => "outerHTML",
        }
    }

    fn is_home(self) -> bool {
        self == Self::Home
    }
}

impl ProviderView {
    fn verb(&self, verb: &str) -> String {
        urls::viber_verb(&self.slug, &self.viber, verb)
    }

    /// Its wire format and where its key comes from.
    fn words(&self) -> String {
        let key = match (self.provider.api.as_str(), self.provider.has_key, self.provider.key_source) {
            ("demo", ..) => return "built in, needs no key".to_owned(),
            ("ollama", false, _) => "needs no key",
            (_, false, _) => "no key",
            (_, true, Some(KeySource::File)) => "key from a file in secrets/",
            (_, true, Some(KeySource::Environment)) => "key from the environment",
            (_, true, Some(KeySource::Config)) => "key from config.yaml",
            (_, true, Some(KeySource::Unknown) | None) => "has a key",
        };
        format!("{}, {key}", self.provider.api)
    }

    fn may_remove(&self) -> bool {
        self.may_change && self.provider.accepts_key && self.provider.key_source == Some(KeySource::File)
    }
}

impl KeyForm {
    /// The form for a viber that takes keys from the Board; `None` when it takes none, or is not connected.
    fn of(slug: &str, viber: &Viber, place: FormPlace) -> Option<Self> {
        let open = viber.providers.iter().filter(|provider| provider.accepts_key).map(|provider| provider.id.clone());
        let providers: Vec<String> = open.take(MAX_OFFERED_PROVIDERS).collect();
        let is_connected = viber.contact.state == ContactState::Connected;
        (is_connected && !providers.is_empty()).then(|| Self {
            action: urls::viber_verb(slug, &viber.id, "key"),
            place,
            viber_name: viber.name.clone(),
            chosen: providers.first().cloned().unwrap_or_default(),
            providers,
            model: String::new(),
            error: None,
        })
    }

    /// With the first of these providers chosen that it offers.
    fn choosing(self, needed: &[String]) -> Self {
        let chosen = needed.iter().find(|id| self.providers.contains(id)).cloned();
        Self { chosen: chosen.unwrap_or_else(|| self.chosen.clone()), ..self }
    }

    /// Whether it is unfolded at once: something is wrong with what was sent.
    fn is_open(&self) -> bool {
        self.error.is_some()
    }

    /// The form as it comes back: everything but the key.
    fn refused(self, sent: &KeyFields, error: &str) -> Self {
        Self { chosen: sent.provider.clone(), model: sent.model.clone(), error: Some(error.to_owned()), ..self }
    }
}

impl ProvidersSection {
    /// What `caller` sees and may do.
    pub fn of(caller: &Caller, viber: &Viber) -> Self {
        let slug = &caller.team.slug;
        let (may_act, may_change) = (caller.role >= Role::Operator, caller.role >= Role::Admin);
        let is_connected = viber.contact.state == ContactState::Connected;
        let view = |provider: &ProviderInfo| ProviderView {
            slug: slug.clone(),
            viber: viber.id.clone(),
            viber_name: viber.name.clone(),
            provider: provider.clone(),
            may_test: may_act && is_connected && (provider.has_key || provider.api == "ollama"),
            may_change: may_change && is_connected,
            outcome: None,
        };
        Self {
            said: None,
            refusal: None,
            providers: viber.providers.iter().map(view).collect(),
            form: KeyForm::of(slug, viber, FormPlace::Viber).filter(|_| may_change),
            commands: providers_to_key(viber, None),
        }
    }

    fn set_outcome(&mut self, provider: &str, outcome: TestOutcome) -> Option<&ProviderView> {
        let view = self.providers.iter_mut().find(|view| view.provider.id == provider)?;
        view.outcome = Some(outcome);
        Some(view)
    }
}

impl KeyCard {
    /// The card when the agent has no model to talk to, and the caller may give tasks.
    pub fn of(caller: &Caller, viber: &Viber, agent: Option<&AgentInfo>) -> Option<Self> {
        let agent = agent.filter(|agent| caller.role >= Role::Operator && lacks_model(viber, agent))?;
        Some(Self::about(caller, viber, &agent.id))
    }

    fn about(caller: &Caller, viber: &Viber, agent: &str) -> Self {
        let commands = providers_to_key(viber, viber.agents.iter().find(|known| known.id == agent));
        let form = KeyForm::of(&caller.team.slug, viber, FormPlace::Home).filter(|_| caller.role >= Role::Admin);
        Self {
            viber_name: viber.name.clone(),
            agent: agent.to_owned(),
            page: urls::viber(&caller.team.slug, &viber.id),
            form: form.map(|form| form.choosing(&commands)),
            commands,
            said: None,
            outcome: None,
        }
    }
}

/// Whether an agent only has the built-in demo to talk to, or a provider without a key.
pub fn lacks_model(viber: &Viber, agent: &AgentInfo) -> bool {
    agent.model.starts_with("demo/") || keyless_provider(viber, agent).is_some()
}

/// The provider of the agent's model, if that viber has no key for it. A daemon that reported no provider at all says
/// nothing about keys.
pub fn keyless_provider<'a>(viber: &Viber, agent: &'a AgentInfo) -> Option<&'a str> {
    let (id, _) = agent.model.split_once('/').filter(|_| !viber.providers.is_empty())?;
    let is_usable = |known: &&ProviderInfo| known.has_key || known.api == "ollama" || known.api == "demo";
    let known = viber.providers.iter().find(|known| known.id == id);
    (known.filter(is_usable).is_none() && id != "echo").then_some(id)
}

/// Whether the name of a provider can stand in a command as it is: a machine may report any.
pub fn is_word_of_command(name: &str) -> bool {
    (1..=MAX_PROVIDER_NAME_BYTES).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Providers that lack a key: the one that the agent's model needs, else those that the viber reports.
fn providers_to_key(viber: &Viber, agent: Option<&AgentInfo>) -> Vec<String> {
    let needed = agent.and_then(|agent| keyless_provider(viber, agent)).filter(|id| *id != "demo");
    if let Some(needed) = needed.filter(|id| is_word_of_command(id)) {
        return vec![needed.to_owned()];
    }
    let lacks_key = |known: &&ProviderInfo| !known.has_key && !matches!(known.api.as_str(), "ollama" | "demo");
    let lacking = viber.providers.iter().filter(lacks_key).map(|known| known.id.as_str());
    let lacking: Vec<&str> = lacking.filter(|id| is_word_of_command(id)).take(MAX_COMMANDS).collect();
    let shown = if lacking.is_empty() { USUAL_PROVIDERS } else { lacking.as_slice() };
    shown.iter().map(ToString::to_string).collect()
}

/// Asks a provider from the machine that holds the key. `key` is the one that was just set: a machine or a provider may
/// repeat it, and nothing that they say is shown with it.
async fn try_provider(board: &Board, viber: &ViberId, provider: &str, key: Option<&ProviderKey>) -> TestOutcome {
    let asked = json!({ "provider": provider });
    let words = |said: &str| key.map_or_else(|| said.to_owned(), |key| key.erase_from(said));
    match board.hub.request(viber, "provider.test", asked, PROVIDER_TEST_TIMEOUT).await {
        Ok(answer) => TestOutcome::Works(match answer.get("sentence").and_then(|said| said.as_str()) {
            Some(sentence) => words(sentence),
            None => "It answers.".to_owned(),
        }),
        Err(error) => TestOutcome::Fails(words(&error.to_string())),
    }
}

/// Which provider is meant.
#[derive(Debug, Default, Deserialize)]
pub struct ProviderFields {
    #[serde(default)]
    provider: String,
}

/// `POST /t/{team}/vibers/{id}/test`: whether a provider answers.
pub async fn test(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<ViberId>,
    wants: Wants,
    Form(form): Form<ProviderFields>,
) -> Result<Response, Rejection> {
    let mut page = viber::page(&board, &caller, &id).await?;
    if page.providers.providers.iter().all(|view| view.provider.id != form.provider) {
        return Err(Error::NotFound.into());
    }
    let outcome = try_provider(&board, &id, &form.provider, None).await;
    let view = page.providers.set_outcome(&form.provider, outcome).ok_or(Error::NotFound)?;
    match wants {
        Wants::Fragment => Ok(html(view)?.into_response()),
        Wants::Page => Ok(html(&page)?.into_response()),
    }
}

/// What the form for a key sends.
#[derive(Debug, Default, Deserialize)]
pub struct KeyFields {
    #[serde(default)]
    provider: String,
    #[serde(default)]
    api_key: ProviderKey,
    #[serde(default)]
    model: String,
    #[serde(default)]
    place: FormPlace,
    /// The agent that is chosen on the home page.
    #[serde(default)]
    agent: String,
}

/// `POST /t/{team}/vibers/{id}/key`: sets a provider's key on the machine, and tries it.
pub async fn set_key(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    wants: Wants,
    Form(mut form): Form<KeyFields>,
) -> Result<Response, Rejection> {
    let key = std::mem::take(&mut form.api_key);
    let new = NewProviderKey { provider: form.provider.clone(), key, model: form.model.clone() };
    let saved = provider_keys::set(&board, &caller.team.id, &caller.by, &id, &new).await;
    let note = match saved {
        Ok(saved) => saved.note,
        Err(error) => return refused(&board, &caller, &id, (&form, wants), error).await,
    };
    let said = said(&format!("Saved on the machine as the key of {}.", form.provider), note);
    if wants == Wants::Page {
        // No second key by a reload; the page shows where each key comes from.
        let to = match form.place {
            FormPlace::Home => urls::home_on(&caller.team.slug, &id),
            FormPlace::Viber => format!("{}#providers", urls::viber(&caller.team.slug, &id)),
        };
        return Ok(Redirect::to(&to).into_response());
    }
    let outcome = try_provider(&board, &id, &form.provider, Some(&new.key)).await;
    drop(new);
    if form.place.is_home() {
        let viber = load(&board, &caller, &id).await?;
        let card = KeyCard::about(&caller, &viber, &form.agent);
        let asked = ChoiceQuery { viber: Some(id.as_str()), agent: Some(&form.agent), model: None, find: "" };
        let choice = ViberChoice { is_swapped: true, ..ViberChoice::load(&board, &caller, asked).await? };
        let card = KeyCard { said: Some(said), outcome: Some(outcome), ..card };
        return Ok(html(&KeyAdded { card, choice })?.into_response());
    }
    Ok(section(&board, &caller, &id, said, Some((&form.provider, outcome))).await?.into_response())
}

/// `POST /t/{team}/vibers/{id}/key/remove`: removes a provider's key from the machine.
pub async fn remove_key(
    State(board): State<Board>,
    caller: AsAdmin,
    Id(id): Id<ViberId>,
    wants: Wants,
    Form(form): Form<ProviderFields>,
) -> Result<Response, Rejection> {
    let removed = provider_keys::remove(&board, &caller.team.id, &caller.by, &id, &form.provider).await;
    match (removed, wants) {
        (Ok(_), Wants::Page) => {
            Ok(Redirect::to(&format!("{}#providers", urls::viber(&caller.team.slug, &id))).into_response())
        }
        (Ok(removed), Wants::Fragment) => {
            let said = said(&format!("Removed the key of {} from the machine.", form.provider), removed.note);
            Ok(section(&board, &caller, &id, said, None).await?.into_response())
        }
        (Err(error), _) => {
            let form = KeyFields { provider: form.provider, ..KeyFields::default() };
            refused(&board, &caller, &id, (&form, wants), error).await
        }
    }
}

fn said(done: &str, note: Option<String>) -> String {
    note.map_or_else(|| done.to_owned(), |note| format!("{done} {note}"))
}

async fn load(board: &Board, caller: &Caller, id: &ViberId) -> Result<Viber> {
    db::vibers::load(&mut board.db.reader_of(&caller.team.id).await?, id).await?.ok_or(Error::NotFound)
}

async fn section(
    board: &Board,
    caller: &Caller,
    id: &ViberId,
    said: String,
    tested: Option<(&str, TestOutcome)>,
) -> Result<Html<String>, Rejection> {
    let mut section = ProvidersSection::of(caller, &load(board, caller, id).await?);
    section.said = Some(said);
    if let Some((provider, outcome)) = tested {
        section.set_outcome(provider, outcome);
    }
    html(&section)
}

/// The form again with what is wrong, without the key.
async fn refused(
    board: &Board,
    caller: &Caller,
    id: &ViberId,
    (form, wants): (&KeyFields, Wants),
    error: Error,
) -> Result<Response, Rejection> {
    let words = match &error {
        Error::Unacceptable { message, .. } | Error::Conflict { message, .. } => message.clone(),
        Error::Throttled { retry_after } => format!("too many changes of keys: try again in {retry_after} s"),
        _ => return Err(error.into()),
    };
    let code = status(&error);
    let mut page = viber::page(board, caller, id).await?;
    if form.place.is_home() && wants == Wants::Fragment {
        let mut card = KeyCard::about(caller, &load(board, caller, id).await?, &form.agent);
        card.form = card.form.map(|empty| empty.refused(form, &words));
        return match card.form {
            Some(_) => html_with(code, &card),
            None => Err(error.into()),
        };
    }
    let section = &mut page.providers;
    match section.form.take() {
        Some(empty) => section.form = Some(empty.refused(form, &words)),
        None => section.refusal = Some(words),
    }
    match wants {
        Wants::Fragment => html_with(code, &page.providers),
        Wants::Page => html_with(code, &page),
    }
}
