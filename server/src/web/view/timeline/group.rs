//! Tool calls with nothing said between them: counted, folded, cut to what a page carries.

use super::super::{
    call::{Call, CallOutcome, ToolKind},
    time::took,
};

/// A run of tool calls with nothing said between them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallGroup {
    pub calls: Vec<Call>,
}

impl CallGroup {
    pub(in crate::web::view) fn is_open(&self) -> bool {
        self.calls.iter().any(|call| call.is_open() || call.child.is_some())
    }

    /// Whether its calls give tasks to other agents: they have a group of their own.
    pub(in crate::web::view) fn delegates(&self) -> bool {
        self.calls.iter().any(|call| call.kind == ToolKind::Delegate)
    }

    /// `13 commands, 6 reads`.
    pub(in crate::web::view) fn counted(&self) -> String {
        let counts =
            ToolKind::ALL.iter().map(|kind| (kind, self.calls.iter().filter(|call| call.kind == *kind).count()));
        counts.filter(|(_, n)| *n > 0).map(|(kind, n)| kind.count(n)).collect::<Vec<_>>().join(", ")
    }

    /// The call of a group that has but one.
    pub(in crate::web::view) fn only(&self) -> Option<&Call> {
        if let [call] = self.calls.as_slice() { Some(call) } else { None }
    }

    pub(in crate::web::view) fn failed(&self) -> usize {
        self.calls.iter().filter(|call| call.outcome == CallOutcome::Failed).count()
    }

    /// How long its calls took together; empty where each says it for itself.
    pub(in crate::web::view) fn took(&self) -> String {
        if self.delegates() || self.calls.iter().all(|call| call.took().is_empty()) {
            return String::new();
        }
        took(self.calls.iter().fold(0, |sum: u64, call| sum.saturating_add(call.duration_ms)))
    }

    pub(in crate::web::view) fn is_working(&self) -> bool {
        self.working().is_some()
    }

    /// Keeps the newest calls that fit into `room` bytes, with `some` at least one; `false` when none fits.
    pub(super) fn keep(&mut self, room: usize, some: bool) -> bool {
        let (mut left, mut from) = (room, self.calls.len());
        for call in self.calls.iter().rev() {
            let weight = call.weight();
            if weight > left && !(some && from == self.calls.len()) {
                break;
            }
            left = left.saturating_sub(weight);
            from -= 1;
        }
        if from == self.calls.len() {
            return false;
        }
        self.calls.drain(..from);
        true
    }

    /// The newest call that has no result yet.
    pub fn working(&self) -> Option<&Call> {
        self.calls.iter().rev().find(|call| call.outcome == CallOutcome::Working)
    }
}
