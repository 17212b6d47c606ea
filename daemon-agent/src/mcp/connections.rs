//! Connections: one for each agent and server, made when somebody needs it, ended when nobody did for a while, and made again
//! after a failure, each time later.

mod next_listing;

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use protocol::McpState;
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Instant, sleep, sleep_until},
};

use self::next_listing::NextListing;
use super::{
    McpServers, ToolList,
    oauth::Tokens,
    state_of,
    stdio::{Launch, ServerProcess},
    wire::{Handshake, HttpEndpoint, TokenSource, WireClient, WireError},
};
use crate::config::{Agent, McpCarrier, McpServer};

/// Time between two looks at a connection that is in use.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A connection that ends sooner counts as one that failed.
const STEADY_TIME: Duration = Duration::from_secs(60);
/// The wait after the first failure; it doubles with each, up to the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// A wait that a call sits out.
const SHORT_WAIT: Duration = Duration::from_secs(5);

/// The agent and the server.
pub(super) type SlotKey = (String, String);

/// The place of one connection.
#[derive(Default)]
pub(super) struct Slot(AsyncMutex<SlotState>);

#[derive(Default)]
struct SlotState {
    live: Option<Arc<Live>>,
    failures: u32,
    /// When it may be tried again.
    retry_at: Option<Instant>,
    last_error: String,
}

impl SlotState {
    fn failed(&mut self, why: &str) {
        let doubled = FIRST_WAIT.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + doubled.min(LONGEST_WAIT));
        self.last_error = why.to_owned();
    }

    /// Whether the connection is still this one.
    fn is_live(&self, live: &Arc<Live>) -> bool {
        self.live.as_ref().is_some_and(|own| Arc::ptr_eq(own, live))
    }
}

/// What a connection leads to. Another one means that it is not the right one any more.
#[derive(Clone, PartialEq, Eq)]
struct Target {
    server: McpServer,
    launch: Option<Launch>,
}

/// A connection.
struct Live {
    client: WireClient,
    process: Mutex<Option<ServerProcess>>,
    target: Target,
    began: Instant,
    /// Calls under way, and when the last one ended.
    calls: AtomicUsize,
    used: Mutex<Instant>,
}

/// A connection that somebody uses: it is not idle until this is dropped.
pub(super) struct InUse(Arc<Live>);

impl InUse {
    fn of(live: &Arc<Live>) -> Self {
        live.calls.fetch_add(1, Ordering::SeqCst);
        Self(live.clone())
    }

    pub fn client(&self) -> &WireClient {
        &self.0.client
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        *self.0.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Live {
    /// When it may be ended if nobody uses it meanwhile; `None` while somebody does.
    fn idle_at(&self) -> Option<Instant> {
        let used = *self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = Duration::from_secs(self.target.server.idle);
        (self.calls.load(Ordering::SeqCst) == 0).then(|| used + idle)
    }

    /// Ends it, with its program; returns what that complained about.
    async fn close(&self) -> String {
        self.client.end();
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        match process {
            Some(process) => process.stop().await,
            None => String::new(),
        }
    }
}

/// Says that a server is not being started any more, should nobody say how it fares.
struct Starting<'s> {
    servers: &'s McpServers,
    name: &'s str,
}

impl<'s> Starting<'s> {
    fn note(servers: &'s McpServers, name: &'s str) -> Self {
        servers.note(name, McpState::Starting, None);
        Self { servers, name }
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        let is_starting = self.servers.health().get(self.name).is_some_and(|known| known.state == McpState::Starting);
        if is_starting {
            self.servers.note_rest(self.name);
        }
    }
}

impl McpServers {
    /// The connection of this agent to a server, made now if there is none.
    pub(super) async fn connection(&self, agent: &Agent, name: &str) -> Result<InUse, WireError> {
        let target = self.target(agent, name)?;
        let slot = self.slot(&agent.id, name);
        let mut state = slot.0.lock().await;
        if let Some(live) = state.live.clone() {
            if !live.client.is_closed() && live.target == target {
                return Ok(InUse::of(&live));
            }
            let why = live.client.is_closed().then(|| live.client.why_closed());
            self.over(&mut state, &live, name, why).await;
        }
        if let Some(at) = state.retry_at {
            let left = at.saturating_duration_since(Instant::now());
            if left > SHORT_WAIT {
                let seconds = left.as_secs() + 1;
                let why = format!("{}\nIt is tried again in {seconds} seconds.", state.last_error);
                return Err(WireError::Closed(why));
            }
            sleep(left).await;
        }
        let _starting = Starting::note(self, name);
        let server = target.server.clone();
        match Box::pin(self.begin(name, target)).await {
            Ok(live) => {
                let live = Arc::new(live);
                let used = InUse::of(&live);
                (state.live, state.retry_at) = (Some(live.clone()), None);
                drop(state);
                self.health().entry(name.to_owned()).or_default().connections += 1;
                self.note(name, McpState::Ready, None);
                tokio::spawn(self.clone().attend(slot, live, name.to_owned()));
                Ok(used)
            }
            Err(why) => {
                let why = without_keys(&server, why);
                if why != WireError::AuthRequired {
                    state.failed(&why.to_string());
                }
                self.note(name, state_of(&why), Some(why.told(name)));
                Err(why)
            }
        }
    }

