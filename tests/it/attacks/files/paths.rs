//! A60, A61: the file tools of a real daemon, asked by a model for what lies outside, is no file, or only looks inside.

use std::{fs, os::unix::fs::symlink};

use board_tests::{
    Board, Engine, Viber,
    board::HOME,
    canary::Canary,
    llm::{Llm, Piece, Reply},
    tasks::id,
};
use serde_json::{Value, json};

use super::{Pipe, tree};

/// Calls that the model makes at once.
const CALLS_AT_ONCE: usize = 8;

/// Plays one task in which a model makes all these calls; answers what each came back with.
async fn play(viber: &mut Viber, calls: &[(&str, Value)]) -> (Vec<(bool, String)>, String) {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let steps = calls.chunks(CALLS_AT_ONCE).enumerate().map(|(step, calls)| {
        let call =
            |(n, (tool, args)): (usize, &(&str, Value))| Piece::call(&format!("c{step}-{n}"), tool, args.clone());
        Reply::Stream(calls.iter().enumerate().map(call).collect())
    });
    let llm = Llm::start(steps.chain([Reply::text("that was all")])).await;
    viber.enrol(&board).await;
    viber.use_scripted_model(&llm, "openai");
    viber.write("agents/default.yaml", &viber.agent("mode: always_execute\nmaxSteps: 60\n"));
    viber.run();
    viber.connected(&operator).await;
    let task = operator.submit(&viber.id(&operator).await, "look around").await;
    let ended = operator.task_that(id(&task, "id"), "ended", |task| task["endedAt"].is_string()).await;
    assert_eq!(ended["state"], "completed", "{ended:#}");
    let messages = operator.messages(id(&task, "sessionId")).await;
    let parts = messages.last().and_then(|message| message["parts"].as_array().cloned()).expect("parts");
    let result = |n: usize| {
        let call = format!("c{}-{}", n / CALLS_AT_ONCE, n % CALLS_AT_ONCE);
        let found = parts.iter().find(|part| part["type"] == "tool-result" && part["callId"] == call.as_str());
        let part = found.unwrap_or_else(|| panic!("no result of {call} in {parts:#?}"));
        (part["ok"] == true, part["result"].to_string())
    };
    let results = (0..calls.len()).map(result).collect();
    let seen = operator.events(id(&task, "id")).await;
    let all = format!("{}{:?}", serde_json::to_string(&seen).expect("JSON"), llm.requests());
    board.assert_invariants().await;
    (results, all)
}

