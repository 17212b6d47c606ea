//! A38, A41: streams and sockets of what was taken away end by themselves.

use std::time::Duration;

use board_tests::{
    Board, Engine, FakeDaemon, Person,
    board::HOME,
    eventually,
    fake_daemon::{accepted, started, text},
    tasks::id,
    wait::SLACK,
    within,
};
use protocol::limits::close;
use serde_json::{Value, json};

use super::{ELSEWHERE, audit, member};

crate::on_both_databases!(
    a38_a_stream_of_another_team_is_not_found_and_ones_own_ends_with_the_membership,
    a41_a_suspended_team_is_silent_and_its_tasks_are_stopped,
    a41_a_deleted_team_is_gone_with_its_sockets,
);

/// Whatever was taken away ends in this time.
const ENDED_TIMEOUT: Duration = Duration::from_secs(5);

/// A stream's frames until it ends; the last one is one of these, without an id.
async fn ends(mut stream: board_tests::person::EventStream, with: &[&str]) {
    let frames = async {
        let mut all = Vec::new();
        while let Some(frame) = stream.next().await {
            all.push(frame);
        }
        all
    };
    let frames = tokio::time::timeout(ENDED_TIMEOUT * SLACK, frames).await.expect("it ends");
    let last = frames.last().expect("an end");
    assert!(with.contains(&last.event.as_str()) && last.id.is_none(), "{frames:#?}");
}

async fn a38_a_stream_of_another_team_is_not_found_and_ones_own_ends_with_the_membership(engine: Engine) {
    let board = Board::start(engine).await;
    let owner = board.owner().await;
    let bo = board.operator(HOME, "bo@example.org", "operator").await;
    let mut viber = FakeDaemon::connected(&board, "lab").await;
    let task = owner.submit(viber.id.as_str(), "be watched").await;
    let submit = viber.submitted().await;
    viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("a")]).await;
    board.make_operator(ELSEWHERE, "far@example.org", "owner").await;
    let far = FakeDaemon::enrol_in(&board, ELSEWHERE, "far").await;
    let theirs = board.token(ELSEWHERE, "operator").await.submit(far.id.as_str(), "not yours").await;
    let path = |task: &Value| format!("/api/v1/tasks/{}/events", id(task, "id"));
    for foreign in [path(&theirs), path(&json!({"id": "task_0123456789abcdef0123456789abcdef"}))] {
        let request = bo.request(reqwest::Method::GET, &foreign).header("accept", "text/event-stream");
        assert_eq!(bo.send(request).await.expect(404).code(), "not_found");
    }
    let page = format!("/t/{HOME}/live?view=session:{}", id(&theirs, "sessionId"));
    bo.send(bo.request(reqwest::Method::GET, &page).header("accept", "text/event-stream")).await.expect(404);

    // One's own, by the API and as a page, and then the membership is over.
    let mut open = vec![bo.stream(&path(&task), None).await];
    for view in ["home".to_owned(), "vibers".to_owned(), format!("session:{}", id(&task, "sessionId"))] {
        open.push(bo.stream(&format!("/t/{HOME}/live?view={view}"), None).await);
    }
    for stream in &mut open {
        stream.next().await.expect("something to see");
    }
    owner.delete(&format!("/api/v1/members/{}", member(&owner, "bo@example.org").await)).await.expect(204);
    for stream in open {
        ends(stream, &["end"]).await;
    }
    let request = bo.request(reqwest::Method::GET, &path(&task)).header("accept", "text/event-stream");
    bo.send(request).await.expect(404);
    board.assert_invariants().await;
}

/// A team with a running task, one that waits, and an open stream of everybody.
struct Busy {
    owner: Person,
    program: Person,
    viber: FakeDaemon,
    running: Value,
    waiting: Value,
    streams: Vec<board_tests::person::EventStream>,
}

impl Busy {
    async fn make(board: &Board) -> Self {
        let owner = board.owner().await;
        let program = board.token(HOME, "admin").await;
        let mut viber = FakeDaemon::connected(board, "lab").await;
        let running = program.submit(viber.id.as_str(), "run on").await;
        let submit = viber.submitted().await;
        viber.report(&submit.task_id, 1, 1, vec![accepted(), started(), text("a")]).await;
        let waiting = program.follow_up(&running, "and then this").await;
        let path = format!("/api/v1/tasks/{}/events", id(&running, "id"));
        let mut streams = vec![program.stream(&path, None).await, owner.stream(&path, None).await];
        streams.push(owner.stream(&format!("/t/{HOME}/live?view=session:{}", id(&running, "sessionId")), None).await);
        for stream in &mut streams {
            stream.next().await.expect("something to see");
        }
        Self { owner, program, viber, running, waiting, streams }
    }

