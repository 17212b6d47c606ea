//! What an agent's command reaches that it was not given: tried from inside, judged from outside, with the whole sandbox
//! and with each of its layers taken away, as root and as an ordinary user.

mod baited;
mod table;

use std::collections::BTreeMap;

pub use baited::base;
use baited::{As, Came, Escape, Layers};
use board_tests::{canary::Canary, eventually, llm::Reply};
use serde_json::json;
use table::{ESCAPES, EVER, Group};

/// Tries everything as everybody, where at most these layers are there.
async fn tried(layers: Layers, network: &str) {
    for who in As::possible() {
        let mut escape = Escape::from(*who, layers, network).await;
        let names: Vec<&str> = ESCAPES.iter().map(|(name, ..)| *name).collect();
        let came = escape.try_all(&names).await;
        // The kernel may have fewer than are asked for.
        let there = escape.layers().await;
        note(*who, there, &came);
        let wrong: Vec<String> = wrong(*who, there, &came);
        assert!(wrong.is_empty(), "{who:?} with {there:?}:\n{}", wrong.join("\n"));
        let words = escape.words().await;
        let lies: Vec<String> = lies(&words, &came);
        assert!(lies.is_empty(), "{who:?} with {there:?} the page says {words:?}:\n{}", lies.join("\n"));
        escape.end().await;
    }
}

/// What was reached although the table says that it is kept.
fn wrong(who: As, layers: Layers, came: &BTreeMap<String, Came>) -> Vec<String> {
    let one = |(name, group, root, ordinary): &(&str, Group, u8, u8)| {
        let by = if who == As::Root { *root } else { *ordinary };
        let kept = by & (layers.0 | EVER) != 0;
        let came = &came[*name];
        (kept && came.reached.is_some()).then(|| format!("{name} ({group:?}): {came:?}"))
    };
    ESCAPES.iter().filter_map(one).collect()
}

/// What was reached although the page says that it is kept.
fn lies(words: &BTreeMap<String, String>, came: &BTreeMap<String, Came>) -> Vec<String> {
    let one = |(name, group, ..): &(&str, Group, u8, u8)| {
        let said = words.get(group.word()?)?;
        let came = &came[*name];
        (said == "kept" && came.reached.is_some()).then(|| format!("{name} ({group:?}): {came:?}"))
    };
    ESCAPES.iter().filter_map(one).collect()
}

/// What came of everything, for whoever wants to read it: appended to the file that `ESCAPE_MATRIX` names.
fn note(who: As, layers: Layers, came: &BTreeMap<String, Came>) {
    let Some(path) = std::env::var_os("ESCAPE_MATRIX") else { return };
    let line = |(name, group, ..): &(&str, Group, u8, u8)| {
        let Came { reached, said } = &came[*name];
        format!("{who:?}|{}|{group:?}|{name}|{}|{said}\n", layers.0, reached.as_deref().unwrap_or("-"))
    };
    let text: String = ESCAPES.iter().map(line).collect();
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    std::io::Write::write_all(&mut file.expect("a file"), text.as_bytes()).expect("written");
}

/// The tries that ask the daemon for something at its own socket.
const COMMANDING: [&str; 4] = [
    "command-the-daemon",
    "command-the-daemon-by-a-dead-peer",
    "command-the-daemon-by-its-program",
    "read-the-sockets-key",
];

/// Whatever is taken away: an agent's command starts nothing at the daemon's socket, and its user does.
async fn nobody_commands(layers: Layers) {
    for who in As::possible() {
        let mut escape = Escape::from(*who, layers, "open").await;
        let key = Canary::of("the socket's key", escape.key().trim());
        let came = escape.try_all(&COMMANDING).await;
        let reached: Vec<_> = COMMANDING[..3].iter().filter(|name| came[**name].reached.is_some()).collect();
        assert!(reached.is_empty(), "{who:?} with {layers:?}: {reached:?} of {came:#?}");
        if layers.0 & (Layers::NAMESPACES | Layers::LANDLOCK) != 0 {
            assert!(came["read-the-sockets-key"].reached.is_none(), "{who:?} with {layers:?}: {came:#?}");
        }
        assert_eq!(escape.begun(), 1, "no task but the operator's began");
        // Somebody else of the same machine, who cannot show the key; then the user, who can.
        for shown in ["", "null", "\"\"", "\"0000\"", &json!(format!("{}0", key.secret)).to_string()] {
            let answer = escape.ask(shown, &json!({ "op": "status" }));
            assert!(answer.contains("refused") && !answer.contains("running"), "{shown}: {answer}");
        }
        let answer = escape.ask(&json!(key.secret).to_string(), &json!({ "op": "status" }));
        assert!(answer.contains("running"), "{answer}");
        escape.fixture.viber.cli(&["status"]).await.good();
        escape.fixture.llm.script([Reply::text("by the user")]);
        let said = escape.fixture.viber.cli(&["task", "--agent", "other", "do it"]).await.good();
        assert!(said.contains("by the user"), "{said}");
        key.not_in("the daemon's log", &escape.fixture.viber.log());
        key.not_below(&escape.fixture.viber.root().join("home"), |file| file.ends_with("state/daemon.key"));
        escape.fixture.viber.stop().await;
        assert!(!escape.fixture.viber.home().join("state/daemon.key").exists(), "it lives as long as the daemon");
        escape.fixture.viber.run();
        eventually("it listens again", async || {
            escape.fixture.viber.home().join("state/daemon.sock").exists().then_some(())
        })
        .await;
        assert_ne!(escape.key().trim(), key.secret, "a new one for every start");
        escape.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a130_only_its_user_commands_the_daemon() {
    nobody_commands(Layers::ALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a130_only_its_user_commands_it_whatever_is_missing() {
    for layers in [6, 5, 3, 0] {
        nobody_commands(Layers(layers)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a131_nothing_is_reached_with_the_whole_sandbox() {
    tried(Layers::ALL, "open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a132_without_namespaces() {
    tried(Layers(Layers::LANDLOCK | Layers::SECCOMP), "open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a133_without_landlock() {
    tried(Layers(Layers::NAMESPACES | Layers::SECCOMP), "open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a134_without_a_filter_of_calls() {
    tried(Layers(Layers::NAMESPACES | Layers::LANDLOCK), "open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a135_without_any_layer() {
    tried(Layers::NONE, "open").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a136_without_the_network() {
    tried(Layers::ALL, "none").await;
}
