//! The file and search tools as a model uses them.

use daemon_agent::config::toolset;
use serde_json::json;

use crate::machine::{Machine, bad, good};

#[tokio::test]
async fn a_file_is_written_read_in_parts_and_edited() {
    let machine = Machine::new();
    let text: String = (1..=3000).map(|n| format!("line {n}\n")).collect();
    let told = good(machine.call("write_file", json!({ "path": "docs/a.txt", "content": text })).await);
    assert!(told.starts_with("Created docs/a.txt (3000 lines"), "{told}");
    let read = good(machine.call("read_file", json!({ "path": "docs/a.txt" })).await);
    assert!(read.starts_with("     1\tline 1\n") && read.ends_with("[more lines follow: continue with offset 2001]"));
    let read = good(machine.call("read_file", json!({ "path": "docs/a.txt", "offset": 2999, "limit": 5 })).await);
    assert_eq!(read, "  2999\tline 2999\n  3000\tline 3000");
    assert!(
        bad(machine.call("read_file", json!({ "path": "docs/a.txt", "offset": 4000 })).await)
            .contains("only 3000 lines")
    );

    let edit = json!({ "path": "docs/a.txt", "oldText": "line 42\n", "newText": "the answer\n" });
    let told = good(machine.call("edit_file", edit.clone()).await);
    assert!(told.contains("    42\tthe answer"), "{told}");
    assert!(bad(machine.call("edit_file", edit).await).contains("not found"));
    let many = json!({ "path": "docs/a.txt", "oldText": "line 1", "newText": "row 1" });
    assert!(bad(machine.call("edit_file", many).await).contains("set all"));
    let on_disk = std::fs::read_to_string(machine.at("space/docs/a.txt")).expect("there");
    assert_eq!(on_disk, text.replace("line 42\n", "the answer\n"));
}

#[tokio::test]
async fn a_call_does_what_it_was_looked_at_for_or_nothing() {
    let machine = Machine::new();
    let at = |name: &str| machine.at("space").join(name);
    std::fs::write(at("kept"), "old").expect("written");
    std::fs::create_dir(at("one")).expect("a folder");
    std::fs::create_dir(at("two")).expect("a folder");
    std::fs::write(at("two/secret"), "pin").expect("written");
    std::fs::write(at("one/secret"), "public").expect("written");
    std::os::unix::fs::symlink("one", at("way")).expect("a link");
    // Each call as it is looked at, then what somebody does meanwhile, and then the call.
    let calls = [
        ("write_file", json!({ "path": "new", "content": "mine" })),
        ("write_file", json!({ "path": "kept", "content": "mine" })),
        ("edit_file", json!({ "path": "kept", "oldText": "old", "newText": "new" })),
        ("write_file", json!({ "path": "way/file", "content": "mine" })),
        ("read_file", json!({ "path": "way/secret" })),
        ("list_files", json!({ "path": "way" })),
        ("shell", json!({ "command": "touch here", "cwd": "way" })),
    ];
    let mut looked_at = Vec::new();
    for (tool, args) in &calls {
        looked_at.push(machine.tools.propose(tool, args).await.expect("possible").bounds());
    }
    std::fs::write(at("new"), "theirs").expect("written");
    std::fs::write(at("kept"), "old, and theirs").expect("written");
    std::fs::remove_file(at("way")).expect("removed");
    std::os::unix::fs::symlink("two", at("way")).expect("a link");
    for ((tool, args), bounds) in calls.iter().zip(&looked_at) {
        let why = bad(machine.tools.call("call_1", tool, args, Some(bounds)).await);
        assert!(why.contains("meanwhile") || why.contains("nobody decided about"), "{tool} {args}: {why}");
        assert!(!why.contains("pin"), "{why}");
    }
    assert_eq!(std::fs::read_to_string(at("new")).expect("there"), "theirs");
    assert_eq!(std::fs::read_to_string(at("kept")).expect("there"), "old, and theirs");
    let names = |folder: &str| std::fs::read_dir(at(folder)).expect("a folder").count();
    assert_eq!((names("one"), names("two"), names(".")), (1, 1, 5), "nothing is left behind");
    // Looked at again, each is made.
    // The last first: what is edited is still there.
    for (tool, args) in calls.iter().rev() {
        let bounds = machine.tools.propose(tool, args).await.expect("possible").bounds();
        let done = machine.tools.call("call_1", tool, args, Some(&bounds)).await;
        assert!(done.ok, "{tool} {args}: {done:?}");
    }
}

