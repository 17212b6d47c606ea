//! Skills of a registry: fetched from the one origin that the administrator named, and taken in like an upload.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use board_tests::{Answer, Board, Engine, Person, board::HOME, hostile_site::Collector, tasks::id};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{NOTES, archive};

crate::on_both_databases!(
    a_skill_of_the_registry_is_taken_in_like_an_upload,
    what_is_no_answer_of_a_registry_is_told_and_nothing_kept,
    a81_a_source_names_a_skill_and_no_address,
    a_board_without_a_registry_calls_nobody,
);

/// Instructions that do not say which version they are.
const UNNUMBERED: &str = "---\nname: release-notes\ndescription: Collects merged changes\n---\nUse git.\n";
/// More than an archive may have, in pieces of 64 KiB.
const TOO_MANY_PIECES: usize = 25 * 16;

/// A registry on this machine that answers as the slug says.
struct FakeRegistry {
    url: String,
    shared: Arc<Shared>,
    end: CancellationToken,
}

/// What it was asked for, with which headers.
struct Shared {
    seen: Mutex<Vec<(BTreeMap<String, String>, HeaderMap)>>,
    /// Where a redirect leads that leads away.
    elsewhere: String,
}

impl FakeRegistry {
    async fn start(elsewhere: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared { seen: Mutex::default(), elsewhere: elsewhere.to_owned() });
        let app = Router::new().route("/api/v1/download", get(download)).with_state(shared.clone());
        let end = CancellationToken::new();
        let over = end.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, app).with_graceful_shutdown(over).await });
        Self { url, shared, end }
    }

    fn seen(&self) -> Vec<(BTreeMap<String, String>, HeaderMap)> {
        self.shared.seen.lock().expect("not poisoned").clone()
    }

    /// A Board whose administrator named it.
    async fn board(&self, engine: Engine) -> Board {
        Board::start_with(engine, &["--skill-registry", &self.url]).await
    }
}

impl Drop for FakeRegistry {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn download(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    shared.seen.lock().expect("not poisoned").push((asked.clone(), headers));
    let skill = |text: &str| ([(header::CONTENT_TYPE, "application/zip")], archive(&[("SKILL.md", 0o644, text)]));
    let status = |code: u16| StatusCode::from_u16(code).expect("a status").into_response();
    let leads_to = |place: &str| (StatusCode::FOUND, [(header::LOCATION, place.to_owned())]).into_response();
    match asked.get("slug").map_or("", String::as_str) {
        "release-notes" => skill(UNNUMBERED).into_response(),
        "numbered" => skill(NOTES).into_response(),
        "moved" => leads_to("/api/v1/download?slug=release-notes&version=1"),
        "shared" if asked.get("ownerHandle").is_some_and(|owner| owner == "ines") => skill(NOTES).into_response(),
        "shared" => status(409),
        "gone" => status(410),
        "blocked" => status(403),
        "unchecked" => status(423),
        "asleep" => status(500),
        "often" => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "7")]).into_response(),
        "elsewhere" => leads_to(&shared.elsewhere),
        "around" => leads_to("/api/v1/download?slug=around&version=1"),
        "page" => ([(header::CONTENT_TYPE, "text/html")], "<!doctype html><p>Welcome").into_response(),
        "empty" => StatusCode::OK.into_response(),
        "large" => vec![b'x'; TOO_MANY_PIECES * 64 * 1024].into_response(),
        // Nobody says how much it is.
        "endless" => {
            let piece = Bytes::from(vec![b'x'; 64 * 1024]);
            Body::from_stream(stream::repeat(piece).take(TOO_MANY_PIECES).map(Ok::<_, Infallible>)).into_response()
        }
        "cut" => {
            let pieces = [Ok(Bytes::from_static(b"PK\x03\x04")), Err(io::Error::other("cut off"))];
            Body::from_stream(stream::iter(pieces)).into_response()
        }
        "silent" => std::future::pending().await,
        "dribbling" => {
            let pieces = stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(200)).await;
                Some((Ok::<_, Infallible>(Bytes::from_static(b"x")), ()))
            });
            Body::from_stream(pieces).into_response()
        }
        _ => status(404),
    }
}

async fn fetch(admin: &Person, source: &str) -> Answer {
    admin.post("/api/v1/skills", &json!({ "source": source })).await
}

