//! Calls that wait: what ends them, what is heard meanwhile, and that nobody waits without a good token.

use std::time::{Duration, Instant};

use board_tests::{
    Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{completed, progress},
    tasks::id,
    wait::EVENT_TIMEOUT,
};

use super::*;

crate::on_both_databases!(
    a_wait_ends_with_its_task_and_tells_of_progress,
    a_wait_ends_when_a_person_is_needed,
    a_revoked_token_waits_for_nothing,
);

/// The seconds that calls ask for here, the most that they may; what ends a wait has to come well before.
const ASKED_SECONDS: u64 = 50;
const WELL_BEFORE: Duration = Duration::from_secs(40);

/// A stream of messages that answers a call.
pub(super) struct Messages {
    answer: reqwest::Response,
    buffer: String,
    began: Instant,
}

impl Messages {
    /// Calls `get_task`, and waits; of progress it is told under the token `p`.
    pub(super) async fn of(request: RequestBuilder) -> Self {
        let answer = request.send().await.expect("an answer");
        let kind = answer.headers()[header::CONTENT_TYPE].to_str().expect("text").to_owned();
        assert_eq!((answer.status().as_u16(), kind.as_str()), (200, "text/event-stream"));
        assert_eq!(answer.headers()["x-accel-buffering"], "no");
        Self { answer, buffer: String::new(), began: Instant::now() }
    }

    /// The next message; `None` at the end.
    pub(super) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.find("\n\n") {
                let frame: String = self.buffer.drain(..end + 2).collect();
                if let Some(data) = frame.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Some(serde_json::from_str(data).expect("JSON"));
                }
                continue;
            }
            let chunk = tokio::time::timeout(EVENT_TIMEOUT, self.answer.chunk()).await.expect("in time");
            self.buffer.push_str(std::str::from_utf8(&chunk.expect("a whole stream")?).expect("UTF-8"));
        }
    }

    /// The answer, which is the last message and came before the time was up.
    pub(super) async fn last(mut self) -> Value {
        let mut last = Value::Null;
        while let Some(message) = self.next().await {
            last = message;
        }
        assert!(self.began.elapsed() < WELL_BEFORE, "it waited to the end: {last:#}");
        assert_eq!(last["id"], 7, "{last:#}");
        last["result"].clone()
    }
}

fn waiting(task: &Value) -> Value {
    let mut params = of_call("get_task", &json!({ "taskId": task["id"], "waitSeconds": ASKED_SECONDS }));
    params["_meta"] = json!({ "progressToken": "p" });
    params
}

/// The same for a client that has seen what `seen` says.
fn waiting_after(task: &Value, seen: &Value) -> Value {
    let mut params = waiting(task);
    params["arguments"]["after"] = seen["next"].clone();
    params
}

async fn a_wait_ends_with_its_task_and_tells_of_progress(engine: Engine) {
    let mut fixture: Fixture<FakeDaemon> = Fixture::on(engine).with_fake().await;
    for (round, revision) in [STATELESS, HANDSHAKE].into_iter().enumerate() {
        let task = fixture.begin(&format!("work {round}")).await;
        let request = match revision {
            STATELESS => stateless(&fixture.operator, "tools/call", &waiting(&task)),
            _ => after_handshake(&fixture.operator, "tools/call", &waiting(&task)),
        };
        // Keys of tools are arguments: this one neither keeps an answer nor holds a stream back until it ends.
        let request = request.header("idempotency-key", "one for both");
        let mut messages = Messages::of(request).await;
        let mut told = Vec::new();
        for _ in 0..2 {
            let message = messages.next().await.expect("progress");
            assert_eq!(message["method"], "notifications/progress", "{message:#}");
            assert!(message.get("id").is_none() && message["params"]["progressToken"] == "p", "{message:#}");
            assert!(message["params"]["message"].as_str().is_some_and(|words| words.contains("running")));
            told.push(message["params"]["progress"].as_f64().expect("a number"));
        }
        assert!(told[0] < told[1] && told[0] >= 0.0, "each is of more: {told:?}");
        fixture.tell(vec![completed("The answer.")]).await;
        let result = messages.last().await;
        let seen = &result["structuredContent"];
        assert_eq!(seen["state"], "completed", "{result:#}");
        assert_eq!(seen["result"]["text"], "The answer.");
        assert_eq!(result.get("resultType").is_some(), revision == STATELESS);
    }

    // Whoever accepts no stream gets the same in one answer; nothing is said to whoever named no token.
    let task = fixture.begin("work for a plain client").await;
    let mut plain = after_handshake(&fixture.operator, "tools/call", &waiting(&task)).build().expect("a request");
    plain.headers_mut().insert(header::ACCEPT, "application/json".parse().expect("a header"));
    let began = Instant::now();
    let answer = tokio::spawn(reqwest::Client::new().execute(plain));
    let silent = of_call("get_task", &json!({ "taskId": task["id"], "waitSeconds": ASKED_SECONDS }));
    let mut silent = Messages::of(after_handshake(&fixture.operator, "tools/call", &silent)).await;
    fixture.tell(vec![completed("Done.")]).await;
    let answer = answer.await.expect("sent").expect("an answer");
    assert_eq!(answer.headers()[header::CONTENT_TYPE], "application/json");
    let answer: Value = answer.json().await.expect("JSON");
    assert_eq!(answer["result"]["structuredContent"]["state"], "completed", "{answer:#}");
    assert!(began.elapsed() < WELL_BEFORE);
    let only = silent.next().await.expect("the answer");
    assert_eq!((&only["id"], silent.next().await), (&json!(7), None), "{only:#}");
    // What is over, and whoever does not want to wait, is answered at once, and not as a stream.
    let over = after_handshake(&fixture.operator, "tools/call", &waiting(&task));
    let over = fixture.operator.send(over).await.expect(200);
    assert_eq!(over.header("content-type"), "application/json");
    let long = json!({ "taskId": task["id"], "waitSeconds": ASKED_SECONDS + 1 });
    assert_eq!(refused(&fixture.operator, "get_task", long).await, "invalid_body");
    fixture.board.assert_invariants().await;
}

