//! Golden JSON: every shape as it stands on the wire, read and written back unchanged.

use serde_json::{Value, json};

use super::*;

const VIBER: &str = "vib_00000000000070008000000000000001";
const TASK: &str = "task_00000000000070008000000000000002";
const SESSION: &str = "ses_00000000000070008000000000000003";
const MESSAGE: &str = "msg_00000000000070008000000000000004";
const BOOT: &str = "boot_00000000000070008000000000000005";
const RUN: &str = "run_00000000000070008000000000000006";
const AT: &str = "2026-11-20T09:57:19.250Z";

#[test]
fn frames_of_a_daemon_keep_their_shape() {
    for golden in [
        json!({"type": "hello", "protocol": [1, 1], "viberId": VIBER, "bootId": BOOT, "version": "0.1.0",
            "platform": "linux x86_64", "hostname": "kiln-03", "capabilities": ["landlock"], "labels": {"gpu": "no"},
            "agents": [{"id": "default", "name": "Default", "description": "", "model": "demo/tour",
                "mode": "always_execute", "tools": ["shell"], "spaces": [], "maxSteps": 25}],
            "providers": [{"id": "demo", "api": "demo", "hasKey": false},
                {"id": "anthropic", "api": "anthropic", "hasKey": true, "models": ["claude-sonnet-4-5"]}], "lastCmdSeq": 4,
            "running": [{"taskId": TASK, "attempt": 1}],
            "outbox": [{"taskId": TASK, "attempt": 1, "firstSeq": 3, "lastSeq": 9}]}),
        json!({"type": "ack:cmd", "cmdSeq": 7}),
        json!({"type": "cmd:done", "cmdSeq": 13, "ok": true}),
        json!({"type": "cmd:done", "cmdSeq": 14, "ok": false, "error": "it is not there"}),
        json!({"type": "task:events", "taskId": TASK, "attempt": 1, "from": 1, "items": [
            {"seq": 1, "at": AT, "type": "task:accepted"}]}),
        json!({"type": "heartbeat", "running": [], "metrics": {"cpuPercent": 1.5, "memoryUsed": 1, "memoryTotal": 2,
            "diskUsed": 3, "diskTotal": 4}}),
        json!({"type": "viber:state", "agents": []}),
        json!({"type": "viber:state", "mcp": [{"name": "fs", "kind": "stdio", "state": "changed", "hash": "ab",
            "tools": ["mcp__fs__read"], "version": "filesystem 1.2", "revision": "2025-11-25", "since": AT,
            "agents": ["default"], "change": {"hash": "cd", "added": ["mcp__fs__write"], "removed": [], "changed": [],
                "diff": "+ write"}}]}),
        json!({"type": "workspace:changed", "path": "task.md", "hash": "ab", "size": 3, "mtime": AT, "by": "file"}),
        json!({"type": "res", "id": 1, "ok": true, "result": {"a": 1}}),
        json!({"type": "error", "code": "rate"}),
        json!({"type": "unsupported", "of": "x"}),
    ] {
        let frame = FromDaemon::parse(&golden.to_string()).unwrap_or_else(|e| panic!("{golden}: {e:?}"));
        assert_eq!(serde_json::to_value(&frame).expect("JSON"), golden);
    }
}

