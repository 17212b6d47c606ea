//! Reading and changing while the machine is there: the version that was seen, or nothing.

use board_tests::{Engine, Fixture};
use reqwest::{Method, header};
use serde_json::json;

use super::{Workspace, tag};

crate::on_both_databases!(
    a_file_is_made_read_changed_and_deleted,
    a_stale_version_is_told_and_nothing_is_lost,
    an_editor_and_the_board_in_one_file_lose_nothing,
    a_large_text_travels_beside_the_socket,
    a_page_shows_both_sides_of_a_conflict,
);

async fn a_file_is_made_read_changed_and_deleted(engine: Engine) {
    let fixture = Fixture::on(engine).with_viber().await;
    let made = fixture.put("notes/today.md", Some(""), "# Today\n").await.expect(200).json();
    assert_eq!(made["state"], "applied");
    assert_eq!(fixture.on_disk("notes/today.md").as_deref(), Some("# Today\n"));
    let read = fixture.read("notes/today.md").await.expect(200);
    assert_eq!(
        (read.body.as_str(), tag(&read), read.header("x-as-of")),
        ("# Today\n", made["hash"].as_str().expect("a hash").to_owned(), "")
    );
    let request = fixture.operator.request(Method::GET, &fixture.api("notes/today.md"));
    let same = fixture.operator.send(request.header(header::IF_NONE_MATCH, format!("\"{}\"", tag(&read)))).await;
    assert_eq!((same.status, same.body.as_str()), (304, ""));
    fixture.put("notes/today.md", Some(""), "x").await.expect(412);
    fixture.put("notes/today.md", None, "x").await.expect(428);
    fixture.put("notes/today.md", Some(&tag(&read)), "# Tomorrow\n").await.expect(200);
    assert_eq!(fixture.on_disk("notes/today.md").as_deref(), Some("# Tomorrow\n"));
    let folder = format!("/api/v1/vibers/{}/workspace", fixture.viber_id);
    let root = fixture.operator.get(&folder).await.expect(200).json();
    assert_eq!((&root["items"][0]["name"], &root["items"][0]["kind"]), (&json!("notes"), &json!("folder")));
    let notes = fixture.operator.get(&format!("{folder}?path=notes")).await.expect(200).json();
    assert_eq!((&notes["items"][0]["name"], &notes["items"][0]["size"]), (&json!("today.md"), &json!(11)));
    let now = tag(&fixture.read("notes/today.md").await);
    fixture.operator.delete(&fixture.api("notes/today.md")).await.expect(428);
    let delete = |hash: String| {
        fixture
            .operator
            .request(Method::DELETE, &fixture.api("notes/today.md"))
            .header(header::IF_MATCH, format!("\"{hash}\""))
    };
    fixture.operator.send(delete(tag(&read))).await.expect(412);
    fixture.operator.send(delete(now)).await.expect(200);
    fixture.read("notes/today.md").await.expect(404);
    assert_eq!(fixture.on_disk("notes/today.md"), None);
    let trash = std::fs::read_dir(fixture.viber.home().join("workspace/.trash")).expect("a trash").count();
    assert_eq!(trash, 1);
    fixture.board.assert_invariants().await;
}

async fn a_stale_version_is_told_and_nothing_is_lost(engine: Engine) {
    let fixture = Fixture::on(engine).with_viber().await;
    let mine = tag(&fixture.put("task.md", Some(""), "one\n").await.expect(200));
    assert_eq!(mine, "");
    let base = tag(&fixture.read("task.md").await.expect(200));
    fixture.editor("task.md", "theirs\n").await;
    let refused = fixture.put("task.md", Some(&base), "mine\n").await.expect(412);
    assert_eq!(refused.code(), "stale");
    let told = refused.json();
    assert_eq!(told["base"], json!(base));
    fixture.seen("task.md", "theirs\n").await;
    assert_eq!(told["current"], json!(tag(&fixture.read("task.md").await)));
    assert_eq!(fixture.on_disk("task.md").as_deref(), Some("theirs\n"));
    fixture.board.assert_invariants().await;
}

