//! A memory as agents and people use it: with real files and a real index.

use std::{fs, path::PathBuf};

use protocol::{AttemptRef, Instant as At, MemorySource, SessionId, TaskId, TaskSubmit};
use serde_json::json;
use sqlx::Connection as _;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    config::{Config, ProviderApi},
    model::scripted::{ScriptedProvider, ScriptedReply},
    workspace::Author,
};

/// 2026-03-01T12:00:00Z.
const NOON: i64 = 1_772_366_400_000;

struct Fixture {
    folder: tempfile::TempDir,
    memory: Memory,
    files: watch::Sender<Arc<ConfigSnapshot>>,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::at(folder.path());
        home.open().expect("a home");
        let snapshot = ConfigSnapshot { config: Arc::default(), agents: BTreeMap::new(), error: None };
        let (sender, receiver) = watch::channel(Arc::new(snapshot));
        let memory = Memory::new(home.clone(), Workspace::open(&home), Clock::fixed(At(NOON)), receiver);
        let fixture = Self { folder, memory, files: sender };
        files.iter().for_each(|(path, text)| fixture.write(path, text));
        fixture
    }

    /// The same home with a memory that has read nothing yet.
    fn anew(self) -> Self {
        let home = Home::at(self.folder.path());
        let memory = Memory::new(home.clone(), Workspace::open(&home), Clock::fixed(At(NOON)), self.files.subscribe());
        Self { memory, ..self }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        fs::write(path, text).expect("written");
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_default()
    }

    async fn search(&self, query: &str) -> MemoryFound {
        let asked = MemorySearch { agent_id: "dev".to_owned(), query: query.to_owned(), limit: Some(10) };
        self.memory.search(&asked).await.expect("an answer")
    }

    /// Where matches lie, best first.
    async fn places(&self, query: &str) -> Vec<String> {
        self.search(query).await.items.into_iter().map(|item| item.path).collect()
    }

    fn embed_with(&self, endpoint: Option<&ScriptedProvider>) {
        let providers = endpoint.map(|endpoint| ("lab".to_owned(), endpoint.provider(ProviderApi::OpenAi)));
        let embeddings = endpoint.map(|_| "lab/small".to_owned());
        let config = Config { providers: providers.into_iter().collect(), embeddings, ..Config::default() };
        self.files.send_modify(|now| *now = Arc::new(ConfigSnapshot { config: Arc::new(config), ..(**now).clone() }));
    }
}

fn submit(goal: &str) -> TaskSubmit {
    let (task, session) = (TaskId::new(1), SessionId::new(1));
    let base = json!({ "taskId": task, "attempt": 1, "sessionId": session, "agentId": "dev", "goal": goal });
    serde_json::from_value(base).expect("a task")
}

fn task_summary(attempt: &AttemptRef) -> TaskSummary {
    TaskSummary {
        attempt: attempt.clone(),
        session_id: "ses_1".to_owned(),
        agent_id: "dev".to_owned(),
        goal: "Mend the turbine".to_owned(),
        outcome: SummaryOutcome::Completed("It turns.".to_owned()),
        decisions: vec![],
        artifacts: vec![],
        plan: None,
        page: None,
    }
}

