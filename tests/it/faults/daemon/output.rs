//! Commands that print a lot, anything, and characters in pieces (F21).

use std::{io::Read, path::Path, time::Duration};

use board_tests::{Engine, Fixture, eventually, wait::EVENT_TIMEOUT};
use rustix::process::Signal;
use serde_json::Value;

use super::{Spawning, content, kind, number};

const MIB: usize = 1024 * 1024;
/// What the daemon may take at its highest, bytes.
const RSS_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// A MiB of every byte there is, with whole and broken characters at every distance from the blocks of a pipe.
fn block() -> Vec<u8> {
    let mut block = Vec::with_capacity(MIB);
    let mut state = 0x9e37_79b9_u32;
    while block.len() < MIB {
        // Numbers that look random and are the same in every run.
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        block.extend(state.to_be_bytes());
        block.extend("é日🦀\r\n".as_bytes());
        block.extend(&"日".as_bytes()[..2]);
    }
    block.truncate(MIB);
    block
}

/// The most memory that a process has had, bytes.
fn highest_rss(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a running process");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a high-water mark");
    let kib: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    kib * 1024
}

/// Panics unless a file holds `block` so many times and nothing else.
fn holds(path: &Path, block: &[u8], times: usize) {
    let mut file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut read = vec![0; block.len()];
    for n in 0..times {
        file.read_exact(&mut read).unwrap_or_else(|error| panic!("block {n}: {error}"));
        assert!(read == block, "block {n} is not what was printed");
    }
    assert_eq!(file.read(&mut read).expect("a readable file"), 0, "and nothing else");
}

/// What people see of bytes.
fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace('\0', "\u{fffd}")
}

/// The one tool result of a task.
fn result(events: &[Value]) -> Value {
    events.iter().find(|event| kind(event) == "tool-result").expect("a result")["event"]["result"].clone()
}

/// A command prints `blocks` MiB as fast as it can to a daemon that is frozen for a moment.
async fn flood(blocks: usize, limit: Duration) {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    let space = fixture.viber.space();
    let block = block();
    std::fs::write(space.join("block"), &block).expect("a file");
    let command = format!(
        "cat block; echo 1 >progress; while [ ! -e go ]; do sleep 0.02; done; \
         n=1; while [ $n -lt {blocks} ]; do cat block; n=$((n + 1)); echo $n >progress; done"
    );
    let progress = || std::fs::read_to_string(space.join("progress")).ok()?.trim().parse::<usize>().ok();
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(&command))).await;
    eventually("the first block", || async { progress() }).await;

    // Nobody takes it: the command waits with a full pipe.
    fixture.viber.signal(Signal::STOP);
    std::fs::write(space.join("go"), "").expect("a file");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(progress(), Some(1), "a block is more than any pipe holds");
    fixture.viber.signal(Signal::CONT);

    let done = fixture.operator.task_within(limit, &task, "ended", |task| task["endedAt"].is_string()).await;
    assert_eq!(done["state"], "completed", "{done:#}");
    let highest = highest_rss(fixture.viber.pid());
    println!("the daemon's highest resident size: {} KiB", highest / 1024);
    assert!(highest <= RSS_MAX_BYTES, "{highest} bytes");

    let events = fixture.events(&task).await;
    let result = result(&events);
    assert_eq!((number(&result["exitCode"]), number(&result["bytes"])), (0, (blocks * MIB) as u64), "{result}");
    holds(Path::new(result["file"].as_str().expect("the whole output is kept")), &block, blocks);
    let shown = result["output"].as_str().expect("output");
    let (head, tail) = shown.split_once("\n[… ").expect("a cut that is told");
    assert!(readable(&block).starts_with(head) && !head.is_empty());
    let tail = tail.split_once(" …]\n").expect("the end of the cut").1;
    assert!(readable(&block).ends_with(tail) && !tail.is_empty());

    // What was streamed is the beginning, a word about the rest, and the end.
    let streamed = content(&events, "tool-output");
    let (begin, end) = streamed.split_once("\n[… the output goes on").expect("a word about the rest");
    assert!(begin.len() >= MIB, "{} bytes", begin.len());
    let two = readable(&block.repeat(2));
    assert!(two.starts_with(begin), "nothing is lost, doubled or broken in what is shown");
    let end = end.split_once("…]\n").expect("the end of the word").1;
    assert!(two.ends_with(end) && !end.is_empty());
    fixture.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f21_a_flood_of_64_mib_is_held_back_and_kept_whole() {
    flood(64, EVENT_TIMEOUT * 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f21_a_character_cut_in_the_middle_comes_out_whole() {
    let fixture = Fixture::on(Engine::Sqlite).echo_model().with_viber().await;
    // é, 日 and 🦀 with a pause inside of each, and at last one that never ends.
    let pieces = [r"a\303", r"\251b\346", r"\227", r"\245c\360\237", r"\246\200d\n", r"e\346\227"];
    let command = pieces.map(|piece| format!("printf '{piece}'")).join("; sleep 0.15; ");
    let task = fixture.give(&format!("shell {}", fixture.spawns().command(&command))).await;
    assert_eq!(fixture.over(&task).await["state"], "completed");
    let events = fixture.events(&task).await;
    assert_eq!(content(&events, "tool-output"), "aéb日c🦀d\ne\u{fffd}");
    let result = result(&events);
    assert_eq!(result["output"], "aéb日c🦀d\ne\u{fffd}");
    // What is no text is kept as it was.
    let kept = std::fs::read(result["file"].as_str().expect("a file")).expect("kept");
    assert_eq!(kept, "aéb日c🦀d\ne".bytes().chain([0o346, 0o227]).collect::<Vec<_>>());
    eventually("nothing is left", || async { (fixture.spawns().all().len() == 1).then_some(()) }).await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f21_a_flood_of_1_gib_is_held_back_and_kept_whole() {
        flood(1024, Duration::from_secs(300)).await;
    }
}
