//! `chat`: a conversation with an agent of this machine, through the running daemon.

mod input;
mod progress;
mod show;

use std::{io, time::Duration};

use clap::Args;
use protocol::SessionId;
use serde_json::{Value, json};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::Instant,
};

use super::{CliError, console};
use crate::{
    adapters::cli::{DaemonConnection, DaemonRequest, MAX_LINE_BYTES, ask, connect},
    home::Home,
};
use input::{ChatCommand, ChatInput, ChatLines, TerminalGuard};
use progress::ConversationProgress;
use show::{OpenApproval, Transcript};

/// Within this time a second Ctrl-C leaves.
const SECOND_INTERRUPT: Duration = Duration::from_secs(2);

/// How long words wait for the end of their line before they are shown without it.
const UNFINISHED_LINE_DELAY: Duration = Duration::from_millis(700);

/// What `chat` is called with.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// The agent to talk to; `default`, or that of the session, when absent.
    #[arg(long)]
    agent: Option<String>,
    /// The session to go on with; a new one when absent.
    #[arg(long, value_name = "ID")]
    session: Option<SessionId>,
    /// Read messages and signals as JSON lines, and print events as JSON lines.
    #[arg(long)]
    json: bool,
}

/// One conversation.
struct Conversation {
    connection: DaemonConnection,
    agent: Option<String>,
    session: Option<SessionId>,
    progress: ConversationProgress,
    /// Lines that were sent and not answered.
    unanswered: usize,
    /// A message that begins a session was sent: what comes next waits until that is known.
    begins_session: bool,
    /// When Ctrl-C was pressed last.
    interrupted: Option<Instant>,
    transcript: Transcript,
}

/// Talks until the input ends or the person leaves.
pub async fn chat(home: &Home, args: ChatArgs) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::Failed(format!("the request to the daemon failed: {error}"));
    let connection = connect(home, &DaemonRequest::Chat).await.map_err(failed)?;
    let Some(connection) = connection else {
        let why = format!("no daemon is running for {}: start it with daemon-agent run", home.root().display());
        return Err(CliError::Failed(why));
    };
    let ChatArgs { agent, session, json } = args;
    let terminal = TerminalGuard::take();
    let (lines, printer) = if json { (input::json_lines(), None) } else { input::edited_lines() };
    let mut conversation = Conversation {
        connection,
        agent,
        session,
        progress: ConversationProgress::default(),
        unanswered: 0,
        begins_session: false,
        interrupted: None,
        transcript: Transcript::new(json, printer),
    };
    if !json {
        conversation.transcript.note("Write to the agent. /help names the commands; Ctrl-C interrupts, twice leaves.");
    }
    let ended = conversation.run(home, lines, json).await;
    drop(terminal);
    conversation.transcript.leave(conversation.session.as_ref());
    ended.map_err(failed)
}

impl Conversation {
    async fn run(&mut self, home: &Home, mut lines: ChatLines, json: bool) -> io::Result<()> {
        let (mut is_open, mut told_to_end) = (true, signal(SignalKind::terminate())?);
        while is_open || self.unanswered > 0 || !self.progress.is_idle() {
            let input = tokio::select! {
                line = self.connection.next() => match line? {
                    Some(line) => {
                        self.hear(&line);
                        continue;
                    }
                    None => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the daemon ended")),
                },
                input = lines.next(), if is_open && !self.begins_session => input,
                () = tokio::time::sleep(UNFINISHED_LINE_DELAY), if self.transcript.has_words() => {
                    self.transcript.pause();
                    continue;
                }
                _ = tokio::signal::ctrl_c() => ChatInput::Interrupt,
                _ = told_to_end.recv() => {
                    return Err(io::Error::new(io::ErrorKind::Interrupted, "it was told to end"));
                }
            };
            match input {
                ChatInput::Line(line) if json => self.pass_on(&line).await?,
                ChatInput::Line(line) => {
                    if !self.obey(home, &line).await? {
                        return Ok(());
                    }
                }
                ChatInput::Interrupt => {
                    if !self.press_interrupt(json).await? {
                        return Ok(());
                    }
                }
                // A person who leaves does not wait; a program that says nothing more hears the rest.
                ChatInput::End if !json => return Ok(()),
                ChatInput::End => is_open = false,
            }
        }
        Ok(())
    }

