//! The workspace of a real daemon: a folder of 10,000 files listed, an edit on its disk until an open page shows it, and
//! 10,000 entries of daily logs searched.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    Scale,
    load::Latencies,
    proc::Watch,
    report::{Bound, Measured},
    stage::Stage,
};
use crate::{
    board::HOME,
    fake_board::{Behaviour, FakeBoard},
    viber::Viber,
    wait::within,
};

const FILES: usize = 10_000;
const LISTINGS: usize = 20;
const EDITS: usize = 60;
const ENTRIES: usize = 10_000;
/// Entries of one day.
const ENTRIES_EACH_DAY: usize = 10;
const SEARCHES: usize = 300;
/// Longest that an index may take.
const INDEX_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let stage = Stage::set(0, 1).await;
    let viber = Viber::join(&stage.board, "lab").await;
    let owner = stage.board.owner().await;
    let id = viber.id(&owner).await;
    let workspace = viber.home().join("workspace");
    let many = workspace.join("many");
    std::fs::create_dir(&many).expect("a folder");
    let files = scale.count(FILES, 2_500);
    for n in 0..files {
        std::fs::write(many.join(format!("note-{n:05}.md")), format!("# {n}\n")).expect("a file");
    }
    // The watcher tells of all of them first: what is measured is not that.
    tokio::time::sleep(scale.seconds(20)).await;
    let folder = format!("/api/v1/vibers/{id}/workspace?path=many");
    let page = format!("/t/{HOME}/vibers/{id}/files/many/");
    let watch = stage.watch().await;
    let (mut whole, mut first, mut shown) = (Latencies::default(), Latencies::default(), Latencies::default());
    for _ in 0..scale.count(LISTINGS, 5) {
        let began = Instant::now();
        let (mut cursor, mut seen) = (String::new(), 0);
        loop {
            let asked = Instant::now();
            let answer = owner.get(&format!("{folder}{cursor}")).await.expect(200).json();
            if seen == 0 {
                first.push(asked.elapsed());
            }
            seen += answer["items"].as_array().map_or(0, Vec::len);
            match answer["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen, files, "all are listed");
        whole.push(began.elapsed());
        let began = Instant::now();
        owner.page(&page).await.expect(200);
        shown.push(began.elapsed());
    }
    let listed = watch.stop(stage.commits().await);

    let file = workspace.join("live.md");
    std::fs::write(&file, "before").expect("a file");
    let path = format!("/t/{HOME}/vibers/{id}/files/live.md");
    let html = owner.page(&path).await.expect(200).body;
    let address = html.split("data-stream=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a stream");
    let mut stream = owner.stream(&address.replace("&#38;", "&"), None).await;
    let watch = stage.watch().await;
    let mut edits = Latencies::default();
    for n in 0..scale.count(EDITS, 10) {
        let word = format!("edit number {n}.");
        std::fs::write(&file, &word).expect("a file");
        let began = Instant::now();
        loop {
            let frame = stream.next().await.expect("an open stream");
            if frame.event == "region" && frame.data.contains(&word) {
                break;
            }
        }
        edits.push(began.elapsed());
        // Not in step with the page's own pace.
        tokio::time::sleep(Duration::from_millis(37 * (n as u64 % 11))).await;
    }
    let spent = watch.stop(stage.commits().await);
    vec![
        Measured::new(format!("workspace, {files} files in a folder"), "listing", whole.len(), listed)
            .figure("all of them p95, API", whole.ms(95.0), "ms", Bound::AtMost(200.0))
            .figure("the first 2,000 p95, API", first.ms(95.0), "ms", None)
            .figure("page p95", shown.ms(95.0), "ms", Bound::AtMost(200.0))
            .note("by a real daemon; a page shows the first 2,000"),
        Measured::new("an edit on the disk, in an open page", "edit", edits.len(), spent)
            .figure("p50", edits.ms(50.0), "ms", None)
            .figure("p95", edits.ms(95.0), "ms", Bound::AtMost(1000.0))
            .note("from the end of the write to the page's stream"),
    ]
}

/// Words that entries are made of: common ones come often, rare ones seldom.
const WORDS: &[&str] = &[
    "task",
    "build",
    "test",
    "release",
    "invoice",
    "server",
    "index",
    "session",
    "deploy",
    "report",
    "customer",
    "migration",
    "parser",
    "cache",
    "timeout",
    "retry",
    "schema",
    "letter",
    "database",
    "printer",
    "garden",
    "budget",
    "contract",
    "holiday",
];

/// Entries of daily logs, a file a day.
fn logs(viber: &Viber, entries: usize) {
    for day in 0..entries.div_ceil(ENTRIES_EACH_DAY) {
        let date = format!("{:04}-{:02}-{:02}", 2000 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
        let mut text = String::new();
        for n in day * ENTRIES_EACH_DAY..((day + 1) * ENTRIES_EACH_DAY).min(entries) {
            let word = |k: usize| WORDS[(n * 7 + k * k * 13 + n / (k + 1)) % WORDS.len()];
            let many = (0..40).map(word).collect::<Vec<_>>().join(" ");
            text.push_str(&format!(
                "## 10:{:02} {} the {}\n\nCompleted: {many} number{n}.\n\n",
                n % 60,
                word(3),
                word(5)
            ));
        }
        viber.write(&format!("workspace/memory/{date}.md"), &text);
    }
}

pub(super) async fn remember(scale: Scale) -> Vec<Measured> {
    let entries = scale.count(ENTRIES, 2_500);
    let mut viber = Viber::fresh("lab");
    viber.write("agents/default.yaml", "name: Default\ntools: [memory]\n");
    logs(&viber, entries);
    let board = FakeBoard::start(Behaviour::Serve).await;
    board.enrol(&viber);
    viber.run();
    let ask = async |query: &str| -> Value {
        let asked = json!({ "agentId": "default", "query": query, "limit": 20 });
        board.ask("memory.search", asked).await.expect("an answer")
    };
    // The index is made while the daemon starts; the first question waits for it.
    let began = Instant::now();
    let known = within(INDEX_TIMEOUT, "an index", || async {
        (ask("number1").await["known"].as_u64() == Some(entries as u64)).then_some(())
    });
    known.await;
    let built = began.elapsed();
    let watch = Watch::start(viber.pid(), 0);
    let (mut rare, mut common, mut fresh) = (Latencies::default(), Latencies::default(), Latencies::default());
    for n in 0..scale.count(SEARCHES, 50) {
        let asked = Instant::now();
        let word = format!("number{}", n * 31 % entries);
        let found = ask(&word).await;
        rare.push(asked.elapsed());
        // Others whose numbers begin with it may follow.
        let first = found["items"][0]["excerpt"].as_str().unwrap_or_default();
        assert!(first.ends_with(&format!(" {word}.")), "{word}: {found}");
        let (one, other) = (WORDS[n % WORDS.len()], WORDS[(n * 5 + 1) % WORDS.len()]);
        let asked = Instant::now();
        let found = ask(&format!("what about the {one} and the {other} of the customer")).await;
        common.push(asked.elapsed());
        assert_eq!(found["items"].as_array().map(Vec::len), Some(20), "{found}");
        if n % 10 == 0 {
            viber.write(&format!("workspace/memory/fresh-{n}.md"), &format!("A new thing: fresh{n}.\n"));
            let asked = Instant::now();
            let word = format!("fresh{n}");
            within(INDEX_TIMEOUT, "what is new", || async { (ask(&word).await["items"] != json!([])).then_some(()) })
                .await;
            fresh.push(asked.elapsed());
        }
    }
    let spent = watch.stop(0);
    viber.stop().await;
    let size = std::fs::metadata(viber.home().join("memory/default.sqlite")).map_or(0, |meta| meta.len());
    vec![
        Measured::new(format!("memory, {entries} entries of daily logs"), "search", rare.len() + common.len(), spent)
            .figure("a rare word p50", rare.ms(50.0), "ms", None)
            .figure("a rare word p95", rare.ms(95.0), "ms", Bound::AtMost(50.0))
            .figure("common words p50", common.ms(50.0), "ms", None)
            .figure("common words p95", common.ms(95.0), "ms", Bound::AtMost(50.0))
            .figure("a changed file found p95", fresh.ms(95.0), "ms", Bound::AtMost(2000.0))
            .figure("index from nothing", built.as_secs_f64() * 1000.0, "ms", None)
            .note(format!(
                "asked over the socket; the index takes {:.1} MiB; processor and memory are the daemon's",
                size as f64 / 1_048_576.0
            )),
    ]
}
