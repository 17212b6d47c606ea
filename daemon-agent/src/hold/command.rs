//! The daemon's side of a supervisor: starts a command under one, asks it to stop, learns how it ended.

use std::{
    ffi::{OsStr, OsString},
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

use super::{CommandEnd, HoldOptions, SupervisorReport, process_tree};
use crate::fault;

/// A supervisor that neither reports nor exits within this time after a stop is itself stuck.
const SUPERVISOR_STOP_TIMEOUT: Duration = Duration::from_millis(11_500);

/// The supervisors that this process started and that may still run: all of its children. Any other child was left
/// behind by a killed supervisor.
static SUPERVISORS: Mutex<Vec<process_tree::Process>> = Mutex::new(Vec::new());

/// Variables of the daemon's environment that every command gets; providers' keys are not among them.
const INHERITED_VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "LANG", "TERM", "TZ", "SHELL"];
/// Where programs are searched for if the daemon itself was started without a PATH.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a command gets of the environment `own`: the usual names, and those in `more`. Not TMPDIR.
pub fn inherited_variables(
    own: impl IntoIterator<Item = (OsString, OsString)>,
    more: &[String],
) -> Vec<(OsString, OsString)> {
    let passed = |name: &OsStr| {
        let name = name.to_string_lossy();
        INHERITED_VARIABLES.contains(&&*name) || name.starts_with("LC_") || more.iter().any(|more| *more == name)
    };
    let mut env: Vec<_> = own.into_iter().filter(|(name, _)| passed(name) && name != "TMPDIR").collect();
    if !env.iter().any(|(name, _)| name == "PATH") {
        env.push(("PATH".into(), DEFAULT_PATH.into()));
    }
    env
}

/// A command to run under a supervisor.
#[derive(Clone, Debug)]
pub struct CommandSpec {
    /// The program that understands `hold`: [`super::own_program`].
    pub supervisor: PathBuf,
    pub options: HoldOptions,
    /// The command's whole environment; nothing is inherited from the daemon.
    pub env: Vec<(OsString, OsString)>,
}

/// A running command. Dropping it ends the command and everything that descends from it.
#[derive(Debug)]
pub struct SupervisedCommand {
    supervisor: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    requests: OwnedWriteHalf,
    /// The command's own process, or the first one in its namespace.
    pub pid: i32,
    /// Whether the kernel confines it.
    pub confined: bool,
}

impl SupervisedCommand {
    /// Starts `command`. Returns the pipe with its standard output and error, in the order in which they were written.
    pub async fn start(command: CommandSpec) -> io::Result<(Self, pipe::Receiver)> {
        let (output, input) = io::pipe()?;
        let held = Self::start_with(command, (input.try_clone()?.into(), input.into())).await?;
        Ok((held, pipe::Receiver::from_owned_fd(output.into())?))
    }

