//! Work that agents give to each other: what was asked for, the tree that it makes, and what is to be done about it. Pure.

use protocol::{
    ChildState, Instant, ParentCall, SessionId, TaskId, TaskLimits, Usage, ViberId,
    mesh::{MAX_CHILDREN_PER_TASK, MAX_TREE_CHILDREN, MAX_TREE_DEPTH},
};

use super::task::{TaskState, Waiting};

crate::words! {
    /// What became of what a call asked for.
    DelegationState {
        /// The files that go along are on their way; then it is made.
        Gathering = "gathering",
        Made = "made",
        /// It was not made; or its viber made one that is one too many, which is stopped.
        Refused = "refused",
    }
}

/// What one call asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Delegation {
    pub call: ParentCall,
    pub parent_session: SessionId,
    /// Once it was made.
    pub child: Option<TaskId>,
    pub child_session: Option<SessionId>,
    /// The task that the tree begins with.
    pub root: TaskId,
    /// From 1.
    pub depth: u32,
    pub agent_id: String,
    /// As it was asked for: a viber's name, or `label=value`; absent: the viber of whoever asked.
    pub place: Option<String>,
    /// With a tree only its beginning is read.
    pub goal: String,
    /// Names of what goes along.
    pub artifacts: Vec<String>,
    pub limits: TaskLimits,
    /// The conversation that it goes on with.
    pub session: Option<SessionId>,
    pub state: DelegationState,
    /// Why it was refused.
    pub refusal: Option<String>,
    /// Whoever asked knows how it ended.
    pub told: bool,
    /// The first words of what they were told.
    pub outcome: Option<String>,
    pub created_at: Instant,
}

impl Delegation {
    /// The goal in one line.
    pub fn title(&self) -> String {
        protocol::text::title(&self.goal)
    }
}

/// A task of a tree as it is now.
#[derive(Clone, Debug, PartialEq)]
pub struct KinTask {
    pub id: TaskId,
    pub session_id: SessionId,
    pub viber_id: ViberId,
    pub viber_name: String,
    pub agent_id: String,
    pub title: String,
    pub state: TaskState,
    /// Its viber was revoked: it is not begun again.
    pub is_cut_off: bool,
    pub waiting: Option<Waiting>,
    pub attempt: u32,
    pub usage: Usage,
    /// What it may use.
    pub limits: TaskLimits,
    pub created_at: Instant,
    pub ended_at: Option<Instant>,
    /// Why somebody stopped it.
    pub stop_reason: Option<String>,
}

/// What a call asked for, with the task that came of it. `None`: none was made, or its session was deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct Kin {
    pub asked: Delegation,
    pub task: Option<KinTask>,
}

impl Kin {
    /// How far it is.
    pub fn state(&self) -> ChildState {
        match (self.asked.state, &self.task) {
            (DelegationState::Refused, _) => ChildState::Refused,
            (DelegationState::Gathering, _) => ChildState::Running,
            (DelegationState::Made, None) => ChildState::Stopped,
            (DelegationState::Made, Some(task)) => match task.state {
                TaskState::Pending | TaskState::Running => ChildState::Running,
                TaskState::Completed => ChildState::Completed,
                TaskState::Error => ChildState::Error,
                TaskState::Stopped => ChildState::Stopped,
            },
        }
    }
}

/// Rows of one tree that are read: more than are kept of what was made or is to be made, with some that were refused.
pub const MAX_TREE_ROWS: usize = 400;

/// A tree: the task that it begins with, and all that was asked for beneath it, in the order in which it was.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskTree {
    pub root: KinTask,
    pub kin: Vec<Kin>,
    /// Calls were refused in it that are not among these.
    pub is_cut: bool,
}

/// What is to be done about a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TreeMove {
    /// The task is made, with its files.
    Make(ParentCall),
    /// Whoever asked for it was stopped, and so is it.
    Stop(TaskId),
    /// Whoever asked for it is told how it ended.
    Tell(ParentCall),
}

impl TaskTree {
    /// The task of the tree with this id.
    pub fn task(&self, id: &TaskId) -> Option<&KinTask> {
        let of_kin = self.kin.iter().filter_map(|kin| kin.task.as_ref());
        std::iter::once(&self.root).chain(of_kin).find(|task| task.id == *id)
    }

    /// What a task asked for, in that order.
    pub fn children<'a>(&'a self, of: &'a TaskId) -> impl Iterator<Item = &'a Kin> {
        self.kin.iter().filter(move |kin| kin.asked.call.task_id == *of)
    }

