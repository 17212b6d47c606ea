//! The life of one command: start it confined, wait, end everything.

use std::{
    collections::HashSet,
    io::{BufRead, BufReader, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::Context;
use rustix::{
    fs::FileType,
    net::{RecvFlags, recv},
    process::{self, Pid, Signal, WaitOptions, WaitStatus},
};
use tokio::{
    signal::unix::{Signal as Signals, SignalKind, signal},
    sync::oneshot,
    time::{Instant, MissedTickBehavior, interval, timeout_at},
};

use super::{CommandEnd, HoldOptions, SupervisorReport, init, limits, own_program, process_tree};
use crate::{
    removal,
    sandbox::{self, Layers, Network, ResolvedRules, View},
};

/// Time between SIGTERM and SIGKILL.
const TERMINATION_GRACE: Duration = Duration::from_secs(2);
/// Processes that live longer than this are stuck in the kernel; waiting longer would only hide that.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between two looks at /proc while processes are being ended, unless one ends earlier.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Time between two checks of what the command uses.
const USAGE_CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// Why the command has to end.
enum EndReason {
    /// The daemon or a signal asked for it.
    Asked,
    /// The other end of standard input is gone.
    Abandoned,
    /// It exceeded a limit.
    Excess(limits::Excess),
}

pub async fn run(options: &HoldOptions, namespaces: bool) -> anyhow::Result<u8> {
    // Fails if this process leads a group already, as when a person starts it from a shell.
    let alone = process::setsid().is_ok();
    process::set_child_subreaper(Some(process::getpid())).context("cannot adopt orphans")?;
    let memory = options.rules.as_ref().and_then(|rules| rules.memory);
    limits::set(memory);
    let apart = limits::OwnNamespaces { namespaces, network: namespaces && network(options) == Network::None };
    let meter = limits::ResourceMeter { memory, apart };
    let mut child_signals = signal(SignalKind::child())?;
    let mut end_signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
    // This thread has to exist before a process namespace is entered.
    let (listen_now, mut asked) = listen().context("cannot start the thread for requests")?;

    let mut children = match begin(options, namespaces) {
        Ok(children) => children,
        Err(error) => {
            report(&SupervisorReport::Failed { message: format!("{error:#}") });
            return Err(error);
        }
    };
    let _ = listen_now.send(());
    let mut ticks = interval(USAGE_CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    let because = loop {
        if !children.reap() || children.exit.is_some() {
            break None;
        }
        let [terminate, interrupt, hangup] = &mut end_signals;
        tokio::select! {
            _ = child_signals.recv() => {}
            () = children.reported() => {}
            because = &mut asked => break Some(because.unwrap_or(EndReason::Abandoned)),
            () = received(terminate) => break Some(EndReason::Asked),
            () = received(interrupt) => break Some(EndReason::Asked),
            () = received(hangup) => break Some(EndReason::Asked),
            _ = ticks.tick(), if options.rules.is_some() => {
                if let Some(excess) = meter.excess(&children.alive()) {
                    break Some(EndReason::Excess(excess));
                }
            }
        }
    };
    let (killed, left) = end_all(&mut children, &mut child_signals, alone, because.as_ref()).await;
    let exit = children.exit.unwrap_or(Exit { code: None, signal: Some(Signal::KILL.as_raw()) });
    let excess = match because {
        Some(EndReason::Excess(excess)) => Some(excess.sentence()),
        _ => None,
    };
    report(&SupervisorReport::Ended(CommandEnd { code: exit.code, signal: exit.signal, killed, left, excess }));
    let abandoned =
        matches!(because, Some(EndReason::Abandoned)) || matches!(asked.try_recv(), Ok(EndReason::Abandoned));
    if let Some(scratch) = options.scratch.as_ref().filter(|_| abandoned) {
        // Its creator is dead. What cannot be removed is noted, and left to the daemon's next start.
        let _ = removal::remove(scratch);
    }
    Ok(match (exit.code, exit.signal) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => 1,
    })
}

/// Starts the command and reports that.
fn begin(options: &HoldOptions, namespaces: bool) -> anyhow::Result<Children> {
    if namespaces {
        return begin_in_namespaces(options);
    }
    let (pid, layers) = start(options, None)?;
    report(&SupervisorReport::Started { pid, confined: layers.confine(), layers: layers.to_string(), overlays: false });
    Ok(Children { child: pid, init: None, exit: None })
}

/// Starts the first process of a process namespace, which builds the file tree and starts the command.
fn begin_in_namespaces(options: &HoldOptions) -> anyhow::Result<Children> {
    sandbox::enter_processes().context("cannot create a process namespace")?;
    let (ours, theirs) = UnixStream::pair()?;
    let mut init = Command::new(own_program());
    let args = HoldOptions { init: true, ..options.clone() }.to_args();
    // From the main thread: the child dies with the thread that started it.
    let init =
        init.arg0("daemon-agent").arg("hold").args(args).process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
    let pid = init.spawn().context("cannot start the first process")?.id() as i32;
    (&ours).write_all(init::START_MESSAGE)?;
    let mut line = String::new();
    // Not buffered beyond the line: what follows is read later.
    let mut reader = std::io::BufReader::with_capacity(1, &ours);
    reader.read_line(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(SupervisorReport::Started { layers, overlays, .. }) => {
            // The process id that the command has inside its namespace means something else out here.
            report(&SupervisorReport::Started { pid, confined: true, layers, overlays });
        }
        Ok(SupervisorReport::Failed { message }) => anyhow::bail!(message),
        Ok(SupervisorReport::Ended(_)) | Err(_) => anyhow::bail!("its process namespace ended at once"),
    }
    ours.set_nonblocking(true)?;
    Ok(Children { child: pid, init: Some(tokio::net::UnixStream::from_std(ours)?), exit: None })
}

/// Starts the command from a thread of its own: confinement applies to that thread and what it starts, so this process
/// keeps its own rights. Returns which layers enforce the rules.
pub fn start(options: &HoldOptions, view: Option<&View>) -> anyhow::Result<(i32, Layers)> {
    let (program, arguments) = options.argv.split_first().context("no command")?;
    let mut command = Command::new(program);
    // Its output is its input as well, if it is talked to: a socket, which goes both ways.
    let input = match options.duplex {
        true => Stdio::from(std::io::stdout().as_fd().try_clone_to_owned().context("no output to read from")?),
        false => Stdio::null(),
    };
    command.args(arguments).stdin(input).process_group(0);
    if options.quiet {
        command.stderr(Stdio::null());
    }
    if let Some(cwd) = &options.cwd {
        command.current_dir(cwd);
    }
    let spawn = || -> anyhow::Result<(i32, Layers)> {
        let mut layers = Layers::NONE;
        if let Some(rules) = &options.rules {
            let there = sandbox::kernel_layers();
            layers = Layers { namespaces: view.is_some(), ..options.layers.and(there) };
            anyhow::ensure!(
                !options.require || options.layers == layers,
                "the sandbox has changed: {layers} instead of {}",
                options.layers
            );
            // A view resolved its paths before it was entered; inside it, links lead elsewhere.
            let places = view.map_or_else(|| ResolvedRules::find(rules), |view| Ok(view.places.clone()))?;
            sandbox::confine_this_thread(&places, layers, rules.network, view)?;
        }
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok((child.id() as i32, layers))
    };
    thread::scope(|scope| {
        let started = thread::Builder::new()
            .spawn_scoped(scope, spawn)
            .context("cannot start the thread that starts the command")?;
        started.join().unwrap_or_else(|_| anyhow::bail!("the starting thread failed"))
    })
}

/// The command's network; without rules, the machine's own.
pub fn network(options: &HoldOptions) -> Network {
    options.rules.as_ref().map_or(Network::Open, |rules| rules.network)
}

/// Ends everything below this process. Returns how many processes that were, and how many could not be ended.
async fn end_all(
    children: &mut Children,
    changes: &mut Signals,
    alone: bool,
    because: Option<&EndReason>,
) -> (u32, u32) {
    let own = process::getpid().as_raw_nonzero().get();
    let begin = Instant::now();
    // A command that exceeds its limits uses more every moment, so it gets no grace period.
    let grace = if matches!(because, Some(EndReason::Excess(_))) { Duration::ZERO } else { TERMINATION_GRACE };
    let mut asked = HashSet::new();
    while children.reap() {
        let alive = children.alive();
        let hard = begin.elapsed() >= grace;
        if begin.elapsed() >= KILL_TIMEOUT {
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
                // A stopped process receives the signal only when it continues.
                process.signal(Signal::CONT);
            }
        }
        if hard {
            children.kill_namespace();
            if alone {
                kill_groups(groups, own);
            }
        }
        // At the deadline and not later, even if nothing changes.
        let look =
            if hard { Instant::now() + POLL_INTERVAL } else { (Instant::now() + POLL_INTERVAL).min(begin + grace) };
        tokio::select! {
            () = children.reported() => {}
            _ = timeout_at(look, changes.recv()) => {}
        }
    }
    (asked.len() as u32, 0)
}

/// Kills whole groups in one step, so that a process which keeps forking and exiting cannot escape. In a session of our
/// own, every group but ours consists of descendants.
fn kill_groups(groups: HashSet<i32>, own: i32) {
    for group in groups.into_iter().filter(|group| *group != own).filter_map(Pid::from_raw) {
        let _ = process::kill_process_group(group, Signal::KILL);
    }
}

/// How the command itself ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exit {
    code: Option<i32>,
    signal: Option<i32>,
}

