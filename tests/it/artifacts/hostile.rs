//! Artifacts that want to be more than data: their words, their references, their bytes in a browser.

use board_tests::{
    Engine,
    fake_daemon::{completed, progress},
};
use serde_json::{Value, json};

use super::{Stage, noise};

/// Headers that every answer with an artifact's bytes has.
fn closed(read: &super::Read) {
    assert!(read.header("content-security-policy").contains("sandbox"), "{:?}", read.headers);
    assert_eq!(read.header("x-content-type-options"), "nosniff");
    assert_eq!(read.header("cross-origin-resource-policy"), "same-origin");
    assert!(read.headers.get("set-cookie").is_none() && read.headers.get("access-control-allow-origin").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a57_words_about_an_artifact_never_leave_their_place() {
    let mut stage = Stage::set(Engine::Sqlite).await;
    let long = "x".repeat(10_000);
    let names = [
        "a\r\nSet-Cookie: evil=1",
        "quote\"; filename=\"evil.html",
        "\u{202e}gpj.exe",
        "../../etc/passwd",
        "naïve name; ☃.md",
        long.as_str(),
    ];
    for (n, name) in names.iter().enumerate() {
        let id = protocol::ArtifactId::new(1_700_000_000_500 + n as i64).to_string();
        let bytes = format!("<script>alert({n})</script>").into_bytes();
        let artifact = json!({
            "id": name, "title": name, "type": "text/html\r\nSet-Cookie:x", "artifactId": id, "size": bytes.len(),
            "ref": format!("artifacts/{}/{n}.html", stage.task), "sha256": super::sha256(&bytes), "sniffed": "text/html\r\nX-Evil: 1",
        });
        stage.report(&json!({ "type": "artifact", "artifact": artifact })).await;
        let thing = super::Thing { id, sha256: super::sha256(&bytes), bytes };
        let facts = stage.facts(&thing).await;
        assert!(facts["name"].as_str().is_some_and(|name| name.chars().count() <= 200), "{facts}");
        let reader = stage.reader(&thing, None);
        stage.gives(&thing).await;
        let read = reader.await.expect("read");
        closed(&read);
        assert_eq!((read.status, read.header("content-type")), (200, "application/octet-stream"));
        let disposition = read.header("content-disposition");
        assert!(disposition.starts_with("attachment; filename=\"") && disposition.is_ascii(), "{disposition}");
        assert_eq!(disposition.matches('"').count(), 2, "{disposition}");
        assert!(disposition.len() < 700 && !disposition.contains("evil="), "{disposition}");
    }
    // An uploaded file whose name cannot be cleaned is refused.
    for name in ["%E2%80%AE", "..", "%22", "%2F", "%0D%0A"] {
        let path = format!("/api/v1/sessions/{}/artifacts?name={name}", stage.session);
        let request = stage.operator.request(reqwest::Method::POST, &path).body("x");
        assert_eq!(stage.operator.send(request).await.expect(422).code(), "bad_name", "{name}");
    }
    stage.board.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a73_what_could_be_a_script_is_only_a_download() {
    let mut stage = Stage::set(Engine::Sqlite).await;
    let all: &[(&str, &[u8], &str)] = &[
        ("polyglot.gif", b"GIF89a/*<html><script>alert(1)</script>*/=1", "image/gif"),
        ("page.txt", b"<!DOCTYPE html><script>alert(1)</script>", "text/html"),
        ("code.js", b"alert(1)", "text/plain"),
        ("style.css", b"body { background: red }", "text/plain"),
        ("unknown", b"\0\x01\x02alert(1)", "application/octet-stream"),
    ];
    let owner = stage.board.owner().await;
    for (name, bytes, sniffed) in all {
        let thing = stage.told(name, bytes.to_vec(), json!({ "sniffed": sniffed, "type": "text/javascript" })).await;
        let reader = stage.reader(&thing, None);
        stage.gives(&thing).await;
        let read = reader.await.expect("read");
        closed(&read);
        assert_eq!(read.header("content-type"), "application/octet-stream", "{name}");
        assert!(read.header("content-disposition").starts_with("attachment"), "{name}");
        // Its pages: as media only what the bytes are, as a page only in the sandbox.
        let view = owner.page(&format!("/t/home/artifacts/{}/view", thing.id)).await;
        let sandbox = owner.page(&format!("/t/home/artifacts/{}/sandbox", thing.id)).await;
        match *sniffed {
            "image/gif" => {
                assert_eq!((view.status, view.header("content-type"), sandbox.status), (200, "image/gif", 404))
            }
            "text/html" => {
                assert_eq!((view.status, sandbox.status), (404, 200));
                let policy = sandbox.header("content-security-policy");
                assert!(policy.starts_with("sandbox;") && !policy.contains("allow-"), "{policy}");
            }
            _ => assert_eq!((view.status, sandbox.status), (404, 404), "{name}"),
        }
    }
    stage.board.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a80_lists_of_artifacts_make_nothing_outside_their_task() {
    let mut stage = Stage::set(Engine::Sqlite).await;
    let mine = stage.has("mine.txt", b"mine".to_vec()).await;
    let refs = [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "../../../etc/passwd",
        "artifacts/../state/credential",
        "http://169.254.169.254/",
        "artifacts/x\r\ny",
    ];
    for reference in refs {
        let artifact = json!({ "id": reference, "title": reference, "ref": reference, "artifactId": mine.id });
        stage.report(&json!({ "type": "artifact", "artifact": artifact })).await;
        let artifact = json!({ "id": reference, "title": reference, "ref": reference });
        stage.report(&json!({ "type": "artifact", "artifact": artifact })).await;
    }
    // The id that exists stays what it is; the others are inert words.
    let listed = format!("/api/v1/sessions/{}/artifacts?limit=200", stage.session);
    let all = stage.operator.get(&listed).await.expect(200).json();
    let items = all["items"].as_array().expect("a list");
    assert_eq!(stage.facts(&mine).await["name"], "mine.txt");
    assert_eq!(items.len(), 1 + 5, "{all:#}");
    let owner = stage.board.owner().await;
    let page = owner.page(&format!("/t/home/sessions/{}?pane=artifacts", stage.session)).await.expect(200).body;
    assert!(
        !page.contains("href=\"javascript:") && !page.contains("href=\"file:") && !page.contains("169.254.169.254\""),
        "{page}"
    );
    for item in items.iter().filter(|item| item["state"] == "link") {
        let path = format!("/api/v1/artifacts/{}/content", item["id"].as_str().expect("an id"));
        assert_eq!(stage.operator.get(&path).await.expect(422).code(), "link");
    }
    // Of a flood a thousand stay.
    let many: Vec<Value> = (0..1_200).map(|n| json!({ "id": format!("f{n}"), "ref": "x" })).collect();
    for some in many.chunks(300) {
        let bodies =
            some.iter().map(|artifact| progress(&json!({ "type": "artifact", "artifact": artifact }))).collect();
        let (task, seq) = (stage.task.clone(), stage.seq + 1);
        stage.viber.report(&task, 1, seq, bodies).await;
        stage.seq += some.len() as u64;
    }
    let mut end = serde_json::to_value(completed("done")).expect("JSON");
    end["result"]["artifactRefs"] = json!([{ "id": "last", "ref": "x" }]);
    let (task, seq) = (stage.task.clone(), stage.seq + 1);
    stage.viber.report(&task, 1, seq, vec![serde_json::from_value(end).expect("an ending")]).await;
    let (mut next, mut count) = (Value::Null, 0);
    loop {
        let cursor = next.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = stage.operator.get(&format!("{listed}{cursor}")).await.expect(200).json();
        count += page["items"].as_array().map_or(0, Vec::len);
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!(count, 1_000);
    stage.board.sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_team_bounds_what_its_vibers_may_put() {
    let mut stage = Stage::set(Engine::Sqlite).await;
    stage.board.sql("UPDATE teams SET artifact_bytes = 100000").await;
    let large = stage.has("large.bin", noise(100_001)).await;
    assert_eq!(stage.reader(&large, None).await.expect("read").status, 413);
    let path = format!("/api/v1/sessions/{}/artifacts?name=large.bin", stage.session);
    let upload = stage.operator.request(reqwest::Method::POST, &path).body(noise(100_001));
    assert_eq!(stage.operator.send(upload).await.status, 413);
    let fits = stage.has("fits.bin", noise(100_000)).await;
    let reader = stage.reader(&fits, None);
    stage.gives(&fits).await;
    assert!(reader.await.expect("read").whole);
    stage.board.sound().await;
}
