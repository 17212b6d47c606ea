//! Tasks that an attempt asked others for: what it knows of them, and whoever does what it wants of them.
//!
//! Owns what a task is told of its children, and how a call that waits for one finds its answer. Does not make tasks (`mesh`),
//! and decides nothing about who may ask whom (`engine`).

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{
    AgentMode, ChildReport, ChildState, MeshDirectory, ParentCall, TaskId, TaskLimits, TreePlace, Usage,
    mesh::AGENT_MESSAGES_PER_MINUTE,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

use super::Approvals;

/// The span in which messages to other agents are counted.
const MESSAGE_SPAN: Duration = Duration::from_secs(60);

/// The children of one attempt. Cheap to clone.
#[derive(Clone)]
pub struct Children(Arc<Desk>);

struct Desk {
    /// Those of earlier attempts too, in the order in which they were asked for.
    known: Mutex<Vec<ChildReport>>,
    /// When messages were sent, the oldest first.
    sent: Mutex<VecDeque<Instant>>,
    /// What tasks may use that messages have the Board make, until the budget knows of it.
    promised: Mutex<Vec<(ParentCall, TaskLimits)>>,
    /// Messages to tasks that had ended, with those tasks, until what they make is heard of.
    following: Mutex<Vec<(ParentCall, TaskId)>>,
    /// Rings when something was heard of a task.
    heard: Notify,
    approvals: Approvals,
    hands: Box<dyn ChildHands>,
}

/// A task for another agent of this machine.
#[derive(Clone, Debug)]
pub struct LocalChild {
    pub task: TaskId,
    pub agent: String,
    pub goal: String,
    /// Ids of artifacts of the asking task.
    pub artifacts: Vec<String>,
    pub limits: TaskLimits,
    /// A mode that the asking task must keep: the agent's own counts where it is stricter.
    pub mode: Option<AgentMode>,
    pub leash: Option<u32>,
    pub place: TreePlace,
}

/// An agent of this machine, as others see it.
#[derive(Clone, Debug)]
pub struct AgentOfMachine {
    pub id: String,
    pub description: String,
    /// Why it takes no task.
    pub error: Option<String>,
    /// Tasks of it that have not ended.
    pub tasks: usize,
}

/// What is still to come of a question to the Board.
pub type PendingDirectory = Pin<Box<dyn Future<Output = Result<MeshDirectory, String>> + Send>>;

/// Whoever makes, stops and speaks to tasks.
pub trait ChildHands: Send + Sync {
    /// The agents of this machine.
    fn agents(&self) -> Vec<AgentOfMachine>;
    /// Those of other machines in these places, as the Board tells them: names of vibers, and `label=value`.
    fn directory(&self, places: Vec<String>) -> PendingDirectory;
    /// Tasks of this tree that this machine made.
    fn tree_size(&self, root: &TaskId) -> u32;
    /// Begins a task; once, however often it is asked for.
    fn begin(&self, child: LocalChild);
    /// Ends a task of this machine. Whether it has one that runs.
    fn stop(&self, child: &TaskId, reason: &str) -> bool;
    /// Tells something to a task of this machine where no Board could. Whether there is one that listens.
    fn tell(&self, task: &TaskId, content: String) -> bool;
    /// Whether the home has a Board, which then passes on what is said.
    fn has_board(&self) -> bool;
}

impl Children {
    /// Of an attempt that knows of these.
    pub fn new(known: Vec<ChildReport>, approvals: Approvals, hands: impl ChildHands + 'static) -> Self {
        Self(Arc::new(Desk {
            known: Mutex::new(known),
            sent: Mutex::default(),
            promised: Mutex::default(),
            following: Mutex::default(),
            heard: Notify::new(),
            approvals,
            hands: Box::new(hands),
        }))
    }

    /// Whoever makes tasks.
    pub fn hands(&self) -> &dyn ChildHands {
        &*self.0.hands
    }

    /// All that were asked for, in that order.
    pub fn known(&self) -> Vec<ChildReport> {
        self.known_now().clone()
    }

    /// What is known of the newest task of the conversation that a task is in: after its end, messages to it make further ones.
    pub fn newest_of(&self, task: &TaskId) -> Option<ChildReport> {
        let known = self.known_now();
        let mut found = known.iter().find(|known| known.child_task_id.as_ref() == Some(task))?;
        // However they follow each other, there are no more of them.
        for _ in 0..known.len() {
            let is_next = |next: &&ChildReport| next.follows.is_some() && next.follows == found.child_task_id;
            match known.iter().filter(|next| next.child_task_id.is_some()).rfind(is_next) {
                Some(next) => found = next,
                None => break,
            }
        }
        Some(found.clone())
    }

    /// Whether a message to a task that has ended makes a task of which nothing was heard yet.
    pub fn expects_after(&self, task: &TaskId) -> bool {
        self.following_now().iter().any(|(_, before)| before == task)
    }

    /// How many count: what was refused was never made.
    pub fn count(&self) -> usize {
        self.known_now().iter().filter(|known| known.state != ChildState::Refused).count()
    }

    /// What all of them have used.
    pub fn usage(&self) -> Usage {
        let mut sum = Usage::default();
        self.known_now().iter().for_each(|known| sum.add(&known.usage));
        sum
    }

    /// Notes that a call asks for a task.
    pub fn expect(&self, wanted: ChildReport) {
        let mut known = self.known_now();
        if known.iter().all(|other| other.call != wanted.call) {
            known.push(wanted);
        }
    }

    /// A call that was not made asks for nothing.
    pub fn withdraw(&self, call: &ParentCall) {
        self.known_now().retain(|known| known.call != *call || known.child_task_id.is_some());
    }

    /// Goes on with what a former process knew, unless more is known by now.
    pub fn go_on_from(&self, before: Vec<ChildReport>) {
        before.into_iter().for_each(|report| self.expect(report));
    }

    /// Notes what a task may use that a message has the Board make.
    pub fn promise(&self, call: ParentCall, limits: TaskLimits) {
        self.promised_now().push((call, limits));
    }

    /// Notes that a message to `task`, which has ended, has the Board make another one.
    pub fn follow(&self, call: ParentCall, task: TaskId) {
        self.following_now().push((call, task));
    }

    /// What is heard of the task that a call asks for: that it was made, or why not. `None` if that takes longer.
    pub async fn made(&self, call: &ParentCall, within: Duration) -> Option<ChildReport> {
        let made = async {
            loop {
                let heard = self.0.heard.notified();
                let is_it = |known: &&ChildReport| known.call == *call && is_heard_of(known);
                let found = self.known_now().iter().find(is_it).cloned();
                match found {
                    Some(report) => return report,
                    None => heard.await,
                }
            }
        };
        timeout(within, made).await.ok()
    }

    /// What was promised since this was asked last.
    pub fn take_promised(&self) -> Vec<(ParentCall, TaskLimits)> {
        std::mem::take(&mut *self.promised_now())
    }

    /// Takes what was heard of a task, and answers the calls that wait for it. What was completed or refused stays so; a task
    /// that failed may be begun again by people, and end otherwise.
    pub fn hear(&self, mut report: ChildReport) {
        let following = {
            let mut following = self.following_now();
            let at = following.iter().position(|(call, _)| *call == report.call);
            at.map(|at| following.remove(at).1)
        };
        report.follows = report.follows.take().or(following);
        let is_kept = |known: &ChildReport| match known.state {
            ChildState::Completed | ChildState::Refused => true,
            state => state.is_final() && !report.state.is_final(),
        };
        let report = {
            let mut known = self.known_now();
            match known.iter_mut().find(|other| other.call == report.call) {
                Some(other) if is_kept(other) => {
                    // Which one it follows may be heard later than how it ended.
                    other.follows = other.follows.take().or(report.follows.take());
                    other.clone()
                }
                Some(other) => {
                    report.follows = report.follows.take().or(other.follows.take());
                    *other = report;
                    other.clone()
                }
                None => {
                    known.push(report.clone());
                    report
                }
            }
        };
        self.answer(&report);
        self.0.heard.notify_waiters();
    }

    /// Answers the calls that wait for what is known already.
    pub fn answer_known(&self) {
        self.known().iter().filter(|report| is_heard_of(report)).for_each(|report| self.answer(report));
    }

    fn answer(&self, report: &ChildReport) {
        let text = serde_json::to_string(report).unwrap_or_default();
        self.0.approvals.answer_all(&made_key(&report.call), &text);
        if report.state.is_final() {
            self.0.approvals.answer_all(&end_key(&report.call), &text);
        }
    }

    /// Counts a message to another agent; `Err` if there were too many.
    pub fn count_message(&self) -> Result<(), String> {
        self.count_message_at(Instant::now())
    }

    fn count_message_at(&self, now: Instant) -> Result<(), String> {
        let mut sent = self.0.sent.lock().unwrap_or_else(PoisonError::into_inner);
        while sent.front().is_some_and(|at| now.duration_since(*at) >= MESSAGE_SPAN) {
            sent.pop_front();
        }
        if sent.len() >= AGENT_MESSAGES_PER_MINUTE {
            return Err(format!(
                "{AGENT_MESSAGES_PER_MINUTE} messages were sent in the last minute: wait, or say more in one"
            ));
        }
        sent.push_back(now);
        Ok(())
    }

    fn promised_now(&self) -> MutexGuard<'_, Vec<(ParentCall, TaskLimits)>> {
        self.0.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn following_now(&self) -> MutexGuard<'_, Vec<(ParentCall, TaskId)>> {
        self.0.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_now(&self) -> MutexGuard<'_, Vec<ChildReport>> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a task was made, or refused.
fn is_heard_of(report: &ChildReport) -> bool {
    report.child_task_id.is_some() || report.state.is_final()
}

/// With this digest a call waits until its task was made, or refused.
pub fn made_key(call: &ParentCall) -> String {
    format!("made:{}:{}:{}", call.task_id, call.attempt, call.call_id)
}

/// With this digest calls wait for the end of the task that `call` asked for.
pub fn end_key(call: &ParentCall) -> String {
    format!("end:{}:{}:{}", call.task_id, call.attempt, call.call_id)
}

/// Whether with this digest a call waits for another task.
pub fn is_key(digest: &str) -> bool {
    digest.starts_with("made:") || digest.starts_with("end:")
}

#[cfg(test)]
pub mod testing {
    //! Hands that only note what they are asked for.

    use super::*;

    /// What tests look at.
    #[derive(Clone, Default)]
    pub struct NotedWishes {
        pub agents: Vec<AgentOfMachine>,
        pub begun: Arc<Mutex<Vec<LocalChild>>>,
        pub stopped: Arc<Mutex<Vec<TaskId>>>,
        pub told: Arc<Mutex<Vec<String>>>,
        pub board: bool,
        pub tree: u32,
    }

    impl ChildHands for NotedWishes {
        fn agents(&self) -> Vec<AgentOfMachine> {
            self.agents.clone()
        }

        fn directory(&self, _: Vec<String>) -> PendingDirectory {
            Box::pin(async { Err("no Board".to_owned()) })
        }

        fn tree_size(&self, _: &TaskId) -> u32 {
            self.tree
        }

        fn begin(&self, child: LocalChild) {
            self.begun.lock().expect("no test panics with it").push(child);
        }

        fn stop(&self, child: &TaskId, _: &str) -> bool {
            self.stopped.lock().expect("no test panics with it").push(child.clone());
            true
        }

        fn tell(&self, _: &TaskId, content: String) -> bool {
            self.told.lock().expect("no test panics with it").push(content);
            true
        }

        fn has_board(&self) -> bool {
            self.board
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::ApprovalId;

    use super::{testing::NotedWishes, *};

    /// Always the same one.
    fn task(n: u32) -> TaskId {
        format!("task_01900000000070008{n:015x}").parse().expect("an id")
    }

    fn report(call: &str, child: Option<TaskId>, state: ChildState) -> ChildReport {
        ChildReport {
            call: ParentCall { task_id: task(1), attempt: 1, call_id: call.to_owned() },
            child_task_id: child,
            state,
            agent_id: "coder".to_owned(),
            viber: None,
            title: "Do it".to_owned(),
            follows: None,
            result: None,
            error: None,
            usage: Usage::default(),
        }
    }

    #[tokio::test]
    async fn a_call_hears_once_that_its_task_was_made_and_how_it_ended() {
        let approvals = Approvals::default();
        let children = Children::new(Vec::new(), approvals.clone(), NotedWishes::default());
        let wanted = report("a", None, ChildState::Running);
        children.expect(wanted.clone());
        let made = approvals.ask(ApprovalId::new(1), made_key(&wanted.call));
        let end = approvals.ask(ApprovalId::new(2), end_key(&wanted.call));
        let other = approvals.ask(ApprovalId::new(3), end_key(&report("b", None, ChildState::Running).call));
        children.answer_known();
        assert!(made.answer().given().is_none(), "nothing is known of it yet");
        children.hear(report("a", Some(task(5)), ChildState::Running));
        assert!(made.answer().given().is_some() && end.answer().given().is_none());
        children.hear(report("a", Some(task(5)), ChildState::Completed));
        children.hear(report("a", Some(task(5)), ChildState::Error));
        let told = end.answer().given().and_then(|given| given.answer).expect("the end");
        let told: ChildReport = serde_json::from_str(&told).expect("a report");
        assert_eq!(told.state, ChildState::Completed);
        assert_eq!(children.newest_of(&task(5)).map(|known| known.state), Some(ChildState::Completed));
        assert!(other.answer().given().is_none());
    }

    #[tokio::test]
    async fn a_task_that_failed_may_end_otherwise_when_people_begin_it_again() {
        let approvals = Approvals::default();
        let children = Children::new(Vec::new(), approvals.clone(), NotedWishes::default());
        let heard = |state| children.hear(report("a", Some(task(5)), state));
        let end = approvals.ask(ApprovalId::new(1), end_key(&report("a", None, ChildState::Running).call));
        heard(ChildState::Error);
        let first = end.answer().given().and_then(|given| given.answer).expect("the end");
        heard(ChildState::Running);
        heard(ChildState::Completed);
        assert_eq!(children.newest_of(&task(5)).map(|known| known.state), Some(ChildState::Completed));
        let told = end.answer().given().and_then(|given| given.answer);
        assert_eq!(told, Some(first), "whoever waited was told how it ended then");
    }

    #[tokio::test]
    async fn a_task_is_found_by_the_one_before_it_in_its_session() {
        let children = Children::new(Vec::new(), Approvals::default(), NotedWishes::default());
        children.hear(report("a", Some(task(5)), ChildState::Completed));
        let call = report("b", None, ChildState::Running).call;
        children.follow(call.clone(), task(5));
        assert!(children.expects_after(&task(5)));
        assert_eq!(children.made(&call, Duration::ZERO).await, None);
        children.hear(report("b", Some(task(6)), ChildState::Running));
        children.hear(report("b", Some(task(6)), ChildState::Completed));
        assert_eq!(children.made(&call, Duration::ZERO).await.and_then(|made| made.child_task_id), Some(task(6)));
        // A Board says it by itself, to another attempt as well.
        children.hear(ChildReport { follows: Some(task(6)), ..report("c", Some(task(7)), ChildState::Running) });
        let newest = |n| children.newest_of(&task(n)).and_then(|known| known.child_task_id);
        assert_eq!([newest(5), newest(6), newest(7), newest(8)], [Some(task(7)), Some(task(7)), Some(task(7)), None]);
        assert!(!children.expects_after(&task(5)));
        // A task of this machine ends before the Board says what it follows.
        children.hear(report("d", Some(task(8)), ChildState::Completed));
        assert_eq!(newest(5), Some(task(7)));
        children.hear(ChildReport { follows: Some(task(7)), ..report("d", Some(task(8)), ChildState::Completed) });
        assert_eq!(newest(5), Some(task(8)));
    }

    #[test]
    fn what_a_former_process_knew_does_not_hide_what_was_heard_since() {
        let children = Children::new(Vec::new(), Approvals::default(), NotedWishes::default());
        children.hear(report("a", Some(task(5)), ChildState::Stopped));
        children.go_on_from(vec![report("a", None, ChildState::Running), report("b", None, ChildState::Running)]);
        let states: Vec<ChildState> = children.known().iter().map(|known| known.state).collect();
        assert_eq!(states, [ChildState::Stopped, ChildState::Running]);
        children.withdraw(&report("b", None, ChildState::Running).call);
        assert_eq!(children.count(), 1);
    }

    #[test]
    fn a_minute_has_thirty_messages() {
        let children = Children::new(Vec::new(), Approvals::default(), NotedWishes::default());
        let now = Instant::now();
        for _ in 0..AGENT_MESSAGES_PER_MINUTE {
            children.count_message_at(now).expect("room");
        }
        assert!(children.count_message_at(now).is_err_and(|why| why.contains("30")));
        children.count_message_at(now + MESSAGE_SPAN).expect("room again");
    }
}
