//! What one look may take, how many there are at once, and what is left when the kernel keeps less than it should.

use std::{
    cell::Cell, collections::BTreeMap, fs, os::unix::fs::OpenOptionsExt, path::PathBuf, process::Command,
    time::Duration,
};

use board_tests::{Engine, Fixture, Viber, eventually, viber::processes_with};
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use super::{Space, changes, code, named, repositories::HostileRepository, with_space};

/// Runs `run` on a kernel that does not know this system call, and so everything that is started there.
fn without<T: Send>(call: libc::c_long, run: impl FnOnce() -> T + Send) -> T {
    let missing = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().expect("a known machine");
    let filter = SeccompFilter::new(BTreeMap::from([(call, Vec::new())]), SeccompAction::Allow, missing, arch);
    let filter: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    let confined = || {
        seccompiler::apply_filter(&filter).expect("a filter");
        run()
    };
    std::thread::scope(|scope| scope.spawn(confined).join()).expect("a thread")
}

/// The daemon on such a kernel: files are shown, changes are not, and it says why.
async fn lesser(call: libc::c_long, what: &str) {
    let mut fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    fixture.ask("status").await.expect(200);
    fixture.viber.stop().await;
    fixture.viber.contact(&fixture.operator, "disconnected").await;
    without(call, || fixture.viber.run());
    eventually("it answers", || async { (fixture.ask("tree").await.status == 200).then_some(()) }).await;
    for question in ["status", "log", "diff?path=a.txt"] {
        let answer = fixture.ask(question).await.expect(422);
        assert_eq!(code(&answer), "no_confinement", "{answer:#?}");
        assert!(answer.body.contains(what), "{answer:#?}");
    }
    assert_eq!(fixture.ask("file?path=a.txt").await.expect(200).body, "a\n");
    fixture.ask("tree").await.expect(200);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a108_without_landlock_git_is_not_let_at_a_repository() {
    lesser(libc::SYS_landlock_create_ruleset, "Landlock").await;
}

#[tokio::test]
async fn a109_without_seccomp_git_is_not_let_at_a_repository() {
    lesser(libc::SYS_seccomp, "seccomp").await;
}

/// The gits that look at the space now.
fn gits(fixture: &Fixture<Viber>) -> Vec<u32> {
    let place = format!("GIT_WORK_TREE={}\0", fixture.viber.space().display());
    let of_space = |(pid, line): (u32, String)| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        (line.starts_with("git ") && String::from_utf8_lossy(&environment).contains(&place)).then_some(pid)
    };
    processes_with("--no-optional-locks").into_iter().filter_map(of_space).collect()
}

/// The address space that the kernel allows one of them, bytes. Processes have no more memory than address space.
fn memory_limit(fixture: &Fixture<Viber>) -> Option<u64> {
    let mut all = gits(fixture).into_iter().filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/limits")).ok());
    all.find_map(|limits| {
        let line = limits.lines().find(|line| line.starts_with("Max address space"))?;
        line.split_whitespace().nth(3)?.parse().ok()
    })
}

/// A pipe in the place of the list of ignored files: git waits until somebody writes to it.
fn pipe(fixture: &Fixture<Viber>) -> PathBuf {
    let pipe = fixture.viber.space().join(".git/info/exclude");
    fs::remove_file(&pipe).expect("removed");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    pipe
}

