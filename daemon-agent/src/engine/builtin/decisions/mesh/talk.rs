//! Calls of the mesh that are answered at once: who is there, how far a task is, what is said to another agent, and a stop.

use std::time::Duration;

use protocol::{
    AgentMessage, AgentStreamEvent, ChildReport, MeshDirectory, MessageDirection, MessageId, TaskId, TaskLimits, mesh,
};
use serde_json::Value;

use super::{MeshOrder, outcome_of};
use crate::{
    config::Delegate,
    engine::builtin::{AgentLoop, budget::nothing_left},
    model::ToolCall,
    report::children::AgentOfMachine,
    tools::{ToolErrorKind, ToolFailure, ToolOutcome},
};

/// Vibers of other machines that are listed at most.
const MAX_LISTED_VIBERS: usize = 50;
/// How long a message to a task that has ended waits to hear which one it has made: the Board answers at once, if it is there.
const MADE_WITHIN: Duration = Duration::from_secs(2);

impl AgentLoop {
    /// The result of a call of the mesh that waits for nothing.
    pub(in crate::engine::builtin) async fn mesh_call(&self, call: &ToolCall, args: &Value) -> ToolOutcome {
        match MeshOrder::read(&call.name, args) {
            Ok(MeshOrder::List) => ToolOutcome::done(self.listed_agents().await),
            Ok(MeshOrder::Check { task, .. }) => self.checked(&task),
            Ok(MeshOrder::Message { to, content }) => self.send(call, &to, content).await,
            Ok(MeshOrder::Stop { task, reason }) => self.stop_child(&task, reason).await,
            // Somebody changed the arguments when they allowed it.
            Ok(MeshOrder::Delegate(_)) => {
                ToolOutcome::refused("What is asked for was changed: make the call again with these arguments.")
            }
            Err(why) => ToolOutcome::refused(why),
        }
    }

    /// How far a task is, or the newest one of its conversation.
    fn checked(&self, task: &TaskId) -> ToolOutcome {
        let children = &self.run.children;
        let Some(newest) = children.newest_of(task) else { return unknown_task(task, &children.known()) };
        let outcome = outcome_of(&newest);
        if newest.child_task_id.is_some_and(|newest| children.expects_after(&newest)) {
            let text = outcome.text();
            return ToolOutcome::done(format!("{text}\nWhat you said since is its next task, which is not begun yet."));
        }
        outcome
    }

    async fn listed_agents(&self) -> String {
        let delegates = &self.run.agent.delegates;
        let here = self.run.children.hands().agents();
        let places: Vec<String> = delegates.iter().filter_map(|delegate| delegate.place.clone()).collect();
        let there = match places.is_empty() {
            true => Ok(MeshDirectory::default()),
            false => self.run.children.hands().directory(places).await,
        };
        let mut lines: Vec<String> = Vec::new();
        for delegate in delegates {
            match &delegate.place {
                None => lines.push(listed_here(&delegate.agent, &here)),
                Some(place) => lines.extend(listed_there(delegate, place, &there)),
            }
        }
        if lines.is_empty() { "There is nobody whom you may call.".to_owned() } else { lines.join("\n") }
    }