/// The children that this process waits for: the command and its orphans, or the first process of their namespace.
struct Children {
    child: i32,
    /// With a namespace: where its first process reports the command's end.
    init: Option<tokio::net::UnixStream>,
    exit: Option<Exit>,
}

impl Children {
    /// Reaps everything that ended. `false` if no child is left, dead or alive: since this process adopts orphans, it
    /// then has no descendant at all.
    fn reap(&mut self) -> bool {
        loop {
            match process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == self.child => self.child_ended(status),
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn child_ended(&mut self, status: WaitStatus) {
        if self.init.is_none() {
            self.exit = Some(Exit { code: status.exit_status(), signal: status.terminating_signal() });
            return;
        }
        // The report may have arrived just before the process ended, unread. Read it directly: the runtime only knows
        // of data that somebody waited for.
        let mut line = [0; 1024];
        let received = self.init.as_ref().map(|init| recv(init, &mut line, RecvFlags::DONTWAIT));
        if let Some(Ok((length, _))) = received {
            self.take(&line[..length]);
        }
    }

    fn take(&mut self, line: &[u8]) {
        if let Ok(SupervisorReport::Ended(ended)) = serde_json::from_slice(line) {
            self.exit = Some(Exit { code: ended.code, signal: ended.signal });
        }
    }

    /// Waits until the first process of the namespace has reported how the command ended; forever without one.
    async fn reported(&mut self) {
        let Some(init) = self.init.as_ref().filter(|_| self.exit.is_none()) else {
            return std::future::pending().await;
        };
        let mut line = [0; 1024];
        loop {
            if init.readable().await.is_err() {
                return std::future::pending().await;
            }
            // It is one line, written at once.
            match init.try_read(&mut line) {
                // It is gone: its end shows up as that of a child.
                Ok(0) => return std::future::pending().await,
                Ok(length) => return self.take(&line[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }

    /// The living processes of the command.
    fn alive(&self) -> Vec<process_tree::Process> {
        let mut alive = process_tree::descendants(process::getpid().as_raw_nonzero().get());
        alive.retain(|process| self.init.is_none() || process.pid != self.child);
        alive
    }

    /// Kills the namespace's first process, and with it everything inside.
    fn kill_namespace(&self) {
        if let Some(pid) = self.init.as_ref().and(Pid::from_raw(self.child)) {
            let _ = process::kill_process(pid, Signal::KILL);
        }
    }
}

async fn received(signals: &mut std::io::Result<Signals>) {
    match signals {
        Ok(signals) => _ = signals.recv().await,
        Err(_) => std::future::pending().await,
    }
}

/// Waits on standard input for a `stop` line or the end of input, once it is told to start. It is a thread because
/// standard input may be a pipe, a socket or a terminal.
fn listen() -> std::io::Result<(mpsc::Sender<()>, oneshot::Receiver<EndReason>)> {
    let (sender, receiver) = oneshot::channel();
    let (begin, begun) = mpsc::channel();
    thread::Builder::new().spawn(move || {
        if begun.recv().is_err() {
            return;
        }
        let lines = BufReader::new(std::io::stdin()).lines();
        let stop = lines.map_while(Result::ok).any(|line| line == "stop");
        let _ = sender.send(if stop { EndReason::Asked } else { EndReason::Abandoned });
    })?;
    Ok((begin, receiver))
}

/// Reports to the daemon, if standard input is a socket that leads to one.
pub fn report(report: &SupervisorReport) {
    let stdin = std::io::stdin();
    let socket = rustix::fs::fstat(&stdin).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
    let Some(mut other_end) =
        socket.then(|| stdin.as_fd().try_clone_to_owned().ok()).flatten().map(std::fs::File::from)
    else {
        return;
    };
    if let Ok(mut line) = serde_json::to_string(report) {
        line.push('\n');
        // A daemon that is gone does not read; the command is ended all the same.
        let _ = other_end.write_all(line.as_bytes());
    }
}
