//! What a journal guarantees: requests and begun attempts survive restarts, torn writes and damage.

use std::fs;

use protocol::{Command, PausePoint, SessionId, TaskId};
use serde_json::json;

use super::*;

fn open(folder: &tempfile::TempDir) -> Journal {
    Journal::open(folder.path().join("journal"), &folder.path().join("damaged"), Instant(1)).expect("a journal")
}

fn submit(cmd_seq: u64, task: &TaskId) -> NumberedCommand {
    let submit = serde_json::from_value(json!({"taskId": task, "attempt": 1, "sessionId": SessionId::new(1),
        "agentId": "default", "goal": "Fix it"}));
    NumberedCommand { cmd_seq, command: Command::Submit(submit.expect("a submit")) }
}

fn first(task: &TaskId) -> AttemptRef {
    AttemptRef { task_id: task.clone(), attempt: 1 }
}

#[test]
fn what_is_not_settled_survives_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let [a, b, c, d] = [1, 2, 3, 4].map(TaskId::new);
    let journal = open();
    let commands = vec![
        submit(1, &a),
        submit(2, &b),
        submit(3, &c),
        submit(4, &d),
        NumberedCommand {
            cmd_seq: 5,
            command: Command::Stop { task_id: d.clone(), attempt: 1, reason: "operator".to_owned() },
        },
        NumberedCommand { cmd_seq: 6, command: Command::Drain { drained: true } },
    ];
    assert_eq!(journal.commands(commands).expect("written").len(), 6);
    journal.begun(&first(&a)).expect("written");
    journal.begun(&first(&b)).expect("written");
    journal.ended(&[first(&b)]).expect("written");
    let held = journal.held();
    drop(journal);
    for _ in 0..2 {
        assert_eq!(open().held(), held, "also after it was compacted");
    }
    let seen: Vec<_> = held.attempts.iter().map(|held| (held.attempt(), held.begun, held.stopped.is_some())).collect();
    assert_eq!(seen, [(first(&a), true, false), (first(&c), false, false), (first(&d), false, true)]);
    assert_eq!((held.last_cmd_seq, held.drained), (6, true));
}

#[test]
fn what_nests_as_deep_as_a_frame_can_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let task = TaskId::new(1);
    // The most that a frame can hold, in a task and in a message to it.
    let deepest = |cmd_seq: u64, fields: &str| {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let frame = |levels: usize| format!(r#"{{"cmdSeq":{cmd_seq},{fields},"context":{}}}"#, nested(levels));
        let levels = (1..200).rev().find(|levels| serde_json::from_str::<NumberedCommand>(&frame(*levels)).is_ok());
        let levels = levels.expect("some");
        assert!(levels > 100, "{levels}");
        serde_json::from_str::<NumberedCommand>(&frame(levels)).expect("a command")
    };
    let session = SessionId::new(1);
    let of_task = format!(
        r#""type":"task:submit","taskId":"{task}","attempt":1,"sessionId":"{session}","agentId":"default","goal":"Fix it""#
    );
    let of_message = format!(
        r#""type":"task:message","taskId":"{task}","messageId":"{}","rev":1,"author":"Ada","content":"And?","injectionMode":"steer","position":1"#,
        protocol::MessageId::new(1)
    );
    let journal = open(&folder);
    let commands = vec![deepest(1, &of_task), deepest(2, &of_message)];
    assert_eq!(journal.commands(commands).expect("written").len(), 2);
    let held = journal.held();
    assert_eq!(held.attempts[0].messages.len(), 1);
    drop(journal);
    for _ in 0..2 {
        assert_eq!(open(&folder).held(), held, "also after it was compacted");
    }
}

