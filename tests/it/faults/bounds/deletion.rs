//! F78, F79 and F92: what is deleted is gone for everybody at once, and its rows are taken away to the last one.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon, Fixture, Neighbour,
    board::HOME,
    fixture::ELSEWHERE,
    tasks::id,
    wait::{SLACK, within},
};
use serde_json::json;

use super::{LongLog, come_back, die_after, log, logged, rows, session};

const LONG_WORK_TIMEOUT: Duration = Duration::from_secs(180);

async fn f78_a_long_session_is_deleted_at_once_and_to_its_end(engine: Engine) {
    let mut fixture = logged(engine, &log(700)).await;
    fixture.take_over().await;
    let address = format!("/api/v1/sessions/{}", session());
    // Something of it is at work, and something waits.
    let body = json!({ "goal": "at work", "sessionId": session() });
    let task = fixture.operator.post("/api/v1/tasks", &body).await.expect(201).json();
    fixture.operator.post("/api/v1/tasks", &body).await.expect(201);
    fixture.viber.submitted().await;
    let listed = fixture.operator.get("/api/v1/sessions").await.expect(200).json();
    assert_eq!(listed["items"].as_array().expect("a list").len(), 1);

    die_after(&mut fixture.board, 8).await;
    fixture.operator.delete(&address).await.expect(204);
    // From then on it is nowhere, though its rows are.
    let gone = fixture.operator.try_send(fixture.operator.request(reqwest::Method::GET, &address)).await;
    assert!(gone.is_err() || gone.is_ok_and(|answer| answer.status == 404));
    come_back(&mut fixture.board).await;
    let owner = fixture.board.owner().await;
    for path in [address.clone(), format!("{address}/messages"), format!("/api/v1/tasks/{}", id(&task, "id"))] {
        fixture.operator.get(&path).await.expect(404);
    }
    owner.page(&format!("/t/{HOME}/sessions/{}", session())).await.expect(404);
    let listed = fixture.operator.get("/api/v1/sessions").await.expect(200).json();
    assert_eq!(listed["items"], json!([]));
    let refused = fixture.operator.post("/api/v1/tasks", &body).await;
    assert_eq!(refused.status, 404, "{refused:?}");
    // It goes on by itself.
    let left = "SELECT (SELECT COUNT(*) FROM sessions) + (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM attempts) \
                + (SELECT COUNT(*) FROM messages) + (SELECT COUNT(*) FROM parts) + (SELECT COUNT(*) FROM imports) AS n";
    within(LONG_WORK_TIMEOUT, "nothing is left", || async { (rows(&fixture.board, left).await == 0).then_some(()) })
        .await;
    // Its id is free: the machine still has the log.
    fixture.viber.come_back().await;
    fixture.take_over().await;
    assert_eq!(rows(&fixture.board, "SELECT COUNT(*) AS n FROM tasks").await, 700);
    // The index of words is complete: it goes with the rest, in changes as short as before.
    within(LONG_WORK_TIMEOUT, "every text is in the index", || async {
        (rows(&fixture.board, "SELECT COUNT(*) AS n FROM unindexed_texts").await == 0).then_some(())
    })
    .await;
    fixture.operator.delete(&address).await.expect(204);
    within(LONG_WORK_TIMEOUT, "nothing is left", || async { (rows(&fixture.board, left).await == 0).then_some(()) })
        .await;
    fixture.board.assert_invariants().await;
}

async fn f79_a_team_is_deleted_to_its_end_though_the_board_dies(engine: Engine) {
    let mut fixture = logged(engine, &log(300)).await;
    fixture.take_over().await;
    fixture.board.make_operator("elsewhere", "far@example.org", "owner").await;
    let other = fixture.board.token("elsewhere", "operator").await;
    let far = FakeDaemon::enrol_in(&fixture.board, "elsewhere", "far").await;
    let kept = other.submit(far.id.as_str(), "of another team").await;
    // Another process deletes it, the Board takes it away, and is cut off in the middle.
    die_after(&mut fixture.board, 6).await;
    fixture.board.cli(&["team", "delete", "--team", HOME, "--yes"]).await.good();
    come_back(&mut fixture.board).await;
    within(LONG_WORK_TIMEOUT, "nobody gets in", || async {
        (fixture.operator.get("/api/v1/sessions").await.status == 401).then_some(())
    })
    .await;
    let left =
        "SELECT (SELECT COUNT(*) FROM teams) + (SELECT COUNT(*) FROM sessions) + (SELECT COUNT(*) FROM tasks) AS n";
    within(LONG_WORK_TIMEOUT, "the other team alone is left", || async {
        (rows(&fixture.board, left).await == 3).then_some(())
    })
    .await;
    assert_eq!(id(&other.task(id(&kept, "id")).await, "state"), "pending");
    // The name is free again.
    let said = fixture.board.cli(&["team", "add", "--team", HOME]).await;
    assert!(said.status.success(), "{said:?}");
    assert_invariants_but_deleted_tasks(&fixture.board).await;
}