#[tokio::test]
async fn all_that_is_remembered_is_found_with_where_it_stands() {
    let goal = json!({ "at": "2026-02-28T10:00:00.000Z", "type": "goal", "text": "Find the leak" });
    let output = json!({ "type": "tool-result", "result": "the pump says zebra" });
    let said = json!({ "type": "text", "text": "The pump leaks." });
    let fixture = Fixture::new(&[
        ("workspace/MEMORY.md", "# Memory\n\n## Building\n\nRun `make giraffe` first.\n"),
        ("agents/dev/MEMORY.md", "The elephant is mine.\n"),
        (
            "workspace/memory/2026-02-27.md",
            "# 2026-02-27\n\n## 09:30 Clean the pump\n<!-- task_1 1 -->\n\nCompleted: clean.\n",
        ),
        ("agents/dev/sessions/ses_7.jsonl", &format!("{goal}\n{output}\n{said}\n")),
        ("agents/other/sessions/ses_8.jsonl", &goal.to_string()),
        ("secrets/openai", "giraffe elephant pump"),
        ("state/credential", "giraffe elephant pump"),
        ("config.yaml", "# giraffe elephant pump\n"),
        ("workspace/notes.md", "giraffe elephant pump"),
    ]);
    let giraffe = fixture.search("GIRAFFE?").await;
    assert_eq!((giraffe.items.len(), giraffe.known, giraffe.ranking), (1, 4, MemoryRanking::Text));
    let item = &giraffe.items[0];
    assert_eq!(
        (item.source, item.path.as_str(), item.title.as_str()),
        (MemorySource::Curated, "workspace/MEMORY.md", "Building")
    );
    assert_eq!(item.excerpt, "Run `make giraffe` first.");
    assert_eq!(fixture.places("elephant").await, ["agents/dev/MEMORY.md"]);
    let pump = fixture.search("pump").await.items;
    assert_eq!(pump.len(), 2, "{pump:?}");
    let session = pump.iter().find(|item| item.source == MemorySource::Session).expect("the session");
    assert_eq!((session.session_id.as_deref(), session.title.as_str()), (Some("ses_7"), "Find the leak"));
    assert_eq!(session.at.map(|at| at.to_string()).as_deref(), Some("2026-02-28T10:00:00.000Z"));
    assert!(fixture.search("zebra").await.items.is_empty(), "what tools say is not remembered");
    assert!(fixture.search("task_1").await.items.is_empty(), "marks are not remembered");
    assert_eq!(fixture.places("leaking pumps").await[0], "agents/dev/sessions/ses_7.jsonl", "endings do not matter");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(fixture.at("memory/dev.sqlite")).expect("there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn whatever_is_typed_is_words() {
    let fixture = Fixture::new(&[("workspace/MEMORY.md", "plain words, 日本語のテスト, naïve façade\n")]);
    let long = "word ".repeat(2_000);
    for query in [
        "",
        " ",
        "\"",
        "'",
        "words\"",
        "\" OR 1",
        "AND",
        "OR NOT",
        "words AND",
        "NEAR(plain words, 2)",
        "title: plain",
        "^plain",
        "pl*",
        "*",
        "(",
        "plain)",
        "-words",
        "{plain words}: x",
        "🎉",
        "🎉 words",
        "\u{0}",
        "plain\u{0}words",
        "%_;--",
        "\\",
        "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
        "\u{301}",
        &long,
        &"x".repeat(10_000),
        &"\"*(".repeat(3_000),
    ] {
        fixture.search(query).await;
    }
    for query in ["words NEAR plain", "naive", "FACADE", "日本", "テスト", "plain-words", "pla"] {
        assert_eq!(fixture.places(query).await.len(), 1, "{query}");
    }
    assert!(fixture.search("本日").await.items.is_empty());
    let asked = MemorySearch { agent_id: "../../state/x".to_owned(), query: "x".to_owned(), limit: None };
    assert!(fixture.memory.search(&asked).await.is_err() && !fixture.at("state/x.sqlite").exists());
}

#[tokio::test]
async fn changes_are_found_and_what_is_gone_is_not() {
    let fixture = Fixture::new(&[("workspace/MEMORY.md", "first\n"), ("workspace/memory/2026-02-27.md", "second\n")]);
    assert_eq!(fixture.places("first").await.len(), 1);
    fixture.write("workspace/MEMORY.md", "third thing\n");
    fs::remove_file(fixture.at("workspace/memory/2026-02-27.md")).expect("removed");
    fixture.write("workspace/memory/2026-02-28.md", "fourth\n");
    assert!(fixture.search("first").await.items.is_empty() && fixture.search("second").await.items.is_empty());
    assert_eq!((fixture.places("third").await.len(), fixture.places("fourth").await.len()), (1, 1));
    assert_eq!(fixture.search("third").await.known, 2);
}

#[tokio::test]
async fn with_a_watcher_only_what_it_tells_is_looked_at() {
    let fixture = Fixture::new(&[("workspace/MEMORY.md", "first\n")]);
    let finish = CancellationToken::new();
    let workspace = fixture.memory.workspace();
    tokio::spawn(workspace.clone().follow(finish.clone()));
    workspace.followed().await;
    assert_eq!(fixture.places("first").await.len(), 1);
    fixture.write("workspace/MEMORY.md", "second\n");
    let indexed = async {
        while fixture.places("second").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), indexed).await.expect("found in time");
    // What the daemon itself wrote is found at once.
    let goal = json!({ "type": "goal", "text": "Look at the moon" });
    fixture.write("agents/dev/sessions/ses_9.jsonl", &goal.to_string());
    assert!(fixture.search("moon").await.items.is_empty());
    fixture.memory.logged("dev", "ses_9");
    assert_eq!(fixture.places("moon").await.len(), 1);
    fixture.memory.add_note("Buy cheese.", Author::Agent).await.expect("written");
    assert_eq!(fixture.places("cheese").await.len(), 1);
    finish.cancel();
    let left = async {
        while workspace.is_followed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), left).await.expect("it ends");
    fixture.write("workspace/MEMORY.md", "third\n");
    assert_eq!(fixture.places("third").await.len(), 1, "where nobody watches everything is looked at");
}

