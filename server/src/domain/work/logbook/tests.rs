//! Logs as they come, read back.

use serde_json::json;

use super::*;

const NOW: Instant = Instant(1_800_000_000_000);

fn line(seq: u64, task: &TaskId, attempt: u32, more: Value) -> LoggedLine {
    let mut line = json!({ "at": "2026-01-01T00:00:00.000Z", "seq": 1, "taskId": task, "attempt": attempt });
    line.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    LoggedLine { seq, end: seq * 10, bytes: 10, line: Some(line) }
}

fn read(lines: &[LoggedLine]) -> Vec<LoggedTask> {
    let mut book = Logbook::new(NOW);
    lines.iter().for_each(|line| assert!(book.read(line, &[])));
    book.finish()
}

#[test]
fn lines_become_a_task_with_its_words_calls_and_end() {
    let task = TaskId::new(1);
    let lines = [
        json!({ "type": "goal", "text": "Water them", "model": "a/b" }),
        json!({ "type": "tool-call", "callId": "c", "tool": "shell", "args": { "command": "ls" } }),
        json!({ "type": "tool-result", "callId": "c", "tool": "shell", "result": "a", "ok": true }),
        json!({ "type": "of-tomorrow", "text": "?" }),
        json!({ "type": "text", "text": "Done." }),
        json!({ "type": "completed", "summary": "Done.", "usage": { "inputTokens": 7 } }),
    ];
    let lines: Vec<_> = (1..).zip(lines).map(|(n, more)| line(n, &task, 1, more)).collect();
    let tasks = read(&lines);
    let [one] = tasks.as_slice() else { panic!("{tasks:?}") };
    let attempt = &one.attempts[0];
    assert_eq!((one.goal.as_str(), attempt.model.as_deref(), attempt.parts.len()), ("Water them", Some("a/b"), 3));
    let Ending::Completed(result) = attempt.end() else { panic!("{attempt:?}") };
    assert_eq!((result.text.as_str(), result.usage.input_tokens), ("Done.", 7));
    let messages = one.messages(&SessionId::new(1), "default", "vib", 5);
    let brief: Vec<_> = messages.iter().map(|message| (message.seq, message.role, message.attempt)).collect();
    assert_eq!(brief, [(5, MessageRole::User, 0), (6, MessageRole::Assistant, 1)]);
}

#[test]
fn a_compaction_is_told_from_work() {
    let kinds = ["compact", "flush", "work", "transfer", "of-tomorrow"];
    let lines = kinds.iter().zip(1..).map(|(kind, n)| {
        line(1, &TaskId::new(n), 1, json!({ "type": "goal", "text": "Compact the conversation", "kind": kind }))
    });
    let plain = line(1, &TaskId::new(9), 1, json!({ "type": "goal", "text": "Compact the conversation", "kind": 7 }));
    let tasks = read(&lines.chain([plain]).collect::<Vec<_>>());
    let kinds: Vec<TaskKind> = tasks.iter().map(|task| task.kind).collect();
    use TaskKind::{Compact, Flush, Work};
    assert_eq!(kinds, [Compact, Flush, Work, Work, Work, Work]);
}

#[test]
fn what_somebody_said_meanwhile_stands_where_the_agent_was_told() {
    let task = TaskId::new(1);
    let lines = [
        json!({ "type": "text", "text": "I begin." }),
        json!({ "type": "message", "author": "Ada", "text": "Use b", "mode": "steer" }),
        json!({ "type": "message", "author": 7, "text": "Quietly", "mode": "whisper" }),
        json!({ "type": "message", "author": "Ada", "text": " ", "mode": "steer" }),
    ];
    let lines: Vec<_> = (1..).zip(lines).map(|(n, more)| line(n, &task, 1, more)).collect();
    let parts = &read(&lines)[0].attempts[0].parts;
    let brief = |part: &Part| match part {
        Part::Message { name, author, mode, text, .. } => {
            format!("{name}|{author}|{}|{text}", mode.as_str())
        }
        Part::Text { text, .. } => text.clone(),
        other => panic!("{other:?}"),
    };
    let brief: Vec<String> = parts.iter().map(brief).collect();
    assert_eq!(brief, ["I begin.", "Ada||steer|Use b", "||followup|Quietly"]);
}

