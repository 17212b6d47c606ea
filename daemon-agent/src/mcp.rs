//! MCP servers that agents use: which tools of them are offered, how they are reached, how they fare.
//!
//! Owns a connection for each agent and server, made when it is needed and ended when it is not, and the lists of tools that
//! people know. What a server says is somebody else's text: it widens no agent's rights, lowers no risk, and is offered only
//! while it is what a person knows. Approvals and rules are up to the engine, artifacts and questions to `tools`.

mod connections;
mod elicitation;
mod json_text;
mod known;
mod names;
pub mod oauth;
mod pins;
mod report;
mod results;
mod stdio;
mod wire;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use protocol::{Instant, McpServerInfo, McpState};
use serde_json::{Value, json};
use tokio::sync::watch;

use self::{
    connections::{Slot, SlotKey},
    known::{KnownTools, ToolKind},
    oauth::RenewalTurn,
    pins::{PinnedTools, ToolList},
    wire::{ServerFacts, WireClient},
};
pub use self::{
    elicitation::ElicitationForm,
    known::{McpTool, McpTools},
    results::{McpOutput, OutputFile, OutputPart},
    wire::{CallEvent, CallTerms, Elicitation, WireError, call_events},
};
use crate::{
    clock::Clock,
    config::{Agent, ConfigSnapshot, McpServer},
    home::Home,
};

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
    known: Mutex<BTreeMap<String, Arc<KnownTools>>>,
    /// Whose turn it is to renew the tokens of a server.
    turns: Mutex<BTreeMap<String, RenewalTurn>>,
    /// Rises whenever what is reported may be another.
    changed: watch::Sender<u64>,
}

/// How a server fares.
#[derive(Clone, Debug, Default)]
struct Health {
    state: McpState,
    error: Option<String>,
    since: Option<Instant>,
    /// How many agents are connected to it.
    connections: usize,
    /// Whether it is known to speak no newer revision than `initialize` has.
    is_legacy: bool,
}

impl McpServers {
    /// The servers that the configuration names. Starts none.
    pub fn open(home: &Home, clock: &Clock, files: watch::Receiver<Arc<ConfigSnapshot>>) -> Self {
        let (slots, health, known, turns) = Default::default();
        let (home, clock, changed) = (home.clone(), clock.clone(), watch::Sender::new(0));
        Self { shared: Arc::new(Shared { home, clock, files, slots, health, known, turns, changed }) }
    }

    /// No servers, and none that appear.
    #[cfg(test)]
    pub fn none() -> Self {
        let snapshot = ConfigSnapshot { config: Arc::default(), agents: Default::default(), error: None };
        Self::open(&Home::at("/nonexistent"), &Clock::system(), watch::channel(Arc::new(snapshot)).1)
    }

    /// A server with tools of these names that people know, and that cannot be reached.
    #[cfg(test)]
    pub fn knowing(home: &Home, name: &str, tools: &[&str]) -> Self {
        let tools: Vec<Value> = tools.iter().map(|tool| json!({ "name": tool })).collect();
        let mut pinned = PinnedTools::default();
        pinned.listed(ToolList::of(&tools, false).expect("a list"));
        pinned.write(home, name).expect("written");
        let (url, headers) = ("http://127.0.0.1:1/mcp".to_owned(), BTreeMap::new());
        let carrier = crate::config::McpCarrier::Http { url, headers, client_id: None, scope: None };
        let server = McpServer { carrier, timeout: 1, idle: 1, problem: None };
        let config = crate::config::Config { mcp: [(name.to_owned(), server)].into(), ..Default::default() };
        let snapshot = ConfigSnapshot { config: Arc::new(config), agents: Default::default(), error: None };
        Self::open(home, &Clock::system(), watch::channel(Arc::new(snapshot)).1)
    }

