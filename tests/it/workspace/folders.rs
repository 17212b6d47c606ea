//! Folders as a whole, other names, and looking for something in all of it.

use board_tests::{Engine, Fixture, board::HOME, eventually, llm::Reply, tasks::id};
use reqwest::{Method, header};
use serde_json::json;

use super::{Workspace, tag};

crate::on_both_databases!(a_folder_is_renamed_and_deleted_with_all_in_it, a_sessions_folder_carries_its_title);

async fn a_sessions_folder_carries_its_title(engine: Engine) {
    let fixture = Fixture::on(engine).scripted_model([Reply::text("Done.")]).with_viber().await;
    let person = fixture.board.operator(HOME, "olga@example.org", "operator").await;
    let page = async |path: &str| person.page(&fixture.page(path)).await;
    // A fresh machine has none of these yet: their pages say what will be there, and others are unknown as ever.
    for (folder, words) in [
        ("artifacts/", "What agents keep for every session"),
        ("sessions/", "A session gets a folder here"),
        ("sessions/ses_00000000000000000000000000000000/", "plan and the files that belong to it"),
    ] {
        let html = page(folder).await.expect(200).body;
        assert!(html.contains("Nothing here yet.") && html.contains(words), "{folder}: {html}");
    }
    for folder in ["nothing/", "artifacts/of/", "sessions/x/", "sessions/ses_00000000000000000000000000000000/y/"] {
        page(folder).await.expect(404);
    }
    let task = fixture.play("Paint the <i>shed</i>").await;
    let (session, other) = (id(&task, "sessionId"), protocol::SessionId::new(7).to_string());
    for session in [session, other.as_str()] {
        fixture.editor(&format!("sessions/{session}/notes.md"), "x").await;
        fixture.seen(&format!("sessions/{session}/notes.md"), "x").await;
    }
    let html = page("sessions/").await.expect(200).body;
    assert_eq!(html.matches("session-title").count(), 1, "what is no session here has no title: {html}");
    assert!(
        html.contains(&format!("{session} <span class=\"meta session-title\">Paint the &#60;i&#62;shed")),
        "{html}"
    );
    let inside = page(&format!("sessions/{session}/notes.md")).await.expect(200).body;
    assert!(inside.contains("session-title\">Paint the"), "{inside}");
    let pane = format!("/t/{HOME}/sessions/{session}?pane=files");
    let shown = eventually("the tab lists the file", || async {
        let html = person.page(&pane).await.expect(200).body;
        html.contains("notes.md").then_some(html)
    })
    .await;
    assert!(shown.contains("session-title\">Paint the"), "{shown}");
    fixture.board.assert_invariants().await;
}