#[test]
fn attempts_and_tasks_are_told_apart_however_their_lines_mix() {
    let (a, b) = (TaskId::new(1), TaskId::new(2));
    let text = |task, attempt, text: &str| line(1, task, attempt, json!({ "type": "text", "text": text }));
    let tasks = read(&[text(&a, 2, "x"), text(&b, 1, "y"), text(&a, 1, "z"), text(&a, 2, "x2")]);
    let brief: Vec<_> = tasks.iter().map(|task| (&task.id, task.attempts.len(), task.attempts[0].number)).collect();
    assert_eq!(brief, [(&a, 2, 1), (&b, 1, 1)]);
    assert_eq!((tasks[0].attempts[1].parts.len(), tasks[0].goal.as_str()), (2, UNKNOWN_GOAL_TEXT));
    assert!(matches!(tasks[0].attempts[0].end(), Ending::Failed(error) if error.code == ErrorCode::DaemonRestarted));
}

#[test]
fn nonsense_is_said_and_nothing_more() {
    let task = TaskId::new(1);
    let broken = |bytes| LoggedLine { seq: 1, end: 1, bytes, line: None };
    let odd = |more: Value| LoggedLine { line: Some(more), ..broken(5) };
    let tasks = read(&[
        broken(100_000_000),
        odd(json!({ "taskId": "task_1", "type": "text" })),
        odd(json!({ "taskId": task, "attempt": 0, "type": "text" })),
        odd(json!({ "taskId": task, "attempt": -1, "type": "text" })),
        line(2, &task, 1, json!({ "type": "text", "text": "a\0b" })),
        line(3, &task, 1, json!({ "type": "tool-call", "callId": 7, "tool": null })),
        line(4, &task, 1, json!({ "type": "error", "error": "?" })),
        line(5, &task, 1, json!({ "type": 3 })),
    ]);
    let parts = &tasks[0].attempts[0].parts;
    let said = |part: &Part| matches!(part, Part::Notice { text, .. } if text.contains("4 of the log's lines"));
    assert!(said(&parts[0]), "{parts:?}");
    assert_eq!(parts[1], Part::text("a\u{fffd}b"));
    assert_eq!(parts.len(), 4, "{parts:?}");
    let late = read(&[line(1, &task, 1, json!({ "type": "text", "text": "x", "at": "9999-01-01T00:00:00.000Z" }))]);
    assert_eq!(late[0].at, NOW, "no line comes from tomorrow");
}

#[test]
fn what_still_runs_is_not_read() {
    let (over, open) = (TaskId::new(1), TaskId::new(2));
    let mut book = Logbook::new(NOW);
    let running = [AttemptRef { task_id: open.clone(), attempt: 1 }];
    assert!(book.read(&line(1, &over, 1, json!({ "type": "stopped" })), &running));
    assert!(book.is_settled());
    assert!(!book.read(&line(2, &open, 1, json!({ "type": "goal", "text": "go" })), &running));
    assert_eq!(book.finish().len(), 1);
}

#[test]
fn what_came_is_counted_whatever_is_said_of_it() {
    let task = TaskId::new(1);
    let mut book = Logbook::new(NOW);
    let said = LoggedLine { bytes: 0, ..line(1, &task, 1, json!({ "type": "text", "text": "x".repeat(50_000) })) };
    assert!(book.read(&said, &[]) && book.bytes() > 50_000 && book.came() > 50_000);
    let before = book.bytes();
    let said = LoggedLine { bytes: u64::MAX, ..line(2, &task, 1, json!({ "type": "stopped" })) };
    assert!(book.read(&said, &[]) && book.bytes() < before + 1_000 && book.came() < before + 1_000);
    // Many small values take more than their text.
    let many = json!({ "type": "tool-call", "args": vec![1; 10_000] });
    assert!(book.read(&line(3, &task, 1, many), &[]) && book.bytes() > before + 300_000);
}