    /// Notifies when what is reported may be another.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// The tools that an agent is offered now: of servers whose tools people know. Reads the disk once for each server.
    pub fn of(&self, agent: &Agent) -> McpTools {
        let mut all = Vec::new();
        for used in agent.mcp.iter().filter(|used| self.has(&used.server)) {
            all.extend(self.known(&used.server).offered(used).cloned());
        }
        McpTools::new(all)
    }

    /// Makes the tools known of those servers that nobody has asked yet. Returns which servers cannot be used, and why.
    pub async fn list_unknown(&self, agent: &Arc<Agent>) -> Vec<(String, WireError)> {
        let unknown = agent
            .mcp
            .iter()
            .map(|used| used.server.clone())
            .filter(|name| self.has(name) && self.known(name).pinned.allowed.is_none());
        let asking = unknown.map(|name| async move {
            let listed = self.connection(agent, &name).await;
            listed.err().map(|why| (name, why))
        });
        let mut unusable: Vec<_> = futures_util::future::join_all(asking).await.into_iter().flatten().collect();
        let names = agent.mcp.iter().map(|used| &used.server);
        let changed = names.filter(|name| self.has(name) && self.known(name).pinned.pending.is_some());
        unusable.extend(changed.map(|name| (name.clone(), WireError::Refused(NOT_OFFERED.to_owned()))));
        unusable
    }

    /// Calls a tool with `args`, an object.
    pub async fn call(
        &self,
        agent: &Arc<Agent>,
        tool: &McpTool,
        args: &Value,
        terms: &CallTerms<'_>,
    ) -> Result<McpOutput, WireError> {
        let connecting = terms.stop.run_until_cancelled(Box::pin(self.connection(agent, &tool.server)));
        let connection = connecting.await.ok_or(WireError::Stopped)??;
        // The server may have been listed anew just now.
        let used = agent.mcp.iter().find(|used| used.server == tool.server);
        let known = self.known(&tool.server);
        if !used.is_some_and(|used| known.offered(used).any(|offered| **offered == *tool)) {
            return Err(WireError::Refused(NOT_OFFERED.to_owned()));
        }
        let answered = Box::pin(answered(connection.client(), tool, args, terms)).await;
        match &answered {
            Err(why @ (WireError::AuthRequired | WireError::Unreachable(_))) => {
                self.note(&tool.server, state_of(why), Some(why.told(&tool.server)));
            }
            // Somebody has signed in, or it can be reached again.
            Ok(_) => self.note(&tool.server, McpState::Ready, None),
            Err(_) => {}
        }
        answered
    }

    /// How long a call of this server may take without a word, seconds.
    pub fn timeout_of(&self, server: &str) -> u64 {
        self.server(server).map_or(1, |server| server.timeout)
    }

    /// Lets the list with this hash be offered. Blocks.
    pub fn allow(&self, name: &str, hash: &str) -> Result<(), String> {
        if !self.has(name) {
            return Err(no_such_server(name));
        }
        let mut all = self.all_known();
        let mut pinned = self.known_among(&mut all, name).pinned.clone();
        pinned.allow(hash)?;
        // What is not kept would be forgotten by the next start.
        self.keep(name, &mut pinned).map_err(|error| format!("it cannot be kept: {error}"))?;
        all.insert(name.to_owned(), Arc::new(KnownTools::of(name, pinned)));
        drop(all);
        self.ring();
        Ok(())
    }

