//! What configuration files mean, and what is reported about invalid ones.

use std::{fs, sync::mpsc, thread, time::Duration};

use super::*;

struct Fixture {
    folder: tempfile::TempDir,
    variables: Variables,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        Home::at(folder.path()).open().expect("a home");
        fs::create_dir(folder.path().join("vibers")).expect("a folder");
        Self {
            folder,
            variables: Variables::of([("HOME", "/home/mia"), ("OPENAI_API_KEY", "sk-env"), ("PORT", "9000")]),
        }
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        fs::write(self.folder.path().join(name), text).expect("written");
        self
    }

    fn read(&self) -> ConfigSnapshot {
        ConfigSnapshot::read(&Home::at(self.folder.path()), &self.variables)
    }

    fn agent(&self, text: &str) -> Result<Arc<Agent>, ConfigError> {
        self.file("agents/a.yaml", text).read().agent("a").expect("there")
    }
}

#[test]
fn an_empty_home_has_the_demo_and_keys_of_the_environment() {
    let fixture = Fixture::new();
    let read = fixture.file("agents/a.yaml", "").read();
    assert_eq!(read.agent("a").expect("there").expect("good").model, "demo/tour");
    assert_eq!(read.config.providers["openai"].api_key.as_deref(), Some("sk-env"));
    assert!(read.config.providers["anthropic"].api_key.is_none());
    assert!(read.config.shown.contains(&"openai".to_owned()) && !read.config.shown.contains(&"anthropic".to_owned()));
    assert!(read.agent("nobody").is_none());
}

#[test]
fn the_files_of_the_documentation_are_read() {
    let fixture = Fixture::new();
    fixture.file(
        "config.yaml",
        "providers:\n  anthropic: { api: anthropic, apiKey: \"${ANTHROPIC_API_KEY}\" }\n  local: { api: ollama, baseUrl: \"http://127.0.0.1:${PORT}/\" }\ndefaults: { model: anthropic/claude-sonnet-4-5 }\nmaxTasks: 2\nonDisconnect: stop_after 60\nsandbox: { write: [~/.cargo] }\n",
    );
    let agent = fixture
        .agent("name: Default\nmodel: local/qwen3\nfallbackModel: openai/gpt-5-mini\nmaxSteps: 25\ntemperature: 0.2\nmode: always_execute\ntools: [search, shell, plan, read_file]\nskills: [github]\nspaces: [~/code/my-webapp]\nenv: [CARGO_HOME]\nsystemPrompt: |\n  Be kind.\nlimits: { steps: 50, minutes: 60, costUsd: 5, onLimit: pause }\nleash: 20\ntimeouts: { shell: 60 }\nstream: full\n")
        .expect("good");
    assert_eq!(agent.tools, ["read_file", "glob", "grep", "shell", "read_output", "update_plan"]);
    assert_eq!((agent.skills.as_slice(), agent.not_in_effect.len()), (&["github".to_owned()][..], 0));
    assert_eq!((agent.fallback_model.as_deref(), agent.leash), (Some("openai/gpt-5-mini"), Some(20)));
    assert_eq!(agent.spaces, [PathBuf::from("/home/mia/code/my-webapp")]);
    assert_eq!((agent.max_steps, agent.timeouts.shell, agent.timeouts.default), (25, 60, 30));
    let config = fixture.read().config;
    assert_eq!((config.max_tasks, config.on_disconnect), (2, OnDisconnect::StopAfter(60)));
    assert_eq!(config.providers["local"].base_url, "http://127.0.0.1:9000");
    let anthropic = &config.providers["anthropic"];
    assert!(anthropic.api_key.is_none() && anthropic.warning.as_ref().is_some_and(|w| w.contains("ANTHROPIC_API_KEY")));
}

