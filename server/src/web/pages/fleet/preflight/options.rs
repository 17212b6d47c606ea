//! Which agent of a viber answers, and with which model, as a form offers it.

use protocol::AgentInfo;

use super::SelectOption;
use crate::domain::Viber;

/// Models that are offered at once.
const MAX_OFFERED_MODELS: usize = 50;

/// The choice of an agent and a model of one viber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentOptions {
    pub agents: Vec<SelectOption>,
    /// The first one is the agent's own; empty when there is no other.
    pub models: Vec<SelectOption>,
    /// What is chosen: `Coder, claude-sonnet-4-5`.
    pub words: String,
}

impl AgentOptions {
    /// With the agent and the model that are chosen, as far as the viber has them.
    pub fn of(viber: &Viber, agent: Option<&AgentInfo>, model: Option<&str>) -> Self {
        let own = agent.map_or("", |agent| agent.model.as_str());
        let other: Vec<String> = viber.models().filter(|model| model != own).take(MAX_OFFERED_MODELS).collect();
        let model = model.filter(|model| other.iter().any(|offered| offered == model));
        let mut models = Vec::new();
        if !other.is_empty() {
            let label = "Agent's own model".to_owned();
            models.push(SelectOption { value: String::new(), label, chosen: model.is_none() });
            models.extend(other.iter().map(|offered| SelectOption {
                chosen: model == Some(offered),
                value: offered.clone(),
                label: offered.clone(),
            }));
        }
        let option = |known: &AgentInfo| SelectOption {
            value: known.id.clone(),
            label: named(name(known), &known.model),
            chosen: agent.is_some_and(|agent| agent.id == known.id),
        };
        Self {
            agents: viber.agents.iter().map(option).collect(),
            models,
            words: agent.map_or_else(String::new, |agent| named(name(agent), model.unwrap_or(own))),
        }
    }

    /// Whether there is anything to choose.
    pub fn is_choice(&self) -> bool {
        self.agents.len() > 1 || !self.models.is_empty()
    }
}

fn name(agent: &AgentInfo) -> &str {
    if agent.name.is_empty() { &agent.id } else { &agent.name }
}

/// An agent with its model, without the provider's name.
fn named(agent: &str, model: &str) -> String {
    let model = model.split_once('/').map_or(model, |(_, model)| model);
    if model.is_empty() { agent.to_owned() } else { format!("{agent}, {model}") }
}
