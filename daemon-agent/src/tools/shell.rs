//! `shell`: runs a command under a supervisor, confined, with limits on time and output.

mod environment;
mod live_output;
mod output;
mod proposed;
mod protection;
mod skill_script;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use rustix::fs::FileType;
use serde_json::{Map, Value};
use tokio::{io::AsyncReadExt, net::unix::pipe, time::timeout};

use self::{live_output::LiveOutput, output::CommandOutput};
use super::{
    CallBounds, NO_RESPONSE, ToolErrorKind, ToolFailure, ToolOutcome, Toolbox,
    args::{CallArgs, wrong},
    paths::Roots,
};
use crate::{
    confinement,
    hold::{CommandEnd, CommandSpec, HoldOptions, SupervisedCommand},
    sandbox::Rules,
};

pub use proposed::propose;
pub use skill_script::{propose_skill, run_skill};

/// Longest timeout that a model may ask for, seconds, unless the agent's file allows more.
const MAX_TIMEOUT_SECONDS: u64 = 3_600;
/// Longest command, bytes: Linux limits a single argument of a program (MAX_ARG_STRLEN), less some room.
const MAX_COMMAND_BYTES: usize = 120 * 1024;
/// How long a supervisor may take to start; after that it hangs on a file system, and ends itself since nobody listens.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Variables in a command's environment that identify its task and attempt.
const TASK_VARIABLE: &str = "OPENVIBER_TASK_ID";
const ATTEMPT_VARIABLE: &str = "OPENVIBER_ATTEMPT";
/// The variable with the folder for artifacts.
const ARTIFACTS_VARIABLE: &str = "OPENVIBER_ARTIFACTS";
/// How long to read output after all processes have ended, because a process outside may still hold the pipe.
const OUTPUT_DRAIN_TIMEOUT: Duration = Duration::from_secs(3);

/// A checked call.
struct ShellCall {
    argv: Vec<OsString>,
    cwd: PathBuf,
    seconds: u64,
    /// Variables beside those that every command gets.
    variables: Vec<(OsString, OsString)>,
    /// Names of variables that it does not get, whatever the daemon has.
    withheld: Vec<String>,
}

/// Why a command did not end by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EarlyEnd {
    TimedOut,
    Stopped,
}

/// Runs the command that `args` describe.
pub async fn run(toolbox: &Toolbox, call_id: &str, args: &Value, bounds: Option<&CallBounds>) -> ToolOutcome {
    let call = match check(toolbox, args) {
        Ok(call) => call,
        Err(why) => return ToolOutcome::refused(why),
    };
    run_call(toolbox, call_id, call, bounds).await
}

