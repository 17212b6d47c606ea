//! The tools of the tests themselves: a tool that lies would make every story worthless.

mod invariants;
mod proxy;

use std::time::Duration;

use board_tests::{
    Browser, Llm,
    browser::Scripts,
    llm::{Gate, Piece, Reply},
    postgres::Database,
    wait::eventually,
};
use serde_json::json;

#[tokio::test]
async fn the_scripted_model_speaks_three_formats_and_sees_who_hangs_up() {
    let gate = Gate::new();
    let said = Reply::Stream(vec![
        Piece::reasoning("hm"),
        Piece::text("hello"),
        Piece::call("c1", "read_file", json!({"path": "a"})),
    ]);
    let endless = Reply::Stream(vec![Piece::text("first"), Piece::Wait(gate), Piece::text("never")]);
    let llm = Llm::start([said.clone(), said.clone(), said, endless]).await;
    let client = reqwest::Client::new();
    for (path, words) in [
        ("/v1/chat/completions", ["reasoning_content", "\"content\":\"hello\"", "tool_calls", "[DONE]"]),
        ("/v1/messages", ["thinking_delta", "text_delta", "input_json_delta", "message_stop"]),
        ("/api/chat", ["thinking", "\"content\":\"hello\"", "tool_calls", "\"done\":true"]),
    ] {
        let answer = client.post(format!("{}{path}", llm.url)).json(&json!({"model": "m"})).send().await.unwrap();
        let body = answer.text().await.unwrap();
        for word in words {
            assert!(body.contains(word), "{path} lacks {word}: {body}");
        }
    }
    let mut hanging = client.post(format!("{}/v1/chat/completions", llm.url)).json(&json!({})).send().await.unwrap();
    while !String::from_utf8_lossy(&hanging.chunk().await.unwrap().unwrap()).contains("first") {}
    assert!(!llm.requests()[3].aborted, "the client still listens");
    drop(hanging);
    drop(client);
    eventually("the endpoint notices that its client hung up", || async { llm.requests()[3].aborted.then_some(()) })
        .await;
    assert!(llm.requests()[..3].iter().all(|request| request.finished && !request.aborted));
}

#[tokio::test]
async fn a_fresh_database_is_empty_and_can_refuse() {
    use sqlx::Connection;
    let database = Database::create().await;
    let mut connection = sqlx::PgConnection::connect(&database.url).await.unwrap();
    let tables: i64 = sqlx::query_scalar("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(tables, 0);
    database.refuse(true).await;
    assert!(sqlx::PgConnection::connect(&database.url).await.is_err());
    database.refuse(false).await;
    sqlx::PgConnection::connect(&database.url).await.unwrap();
}

mod browser {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn scripts_run_only_when_they_may() {
        const PAGE: &str =
            "data:text/html,<p id=a>plain</p><script>document.title='ran';console.error('oops')</script>";
        let with = Browser::open(Scripts::On).await;
        with.go(PAGE).await;
        with.sees("#a", "plain").await;
        assert_eq!(with.page.title().await.unwrap(), "ran");
        assert!(with.console_errors().await.concat().contains("oops"));
        let without = Browser::open(Scripts::Off).await;
        without.go(PAGE).await;
        without.sees("#a", "plain").await;
        assert_ne!(without.page.title().await.unwrap(), "ran");
    }
}

#[tokio::test]
async fn waiting_ends() {
    let waited = tokio::spawn(board_tests::within(Duration::from_millis(80), "nothing", || async { None::<()> })).await;
    assert!(waited.unwrap_err().to_string().contains("panic"));
}