async fn a_folder_is_renamed_and_deleted_with_all_in_it(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_viber().await;
    for (path, text) in [("notes/a.md", "a"), ("notes/deep/b.md", "b"), ("other.md", "o")] {
        fixture.put(path, Some(""), text).await.expect(200);
    }
    let rename = async |path: &str, to: &str| {
        let request = fixture.operator.request(Method::PATCH, &fixture.api(path)).json(&json!({ "path": to }));
        fixture.operator.send(request).await
    };
    assert_eq!(rename("notes/", "kept/notes").await.expect(200).json()["state"], "applied");
    assert_eq!(fixture.on_disk("kept/notes/deep/b.md").as_deref(), Some("b"));
    assert_eq!((fixture.on_disk("notes/a.md"), fixture.read("notes/a.md").await.status), (None, 404));
    fixture.seen("kept/notes/a.md", "a").await;
    // A file names its version, a folder needs none; what is there is not replaced.
    assert_eq!(rename("other.md", "b.md").await.expect(428).code(), "version_required");
    let base = tag(&fixture.read("other.md").await.expect(200));
    let request = fixture.operator.request(Method::PATCH, &fixture.api("other.md")).json(&json!({ "path": "b.md" }));
    fixture.operator.send(request.header(header::IF_MATCH, format!("\"{base}\""))).await.expect(200);
    assert_eq!((fixture.on_disk("b.md").as_deref(), fixture.on_disk("other.md")), (Some("o"), None));
    assert_eq!(rename("kept/", "b.md").await.expect(422).code(), "forbidden_path");
    assert_eq!(rename("kept/", "../out").await.expect(422).code(), "forbidden_path");
    assert_eq!(rename("kept/", "kept/in").await.expect(422).code(), "forbidden_path");
    assert_eq!(rename("nothing/", "something").await.expect(404).code(), "not_found");
    assert_eq!(rename("b.md/", "folder").await.expect(422).code(), "viber_refused");

    // The same by the page, while the machine is away: it is made when it is back.
    let person = fixture.board.operator(HOME, "olga@example.org", "operator").await;
    let page = person.page(&fixture.page("kept/")).await.expect(200).body;
    assert!(page.contains("Delete the folder and its contents"), "{page}");
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    person.post_form(&fixture.page("kept/"), &[("verb", "delete")]).await.expect(303);
    let waits = person.page(&format!("/t/{HOME}/vibers/{}/files", fixture.viber_id)).await.expect(200).body;
    assert!(waits.contains("It is queued until the viber reconnects"), "{waits}");
    assert!(fixture.on_disk("kept/notes/a.md").is_some());
    fixture.viber.run();
    eventually("the folder is in the trash", || async { fixture.on_disk("kept/notes/a.md").is_none().then_some(()) })
        .await;
    let trash = fixture.viber.home().join("workspace/.trash");
    let kept = std::fs::read_dir(&trash).expect("a trash").flatten().next().expect("the folder").path();
    assert_eq!(std::fs::read_to_string(kept.join("notes/deep/b.md")).expect("kept"), "b");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_text_is_found_in_names_and_lines() {
    let mut fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    for (path, text) in [
        ("notes/budget.md", "# Money\n"),
        ("memory/2026-11-20.md", "first\nWe spoke of the <b>Budget</b> today.\n"),
        ("b.md", "nothing\n"),
    ] {
        fixture.put(path, Some(""), text).await.expect(200);
    }
    let find = async |query: &str| {
        let person = &fixture.operator;
        person.get(&format!("/api/v1/vibers/{}/search?q={query}", fixture.viber_id)).await
    };
    let found = find("BUDGET").await.expect(200).json();
    assert_eq!(
        found["items"],
        json!([
            { "path": "memory/2026-11-20.md", "kind": "file", "line": 2, "text": "We spoke of the <b>Budget</b> today." },
            { "path": "notes/budget.md", "kind": "file", "line": null, "text": null },
        ])
    );
    assert_eq!(find("no.hing").await.expect(200).json()["items"], json!([]), "words, not an expression");
    for bad in ["", "%20", &"x".repeat(201), "a%0Ab"] {
        let answer = find(bad).await;
        assert_eq!(answer.status, 422, "{bad}: {answer:#?}");
    }
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let root = format!("/t/{HOME}/vibers/{}/files", fixture.viber_id);
    let page = person.page(&format!("{root}?q=budget")).await.expect(200).body;
    assert!(page.contains("2 places") && !page.contains("<b>Budget"), "{page}");
    assert!(page.contains(&fixture.page("notes/budget.md")), "{page}");
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    let away = person.page(&format!("{root}?q=budget")).await.expect(200).body;
    assert!(away.contains("can be searched only while it is connected"), "{away}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_long_folder_is_listed_once_for_all_its_parts() {
    let fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    let many = fixture.viber.home().join("workspace/many");
    // Not on this thread: on a slow disk it takes so long that a kept connection ends unnoticed.
    let making = tokio::task::spawn_blocking(move || {
        std::fs::create_dir(&many).expect("made");
        for n in 0..4_500 {
            std::fs::write(many.join(format!("note-{n:05} of the \"many\".md")), "x").expect("written");
        }
    });
    making.await.expect("all are made");
    let (mut cursor, mut names, mut parts) = (String::new(), Vec::new(), 0);
    loop {
        let path = format!("/api/v1/vibers/{}/workspace?path=many{cursor}", fixture.viber_id);
        let listed = fixture.operator.get(&path).await.expect(200).json();
        let items = listed["items"].as_array().expect("items");
        names.extend(items.iter().filter_map(|item| item["name"].as_str().map(str::to_owned)));
        parts += 1;
        match listed["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 4_500);
    assert!(names.is_sorted() && parts >= 3, "{parts}");
    fixture.board.assert_invariants().await;
}