#[tokio::test]
async fn an_index_that_is_gone_broken_or_of_another_make_is_made_anew() {
    let mut fixture = Fixture::new(&[("workspace/MEMORY.md", "the giraffe\n")]);
    assert_eq!(fixture.places("giraffe").await.len(), 1);
    let path = fixture.at("memory/dev.sqlite");
    fs::remove_file(&path).expect("removed");
    assert_eq!(fixture.places("giraffe").await.len(), 1, "while it is open");
    assert!(path.exists());
    for broken in [b"no database at all, but long enough to look like one".repeat(100), Vec::new()] {
        fs::write(&path, &broken).expect("written");
        fixture = fixture.anew();
        assert_eq!(fixture.places("giraffe").await.len(), 1);
    }
    // The remaining pages.
    let mut bytes = fs::read(&path).expect("there");
    if bytes.len() > 8192 {
        bytes[4096..].fill(0xa5);
        index::remove(&path).expect("removed");
        fs::write(&path, &bytes).expect("written");
        fixture = fixture.anew();
        assert_eq!(fixture.places("giraffe").await.len(), 1);
    }
    fixture = fixture.anew();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut other = sqlx::SqliteConnection::connect_with(&options).await.expect("opened");
    sqlx::raw_sql("PRAGMA user_version = 999").execute(&mut other).await.expect("changed");
    other.close().await.expect("closed");
    assert_eq!(fixture.places("giraffe").await.len(), 1);
    assert_eq!(fixture.search("giraffe").await.known, 1);
}

#[tokio::test]
async fn a_place_where_no_index_can_be_is_told_and_nothing_breaks() {
    let fixture = Fixture::new(&[("workspace/MEMORY.md", "the giraffe\n")]);
    fixture.write("memory", "a file where the folder should be");
    let asked = MemorySearch { agent_id: "dev".to_owned(), query: "giraffe".to_owned(), limit: None };
    assert!(fixture.memory.search(&asked).await.expect_err("no index").contains("memory index"));
    let recall = fixture.memory.recall(&submit("the giraffe")).await;
    assert_eq!(recall.0.len(), 1, "the files themselves are there: {recall:?}");
}