#[tokio::test]
async fn a60_a_path_that_leads_out_or_to_no_file_is_refused_unopened() {
    let mut viber = Viber::fresh("lab");
    let secret = Canary::new("a file outside");
    let (root, space) = (viber.root().to_owned(), viber.space());
    for folder in ["outside", "space/src", "home/secrets"] {
        fs::create_dir_all(root.join(folder)).expect("folders");
    }
    for file in ["outside/secret", "home/secrets/other", "home/.env"] {
        fs::write(root.join(file), &secret.secret).expect("a file");
    }
    fs::write(space.join("src/inside.txt"), "inside").expect("a file");
    for (link, to) in [
        ("shadow", "/etc/shadow".into()),
        ("passwd", "/etc/passwd".into()),
        ("environ", "/proc/self/environ".into()),
        ("zero", "/dev/zero".into()),
        ("out", root.join("outside/secret").display().to_string()),
        ("out-relative", "../outside/secret".into()),
        ("folder", root.join("outside").display().to_string()),
        ("chain", "out-relative".into()),
        ("loop", "loop".into()),
        ("root", "/".into()),
    ] {
        symlink(to, space.join(link)).expect("a link");
    }
    let pipes = [
        Pipe::create(&space.join("pipe")),
        Pipe::create(&space.join("src/pipe.txt")),
        // Where the daemon itself reads: an agent's file, what shapes a prompt, a provider's key.
        Pipe::create(&viber.home().join("agents/pipe.yaml")),
        Pipe::create(&viber.home().join("workspace/SOUL.md")),
        Pipe::create(&viber.home().join("agents/default/MEMORY.md")),
        Pipe::create(&viber.home().join("secrets/openai")),
    ];
    symlink(space.join("pipe"), space.join("to-pipe")).expect("a link");
    let _socket = std::os::unix::net::UnixListener::bind(space.join("socket")).expect("a socket");

    let absolute = |path: &str| root.join(path).display().to_string();
    let mut paths: Vec<String> = [
        "../../etc/passwd",
        "../outside/secret",
        "../../../../../../../../etc/shadow",
        "src/../../outside/secret",
        "/etc/passwd",
        "//etc/passwd",
        "%2e%2e%2foutside%2fsecret",
        "..%2foutside%2fsecret",
        "%252e%252e%252foutside%252fsecret",
        "..%c0%af..%c0%afetc/passwd",
        "..\\outside\\secret",
        "....//outside/secret",
        "..;/outside/secret",
        "src/inside.txt\0.png",
        "../outside/secret\0",
        "shadow",
        "passwd",
        "environ",
        "zero",
        "out",
        "out-relative",
        "folder/secret",
        "chain",
        "loop",
        "root/etc/passwd",
        "/proc/self/environ",
        "/proc/self/cwd/../outside/secret",
        "/proc/self/root/etc/passwd",
        "/dev/zero",
        "/dev/stdin",
        "/dev/fd/0",
        "pipe",
        "to-pipe",
        "src/pipe.txt",
        "socket",
        "src",
        ".",
        "..",
        "/",
        "",
        "~/outside/secret",
        "file:///etc/passwd",
        "\u{2024}\u{2024}/outside/secret",
        "\u{ff0e}\u{ff0e}/outside/secret",
    ]
    .map(str::to_owned)
    .into();
    paths.extend(
        ["outside/secret", "home/.env", "home/secrets/other", "home/config.yaml", "home/state/credential"]
            .map(absolute),
    );
    paths.push(format!("{}/../outside/secret", space.display()));
    let mut calls: Vec<(&str, Value)> = paths.iter().map(|path| ("read_file", json!({"path": path}))).collect();
    for path in
        ["../outside/new", "folder/new", "out", "pipe", "/etc/new-by-viber", "home/x", "root/tmp/new-by-viber", "src"]
    {
        calls.push(("write_file", json!({"path": path, "content": "overwritten"})));
        calls.push(("edit_file", json!({"path": path, "oldText": "a", "newText": "overwritten"})));
    }
    calls.retain(|(tool, args)| *tool == "read_file" || args["path"] != "home/x");
    for path in ["../outside", "/etc", "folder", "root", "/proc/self", absolute("home/secrets").as_str()] {
        calls.push(("list_files", json!({"path": path})));
        calls.push(("grep", json!({"pattern": "canary", "path": path})));
        calls.push(("glob", json!({"pattern": "**/*", "path": path})));
    }
    let refused = calls.len();
    // And what walks through the space meets pipes, links and a socket there.
    for (tool, args) in [
        ("grep", json!({"pattern": "canary|inside|root:"})),
        ("glob", json!({"pattern": "**/*"})),
        ("list_files", json!({"depth": 5})),
        ("glob", json!({"pattern": "../**/*"})),
        ("read_file", json!({"path": "src/inside.txt"})),
    ] {
        calls.push((tool, args));
    }
    let before = tree(&root, &["home"]);
    let passwd = fs::read_to_string("/etc/passwd").expect("a file");
    let first = passwd.lines().next().expect("a line").to_owned();

    let (results, all) = play(&mut viber, &calls).await;
    for ((tool, args), (ok, text)) in calls.iter().zip(&results).take(refused) {
        assert!(!ok, "{tool} {args}: {text}");
        secret.not_in(&format!("{tool} {args}"), text);
        assert!(!text.contains(&first) && !text.contains("OPENVIBER_HOME"), "{tool} {args}: {text}");
        assert!(text.len() < 2000, "{tool} {args}: {} bytes", text.len());
    }
    for path in ["../../etc/passwd", "/etc/passwd", "/dev/zero", "shadow", "out", "chain", "..", "/proc/self/environ"] {
        let at = calls.iter().position(|(_, args)| args["path"] == path).expect("a call");
        assert!(results[at].1.contains("forbidden path"), "{path}: {}", results[at].1);
    }
    assert!(results.last().is_some_and(|(ok, text)| *ok && text.contains("inside")), "{:?}", results.last());
    secret.not_in("events or prompts", &all);
    assert!(!all.contains(&first), "a line of /etc/passwd got out");
    for pipe in &pipes {
        pipe.was_never_opened();
    }
    assert_eq!(tree(&root, &["home"]), before, "nothing was written");
    assert!(!std::path::Path::new("/etc/new-by-viber").exists() && !std::path::Path::new("/tmp/new-by-viber").exists());
}

#[tokio::test]
async fn a61_a_sibling_with_the_same_beginning_is_outside() {
    let mut viber = Viber::fresh("lab");
    let secret = Canary::new("a file of the neighbour");
    let root = viber.root().to_owned();
    for sibling in ["space-evil", "space.bak", "spaces", "space evil"] {
        fs::create_dir_all(root.join(sibling)).expect("a folder");
        fs::write(root.join(sibling).join("x"), &secret.secret).expect("a file");
        symlink(root.join(sibling), viber.space().join(format!("to-{sibling}"))).expect("a link");
    }
    fs::write(root.join("spacefile"), &secret.secret).expect("a file");
    let mut calls = Vec::new();
    for sibling in ["space-evil", "space.bak", "spaces", "space evil"] {
        let whole = root.join(sibling).display().to_string();
        for path in [format!("../{sibling}"), whole.clone(), format!("to-{sibling}"), format!("{whole}/../{sibling}")] {
            calls.push(("read_file", json!({"path": format!("{path}/x")})));
            calls.push(("write_file", json!({"path": format!("{path}/new"), "content": "x"})));
            calls.push(("list_files", json!({"path": path})));
            calls.push(("grep", json!({"pattern": "canary", "path": path})));
        }
    }
    calls.push(("read_file", json!({"path": root.join("spacefile").display().to_string()})));
    calls.push(("read_file", json!({"path": format!("{}file", viber.space().display())})));
    calls.push(("read_file", json!({"path": format!("{}-evil/x", viber.space().display())})));
    let before = tree(&root, &["home"]);
    let (results, all) = play(&mut viber, &calls).await;
    for ((tool, args), (ok, text)) in calls.iter().zip(&results) {
        assert!(!ok && text.contains("forbidden path"), "{tool} {args}: {text}");
    }
    secret.not_in("events or prompts", &all);
    assert_eq!(tree(&root, &["home"]), before, "nothing was written");
}