    /// A line of the daemon.
    fn hear(&mut self, line: &Value) {
        let kind = line["type"].as_str().unwrap_or_default();
        if matches!(kind, "accepted" | "refused" | "interrupted" | "decided" | "subscribed") {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        self.begins_session &= !matches!(kind, "accepted" | "refused");
        if kind == "accepted"
            && let Some(session) = line["sessionId"].as_str().and_then(|session| session.parse().ok())
        {
            self.session = Some(session);
        }
        self.progress.hear(line);
        self.transcript.hear(line);
    }

    /// A line of a program, as it is; a message gets what the command line says.
    async fn pass_on(&mut self, line: &str) -> io::Result<()> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let mut frame: Value = match serde_json::from_str(line) {
            Ok(frame) => frame,
            Err(error) => {
                let refused = json!({ "type": "refused", "code": "bad_frame", "message": error.to_string() });
                self.transcript.hear(&refused);
                return Ok(());
            }
        };
        let is_message = matches!(frame["type"].as_str(), None | Some("message"));
        if let Some(fields) = frame.as_object_mut().filter(|_| is_message) {
            if let Some(agent) = &self.agent {
                fields.entry("agentId").or_insert_with(|| json!(agent));
            }
            if let Some(session) = &self.session {
                fields.entry("sessionId").or_insert_with(|| json!(session));
            }
        }
        // The daemon would hang up: it reads lines of this length.
        if frame.to_string().len() as u64 >= MAX_LINE_BYTES {
            let why = format!("a line has at most {MAX_LINE_BYTES} bytes");
            let refused = json!({ "type": "refused", "id": frame["id"], "code": "too_long", "message": why });
            self.transcript.hear(&refused);
            return Ok(());
        }
        self.begins_session = is_message && frame["sessionId"].is_null();
        self.send(&frame).await
    }

    /// What a person wrote. `false`: they leave.
    async fn obey(&mut self, home: &Home, line: &str) -> io::Result<bool> {
        match ChatCommand::parse(line) {
            ChatCommand::Nothing => {}
            ChatCommand::Say(text) => self.say(&text, "followup").await?,
            ChatCommand::Steer(text) => self.say(&text, "steer").await?,
            ChatCommand::Agents => self.show_agents(home).await?,
            ChatCommand::Session(None) => {
                let session =
                    self.session.as_ref().map_or("a new one begins with your next message", SessionId::as_str);
                self.transcript.note(&format!("Session: {session}"));
            }
            ChatCommand::Session(Some(id)) => match (id.as_str(), id.parse()) {
                ("new", _) => {
                    self.session = None;
                    self.transcript.note("A new session begins with your next message.");
                }
                (_, Ok(session)) => {
                    self.session = Some(session);
                    self.transcript.note("You go on in that session.");
                }
                (_, Err(error)) => self.transcript.note(&format!("{id} is {error}")),
            },
            ChatCommand::Approve(note) => self.decide("allow", &note).await?,
            ChatCommand::Deny(note) => self.decide("deny", &note).await?,
            ChatCommand::Interrupt => {
                let why = if self.interrupt().await? { "Interrupted." } else { "Nothing runs." };
                self.transcript.note(why);
            }
            ChatCommand::Help => self.transcript.note(input::HELP),
            ChatCommand::Quit => return Ok(false),
            ChatCommand::Unknown(word) => self.transcript.note(&format!("{word} is no command; /help names them.")),
        }
        Ok(true)
    }

    async fn say(&mut self, text: &str, mode: &str) -> io::Result<()> {
        if text.is_empty() {
            self.transcript.note("Say something.");
            return Ok(());
        }
        let mut message = json!({
            "id": uuid::Uuid::now_v7().to_string(), "content": text, "attachments": [], "injectionMode": mode,
        });
        if let Some(fields) = message.as_object_mut() {
            // The agent of a session that goes on is its own.
            let agent = self.agent.as_ref().filter(|_| self.session.is_none());
            fields.extend(agent.map(|agent| ("agentId".to_owned(), json!(agent))));
            fields.extend(self.session.as_ref().map(|session| ("sessionId".to_owned(), json!(session))));
        }
        self.begins_session = self.session.is_none();
        self.send(&message).await
    }

