//! A task that another one asked for, folded where it was asked for: its state, what it took, the first words of what came
//! of it, and what it asked for in turn.

use askama::Template;
use protocol::{ChildState, Usage, UsageSource, mesh::MAX_TREE_DEPTH, text::head};

use super::super::{
    Badge, filters,
    filters::token_words,
    time::{Time, TimeFormat, took},
    timeline::escaped,
};
use crate::{
    domain::{DelegationState, Kin, KinTask, TaskState},
    web::urls,
};

/// Longest words of what came of it, bytes; the rest is in its session.
const MAX_OUTCOME_BYTES: usize = 1_024;
/// Longest name that a line shows, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Longest goal that an address carries to the form of a new task, bytes.
const MAX_CARRIED_GOAL_BYTES: usize = 2_000;
/// HTML of a fold without its texts, bytes at most.
const FRAME_BYTES: usize = 1_700;
/// HTML of the link to the form of a new task without its address, bytes at most.
const AGAIN_BYTES: usize = 500;

/// A task that a call asked for.
#[derive(Clone, Debug, PartialEq, Eq, Template)]
#[template(path = "work/sessions/_child.html")]
pub struct ChildFold {
    /// The call that asked for it.
    pub call_id: String,
    /// The name of the fold in the page; what was refused has none.
    pub id: Option<String>,
    pub badge: Badge,
    pub title: String,
    /// `reviewer on gpu-basement`.
    pub by: String,
    /// What it and all beneath it took; empty: nothing yet.
    pub cost: String,
    pub time: String,
    /// The first words of what came of it, or why nothing did.
    pub outcome: Option<String>,
    /// `Depth 2 of 3`, below the first.
    pub place: Option<String>,
    /// Names of the files that went along.
    pub files: Vec<String>,
    /// Its session.
    pub session: Option<String>,
    /// Where it and all beneath it are stopped.
    pub stop: Option<String>,
    /// Where it is given to another viber, when it failed.
    pub again: Option<String>,
    /// What it asked for in turn.
    pub beneath: Vec<ChildFold>,
}

impl ChildFold {
    /// Of all that was asked for in a tree.
    pub fn of(kin: &Kin, all: &[Kin], (slug, may_act): (&str, bool)) -> Self {
        let task = kin.task.as_ref();
        let may_be_deeper = kin.asked.depth <= MAX_TREE_DEPTH;
        let of_task = |below: &&Kin| task.is_some_and(|task| below.asked.call.task_id == task.id) && may_be_deeper;
        let beneath: Vec<Self> =
            all.iter().filter(of_task).map(|below| Self::of(below, all, (slug, may_act))).collect();
        let viber =
            task.map(|task| task.viber_name.as_str()).or(kin.asked.place.as_deref()).filter(|name| !name.is_empty());
        let agent = head(&kin.asked.agent_id, MAX_NAME_BYTES);
        let stopped = task.and_then(|task| task.stop_reason.as_deref());
        let outcome = kin.asked.refusal.as_deref().or(kin.asked.outcome.as_deref()).or(stopped);
        let is_open = task.is_some_and(|task| !task.state.is_final());
        let badge = Badge::kin(kin);
        let is_carried = may_act && badge.state == "failed" && kin.asked.goal.len() <= MAX_CARRIED_GOAL_BYTES;
        Self {
            call_id: kin.asked.call.call_id.clone(),
            id: task.map(|task| format!("child-{}", task.id)),
            badge,
            title: head(&kin.asked.title(), MAX_NAME_BYTES).to_owned(),
            by: viber.map_or_else(|| agent.to_owned(), |viber| format!("{agent} on {}", head(viber, MAX_NAME_BYTES))),
            cost: cost(&usage(kin, all)),
            time: task.map(lasted).unwrap_or_default(),
            outcome: outcome
                .map(|text| head(text, MAX_OUTCOME_BYTES).to_owned())
                .filter(|text| !text.trim().is_empty()),
            place: (kin.asked.depth > 1).then(|| format!("Depth {} of {MAX_TREE_DEPTH}", kin.asked.depth)),
            files: kin.asked.artifacts.iter().map(|name| head(name, MAX_NAME_BYTES).to_owned()).collect(),
            session: task.map(|task| urls::session(slug, &task.session_id)),
            stop: task.filter(|_| is_open && may_act).map(|task| urls::task_verb(slug, &task.id, "stop")),
            again: is_carried.then(|| urls::home_with_goal_for(slug, &kin.asked.agent_id, &kin.asked.goal)),
            beneath,
        }
    }

    /// How many bytes of HTML it takes at most.
    pub fn weight(&self) -> usize {
        let texts = escaped(&self.title) + escaped(&self.by) + self.outcome.as_deref().map_or(0, escaped);
        let files: usize = self.files.iter().map(|name| 250 + escaped(name)).sum();
        let again = self.again.as_deref().map_or(0, |address| AGAIN_BYTES + escaped(address));
        FRAME_BYTES + texts + files + again + self.beneath.iter().map(Self::weight).sum::<usize>()
    }

    /// Whether its agent said what came of it.
    fn is_said(&self) -> bool {
        self.badge.state == "done" && self.outcome.is_some()
    }

    /// Open while it works, and where something went wrong.
    fn is_open(&self) -> bool {
        matches!(self.badge.state, "working" | "waiting" | "failed")
    }
}

/// What a task and all beneath it have used.
fn usage(kin: &Kin, all: &[Kin]) -> Usage {
    let Some(task) = &kin.task else { return Usage::default() };
    let mut sum = task.usage.clone();
    if kin.asked.depth <= MAX_TREE_DEPTH {
        let below = all.iter().filter(|below| below.task.is_some() && below.asked.call.task_id == task.id);
        below.for_each(|below| sum.add(&usage(below, all)));
    }
    sum
}

