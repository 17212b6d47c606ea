//! `task`: runs one task on this machine, through the running daemon or without one.

use std::io::{self, Write};

use protocol::{AgentStreamEvent, Event, EventBody, NoticeLevel, StepState, limits::MAX_GOAL_BYTES, text::printable};
use serde_json::Value;

use super::{CliError, Task, enrol, open, run::Daemon, unusable};
use crate::{
    adapters::{
        board::Credential,
        cli::{DaemonRequest, EventFollower, ask},
    },
    home::Home,
    task::StopCause,
};

/// Runs the task and shows what it does; fails if it does not complete.
pub async fn task(home: &Home, task: Task) -> Result<(), CliError> {
    if task.goal.trim().is_empty() || task.goal.len() > MAX_GOAL_BYTES {
        return Err(CliError::Usage(format!("a goal has 1 to {MAX_GOAL_BYTES} bytes")));
    }
    let mut show = EventPrinter { json: task.json, ending: None };
    let asked = DaemonRequest::Task { goal: task.goal.clone(), agent: task.agent.clone() };
    let answered = tokio::select! {
        answered = ask(home, &asked, |line| show.line(&line)) => answered,
        _ = tokio::signal::ctrl_c() => return Err(CliError::Failed("interrupted; the daemon stops the task".to_owned())),
    };
    match answered {
        Ok(Some(())) => {}
        Ok(None) => alone(home, &task, &mut show).await?,
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

/// Without a daemon: takes the lock, runs the task, and leaves its events in the outbox for the Board.
async fn alone(home: &Home, task: &Task, show: &mut EventPrinter) -> Result<(), CliError> {
    let credential = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    open(home)?;
    enrol::write_missing(home, &[] as &[&str]).map_err(|error| unusable("the home", &error))?;
    let daemon = Daemon::open(home, credential.clone()).await?;
    let mesh = &daemon.mesh;
    let attempt = mesh.begin_local("cli", &task.agent, &task.goal);
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
                self.print(&printable(&text(&event.body)));
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

fn text(body: &EventBody) -> String {
    match body {
        EventBody::Started { model, .. } => format!("[{model}]\n"),
        EventBody::Completed { .. } => "\n".to_owned(),
        EventBody::Progress { event } => match &event.event {
            AgentStreamEvent::TextDelta { content } => content.clone(),
            AgentStreamEvent::ToolCall { tool, args, .. } => {
                format!("\n→ {tool} {}\n", protocol::text::head(&args.to_string(), 200))
            }
            AgentStreamEvent::ToolOutput { content, .. } => content.clone(),
            AgentStreamEvent::ToolResult { tool, ok: false, .. } => format!("\n× {tool} failed\n"),
            AgentStreamEvent::Step { state: StepState::Discarded, .. } => "\n[withdrawn]\n".to_owned(),
            AgentStreamEvent::Notice { level, text } if *level != NoticeLevel::Info => format!("\n! {text}\n"),
            _ => String::new(),
        },
        _ => String::new(),
    }
}