async fn a_skill_of_the_registry_is_taken_in_like_an_upload(engine: Engine) {
    let registry = FakeRegistry::start("").await;
    let board = registry.board(engine).await;
    let (admin, operator) = (board.token(HOME, "admin").await, board.token(HOME, "operator").await);
    fetch(&operator, "clawhub:release-notes@1.4.2").await.expect(403);
    assert!(registry.seen().is_empty(), "only admins make the Board ask");
    let skill = fetch(&admin, "clawhub:release-notes@1.4.2").await.expect(201).json();
    assert_eq!((&skill["name"], &skill["version"]), (&json!("release-notes"), &json!("1.4.2")), "{skill:#}");
    assert_eq!(skill["source"], json!({ "kind": "clawhub", "ref": "release-notes@1.4.2" }));
    assert_eq!(skill["state"], "unreviewed");
    let (asked, headers) = registry.seen().remove(0);
    let pairs = [("slug", "release-notes"), ("version", "1.4.2")];
    assert_eq!(asked, BTreeMap::from(pairs.map(|(name, value)| (name.to_owned(), value.to_owned()))));
    for secret in ["cookie", "authorization", "referer", "x-team", "x-forwarded-for"] {
        assert!(!headers.contains_key(secret), "{headers:?}");
    }
    // The same files are there once, and reviewed like any others.
    assert_eq!(fetch(&admin, "clawhub:release-notes@1.4.2").await.expect(201).json()["id"], skill["id"]);
    let decision = json!({ "decision": "approve", "digest": skill["digest"] });
    let review = format!("/api/v1/skills/{}/review", id(&skill, "id"));
    assert_eq!(admin.post(&review, &decision).await.expect(200).json()["state"], "approved");
    // What its own file says of its version counts; a publisher is named where several have it.
    let numbered = fetch(&admin, "clawhub:numbered@9.9.9").await.expect(201).json();
    assert_eq!((&numbered["version"], &numbered["source"]["ref"]), (&json!("1.3.0"), &json!("numbered@9.9.9")));
    assert_eq!(fetch(&admin, "clawhub:shared@1").await.expect(422).code(), "bad_source");
    fetch(&admin, "clawhub:@ines/shared@1").await.expect(201);
    // Within the registry it may lead on.
    fetch(&admin, "clawhub:moved@1").await.expect(201);
    let audit = admin.get("/api/v1/audit").await.expect(200).json();
    let actions: Vec<&Value> = audit["items"].as_array().expect("rows").iter().map(|row| &row["action"]).collect();
    assert_eq!(actions.iter().filter(|action| **action == "skill.add").count(), 2, "{actions:?}");
    board.assert_invariants().await;
}

async fn what_is_no_answer_of_a_registry_is_told_and_nothing_kept(engine: Engine) {
    let collector = Collector::start([127, 0, 0, 4]).await;
    let registry = FakeRegistry::start(&format!("http://{}/api/v1/download", collector.address)).await;
    let board = registry.board(engine).await;
    let admin = board.token(HOME, "admin").await;
    for (slug, status, code) in [
        ("nobody-made-it", 422, "not_in_registry"),
        ("gone", 422, "not_in_registry"),
        ("blocked", 422, "not_in_registry"),
        ("unchecked", 422, "not_in_registry"),
        ("page", 422, "bad_bundle"),
        ("empty", 422, "bad_bundle"),
        ("large", 422, "bad_bundle"),
        ("endless", 422, "bad_bundle"),
        ("asleep", 503, "registry_away"),
        ("often", 503, "registry_away"),
        ("elsewhere", 503, "registry_away"),
        ("around", 503, "registry_away"),
        ("cut", 503, "registry_away"),
    ] {
        let refused = fetch(&admin, &format!("clawhub:{slug}@1.0.0")).await.expect(status);
        assert_eq!(refused.code(), code, "{slug}: {}", refused.body);
        let wait = if slug == "often" { "7" } else { "30" };
        assert_eq!(refused.header("retry-after"), if status == 503 { wait } else { "" }, "{slug}");
        assert!(!refused.body.contains("127.0.0.4"), "where it leads is for the log: {}", refused.body);
    }
    assert_eq!(collector.heard(), Vec::<String>::new());
    let around = registry.seen().iter().filter(|(asked, _)| asked["slug"] == "around").count();
    assert!(around <= 5, "{around} requests");
    assert_eq!(admin.get("/api/v1/skills").await.expect(200).json()["items"], json!([]));
    // It is away altogether.
    drop(registry);
    board_tests::eventually("nobody listens there", async || {
        let refused = fetch(&admin, "clawhub:release-notes@1.4.2").await;
        (refused.status == 503 && refused.body.contains("cannot be reached")).then_some(())
    })
    .await;
    board.assert_invariants().await;
}

/// Whatever is given as a source, nobody but the registry is called, and nothing tells what listens where.
async fn a81_a_source_names_a_skill_and_no_address(engine: Engine) {
    let collector = Collector::start([127, 0, 0, 1]).await;
    let registry = FakeRegistry::start("").await;
    let board = registry.board(engine).await;
    let admin = board.token(HOME, "admin").await;
    let hosts = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "0",
        "0.0.0.0",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
        "metadata.google.internal",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "[fc00::1]",
        "mia:secret@127.0.0.1",
    ];
    let port = collector.address.port();
    let whole = hosts.iter().flat_map(|host| {
        [format!("http://{host}:{port}/x@1"), format!("clawhub:http://{host}:{port}/x@1"), format!("{host}:{port}/x@1")]
    });
    let odd = [
        "",
        "clawhub:",
        "release-notes@1.4.2",
        "file:///etc/passwd@1",
        "unix:/run/docker.sock@1",
        "gopher://127.0.0.1/x@1",
        "data:application/zip;base64,UEsDBA==@1",
        "//127.0.0.1/x@1",
        "clawhub://127.0.0.1/x@1",
        "clawhub:../../x@1",
        "clawhub:%2e%2e%2fx@1",
        "clawhub:x@1/../../..",
        "clawhub:x@1?slug=y",
        "clawhub:x&ownerHandle=y@1",
        "clawhub:x@1\r\nHost: 127.0.0.1",
    ];
    let sources: Vec<String> = whole.chain(odd.map(str::to_owned)).collect();
    assert!(sources.len() > 80, "{}", sources.len());
    let mut said = std::collections::BTreeSet::new();
    for source in &sources {
        let refused = fetch(&admin, source).await.expect(422);
        assert_eq!(refused.code(), "bad_source", "{source}");
        said.insert(refused.json()["detail"].to_string());
    }
    assert_eq!(said.len(), 1, "an open port is told from a closed one: {said:?}");
    for body in [json!({}), json!({ "source": "clawhub:a@1", "name": "a" }), json!({ "name": "a" })] {
        assert_eq!(admin.post("/api/v1/skills", &body).await.expect(422).code(), "bad_source", "{body}");
    }
    assert_eq!((collector.heard().len(), registry.seen().len()), (0, 0));
    board.assert_invariants().await;
}

