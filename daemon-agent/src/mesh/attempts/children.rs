//! Tasks that agents of this machine give to each other: made here without the Board, told to it like everything that begins on
//! the machine, and ended with whoever asked for them.
//!
//! A task is known by the call that asked for it: its id is made of the id of that request, so that the same request is the same
//! task however often it is begun. Who may ask whom is decided before (`engine`).

use std::{collections::BTreeSet, path::Path, sync::Arc};

use protocol::{
    AgentInfo, AttemptRef, ChildAnnouncement, ChildReport, ChildState, ConfigError, EventBody, InjectionPoint,
    MeshDirectory, MessageId, Policy, ReportedDetail, SessionId, TaskId, TaskMessage, TaskResult, TaskSubmit,
    TreePlace, Usage, mesh::same_digits, parse_event, text::title,
};
use serde_json::json;

use super::{Origin, attempt_of};
use crate::{
    artifacts,
    config::Agent,
    home::Home,
    mesh::{FetchError, FetchPayload, Mesh, MeshState, StopCause},
    report::{
        Children, Place,
        children::{AgentOfMachine, ChildHands, LocalChild, PendingDirectory},
    },
    task::Work,
    workspace::Workspace,
};

/// Longest goal of an announced task, bytes: it fits an event however JSON escapes it.
const MAX_ANNOUNCED_GOAL_BYTES: usize = 20 * 1024;
/// Largest artifact that is handed to another task, bytes.
const MAX_HANDED_BYTES: u64 = 64 * 1024 * 1024;
/// What is read of a log to find its last event, bytes.
const MAX_ENDING_BYTES: u64 = 1024 * 1024;
/// Trees whose tasks are counted. The oldest are forgotten first.
const MAX_COUNTED_TREES: usize = 1_000;
/// Where the Board tells who else there is.
const DIRECTORY_PATH: &str = "/api/daemon/mesh";
/// Where these tasks come from, as they are announced.
const AGENT_ORIGIN: &str = "agent";

/// A task that another one asked for.
#[derive(Clone, Debug)]
pub(in crate::mesh) struct AskedFor {
    pub place: TreePlace,
    pub agent_id: String,
    pub title: String,
}

/// What one attempt has done.
struct Hands {
    mesh: Mesh,
    attempt: AttemptRef,
}

impl Mesh {
    /// What an attempt asks others with.
    pub(super) fn children_of(&self, submit: &TaskSubmit) -> Children {
        let hands = Hands { mesh: self.clone(), attempt: attempt_of(submit) };
        Children::new(submit.children.clone(), self.shared.approvals.clone(), hands)
    }

    /// The agents of this machine, with what they are busy with.
    pub fn agents(&self) -> Vec<AgentOfMachine> {
        let files = self.shared.context.files.borrow().clone();
        let state = self.state();
        let tasks_of = |id: &str| {
            let running = state.running.values().filter(|live| live.agent_id == id).count();
            running + state.queue.iter().filter(|submit| submit.agent_id == id).count()
        };
        let of = |(id, agent): (&String, &Result<Agent, (AgentInfo, ConfigError)>)| {
            let (description, error) = match agent {
                Ok(agent) => (agent.description.clone(), None),
                Err((info, error)) => {
                    let why = format!("{} line {}: {}", error.file, error.line, error.message);
                    (info.description.clone(), Some(why))
                }
            };
            AgentOfMachine { id: id.clone(), description, error, tasks: tasks_of(id) }
        };
        files.agents.iter().map(of).collect()
    }

