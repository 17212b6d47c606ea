//! From the viber through the store to readers: while it arrives, afterwards, in parts, and when it goes wrong.

use board_tests::{Engine, FakeDaemon, board::HOME, fake_daemon::completed, wait::eventually};
use serde_json::json;

use super::{Stage, noise};

crate::on_both_databases!(
    what_is_told_is_listed_once_and_only_in_its_team,
    opening_one_makes_its_viber_put_it_and_then_it_stays,
    a_reader_never_gets_the_end_of_what_is_wrong,
    an_upload_goes_on_where_it_broke_off,
    what_is_gone_is_said_to_be_gone,
);

async fn what_is_told_is_listed_once_and_only_in_its_team(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let report =
        stage.told("report.md", b"# One".to_vec(), json!({ "type": "text/markdown", "sniffed": "text/plain" })).await;
    let listed = format!("/api/v1/sessions/{}/artifacts", stage.session);
    let all = stage.operator.get(&listed).await.expect(200).json();
    assert_eq!(all["items"].as_array().map(Vec::len), Some(1), "{all}");
    let facts = stage.facts(&report).await;
    assert_eq!(
        (&facts["name"], &facts["type"], &facts["size"]),
        (&json!("report.md"), &json!("text/markdown"), &json!(5))
    );
    assert_eq!((&facts["state"], &facts["origin"]), (&json!("viber"), &json!("agent")));

    // The result names it again, and something new without an id of its own.
    let mut end = serde_json::to_value(completed("done")).expect("JSON");
    end["result"]["artifactRefs"] = json!([
        { "id": "report.md", "ref": facts["ref"], "sha256": report.sha256 },
        { "id": "answer", "ref": format!("artifacts/{}/answer.md", stage.task) },
    ]);
    let end = serde_json::from_value(end).expect("an ending");
    let (task, seq) = (stage.task.clone(), stage.seq + 1);
    stage.viber.report(&task, 1, seq, vec![end]).await;
    let all = stage.operator.get(&listed).await.json();
    let names: Vec<_> = all["items"].as_array().expect("a list").iter().map(|one| one["name"].clone()).collect();
    assert_eq!(names, ["answer", "report.md"]);

    // The next task is told what there is.
    let next = json!({ "goal": "go on", "viberId": stage.viber.id, "sessionId": stage.session });
    stage.operator.post("/api/v1/tasks", &next).await.expect(201);
    let submit = stage.viber.submitted().await;
    let told: Vec<_> = submit.artifacts.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(told, ["answer", "report.md"]);

    stage.viber.cut();
    eventually("the viber is away", async || (stage.facts(&report).await["state"] == "offline").then_some(())).await;
    stage.board.cli(&["team", "add", "other"]).await.good();
    let stranger = stage.board.token("other", "owner").await;
    for path in [format!("/api/v1/artifacts/{}", report.id), format!("/api/v1/artifacts/{}/content", report.id), listed]
    {
        stranger.get(&path).await.expect(404);
    }
    stage.board.sound().await;
}

async fn opening_one_makes_its_viber_put_it_and_then_it_stays(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let thing = stage.has("data.bin", noise(3_000_000)).await;
    let (first, part) = (stage.reader(&thing, None), stage.reader(&thing, Some("bytes=1000-1999")));
    stage.gives(&thing).await;
    let (first, part) = (first.await.expect("read"), part.await.expect("read"));
    assert_eq!((first.status, first.whole, first.bytes == thing.bytes), (200, true, true));
    assert_eq!(first.header("content-length"), "3000000");
    assert_eq!((part.status, part.header("content-range")), (206, "bytes 1000-1999/3000000"));
    assert_eq!(part.bytes, thing.bytes[1000..2000]);
    assert_eq!(stage.facts(&thing).await["state"], "stored");

    stage.viber.cut();
    for (range, expected) in [
        ("bytes=0-0", 0..1),
        ("bytes=2999999-", 2_999_999..3_000_000),
        ("bytes=-70000", 2_930_000..3_000_000),
        ("bytes=131000-263000", 131_000..263_001),
        ("bytes=5-2, 7-9", 0..3_000_000),
    ] {
        let read = stage.reader(&thing, Some(range)).await.expect("read");
        assert!(read.whole && read.bytes == thing.bytes[expected], "{range}");
    }
    let beyond = stage.reader(&thing, Some("bytes=3000000-")).await.expect("read");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, "bytes */3000000"));
    assert_eq!(stage.board.data().join("artifacts/.staging").read_dir().expect("a folder").count(), 0);
    stage.board.sound().await;
}