#[test]
fn an_answer_is_cut_and_its_end_is_not() {
    let task = TaskId::new(1);
    let mut book = Logbook::new(NOW);
    let text = json!({ "type": "text", "text": "x".repeat(250_000) });
    for n in 1..=100 {
        assert!(book.read(&line(n, &task, 1, text.clone()), &[]));
    }
    assert!(book.read(&line(101, &task, 1, json!({ "type": "text", "text": "short" })), &[]));
    assert!(book.bytes() < MAX_ATTEMPT_BYTES + 10_000 && book.came() > 25_000_000);
    assert!(book.read(&line(102, &task, 1, json!({ "type": "completed", "summary": "done" })), &[]));
    let attempt = &book.finish()[0].attempts[0];
    let cut = |part: &Part| matches!(part, Part::Notice { text, .. } if text.contains("left out: it is too long"));
    assert!(attempt.parts.last().is_some_and(cut) && attempt.parts.iter().filter(|part| cut(part)).count() == 1);
    assert!(matches!(attempt.end(), Ending::Completed(_)));
}

#[test]
fn the_attempt_that_goes_on_stays_when_the_rest_is_taken() {
    let (a, b) = (TaskId::new(1), TaskId::new(2));
    let text = |task, attempt, text: &str| line(1, task, attempt, json!({ "type": "text", "text": text }));
    let mut book = Logbook::new(NOW);
    let goal = line(1, &b, 1, json!({ "type": "goal", "text": "go" }));
    for line in [text(&a, 1, "never ends"), goal, line(2, &b, 1, json!({ "type": "stopped" })), text(&b, 2, "half")] {
        assert!(book.read(&line, &[]));
    }
    let rest = book.split().finish();
    let brief: Vec<_> = rest.iter().map(|task| (&task.id, task.attempts.len(), task.attempts[0].number)).collect();
    assert_eq!(brief, [(&a, 1, 1), (&b, 1, 1)]);
    assert!(!book.is_settled() && book.read(&text(&b, 2, "whole"), &[]));
    assert!(book.read(&line(3, &b, 2, json!({ "type": "stopped" })), &[]) && book.is_settled());
    let kept = book.finish();
    assert_eq!((kept.len(), kept[0].goal.as_str(), kept[0].attempts[0].parts.len()), (1, "go", 2));
    // Nothing goes on: nothing stays.
    let mut book = Logbook::new(NOW);
    assert!(book.read(&text(&a, 1, "x"), &[]) && book.read(&line(2, &b, 1, json!({ "type": "stopped" })), &[]));
    assert_eq!((book.split().finish().len(), book.is_empty(), book.bytes()), (2, true, 0));
    // What is cut off has an end that says so.
    assert!(book.read(&text(&a, 2, "x"), &[]));
    let cut = book.cut();
    assert!(cut.is_settled());
    assert!(matches!(cut.finish()[0].attempts[0].end(), Ending::Failed(error) if error.code == ErrorCode::Internal));
}

#[test]
fn nobody_tries_a_task_without_end() {
    let task = TaskId::new(1);
    let lines = [1, MAX_ATTEMPT_NUMBER, MAX_ATTEMPT_NUMBER + 1, u32::MAX];
    let tasks = read(&lines.map(|number| line(1, &task, number, json!({ "type": "stopped" }))));
    let numbers: Vec<_> = tasks[0].attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, MAX_ATTEMPT_NUMBER]);
    assert!(matches!(&tasks[0].attempts[1].parts[..], [Part::Notice { text, .. }] if text.contains("2 of the log")));
}