    /// Begins a task that an agent of this machine asked for, unless it was begun before.
    async fn begin_child(&self, child: LocalChild, parent: AttemptRef) {
        let attempt = AttemptRef { task_id: child.task.clone(), attempt: 1 };
        let Some(session_id) = session_of_child(&child.task) else { return };
        let counts = {
            let mut state = self.state();
            if state.holds(&attempt) || state.asked_for.contains_key(&attempt) {
                return;
            }
            let (place, agent_id) = (child.place.clone(), child.agent.clone());
            state.asked_for.insert(attempt.clone(), AskedFor { place, agent_id, title: title(&child.goal) });
            // Its log says that a former process began it.
            match self.outbox().next(&attempt) {
                0 => {
                    state.count_in_tree(&child.place.root);
                    Some(state.running.get(&parent).is_none_or(|live| live.counts))
                }
                _ => None,
            }
        };
        let Some(counts) = counts else { return self.tell_former_end(&attempt) };
        let handed = child.artifacts.clone();
        let mut submit = self.submit_of(child, session_id.clone()).await;
        // What it did lies outside of `state/` as well: then it was begun, though nothing else says so any more.
        if self.is_logged(&submit).await {
            self.state().asked_for.remove(&attempt);
            return;
        }
        self.hand_over(&mut submit, handed, &parent.task_id).await;
        if self.why_ending(&parent) != Some(None) {
            // It is over, or is to end, and nobody else waits for this.
            self.state().asked_for.remove(&attempt);
            return;
        }
        self.outbox().begin(&attempt, &submit.agent_id);
        self.outbox().append(
            &attempt,
            EventBody::Announce {
                origin: AGENT_ORIGIN.to_owned(),
                agent_id: submit.agent_id.clone(),
                session_id,
                goal: protocol::text::head_and_tail(&submit.goal, MAX_ANNOUNCED_GOAL_BYTES),
                parent: submit.parent.as_ref().map(|place| {
                    let (call, limits) = (place.call.clone(), submit.limits.clone());
                    ChildAnnouncement { call, limits }
                }),
                author: None,
            },
        );
        crate::fault::at("mesh::after_announce");
        self.tell_made(&submit);
        if counts {
            self.enqueue(submit, Vec::new());
            self.ring();
            self.pump();
        } else {
            let begun = self.register(&mut self.state(), &submit, Origin::Agent { counts }, Place::Taken);
            self.spawn(begun, Work::New(Box::new(submit)), Vec::new());
        }
        if matches!(self.why_ending(&parent), Some(Some(StopCause::Stop(_)))) {
            // A stop that came just now has not found this one.
            self.stop_children(BTreeSet::from([parent.task_id]));
        }
    }

    /// Why an attempt that runs is to end, if it is; `None` when it does not run.
    fn why_ending(&self, attempt: &AttemptRef) -> Option<Option<StopCause>> {
        self.state().running.get(attempt).map(|live| live.stop.cause())
    }

    /// Tells how a task ended that a former process began, if it has ended. If not, that is told when it does.
    fn tell_former_end(&self, attempt: &AttemptRef) {
        let last = self.outbox().next(attempt).saturating_sub(1);
        let read = (last > 0).then(|| self.outbox().read(attempt, last, MAX_ENDING_BYTES)).flatten();
        let event = read.and_then(|batch| batch.items.last().and_then(|item| parse_event(item).ok()));
        let ending = event.map(|event| event.body).filter(EventBody::is_terminal);
        if let Some(report) = ending.and_then(|ending| self.child_report(attempt, &ending)) {
            self.tell_child(report);
        }
    }

    async fn submit_of(&self, child: LocalChild, session_id: SessionId) -> TaskSubmit {
        let team = self.team_rules().await;
        let files = self.shared.context.files.borrow().clone();
        let own = files.agent(&child.agent).and_then(Result::ok).map(|agent| agent.mode);
        // The stricter of both: a task never may more than the one that asked for it.
        let mode = child.mode.map(|mode| own.map_or(mode, |own| mode.min(own)));
        TaskSubmit {
            task_id: child.task,
            attempt: 1,
            session_id,
            agent_id: child.agent,
            goal: child.goal,
            messages: Vec::new(),
            plan: None,
            artifacts: Vec::new(),
            memory: Vec::new(),
            context: None,
            attachments: Vec::new(),
            plan_policy: Policy::Apply,
            memory_policy: Policy::Propose,
            approve_first: false,
            stream: ReportedDetail::Full,
            mode,
            model: None,
            limits: child.limits.smallest(&team.limits),
            rules: team.rules,
            approval_minutes: team.approval_minutes,
            prices: team.prices,
            leash: child.leash,
            deadline: None,
            no_files: false,
            spent: None,
            budget: None,
            compact: None,
            playbook: None,
            parent: Some(child.place),
            children: Vec::new(),
            payload_url: None,
        }
    }