    /// Decides the oldest question that is open.
    async fn decide(&mut self, word: &str, note: &str) -> io::Result<()> {
        let Some(OpenApproval { approval_id, digest, kind, .. }) = self.transcript.question() else {
            self.transcript.note("Nothing waits for a decision.");
            return Ok(());
        };
        let mut decision = json!({ "type": "decision", "approvalId": approval_id, "digest": digest, "decision": word });
        if kind == "budget" && word == "allow" {
            self.transcript.note("A limit is raised on the Board. /deny ends the task here.");
            return Ok(());
        }
        if kind == "question" && word == "allow" {
            if note.is_empty() {
                self.transcript.note("The agent asks for an answer: /approve ANSWER");
                return Ok(());
            }
            decision["decision"] = json!("answer");
            decision["answer"] = json!(note);
        } else if !note.is_empty() {
            decision["note"] = json!(note);
        }
        self.send(&decision).await
    }

    /// Ctrl-C: ends what runs. `false`: they leave, because it is the second time, or a program whose tasks are over.
    async fn press_interrupt(&mut self, json: bool) -> io::Result<bool> {
        if self.interrupted.is_some_and(|at| at.elapsed() < SECOND_INTERRUPT) {
            return Ok(false);
        }
        self.interrupted = Some(Instant::now());
        let is_hit = self.interrupt().await?;
        let done = if is_hit { "Interrupted." } else { "Nothing runs." };
        self.transcript.note(&format!("{done} Ctrl-C again leaves."));
        Ok(is_hit || !json)
    }

    /// Ends what runs in this session, or in the others of this conversation if nothing does here. Whether something runs.
    async fn interrupt(&mut self) -> io::Result<bool> {
        let sessions = self.progress.sessions(self.session.as_ref().map(SessionId::as_str));
        for session in &sessions {
            let signal = json!({
                "type": "interrupt", "targetAgentId": "*", "sessionId": session,
                "reason": "interrupted at the command line",
            });
            self.send(&signal).await?;
        }
        Ok(!sessions.is_empty())
    }

    async fn show_agents(&mut self, home: &Home) -> io::Result<()> {
        let mut agents = Vec::new();
        ask(home, &DaemonRequest::Status, |line| {
            agents.extend(line["agents"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
        })
        .await?;
        self.transcript.note(&format!("Agents: {}", agents.join(", ")));
        Ok(())
    }

    async fn send(&mut self, frame: &Value) -> io::Result<()> {
        self.unanswered += 1;
        self.connection.send(frame).await
    }
}

/// `adapters`: prints the machine's own adapters, each with its state.
pub async fn adapters(home: &Home, json: bool) -> Result<(), CliError> {
    let mut answer = Value::Null;
    match ask(home, &DaemonRequest::Status, |line| answer = line).await {
        Ok(Some(())) => {}
        Ok(None) => return Err(CliError::Failed(format!("no daemon is running for {}", home.root().display()))),
        Err(error) => return Err(CliError::Failed(format!("the request to the daemon failed: {error}"))),
    }
    let board = &answer["board"];
    let state = match (&board["connected"], &board["detail"]) {
        (Value::Bool(true), _) => "connected",
        // Nothing went wrong yet.
        (_, Value::Null) => "connecting",
        _ => "failed",
    };
    let own = json!({ "id": "board", "state": state, "since": board["since"], "detail": board["detail"] });
    let cli = json!({ "id": "cli", "state": "connected", "detail": home.socket().display().to_string() });
    let others = answer["adapters"].as_array().cloned().unwrap_or_default();
    for adapter in [own, cli].iter().chain(&others) {
        if json {
            console::say(format_args!("{adapter}"));
            continue;
        }
        let word = |key: &str| adapter[key].as_str().unwrap_or_default();
        console::say(format_args!("{:<10} {:<11} {}", word("id"), word("state"), word("detail")));
    }
    Ok(())
}
