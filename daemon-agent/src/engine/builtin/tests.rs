//! The whole loop with a scripted provider and the real tools.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use protocol::{SessionId, StepState, TaskId};
use serde_json::{Value, json};
use tokio::{sync::Notify, time::timeout};
use tokio_util::sync::CancellationToken;

mod approvals;
mod compact;
mod context;
mod failures;
mod limits;
mod mesh;
mod messages;
mod pauses;
mod playbook;
mod prune;
mod rest;
mod skills;

use super::*;
use crate::{
    artifacts::Collector,
    config::{Agent, Config, ConfigSnapshot, ProviderApi, Timeouts, toolset},
    home::Home,
    memory::Memory,
    model::scripted::{ScriptedProvider, ScriptedReply},
    outbox::EventFitter,
    report::{
        ActiveTime, Approvals, Children, Inbox, PauseSwitch, Place, Rest, Sink, activity::ActivityRecorder,
        children::testing::NotedWishes,
    },
    skills::Skills,
    workspace::Workspace,
};

/// A viber with one agent and one task, and everything that it reports.
struct Fixture {
    _folder: tempfile::TempDir,
    task: TaskId,
    home: Home,
    agent: Agent,
    config: Config,
    limits: protocol::TaskLimits,
    events: Arc<Mutex<Vec<AgentStreamEvent>>>,
    reported: Arc<Notify>,
    stop: CancellationToken,
    inbox: Inbox,
    pause: PauseSwitch,
    rest: Rest,
    active_time: ActiveTime,
    approvals: Approvals,
    wishes: NotedWishes,
    skills: Skills,
    /// Called before an event is kept.
    hook: Arc<Mutex<Box<Hook>>>,
}

type Hook = dyn FnMut(&AgentStreamEvent) + Send;

