//! MCP both ways: what a call of a server's tool takes in the daemon, what servers cost it that nobody uses, and the Board's own
//! `/mcp` beside its API.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use daemon_agent::{
    clock::Clock,
    config::{ConfigSnapshot, Variables},
    home::Home,
    mcp::McpServers,
    report::{ActiveTime, Approvals},
    tools::{QuestionDesk, Toolbox},
};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::{
    Scale,
    http::Http,
    load::Latencies,
    proc::{self, Boards, Watch},
    report::{Bound, Measured},
    skills::tool_context,
    stage::Stage,
};
use crate::{Engine, Fixture, llm::Reply, programs::program};

/// Calls of a tool, each beside one that nobody stands between.
const CALLS: usize = 300;
/// The revision that the servers over HTTP speak here, the Board among them.
const REVISION: &str = "2025-11-25";
/// What is said, and comes back.
const ECHO_TEXT: &str = "an owl in an oak";
/// Servers that nobody uses, and the agents that have them: one has at most 20.
const IDLE_SERVERS: usize = 50;
const IDLE_AGENTS: usize = 3;
/// Daemons with servers and daemons without.
const IDLE_ROUNDS: usize = 3;
/// How long a daemon rests before its memory is looked at.
const REST_TIME: Duration = Duration::from_secs(5);
/// Calls of the Board's tool, and of its API.
const BOARD_CALLS: usize = 400;
const VIBERS: usize = 20;
/// Tokens that are used in turn: one may be used for 400 calls at once.
const TOKENS: usize = 8;

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let mut all = calls(scale).await;
    all.push(idle(scale).await);
    for engine in [Engine::Sqlite, Engine::Postgres] {
        all.push(board(engine, scale).await);
    }
    all
}

/// A call of the tool `echo`, as JSON.
fn echo_call(n: usize) -> String {
    let params = json!({ "name": "echo", "arguments": { "text": ECHO_TEXT } });
    json!({ "jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params }).to_string()
}

/// A server as a program, which only the generator asks. Ends with this value.
struct DirectServer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl DirectServer {
    fn start() -> Self {
        let mut command = Command::new(program("fake_mcp"));
        let started = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.expect("the server starts");
        let (input, output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Self { child, input, output: BufReader::new(output) }
    }

    /// One call, from its request to its answer.
    fn call(&mut self, n: usize) -> Duration {
        let (request, mut answer) = (format!("{}\n", echo_call(n)), String::new());
        let began = Instant::now();
        self.input.write_all(request.as_bytes()).expect("the server listens");
        self.output.read_line(&mut answer).expect("the server answers");
        let took = began.elapsed();
        assert!(answer.contains(ECHO_TEXT), "{answer}");
        took
    }
}

impl Drop for DirectServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server over Streamable HTTP, which lives as long as the generator; returns its `127.0.0.1:port`.
async fn http_server() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let host = listener.local_addr().expect("bound").to_string();
    let app = Router::new().route("/mcp", post(answer));
    tokio::spawn(axum::serve(listener, app).into_future());
    host
}

async fn answer(Json(message): Json<Value>) -> Response {
    let (id, params) = (&message["id"], &message["params"]);
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "bench", "version": "1" },
        }),
        "tools/list" => {
            let schema = json!({ "type": "object", "properties": { "text": { "type": "string" } } });
            json!({ "tools": [{ "name": "echo", "description": "Says it again.", "inputSchema": schema }] })
        }
        "tools/call" => json!({ "content": [{ "type": "text", "text": params["arguments"]["text"] }] }),
        _ => {
            let error = json!({ "code": -32601, "message": "not known here" });
            return Json(json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response();
        }
    };
    Json(json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
}

/// A home whose agent `a` uses a server as a program and one over HTTP.
struct McpHome {
    _folder: tempfile::TempDir,
    home: Home,
}

