//! A repository that would like to run something: git looks at it and runs nothing of it, and is ended when it does not end.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use board_tests::{Engine, Fixture, Viber, canary::Canary, viber::processes_with};

use super::{Space, changes, code, with_space};

/// Programs of a repository, each of which leaves a mark when it runs.
struct Traps {
    marks: PathBuf,
    programs: PathBuf,
}

impl Traps {
    fn set(fixture: &Fixture<Viber>) -> Self {
        let root = fixture.viber.root();
        let traps = Self { marks: root.join("marks"), programs: root.join("traps") };
        fs::create_dir_all(&traps.marks).expect("made");
        fs::create_dir_all(&traps.programs).expect("made");
        traps
    }

    /// A program that marks `name`, then does `more`.
    fn program(&self, name: &str, more: &str) -> String {
        let path = self.programs.join(name);
        let text = format!("#!/bin/sh\ntouch '{}'\n{more}\n", self.marks.join(name).display());
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("runnable");
        path.display().to_string()
    }

    fn sprung(&self) -> Vec<String> {
        let marks = fs::read_dir(&self.marks).expect("there").flatten();
        let mut all: Vec<_> = marks.map(|mark| mark.file_name().to_string_lossy().into_owned()).collect();
        all.sort();
        all
    }

    fn wipe(&self) {
        fs::remove_dir_all(&self.marks).and_then(|()| fs::create_dir(&self.marks)).expect("wiped");
    }
}