async fn a_wait_ends_when_a_person_is_needed(engine: Engine) {
    let mut fixture: Fixture<FakeDaemon> = Fixture::on(engine).owner().with_fake().await;
    let task = fixture.begin("clean up").await;
    let messages = Messages::of(stateless(&fixture.operator, "tools/call", &waiting(&task))).await;
    let approval = protocol::ApprovalId::new(1_790_000_000_000);
    let question = json!({ "type": "approval-required", "approvalId": approval, "kind": "tool", "digest": "d",
        "tool": "shell", "args": { "command": "rm -r build" }, "preview": "rm -r build", "risk": "deletes files" });
    fixture.tell(vec![progress(&question)]).await;
    let result = messages.last().await;
    let seen = &result["structuredContent"];
    assert_eq!((&seen["state"], &seen["needsPerson"]), (&json!("running"), &json!(true)), "{result:#}");
    assert_eq!((&seen["waiting"]["for"], &seen["waiting"]["id"]), (&json!("approval"), &json!(approval)));
    assert!(seen["cause"].as_str().is_some_and(|words| words.contains("on the Board")), "{seen:#}");

    // Whoever has not seen that is told at once, also instead of a stream.
    let first = of_call("get_task", &json!({ "taskId": task["id"], "waitSeconds": ASKED_SECONDS }));
    let first = fixture.operator.send(stateless(&fixture.operator, "tools/call", &first)).await.expect(200);
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(first.json()["result"]["structuredContent"]["needsPerson"], true);

    // Another wait does not end with what its client knows already, but when a person has decided and the task is over.
    let params = waiting_after(&task, seen);
    let mut messages = Messages::of(stateless(&fixture.operator, "tools/call", &params)).await;
    let still = messages.next().await.expect("progress");
    let words = still["params"]["message"].as_str().expect("words");
    assert!(words.contains("a person has to decide"), "{words}");
    let word = json!({ "decision": "allow", "digest": "d" });
    fixture.owner().post(&format!("/api/v1/approvals/{approval}"), &word).await.expect(200);
    fixture.viber.decided().await;
    fixture.tell(vec![completed("clean")]).await;
    assert_eq!(messages.last().await["structuredContent"]["state"], "completed");
    fixture.board.assert_invariants().await;
}

async fn a_revoked_token_waits_for_nothing(engine: Engine) {
    let mut fixture: Fixture<FakeDaemon> = Fixture::on(engine).owner().with_fake().await;
    let task = fixture.begin("a canary").await;
    let viewer = fixture.board.token(HOME, "viewer").await;
    let mut messages = Messages::of(stateless(&viewer, "tools/call", &waiting(&task))).await;
    messages.next().await.expect("it waits");
    let tokens = fixture.owner().get("/api/v1/tokens").await.expect(200).json();
    let token = tokens["items"].as_array().expect("tokens").iter().find(|token| token["name"] == "test viewer");
    let path = format!("/api/v1/tokens/{}", id(token.expect("its token"), "id"));
    fixture.owner().delete(&path).await.expect(204);
    let result = messages.last().await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["structuredContent"]["error"]["code"], "unauthenticated", "{result:#}");
    assert!(!result.to_string().contains("canary"), "{result:#}");

    // The end of the Board is none of the task: whoever waits is told how it is.
    let messages = Messages::of(stateless(&fixture.operator, "tools/call", &waiting(&task))).await;
    fixture.board.begin_stop();
    let result = messages.last().await;
    assert_eq!(result["structuredContent"]["state"], "running", "{result:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn waits_count_with_the_streams_of_a_token() {
    let mut fixture: Fixture<FakeDaemon> = Fixture::on(Engine::Sqlite).with_fake().await;
    let task = fixture.begin("be watched").await;
    let mut open = Vec::new();
    for _ in 0..50 {
        open.push(Messages::of(stateless(&fixture.operator, "tools/call", &waiting(&task))).await);
    }
    let asked = json!({ "taskId": task["id"], "waitSeconds": ASKED_SECONDS });
    assert_eq!(refused(&fixture.operator, "get_task", asked).await, "throttled");
    told(&fixture.operator, "get_task", json!({ "taskId": task["id"] })).await;
    // A client that goes away gives its place back.
    open.pop();
    board_tests::eventually("there is a place", async || {
        let request = stateless(&fixture.operator, "tools/call", &waiting(&task));
        let answer = request.send().await.expect("an answer");
        (answer.headers()[header::CONTENT_TYPE] == "text/event-stream").then_some(())
    })
    .await;
    fixture.board.assert_invariants().await;
}