#[test]
fn changes_of_skills_are_kept_until_the_board_has_their_outcome() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let [first, second, third, fourth] = [1, 2, 3, 4].map(|cmd_seq| {
        let frames = [
            json!({"type": "skill:install", "name": "a", "digest": "ab", "url": "/x", "agents": ["default"]}),
            json!({"type": "skill:remove", "name": "a"}),
            json!({"type": "skill:accept", "name": "a", "digest": "ab"}),
            json!({"type": "skill:enable", "name": "a", "agents": []}),
        ];
        let mut frame = frames[cmd_seq as usize - 1].clone();
        frame["cmdSeq"] = cmd_seq.into();
        serde_json::from_value::<NumberedCommand>(frame).expect("a command")
    });
    let done = |cmd_seq: u64, ok: bool| CommandDone { cmd_seq, ok, error: (!ok).then(|| "it is not there".to_owned()) };
    let journal = open();
    journal.commands(vec![first, second, third.clone(), fourth.clone()]).expect("written");
    journal.done(done(1, true)).expect("written");
    journal.done(done(2, false)).expect("written");
    journal.outcomes_acknowledged(&[1, 3, 77]).expect("written");
    let held = journal.held();
    assert_eq!((&held.skill_changes, &held.done), (&vec![third.clone(), fourth.clone()], &vec![done(2, false)]));
    drop(journal);
    for _ in 0..2 {
        assert_eq!(open().held(), held, "also after it was compacted");
    }
    let journal = open();
    assert!(journal.commands(vec![third]).expect("a duplicate").is_empty());
    assert_eq!(journal.unacknowledged_outcomes(), [done(2, false)]);
    journal.outcomes_acknowledged(&[2]).expect("written");
    journal.done(done(3, true)).expect("written");
    assert_eq!((journal.held().skill_changes, journal.unacknowledged_outcomes()), (vec![fourth], vec![done(3, true)]));
}

#[test]
fn changes_of_files_are_kept_until_the_board_has_heard_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let edits = [1, 2, 3].map(EditId::new);
    let write = |n: usize| {
        let write = serde_json::from_value(json!({"editId": edits[n], "path": "task.md", "content": "x"}));
        NumberedCommand { cmd_seq: n as u64 + 1, command: Command::Write(write.expect("a write")) }
    };
    let written = |n: usize| WorkspaceWritten {
        edit_id: edits[n].clone(),
        path: "task.md".to_owned(),
        state: protocol::WriteState::Applied,
        hash: None,
        reason: None,
    };
    let journal = open();
    journal.commands((0..3).map(write).collect()).expect("written");
    journal.written(written(0)).expect("written");
    journal.written(written(1)).expect("written");
    journal.edits_acknowledged(&[edits[0].clone(), edits[2].clone()]).expect("written");
    let held = journal.held();
    drop(journal);
    for _ in 0..2 {
        assert_eq!(open().held(), held, "also after it was compacted");
    }
    let waiting: Vec<_> = held.writes.iter().map(|held| held.write.edit_id.clone()).collect();
    assert_eq!((waiting, held.written), (vec![edits[2].clone()], vec![written(1)]));
    assert_eq!(held.last_cmd_seq, 3);
}

#[test]
fn the_newest_ledger_of_each_run_is_kept_until_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let runs: Vec<protocol::RunId> = (1..=40).map(protocol::RunId::new).collect();
    let ledger = |cmd_seq: u64, run: usize| {
        let ledger = protocol::PlaybookLedger { run_id: runs[run].clone(), text: format!("as of {cmd_seq}") };
        NumberedCommand { cmd_seq, command: Command::Ledger(Box::new(ledger)) }
    };
    let seen = |journal: &Journal| -> Vec<(u64, String)> {
        let pending = journal.pending_ledgers().into_iter();
        pending.map(|pending| (pending.cmd_seq, pending.ledger.text)).collect()
    };
    let journal = open();
    journal.commands(vec![ledger(1, 0), ledger(2, 1), ledger(3, 0)]).expect("written");
    let newest = [(2, "as of 2".to_owned()), (3, "as of 3".to_owned())];
    assert_eq!(seen(&journal), newest);
    // What was written was not the newest one any more.
    journal.ledger_written(1).expect("written");
    drop(journal);
    for _ in 0..2 {
        assert_eq!(seen(&open()), newest, "also after it was compacted");
    }
    let journal = open();
    journal.ledger_written(3).expect("written");
    assert_eq!(seen(&open()), newest[..1]);
    let mut late = JournalState::default();
    [ledger(3, 0), ledger(1, 0)].into_iter().for_each(|command| late.add(JournalEntry::Command(command)));
    assert_eq!(late.ledgers[0].cmd_seq, 3, "an older one does not replace it");
    let journal = open();
    journal.commands((4..=43).map(|n| ledger(n, usize::try_from(n).expect("small") - 4)).collect()).expect("written");
    assert_eq!(journal.pending_ledgers().len(), 32);
}