/// Runs a checked call to its end.
async fn run_call(toolbox: &Toolbox, call_id: &str, call: ShellCall, bounds: Option<&CallBounds>) -> ToolOutcome {
    if bounds.is_some_and(|bounds| bounds.cwd != call.cwd) {
        let now = call.cwd.display();
        let why = format!("not run: it would run in {now} by now, which nobody decided about");
        return ToolOutcome::refused(ToolErrorKind::Permission.because(why));
    }
    if toolbox.context.stop.is_cancelled() {
        return ToolOutcome::ended(toolbox.why_ended("stopped before it was started"));
    }
    let seconds = call.seconds;
    // First, because this repairs what an earlier command left where this one must not write.
    let protection = match protection::keep(toolbox).await {
        Ok(protection) => protection,
        Err(why) => return ToolOutcome::refused(ToolErrorKind::Unknown.because(why)),
    };
    let command = match prepare(toolbox, call) {
        Ok(command) => command,
        Err(why) => {
            protection.release();
            return ToolOutcome::refused(ToolErrorKind::Unknown.because(why));
        }
    };
    // A stop in the meantime is handled afterwards: only what was started can be ended.
    let (mut held, pipe) = match timeout(START_TIMEOUT, SupervisedCommand::start(command)).await {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => {
            protection.put_back(toolbox).await;
            return ToolOutcome::refused(ToolErrorKind::Unknown.because(error.to_string()));
        }
        Err(_) => {
            let why = format!("the command could not be started: {NO_RESPONSE}");
            return ToolOutcome::refused(ToolErrorKind::Timeout.because(why));
        }
    };
    let mut output = {
        let room = toolbox.context.collector.output_room();
        CommandOutput::new(toolbox.context.home.artifacts(toolbox.context.task_id.as_str()), room)
    };
    let mut live = LiveOutput::new(toolbox.context.sink.clone(), call_id);

    let mut cut = None;
    let (ended, whole) = {
        let pump = pump(pipe, &mut output, &mut live);
        let ended = async {
            tokio::select! {
                ended = held.ended() => return ended,
                () = toolbox.context.stop.cancelled() => cut = Some(EarlyEnd::Stopped),
                () = tokio::time::sleep(Duration::from_secs(seconds)) => cut = Some(EarlyEnd::TimedOut),
            }
            held.stopped().await
        };
        tokio::pin!(pump, ended);
        let mut finished = false;
        let ended = loop {
            tokio::select! {
                ended = &mut ended => break ended,
                // A command may close its output and continue.
                () = &mut pump, if !finished => finished = true,
            }
        };
        (ended, finished || timeout(OUTPUT_DRAIN_TIMEOUT, &mut pump).await.is_ok())
    };
    let mut fields = describe(&ended, cut, seconds, toolbox.why_ended("the task was stopped"));
    if !whole {
        let note = "a process outside the command still holds its output open; later output is missing";
        fields.insert("note".into(), note.into());
    }
    for note in protection.put_back(toolbox).await {
        let before = fields.get("note").and_then(Value::as_str).map(|before| format!("{before}; ")).unwrap_or_default();
        fields.insert("note".into(), format!("{before}{note}").into());
    }
    if !confinement::look(&toolbox.hold).layers.namespaces {
        for path in toolbox.context.home.close_again() {
            tracing::warn!(path = %path.display(), "a command made this accessible to others; its permissions are restored");
        }
    }
    if cut == Some(EarlyEnd::TimedOut) {
        fields.insert("error".into(), ToolErrorKind::Timeout.described());
    }
    let ok = cut.is_none() && ended.code == Some(0);
    let (fields, kept) = output.finish(fields).await;
    if let Some(kept) = kept {
        toolbox.context.collector.keep_output(call_id, &kept.name, kept.digest).await;
    }
    ToolOutcome { ok, result: Value::Object(fields), killed: ended.killed, pictures: Vec::new() }
}

/// Moves everything from the pipe to the kept output and the live stream, no faster than both accept it.
async fn pump(mut pipe: pipe::Receiver, output: &mut CommandOutput, live: &mut LiveOutput) {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = match live.due() {
            None => pipe.read(&mut chunk).await,
            Some(due) => match tokio::time::timeout_at(due, pipe.read(&mut chunk)).await {
                Ok(read) => read,
                Err(_) => {
                    live.flush().await;
                    continue;
                }
            },
        };
        match read {
            Ok(0) | Err(_) => break,
            Ok(length) => {
                output.take(&chunk[..length]).await;
                live.take(&chunk[..length]).await;
            }
        }
    }
    live.end(output.tail(), output.place()).await;
}

fn check(toolbox: &Toolbox, args: &Value) -> Result<ShellCall, ToolFailure> {
    let args = CallArgs::new(args, &["command", "cwd", "timeout"])?;
    let command = args.value("command").ok_or("argument \"command\" is missing")?;
    let argv: Vec<String> = match command {
        Value::String(line) if !line.trim().is_empty() => vec!["sh".into(), "-c".into(), line.clone()],
        Value::Array(words) if !words.is_empty() => {
            let words: Option<Vec<_>> = words.iter().map(|word| word.as_str().map(str::to_owned)).collect();
            words.ok_or_else(|| wrong("command", "a string or a list of strings", command))?
        }
        _ => return Err(wrong("command", "a command line", command).into()),
    };
    if argv.iter().any(|word| word.contains('\0')) {
        return Err("argument \"command\" contains a NUL character".into());
    }
    if argv.iter().any(|word| word.len() > MAX_COMMAND_BYTES) {
        return Err("argument \"command\" is longer than 120 KiB: write it to a file and run that".into());
    }
    let most = MAX_TIMEOUT_SECONDS.max(toolbox.context.agent.timeouts.shell);
    let seconds = args.count("timeout")?.unwrap_or(toolbox.context.agent.timeouts.shell);
    if seconds > most {
        return Err(wrong("timeout", &format!("at most {most} seconds"), &seconds.into()).into());
    }
    let roots = toolbox.roots();
    let cwd = match args.optional_text("cwd")? {
        None => roots.working_directory()?.to_owned(),
        Some(path) => {
            let found = roots.find(path)?;
            if found.kind() != FileType::Directory {
                return Err(format!("argument \"cwd\": {path} is not a folder").into());
            }
            found.path
        }
    };
    let argv = argv.into_iter().map(OsString::from).collect();
    Ok(ShellCall { argv, cwd, seconds, variables: Vec::new(), withheld: Vec::new() })
}

