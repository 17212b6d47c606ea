//! A real `viber-board serve`, and its command line.

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::{
    ledger::{self, Ledger},
    person::Person,
    postgres::Database,
    programs::{Failpoints, Process, ProgramOutput, free_port, program, run},
    sqlite,
    wait::{EVENT_TIMEOUT, eventually},
};

/// Which database a Board keeps its truth in. Over HTTP the two can't be told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

/// The team that a Board makes at its first start.
pub const HOME: &str = "home";
/// What the harness's own accounts sign in with.
pub const PASSWORD: &str = "correct horse battery staple";

/// A Board process on a port of its own, with a data folder and a database of its own.
#[derive(Debug)]
pub struct Board {
    pub engine: Engine,
    pub url: String,
    pub database_url: String,
    /// Set for PostgreSQL.
    pub database: Option<Database>,
    port: u16,
    flags: Vec<String>,
    /// What its process finds in its environment beside the usual.
    variables: Vec<(String, String)>,
    faults: Failpoints,
    process: Option<Process>,
    /// When the process was started.
    since: Option<Instant>,
    /// It was asked to stop.
    leaving: AtomicBool,
    ledger: Arc<Ledger>,
    folder: TempDir,
}

impl Board {
    /// Starts a Board on a fresh database and waits until it is ready.
    pub async fn start(engine: Engine) -> Self {
        Self::start_with(engine, &[]).await
    }

    /// The same with further flags of `serve`.
    pub async fn start_with(engine: Engine, flags: &[&str]) -> Self {
        let database = match engine {
            Engine::Sqlite => None,
            Engine::Postgres => Some(Database::with_schema().await),
        };
        let mut board = Self::on(database, flags);
        if engine == Engine::Sqlite {
            sqlite::put_schema(&board.folder.path().join("board.db")).await;
        }
        board.serve();
        board.ready().await;
        board
    }

    /// A Board whose failpoints do as `faults` say from its first moment: `point=actions;…`, see `server::fault`.
    pub async fn start_with_failpoints(engine: Engine, faults: &str) -> Self {
        let mut board = Self::prepare(engine, &[]).await;
        board.faults.at_start(faults);
        board.serve();
        board.ready().await;
        board
    }

    /// From now on, and after the next starts, the point does as `actions` say (`1*return(crash)`, `off`); answers when
    /// the running Board knows.
    pub async fn fail(&self, point: &str, actions: &str) {
        self.faults.set(point, actions, self.running().then(|| self.pid())).await;
    }

    /// No point does anything any more, also after the next start.
    pub async fn heal(&self) {
        self.faults.clear(self.running().then(|| self.pid())).await;
    }

    /// A Board that is not started yet, on an empty database.
    pub async fn prepare(engine: Engine, flags: &[&str]) -> Self {
        let database = match engine {
            Engine::Sqlite => None,
            Engine::Postgres => Some(Database::create().await),
        };
        Self::on(database, flags)
    }

    /// On a database of PostgreSQL, or else on a file that is not there yet.
    fn on(database: Option<Database>, flags: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("board-").tempdir().expect("a folder");
        let port = free_port();
        let database_url = match &database {
            None => format!("sqlite://{}/board.db", folder.path().display()),
            Some(database) => database.url.clone(),
        };
        let url = format!("http://127.0.0.1:{port}");
        let ledger = ledger::begin(&url);
        ledger.secret("the harness's password", PASSWORD);
        Self {
            engine: if database.is_some() { Engine::Postgres } else { Engine::Sqlite },
            url,
            database_url,
            database,
            port,
            flags: flags.iter().map(ToString::to_string).collect(),
            variables: Vec::new(),
            faults: Failpoints::in_folder(folder.path()),
            process: None,
            since: None,
            leaving: AtomicBool::new(false),
            ledger,
            folder,
        }
    }

    /// The next process finds this in its environment.
    pub fn set(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    /// Starts the process without waiting for anything.
    pub fn serve(&mut self) {
        let mut command = self.command(&["serve", "--listen", &format!("127.0.0.1:{}", self.port)]);
        command.args(&self.flags).envs(self.variables.iter().cloned());
        self.faults.give(&mut command);
        self.process = Some(Process::start(command, &self.log_file()));
        self.since = Some(Instant::now());
        self.leaving = AtomicBool::new(false);
    }

    /// Waits until `/readyz` says so. Panics when the process ends first.
    pub async fn ready(&mut self) {
        let probe = reqwest::Client::new();
        let url = format!("{}/readyz", self.url);
        let process = self.process.as_mut().expect("a started Board");
        let end = tokio::time::Instant::now() + EVENT_TIMEOUT;
        loop {
            if let Some(status) = process.ended() {
                panic!("the Board ended instead of becoming ready ({status}):\n{}", process.log());
            }
            if probe.get(&url).send().await.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "the Board is not ready:\n{}", process.log());
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// `kill -9`.
    pub fn kill9(&mut self) {
        self.process.take().expect("a running Board").kill9();
    }

    /// Freezes (SIGSTOP) the process.
    pub fn freeze(&self) {
        self.process.as_ref().expect("a running Board").signal(Signal::STOP);
    }

    /// Thaws (SIGCONT) the process.
    pub fn thaw(&self) {
        self.process.as_ref().expect("a running Board").signal(Signal::CONT);
    }

    /// SIGHUP: read configuration and keys again.
    pub fn hang_up(&self) {
        self.process.as_ref().expect("a running Board").signal(Signal::HUP);
    }

    /// SIGTERM; answers how it ended.
    pub async fn stop(&mut self) -> ExitStatus {
        self.process.take().expect("a running Board").terminate(EVENT_TIMEOUT).await
    }

    /// Sends SIGTERM without waiting.
    pub fn begin_stop(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        self.process.as_ref().expect("a running Board").signal(Signal::TERM);
    }

    /// Sends SIGINT, as Ctrl-C does, without waiting.
    pub fn interrupt(&self) {
        self.leaving.store(true, Ordering::Relaxed);
        self.process.as_ref().expect("a running Board").signal(Signal::INT);
    }

    /// Waits for an end that has been asked for, or that it chose itself.
    pub async fn ended(&mut self) -> ExitStatus {
        self.process.take().expect("a started Board").wait(EVENT_TIMEOUT).await
    }

    /// Whether its process ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.as_mut().is_some_and(|process| process.ended().is_some())
    }

    /// Starts it again on the same port, data and database.
    pub async fn restart(&mut self) {
        assert!(self.process.is_none(), "stop or kill it first");
        self.serve();
        self.ready().await;
    }

    /// The process's id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("a running Board").pid()
    }

