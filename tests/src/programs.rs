//! The built programs, as processes that end with the value that holds them.

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// The path of a program of this workspace. The test command builds it first.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let folder = test.parent().expect("a program lies in a folder");
    // Tests lie in target/<profile>/deps, other programs beside what they start.
    let folder = if folder.ends_with("deps") { folder.parent().expect("target/<profile>") } else { folder };
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: build it first (`cargo build --workspace --bins`)", path.display());
    path
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

/// The only port between these that browsers refuse to open (`ERR_UNSAFE_PORT` of Chromium).
const UNSAFE_PORT: u16 = 10_080;

/// A loopback port that nothing listens on and that the kernel does not hand out by itself, so that a server can be
/// started again on it. Processes of a test run use different stretches.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = std::process::id().wrapping_mul(8).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + u16::try_from(n % 20_000).expect("below 20,000");
        if port != UNSAFE_PORT && std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// What the failpoints of one program are to do (`server::fault`, `daemon_agent::fault`).
#[derive(Debug)]
pub struct Failpoints {
    file: PathBuf,
    inner: Mutex<FailpointOrders>,
}

#[derive(Debug, Default)]
struct FailpointOrders {
    /// Numbers the orders: the same one given twice counts twice.
    number: u32,
    points: BTreeMap<String, String>,
}

impl Failpoints {
    /// Of a program whose files lie in `folder`.
    pub fn in_folder(folder: &Path) -> Self {
        Self { file: folder.join("faults"), inner: Mutex::default() }
    }

    /// Sets the environment of a command that is about to be started.
    pub fn give(&self, command: &mut Command) {
        let orders = self.orders();
        // What was ordered before belongs to the process before: the file says only what is new.
        drop(std::fs::remove_file(&self.file));
        let points: Vec<String> = orders.points.iter().map(|(point, actions)| format!("{point}={actions}")).collect();
        command.env("BOARD_TEST_FAULTS", &self.file).env("FAILPOINTS", points.join(";"));
    }

    /// `point=actions;…` from the next start on.
    pub fn at_start(&self, faults: &str) {
        let parts = faults.split(';').filter_map(|part| part.split_once('='));
        self.orders().points.extend(parts.map(|(point, actions)| (point.to_owned(), actions.to_owned())));
    }

    /// One point, now if the program runs (with the process id `pid`) and from its next start on.
    pub async fn set(&self, point: &str, actions: &str, pid: Option<u32>) {
        self.orders().points.insert(point.to_owned(), actions.to_owned());
        self.write(&[point.to_owned()], pid).await;
    }

    /// Nothing fails any more.
    pub async fn clear(&self, pid: Option<u32>) {
        let points: Vec<String> = self.orders().points.keys().cloned().collect();
        points.iter().for_each(|point| drop(self.orders().points.insert(point.clone(), "off".to_owned())));
        self.write(&points, pid).await;
        self.orders().points.clear();
    }

    async fn write(&self, points: &[String], pid: Option<u32>) {
        let Some(pid) = pid else { return };
        let (order, is_deadly) = {
            let mut orders = self.orders();
            orders.number += 1;
            let lines = points.iter().filter_map(|point| Some(format!("{point}={}\n", orders.points.get(point)?)));
            let lines: String = lines.collect();
            (format!("{}\n{lines}", orders.number), lines.contains("return(crash)"))
        };
        // Moved into its place whole: the program may look at any moment.
        let draft = self.file.with_extension("draft");
        std::fs::write(&draft, &order).and_then(|()| std::fs::rename(&draft, &self.file)).expect("a file of faults");
        let armed = self.file.with_extension("armed");
        crate::eventually("the program knows its faults", || async {
            let known = std::fs::read_to_string(&armed).unwrap_or_default();
            // A crash may come before the program has said that it knows: something else passed the point.
            (known == order || is_deadly && has_ended(pid)).then_some(())
        })
        .await;
    }

    fn orders(&self) -> MutexGuard<'_, FailpointOrders> {
        self.inner.lock().expect("not poisoned")
    }
}

/// Whether a child process has ended, also while nobody has asked for its exit code.
fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in brackets before the state, and may itself hold some.
    stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['Z', 'X']))
}

/// What a program that ran to its end said.
#[derive(Debug)]
pub struct ProgramOutput {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl ProgramOutput {
    /// The exit code; a program that a signal ended panics.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }

    /// Its output, when it ended well.
    pub fn good(self) -> String {
        assert!(self.status.success(), "it failed: {self:#?}");
        self.out
    }
}

/// Runs a command to its end, with `input` on its standard input.
pub async fn run(mut command: Command, input: &str) -> ProgramOutput {
    let input = input.to_owned();
    tokio::task::spawn_blocking(move || {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        // A program that does not read its input may be gone already.
        let _ = std::io::Write::write_all(&mut child.stdin.take().expect("piped"), input.as_bytes());
        let done = child.wait_with_output().expect("a child can be waited for");
        ProgramOutput {
            status: done.status,
            out: String::from_utf8_lossy(&done.stdout).into_owned(),
            err: String::from_utf8_lossy(&done.stderr).into_owned(),
        }
    })
    .await
    .expect("waiting does not panic")
}

/// A running program: killed when dropped, its output shown when the test fails.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`, its output appended to the file `log`.
    pub fn start(mut command: Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log file");
        let twin = file.try_clone().expect("a second handle");
        command.stdin(Stdio::null()).stdout(file).stderr(twin);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self { child, log: log.to_owned() }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        // One that has just ended by itself is what the caller wanted.
        let _ = kill_process(pid, signal);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::KILL);
        let status = self.child.wait().expect("a child can be waited for");
        assert!(status.signal() == Some(9) || status.code().is_some(), "{status:?}");
    }

    /// SIGTERM, and how it ended. Panics when it does not within `limit`.
    pub async fn terminate(&mut self, limit: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(limit).await
    }

    /// Waits for its end. Panics when it does not come within `limit`.
    pub async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < end, "still running after {limit:?}:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Everything it has written.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            let tail: Vec<&str> = log.lines().rev().take(60).collect();
            eprintln!("--- the end of {} ---", self.log.display());
            for line in tail.iter().rev() {
                eprintln!("{line}");
            }
        }
    }
}