#[test]
fn messages_to_an_attempt_are_kept_in_their_newest_version_until_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let [a, b] = [1, 2].map(TaskId::new);
    let ids = [1, 2].map(protocol::MessageId::new);
    let say = |cmd_seq: u64, task: &TaskId, n: usize, rev: u32| {
        let message = json!({"taskId": task, "messageId": ids[n], "rev": rev, "author": "Ada", "content": format!("v{rev}"),
            "injectionMode": "collect"});
        NumberedCommand { cmd_seq, command: Command::Message(serde_json::from_value(message).expect("a message")) }
    };
    let journal = open();
    let commands = vec![
        submit(1, &a),
        submit(2, &b),
        say(3, &a, 0, 1),
        say(4, &a, 0, 3),
        say(5, &a, 0, 2),
        say(6, &b, 1, 1),
        say(7, &TaskId::new(3), 1, 1),
    ];
    journal.commands(commands).expect("written");
    let seen = |held: &JournalState| -> Vec<Vec<(u64, String)>> {
        let said = |kept: &PendingMessage| (kept.cmd_seq, kept.message.content.clone());
        held.attempts.iter().map(|held| held.messages.iter().map(said).collect()).collect()
    };
    let mut held = journal.held();
    assert_eq!(seen(&held), [vec![(4, "v3".to_owned())], vec![(6, "v1".to_owned())]]);
    drop(journal);
    for _ in 0..2 {
        assert_eq!(open().held(), held, "also after it was compacted");
    }
    let journal = open();
    journal.begun(&first(&a)).expect("written");
    journal.commands(vec![say(8, &a, 1, 9)]).expect("written");
    held = journal.held();
    assert_eq!(seen(&held), [vec![], vec![(6, "v1".to_owned())]]);
    drop(journal);
    assert_eq!(open().held(), held);
}

#[test]
fn a_pause_of_an_attempt_is_kept_until_it_begins_or_is_resumed() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let tasks = [1, 2, 3].map(TaskId::new);
    let pause = |cmd_seq, task: &TaskId| {
        let command = Command::Pause { task_id: task.clone(), attempt: 1, at: PausePoint::Tool };
        NumberedCommand { cmd_seq, command }
    };
    let journal = open();
    journal.commands((0..3).map(|n| submit(n + 1, &tasks[n as usize])).collect()).expect("written");
    journal.commands((0..3).map(|n| pause(n + 4, &tasks[n as usize])).collect()).expect("written");
    let resume = Command::Resume { task_id: tasks[1].clone(), attempt: 1 };
    journal.commands(vec![NumberedCommand { cmd_seq: 7, command: resume }]).expect("written");
    journal.begun(&first(&tasks[2])).expect("written");
    journal.commands(vec![pause(8, &tasks[2])]).expect("written");
    drop(journal);
    for _ in 0..2 {
        let paused: Vec<_> = open().held().attempts.iter().map(|held| held.paused).collect();
        assert_eq!(paused, [Some(PausePoint::Tool), None, None], "also after it was compacted");
    }
}

#[test]
fn what_is_said_of_an_attempt_that_has_begun_is_kept_until_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = || open(&folder);
    let [a, local] = [1, 2].map(TaskId::new);
    let command = |cmd_seq, command| NumberedCommand { cmd_seq, command };
    let pause = |task_id: &TaskId| Command::Pause { task_id: task_id.clone(), attempt: 1, at: PausePoint::Step };
    let decision =
        protocol::ApprovalResponse::new(protocol::ApprovalId::new(1), "d".to_owned(), protocol::Decision::Allow);
    let message = json!({"taskId": a, "messageId": protocol::MessageId::new(1), "author": "Ada", "content": "c",
        "injectionMode": "collect"});
    let message = Command::Message(serde_json::from_value(message).expect("a message"));
    let journal = open();
    journal.commands(vec![submit(1, &a), command(2, message), command(3, pause(&a))]).expect("written");
    assert!(journal.held().recent.is_empty());
    journal.begun(&first(&a)).expect("written");
    let stop = Command::Stop { task_id: a.clone(), attempt: 1, reason: "enough".to_owned() };
    let more = vec![
        command(4, Command::Approval(Box::new(decision))),
        command(5, Command::Resume { task_id: a.clone(), attempt: 1 }),
        command(6, pause(&local)),
        command(7, stop),
    ];
    journal.commands(more).expect("written");
    drop(journal);
    for _ in 0..2 {
        let held = open().held();
        let seen: Vec<u64> = held.recent.iter().map(|recent| recent.numbered.cmd_seq).collect();
        assert_eq!(seen, [1, 2, 4, 5, 6], "also after it was compacted");
        assert_eq!(held.attempts[0].stopped.as_deref(), Some("enough"));
    }
    let journal = open();
    journal.ended(&[first(&a)]).expect("written");
    let seen: Vec<u64> = journal.held().recent.iter().map(|recent| recent.numbered.cmd_seq).collect();
    assert_eq!(seen, [4, 6], "nobody knows whose decision it was");
    let flood = (0..600).map(|n| command(n + 8, pause(&local))).collect();
    journal.commands(flood).expect("written");
    assert_eq!(journal.held().recent.len(), 512);
}

