//! Upgrades: by a hostile page, by nobody, over HTTP/2.

use board_tests::{Board, Engine, FakeDaemon, board::HOME, hostile_site::HostileSite, tasks::id, wait::EVENT_TIMEOUT};
use reqwest::{Method, header};
use serde_json::{Value, json};
use server::web::authority::{Access, ROUTES, Route};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::{HOSTS, victim};
use crate::authority::Callers;

/// The refusals of upgrades in the audit of `home`, newest first: who, what, why.
async fn noted(board: &Board) -> Vec<(String, String, String)> {
    let audit = board.token(HOME, "admin").await.get("/api/v1/audit?limit=200").await.expect(200).json();
    let text =
        |row: &Value, field: &str| row[field].as_str().unwrap_or_else(|| panic!("no {field} in {row}")).to_owned();
    let rows = audit["items"].as_array().expect("rows").iter().filter(|row| row["action"] == "refused");
    rows.map(|row| (text(row, "actorName"), text(row, "object"), text(row, "detail"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a20_a_hostile_page_opens_no_socket() {
    let board = Board::start(Engine::Sqlite).await;
    let owner = board.owner().await;
    let mut viber = FakeDaemon::enrol(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "watch me").await;
    let hostile_site = HostileSite::start().await;
    let browser = victim(&hostile_site, &owner).await;
    let sockets = [
        "/ws/daemon".to_owned(),
        format!("/ws/daemon?token={}", viber.credential),
        "/t/home/live?view=rail".to_owned(),
        format!("/t/home/live?view=session:{}", id(&task, "sessionId")),
        format!("/api/v1/tasks/{}/events", id(&task, "id")),
        "/".to_owned(),
    ];
    let addresses: Vec<String> =
        sockets.iter().map(|path| format!("{}{path}", board.url.replacen("http", "ws", 1))).collect();
    let script = "return Promise.all(arguments[0].flatMap((url) => [[], ['openviber.v1'], ['openviber.v1', 'bearer']].map((names) =>
        new Promise((done) => {
          const socket = new WebSocket(url, names);
          socket.onopen = () => done(`open ${url}`);
          socket.onclose = (event) => done(event.code);
        }))))";
    for host in HOSTS {
        browser.go(&hostile_site.url(host, "/")).await;
        let ends = browser.run(script, json!(addresses)).await;
        assert!(ends.as_array().expect("a list").iter().all(|end| *end == 1006), "{host}: {ends}");
    }
    // Not one of them was answered otherwise than 403.
    let log = board.log();
    let lines: Vec<&str> =
        log.lines().filter(|line| line.contains("answered") && line.contains("method=GET")).collect();
    let status = |route: &str, status: u16| {
        lines
            .iter()
            .filter(|line| line.contains(&format!("route={route}}}")) && line.contains(&format!("status={status} ")))
            .count()
    };
    for (route, n) in [("/ws/daemon", 12), ("/t/{team}/live", 12), ("/api/v1/tasks/{id}/events", 6)] {
        assert_eq!(status(route, 403), n, "{route}:\n{log}");
        assert_eq!((status(route, 101), status(route, 200)), (0, 0), "{route}");
    }
    // From the same site the cookie came along: its owner finds it in the audit, not as often as the page likes.
    let rows = noted(&board).await;
    let origin = hostile_site.url("127.0.0.1", "");
    assert!((1..=5).contains(&rows.len()), "{rows:?}");
    assert!(
        rows.iter().all(|(who, object, why)| who == "owner" && object.starts_with("GET /") && why.contains(&origin)),
        "{rows:?}"
    );

    // With a viber's own credential, as another page or program would use it: each origin is one too many.
    let authorization = format!("Bearer {}", viber.credential);
    for origin in ["http://evil.test", "null", "https://board.test.evil.test", &board.url] {
        let refused = viber.dial_with(&[("authorization", &authorization), ("origin", origin)]).await;
        let refused = refused.expect_err("no page may open it").to_string();
        assert!(refused.contains("403"), "{origin}: {refused}");
        let (who, object, why) = noted(&board).await.swap_remove(0);
        assert_eq!((who.as_str(), object.as_str()), ("lab", "GET /ws/daemon"), "{why}");
        assert!(why.contains(origin), "{why}");
    }
    let token = board.token(HOME, "viewer").await;
    let bearer = format!("Bearer {}", token.bearer().expect("a token"));
    viber.dial_with(&[("authorization", &bearer), ("origin", "http://evil.test")]).await.expect_err("no viber");
    assert_eq!(noted(&board).await[0].0, "test viewer");
    // Nobody's: refused as well, and nobody's audit grows.
    let before = noted(&board).await.len();
    let refused = viber.dial_with(&[("authorization", "Bearer vbc_x"), ("origin", "http://evil.test")]).await;
    assert!(refused.expect_err("no page may open it").to_string().contains("403"));
    assert_eq!(noted(&board).await.len(), before);
    viber.connect().await;
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a21_an_upgrade_without_a_credential_gets_no_further() {
    let callers = Callers::make().await;
    let board = &callers.board;
    for route in ROUTES
        .iter()
        .filter(|route| route.method == "GET" && !matches!(route.who, Access::Anyone | Access::MetricsToken))
    {
        let Some(path) = callers.path(route, &callers.ours) else { continue };
        for upgrade in ["websocket", "WebSocket, h2c", "h2c"] {
            let request = board.anon().request(Method::GET, &path).header(header::CONNECTION, "upgrade");
            let request = request.header(header::UPGRADE, upgrade).header("sec-websocket-version", "13");
            let request = request
                .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .header("sec-websocket-protocol", "openviber.v1");
            let answer = request.header(header::ACCEPT, "text/html").send().await.expect("an answer");
            let expected =
                if path.starts_with("/t/") || path == "/" || path.starts_with("/account") { 303 } else { 401 };
            assert_eq!(answer.status(), expected, "{path} {upgrade}");
        }
    }
    let mut nobody = FakeDaemon::enrol(board, "nobody").await;
    for headers in [
        [].as_slice(),
        &[("authorization", "")],
        &[("authorization", "Bearer")],
        &[("authorization", "Bearer ")],
        &[("authorization", "Bearer null")],
        &[("authorization", "Basic YTpi")],
        &[("sec-websocket-protocol", "bearer, vbc_x")],
        &[("cookie", "vb=x"), ("sec-fetch-site", "same-origin")],
    ] {
        let refused = nobody.dial_with(headers).await.expect_err("nobody").to_string();
        assert!(refused.contains("401"), "{headers:?}: {refused}");
    }
    // A login opens no viber's socket either.
    let (_, owner) = callers
        .roles
        .iter()
        .find(|(who, person)| *who == Access::Owner && person.bearer().is_none())
        .expect("an owner");
    let cookie = owner.cookie().expect("signed in");
    let own = [("cookie", cookie.as_str()), ("sec-fetch-site", "same-origin")];
    let refused = nobody.dial_with(&own).await.expect_err("no viber").to_string();
    assert!(refused.contains("401"), "{refused}");
    board.assert_invariants().await;
}

/// A frame of HTTP/2 (RFC 9113, 4.1): length, type, flags, stream, payload.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A header field that the other side need not remember (RFC 7541, 6.2.2).
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
/// RFC 8441, 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a21_http2_has_no_door_of_its_own() {
    let board = Board::start(Engine::Sqlite).await;
    let viber = FakeDaemon::enrol(&board, "lab").await;
    let host = board.url.trim_start_matches("http://");
    let routes: Vec<&Route> = ROUTES.iter().filter(|route| route.path.starts_with("/ws/")).collect();
    assert_eq!(routes.len(), 1);
    for (path, credential) in
        [("/ws/daemon", None), ("/ws/daemon", Some(&viber.credential)), ("/t/home/live?view=rail", None)]
    {
        let mut line = TcpStream::connect(host).await.expect("a connection");
        let mut block = [
            field(":method", "CONNECT"),
            field(":protocol", "websocket"),
            field(":scheme", "http"),
            field(":path", path),
            field(":authority", host),
            field("sec-websocket-version", "13"),
            field("sec-websocket-protocol", "openviber.v1"),
        ]
        .concat();
        if let Some(credential) = credential {
            block.extend(field("authorization", &format!("Bearer {credential}")));
        }
        // END_HEADERS, and the stream stays open.
        let opening =
            [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[]), frame(HEADERS, 4, 1, &block)]
                .concat();
        line.write_all(&opening).await.expect("sent");
        let end = loop {
            let mut head = [0; 9];
            let read =
                tokio::time::timeout(EVENT_TIMEOUT, line.read_exact(&mut head)).await.expect("an answer in time");
            if read.is_err() {
                break "closed".to_owned();
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).expect("small")];
            line.read_exact(&mut payload).await.expect("a whole frame");
            match head[3] {
                SETTINGS => {
                    let offered = payload
                        .chunks_exact(6)
                        .any(|one| u16::from_be_bytes([one[0], one[1]]) == ENABLE_CONNECT_PROTOCOL && one[5] == 1);
                    assert!(!offered, "extended CONNECT is not offered");
                }
                RST_STREAM => break "reset".to_owned(),
                GOAWAY => break "gone away".to_owned(),
                // The first field is the status; 8 to 10 of the static table are 200, 204 and 206.
                HEADERS => break format!("answered {:#x}", payload[0]),
                _ => {}
            }
        };
        assert!(["reset", "gone away", "closed"].contains(&end.as_str()), "{path}: {end}");
    }
    assert!(!board.log().contains("a viber is connected"), "{}", board.log());
    board.assert_invariants().await;
}
