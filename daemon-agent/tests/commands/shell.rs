//! What a command may do, what comes back, and what is streamed.

use std::{io::Read, time::Instant};

use serde_json::json;

use crate::machine::{Machine, bad, good};

#[tokio::test]
async fn output_and_exit_code_come_back_and_the_same_is_streamed() {
    let machine = Machine::new();
    let outcome = machine.shell("echo one; echo zwei ü >&2; pwd; exit 3").await;
    let space = machine.at("space").canonicalize().expect("there").display().to_string();
    assert!(!outcome.ok);
    assert_eq!(outcome.result, json!({ "exitCode": 3, "output": format!("one\nzwei ü\n{space}\n") }));
    assert_eq!(*machine.streamed.lock().expect("no panic"), format!("one\nzwei ü\n{space}\n"));
    assert_eq!(outcome.text(), format!("one\nzwei ü\n{space}\n[exit code 3]"));
    let outcome = machine.shell("true").await;
    assert!(outcome.ok && outcome.killed == 0, "{outcome:?}");
}

#[tokio::test]
async fn a_list_is_run_without_a_shell_and_input_is_empty() {
    let machine = Machine::new();
    let outcome = machine.call("shell", json!({ "command": ["printf", "%s|", "$HOME", "a b"] })).await;
    assert_eq!(outcome.result["output"], "$HOME|a b|");
    let outcome = machine.call("shell", json!({ "command": "cat; echo done", "timeout": 20 })).await;
    assert_eq!(outcome.result, json!({ "exitCode": 0, "output": "done\n" }));
    let outcome = machine.call("shell", json!({ "command": ["no-such-program-here"] })).await;
    assert!(bad(outcome).contains("cannot start no-such-program-here"));
}

#[tokio::test]
async fn bad_arguments_are_named() {
    let machine = Machine::new();
    for (args, name) in [
        (json!({}), "\"command\""),
        (json!({ "command": 5 }), "\"command\""),
        (json!({ "command": ["ls", 5] }), "\"command\""),
        (json!({ "command": "a\u{0}b" }), "\"command\""),
        (json!({ "command": "ls", "timeout": "soon" }), "\"timeout\""),
        (json!({ "command": "ls", "timeout": 1_000_000 }), "\"timeout\""),
        (json!({ "command": "ls", "dir": "x" }), "\"dir\""),
        (json!({ "command": "ls", "cwd": "/etc" }), "forbidden path"),
    ] {
        let error = bad(machine.call("shell", args.clone()).await);
        assert!(error.contains(name), "{args}: {error}");
    }
    assert!(bad(machine.call("frobnicate", json!({})).await).contains("frobnicate"));
}

#[tokio::test]
async fn a_command_writes_where_it_works_and_cannot_read_the_daemons_own() {
    if !crate::machine::layers().confine() {
        // Such a kernel confines nothing; the viber says so on every page.
        return;
    }
    let machine = Machine::new();
    let artifacts = machine.at("home/artifacts").join(machine.task.as_str());
    for place in [
        "$PWD".to_owned(),
        "$TMPDIR".into(),
        machine.at("home/workspace").display().to_string(),
        artifacts.display().to_string(),
    ] {
        let outcome = machine.shell(&format!("echo x > {place}/made && cat {place}/made && rm {place}/made")).await;
        assert!(outcome.ok, "{place}: {}", outcome.result);
    }
    for place in ["other", "home", "home/agents", "home/state", "home/artifacts"] {
        let outcome = machine.shell(&format!("echo x > {}/made", machine.at(place).display())).await;
        assert!(!outcome.ok && !machine.at(place).join("made").exists(), "{place}");
    }
    for private in ["home/state/credential", "home/secrets/openai", "home/config.yaml", "home/.env"] {
        let path = machine.at(private).display().to_string();
        for command in [
            format!("cat {path}"),
            format!("ln -s {path} link; cat link; rm link"),
            format!("cat /proc/self/root{path}"),
        ] {
            let outcome = machine.shell(&command).await;
            assert!(!outcome.result.to_string().contains("SECRET"), "{command}");
        }
    }
    let outcome = machine
        .shell("ls /usr >/dev/null && head -c 3 /dev/urandom | wc -c && : > /dev/shm/$$ && rm /dev/shm/$$")
        .await;
    assert!(outcome.ok, "{}", outcome.result);
}

#[tokio::test]
async fn a_space_that_holds_the_home_does_not_open_it() {
    if !crate::machine::layers().confine() {
        return;
    }
    let machine = Machine::with_space("");
    let outcome = machine.shell("ls; echo x > space/new; echo x > home/workspace/new").await;
    assert_eq!(outcome.result, json!({ "exitCode": 0, "output": "home\nother\nspace\n" }));
    for command in
        ["cat home/secrets/openai", "echo x > home/secrets/new", "echo x > home/agents/new.yaml", "mv home h"]
    {
        let outcome = machine.shell(command).await;
        assert!(!outcome.ok && !outcome.result.to_string().contains("SECRET"), "{command}: {}", outcome.result);
    }
    assert!(!machine.at("home/secrets/new").exists() && !machine.at("home/agents/new.yaml").exists());
}

