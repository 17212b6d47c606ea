//! The connection to the Board as this machine sees it, and what being disconnected does to tasks.

use std::{collections::BTreeSet, time::Duration};

use protocol::{AttemptRef, ViberState};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::Mesh;
use crate::{config::OnDisconnect, task::StopCause};

/// The connection to the Board, as `status` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BoardStatus {
    pub connected: bool,
    /// Since when this has been the case.
    pub since: Option<String>,
    /// Why it is disconnected, or a problem to fix.
    pub detail: Option<String>,
}

/// Keys of an agent's file without effect that are reported.
const MAX_KEYS_NOT_IN_EFFECT: usize = 8;

impl Mesh {
    /// What is reported to the Board: the configuration, skills, MCP servers, and which skills agents lack.
    pub fn viber_state(&self) -> ViberState {
        let files = self.shared.context.files.borrow().clone();
        let skills = self.skills();
        let (mut state, set) = (files.state(), skills.now());
        for info in state.agents.iter_mut().flatten() {
            let Some(Ok(agent)) = files.agents.get(&info.id) else { continue };
            let lacking = set.missing_for(agent).into_iter().map(|name| format!("skills: {name}"));
            let room = MAX_KEYS_NOT_IN_EFFECT.saturating_sub(info.not_in_effect.len());
            info.not_in_effect.extend(lacking.take(room));
        }
        state.skills = Some(skills.report());
        state.mcp = Some(self.mcp().report());
        state.adapters = Some(self.adapters());
        state
    }

    /// The connection to the Board.
    pub fn standing(&self) -> BoardStatus {
        self.shared.standing.borrow().clone()
    }

    /// Records the state of the connection to the Board, and applies the policy for being disconnected.
    pub fn contact(&self, standing: BoardStatus) {
        let connected = standing.connected;
        let before = self.shared.standing.send_replace(standing).connected;
        let mut state = self.state();
        if connected {
            if let Some(pending) = state.disconnect_stop.take() {
                pending.cancel();
            }
        } else if (before || state.disconnect_stop.is_none())
            && let OnDisconnect::StopAfter(seconds) = self.shared.context.files.borrow().config.on_disconnect
        {
            let back = CancellationToken::new();
            state.disconnect_stop = Some(back.clone());
            drop(state);
            let mesh = self.clone();
            self.shared.tracker.spawn(async move {
                let wait = tokio::time::sleep(Duration::from_secs(seconds));
                if back.run_until_cancelled(wait).await.is_some() {
                    let cause = StopCause::Stop(format!("disconnected from the Board for {seconds} s"));
                    let local = mesh.local();
                    mesh.stop(&cause, |attempt, _| !local.contains(attempt));
                }
            });
        }
    }

    fn local(&self) -> BTreeSet<AttemptRef> {
        self.state().running.iter().filter(|(_, live)| live.local).map(|(attempt, _)| attempt.clone()).collect()
    }
}
