//! The Tree tab: the tasks that agents asked each other for, from the one that a person gave, with what they took together.

use askama::Template;
use protocol::{
    TaskId,
    mesh::{MAX_TREE_CHILDREN, MAX_TREE_DEPTH},
    text::head,
};

use super::PaneContext;
use crate::{
    db::{self, DbError, TeamTx},
    domain::{DelegationState, Kin, KinTask, TaskTree},
    web::{
        urls,
        view::{
            Badge,
            call::child::{cost, lasted},
            filters,
        },
    },
};

/// Longest line of a task, bytes.
const MAX_LINE_BYTES: usize = 200;
/// Calls that were refused and are shown: with all that are kept of them a pane would be too large.
const MAX_REFUSED: usize = 50;

/// What the database holds for it.
#[derive(Clone, Debug)]
pub struct TreePane(Option<TaskTree>);

impl TreePane {
    pub(super) async fn read(tx: &mut TeamTx<'_>, root: Option<&TaskId>) -> Result<Self, DbError> {
        Ok(Self(match root {
            Some(root) => db::tasks::delegations::tree(tx, root).await?.map(shown),
            None => None,
        }))
    }
}

/// As much of a tree as is shown: every task, and the first calls that were refused.
fn shown(mut tree: TaskTree) -> TaskTree {
    let (all, mut refused) = (tree.kin.len(), 0);
    tree.kin.retain(|kin| {
        let is_refused = kin.task.is_none() && kin.asked.state == DelegationState::Refused;
        refused += usize::from(is_refused);
        !is_refused || refused <= MAX_REFUSED
    });
    tree.is_cut |= tree.kin.len() < all;
    tree
}

/// The tab as a reader sees it.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/tree/pane.html")]
pub struct TreeView {
    /// The first task, with those beneath it; `None`: there is no tree.
    root: Option<KinLine>,
    tasks: usize,
    depth: u32,
    /// Share of the limit that all took together, percent, and both in words.
    cost: Option<(u64, String)>,
    made: usize,
    /// Calls were refused that it does not show.
    is_cut: bool,
}

/// A task in the tree.
#[derive(Clone, Debug, Template)]
#[template(path = "documents/tree/_kin.html")]
struct KinLine {
    badge: Badge,
    title: String,
    href: Option<String>,
    cost: String,
    /// `reviewer on gpu-basement`, between the state and the time.
    place: String,
    time: String,
    /// It is of the session that is shown.
    current: bool,
    beneath: Vec<KinLine>,
}

impl KinLine {
    fn of_task(task: &KinTask, tree: &TaskTree, context: &PaneContext) -> Self {
        Self {
            badge: Badge::at_work(task.state, task.waiting.as_ref()),
            title: head(&task.title, MAX_LINE_BYTES).to_owned(),
            href: (!task.viber_name.is_empty()).then(|| urls::session(&context.slug, &task.session_id)),
            cost: cost(&task.usage),
            place: place(&task.agent_id, Some(&task.viber_name)),
            time: lasted(task),
            current: task.session_id == context.session,
            beneath: tree.children(&task.id).map(|kin| Self::of_kin(kin, tree, context)).collect(),
        }
    }

    fn of_kin(kin: &Kin, tree: &TaskTree, context: &PaneContext) -> Self {
        let title = head(&kin.asked.title(), MAX_LINE_BYTES).to_owned();
        match &kin.task {
            // A row of its own beneath one that is as deep as may be is no work of a sound Board.
            Some(task) if kin.asked.depth <= MAX_TREE_DEPTH => {
                Self { badge: Badge::kin(kin), title, ..Self::of_task(task, tree, context) }
            }
            _ => Self {
                badge: Badge::kin(kin),
                title,
                href: None,
                cost: String::new(),
                place: place(&kin.asked.agent_id, kin.asked.place.as_deref()),
                time: String::new(),
                current: false,
                beneath: Vec::new(),
            },
        }
    }
}

/// Who works, and where: `reviewer on gpu-basement`.
fn place(agent: &str, viber: Option<&str>) -> String {
    let words = match viber.filter(|viber| !viber.is_empty()) {
        Some(viber) => format!("{agent} on {viber}"),
        None => agent.to_owned(),
    };
    head(&words, MAX_LINE_BYTES).to_owned()
}

impl TreeView {
    pub(super) fn of(TreePane(tree): &TreePane, context: &PaneContext) -> Self {
        let Some(tree) = tree else {
            return Self { root: None, tasks: 0, depth: 0, cost: None, made: 0, is_cut: false };
        };
        let usage = tree.usage(&tree.root.id);
        let limit = tree.root.limits.cost_usd.filter(|limit| *limit > 0.0);
        let words = cost(&usage);
        let together = match limit {
            Some(limit) => {
                let share = (usage.cost_usd.unwrap_or(0.0) / limit * 100.0).clamp(0.0, 100.0).round() as u64;
                Some((share, format!("{} of ${limit:.2}", if words.is_empty() { "$0.00" } else { words.as_str() })))
            }
            None => Some((0, words)).filter(|(_, words)| !words.is_empty()),
        };
        Self {
            root: Some(KinLine::of_task(&tree.root, tree, context)),
            tasks: tree.made() + 1,
            depth: tree.depth(),
            cost: together,
            made: tree.made(),
            is_cut: tree.is_cut,
        }
    }

    fn most_depth(&self) -> u32 {
        MAX_TREE_DEPTH
    }

    fn most_children(&self) -> u32 {
        MAX_TREE_CHILDREN
    }

    fn children_percent(&self) -> usize {
        self.made * 100 / MAX_TREE_CHILDREN as usize
    }
}