async fn a_board_without_a_registry_calls_nobody(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let refused = fetch(&owner, "clawhub:release-notes@1.4.2").await.expect(422);
    assert_eq!(refused.code(), "bad_source");
    let page = owner.page("/t/home/skills").await.expect(200).body;
    assert!(page.contains("Upload") && !page.contains("From the registry"), "{page}");
    owner.post_form("/t/home/skills/fetch", &[("source", "release-notes@1.4.2")]).await.expect(422);
}

#[tokio::test]
async fn the_page_fetches_from_the_registry() {
    let registry = FakeRegistry::start("").await;
    let board = registry.board(Engine::Sqlite).await;
    let (owner, viewer) = (board.owner().await, board.operator(HOME, "vi@example.org", "viewer").await);
    let page = owner.page("/t/home/skills").await.expect(200).body;
    assert!(page.contains("From the registry") && page.contains("127.0.0.1"), "{page}");
    assert!(!viewer.page("/t/home/skills").await.expect(200).body.contains("From the registry"));
    let form = async |source: &str| owner.post_form("/t/home/skills/fetch", &[("source", source)]).await;
    let refused = form("nobody-made-it@1").await.expect(422).body;
    assert!(refused.contains("no such skill") && refused.contains("value=\"nobody-made-it@1\""), "{refused}");
    assert!(form("asleep@1").await.expect(503).body.contains("does not answer as a registry does"));
    for source in [" release-notes@1.4.2 ", "clawhub:release-notes@1.4.2"] {
        let place = form(source).await.expect(303).header("location").to_owned();
        let shown = owner.page(&place).await.expect(200).body;
        assert!(shown.contains("ClawHub, release-notes@1.4.2"), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_registry_holds_up_two_fetches_of_a_team_for_half_a_minute() {
    let registry = FakeRegistry::start("").await;
    let board = registry.board(Engine::Sqlite).await;
    let admin = board.token(HOME, "admin").await;
    board.cli(&["team", "add", "beside"]).await.good();
    let other = board.token("beside", "admin").await;
    let began = Instant::now();
    let (silent, dribbling, ()) =
        tokio::join!(fetch(&admin, "clawhub:silent@1"), fetch(&admin, "clawhub:dribbling@1"), async {
            board_tests::eventually("both are asked for", async || (registry.seen().len() == 2).then_some(())).await;
            let refused = fetch(&admin, "clawhub:release-notes@1.4.2").await.expect(429);
            assert_eq!((refused.code().as_str(), refused.header("retry-after")), ("throttled", "10"));
            fetch(&other, "clawhub:release-notes@1.4.2").await.expect(201);
            // Who sends an archive waits for nobody's registry.
            super::add(&admin, archive(&[("SKILL.md", 0o644, NOTES)])).await.expect(201);
            assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
        });
    for slow in [silent, dribbling] {
        assert_eq!(slow.expect(503).code(), "registry_away");
    }
    assert!((29..45).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    fetch(&admin, "clawhub:release-notes@1.4.2").await.expect(201);
    board.assert_invariants().await;
}

#[tokio::test]
async fn a_registry_is_an_origin_that_can_be_trusted_on_its_way() {
    let board = Board::prepare(Engine::Sqlite, &[]).await;
    for url in ["http://skills.example", "https://mia:secret@skills.example", "https://169.254.169.254", "skills"] {
        let said = board.cli(&["serve", "--listen", "127.0.0.1:0", "--skill-registry", url]).await;
        assert!(said.code() == 78 && said.err.contains("--skill-registry: "), "{said:?}");
        assert!(!said.err.contains("secret"), "{said:?}");
        let said = board.cli(&["doctor", "--skill-registry", url]).await;
        assert!(said.code() == 1 && said.out.contains("FAIL  skill registry"), "{said:?}");
    }
    std::fs::write(board.data().join("config.yaml"), "skill-registry: https://skills.example\n").expect("written");
    let said = board.cli(&["doctor"]).await;
    assert!(said.out.contains("skill registry: skills.example"), "{said:?}");
}
