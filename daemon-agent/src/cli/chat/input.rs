//! What a person or a program writes: edited lines of a terminal, or lines of JSON.

use std::{
    io::{self, Write},
    thread,
};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::{DefaultEditor, ExternalPrinter, error::ReadlineError};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::mpsc,
};

/// Lines that may wait.
const MAX_WAITING_LINES: usize = 64;
/// What stands before what a person writes.
const PROMPT: &str = "> ";

/// What `/help` says.
pub const HELP: &str = "/agents            the agents of this machine
/session [ID|new]  the session, another one, or a new one
/steer TEXT        tell the agent now
/approve [TEXT]    allow what it asks, or answer it
/deny [TEXT]       deny it
/interrupt         end what runs
/quit              leave";

/// Prints above what a person is writing.
pub type LinePrinter = Box<dyn ExternalPrinter + Send>;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub enum ChatInput {
    Line(String),
    Interrupt,
    End,
}

/// What a person's line means.
#[derive(Debug, PartialEq, Eq)]
pub enum ChatCommand {
    Nothing,
    Say(String),
    Steer(String),
    Agents,
    Session(Option<String>),
    Approve(String),
    Deny(String),
    Interrupt,
    Help,
    Quit,
    Unknown(String),
}

impl ChatCommand {
    /// Reads a line. Two slashes begin a message with one.
    pub fn parse(line: &str) -> Self {
        let line = line.trim();
        if line.is_empty() {
            return Self::Nothing;
        }
        if let Some(rest) = line.strip_prefix("//") {
            return Self::Say(format!("/{rest}"));
        }
        if !line.starts_with('/') {
            return Self::Say(line.to_owned());
        }
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim().to_owned();
        match word {
            "/agents" => Self::Agents,
            "/session" => Self::Session(Some(rest).filter(|rest| !rest.is_empty())),
            "/steer" => Self::Steer(rest),
            "/approve" => Self::Approve(rest),
            "/deny" => Self::Deny(rest),
            "/interrupt" => Self::Interrupt,
            "/help" => Self::Help,
            "/quit" | "/exit" => Self::Quit,
            _ => Self::Unknown(word.to_owned()),
        }
    }
}

/// Lines, one after the other. The editor has the terminal only while it waits for one: whoever leaves because of a line
/// leaves the terminal as it was.
pub struct ChatLines {
    lines: mpsc::Receiver<ChatInput>,
    /// Lets the editor read another line.
    go_on: Option<mpsc::Sender<()>>,
    /// A line came and was not dealt with yet.
    is_due: bool,
}

impl ChatLines {
    /// The next one. What came before counts as dealt with.
    pub async fn next(&mut self) -> ChatInput {
        if std::mem::take(&mut self.is_due)
            && let Some(go_on) = &self.go_on
        {
            let _ = go_on.try_send(());
        }
        let input = self.lines.recv().await.unwrap_or(ChatInput::End);
        self.is_due = true;
        input
    }
}

/// The lines of standard input, as they are.
pub fn json_lines() -> ChatLines {
    let (to, lines) = mpsc::channel(MAX_WAITING_LINES);
    tokio::spawn(async move {
        let mut input = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = input.next_line().await {
            if to.send(ChatInput::Line(line)).await.is_err() {
                return;
            }
        }
        let _ = to.send(ChatInput::End).await;
    });
    ChatLines { lines, go_on: None, is_due: false }
}

/// Lines that a person edits, and what prints above them; nothing where the terminal cannot.
pub fn edited_lines() -> (ChatLines, Option<LinePrinter>) {
    let (to, lines) = mpsc::channel(MAX_WAITING_LINES);
    let mut editor = match DefaultEditor::new() {
        Ok(editor) => editor,
        Err(error) => {
            tracing::warn!("lines cannot be edited here: {error}");
            return (json_lines(), None);
        }
    };
    let printer = editor.create_external_printer().ok().map(|printer| Box::new(printer) as LinePrinter);
    let (go_on, mut may_go_on) = mpsc::channel(1);
    // Its own thread: reading a line blocks until there is one.
    thread::spawn(move || {
        loop {
            let input = match editor.readline(PROMPT) {
                Ok(line) => {
                    let _ = editor.add_history_entry(line.as_str());
                    ChatInput::Line(line)
                }
                Err(ReadlineError::Interrupted) => ChatInput::Interrupt,
                Err(_) => ChatInput::End,
            };
            let is_over = input == ChatInput::End;
            if to.blocking_send(input).is_err() || is_over || may_go_on.blocking_recv().is_none() {
                return;
            }
        }
    });
    (ChatLines { lines, go_on: Some(go_on), is_due: false }, printer)
}

/// The terminal as it was. Dropped, it restores that where an editor is interrupted in the middle of a line.
pub struct TerminalGuard(Option<Termios>);

impl TerminalGuard {
    /// Remembers how the terminal is now, if there is one.
    pub fn take() -> Self {
        Self(tcgetattr(io::stdin()).ok())
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        let Some(was) = &self.0 else { return };
        let is_edited = tcgetattr(io::stdin()).is_ok_and(|now| now.local_modes != was.local_modes);
        if is_edited && tcsetattr(io::stdin(), OptionalActions::Now, was).is_ok() {
            // Pasted text comes without marks again, and what is printed next begins a line.
            let mut out = io::stdout().lock();
            let _ = out.write_all(b"\x1b[?2004l\r\n").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_unless_it_is_a_command() {
        let words = |text: &str| text.to_owned();
        for (line, command) in [
            ("  hello ", ChatCommand::Say(words("hello"))),
            ("//etc", ChatCommand::Say(words("/etc"))),
            ("", ChatCommand::Nothing),
            ("/steer  stop it", ChatCommand::Steer(words("stop it"))),
            ("/session", ChatCommand::Session(None)),
            ("/session new", ChatCommand::Session(Some(words("new")))),
            ("/approve", ChatCommand::Approve(String::new())),
            ("/deny not now", ChatCommand::Deny(words("not now"))),
            ("/dance", ChatCommand::Unknown(words("/dance"))),
            ("/quit", ChatCommand::Quit),
        ] {
            assert_eq!(ChatCommand::parse(line), command, "{line}");
        }
    }
}