#[test]
fn what_became_of_a_task_is_kept_for_the_attempt_that_comes_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let (task, journal) = (TaskId::new(1), open(&folder));
    let mut again = submit(2, &task);
    if let Command::Submit(submit) = &mut again.command {
        submit.attempt = 2;
    }
    let second = AttemptRef { task_id: task.clone(), attempt: 2 };
    let told: Command =
        serde_json::from_value(json!({ "type": "task:child", "taskId": task, "attempt": 1, "callId": "c",
        "childTaskId": TaskId::new(9), "state": "completed" }))
        .expect("a command");
    journal.commands(vec![submit(1, &task), again]).expect("written");
    journal.begun(&first(&task)).expect("written");
    journal.commands(vec![NumberedCommand { cmd_seq: 3, command: told }]).expect("written");
    journal.ended(&[first(&task)]).expect("written");
    assert_eq!(journal.held().recent.len(), 1, "the second attempt may wait for it");
    journal.ended(&[second]).expect("written");
    assert!(journal.held().recent.is_empty());
}

#[test]
fn a_decision_leaves_after_everything_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let task = TaskId::new(1);
    let decide = |cmd_seq: u64| {
        let id = protocol::ApprovalId::new(i64::try_from(cmd_seq).expect("small"));
        let word = protocol::ApprovalResponse::new(id, "d".to_owned(), protocol::Decision::Allow);
        NumberedCommand { cmd_seq, command: Command::Approval(Box::new(word)) }
    };
    let say = |cmd_seq: u64| {
        let message = json!({"taskId": task, "messageId": protocol::MessageId::new(1), "author": "Ada",
            "content": "c".repeat(32 * 1024), "injectionMode": "collect"});
        NumberedCommand { cmd_seq, command: Command::Message(serde_json::from_value(message).expect("a message")) }
    };
    let pause = |cmd_seq: u64| {
        let command = Command::Pause { task_id: task.clone(), attempt: 1, at: PausePoint::Step };
        NumberedCommand { cmd_seq, command }
    };
    let journal = open(&folder);
    journal.commands(vec![decide(1), decide(2)]).expect("written");
    // More commands, and more bytes, than are kept; the file is rewritten meanwhile.
    journal.commands((3..1000).map(pause).collect()).expect("written");
    journal.commands((1000..1200).map(say).collect()).expect("written");
    let decided = |journal: &Journal| -> Vec<u64> {
        let recent = journal.held().recent;
        let decisions = recent.iter().filter(|recent| matches!(recent.numbered.command, Command::Approval(_)));
        decisions.map(|recent| recent.numbered.cmd_seq).collect()
    };
    assert_eq!(decided(&journal), [1, 2]);
    assert!(journal.held().recent.len() < 512, "others left");
    drop(journal);
    for _ in 0..2 {
        assert_eq!(decided(&open(&folder)), [1, 2], "also after it was compacted");
    }
    // Of many decisions the oldest leave.
    let journal = open(&folder);
    journal.commands((1200..1800).map(decide).collect()).expect("written");
    let kept = decided(&journal);
    assert!(kept.len() >= 256 && kept == (1800 - kept.len() as u64..1800).collect::<Vec<_>>(), "{kept:?}");
}

#[test]
fn many_decisions_leave_room_for_what_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let task = TaskId::new(1);
    let decide = |cmd_seq: u64, note: &str| {
        let id = protocol::ApprovalId::new(i64::try_from(cmd_seq).expect("small"));
        let mut word = protocol::ApprovalResponse::new(id, "d".to_owned(), protocol::Decision::Allow);
        word.note = Some(note.to_owned());
        NumberedCommand { cmd_seq, command: Command::Approval(Box::new(word)) }
    };
    let pause = |cmd_seq: u64| {
        let command = Command::Pause { task_id: task.clone(), attempt: 1, at: PausePoint::Step };
        NumberedCommand { cmd_seq, command }
    };
    let say = |cmd_seq: u64| {
        let message = json!({"taskId": task, "messageId": protocol::MessageId::new(1), "author": "Ada", "content": "c",
            "injectionMode": "collect"});
        NumberedCommand { cmd_seq, command: Command::Message(serde_json::from_value(message).expect("a message")) }
    };
    let kept = |journal: &Journal| -> Vec<u64> {
        journal.held().recent.iter().map(|recent| recent.numbered.cmd_seq).collect()
    };
    let journal = open(&folder);
    // More of them, and then more bytes of them, than are kept in all.
    journal.commands((1..=600).map(|n| decide(n, "")).collect()).expect("written");
    journal.commands(vec![pause(601), say(602)]).expect("written");
    journal.commands((603..=640).map(|n| decide(n, "")).collect()).expect("written");
    assert!([1, 601, 602, 603, 640].map(|n| kept(&journal).contains(&n)) == [false, true, true, true, true]);
    let note = "n".repeat(8 * 1024);
    journal.commands((641..=1300).map(|n| decide(n, &note)).collect()).expect("written");
    journal.commands(vec![pause(1301), say(1302)]).expect("written");
    drop(journal);
    for _ in 0..2 {
        let kept = kept(&open(&folder));
        assert!([601, 602, 1300, 1301, 1302].iter().all(|n| kept.contains(n)), "also after it was compacted: {kept:?}");
    }
}