/// What something took in words: `$0.31`, or tokens where nobody knows what they cost; empty when it took nothing.
pub fn cost(usage: &Usage) -> String {
    let about = if usage.source == UsageSource::Estimated { "≈ " } else { "" };
    let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
    match usage.cost_usd {
        Some(cost) => format!("${cost:.2}"),
        None if tokens > 0 => format!("{about}{} tokens", token_words(tokens)),
        None => String::new(),
    }
}

/// How long a task has gone on, or went on: HTML.
pub fn lasted(task: &KinTask) -> String {
    match task.ended_at {
        Some(ended) => took(u64::try_from(ended.millis() - task.created_at.millis()).unwrap_or(0)),
        None if task.state == TaskState::Running => Time { at: task.created_at, how: TimeFormat::Lasted }.to_string(),
        None => String::new(),
    }
}

impl Badge {
    /// What became of what a call asked for.
    pub fn kin(kin: &Kin) -> Self {
        match (kin.asked.state, kin.task.as_ref(), kin.state()) {
            (DelegationState::Refused, ..) => Self { state: "failed", icon: "failed", word: "Refused" },
            (DelegationState::Gathering, ..) => Self { state: "pending", icon: "pending", word: "Files on their way" },
            (_, Some(task), ChildState::Running) => Self::at_work(task.state, task.waiting.as_ref()),
            (_, Some(task), _) => Self::at_work(task.state, None),
            (_, None, _) => Self { state: "stopped", icon: "stopped", word: "Deleted" },
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Instant, ParentCall, SessionId, TaskId, TaskLimits, ViberId};

    use super::*;
    use crate::domain::Delegation;

    /// Always the same one.
    fn task_id(n: i64) -> TaskId {
        format!("task_01900000000070008{n:015x}").parse().expect("an id")
    }

    fn kin(parent: i64, depth: u32, task: Option<(i64, TaskState)>) -> Kin {
        let asked = Delegation {
            call: ParentCall { task_id: task_id(parent), attempt: 1, call_id: format!("c{parent}") },
            parent_session: SessionId::new(parent),
            child: task.map(|(id, _)| task_id(id)),
            child_session: task.map(|(id, _)| SessionId::new(id)),
            root: task_id(1),
            depth,
            agent_id: "tester".to_owned(),
            place: Some("gpu".to_owned()),
            goal: "Run <it>\nand tell".to_owned(),
            artifacts: vec!["a.md".to_owned()],
            limits: TaskLimits::default(),
            session: None,
            state: if task.is_some() { DelegationState::Made } else { DelegationState::Refused },
            refusal: task.is_none().then(|| "no <such> agent".to_owned()),
            told: true,
            outcome: task.is_some().then(|| "<script>alert(1)</script>".to_owned()),
            created_at: Instant(0),
        };
        let task = task.map(|(id, state)| KinTask {
            id: task_id(id),
            session_id: SessionId::new(id),
            viber_id: ViberId::new(1),
            viber_name: "kiln".to_owned(),
            agent_id: "tester".to_owned(),
            title: "t".to_owned(),
            state,
            is_cut_off: false,
            waiting: None,
            attempt: 1,
            usage: Usage { cost_usd: Some(0.25), ..Usage::default() },
            limits: TaskLimits::default(),
            created_at: Instant(0),
            ended_at: state.is_final().then_some(Instant(90_000)),
            stop_reason: None,
        });
        Kin { asked, task }
    }

    #[test]
    fn a_page_has_room_for_a_whole_tree() {
        let first = kin(1, 1, Some((2, TaskState::Completed)));
        let below = (0..31).map(|n| kin(2, 2, Some((100 + n, TaskState::Completed))));
        let all: Vec<Kin> = std::iter::once(first).chain(below).collect();
        let fold = ChildFold::of(&all[0], &all, ("home", true));
        assert!((30_000..70_000).contains(&fold.weight()), "{}", fold.weight());
    }

    #[test]
    fn a_fold_holds_what_is_beneath_it_and_no_markup_of_an_agent() {
        let all =
            [kin(1, 1, Some((2, TaskState::Running))), kin(2, 2, Some((3, TaskState::Completed))), kin(2, 2, None)];
        let fold = ChildFold::of(&all[0], &all, ("home", true));
        assert_eq!((fold.badge.word, fold.by.as_str(), fold.cost.as_str()), ("Working", "tester on kiln", "$0.50"));
        assert_eq!((fold.beneath.len(), fold.beneath[0].time.as_str()), (2, "1 min 30 s"));
        assert!(fold.stop.is_some() && fold.beneath[0].stop.is_none());
        assert_eq!((fold.beneath[1].badge.word, fold.beneath[1].by.as_str()), ("Refused", "tester on gpu"));
        let html = fold.to_string();
        assert!(!html.contains("<script>") && html.contains("Depth 2 of 3"), "{html}");
        assert!(html.len() <= fold.weight(), "{} bytes, said {}", html.len(), fold.weight());
        assert!(
            html.contains("?agent=tester&#38;goal=Run%20%3Cit%3E") && html.contains("Run it on another viber"),
            "{html}"
        );
        assert_eq!(html.matches("Text of another agent").count(), 1, "a refusal is the Board's word: {html}");
        let watched = ChildFold::of(&all[0], &all, ("home", false));
        assert_eq!((watched.stop, watched.beneath[1].again.as_ref()), (None, None));
    }
}
