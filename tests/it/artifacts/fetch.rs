//! From the viber through the store to readers: while it arrives, afterwards, in parts, and when it goes wrong.

use board_tests::{Engine, FakeDaemon, board::HOME, fake_daemon::completed, wait::eventually};
use serde_json::json;

use super::{Artifacts, noise, working};

crate::on_both_databases!(
    what_is_told_is_listed_once_and_only_in_its_team,
    opening_one_makes_its_viber_put_it_and_then_it_stays,
    a_reader_never_gets_the_end_of_what_is_wrong,
    an_upload_goes_on_where_it_broke_off,
    what_is_gone_is_said_to_be_gone,
);

async fn what_is_told_is_listed_once_and_only_in_its_team(engine: Engine) {
    let mut fixture = working(engine).await;
    let report = fixture
        .announces("report.md", b"# One".to_vec(), json!({ "type": "text/markdown", "sniffed": "text/plain" }))
        .await;
    let listed = format!("/api/v1/sessions/{}/artifacts", fixture.session());
    let all = fixture.operator.get(&listed).await.expect(200).json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
    let facts = fixture.facts(&report).await;
    assert_eq!(
        (&facts["name"], &facts["type"], &facts["size"]),
        (&json!("report.md"), &json!("text/markdown"), &json!(5))
    );
    assert_eq!((&facts["state"], &facts["origin"]), (&json!("viber"), &json!("agent")));

    // The result names it again, and something new without an id of its own.
    let mut end = serde_json::to_value(completed("done")).expect("JSON");
    end["result"]["artifactRefs"] = json!([
        { "id": "report.md", "ref": facts["ref"], "sha256": report.sha256 },
        { "id": "answer", "ref": format!("artifacts/{}/answer.md", fixture.task()) },
    ]);
    let end = serde_json::from_value(end).expect("an ending");
    fixture.tell(vec![end]).await;
    let all = fixture.operator.get(&listed).await.json();
    let names: Vec<_> = all["items"].as_array().expect("a list").iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["answer", "report.md"]);

    // The next task is told what there is.
    let next = json!({ "goal": "go on", "viberId": fixture.viber.id, "sessionId": fixture.session() });
    fixture.operator.post("/api/v1/tasks", &next).await.expect(201);
    let submit = fixture.viber.submitted().await;
    let told: Vec<_> = submit.artifacts.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(told, ["answer", "report.md"]);

    fixture.viber.cut();
    eventually("the viber is away", async || (fixture.facts(&report).await["state"] == "offline").then_some(())).await;
    fixture.board.cli(&["team", "add", "other"]).await.good();
    let stranger = fixture.board.token("other", "owner").await;
    for path in [format!("/api/v1/artifacts/{}", report.id), format!("/api/v1/artifacts/{}/content", report.id), listed]
    {
        stranger.get(&path).await.expect(404);
    }
    fixture.board.assert_invariants().await;
}

async fn opening_one_makes_its_viber_put_it_and_then_it_stays(engine: Engine) {
    let mut fixture = working(engine).await;
    let thing = fixture.has("data.bin", noise(3_000_000)).await;
    let (first, part) = (fixture.reader(&thing, None), fixture.reader(&thing, Some("bytes=1000-1999")));
    fixture.gives(&thing).await;
    let (first, part) = (first.await.expect("read"), part.await.expect("read"));
    assert_eq!((first.status, first.whole, first.bytes == thing.bytes), (200, true, true));
    assert_eq!(first.header("content-length"), "3000000");
    assert_eq!((part.status, part.header("content-range")), (206, "bytes 1000-1999/3000000"));
    assert_eq!(part.bytes, thing.bytes[1000..2000]);
    assert_eq!(fixture.facts(&thing).await["state"], "stored");

    fixture.viber.cut();
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=2999999-", 2_999_999..3_000_000),
        ("bytes=-70000", 2_930_000..3_000_000),
        ("bytes=131000-263000", 131_000..263_001),
        ("bytes=5-2, 7-9", 0..3_000_000),
    ] {
        let read = fixture.reader(&thing, Some(range)).await.expect("read");
        assert!(read.whole && read.bytes == thing.bytes[expected], "{range}");
    }
    let beyond = fixture.reader(&thing, Some("bytes=3000000-")).await.expect("read");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, "bytes */3000000"));
    assert_eq!(fixture.board.data().join("artifacts/.staging").read_dir().expect("a folder").count(), 0);
    fixture.board.assert_invariants().await;
}