#[test]
fn frames_of_the_board_keep_their_shape() {
    for golden in [
        json!({"type": "welcome", "protocol": 1, "connEpoch": 2, "serverTime": AT, "heartbeatSeconds": 10,
            "maxFrameBytes": 262_144, "window": {"events": 4000, "bytes": 4_194_304},
            "acked": [{"taskId": TASK, "attempt": 1, "seq": 5}], "fence": [{"taskId": TASK, "minAttempt": 2}],
            "cmdsFrom": 5}),
        json!({"type": "ack:events", "acks": [{"taskId": TASK, "attempt": 1, "seq": 5}]}),
        json!({"type": "nack", "taskId": TASK, "attempt": 1, "expect": 6}),
        json!({"type": "heartbeat", "serverTime": AT}),
        json!({"type": "req", "id": 1, "method": "provider.test", "params": {"model": "a/b"}}),
        json!({"type": "error", "code": "forbidden_task", "of": TASK}),
        json!({"type": "task:submit", "cmdSeq": 1, "taskId": TASK, "attempt": 1, "sessionId": SESSION,
            "agentId": "default", "goal": "Fix it", "messages": [
                {"role": "user", "parts": [{"type": "text", "text": "hi"}]},
                {"role": "assistant", "parts": [{"type": "tool-call", "callId": "c1", "tool": "shell", "args": {},
                    "result": "ok", "ok": true}]}],
            "planPolicy": "apply", "memoryPolicy": "propose", "approveFirst": false, "stream": "full",
            "limits": {"steps": 5}}),
        json!({"type": "task:submit", "cmdSeq": 2, "taskId": TASK, "attempt": 1, "sessionId": SESSION,
            "agentId": "default", "goal": "Fix it", "messages": [], "planPolicy": "apply", "memoryPolicy": "propose",
            "approveFirst": false, "stream": "full", "model": "anthropic/claude-sonnet-4-5", "limits": {}}),
        json!({"type": "workspace:write", "cmdSeq": 7, "editId": "edt_00000000000070008000000000000004",
            "path": "task.md", "baseHash": "ab", "op": "put", "content": "x"}),
        json!({"type": "approval:response", "cmdSeq": 8, "approvalId": "apr_00000000000070008000000000000005",
            "digest": "cd", "decision": "allow"}),
        json!({"type": "approval:response", "cmdSeq": 9, "approvalId": "apr_00000000000070008000000000000005",
            "digest": "cd", "decision": "allow", "scope": "rule", "rule": "shell(cargo test **)", "note": "n",
            "args": {"command": "ls"}, "grant": {"costUsd": 1.5}, "by": "Ada"}),
        json!({"type": "approval:response", "cmdSeq": 10, "approvalId": "apr_00000000000070008000000000000005",
            "digest": "cd", "decision": "answer", "answer": "the second"}),
        json!({"type": "task:pause", "cmdSeq": 11, "taskId": TASK, "attempt": 1, "at": "tool"}),
        json!({"type": "task:resume", "cmdSeq": 12, "taskId": TASK, "attempt": 1}),
        json!({"type": "task:submit", "cmdSeq": 3, "taskId": TASK, "attempt": 1, "sessionId": SESSION,
            "agentId": "default", "goal": "Fix it", "messages": [], "planPolicy": "apply", "memoryPolicy": "propose",
            "approveFirst": false, "stream": "full", "mode": "always_ask",
            "limits": {"costUsd": 0.5, "onLimit": "pause"}, "rules": {"deny": ["shell(rm **)"]},
            "approvalMinutes": 60, "prices": [{"model": "a/b", "input": 3.0, "output": 15.0}], "leash": 5}),
        json!({"type": "skill:install", "cmdSeq": 13, "name": "git-commit", "digest": "ef", "url": "/api/daemon/skills/ef",
            "agents": ["default"], "version": "1.2.0", "ref": "git-commit@1.2.0"}),
        json!({"type": "skill:remove", "cmdSeq": 14, "name": "git-commit"}),
        json!({"type": "skill:accept", "cmdSeq": 15, "name": "git-commit", "digest": "ef"}),
        json!({"type": "skill:enable", "cmdSeq": 16, "name": "git-commit", "agents": []}),
        json!({"type": "mcp:allow", "cmdSeq": 20, "name": "fs", "hash": "cd"}),
        json!({"type": "playbook:ledger", "cmdSeq": 17, "runId": RUN, "text": "# Run\n"}),
        json!({"type": "task:submit", "cmdSeq": 18, "taskId": TASK, "attempt": 1, "sessionId": SESSION,
            "agentId": "default", "goal": "Fix it", "messages": [], "planPolicy": "apply", "memoryPolicy": "propose",
            "approveFirst": false, "stream": "full", "limits": {}, "playbook": {"runId": RUN}}),
        json!({"type": "task:submit", "cmdSeq": 19, "taskId": TASK, "attempt": 1, "sessionId": SESSION,
            "agentId": "default", "goal": "Fix it", "messages": [], "planPolicy": "apply", "memoryPolicy": "propose",
            "approveFirst": false, "stream": "full", "limits": {}, "playbook": {"runId": RUN, "step": "3a"}}),
        json!({"type": "task:submit", "cmdSeq": 20, "taskId": TASK, "attempt": 2, "sessionId": SESSION,
            "agentId": "default", "goal": "Fix it", "messages": [], "planPolicy": "apply", "memoryPolicy": "propose",
            "approveFirst": false, "stream": "full", "limits": {}, "parent": {"taskId": TASK, "attempt": 1, "callId": "c1",
            "depth": 1, "root": TASK, "chain": [{"agentId": "lead", "goal": "ab"}], "by": "lead on kiln-03"},
            "children": [{"taskId": TASK, "attempt": 1, "callId": "c2", "childTaskId": TASK, "state": "running",
            "agentId": "coder", "title": "Fix it", "usage": {"inputTokens": 0, "outputTokens": 0, "cachedTokens": 0,
            "source": "measured"}}]}),
        json!({"type": "task:child", "cmdSeq": 21, "taskId": TASK, "attempt": 1, "callId": "c1", "childTaskId": TASK,
            "state": "completed", "agentId": "coder", "viber": "gpu-1", "title": "Fix it", "result": {"text": "t",
            "summary": "t", "artifactRefs": [], "usage": {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0,
            "source": "measured"}}, "usage": {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0, "costUsd": 0.5,
            "source": "measured"}}),
        json!({"type": "task:child", "cmdSeq": 22, "taskId": TASK, "attempt": 1, "callId": "c1", "state": "refused",
            "agentId": "coder", "title": "Fix it", "error": "no", "usage": {"inputTokens": 0, "outputTokens": 0,
            "cachedTokens": 0, "source": "measured"}}),
        json!({"type": "ack:done", "cmdSeqs": [13, 14]}),
        json!({"type": "ack:written", "editIds": ["edt_00000000000070008000000000000004"]}),
        json!({"type": "task:stop", "cmdSeq": 2, "taskId": TASK, "attempt": 1, "reason": "operator"}),
        json!({"type": "viber:stop", "cmdSeq": 3, "reason": "operator"}),
        json!({"type": "task:message", "cmdSeq": 4, "taskId": TASK, "messageId": MESSAGE, "rev": 2, "author": "Ada",
            "content": "and?", "context": {"currentFile": "a.rs"}, "injectionMode": "steer", "position": 3}),
        json!({"type": "task:message", "cmdSeq": 5, "taskId": TASK, "messageId": MESSAGE, "rev": 3, "author": "Ada",
            "content": "and?", "injectionMode": "collect", "position": 3, "withdrawn": true}),
        json!({"type": "interrupt", "cmdSeq": 5, "targetAgentId": "*", "reason": "operator"}),
        json!({"type": "viber:drain", "cmdSeq": 6, "drained": true}),
    ] {
        let frame = ToDaemon::parse(&golden.to_string()).unwrap_or_else(|e| panic!("{golden}: {e:?}"));
        assert_eq!(serde_json::to_value(&frame).expect("JSON"), golden);
    }
}

