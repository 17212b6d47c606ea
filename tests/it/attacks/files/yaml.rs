//! A66: agent files that are made to hurt whoever reads them.

use board_tests::{Board, Engine, Viber, board::HOME, eventually};
use daemon_agent::{
    config::{ConfigSnapshot, Variables},
    home::Home,
};
use protocol::ConfigError;

const MIB: u64 = 1024 * 1024;

/// Each hostile file, by what it does.
fn hostile() -> Vec<(&'static str, String)> {
    let mut bomb = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for n in 1..=9 {
        let all = vec![format!("*a{}", n - 1); 10].join(", ");
        bomb.push_str(&format!("a{n}: &a{n} [{all}]\n"));
    }
    let bomb_of_text = format!("name: &x {}\ndescription: [{}]\n", "x".repeat(10_000), vec!["*x"; 10_000].join(", "));
    let agent = |more: &str| format!("name: Default\nmodel: demo/tour\n{more}\n");
    vec![
        ("alias bomb", agent(&bomb)),
        ("alias bomb in a known key", agent(&bomb.replace("a9: ", "tools: "))),
        ("alias bomb of text", bomb_of_text),
        ("alias of itself", agent("tools: &a [*a]")),
        ("merge of itself", "&a\n<<: *a\nname: x\n".to_owned()),
        ("a scalar of 1 MB", agent(&format!("systemPrompt: {}", "x".repeat(1_000_000)))),
        ("a quoted scalar of 1 MB", agent(&format!("description: \"{}\"", "\\u0041".repeat(170_000)))),
        ("a block of 1 MB", agent(&format!("systemPrompt: |\n{}", "  x\n".repeat(250_000)))),
        ("a key of 1 MB", agent(&format!("? {}\n: x", "k".repeat(1_000_000)))),
        ("duplicate keys", agent("model: demo/other")),
        ("duplicate keys below", agent("limits: { steps: 1, steps: 2 }")),
        ("an unknown tag", agent("description: !evil x")),
        ("a tag of Python", agent("description: !!python/object/apply:os.system [\"touch pwned\"]")),
        ("a tag of Ruby", agent("description: !ruby/object:Gem::Installer {}")),
        ("a tag of Java", agent("description: !!javax.script.ScriptEngineManager [x]")),
        ("the key y", agent("y: x")),
        ("the key n", agent("n: x")),
        ("the key on", agent("on: x")),
        ("the key yes", agent("yes: x")),
        ("the key true", agent("true: x")),
        ("the key null", agent("null: x")),
        ("a number as key", agent("1: x")),
        ("a list as key", agent("? [a, b]\n: x")),
        ("y for a number", agent("maxSteps: y")),
        ("on for a number", agent("maxSteps: on")),
        ("sexagesimals", agent("maxSteps: 1:30")),
        ("an endless number", agent(&format!("maxSteps: {}", "9".repeat(100_000)))),
        ("not a number", agent("temperature: .nan")),
        ("infinity", agent("temperature: .inf")),
        ("deep lists", agent(&format!("tools: {}", "[".repeat(100_000)))),
        ("deep maps", agent(&format!("limits: {}", "{a: ".repeat(50_000)))),
        ("deep blocks", (0..3000).map(|n| format!("{}a:\n", " ".repeat(n))).collect()),
        ("100,000 keys", agent(&(0..100_000).map(|n| format!("k{n}: 1\n")).collect::<String>())),
        ("many documents", "--- a\n".repeat(10_000)),
        ("a second document", agent("---\nname: other")),
        ("only anchors", (0..10_000).map(|n| format!("k{n}: &a{n} x\n")).collect()),
        ("a NUL", agent("description: \"a\0b\"")),
        ("control characters", agent("description: \"a\u{1b}[2Jb\"\u{7}")),
        ("no UTF-8's twin", agent("name2: \u{fffe}\u{ffff}")),
        ("a directive", "%YAML 99.9\n---\nname: x\nnaem: y\n".to_owned()),
        ("tabs", agent("\tname: x")),
        ("nothing but a colon", ":\n".to_owned()),
        ("a list", "- name: x\n".to_owned()),
        ("a text", "just words\n".to_owned()),
    ]
}

