//! The machine on which it is tried: a daemon, what lies around it, and who judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream, process::CommandExt},
    path::{Path, PathBuf},
    process::Command,
};

use board_tests::{
    Engine, Fixture, Viber,
    canary::Canary,
    eventually,
    invariants::NOTES_FILE,
    llm::Reply,
    programs::{Process, program, root},
    viber::processes_with,
};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The ordinary user, when root tests: nobody.
const NOBODY_USER: u32 = 65_534;
/// What a try says that reached something which has no text.
const REACHED_MARK: &str = "reached-it";
/// What commands may use of memory here, bytes: as much as its configuration says.
const MEMORY_LIMIT_BYTES: u64 = 192 * 1024 * 1024;

/// Tries that may end their command, or live on after it: each has a command of its own.
const TRIED_ALONE: [&str; 10] = [
    "more-memory-than-allowed",
    "more-memory-in-many",
    "memory-by-files",
    "memory-by-memfd",
    "memory-by-system-v",
    "memory-by-semaphores",
    "memory-by-sockets",
    "outlive-the-command",
    "outlive-the-command-in-many",
    "outlive-the-supervisor",
];

/// The layers that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers(pub u8);

impl Layers {
    pub const NAMESPACES: u8 = 1;
    pub const LANDLOCK: u8 = 2;
    pub const SECCOMP: u8 = 4;
    pub const ALL: Self = Self(7);
    pub const NONE: Self = Self(0);

    /// The failpoints that take away the others.
    fn missing(self) -> impl Iterator<Item = &'static str> {
        LAYERS.into_iter().filter(move |(layer, _)| self.0 & layer == 0).map(|(_, name)| name)
    }
}

const LAYERS: [(u8, &str); 3] =
    [(Layers::NAMESPACES, "namespaces"), (Layers::LANDLOCK, "landlock"), (Layers::SECCOMP, "seccomp")];

/// Who runs the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    Root,
    Ordinary,
}

impl As {
    /// Those that this test's own user can be.
    pub fn possible() -> &'static [Self] {
        if rustix::process::geteuid().is_root() { &[Self::Root, Self::Ordinary] } else { &[Self::Ordinary] }
    }
}

/// What came of a try.
#[derive(Debug)]
pub struct Came {
    /// What was got hold of or changed; `None` when nothing was.
    pub reached: Option<String>,
    /// What the try itself says.
    pub said: String,
}

/// A viber among bait, whose agent tries to reach what it was not given.
pub struct Escape {
    pub fixture: Fixture<Viber>,
    bait: Process,
    told: Value,
    word: Canary,
}

impl Escape {
    /// A machine of `who` with the layers that `layers` names, where `network` says what commands have of it.
    pub async fn from(who: As, layers: Layers, network: &str) -> Self {
        let user = (who == As::Ordinary && rustix::process::geteuid().is_root()).then_some(NOBODY_USER);
        let machine = Viber::fresh_below(&base(), "lab", user);
        let word = Canary::new("what lies outside");
        lay_out(&machine, &word.secret);
        let mut fixture = Fixture::on(Engine::Sqlite).machine(machine).scripted_model([]).with_enrolled_viber().await;
        let viber = &mut fixture.viber;
        let config = fs::read_to_string(viber.home().join("config.yaml")).expect("its file");
        let sandbox = format!("{config}\nsandbox: {{ network: {network}, memory: 192MiB }}\n# {}\n", word.secret);
        viber.write("config.yaml", &sandbox);
        viber.write("secrets/other", &word.secret);
        viber.write(".env", &format!("OTHER={}\n", word.secret));
        viber.write("agents/other.yaml", &viber.agent("mode: always_execute\n"));
        for layer in layers.missing() {
            viber.fail(&format!("sandbox::{layer}"), "return").await;
        }
        let folder = viber.root().join("bait");
        fs::create_dir(&folder).expect("a folder");
        viber.chown_to_user(&folder);
        let bait = bait(viber, user, &folder, &word.secret);
        let fixture = fixture.running().await;
        let told = eventually("the bait lies there", async || {
            serde_json::from_str(&fs::read_to_string(folder.join("bait.json")).ok()?).ok()
        })
        .await;
        Self { fixture, bait, told, word }
    }

    /// The layers that the daemon says are there.
    pub async fn layers(&self) -> Layers {
        let said: Value =
            serde_json::from_str(&self.fixture.viber.cli(&["status", "--json"]).await.good()).expect("JSON");
        let words = said["confinement"].as_str().expect("a word");
        Layers(LAYERS.iter().filter(|(_, name)| words.split(',').any(|word| word == *name)).map(|(bit, _)| bit).sum())
    }

