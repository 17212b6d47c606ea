//! Hostile input and what surrounds it (A86, A92–A94, A99, A100): bodies, parameters, cursors, headers, modes of files.

mod breaks;
mod injection;
mod json;
mod modes;
mod places;
mod proxies;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::HOME,
    fake_daemon::{accepted, completed, progress, started, text},
    person::Answer,
    tasks::id,
};
use reqwest::header;
use serde_json::{Value, json};

/// A Board with something of every kind, and those who may do everything.
struct World {
    board: Board,
    owner: Person,
    program: Person,
    viber: FakeDaemon,
    session: String,
    task: String,
    member: String,
}

impl World {
    async fn make(engine: Engine) -> Self {
        let board = Board::start(engine).await;
        let (owner, program) = (board.owner().await, board.token(HOME, "owner").await);
        let mut viber = FakeDaemon::connected(&board, "lab").await;
        let task = program.submit(viber.id.as_str(), "First things first").await;
        let submit = viber.submitted().await;
        let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "ls"}});
        let result =
            json!({"type": "tool-result", "callId": "c1", "tool": "shell", "result": "a", "ok": true, "durationMs": 1});
        let bodies = vec![accepted(), started(), progress(&call), progress(&result), text("x"), completed("x")];
        viber.report(&submit.task_id, 1, 1, bodies).await;
        board.make_operator(HOME, "bo@example.org", "viewer").await;
        let members = program.get("/api/v1/members").await.expect(200).json();
        let bo = members["items"].as_array().expect("members").iter().find(|m| m["email"] == "bo@example.org");
        let (session, member) = (id(&task, "sessionId").to_owned(), id(bo.expect("bo"), "id").to_owned());
        let task = id(&task, "id").to_owned();
        Self { board, owner, program, viber, session, task, member }
    }
}

/// What stays the same of an answer from Board to Board: its status and the code of a refusal.
fn told(answer: &Answer) -> String {
    let problem = answer.header("content-type").starts_with("application/problem+json");
    let code = if problem { answer.code() } else { answer.header(header::LOCATION.as_str()).chars().take(8).collect() };
    format!("{} {code}", answer.status)
}

/// Asks again when it was too often: a program has its pace.
async fn patiently(request: reqwest::RequestBuilder) -> reqwest::Response {
    loop {
        let again = request.try_clone().expect("a body that can be sent twice");
        let answer = again.send().await.unwrap_or_else(|error| panic!("no answer: {error:?}"));
        if answer.status() != 429 {
            return answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Every row of everything that this team can list, without when things were last seen.
async fn lists(program: &Person) -> Vec<Value> {
    let mut all = Vec::new();
    for list in ["vibers", "sessions", "tasks", "members", "tokens", "invitations"] {
        let mut page = program.get(&format!("/api/v1/{list}?limit=200")).await.expect(200).json();
        for item in page["items"].as_array_mut().expect("items") {
            for field in ["seenAt", "lastSeenAt", "contact"] {
                item.as_object_mut().map(|item| item.remove(field));
            }
        }
        all.push(page);
    }
    all
}