#[tokio::test]
async fn a_command_sees_neither_the_daemons_environment_nor_its_processes() {
    let machine = Machine::new();
    let outcome = machine.shell("env | cut -d= -f1 | sort | tr '\\n' ' '").await;
    let names: Vec<_> =
        outcome.result["output"].as_str().expect("text").split_whitespace().map(str::to_owned).collect();
    let expected = [
        "PATH",
        "HOME",
        "USER",
        "LANG",
        "TERM",
        "TZ",
        "SHELL",
        "TMPDIR",
        "CARGO_MANIFEST_DIR",
        "OPENVIBER_TASK_ID",
        "OPENVIBER_ATTEMPT",
        "OPENVIBER_ARTIFACTS",
        "PWD",
        "OLDPWD",
        "SHLVL",
        "_",
    ];
    for name in &names {
        assert!(expected.contains(&name.as_str()) || name.starts_with("LC_"), "{name} leaked");
    }
    for name in
        ["PATH", "TMPDIR", "CARGO_MANIFEST_DIR", "OPENVIBER_TASK_ID", "OPENVIBER_ATTEMPT", "OPENVIBER_ARTIFACTS"]
    {
        assert!(names.contains(&name.to_owned()), "{name} is missing from {names:?}");
    }
    if crate::machine::layers().landlock {
        let daemon = std::process::id();
        let outcome = machine.shell(&format!("kill -0 {daemon} || kill -9 $PPID || cat /proc/{daemon}/environ")).await;
        assert_eq!(outcome.result["exitCode"], 1, "{}", outcome.result);
        assert!(!outcome.result["output"].as_str().expect("text").contains("PATH="));
    }
}

#[tokio::test]
async fn the_private_folder_lives_as_long_as_the_attempt() {
    let machine = Machine::new();
    let first = machine.shell("echo kept > $TMPDIR/x; printf %s $TMPDIR").await;
    let folder = std::path::PathBuf::from(first.result["output"].as_str().expect("a path"));
    assert_eq!(machine.shell("cat $TMPDIR/x").await.result["output"], "kept\n");
    assert!(folder.is_dir());
    drop(machine);
    crate::machine::until(std::time::Duration::from_secs(5), || !folder.exists()).await;
}

#[tokio::test]
async fn a_flood_is_kept_whole_shown_at_both_ends_and_streamed_in_part() {
    const LINES: usize = 8 * 1024 * 1024;
    let machine = Machine::new();
    let outcome = machine.shell(&format!("echo first; yes 'ä 7' | head -n {LINES}; printf last")).await;
    assert!(outcome.ok, "{}", outcome.result["output"].as_str().map_or(0, str::len));
    let output = outcome.result["output"].as_str().expect("text");
    assert!(output.starts_with("first\nä 7\n") && output.ends_with("ä 7\nlast"));
    assert!(outcome.result.to_string().len() <= protocol::limits::MAX_TOOL_TEXT_BYTES);
    let mut kept = std::fs::File::open(outcome.result["file"].as_str().expect("a path")).expect("the file");
    let whole = 6 + LINES as u64 * 5 + 4;
    assert_eq!(outcome.result["bytes"], whole);
    assert_eq!(kept.metadata().expect("there").len(), whole);
    let mut start = vec![0; 6 + 5 * 1000];
    kept.read_exact(&mut start).expect("readable");
    assert_eq!(start, format!("first\n{}", "ä 7\n".repeat(1000)).into_bytes());
    let streamed = machine.streamed.lock().expect("no panic");
    assert!(streamed.len() < 2 * 1024 * 1024 && streamed.starts_with("first") && streamed.ends_with("last"));
}

#[tokio::test]
async fn bytes_that_are_no_text_are_kept_exactly() {
    let machine = Machine::new();
    let outcome = machine.shell("printf 'a\\000\\377\\303'").await;
    assert_eq!(outcome.result["output"], "a\u{fffd}\u{fffd}\u{fffd}");
    let kept = std::fs::read(outcome.result["file"].as_str().expect("a path")).expect("the file");
    assert_eq!(kept, b"a\0\xff\xc3");
}

#[tokio::test]
async fn output_goes_out_while_the_command_runs() {
    let machine = Machine::new();
    let begin = Instant::now();
    let running = machine.shell("echo early; while [ ! -e go ]; do sleep 0.05; done; echo late");
    let watching = async {
        crate::machine::until(std::time::Duration::from_secs(5), || {
            *machine.streamed.lock().expect("no panic") == "early\n"
        })
        .await;
        std::fs::write(machine.at("space/go"), "").expect("written");
    };
    let (outcome, ()) = tokio::join!(running, watching);
    assert_eq!(outcome.result["output"], "early\nlate\n");
    assert!(begin.elapsed().as_secs() < 10);
}

#[tokio::test]
async fn all_that_a_command_put_out_is_read_again() {
    let machine = Machine::new();
    let outcome = machine.shell("seq 100000").await;
    let file = outcome.result["file"].as_str().expect("a file").to_owned();
    machine.tools.kept_results().keep_file("call_1", file.as_ref()).expect("kept");
    let read = |args| machine.call("read_output", args);
    assert_eq!(good(read(json!({ "callId": "call_1", "offset": 99_999 })).await), "99999\n100000");
    let first = good(read(json!({ "callId": "call_1" })).await);
    assert!(
        first.starts_with("1\n2\n") && first.ends_with("\n[more lines follow: continue with offset 2001]"),
        "{first}"
    );
    let unknown = read(json!({ "callId": file })).await;
    assert_eq!(unknown.result["error"]["type"], "not_found");
    let suggestion = unknown.result["error"]["suggestion"].as_str().expect("what to do").to_owned();
    assert!(suggestion.contains("callId") && bad(unknown).contains("no result of a call"), "{suggestion}");
}
