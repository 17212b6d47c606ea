//! MCP servers that agents use: which tools of them are offered, how they are reached, how they fare.
//!
//! Owns a connection for each agent and server, made when it is needed and ended when it is not, and the lists of tools that
//! people know. What a server says is somebody else's text: it widens no agent's rights, lowers no risk, and is offered only
//! while it is what a person knows. Approvals and rules are up to the engine, artifacts and questions to `tools`.

mod connections;
mod elicitation;
mod names;
pub mod oauth;
mod pins;
mod report;
mod results;
mod stdio;
mod wire;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{Instant, McpServerInfo, McpState};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::{
    connections::{Slot, SlotKey},
    pins::{PinnedTools, ToolDefinition, ToolList},
};
pub use self::{
    elicitation::ElicitationForm,
    results::{McpOutput, OutputFile, OutputPart},
    wire::{CallEvent, CallTerms, Elicitation, WireError, call_events},
};
use crate::{
    clock::Clock,
    config::{Agent, ConfigSnapshot, McpServer, McpUse},
    home::Home,
};

/// Our own tool of a server that has resources.
const READ_RESOURCE: &str = "read_resource";
/// What is said of a tool that is not offered any more.
const NOT_OFFERED: &str = "its tools are not the ones that people know any more; somebody has to look at the change and allow \
                           it, on the viber's page or with `daemon-agent mcp allow`";

/// The servers of this machine. Cheap to clone.
#[derive(Clone)]
pub struct McpServers {
    shared: Arc<Shared>,
}

struct Shared {
    home: Home,
    clock: Clock,
    files: watch::Receiver<Arc<ConfigSnapshot>>,
    slots: Mutex<BTreeMap<SlotKey, Arc<Slot>>>,
    health: Mutex<BTreeMap<String, Health>>,
    /// What is known of each server's tools, once somebody asked.
    pins: Mutex<BTreeMap<String, Arc<PinnedTools>>>,
    /// Rises whenever what is reported may be another.
    changed: watch::Sender<u64>,
}

/// How a server fares.
#[derive(Clone, Debug, Default)]
struct Health {
    state: McpState,
    error: Option<String>,
    since: Option<Instant>,
    /// Whether it is known to speak no newer revision than `initialize` has.
    is_legacy: bool,
}

/// A tool of a server as an agent is offered it.
#[derive(Clone, Debug, PartialEq)]
pub struct McpTool {
    /// As a model calls it.
    pub name: String,
    pub server: String,
    /// The server's words.
    pub description: String,
    /// A JSON Schema.
    pub parameters: Value,
    kind: ToolKind,
}

#[derive(Clone, Debug, PartialEq)]
enum ToolKind {
    /// As the server names it.
    Call(String),
    ReadResource,
}

/// The tools that an agent is offered at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct McpTools(Arc<Vec<McpTool>>);

impl McpTools {
    /// All of them, server by server.
    pub fn all(&self) -> impl Iterator<Item = &McpTool> {
        self.0.iter()
    }

    /// The one of this name.
    pub fn find(&self, name: &str) -> Option<&McpTool> {
        self.0.iter().find(|tool| tool.name == name)
    }
}