impl Fixture {
    fn new(endpoint: &ScriptedProvider) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        std::fs::create_dir_all(home.workspace()).expect("a workspace");
        let agent = Agent {
            id: "dev".to_owned(),
            name: "Dev".to_owned(),
            description: String::new(),
            model: "acme/m1".to_owned(),
            fallback_model: None,
            max_steps: 5,
            temperature: None,
            max_tokens: None,
            context_window: Some(100_000),
            mode: protocol::AgentMode::AlwaysExecute,
            rules: std::sync::Arc::default(),
            tools: toolset::ALL_TOOLS.iter().map(|name| (*name).to_owned()).collect(),
            skills: vec![],
            delegates: vec![],
            spaces: vec![],
            reach: std::sync::Arc::default(),
            env: vec![],
            system_prompt: None,
            limits: protocol::TaskLimits::default(),
            leash: None,
            timeouts: Timeouts::default(),
            stream: None,
            results: protocol::prune::ResultCaps::default(),
            mcp: vec![],
            not_in_effect: vec![],
        };
        let task = TaskId::new(1);
        let record = home.waiting_record(&protocol::AttemptRef { task_id: task.clone(), attempt: 1 });
        let config = Config {
            providers: [("acme".to_owned(), endpoint.provider(ProviderApi::OpenAi))].into(),
            ..Config::default()
        };
        Self {
            _folder: folder,
            task,
            home,
            agent,
            config,
            limits: protocol::TaskLimits::default(),
            events: Arc::default(),
            reported: Arc::default(),
            stop: CancellationToken::new(),
            inbox: Inbox::default(),
            pause: PauseSwitch::default(),
            rest: rest::granted(record, Place::Taken),
            active_time: ActiveTime::start(),
            approvals: Approvals::default(),
            wishes: NotedWishes::default(),
            skills: Skills::none(),
            hook: Arc::new(Mutex::new(Box::new(|_| {}))),
        }
    }

    fn run(&self, goal: &str) -> EngineRun {
        let (events, reported, hook) = (self.events.clone(), self.reported.clone(), self.hook.clone());
        let base = json!({ "taskId": self.task, "attempt": 1, "sessionId": SessionId::new(1), "agentId": "dev", "goal": goal, "limits": self.limits });
        let heard = self.events.clone();
        self.inbox.open(move |event| heard.lock().expect("no test panics with it").push(event));
        let sink = Sink::new(move |event| {
            hook.lock().expect("no test panics with it")(&event);
            events.lock().expect("no test panics with it").push(event);
            reported.notify_one();
            async {}
        });
        EngineRun {
            submit: serde_json::from_value(base).expect("a task"),
            agent: Arc::new(self.agent.clone()),
            config: Arc::new(self.config.clone()),
            home: self.home.clone(),
            memory: self.memory(),
            skills: self.skills.clone(),
            mcp: crate::mcp::McpServers::none(),
            collector: Collector::new(self.home.clone(), self.task.clone(), Clock::system(), sink.clone(), &self.stop),
            sink,
            stop: self.stop.clone(),
            approvals: self.approvals.clone(),
            children: Children::new(Vec::new(), self.approvals.clone(), self.wishes.clone()),
            inbox: self.inbox.clone(),
            pause: self.pause.clone(),
            rest: self.rest.clone(),
            resumed: None,
            space: None,
            activity: ActivityRecorder::default(),
            active_time: self.active_time.clone(),
            local: false,
        }
    }

    fn memory(&self) -> Memory {
        let files = ConfigSnapshot { config: Arc::new(self.config.clone()), agents: Default::default(), error: None };
        Memory::new(
            self.home.clone(),
            Workspace::open(&self.home),
            Clock::system(),
            tokio::sync::watch::channel(Arc::new(files)).1,
        )
    }

    fn events(&self) -> Vec<AgentStreamEvent> {
        self.events.lock().expect("no test panics with it").clone()
    }

    fn steps(&self) -> Vec<(u32, StepState)> {
        let steps = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::Step { n, state, .. } => Some((n, state)),
            _ => None,
        });
        steps.collect()
    }

    /// The results as they were reported: (tool, ok, text).
    fn results(&self) -> Vec<(String, bool, String)> {
        let results = self.events().into_iter().filter_map(|event| match event {
            AgentStreamEvent::ToolResult { tool, ok, result, .. } => {
                let said = result.as_str().or(result["output"].as_str()).unwrap_or_default();
                Some((tool, ok, said.to_owned()))
            }
            _ => None,
        });
        results.collect()
    }

    fn log(&self) -> Vec<Value> {
        let path = self.home.session_log("dev", SessionId::new(1).as_str());
        let folder =
            std::fs::read_dir(path.parent().expect("a folder")).expect("sessions").flatten().next().expect("a log");
        let text = std::fs::read_to_string(folder.path()).expect("the log");
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

/// Limits at which the task ends.
fn stopping() -> protocol::TaskLimits {
    protocol::TaskLimits { on_limit: Some(protocol::LimitPolicy::Stop), ..protocol::TaskLimits::default() }
}

fn says(text: &str) -> ScriptedReply {
    ScriptedReply::chunks(&[delta(json!({ "content": text })), ends("stop")])
}

fn calls(all: &[(&str, &str)]) -> ScriptedReply {
    let all = all.iter().enumerate();
    let calls: Vec<Value> = all.map(|(i, (name, args))| json!({ "index": i, "id": format!("c{i}"), "function": { "name": name, "arguments": args } })).collect();
    ScriptedReply::chunks(&[delta(json!({ "tool_calls": calls })), ends("stop")])
}

fn delta(delta: Value) -> Value {
    json!({ "choices": [{ "delta": delta }] })
}

fn ends(reason: &str) -> Value {
    json!({ "choices": [{ "delta": {}, "finish_reason": reason }], "usage": { "prompt_tokens": 10, "completion_tokens": 5 } })
}

fn error(outcome: EngineOutcome) -> TaskError {
    match outcome {
        EngineOutcome::Failed(error) => error,
        other => panic!("not a failure: {other:?}"),
    }
}

fn result(outcome: EngineOutcome) -> TaskResult {
    match outcome {
        EngineOutcome::Completed(result) => result,
        other => panic!("no result: {other:?}"),
    }
}

#[tokio::test]
async fn tools_work_and_their_results_go_back_until_the_model_is_done() {
    let endpoint = ScriptedProvider::start(vec![
        calls(&[("write_file", r#"{"path":"a.txt","content":"hello\n"}"#)]),
        calls(&[("read_file", r#"{"path":"a.txt"}"#), ("list_files", "")]),
        says("Done.\n\nIt works."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    let result = result(run(fixture.run("Write a.txt")).await);
    assert_eq!(
        (result.text.as_str(), result.summary.as_str(), result.usage.input_tokens),
        ("Done.\n\nIt works.", "Done.", 30)
    );
    let results = fixture.results();
    assert!(results.iter().all(|(_, ok, _)| *ok) && results.len() == 3, "{results:?}");
    assert_eq!(std::fs::read_to_string(fixture.home.workspace().join("a.txt")).expect("the file"), "hello\n");
    assert_eq!(
        fixture.steps(),
        (1..=3).flat_map(|n| [(n, StepState::Started), (n, StepState::Finished)]).collect::<Vec<_>>()
    );
    let last = endpoint.seen()[2].body["messages"].as_array().expect("messages").clone();
    let roles: Vec<_> = last.iter().map(|message| message["role"].as_str().expect("a role")).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool", "assistant", "tool", "tool"]);
    assert_eq!(last[1]["content"], "Write a.txt");
    let ids: std::collections::HashSet<_> =
        last.iter().filter_map(|message| message["tool_call_id"].as_str()).collect();
    assert_eq!(ids.len(), 3, "a repeated id is replaced");
    assert!(last[5]["content"].as_str().expect("text").contains("hello"));
    let kinds: Vec<_> = fixture.log().iter().map(|line| line["type"].as_str().expect("a type").to_owned()).collect();
    assert_eq!(
        kinds,
        [
            "goal",
            "tool-call",
            "tool-result",
            "tool-call",
            "tool-result",
            "tool-call",
            "tool-result",
            "text",
            "completed"
        ]
    );
}

#[tokio::test]
async fn what_cannot_be_executed_goes_back_to_the_model() {
    let cut = ScriptedReply::chunks(&[
        delta(
            json!({ "tool_calls": [{ "index": 0, "id": "x", "function": { "name": "write_file", "arguments": "{\"path\":\"b.txt\",\"content\":\"half\"}" } }] }),
        ),
        ends("length"),
    ]);
    let endpoint = ScriptedProvider::start(vec![
        calls(&[("write_file", "{\"path\": \"b.txt")]),
        cut,
        calls(&[("fly", "{}")]),
        says("I give up."),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    result(run(fixture.run("x")).await);
    let results = fixture.results();
    assert!(results.iter().all(|(_, ok, _)| !ok), "{results:?}");
    assert!(
        results[0].2.contains("not a JSON object")
            && results[1].2.contains("output limit")
            && results[2].2.contains("fly"),
        "{results:?}"
    );
    assert!(!fixture.home.workspace().join("b.txt").exists());
    let sent = &endpoint.seen()[1].body["messages"][2]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(sent, r#"{"unparsed":"{\"path\": \"b.txt"}"#);
}

#[tokio::test]
async fn a_call_that_fails_again_and_again_is_remarked_in_its_result() {
    let fails = || calls(&[("read_file", r#"{"path":"nowhere"}"#)]);
    let endpoint = ScriptedProvider::start(vec![fails(), fails(), fails(), says("I give up.")]).await;
    let fixture = Fixture::new(&endpoint);
    result(run(fixture.run("x")).await);
    let messages = endpoint.seen()[3].body["messages"].as_array().expect("messages").clone();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    let told: Vec<bool> = results.map(|message| message["content"].to_string().contains("3 times in a row")).collect();
    assert_eq!(told, [false, false, true]);
    assert!(
        fixture.results().iter().all(|(_, ok, text)| !ok && !text.contains("in a row")),
        "people see the tool's words"
    );
}

#[tokio::test]
async fn a_flood_of_calls_is_cut_and_every_call_is_answered() {
    let flood: Vec<(&str, &str)> = (0..70).map(|_| ("list_files", "{}")).collect();
    let endpoint = ScriptedProvider::start(vec![calls(&flood), says("Sorry.")]).await;
    let fixture = Fixture::new(&endpoint);
    result(run(fixture.run("x")).await);
    assert_eq!(fixture.results().len(), 64);
    let sent = endpoint.seen()[1].body["messages"].as_array().expect("messages").clone();
    assert_eq!(sent.iter().filter(|message| message["role"] == "tool").count(), 70);
    assert!(sent.last().expect("a message")["content"].as_str().expect("text").contains("at most 64"));
}

#[tokio::test]
async fn whatever_a_provider_makes_up_stays_within_bounds() {
    let strange = json!({ "index": 0, "id": "x\u{0}".repeat(9000), "function": { "name": "n".repeat(300_000), "arguments": "{}" } });
    let mut end = ends("stop");
    end["usage"] = json!({ "prompt_tokens": u64::MAX, "completion_tokens": u64::MAX, "cost": -1 });
    let first = ScriptedReply::chunks(&[delta(json!({ "content": "a\u{0}b", "tool_calls": [strange] })), end.clone()]);
    let last = ScriptedReply::chunks(&[delta(json!({ "content": "é".repeat(200_000) })), end]);
    let endpoint = ScriptedProvider::start(vec![first, last]).await;
    let fixture = Fixture::new(&endpoint);
    let result = result(run(fixture.run("x")).await);
    assert!(result.text == "é".repeat(200_000) && result.usage.cost_usd.is_none());
    // The reporter shortens the text and keeps the rest in a file.
    let fitted = EventFitter::new(fixture.home.clone(), TaskId::new(1)).result(result.clone(), protocol::Instant(1));
    assert!(fitted.text.len() <= protocol::limits::MAX_RESULT_TEXT_BYTES);
    let whole = fitted.artifact_refs[0].reference.as_ref().expect("a file");
    assert_eq!(std::fs::read_to_string(fixture.home.root().join(whole)).expect("kept"), result.text);
    for event in fixture.events() {
        let text = serde_json::to_string(&event).expect("JSON");
        assert!(text.len() < 100_000 && !text.contains("\\u0000"), "{}", &text[..200]);
    }
}

#[tokio::test]
async fn a_withdrawn_answer_is_a_discarded_step() {
    let half = ScriptedReply::stream(&format!("data: {}\n\n", delta(json!({ "content": "half an ans" }))));
    let limited = ScriptedReply::refusal(429, r#"{"error":{"message":"slow down"}}"#).header("Retry-After", "0");
    let endpoint = ScriptedProvider::start(vec![half, limited, says("whole")]).await;
    let fixture = Fixture::new(&endpoint);
    assert_eq!(result(run(fixture.run("x")).await).text, "whole");
    use StepState::{Discarded, Finished, Started};
    assert_eq!(
        fixture.steps(),
        [(1, Started), (1, Discarded), (2, Started), (2, Discarded), (3, Started), (3, Finished)]
    );
    let notices = fixture
        .events()
        .into_iter()
        .filter(|event| matches!(event, AgentStreamEvent::Notice { text, .. } if text.contains("Trying again")));
    assert_eq!(notices.count(), 2);
    let pauses = fixture.events().into_iter().filter(|event| {
        matches!(event, AgentStreamEvent::StateChange { state: ActivityState::Waiting, waiting: Some(pause) }
            if pause.cause == protocol::PauseCause::RateLimit && pause.until.is_some())
    });
    assert_eq!(pauses.count(), 2);
}

#[tokio::test]
async fn the_third_failure_and_any_hopeless_one_end_the_task() {
    let limited = ScriptedReply::refusal(429, "{}").header("Retry-After", "0");
    for (reply, code, asked) in [
        (limited, ErrorCode::ProviderRateLimited, 3),
        (ScriptedReply::refusal(429, "{}").header("Retry-After", "25200"), ErrorCode::ProviderRateLimited, 1),
        (ScriptedReply::refusal(401, r#"{"error":{"message":"bad key sk-very-secret"}}"#), ErrorCode::ProviderAuth, 1),
        (ScriptedReply::refusal(429, r#"{"error":{"code":"insufficient_quota"}}"#), ErrorCode::ProviderRateLimited, 1),
        (ScriptedReply::chunks(&[ends("content_filter")]), ErrorCode::ContentPolicy, 1),
    ] {
        let endpoint = ScriptedProvider::start(vec![reply]).await;
        let fixture = Fixture::new(&endpoint);
        let error = error(run(fixture.run("x")).await);
        assert_eq!((error.code, endpoint.seen().len()), (code, asked));
        assert!(!error.message.contains("very-secret") && error.suggestion.is_some(), "{error:?}");
    }
}

#[tokio::test]
async fn limits_end_the_task_by_their_names() {
    let endless = || ScriptedProvider::start(vec![calls(&[("list_files", "{}")])]);
    let endpoint = endless().await;
    let fixture = Fixture::new(&endpoint);
    let error_of = |outcome| error(outcome);
    assert_eq!(error_of(run(fixture.run("x")).await).code, ErrorCode::MaxStepsReached);
    assert_eq!(endpoint.seen().len(), 5);
    let limits = [
        protocol::TaskLimits { steps: Some(2), ..protocol::TaskLimits::default() },
        protocol::TaskLimits { tool_calls: Some(2), ..protocol::TaskLimits::default() },
        protocol::TaskLimits { tokens: Some(25), ..protocol::TaskLimits::default() },
    ];
    for (limits, name, asked) in
        limits.into_iter().zip(["steps", "toolCalls", "tokens"]).zip([2, 3, 2]).map(|((a, b), c)| (a, b, c))
    {
        let endpoint = endless().await;
        let mut fixture = Fixture::new(&endpoint);
        fixture.agent.limits = protocol::TaskLimits { steps: Some(4), ..stopping() };
        fixture.limits = limits;
        let error = error_of(run(fixture.run("x")).await);
        assert_eq!((error.code, endpoint.seen().len()), (ErrorCode::BudgetExceeded, asked), "{name}");
        assert!(error.message.contains(name), "{}", error.message);
    }
}

#[tokio::test]
async fn a_stop_drops_the_model_call_at_once() {
    let mut endpoint = ScriptedProvider::start(vec![
        ScriptedReply::stream(&format!("data: {}\n\n", delta(json!({ "content": "begun" })))).silent(),
    ])
    .await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.run("x")));
    while !fixture.events().iter().any(|event| matches!(event, AgentStreamEvent::TextDelta { .. })) {
        fixture.reported.notified().await;
    }
    fixture.stop.cancel();
    // Without the stop, the silent stream is given up after 90 s.
    let outcome = timeout(Duration::from_secs(20), running).await.expect("at once").expect("no panic");
    assert!(matches!(outcome, EngineOutcome::Stopped { killed: 0 }), "{outcome:?}");
    timeout(Duration::from_secs(20), endpoint.hang_up()).await.expect("the endpoint sees it");
    assert_eq!(fixture.log().last().expect("a line")["type"], "stopped");
}

#[tokio::test]
async fn a_stop_ends_the_wait_for_a_retry() {
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::refusal(503, "").header("Retry-After", "30")]).await;
    let fixture = Fixture::new(&endpoint);
    let running = tokio::spawn(run(fixture.run("x")));
    while !fixture.events().iter().any(|event| matches!(event, AgentStreamEvent::Notice { .. })) {
        fixture.reported.notified().await;
    }
    fixture.stop.cancel();
    // Without the stop, the retry begins after 30 s.
    let outcome = timeout(Duration::from_secs(20), running).await.expect("at once").expect("no panic");
    assert!(matches!(outcome, EngineOutcome::Stopped { .. }));
}

#[tokio::test]
async fn without_a_provider_or_its_key_the_task_says_what_to_do() {
    let endpoint = ScriptedProvider::start(vec![says("never asked")]).await;
    let mut fixture = Fixture::new(&endpoint);
    for (model, code, part) in [
        ("nope/m1", ErrorCode::NotFound, "acme"),
        ("m1", ErrorCode::BadRequest, "provider/model"),
        ("demo/other", ErrorCode::NotFound, "demo/tour"),
        ("openai/gpt-5", ErrorCode::ProviderAuth, "no API key for openai/gpt-5"),
    ] {
        let provider = crate::config::Provider {
            api: ProviderApi::OpenAi,
            base_url: "https://api.openai.com/v1".to_owned(),
            api_key: None,
            key_source: None,
            models: Vec::new(),
            images: None,
            warning: None,
        };
        fixture.config.providers.insert("openai".to_owned(), provider);
        fixture.agent.model = model.to_owned();
        let error = error(run(fixture.run("x")).await);
        assert_eq!(error.code, code, "{model}");
        assert!(error.message.contains(part) && error.suggestion.is_some(), "{error:?}");
    }
    assert!(endpoint.seen().is_empty());
}