#[test]
fn events_keep_their_shape() {
    let progress = |event: Value| json!({"seq": 3, "at": AT, "type": "task:progress", "event": event});
    for golden in [
        json!({"seq": 1, "at": AT, "type": "task:announce", "origin": "cli", "agentId": "default",
            "sessionId": SESSION, "goal": "g"}),
        json!({"seq": 1, "at": AT, "type": "task:announce", "origin": "slack", "agentId": "default",
            "sessionId": SESSION, "goal": "g", "author": "Maria"}),
        json!({"seq": 1, "at": AT, "type": "task:announce", "origin": "agent", "agentId": "coder",
            "sessionId": SESSION, "goal": "g", "parent": {"taskId": TASK, "attempt": 1, "callId": "c1"}}),
        json!({"seq": 1, "at": AT, "type": "task:announce", "origin": "agent", "agentId": "coder", "sessionId": SESSION,
            "goal": "g", "parent": {"taskId": TASK, "attempt": 1, "callId": "c1", "limits": {"steps": 2}}}),
        json!({"seq": 1, "at": AT, "type": "task:accepted"}),
        json!({"seq": 2, "at": AT, "type": "task:started", "model": "demo/tour", "engine": "builtin"}),
        progress(json!({"agentId": "default", "type": "text-delta", "content": "Hé"})),
        progress(json!({"agentId": "default", "type": "reasoning-delta", "content": "hm"})),
        progress(json!({"agentId": "default", "type": "tool-call", "callId": "c", "tool": "shell", "args": {"a": 1}})),
        progress(json!({"agentId": "default", "type": "tool-output", "callId": "c", "content": "x"})),
        progress(json!({"agentId": "default", "type": "tool-result", "callId": "c", "tool": "shell", "result": "x",
            "ok": true, "durationMs": 12})),
        progress(json!({"agentId": "default", "type": "state-change", "state": "thinking"})),
        progress(json!({"agentId": "default", "type": "state-change", "state": "waiting",
            "waiting": {"for": "rate_limit", "until": AT}})),
        progress(
            json!({"agentId": "default", "type": "state-change", "state": "waiting", "waiting": {"for": "input"}}),
        ),
        progress(json!({"agentId": "default", "type": "state-change", "state": "waiting",
            "waiting": {"for": "child", "until": AT}})),
        progress(json!({"agentId": "default", "type": "state-change", "state": "waiting", "waiting": {"for": "paused",
            "next": {"callId": "c", "tool": "shell", "args": {"command": "ls"}}}})),
        progress(json!({"agentId": "default", "type": "approval-required",
            "approvalId": "apr_00000000000070008000000000000005", "kind": "tool", "digest": "cd", "tool": "write_file",
            "args": {"path": "a"}, "callId": "c", "cwd": "/w", "preview": "+ a", "risk": "It writes a file.",
            "reason": "always_ask", "rule": "write_file(a)", "files": [{"path": "/w/a", "hash": "ab"}, {"path": "/w/b"}],
            "replaces": "apr_00000000000070008000000000000006", "expiresAt": AT})),
        progress(json!({"agentId": "default", "type": "approval-required",
            "approvalId": "apr_00000000000070008000000000000005", "kind": "question", "digest": "cd",
            "tool": "ask_operator", "args": {}, "cwd": "", "preview": "", "risk": "", "question": {"text": "Which?",
            "options": [{"label": "a", "tradeOff": "fast"}, {"label": "b", "tradeOff": "safe"}], "recommended": 0,
            "onTimeout": "a is taken"}})),
        progress(json!({"agentId": "default", "type": "approval-required",
            "approvalId": "apr_00000000000070008000000000000005", "kind": "budget", "digest": "cd", "tool": "budget",
            "args": {}, "cwd": "", "preview": "", "risk": "",
            "limit": {"name": "costUsd", "allowed": 1.0, "used": 1.25}})),
        progress(json!({"agentId": "default", "type": "approval-required",
            "approvalId": "apr_00000000000070008000000000000005", "kind": "step", "digest": "cd", "tool": "run_step",
            "args": {"step": "3"}, "callId": "c", "cwd": "", "preview": "", "risk": "", "expiresAt": AT})),
        progress(json!({"agentId": "default", "type": "approval-expired",
            "approvalId": "apr_00000000000070008000000000000005", "reason": "nobody answered"})),
        progress(json!({"agentId": "default", "type": "approval-outcome",
            "approvalId": "apr_00000000000070008000000000000005", "callId": "c", "ok": true})),
        progress(json!({"agentId": "default", "type": "step", "n": 1, "state": "discarded", "reason": "retry"})),
        progress(json!({"agentId": "default", "type": "usage", "inputTokens": 1, "outputTokens": 2, "cachedTokens": 0,
            "source": "measured"})),
        progress(json!({"agentId": "default", "type": "message-state", "messageId": MESSAGE, "rev": 1,
            "state": "consumed", "turn": 2})),
        progress(json!({"agentId": "default", "type": "turn", "n": 2, "messageIds": [MESSAGE], "mode": "collect"})),
        progress(json!({"agentId": "lead", "type": "delegate", "requestId": "apr_00000000000070008000000000000005",
            "callId": "c", "toAgentId": "coder", "viber": "gpu=yes", "goal": "g", "artifacts": ["a.md"],
            "limits": {"costUsd": 0.5}, "wait": true})),
        progress(json!({"agentId": "lead", "type": "delegate", "requestId": "apr_00000000000070008000000000000005",
            "callId": "c", "toAgentId": "coder", "goal": "g", "limits": {}, "wait": false, "childTaskId": TASK})),
        progress(json!({"agentId": "lead", "type": "child", "callId": "c", "childTaskId": TASK, "state": "completed"})),
        progress(json!({"agentId": "lead", "type": "child-stop", "childTaskId": TASK, "reason": "not needed"})),
        progress(json!({"agentId": "lead", "type": "agent-message", "messageId": MESSAGE, "direction": "out",
            "peer": "coder", "toTaskId": TASK, "callId": "c", "content": "m"})),
        progress(json!({"agentId": "lead", "type": "agent-message", "messageId": MESSAGE, "direction": "out",
            "peer": "coder", "toTaskId": TASK, "callId": "c", "limits": {"tokens": 500}, "content": "m"})),
        progress(json!({"agentId": "default", "type": "notice", "level": "warning", "text": "t"})),
        progress(json!({"agentId": "default", "type": "gap", "from": 2, "to": 3, "bytes": 9, "reason": "quota"})),
        json!({"seq": 4, "at": AT, "type": "task:completed", "result": {"text": "t", "summary": "t",
            "artifactRefs": [], "usage": {"inputTokens": 1, "outputTokens": 2, "cachedTokens": 0,
            "source": "measured"}}}),
        json!({"seq": 4, "at": AT, "type": "task:error", "error": {"code": "provider_auth", "message": "m",
            "retryable": false, "suggestion": "s"}}),
        json!({"seq": 4, "at": AT, "type": "task:stopped", "reason": "operator", "killed": 2}),
    ] {
        let event: Event = serde_json::from_value(golden.clone()).unwrap_or_else(|e| panic!("{golden}: {e}"));
        assert_eq!(serde_json::to_value(&event).expect("JSON"), golden);
        assert_eq!(event.body.name(), golden["type"]);
    }
}

