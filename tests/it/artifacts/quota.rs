//! A team's storage: counted as it is used, full for files, never for events (F88, F89).

use board_tests::{Answer, Engine, FakeDaemon, Fixture, board::HOME, wait::eventually};
use reqwest::{Method, header};
use serde_json::json;

use super::{Artifacts, noise, working};

crate::on_both_databases!(
    f88_a_full_team_gets_403_for_files_while_events_go_on,
    f89_a_reader_of_a_full_team_has_all_bytes_and_the_store_keeps_none,
);

/// What a team may store, and does.
trait Quota {
    async fn used(&self) -> u64;
    async fn limit(&self, bytes: u64);
    async fn upload(&self, name: &str, bytes: Vec<u8>) -> Answer;
}

impl Quota for Fixture<FakeDaemon> {
    async fn used(&self) -> u64 {
        let quota = self.operator.get("/api/v1/quota").await.expect(200).json();
        quota["storage"]["used"].as_u64().expect("a number")
    }

    async fn limit(&self, bytes: u64) {
        self.board.cli(&["team", "quota", HOME, "--storage", &bytes.to_string()]).await.good();
    }

    async fn upload(&self, name: &str, bytes: Vec<u8>) -> Answer {
        let path = format!("/api/v1/sessions/{}/artifacts?name={name}", self.session());
        let request = self.operator.request(Method::POST, &path).header(header::CONTENT_TYPE, "text/plain");
        self.operator.send(request.body(bytes)).await
    }
}

async fn f88_a_full_team_gets_403_for_files_while_events_go_on(engine: Engine) {
    let mut fixture = working(engine).await;
    let before = fixture.used().await;
    fixture.upload("one.txt", vec![b'a'; 100_000]).await.expect(201);
    assert_eq!(fixture.used().await, before + 100_000);
    fixture.upload("again.txt", vec![b'a'; 100_000]).await.expect(201);
    assert_eq!(fixture.used().await, before + 100_000, "the same content takes no more room");

    let used = fixture.used().await;
    fixture.limit(used + 50_000).await;
    let refused = fixture.upload("large.txt", vec![b'b'; 60_000]).await.expect(403).json();
    assert_eq!((&refused["code"], &refused["what"]), (&json!("quota_exceeded"), &json!("storage")));
    assert_eq!((refused["used"].as_u64(), refused["limit"].as_u64()), (Some(used), Some(used + 50_000)));
    fixture.upload("small.txt", vec![b'c'; 40_000]).await.expect(201);
    // A viber that reports on fills it; it is heard all the same.
    for n in 0..5 {
        fixture.report(&json!({ "type": "text-delta", "content": format!("{n}{}", "é".repeat(5_000)) })).await;
    }
    let used = fixture.used().await;
    assert!(used > before + 140_000 + 50_000, "events count: {used}");
    fixture.upload("tiny.txt", vec![b'd']).await.expect(403);
    let events = fixture.operator.events(fixture.task().as_ref()).await;
    assert_eq!(events.last().expect("events")["seq"], fixture.seq(), "nothing that was reported is lost");
    let owner = fixture.board.owner().await;
    let settings = owner.page("/t/home/settings").await.expect(200).body;
    assert!(settings.contains("<meter") && settings.contains("It is full"), "{settings}");
    let pane = owner.page(&format!("/t/home/sessions/{}?pane=artifacts", fixture.session())).await.expect(200).body;
    assert!(pane.contains("storage is full") && !pane.contains("class=\"attach-form\""), "{pane}");
    let said = fixture.board.cli(&["doctor"]).await;
    assert!(said.out.contains("ok    storage"), "{said:?}");

    // A counter that somebody changed is found and set right.
    for wrong in ["UPDATE usage SET bytes = bytes + 7", "UPDATE viber_counts SET vibers = 7"] {
        fixture.board.sql(wrong).await;
        assert!(fixture.board.cli(&["doctor"]).await.out.contains("--recount"), "{wrong}");
        fixture.board.cli(&["team", "quota", HOME, "--recount"]).await.good();
        let said = fixture.board.cli(&["doctor"]).await;
        assert!(said.out.contains("ok    storage"), "{wrong}: {said:?}");
    }
    assert_eq!(fixture.used().await, used);

    // What is deleted makes room.
    fixture.board.assert_invariants().await;
    fixture.tell(vec![board_tests::fake_daemon::completed("done")]).await;
    let session = format!("/api/v1/sessions/{}", fixture.session());
    fixture.operator.task_in(fixture.task().as_str(), "completed").await;
    fixture.operator.delete(&session).await.expect(204);
    let only_files = async || (fixture.used().await == 140_000).then_some(());
    eventually("only the files are left, until they are swept", only_files).await;
    fixture.board.cli(&["team", "add", "other"]).await.good();
    assert_eq!(
        fixture.board.token("other", "viewer").await.get("/api/v1/quota").await.expect(200).json()["storage"]["used"],
        0
    );
    fixture.board.cli(&["team", "delete", HOME, "--yes"]).await.good();
}

async fn f89_a_reader_of_a_full_team_has_all_bytes_and_the_store_keeps_none(engine: Engine) {
    let mut fixture = working(engine).await;
    let thing = fixture.has("data.bin", noise(400_000)).await;
    let used = fixture.used().await;
    fixture.limit(used + 1_000).await;
    for _ in 0..2 {
        let reader = fixture.reader(&thing, None);
        fixture.gives(&thing).await;
        let read = reader.await.expect("read");
        assert_eq!((read.status, read.whole, read.bytes == thing.bytes), (200, true, true));
        assert_eq!(fixture.used().await, used, "nothing is kept");
        assert_eq!(fixture.facts(&thing).await["state"], "viber");
    }
    fixture.limit(used + 400_000).await;
    let reader = fixture.reader(&thing, None);
    fixture.gives(&thing).await;
    assert!(reader.await.expect("read").whole);
    assert_eq!((fixture.used().await, &fixture.facts(&thing).await["state"]), (used + 400_000, &json!("stored")));
    fixture.board.assert_invariants().await;
}