    /// What the viber's page says of each subject: `kept`, `partly`, `open`.
    pub async fn words(&self) -> BTreeMap<String, String> {
        let viber =
            self.fixture.operator.get(&format!("/api/v1/vibers/{}", self.fixture.viber_id)).await.expect(200).json();
        let subjects = viber["confinement"]["subjects"].as_array().expect("what is confined").clone();
        let word = |one: Value| Some((one["name"].as_str()?.to_owned(), one["state"].as_str()?.to_owned()));
        subjects.into_iter().filter_map(word).collect()
    }

    /// Tries all of them, in one command but for those that may end theirs; what came of each.
    pub async fn try_all(&mut self, names: &[&str]) -> BTreeMap<String, Came> {
        for name in names {
            let file = self.fixture.viber.root().join("outside").join(name).join("bait");
            self.fixture.viber.write_at(&file, "bait\n");
        }
        let space = self.fixture.viber.space();
        for file in ["tries.py", "base.py", "files.py", "processes.py", "machine.py"] {
            let text = fs::read_to_string(root().join("tests/it/daemon/escape").join(file)).expect("a source");
            self.fixture.viber.write_at(&space.join(file), &text);
        }
        let (alone, together): (Vec<&str>, Vec<&str>) =
            names.iter().copied().partition(|name| TRIED_ALONE.contains(name));
        let mut came = self.in_one(&together).await;
        for name in alone {
            came.extend(self.in_one(&[name]).await);
        }
        came
    }

    /// Tries these in one command.
    async fn in_one(&mut self, names: &[&str]) -> BTreeMap<String, Came> {
        let before: BTreeMap<&str, String> = names.iter().map(|name| (*name, self.outside(name))).collect();
        let space = self.fixture.viber.space();
        let port = self.fixture.board.url.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).expect("a port");
        let mut lure = json!({
            "home": self.fixture.viber.root(), "outside": self.fixture.viber.root().join("outside"), "space": space,
            "viber": self.fixture.viber.home(), "state": self.fixture.viber.home().join("state"), "daemon": self.fixture.viber.pid(),
            "board": port, "program": program("daemon-agent"), "memory": MEMORY_LIMIT_BYTES, "mark": REACHED_MARK,
            "tries": names,
            // These keep the line open on which their answer is awaited.
            "seconds": if names.iter().all(|name| name.starts_with("outlive")) { 0.5 } else { 5.0 },
        });
        let told = self.told.as_object().expect("an object").clone();
        lure.as_object_mut().expect("an object").extend(told);
        let file = space.join("lure.json");
        self.fixture.viber.write_at(&file, &lure.to_string());
        let command = format!("{} tries.py {} > said.jsonl 2> wrong.txt", python().display(), file.display());
        self.fixture.llm.script([Reply::call("shell", json!({ "command": command })), Reply::text("done")]);
        let task = self.fixture.play("try it").await;
        assert_eq!(task["state"], "completed", "{task:#}\n{}", self.fixture.viber.log());
        // The command is over, and whatever it has started with it.
        let alive = processes_with(&file.display().to_string());
        let said = fs::read_to_string(space.join("said.jsonl")).expect("what the tries say");
        let wrong = fs::read_to_string(space.join("wrong.txt")).unwrap_or_default();
        let mut lines: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        if let [name] = names
            && lines.is_empty()
            && TRIED_ALONE.contains(name)
        {
            lines.push(json!({ "try": name, "failed": "the command was ended" }));
        }
        let tried: BTreeSet<&str> = lines.iter().filter_map(|line| line["try"].as_str()).collect();
        let missing: Vec<_> = names.iter().filter(|name| !tried.contains(*name)).collect();
        assert!(missing.is_empty(), "these were not tried: {missing:?}\n{wrong}");
        let touched = fs::read_to_string(self.fixture.viber.root().join("bait/touched")).unwrap_or_default();
        let touched: BTreeSet<&str> = touched.lines().collect();
        let judge = |line: &Value| {
            let name = line["try"].as_str().expect("a name");
            let got = line["got"].as_str().unwrap_or_default();
            let reached = match name {
                _ if line["got"] == true => Some("did it".to_owned()),
                _ if got.contains(&self.word.secret) || got.contains(REACHED_MARK) => Some("read it".to_owned()),
                _ if self.outside(name) != before[name] => Some("changed it".to_owned()),
                _ if self.is_touched(name, &touched) => Some("touched it".to_owned()),
                _ if TRIED_ALONE.contains(&name) && !alive.is_empty() => Some(format!("lives on: {alive:?}")),
                _ => None,
            };
            let said = if line["failed"].is_string() { line["failed"].to_string() } else { "went through".to_owned() };
            (name.to_owned(), Came { reached, said })
        };
        lines.iter().map(judge).collect()
    }

    /// The key that the daemon's socket asks for.
    pub fn key(&self) -> String {
        fs::read_to_string(self.fixture.viber.home().join("state/daemon.key")).expect("a key")
    }

    /// Tasks that this daemon began.
    pub fn begun(&self) -> usize {
        let notes = fs::read_to_string(self.fixture.viber.root().join(NOTES_FILE)).unwrap_or_default();
        notes.lines().filter(|line| line.starts_with("begin ")).count()
    }

    /// What the daemon's socket answers to somebody who shows this and wants that.
    pub fn ask(&self, shown: &str, wish: &Value) -> String {
        let mut line = UnixStream::connect(self.fixture.viber.home().join("state/daemon.sock")).expect("it listens");
        line.write_all(format!("{shown}\n{wish}\n").as_bytes()).expect("said");
        let mut answer = String::new();
        line.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// What lies outside for a try, in words that differ when anything of it does.
    fn outside(&self, name: &str) -> String {
        let mut found = Vec::new();
        let folder = self.fixture.viber.root().join("outside").join(name);
        for entry in fs::read_dir(&folder).expect("a folder").flatten() {
            let path = entry.path();
            let meta = fs::symlink_metadata(&path).expect("an entry");
            let content = fs::read(&path).unwrap_or_default();
            let mut names = Vec::<u8>::with_capacity(4096);
            let attributes = rustix::fs::listxattr(&path, rustix::buffer::spare_capacity(&mut names)).map_or(0, |n| n);
            found.push(format!(
                "{} {:o} {} {} {} {attributes} {content:?}",
                entry.file_name().display(),
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.mtime_nsec(),
            ));
        }
        found.sort();
        found.join("\n")
    }

    /// Whether the bait, or a file of the user, shows the hand of the try.
    fn is_touched(&self, name: &str, touched: &BTreeSet<&str>) -> bool {
        let signal = match name {
            "signal-a-process" => "signal-10",
            "signal-by-handle" => "signal-12",
            "signal-by-owner-of-a-file" => "signal-29",
            "signal-everybody" => "signal-28",
            other => other,
        };
        if touched.contains(signal) {
            return true;
        }
        if name == "write-shared-memory" {
            let path = format!("{}-new", self.told["shared"].as_str().expect("a path"));
            return fs::remove_file(path).is_ok();
        }
        let home = self.fixture.viber.root();
        let planted =
            |path: &str| fs::read_to_string(home.join(path)).is_ok_and(|text| text.contains(&format!("# {name}")));
        PLANTED_FILES.iter().any(|path| planted(path))
    }

    /// Ends what was started around the daemon.
    pub async fn end(mut self) {
        // Whoever traced it may have left it stopped.
        self.bait.signal(Signal::CONT);
        self.bait.terminate(std::time::Duration::from_secs(10)).await;
        self.fixture.board.assert_invariants().await;
    }
}