#[test]
fn a_mistake_names_file_line_and_what_was_expected() {
    let fixture = Fixture::new();
    for (text, line, word) in [
        ("name: A\nmodle: x/y\n", 2, "modle"),
        ("model: gpt\n", 1, "provider/model"),
        ("\nmodel: nobody/gpt\n", 2, "nobody"),
        ("tools: [file, fly]\n", 1, "fly"),
        ("maxSteps: 0\n", 1, "expected 1"),
        ("maxSteps: many\n", 1, "many"),
        ("mode: on\n", 1, "always_execute"),
        ("spaces: [code]\n", 1, "absolute"),
        ("env: [\"A B\"]\n", 1, "variable"),
        ("name: A\nname: B\n", 2, "name"),
        ("limits: { stepz: 1 }\n", 1, "stepz"),
        ("limits: { steps: 0 }\n", 1, "at least 1"),
        ("results:\n  tokens: 0\n", 2, "at least 16"),
        ("results:\n  perTool:\n    grep: 15\n", 3, "results.perTool.grep is 15, expected at least 16"),
        ("contextWindow: 8192\nresults: { tokens: 8193 }\n", 2, "more than the contextWindow of 8192"),
        ("contextWindow: 8192\nresults:\n  perTool: { shell: 9000 }\n", 3, "results.perTool.shell"),
        ("results:\n  perTool:\n    shel: 4000\n", 3, "no tool is called \"shel\""),
        ("results:\n  perTools: {}\n", 2, "perTools"),
        ("results: { tokens: many }\n", 1, "many"),
        ("name: [\n", 0, ""),
        ("name: !!python/object x\n", 1, ""),
        ("temperature: .nan\n", 1, "temperature"),
        ("approvals:\n  deny: [\"shell(\"]\n", 2, "bracket"),
        ("approvals:\n  allow: [shell]\n  asks: []\n", 3, "asks"),
        ("requireApproval:\n  - file\n  - shel\n", 3, "no tool or group is called \"shel\""),
    ] {
        let error = fixture.agent(text).expect_err(text);
        assert_eq!(error.file, "agents/a.yaml");
        assert!(line == 0 || error.line == line, "{text}: {error:?}");
        assert!(error.message.contains(word), "{text}: {error:?}");
    }
}

#[test]
fn results_are_bounded_by_tool_and_the_board_is_told() {
    let fixture = Fixture::new();
    let usual = fixture.agent("name: A\n").expect("good");
    assert_eq!((usual.results.of("shell"), usual.info().results.clone()), (8_000, None));
    let own =
        fixture.agent("contextWindow: 8192\nresults: { tokens: 2000, perTool: { shell: 8192 } }\n").expect("good");
    assert_eq!((own.results.of("shell"), own.results.of("grep")), (8_192, 2_000));
    assert_eq!(own.info().results, Some(own.results.clone()));
    let large = fixture.agent("results: { perTool: { shell: 50000 } }\n").expect("no window is said");
    assert_eq!((large.results.of("shell"), large.results.of("grep")), (50_000, 8_000));
}

#[test]
fn memory_is_configured_or_refused_by_name() {
    let fixture = Fixture::new();
    let usual = fixture.file("config.yaml", "").read();
    assert!(usual.config.daily_log && usual.config.embeddings.is_none());
    let text = "providers: { lab: { api: openai, baseUrl: \"http://127.0.0.1:1/v1\" } }\ndailyLog: false\n";
    let read = fixture.file("config.yaml", &format!("{text}memory: {{ embeddings: lab/small }}\n")).read();
    assert!(read.error.is_none() && !read.config.daily_log, "{:?}", read.error);
    assert_eq!(read.config.embeddings.as_deref(), Some("lab/small"));
    for (model, word) in [
        ("nowhere/small", "\"nowhere\""),
        ("small", "provider/model"),
        ("anthropic/x", "\"anthropic\""),
        ("echo/x", "\"echo\""),
    ] {
        let error = fixture.file("config.yaml", &format!("{text}memory:\n  embeddings: {model}\n")).read().error;
        let error = error.expect(model);
        assert!(error.line == 4 && error.message.contains(word), "{model}: {error:?}");
    }
    let error = fixture.file("config.yaml", "memory: { embedings: x/y }\n").read().error.expect("a typing error");
    assert!(error.message.contains("embedings"), "{error:?}");
}

#[test]
fn without_a_word_on_tools_an_agent_has_all() {
    let fixture = Fixture::new();
    assert_eq!(fixture.agent("name: A\n").expect("good").tools, toolset::ALL_TOOLS);
    assert!(fixture.agent("tools: []\n").expect("good").tools.is_empty());
}

#[test]
fn people_can_talk_to_every_agent_but_the_echo() {
    let fixture = Fixture::new();
    fixture.file("agents/a.yaml", "model: demo/tour\n").file("agents/b.yaml", "model: echo/1\n");
    fixture.file("agents/c.yaml", "model: openai/gpt-4o\n");
    let agents = fixture.read().state().agents.expect("agents");
    let can: Vec<_> = agents.into_iter().map(|info| info.capabilities).collect();
    use Capability::{Approve, Compact, Files, Images, Pause, Queue, Steer};
    let blind = vec![Steer, Queue, Approve, Pause, Files, Compact];
    assert_eq!(can, [blind.clone(), vec![], [blind, vec![Images]].concat()]);
}