#[tokio::test]
async fn a_task_has_one_entry_whoever_tells_its_end() {
    let fixture = Fixture::new(&[]);
    let day = fixture.memory.local().date();
    let log = format!("workspace/memory/{day}.md");
    let first = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
    assert_eq!(fixture.memory.log_task(&task_summary(&first)).await, Ok(true));
    assert_eq!(fixture.memory.log_task(&task_summary(&first)).await, Ok(false));
    assert_eq!(fixture.memory.log_task(&task_summary(&AttemptRef { attempt: 2, ..first.clone() })).await, Ok(true));
    let text = fixture.read(&log);
    assert!(text.starts_with(&format!("# {day}\n\n## ")), "{text}");
    assert_eq!((text.matches("Mend the turbine").count(), text.matches("attempt 2").count()), (2, 1), "{text}");
    // The end is reported again on the next day.
    let yesterday = day.yesterday().expect("a day");
    fs::rename(fixture.at(&log), fixture.at(&format!("workspace/memory/{yesterday}.md"))).expect("moved");
    assert_eq!(fixture.memory.log_task(&task_summary(&first)).await, Ok(false));
    assert!(!fixture.at(&log).exists());
    // Many writers at once, and an editor among them.
    let all = (10..30).map(|n| {
        let memory = fixture.memory.clone();
        let path = fixture.at(&log);
        async move {
            if n % 7 == 0 {
                let text = fs::read_to_string(&path).unwrap_or_default();
                let _ = fs::write(&path, text);
            }
            memory.log_task(&task_summary(&AttemptRef { task_id: TaskId::new(n), attempt: 1 })).await
        }
    });
    assert!(futures_util::future::join_all(all).await.iter().all(|done| *done == Ok(true)));
    assert_eq!(fixture.read(&log).matches("<!-- task_").count(), 20);
    assert_eq!(fixture.places("turbine").await.len(), 10);
}

#[tokio::test]
async fn a_task_is_found_once() {
    let (task, other) = (TaskId::new(1), TaskId::new(2));
    let line = |kind: &str, text: &str| format!("{}\n", json!({ "type": kind, "taskId": task, "text": text }));
    let entry = |task: &TaskId, outcome: &str| {
        format!(
            "## 10:00 Mend the turbine\n<!-- {task} 1 -->\n\n{outcome}\n\nLinks: [session ses_7](https://b/s/ses_7), task {task}, agent dev\n\n"
        )
    };
    let fixture = Fixture::new(&[
        ("workspace/memory/2026-02-26.md", &entry(&task, "Error (tool_failed): the turbine is stuck.")),
        (
            "workspace/memory/2026-02-27.md",
            &(entry(&task, "Completed: the turbine turns.") + &entry(&other, "Completed: the turbine hums.")),
        ),
    ]);
    let entries = fixture.search("turbine").await.items;
    let paths: Vec<_> = entries.iter().map(|item| item.path.as_str()).collect();
    assert_eq!(paths, ["workspace/memory/2026-02-27.md"; 2], "a task that ended twice has its newest entry");
    assert!(fixture.search("ses_7").await.items.is_empty(), "links are not remembered");
    let said = line("goal", "Mend the turbine") + &line("text", "The turbine turns, at last.");
    fixture.write("agents/dev/sessions/ses_7.jsonl", &said);
    fixture.memory.logged("dev", "ses_7");
    let found = fixture.search("turbine").await.items;
    let told: Vec<_> = found.iter().map(|item| (item.source, item.excerpt.as_str())).collect();
    assert!(told.contains(&(MemorySource::Session, "Mend the turbine\n\nThe turbine turns, at last.")), "{told:?}");
    assert_eq!(told.len(), 3, "{told:?}");
    // What goes with a request has neither marks nor links, and what was said in full is not summed up beside it.
    for day in ["2026-02-28", "2026-03-01"] {
        fixture.write(&format!("workspace/memory/{day}.md"), "## 09:00 Sweep\n\nCompleted: swept.\n");
    }
    let recall = fixture.memory.recall(&submit("the turbine")).await;
    let all: String = recall.0.iter().map(|item| item.excerpt.text.as_str()).collect();
    assert!(all.contains("The turbine turns, at last.") && all.contains("the turbine hums"), "{all}");
    assert!(!all.contains("Completed: the turbine turns"), "{all}");
    assert!(!all.contains("https://b") && !all.contains("task_"), "{all}");
}