    /// Copies what the asking task hands over to where files of a task lie, over no link, and tells the task where that is.
    async fn hand_over(&self, submit: &mut TaskSubmit, names: Vec<String>, from: &TaskId) {
        let mut lines = Vec::new();
        for name in names {
            let (home, workspace) = (self.home().clone(), self.workspace());
            let (from, to, file) = (from.clone(), submit.task_id.clone(), name.clone());
            let copying = tokio::task::spawn_blocking(move || copy_artifact(&home, &workspace, (&from, &to), &file));
            lines.push(match copying.await.map_err(|error| error.to_string()).flatten() {
                Ok(place) => place,
                Err(why) => format!("{} cannot be handed over: {why}", protocol::text::head(&name, 100)),
            });
        }
        submit.context = (!lines.is_empty()).then(|| json!({ "files": lines }));
    }

    /// Tells a task what became of one that it asked for: to its newest attempt, if there is one.
    pub(in crate::mesh) fn tell_child(&self, report: ChildReport) {
        let children = {
            let mut state = self.state();
            let task = &report.call.task_id;
            let live = state.running.iter().rfind(|(attempt, _)| attempt.task_id == *task);
            match live.map(|(_, live)| live.children.clone()) {
                Some(children) => children,
                None => {
                    // It is told when it begins.
                    if let Some(submit) = state.queue.iter_mut().rfind(|submit| submit.task_id == *task) {
                        submit.children.retain(|known| known.call != report.call);
                        submit.children.push(report);
                    }
                    return;
                }
            }
        };
        children.hear(report);
    }

    fn tell_made(&self, submit: &TaskSubmit) {
        let Some(place) = &submit.parent else { return };
        self.tell_child(ChildReport {
            call: place.call.clone(),
            child_task_id: Some(submit.task_id.clone()),
            state: ChildState::Running,
            agent_id: submit.agent_id.clone(),
            viber: None,
            title: title(&submit.goal),
            follows: None,
            result: None,
            error: None,
            usage: Usage::default(),
        });
    }

    /// What the ending of an attempt means for the task that asked for it, if one did.
    pub(in crate::mesh) fn child_report(&self, attempt: &AttemptRef, ending: &EventBody) -> Option<ChildReport> {
        let mut state = self.state();
        let AskedFor { place, agent_id, title } = state.asked_for.remove(attempt)?;
        let live = state.running.get(attempt);
        let mut usage = live.map(|live| live.pulse.usage()).unwrap_or_default();
        if let Some(live) = live {
            usage.add(&live.children.usage());
        }
        let (how, result, error) = match ending {
            EventBody::Completed { result } => {
                let result = TaskResult { plan: None, memory: None, ..result.clone() };
                (ChildState::Completed, Some(result), None)
            }
            EventBody::Stopped { reason, .. } => (ChildState::Stopped, None, Some(reason.clone())),
            EventBody::Error { error } => (ChildState::Error, None, Some(error.message.clone())),
            _ => return None,
        };
        let (call, child_task_id, follows) = (place.call, Some(attempt.task_id.clone()), None);
        Some(ChildReport {
            call,
            child_task_id,
            state: how,
            agent_id,
            viber: None,
            title,
            follows,
            result,
            error,
            usage,
        })
    }

    /// Ends what tasks asked for that are stopped, down to the last one.
    pub(in crate::mesh) fn stop_children(&self, stopped: BTreeSet<TaskId>) {
        let mut tasks = stopped;
        loop {
            let more: BTreeSet<AttemptRef> = {
                let state = self.state();
                // Below the first one, also where what lies between has ended.
                let is_below =
                    |place: &TreePlace| [&place.call.task_id, &place.root].iter().any(|above| tasks.contains(*above));
                let is_theirs =
                    |child: &AttemptRef, asked: &AskedFor| is_below(&asked.place) && !tasks.contains(&child.task_id);
                state
                    .asked_for
                    .iter()
                    .filter(|(child, asked)| is_theirs(child, asked))
                    .map(|(child, _)| child.clone())
                    .collect()
            };
            if more.is_empty() {
                return;
            }
            let cause = StopCause::Stop("the task that asked for it was stopped".to_owned());
            self.stop_exactly(&cause, |attempt, _| more.contains(attempt));
            tasks.extend(more.into_iter().map(|child| child.task_id));
        }
    }