/// Between two looks at the processes of the machine.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[tokio::test]
async fn a106_a_look_takes_no_more_memory_than_it_may() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    let space = fixture.viber.space();
    // The limit is read from a git that waits, which then is let go on.
    let pipe = pipe(&fixture);
    let limit = Cell::new(0);
    let read = async {
        limit.set(eventually("a look waits", || async { memory_limit(&fixture) }).await);
        loop {
            // Refused as long as nobody waits to read.
            drop(fs::OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&pipe));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! { answer = fixture.ask("status") => drop(answer.expect(200)), () = read => () }
    assert_eq!(limit.get(), 256 * 1024 * 1024);
    fs::remove_file(&pipe).expect("removed");
    // A tree of 300 MiB, packed into little.
    let mut hash = tokio::process::Command::new("sh");
    hash.args(["-c", "head -c 300M /dev/zero | git -c core.compression=1 hash-object -t tree -w --stdin --literally"]);
    let tree = hash.current_dir(&space).output().await.expect("git runs");
    let tree = String::from_utf8_lossy(&tree.stdout).trim().to_owned();
    let commit = fixture.git(&["commit-tree", "-m", "large", &tree]);
    fs::write(space.join(".git/refs/heads/main"), format!("{commit}\n")).expect("written");
    for what in ["status", "log", "diff?path=a.txt"] {
        assert_eq!(code(&fixture.ask(what).await.expect(422)), "too_large", "{what}");
    }
    // One that only claims to be large: 4 GiB in a hundred bytes.
    let claim = b"tree 4294967296\0 and nothing more";
    let length = (claim.len() as u16).to_le_bytes();
    let stored = [b"\x78\x01\x00".as_slice(), &length, &length.map(|byte| !byte), claim].concat();
    let object = space.join(".git/objects").join(&tree[..2]).join(&tree[2..]);
    fs::remove_file(&object).and_then(|()| fs::write(&object, stored)).expect("written");
    assert_eq!(code(&fixture.ask("status").await.expect(422)), "too_large");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a107_many_looks_at_once_wait_in_a_line_that_has_an_end() {
    let fixture = with_space(Engine::Sqlite).await;
    fixture.repository(&[("a.txt", "a\n")]);
    // Each look hangs until its time is over.
    let pipe = pipe(&fixture);
    let asked = futures_util::future::join_all((0..30).map(|_| fixture.ask("status")));
    // Files are looked at meanwhile.
    let asked = async {
        let files = async {
            eventually("looks hang", || async { (gits(&fixture).len() == 3).then_some(()) }).await;
            fixture.ask("file?path=a.txt").await.expect(200);
        };
        futures_util::future::join(asked, files).await.0
    };
    let mut most = 0;
    let watched = async {
        loop {
            most = most.max(gits(&fixture).len());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let answers = tokio::select! { answers = asked => answers, () = watched => Vec::new() };
    let codes: Vec<String> = answers.iter().map(code).collect();
    let of = |name: &str| codes.iter().filter(|code| *code == name).count();
    // Those that ran, and those that waited in vain or did not fit into the line; the rest of such a burst the viber does
    // not even take in.
    let (slow, busy) = (of("too_slow"), of("viber_busy"));
    assert!((3..=6).contains(&slow) && busy >= 3 && slow + busy + of("viber_refused") == 30, "{codes:?}");
    assert_eq!(most, 3, "at once");
    eventually("nothing of it is left", || async { gits(&fixture).is_empty().then_some(()) }).await;
    fs::remove_file(&pipe).expect("removed");
    fixture.ask("status").await.expect(200);
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a110_of_a_repository_above_only_the_spaces_part_is_shown() {
    let repository = HostileRepository::create().await;
    let fixture = &repository.fixture;
    let (space, above) = (repository.space(), repository.space().parent().expect("a folder").to_owned());
    fs::create_dir_all(&space).expect("made");
    fixture.write("a.txt", "a\n");
    fixture.write("ignored.log", "x\n");
    // The folder above is a repository with the private one's files.
    let theirs = repository.sibling();
    fs::rename(theirs.join(".git"), theirs.join("git")).expect("moved");
    fs::write(above.join(".gitignore"), "*\n!/space\n!/space/**\n*.log\n").expect("written");
    repository.git(&above, &["init", "-q", "-b", "main"]);
    repository.git(&above, &["add", "-f", "space/a.txt", "sibling/secret.txt", ".gitignore"]);
    repository.git(&above, &["commit", "-qm", "first"]);
    fs::copy(theirs.join("secret.txt"), above.join("other.txt")).expect("copied");
    repository.git(&above, &["add", "-f", "other.txt"]);
    repository.git(&above, &["commit", "-qm", "elsewhere"]);
    fixture.write("a.txt", "a a\n");
    fixture.write("new.txt", "n\n");
    fs::write(theirs.join("secret.txt"), fs::read(theirs.join("a.txt")).expect("there").repeat(2)).expect("written");
    std::os::unix::fs::symlink(theirs.join("secret.txt"), space.join("link")).expect("linked");
    let looks = ["status", "diff?path=a.txt", "diff?path=new.txt&from=sibling/secret.txt", "diff?path=link", "log"];
    for what in looks {
        let answer = fixture.ask(what).await;
        assert!(matches!(answer.status, 200 | 422), "{answer:#?}");
        // The name of its newest commit is told: it is the space's too.
        repository.check(what, &answer);
        assert!(!answer.body.contains("elsewhere"), "{answer:#?}");
    }
    let status = fixture.ask("status").await.expect(200).json();
    assert_eq!(changes(&status), named(&[("a.txt", "changed"), ("link", "new"), ("new.txt", "new")]));
    let log = fixture.ask("log").await.expect(200).json();
    assert_eq!(log["items"].as_array().map(Vec::len), Some(1), "{log:#}");
    fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a111_a_configuration_that_cannot_be_read_whole_is_refused() {
    let repository = HostileRepository::create().await;
    repository.suffer(super::attacks::configurations()).await;
    repository.fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a112_a_space_that_holds_the_vibers_home_shows_no_changes() {
    let fixture = with_space(Engine::Sqlite).await;
    let root = fixture.viber.root().canonicalize().expect("a folder");
    let agent = fixture.viber.agent("mode: always_execute\n");
    fixture.viber.write(
        "agents/default.yaml",
        &agent.replace(&fixture.viber.space().display().to_string(), &root.display().to_string()),
    );
    let path = |what: &str| {
        let space = board_tests::tasks::space(&root.display().to_string());
        format!("/api/v1/vibers/{}/spaces/{space}/{what}", fixture.viber_id)
    };
    eventually("the new space is known", || async {
        (fixture.operator.get(&path("tree")).await.status == 200).then_some(())
    })
    .await;
    fixture.git(&["init", "-q", &root.display().to_string()]);
    // The daemon's credential as a configuration, as a list of what is left out, as an object store.
    fs::write(root.join(".git/config"), "[include]\n\tpath = ../home/state/credential\n").expect("written");
    for what in ["status", "log", "diff?path=home/config.yaml", "diff?path=space/a.txt"] {
        let answer = fixture.operator.get(&path(what)).await;
        let expected = ["leads_elsewhere", "forbidden_path", "not_found"];
        assert!(expected.contains(&code(&answer).as_str()), "{what}: {answer:#?}");
    }
    fixture.board.assert_invariants().await;
}
