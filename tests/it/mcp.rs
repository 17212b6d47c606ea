//! MCP servers that agents use: real programs and an HTTP server on one side, a real daemon on the other.

mod calls;
mod changes;
mod failures;
mod hostile;
mod hostile_http;
mod http;
mod lifetime;
mod orders;
mod pages;
mod pictures;
mod results;

use board_tests::{Engine, Fixture, Viber, eventually, llm::Reply, programs::program, tasks::id};
use serde_json::{Value, json};

/// A server under this name, started with these flags; `SPACE` stands for the space of the agent.
type Server<'s> = (&'s str, &'s [&'s str]);

const FAKE: Server<'static> = ("fake", &[]);
const OLD: Server<'static> = ("old", &["--legacy"]);

/// The keys of an agent that may do everything.
const FREE: &str = "mode: always_execute\nmaxSteps: 25\n";

/// A running viber with these servers, and an agent with these keys that uses them all.
async fn with_servers(engine: Engine, agent: &str, servers: &[Server<'_>], script: Vec<Reply>) -> Fixture<Viber> {
    furnished(engine, agent, servers, script).await.running().await
}

/// The same before it runs.
async fn furnished(engine: Engine, agent: &str, servers: &[Server<'_>], script: Vec<Reply>) -> Fixture<Viber> {
    let names: Vec<&str> = servers.iter().map(|(name, _)| *name).collect();
    let agent = format!("{agent}mcp: [{}]\n", names.join(", "));
    let fixture = Fixture::on(engine).owner().scripted_model(script).agent(&agent).with_enrolled_viber().await;
    configure(&fixture, servers);
    fixture
}

/// Writes the configuration with these servers.
fn configure(fixture: &Fixture<Viber>, servers: &[Server<'_>]) {
    let (program, space) = (program("fake_mcp"), fixture.viber.space().display().to_string());
    let written = servers.iter().map(|(name, flags)| {
        let args: Vec<String> = flags.iter().map(|flag| flag.replace("SPACE", &space)).collect();
        format!("    {name}: {}\n", json!({ "command": program, "args": args, "env": { "OWL": "oak" } }))
    });
    write_servers(fixture, &written.collect::<String>());
}

/// Writes the configuration with these lines below `servers`.
fn write_servers(fixture: &Fixture<Viber>, lines: &str) {
    let config = format!("{}mcp:\n  servers:\n{lines}", fixture.llm.config("openai"));
    fixture.viber.write("config.yaml", &config);
}

/// The tools of servers that a request to the model offers.
fn offered(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let names = tools.iter().filter_map(|tool| tool["function"]["name"].as_str());
    names.filter(|name| name.starts_with("mcp__")).map(str::to_owned).collect()
}

/// What the `n`th call (from 0) of a task came back with.
async fn result(fixture: &Fixture<Viber>, task: &Value, n: usize) -> (bool, String) {
    let results = fixture.events_of_kind(task, "tool-result").await;
    let found = results.get(n).unwrap_or_else(|| panic!("no result {n} in {results:#?}"));
    let text = found["result"].as_str().map_or_else(|| found["result"].to_string(), str::to_owned);
    (found["ok"] == true, text)
}

/// What the viber reports of a server, once it is as wanted.
async fn reported(fixture: &Fixture<Viber>, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("{name} is reported"), async || {
        let path = format!("/api/v1/vibers/{}/mcp", fixture.viber_id);
        let listed = fixture.operator.get(&path).await.expect(200).json();
        let all = listed["items"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|server| server["name"] == name && wanted(server))
    })
    .await
}

/// The question that waits.
async fn asked(fixture: &Fixture<Viber>) -> Value {
    eventually("somebody is asked", async || {
        let list = fixture.operator.get("/api/v1/approvals?state=pending").await.expect(200).json();
        list["items"].get(0).cloned()
    })
    .await
}

/// Decides a question.
async fn decide(fixture: &Fixture<Viber>, asked: &Value, word: Value) {
    let mut body = json!({ "digest": asked["digest"] });
    body.as_object_mut().expect("an object").extend(word.as_object().expect("an object").clone());
    fixture.owner().post(&format!("/api/v1/approvals/{}", id(asked, "id")), &body).await.expect(200);
}
