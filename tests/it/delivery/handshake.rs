//! Dialling in, being seen, being displaced, being turned away.

use std::time::Duration;

use board_tests::{Board, Engine, FakeDaemon, Fixture, board::HOME, eventually, fake_daemon::Heard};
use protocol::{FromDaemon, ToDaemon, limits::close};
use serde_json::Value;

crate::on_both_databases!(
    a_viber_dials_in_and_is_seen,
    who_has_no_good_credential_is_turned_away,
    a_hello_that_does_not_fit_ends_the_connection,
    the_newer_connection_wins,
    a_copied_home_is_noticed,
    a_board_that_stops_sends_its_vibers_away,
);

async fn viber(board: &Board, name: &str) -> Value {
    let list = board.token(HOME, "viewer").await.get("/api/v1/vibers").await.expect(200).json();
    let all = list["items"].as_array().expect("a list");
    all.iter().find(|viber| viber["name"] == name).unwrap_or_else(|| panic!("{name} is not in {list}")).clone()
}

async fn a_viber_dials_in_and_is_seen(engine: Engine) {
    let board = Board::start(engine).await;
    let mut daemon = FakeDaemon::enrol(&board, "lab").await;
    assert_eq!(viber(&board, "lab").await["contact"]["state"], "disconnected");

    let welcome = daemon.connect().await;
    assert_eq!((welcome.protocol, welcome.conn_epoch, welcome.heartbeat_seconds), (1, 1, 10));
    assert_eq!(welcome.cmds_from, 1);
    assert!(welcome.acked.is_empty() && welcome.fence.is_empty());
    let seen = viber(&board, "lab").await;
    assert_eq!(seen["contact"]["state"], "connected");
    assert_eq!(seen["agents"][0]["id"], "default");
    assert_eq!(seen["confined"], true);

    daemon.send(&FromDaemon::Heartbeat { running: Vec::new(), metrics: None }).await;
    daemon.until("an answered heartbeat", |frame| matches!(frame, ToDaemon::Heartbeat { .. }).then_some(())).await;

    daemon.cut();
    let viewer = board.token(HOME, "viewer").await;
    eventually("the Board notices the cut line", || async {
        let list = viewer.get("/api/v1/vibers").await.expect(200).json();
        (list["items"][0]["contact"]["state"] == "disconnected").then_some(())
    })
    .await;
    assert_eq!(daemon.connect().await.conn_epoch, 2);
}

async fn who_has_no_good_credential_is_turned_away(engine: Engine) {
    let board = Board::start(engine).await;
    let mut daemon = FakeDaemon::enrol(&board, "lab").await;
    let good = format!("Bearer {}", daemon.credential);
    let refusals: [(&[(&'static str, &str)], u16); 4] = [
        (&[], 401),
        (&[("authorization", "Bearer vbd_nonsense")], 401),
        (&[("authorization", &good), ("origin", "http://evil.example")], 403),
        (&[("authorization", &good), ("origin", &board.url)], 403),
    ];
    for (headers, status) in refusals {
        match daemon.dial_with(headers).await {
            Err(tokio_tungstenite::tungstenite::Error::Http(answer)) => {
                assert_eq!(answer.status().as_u16(), status, "{headers:?}");
            }
            other => panic!("{headers:?}: {other:?}"),
        }
    }
    let query = board.anon().get(&format!("/ws/daemon?token={0}&credential={0}", daemon.credential)).await;
    assert!(query.status == 401 || query.status == 400 || query.status == 426, "{query:?}");
}

async fn a_hello_that_does_not_fit_ends_the_connection(engine: Engine) {
    let board = Board::start(engine).await;
    let mut daemon = FakeDaemon::enrol(&board, "lab").await;
    let other = FakeDaemon::enrol(&board, "other").await;

    let mut wrong = daemon.hello_frame();
    wrong.protocol = [9, 12];
    daemon.dial().await.expect("an upgrade");
    daemon.send(&FromDaemon::Hello(Box::new(wrong))).await;
    assert_eq!(daemon.closed().await.0, close::PROTOCOL);

    let mut wrong = daemon.hello_frame();
    wrong.viber_id = other.id.clone();
    daemon.dial().await.expect("an upgrade");
    daemon.send(&FromDaemon::Hello(Box::new(wrong))).await;
    let (code, _) = daemon.closed().await;
    assert!([close::AUTH, close::FORBIDDEN].contains(&code), "{code}");

    daemon.dial().await.expect("an upgrade");
    daemon.send(&FromDaemon::AckCommand { cmd_seq: 1 }).await;
    assert_eq!(daemon.closed().await.0, close::PROTOCOL);

    // None of it harmed anybody.
    daemon.connect().await;
    assert_eq!(viber(&board, "other").await["contact"]["state"], "disconnected");
}

async fn the_newer_connection_wins(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let mut newer = fixture.viber.twin();
    newer.boot = fixture.viber.boot.clone();
    let welcome = newer.connect().await;
    assert_eq!(welcome.conn_epoch, 2);
    assert_eq!(fixture.viber.closed().await.0, close::SUPERSEDED);
    assert_eq!(viber(&fixture.board, "lab").await["contact"]["state"], "connected");

    let viber_id = fixture.viber_id.clone();
    fixture.operator.submit(&viber_id, "for the newer one").await;
    assert_eq!(newer.submitted().await.goal, "for the newer one");
}

async fn a_copied_home_is_noticed(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let mut copy = fixture.viber.twin();
    for _ in 0..2 {
        copy.connect().await;
        fixture.viber.connect().await;
    }
    let id = fixture.viber_id.clone();
    let audit = fixture.board.token(HOME, "admin").await.get("/api/v1/audit").await.expect(200);
    let seen = fixture.operator.get(&format!("/api/v1/vibers/{id}")).await.expect(200);
    assert!(
        audit.body.contains("clone") || seen.body.contains("clone"),
        "two boots took turns and nobody says so: {} {}",
        audit.body,
        seen.body
    );
}

async fn a_board_that_stops_sends_its_vibers_away(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.board.begin_stop();
    let (code, reason) = fixture.viber.closed().await;
    assert_eq!(code, close::DRAINING);
    assert!(reason.contains("retry-after="), "{reason}");
    assert!(fixture.board.ended().await.success());
    fixture.board.restart().await;
    match fixture.viber.connect().await.conn_epoch {
        2 => {}
        epoch => panic!("epoch {epoch} after one restart"),
    }
    assert!(matches!(fixture.viber.next_within(Duration::from_millis(300)).await, None | Some(Heard::Frame(_))));
}
