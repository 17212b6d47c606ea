//! A work machine in a temporary folder, with one agent and one task on it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use daemon_agent::{
    artifacts::Collector,
    clock::Clock,
    config::{Agent, Config, Timeouts, toolset},
    home::Home,
    report::Sink,
    tools::{ToolContext, ToolOutcome, Toolbox},
    workspace::Workspace,
};
use protocol::{AgentMode, AgentStreamEvent, TaskId, TaskLimits};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The built daemon.
pub const DAEMON: &str = env!("CARGO_BIN_EXE_daemon-agent");

pub struct Machine {
    root: TempDir,
    pub stop: CancellationToken,
    pub task: TaskId,
    /// Command output that was streamed.
    pub streamed: Arc<Mutex<String>>,
    pub tools: Toolbox,
}

impl Machine {
    pub fn new() -> Self {
        Self::with_space("space")
    }

    /// A machine whose agent works in this folder.
    pub fn with_space(space: &str) -> Self {
        // As in the daemon: whatever the tools need of /proc has to work then too.
        daemon_agent::sandbox::keep_memory_private().expect("allowed for every process");
        let root = tempfile::tempdir().expect("a folder");
        for folder in
            ["space", "home/workspace", "home/state", "home/secrets", "home/agents", "home/artifacts", "other"]
        {
            std::fs::create_dir_all(root.path().join(folder)).expect("a folder");
        }
        for file in ["home/state/credential", "home/secrets/openai", "home/config.yaml", "home/.env"] {
            std::fs::write(root.path().join(file), "SECRET").expect("a file");
        }
        let space = root.path().join(space);
        let agent = Agent {
            id: "default".into(),
            name: "Default".into(),
            description: String::new(),
            model: "demo/tour".into(),
            fallback_model: None,
            max_steps: 25,
            temperature: None,
            max_tokens: None,
            context_window: None,
            mode: AgentMode::AlwaysExecute,
            rules: std::sync::Arc::default(),
            tools: toolset::ALL_TOOLS.iter().map(|tool| (*tool).to_owned()).collect(),
            skills: vec!["*".into()],
            delegates: Vec::new(),
            mcp: Vec::new(),
            spaces: vec![space],
            reach: std::sync::Arc::default(),
            env: vec!["CARGO_MANIFEST_DIR".into()],
            system_prompt: None,
            limits: TaskLimits::default(),
            leash: None,
            timeouts: Timeouts::default(),
            stream: None,
            results: protocol::prune::ResultCaps::default(),
            not_in_effect: Vec::new(),
        };
        let streamed = Arc::new(Mutex::new(String::new()));
        let hearing = streamed.clone();
        let sink = Sink::new(move |event| {
            if let AgentStreamEvent::ToolOutput { content, .. } = event {
                hearing.lock().expect("no panic").push_str(&content);
            }
            async {}
        });
        let stop = CancellationToken::new();
        let task = TaskId::new(1_700_000_000_000);
        let home = Home::at(root.path().join("home"));
        let collector = Collector::new(home.clone(), task.clone(), Clock::system(), sink.clone(), &stop);
        let context = ToolContext {
            workspace: Workspace::open(&home),
            home,
            collector,
            agent: Arc::new(agent),
            config: Arc::new(Config::default()),
            task_id: task.clone(),
            attempt: 1,
            sink,
            stop: stop.clone(),
        };
        let tools = Toolbox::new(context).with_hold(DAEMON);
        Self { root, stop, task, streamed, tools }
    }

    /// The same with other tools.
    pub fn using(mut self, change: impl FnOnce(Toolbox) -> Toolbox) -> Self {
        self.tools = change(self.tools);
        self
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// The content of a file in the space; waits until there is some.
    pub async fn said(&self, file: &str) -> String {
        let path = self.at("space").join(file);
        until(Duration::from_secs(10), || std::fs::read_to_string(&path).is_ok_and(|text| text.ends_with('\n'))).await;
        std::fs::read_to_string(path).expect("there").trim().to_owned()
    }

    /// The process ids that running commands wrote into a file of the space, as the machine numbers them: inside a
    /// process namespace a command sees others.
    pub async fn pids(&self, file: &str) -> Vec<u32> {
        let said = self.said(file).await;
        let said: Vec<u32> = said.split_whitespace().map(|pid| pid.parse().expect("a process id")).collect();
        let begin = Instant::now();
        loop {
            let numbers: HashMap<u32, u32> = self.living().into_iter().map(|pid| (own_number(pid), pid)).collect();
            let found: Vec<u32> = said.iter().filter_map(|pid| numbers.get(pid).copied()).collect();
            // Not of this task: it was started otherwise, and has the machine's process id.
            if numbers.is_empty() {
                return said;
            }
            // A process that is just being executed shows nothing of itself.
            if found.len() == said.len() {
                return found;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "{said:?} are not among {numbers:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The living processes of commands of this machine's task.
    pub fn living(&self) -> Vec<u32> {
        let mark = format!("OPENVIBER_TASK_ID={}", self.task);
        let all = std::fs::read_dir("/proc").expect("mounted").flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        };
        pids.filter(ours).filter(|pid| alive(*pid) && !is_supervisor(*pid)).collect()
    }

    pub async fn call(&self, tool: &str, args: Value) -> ToolOutcome {
        self.tools.call("call_1", tool, &args, None).await
    }

    pub async fn shell(&self, command: &str) -> ToolOutcome {
        self.call("shell", json!({ "command": command })).await
    }
}

/// A file tool's answer, which must be a success.
pub fn good(outcome: ToolOutcome) -> String {
    assert!(outcome.ok, "{}", outcome.result);
    outcome.result.as_str().expect("text").to_owned()
}

/// A file tool's error message.
pub fn bad(outcome: ToolOutcome) -> String {
    assert!(!outcome.ok && outcome.result["error"]["type"].is_string(), "{}", outcome.result);
    outcome.result["output"].as_str().expect("text").to_owned()
}

/// The process id that a process sees for itself.
fn own_number(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.and_then(|numbers| numbers.split_whitespace().last()?.parse().ok()).unwrap_or(pid)
}

/// Whether a process is a supervisor, or the first in a command's namespace: these have the command's environment too.
fn is_supervisor(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.starts_with(b"daemon-agent\0hold\0")
}

/// Whether a process is alive: neither gone nor waiting to be reaped.
pub fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

/// Waits until a condition holds; fails if it does not hold in time.
pub async fn until(at_most: Duration, mut so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !so() {
        assert!(begin.elapsed() < at_most, "it did not happen within {at_most:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The layers that confine commands here.
pub fn layers() -> daemon_agent::sandbox::Layers {
    daemon_agent::confinement::look(Path::new(DAEMON)).layers
}
