//! The echo: an engine without a model, for tests and for trying out a Board.
//!
//! Each line of the goal is an instruction; any other line is repeated word by word: `stream N every MS` says N
//! numbers, one every MS milliseconds · `fail CODE` ends with that error · `wait` works until it is stopped · `panic`
//! breaks the engine · `text BYTES` answers with that many bytes · `shell COMMAND` runs the command with the agent's
//! own tool.

use std::time::{Duration, Instant};

use protocol::{
    AgentMode, AgentStreamEvent, ErrorCode, StepState, TaskError, TaskResult, TaskSubmit, rules::ApprovalRules,
    text::summary,
};
use serde_json::json;
use tokio::time::sleep;

use super::{EngineOutcome, EngineRun};
use crate::{
    clock::Clock,
    config::{Agent, MachinePolicy},
    session_log::SessionLog,
    tools::{ToolContext, Toolbox},
};

/// What would have to be asked or denied before a command of this task: the echo does neither.
pub fn restriction(submit: &TaskSubmit, agent: &Agent, policy: &MachinePolicy) -> Option<String> {
    let own = submit.mode.unwrap_or(agent.mode);
    let mode = policy.max_mode.map_or(own, |most| own.min(most));
    if mode != AgentMode::AlwaysExecute {
        return Some(format!("`mode: {}` is in effect", mode.as_str()));
    }
    let ApprovalRules { deny, ask, .. } = &submit.rules;
    let are_some =
        [&policy.rules, &*agent.rules].into_iter().any(|rules| !rules.deny.is_empty() || !rules.ask.is_empty());
    (are_some || !deny.is_empty() || !ask.is_empty()).then(|| "rules deny calls or have them asked".to_owned())
}

/// Follows the goal's lines, then completes with everything that was said.
pub async fn run(run: EngineRun) -> EngineOutcome {
    let mut log = SessionLog::of(&run.submit, &run.home, Clock::system());
    log.part("goal", json!({ "text": run.submit.goal, "model": run.agent.model })).await;
    let mut said = String::new();
    let outcome = follow_all(&run, &mut said, &mut log).await;
    if !said.is_empty() {
        log.part("text", json!({ "text": said })).await;
    }
    log.outcome(&outcome).await;
    outcome
}

async fn follow_all(run: &EngineRun, said: &mut String, log: &mut SessionLog) -> EngineOutcome {
    let step = |state| AgentStreamEvent::Step { n: 1, state, reason: None };
    run.sink.emit(step(StepState::Started)).await;
    for (n, line) in run.submit.goal.lines().enumerate() {
        let outcome = match Instruction::of(line) {
            // It ends by itself when the task is stopped, together with everything it started.
            Instruction::Shell(command) => shell(run, n, command, log).await,
            instruction => tokio::select! {
                biased;
                () = run.stop.cancelled() => Some(EngineOutcome::Stopped { killed: 0 }),
                outcome = follow(run, instruction, said) => outcome,
            },
        };
        if let Some(outcome) = outcome {
            return outcome;
        }
    }
    run.sink.emit(step(StepState::Finished)).await;
    EngineOutcome::Completed(TaskResult { summary: summary(said), text: said.clone(), ..TaskResult::default() })
}

/// One line of a goal.
#[derive(Debug, PartialEq)]
enum Instruction<'a> {
    Stream { count: u64, pause: Duration },
    Text { bytes: usize },
    Fail(ErrorCode),
    Wait,
    Panic,
    Shell(&'a str),
    Say(&'a str),
}

impl<'a> Instruction<'a> {
    fn of(line: &'a str) -> Self {
        let say = line.strip_prefix("shell ").map_or(Self::Say(line), Self::Shell);
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["stream", count, "every", pause] => match (count.parse(), pause.parse()) {
                (Ok(count), Ok(pause)) => Self::Stream { count, pause: Duration::from_millis(pause) },
                _ => say,
            },
            ["text", bytes] => bytes.parse().map_or(say, |bytes| Self::Text { bytes }),
            ["fail", code] => serde_json::from_value(code.into()).map_or(say, Self::Fail),
            ["wait"] => Self::Wait,
            ["panic"] => Self::Panic,
            _ => say,
        }
    }
}

async fn follow(run: &EngineRun, instruction: Instruction<'_>, said: &mut String) -> Option<EngineOutcome> {
    match instruction {
        Instruction::Stream { count, pause } => {
            for n in 1..=count {
                say(run, &format!("{n} "), said).await;
                sleep(pause).await;
            }
        }
        Instruction::Text { bytes } => said.push_str(&"x".repeat(bytes.min(64 * 1024 * 1024))),
        Instruction::Fail(code) => {
            let message = "the goal asked to fail".to_owned();
            return Some(EngineOutcome::Failed(TaskError {
                code,
                message,
                retryable: false,
                suggestion: None,
                details: None,
            }));
        }
        Instruction::Wait => run.stop.cancelled().await,
        Instruction::Panic => panic!("the goal asked for it"),
        Instruction::Shell(line) | Instruction::Say(line) => {
            for word in line.split_inclusive(' ') {
                say(run, word, said).await;
            }
            if run.submit.goal.lines().count() > 1 {
                say(run, "\n", said).await;
            }
        }
    }
    None
}

async fn shell(run: &EngineRun, n: usize, command: &str, log: &mut SessionLog) -> Option<EngineOutcome> {
    let tools = Toolbox::new(ToolContext {
        home: run.home.clone(),
        workspace: run.memory.workspace(),
        agent: run.agent.clone(),
        config: run.config.clone(),
        task_id: run.submit.task_id.clone(),
        attempt: run.submit.attempt,
        sink: run.sink.clone(),
        collector: run.collector.clone(),
        stop: run.stop.clone(),
    });
    let (call_id, tool, args) = (format!("echo-{n}"), "shell".to_owned(), json!({ "command": command }));
    let call = AgentStreamEvent::ToolCall { call_id: call_id.clone(), tool: tool.clone(), args: args.clone() };
    run.sink.emit(call).await;
    let begun = Instant::now();
    let done = tools.call(&call_id, &tool, &args, None).await;
    let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    run.collector.look().await;
    let (ok, result) = (done.ok, done.result);
    log.part("tool-call", json!({ "callId": call_id, "tool": tool, "args": args })).await;
    log.part("tool-result", json!({ "callId": call_id, "tool": tool, "result": result, "ok": ok })).await;
    run.sink.emit(AgentStreamEvent::ToolResult { call_id, tool, result, ok, duration_ms }).await;
    run.stop.is_cancelled().then_some(EngineOutcome::Stopped { killed: done.killed })
}

async fn say(run: &EngineRun, text: &str, said: &mut String) {
    said.push_str(text);
    run.sink.emit(AgentStreamEvent::TextDelta { content: text.to_owned() }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_told_from_talk() {
        let pause = Duration::from_millis(10);
        assert_eq!(Instruction::of("stream 3 every 10"), Instruction::Stream { count: 3, pause });
        assert_eq!(Instruction::of("fail provider_auth"), Instruction::Fail(ErrorCode::ProviderAuth));
        assert_eq!(Instruction::of("fail softly"), Instruction::Say("fail softly"));
        assert_eq!(Instruction::of("shell echo  hi"), Instruction::Shell("echo  hi"));
        assert_eq!(Instruction::of("wait for me"), Instruction::Say("wait for me"));
    }
}
