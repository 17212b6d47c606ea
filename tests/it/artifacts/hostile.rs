//! Artifacts that want to be more than data: their words, their references, their bytes in a browser.

use board_tests::{
    Engine,
    fake_daemon::{completed, progress},
};
use serde_json::{Value, json};

use super::{Artifacts, noise, working};

/// Headers that every answer with an artifact's bytes has.
fn closed(read: &super::Read) {
    assert!(read.header("content-security-policy").contains("sandbox"), "{:?}", read.headers);
    assert_eq!(read.header("x-content-type-options"), "nosniff");
    assert_eq!(read.header("cross-origin-resource-policy"), "same-origin");
    assert!(read.headers.get("set-cookie").is_none() && read.headers.get("access-control-allow-origin").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a57_words_about_an_artifact_never_leave_their_place() {
    let mut fixture = working(Engine::Sqlite).await;
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
            "ref": format!("artifacts/{}/{n}.html", fixture.task()), "sha256": super::sha256(&bytes), "sniffed": "text/html\r\nX-Evil: 1",
        });
        fixture.report(&json!({ "type": "artifact", "artifact": artifact })).await;
        let thing = super::Thing { id, sha256: super::sha256(&bytes), bytes };
        let facts = fixture.facts(&thing).await;
        assert!(facts["name"].as_str().is_some_and(|name| name.chars().count() <= 200), "{facts}");
        let reader = fixture.reader(&thing, None);
        fixture.gives(&thing).await;
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
        let path = format!("/api/v1/sessions/{}/artifacts?name={name}", fixture.session());
        let request = fixture.operator.request(reqwest::Method::POST, &path).body("x");
        assert_eq!(fixture.operator.send(request).await.expect(422).code(), "bad_name", "{name}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a73_what_could_be_a_script_is_only_a_download() {
    let mut fixture = working(Engine::Sqlite).await;
    let all: &[(&str, &[u8], &str)] = &[
        ("polyglot.gif", b"GIF89a/*<html><script>alert(1)</script>*/=1", "image/gif"),
        ("page.txt", b"<!DOCTYPE html><script>alert(1)</script>", "text/html"),
        ("code.js", b"alert(1)", "text/plain"),
        ("style.css", b"body { background: red }", "text/plain"),
        ("unknown", b"\0\x01\x02alert(1)", "application/octet-stream"),
    ];
    let owner = fixture.board.owner().await;
    for (name, bytes, sniffed) in all {
        let thing =
            fixture.announces(name, bytes.to_vec(), json!({ "sniffed": sniffed, "type": "text/javascript" })).await;
        let reader = fixture.reader(&thing, None);
        fixture.gives(&thing).await;
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
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a80_lists_of_artifacts_make_nothing_outside_their_task() {
    let mut fixture = working(Engine::Sqlite).await;
    let mine = fixture.has("mine.txt", b"mine".to_vec()).await;
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
        fixture.report(&json!({ "type": "artifact", "artifact": artifact })).await;
        let artifact = json!({ "id": reference, "title": reference, "ref": reference });
        fixture.report(&json!({ "type": "artifact", "artifact": artifact })).await;
    }
    // The id that exists stays what it is; the others are inert words.
    let listed = format!("/api/v1/sessions/{}/artifacts?limit=200", fixture.session());
    let all = fixture.operator.get(&listed).await.expect(200).json();
    let items = all["items"].as_array().expect("a list");
    assert_eq!(fixture.facts(&mine).await["name"], "mine.txt");
    assert_eq!(items.len(), 1 + 5, "{all:#}");
    let owner = fixture.board.owner().await;
    let page = owner.page(&format!("/t/home/sessions/{}?pane=artifacts", fixture.session())).await.expect(200).body;
    assert!(
        !page.contains("href=\"javascript:") && !page.contains("href=\"file:") && !page.contains("169.254.169.254\""),
        "{page}"
    );
    for item in items.iter().filter(|item| item["state"] == "link") {
        let path = format!("/api/v1/artifacts/{}/content", item["id"].as_str().expect("an id"));
        assert_eq!(fixture.operator.get(&path).await.expect(422).code(), "link");
    }
    // Of a flood a thousand stay.
    let many: Vec<Value> = (0..1_200).map(|n| json!({ "id": format!("f{n}"), "ref": "x" })).collect();
    for some in many.chunks(300) {
        let bodies =
            some.iter().map(|artifact| progress(&json!({ "type": "artifact", "artifact": artifact }))).collect();
        fixture.tell(bodies).await;
    }
    let mut end = serde_json::to_value(completed("done")).expect("JSON");
    end["result"]["artifactRefs"] = json!([{ "id": "last", "ref": "x" }]);
    fixture.tell(vec![serde_json::from_value(end).expect("an ending")]).await;
    let (mut next, mut count) = (Value::Null, 0);
    loop {
        let cursor = next.as_str().map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = fixture.operator.get(&format!("{listed}{cursor}")).await.expect(200).json();
        count += page["items"].as_array().map_or(0, Vec::len);
        next = page["next"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!(count, 1_000);
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_team_bounds_what_its_vibers_may_put() {
    let mut fixture = working(Engine::Sqlite).await;
    fixture.board.sql("UPDATE teams SET artifact_bytes = 100000").await;
    let large = fixture.has("large.bin", noise(100_001)).await;
    assert_eq!(fixture.reader(&large, None).await.expect("read").status, 413);
    let path = format!("/api/v1/sessions/{}/artifacts?name=large.bin", fixture.session());
    let upload = fixture.operator.request(reqwest::Method::POST, &path).body(noise(100_001));
    assert_eq!(fixture.operator.send(upload).await.status, 413);
    let fits = fixture.has("fits.bin", noise(100_000)).await;
    let reader = fixture.reader(&fits, None);
    fixture.gives(&fits).await;
    assert!(reader.await.expect("read").whole);
    fixture.board.assert_invariants().await;
}
