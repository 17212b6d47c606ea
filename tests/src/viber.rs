//! A real `daemon-agent` with a home of its own.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    time::Duration,
};

use tempfile::TempDir;

use crate::{
    board::{Board, HOME},
    canary::files,
    invariants::NOTES_FILE,
    llm::Llm,
    person::Person,
    programs::{Failpoints, Process, ProgramOutput, program, run},
    wait::{EVENT_TIMEOUT, eventually},
};

/// A work machine: its home folder, a space to work in, and the daemon while it runs.
#[derive(Debug)]
pub struct Viber {
    pub name: String,
    process: Option<Process>,
    faults: Failpoints,
    /// The user whose machine it is, when not the one who tests.
    user: Option<u32>,
    folder: TempDir,
}

impl Viber {
    /// A machine whose daemon has not joined anything; its home holds what `prepare` puts there.
    pub fn fresh(name: &str) -> Self {
        Self::fresh_below(&std::env::temp_dir(), name, None)
    }

    /// The same with its folder below `base`, as the machine of this user. To be another one takes root.
    pub fn fresh_below(base: &Path, name: &str, user: Option<u32>) -> Self {
        let folder = tempfile::Builder::new().prefix("viber-").tempdir_in(base).expect("a folder");
        let faults = Failpoints::in_folder(folder.path());
        let viber = Self { name: name.to_owned(), process: None, faults, user, folder };
        std::fs::create_dir(viber.space()).expect("a space");
        viber.chown_to_user(viber.root());
        viber.chown_to_user(&viber.space());
        viber
    }

    /// Makes its user the owner of the file or folder `path`.
    pub fn chown_to_user(&self, path: &Path) {
        if self.user.is_some() {
            std::os::unix::fs::chown(path, self.user, self.user).expect("only root gives away");
        }
    }

    /// Joins the Board's first team and runs; answers when the Board sees it connected.
    pub async fn join(board: &Board, name: &str) -> Self {
        let mut viber = Self::fresh(name);
        viber.enrol(board).await;
        viber.run();
        viber.connected(&board.token(HOME, "viewer").await).await;
        viber
    }

    /// Enrols without running.
    pub async fn enrol(&self, board: &Board) {
        self.enrol_at(board, &board.url).await;
    }

    /// The same at `url`, which leads to the Board: the daemon dials it from now on.
    pub async fn enrol_at(&self, board: &Board, url: &str) {
        let token = board.join_token(HOME).await;
        let space = self.space().display().to_string();
        let args = ["join", url, &token, "--name", &self.name, "--space", &space];
        self.cli(&args).await.good();
        board.ledger().viber(self.root().to_owned());
        let credential = std::fs::read_to_string(self.home().join("state/credential")).unwrap_or_default();
        let secret = credential.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        secret.filter(|word| word.starts_with("vbv_")).for_each(|word| board.ledger().secret("a credential", word));
    }

    /// Starts the daemon.
    pub fn run(&mut self) {
        assert!(self.process.is_none(), "it runs already");
        let mut command = self.command(&["run"]);
        self.faults.give(&mut command);
        command.env("BOARD_TEST_NOTES", self.root().join(NOTES_FILE));
        self.process = Some(Process::start(command, &self.folder.path().join("daemon.log")));
    }

    /// From now on, and after the next starts, the point does as `actions` say (`1*return(crash)`, `off`); answers when
    /// the running daemon knows.
    pub async fn fail(&mut self, point: &str, actions: &str) {
        let pid = self.alive().then(|| self.pid());
        self.faults.set(point, actions, pid).await;
    }

    /// No point does anything any more, also after the next start.
    pub async fn heal(&mut self) {
        let pid = self.alive().then(|| self.pid());
        self.faults.clear(pid).await;
    }