async fn an_editor_and_the_board_in_one_file_lose_nothing(engine: Engine) {
    const LINE_COUNT: usize = 25;
    let fixture = Fixture::on(engine).with_viber().await;
    fixture.put("log.md", Some(""), "").await.expect(200);
    let file = fixture.viber.home().join("workspace/log.md");
    // It opens the file for each line, as `>>` does.
    let script = "for n in $(seq 1 25); do echo \"editor $n\" >> \"$1\"; sleep 0.05; done";
    let mut editor = tokio::process::Command::new("sh");
    let mut editor = editor.args(["-c", script, "sh"]).arg(&file).kill_on_drop(true).spawn().expect("a shell");
    let mut kept = Vec::new();
    for n in 0..LINE_COUNT {
        let line = format!("board {n}\n");
        // Again with what is there now, until it fits.
        let done = board_tests::eventually("the line is taken", || async {
            let now = fixture.read("log.md").await.expect(200);
            let answer = fixture.put("log.md", Some(&tag(&now)), &format!("{}{line}", now.body)).await;
            assert!(matches!(answer.status, 200 | 412), "{answer:#?}");
            (answer.status == 200).then_some(())
        });
        done.await;
        kept.push(line);
    }
    assert!(editor.wait().await.expect("it ran").success());
    let text = fixture.on_disk("log.md").expect("there");
    for line in kept.into_iter().chain((1..=LINE_COUNT).map(|n| format!("editor {n}\n"))) {
        assert_eq!(text.matches(&line).count(), 1, "{line:?} in {text}");
    }
    fixture.board.assert_invariants().await;
}

async fn a_large_text_travels_beside_the_socket(engine: Engine) {
    let fixture = Fixture::on(engine).with_viber().await;
    let text = "Zürich, 東京 und \"Anführung\"\n".repeat(25_000);
    let text = protocol::text::head(&text, 1024 * 1024);
    fixture.put("large.md", Some(""), text).await.expect(200);
    assert_eq!(fixture.on_disk("large.md").as_deref(), Some(text));
    assert_eq!(fixture.read("large.md").await.expect(200).body, text);
    fixture.put("larger.md", Some(""), &"x".repeat(1024 * 1024 + 1)).await.expect(413);
    std::fs::write(fixture.viber.home().join("workspace/huge.log"), "0123456789".repeat(300_000)).expect("written");
    let part = fixture.read("huge.log").await.expect(206);
    assert!(part.header("content-range").starts_with("bytes 0-") && part.header("content-range").ends_with("/3000000"));
    let request =
        fixture.operator.request(Method::GET, &fixture.api("huge.log")).header(header::RANGE, "bytes=2999995-");
    assert_eq!(fixture.operator.send(request).await.expect(206).body, "56789");
    fixture.board.assert_invariants().await;
}

async fn a_page_shows_both_sides_of_a_conflict(engine: Engine) {
    let fixture = Fixture::on(engine).with_viber().await;
    fixture.put("plan.md", Some(""), "one\ntwo\nthree\n").await.expect(200);
    let person = fixture.board.operator(board_tests::board::HOME, "olga@example.org", "operator").await;
    let editor = person.page(&format!("{}?edit=1", fixture.page("plan.md"))).await.expect(200);
    let base = tag(&fixture.read("plan.md").await);
    assert!(editor.body.contains(&format!("name=\"base\" value=\"{base}\"")), "{}", editor.body);
    fixture.editor("plan.md", "one\ntwo\nthree and more\n").await;
    let fields = [("verb", "save"), ("base", base.as_str()), ("content", "ONE\r\ntwo\r\nthree\r\n")];
    let saved = person.post_form(&fixture.page("plan.md"), &fields).await.expect(303);
    let conflict = saved.header("location").to_owned();
    assert!(conflict.contains("/edits/edt_"), "{conflict}");
    let page = person.page(&conflict).await.expect(200);
    for part in ["Draft of both", "three and more", "ONE", "Both changes are merged", "Take yours", "Keep theirs"] {
        assert!(page.body.contains(part), "{part:?} in {}", page.body);
    }
    assert_eq!(fixture.on_disk("plan.md").as_deref(), Some("one\ntwo\nthree and more\n"));
    let theirs = tag(&fixture.read("plan.md").await);
    let draft = [("choice", "draft"), ("theirs", theirs.as_str()), ("content", "ONE\r\ntwo\r\nthree and more\r\n")];
    person.post_form(&conflict, &draft).await.expect(303);
    assert_eq!(fixture.on_disk("plan.md").as_deref(), Some("ONE\ntwo\nthree and more\n"));
    person.post_form(&conflict, &draft).await.expect(409);
    let history = person.page(&format!("{}?history=1", fixture.page("plan.md"))).await.expect(200);
    assert!(history.body.contains("Settled") && history.body.contains("Done"), "{}", history.body);
    fixture.board.assert_invariants().await;
}
