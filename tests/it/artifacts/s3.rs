//! The same over S3, spoken by a server of its own in the test's process, which can be told to fail.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
};
use board_tests::{Board, Engine};
use futures_util::StreamExt as _;
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use serde_json::json;
use tempfile::TempDir;

use super::{Artifacts, noise, read, working, working_at};

/// An S3 server over a folder.
struct Bucket {
    folder: TempDir,
    address: SocketAddr,
    faults: Arc<Faults>,
}

/// What goes wrong, for so many requests.
#[derive(Default)]
struct Faults {
    /// Answered 503.
    down: AtomicU32,
    /// Answers to GET that end half-way.
    cut: AtomicU32,
    /// Requests that wait for longer than anybody does.
    stalled: AtomicU32,
}

impl Faults {
    fn take(count: &AtomicU32) -> bool {
        count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }
}

impl Bucket {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("blobs")).expect("a bucket");
        let files = s3s_fs::FileSystem::new(folder.path()).expect("a store");
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single("lab", "lab-secret"));
        let service = axum::error_handling::HandleError::new(builder.build(), async |error: s3s::HttpError| {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("{error:?}"))
        });
        let faults = Arc::new(Faults::default());
        let app = Router::new().fallback_service(service).layer(from_fn_with_state(faults.clone(), fail));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { folder, address, faults }
    }

    async fn board(&self) -> Board {
        let url = format!("s3://blobs/board?region=us-east-1&endpoint=http://{}", self.address);
        let mut board = Board::prepare(Engine::Sqlite, &["--artifacts", &url]).await;
        board.set("AWS_ACCESS_KEY_ID", "lab");
        board.set("AWS_SECRET_ACCESS_KEY", "lab-secret");
        board.serve();
        board.ready().await;
        board
    }

    fn objects(&self) -> Vec<std::path::PathBuf> {
        let all = board_tests::canary::files(&self.folder.path().join("blobs"));
        all.into_iter().filter(|file| file.file_name().is_some_and(|name| name.len() == 64)).collect()
    }
}

