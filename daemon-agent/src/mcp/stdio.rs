//! A server that is a program: started under a supervisor, confined like the commands of the agent that uses it.

use std::{
    ffi::OsString,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::text::printable;
use tokio::{
    io::AsyncReadExt,
    net::{UnixStream, unix::pipe},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    config::{Agent, Config, McpCarrier},
    confinement,
    hold::{CommandSpec, HoldOptions, SupervisedCommand, inherited_variables},
    home::Home,
    leftovers::Scratch,
    sandbox::Rules,
};

/// How long a supervisor may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long what an ended server wrote may take to arrive.
const COMPLAINT_TIMEOUT: Duration = Duration::from_millis(500);
/// The end of what a server wrote to its standard error, for people: bytes.
const MAX_COMPLAINT_BYTES: usize = 2 * 1024;

/// What a server is started with. Another one means that a running server is not the right one any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    supervisor: PathBuf,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    rules: Rules,
}

impl Launch {
    /// The program of `carrier` for `agent`; `None` if it is none. It may write where the agent's commands may, but not in the
    /// workspace: what is put back there is put back when a command ends, and a server goes on.
    pub fn of(carrier: &McpCarrier, agent: &Agent, config: &Config, home: &Home) -> Option<Self> {
        let McpCarrier::Stdio { command, args, env, cwd } = carrier else { return None };
        let workspace = home.workspace();
        let mut write: Vec<PathBuf> = agent.spaces.clone();
        write.extend(config.sandbox.write.iter().cloned());
        // A space may contain it.
        let protect =
            if write.iter().any(|root| workspace.starts_with(root)) { vec![workspace.clone()] } else { vec![] };
        let rules = Rules {
            home: home.root().to_owned(),
            write,
            beside: agent.reach.write.clone(),
            read: config.sandbox.read.clone(),
            protect,
            sockets: config.sandbox.sockets.clone(),
            network: config.sandbox.network,
            memory: Some(config.sandbox.memory_bytes()),
        };
        let mut variables = inherited_variables(std::env::vars_os(), &[]);
        variables.retain(|(name, _)| env.keys().all(|own| name != own.as_str()));
        variables.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
        Some(Self {
            supervisor: crate::hold::own_program(),
            argv: std::iter::once(command).chain(args).map(OsString::from).collect(),
            env: variables,
            cwd: cwd.clone().or_else(|| agent.spaces.first().cloned()).unwrap_or(workspace),
            rules,
        })
    }

    /// Starts it; `Err` is a sentence.
    pub async fn start(&self) -> Result<(ServerProcess, UnixStream), String> {
        let scratch = Scratch::new().map_err(|error| format!("a temporary folder cannot be made: {error}"))?;
        let mut env = self.env.clone();
        if env.iter().all(|(name, _)| name != "TMPDIR") {
            env.push(("TMPDIR".into(), scratch.path().into()));
        }
        let mut rules = self.rules.clone();
        rules.write.push(scratch.path().to_owned());
        let options = HoldOptions {
            duplex: true,
            cwd: Some(self.cwd.clone()),
            scratch: Some(scratch.path().to_owned()),
            rules: Some(rules),
            layers: confinement::look(&self.supervisor).layers,
            require: true,
            argv: self.argv.clone(),
            ..HoldOptions::default()
        };
        let command = CommandSpec { supervisor: self.supervisor.clone(), options, env };
        let started = timeout(START_TIMEOUT, SupervisedCommand::start_duplex(command)).await;
        let (held, socket, errors) = match started {
            Ok(Ok(started)) => started,
            Ok(Err(error)) => return Err(format!("it cannot be started: {error}")),
            Err(_) => return Err("it cannot be started: the file system does not respond".to_owned()),
        };
        let complaint = Arc::<Mutex<Vec<u8>>>::default();
        let collecting = tokio::spawn(collect(errors, complaint.clone()));
        Ok((ServerProcess { held, complaint, collecting, _scratch: scratch }, socket))
    }
}

/// A running server. Dropping it ends it and everything that it started.
#[derive(Debug)]
pub struct ServerProcess {
    held: SupervisedCommand,
    complaint: Arc<Mutex<Vec<u8>>>,
    collecting: JoinHandle<()>,
    _scratch: Scratch,
}

impl ServerProcess {
    /// Ends it; returns when everything of it is dead, with the end of what it wrote to its standard error.
    pub async fn stop(mut self) -> String {
        let ended = self.held.stopped().await;
        if ended.left > 0 {
            tracing::warn!(left = ended.left, "processes of an MCP server could not be ended");
        }
        // Something of it may live on with that file open.
        let _ = timeout(COMPLAINT_TIMEOUT, self.collecting).await;
        let bytes = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        printable(String::from_utf8_lossy(&bytes).trim())
    }
}

/// Keeps the end of what comes.
async fn collect(mut errors: pipe::Receiver, complaint: Arc<Mutex<Vec<u8>>>) {
    let mut chunk = vec![0; 4 * 1024];
    while let Ok(length) = errors.read(&mut chunk).await {
        if length == 0 {
            return;
        }
        let mut kept = complaint.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend_from_slice(&chunk[..length]);
        let more = kept.len().saturating_sub(MAX_COMPLAINT_BYTES);
        kept.drain(..more);
    }
}