fn prepare(toolbox: &Toolbox, call: ShellCall) -> Result<CommandSpec, String> {
    let context = &toolbox.context;
    let artifacts = context.home.artifacts(context.task_id.as_str());
    environment::private_folder(&artifacts).map_err(|error| format!("cannot make {}: {error}", artifacts.display()))?;
    let scratch = toolbox.scratch().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let roots: Roots = toolbox.roots();
    // As declared: they are resolved again when the command starts.
    let mut write: Vec<PathBuf> = roots.declared().map(PathBuf::from).collect();
    write.extend([artifacts.clone(), scratch.clone()]);
    let given = &context.config.sandbox;
    write.extend(given.write.iter().cloned());
    let mut protect = protection::protect(toolbox, &mut write)?;
    // A space may contain the folder of a skill.
    let is_writable = |folder: &PathBuf| write.iter().any(|root| folder.starts_with(root));
    protect.extend(toolbox.readable().into_iter().filter(is_writable));
    let rules = Rules {
        home: context.home.root().to_owned(),
        write,
        beside: context.agent.reach.write.clone(),
        read: given.read.clone(),
        protect,
        sockets: given.sockets.clone(),
        network: given.network,
        memory: Some(given.memory_bytes()),
    };
    let mut env = environment::environment(std::env::vars_os(), &context.agent.env, &scratch);
    env.push((TASK_VARIABLE.into(), context.task_id.as_str().into()));
    env.push((ATTEMPT_VARIABLE.into(), context.attempt.to_string().into()));
    env.push((ARTIFACTS_VARIABLE.into(), artifacts.into()));
    env.retain(|(name, _)| call.withheld.iter().all(|withheld| name != withheld.as_str()));
    env.extend(call.variables);
    let (cwd, scratch, rules) = (Some(call.cwd), Some(scratch), Some(rules));
    let layers = confinement::look(&toolbox.hold).layers;
    let options = HoldOptions { cwd, scratch, rules, layers, require: true, argv: call.argv, ..HoldOptions::default() };
    Ok(CommandSpec { supervisor: toolbox.hold.clone(), options, env })
}

/// The result without its output.
fn describe(ended: &CommandEnd, cut: Option<EarlyEnd>, seconds: u64, stopped: String) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(code) = ended.code {
        fields.insert("exitCode".into(), code.into());
    }
    if let Some(signal) = ended.signal {
        fields.insert("signal".into(), signal.into());
    }
    let mut notes = Vec::new();
    match cut {
        Some(EarlyEnd::TimedOut) => {
            fields.insert("timedOut".into(), true.into());
            notes.push(format!("timed out after {seconds} seconds and was ended"));
        }
        Some(EarlyEnd::Stopped) => {
            fields.insert("stopped".into(), true.into());
            notes.push(stopped);
        }
        None if ended.killed == 1 => notes.push("a background process was ended with the command".into()),
        None if ended.killed > 1 => {
            notes.push(format!("{} background processes were ended with the command", ended.killed));
        }
        None => {}
    }
    notes.extend(ended.excess.clone());
    if ended.left > 0 {
        notes.push(format!("{} processes are stuck in the kernel and could not be ended", ended.left));
    }
    if !notes.is_empty() {
        fields.insert("note".into(), notes.join("; ").into());
    }
    fields
}
