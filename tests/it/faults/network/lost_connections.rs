//! F25 to F27: connections that are gone without a word, both ways or one way.

use std::time::Duration;

use board_tests::{
    Board, FakeDaemon, Proxy,
    board::HOME,
    fake_daemon::{accepted, completed, started, text as delta},
    llm::{Gate, Piece, Reply},
    proxy::Hole,
    tasks::id,
    wait::EVENT_TIMEOUT,
    within,
};
use tokio::time::Instant;

use super::{ANY_ENGINE, Network, exact, over_a_network, seed, words};

const WORD_PAUSE: Duration = Duration::from_millis(5);
/// A silent viber is seen to be silent after so long.
const NOTICED_TIMEOUT: Duration = Duration::from_secs(30);
/// And is back on a new connection.
const BACK_TIMEOUT: Duration = Duration::from_secs(40);

/// The first half at once, the second one when the gate opens.
fn halves(gate: &Gate) -> Vec<Reply> {
    vec![Reply::Stream([words(0, 40, WORD_PAUSE), vec![Piece::Wait(gate.clone())], words(40, 80, WORD_PAUSE)].concat())]
}

/// The real figures: nothing is shortened, and most of it is waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f25_a_half_open_connection_is_noticed_and_replaced() {
    let gate = Gate::new();
    let fixture = over_a_network(halves(&gate), |_| {}).await;
    let task = fixture.submit("count").await;
    fixture.recorded(&task, 39).await;
    let mut viewer = fixture.operator.stream(&format!("/api/v1/tasks/{}/events", id(&task, "id")), None).await;
    let first = fixture.proxy().counts().connections;
    fixture.proxy().make_half_open();
    let began = Instant::now();
    gate.open();
    within(NOTICED_TIMEOUT * 2, "disconnected", || async { (fixture.contact().await == "disconnected").then_some(()) })
        .await;
    let left = (BACK_TIMEOUT * 2).saturating_sub(began.elapsed());
    within(left, "a new connection", || async {
        (fixture.proxy().counts().connections > first && fixture.contact().await == "connected").then_some(())
    })
    .await;
    fixture.completes(&task, 80, EVENT_TIMEOUT).await;
    let shown = viewer.until("end").await;
    let contacts: Vec<String> = shown
        .iter()
        .filter(|frame| frame.event == "task")
        .map(|frame| frame.json()["contact"]["state"].as_str().unwrap_or_default().to_owned())
        .collect();
    let lost = contacts.iter().position(|contact| contact == "disconnected");
    assert!(lost.is_some_and(|at| contacts[at..].contains(&"connected".to_owned())), "{contacts:?}");
    fixture.assert_invariants(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f26_lost_acknowledgements_make_nothing_twice() {
    let gate = Gate::new();
    let fixture = over_a_network(halves(&gate), |_| {}).await;
    let task = fixture.submit("count").await;
    fixture.recorded(&task, 39).await;
    let last = fixture.proxy().newest();
    fixture.proxy().down(|down| down.hole = Hole::UpTo(last));
    gate.open();
    // The Board has it all; the daemon knows nothing of that.
    let done = fixture.operator.task_in(id(&task, "id"), "completed").await;
    let before = fixture.operator.events(id(&task, "id")).await;
    fixture.proxy().reset();
    fixture.viber.connected(&fixture.operator).await;
    fixture.completes(&task, 80, EVENT_TIMEOUT).await;
    assert_eq!(fixture.operator.events(id(&task, "id")).await, before);
    assert_eq!(done["state"], "completed");
    fixture.assert_invariants(1).await;

    // A daemon that forgot every acknowledgement says all of it again.
    let (board, proxy) = (&fixture.board, fixture.proxy());
    proxy.heal();
    let mut fake = FakeDaemon::enrol(board, "fake").await;
    fake.dial_at(&proxy.url());
    fake.connect().await;
    let task = fixture.operator.submit(fake.id.as_str(), "say it once").await;
    let submit = fake.submitted().await;
    let all = || vec![accepted(), started(), delta("once "), delta("only"), completed("once only")];
    proxy.down(|down| down.hole = Hole::All);
    fake.report_unacked(&submit.task_id, 1, 1, all()).await;
    fixture.operator.task_in(id(&task, "id"), "completed").await;
    for _ in 0..3 {
        proxy.reset();
        proxy.heal();
        fake.connect().await;
        fake.report_unacked(&submit.task_id, 1, 1, all()).await;
        fake.report(&submit.task_id, 1, 5, vec![completed("once only")]).await;
    }
    assert_eq!(fixture.operator.events(id(&task, "id")).await.len(), 5);
    exact(&fixture.operator, &fixture.operator.task(id(&task, "id")).await, "once only").await;
    fixture.assert_invariants(1).await;
}

/// The viber hears and is not heard. What it was told in that time is not lost, and not done twice.
async fn unheard(outage: Duration) {
    let gate = Gate::new();
    let script = [halves(&gate), vec![Reply::Stream(words(0, 20, WORD_PAUSE))]].concat();
    let fixture = over_a_network(script, |_| {}).await;
    let first = fixture.submit("count").await;
    fixture.recorded(&first, 39).await;
    let last = fixture.proxy().newest();
    fixture.proxy().up(|up| up.hole = Hole::UpTo(last));
    let began = Instant::now();
    let second = fixture.submit("count again").await;
    board_tests::eventually("the command has arrived", || async { (fixture.llm.requests().len() == 2).then_some(()) })
        .await;
    gate.open();
    if outage >= NOTICED_TIMEOUT {
        within(NOTICED_TIMEOUT * 2, "disconnected", || async {
            (fixture.contact().await == "disconnected").then_some(())
        })
        .await;
        within((BACK_TIMEOUT * 2).saturating_sub(began.elapsed()), "back", || async {
            (fixture.contact().await == "connected").then_some(())
        })
        .await;
    } else {
        tokio::time::sleep_until(began + outage).await;
        fixture.proxy().reset();
    }
    fixture.completes(&first, 80, EVENT_TIMEOUT).await;
    fixture.completes(&second, 20, EVENT_TIMEOUT).await;
    fixture.assert_invariants(2).await;
}

/// Three seconds, and an end that both sides see; the real silence is `long`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f27_what_is_told_to_a_viber_that_is_not_heard_is_done_once() {
    unheard(Duration::from_secs(3)).await;
}

/// A command that vanishes on its way is sent again, and one that was only not confirmed is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f27_commands_into_a_hole_are_sent_again() {
    let board = Board::start(ANY_ENGINE).await;
    let operator = board.token(HOME, "operator").await;
    let proxy = Proxy::before(&board, seed()).await;
    let mut fake = FakeDaemon::enrol(&board, "fake").await;
    fake.dial_at(&proxy.url());
    fake.connect().await;
    proxy.both(|way| way.hole = Hole::UpTo(1));
    let task = operator.submit(fake.id.as_str(), "into the hole").await;
    fake.cut();
    fake.connect().await;
    let again = fake.command_unacked().await;
    fake.cut();
    fake.connect().await;
    let submit = fake.submitted().await;
    assert_eq!((submit.task_id.as_str(), again.cmd_seq), (id(&task, "id"), 1));
    fake.cut();
    fake.connect().await;
    assert!(fake.next_within(Duration::from_secs(1)).await.is_none(), "it is on disk: nothing is sent again");
    fake.report(&submit.task_id, 1, 1, vec![accepted(), started(), completed("done")]).await;
    board.assert_invariants().await;
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn f27_a_viber_that_is_not_heard_is_noticed_and_comes_back() {
        unheard(NOTICED_TIMEOUT).await;
    }
}
