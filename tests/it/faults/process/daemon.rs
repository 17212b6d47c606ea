//! F14 and F15: the daemon dies after its task's end, and before its task's beginning.

use board_tests::{Engine, Fixture, Viber, invariants::notes, tasks::id};
use serde_json::{Value, json};

crate::on_both_databases!(
    f14_killed_before_the_result_was_sent_it_is_delivered,
    f15_killed_between_accepted_and_spawn_it_is_started_once,
);

/// What is done to a daemon that dies.
trait Crashing {
    /// The failpoint ends the daemon; it is started again without it.
    async fn crashed(&mut self);
    /// The attempts of a task that were begun, as the daemons noted them.
    fn begun(&self, task: &Value) -> Vec<u32>;
}

impl Crashing for Fixture<Viber> {
    async fn crashed(&mut self) {
        let status = self.viber.ended().await;
        assert!(!status.success(), "it was to crash: {status}");
        self.viber.heal().await;
        self.viber.run();
    }

    fn begun(&self, task: &Value) -> Vec<u32> {
        let all = notes(&self.board.ledger().read(), "begin");
        all.into_iter().filter(|((of, _), _)| of == id(task, "id")).map(|((_, attempt), _)| attempt).collect()
    }
}

async fn f14_killed_before_the_result_was_sent_it_is_delivered(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    // Its ending is on the disk; nobody was told.
    fixture.viber.fail("outbox::after_end", "1*return(crash)").await;
    let task = fixture.submit("stream 5 every 10").await;
    fixture.crashed().await;
    let done = fixture.ended(&task).await;
    assert_eq!((&done["state"], &done["attempt"]), (&json!("completed"), &json!(1)));
    assert_eq!(done["result"]["text"].as_str().map(str::trim), Some("1 2 3 4 5"));
    assert_eq!(fixture.begun(&task), [1]);
    // The work has ended and its ending is not on the disk: then nobody knows it, and the daemon says so.
    fixture.viber.fail("task::before_end", "1*return(crash)").await;
    let task = fixture.submit("stream 5 every 10").await;
    fixture.crashed().await;
    let done = fixture.ended(&task).await;
    assert_eq!((&done["state"], &done["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    assert_eq!((fixture.begun(&task), &done["attempt"]), (vec![1], &json!(1)));
    fixture.board.assert_invariants().await;
}

async fn f15_killed_between_accepted_and_spawn_it_is_started_once(engine: Engine) {
    let mut fixture = Fixture::on(engine).echo_model().with_viber().await;
    // In the journal: before the Board is told, and after that, just before the beginning is journalled.
    for point in ["link::before_ack", "task::before_begun"] {
        fixture.viber.fail(point, "1*return(crash)").await;
        let task = fixture.submit("hello").await;
        fixture.crashed().await;
        let done = fixture.ended(&task).await;
        assert_eq!((&done["state"], &done["attempt"]), (&json!("completed"), &json!(1)), "{point}: {done}");
        assert!(
            fixture.begun(&task).contains(&1) && fixture.begun(&task).len() == 1,
            "{point}: {:?}",
            fixture.begun(&task)
        );
    }
    // The beginning is journalled and nothing was started yet: it is never started a second time, and says so.
    fixture.viber.fail("task::before_spawn", "1*return(crash)").await;
    let task = fixture.submit("hello").await;
    fixture.crashed().await;
    let done = fixture.ended(&task).await;
    assert_eq!((&done["state"], &done["error"]["code"]), (&json!("error"), &json!("daemon_restarted")));
    assert!(fixture.begun(&task).is_empty());
    // Not yet in the journal: the Board sends it again.
    fixture.viber.fail("journal::before_fsync", "1*return(crash)").await;
    let task = fixture.submit("hello").await;
    fixture.crashed().await;
    let done = fixture.ended(&task).await;
    assert_eq!((&done["state"], fixture.begun(&task)), (&json!("completed"), vec![1]));
    fixture.board.assert_invariants().await;
}