async fn fail(State(faults): State<Arc<Faults>>, request: Request, next: Next) -> Response {
    if Faults::take(&faults.down) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    if Faults::take(&faults.stalled) {
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    let cut = request.method() == Method::GET && Faults::take(&faults.cut);
    let response = next.run(request).await;
    if !cut {
        return response;
    }
    let (parts, body) = response.into_parts();
    let mut left = 100_000;
    let half = body.into_data_stream().map(move |piece| {
        let piece: Bytes = piece.map_err(std::io::Error::other)?;
        left -= piece.len().min(left);
        if left == 0 { Err(std::io::Error::other("cut")) } else { Ok(piece) }
    });
    Response::from_parts(parts, Body::from_stream(half))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blobs_lie_in_the_bucket_once_and_are_read_from_there() {
    let bucket = Bucket::start().await;
    let mut fixture = working_at(bucket.board().await).await;
    // Small ones are put at once, large ones in parts.
    for (name, length) in [("small.bin", 100_000), ("large.bin", 20_000_000)] {
        let thing = fixture.has(name, noise(length)).await;
        let reader = fixture.reader(&thing, None);
        fixture.gives(&thing).await;
        let first = reader.await.expect("read");
        assert!(first.whole && first.bytes == thing.bytes, "{name}");
        let again = fixture.reader(&thing, None).await.expect("read");
        assert!(again.whole && again.bytes == thing.bytes, "{name}");
        let part = fixture.reader(&thing, Some("bytes=70000-80000")).await.expect("read");
        assert!(part.status == 206 && part.bytes == thing.bytes[70_000..=80_000], "{name}");
        assert_eq!(fixture.facts(&thing).await["state"], "stored");
        // The store's own address, for some minutes.
        let path = format!("/api/v1/artifacts/{}/content?direct=true", thing.id);
        let away = fixture.operator.get(&path).await.expect(303).header("location").to_owned();
        assert!(
            away.starts_with(&format!("http://{}/blobs/board/", bucket.address)) && away.contains("X-Amz-Signature")
        );
        let direct = read(reqwest::Client::new().get(away)).await;
        assert!(direct.bytes == thing.bytes, "{name}: {}", direct.status);
    }
    assert_eq!(bucket.objects().len(), 2);
    // The same content under another name is there already.
    let twin = fixture.has("twin.bin", noise(100_000)).await;
    assert_eq!(fixture.facts(&twin).await["state"], "stored");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_goes_into_the_bucket_directly_and_is_measured_before_it_counts() {
    let bucket = Bucket::start().await;
    let mut fixture = working_at(bucket.board().await).await;
    let thing = fixture.has("old.bin", noise(10)).await;
    let session = fixture.facts(&thing).await["sessionId"].as_str().expect("a session").to_owned();
    let uploads = format!("/api/v1/sessions/{session}/uploads");
    let bytes = noise(9_000_000);
    let begin = async |size: usize| fixture.operator.post(&uploads, &json!({ "size": size })).await;
    let told = begin(bytes.len()).await.expect(201).json();
    let (id, url) = (told["id"].as_str().expect("an id"), told["url"].as_str().expect("an address"));
    assert!(url.starts_with(&format!("http://{}/blobs/board/", bucket.address)), "{url}");
    let done = format!("{uploads}/{id}");
    let named = json!({ "name": "plan.bin", "type": "application/octet-stream" });
    fixture.operator.post(&done, &named).await.expect(404);
    let put = reqwest::Client::new().put(url).body(bytes.clone()).send().await.expect("an answer");
    assert_eq!(put.status(), 200);
    // Another team's address names nothing of ours.
    fixture.board.make_operator("elsewhere", "stranger@example.org", "owner").await;
    let stranger = fixture.board.token("elsewhere", "owner").await;
    stranger.post(&done, &named).await.expect(404);
    let kept = fixture.operator.post(&done, &named).await.expect(201).json();
    assert_eq!((&kept["size"], &kept["state"]), (&json!(9_000_000), &json!("stored")));
    assert_eq!(kept["sha256"], super::sha256(&bytes));
    let path = format!("/api/v1/artifacts/{}/content", kept["id"].as_str().expect("an id"));
    let back = read(fixture.operator.request(reqwest::Method::GET, &path)).await;
    assert!(back.whole && back.bytes == bytes);
    // What was read is not kept twice, and is not to be had twice.
    fixture.operator.post(&done, &named).await.expect(404);
    assert_eq!(board_tests::canary::files(&bucket.folder.path().join("blobs")).len(), 1);
    // Larger than the team allows.
    assert_eq!(begin(usize::MAX >> 12).await.expect(413).code(), "too_large");
    fixture.board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_has_no_addresses_of_its_own() {
    let mut fixture = working(Engine::Sqlite).await;
    let thing = fixture.has("old.bin", noise(10)).await;
    let session = fixture.facts(&thing).await["sessionId"].as_str().expect("a session").to_owned();
    let told = fixture.operator.post(&format!("/api/v1/sessions/{session}/uploads"), &json!({ "size": 5 })).await;
    assert_eq!(told.expect(422).code(), "no_direct_upload");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f54_a_store_that_fails_shortens_nothing_and_leaves_nothing() {
    let bucket = Bucket::start().await;
    let mut fixture = working_at(bucket.board().await).await;
    let thing = fixture.has("data.bin", noise(500_000)).await;

    // It does not take the blob: the reader is cut, nothing is written down, nothing lies about.
    bucket.faults.down.store(u32::MAX, Ordering::SeqCst);
    let reader = fixture.reader(&thing, None);
    let offer = fixture.offered().await;
    fixture.answer(&offer, Ok(json!({}))).await;
    assert_eq!(fixture.put(&thing, thing.bytes.clone(), None).await.0, 503);
    let cut = reader.await.expect("read");
    assert!(cut.status != 200 || !cut.whole, "a short answer passed for a whole one");
    bucket.faults.down.store(0, Ordering::SeqCst);
    assert_eq!((fixture.facts(&thing).await["state"].as_str(), bucket.objects().len()), (Some("viber"), 0));

    // An upload that is killed half-way: its end is awaited, then given up; a new reader begins anew, or goes on.
    let reader = fixture.reader(&thing, None);
    let offer = fixture.offered().await;
    fixture.answer(&offer, Ok(json!({}))).await;
    let half = (thing.bytes[..200_000].to_vec(), Some("bytes 0-199999/500000".to_owned()));
    assert_eq!(fixture.put(&thing, half.0, half.1).await.0, 308);
    let rest = (thing.bytes[200_000..].to_vec(), Some("bytes 200000-499999/500000".to_owned()));
    // One refusal by the store is tried again.
    bucket.faults.down.store(1, Ordering::SeqCst);
    assert_eq!(fixture.put(&thing, rest.0, rest.1).await.0, 201);
    let whole = reader.await.expect("read");
    assert!(whole.whole && whole.bytes == thing.bytes);

    // Its answer breaks off: cut, and resumed by a range.
    bucket.faults.cut.store(8, Ordering::SeqCst);
    let cut = fixture.reader(&thing, None).await.expect("read");
    bucket.faults.cut.store(0, Ordering::SeqCst);
    assert!(!cut.whole || cut.bytes == thing.bytes, "{} bytes passed for all", cut.bytes.len());
    let from = cut.bytes.len();
    if from < thing.bytes.len() {
        let rest = fixture.reader(&thing, Some(&format!("bytes={from}-"))).await.expect("read");
        assert!(rest.whole && [cut.bytes, rest.bytes].concat() == thing.bytes);
    }

    // It has lost the object: the viber is asked again.
    for object in bucket.objects() {
        std::fs::remove_file(object).expect("there");
    }
    let reader = fixture.reader(&thing, None);
    fixture.gives(&thing).await;
    let again = reader.await.expect("read");
    assert!(again.whole && again.bytes == thing.bytes);
    assert_eq!(std::fs::read_dir(fixture.board.data().join("staging")).expect("a folder").count(), 0);
    fixture.board.assert_invariants().await;
}

mod long {
    //! Minutes: a store that says nothing.

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f54_a_store_that_stalls_is_given_up() {
        let bucket = Bucket::start().await;
        let mut fixture = working_at(bucket.board().await).await;
        let thing = fixture.has("data.bin", noise(500_000)).await;
        let reader = fixture.reader(&thing, None);
        fixture.gives(&thing).await;
        assert!(reader.await.expect("read").whole);
        bucket.faults.stalled.store(u32::MAX, Ordering::SeqCst);
        let stalled = fixture.reader(&thing, None).await;
        bucket.faults.stalled.store(0, Ordering::SeqCst);
        let stalled = stalled.expect("read");
        assert!(stalled.status == 503 || !stalled.whole, "{}", stalled.status);
        assert!(fixture.reader(&thing, None).await.expect("read").whole);
        fixture.board.assert_invariants().await;
    }
}
