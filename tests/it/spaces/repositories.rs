//! The repository suite: by which key, file or link a repository could start something or look elsewhere, and what comes of
//! it. Each line of the tables is laid into a fresh repository and looked at through the Board and a real daemon: nothing is
//! started, nothing of a private repository beside the space is in any answer, and what can be shown is shown.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use board_tests::{Answer, Engine, Fixture, Viber, canary::Canary, programs::program};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{Space, changes, code, with_space};

/// What a program of the repository writes when it runs after all.
const RAN_MESSAGE: &str = "a program of the repository ran";

/// One line of a table.
pub struct Attack {
    name: String,
    /// What stands in `.git/config` after what git wrote there.
    config: Vec<u8>,
    /// Files beneath the space.
    files: Vec<(String, Vec<u8>)>,
    more: Option<fn(&HostileRepository)>,
    comes: Comes,
    /// Whoever asks git plainly starts something.
    springs: bool,
}

/// What must come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// The repository as if the attack were not there.
    Shown,
    /// A repository without commits.
    Empty,
    /// A refusal with this code.
    Refused(&'static str),
}

pub fn attack(name: impl Into<String>) -> Attack {
    Attack { name: name.into(), config: Vec::new(), files: Vec::new(), more: None, comes: Comes::Shown, springs: false }
}

impl Attack {
    /// `{evil}` is a program in the space, `{sibling}` the private repository.
    pub fn config(mut self, text: impl AsRef<[u8]>) -> Self {
        self.config = text.as_ref().to_owned();
        self
    }

    pub fn file(mut self, path: &str, text: impl AsRef<[u8]>) -> Self {
        self.files.push((path.to_owned(), text.as_ref().to_owned()));
        self
    }

    pub fn and(mut self, more: fn(&HostileRepository)) -> Self {
        self.more = Some(more);
        self
    }

    pub fn refused(mut self, code: &'static str) -> Self {
        self.comes = Comes::Refused(code);
        self
    }

    pub fn empty(mut self) -> Self {
        self.comes = Comes::Empty;
        self
    }

    pub fn springs(mut self) -> Self {
        self.springs = true;
        self
    }
}

/// A space, a private repository beside it, and programs that leave a mark.
pub struct HostileRepository {
    pub fixture: Fixture<Viber>,
    root: PathBuf,
    secrets: Vec<Canary>,
}

impl HostileRepository {
    pub async fn create() -> Self {
        let fixture = with_space(Engine::Sqlite).await;
        fixture.repository(&[("a.txt", "a\n"), ("sub/b.txt", "b\n"), ("c.txt", "c\n")]);
        let root = fixture.viber.root().to_owned();
        let repository = Self { fixture, secrets: Vec::new(), root };
        fs::rename(repository.space(), repository.root.join("template")).expect("moved");
        fs::create_dir_all(repository.root.join("marks")).expect("made");
        let (text, subject) = (Canary::new("a private file"), Canary::new("a private commit"));
        let sibling = repository.sibling();
        fs::create_dir_all(&sibling).expect("made");
        fs::write(sibling.join("a.txt"), format!("{}\n", text.secret)).expect("written");
        fs::write(sibling.join("secret.txt"), format!("{}\n", text.secret)).expect("written");
        repository.git(&sibling, &["init", "-q", "-b", "main"]);
        repository.git(&sibling, &["config", "remote.origin.url", &format!("https://u:{}@example.org", text.secret)]);
        repository.git(&sibling, &["add", "-A"]);
        repository.git(&sibling, &["commit", "-qm", &subject.secret]);
        let head = Canary::of("a private commit's name", &repository.git(&sibling, &["rev-parse", "HEAD"]));
        Self { secrets: vec![text, subject, head], ..repository }
    }

    pub fn space(&self) -> PathBuf {
        self.root.join("space")
    }

    pub fn sibling(&self) -> PathBuf {
        self.root.join("sibling")
    }

