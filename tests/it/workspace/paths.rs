//! A60, A61, A67 for the paths of a workspace: the Board refuses what is no path, the machine what leads elsewhere.

use std::{fs, os::unix::fs::symlink};

use board_tests::{Engine, Fixture, canary::Canary};

use super::Workspace;

#[tokio::test]
async fn a60_a_path_of_the_workspace_that_leads_elsewhere_is_refused() {
    let fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    let secret = Canary::new("outside of the workspace");
    let workspace = fixture.viber.home().join("workspace");
    let evil = fixture.viber.home().join("workspace-evil");
    fs::create_dir_all(&evil).expect("made");
    fs::write(evil.join("secret.md"), &secret.secret).expect("written");
    symlink(evil.join("secret.md"), workspace.join("leaf.md")).expect("linked");
    symlink(&evil, workspace.join("link")).expect("linked");
    symlink("/proc/self/environ", workspace.join("environ")).expect("linked");
    symlink("/etc/shadow", workspace.join("shadow")).expect("linked");
    fs::create_dir(workspace.join("folder")).expect("made");
    let pipe = workspace.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let paths = [
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "%252e%252e%252fetc",
        "..%5c..%5cetc",
        "a%00b",
        "%2Fetc%2Fpasswd",
        "..%2fworkspace-evil%2fsecret.md",
        "leaf.md",
        "link/secret.md",
        "environ",
        "shadow",
        "pipe",
        "folder",
        ".trash/x",
        ".viber-x.tmp",
        "a%E2%88%95b",
        "a%EF%BC%8Fb",
        "x%20",
        "x.",
        "x%E2%80%AE",
        "e%CC%81.md",
        "a//b",
    ];
    for path in paths {
        let read = fixture.read(path).await;
        assert!(matches!(read.status, 404 | 422), "GET {path}: {read:#?}");
        assert!(!read.body.contains(&secret.secret) && !read.body.contains("root:"), "{path}: {read:#?}");
        for base in ["", "0000000000000000000000000000000000000000000000000000000000000000"] {
            let written = fixture.put(path, Some(base), "mine").await;
            assert!(matches!(written.status, 404 | 412 | 422), "PUT {path}: {written:#?}");
        }
    }
    for path in ["..%2f", "%2fetc", "link", "%2e%2e%2fworkspace-evil", "pipe", "a%2f..%2f.."] {
        let folder = format!("/api/v1/vibers/{}/workspace?path={path}", fixture.viber_id);
        let listed = fixture.operator.get(&folder).await;
        assert!(matches!(listed.status, 404 | 422), "{path}: {listed:#?}");
    }
    assert_eq!(fs::read_to_string(evil.join("secret.md")).expect("there"), secret.secret);
    assert_eq!(fs::read_dir(&evil).expect("there").count(), 1);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a67_names_that_look_like_others_are_refused() {
    let fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    fixture.put("Task.md", Some(""), "one").await.expect(200);
    for name in ["task.md", "TASK.MD", "%EF%BD%94ask.md"] {
        let answer = fixture.put(name, Some(""), "two").await.expect(422);
        assert_eq!(answer.code(), "forbidden_path", "{name}");
    }
    for name in ["..%2f..%2f.ssh%2fauthorized_keys", ".", "..", &"x".repeat(300), "name%20", "name.", "a%E2%81%84b"] {
        let answer = fixture.put(name, Some(""), "x").await;
        assert!(matches!(answer.status, 404 | 405 | 422), "{name}: {answer:#?}");
    }
    let listed: Vec<_> = fs::read_dir(fixture.viber.home().join("workspace")).expect("there").flatten().collect();
    assert_eq!(listed.len(), 1, "{listed:?}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn another_team_finds_no_workspace_and_a_viewer_changes_nothing() {
    let fixture = Fixture::on(Engine::Sqlite).with_viber().await;
    let base = fixture.put("task.md", Some(""), "ours").await.expect(200).json()["hash"].to_string();
    fixture.board.operator("rivals", "rita@example.org", "owner").await;
    let stranger = fixture.board.token("rivals", "owner").await;
    let folder = format!("/api/v1/vibers/{}/workspace", fixture.viber_id);
    for path in [folder.clone(), fixture.api("task.md"), fixture.api("nothing.md")] {
        assert_eq!(stranger.get(&path).await.expect(404).code(), "not_found");
    }
    let write = |person: &board_tests::Person| {
        let request = person.request(reqwest::Method::PUT, &fixture.api("task.md"));
        request.header("if-match", base.clone()).body("theirs")
    };
    stranger.send(write(&stranger)).await.expect(404);
    let viewer = fixture.board.token(board_tests::board::HOME, "viewer").await;
    viewer.get(&fixture.api("task.md")).await.expect(200);
    viewer.send(write(&viewer)).await.expect(403);
    let person = fixture.board.operator(board_tests::board::HOME, "vera@example.org", "viewer").await;
    assert!(!person.page(&fixture.page("task.md")).await.expect(200).body.contains("?edit=1"));
    person
        .post_form(&fixture.page("task.md"), &[("verb", "delete"), ("base", base.trim_matches('"'))])
        .await
        .expect(403);
    assert_eq!(fixture.on_disk("task.md").as_deref(), Some("ours"));
    fixture.board.assert_invariants().await;
}