#[test]
fn a_wrong_file_still_says_whose_it_is() {
    let fixture = Fixture::new();
    fixture.agent("name: Ada\nmodel: elsewhere/gone\n").expect_err("no such provider");
    let info = fixture.read().state().agents.expect("agents").remove(0);
    assert_eq!((info.name.as_str(), info.model.as_str()), ("Ada", "elsewhere/gone"));
    assert_eq!(info.error.map(|error| error.line), Some(2));
}

fn texts(rules: &[protocol::rules::Rule]) -> Vec<&str> {
    rules.iter().map(protocol::rules::Rule::as_str).collect()
}

#[test]
fn rules_of_an_agent_are_read_and_groups_stand_for_their_tools() {
    let fixture = Fixture::new();
    let text = "mode: viber_decides\nrequireApproval: [file, \"shell(git push **)\"]\n\
        approvals: { deny: [\"shell(sudo **)\"], ask: [remember], allow: [\"search(src/**)\"] }\n";
    let agent = fixture.agent(text).expect("good");
    assert_eq!(agent.mode, AgentMode::ViberDecides);
    assert!(agent.not_in_effect.is_empty());
    let files = ["read_file", "write_file", "edit_file", "list_files"];
    assert_eq!(texts(&agent.rules.ask), [&files[..], &["shell(git push **)", "remember"]].concat());
    assert_eq!(texts(&agent.rules.deny), ["shell(sudo **)"]);
    assert_eq!(texts(&agent.rules.allow), ["glob(src/**)", "grep(src/**)"]);
}

#[test]
fn the_machines_policy_is_read_and_reported() {
    let fixture = Fixture::new();
    fixture.file("policy.yaml", "deny: [\"shell(sudo **)\"]\nask: [file]\nmaxMode: viber_decides\n");
    let read = fixture.file("agents/a.yaml", "").read();
    let policy = &read.config.policy;
    assert_eq!((texts(&policy.rules.deny), policy.rules.ask.len()), (vec!["shell(sudo **)"], 4));
    assert!(read.errors().is_empty() && read.agent("a").expect("there").is_ok());
    let info = read.state().agents.expect("agents").remove(0);
    assert_eq!((info.mode, info.max_mode), (AgentMode::AlwaysExecute, Some(AgentMode::ViberDecides)));
}

#[test]
fn a_policy_that_cannot_be_read_stops_every_agent() {
    let fixture = Fixture::new();
    let good = fixture.file("agents/a.yaml", "").read();
    for (text, line, word) in [
        ("deny: [\"shell(\"]\n", 1, "bracket"),
        ("ask: []\nallow: [shell]\n", 2, "allow"),
        ("maxMode: sometimes\n", 1, "always_ask"),
        ("deny: [shel]\n", 1, "shel"),
        ("deny: [\n", 0, ""),
        ("just words\n", 0, ""),
        ("\n", 0, "is empty"),
        ("# deny: [shell]\n\n", 0, "is empty"),
    ] {
        let read = fixture.file("policy.yaml", text).read();
        let error = read.agent("a").expect("there").expect_err(text);
        assert_eq!((error.file.as_str(), read.errors()), ("policy.yaml", vec![&error]));
        assert!((line == 0 || error.line == line) && error.message.contains(word), "{text}: {error:?}");
        assert_eq!(read.state().agents.expect("agents")[0].error.as_ref(), Some(&error));
    }
    // The last good configuration stays in force when config.yaml is wrong as well, and the policy's error with it.
    let both = fixture.file("config.yaml", "maxTask: 8\n").read();
    let both = both.or_last_good(&good, &Home::at(fixture.folder.path()));
    assert_eq!((both.errors().len(), both.config.policy.error.is_some()), (2, true));
    fs::remove_file(fixture.folder.path().join("policy.yaml")).expect("removed");
    fs::create_dir(fixture.folder.path().join("policy.yaml")).expect("a folder");
    let error = fixture.file("config.yaml", "").read().agent("a").expect("there").expect_err("no file");
    assert_eq!((error.file.as_str(), error.line), ("policy.yaml", 0));
}

#[test]
fn files_of_the_predecessor_are_forgiven() {
    let fixture = Fixture::new();
    fixture.file("vibers/old.yaml", "name: Old\nworkingMode: fast\n").file("vibers/a.yaml", "name: Hidden\n");
    let read = fixture.file("agents/a.yaml", "name: Shown\n").read();
    assert_eq!(read.agent("old").expect("there").expect("good").not_in_effect, ["workingMode"]);
    assert_eq!(read.agent("a").expect("there").expect("good").name, "Shown");
}