#[tokio::test]
async fn a_file_too_large_to_be_looked_at_is_not_decided_about() {
    let machine = Machine::new();
    let holes = std::fs::File::create(machine.at("space/holes")).and_then(|file| file.set_len(1 << 40));
    holes.expect("a large file");
    let args = json!({ "path": "holes", "content": "mine" });
    let began = std::time::Instant::now();
    let refused = machine.tools.propose("write_file", &args).await.expect_err("too large");
    assert!(refused.message.contains("at most 67108864"), "{refused:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(5));
}

#[tokio::test]
async fn what_cannot_be_read_is_said() {
    let machine = Machine::new();
    std::fs::write(machine.at("space/binary"), b"\x7fELF\0\0").expect("written");
    std::fs::write(machine.at("space/empty"), b"").expect("written");
    assert!(bad(machine.call("read_file", json!({ "path": "binary" })).await).contains("binary file of 6 bytes"));
    assert_eq!(good(machine.call("read_file", json!({ "path": "empty" })).await), "(the file is empty)");
    assert!(bad(machine.call("read_file", json!({ "path": "nowhere" })).await).contains("does not exist"));
    assert!(
        bad(machine.call("read_file", json!({ "path": "../home/secrets/openai" })).await).contains("forbidden path")
    );
    assert!(bad(machine.call("read_file", json!({ "file": "x" })).await).contains("\"file\""));
    assert!(
        bad(machine.call("edit_file", json!({ "path": "binary", "oldText": "E", "newText": 5 })).await)
            .contains("\"newText\"")
    );
    assert!(
        bad(machine.call("write_file", json!({ "path": "/etc/x", "content": "" })).await).contains("forbidden path")
    );
}

#[tokio::test]
async fn searching_obeys_ignore_files_and_never_leaves() {
    let machine = Machine::new();
    let space = machine.at("space");
    for folder in ["src/deep", "target", ".git", "docs", ".github"] {
        std::fs::create_dir_all(space.join(folder)).expect("a folder");
    }
    for (file, text) in [
        ("src/main.rs", "fn main() {\n    needle();\n}\n"),
        ("src/deep/lib.rs", "// NEEDLE here\n"),
        ("target/out.rs", "needle\n"),
        (".git/config", "needle\n"),
        (".github/ci.yml", "needle: yes\n"),
        ("docs/guide.md", "no such thing\n"),
        (".gitignore", "/target\n*.log\n"),
        ("src/debug.log", "needle\n"),
        ("src/deep/.ignore", "!keep.log\n"),
        ("src/deep/keep.log", "needle kept\n"),
    ] {
        std::fs::write(space.join(file), text).expect("written");
    }
    std::os::unix::fs::symlink(machine.at("home"), space.join("link")).expect("a link");
    std::fs::write(space.join("blob"), b"needle\0").expect("written");
    rustix::fs::mknodat(rustix::fs::CWD, space.join("docs/.gitignore"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .expect("a pipe");

    let found = good(machine.call("grep", json!({ "pattern": "needle" })).await);
    assert_eq!(found, ".github/ci.yml:1:needle: yes\nsrc/main.rs:2:    needle();\nsrc/deep/keep.log:1:needle kept");
    let found = good(
        machine.call("grep", json!({ "pattern": "needle", "glob": "*.rs", "ignoreCase": true, "path": "src" })).await,
    );
    assert_eq!(found, "src/main.rs:2:    needle();\nsrc/deep/lib.rs:1:// NEEDLE here");
    let found = good(machine.call("grep", json!({ "pattern": "SECRET", "path": "." })).await);
    assert_eq!(found, "no line matches");
    assert!(bad(machine.call("grep", json!({ "pattern": "SECRET", "path": "link" })).await).contains("forbidden path"));
    assert!(bad(machine.call("grep", json!({ "pattern": "(" })).await).contains("\"pattern\""));

    assert_eq!(good(machine.call("glob", json!({ "pattern": "*.rs" })).await), "src/main.rs\nsrc/deep/lib.rs");
    assert_eq!(good(machine.call("glob", json!({ "pattern": "src/*.{rs,md}" })).await), "src/main.rs");
    assert_eq!(good(machine.call("glob", json!({ "pattern": "nothing" })).await), "no file matches");
    assert!(bad(machine.call("glob", json!({ "pattern": "a[" })).await).contains("\"pattern\""));

    let listed = good(machine.call("list_files", json!({})).await);
    assert_eq!(listed, ".git/\n.github/\n.gitignore\nblob\ndocs/\nlink@\nsrc/\ntarget/");
    let listed = good(machine.call("list_files", json!({ "path": "src", "depth": 2 })).await);
    assert_eq!(listed, "debug.log\ndeep/\nmain.rs\ndeep/.ignore\ndeep/keep.log\ndeep/lib.rs");
    assert!(bad(machine.call("list_files", json!({ "depth": 11 })).await).contains("\"depth\""));
}

#[tokio::test]
async fn large_answers_are_bounded_and_say_so() {
    let machine = Machine::new();
    let text: String = (0..50_000).map(|n| format!("needle {n}\n")).collect();
    std::fs::write(machine.at("space/many.txt"), text).expect("written");
    for n in 0..1200 {
        std::fs::write(machine.at("space").join(format!("file-{n:04}.txt")), "").expect("written");
    }
    for (tool, args) in [
        ("grep", json!({ "pattern": "needle" })),
        ("glob", json!({ "pattern": "*.txt" })),
        ("list_files", json!({})),
        ("read_file", json!({ "path": "many.txt" })),
    ] {
        let answer = good(machine.call(tool, args).await);
        assert!(
            answer.contains("[more ") && answer.len() <= protocol::limits::MAX_TOOL_TEXT_BYTES,
            "{tool}: {}",
            answer.len()
        );
    }
}

#[test]
fn a_model_is_offered_what_the_agent_may_use() {
    let machine = Machine::new();
    let names: Vec<_> = machine.tools.specs().into_iter().map(|spec| spec.name.into_owned()).collect();
    // The plan and the memory belong to a session, which this machine does not have, and the mesh to agents that call others.
    let of_a_session = ["update_plan", "remember", "search_memory"];
    let all =
        toolset::ALL_TOOLS.iter().filter(|name| !of_a_session.contains(name) && !toolset::MESH_TOOLS.contains(name));
    assert_eq!(names, all.copied().collect::<Vec<_>>());
}