#[tokio::test]
async fn a_log_that_cannot_be_written_is_a_reason_and_no_crash() {
    let fixture = Fixture::new(&[("workspace/memory", "no folder")]);
    let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
    assert!(fixture.memory.log_task(&task_summary(&attempt)).await.is_err());
    assert!(fixture.memory.add_note("x", Author::Agent).await.is_err());
}

#[tokio::test]
async fn what_goes_with_a_request_is_bounded_and_said_once() {
    let day = Fixture::new(&[]).memory.local().date();
    let yesterday = day.yesterday().expect("a day");
    let entry = |n: u32, goal: &str| format!("## 10:{n:02} {goal}\n\nCompleted: {}\n\n", "words ".repeat(20));
    let many = (0..60).map(|n| entry(n, "Count sheep")).collect::<String>();
    let fixture = Fixture::new(&[
        ("workspace/MEMORY.md", &format!("Use the giraffe.\n\n{}", "A line about nothing.\n\n".repeat(600))),
        (&format!("workspace/memory/{day}.md"), &format!("# {day}\n\n{}", entry(0, "Feed the giraffe"))),
        (&format!("workspace/memory/{yesterday}.md"), &many),
        ("workspace/memory/2020-01-01.md", "## 08:00 Old giraffe\n\nIt was small then.\n"),
        ("workspace/memory/2999-01-01.md", "## 08:00 Future giraffe\n\nIt will fly.\n"),
        ("workspace/memory/notes.md", "The giraffe likes leaves.\n"),
        (
            &format!("agents/dev/sessions/{}.jsonl", SessionId::new(5)),
            &json!({ "type": "goal", "text": "Ask the giraffe" }).to_string(),
        ),
    ]);
    let mut asked = submit("How is the giraffe?");
    fixture.write(
        &format!("agents/dev/sessions/{}.jsonl", asked.session_id),
        &json!({ "type": "goal", "text": "This giraffe" }).to_string(),
    );
    asked.memory = vec![json!({ "path": "caller", "text": "From the caller." })];
    let recall = fixture.memory.recall(&asked).await;
    let paths: Vec<&str> = recall.0.iter().map(|item| item.excerpt.path.as_str()).collect();
    let (today_path, yesterday_path) =
        (format!("workspace/memory/{day}.md"), format!("workspace/memory/{yesterday}.md"));
    assert_eq!(paths[..3], ["workspace/MEMORY.md", &yesterday_path, &today_path], "{paths:?}");
    assert_eq!(paths.last(), Some(&"caller"));
    let found: BTreeSet<&str> = paths[3..paths.len() - 1].iter().copied().collect();
    let session = format!("agents/dev/sessions/{}.jsonl", SessionId::new(5));
    assert!(
        found.contains("workspace/memory/2020-01-01.md") && found.contains("workspace/memory/notes.md"),
        "{paths:?}"
    );
    assert!(
        found.iter().all(|path| !path.contains(asked.session_id.as_str())),
        "its own words go along anyway: {paths:?}"
    );
    assert!(!found.contains(today_path.as_str()), "{paths:?}");
    assert!(found.len() <= 5 && session.len() > 10);
    let tokens: Vec<u64> = recall.0.iter().map(RecalledExcerpt::tokens).collect();
    assert!(tokens[0] <= 2_000 && recall.0[0].of.is_some_and(|of| of > 3_000), "{tokens:?}");
    assert!(tokens[1] + tokens[2] <= 1_000 && recall.0[1].of.is_some() && recall.0[2].of.is_none(), "{tokens:?}");
    assert!(recall.0[1].excerpt.text.contains("10:59") && !recall.0[1].excerpt.text.contains("10:00"));
    assert!(tokens[3..tokens.len() - 1].iter().sum::<u64>() <= 600);
    // An agent's own file takes precedence over the shared one.
    fixture.write("agents/dev/MEMORY.md", "Mine alone.");
    assert_eq!(fixture.memory.recall(&asked).await.0[0].excerpt.text, "Mine alone.");
}

