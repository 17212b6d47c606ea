//! What is published after a commit: what changed, and which vibers have new commands.

use protocol::{RunId, SessionId, TaskId, TeamId, ViberId};

use crate::{
    hub::{Changed, InlineCommand},
    state::Board,
};

/// Up to this many changed files are notified one by one; more become one notification, so that no subscriber falls behind.
const MAX_FILES_NOTIFIED_SINGLY: usize = 16;

/// Collected inside a change, published after its commit.
#[derive(Clone, Debug, Default)]
pub struct AfterCommit {
    changed: Vec<Changed>,
    wake: Vec<ViberId>,
    first: Vec<(ViberId, InlineCommand)>,
    /// Tasks that a run waits for from now on.
    followed: Vec<(RunId, TaskId)>,
    /// Tasks of a tree, by the task that it begins with, from now on.
    in_tree: Vec<(TaskId, TaskId)>,
}

impl AfterCommit {
    /// A task and its session changed.
    pub fn task(&mut self, session: &SessionId, task: &TaskId) {
        self.add(Changed::Task { session: session.clone(), task: task.clone() });
        self.session(session);
    }

    /// A session changed.
    pub fn session(&mut self, session: &SessionId) {
        self.add(Changed::Session(session.clone()));
    }

    /// A run of a playbook changed.
    pub fn run(&mut self, run: &RunId) {
        self.add(Changed::Run(run.clone()));
    }

    /// A run waits for a task.
    pub fn follow(&mut self, run: &RunId, task: &TaskId) {
        self.followed.push((run.clone(), task.clone()));
    }

    /// A task belongs to a tree, which is to be looked at.
    pub fn in_tree(&mut self, root: &TaskId, task: &TaskId) {
        self.in_tree.push((root.clone(), task.clone()));
    }

    /// What another part of the same change leaves to publish.
    pub fn add_all(&mut self, other: Self) {
        other.changed.into_iter().for_each(|changed| self.add(changed));
        other.wake.iter().for_each(|viber| self.command(viber));
        self.first.extend(other.first);
        self.followed.extend(other.followed);
        self.in_tree.extend(other.in_tree);
    }

    /// A viber changed.
    pub fn viber(&mut self, viber: &ViberId) {
        self.add(Changed::Viber(viber.clone()));
    }

    /// Files of a viber changed, or edits that wait for it.
    pub fn files(&mut self, viber: &ViberId, mut paths: Vec<String>) {
        // A session's files lie in its folder: its page shows them.
        let session = |path: &String| path.strip_prefix("sessions/")?.split('/').next()?.parse().ok();
        paths.iter().filter_map(session).for_each(|session: SessionId| self.session(&session));
        if paths.len() > MAX_FILES_NOTIFIED_SINGLY {
            paths = vec![String::new()];
        }
        paths.into_iter().for_each(|path| self.add(Changed::File { viber: viber.clone(), path }));
    }

    /// A viber has a new command.
    pub fn command(&mut self, viber: &ViberId) {
        if !self.wake.contains(viber) {
            self.wake.push(viber.clone());
        }
    }

    /// A viber has the command of a session's first task, which is handed to it without reading it back.
    pub fn first(&mut self, viber: &ViberId, first: InlineCommand) {
        self.first.push((viber.clone(), first));
    }

    fn add(&mut self, changed: Changed) {
        if !self.changed.contains(&changed) {
            self.changed.push(changed);
        }
    }

    /// Publishes it. Call it only after the commit.
    pub fn publish(self, board: &Board, team: &TeamId) {
        // Before its viber hears of it, and so before anything can change.
        for (run, task) in &self.followed {
            board.runs.follow(team, run, task);
        }
        for (root, task) in &self.in_tree {
            board.trees.follow(team, root, task);
            board.trees.poke(team, root);
        }
        for viber in &self.wake {
            board.hub.wake(viber);
        }
        for (viber, first) in self.first {
            board.hub.send_inline(&viber, first);
        }
        for changed in self.changed {
            match &changed {
                Changed::Task { task, .. } => {
                    board.runs.task_changed(task);
                    board.trees.task_changed(task);
                }
                Changed::Run(run) => board.runs.poke(team, run),
                _ => {}
            }
            board.hub.notify(team, changed);
        }
    }
}