impl McpHome {
    fn with(http: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path().join("home"));
        home.open().expect("a home");
        let space = folder.path().join("space");
        std::fs::create_dir(&space).expect("a folder");
        let servers = json!({ "servers": {
            "stdio": { "command": program("fake_mcp") },
            "http": { "url": format!("http://{http}/mcp") },
        } });
        std::fs::write(home.config(), format!("mcp: {servers}\n")).expect("a file");
        let agent = format!("model: demo/tour\nspaces: [{}]\nmcp: [stdio, http]\n", space.display());
        std::fs::write(home.agents().join("a.yaml"), agent).expect("a file");
        Self { _folder: folder, home }
    }

    /// The agent's tools, and the servers of the machine.
    async fn tools(&self) -> (Toolbox, McpServers) {
        let files = Arc::new(ConfigSnapshot::read(&self.home, &Variables::of_process()));
        let (agent, clock) = (files.agent("a").expect("there").expect("good"), Clock::system());
        let servers = McpServers::open(&self.home, &clock, watch::channel(files.clone()).1);
        let (approvals, active_time) = (Approvals::default(), ActiveTime::start());
        let desk = QuestionDesk { approvals, clock, minutes: 1, active_time };
        let mut tools = Toolbox::new(tool_context(&self.home, &files, agent)).with_mcp(servers.clone(), desk);
        let failed = tools.list_mcp().await;
        assert!(failed.is_empty(), "{failed:?}");
        tools.renew_mcp();
        (tools, servers)
    }
}

/// Calls over both ways, each in turn with one that the server gets without a daemon.
async fn calls(scale: Scale) -> Vec<Measured> {
    let host = http_server().await;
    let place = McpHome::with(&host);
    let (tools, servers) = place.tools().await;
    let mut direct = DirectServer::start();
    let credential = format!("Mcp-Protocol-Version: {REVISION}");
    let mut http = Http::connect(&host, &credential).await.expect("the server listens");
    let (runs, mut stdio_times, mut http_times) = (scale.count(CALLS, 30), CallTimes::default(), CallTimes::default());
    let watch = Watch::machine();
    for n in 0..runs {
        stdio_times.own.push(direct.call(n));
        stdio_times.all.push(called(&tools, n, "mcp__stdio__echo").await);
        let began = Instant::now();
        let (status, body) = http.ask("POST", "/mcp", &echo_call(n)).await.expect("an answer");
        http_times.own.push(began.elapsed());
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        http_times.all.push(called(&tools, n, "mcp__http__echo").await);
    }
    let spent = Boards::default().spent(&watch);
    servers.close_all().await;
    let named = [("a tool of an MCP server, stdio", stdio_times), ("a tool of an MCP server, HTTP", http_times)];
    let measured = named.map(|(name, times)| {
        let own = times.own.ms(50.0);
        Measured::new(name, "pair of calls", runs, spent)
            .figure("over the server's own, p50", times.all.ms(50.0) - own, "ms", None)
            .figure("over the server's own, p95", times.all.ms(95.0) - own, "ms", Bound::AtMost(5.0))
            .figure("call, p50", times.all.ms(50.0), "ms", None)
            .figure("call, p95", times.all.ms(95.0), "ms", None)
            .figure("the server's own, p50", own, "ms", None)
            .note(
                "the server's own is the median of what the same call takes without a daemon; seconds and what was spent are of \
                 both kinds together",
            )
    });
    measured.into()
}

/// What calls took: of a server by itself, and with the daemon.
#[derive(Default)]
struct CallTimes {
    own: Latencies,
    all: Latencies,
}

async fn called(tools: &Toolbox, n: usize, name: &str) -> Duration {
    let began = Instant::now();
    let done = tools.call(&format!("{name}-{n}"), name, &json!({ "text": ECHO_TEXT }), None).await;
    let took = began.elapsed();
    assert!(done.ok, "{name}: {}", done.result);
    took
}