    async fn send(&self, call: &ToolCall, to: &str, content: String) -> ToolOutcome {
        let parent = self.run.submit.parent.as_ref();
        let known = self.run.children.known();
        let found = match parent {
            Some(place) if to == "parent" || to == place.call.task_id.as_str() => {
                Some((place.call.task_id.clone(), place.by.clone()))
            }
            _ => addressee(to, &known).map(|(task, peer)| {
                let newest = self.run.children.newest_of(&task).and_then(|newest| newest.child_task_id);
                (newest.unwrap_or(task), peer)
            }),
        };
        let Some((task, peer)) = found else {
            let message = format!(
                "Not sent: {to:?} is neither a task nor an agent that you gave one to. Give it what you want to say as a goal, with \
                 `delegate`."
            );
            return ToolOutcome::refused(not_there(message));
        };
        if let Err(why) = self.run.children.count_message() {
            return ToolOutcome::refused(ToolErrorKind::Permission.because(format!("Not sent: {why}.")));
        }
        let hands = self.run.children.hands();
        let from = &self.run.submit;
        // Of a child that has ended it is the next task, which may use a part of what is left.
        let has_ended = known.iter().any(|child| child.child_task_id.as_ref() == Some(&task) && child.state.is_final());
        let limits = match has_ended.then(|| self.budget.room_for_child(&TaskLimits::default())).transpose() {
            Ok(limits) => limits,
            Err(limit) => {
                let why = format!(
                    "Not sent: {peer} has ended, and there can be no other task of it: {}.",
                    nothing_left(limit)
                );
                return ToolOutcome::refused(ToolErrorKind::Permission.because(why));
            }
        };
        let is_told =
            hands.has_board() || hands.tell(&task, mesh::marked_message(&from.agent_id, &from.task_id, &content));
        if !is_told {
            return ToolOutcome::refused(not_there(format!("Not sent: {peer} does not work any more.")));
        }
        if let Some(limits) = &limits {
            self.run.children.promise(self.call_of(&call.id), limits.clone());
            self.run.children.follow(self.call_of(&call.id), task.clone());
        }
        self.emit(AgentStreamEvent::AgentMessage(AgentMessage {
            message_id: MessageId::new(self.clock.now().millis()),
            direction: MessageDirection::Out,
            peer: peer.clone(),
            to_task_id: hands.has_board().then(|| task.clone()),
            call_id: Some(call.id.clone()),
            limits,
            content,
        }))
        .await;
        if has_ended {
            return self.made_by_message(call, &task, &peer).await;
        }
        ToolOutcome::done(format!("Sent to {peer}. It is told when its turn ends; it need not answer."))
    }

    /// What came of a message to a task that has ended.
    async fn made_by_message(&self, call: &ToolCall, before: &TaskId, peer: &str) -> ToolOutcome {
        let of = self.call_of(&call.id);
        let made = tokio::select! {
            biased;
            () = self.run.stop.cancelled() => None,
            made = self.run.children.made(&of, MADE_WITHIN) => made,
        };
        let next = match made {
            Some(ChildReport { child_task_id: Some(task), .. }) => format!("{task}; ask for it with `check_task`"),
            Some(refused) => return outcome_of(&refused),
            None => format!("and its id is not known yet; `check_task` with {before} tells of it"),
        };
        ToolOutcome::done(format!(
            "Sent to {peer}, which has ended: it is its next task in the same conversation, {next}."
        ))
    }

    async fn stop_child(&self, task: &TaskId, reason: String) -> ToolOutcome {
        let children = &self.run.children;
        // What was said to it since may work already: that is the one to be ended.
        let Some(child) = children.newest_of(task) else { return unknown_task(task, &children.known()) };
        if child.state.is_final() {
            return ToolOutcome::done(format!("It had ended: {}", outcome_of(&child).text()));
        }
        let task = child.child_task_id.unwrap_or_else(|| task.clone());
        let is_here = children.hands().stop(&task, &reason);
        self.emit(AgentStreamEvent::ChildStop { child_task_id: task, reason }).await;
        let where_to = if is_here { "It is being ended." } else { "Its viber is told to end it." };
        ToolOutcome::done(where_to)
    }
}

/// The newest task of whoever is meant.
fn addressee(to: &str, known: &[ChildReport]) -> Option<(TaskId, String)> {
    let (agent, place) = match to.split_once('@') {
        Some((agent, place)) => (agent.trim(), Some(place.trim())),
        None => (to.trim(), None),
    };
    let is_meant = |child: &&ChildReport| {
        let is_there = place.is_none_or(|place| child.viber.as_deref() == Some(place));
        child.child_task_id.as_ref().is_some_and(|task| task.as_str() == to) || (child.agent_id == agent && is_there)
    };
    let child = known.iter().rev().filter(|child| child.child_task_id.is_some()).find(is_meant)?;
    Some((child.child_task_id.clone()?, child.agent_id.clone()))
}

fn unknown_task(task: &TaskId, known: &[ChildReport]) -> ToolOutcome {
    let mine: Vec<String> =
        known.iter().filter_map(|child| child.child_task_id.as_ref()).map(TaskId::to_string).collect();
    let mine = if mine.is_empty() { "none".to_owned() } else { mine.join(", ") };
    let message = format!("{task} is no task that you gave away; yours are: {mine}.");
    ToolOutcome::refused(not_there(message))
}

/// Nobody is meant by a call.
fn not_there(message: String) -> ToolFailure {
    ToolFailure { suggestion: Some("Name a task that you gave away."), ..ToolErrorKind::NotFound.because(message) }
}

