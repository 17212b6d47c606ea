//! What a case begins with: a Board, a program that gives work, and a viber that does it.
//!
//! `Fixture::on(engine)` says on which database, further words say what else there is, and `with_…` makes it so. The viber
//! is a real daemon ([`Viber`]), one that says what the test says ([`FakeDaemon`]), or one that answers by itself
//! ([`FakeMachine`]). Whoever else takes part is a [`Person`], another team a [`Neighbour`].

use protocol::{EventBody, TaskId};
use serde_json::{Value, json};

use crate::{
    board::{Board, Engine, HOME},
    fake_daemon::{FakeDaemon, accepted, started},
    fake_machine::FakeMachine,
    llm::{Llm, Reply},
    person::Person,
    proxy::Proxy,
    tasks::id,
    viber::Viber,
};

/// The team of every [`Neighbour`].
pub const ELSEWHERE: &str = "elsewhere";
/// What an agent's file says beside its model and its spaces, where a case has no words of its own.
const AGENT: &str = "mode: always_execute\nmaxSteps: 25\n";
/// Events of one frame: it has at most 256 KiB.
const FRAME_EVENTS: usize = 100;

/// A Board with somebody who submits to a viber; `Fixture<()>` has no viber.
pub struct Fixture<V> {
    pub board: Board,
    /// A program of the team `home` that may give work.
    pub operator: Person,
    pub viber: V,
    /// Who the viber is on the Board. Empty until a real one has run.
    pub viber_id: String,
    /// The scripted model of a real viber.
    pub llm: Llm,
    owner: Option<Person>,
    network: Option<Network>,
    reports: Option<Reports>,
}

/// The network between a real viber and the Board.
struct Network {
    proxy: Proxy,
    /// The connection on which the viber was first seen: it joined on one, too.
    first: u64,
}

/// The task that a fake viber works on, and the last event that it reported.
struct Reports {
    task: TaskId,
    session: String,
    seq: u64,
}

/// Builds a [`Fixture`].
pub struct Setup {
    engine: Engine,
    flags: Vec<String>,
    board: Option<Board>,
    owner: bool,
    machine: Option<Viber>,
    model: AgentModel,
    agent: String,
    tools: String,
    /// The seed of the network between.
    network: Option<u64>,
}

/// Which model the agent of a real viber uses.
enum AgentModel {
    /// What its file names after joining.
    Default,
    /// `echo`: each line of a goal is an instruction.
    Echo,
    /// A scripted model with this API.
    Scripted(&'static str, Vec<Reply>),
}

impl Fixture<()> {
    /// On a Board of its own.
    pub fn on(engine: Engine) -> Setup {
        Setup {
            engine,
            flags: Vec::new(),
            board: None,
            owner: false,
            machine: None,
            model: AgentModel::Default,
            agent: AGENT.to_owned(),
            tools: String::new(),
            network: None,
        }
    }

    /// On a Board that runs already.
    pub fn at(board: Board) -> Setup {
        Setup { board: Some(board), ..Self::on(Engine::Sqlite) }
    }

    fn and<V>(self, viber: V, viber_id: String) -> Fixture<V> {
        let Self { board, operator, llm, owner, network, reports, .. } = self;
        Fixture { board, operator, viber, viber_id, llm, owner, network, reports }
    }
}

impl Setup {
    /// Its Board is served with these flags.
    pub fn flags(mut self, flags: &[&str]) -> Self {
        self.flags.extend(flags.iter().map(ToString::to_string));
        self
    }

    /// An owner of the team `home` is signed in.
    pub fn owner(mut self) -> Self {
        self.owner = true;
        self
    }

    /// The daemon runs on this machine, which has not joined anything.
    pub fn machine(mut self, machine: Viber) -> Self {
        self.machine = Some(machine);
        self
    }

    /// The agent's model is `echo`, which does what the lines of a goal say.
    pub fn echo_model(mut self) -> Self {
        self.model = AgentModel::Echo;
        self
    }

    /// The agent's model answers by this script.
    pub fn scripted_model(self, script: impl IntoIterator<Item = Reply>) -> Self {
        self.scripted_model_for("openai", script)
    }