/// The memory of a daemon with servers that run and that nobody uses, beside the same without them.
async fn idle(scale: Scale) -> Measured {
    let rounds = scale.count(IDLE_ROUNDS, 1);
    let (watch, mut without, mut with) = (Watch::machine(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        without.push(resting(0).await);
        with.push(resting(IDLE_SERVERS).await);
    }
    let (without, with) = (median(without), median(with));
    Measured::new(
        format!("{IDLE_SERVERS} idle MCP servers"),
        "pair of daemons",
        rounds,
        Boards::default().spent(&watch),
    )
    .figure("daemon's RSS more", with - without, "MiB", Bound::AtMost(8.0))
    .figure("daemon's RSS with none", without, "MiB", None)
    .note(
        "the median of each; every server is connected and has its tools listed; the servers' own memory is not in it",
    )
}

/// RSS of a daemon, MiB, that did a task, connected to so many servers, and rests.
async fn resting(servers: usize) -> f64 {
    let script = [Reply::text("Done.")];
    let fixture = Fixture::on(Engine::Sqlite).scripted_model(script).with_enrolled_viber().await;
    let names: Vec<String> = (0..servers).map(|n| format!("s{n:02}")).collect();
    let server = json!({ "command": program("fake_mcp") });
    let configured: Map<String, Value> = names.iter().map(|name| (name.clone(), server.clone())).collect();
    let section = json!({ "servers": configured });
    fixture.viber.write("config.yaml", &format!("{}mcp: {section}\n", fixture.llm.config("openai")));
    for n in 0..IDLE_AGENTS {
        let used: Vec<&str> = names.iter().skip(n).step_by(IDLE_AGENTS).map(String::as_str).collect();
        let agent = fixture.viber.agent(&format!("mcp: [{}]\n", used.join(", ")));
        fixture.viber.write(&format!("agents/helper{n}.yaml"), &agent);
    }
    let fixture = fixture.running().await;
    fixture.play("Say that it is done.").await;
    for name in &names {
        let path = format!("/api/v1/vibers/{}/mcp/{name}/test", fixture.viber_id);
        let tested = fixture.operator.post(&path, &json!({})).await.expect(200).json();
        assert_eq!(tested["state"], "ready", "{tested:#}");
    }
    tokio::time::sleep(REST_TIME).await;
    proc::memory(fixture.viber.pid()).0
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// The list of vibers by the Board's tool, in turn with the same by the API.
async fn board(engine: Engine, scale: Scale) -> Measured {
    let stage = Stage::set_on(engine, VIBERS, TOKENS).await;
    let mut clients = Vec::with_capacity(TOKENS);
    for n in 0..TOKENS {
        let credential = format!("{}\r\nMcp-Protocol-Version: {REVISION}", stage.token(n));
        clients.push(Http::connect(&stage.host, &credential).await.expect("the Board listens"));
    }
    let params = json!({ "name": "list_vibers", "arguments": {} });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let (runs, mut tool, mut api) = (scale.count(BOARD_CALLS, 40), Latencies::default(), Latencies::default());
    let watch = stage.watch().await;
    for n in 0..runs {
        let http = &mut clients[n % TOKENS];
        for (method, path, body, times) in
            [("POST", "/mcp", call.as_str(), &mut tool), ("GET", "/api/v1/vibers", "", &mut api)]
        {
            let began = Instant::now();
            let (status, answer) = http.ask(method, path, body).await.expect("an answer");
            times.push(began.elapsed());
            let answer = String::from_utf8_lossy(&answer);
            assert!(status == 200 && answer.contains("viber 0"), "{path}: {status} {answer}");
        }
    }
    let spent = watch.stop(stage.commits().await);
    Measured::new(format!("list of {VIBERS} vibers, {engine:?}"), "pair of calls", runs, spent)
        .figure("list_vibers by /mcp, p50", tool.ms(50.0), "ms", None)
        .figure("list_vibers by /mcp, p95", tool.ms(95.0), "ms", None)
        .figure("the same by the API, p50", api.ms(50.0), "ms", None)
        .figure("the same by the API, p95", api.ms(95.0), "ms", None)
}
