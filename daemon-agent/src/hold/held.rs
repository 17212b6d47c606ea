//! The daemon's end of a supervisor: start a command under one, ask it to stop, learn how it ended.

use std::{
    ffi::OsString,
    io,
    os::{fd::OwnedFd, unix::net::UnixStream as StdUnixStream},
    path::PathBuf,
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::process::{self, Pid, Signal, WaitOptions};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf, pipe},
    },
    process::Child,
    time::timeout,
};

use super::{Ended, Options, Report, tree};
use crate::fault;

/// A supervisor that neither reports nor goes away after it was asked to stop is itself stuck.
const SUPERVISOR_STUCK: Duration = Duration::from_millis(11_500);

/// The supervisors that this process has started and that may be alive: all its children. Whatever else becomes a child
/// of it is what a killed supervisor left behind.
static SUPERVISORS: Mutex<Vec<tree::Process>> = Mutex::new(Vec::new());

/// A command to run under a supervisor.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program that understands `hold`: [`super::own_program`].
    pub supervisor: PathBuf,
    pub options: Options,
    /// The whole environment of the command; nothing of the daemon's own is added.
    pub env: Vec<(OsString, OsString)>,
}

/// A running command. Dropping it ends the command and all that descends from it.
#[derive(Debug)]
pub struct Held {
    supervisor: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
    /// The command's own process, or the first one of its namespace.
    pub pid: i32,
    /// Whether the kernel confines it.
    pub confined: bool,
}

impl Held {
    /// Starts `command`. Returns the pipe with its standard output and error, in the order they were written.
    pub async fn start(command: Command) -> io::Result<(Self, pipe::Receiver)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (output, input) = io::pipe()?;
        let mut hold = tokio::process::Command::new(&command.supervisor);
        // In a list of processes it shows under its own name.
        hold.arg0("daemon-agent").arg("hold").args(command.options.to_args());
        hold.env_clear().envs(command.env).current_dir("/");
        hold.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(input.try_clone()?).stderr(input);
        fault::at("hold::before_spawn");
        // What a killed supervisor leaves behind comes to this process, wherever it has hidden. Every system has a first
        // process, which it would come to otherwise.
        let _ = process::set_child_subreaper(Some(process::getpid()));
        let supervisor = spawn(hold)?;
        fault::at("hold::after_spawn");
        let (reports, requests) = UnixStream::from_std(ours)?.into_split();
        let reports = BufReader::new(reports).lines();
        let mut held = Self { supervisor, reports, requests, pid: 0, confined: false };
        match held.report().await {
            Some(Report::Started { pid, confined, .. }) => {
                (held.pid, held.confined) = (pid, confined);
                Ok((held, pipe::Receiver::from_owned_fd(output.into())?))
            }
            Some(Report::Failed { message, .. }) => Err(io::Error::other(message)),
            Some(Report::Ended(_)) | None => Err(io::Error::other("the supervisor of commands could not be started")),
        }
    }

    /// Asks to end the command and all that descends from it: at once, within ten seconds if it resists.
    pub async fn stop(&mut self) {
        // A supervisor that is gone has nothing to stop; `ended` sees that.
        let _ = self.requests.write_all(b"stop\n").await;
    }

    /// Waits until the command ended and nothing of it is left.
    pub async fn ended(&mut self) -> Ended {
        let report = self.report().await;
        self.settle(report).await
    }

    /// The same after [`Held::stop`]: bounded, whatever the supervisor does.
    pub async fn stopped(&mut self) -> Ended {
        self.stop().await;
        let report = timeout(SUPERVISOR_STUCK, self.report()).await.unwrap_or_default();
        self.settle(report).await
    }

    async fn settle(&mut self, report: Option<Report>) -> Ended {
        if let Some(Report::Ended(ended)) = report {
            // It has only to exit now; tokio reaps it.
            let _ = timeout(Duration::from_secs(1), self.supervisor.wait()).await;
            return ended;
        }
        self.sweep().await
    }

    async fn report(&mut self) -> Option<Report> {
        let line = self.reports.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// The supervisor was killed. Where the kernel lets a command signal it (no Landlock, or before 6.12), that is
    /// what a hostile command would do: end what is left of the supervisor's session, of the command's group, and what
    /// came to this process when the supervisor was gone.
    async fn sweep(&mut self) -> Ended {
        let session = self.supervisor.id().map(|id| id as i32);
        let _ = self.supervisor.kill().await;
        let mut ended = Ended { signal: Some(Signal::KILL.as_raw()), ..Ended::default() };
        for _ in 0..100 {
            let orphans = orphans();
            let ours = |process: &tree::Process| Some(process.session) == session || process.group == self.pid;
            let mut rest: Vec<_> = tree::all().into_iter().filter(|process| !process.zombie && ours(process)).collect();
            rest.extend(orphans.into_iter().filter(|process| !ours(process)));
            ended.left = rest.len() as u32;
            if rest.is_empty() {
                break;
            }
            ended.killed = ended.killed.max(ended.left);
            rest.iter().for_each(|process| process.signal(Signal::KILL));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        ended
    }
}

/// Starts a supervisor and remembers it in one step, so that nobody takes it for something left behind. What it was given
/// is closed here: the pipe's writing end and the socket's other end must see their end.
fn spawn(mut hold: tokio::process::Command) -> io::Result<Child> {
    let mut supervisors = supervisors();
    let child = hold.spawn()?;
    supervisors.extend(child.id().and_then(|id| tree::Process::read(id as i32)));
    Ok(child)
}

/// Those that are alive, or wait to be reaped by whoever started them.
fn supervisors() -> MutexGuard<'static, Vec<tree::Process>> {
    let mut supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    supervisors.retain(|known| tree::Process::read(known.pid).is_some_and(|now| now.started == known.started));
    supervisors
}

/// The living processes that killed supervisors have left to this one, and all below them. Reaps those that are dead.
/// Whatever is in this process's own session was started by itself: a supervisor and all below it have others.
fn orphans() -> Vec<tree::Process> {
    let own = process::getpid().as_raw_nonzero().get();
    let Some(session) = tree::Process::read(own).map(|own| own.session) else { return Vec::new() };
    // Nobody starts a supervisor while this looks.
    let known = supervisors();
    let all = tree::all();
    let is_known = |child: &tree::Process| known.iter().any(|known| known.pid == child.pid);
    let left = all.iter().filter(|child| child.parent == own && child.session != session && !is_known(child));
    let mut found = Vec::new();
    for orphan in left {
        if !orphan.zombie {
            found.push(*orphan);
        } else if let Some(pid) = Pid::from_raw(orphan.pid) {
            let _ = process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        found.extend(tree::below(orphan.pid, &all));
    }
    found
}
