//! A viber that lies can harm nobody but itself.

use board_tests::{
    Board, Engine, FakeDaemon, Fixture,
    board::HOME,
    fake_daemon::{accepted, completed, started},
    tasks::id,
};
use protocol::{TaskId, ToDaemon};

crate::on_both_databases!(
    the_third_refused_frame_in_a_minute_ends_the_connection,
    nothing_follows_the_last_event,
    a_viber_says_for_itself_alone_that_a_backup_was_restored,
);

async fn refused(viber: &mut FakeDaemon) -> String {
    viber
        .until("a refusal", |frame| match frame {
            ToDaemon::Error { code, .. } => Some(code.clone()),
            ToDaemon::AckEvents { .. } => Some("acknowledged".into()),
            _ => None,
        })
        .await
}

async fn the_third_refused_frame_in_a_minute_ends_the_connection(engine: Engine) {
    let board = Board::start(engine).await;
    let mut viber = FakeDaemon::connected(&board, "liar").await;
    for n in 0..3 {
        viber.report_unacked(&TaskId::new(n), 1, 1, vec![accepted()]).await;
    }
    let (code, _) = viber.closed().await;
    assert!((4400..4430).contains(&code), "{code}");
    viber.connect().await;
    let seen = board.token(HOME, "viewer").await.get("/api/v1/tasks").await.expect(200).json();
    assert_eq!(seen["items"].as_array().expect("a list").len(), 0);
}

async fn nothing_follows_the_last_event(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("end it").await;
    let viber = &mut fixture.viber;
    let task_id = viber.submitted().await.task_id;
    viber.report(&task_id, 1, 1, vec![accepted(), started(), completed("the end")]).await;
    viber.report_unacked(&task_id, 1, 4, vec![completed("another end")]).await;
    assert_ne!(refused(viber).await, "acknowledged");
    assert_eq!(fixture.operator.task(id(&task, "id")).await["result"]["text"], "the end");
}

async fn a_viber_says_for_itself_alone_that_a_backup_was_restored(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let mut liar = FakeDaemon::connected(&fixture.board, "liar").await;
    let (theirs, own) = (fixture.submit("go").await, fixture.operator.submit(liar.id.as_str(), "go").await);
    for viber in [&mut fixture.viber, &mut liar] {
        let task_id = viber.submitted().await.task_id;
        viber.report(&task_id, 1, 1, vec![accepted(), started()]).await;
        viber.cut();
    }
    // It has more commands than the Board gave it, and neither has its task any more.
    liar.last_cmd = 99;
    liar.connect().await;
    fixture.viber.connect().await;
    for (task, code) in [(&own, "board_restored"), (&theirs, "daemon_restarted")] {
        let ended = fixture.operator.task_in(id(task, "id"), "error").await;
        assert_eq!(ended["error"]["code"], code, "{ended}");
    }
    fixture.board.assert_invariants().await;
}