    /// When a task asks for something that it asks for `now`: behind all that it has asked for, and behind itself. Several calls
    /// may come at one instant, and stand in the order in which they came, which is that of the calls where one viber reports
    /// them.
    pub fn asked_at(&self, parent: &TaskId, now: Instant) -> Instant {
        let is_before = |kin: &&Kin| kin.asked.call.task_id == *parent || kin.asked.child.as_ref() == Some(parent);
        let last = self.kin.iter().filter(is_before).map(|kin| kin.asked.created_at.millis()).max();
        last.map_or(now, |last| now.max(Instant(last.saturating_add(1))))
    }

    /// Tasks that were asked for and not refused.
    pub fn made(&self) -> usize {
        self.kin.iter().filter(|kin| kin.asked.state != DelegationState::Refused).count()
    }

    /// Unfinished tasks, the root among them.
    pub fn open(&self) -> usize {
        let tasks = std::iter::once(&self.root).chain(self.kin.iter().filter_map(|kin| kin.task.as_ref()));
        tasks.filter(|task| !task.state.is_final()).count()
    }

    /// How deep it is.
    pub fn depth(&self) -> u32 {
        self.kin.iter().filter(|kin| kin.task.is_some()).map(|kin| kin.asked.depth).max().unwrap_or(0)
    }

    /// What a task and all beneath it have used.
    pub fn usage(&self, of: &TaskId) -> Usage {
        let mut sum = self.task(of).map(|task| task.usage.clone()).unwrap_or_default();
        // As deep as a tree may be.
        let mut level = vec![of.clone()];
        for _ in 0..=MAX_TREE_DEPTH {
            let beneath = |kin: &&Kin| level.contains(&kin.asked.call.task_id);
            let below: Vec<&KinTask> = self.kin.iter().filter(beneath).filter_map(|kin| kin.task.as_ref()).collect();
            below.iter().for_each(|task| sum.add(&task.usage));
            level = below.into_iter().map(|task| task.id.clone()).collect();
        }
        sum
    }

    /// What is to be done now. What is done makes it none of these, so that it does not matter how often it is looked at.
    pub fn moves(&self) -> Vec<TreeMove> {
        self.kin.iter().filter_map(|kin| self.next_move(kin)).collect()
    }

    fn next_move(&self, kin: &Kin) -> Option<TreeMove> {
        if let Some(task) = kin.task.as_ref().filter(|task| !task.state.is_final()) {
            let is_too_many = kin.asked.state == DelegationState::Refused && !kin.asked.told;
            return (is_too_many || self.is_over_above(kin)).then(|| TreeMove::Stop(task.id.clone()));
        }
        let call = kin.asked.call.clone();
        match kin.asked.state {
            _ if kin.asked.told => None,
            DelegationState::Gathering => Some(TreeMove::Make(call)),
            DelegationState::Made | DelegationState::Refused => Some(TreeMove::Tell(call)),
        }
    }

    /// Whether a task above was stopped or deleted, or is cut off: then nobody waits for what hangs below it. Of one that
    /// failed otherwise the next attempt may.
    fn is_over_above(&self, kin: &Kin) -> bool {
        let mut above = &kin.asked.call.task_id;
        for _ in 0..=MAX_TREE_DEPTH {
            match self.task(above).map(|task| (task.state, task.is_cut_off)) {
                None | Some((TaskState::Stopped, _) | (TaskState::Error, true)) => return true,
                Some(_) => {}
            }
            let asked = self.kin.iter().find(|kin| kin.asked.child.as_ref() == Some(above));
            let Some(asked) = asked else { return false };
            above = &asked.asked.call.task_id;
        }
        false
    }

    /// Tokens and money that a task has used or given away: what it used, and of each task that it asked for what that may
    /// use, or has used once it is over.
    pub fn taken(&self, of: &TaskId) -> (u64, f64) {
        let mut sum = spent(&self.task(of).map(|task| task.usage.clone()).unwrap_or_default());
        for kin in self.children(of) {
            let may = match (&kin.task, kin.asked.state) {
                (Some(task), _) if !task.state.is_final() => Some(&task.limits),
                (None, DelegationState::Gathering) => Some(&kin.asked.limits),
                _ => None,
            };
            let may = may.map(|limits| (limits.tokens.unwrap_or_default(), limits.cost_usd.unwrap_or_default()));
            let used = spent(&kin.task.as_ref().map(|task| self.usage(&task.id)).unwrap_or_default());
            let (tokens, cost) = may.map_or(used, |may| (may.0.max(used.0), may.1.max(used.1)));
            sum = (sum.0.saturating_add(tokens), sum.1 + cost);
        }
        sum
    }

    /// Whether nothing is left to do however its tasks end.
    pub fn is_settled(&self) -> bool {
        self.kin.iter().all(|kin| kin.asked.told)
    }
}

/// Tokens and money of a usage, USD.
pub fn spent(usage: &Usage) -> (u64, f64) {
    (usage.input_tokens.saturating_add(usage.output_tokens), usage.cost_usd.unwrap_or_default())
}