impl McpServers {
    /// The servers that the configuration names. Starts none.
    pub fn open(home: &Home, clock: &Clock, files: watch::Receiver<Arc<ConfigSnapshot>>) -> Self {
        let (slots, health, pins) = Default::default();
        let (home, clock, changed) = (home.clone(), clock.clone(), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { home, clock, files, slots, health, pins, changed }) }
    }

    /// No servers, and none that appear.
    #[cfg(test)]
    pub fn none() -> Self {
        let snapshot = ConfigSnapshot { config: Arc::default(), agents: Default::default(), error: None };
        Self::open(&Home::at("/nonexistent"), &Clock::system(), watch::channel(Arc::new(snapshot)).1)
    }

    /// Notifies when what is reported may be another.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// The tools that an agent is offered now: of servers whose tools people know. Reads the disk once for each server.
    pub fn of(&self, agent: &Agent) -> McpTools {
        let used = agent.mcp.iter().filter(|used| self.server(&used.server).is_some());
        McpTools(Arc::new(used.flat_map(|used| self.tools_of(used)).collect()))
    }

    fn tools_of(&self, used: &McpUse) -> Vec<McpTool> {
        let pinned = self.pinned(&used.server);
        pinned.offered().map(|list| offered(used, list)).unwrap_or_default()
    }

    /// Makes the tools known of those servers that nobody has asked yet. Returns which of them cannot be used, and why.
    pub async fn list_unknown(&self, agent: &Arc<Agent>) -> Vec<(String, WireError)> {
        let unknown = agent
            .mcp
            .iter()
            .map(|used| used.server.clone())
            .filter(|name| self.server(name).is_some() && self.pinned(name).allowed.is_none());
        let asking = unknown.map(|name| async move {
            let listed = self.connection(agent, &name).await;
            listed.err().map(|why| (name, why))
        });
        futures_util::future::join_all(asking).await.into_iter().flatten().collect()
    }

    /// Calls a tool with `args`, an object.
    pub async fn call(
        &self,
        agent: &Arc<Agent>,
        tool: &McpTool,
        args: &Value,
        terms: &CallTerms<'_>,
    ) -> Result<McpOutput, WireError> {
        let connecting = terms.stop.run_until_cancelled(self.connection(agent, &tool.server));
        let live = connecting.await.ok_or(WireError::Stopped)??;
        // The server may have been listed anew just now.
        let used = agent.mcp.iter().find(|used| used.server == tool.server);
        let is_offered = used.is_some_and(|used| self.tools_of(used).contains(tool));
        if !is_offered {
            return Err(WireError::Refused(NOT_OFFERED.to_owned()));
        }
        let _busy = live.busy();
        let client = &live.client;
        match &tool.kind {
            ToolKind::Call(name) => {
                let params = json!({ "name": name, "arguments": args });
                Ok(McpOutput::of_call(&client.call("tools/call", params, terms).await?))
            }
            ToolKind::ReadResource => match args["uri"].as_str().map(str::trim).filter(|uri| !uri.is_empty()) {
                Some(uri) => {
                    Ok(McpOutput::of_resource(&client.call("resources/read", json!({ "uri": uri }), terms).await?))
                }
                None => {
                    let listing = async {
                        let resources = client.list("resources/list", "resources").await?;
                        // Not every server has some.
                        let templates = client.list("resources/templates/list", "resourceTemplates").await;
                        Ok::<_, WireError>(McpOutput::of_list(&resources, &templates.unwrap_or_default()))
                    };
                    terms.stop.run_until_cancelled(listing).await.ok_or(WireError::Stopped)?
                }
            },
        }
    }

    /// How long a call of this server may take without a word, seconds.
    pub fn timeout_of(&self, server: &str) -> u64 {
        self.server(server).map_or(1, |server| server.timeout)
    }

    /// Lets the list with this hash be offered. Blocks.
    pub fn allow(&self, name: &str, hash: &str) -> Result<(), String> {
        if self.server(name).is_none() {
            return Err(format!("there is no MCP server {} on this viber", protocol::text::head(name, 80)));
        }
        let allowed = self.change_pins(name, |pinned| pinned.allow(hash));
        self.ring();
        allowed
    }

    /// Connects to a server, or asks one that is connected, and says how it fares.
    pub async fn test(&self, name: &str) -> Result<McpServerInfo, String> {
        let agent = self.tester(name)?;
        self.forgive(&agent.id, name).await;
        let tested = match self.connection(&agent, name).await {
            Ok(live) => self.list(name, &live.client).await.map(drop),
            Err(why) => Err(why),
        };
        if let Err(why) = tested {
            self.note(name, state_of(&why), Some(why.to_string()));
        }
        let found = self.report().into_iter().find(|info| info.name == name);
        found.ok_or_else(|| format!("there is no MCP server {} on this viber", protocol::text::head(name, 80)))
    }

    /// The agent in whose name a server is tried: one that uses it, or one that reaches nothing.
    fn tester(&self, name: &str) -> Result<Arc<Agent>, String> {
        let files = self.shared.files.borrow().clone();
        let good = || files.agents.values().filter_map(|agent| agent.as_ref().ok());
        let user = good().find(|agent| agent.mcp.iter().any(|used| used.server == name));
        match (user, good().next()) {
            (Some(agent), _) => Ok(Arc::new(agent.clone())),
            (None, Some(agent)) => Ok(Arc::new(Agent { spaces: Vec::new(), ..agent.clone() })),
            (None, None) => Err("this viber has no agent that could use it".to_owned()),
        }
    }

    /// The server as it is configured now.
    fn server(&self, name: &str) -> Option<McpServer> {
        self.shared.files.borrow().config.mcp.get(name).cloned()
    }

    /// What is known of a server's tools. Blocks the first time.
    fn pinned(&self, name: &str) -> Arc<PinnedTools> {
        let mut pins = self.pins();
        let known = pins.entry(name.to_owned());
        known.or_insert_with(|| Arc::new(PinnedTools::read(&self.shared.home, name))).clone()
    }

    /// Changes what is known of a server's tools, in memory and on disk. Blocks.
    fn change_pins<T>(&self, name: &str, change: impl FnOnce(&mut PinnedTools) -> T) -> T {
        let mut pins = self.pins();
        let before = pins.get(name).cloned();
        let before = before.unwrap_or_else(|| Arc::new(PinnedTools::read(&self.shared.home, name)));
        let mut now = PinnedTools::clone(&before);
        let changed = change(&mut now);
        if now != *before {
            now.at = Some(self.shared.clock.now());
            if let Err(error) = now.write(&self.shared.home, name) {
                tracing::warn!(server = name, "the tools of an MCP server cannot be kept: {error}");
            }
        }
        pins.insert(name.to_owned(), Arc::new(now));
        changed
    }

    fn note(&self, name: &str, state: McpState, error: Option<String>) {
        let now = self.shared.clock.now();
        {
            let mut health = self.health();
            let known = health.entry(name.to_owned()).or_default();
            if known.state != state {
                known.since = Some(now);
            }
            (known.state, known.error) = (state, error);
        }
        self.ring();
    }

    fn ring(&self) {
        self.shared.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    fn health(&self) -> MutexGuard<'_, BTreeMap<String, Health>> {
        self.shared.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pins(&self) -> MutexGuard<'_, BTreeMap<String, Arc<PinnedTools>>> {
        self.shared.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state that a failure leaves a server in.
fn state_of(why: &WireError) -> McpState {
    match why {
        WireError::AuthRequired => McpState::AuthRequired,
        _ => McpState::Failed,
    }
}

/// The tools of a list that an agent is offered.
fn offered(used: &McpUse, list: &ToolList) -> Vec<McpTool> {
    let mut originals: Vec<&str> = list.tools.iter().map(|tool| tool.name.as_str()).collect();
    if list.has_resources {
        originals.push(READ_RESOURCE);
    }
    let is_used = |name: &str| used.tools.as_ref().is_none_or(|tools| tools.iter().any(|tool| tool == name));
    let named = names::names(&used.server, &originals);
    let mut all = Vec::new();
    for (n, name) in named.into_iter().enumerate() {
        let tool = match list.tools.get(n) {
            Some(definition) if is_used(&definition.name) => called(&used.server, name, definition),
            None if is_used(READ_RESOURCE) => resource_reader(&used.server, name),
            _ => continue,
        };
        all.push(tool);
    }
    all
}

fn called(server: &str, name: String, definition: &ToolDefinition) -> McpTool {
    let title = definition.title.iter().map(|title| format!("{title}. ")).collect::<String>();
    let parameters = match definition.input_schema.is_object() {
        true => definition.input_schema.clone(),
        false => json!({ "type": "object", "properties": {} }),
    };
    McpTool {
        name,
        server: server.to_owned(),
        description: format!("{title}{}", definition.description),
        parameters,
        kind: ToolKind::Call(definition.name.clone()),
    }
}

fn resource_reader(server: &str, name: String) -> McpTool {
    let parameters = json!({
        "type": "object",
        "properties": { "uri": { "type": "string", "description": "The address of a resource; without it they are listed." } },
    });
    McpTool {
        name,
        server: server.to_owned(),
        description: format!("Reads a resource of the MCP server {server}, or lists its resources."),
        parameters,
        kind: ToolKind::ReadResource,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str], has_resources: bool) -> ToolList {
        let tools: Vec<Value> = names.iter().map(|name| json!({ "name": name, "description": "d" })).collect();
        ToolList::of(&tools, has_resources).expect("a list")
    }

    #[test]
    fn an_agent_is_offered_what_its_file_names() {
        let whole = McpUse { server: "fs".to_owned(), tools: None };
        let names = |used: &McpUse, list: &ToolList| -> Vec<String> {
            offered(used, list).into_iter().map(|tool| tool.name).collect()
        };
        let two = list(&["read", "write"], true);
        assert_eq!(names(&whole, &two), ["mcp__fs__read", "mcp__fs__write", "mcp__fs__read_resource"]);
        let part = McpUse { tools: Some(vec!["write".to_owned()]), ..whole.clone() };
        assert_eq!(names(&part, &two), ["mcp__fs__write"]);
        let own = names(&whole, &list(&["read_resource"], true));
        assert_eq!((own.len(), own[0].as_str()), (2, "mcp__fs__read_resource"));
        assert!(own[1].starts_with("mcp__fs__read_resource_"), "{own:?}");
    }

    #[test]
    fn a_tool_without_a_schema_takes_an_object() {
        let tool = offered(&McpUse { server: "fs".to_owned(), tools: None }, &list(&["a"], false)).remove(0);
        assert_eq!(tool.parameters["type"], "object");
    }
}