#[test]
fn a_turn_in_a_mode_of_a_later_version_is_read() {
    let turn = |mode: &str| {
        let event = json!({"agentId": "default", "type": "turn", "n": 2, "messageIds": [MESSAGE], "mode": mode});
        let event = json!({"seq": 3, "at": AT, "type": "task:progress", "event": event});
        match serde_json::from_value::<crate::Event>(event).expect("an event").body {
            crate::EventBody::Progress { event } => event.event,
            other => panic!("{other:?}"),
        }
    };
    assert!(matches!(turn("whisper"), crate::AgentStreamEvent::Turn { n: 2, mode: None, .. }));
    let known = Some(crate::InjectionPoint::Collect);
    assert!(matches!(turn("collect"), crate::AgentStreamEvent::Turn { mode, .. } if mode == known));
}

#[test]
fn what_was_sent_is_what_is_kept() {
    let text = format!(
        r#"{{"type":"task:events","taskId":"{TASK}","attempt":1,"from":1,"items":[{{"type":"task:accepted", "at":"{AT}","seq":1,"extra":[1.0]}}]}}"#
    );
    let Ok(FromDaemon::Events(events)) = FromDaemon::parse(&text) else { panic!("events") };
    assert!(text.contains(events.items[0].get()));
    assert_eq!(parse_event(&events.items[0]).expect("an event").seq, 1);
}