    fn tell_message(&self, task: &TaskId, content: String) -> bool {
        let inbox = {
            let state = self.state();
            let live = state.running.keys().rfind(|attempt| attempt.task_id == *task).cloned();
            live.and_then(|attempt| state.inboxes.get(&attempt).cloned())
        };
        let Some(inbox) = inbox else { return false };
        inbox.put(TaskMessage {
            task_id: task.clone(),
            message_id: MessageId::new(self.clock().now().millis()),
            rev: 1,
            author: "another agent".to_owned(),
            content,
            context: None,
            attachments: Vec::new(),
            injection_mode: InjectionPoint::Collect,
            position: 0,
            withdrawn: false,
        });
        true
    }
}

impl ChildHands for Hands {
    fn agents(&self) -> Vec<AgentOfMachine> {
        self.mesh.agents()
    }

    fn directory(&self, places: Vec<String>) -> PendingDirectory {
        let fetch: FetchPayload = Arc::clone(&self.mesh.shared.context.fetch);
        Box::pin(async move {
            let asked: Vec<String> = places.iter().map(|place| format!("place={}", query_value(place))).collect();
            match fetch(format!("{DIRECTORY_PATH}?{}", asked.join("&"))).await {
                Ok(bytes) => serde_json::from_slice::<MeshDirectory>(&bytes).map_err(|error| error.to_string()),
                Err(FetchError::Later(why) | FetchError::Never(why)) => Err(why),
            }
        })
    }

    fn tree_size(&self, root: &TaskId) -> u32 {
        let state = self.mesh.state();
        state.trees.iter().find(|(known, _)| known == root).map_or(0, |(_, size)| *size)
    }

    fn begin(&self, child: LocalChild) {
        let (mesh, parent) = (self.mesh.clone(), self.attempt.clone());
        self.mesh.shared.tracker.spawn(async move { mesh.begin_child(child, parent).await });
    }

    fn stop(&self, child: &TaskId, reason: &str) -> bool {
        let is_here = {
            let state = self.mesh.state();
            state
                .asked_for
                .iter()
                .any(|(attempt, asked)| attempt.task_id == *child && asked.place.call.task_id == self.attempt.task_id)
        };
        if is_here {
            self.mesh.stop(&StopCause::Stop(reason.to_owned()), |attempt, _| attempt.task_id == *child);
        }
        is_here
    }

    fn tell(&self, task: &TaskId, content: String) -> bool {
        self.mesh.tell_message(task, content)
    }

    fn has_board(&self) -> bool {
        self.mesh.shared.context.board.is_some()
    }
}

impl MeshState {
    /// Counts one more task in a tree.
    fn count_in_tree(&mut self, root: &TaskId) {
        match self.trees.iter_mut().find(|(known, _)| known == root) {
            Some((_, size)) => *size = size.saturating_add(1),
            None => {
                if self.trees.len() >= MAX_COUNTED_TREES {
                    self.trees.pop_front();
                }
                self.trees.push_back((root.clone(), 1));
            }
        }
    }
}

/// A text as a value of a query.
fn query_value(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escaped = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escaped).collect()
}

/// The session of a task that another one asked for: the same for the same task.
fn session_of_child(task: &TaskId) -> Option<SessionId> {
    same_digits(task.as_str(), SessionId::PREFIX)?.parse().ok()
}

/// Copies an artifact to where the files of a task lie, and returns that place. Blocks.
fn copy_artifact(
    home: &Home,
    workspace: &Workspace,
    (from, to): (&TaskId, &TaskId),
    name: &str,
) -> Result<String, String> {
    let place = home.attachment(to.as_str(), name).ok_or("its name is no plain one")?;
    let way = place.strip_prefix(home.workspace()).ok().and_then(Path::to_str).ok_or("it has no place")?.to_owned();
    let mut file = artifacts::find(home, &format!("artifacts/{from}/{name}"), None, None)?;
    if file.metadata().map_err(|error| error.to_string())?.len() > MAX_HANDED_BYTES {
        return Err("it is larger than 64 MiB".to_owned());
    }
    workspace.place_file(&way, &mut file).map_err(|error| error.to_string())?;
    Ok(place.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_value_of_a_query() {
        assert_eq!(query_value("gpu=yes&x #1"), "gpu%3Dyes%26x%20%231");
        assert_eq!(query_value("kiln-03"), "kiln-03");
        assert_eq!(query_value("ü"), "%C3%BC");
    }
}