    fn slot(&self, agent: &str, name: &str) -> Arc<Slot> {
        let mut slots = self.shared.slots.lock().unwrap_or_else(PoisonError::into_inner);
        slots.entry((agent.to_owned(), name.to_owned())).or_default().clone()
    }

    /// Lets the next connection be tried at once.
    pub(super) async fn forgive(&self, agent: &str, name: &str) {
        self.slot(agent, name).0.lock().await.retry_at = None;
    }

    fn target(&self, agent: &Agent, name: &str) -> Result<Target, WireError> {
        let files = self.shared.files.borrow().clone();
        let server = files.config.mcp.get(name).cloned();
        let server = server.ok_or_else(|| WireError::Refused(format!("config.yaml has no MCP server {name}")))?;
        if let Some(problem) = &server.problem {
            return Err(WireError::Refused(problem.clone()));
        }
        let launch = Launch::of(&server.carrier, agent, &files.config, &self.shared.home);
        Ok(Target { server, launch })
    }

    /// Connects and takes the list of tools.
    async fn begin(&self, name: &str, target: Target) -> Result<Live, WireError> {
        let is_legacy = self.health().get(name).is_some_and(|health| health.is_legacy);
        let first = if is_legacy { Handshake::Initialize } else { Handshake::Newest };
        let (client, process) = match self.connect(name, &target, first).await {
            Ok(connected) => connected,
            // Some servers answer an unknown question with nothing that the protocol knows. One that says nothing at all was
            // asked both ways.
            Err(Failure::Handshake(WireError::Closed(_))) if first == Handshake::Newest => {
                let again = self.connect(name, &target, Handshake::Initialize).await.map_err(Failure::into_error)?;
                self.health().entry(name.to_owned()).or_default().is_legacy = true;
                again
            }
            Err(failure) => return Err(failure.into_error()),
        };
        let (calls, now) = (AtomicUsize::new(0), Instant::now());
        let live = Live { client, process: Mutex::new(process), target, began: now, calls, used: Mutex::new(now) };
        if let Err(why) = self.list(name, &live.client).await {
            live.close().await;
            return Err(why);
        }
        Ok(live)
    }

    async fn connect(
        &self,
        name: &str,
        target: &Target,
        handshake: Handshake,
    ) -> Result<(WireClient, Option<ServerProcess>), Failure> {
        match (&target.server.carrier, &target.launch) {
            (McpCarrier::Http { url, headers, .. }, _) => {
                let tokens = Tokens::of(&self.shared.home, name, url, &self.shared.clock, self.turn(name));
                let token: TokenSource = Arc::new(move |refused| {
                    let tokens = tokens.clone();
                    Box::pin(async move { tokens.current(refused.as_deref()).await })
                });
                let endpoint = HttpEndpoint { url: url.clone(), headers: headers.clone(), token };
                let client = WireClient::over_http(endpoint, handshake).await.map_err(Failure::Handshake)?;
                Ok((client, None))
            }
            (McpCarrier::Stdio { .. }, Some(launch)) => {
                let (process, socket) = launch.start().await.map_err(Failure::Start)?;
                match WireClient::over_stdio(socket, handshake).await {
                    Ok(client) => Ok((client, Some(process))),
                    Err(why) => {
                        let complaint = process.stop().await;
                        Err(Failure::Handshake(with_complaint(why, &complaint)))
                    }
                }
            }
            (McpCarrier::Stdio { .. }, None) => Err(Failure::Start("it cannot be started".to_owned())),
        }
    }

    /// Takes the list of tools that a server has now. Returns whether it may be offered.
    pub(super) async fn list(&self, name: &str, client: &WireClient) -> Result<bool, WireError> {
        let listed = client.list("tools/list", "tools").await;
        let listed = match listed {
            // A server that only has resources has no such list.
            Err(WireError::Refused(_)) if client.facts.has_resources && !client.facts.has_tools => Vec::new(),
            listed => listed?,
        };
        let list = ToolList::of(&listed, client.facts.has_resources).map_err(WireError::Refused)?;
        let (servers, name, facts) = (self.clone(), name.to_owned(), client.facts.clone());
        let pinning = tokio::task::spawn_blocking(move || {
            let may_be_offered = servers.take_list(&name, facts, list);
            if !may_be_offered {
                tracing::warn!(server = name, "the tools of an MCP server have changed; nothing of it is offered");
            }
            may_be_offered
        });
        pinning.await.map_err(|error| WireError::Closed(error.to_string()))
    }

