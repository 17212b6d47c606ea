//! A146 to A148: other keys, settings and certificates while people work.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use board_tests::{
    Board, Engine, FakeDaemon,
    board::{HOME, PASSWORD},
    eventually,
};
use reqwest::Method;
use serde_json::json;

use super::{hang_up, kid, logged, with_cookie};

crate::on_both_databases!(a146_the_signing_key_is_exchanged_while_everybody_works);

/// What a SIGHUP is answered with in the log.
const DONE_MESSAGE: &str = "read again";
const REFUSED_MESSAGE: &str = "nothing was changed";

fn put(file: &Path, text: &str) {
    std::fs::write(file, text).expect("a file");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
}

async fn a146_the_signing_key_is_exchanged_while_everybody_works(engine: Engine) {
    let mut board = Board::start(engine).await;
    let owner = board.owner().await;
    let program = board.token(HOME, "owner").await;
    let viber = FakeDaemon::connected(&board, "lab").await;
    let (old, pid) = (kid(&owner), board.pid());
    let made = program.post_once("once", "/api/v1/tokens", &json!({"name": "ci", "role": "viewer"})).await.expect(201);
    let over = AtomicBool::new(false);
    let asked = AtomicU32::new(0);
    let work = async {
        while !over.load(Ordering::SeqCst) {
            owner.page("/t/home").await.expect(200);
            program.get("/api/v1/vibers").await.expect(200);
            asked.fetch_add(1, Ordering::SeqCst);
        }
    };
    let rotate = async {
        for n in 1..=3 {
            let said = board.cli(&["keys", "rotate"]).await.good();
            assert!(said.contains("the running Board signs with it now"), "{said}");
            assert!(said.contains(&format!("{n} older keys")), "{said}");
            let seen = asked.load(Ordering::SeqCst);
            eventually("work goes on", || async { (asked.load(Ordering::SeqCst) > seen + 5).then_some(()) }).await;
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(work, rotate);
    assert_eq!(board.pid(), pid);
    assert_eq!(kid(&owner), old, "a cookie that is good is not exchanged for that");
    let newcomer = board.anon();
    newcomer.sign_in("owner@example.org", PASSWORD).await;
    assert_ne!(kid(&newcomer), old, "the new key signs");
    // What was sealed with the first key is still opened.
    let again = program.post_once("once", "/api/v1/tokens", &json!({"name": "ci", "role": "viewer"})).await.expect(201);
    assert_eq!((again.header("idempotency-replayed"), &again.body), ("true", &made.body));
    let files = board_tests::canary::files(&board.data().join("keys"));
    assert_eq!(files.len(), 4, "{files:?}");
    for file in &files {
        assert_eq!(std::fs::metadata(file).expect("a file").permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    board.kill9();
    board.restart().await;
    for person in [&owner, &newcomer] {
        person.page("/t/home").await.expect(200);
    }
    let doctor = board.cli(&["doctor"]).await.good();
    assert!(doctor.contains("3 older keys are still valid"), "{doctor}");
    // Without a Board to be told.
    board.stop().await;
    let said = board.cli(&["keys", "rotate"]).await;
    assert!(said.status.success() && said.err.contains("no Board is running"), "{said:?}");
    board.restart().await;
    owner.page("/t/home").await.expect(200);
    drop(viber);
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a147_a_key_from_outside_is_read_again_and_a_bad_one_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("key");
    let name = file.to_str().expect("text");
    let (first, second) = ("first".repeat(8), "second".repeat(8));
    put(&file, &first);
    let board = Board::start_with(Engine::Sqlite, &["--signing-key-file", name]).await;
    let owner = board.owner().await;
    let old = kid(&owner);
    let said = board.cli(&["keys", "rotate"]).await;
    assert!(said.code() == 1 && said.err.contains("comes from") && said.err.contains("SIGHUP"), "{said:?}");
    for (text, mode) in [("too short", 0o600), (second.as_str(), 0o644), ("", 0o600)] {
        put(&file, text);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("a mode");
        hang_up(&board, REFUSED_MESSAGE).await;
        let newcomer = board.anon();
        newcomer.sign_in("owner@example.org", PASSWORD).await;
        assert_eq!(kid(&newcomer), old, "{text:?} {mode:o}");
    }
    std::fs::remove_file(&file).expect("the file");
    hang_up(&board, REFUSED_MESSAGE).await;
    put(&file, &second);
    hang_up(&board, DONE_MESSAGE).await;
    let newcomer = board.anon();
    newcomer.sign_in("owner@example.org", PASSWORD).await;
    assert_ne!(kid(&newcomer), old);
    // The first key is in no file any more, and what it signed is good for its rest.
    owner.page("/t/home").await.expect(200);
    hang_up(&board, DONE_MESSAGE).await;
    owner.page("/t/home").await.expect(200);
    assert!(!board.log().contains(&first) && !board.log().contains(&second));
    board.assert_invariants().await;
}

/// A certificate with its key, as PEM files; answers its bytes.
fn certify(folder: &Path) -> Vec<u8> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    put(&folder.join("cert.pem"), &made.cert.pem());
    put(&folder.join("key.pem"), &made.signing_key.serialize_pem());
    made.cert.der().to_vec()
}

/// The certificate that a Board shows to a new connection; `None` when it does not answer.
async fn shown(port: u16, path: &str) -> Option<(u16, Vec<u8>)> {
    let client = reqwest::Client::builder().tls_danger_accept_invalid_certs(true).tls_info(true).no_proxy();
    let client = client.build().expect("a client");
    let answer = client.get(format!("https://localhost:{port}{path}")).bearer_auth("a-token-of-the-metrics");
    let answer = answer.send().await.ok()?;
    let info = answer.extensions().get::<reqwest::tls::TlsInfo>().expect("it was encrypted");
    Some((answer.status().as_u16(), info.peer_certificate().expect("a certificate").to_vec()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a148_sighup_reads_settings_and_certificates_again_and_kills_nobody() {
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let folder = tempfile::tempdir().expect("a folder");
    let [cert, key] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name).display().to_string());
    let first = certify(folder.path());
    let mut board = Board::prepare(Engine::Sqlite, &["--tls-cert", &cert, "--tls-key", &key]).await;
    let config = board.data().join("config.yaml");
    put(&config, "metrics-token: a-token-of-the-metrics\n");
    let port: u16 = board.url.rsplit(':').next().expect("a port").parse().expect("a number");
    board.serve();
    let serving = eventually("it serves", || shown(port, "/metrics")).await;
    assert_eq!(serving, (200, first.clone()));

    // A new certificate, another token; an address that needs a new start is named and nothing else is held up by it.
    let second = certify(folder.path());
    put(&config, "metrics-token: some-other-token-of-the-metrics\nartifacts: file:///elsewhere\n");
    hang_up(&board, DONE_MESSAGE).await;
    assert_eq!(shown(port, "/metrics").await, Some((401, second.clone())));
    assert!(
        logged(&board, "takes effect after a restart") == 1 && board.log().contains("--artifacts"),
        "{}",
        board.log()
    );

    // Broken in one place, nothing is changed in any.
    let good = "metrics-token: a-token-of-the-metrics\n";
    let third = certify(folder.path());
    for broken in
        ["metrics-token: short\n", "metrics-tokn: a-token-of-the-metrics\n", "daemon-binary: /nowhere\n", ": :\n"]
    {
        put(&config, broken);
        hang_up(&board, REFUSED_MESSAGE).await;
        assert_eq!(shown(port, "/metrics").await, Some((401, second.clone())), "{broken}");
    }
    put(&config, good);
    put(Path::new(&cert), "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n");
    hang_up(&board, REFUSED_MESSAGE).await;
    assert_eq!(shown(port, "/metrics").await, Some((401, second)));
    let last = certify(folder.path());
    assert_ne!(third, last);
    for _ in 0..20 {
        board.hang_up();
    }
    hang_up(&board, DONE_MESSAGE).await;
    assert_eq!(shown(port, "/metrics").await, Some((200, last)));

    // Neither at the very beginning nor while it drains is it killed by one.
    board.stop().await;
    board.serve();
    eventually("its process has begun to listen to signals", || async {
        (std::fs::read_to_string(format!("/proc/{}/status", board.pid())).ok()?)
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .filter(|mask| mask & 1 == 1)
    })
    .await;
    board.hang_up();
    eventually("it serves", || shown(port, "/metrics")).await;
    board.begin_stop();
    board.hang_up();
    assert!(board.ended().await.success(), "{}", board.log());
    board.assert_invariants().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a148_another_proxy_is_trusted_without_a_new_start() {
    let board = Board::start(Engine::Sqlite).await;
    let seen = async || {
        let nobody = board.anon();
        let request = nobody.request(Method::POST, "/login").header("x-forwarded-for", "198.51.100.7");
        let request = request.header("origin", &board.url).header("content-type", "application/x-www-form-urlencoded");
        nobody
            .send(request.body(format!("email=owner@example.org&password={}", PASSWORD.replace(' ', "+"))))
            .await
            .expect(303);
        let page = with_cookie(&board, &nobody.cookie().expect("signed in"), "/account").await.expect(200);
        page.body.contains("198.51.100.7")
    };
    board.make_operator(HOME, "owner@example.org", "owner").await;
    assert!(!seen().await);
    put(&board.data().join("config.yaml"), "trusted-proxy: [127.0.0.1]\n");
    hang_up(&board, DONE_MESSAGE).await;
    assert!(seen().await);
    board.assert_invariants().await;
}
