//! A57, A60, A61, A67 for spaces: the Board names no path of a machine, and no path of a file leads elsewhere.

use std::{fs, os::unix::fs::symlink};

use board_tests::{Engine, board::HOME, canary::Canary};

use super::{Space, code, with_space};

#[tokio::test]
async fn a60_a_path_of_a_space_that_leads_elsewhere_is_refused() {
    let fixture = with_space(Engine::Sqlite).await;
    let secret = Canary::new("outside of the space");
    let space = fixture.viber.space();
    let evil = space.parent().expect("a folder").join("space-evil");
    fs::create_dir_all(&evil).expect("made");
    fs::write(evil.join("secret.md"), &secret.secret).expect("written");
    fixture.repository(&[("a.txt", "a\n")]);
    fs::write(space.join(".git/secret"), &secret.secret).expect("written");
    symlink(evil.join("secret.md"), space.join("leaf.md")).expect("linked");
    symlink(&evil, space.join("link")).expect("linked");
    symlink("/proc/self/environ", space.join("environ")).expect("linked");
    symlink("/dev/zero", space.join("zero")).expect("linked");
    let made = std::process::Command::new("mkfifo").arg(space.join("pipe")).status().expect("mkfifo");
    assert!(made.success());
    let paths = [
        "..%2f..%2fetc%2fpasswd",
        "%2Fetc%2Fpasswd",
        "..%2fspace-evil%2fsecret.md",
        "%252e%252e%252fspace-evil%252fsecret.md",
        "..%5cspace-evil%5csecret.md",
        "a%00b",
        "leaf.md",
        "link/secret.md",
        "environ",
        "zero",
        "pipe",
        "a.txt%2f..%2f..%2fspace-evil%2fsecret.md",
        ".git%2fsecret",
        ".git%2fconfig",
        ".GIT%2fsecret",
        "%EF%BC%8Egit%2fsecret",
        "a%E2%88%95b",
        "x%20",
        "",
    ];
    for path in paths {
        for what in ["file", "diff"] {
            let answer = fixture.ask(&format!("{what}?path={path}")).await;
            assert!(matches!(answer.status, 404 | 422), "{what} {path}: {answer:#?}");
            assert!(!answer.body.contains(&secret.secret) && !answer.body.contains("root:"), "{path}: {answer:#?}");
        }
    }
    for path in ["..%2fspace-evil%2fsecret.md", "leaf.md", "link%2fsecret.md", ".git%2fsecret"] {
        // The name that a file had before is only compared, never opened.
        let diff = fixture.ask(&format!("diff?path=a.txt&from={path}")).await;
        assert!(
            matches!(diff.status, 200 | 404 | 422) && !diff.body.contains(&secret.secret),
            "from {path}: {diff:#?}"
        );
    }
    for path in ["..%2f", "%2fetc", "link", "%2e%2e%2fspace-evil", "pipe", ".git", "a%2f..%2f..", ".git%2fobjects"] {
        let listed = fixture.ask(&format!("tree?path={path}")).await;
        assert!(matches!(listed.status, 404 | 422), "{path}: {listed:#?}");
    }
    let tree = fixture.ask("tree").await.expect(200);
    assert!(!tree.body.contains("\".git\"") && !tree.body.contains("secret"), "{}", tree.body);
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    for path in ["leaf.md", "link/secret.md", ".git/secret", "../space-evil/secret.md"] {
        let page = person.page(&fixture.page(&format!("/files?path={path}"))).await;
        assert!(page.status == 200 && !page.body.contains(&secret.secret), "{path}: {page:#?}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a61_only_what_an_agent_declares_is_a_space() {
    let fixture = with_space(Engine::Sqlite).await;
    let space = fixture.viber.space();
    let evil = space.parent().expect("a folder").join("space-evil");
    fs::create_dir_all(&evil).expect("made");
    fs::write(evil.join("a.txt"), "a").expect("written");
    let id = |path: &str| board_tests::tasks::space(path);
    let path = |space: &str| format!("/api/v1/vibers/{}/spaces/{space}/tree", fixture.viber_id);
    for undeclared in [
        id(&evil.display().to_string()),
        id("/etc"),
        id("/"),
        id(&format!("{}/", space.display())),
        "..".to_owned(),
        "%2Fetc".to_owned(),
        "0".to_owned(),
        "x".repeat(300),
    ] {
        let answer = fixture.operator.get(&path(&undeclared)).await;
        assert!(matches!(answer.status, 404 | 405), "{undeclared}: {answer:#?}");
    }
    // A space that is taken out of the agent's file is none any more.
    fixture.operator.get(&path(&fixture.space())).await.expect(200);
    let agent = fixture.viber.agent("mode: always_execute\n");
    fixture
        .viber
        .write("agents/default.yaml", &agent.replace(&space.display().to_string(), &evil.display().to_string()));
    board_tests::eventually("the new space is known", || async {
        let listed = fixture.operator.get(&path(&id(&evil.display().to_string()))).await;
        (listed.status == 200).then_some(())
    })
    .await;
    fixture.operator.get(&path(&fixture.space())).await.expect(404);
    // Another team finds neither the viber nor the space.
    fixture.board.operator("rivals", "rita@example.org", "owner").await;
    let stranger = fixture.board.token("rivals", "owner").await;
    for what in ["tree", "status", "log", "file?path=a.txt", "diff?path=a.txt"] {
        let path = format!("/api/v1/vibers/{}/spaces/{}/{what}", fixture.viber_id, id(&evil.display().to_string()));
        assert_eq!(code(&stranger.get(&path).await.expect(404)), "not_found", "{what}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a67_names_that_look_like_others_cannot_be_asked_for() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    let odd =
        ["trailing ", "dot.", "new\nline", "rtl\u{202e}cod.exe", "wide\u{ff0f}slash", "e\u{301}.txt", "\"quoted\""];
    for name in odd {
        fixture.write(name, "x\n");
    }
    let tree = fixture.ask("tree").await.expect(200).json();
    let listed = tree["items"].as_array().expect("items").len();
    assert_eq!(listed, odd.len() + 1, "{tree:#}");
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!(status["changes"].as_array().map(Vec::len), Some(odd.len()), "{status:#}");
    for name in &odd[..6] {
        let path: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for what in ["file", "diff"] {
            let answer = fixture.ask(&format!("{what}?path={path}")).await;
            assert_eq!(answer.status, 422, "{what} {name:?}: {answer:#?}");
        }
    }
    fixture.ask("file?path=%22quoted%22").await.expect(200);
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let page = person.page(&fixture.page("")).await.expect(200).body;
    assert!(
        page.contains("cannot be used in a URL") && !page.contains('\u{202e}'.to_string().as_str())
            || page.contains("rtl")
    );
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a57_what_a_machine_calls_its_files_never_becomes_a_header() {
    let fixture = with_space(Engine::Sqlite).await;
    let name = "x\r\nSet-Cookie: evil=1\r\n\r\n<script>.html";
    fixture.write(name, "<script>alert(1)</script>");
    fixture.write("page.html", "<script>alert(1)</script>");
    let person = fixture.board.operator(HOME, "vera@example.org", "viewer").await;
    let tree = person.page(&fixture.page("/files")).await.expect(200);
    assert!(tree.header("set-cookie").is_empty() && !tree.body.contains("<script>.html"), "{tree:#?}");
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
    for path in [format!("/files?path={encoded}"), format!("/files?path={encoded}&raw=1")] {
        let answer = person.page(&fixture.page(&path)).await;
        assert!(matches!(answer.status, 200 | 422) && answer.header("set-cookie").is_empty(), "{answer:#?}");
        assert!(!answer.body.contains("alert(1)"), "{answer:#?}");
    }
    for raw in
        [fixture.ask("file?path=page.html").await, person.page(&fixture.page("/files?path=page.html&raw=1")).await]
    {
        assert_eq!(raw.header("content-type"), "application/octet-stream");
        assert!(raw.header("content-disposition").starts_with("attachment"), "{raw:#?}");
        assert_eq!(raw.header("x-content-type-options"), "nosniff");
    }
    let shown = person.page(&fixture.page("/files?path=page.html")).await.expect(200).body;
    assert!(!shown.contains("<script>alert"), "{shown}");
    fixture.board.assert_invariants().await;
}