#[tokio::test]
async fn meaning_finds_what_words_do_not_and_words_do_when_it_is_away() {
    let fixture =
        Fixture::new(&[("workspace/MEMORY.md", "## Car\n\nThe automobile is red.\n\n## Pet\n\nThe cat is black.\n")]);
    let vector = |n: usize, v: [f32; 2]| json!({ "index": n, "embedding": v });
    let passages = json!({ "data": [vector(0, [1.0, 0.0]), vector(1, [0.0, 1.0])] });
    let back = json!({ "data": [vector(1, [0.0, 1.0]), vector(0, [1.0, 0.0])] });
    let query = json!({ "data": [vector(0, [0.9, 0.1])] });
    let endpoint = ScriptedProvider::start(vec![
        ScriptedReply::stream(&passages.to_string()),
        ScriptedReply::stream(&query.to_string()),
        ScriptedReply::refusal(500, "{}"),
        ScriptedReply::stream(&back.to_string()),
    ])
    .await;
    assert!(fixture.search("vehicle").await.items.is_empty());
    fixture.embed_with(Some(&endpoint));
    let finish = CancellationToken::new();
    tokio::spawn(fixture.memory.workspace().follow(finish.clone()));
    tokio::spawn(fixture.memory.clone().keep_fresh(finish.clone()));
    let seen = async {
        while endpoint.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen).await.expect("passages are sent");
    let first = endpoint.seen().remove(0);
    assert_eq!((first.path.as_str(), first.body["model"].as_str()), ("/v1/embeddings", Some("small")));
    let inputs: Vec<String> = first.body["input"].as_array().expect("texts").iter().map(ToString::to_string).collect();
    assert_eq!(inputs.len(), 2, "{inputs:?}");
    // The order of the two is up to the index.
    let title = if inputs[0].contains("automobile") { "Car" } else { "Pet" };
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let mut index = index::MemoryIndex::open(&fixture.at("memory/dev.sqlite")).await.expect("an index");
            let model = format!("{}/embeddings small", endpoint.provider(ProviderApi::OpenAi).base_url);
            if index.vectors(&model).await.expect("vectors").len() == 2 {
                return fixture.search("vehicle").await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let found = found.await.expect("vectors are kept");
    assert_eq!(
        (found.ranking, found.items.first().map(|item| item.title.as_str())),
        (MemoryRanking::Meaning, Some(title)),
        "{found:?}"
    );
    // When the provider fails, words are used, and it is left alone for a while.
    let by_words = fixture.search("automobile").await;
    assert_eq!((by_words.ranking, by_words.items.len()), (MemoryRanking::Text, 1));
    let asked = endpoint.seen().len();
    fixture.search("automobile").await;
    assert_eq!(endpoint.seen().len(), asked);
    finish.cancel();
    fixture.embed_with(None);
    assert_eq!(fixture.search("cat").await.ranking, MemoryRanking::Text);
}

#[tokio::test]
async fn a_slow_endpoint_costs_a_second_at_most() {
    let fixture = Fixture::new(&[("workspace/MEMORY.md", "The automobile is red.\n")]);
    let endpoint = ScriptedProvider::start(vec![ScriptedReply::stream("{\"data\": [").silent()]).await;
    fixture.embed_with(Some(&endpoint));
    let began = Instant::now();
    let found = fixture.search("automobile").await;
    assert_eq!((found.ranking, found.items.len()), (MemoryRanking::Text, 1));
    // Ten times the limit: the endpoint itself is silent for an hour.
    assert!(began.elapsed() < 10 * embeddings::QUERY_TIMEOUT, "{:?}", began.elapsed());
}