fn listed_here(agent: &str, here: &[AgentOfMachine]) -> String {
    match here.iter().find(|known| known.id == agent) {
        Some(AgentOfMachine { error: Some(error), .. }) => format!("- {agent} (here): cannot be used: {error}"),
        Some(known) => {
            let load = match known.tasks {
                0 => "idle".to_owned(),
                1 => "1 task".to_owned(),
                tasks => format!("{tasks} tasks"),
            };
            format!("- {agent} (here, {load}): {}", one_line(&known.description))
        }
        None => format!("- {agent} (here): there is no such agent"),
    }
}

fn listed_there(delegate: &Delegate, place: &str, there: &Result<MeshDirectory, String>) -> Vec<String> {
    let named = delegate.text();
    let directory = match there {
        Err(why) => return vec![format!("- {named}: not known now: {why}")],
        Ok(directory) if !directory.across_vibers => {
            return vec![format!("- {named}: the team does not let agents call those of other machines")];
        }
        Ok(directory) => directory,
    };
    let is_meant = |name: &str, labels: &[String]| name == place || labels.iter().any(|label| label == place);
    let meant = directory.vibers.iter().filter(|viber| is_meant(&viber.name, &viber.labels));
    let lines: Vec<String> = meant
        .take(MAX_LISTED_VIBERS)
        .filter_map(|viber| {
            let agent = viber.agents.iter().find(|agent| agent.id == delegate.agent)?;
            let contact = if viber.connected { "connected" } else { "offline" };
            let (name, load) = (one_line(&viber.name), viber.open_tasks);
            Some(format!("- {named} (on {name}, {contact}, {load} open tasks): {}", one_line(&agent.description)))
        })
        .collect();
    if lines.is_empty() { vec![format!("- {named}: there is no such agent now")] } else { lines }
}

/// Text of a file, or of another machine, that cannot begin a line of its own.
fn one_line(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    protocol::text::head(plain.trim(), 300).to_owned()
}

#[cfg(test)]
mod tests {
    use protocol::{
        ChildState, ParentCall, Usage,
        mesh::{ListedAgent, ListedViber},
    };

    use super::*;

    #[test]
    fn whoever_is_meant_is_found_by_task_and_by_name() {
        let child = |n: i64, agent: &str, viber: Option<&str>| ChildReport {
            call: ParentCall { task_id: TaskId::new(1), attempt: 1, call_id: n.to_string() },
            child_task_id: Some(TaskId::new(n)),
            state: ChildState::Running,
            agent_id: agent.to_owned(),
            viber: viber.map(str::to_owned),
            title: String::new(),
            follows: None,
            result: None,
            error: None,
            usage: Usage::default(),
        };
        let known = [child(1, "coder", None), child(2, "coder", Some("m2")), child(3, "tester", None)];
        let found = |to: &str| addressee(to, &known).map(|(task, _)| task);
        let id = |n: usize| known[n].child_task_id.clone();
        assert_eq!(found("coder"), id(1), "the newest");
        assert_eq!(found("coder@m2"), id(1));
        assert_eq!(found(id(0).expect("an id").as_str()), id(0));
        assert_eq!(found("writer"), None);
        let told = unknown_task(&TaskId::new(9), &known).text();
        assert!(told.contains("you gave away") && !told.contains("glob"), "{told}");
    }

    #[test]
    fn agents_of_other_machines_are_listed_by_name_and_by_label() {
        let delegate = Delegate::read("tester@gpu=yes").expect("an entry");
        let agent = ListedAgent { id: "tester".to_owned(), description: "Runs\n</system> tests".to_owned() };
        let viber = ListedViber {
            name: "gpu-1".to_owned(),
            labels: vec!["gpu=yes".to_owned()],
            connected: true,
            open_tasks: 2,
            agents: vec![agent],
        };
        let there = Ok(MeshDirectory { across_vibers: true, vibers: vec![viber] });
        let lines = listed_there(&delegate, "gpu=yes", &there);
        assert_eq!(lines, ["- tester@gpu=yes (on gpu-1, connected, 2 open tasks): Runs </system> tests"]);
        let closed = listed_there(&delegate, "gpu=yes", &Ok(MeshDirectory::default()));
        assert!(closed[0].contains("does not let"), "{closed:?}");
    }
}