async fn a_reader_never_gets_the_end_of_what_is_wrong(engine: Engine) {
    let mut fixture = working(engine).await;
    let mut thing = fixture.has("data.bin", noise(500_000)).await;
    let reader = fixture.reader(&thing, None);
    let offer = fixture.offered().await;
    fixture.answer(&offer, Ok(json!({}))).await;
    let good = std::mem::take(&mut thing.bytes);
    let mut wrong = good.clone();
    wrong[499_999] ^= 1;
    assert_eq!(fixture.put(&thing, wrong, None).await.0, 422);
    let read = reader.await.expect("read");
    assert!(
        read.status == 409 || (!read.whole && read.bytes.len() <= 500_000 - 64 * 1024),
        "{} {}",
        read.status,
        read.bytes.len()
    );
    assert_eq!(fixture.facts(&thing).await["state"], "viber");

    // The next reader gets it when the viber puts the right bytes.
    let reader = fixture.reader(&thing, None);
    let offer = fixture.offered().await;
    fixture.answer(&offer, Ok(json!({}))).await;
    assert_eq!(fixture.put(&thing, good.clone(), None).await.0, 201);
    let read = reader.await.expect("read");
    assert!(read.whole && read.bytes == good);
    // What nobody asks for is not taken.
    let other = fixture.has("other.bin", noise(10)).await;
    assert_eq!(fixture.put(&other, other.bytes.clone(), None).await.0, 409);
    let stranger = FakeDaemon::enrol_in(&fixture.board, HOME, "stranger").await;
    let url = format!("{}/api/daemon/blobs/{}", fixture.board.url, thing.id);
    let call =
        reqwest::Client::new().put(url).bearer_auth(&stranger.credential).header("x-content-sha256", &thing.sha256);
    assert_eq!(call.body(good).send().await.expect("an answer").status().as_u16(), 404);
    fixture.board.assert_invariants().await;
}

async fn an_upload_goes_on_where_it_broke_off(engine: Engine) {
    let mut fixture = working(engine).await;
    let thing = fixture.has("data.bin", noise(600_000)).await;
    let reader = fixture.reader(&thing, None);
    let offer = fixture.offered().await;
    fixture.answer(&offer, Ok(json!({}))).await;
    let part =
        |from: usize, to: usize| (thing.bytes[from..to].to_vec(), Some(format!("bytes {from}-{}/600000", to - 1)));
    let (bytes, range) = part(0, 250_000);
    assert_eq!(fixture.put(&thing, bytes, range).await, (308, Some("bytes=0-249999".into())));
    assert_eq!(
        fixture.put(&thing, Vec::new(), Some("bytes */600000".into())).await,
        (308, Some("bytes=0-249999".into()))
    );
    // From somewhere else: it is told where to go on.
    let (bytes, range) = part(100_000, 600_000);
    assert_eq!(fixture.put(&thing, bytes, range).await, (308, Some("bytes=0-249999".into())));
    let (bytes, range) = part(250_000, 600_000);
    assert_eq!(fixture.put(&thing, bytes, range).await.0, 201);
    let read = reader.await.expect("read");
    assert!(read.whole && read.bytes == thing.bytes);
    // Said once more, it is here already.
    assert_eq!(fixture.put(&thing, Vec::new(), Some("bytes */600000".into())).await.0, 201);
    fixture.board.assert_invariants().await;
}

async fn what_is_gone_is_said_to_be_gone(engine: Engine) {
    let mut fixture = working(engine).await;
    let thing = fixture.has("data.txt", b"text".to_vec()).await;
    let reader = fixture.reader(&thing, None);
    let offer = fixture.offered().await;
    fixture.answer(&offer, Err("gone: there is no such file any more")).await;
    assert_eq!(reader.await.expect("read").status, 410);
    fixture.viber.cut();
    let answer = eventually("the Board notices", async || {
        let answer = fixture.operator.get(&format!("/api/v1/artifacts/{}/content", thing.id)).await;
        (answer.status != 410 || answer.code() == "gone").then_some(answer)
    })
    .await;
    assert!(matches!(answer.status, 410 | 503), "{}", answer.status);
    fixture.board.assert_invariants().await;
}
