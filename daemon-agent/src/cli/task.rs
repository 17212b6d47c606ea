//! `task`: runs one task on this machine, through the running daemon or without one.

use std::io::{self, Read, Write};

use protocol::{Event, EventBody, limits::MAX_GOAL_BYTES, text::printable, transcript};
use serde_json::Value;

use super::{CliError, Task, enrol, open, run::Daemon, unusable};
use crate::{
    adapters::{
        board::Credential,
        cli::{DaemonRequest, EventFollower, ask},
    },
    home::Home,
    mesh::LocalTask,
    task::StopCause,
};

/// Runs the task and shows what it does; fails if it does not complete.
pub async fn task(home: &Home, task: Task) -> Result<(), CliError> {
    let asked = local(&task)?;
    let mut show = EventPrinter { json: task.json, ending: None };
    let request = DaemonRequest::Task(asked.clone());
    let answered = tokio::select! {
        answered = ask(home, &request, |line| show.line(&line)) => answered,
        _ = tokio::signal::ctrl_c() => return Err(CliError::Failed("interrupted; the daemon stops the task".to_owned())),
    };
    match answered {
        Ok(Some(())) => {}
        Ok(None) => alone(home, asked, &mut show).await?,
        Err(error) => return Err(CliError::Failed(format!("the request to the daemon failed: {error}"))),
    }
    match show.ending {
        Some(EventBody::Completed { .. }) => Ok(()),
        Some(EventBody::Error { error }) => {
            let suggestion = error.suggestion.map(|text| format!("\n{text}")).unwrap_or_default();
            Err(CliError::Failed(format!("{}: {}{suggestion}", error.code.as_str(), error.message)))
        }
        Some(EventBody::Stopped { reason, .. }) => Err(CliError::Failed(format!("stopped: {reason}"))),
        _ => Err(CliError::Failed("the daemon exited before the task ended".to_owned())),
    }
}

/// What the arguments ask for; a goal of `-` is read from standard input.
fn local(task: &Task) -> Result<LocalTask, CliError> {
    let mut goal = task.goal.clone();
    if goal == "-" {
        goal.clear();
        let read = io::stdin().lock().take(MAX_GOAL_BYTES as u64 + 1).read_to_string(&mut goal);
        read.map_err(|error| CliError::Usage(format!("no goal could be read from standard input: {error}")))?;
    }
    if goal.trim().is_empty() || goal.len() > MAX_GOAL_BYTES {
        return Err(CliError::Usage(format!("a goal has 1 to {MAX_GOAL_BYTES} bytes")));
    }
    let space = task.space.as_ref().map(|space| {
        let whole = std::fs::canonicalize(space);
        let whole = whole.map_err(|error| CliError::Usage(format!("--space {}: {error}", space.display())))?;
        let folder = whole.is_dir().then_some(whole);
        folder.ok_or_else(|| CliError::Usage(format!("--space {} is not a folder", space.display())))
    });
    Ok(LocalTask { goal, agent: task.agent.clone(), session: task.session.clone(), space: space.transpose()? })
}

/// Without a daemon: takes the lock, runs the task, and leaves its events in the outbox for the Board.
async fn alone(home: &Home, asked: LocalTask, show: &mut EventPrinter) -> Result<(), CliError> {
    let credential = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    open(home)?;
    enrol::write_missing(home, &[] as &[&str]).map_err(|error| unusable("the home", &error))?;
    let daemon = Daemon::open(home, credential.clone()).await?;
    let mesh = &daemon.mesh;
    let attempt = mesh.begin_local("cli", asked).await;
    let tell = async {
        let mut events = EventFollower::new(mesh.outbox(), &attempt);
        while let Some(items) = events.next().await {
            for item in items {
                show.line(&serde_json::from_str(item.get()).unwrap_or_default());
            }
        }
    };
    tokio::select! {
        () = tell => {}
        _ = tokio::signal::ctrl_c() => {
            mesh.stop(&StopCause::Stop("the command was interrupted".to_owned()), |running, _| *running == attempt);
            mesh.finish_running().await;
            return Err(CliError::Failed("interrupted; all processes of the task have ended".to_owned()));
        }
    }
    mesh.finish_running().await;
    if credential.is_none() {
        // This home has no Board that could request it.
        mesh.outbox().forget(&attempt);
    }
    Ok(())
}

struct EventPrinter {
    json: bool,
    ending: Option<EventBody>,
}

impl EventPrinter {
    fn line(&mut self, line: &Value) {
        if self.json {
            self.print(&format!("{line}\n"));
        }
        if let Ok(event) = serde_json::from_value::<Event>(line.clone()) {
            if !self.json {
                self.print(&printable(&transcript::plain(&event.body)));
            }
            if event.body.is_terminal() {
                self.ending = Some(event.body);
            }
        }
    }

    /// Prints text. A reader that went away (`| head`) is no reason to end the task.
    fn print(&self, text: &str) {
        let mut out = io::stdout().lock();
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}