    /// Looks after a connection until it ends: lists its tools again when they change, and ends it when nobody uses it, or when
    /// the configuration says something else.
    async fn attend(self, slot: Arc<Slot>, live: Arc<Live>, name: String) {
        let (mut changes, mut files) = (live.client.changes(), self.shared.files.clone());
        let mut listing = NextListing::new();
        loop {
            let look = live.idle_at().unwrap_or_else(|| Instant::now() + LOOK_INTERVAL);
            tokio::select! {
                () = live.client.closed() => {
                    return self.ended(&slot, &live, &name, live.client.why_closed()).await;
                }
                Ok(()) = changes.changed() => listing.changed(Instant::now()),
                Ok(()) = files.changed() => {}
                () = sleep_until(listing.at.map_or(look, |at| at.min(look))) => {}
            }
            if listing.is_due(Instant::now()) {
                changes.mark_unchanged();
                if let Err(why) = self.list(&name, &live.client).await {
                    // Nobody knows what it offers now: the next one to use it finds out, or hears why not.
                    return self.ended(&slot, &live, &name, why.to_string()).await;
                }
            }
            if self.may_end(&live, &name) {
                let mut state = slot.0.lock().await;
                if !state.is_live(&live) {
                    return;
                }
                // Somebody may have begun to use it meanwhile.
                if self.may_end(&live, &name) {
                    return self.over(&mut state, &live, &name, None).await;
                }
            }
        }
    }

    /// Whether nobody uses a connection, and nobody did for a while or it leads to another server than the configuration says.
    fn may_end(&self, live: &Live, name: &str) -> bool {
        let is_current = self.shared.files.borrow().config.mcp.get(name) == Some(&live.target.server);
        live.idle_at().is_some_and(|at| at <= Instant::now() || !is_current)
    }

    /// A connection ended by itself, or was replaced.
    async fn ended(&self, slot: &Slot, live: &Arc<Live>, name: &str, why: String) {
        let mut state = slot.0.lock().await;
        if state.is_live(live) {
            self.over(&mut state, live, name, Some(why)).await;
        }
    }

    /// Ends the connection of a slot. `why`: how it failed, if nobody wanted that.
    async fn over(&self, state: &mut SlotState, live: &Live, name: &str, why: Option<String>) {
        state.live = None;
        let complaint = live.close().await;
        {
            let mut health = self.health();
            let known = health.entry(name.to_owned()).or_default();
            known.connections = known.connections.saturating_sub(1);
        }
        let Some(why) = why else { return self.note_rest(name) };
        let why = without_keys(&live.target.server, with_complaint(WireError::Closed(why), &complaint)).to_string();
        if live.began.elapsed() >= STEADY_TIME {
            state.failures = 0;
        }
        state.failed(&why);
        self.note(name, McpState::Failed, Some(why));
    }

    /// Notes how a server fares of which one agent has nothing any more.
    fn note_rest(&self, name: &str) {
        let is_connected = self.health().get(name).is_some_and(|known| known.connections > 0);
        self.note(name, if is_connected { McpState::Ready } else { McpState::Idle }, None);
    }

    /// Ends all connections; returns when everything is dead.
    pub async fn close_all(&self) {
        let slots: Vec<Arc<Slot>> = {
            let slots = self.shared.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.values().cloned().collect()
        };
        let closing = slots.iter().map(|slot| async move {
            let live = slot.0.lock().await.live.take();
            if let Some(live) = live {
                live.close().await;
            }
        });
        futures_util::future::join_all(closing).await;
    }
}

/// Why no connection was made.
enum Failure {
    /// Its program does not run.
    Start(String),
    Handshake(WireError),
}

impl Failure {
    fn into_error(self) -> WireError {
        match self {
            Self::Start(why) => WireError::Closed(why),
            Self::Handshake(why) => why,
        }
    }
}

/// The same without the server's keys, which its program may have named in a complaint.
fn without_keys(server: &McpServer, why: WireError) -> WireError {
    match why {
        WireError::AuthRequired | WireError::Stopped => why,
        WireError::Closed(text) => WireError::Closed(server.redact(&text)),
        WireError::TimedOut(text) => WireError::TimedOut(server.redact(&text)),
        WireError::Unreachable(text) => WireError::Unreachable(server.redact(&text)),
        WireError::Refused(text) => WireError::Refused(server.redact(&text)),
    }
}

fn with_complaint(why: WireError, complaint: &str) -> WireError {
    match why {
        WireError::AuthRequired | WireError::Stopped => why,
        why if complaint.is_empty() => why,
        WireError::TimedOut(why) => WireError::TimedOut(format!("{why}\n{complaint}")),
        why => WireError::Closed(format!("{why}\n{complaint}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_makes_the_next_wait_longer_up_to_a_bound() {
        let mut state = SlotState::default();
        let mut waits = Vec::new();
        for _ in 0..40 {
            let before = Instant::now();
            state.failed("x");
            waits.push(state.retry_at.map(|at| (at - before).as_secs()).unwrap_or_default());
        }
        assert_eq!((waits[0], waits[1], waits[3]), (1, 2, 8));
        assert!(waits[9..].iter().all(|wait| *wait == LONGEST_WAIT.as_secs()), "{waits:?}");
    }
}
