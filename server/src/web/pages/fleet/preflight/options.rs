//! Which agent of a viber answers, and with which model, as a form offers it.

use protocol::{AgentInfo, Capability};

use super::SelectOption;
use crate::domain::Viber;

/// Models that are offered at once.
pub const MAX_OFFERED_MODELS: usize = 50;

/// What a session's form says for the model that the agent itself has.
pub const OWN_MODEL: &str = "own";
const OWN_MODEL_LABEL: &str = "Agent's own model";

/// The choice of an agent and a model of one viber.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentOptions {
    pub agents: Vec<SelectOption>,
    /// The first one is the agent's own; empty when there is no other.
    pub models: Vec<SelectOption>,
    /// What is chosen: `Coder, claude-sonnet-4-5`.
    pub words: String,
    /// The values of agents whose own model is shown no pictures.
    blind: Vec<String>,
    /// The values with which the agent's own model answers.
    own_model: Vec<&'static str>,
}

impl AgentOptions {
    /// With the agent and the model that are chosen, as far as the viber has them.
    pub fn of(viber: &Viber, agent: Option<&AgentInfo>, model: Option<&str>) -> Self {
        let own = agent.map_or("", |agent| agent.model.as_str());
        let other: Vec<String> = viber.models().filter(|model| model != own).take(MAX_OFFERED_MODELS).collect();
        let model = model.filter(|model| other.iter().any(|offered| offered == model));
        let mut models = Vec::new();
        if !other.is_empty() {
            let label = OWN_MODEL_LABEL.to_owned();
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
            blind: blind(viber),
            own_model: vec![""],
        }
    }

    /// The same for a session, where somebody else may choose meanwhile: unless its reader chooses, the agent and the model that
    /// answered before answer again, whoever that is by then.
    pub fn as_before(viber: &Viber, agent: Option<&AgentInfo>, model: Option<&str>) -> Self {
        let own = agent.map_or("", |agent| agent.model.as_str());
        let all: Vec<String> = viber.models().take(MAX_OFFERED_MODELS).collect();
        let model = model.filter(|model| *model != own && all.iter().any(|offered| offered == model));
        let option =
            |value: &str, label: String| SelectOption { chosen: value.is_empty(), value: value.to_owned(), label };
        let mut agents = Vec::new();
        if !viber.agents.is_empty() {
            agents.push(option(
                "",
                agent.map_or_else(|| "As before".to_owned(), |agent| format!("{}, as before", name(agent))),
            ));
            agents.extend(viber.agents.iter().map(|known| option(&known.id, named(name(known), &known.model))));
        }
        let mut models = Vec::new();
        if all.iter().any(|offered| offered != own) {
            let before = model.map_or(OWN_MODEL_LABEL, |model| model.split_once('/').map_or(model, |(_, model)| model));
            models.push(option("", format!("{before}, as before")));
            models.push(option(OWN_MODEL, OWN_MODEL_LABEL.to_owned()));
            models.extend(all.iter().map(|offered| option(offered, offered.clone())));
        }
        let words = agent.map_or_else(String::new, |agent| named(name(agent), model.unwrap_or(own)));
        let mut blind = blind(viber);
        if agent.is_some_and(|agent| blind.contains(&agent.id)) {
            blind.push(String::new());
        }
        let own_model = if model.is_none() { vec!["", OWN_MODEL] } else { vec![OWN_MODEL] };
        Self { agents, models, words, blind, own_model }
    }

    /// Whether this agent's own model is shown no pictures.
    pub fn is_blind(&self, agent: &SelectOption) -> bool {
        self.blind.contains(&agent.value)
    }

    /// Whether that of the chosen one is.
    pub fn is_chosen_blind(&self) -> bool {
        self.agents.iter().any(|agent| agent.chosen && self.is_blind(agent))
    }

    /// Whether the agent's own model answers with this choice.
    pub fn is_own(&self, model: &SelectOption) -> bool {
        self.own_model.contains(&model.value.as_str())
    }

    /// Whether there is anything to choose.
    pub fn is_choice(&self) -> bool {
        self.agents.iter().filter(|agent| !agent.value.is_empty()).count() > 1 || !self.models.is_empty()
    }
}

/// The agents that take files and whose own models are shown no pictures. Of other models nobody says that.
fn blind(viber: &Viber) -> Vec<String> {
    let is_blind = |agent: &&AgentInfo| {
        agent.capabilities.contains(&Capability::Files) && !agent.capabilities.contains(&Capability::Images)
    };
    viber.agents.iter().filter(is_blind).map(|agent| agent.id.clone()).collect()
}

fn name(agent: &AgentInfo) -> &str {
    if agent.name.is_empty() { &agent.id } else { &agent.name }
}

/// An agent with its model, without the provider's name.
fn named(agent: &str, model: &str) -> String {
    let model = model.split_once('/').map_or(model, |(_, model)| model);
    if model.is_empty() { agent.to_owned() } else { format!("{agent}, {model}") }
}
