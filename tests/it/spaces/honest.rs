//! Honest repositories of every kind are shown as they are, however little git may do.

use std::fs;

use board_tests::{Engine, board::HOME};
use serde_json::json;

use super::{Space, changes, named, with_space};

#[tokio::test]
async fn repositories_of_every_format_are_shown() {
    let fixture = with_space(Engine::Sqlite).await;
    let formats: [(&str, &[&[&str]]); 6] = [
        ("SHA-256", &[&["init", "-q", "--object-format=sha256"]]),
        (
            "packed, with a graph of its commits",
            &[&["gc", "-q"], &["commit-graph", "write", "--reachable"], &["pack-refs", "--all"]],
        ),
        ("a split index of version 4", &[&["update-index", "--split-index", "--index-version", "4"]]),
        ("an untracked cache", &[&["update-index", "--untracked-cache"]]),
        ("a sparse checkout", &[&["sparse-checkout", "set", "sub"]]),
        ("a list of packs", &[&["repack", "-adq"], &["multi-pack-index", "write"]]),
    ];
    for (format, commands) in formats {
        let space = fixture.viber.space();
        fs::remove_dir_all(&space).and_then(|()| fs::create_dir(&space)).expect("emptied");
        let (first, rest) = if format == "SHA-256" { (commands, &[][..]) } else { (&[][..], commands) };
        first.iter().for_each(|args| _ = fixture.git(args));
        let head = fixture.repository(&[("a.txt", "a\n"), ("sub/b.txt", "b\nb\nb\nb\n"), ("sub/c.txt", "c\n")]);
        rest.iter().for_each(|args| _ = fixture.git(args));
        fixture.write("a.txt", "a\na\n");
        fixture.git(&["mv", "sub/b.txt", "sub/moved.txt"]);
        fixture.write("sub/new.txt", "n\n");
        let status = fixture.ask("status").await.expect(200).json();
        let expected = named(&[("a.txt", "changed"), ("sub/moved.txt", "renamed"), ("sub/new.txt", "new")]);
        assert_eq!((changes(&status), &status["head"]), (expected, &json!(head)), "{format}");
        let diff = fixture.ask("diff?path=a.txt").await.expect(200).json();
        assert!(diff["diff"].as_str().is_some_and(|text| text.ends_with(" a\n+a\n")), "{format}: {diff:#}");
        let log = fixture.ask("log").await.expect(200).json();
        assert_eq!((&log["items"][0]["hash"], &log["items"][0]["files"]), (&json!(head), &json!(3)), "{format}");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn what_is_checked_out_is_shown_whatever_it_is() {
    let fixture = with_space(Engine::Sqlite).await;
    let first = fixture.repository(&[("a.txt", "a\n"), ("b.txt", "b\n")]);
    fixture.git(&["checkout", "-q", "-b", "side"]);
    fixture.write("a.txt", "side\n");
    fixture.commit("side");
    fixture.git(&["checkout", "-q", "--detach", &first]);
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!((&status["branch"], &status["head"]), (&json!(null), &json!(first)), "nothing is on a branch");
    fixture.git(&["checkout", "-q", "main"]);
    fixture.write("a.txt", "main\n");
    let head = fixture.commit("main");
    let mut merge = std::process::Command::new("git");
    merge
        .args(["-c", "user.name=Mia", "-c", "user.email=a@b", "merge", "-q", "side"])
        .current_dir(fixture.viber.space());
    assert!(!merge.output().expect("git runs").status.success(), "it is in conflict");
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!((changes(&status), &status["head"]), (named(&[("a.txt", "conflict")]), &json!(head)));
    let diff = fixture.ask("diff?path=a.txt").await.expect(200).json();
    assert!(diff["diff"].as_str().is_some_and(|text| text.contains("+<<<<<<<")), "{diff:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_file_with_a_filter_is_shown_as_its_bytes() {
    let fixture = with_space(Engine::Sqlite).await;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
    fixture.repository(&[
        (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n*.txt text=auto eol=crlf\n"),
        ("a.bin", pointer),
        ("b.txt", "b\n"),
    ]);
    // As `git lfs install --local` writes it, and as LFS checks out.
    for (key, value) in [("clean", "git-lfs clean -- %f"), ("process", "git-lfs filter-process"), ("required", "true")]
    {
        fixture.git(&["config", &format!("filter.lfs.{key}"), value]);
    }
    fixture.write("b.txt", "b\r\n");
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!(changes(&status), named(&[]), "ends of lines are git's own matter");
    fixture.write("a.bin", "the bytes\n");
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!(changes(&status), named(&[("a.bin", "changed")]));
    let diff = fixture.ask("diff?path=a.bin").await.expect(200).json();
    assert!(diff["diff"].as_str().is_some_and(|text| text.ends_with("\n+the bytes\n")), "{diff:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn submodules_and_worktrees_in_the_space_are_shown() {
    let fixture = with_space(Engine::Sqlite).await;
    let space = fixture.viber.space();
    fixture.write("lib/x.txt", "x\n");
    fixture.git(&["init", "-q", "lib"]);
    fixture.git(&["-C", "lib", "add", "-A"]);
    fixture.git(&["-C", "lib", "commit", "-qm", "lib"]);
    fixture.repository(&[("a.txt", "a\n")]);
    fixture.git(&["-c", "protocol.file.allow=always", "submodule", "add", "-q", "./lib", "module"]);
    fixture.commit("with a module");
    assert!(space.join("module/.git").is_file(), "its repository lies in the space's own");
    fixture.git(&["-C", "module", "commit", "-q", "--allow-empty", "-m", "further"]);
    let further = fixture.git(&["-C", "module", "rev-parse", "HEAD"]);
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!(changes(&status), named(&[("module", "changed")]));
    let diff = fixture.ask("diff?path=module").await.expect(200).json();
    assert!(
        diff["diff"].as_str().is_some_and(|text| text.contains(&format!("+Subproject commit {further}"))),
        "{diff:#}"
    );
    // The space as a worktree of a repository that lies in it.
    fixture.git(&["worktree", "add", "-q", "side"]);
    fs::rename(space.join(".git"), space.join("real")).expect("moved");
    fs::write(space.join(".git"), "gitdir: real\n").expect("written");
    fixture.write("a.txt", "a a\n");
    let status = fixture.ask("status").await.expect(200).json();
    assert!(changes(&status).contains(&("a.txt".to_owned(), "changed".to_owned())), "{status:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn ten_thousand_files_fit_into_one_look() {
    let fixture = with_space(Engine::Sqlite).await;
    for folder in 0..100 {
        for file in 0..100 {
            fixture.write(&format!("f{folder}/{file}.txt"), format!("{folder} {file}\n"));
        }
    }
    fixture.repository(&[("a.txt", "a\n")]);
    for folder in 0..100 {
        fixture.write(&format!("f{folder}/1.txt"), "changed\n");
        fixture.write(&format!("f{folder}/new.txt"), "new\n");
    }
    let begin = std::time::Instant::now();
    // Making the files may have taken longer than the Board keeps an idle connection.
    let operator = fixture.board.token(HOME, "operator").await;
    let path = format!("/api/v1/vibers/{}/spaces/{}/status", fixture.viber_id, fixture.space());
    let status = operator.get(&path).await.expect(200).json();
    println!("status of 10,000 files, 200 of them changed: {:?}", begin.elapsed());
    assert_eq!((changes(&status).len(), &status["omitted"]), (200, &json!(0)));
    fixture.board.assert_invariants().await;
}