    /// Runs git plainly, as the owner of the machine does.
    pub fn git(&self, folder: &Path, args: &[&str]) -> String {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=Mia", "-c", "user.email=mia@example.org"]).args(args).current_dir(folder);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_PAGER", "cat").stdin(std::process::Stdio::null());
        String::from_utf8_lossy(&git.output().expect("git runs").stdout).trim().to_owned()
    }

    /// A fresh repository with one changed file.
    pub fn fresh(&self) {
        let _ = fs::remove_dir_all(self.space());
        let copied = Command::new("cp").arg("-a").arg(self.root.join("template")).arg(self.space()).status();
        assert!(copied.expect("cp").success());
        fs::write(self.space().join("a.txt"), "a a\n").expect("written");
        fs::create_dir_all(self.space().join("evil")).expect("made");
        let program = self.space().join("evil/run");
        let mark = self.root.join("marks/ran");
        fs::write(&program, format!("#!/bin/sh\ntouch '{}'\necho {RAN_MESSAGE}\n", mark.display())).expect("written");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("runnable");
    }

    fn fill(&self, text: &[u8]) -> Vec<u8> {
        let mut filled = text.to_owned();
        for (word, path) in [("{evil}", self.space().join("evil/run")), ("{sibling}", self.sibling())] {
            let path = path.display().to_string();
            while let Some(at) = filled.windows(word.len()).position(|window| window == word.as_bytes()) {
                filled.splice(at..at + word.len(), path.bytes());
            }
        }
        filled
    }

    fn set(&self, attack: &Attack) {
        self.fresh();
        let config = self.space().join(".git/config");
        let mut text = fs::read(&config).expect("a configuration");
        text.extend(self.fill(&attack.config));
        fs::write(&config, text).expect("written");
        for (path, text) in &attack.files {
            let path = self.space().join(path);
            fs::create_dir_all(path.parent().expect("beneath the space")).expect("made");
            fs::write(path, self.fill(text)).expect("written");
        }
        if let Some(more) = attack.more {
            more(self);
        }
    }

    /// Whether a program of the repository has run; forgets it.
    pub fn sprung(&self) -> bool {
        fs::remove_file(self.root.join("marks/ran")).is_ok()
    }

    /// Nothing was started, and nothing private is in the answer.
    pub fn check(&self, name: &str, answer: &Answer) {
        assert!(!self.sprung() && !answer.body.contains(RAN_MESSAGE), "{name}: a program ran: {answer:#?}");
        self.secrets.iter().for_each(|secret| secret.not_in(name, &answer.body));
    }

    /// Git, confined as for a look but with none of the daemon's settings and checks, does nothing of it either: neither
    /// depends on knowing what a repository can say.
    fn bare(&self, attack: &Attack) {
        let name = &attack.name;
        let git = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .find_map(|folder| folder.join("git").canonicalize().ok())
            .expect("git is installed");
        let space = self.space().canonicalize().expect("a space");
        for words in [&["status"][..], &["diff", "HEAD"], &["log", "-p", "--show-signature"], &["fetch", "--all"]] {
            // One that waits for a pipe is ended.
            let mut look = Command::new("timeout");
            look.arg("2")
                .arg(program("daemon-agent"))
                .arg("look")
                .arg("--in")
                .arg(&space)
                .arg("--read")
                .arg(&space)
                .arg("--")
                .arg(&git)
                .arg("-p")
                .args(words);
            look.env_clear()
                .env("PATH", "/usr/bin:/bin")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("GIT_CONFIG_GLOBAL", "/dev/null");
            look.env("HOME", &self.root).env("PAGER", space.join("evil/run"));
            let said = look.stdin(std::process::Stdio::null()).output().expect("it runs");
            let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
            assert!(!self.sprung() && !out.contains(RAN_MESSAGE), "{name}, {words:?}: a program ran: {out}{err}");
            self.secrets.iter().for_each(|secret| secret.not_in(name, &format!("{out}{err}")));
            // Or it gave up at a place that it was not let at.
            let looked = out.contains("first") || err.contains("Permission denied");
            let works = attack.comes != Comes::Shown || words[0] != "log" || looked;
            assert!(works, "{name}, {words:?}: it did not look at all: {out}{err}");
        }
    }

    /// Lays each attack and looks.
    pub async fn suffer(&self, attacks: Vec<Attack>) {
        for attack in &attacks {
            self.set(attack);
            let name = &attack.name;
            let status = self.fixture.ask("status").await;
            self.check(name, &status);
            let diff = self.fixture.ask("diff?path=a.txt").await;
            self.check(name, &diff);
            let log = self.fixture.ask("log").await;
            self.check(name, &log);
            match attack.comes {
                Comes::Shown => {
                    let told = changes(&status.expect(200).json());
                    assert!(told.contains(&("a.txt".to_owned(), "changed".to_owned())), "{name}: {told:?}");
                    let diff = diff.expect(200).json();
                    assert!(diff["diff"].as_str().is_some_and(|text| text.contains("\n+a a\n")), "{name}: {diff:#}");
                    assert_eq!(log.expect(200).json()["items"][0]["subject"], "first", "{name}");
                }
                Comes::Empty => {
                    let status = status.expect(200).json();
                    assert!(status["head"].is_null(), "{name}: {status:#}");
                    assert_eq!(log.expect(200).json()["items"], serde_json::json!([]), "{name}");
                }
                Comes::Refused(expected) => {
                    assert_eq!((status.status, code(&status).as_str()), (422, expected), "{name}: {status:#?}");
                    assert_eq!(diff.status, 422, "{name}: {diff:#?}");
                    // Files are looked at without git.
                    assert_eq!(self.fixture.ask("file?path=a.txt").await.expect(200).body, "a a\n", "{name}");
                }
            }
            self.bare(attack);
            if attack.springs {
                self.git(&self.space(), &["status"]);
                self.git(&self.space(), &["diff", "HEAD"]);
                self.git(&self.space(), &["log", "-p"]);
                assert!(self.sprung(), "{name}: nothing would have run in any case");
            }
        }
    }
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A link in the space to a place of the sibling.
pub fn link(repository: &HostileRepository, from: &str, to: &str) {
    let from = repository.space().join(from);
    if from.is_dir() {
        fs::remove_dir_all(&from).expect("removed");
    } else {
        let _ = fs::remove_file(&from);
    }
    symlink(repository.sibling().join(to), from).expect("linked");
}

