//! The real daemon: the tool, a fence in the answer and files that appear become artifacts, and their bytes come when
//! somebody opens them; attachments reach the task as files.

use board_tests::{
    Engine, Fixture, Viber,
    llm::{Piece, Reply},
    tasks::id,
    wait::eventually,
};
use reqwest::{Method, header};
use serde_json::{Value, json};

use super::read;

/// A viber whose agent reports artifacts and has a scripted model.
async fn making(engine: Engine, script: Vec<Reply>) -> Fixture<Viber> {
    Fixture::on(engine).scripted_model(script).tools(&["artifact"]).with_viber().await
}

/// What a task of a real viber leaves.
trait Artifacts {
    async fn done(&self, goal: &str, session: Option<&str>) -> Value;
    async fn artifacts(&self, session: &str) -> Vec<Value>;
    async fn bytes(&self, artifact: &Value) -> super::Read;
}

impl Artifacts for Fixture<Viber> {
    async fn done(&self, goal: &str, session: Option<&str>) -> Value {
        let task = match session {
            None => self.submit(goal).await,
            Some(session) => self.submit_with(goal, json!({ "sessionId": session })).await,
        };
        self.operator.task_in(id(&task, "id"), "completed").await
    }

    async fn artifacts(&self, session: &str) -> Vec<Value> {
        let all = self.operator.get(&format!("/api/v1/sessions/{session}/artifacts")).await.expect(200).json();
        all["items"].as_array().expect("a list").clone()
    }

    async fn bytes(&self, artifact: &Value) -> super::Read {
        let path = format!("/api/v1/artifacts/{}/content", id(artifact, "id"));
        read(self.operator.request(Method::GET, &path)).await
    }
}

fn call(id: &str, tool: &str, args: Value) -> Reply {
    Reply::Stream(vec![Piece::call(id, tool, args)])
}

crate::on_both_databases!(three_ways_lead_to_artifacts_and_their_bytes_come_when_opened);

async fn three_ways_lead_to_artifacts_and_their_bytes_come_when_opened(engine: Engine) {
    let fence = "All done.\n\n```json artifact_deltas\n[{\"id\":\"table\",\"type\":\"text/csv\",\"title\":\"Numbers\",\"content\":\"a,b\\n1,2\\n\"},\
                 {\"id\":\"site\",\"ref\":\"https://example.org/\"}]\n```\n";
    let mut fixture = making(
        engine,
        vec![
            call("c1", "add_artifact", json!({ "id": "report", "title": "Report", "type": "text/markdown", "content": "# One" })),
            call("c2", "shell", json!({ "command": "head -c 3000000 /dev/zero > \"$OPENVIBER_ARTIFACTS/big.bin\" && echo hi > notes.txt" })),
            call("c3", "add_artifact", json!({ "id": "notes", "path": "notes.txt" })),
            call("c4", "add_artifact", json!({ "id": "report", "type": "text/markdown", "content": "# Two" })),
            call("c5", "add_artifact", json!({ "id": "passwd", "path": "/etc/passwd" })),
            Reply::text(fence),
        ],
    )
    .await;
    let task = fixture.done("make things", None).await;
    let session = id(&task, "sessionId").to_owned();
    let all = fixture.artifacts(&session).await;
    let names: Vec<_> = all.iter().map(|one| one["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["site", "table", "report", "notes", "big.bin", "report"], "{all:#?}");
    assert_eq!((&all[0]["state"], &all[0]["ref"]), (&json!("link"), &json!("https://example.org/")));
    assert_eq!(all[3]["title"], "notes.txt", "as it lies there");
    let refs = task["result"]["artifactRefs"].as_array().expect("references");
    let told: Vec<_> = refs.iter().map(|one| one["id"].as_str().expect("an id")).collect();
    assert_eq!(told, ["big.bin", "notes", "report", "table", "site"]);
    assert!(refs.iter().all(|one| one["artifactId"].is_string()), "{refs:#?}");
    for (at, expected) in [(1, "a,b\n1,2\n"), (2, "# Two"), (3, "hi\n"), (5, "# One")] {
        let read = fixture.bytes(&all[at]).await;
        assert_eq!((read.status, String::from_utf8_lossy(&read.bytes).as_ref()), (200, expected), "{}", all[at]);
    }
    let big = fixture.bytes(&all[4]).await;
    assert!(big.whole && big.bytes.len() == 3_000_000, "{} {}", big.status, big.bytes.len());
    assert_eq!(fixture.bytes(&all[0]).await.status, 422, "an address has no bytes here");

    // What was opened stays when the viber is away; the rest is said to be there.
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    assert!(fixture.bytes(&all[4]).await.whole);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attachments_reach_the_task_as_files_and_the_list_goes_back_in() {
    let script = vec![
        call("c1", "add_artifact", json!({ "id": "first", "content": "1" })),
        Reply::text("ready"),
        call("c2", "shell", json!({ "command": "cat \"$OPENVIBER_HOME/x\" 2>/dev/null; true" })),
        Reply::text("read"),
    ];
    let fixture = making(Engine::Sqlite, script).await;
    let task = fixture.done("get ready", None).await;
    let session = id(&task, "sessionId").to_owned();
    let path = format!("/api/v1/sessions/{session}/artifacts?name=input.txt");
    let upload = fixture
        .operator
        .request(Method::POST, &path)
        .header(header::CONTENT_TYPE, "text/plain")
        .body("from the browser");
    fixture.operator.send(upload).await.expect(201);
    let task = fixture.done("read input.txt", Some(&session)).await;
    let file = fixture.viber.home().join("workspace/attachments").join(id(&task, "id")).join("input.txt");
    let text = eventually("the file", async || std::fs::read_to_string(&file).ok()).await;
    assert_eq!(text, "from the browser");
    let requests = fixture.llm.requests();
    let prompt = requests[2].body.to_string();
    assert!(prompt.contains("input.txt") && prompt.contains("first"), "{prompt}");
    fixture.board.assert_invariants().await;
}
