//! Hostile input and what surrounds it (A86, A92–A94, A99, A100): bodies, parameters, cursors, headers, modes of files.

mod cursors;
mod failures;
mod injection;
mod json;
mod modes;
mod proxies;

use board_tests::{
    Engine, FakeDaemon, Fixture, Person,
    board::HOME,
    fake_daemon::{completed, progress, text},
    person::Answer,
    tasks::id,
};
use reqwest::header;
use serde_json::{Value, json};

/// A Board with something of every kind, and those who may do everything: an owner who is signed in, and a program.
struct World {
    fixture: Fixture<FakeDaemon>,
    program: Person,
    /// Somebody who may be changed.
    member: String,
}

impl World {
    async fn make(engine: Engine) -> Self {
        let mut fixture = Fixture::on(engine).owner().with_fake().await;
        let program = fixture.board.token(HOME, "owner").await;
        fixture.begin("First things first").await;
        let call = json!({"type": "tool-call", "callId": "c1", "tool": "shell", "args": {"command": "ls"}});
        let result =
            json!({"type": "tool-result", "callId": "c1", "tool": "shell", "result": "a", "ok": true, "durationMs": 1});
        fixture.tell(vec![progress(&call), progress(&result), text("x"), completed("x")]).await;
        fixture.board.make_operator(HOME, "bo@example.org", "viewer").await;
        let members = program.get("/api/v1/members").await.expect(200).json();
        let bo = members["items"].as_array().expect("members").iter().find(|m| m["email"] == "bo@example.org");
        let member = id(bo.expect("bo"), "id").to_owned();
        Self { fixture, program, member }
    }
}

/// What stays the same of an answer from Board to Board: its status and the code of a refusal.
fn fingerprint(answer: &Answer) -> String {
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