#[test]
fn strangers_are_told_apart_from_nonsense() {
    assert_eq!(FromDaemon::parse(r#"{"type":"dance"}"#).err(), Some(BadFrame::Unknown("dance".into())));
    for text in
        ["", "{", "[]", r#"{"type":1}"#, r#"{"type":"ack:cmd","cmdSeq":-1}"#, r#"{"type":"ack:cmd","cmdSeq":1e309}"#]
    {
        assert!(matches!(FromDaemon::parse(text), Err(BadFrame::Malformed(_))), "{text}");
    }
    // An id becomes a part of paths.
    for id in ["run_../../../etc/passwd", "../x", TASK, ""] {
        let ledger = json!({"type": "playbook:ledger", "cmdSeq": 1, "runId": id, "text": ""}).to_string();
        assert!(matches!(ToDaemon::parse(&ledger), Err(BadFrame::Malformed(_))), "{id:?}");
    }
    let deep = format!(r#"{{"type":"req","id":1,"method":"x","params":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
    assert!(matches!(FromDaemon::parse(&deep), Err(BadFrame::Malformed(_))));
    let large = format!(r#"{{"type":"unsupported","of":"{}"}}"#, "x".repeat(MAX_FRAME_BYTES));
    assert_eq!(FromDaemon::parse(&large).err(), Some(BadFrame::TooLarge));
}

#[test]
fn a_gap_stands_for_all_it_replaces() {
    let gap = json!({"seq": 9, "at": AT, "type": "task:progress",
        "event": {"agentId": "a", "type": "gap", "from": 4, "to": 9, "bytes": 1, "reason": "quota"}});
    let event: Event = serde_json::from_value(gap).expect("an event");
    assert_eq!((event.first_seq(), event.seq), (4, 9));
}
