//! Which tasks belong to runs of playbooks, or to trees of tasks, and which of those are to be looked at: hints, so that they go
//! on at once. What is forgotten here is found by the scheduler.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::{RunId, TaskId, TeamId};
use tokio::sync::Notify;

/// A run, with its team.
pub type TeamRun = (TeamId, RunId);
/// The tasks of runs.
pub type RunWatch = TaskWatch<RunId>;
/// The tasks of trees, each named by the task that it begins with.
pub type TreeWatch = TaskWatch<TaskId>;

/// The handle. Cheap to clone. `K` names what tasks belong to: a run or a tree.
#[derive(Clone, Debug)]
pub struct TaskWatch<K: Eq + Hash> {
    inner: Arc<WatchState<K>>,
}

#[derive(Debug)]
struct WatchState<K: Eq + Hash> {
    /// Some task is followed: most Boards have no runs and no trees, and then nothing else is looked at.
    is_used: AtomicBool,
    tasks: Mutex<HashMap<TaskId, (TeamId, K)>>,
    poked: Mutex<HashSet<(TeamId, K)>>,
    /// With what nothing was to be done when it was looked at last, and of what nothing was heard since.
    at_rest: Mutex<HashSet<K>>,
    /// What is under way, so that it is not begun twice: a run as a whole, one of its steps, or a wait.
    under_way: Mutex<HashSet<(K, Option<String>)>>,
    bell: Notify,
}

/// Something that is under way, until the value is dropped.
#[derive(Debug)]
pub struct WatchTurn<K: Eq + Hash> {
    inner: Arc<WatchState<K>>,
    of: (K, Option<String>),
}

impl<K: Eq + Hash> Default for TaskWatch<K> {
    fn default() -> Self {
        let (tasks, poked) = (Mutex::default(), Mutex::default());
        let (at_rest, under_way) = (Mutex::default(), Mutex::default());
        let inner =
            WatchState { is_used: AtomicBool::new(false), tasks, poked, at_rest, under_way, bell: Notify::new() };
        Self { inner: Arc::new(inner) }
    }
}

impl<K: Clone + Eq + Hash> TaskWatch<K> {
    /// From now on changes of the task are told to the run.
    pub fn follow(&self, team: &TeamId, run: &K, task: &TaskId) {
        lock(&self.inner.tasks).insert(task.clone(), (team.clone(), run.clone()));
        self.inner.is_used.store(true, Ordering::Release);
    }

    /// Says whether nothing is to be done with the run until something is heard of it.
    pub fn set_at_rest(&self, run: &K, is_at_rest: bool) {
        let mut at_rest = lock(&self.inner.at_rest);
        if is_at_rest {
            at_rest.insert(run.clone());
        } else {
            at_rest.remove(run);
        }
    }

    /// Whether nothing was heard of the run since nothing was to be done with it.
    pub fn is_at_rest(&self, run: &K) -> bool {
        lock(&self.inner.at_rest).contains(run)
    }

    /// The run has nothing to do any more.
    pub fn forget(&self, run: &K) {
        lock(&self.inner.at_rest).remove(run);
        let mut tasks = lock(&self.inner.tasks);
        tasks.retain(|_, (_, known)| known != run);
        if tasks.is_empty() {
            self.inner.is_used.store(false, Ordering::Release);
        }
    }

    /// A task has changed, perhaps one of a run.
    pub fn task_changed(&self, task: &TaskId) {
        if !self.inner.is_used.load(Ordering::Acquire) {
            return;
        }
        let run = lock(&self.inner.tasks).get(task).cloned();
        if let Some((team, run)) = run {
            self.poke(&team, &run);
        }
    }

    /// The run is to be looked at.
    pub fn poke(&self, team: &TeamId, run: &K) {
        lock(&self.inner.at_rest).remove(run);
        lock(&self.inner.poked).insert((team.clone(), run.clone()));
        self.inner.bell.notify_one();
    }

    /// Waits until a run is to be looked at; also when that was said before.
    pub async fn poked(&self) {
        self.inner.bell.notified().await;
    }

    /// The runs that are to be looked at. Whoever takes them looks at them.
    pub fn take_poked(&self) -> Vec<(TeamId, K)> {
        lock(&self.inner.poked).drain().collect()
    }

    /// Begins something about a run, one of its steps, or a wait; `None` while it is under way already.
    pub fn begin(&self, run: &K, step: Option<&str>) -> Option<WatchTurn<K>> {
        let of = (run.clone(), step.map(str::to_owned));
        let is_new = lock(&self.inner.under_way).insert(of.clone());
        is_new.then(|| WatchTurn { inner: self.inner.clone(), of })
    }
}

impl<K: Eq + Hash> Drop for WatchTurn<K> {
    fn drop(&mut self) {
        lock(&self.inner.under_way).remove(&self.of);
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_hears_of_its_tasks_until_it_is_forgotten() {
        let (watch, team, run, task) = (RunWatch::default(), TeamId::new(1), RunId::new(1), TaskId::new(1));
        watch.task_changed(&task);
        assert!(watch.take_poked().is_empty());
        watch.follow(&team, &run, &task);
        watch.task_changed(&task);
        watch.task_changed(&task);
        watch.poked().await;
        assert_eq!(watch.take_poked(), [(team, run.clone())], "once, however often it changed");
        watch.forget(&run);
        watch.task_changed(&task);
        assert!(watch.take_poked().is_empty());
    }

    #[test]
    fn a_run_rests_until_something_is_heard_of_it() {
        let (watch, team, run, task) = (RunWatch::default(), TeamId::new(1), RunId::new(1), TaskId::new(1));
        watch.follow(&team, &run, &task);
        watch.set_at_rest(&run, true);
        assert!(watch.is_at_rest(&run) && !watch.is_at_rest(&RunId::new(2)));
        watch.task_changed(&task);
        assert!(!watch.is_at_rest(&run), "one of its tasks changed");
        watch.set_at_rest(&run, true);
        watch.set_at_rest(&run, false);
        assert!(!watch.is_at_rest(&run), "something is to be done");
        watch.set_at_rest(&run, true);
        watch.forget(&run);
        assert!(!watch.is_at_rest(&run), "what is forgotten takes no room");
    }

    #[test]
    fn the_same_is_not_under_way_twice() {
        let (watch, run) = (RunWatch::default(), RunId::new(1));
        let turn = watch.begin(&run, None);
        assert!(turn.is_some() && watch.begin(&run, None).is_none());
        assert!(watch.begin(&run, Some("1")).is_some(), "a step is something else");
        drop(turn);
        assert!(watch.begin(&run, None).is_some());
    }
}
