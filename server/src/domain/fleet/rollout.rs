//! Rollouts: one version of a skill, installed on the vibers of one label after the other.

use protocol::{Instant, RolloutId, SkillId};

crate::words! {
    /// How a rollout stands.
    RolloutState {
        Running = "running",
        /// It was ordered for every label. A viber that is away has it when it is back.
        Done = "done",
        /// A viber reported that it could not be installed, or it cannot be ordered any more.
        Failed = "failed",
        Stopped = "stopped",
    }
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillRollout {
    pub id: RolloutId,
    /// The version, which may be deleted meanwhile.
    pub skill_id: SkillId,
    pub name: String,
    pub version: Option<String>,
    pub digest: String,
    /// Each as `key=value`, in their order.
    pub labels: Vec<String>,
    /// Ids of the agents that it is offered to; absent: as before.
    pub agents: Option<Vec<String>>,
    pub state: RolloutState,
    /// The label that it is at, from 0; as many as there are labels once it is done.
    pub stage: u64,
    /// The last viber of that label that it was ordered for; empty before the first one.
    pub reached: String,
    /// Why it failed.
    pub why: Option<String>,
    /// Who began it: an operator or a token, and the name then.
    pub begun_by: String,
    pub beginner: String,
    pub begun_at: Instant,
    pub ended_at: Option<Instant>,
    /// Nothing is left to do.
    pub settled: bool,
}

impl SkillRollout {
    /// The label that it is at.
    pub fn label(&self) -> Option<&str> {
        self.labels.get(usize::try_from(self.stage).ok()?).map(String::as_str)
    }
}

/// What came of the orders of one label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutCounts {
    pub done: u64,
    pub failed: u64,
    /// Not answered.
    pub queued: u64,
}

/// How far the label is that a rollout is at, once it was ordered for all of its vibers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelProgress {
    /// A viber has reported success.
    pub is_done_somewhere: bool,
    /// A viber has not answered.
    pub is_queued_somewhere: bool,
    /// One of those is connected.
    pub is_awaited: bool,
}

impl LabelProgress {
    /// Whether the next label may begin: nobody who can be reached is still to answer, and somebody has reported success. A
    /// label whose vibers are all away has tried nothing; one without a viber of its own has nothing to try.
    pub fn is_over(self) -> bool {
        let has_none = !self.is_done_somewhere && !self.is_queued_somewhere;
        !self.is_awaited && (self.is_done_somewhere || has_none)
    }
}

/// The key and the value of a label as people write it, `key=value`; a key by itself has no value.
pub fn label_parts(label: &str) -> (&str, &str) {
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    (key.trim(), value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_label_waits_for_all_that_can_be_reached_and_for_one_at_least() {
        let over = |is_done_somewhere, is_queued_somewhere, is_awaited| {
            LabelProgress { is_done_somewhere, is_queued_somewhere, is_awaited }.is_over()
        };
        assert!(over(true, false, false) && over(true, true, false), "who is away is not waited for");
        assert!(!over(true, true, true) && !over(false, true, true));
        assert!(!over(false, true, false), "nobody has tried it");
        assert!(over(false, false, false), "it has no viber of its own");
    }

    #[test]
    fn a_label_has_a_key_and_a_value() {
        assert_eq!(label_parts(" ring = first "), ("ring", "first"));
        assert_eq!(label_parts("gpu"), ("gpu", ""));
        assert_eq!(label_parts("a=b=c"), ("a", "b=c"));
    }
}
