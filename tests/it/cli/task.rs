//! `daemon-agent task` with a goal from standard input, in a session that goes on, in a folder of one's choice.

use board_tests::{Llm, Viber, llm::Reply, programs::run};
use serde_json::{Value, json};

fn lines(said: &str) -> Vec<Value> {
    said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

#[tokio::test]
async fn a_task_goes_on_with_what_was_said_before() {
    let llm = Llm::start([Reply::text("the word is heron"), Reply::text("heron, as I said")]).await;
    let viber = Viber::fresh("alone");
    viber.use_scripted_model(&llm, "openai");
    let first = run(viber.command(&["task", "-", "--json"]), "think of a word\n").await.good();
    let session = lines(&first)[0]["sessionId"].as_str().expect("the session").to_owned();
    viber.cli(&["task", "which word?", "--session", &session]).await.good();
    let asked = llm.asked(2).await;
    let told = asked[1].body["messages"].to_string();
    for words in ["think of a word", "the word is heron", "which word?"] {
        assert!(told.contains(words), "{words} in {told}");
    }
    let empty = run(viber.command(&["task", "-"]), " \n").await;
    assert_eq!(empty.code(), 2, "{empty:?}");
}

#[tokio::test]
async fn a_task_works_in_the_folder_that_was_named() {
    let write = Reply::call("write_file", json!({ "path": "here.txt", "content": "found" }));
    let llm = Llm::start([write, Reply::text("done")]).await;
    let viber = Viber::fresh("alone");
    viber.use_scripted_model(&llm, "openai");
    let folder = viber.root().join("project");
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.to_str().expect("text");
    viber.cli(&["task", "write it", "--space", path]).await.good();
    assert_eq!(std::fs::read_to_string(folder.join("here.txt")).expect("the file"), "found");
    let missing = viber.cli(&["task", "write it", "--space", "/no/such/folder"]).await;
    assert!(missing.code() == 2 && missing.err.contains("/no/such/folder"), "{missing:?}");
}
