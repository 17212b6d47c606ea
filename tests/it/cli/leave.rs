//! `daemon-agent leave`: a machine ends its own enrolment.

use board_tests::{Board, Engine, Viber, board::HOME, eventually};
use serde_json::Value;

#[tokio::test]
async fn a_machine_leaves_its_board_and_may_join_another() {
    let board = Board::start(Engine::Sqlite).await;
    let admin = board.token(HOME, "admin").await;
    let mut viber = Viber::join(&board, "wanderer").await;
    viber.connected(&admin).await;
    let busy = viber.cli(&["leave"]).await;
    assert!(busy.code() == 1 && busy.err.contains("daemon runs"), "{busy:?}");
    assert!(viber.home().join("state/credential").exists());
    viber.stop().await;

    let credential = std::fs::read_to_string(viber.home().join("state/credential")).expect("a credential");
    let credential: Value = serde_json::from_str(&credential).expect("JSON");
    let left = viber.cli(&["leave"]).await;
    assert!(left.code() == 0 && left.out.contains("revoked"), "{left:?}");
    let secret = credential["credential"].as_str().expect("a secret");
    assert!(!left.out.contains(secret) && !left.err.contains(secret), "{left:?}");
    assert!(!viber.home().join("state/credential").exists());
    assert!(!viber.home().join("state/outbox").exists() && !viber.home().join("state/journal").exists());
    eventually("the Board has no such viber any more", || async {
        let vibers = admin.get("/api/v1/vibers").await.expect(200).json();
        vibers["items"].as_array()?.is_empty().then_some(())
    })
    .await;
    let stranger = board_tests::Person::with_token(&board.url, secret);
    assert_eq!(stranger.delete("/api/daemon/enrolment").await.status, 401);

    let again = viber.cli(&["leave"]).await;
    assert_eq!(again.code(), 78, "{again:?}");
    viber.enrol(&board).await;
    viber.run();
    viber.connected(&admin).await;
}

#[tokio::test]
async fn a_board_that_is_gone_is_left_only_when_that_is_said() {
    let mut board = Board::start(Engine::Sqlite).await;
    let viber = Viber::fresh("orphan");
    viber.enrol(&board).await;
    board.stop().await;
    let said = viber.cli(&["leave"]).await;
    assert!(said.code() == 1 && said.err.contains("--offline"), "{said:?}");
    assert!(viber.home().join("state/credential").exists());
    let said = viber.cli(&["leave", "--offline", "--json"]).await;
    let answer: Value = serde_json::from_str(&said.out).expect("JSON");
    assert_eq!((said.code(), &answer["revoked"]), (0, &Value::Bool(false)), "{said:?}");
    assert!(!viber.home().join("state/credential").exists());
}
