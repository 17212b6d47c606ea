//! Finding: by the Board's request, by the agent's tool and on the machine itself; whoever changed the files, whatever is
//! asked, with and without a provider of meanings.

use std::time::{Duration, Instant};

use board_tests::{FakeBoard, Viber, canary::Canary, eventually, llm::Reply, wait::SLACK};
use serde_json::{Value, json};

use super::{alone, log_with};

/// What the daemon finds.
async fn search(board: &FakeBoard, query: &str) -> Value {
    let asked = json!({ "agentId": "default", "query": query, "limit": 20 });
    board.ask("memory.search", asked).await.unwrap_or_else(|why| panic!("{query:?}: {why}"))
}

/// The same as paths.
async fn paths(board: &FakeBoard, query: &str) -> Vec<String> {
    let found = search(board, query).await;
    let items = found["items"].as_array().expect("items").iter();
    items.filter_map(|item| item["path"].as_str().map(str::to_owned)).collect()
}

/// An editor on the machine: a process of its own that writes the file.
fn edit(viber: &Viber, path: &str, text: &str) {
    let path = viber.home().join(path);
    let mut sh = std::process::Command::new("sh");
    let done =
        sh.args(["-c", "printf '%s' \"$2\" > \"$1.new\" && mv \"$1.new\" \"$1\"", "sh"]).arg(&path).arg(text).status();
    assert!(done.expect("sh runs").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_writes_is_found_soon() {
    let (board, mut viber, _llm) = alone(
        vec![Reply::text("The heron flew.")],
        &[
            ("workspace/MEMORY.md", "The heron is grey.\n"),
            ("workspace/memory/2026-01-01.md", "## 10:00 Old\n\nkingfisher\n"),
        ],
    )
    .await;
    assert_eq!(paths(&board, "heron").await, ["workspace/MEMORY.md"]);
    for n in 0..5 {
        let (path, word) = (["workspace/MEMORY.md", "workspace/memory/2026-01-02.md"][n % 2], format!("bittern{n}"));
        edit(&viber, path, &format!("The {word} calls.\n"));
        eventually("the change is found", || async { (paths(&board, &word).await == [path]).then_some(()) }).await;
    }
    assert!(paths(&board, "heron").await.is_empty(), "what it said before is not found");
    std::fs::remove_file(viber.home().join("workspace/memory/2026-01-01.md")).expect("removed");
    eventually("it is gone", || async { paths(&board, "kingfisher").await.is_empty().then_some(()) }).await;
    // A conversation is found when its task is over.
    board.submit("Where did the heron go?");
    log_with(&viber, "Completed: The heron flew.").await;
    let found = eventually("the conversation is found", async || {
        let found = search(&board, "heron flew").await["items"].clone();
        found.as_array().is_some_and(|all| all.iter().any(|item| item["source"] == "session")).then_some(found)
    })
    .await;
    let session = found.as_array().expect("items").iter().find(|item| item["source"] == "session").expect("it").clone();
    assert_eq!(session["title"], "Where did the heron go?", "{session:#}");
    assert!(session["sessionId"].as_str().is_some_and(|id| id.starts_with("ses_")), "{session:#}");
    viber.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_was_deleted_or_broken_is_made_anew() {
    let (board, mut viber, _llm) = alone(vec![], &[("workspace/MEMORY.md", "The heron is grey.\n")]).await;
    assert_eq!(paths(&board, "heron").await.len(), 1);
    let index = viber.home().join("memory/default.sqlite");
    std::fs::remove_file(&index).expect("removed");
    assert_eq!(paths(&board, "heron").await.len(), 1);
    assert!(index.exists());
    viber.stop().await;
    std::fs::write(&index, vec![7_u8; 50_000]).expect("written");
    viber.run();
    assert_eq!(paths(&board, "heron").await.len(), 1);
    let said = viber.cli(&["memory", "search", "heron", "--json"]).await.good();
    let found: Value = serde_json::from_str(said.trim()).expect("JSON");
    assert_eq!((&found["known"], &found["items"][0]["path"]), (&json!(1), &json!("workspace/MEMORY.md")), "{found:#}");
    viber.stop().await;
    std::fs::remove_file(&index).expect("removed");
    let said = viber.cli(&["memory", "search", "heron"]).await.good();
    assert!(said.contains("workspace/MEMORY.md") && said.contains("1 of 1 passages, by words."), "{said}");
    assert_eq!(viber.cli(&["memory", "search", "heron", "--agent", "../state"]).await.code(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_queries_are_words_and_secrets_are_not_found() {
    let secret = Canary::new("a key").secret;
    let said = json!({ "type": "tool-result", "result": format!("output {secret}") });
    let (board, mut viber, _llm) = alone(
        vec![],
        &[
            ("workspace/MEMORY.md", "The heron is grey.\n"),
            ("secrets/lab", &secret),
            ("state/notes.md", &secret),
            ("workspace/other.md", &secret),
            ("agents/default/sessions/ses_1.jsonl", &said.to_string()),
        ],
    )
    .await;
    let home = viber.home();
    std::fs::create_dir_all(home.join("workspace/memory")).expect("a folder");
    std::os::unix::fs::symlink(home.join("secrets/lab"), home.join("workspace/memory/2026-01-01.md")).expect("a link");
    std::fs::hard_link(home.join("secrets/lab"), home.join("workspace/memory/2026-01-02.md")).expect("a link");
    std::os::unix::fs::symlink(home.join("secrets/lab"), home.join("agents/default/sessions/ses_2.jsonl"))
        .expect("a link");
    std::fs::remove_file(home.join("memory/default.sqlite")).ok();
    for query in [secret.as_str(), &secret[..8], "canary", "lab-key", "credential"] {
        let found = search(&board, query).await;
        assert!(!found.to_string().contains(&secret), "{query}: {found:#}");
        assert_eq!(found["items"], json!([]), "{query}");
    }
    let long = "heron ".repeat(1_667);
    for query in [
        "\"",
        "heron\"",
        "NEAR(heron grey)",
        "heron AND",
        "*",
        "title:x",
        "-",
        "(",
        "",
        "🦩",
        "\u{0}",
        "%' OR 1=1 --",
        &long,
        &"y".repeat(10_000),
    ] {
        search(&board, query).await;
    }
    assert_eq!(paths(&board, &long).await.len(), 1);
    for bad in [
        json!({}),
        json!({ "agentId": "default" }),
        json!({ "agentId": "nobody", "query": "x" }),
        json!({ "agentId": "../x", "query": "x" }),
        json!(7),
    ] {
        assert!(board.ask("memory.search", bad.clone()).await.is_err(), "{bad}");
    }
    viber.stop().await;
    let index = std::fs::read(home.join("memory/default.sqlite")).expect("the index");
    assert!(!String::from_utf8_lossy(&index).contains(&secret), "nothing of it is kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_finds_what_it_knew() {
    let (board, mut viber, llm) = alone(
        vec![Reply::call("search_memory", json!({ "query": "grey bird" })), Reply::text("A heron.")],
        &[("workspace/memory/notes.md", "## Birds\n\nThe heron is a grey bird.\n")],
    )
    .await;
    board.submit("Which one is it?");
    let requests = llm.asked(2).await;
    let result = requests[1].body["messages"].as_array().expect("messages").last().cloned().expect("a result");
    let text = result["content"].as_str().unwrap_or_default();
    assert!(text.contains("1. workspace/memory/notes.md") && text.contains("The heron is a grey bird."), "{result:#}");
    viber.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn meaning_ranks_while_its_provider_answers() {
    let (board, mut viber, llm) = alone(
        vec![],
        &[("workspace/MEMORY.md", "## Travel\n\nThe automobile is red.\n\n## Home\n\nThe cat is black.\n")],
    )
    .await;
    assert_eq!((paths(&board, "vehicle").await.len(), &search(&board, "cat").await["ranking"]), (0, &json!("text")));
    assert!(llm.embedded().is_empty(), "nothing leaves the machine unasked");
    llm.understands(&[&["automobile", "vehicle", "car"], &["cat", "pet"]]);
    viber.write("config.yaml", &format!("{}memory: {{ embeddings: lab/small }}\n", llm.config("openai")));
    let found = eventually("it is found by its meaning", async || {
        let found = search(&board, "vehicle").await;
        (found["ranking"] == "meaning" && found["items"][0]["title"] == "Travel").then_some(found)
    })
    .await;
    assert_eq!(found["known"], 2, "{found:#}");
    assert!(llm.embedded().iter().any(|text| text.contains("the cat is black")));
    edit(&viber, "workspace/MEMORY.md", "## Travel\n\nThe automobile is red.\n\n## Friends\n\nA pet is a friend.\n");
    eventually("what is new is understood too", async || {
        llm.embedded().iter().any(|text| text.contains("a pet is a friend")).then_some(())
    })
    .await;
    let sent = llm.embedded().iter().filter(|text| text.contains("automobile")).count();
    assert_eq!(sent, 1, "what is known is not asked again");
    llm.embeds_nothing(true);
    let began = Instant::now();
    let found = search(&board, "automobile").await;
    assert_eq!((&found["ranking"], &found["items"][0]["title"]), (&json!("text"), &json!("Travel")), "{found:#}");
    assert!(began.elapsed() < Duration::from_secs(5) * SLACK);
    // An unknown provider is a mistake in the file, named.
    viber.write("config.yaml", &format!("{}memory: {{ embeddings: nowhere/small }}\n", llm.config("openai")));
    let said = viber.cli(&["config", "validate"]).await;
    assert!(said.code() == 78 && (said.out.clone() + &said.err).contains("\"nowhere\""), "{said:?}");
    viber.stop().await;
}