    /// The same with an API: `openai`, `anthropic`, `ollama`.
    pub fn scripted_model_for(mut self, api: &'static str, script: impl IntoIterator<Item = Reply>) -> Self {
        self.model = AgentModel::Scripted(api, script.into_iter().collect());
        self
    }

    /// Further keys of the agent's file, where its model is scripted.
    pub fn agent(mut self, keys: &str) -> Self {
        keys.clone_into(&mut self.agent);
        self
    }

    /// Tools of an agent with a scripted model, in addition to files, search and the shell.
    pub fn tools(mut self, tools: &[&str]) -> Self {
        self.tools = tools.iter().map(|tool| format!(", {tool}")).collect();
        self
    }

    /// The daemon dials through a network that can be broken; chances come from `seed`.
    pub fn over_a_network(mut self, seed: u64) -> Self {
        self.network = Some(seed);
        self
    }

    /// Nobody does the work.
    pub async fn without_viber(self) -> Fixture<()> {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).collect();
        let board = match self.board {
            Some(board) => board,
            None => Board::start_with(self.engine, &flags).await,
        };
        let operator = board.token(HOME, "operator").await;
        let owner = if self.owner { Some(board.owner().await) } else { None };
        let script = if let AgentModel::Scripted(_, script) = self.model { script } else { Vec::new() };
        let llm = Llm::start(script).await;
        let network = match self.network {
            Some(seed) => Some(Network { proxy: Proxy::before(&board, seed).await, first: 0 }),
            None => None,
        };
        Fixture { board, operator, viber: (), viber_id: String::new(), llm, owner, network, reports: None }
    }

    /// A fake viber that has not dialled in yet.
    pub async fn with_enrolled_fake(self) -> Fixture<FakeDaemon> {
        let fixture = self.without_viber().await;
        let viber = FakeDaemon::enrol(&fixture.board, "lab").await;
        let viber_id = viber.id.to_string();
        fixture.and(viber, viber_id)
    }

    /// A connected fake viber.
    pub async fn with_fake(self) -> Fixture<FakeDaemon> {
        let mut fixture = self.with_enrolled_fake().await;
        fixture.viber.connect().await;
        fixture
    }

    /// A connected machine that is simulated.
    pub async fn with_machine(self) -> Fixture<FakeMachine> {
        self.with_machine_of(&[]).await
    }

    /// The same with agents of these ids beside `default`.
    pub async fn with_machine_of(self, agents: &[&str]) -> Fixture<FakeMachine> {
        let fixture = self.without_viber().await;
        let machine = FakeMachine::with_agents(&fixture.board, HOME, "lab", agents).await;
        let viber_id = machine.id.to_string();
        fixture.and(machine, viber_id)
    }

    /// A real viber that has joined and does not run yet: its home may be furnished.
    pub async fn with_enrolled_viber(mut self) -> Fixture<Viber> {
        let viber = self.machine.take().unwrap_or_else(|| Viber::fresh("lab"));
        let api = match &self.model {
            AgentModel::Scripted(api, _) => Some(*api),
            AgentModel::Default | AgentModel::Echo => None,
        };
        let echoes = matches!(self.model, AgentModel::Echo);
        let (agent, tools) = (self.agent.clone(), self.tools.clone());
        let fixture = self.without_viber().await;
        match &fixture.network {
            Some(network) => viber.enrol_at(&fixture.board, &network.proxy.url()).await,
            None => viber.enrol(&fixture.board).await,
        }
        if let Some(api) = api {
            viber.use_scripted_model(&fixture.llm, api);
            viber.write("agents/default.yaml", &viber.agent(&agent).replace("shell]", &format!("shell{tools}]")));
        }
        if echoes {
            viber.write("agents/default.yaml", &echo(&viber));
        }
        fixture.and(viber, String::new())
    }

    /// A real viber that the Board sees connected.
    pub async fn with_viber(self) -> Fixture<Viber> {
        self.with_enrolled_viber().await.running().await
    }
}

/// The file of an agent whose model is `echo`.
pub fn echo(viber: &Viber) -> String {
    format!("name: Default\nmodel: echo/echo\nspaces: [{}]\ntools: [file, search, shell]\n", viber.space().display())
}

