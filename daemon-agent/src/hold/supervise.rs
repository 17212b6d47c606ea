//! The life of one command: start it confined, wait, end everything.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Write},
    os::{fd::AsFd, unix::process::CommandExt},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::Context;
use rustix::{
    fs::FileType,
    process::{self, Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus},
};
use tokio::{
    signal::unix::{Signal as Signals, SignalKind, signal},
    sync::oneshot,
    time::{Instant, timeout_at},
};

use super::{Ended, Options, Report, tree};
use crate::sandbox;

/// Between asking and killing.
const GRACE: Duration = Duration::from_secs(2);
/// After this long what still lives is stuck in the kernel; waiting longer would only hide it.
const GIVE_UP: Duration = Duration::from_secs(10);
/// Between two looks at /proc while processes are being ended, unless one ends before.
const LOOK: Duration = Duration::from_millis(20);
/// Processes and threads of the user at once: far above honest work, far below a machine's end.
const MAX_PROCESSES: u64 = 16_384;

/// Why the command has to end.
enum Because {
    /// Asked by the daemon or by a signal.
    Asked,
    /// The other end of standard input is gone.
    Abandoned,
}

pub async fn run(options: Options) -> anyhow::Result<u8> {
    // Fails when it is a group's leader already: started by hand from a shell.
    let alone = process::setsid().is_ok();
    process::set_child_subreaper(Some(process::getpid())).context("cannot adopt orphans")?;
    limit(Resource::Core, 0);
    limit(Resource::Nproc, MAX_PROCESSES);
    let mut child_signals = signal(SignalKind::child())?;
    let mut end_signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);

    let (pid, confined) = match start(&options) {
        Ok(started) => started,
        Err(error) => {
            report(&Report::Failed { message: format!("{error:#}") });
            return Err(error);
        }
    };
    report(&Report::Started { pid, confined });
    let mut children = Children { main: pid, status: None };
    let mut asked = listen();
    let because = loop {
        if !children.reap() || children.status.is_some() {
            break None;
        }
        let [terminate, interrupt, hangup] = &mut end_signals;
        tokio::select! {
            _ = child_signals.recv() => {}
            because = &mut asked => break Some(because.unwrap_or(Because::Abandoned)),
            () = received(terminate) => break Some(Because::Asked),
            () = received(interrupt) => break Some(Because::Asked),
            () = received(hangup) => break Some(Because::Asked),
        }
    };
    let (killed, left) = end_all(&mut children, &mut child_signals, alone).await;
    let status = children.status;
    let code = status.and_then(WaitStatus::exit_status);
    let ended = Ended { code, signal: status.and_then(WaitStatus::terminating_signal), killed, left };
    report(&Report::Ended(ended.clone()));
    let abandoned = matches!(because, Some(Because::Abandoned)) || matches!(asked.try_recv(), Ok(Because::Abandoned));
    if let Some(scratch) = options.scratch.filter(|_| abandoned) {
        // Whoever made it is dead. What cannot be removed is left to the system's own sweep.
        let _ = std::fs::remove_dir_all(scratch);
    }
    Ok(match (ended.code, ended.signal) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    })
}

/// Starts the command from a thread of its own: the confinement holds for that thread and what it starts, so the
/// supervisor keeps its own rights.
fn start(options: &Options) -> anyhow::Result<(i32, bool)> {
    let (program, arguments) = options.argv.split_first().context("no command")?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).process_group(0);
    if options.quiet {
        command.stderr(Stdio::null());
    }
    if let Some(cwd) = &options.cwd {
        command.current_dir(cwd);
    }
    let spawn = || -> anyhow::Result<(i32, bool)> {
        let confined = match &options.rules {
            Some(rules) => sandbox::confine_this_thread(rules)? == sandbox::Confinement::Landlock,
            None => false,
        };
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok((child.id() as i32, confined))
    };
    thread::scope(|scope| scope.spawn(spawn).join()).unwrap_or_else(|_| anyhow::bail!("the starting thread failed"))
}

/// Ends everything below this process; says how many processes that were, and how many could not be ended.
async fn end_all(children: &mut Children, changes: &mut Signals, alone: bool) -> (u32, u32) {
    let own = process::getpid().as_raw_nonzero().get();
    let begin = Instant::now();
    let mut asked = HashSet::new();
    while children.reap() {
        let alive = tree::descendants(own);
        let hard = begin.elapsed() >= GRACE;
        if begin.elapsed() >= GIVE_UP {
            return (asked.len() as u32, alive.len() as u32);
        }
        let mut groups = HashSet::new();
        for process in &alive {
            let new = asked.insert((process.pid, process.started));
            if hard {
                process.signal(Signal::KILL);
                groups.insert(process.group);
            } else if new {
                process.signal(Signal::TERM);
                // A stopped process gets the signal only when it goes on.
                process.signal(Signal::CONT);
            }
        }
        if hard && alone {
            kill_groups(groups, own);
        }
        // At the deadline, not later, even while nothing changes.
        let look = if hard { Instant::now() + LOOK } else { (Instant::now() + LOOK).min(begin + GRACE) };
        let _ = timeout_at(look, changes.recv()).await;
    }
    (asked.len() as u32, 0)
}

/// A group is killed in one step, so that a process which forks and exits all the time cannot slip through. In a
/// session of our own every group but ours consists of descendants.
fn kill_groups(groups: HashSet<i32>, own: i32) {
    for group in groups.into_iter().filter(|group| *group != own).filter_map(Pid::from_raw) {
        let _ = process::kill_process_group(group, Signal::KILL);
    }
}

/// The children that this process has to wait for: the command, and the orphans below it.
struct Children {
    main: i32,
    status: Option<WaitStatus>,
}

impl Children {
    /// Takes in everything that ended. `false` when no child is left, dead or alive: as the adopter of orphans, this
    /// process then has no descendant at all.
    fn reap(&mut self) -> bool {
        loop {
            match process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.main => self.status = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

async fn received(signals: &mut std::io::Result<Signals>) {
    match signals {
        Ok(signals) => _ = signals.recv().await,
        Err(_) => std::future::pending().await,
    }
}

fn limit(resource: Resource, most: u64) {
    let now = process::getrlimit(resource);
    let lower = |value: Option<u64>| Some(value.map_or(most, |value| value.min(most)));
    // A limit that cannot be set is no reason not to run.
    let _ = process::setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) });
}

/// Waits on standard input for a `stop` line or its end. A thread, because it may be a pipe, a socket or a terminal.
fn listen() -> oneshot::Receiver<Because> {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        let lines = BufReader::new(std::io::stdin()).lines();
        let stop = lines.map_while(Result::ok).any(|line| line == "stop");
        let _ = tell.send(if stop { Because::Asked } else { Because::Abandoned });
    });
    told
}

/// Tells the daemon, when standard input is a socket that leads to one.
fn report(report: &Report) {
    let stdin = std::io::stdin();
    let socket = rustix::fs::fstat(&stdin).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    let Some(mut other_end) =
        socket.then(|| stdin.as_fd().try_clone_to_owned().ok()).flatten().map(std::fs::File::from)
    else {
        return;
    };
    if let Ok(line) = serde_json::to_string(report) {
        // A daemon that is gone does not read; the command is ended all the same.
        let _ = writeln!(other_end, "{line}");
    }
}