/// Files of the user that a try may plant something in.
const PLANTED_FILES: [&str; 11] = [
    ".bashrc",
    ".profile",
    ".zshenv",
    ".config/autostart/x.desktop",
    ".config/systemd/user/x.service",
    ".gitconfig",
    ".config/git/config",
    ".cargo/config.toml",
    ".cargo/bin/cargo",
    "home/config.yaml",
    "home/agents/default.yaml",
];

/// What a user has that is nobody's business.
fn lay_out(viber: &Viber, word: &str) {
    let secrets = [
        ".ssh/id_ed25519",
        ".gnupg/private",
        ".netrc",
        ".aws/credentials",
        ".docker/config.json",
        ".kube/config",
        ".config/gh/hosts.yml",
        ".mozilla/firefox/x/logins.json",
        ".config/chromium/Default/Cookies",
        ".bash_history",
        ".zsh_history",
        ".python_history",
    ];
    for path in secrets {
        viber.write_at(&viber.root().join(path), word);
    }
    for folder in [".cargo/bin", ".config/git", ".config/autostart", ".config/systemd/user"] {
        viber.write_at(&viber.root().join(folder).join("here"), "");
    }
}

fn bait(viber: &Viber, user: Option<u32>, folder: &Path, word: &str) -> Process {
    let mut command = Command::new(python());
    command.arg(root().join("tests/it/daemon/escape/bait.py")).arg(folder);
    command.env_clear().env("HOME", viber.root()).env("ESCAPE_WORD", word).current_dir(viber.root());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Process::start(command, &folder.with_extension("log"))
}

/// Where machines lie whose files a command could see: not in a folder like `/tmp`, of which it may have its own.
pub fn base() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/srv".into();
    }
    std::env::var_os("HOME").map_or_else(|| "/srv".into(), PathBuf::from)
}

/// A Python that every user of the machine can start.
fn python() -> PathBuf {
    let known = ["/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3"].map(PathBuf::from);
    known.into_iter().find(|path| path.exists()).expect("python3 is missing: scripts/needs installs it")
}