async fn a_reader_never_gets_the_end_of_what_is_wrong(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let mut thing = stage.has("data.bin", noise(500_000)).await;
    let reader = stage.reader(&thing, None);
    let offer = stage.offered().await;
    stage.answer(&offer, Ok(json!({}))).await;
    let good = std::mem::take(&mut thing.bytes);
    let mut wrong = good.clone();
    wrong[499_999] ^= 1;
    assert_eq!(stage.put(&thing, wrong, None).await.0, 422);
    let read = reader.await.expect("read");
    assert!(
        read.status == 409 || (!read.whole && read.bytes.len() <= 500_000 - 64 * 1024),
        "{} {}",
        read.status,
        read.bytes.len()
    );
    assert_eq!(stage.facts(&thing).await["state"], "viber");

    // The next reader gets it when the viber puts the right bytes.
    let reader = stage.reader(&thing, None);
    let offer = stage.offered().await;
    stage.answer(&offer, Ok(json!({}))).await;
    assert_eq!(stage.put(&thing, good.clone(), None).await.0, 201);
    let read = reader.await.expect("read");
    assert!(read.whole && read.bytes == good);
    // What nobody asks for is not taken.
    let other = stage.has("other.bin", noise(10)).await;
    assert_eq!(stage.put(&other, other.bytes.clone(), None).await.0, 409);
    let stranger = FakeDaemon::enrol_in(&stage.board, HOME, "stranger").await;
    let url = format!("{}/api/daemon/blobs/{}", stage.board.url, thing.id);
    let call =
        reqwest::Client::new().put(url).bearer_auth(&stranger.credential).header("x-content-sha256", &thing.sha256);
    assert_eq!(call.body(good).send().await.expect("an answer").status().as_u16(), 404);
    stage.board.sound().await;
}

async fn an_upload_goes_on_where_it_broke_off(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let thing = stage.has("data.bin", noise(600_000)).await;
    let reader = stage.reader(&thing, None);
    let offer = stage.offered().await;
    stage.answer(&offer, Ok(json!({}))).await;
    let part =
        |from: usize, to: usize| (thing.bytes[from..to].to_vec(), Some(format!("bytes {from}-{}/600000", to - 1)));
    let (bytes, range) = part(0, 250_000);
    assert_eq!(stage.put(&thing, bytes, range).await, (308, Some("bytes=0-249999".into())));
    assert_eq!(
        stage.put(&thing, Vec::new(), Some("bytes */600000".into())).await,
        (308, Some("bytes=0-249999".into()))
    );
    // From somewhere else: it is told where to go on.
    let (bytes, range) = part(100_000, 600_000);
    assert_eq!(stage.put(&thing, bytes, range).await, (308, Some("bytes=0-249999".into())));
    let (bytes, range) = part(250_000, 600_000);
    assert_eq!(stage.put(&thing, bytes, range).await.0, 201);
    let read = reader.await.expect("read");
    assert!(read.whole && read.bytes == thing.bytes);
    // Said once more, it is here already.
    assert_eq!(stage.put(&thing, Vec::new(), Some("bytes */600000".into())).await.0, 201);
    stage.board.sound().await;
}

async fn what_is_gone_is_said_to_be_gone(engine: Engine) {
    let mut stage = Stage::set(engine).await;
    let thing = stage.has("data.txt", b"text".to_vec()).await;
    let reader = stage.reader(&thing, None);
    let offer = stage.offered().await;
    stage.answer(&offer, Err("gone: there is no such file any more")).await;
    assert_eq!(reader.await.expect("read").status, 410);
    stage.viber.cut();
    let answer = eventually("the Board notices", async || {
        let answer = stage.operator.get(&format!("/api/v1/artifacts/{}/content", thing.id)).await;
        (answer.status != 410 || answer.code() == "gone").then_some(answer)
    })
    .await;
    assert!(matches!(answer.status, 410 | 503), "{}", answer.status);
    stage.board.sound().await;
}