/// What it cost this thread so far: nanoseconds of processor (proc(5), `schedstat`).
fn processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("a Linux machine");
    text.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
}

fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a Linux machine");
    let found = status.lines().find_map(|text| text.strip_prefix(line)).expect("a line");
    found.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Reads a home with this one agent; its error, the nanoseconds and the bytes that the process grew by.
fn read(text: &[u8]) -> (Option<ConfigError>, u64, u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::at(folder.path());
    home.open().expect("a home");
    std::fs::write(home.agents().join("default.yaml"), text).expect("a file");
    // What the process has needed most so far is forgotten (proc(5), `clear_refs`).
    std::fs::write("/proc/self/clear_refs", "5").expect("one's own");
    let (began, grown) = (processor(), memory("VmRSS:"));
    let snapshot = ConfigSnapshot::read(&home, &Variables::of([]));
    let (took, grown) = (processor() - began, memory("VmHWM:").saturating_sub(grown));
    (snapshot.errors().first().map(|error| (*error).clone()), took, grown)
}

#[test]
fn a66_hostile_yaml_is_an_error_at_little_cost() {
    let (good, _, _) = read(b"name: Default\nmodel: demo/tour\n");
    assert_eq!(good, None);
    for (what, text) in hostile() {
        let (error, took, grown) = read(text.as_bytes());
        let error = error.unwrap_or_else(|| panic!("{what} was taken"));
        assert_eq!(error.file, "agents/default.yaml", "{what}");
        assert!(!error.message.is_empty() && error.message.len() < 4096, "{what}: {} bytes", error.message.len());
        assert!(took <= 1_000_000_000, "{what}: {} ms", took / 1_000_000);
        assert!(grown <= 32 * MIB, "{what}: {} MiB", grown / MIB);
    }
    let (error, ..) = read(b"name: \xff\xfe\n");
    assert!(error.is_some_and(|error| error.message.contains("UTF-8")));
}

#[tokio::test]
async fn a66_a_daemon_shows_hostile_files_and_goes_on() {
    let board = Board::start(Engine::Sqlite).await;
    let operator = board.token(HOME, "operator").await;
    let mut viber = Viber::join(&board, "lab").await;
    let all = hostile();
    for (n, (_, text)) in all.iter().enumerate() {
        viber.write(&format!("agents/bad-{n}.yaml"), text);
    }
    let path = format!("/api/v1/vibers/{}", viber.id(&operator).await);
    let agents = eventually("all are shown as broken", || async {
        let found = operator.get(&path).await.expect(200).json()["agents"].as_array().cloned().unwrap_or_default();
        let broken = found.iter().filter(|agent| agent["error"]["message"].is_string()).count();
        (broken == all.len()).then_some(found)
    })
    .await;
    let fine = agents.iter().find(|agent| agent["id"] == "default").expect("the default agent");
    assert_eq!(fine["error"], serde_json::Value::Null, "{fine:#}");
    let owner = board.owner().await;
    let page = owner.page(&format!("/t/{HOME}/vibers/{}", viber.id(&operator).await)).await.expect(200).body;
    assert!(page.contains("bad-0") && !page.contains("\u{1b}"), "the page names them");
    assert!(!viber.root().join("pwned").exists() && !viber.home().join("pwned").exists());
    let said = viber.cli(&["config", "validate"]).await;
    assert_ne!(said.code(), 0);
    assert!(said.out.contains("bad-0.yaml") || said.err.contains("bad-0.yaml"), "{said:?}");
    assert!(viber.alive());
    board.assert_invariants().await;
}
