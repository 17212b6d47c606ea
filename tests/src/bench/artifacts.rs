//! Artifacts through the Board: from a viber that puts them to readers that follow, one of 1 GiB and a hundred at once.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::stream;
use protocol::{ArtifactId, FromDaemon, ToDaemon};
use reqwest::{Body, Client, header};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{
    Scale, proc,
    report::{Bound, Measured},
    stage::Stage,
};
use crate::fake_daemon::{FakeDaemon, Heard, accepted, progress, started};

const LARGE_BYTES: usize = 1 << 30;
/// Each of the hundred, bytes.
const EACH_BYTES: usize = 8 << 20;
const MANY_ARTIFACTS: usize = 100;
/// Bytes that the viber hands over at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// Something that the viber has: the same piece again and again, the first one apart.
#[derive(Clone)]
struct Blob {
    id: String,
    size: usize,
    sha256: String,
    first: u8,
}

impl Blob {
    fn new(n: usize, size: usize) -> Self {
        let id = ArtifactId::new(1_790_000_000_000).to_string();
        let mut blob = Self { id, size, sha256: String::new(), first: u8::try_from(n).expect("few") };
        let mut hash = Sha256::new();
        blob.pieces().for_each(|piece| hash.update(&piece));
        blob.sha256 = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        blob
    }

    fn pieces(&self) -> impl Iterator<Item = axum::body::Bytes> + Send + 'static {
        let (first, size) = (self.first, self.size);
        let plain = axum::body::Bytes::from(vec![7; PIECE_BYTES]);
        (0..size.div_ceil(PIECE_BYTES)).map(move |n| {
            let length = PIECE_BYTES.min(size - n * PIECE_BYTES);
            match n {
                0 => axum::body::Bytes::from(vec![first; length]),
                _ => plain.slice(..length),
            }
        })
    }
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let large = scale.count(LARGE_BYTES, 16 << 20);
    let many = scale.count(MANY_ARTIFACTS, 4);
    let one = run("artifact, one at a time", vec![Blob::new(0, large)]).await;
    let all = run("artifacts, all at once", (0..many).map(|n| Blob::new(n, EACH_BYTES)).collect()).await;
    let rate = |round: &RoundResult| round.bytes as f64 / 1e6 / round.seconds;
    vec![
        Measured::new(format!("one artifact of {} MiB", large >> 20), "MB", large / 1_000_000, one.spent)
            .figure("rate", rate(&one), "MB/s", Bound::AtLeast(200.0))
            .figure("again, from the store", one.bytes as f64 / 1e6 / one.again, "MB/s", None)
            .figure("RSS more at most", one.most - one.before, "MiB", Bound::AtMost(32.0)),
        Measured::new(format!("{many} artifacts of {} MiB at once", EACH_BYTES >> 20), "artifacts", many, all.spent)
            .figure("rate", rate(&all), "MB/s", None)
            .figure("RSS more at most", all.most - all.before, "MiB", Bound::AtMost(128.0)),
    ]
}

/// What a round came to.
struct RoundResult {
    bytes: usize,
    /// Until the last reader had the last byte.
    seconds: f64,
    /// The same once more, from the store.
    again: f64,
    before: f64,
    most: f64,
    spent: proc::Spent,
}

async fn run(goal: &str, blobs: Vec<Blob>) -> RoundResult {
    let stage = Stage::set(0, 1).await;
    let operator = stage.board.token("home", "operator").await;
    let mut viber = FakeDaemon::connected(&stage.board, "lab").await;
    operator.submit(viber.id.as_str(), goal).await;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    let warm = Blob::new(200, 1 << 20);
    for (n, blob) in blobs.iter().chain([&warm]).enumerate() {
        let artifact = json!({
            "id": format!("b{n}"), "artifactId": blob.id, "ref": format!("artifacts/{}/b{n}", submit.task_id),
            "size": blob.size, "sha256": blob.sha256, "sniffed": "application/octet-stream",
        });
        viber
            .report(
                &submit.task_id,
                1,
                3 + n as u64,
                vec![progress(&json!({ "type": "artifact", "artifact": artifact }))],
            )
            .await;
    }
    let known = blobs.iter().chain([&warm]).map(|blob| (blob.id.clone(), blob.clone())).collect();
    tokio::spawn(gives(viber, stage.board.url.clone(), known));
    let token = stage.token(0).trim_start_matches("Authorization: Bearer ").to_owned();
    let client = Client::new();
    let get = |blob: &Blob| {
        let url = format!("{}/api/v1/artifacts/{}/content", stage.board.url, blob.id);
        read(client.get(url).bearer_auth(&token), blob.size)
    };
    get(&warm).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let pid = stage.board.pid();
    let (before, done) = (proc::memory(pid).0, Arc::new(AtomicBool::new(false)));
    let most = tokio::spawn({
        let done = done.clone();
        async move {
            let mut most: f64 = 0.0;
            while !done.load(Ordering::Relaxed) {
                most = most.max(proc::memory(pid).0);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            most
        }
    });
    let watch = stage.watch().await;
    let begun = Instant::now();
    futures_util::future::join_all(blobs.iter().map(get)).await;
    let seconds = begun.elapsed().as_secs_f64();
    let spent = watch.stop(stage.commits().await);
    let begun = Instant::now();
    futures_util::future::join_all(blobs.iter().map(get)).await;
    let again = begun.elapsed().as_secs_f64();
    done.store(true, Ordering::Relaxed);
    let most = most.await.expect("looking does not panic");
    RoundResult { bytes: blobs.iter().map(|blob| blob.size).sum(), seconds, again, before, most, spent }
}

async fn read(request: reqwest::RequestBuilder, size: usize) {
    let mut answer = request.send().await.expect("an answer");
    assert_eq!(answer.status().as_u16(), 200);
    let mut length = 0;
    while let Some(piece) = answer.chunk().await.expect("all of it") {
        length += piece.len();
    }
    assert_eq!(length, size);
}

/// Puts what the Board asks for, all at once.
async fn gives(mut viber: FakeDaemon, board: String, known: std::collections::BTreeMap<String, Blob>) {
    let client = Client::new();
    while let Heard::Frame(frame) = viber.next().await {
        let ToDaemon::Request { id, params, .. } = frame else { continue };
        let blob = known[params["artifactId"].as_str().expect("an id")].clone();
        viber.send(&FromDaemon::Response { id, ok: true, result: json!({}), error: None }).await;
        let call = client
            .put(format!("{board}/api/daemon/blobs/{}", blob.id))
            .bearer_auth(&viber.credential)
            .header("x-content-sha256", &blob.sha256)
            .header(header::CONTENT_LENGTH, blob.size)
            .body(Body::wrap_stream(stream::iter(blob.pieces().map(Ok::<_, std::io::Error>))));
        tokio::spawn(async move {
            assert_eq!(call.send().await.expect("an answer").status().as_u16(), 201);
        });
    }
}
