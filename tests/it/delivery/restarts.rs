//! `kill -9` of the Board while a viber reports: nothing lost, nothing doubled.

use board_tests::{
    Engine, Fixture,
    fake_daemon::{accepted, completed, started, text},
    tasks::{id, said},
};
use protocol::OutboxRange;

crate::on_both_databases!(
    a_board_killed_between_commit_and_ack_records_everything_once,
    an_acknowledged_submit_survives_the_board,
    a_viewer_resumes_where_it_was,
);

async fn a_board_killed_between_commit_and_ack_records_everything_once(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("count").await;
    let submit = fixture.viber.submitted().await;
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started()]).await;
    let words: Vec<String> = (0..120).map(|n| format!("w{n} ")).collect();
    // The daemon's disk holds what was never acknowledged; each round sends all of it again.
    let mut last = 2;
    for (round, chunk) in words.chunks(20).enumerate() {
        let bodies: Vec<_> = chunk.iter().map(|word| text(word)).collect();
        let from = 3 + 20 * round as u64;
        fixture.viber.report_unacked(&submit.task_id, 1, from, bodies).await;
        if round % 2 == 0 {
            fixture.board.kill9();
            fixture.board.restart().await;
            let first = last + 1;
            last = from + 19;
            fixture.viber.outbox =
                vec![OutboxRange { task_id: submit.task_id.clone(), attempt: 1, first_seq: first, last_seq: last }];
            fixture.viber.running = vec![protocol::AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
            let welcome = fixture.viber.connect().await;
            let acked = welcome.acked.iter().find(|ack| ack.task_id == submit.task_id).map_or(0, |ack| ack.seq);
            assert!(acked + 1 >= first, "acknowledged before and forgotten: {acked}");
            let again = words.iter().take(20 * (round + 1)).skip(usize::try_from(first - 3).expect("small"));
            fixture.viber.report(&submit.task_id, 1, first, again.map(|word| text(word)).collect()).await;
        } else {
            last = from + 19;
            fixture.viber.acked(&submit.task_id, 1, last).await;
        }
    }
    fixture.viber.report(&submit.task_id, 1, last + 1, vec![completed(&words.concat())]).await;
    let messages = fixture.operator.messages(id(&task, "sessionId")).await;
    assert_eq!(said(&messages[1], "text").trim(), words.concat().trim());
    let seqs: Vec<u64> =
        fixture.operator.events(id(&task, "id")).await.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert_eq!(seqs, (1..=last + 1).collect::<Vec<_>>());
    fixture.board.assert_invariants().await;
}

async fn an_acknowledged_submit_survives_the_board(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    fixture.viber.cut();
    let mut goals = Vec::new();
    for n in 0..3 {
        let goal = format!("goal {n}");
        fixture.submit(&goal).await;
        fixture.board.kill9();
        fixture.board.restart().await;
        goals.push(goal);
    }
    fixture.viber.connect().await;
    for goal in goals {
        assert_eq!(fixture.viber.submitted().await.goal, goal);
    }
    fixture.board.assert_invariants().await;
}

async fn a_viewer_resumes_where_it_was(engine: Engine) {
    let mut fixture = Fixture::on(engine).with_fake().await;
    let task = fixture.submit("tell me").await;
    let submit = fixture.viber.submitted().await;
    let path = format!("/api/v1/tasks/{}/events", id(&task, "id"));
    fixture.viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("a"), text("b")]).await;
    let mut viewer = fixture.operator.stream(&path, None).await;
    let mut ids = Vec::new();
    while ids.len() < 3 {
        ids.extend(viewer.next().await.expect("goes on").id);
    }
    assert_eq!(ids, ["1.1", "1.2", "1.3"]);
    fixture.board.kill9();
    fixture.board.restart().await;
    fixture.viber.running = vec![protocol::AttemptRef { task_id: submit.task_id.clone(), attempt: 1 }];
    fixture.viber.connect().await;
    let mut viewer = fixture.operator.stream(&path, Some("1.3")).await;
    fixture.viber.report(&submit.task_id, 1, 5, vec![text("c"), completed("abc")]).await;
    let frames = viewer.until("end").await;
    let ids: Vec<String> = frames.iter().filter_map(|frame| frame.id.clone()).collect();
    assert_eq!(ids, ["1.4", "1.5", "1.6"], "{frames:#?}");
    assert!(frames.iter().any(|frame| frame.event == "task" && frame.id.is_none()));
    assert!(viewer.next().await.is_none(), "the stream ends after `end`");
    fixture.board.assert_invariants().await;
}
