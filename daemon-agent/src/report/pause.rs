//! Whether people hold an attempt: asked for by commands, seen by the engine.

use std::sync::Arc;

use protocol::PausePoint;
use tokio::sync::watch;

/// Where people want one attempt to be held, if they do. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PauseSwitch(Arc<watch::Sender<PauseOrders>>);

/// What people ordered.
#[derive(Clone, Copy, Debug, Default)]
struct PauseOrders {
    asked: Option<PausePoint>,
    /// The `cmdSeq` of the last command that let the attempt go on; 0 before the first one. A number, so that one which
    /// comes between two processes counts like any other.
    last_resume: u64,
}

impl PauseSwitch {
    /// The switch of an attempt that goes on after a restart.
    pub fn of(asked: Option<PausePoint>) -> Self {
        Self(Arc::new(watch::Sender::new(PauseOrders { asked, ..PauseOrders::default() })))
    }

    /// Where it is to be held, if it is.
    pub fn asked(&self) -> Option<PausePoint> {
        self.0.borrow().asked
    }

    /// Holds it at the next such point. Of two requests the one that holds earlier counts.
    pub fn pause(&self, at: PausePoint) {
        self.0.send_if_modified(|orders| {
            let is_new = orders.asked != Some(at) && orders.asked != Some(PausePoint::Tool);
            if is_new {
                orders.asked = Some(at);
            }
            is_new
        });
    }

    /// Lets it go on by the command with this number, or takes back what was asked for and not reached.
    pub fn resume(&self, cmd_seq: u64) {
        self.0.send_modify(|orders| {
            *orders = PauseOrders { asked: None, last_resume: orders.last_resume.max(cmd_seq) };
        });
    }

    /// The `cmdSeq` of the last command that let it go on; 0 before the first one.
    pub fn last_resume(&self) -> u64 {
        self.0.borrow().last_resume
    }

    /// Ends when a command after this one lets it go on, held or not.
    pub async fn resumed_after(&self, cmd_seq: u64) {
        // Cannot fail: the sender lives in this switch.
        let _ = self.0.subscribe().wait_for(|orders| orders.last_resume > cmd_seq).await;
    }

    /// Whether it is to be held at this point: before a model call in any case.
    pub fn holds(&self, at: PausePoint) -> bool {
        holds(self.asked(), at)
    }

    /// Waits until it may go on from this point.
    pub async fn released(&self, at: PausePoint) {
        // Cannot fail: the sender lives in this switch.
        let _ = self.0.subscribe().wait_for(|orders| !holds(orders.asked, at)).await;
    }
}

fn holds(asked: Option<PausePoint>, at: PausePoint) -> bool {
    match at {
        PausePoint::Step => asked.is_some(),
        PausePoint::Tool => asked == Some(PausePoint::Tool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_earlier_point_counts_and_a_resume_takes_all_back() {
        let switch = PauseSwitch::default();
        assert!(!switch.holds(PausePoint::Step));
        switch.pause(PausePoint::Step);
        assert!(switch.holds(PausePoint::Step) && !switch.holds(PausePoint::Tool));
        switch.pause(PausePoint::Tool);
        switch.pause(PausePoint::Step);
        assert!(switch.holds(PausePoint::Step) && switch.holds(PausePoint::Tool));
        let held = switch.clone();
        let held = tokio::spawn(async move { held.released(PausePoint::Tool).await });
        switch.resume(1);
        held.await.expect("no panic");
        switch.released(PausePoint::Step).await;
    }

    #[tokio::test]
    async fn only_a_later_command_than_those_seen_lets_it_go_on() {
        let switch = PauseSwitch::default();
        switch.resume(4);
        switch.resume(3);
        assert_eq!(switch.last_resume(), 4);
        switch.resumed_after(3).await;
        let waiting = switch.clone();
        let waiting = tokio::spawn(async move { waiting.resumed_after(4).await });
        switch.resume(4);
        switch.pause(PausePoint::Step);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        switch.resume(5);
        waiting.await.expect("no panic");
    }
}