    /// Whether a process was started, and neither ended nor asked to end since.
    pub fn running(&self) -> bool {
        self.process.is_some() && !self.leaving.load(Ordering::Relaxed)
    }

    /// For how long it has run, in milliseconds; 0 when it does not.
    pub fn up_ms(&self) -> i64 {
        let up = self.since.filter(|_| self.running()).map_or(0, |since| since.elapsed().as_millis());
        i64::try_from(up).expect("a test is short")
    }

    /// What the harness wrote down about it.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.ledger
    }

    /// Its data folder.
    pub fn data(&self) -> &Path {
        self.folder.path()
    }

    /// All it has written, from every start.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("board.log")
    }

    /// `viber-board ARGS` with this Board's data and database.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program("viber-board"));
        command
            .args(args)
            .arg("--data")
            .arg(self.folder.path())
            .args(["--database-url", &self.database_url])
            .current_dir(self.folder.path())
            .env_remove("VIBER_BOARD_LISTEN")
            .env_remove("VIBER_BOARD_DATA")
            .env_remove("VIBER_BOARD_DATABASE_URL")
            .env_remove("VIBER_BOARD_PUBLIC_URL");
        command
    }

    /// Runs `viber-board ARGS` to its end.
    pub async fn cli(&self, args: &[&str]) -> ProgramOutput {
        run(self.command(args), "").await
    }

    /// Somebody without any credential.
    pub fn anon(&self) -> Person {
        Person::anonymous(&self.url)
    }

    /// An owner of the team `home`, made at the console and signed in at the sign-in page.
    pub async fn owner(&self) -> Person {
        self.operator(HOME, "owner@example.org", "owner").await
    }

    /// An operator with `role` in `team` (made when it is new), signed in.
    pub async fn operator(&self, team: &str, email: &str, role: &str) -> Person {
        self.make_operator(team, email, role).await;
        let person = self.anon().in_team(team);
        person.sign_in(email, PASSWORD).await;
        person
    }

    /// The account alone, with [`PASSWORD`].
    pub async fn make_operator(&self, team: &str, email: &str, role: &str) {
        let args = ["operator", "add", "--team", team, "--email", email, "--role", role, "--password-stdin"];
        run(self.command(&args), &format!("{PASSWORD}\n")).await.good();
    }

    /// A program with an API token of `role` in `team`.
    pub async fn token(&self, team: &str, role: &str) -> Person {
        let said = self.cli(&["token", "add", "--team", team, "--name", &format!("test {role}"), "--role", role]).await;
        Person::with_token(&self.url, &word(&said.good(), "vbt_"))
    }

    /// A fresh join token of `team`.
    pub async fn join_token(&self, team: &str) -> String {
        let token = word(&self.cli(&["join-token", "--team", team]).await.good(), "vbj_");
        self.ledger.secret("a join token", &token);
        token
    }

    /// Changes a row behind the Board's back: for settings that no page or command offers. Answers how many rows.
    pub async fn sql(&self, statement: &'static str) -> u64 {
        let db = server::db::Db::connect(&self.database_url).await.expect("the Board's database");
        let done: Result<u64, server::db::DbError> =
            db.write(move |tx| Box::pin(async move { tx.execute(statement, &[]).await })).await;
        db.close().await;
        done.expect("a good statement")
    }

    /// The same for a statement that the test puts together.
    pub async fn sql_text(&self, statement: String) -> u64 {
        self.sql(Box::leak(statement.into_boxed_str())).await
    }

    /// The path of the one-use link that makes the first owner.
    pub async fn setup_path(&self) -> String {
        let said = eventually("a setup link", || async {
            let said = self.cli(&["setup-link"]).await;
            said.status.success().then_some(said.out)
        })
        .await;
        let at = said.find("/setup/").unwrap_or_else(|| panic!("no setup link in: {said}"));
        said[at..].split_whitespace().next().expect("a path").to_owned()
    }
}

/// The first word of `text` that starts with `prefix`.
fn word(text: &str, prefix: &str) -> String {
    let at = text.find(prefix).unwrap_or_else(|| panic!("no {prefix}… in: {text}"));
    text[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').next().expect("a word").to_owned()
}