    /// Sockets and streams end.
    async fn all_out(&mut self, with: &[&str]) {
        let closed = tokio::time::timeout(ENDED_TIMEOUT * SLACK, self.viber.closed()).await.expect("it is closed");
        assert_eq!(closed.0, close::AUTH);
        for stream in std::mem::take(&mut self.streams) {
            ends(stream, with).await;
        }
        let refused = self.viber.dial().await.expect_err("it may not come back");
        assert!(refused.to_string().contains("401"), "{refused}");
    }
}

async fn a41_a_suspended_team_is_silent_and_its_tasks_are_stopped(engine: Engine) {
    let board = Board::start(engine).await;
    let mut busy = Busy::make(&board).await;
    board.cli(&["team", "suspend", "--team", HOME]).await.good();
    busy.all_out(&["end"]).await;
    for person in [&busy.owner, &busy.program] {
        person.get(&format!("/api/v1/tasks/{}", id(&busy.running, "id"))).await.expect(403);
    }
    let token = board.cli(&["join-token", "--team", HOME]).await;
    if token.status.success() {
        FakeDaemon::join(&board.anon(), token.out.trim(), "late").await.expect(401);
    }

    // Afterwards everybody sees what became of the work: stopped, by whom, and written down.
    board.cli(&["team", "suspend", "--team", HOME, "--resume"]).await.good();
    eventually("the team is open again", || async {
        (busy.program.get("/api/v1/vibers").await.status == 200).then_some(())
    })
    .await;
    let running = busy.program.task(id(&busy.running, "id")).await;
    let waiting = busy.program.task(id(&busy.waiting, "id")).await;
    assert_eq!(
        (&running["state"], &waiting["state"]),
        (&json!("stopped"), &json!("stopped")),
        "{running:#}{waiting:#}"
    );
    assert_eq!(running["stopConfirmedAt"], Value::Null, "the viber has not said so yet");
    let rows = audit(&busy.program).await;
    let stops = rows.iter().filter(|row| row["action"] == "task.stop").count();
    assert_eq!(stops, 2, "{rows:#?}");
    assert!(rows.iter().any(|row| row["action"] == "team.suspend"), "{rows:#?}");
    // The daemon that comes back is told, and confirms.
    busy.viber.running =
        vec![protocol::AttemptRef { task_id: id(&busy.running, "id").parse().expect("an id"), attempt: 1 }];
    busy.viber.connect().await;
    let stop = busy.viber.command().await;
    assert!(matches!(stop, protocol::Command::Stop { .. }), "{stop:?}");
    let task: protocol::TaskId = id(&busy.running, "id").parse().expect("an id");
    busy.viber.report(&task, 1, 4, vec![board_tests::fake_daemon::stopped()]).await;
    assert!(busy.program.task(task.as_str()).await["stopConfirmedAt"].is_string());
    board.assert_invariants().await;
}

async fn a41_a_deleted_team_is_gone_with_its_sockets(engine: Engine) {
    let board = Board::start(engine).await;
    board.make_operator(ELSEWHERE, "far@example.org", "owner").await;
    let other = board.token(ELSEWHERE, "admin").await;
    let far = FakeDaemon::connected_in(&board, ELSEWHERE, "far").await;
    let mut busy = Busy::make(&board).await;
    let said = board.cli(&["team", "delete", "--team", HOME, "--yes"]).await;
    assert!(said.status.success() && said.err.contains("team deleted"), "its audit went with it: {said:#?}");
    // A page whose session is gone is fetched anew, and finds nothing.
    busy.all_out(&["end", "reset"]).await;
    busy.owner.get(&format!("/api/v1/tasks/{}", id(&busy.running, "id"))).await.expect(404);
    // Who was let in a moment ago is known for two seconds at most, where another process deletes the team.
    within(Duration::from_secs(2) * SLACK, "the pages are gone", || async {
        (busy.owner.page(&format!("/t/{HOME}")).await.status == 404).then_some(())
    })
    .await;
    busy.program.get("/api/v1/vibers").await.expect(401);
    // Nobody else notices.
    let vibers = other.get("/api/v1/vibers").await.expect(200).json();
    assert_eq!(
        (&vibers["items"][0]["id"], &vibers["items"][0]["contact"]["state"]),
        (&json!(far.id), &json!("connected"))
    );
    // The ledger misses the deleted tasks, and nothing else.
    let wrong = board.violated_invariants().await;
    let deleted = [id(&busy.running, "id"), id(&busy.waiting, "id")];
    let others = wrong.iter().filter(|line| !deleted.iter().any(|task| line.contains(task)));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&String>::new());
}