    /// Waits for the end of a daemon that ends by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        self.process.take().expect("a started daemon").wait(EVENT_TIMEOUT).await
    }

    /// Waits until the Board says that it is connected.
    pub async fn connected(&self, viewer: &Person) {
        self.contact(viewer, "connected").await;
    }

    /// Runs it again after a kill, once the Board has noticed that: `connected` is then about the new process.
    pub async fn run_again(&mut self, viewer: &Person) {
        self.contact(viewer, "disconnected").await;
        self.run();
        self.connected(viewer).await;
    }

    /// Waits until the Board shows it as `state`.
    pub async fn contact(&self, viewer: &Person, state: &str) {
        eventually(&format!("{} {state}", self.name), || async {
            let vibers = viewer.get("/api/v1/vibers").await.expect(200).json();
            vibers["items"]
                .as_array()
                .is_some_and(|all| all.iter().any(|v| v["name"] == self.name && v["contact"]["state"] == state))
                .then_some(())
        })
        .await;
    }

    /// Its id on the Board.
    pub async fn id(&self, viewer: &Person) -> String {
        let vibers = viewer.get("/api/v1/vibers").await.expect(200).json();
        let all = vibers["items"].as_array().expect("a list");
        let me =
            all.iter().find(|v| v["name"] == self.name).unwrap_or_else(|| panic!("{} is not in {vibers}", self.name));
        me["id"].as_str().expect("an id").to_owned()
    }

    /// `daemon-agent ARGS` with this home.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program("daemon-agent"));
        command
            .args(args)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.path())
            .env("LANG", "C.UTF-8")
            .env("OPENVIBER_HOME", self.home())
            .current_dir(self.folder.path());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Runs `daemon-agent ARGS` to its end.
    pub async fn cli(&self, args: &[&str]) -> ProgramOutput {
        run(self.command(args), "").await
    }

    /// `kill -9` of the daemon alone; what it had started has to notice by itself.
    pub fn kill9(&mut self) {
        self.process.take().expect("a running daemon").kill9();
    }

    /// SIGTERM; answers how it ended.
    pub async fn stop(&mut self) -> ExitStatus {
        self.process.take().expect("a running daemon").terminate(EVENT_TIMEOUT).await
    }

    /// Sends SIGTERM without waiting.
    pub fn begin_stop(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends a signal to the daemon.
    pub fn signal(&self, signal: rustix::process::Signal) {
        self.process.as_ref().expect("a running daemon").signal(signal);
    }

    /// Waits at most `limit` for its end.
    pub async fn ended_within(&mut self, limit: Duration) -> ExitStatus {
        self.process.take().expect("a running daemon").wait(limit).await
    }

    /// Whether the daemon's process still lives.
    pub fn alive(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_none())
    }

    /// The daemon's process id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running daemon").pid()
    }

    /// `OPENVIBER_HOME`.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// The directory that its agents may work in.
    pub fn space(&self) -> PathBuf {
        self.folder.path().join("space")
    }

    /// The machine's root folder; `HOME` of its processes.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces a file below the home.
    pub fn write(&self, path: &str, content: &str) {
        self.write_at(&self.home().join(path), content);
    }

    /// Writes a file below the machine's root folder, which then belongs to its user.
    pub fn write_at(&self, path: &Path, content: &str) {
        let folder = path.parent().expect("below the root");
        let missing: Vec<_> = folder.ancestors().take_while(|above| !above.exists()).collect();
        std::fs::create_dir_all(folder).expect("folders");
        std::fs::write(path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        missing.into_iter().chain([path]).for_each(|path| self.chown_to_user(path));
    }

    /// Lets its default agent use `llm` as its model, which speaks `api` (`openai`, `anthropic`, `ollama`).
    pub fn use_scripted_model(&self, llm: &Llm, api: &str) {
        self.write("config.yaml", &llm.config(api));
        self.write("agents/default.yaml", &self.agent("mode: always_execute\nmaxSteps: 25\n"));
    }

    /// An agent's file: the scripted model, the space, and `more` keys.
    pub fn agent(&self, more: &str) -> String {
        format!(
            "name: Default\nmodel: lab/scripted\nspaces: [{}]\ntools: [file, search, shell]\n{more}",
            self.space().display()
        )
    }

    /// Whether the outbox holds the whole record that a task's first attempt was completed. A record that is being
    /// written does not count: a daemon that is killed meanwhile leaves it torn.
    pub fn has_result_on_disk(&self, task: &str) -> bool {
        /// What precedes each payload: its length (u32, little-endian), a checksum, two seqs.
        const HEADER_BYTES: usize = 24;
        let folder = self.home().join(format!("state/outbox/{task}.1"));
        let segments = files(&folder).into_iter().filter(|file| file.extension().is_some_and(|e| e == "seg"));
        let Some(newest) = segments.max() else { return false };
        let bytes = std::fs::read(newest).unwrap_or_default();
        let mut rest = bytes.as_slice();
        while let Some(length) = rest.first_chunk().map(|length| u32::from_le_bytes(*length) as usize) {
            let Some(payload) = rest.get(HEADER_BYTES..HEADER_BYTES + length) else { return false };
            if String::from_utf8_lossy(payload).contains("task:completed") {
                return true;
            }
            rest = &rest[HEADER_BYTES + length..];
        }
        false
    }

    /// What the daemon has written.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("daemon.log")).unwrap_or_default()
    }
}

/// Processes on this machine whose command line contains `mark`, with their ids.
pub fn processes_with(mark: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("a Linux machine").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if pid != std::process::id() && line.contains(mark) {
            found.push((pid, line));
        }
    }
    found
}
