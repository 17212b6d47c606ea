//! Resolves an agent's `provider/model` to a client that can be called.

mod findings;
mod window_query;

use protocol::{ErrorCode, TaskError, context::ContextWindow};
use tokio::sync::mpsc;

use super::{
    Answer, Delta, ModelError, ModelRequest,
    demo::DemoModel,
    failure::{CallContext, plain},
    http::HttpProvider,
};
use crate::{
    clock::Clock,
    config::{Agent, Config, Provider, ProviderApi, context_window},
    home::Home,
};
use findings::ModelFindings;

/// A model that an agent uses for one task.
pub struct Model {
    /// The provider's own name of the model.
    name: String,
    window: ContextWindow,
    /// Whether it is shown pictures.
    sees: bool,
    route: Route,
    /// Where what its calls tell is kept.
    findings: Option<ModelFindings>,
}

enum Route {
    Demo(DemoModel),
    Http(Box<HttpProvider>),
}

impl Model {
    /// The model of `agent`, or why it cannot be used. Sends nothing yet.
    pub fn for_agent(agent: &Agent, config: &Config) -> Result<Self, TaskError> {
        let model = Self::named(&agent.model, config)?;
        let window = context_window::of(&model.name, agent.context_window, config.known_model(&agent.model));
        Ok(Self { window, ..model })
    }

    /// The same model with what is known of it in `home`, where what its calls tell is kept, too. Its provider is asked for
    /// its window, for two seconds at most, unless the file of `agent` says it or the provider was asked lately.
    pub async fn with_findings(mut self, agent: &Agent, home: &Home, clock: &Clock) -> Self {
        if let Route::Http(http) = &self.route {
            let (findings, found) = ModelFindings::open(&agent.model, http.base_url(), home, clock).await;
            let known = match agent.context_window {
                Some(_) => found,
                None => findings.ask(found, http, &self.name).await,
            };
            self.window = context_window::of(&self.name, agent.context_window, known.as_ref());
            self.findings = Some(findings);
        }
        self
    }

    /// The model `provider/model`.
    pub(super) fn named(reference: &str, config: &Config) -> Result<Self, TaskError> {
        let Some((provider_id, name)) = reference.split_once('/').filter(|(p, m)| !p.is_empty() && !m.is_empty())
        else {
            let message = format!("The model {reference:?} is not of the form provider/model.");
            return Err(refused(
                ErrorCode::BadRequest,
                message,
                "Write for example `model: openai/gpt-5-mini` in the agent's file.",
            ));
        };
        let provider = config.providers.get(provider_id);
        if provider_id == "demo" || provider.is_some_and(|provider| provider.api == ProviderApi::Demo) {
            if name != "tour" {
                let message = format!("There is no built-in model {reference:?}; the only one is demo/tour.");
                return Err(refused(
                    ErrorCode::NotFound,
                    message,
                    "Write `model: demo/tour`, or name a provider's model.",
                ));
            }
            return Ok(Self {
                name: name.to_owned(),
                window: context_window::of(name, None, None),
                sees: false,
                route: Route::Demo(DemoModel::from_environment()),
                findings: None,
            });
        }
        let Some(provider) = provider else {
            let known = config.providers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("This viber has no provider {provider_id:?} (model {reference}). It knows: {known}.");
            let suggestion =
                format!("Add `providers.{provider_id}` to config.yaml on the viber, or change the agent's model.");
            return Err(refused(ErrorCode::NotFound, message, &suggestion));
        };
        require_key(provider_id, name, provider).map_err(TaskError::from)?;
        let http = HttpProvider::new(provider_id, provider).map_err(TaskError::from)?;
        let (window, sees) = (context_window::of(name, None, None), provider.sees(name));
        Ok(Self { name: name.to_owned(), window, sees, route: Route::Http(Box::new(http)), findings: None })
    }

    /// The provider's own name of the model, for `ModelRequest::model`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How much it reads at once; its tokens are for `ModelRequest::context_window`.
    pub fn window(&self) -> &ContextWindow {
        &self.window
    }

    /// How many tokens its provider counts for 100 that we estimate, 50 to 200.
    pub fn estimate_percent(&self) -> u64 {
        self.findings.as_ref().map_or(100, ModelFindings::percent)
    }

    /// What a request fails with that has so many tokens by estimate, more than the model reads.
    pub fn too_long(&self, estimate: u64) -> ModelError {
        let window = self.window.tokens;
        let origin = match &self.route {
            Route::Demo(_) => CallContext { provider: "demo".to_owned(), estimate, window, ..CallContext::default() },
            Route::Http(http) => http.origin(&self.name, estimate, window),
        };
        origin.overflow(&format!("it has about {estimate} tokens, and the model reads {window}"), None)
    }

    /// Whether it is shown the pictures of a conversation; another one reads where they lie.
    pub fn sees(&self) -> bool {
        self.sees
    }

    /// Whether this is the built-in tour.
    pub fn is_scripted(&self) -> bool {
        matches!(self.route, Route::Demo(_))
    }

    /// Calls the model. Pieces of the answer are sent to `to`; the whole answer is returned. Dropping the future aborts
    /// the HTTP request at once.
    pub async fn call(&self, request: &ModelRequest, to: &mpsc::Sender<Delta>) -> Result<Answer, ModelError> {
        let answer = match &self.route {
            Route::Demo(demo) => Ok(demo.call(request, to).await),
            Route::Http(http) if self.sees => http.call(http.with_pictures(request).await.as_ref(), to).await,
            Route::Http(http) => http.call(request, to).await,
        };
        if let Some(findings) = &self.findings {
            findings.take(request, &answer).await;
        }
        answer
    }
}

/// Says what to do if a provider that requires a key has none. A provider with a custom address may well work without.
fn require_key(id: &str, model: &str, provider: &Provider) -> Result<(), ModelError> {
    const HOSTS_REQUIRING_KEYS: [&str; 4] =
        ["api.openai.com", "api.anthropic.com", "openrouter.ai", "api.deepseek.com"];
    let there = provider.api_key.as_deref().is_some_and(|key| !key.trim().is_empty());
    let host = reqwest::Url::parse(&provider.base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    if there || !host.is_some_and(|host| HOSTS_REQUIRING_KEYS.contains(&host.as_str())) {
        return Ok(());
    }
    let origin = CallContext { provider: id.to_owned(), model: model.to_owned(), ..CallContext::default() };
    Err(origin.auth(&format!("there is no API key for {id}/{model} on this viber")))
}

fn refused(code: ErrorCode, message: String, suggestion: &str) -> TaskError {
    super::ModelError { suggestion: Some(suggestion.to_owned()), ..plain(code, message) }.into()
}

#[cfg(test)]
mod tests;
