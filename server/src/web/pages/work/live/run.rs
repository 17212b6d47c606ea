//! The run of a playbook whose page is open: what of it the page does not show yet. A page that shows everything is sent
//! nothing, also when its stream begins or comes back.

use std::collections::{HashMap, HashSet};

use axum::body::Bytes;
use protocol::{RunId, SessionId};

use crate::{
    error::Result,
    state::Board,
    web::{
        extract::Caller,
        pages::{
            patches,
            playbooks::run::{ComparedView, RunView},
        },
    },
};

/// A run, and what its page shows of it.
pub struct WatchedRun {
    id: RunId,
    /// What the whole page shows, as it was made or sent last.
    cursor: String,
    /// The hash of each region that was sent or found to be shown.
    shown: HashMap<String, u64>,
    /// The sessions of its tasks: what happens there changes the page.
    tasks: HashSet<SessionId>,
    /// Of the version that was looked at last: it takes long to compare.
    compared: Option<ComparedView>,
}

impl WatchedRun {
    /// A page that shows what `cursor` says; empty: nobody knows what.
    pub fn new(id: RunId, cursor: &str) -> Self {
        let cursor = cursor.to_owned();
        Self { id, cursor, shown: HashMap::new(), tasks: HashSet::new(), compared: None }
    }

    /// Whether a session is that of one of its tasks.
    pub fn has(&self, session: &SessionId) -> bool {
        self.tasks.contains(session)
    }

    /// The frames that bring the page up to date. The last one carries the cursor: whoever has it has them all.
    pub async fn look(&mut self, board: &Board, caller: &Caller) -> Result<Vec<Bytes>> {
        let view = RunView::load(board, caller, &self.id, self.compared.take()).await?;
        let regions = view.regions();
        let cursor = view.cursor(&regions);
        let is_news = cursor != self.cursor;
        let mut news = if is_news { view.happened_after(&self.cursor) } else { Vec::new() };
        for region in &regions {
            let before = self.shown.insert(region.name.clone(), region.hash);
            if is_news && before != Some(region.hash) {
                news.push(region.html());
            }
        }
        let last = news.len().saturating_sub(1);
        let frame = |(n, html): (usize, &String)| {
            let id = (n == last).then_some(cursor.as_str());
            patches::frame(id, "region", html)
        };
        let frames: Vec<Bytes> = news.iter().enumerate().map(frame).collect();
        drop(regions);
        self.tasks = view.sessions.iter().cloned().collect();
        self.compared = Some(view.compared);
        self.cursor = cursor;
        Ok(frames)
    }
}