    /// Connects to a server, or asks one that is connected, and says how it fares.
    pub async fn test(&self, name: &str) -> Result<McpServerInfo, String> {
        let agent = self.tester(name)?;
        self.forgive(&agent.id, name).await;
        let tested = match self.connection(&agent, name).await {
            Ok(connection) => self.list(name, connection.client()).await.map(drop),
            Err(why) => Err(why),
        };
        if let Err(why) = tested {
            self.note(name, state_of(&why), Some(why.told(name)));
        }
        let found = self.report().into_iter().find(|info| info.name == name);
        found.ok_or_else(|| no_such_server(name))
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

    fn has(&self, name: &str) -> bool {
        self.shared.files.borrow().config.mcp.contains_key(name)
    }

    /// What is known of a server's tools. Blocks the first time.
    fn known(&self, name: &str) -> Arc<KnownTools> {
        self.known_among(&mut self.all_known(), name)
    }

    fn known_among(&self, all: &mut BTreeMap<String, Arc<KnownTools>>, name: &str) -> Arc<KnownTools> {
        let read = || Arc::new(KnownTools::of(name, PinnedTools::read(&self.shared.home, name)));
        all.entry(name.to_owned()).or_insert_with(read).clone()
    }

    /// Takes what a server said of itself and its tools. Returns whether its tools may be offered. Blocks.
    fn take_list(&self, name: &str, facts: ServerFacts, list: ToolList) -> bool {
        let mut all = self.all_known();
        let before = self.known_among(&mut all, name);
        let mut pinned = before.pinned.clone();
        (pinned.version, pinned.revision) = (facts.version, Some(facts.revision));
        let may_be_offered = pinned.listed(list);
        if pinned == before.pinned {
            return may_be_offered;
        }
        if let Err(error) = self.keep(name, &mut pinned) {
            tracing::warn!(server = name, "the tools of an MCP server cannot be kept: {error}");
        }
        let now = Arc::new(KnownTools::of(name, pinned));
        all.insert(name.to_owned(), now.clone());
        drop(all);
        // Here it may take its time.
        now.change();
        self.ring();
        may_be_offered
    }

    fn keep(&self, name: &str, pinned: &mut PinnedTools) -> io::Result<()> {
        pinned.at = Some(self.shared.clock.now());
        pinned.write(&self.shared.home, name)
    }

    fn turn(&self, name: &str) -> RenewalTurn {
        let mut turns = self.shared.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.entry(name.to_owned()).or_default().clone()
    }

    fn note(&self, name: &str, state: McpState, error: Option<String>) {
        let now = self.shared.clock.now();
        let is_news = {
            let mut health = self.health();
            let known = health.entry(name.to_owned()).or_default();
            let is_news = known.state != state || known.error != error;
            if known.state != state {
                known.since = Some(now);
            }
            (known.state, known.error) = (state, error);
            is_news
        };
        if is_news {
            self.ring();
        }
    }

    fn ring(&self) {
        self.shared.changed.send_modify(|n| *n = n.wrapping_add(1));
    }

    fn health(&self) -> MutexGuard<'_, BTreeMap<String, Health>> {
        self.shared.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all_known(&self) -> MutexGuard<'_, BTreeMap<String, Arc<KnownTools>>> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a server answers to a call.
async fn answered(
    client: &WireClient,
    tool: &McpTool,
    args: &Value,
    terms: &CallTerms<'_>,
) -> Result<McpOutput, WireError> {
    match &tool.kind {
        ToolKind::Call(name) => {
            let params = json!({ "name": name, "arguments": args });
            Ok(McpOutput::of_call(&Box::pin(client.call("tools/call", params, terms)).await?))
        }
        ToolKind::ReadResource => match args["uri"].as_str().map(str::trim).filter(|uri| !uri.is_empty()) {
            Some(uri) => Ok(McpOutput::of_resource(
                &Box::pin(client.call("resources/read", json!({ "uri": uri }), terms)).await?,
            )),
            None => {
                let listing = Box::pin(async {
                    let resources = client.list("resources/list", "resources").await?;
                    // Not every server has some.
                    let templates = client.list("resources/templates/list", "resourceTemplates").await;
                    Ok::<_, WireError>(McpOutput::of_list(&resources, &templates.unwrap_or_default()))
                });
                terms.stop.run_until_cancelled(listing).await.ok_or(WireError::Stopped)?
            }
        },
    }
}

fn no_such_server(name: &str) -> String {
    format!("there is no MCP server {} on this viber", protocol::text::head(name, 80))
}

/// The state that a failure leaves a server in.
fn state_of(why: &WireError) -> McpState {
    match why {
        WireError::AuthRequired => McpState::AuthRequired,
        _ => McpState::Failed,
    }
}