/// Filters by every name: the clean side, the smudge side and the long-running process.
fn filters() -> Vec<Attack> {
    let long = "n".repeat(1_500);
    let names: [&[u8]; 12] = [
        b"x",
        b"\xff",
        b"\xc3\x28",
        b"a.b=c",
        "\u{fc}".as_bytes(),
        b"\x01",
        b"\\\\",
        b"\\\"q\\\"",
        b".",
        b"-",
        b"\x7f",
        long.as_bytes(),
    ];
    let mut all = Vec::new();
    for name in names {
        for side in ["clean", "process", "smudge"] {
            let plain: Vec<u8> = String::from_utf8_lossy(name).replace('\\', "").into_bytes();
            let written = if name.is_ascii() { plain } else { name.to_owned() };
            let config =
                [b"[filter \"".as_slice(), name, b"\"]\n\t", side.as_bytes(), b" = {evil}\n\trequired = true\n"]
                    .concat();
            let line = [b"* filter=".as_slice(), &written, b"\n"].concat();
            let said = attack(format!("filter {} {side}", name.escape_ascii()));
            let said = said.config(config).file(".git/info/attributes", &line);
            let said = if std::str::from_utf8(name).is_err() { said.refused("unreadable_repository") } else { said };
            // A name with quotes or of many letters cannot be said of a file.
            let usable = side == "clean" && !name.contains(&b'\\') && name.len() < 100;
            all.push(if usable { said.springs() } else { said });
        }
    }
    all
}

#[tokio::test]
async fn a102_a_filter_by_any_name_is_not_started() {
    let repository = HostileRepository::create().await;
    repository.suffer(filters()).await;
    repository.fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a103_nothing_that_a_repository_names_is_started() {
    let repository = HostileRepository::create().await;
    repository.suffer(super::attacks::programs()).await;
    repository.fixture.board.assert_invariants().await;
}

#[tokio::test]
async fn a104_nothing_beside_the_space_is_shown() {
    let repository = HostileRepository::create().await;
    repository.suffer(super::attacks::places()).await;
    repository.fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a105_links_that_are_swapped_while_git_looks_show_nothing_else() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let repository = HostileRepository::create().await;
    repository.fresh();
    // The space's own repository and a link to the private one change places all the time, each in one step.
    let (git, other) = (repository.space().join(".git"), repository.space().join("other"));
    symlink(repository.sibling().join(".git"), &other).expect("linked");
    let done = AtomicBool::new(false);
    let (mut shown, mut refused) = (0, 0);
    let (done, swap) = (&done, || renameat_with(CWD, &git, CWD, &other, RenameFlags::EXCHANGE).expect("swapped"));
    #[expect(clippy::disallowed_methods, reason = "a thread of its own, which swaps at odd moments")]
    let swapping = || {
        for n in (0..23).cycle().take_while(|_| !done.load(Ordering::Relaxed)) {
            swap();
            // Long enough for a check, or for one of git's processes, and never in step with them.
            std::thread::sleep(Duration::from_millis(n));
            swap();
            std::thread::sleep(Duration::from_millis(n / 2));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(swapping);
        tokio::task::block_in_place(|| {
            // Also when a check fails.
            let _done = OnDrop(|| done.store(true, Ordering::Relaxed));
            tokio::runtime::Handle::current().block_on(async {
                for n in 0..40 {
                    let what = ["status", "log", "diff?path=a.txt", "log"][n % 4];
                    let answer = repository.fixture.ask(what).await;
                    repository.check(what, &answer);
                    *(if answer.status == 200 { &mut shown } else { &mut refused }) += 1;
                }
            });
        });
    });
    assert_eq!(shown + refused, 40);
    repository.fixture.ask("status").await.expect(200);
    repository.fixture.board.assert_invariants().await;
}