#[test]
fn duplicates_are_passed_over_and_gaps_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let journal = open(&folder);
    let task = TaskId::new(1);
    assert_eq!(journal.commands(vec![submit(1, &task), submit(1, &task)]).expect("written").len(), 1);
    assert!(journal.commands(vec![submit(1, &task)]).expect("nothing new").is_empty());
    assert!(matches!(journal.commands(vec![submit(3, &task)]), Err(JournalError::Gap { expected: 2, got: 3 })));
    journal.skip_to(10).expect("written");
    assert_eq!(journal.commands(vec![submit(10, &task)]).expect("written").len(), 1);
}

#[test]
fn a_torn_end_is_forgotten() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let [a, b] = [1, 2].map(TaskId::new);
    let journal = open(&folder);
    journal.commands(vec![submit(1, &a), submit(2, &b)]).expect("written");
    let bytes = fs::read(&path).expect("there");
    fs::write(&path, &bytes[..bytes.len() - 5]).expect("torn");
    let held = open(&folder).held();
    assert_eq!((held.last_cmd_seq, held.attempts.len()), (1, 1));
}

#[test]
fn damage_takes_only_what_it_hit_and_missing_commands_are_asked_for_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("journal");
    let tasks = [1, 2, 3, 4].map(TaskId::new);
    let journal = open(&folder);
    let start = fs::read(&path).expect("there").len();
    for (n, task) in tasks.iter().enumerate() {
        journal.commands(vec![submit(n as u64 + 1, task)]).expect("written");
    }
    journal.begun(&first(&tasks[3])).expect("written");
    drop(journal);
    let mut bytes = fs::read(&path).expect("there");
    let size = (bytes.len() - start) / 5;
    bytes[start + size + size / 2] ^= 1;
    fs::write(&path, &bytes).expect("damaged");
    let journal = open(&folder);
    let held = journal.held();
    let known: Vec<_> = held.attempts.iter().map(|held| (held.attempt(), held.begun)).collect();
    assert_eq!(known, [(first(&tasks[0]), false), (first(&tasks[2]), false), (first(&tasks[3]), true)]);
    assert_eq!((held.last_cmd_seq, held.ahead.len()), (1, 2));
    assert_eq!(fs::read_dir(folder.path().join("damaged")).expect("kept").count(), 1);
    // After one more start the Board is still asked from there on, and only what was lost counts as new.
    drop(journal);
    let journal = open(&folder);
    assert_eq!(journal.held(), held);
    let again = (2..=4).map(|n| submit(n, &tasks[n as usize - 1])).chain([submit(5, &TaskId::new(5))]).collect();
    let fresh: Vec<u64> = journal.commands(again).expect("written").iter().map(|one| one.cmd_seq).collect();
    assert_eq!((fresh, journal.last_cmd_seq()), (vec![2, 5], 5));
    assert!(journal.held().ahead.is_empty());
}

#[test]
fn a_stop_of_everything_that_comes_late_does_not_mean_what_came_after_it() {
    let mut held = JournalState::default();
    let [a, b] = [1, 2].map(TaskId::new);
    held.add(JournalEntry::Command(submit(1, &a)));
    held.add(JournalEntry::Command(submit(3, &b)));
    let stop = Command::StopAll { reason: "operator".to_owned() };
    held.add(JournalEntry::Command(NumberedCommand { cmd_seq: 2, command: stop }));
    let stopped: Vec<bool> = held.attempts.iter().map(|held| held.stopped.is_some()).collect();
    assert_eq!((stopped, held.newer_than(2), held.last_cmd_seq), (vec![true, false], vec![first(&b)], 3));
}