/// What a team lets its agents ask of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeshSettings {
    /// Whether agents may call those of other vibers.
    pub across_vibers: bool,
    /// How deep a tree may be, from 1.
    pub max_depth: u32,
    /// Tasks that one task may ask for, from 1.
    pub max_children: u32,
    pub version: u64,
}

impl Default for MeshSettings {
    fn default() -> Self {
        Self { across_vibers: false, max_depth: MAX_TREE_DEPTH, max_children: MAX_CHILDREN_PER_TASK, version: 0 }
    }
}

impl MeshSettings {
    /// Why a tree has no room for one more task; `None` when it has. Nothing was asked for yet where there is no tree.
    pub fn objection(&self, tree: Option<&TaskTree>, parent: &TaskId, depth: u32) -> Option<String> {
        if depth > self.max_depth.min(MAX_TREE_DEPTH) {
            return Some(format!(
                "the tree is {} deep already, and the team lets none be deeper",
                depth.saturating_sub(1)
            ));
        }
        let tree = tree?;
        let children = tree.children(parent).filter(|kin| kin.asked.state != DelegationState::Refused).count();
        if children >= self.max_children.min(MAX_CHILDREN_PER_TASK) as usize {
            return Some(format!("the task has asked for {children} others already, and may not ask for more"));
        }
        if tree.made() >= MAX_TREE_CHILDREN as usize {
            return Some(format!("the tree of this task has {MAX_TREE_CHILDREN} tasks already"));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: i64, state: TaskState) -> KinTask {
        KinTask {
            id: TaskId::new(id),
            session_id: SessionId::new(id),
            viber_id: ViberId::new(1),
            viber_name: "kiln".to_owned(),
            agent_id: "coder".to_owned(),
            title: "t".to_owned(),
            state,
            is_cut_off: false,
            waiting: None,
            attempt: 1,
            usage: Usage { input_tokens: 10, ..Usage::default() },
            limits: TaskLimits::default(),
            created_at: Instant(0),
            ended_at: None,
            stop_reason: None,
        }
    }

    fn kin(parent: &KinTask, call: &str, child: Option<KinTask>) -> Kin {
        let asked = Delegation {
            call: ParentCall { task_id: parent.id.clone(), attempt: 1, call_id: call.to_owned() },
            parent_session: parent.session_id.clone(),
            child: child.as_ref().map(|child| child.id.clone()),
            child_session: child.as_ref().map(|child| child.session_id.clone()),
            root: parent.id.clone(),
            depth: 1,
            agent_id: "coder".to_owned(),
            place: None,
            goal: "g".to_owned(),
            artifacts: Vec::new(),
            limits: TaskLimits::default(),
            session: None,
            state: DelegationState::Made,
            refusal: None,
            told: false,
            outcome: None,
            created_at: Instant(0),
        };
        Kin { asked, task: child }
    }

    #[test]
    fn an_end_is_told_once_and_a_stop_goes_down() {
        let root = task(1, TaskState::Running);
        let child = task(2, TaskState::Running);
        let mut tree = TaskTree { kin: vec![kin(&root, "a", Some(child.clone()))], root, is_cut: false };
        assert!(tree.moves().is_empty() && !tree.is_settled());
        tree.kin[0].task = Some(KinTask { state: TaskState::Error, ..child.clone() });
        assert_eq!(tree.moves(), [TreeMove::Tell(tree.kin[0].asked.call.clone())]);
        tree.kin[0].asked.told = true;
        assert!(tree.moves().is_empty() && tree.is_settled());
        tree.kin[0] = kin(&tree.root, "a", Some(child.clone()));
        tree.root.state = TaskState::Stopped;
        assert_eq!(tree.moves(), [TreeMove::Stop(child.id.clone())]);
        // Of a task that failed, or was begun again, the children go on, unless it cannot be begun again.
        tree.root.state = TaskState::Error;
        assert!(tree.moves().is_empty());
        tree.root.is_cut_off = true;
        assert_eq!(tree.moves(), [TreeMove::Stop(child.id)]);
    }

    #[test]
    fn a_stop_goes_down_past_tasks_that_have_ended() {
        let root = task(1, TaskState::Stopped);
        let (between, last) = (task(2, TaskState::Completed), task(3, TaskState::Running));
        let mut below = kin(&between, "b", Some(last.clone()));
        below.asked.depth = 2;
        let mut tree = TaskTree { kin: vec![kin(&root, "a", Some(between)), below], root, is_cut: false };
        tree.kin[0].asked.told = true;
        assert_eq!(tree.moves(), [TreeMove::Stop(last.id.clone())]);
        // It was begun again by a person after whoever asked knew how it ended: it hangs there all the same.
        tree.kin[1].asked.told = true;
        assert_eq!(tree.moves(), [TreeMove::Stop(last.id)]);
    }

    #[test]
    fn one_too_many_is_stopped_and_then_told() {
        let root = task(1, TaskState::Running);
        let more = task(2, TaskState::Running);
        let mut tree = TaskTree { kin: vec![kin(&root, "a", Some(more.clone()))], root, is_cut: false };
        tree.kin[0].asked.state = DelegationState::Refused;
        assert_eq!(tree.moves(), [TreeMove::Stop(more.id.clone())]);
        assert_eq!(tree.made(), 0, "it takes no room");
        tree.kin[0].task = Some(KinTask { state: TaskState::Stopped, ..more });
        assert_eq!(tree.moves(), [TreeMove::Tell(tree.kin[0].asked.call.clone())]);
        assert_eq!(tree.kin[0].state(), ChildState::Refused);
    }

    #[test]
    fn what_was_given_away_counts_until_it_is_over() {
        let root = task(1, TaskState::Running);
        let limits = TaskLimits { tokens: Some(1_000), cost_usd: Some(2.0), ..TaskLimits::default() };
        let child = KinTask { limits, ..task(2, TaskState::Running) };
        let mut below = kin(&child, "c", Some(task(3, TaskState::Running)));
        below.asked.depth = 2;
        let mut tree = TaskTree { kin: vec![kin(&root, "a", Some(child)), below], root, is_cut: false };
        let id = tree.root.id.clone();
        assert_eq!(tree.taken(&id), (1_010, 2.0));
        if let Some(child) = &mut tree.kin[0].task {
            child.state = TaskState::Completed;
        }
        assert_eq!(tree.taken(&id), (30, 0.0), "what it and those beneath it used");
        tree.kin[0].asked.state = DelegationState::Gathering;
        (tree.kin[0].task, tree.kin[0].asked.limits.tokens) = (None, Some(500));
        assert_eq!(tree.taken(&id).0, 510);
    }

    #[test]
    fn what_was_deleted_counts_as_stopped() {
        let root = task(1, TaskState::Running);
        let mut tree = TaskTree { kin: vec![kin(&root, "a", None)], root, is_cut: false };
        assert_eq!(tree.kin[0].state(), ChildState::Stopped);
        assert_eq!(tree.moves().len(), 1);
        tree.kin[0].asked.state = DelegationState::Gathering;
        assert_eq!(tree.moves(), [TreeMove::Make(tree.kin[0].asked.call.clone())]);
    }

    #[test]
    fn what_is_asked_for_stands_behind_what_was() {
        let root = task(1, TaskState::Running);
        let (a, b) = (task(2, TaskState::Running), task(3, TaskState::Running));
        let at = |millis, kin: Kin| Kin { asked: Delegation { created_at: Instant(millis), ..kin.asked }, ..kin };
        let kin = vec![at(70, kin(&root, "a", Some(a.clone()))), at(71, kin(&root, "b", Some(b)))];
        let tree = TaskTree { kin, root, is_cut: false };
        let asked = |parent: &TaskId, now| tree.asked_at(parent, Instant(now)).millis();
        assert_eq!((asked(&tree.root.id, 70), asked(&tree.root.id, 90)), (72, 90));
        // Whoever was asked for asks behind that, and not behind others.
        assert_eq!((asked(&a.id, 60), asked(&a.id, 71), asked(&TaskId::new(9), 5)), (71, 71, 5));
    }

    #[test]
    fn usage_rolls_up_and_bounds_hold() {
        let root = task(1, TaskState::Running);
        let (a, b) = (task(2, TaskState::Running), task(3, TaskState::Running));
        let mut below = kin(&a, "c", Some(b));
        below.asked.depth = 2;
        let mut tree = TaskTree { kin: vec![kin(&root, "a", Some(a.clone())), below], root, is_cut: false };
        assert_eq!(tree.usage(&tree.root.id).input_tokens, 30);
        assert_eq!(tree.usage(&a.id).input_tokens, 20);
        assert_eq!((tree.depth(), tree.made(), tree.open()), (2, 2, 3));
        let settings = MeshSettings::default();
        let id = tree.root.id.clone();
        assert_eq!(settings.objection(Some(&tree), &id, 1), None);
        assert!(settings.objection(Some(&tree), &id, 4).is_some_and(|why| why.contains("deep")));
        let narrow = MeshSettings { max_children: 1, ..settings };
        assert!(narrow.objection(Some(&tree), &id, 1).is_some_and(|why| why.contains("asked for 1")));
        while tree.kin.len() < MAX_TREE_CHILDREN as usize {
            let of = tree.kin.len() as i64 + 10;
            tree.kin.push(kin(&a, &of.to_string(), Some(task(of, TaskState::Completed))));
        }
        assert!(settings.objection(Some(&tree), &id, 1).is_some_and(|why| why.contains("32")));
    }
}