#[test]
fn a_wrong_config_stops_every_agent_and_keeps_the_last_good_one() {
    let fixture = Fixture::new();
    let before = fixture.file("agents/a.yaml", "").file("config.yaml", "maxTasks: 7\nboardKeys: on\n").read();
    assert!(before.config.board_keys);
    let after = fixture
        .file("config.yaml", "maxTasks: 7\nmaxTask: 8\nboardKeys: on\n")
        .read()
        .or_last_good(&before, &Home::at(fixture.folder.path()));
    assert_eq!(after.config.max_tasks, 7);
    assert!(!after.config.board_keys, "a file that cannot be read lets nobody set keys");
    let error = after.agent("a").expect("there").expect_err("stopped");
    assert_eq!((error.file.as_str(), error.line), ("config.yaml", 2));
    assert_eq!(after.state().agents.expect("agents")[0].error.as_ref(), Some(&error));
}

#[test]
fn hostile_files_are_refused_fast() {
    let fixture = Fixture::new();
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 9].join(", ")));
    }
    let (large, deep) = (format!("name: {}", "x".repeat(1024 * 1024)), format!("tools: {}", "[".repeat(10_000)));
    // On a thread of its own, so that a parser that expands the aliases fails this test instead of blocking it.
    let (refused, all_refused) = mpsc::sync_channel(1);
    thread::spawn(move || {
        for text in [&bomb, &deep, &large] {
            assert!(fixture.agent(text).is_err());
            assert!(fixture.file("vibers/b.yaml", text).read().agent("b").expect("there").is_err());
        }
        let error = fixture.agent(&large).expect_err("too large");
        assert!(error.message.contains("larger than"), "it is not even parsed: {error:?}");
        let _ = refused.send(());
    });
    all_refused.recv_timeout(Duration::from_secs(60)).expect("all files are refused, and within a minute");
}

#[test]
fn names_of_files_are_ids_or_refused() {
    let fixture = Fixture::new();
    for name in ["a b", "x.", "ü", &"n".repeat(80)] {
        let error =
            fixture.file(&format!("agents/{name}.yaml"), "").read().agent(name).expect("shown").expect_err("refused");
        assert!(error.message.contains("name"), "{error:?}");
    }
}

#[test]
fn keys_of_files_win_and_open_files_are_told() {
    let fixture = Fixture::new();
    let read = fixture.file("secrets/openai", "sk-file\n").read();
    let openai = &read.config.providers["openai"];
    assert_eq!(openai.api_key.as_deref(), Some("sk-file"));
    assert!(openai.warning.is_some(), "the file was written open to others");
    assert!(!format!("{read:?}").contains("sk-file"));
}

#[test]
fn models_are_offered_that_the_files_name_and_a_key_is_there_for() {
    let fixture = Fixture::new();
    fixture.file("agents/a.yaml", "model: openai/gpt-5-mini\n").file("agents/b.yaml", "model: anthropic/keyless\n");
    fixture.file(
        "config.yaml",
        "providers:\n  openai: { models: [gpt-5, gpt-5-mini] }\n  local: { api: ollama, models: [qwen3] }\n",
    );
    let read = fixture.read();
    let offered: Vec<String> = read.offered_models().into_iter().collect();
    assert_eq!(offered, ["local/qwen3", "openai/gpt-5", "openai/gpt-5-mini"]);
    let providers = read.state().providers.expect("reported");
    let openai = providers.iter().find(|provider| provider.id == "openai").expect("shown");
    assert_eq!(openai.models, ["gpt-5", "gpt-5-mini"]);
    let wrong = fixture.file("config.yaml", "providers:\n  openai: { models: [\"\"] }\n").read();
    assert!(wrong.error.is_some_and(|error| error.line == 2 && error.message.contains("a model's name")));
}

#[test]
fn models_see_that_are_known_to_or_that_the_file_names() {
    let provider = |images: Option<&[&str]>| Provider {
        api: ProviderApi::OpenAi,
        base_url: String::new(),
        api_key: None,
        key_source: None,
        models: Vec::new(),
        images: images.map(|all| all.iter().map(|name| (*name).to_owned()).collect()),
        warning: None,
    };
    let known = provider(None);
    for name in [
        "claude-sonnet-4-5",
        "anthropic/claude-3-opus",
        "gpt-4o-mini",
        "o3",
        "qwen2.5vl:7b",
        "Llama3.2-Vision",
        "gemma3:4b",
    ] {
        assert!(known.sees(name), "{name}");
    }
    for name in ["claude-2.1", "gpt-3.5-turbo", "o3-mini", "qwen3", "deepseek-chat", "gemma3:1b", "tour"] {
        assert!(!known.sees(name), "{name}");
    }
    let named = provider(Some(&["mine"]));
    assert!(named.sees("mine") && !named.sees("gpt-4o") && provider(Some(&["*"])).sees("any"));
    assert!(!provider(Some(&[])).sees("gpt-4o"));
}