#[tokio::test]
async fn a_hostile_repository_runs_nothing() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n"), ("b.odd", "b\n"), ("c.dat", "c\n"), ("--output=x", "o\n")]);
    let traps = Traps::set(&fixture);
    // A submodule brings a configuration of its own.
    fs::create_dir_all(fixture.viber.space().join("module")).expect("made");
    fixture.git(&["init", "-q", "module"]);
    let inside = ["-C", "module"];
    fixture.git(&[&inside[..], &["config", "core.fsmonitor", &traps.program("module-fsmonitor", "")]].concat());
    fixture
        .git(&[&inside[..], &["-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "module"]].concat());
    fixture.git(&[
        "-c",
        "core.fsmonitor=false",
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("160000,{},module", fixture.git(&["-C", "module", "-c", "core.fsmonitor=false", "rev-parse", "HEAD"])),
    ]);
    fixture.write("module/dirty.txt", "x\n");
    let config = |key: &str, value: &str| {
        fixture.git(&["config", key, value]);
    };
    config("core.fsmonitor", &traps.program("fsmonitor", ""));
    config("diff.external", &traps.program("external", ""));
    config("diff.driver.command", &traps.program("driver", ""));
    config("diff.texty.textconv", &traps.program("textconv", "cat \"$1\""));
    config("filter.odd = name.x.clean", &traps.program("clean", "cat"));
    config("filter.process.process", &traps.program("process", ""));
    config("filter.process.required", "true");
    config("core.pager", &traps.program("pager", "cat"));
    config("pager.log", &traps.program("pager-log", "cat"));
    config("core.sshCommand", &traps.program("ssh", ""));
    config("core.askPass", &traps.program("askpass", ""));
    config("credential.helper", &traps.program("credential", ""));
    config("gpg.program", &traps.program("gpg", ""));
    config("log.showSignature", "true");
    config("alias.log", &format!("!{}", traps.program("alias", "")));
    config("core.hooksPath", &traps.programs.display().to_string());
    for hook in ["post-index-change", "fsmonitor-watchman", "reference-transaction", "post-checkout"] {
        traps.program(hook, "");
    }
    let attributes = "a.txt diff=driver filter=odd\\ name.x\nb.odd diff=texty filter=process\n* filter=process\n";
    fixture.write(".gitattributes", attributes);
    fs::write(fixture.viber.space().join(".git/info/attributes"), "* filter=process\na.txt diff=driver\n")
        .expect("written");
    // What is missing would be fetched from a place that the repository names.
    let upload = traps.program("upload-pack", "");
    config("extensions.partialClone", "origin");
    config("remote.origin.url", &format!("ext::{upload} %S"));
    config("remote.origin.promisor", "true");
    config("remote.origin.uploadpack", &upload);
    config("protocol.ext.allow", "always");
    for (path, text) in [("a.txt", "a a\n"), ("b.odd", "b b\n"), ("c.dat", "c c\n"), ("--output=x", "o o\n")] {
        fixture.write(path, text);
    }
    // The traps work: whoever asks git plainly springs some.
    let mut plain = std::process::Command::new("git");
    plain.args(["diff", "HEAD"]).current_dir(fixture.viber.space());
    let _ = plain.output().expect("git runs");
    assert!(!traps.sprung().is_empty(), "no trap works");
    traps.wipe();

    let status = fixture.ask("status").await.expect(200).json();
    let told = changes(&status);
    for path in ["a.txt", "b.odd", "c.dat", "--output=x"] {
        assert!(told.contains(&(path.to_owned(), "changed".to_owned())), "{path} in {status:#}");
    }
    for (path, line) in [("a.txt", "+a a"), ("b.odd", "+b b"), ("--output=x", "+o o"), (".gitattributes", "+* filter")]
    {
        let diff = fixture.ask(&format!("diff?path={path}")).await.expect(200).json();
        assert!(diff["diff"].as_str().is_some_and(|text| text.contains(line)), "{path}: {diff:#}");
    }
    fixture.ask("diff?path=module").await.expect(200);
    let log = fixture.ask("log").await.expect(200).json();
    assert_eq!(log["items"][0]["subject"], "first");
    // An object that is not there is not fetched either.
    let blob = fixture.git(&["-c", "core.fsmonitor=false", "rev-parse", "HEAD:c.dat"]);
    fs::remove_file(fixture.viber.space().join(".git/objects").join(&blob[..2]).join(&blob[2..])).expect("removed");
    traps.wipe();
    let missing = fixture.ask("diff?path=c.dat").await;
    assert_eq!((missing.status, code(&missing).as_str()), (422, "git"), "{missing:#?}");
    assert_eq!(traps.sprung(), Vec::<String>::new());
    assert!(!fixture.viber.space().join("x").exists(), "a name is no option");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_repository_shows_no_other_folder_as_its_own() {
    let fixture = with_space(Engine::Sqlite).await;
    let secret = Canary::new("another folder's file");
    let other = fixture.viber.root().join("other");
    fs::create_dir_all(&other).expect("made");
    fs::write(other.join("a.txt"), format!("{}\n", secret.secret)).expect("written");
    fixture.repository(&[("a.txt", "a\n")]);
    fixture.git(&["config", "core.worktree", &other.display().to_string()]);
    for what in ["status", "diff?path=a.txt"] {
        let answer = fixture.ask(what).await.expect(200);
        assert!(!answer.body.contains(&secret.secret), "{answer:#?}");
        assert!(!answer.body.contains("\"changed\""), "{answer:#?}");
    }
    // A `.git` that leads to somebody else's history is not followed.
    let git = fixture.viber.space().join(".git");
    let theirs = fixture.viber.root().join("theirs.git");
    fs::rename(&git, &theirs).expect("moved");
    for lead in ["link", "file"] {
        match lead {
            "link" => std::os::unix::fs::symlink(&theirs, &git).expect("linked"),
            _ => fs::write(&git, format!("gitdir: {}\n", theirs.display())).expect("written"),
        }
        for what in ["status", "log"] {
            assert_eq!(code(&fixture.ask(what).await.expect(422)), "leads_elsewhere", "{lead} {what}");
        }
        fs::remove_file(&git).expect("removed");
    }
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn git_that_does_not_end_is_ended() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    // What it leaves out stands in a pipe that nobody writes to.
    let pipe = fixture.viber.space().join(".git/info/exclude");
    fs::remove_file(&pipe).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let answer = fixture.ask("status").await.expect(422);
    assert_eq!(code(&answer), "too_slow", "{answer:#?}");
    let mark = fixture.viber.space().display().to_string();
    board_tests::eventually("nothing of it is left", || async {
        processes_with(&mark).into_iter().all(|(_, line)| !line.contains("git")).then_some(())
    })
    .await;
    // Files are looked at without git.
    fixture.ask("file?path=a.txt").await.expect(200);
    fixture.board.assert_invariants().await;
}

/// Links that lead through each other, as many as the kernel follows, by names as long as it accepts: `link36` takes
/// some 60,000 steps to follow.
fn maze(folder: &std::path::Path) {
    fs::create_dir_all(folder.join("a")).expect("made");
    let way = "a/../".repeat(790);
    fs::write(folder.join("end"), "").expect("written");
    for n in 0..37 {
        let next = if n == 0 { "end".to_owned() } else { format!("link{}", n - 1) };
        std::os::unix::fs::symlink(format!("{way}{next}"), folder.join(format!("link{n}"))).expect("linked");
    }
}

#[tokio::test]
async fn a171_links_that_lead_through_links_hold_up_nobody() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    fixture.write("a.txt", "b\n");
    maze(&fixture.viber.space());
    let refs = fixture.viber.space().join(".git/refs");
    let link = |n: usize| std::os::unix::fs::symlink("../../link36", refs.join(format!("x{n}"))).expect("linked");
    (0..200).for_each(link);
    let status = fixture.ask("log").await.expect(200).json();
    assert_eq!(status["items"][0]["subject"], "first", "{status:#}");
    // One more is a reason not to look, told at once and to everybody who asks: nothing of it goes on behind the answer.
    (200..2_000).for_each(link);
    for _ in 0..8 {
        let answer = fixture.ask("log").await.expect(422);
        assert_eq!(code(&answer), "unreadable_repository", "{answer:#?}");
        assert!(answer.body.contains("more than 200 links"), "{answer:#?}");
    }
    (200..2_000).for_each(|n| fs::remove_file(refs.join(format!("x{n}"))).expect("removed"));
    fixture.ask("log").await.expect(200);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a_commit_that_is_lost_is_not_told_as_a_repository_without_any() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    let head = fixture.git(&["rev-parse", "HEAD"]);
    fs::remove_file(fixture.viber.space().join(".git/objects").join(&head[..2]).join(&head[2..])).expect("removed");
    for what in ["status", "log"] {
        let answer = fixture.ask(what).await.expect(422);
        assert_eq!(code(&answer), "git", "{what}: {answer:#?}");
    }
    fixture.board.assert_invariants().await;
}
