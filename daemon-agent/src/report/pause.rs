//! Whether people hold an attempt: asked for by commands, seen by the engine.

use std::sync::Arc;

use protocol::PausePoint;
use tokio::sync::watch;

/// Where people want one attempt to be held, if they do. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct PauseSwitch(Arc<watch::Sender<Option<PausePoint>>>);

impl PauseSwitch {
    /// The switch of an attempt that goes on after a restart.
    pub fn of(asked: Option<PausePoint>) -> Self {
        Self(Arc::new(watch::Sender::new(asked)))
    }

    /// Where it is to be held, if it is.
    pub fn asked(&self) -> Option<PausePoint> {
        *self.0.borrow()
    }

    /// Holds it at the next such point. Of two requests the one that holds earlier counts.
    pub fn pause(&self, at: PausePoint) {
        self.0.send_if_modified(|asked| {
            let is_new = *asked != Some(at) && *asked != Some(PausePoint::Tool);
            if is_new {
                *asked = Some(at);
            }
            is_new
        });
    }

    /// Lets it go on, or takes back what was asked for and not reached.
    pub fn resume(&self) {
        self.0.send_replace(None);
    }

    /// Ends when somebody lets it go on after this call, held or not.
    pub fn resumed(&self) -> impl Future<Output = ()> + Send + use<> {
        let (switch, mut asked) = (self.clone(), self.0.subscribe());
        async move {
            // Cannot fail: the sender lives in the switch.
            while asked.changed().await.is_ok() && asked.borrow_and_update().is_some() {}
            drop(switch);
        }
    }

    /// Whether it is to be held at this point: before a model call in any case.
    pub fn holds(&self, at: PausePoint) -> bool {
        holds(*self.0.borrow(), at)
    }

    /// Waits until it may go on from this point.
    pub async fn released(&self, at: PausePoint) {
        // Cannot fail: the sender lives in this switch.
        let _ = self.0.subscribe().wait_for(|asked| !holds(*asked, at)).await;
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
        switch.resume();
        held.await.expect("no panic");
        switch.released(PausePoint::Step).await;
    }
}
