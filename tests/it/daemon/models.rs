//! Three wire formats, and what a model's endpoint can do wrong.

use std::time::Duration;

use board_tests::{
    Engine, Fixture, eventually,
    llm::{Gate, Piece, Reply, openai_error},
    tasks::{id, said},
    wait::EVENT_TIMEOUT,
};
use serde_json::{Value, json};

use super::{parts, result, with_scripted_model};

/// Thinks, writes a file, looks at it with a command, reports.
fn works() -> Vec<Reply> {
    vec![
        Reply::Stream(vec![
            Piece::reasoning("A file is wanted."),
            Piece::text("I will write it."),
            Piece::KeepAlive,
            Piece::call("c1", "write_file", json!({"path": "hello.txt", "content": "hello ☃\n"})),
        ]),
        Reply::Stream(vec![Piece::call("c2", "shell", json!({"command": "cat hello.txt && pwd"}))]),
        Reply::text("It says hello."),
    ]
}

async fn a_task_is_done(api: &'static str) {
    let fixture = Fixture::on(Engine::Sqlite).scripted_model_for(api, works()).with_viber().await;
    let task = fixture.play("write hello").await;
    assert_eq!((&task["state"], &task["result"]["text"]), (&json!("completed"), &json!("It says hello.")), "{task:#}");
    let written = std::fs::read_to_string(fixture.viber.space().join("hello.txt")).expect("the file");
    assert_eq!(written, "hello ☃\n");
    let parts = parts(&fixture, &task).await;
    let kinds: Vec<&str> = parts.iter().filter_map(|part| part["type"].as_str()).collect();
    assert_eq!(
        kinds,
        ["reasoning", "text", "tool-call", "tool-result", "tool-call", "tool-result", "text"],
        "{parts:#?}"
    );
    let (ok, shown) = result(&fixture, &task, 1).await;
    assert!(ok && shown.contains("hello ☃") && shown.contains("space"), "{shown}");
    // Three calls of 120 and 30 tokens each.
    assert_eq!((&task["usage"]["inputTokens"], &task["usage"]["outputTokens"]), (&json!(360), &json!(90)));
    assert_eq!(task["usage"]["source"], "measured");

    let requests = fixture.llm.requests();
    assert_eq!(requests.len(), 3, "no hidden calls");
    assert!(requests[2].body.to_string().contains("hello ☃"), "the model saw what the command printed");
    let last_user = |body: &Value| {
        let messages = body["messages"].as_array().expect("messages").clone();
        messages.iter().rfind(|message| message["role"] == "user").expect("a user's message").clone()
    };
    assert!(last_user(&requests[0].body)["content"].to_string().contains("write hello"));
    let key = if api == "anthropic" { "x-api-key" } else { "authorization" };
    let sent = requests[0].headers.get(key).and_then(|value| value.to_str().ok()).unwrap_or_default();
    assert!(api == "ollama" || sent.contains("lab-key"), "{:?}", requests[0].headers);
    assert!(!requests.iter().any(|request| request.body.to_string().contains("lab-key")), "nothing secret in a prompt");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_task_is_done_over_openai() {
    a_task_is_done("openai").await;
}

#[tokio::test]
async fn a_task_is_done_over_anthropic() {
    a_task_is_done("anthropic").await;
}

#[tokio::test]
async fn a_task_is_done_over_ollama() {
    a_task_is_done("ollama").await;
}

#[tokio::test]
async fn a_wrong_key_ends_the_task_and_not_the_session() {
    let wrong = Reply::fault(401, &openai_error("invalid_api_key", "Incorrect API key provided"));
    let fixture = with_scripted_model(vec![wrong, Reply::text("now it works")]).await;
    let task = fixture.play("try").await;
    assert_eq!((&task["state"], &task["error"]["code"]), (&json!("error"), &json!("provider_auth")), "{task:#}");
    assert!(task["error"]["suggestion"].as_str().is_some_and(|hint| hint.contains("key")), "{task:#}");
    assert!(!task.to_string().contains("lab-key"));
    let next = fixture.operator.follow_up(&task, "again").await;
    let next = fixture.ended(&next).await;
    assert_eq!((&next["state"], &next["result"]["text"]), (&json!("completed"), &json!("now it works")));
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_and_everybody_sees_it() {
    let busy = Reply::Fault {
        status: 429,
        headers: vec![("retry-after", "1".into())],
        body: openai_error("rate_limit_exceeded", "Rate limit reached").to_string(),
    };
    let fixture = with_scripted_model(vec![busy, Reply::text("here you are")]).await;
    let task = fixture.play("patience").await;
    assert_eq!(task["result"]["text"], "here you are", "{task:#}");
    let parts = parts(&fixture, &task).await;
    assert!(parts.iter().any(|part| part["type"] == "notice"), "{parts:#?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_broken_stream_is_withdrawn_and_asked_again() {
    let broken = Reply::Stream(vec![Piece::text("half an ans"), Piece::Pause(Duration::from_millis(200)), Piece::Cut]);
    let fixture = with_scripted_model(vec![broken, Reply::text("the whole answer")]).await;
    let task = fixture.play("answer").await;
    assert_eq!(
        (&task["state"], &task["result"]["text"]),
        (&json!("completed"), &json!("the whole answer")),
        "{task:#}"
    );
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    assert_eq!(said(messages.last().expect("an answer"), "text"), "the whole answer");
    let events = fixture.operator.events(id(&task, "id")).await;
    let discarded = events.iter().filter(|event| event["event"]["state"] == "discarded").count();
    assert_eq!(discarded, 1, "{events:#?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn stopping_drops_the_models_request() {
    let endless = Reply::Stream(vec![Piece::text("on and on"), Piece::Wait(Gate::new())]);
    let fixture = with_scripted_model(vec![endless]).await;
    let task = fixture.submit("never end").await;
    fixture.llm.asked(1).await;
    fixture.operator.task_in(id(&task, "id"), "running").await;
    fixture.operator.stop(id(&task, "id")).await.expect(200);
    let llm = &fixture.llm;
    eventually("the request is dropped", || async { llm.requests()[0].aborted.then_some(()) }).await;
    let task =
        fixture.operator.task_that(id(&task, "id"), "confirmed", |task| task["stopConfirmedAt"].is_string()).await;
    assert_eq!(task["state"], "stopped");
    assert_eq!(fixture.llm.requests().len(), 1);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn bad_arguments_go_back_to_the_model() {
    let script = vec![
        Reply::call("read_file", json!({"path": 7})),
        Reply::call("no_such_tool", json!({})),
        Reply::call("read_file", json!({"path": "absent.txt"})),
        Reply::text("I give up."),
    ];
    let fixture = with_scripted_model(script).await;
    let task = fixture.play("do it badly").await;
    assert_eq!((&task["state"], &task["result"]["text"]), (&json!("completed"), &json!("I give up.")), "{task:#}");
    for n in 0..3 {
        let (ok, text) = result(&fixture, &task, n).await;
        assert!(!ok && !text.is_empty(), "{n}: {text}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn too_many_steps_end_the_task() {
    let fixture = Fixture::on(Engine::Sqlite)
        .scripted_model([Reply::call("list_files", json!({}))])
        .agent("mode: always_execute\nmaxSteps: 3\n")
        .with_viber()
        .await;
    let task = fixture.play("loop").await;
    assert_eq!((&task["state"], &task["error"]["code"]), (&json!("error"), &json!("max_steps_reached")), "{task:#}");
    assert_eq!(fixture.llm.requests().len(), 3);
}

#[tokio::test]
async fn a_full_window_is_named_with_its_numbers() {
    let message = "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens.";
    let fixture = with_scripted_model(vec![Reply::fault(400, &openai_error("context_length_exceeded", message))]).await;
    let task = fixture.play("too much").await;
    assert_eq!(task["error"]["code"], "context_overflow", "{task:#}");
    assert_eq!(task["error"]["details"]["maxTokens"], 8192, "{task:#}");
    assert_eq!(fixture.llm.requests().len(), 2, "asked once more, without files, and not again");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn without_a_provider_the_tour_shows_the_product_with_real_tools() {
    let board = board_tests::Board::start(board_tests::Engine::Sqlite).await;
    let operator = board.token(board_tests::board::HOME, "operator").await;
    let viber = board_tests::Viber::join(&board, "lab").await;
    let viber_id = viber.id(&operator).await;
    let fleet = operator.get(&format!("/api/v1/vibers/{viber_id}")).await.expect(200).json();
    assert!(fleet["agents"][0]["model"].as_str().is_some_and(|model| model.contains("demo/tour")), "{fleet:#}");
    let task = operator.submit(&viber_id, "show me around").await;
    let task = operator
        .task_within(EVENT_TIMEOUT * 2, id(&task, "id"), "completed", |task| task["state"] == "completed")
        .await;
    let messages = operator.messages(id(&task, "sessionId")).await;
    let parts = messages[1]["parts"].as_array().expect("parts");
    assert!(parts.iter().any(|part| part["type"] == "tool-result" && part["ok"] == true), "{parts:#?}");
    assert!(parts.iter().any(|part| part["type"] == "reasoning"), "{parts:#?}");
}