async fn f79_a_team_is_deleted_though_the_tasks_of_a_revoked_viber_cannot_be_ended(engine: Engine) {
    let fixture = Fixture::on(engine).with_fake().await;
    Neighbour::of(&fixture.board).await;
    let task = fixture.submit("cannot be ended").await;
    let trigger =
        format!("CREATE TRIGGER stuck BEFORE UPDATE ON tasks FOR EACH ROW WHEN (OLD.task_id = '{}')", id(&task, "id"));
    if engine == Engine::Sqlite {
        fixture.board.sql_text(format!("{trigger} BEGIN SELECT RAISE(ABORT, 'stuck'); END")).await;
    } else {
        let function = "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS \
                        'BEGIN RAISE EXCEPTION ''stuck''; END'";
        fixture.board.sql(function).await;
        fixture.board.sql_text(format!("{trigger} EXECUTE FUNCTION stuck()")).await;
    }
    let said = fixture.board.cli(&["viber", "revoke", "--team", HOME, "lab"]).await;
    assert_ne!(said.code(), 0, "its task cannot be ended: {said:?}");
    within(LONG_WORK_TIMEOUT, "the Board tries it again", || async {
        let log = fixture.board.log();
        log.lines().any(|line| line.contains("a duty failed") && line.contains("purge")).then_some(())
    })
    .await;
    fixture.board.cli(&["team", "delete", "--team", ELSEWHERE, "--yes"]).await.good();
    let left = "SELECT COUNT(*) AS n FROM teams";
    within(LONG_WORK_TIMEOUT, "the other team is gone", || async {
        (rows(&fixture.board, left).await == 1).then_some(())
    })
    .await;
    let untie = if engine == Engine::Sqlite { "DROP TRIGGER stuck" } else { "DROP TRIGGER stuck ON tasks" };
    fixture.board.sql(untie).await;
    let open = "SELECT COUNT(*) AS n FROM tasks WHERE state IN ('pending', 'running')";
    within(LONG_WORK_TIMEOUT, "the task has ended", || async { (rows(&fixture.board, open).await == 0).then_some(()) })
        .await;
    assert_invariants_but_deleted_tasks(&fixture.board).await;
}

/// Rows of a viber that is not here: commands it has had, files it has told of, changes made for it.
async fn heap(board: &Board, team: &str, viber: &str) {
    let numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)";
    let of = format!("(SELECT team_id FROM teams WHERE slug = '{team}'), '{viber}'");
    for insert in [
        format!(
            "INSERT INTO commands (team_id, viber_id, cmd_seq, kind, body, created_at, acked_at) {numbers} \
             SELECT {of}, 1000 + i, 'drain', '{{}}', 1, 1 FROM n"
        ),
        format!(
            "INSERT INTO files (team_id, viber_id, path, heard_at) {numbers} SELECT {of}, CAST(i AS TEXT), 1 FROM n"
        ),
        format!(
            "INSERT INTO listings (team_id, viber_id, path, body, heard_at) {numbers} \
             SELECT {of}, CAST(i AS TEXT), '{{}}', 1 FROM n"
        ),
        format!(
            "INSERT INTO edits (team_id, viber_id, edit_id, path, op, state, made_by, author, created_at) {numbers} \
             SELECT {of}, '{viber}' || CAST(i AS TEXT), 'a', 'put', 'applied', 'a', 'a', 1 FROM n"
        ),
    ] {
        assert_eq!(board.sql_text(insert.clone()).await, 900, "{insert}");
    }
}

async fn f92_a_team_whose_viber_has_a_great_many_rows_is_deleted_by_short_changes(engine: Engine) {
    let mut board = Board::start(engine).await;
    let neighbour = Neighbour::of(&board).await;
    let viber = FakeDaemon::enrol(&board, "lab").await;
    heap(&board, HOME, viber.id.as_str()).await;
    let said = board.cli(&["team", "delete", "--team", HOME, "--yes"]).await;
    assert!(said.status.success() && !said.err.contains("wrote more"), "{said:?}");
    let left = "SELECT (SELECT COUNT(*) FROM teams) + (SELECT COUNT(*) FROM commands WHERE kind = 'drain') \
                + (SELECT COUNT(*) FROM files) + (SELECT COUNT(*) FROM listings) + (SELECT COUNT(*) FROM edits) AS n";
    within(LONG_WORK_TIMEOUT, "the other team alone is left", || async {
        let asked = std::time::Instant::now();
        neighbour.operator.get("/api/v1/vibers").await.expect(200);
        neighbour.operator.submit(neighbour.viber.id.as_str(), "beside it").await;
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(2) * SLACK, "somebody else waited for {took:?}");
        (rows(&board, left).await == 1).then_some(())
    })
    .await;
    // I13: what foreign keys take along is counted, too.
    board.assert_invariants().await;

    // Nobody serves: the command does it by itself, in changes as short.
    board.cli(&["team", "add", "--team", "third"]).await.good();
    let viber = FakeDaemon::enrol_in(&board, "third", "lab").await;
    heap(&board, "third", viber.id.as_str()).await;
    board.stop().await;
    let said = board.cli(&["team", "delete", "--team", "third", "--yes"]).await;
    assert!(said.status.success() && !said.err.contains("wrote more"), "{said:?}");
    assert_eq!(rows(&board, left).await, 1);
    board.assert_invariants().await;
}

/// Panics if an invariant is violated, except that the deleted tasks are missing.
async fn assert_invariants_but_deleted_tasks(board: &Board) {
    let wrong = board.violated_invariants().await;
    assert!(wrong.iter().all(|line| line.starts_with("I1 ") || line.starts_with("I3 ")), "{wrong:#?}");
}

crate::on_both_databases!(
    f92_a_team_whose_viber_has_a_great_many_rows_is_deleted_by_short_changes,
    f78_a_long_session_is_deleted_at_once_and_to_its_end,
    f79_a_team_is_deleted_to_its_end_though_the_board_dies,
    f79_a_team_is_deleted_though_the_tasks_of_a_revoked_viber_cannot_be_ended,
);