impl<V> Fixture<V> {
    /// The owner who is signed in.
    pub fn owner(&self) -> &Person {
        self.owner.as_ref().expect("a fixture with an owner")
    }

    /// Gives the viber a goal; answers the task.
    pub async fn submit(&self, goal: &str) -> Value {
        self.operator.submit(&self.viber_id, goal).await
    }

    /// The same with `more` in the request's body.
    pub async fn submit_with(&self, goal: &str, more: Value) -> Value {
        let mut body = json!({ "goal": goal, "viberId": self.viber_id });
        body.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        self.operator.post("/api/v1/tasks", &body).await.expect(201).json()
    }

    /// Waits until a task has ended, whichever way.
    pub async fn ended(&self, task: &Value) -> Value {
        let end = |task: &Value| ["completed", "error", "stopped"].iter().any(|state| task["state"] == *state);
        self.operator.task_that(id(task, "id"), "ended", end).await
    }

    /// A goal from submit to its end, whichever it is.
    pub async fn play(&self, goal: &str) -> Value {
        self.play_with(goal, json!({})).await
    }

    /// The same with `more` in the request's body.
    pub async fn play_with(&self, goal: &str, more: Value) -> Value {
        let task = self.submit_with(goal, more).await;
        self.ended(&task).await
    }

    /// The stream events of this kind that a task's attempts reported.
    pub async fn events_of_kind(&self, task: &Value, kind: &str) -> Vec<Value> {
        let events = self.operator.events(id(task, "id")).await;
        events.into_iter().map(|mut event| event["event"].take()).filter(|event| event["type"] == kind).collect()
    }
}

impl Fixture<Viber> {
    /// Starts the daemon; answers when the Board sees it connected.
    pub async fn running(mut self) -> Self {
        self.viber.run();
        self.viber.connected(&self.operator).await;
        self.viber_id = self.viber.id(&self.operator).await;
        if let Some(network) = &mut self.network {
            network.first = network.proxy.newest();
        }
        self
    }

    /// The network between the viber and the Board.
    pub fn proxy(&self) -> &Proxy {
        &self.network().proxy
    }

    /// The number of the connection on which the viber was first seen.
    pub fn first_connection(&self) -> u64 {
        self.network().first
    }

    fn network(&self) -> &Network {
        self.network.as_ref().expect("a fixture over a network")
    }
}

impl Fixture<FakeDaemon> {
    /// The viber begins a task of this goal, and is to tell of it from now on; answers the task.
    pub async fn begin(&mut self, goal: &str) -> Value {
        let task = self.submit(goal).await;
        let submit = self.viber.submitted().await;
        let session = id(&task, "sessionId").to_owned();
        self.reports = Some(Reports { task: submit.task_id, session, seq: 0 });
        self.tell(vec![accepted(), started()]).await;
        task
    }

    /// The viber tells what happened next in the task that it began last.
    pub async fn tell(&mut self, bodies: Vec<EventBody>) {
        let reports = self.reports.as_mut().expect("a task that was begun");
        for some in bodies.chunks(FRAME_EVENTS) {
            self.viber.report(&reports.task, 1, reports.seq + 1, some.to_vec()).await;
            reports.seq += some.len() as u64;
        }
    }

    /// The task that the viber began last.
    pub fn task(&self) -> &TaskId {
        &self.reports().task
    }

    /// Its session.
    pub fn session(&self) -> &str {
        &self.reports().session
    }

    /// The seq of the last event that was reported of it.
    pub fn seq(&self) -> u64 {
        self.reports().seq
    }

    fn reports(&self) -> &Reports {
        self.reports.as_ref().expect("a task that was begun")
    }
}

/// Another team of the same Board: somebody who gives work there, and a fake viber that has not dialled in yet.
#[derive(Debug)]
pub struct Neighbour {
    pub operator: Person,
    pub viber: FakeDaemon,
}

impl Neighbour {
    /// Makes the team [`ELSEWHERE`].
    pub async fn of(board: &Board) -> Self {
        board.make_operator(ELSEWHERE, "far@example.org", "owner").await;
        let viber = FakeDaemon::enrol_in(board, ELSEWHERE, "far").await;
        Self { operator: board.token(ELSEWHERE, "operator").await, viber }
    }
}
