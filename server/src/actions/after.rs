//! What is told after a commit: bells, and links that have new commands.

use protocol::{SessionId, TaskId, TeamId, ViberId};

use crate::{
    hub::{First, News},
    state::Board,
};

/// More files at once ring once for all of them: a listener is not to fall behind by a folder.
const MANY_FILES: usize = 16;

/// Collected inside a change, told after it.
#[derive(Clone, Debug, Default)]
pub struct After {
    news: Vec<News>,
    wake: Vec<ViberId>,
    first: Vec<(ViberId, First)>,
}

impl After {
    /// A task and its session changed.
    pub fn task(&mut self, session: &SessionId, task: &TaskId) {
        self.add(News::Task { session: session.clone(), task: task.clone() });
        self.session(session);
    }

    /// A session changed.
    pub fn session(&mut self, session: &SessionId) {
        self.add(News::Session(session.clone()));
    }

    /// A viber changed.
    pub fn viber(&mut self, viber: &ViberId) {
        self.add(News::Viber(viber.clone()));
    }

    /// Files of a viber changed, or what waits for it did.
    pub fn files(&mut self, viber: &ViberId, mut paths: Vec<String>) {
        // A session's files lie in its folder: its page shows them.
        let session = |path: &String| path.strip_prefix("sessions/")?.split('/').next()?.parse().ok();
        paths.iter().filter_map(session).for_each(|session: SessionId| self.session(&session));
        if paths.len() > MANY_FILES {
            paths = vec![String::new()];
        }
        paths.into_iter().for_each(|path| self.add(News::File { viber: viber.clone(), path }));
    }

    /// A viber has a new command.
    pub fn command(&mut self, viber: &ViberId) {
        if !self.wake.contains(viber) {
            self.wake.push(viber.clone());
        }
    }

    /// A viber has the command of a session's first task.
    pub fn first(&mut self, viber: &ViberId, first: First) {
        self.first.push((viber.clone(), first));
    }

    fn add(&mut self, news: News) {
        if !self.news.contains(&news) {
            self.news.push(news);
        }
    }

    /// Takes over what another change has to tell.
    pub fn merge(&mut self, other: Self) {
        other.news.into_iter().for_each(|news| self.add(news));
        other.wake.iter().for_each(|viber| self.command(viber));
        self.first.extend(other.first);
    }

    /// Tells it. Call it after the commit only.
    pub fn tell(self, board: &Board, team: &TeamId) {
        for viber in &self.wake {
            board.hub.wake(viber);
        }
        for (viber, first) in self.first {
            board.hub.hand(&viber, first);
        }
        for news in self.news {
            board.hub.ring(team, news);
        }
    }
}
