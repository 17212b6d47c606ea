//! What the Board may request: `status`, `provider.test`, providers' keys, `artifact.offer`, `memory.search`, who lives here,
//! files of the workspace, spaces of agents, skills, MCP servers, the sessions recorded on this machine, and what the team decided for all
//! its tasks.

mod mcp;
mod skills;

use std::time::Instant;

use protocol::{FromDaemon, MemorySearch, TaskError};
use serde_json::{Value, json};

use super::{Identity, files, provider_keys, sessions, spaces, uploads};
use crate::{
    config::{Config, agent_templates},
    mesh::Mesh,
    model,
};

/// The requests that change keys of providers.
pub const PROVIDER_KEYS: &str = "provider.key.";

/// Answers one request. Requests are not durable: they fail when the connection is lost.
pub async fn answer(mesh: &Mesh, identity: &Identity, id: u64, method: &str, params: &Value) -> FromDaemon {
    let answer = match method {
        "status" => Ok(status(mesh)),
        "workspace.list" | "workspace.read" | "workspace.search" | "workspace.hashes" => {
            files::answer(mesh, method, params).await
        }
        _ if method.starts_with("space.") => spaces::answer(mesh, method, params).await,
        "memory.search" => search(mesh, params).await,
        "session.list" | "session.log" => sessions::answer(mesh, method, params).await,
        "agents.add" => add_agent(mesh, params).await,
        "agents.list" => Ok(json!({ "items": mesh.registry() })),
        "skills.list" | "skills.read" => skills::answer(mesh, method, params).await,
        "mcp.list" | "mcp.test" => mcp::answer(mesh, method, params).await,
        "provider.test" => try_provider(mesh, params).await,
        _ if method.starts_with(PROVIDER_KEYS) => provider_keys::answer(mesh, identity, method, params).await,
        "artifact.offer" => uploads::offer(mesh, identity, params).await,
        "team.rules" => mesh.learn_team_rules(params).await.map(|()| json!({})).map_err(|error| error.to_string()),
        _ => Err(format!("{} is not built on this viber", protocol::text::head(method, 64))),
    };
    match answer {
        Ok(result) => FromDaemon::Response { id, ok: true, result, error: None },
        Err(error) => FromDaemon::Response { id, ok: false, result: Value::Null, error: Some(error) },
    }
}

/// The daemon's state, for the Board and for `daemon-agent status`.
pub fn status(mesh: &Mesh) -> Value {
    let (running, queued) = mesh.load();
    let files = mesh.files().borrow().clone();
    let unsent = mesh.outbox().ranges().len();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "running": running,
        "tasks": mesh.running(),
        "queued": queued,
        "drained": mesh.is_drained(),
        "unsentTasks": unsent,
        "board": mesh.standing(),
        "adapters": mesh.adapters(),
        "agents": files.agents.keys().collect::<Vec<_>>(),
        "errors": files.errors(),
        "confinement": crate::confinement::found().layers.to_string(),
    })
}

/// `agents.add {template, id?}`, where `config.yaml` lets the Board do that. What is in a template stands in this program.
async fn add_agent(mesh: &Mesh, params: &Value) -> Result<Value, String> {
    if !mesh.files().borrow().config.board_agents {
        return Err("this machine lets the Board add no agents: its config.yaml has no `boardAgents: on`. On the machine itself: \
                    daemon-agent agents add TEMPLATE"
            .to_owned());
    }
    let Some(template) = params["template"].as_str().map(str::to_owned) else {
        return Err("bad_request: a template is missing".to_owned());
    };
    let (home, id) = (mesh.home().clone(), params["id"].as_str().map(str::to_owned));
    let adding = tokio::task::spawn_blocking(move || agent_templates::add(&home, &template, id.as_deref()));
    let (path, added) = adding.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
    tracing::info!(file = %path.display(), template = added.name, "an agent was added from the Board");
    Ok(json!({ "template": added.name, "needs": added.needs }))
}

/// `memory.search {agentId, query, limit?}`.
async fn search(mesh: &Mesh, params: &Value) -> Result<Value, String> {
    let asked: MemorySearch =
        serde_json::from_value(params.clone()).map_err(|error| format!("bad_request: {error}"))?;
    if !mesh.files().borrow().agents.contains_key(&asked.agent_id) {
        return Err(format!("not_found: this viber has no agent {:?}", protocol::text::head(&asked.agent_id, 64)));
    }
    let found = mesh.memory().search(&asked).await?;
    serde_json::to_value(found).map_err(|error| error.to_string())
}

/// `{provider}` or `{model: "provider/model"}`: one small call.
async fn try_provider(mesh: &Mesh, params: &Value) -> Result<Value, String> {
    let files = mesh.files().borrow().clone();
    let named = params["model"].as_str().map(str::to_owned).or_else(|| {
        let agent = files.agents.get(params["agentId"].as_str()?)?.as_ref().ok()?;
        Some(agent.model.clone())
    });
    let provider = params["provider"].as_str();
    let (provider, model) = match (named.as_deref().and_then(|model| model.split_once('/')), provider) {
        (Some((of_model, model)), None) => (of_model.to_owned(), model.to_owned()),
        (Some((of_model, model)), Some(provider)) if of_model == provider => (of_model.to_owned(), model.to_owned()),
        (_, Some(provider)) => {
            let usable = files.agents.values().filter_map(|agent| agent.as_ref().ok()).map(|agent| agent.model.clone());
            let models = usable.chain(files.config.default_model.clone());
            let found = models.filter_map(|model| Some(model.strip_prefix(provider)?.strip_prefix('/')?.to_owned()));
            let Some(model) = found.into_iter().next().or_else(|| named.clone()) else {
                return list_models(provider, &files.config).await;
            };
            (provider.to_owned(), model)
        }
        (None, None) => return Err("name a model to try, as provider/model".to_owned()),
    };
    match model::test(&provider, &model, &files.config).await {
        Ok(probe) => Ok(json!({ "latencyMs": probe.latency_ms, "sentence": probe.sentence })),
        Err(error) => Err(words(error)),
    }
}

/// The test of a provider that no agent uses: it lists its models to whoever has a key that it accepts.
async fn list_models(provider: &str, config: &Config) -> Result<Value, String> {
    let begun = Instant::now();
    let models = model::list(provider, config).await.map_err(words)?;
    let latency_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let sentence = format!("{provider} accepts the key and offers {} models. No agent uses it yet.", models.len());
    Ok(json!({ "latencyMs": latency_ms, "sentence": sentence }))
}

fn words(error: TaskError) -> String {
    match error.suggestion {
        Some(suggestion) => format!("{} {suggestion}", error.message),
        None => error.message,
    }
}