    /// Starts a `command` that is talked to, whose options say `duplex`. Returns the socket that is its standard input and
    /// output, and the pipe with its standard error.
    pub async fn start_duplex(command: CommandSpec) -> io::Result<(Self, UnixStream, pipe::Receiver)> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let (errors, input) = io::pipe()?;
        let held = Self::start_with(command, (OwnedFd::from(theirs).into(), input.into())).await?;
        Ok((held, UnixStream::from_std(ours)?, pipe::Receiver::from_owned_fd(errors.into())?))
    }

    async fn start_with(command: CommandSpec, (output, errors): (Stdio, Stdio)) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let mut hold = tokio::process::Command::new(&command.supervisor);
        // So that a list of processes shows the daemon's own name.
        hold.arg0("daemon-agent").arg("hold").args(command.options.to_args());
        hold.env_clear().envs(command.env).current_dir("/");
        hold.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(output).stderr(errors);
        fault::at("hold::before_spawn");
        // What a killed supervisor leaves behind becomes this process's child, wherever it hides, instead of a child of
        // the system's first process.
        let _ = process::set_child_subreaper(Some(process::getpid()));
        let supervisor = spawn(hold)?;
        fault::at("hold::after_spawn");
        let (reports, requests) = UnixStream::from_std(ours)?.into_split();
        let reports = BufReader::new(reports).lines();
        let mut held = Self { supervisor, reports, requests, pid: 0, confined: false };
        match held.report().await {
            Some(SupervisorReport::Started { pid, confined, .. }) => {
                (held.pid, held.confined) = (pid, confined);
                Ok(held)
            }
            Some(SupervisorReport::Failed { message, .. }) => Err(io::Error::other(message)),
            Some(SupervisorReport::Ended(_)) | None => {
                Err(io::Error::other("the supervisor of commands could not be started"))
            }
        }
    }

    /// Asks to end the command and everything that descends from it: at once, or within ten seconds if it resists.
    pub async fn stop(&mut self) {
        // A supervisor that is gone has nothing to stop; `ended` notices that.
        let _ = self.requests.write_all(b"stop\n").await;
    }

    /// Waits until the command has ended and nothing of it is left.
    pub async fn ended(&mut self) -> CommandEnd {
        let report = self.report().await;
        self.settle(report).await
    }

    /// Like [`SupervisedCommand::ended`], after [`SupervisedCommand::stop`]: limited in time, whatever the supervisor
    /// does.
    pub async fn stopped(&mut self) -> CommandEnd {
        self.stop().await;
        let report = timeout(SUPERVISOR_STOP_TIMEOUT, self.report()).await.unwrap_or_default();
        self.settle(report).await
    }

    async fn settle(&mut self, report: Option<SupervisorReport>) -> CommandEnd {
        if let Some(SupervisorReport::Ended(ended)) = report {
            // It only has to exit now; tokio reaps it.
            let _ = timeout(Duration::from_secs(1), self.supervisor.wait()).await;
            return ended;
        }
        self.sweep().await
    }

    async fn report(&mut self) -> Option<SupervisorReport> {
        let line = self.reports.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    /// The supervisor was killed. Where the kernel lets a command signal its supervisor (no Landlock, or before 6.12),
    /// a hostile command would do that. Ends what is left of the supervisor's session, of the command's group, and what
    /// became this process's child when the supervisor died.
    async fn sweep(&mut self) -> CommandEnd {
        let session = self.supervisor.id().map(|id| id as i32);
        let _ = self.supervisor.kill().await;
        let mut ended = CommandEnd { signal: Some(Signal::KILL.as_raw()), ..CommandEnd::default() };
        for _ in 0..100 {
            let orphans = orphans();
            let ours = |process: &process_tree::Process| Some(process.session) == session || process.group == self.pid;
            let mut rest: Vec<_> =
                process_tree::all().into_iter().filter(|process| !process.zombie && ours(process)).collect();
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

/// Starts a supervisor and registers it in one step, so that it is never mistaken for something left behind. The
/// parent's ends of what the child was given are closed here, so that the other ends see the end of input.
fn spawn(mut hold: tokio::process::Command) -> io::Result<Child> {
    let mut supervisors = supervisors();
    let child = hold.spawn()?;
    supervisors.extend(child.id().and_then(|id| process_tree::Process::read(id as i32)));
    Ok(child)
}

/// Supervisors that run, or wait to be reaped by whoever started them.
fn supervisors() -> MutexGuard<'static, Vec<process_tree::Process>> {
    let mut supervisors = SUPERVISORS.lock().unwrap_or_else(PoisonError::into_inner);
    supervisors.retain(|known| process_tree::Process::read(known.pid).is_some_and(|now| now.started == known.started));
    supervisors
}

/// Living processes that killed supervisors left to this one, with all of their descendants. Reaps those that are dead.
/// Processes in this process's own session were started by itself: supervisors and their descendants have other
/// sessions.
fn orphans() -> Vec<process_tree::Process> {
    let own = process::getpid().as_raw_nonzero().get();
    let Some(session) = process_tree::Process::read(own).map(|own| own.session) else { return Vec::new() };
    // While the lock is held, nobody starts a supervisor.
    let known = supervisors();
    let all = process_tree::all();
    let is_known = |child: &process_tree::Process| known.iter().any(|known| known.pid == child.pid);
    let left = all.iter().filter(|child| child.parent == own && child.session != session && !is_known(child));
    let mut found = Vec::new();
    for orphan in left {
        if !orphan.zombie {
            found.push(*orphan);
        } else if let Some(pid) = Pid::from_raw(orphan.pid) {
            let _ = process::waitpid(Some(pid), WaitOptions::NOHANG);
        }
        found.extend(process_tree::below(orphan.pid, &all));
    }
    found
}
