//! The workspace of a real daemon: a folder of 10,000 files listed, and an edit on its disk until an open page shows it.

use std::time::{Duration, Instant};

use super::{
    Scale,
    load::Latencies,
    report::{Due, Measured},
    stage::Stage,
};
use crate::{board::HOME, viber::Viber};

const FILES: usize = 10_000;
const LISTINGS: usize = 20;
const EDITS: usize = 60;

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
            .figure("all of them p95, API", whole.ms(95.0), "ms", Due::Most(200.0))
            .figure("the first 2,000 p95, API", first.ms(95.0), "ms", None)
            .figure("page p95", shown.ms(95.0), "ms", Due::Most(200.0))
            .note("by a real daemon; a page shows the first 2,000"),
        Measured::new("an edit on the disk, in an open page", "edit", edits.len(), spent)
            .figure("p50", edits.ms(50.0), "ms", None)
            .figure("p95", edits.ms(95.0), "ms", Due::Most(1000.0))
            .note("from the end of the write to the page's stream"),
    ]
}
