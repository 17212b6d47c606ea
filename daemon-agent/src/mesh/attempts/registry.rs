//! The registry: who lives on this machine, and what they do.

use serde::Serialize;

use crate::{
    mesh::{Mesh, RunningTask},
    report::children::AgentOfMachine,
};

/// An agent as others see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredAgent {
    pub id: String,
    pub description: String,
    /// What runs it.
    pub engine: &'static str,
    /// `idle`, or what the task does that began first.
    pub state: String,
    /// What it works on, the longest first.
    pub tasks: Vec<RunningTask>,
    /// Tasks that it has, with those that wait for a place.
    pub load: usize,
    /// Why it takes none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What runs the agents of this machine.
const ENGINE: &str = "builtin";

impl Mesh {
    /// All agents of this machine.
    pub fn registry(&self) -> Vec<RegisteredAgent> {
        let running = self.running();
        let of = |agent: AgentOfMachine| {
            let tasks: Vec<RunningTask> = running.iter().filter(|task| task.agent_id == agent.id).cloned().collect();
            let state = tasks.first().map(word).unwrap_or_else(|| "idle".to_owned());
            RegisteredAgent {
                state,
                load: agent.tasks,
                id: agent.id,
                description: agent.description,
                engine: ENGINE,
                tasks,
                error: agent.error,
            }
        };
        self.agents().into_iter().map(of).collect()
    }
}

fn word(task: &RunningTask) -> String {
    let word = serde_json::to_value(task.state).unwrap_or_default();
    word.as_str().unwrap_or("thinking").to_owned()
}
