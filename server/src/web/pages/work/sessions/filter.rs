//! What a list of sessions is narrowed to: parameters of its address, the form that sets them, and chips that remove them.

use std::collections::HashMap;

use protocol::ViberId;
use serde::Deserialize;

use crate::{
    db::{self, TeamTx, sessions::SessionFilter},
    domain::{SessionState, ViberFilter, Word},
    error::{Error, Result},
    web::{extract::Caller, urls},
};

/// Vibers, agents and people that a form offers; others are named in the address, or found by their name.
const MAX_OFFERED_VIBERS: usize = 30;
const MAX_OFFERED_AGENTS: u64 = 50;
const MAX_OFFERED_PEOPLE: usize = 200;
/// Longest value of a filter, characters.
const MAX_VALUE_CHARS: usize = 200;
/// The person who reads.
const ME: &str = "me";

/// What the list shows. An empty value is none.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct SessionListQuery {
    pub q: String,
    pub archived: String,
    /// Set: with the sessions of steps of playbooks and of tasks that agents asked for.
    pub steps: String,
    pub state: String,
    /// A viber's id, or what `on` finds.
    pub viber: String,
    pub on: String,
    pub agent: String,
    /// The id of an operator or a token, or `me`.
    pub person: String,
    /// `{active at}.{session}` of the last line of the page before.
    pub after: String,
}

impl SessionListQuery {
    /// Without spaces around values, and without what is too long.
    pub fn clean(mut self) -> Self {
        for value in [&mut self.q, &mut self.state, &mut self.viber, &mut self.on, &mut self.agent, &mut self.person] {
            *value = protocol::text::head(value.trim(), MAX_VALUE_CHARS).to_owned();
        }
        self
    }

    /// Whether it is the list of all sessions, as long as no filter narrows it.
    pub fn shows_all(&self) -> bool {
        self.q.is_empty() && self.archived.is_empty()
    }

    fn parameters<'a>(&'a self, viber: &'a str, after: &'a str) -> [(&'static str, &'a str); 8] {
        [
            ("q", &self.q),
            ("archived", if self.archived.is_empty() { "" } else { "1" }),
            ("steps", if self.steps.is_empty() { "" } else { "1" }),
            ("state", &self.state),
            ("viber", viber),
            ("agent", &self.agent),
            ("person", &self.person),
            ("after", after),
        ]
    }
}

/// A choice of a form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterOption {
    pub value: String,
    pub words: String,
    pub chosen: bool,
}

/// A filter that is set: what it says, and the list without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterChip {
    pub name: &'static str,
    pub words: String,
    pub without: String,
}

/// The form, the chips, and the filter itself.
#[derive(Debug)]
pub struct FilterForm {
    /// `None`: no viber has the name that was asked for.
    pub filter: Option<SessionFilter>,
    pub states: Vec<FilterOption>,
    pub vibers: Vec<FilterOption>,
    /// There are more vibers than are offered.
    pub more_vibers: bool,
    pub agents: Vec<FilterOption>,
    pub people: Vec<FilterOption>,
    pub chips: Vec<FilterChip>,
    viber: String,
}

/// The word of a state in lists.
fn state_words(state: SessionState) -> &'static str {
    match state {
        SessionState::Waiting => "Needs you",
        SessionState::Working => "Working",
        SessionState::Completed => "Done",
        SessionState::Error => "Failed",
        SessionState::Stopped => "Stopped",
        SessionState::Unread => "Unread",
    }
}

impl FilterForm {
    /// What an address asks for. A state or id that cannot be read is no page of the Board.
    pub async fn load(tx: &mut TeamTx<'_>, caller: &Caller, asked: &SessionListQuery) -> Result<Self> {
        let state = match asked.state.as_str() {
            "" => None,
            word => Some(word.parse::<SessionState>().map_err(|_| Error::NotFound)?),
        };
        let mut offered = db::vibers::search(tx, ViberFilter::All, "", None, MAX_OFFERED_VIBERS).await?;
        let more_vibers = offered.next.is_some();
        let mut chosen = match asked.viber.as_str() {
            "" => None,
            id => {
                let id = id.parse::<ViberId>().map_err(|_| Error::NotFound)?;
                Some(db::vibers::load(tx, &id).await?.ok_or(Error::NotFound)?)
            }
        };
        if chosen.is_none() && !asked.on.is_empty() {
            let found =
                db::vibers::search(tx, ViberFilter::All, &db::clean(&asked.on), None, MAX_OFFERED_VIBERS).await?;
            let named = asked.on.to_lowercase();
            let exact = found.vibers.iter().position(|viber| viber.name.to_lowercase() == named).unwrap_or(0);
            chosen = found.vibers.into_iter().nth(exact);
        }
        let is_nowhere = chosen.is_none() && !asked.on.is_empty();
        if let Some(chosen) = &chosen
            && offered.vibers.iter().all(|viber| viber.id != chosen.id)
        {
            offered.vibers.insert(0, chosen.clone());
        }
        let names = tx.query(db::members::names_query()).await?;
        let person = match (asked.person.as_str(), caller.reader()) {
            ("", _) | (ME, None) => None,
            (ME, Some(reader)) => Some(reader.to_string()),
            (id, _) => Some(id.to_owned()),
        };
        let agents = db::sessions::agents(tx, MAX_OFFERED_AGENTS).await?;
        let agent = Some(asked.agent.clone()).filter(|agent| !agent.is_empty());
        let viber = chosen.as_ref().map(|viber| viber.id.to_string()).unwrap_or_default();
        let is_narrowed = state.is_some() || chosen.is_some() || agent.is_some() || person.is_some();
        let filter = SessionFilter {
            archived: !asked.archived.is_empty(),
            own: asked.shows_all() && asked.steps.is_empty() && !is_narrowed,
            viber: chosen.as_ref().map(|viber| viber.id.clone()),
            agent: agent.as_deref().map(db::clean),
            person: person.as_deref().map(db::clean),
            state,
        };
        let option = |value: &str, words: &str, chosen: Option<&str>| FilterOption {
            value: value.to_owned(),
            words: words.to_owned(),
            chosen: chosen == Some(value),
        };
        let set = asked.state.as_str();
        let mut form = Self {
            states: SessionState::ALL.iter().map(|s| option(s.as_str(), state_words(*s), Some(set))).collect(),
            vibers: offered.vibers.iter().map(|v| option(v.id.as_str(), &v.name, Some(&viber))).collect(),
            more_vibers,
            agents: agents.iter().map(|id| option(id, id, agent.as_deref())).collect(),
            people: people(&names, caller, person.as_deref()),
            chips: Vec::new(),
            filter: (!is_nowhere).then_some(filter),
            viber,
        };
        let viber_words = chosen.as_ref().map_or_else(|| asked.on.clone(), |viber| viber.name.clone());
        let person_words = person.as_deref().map(|id| named(&names, caller, id)).unwrap_or_default();
        form.chips = [
            ("state", "State", state.map(state_words).unwrap_or_default().to_owned()),
            ("viber", "Viber", viber_words),
            ("agent", "Agent", agent.unwrap_or_default()),
            ("person", "Person", person_words),
        ]
        .into_iter()
        .filter(|(_, _, words)| !words.is_empty())
        .map(|(key, name, words)| {
            let left = asked.parameters(&form.viber, "").into_iter().filter(|(other, _)| *other != key);
            let without = urls::sessions_with(&caller.team.slug, &left.collect::<Vec<_>>());
            FilterChip { name, words, without }
        })
        .collect();
        Ok(form)
    }

    /// The list from a place on, as it was asked for.
    pub fn address(&self, slug: &str, asked: &SessionListQuery, after: &str) -> String {
        urls::sessions_with(slug, &asked.parameters(&self.viber, after))
    }

    /// The same list with those sessions, or without them.
    pub fn with_steps(&self, slug: &str, asked: &SessionListQuery) -> String {
        let flag = if asked.steps.is_empty() { "1" } else { "" };
        let asked = SessionListQuery { steps: flag.to_owned(), ..asked.clone() };
        self.address(slug, &asked, "")
    }

    /// The same list of sessions that are archived, or are not.
    pub fn with_archived(&self, slug: &str, asked: &SessionListQuery, archived: bool) -> String {
        let flag = if archived { "1" } else { "" };
        let asked = SessionListQuery { archived: flag.to_owned(), ..asked.clone() };
        self.address(slug, &asked, "")
    }
}

/// The members, the reader first, then by name; and whoever is chosen.
fn people(names: &HashMap<String, String>, caller: &Caller, chosen: Option<&str>) -> Vec<FilterOption> {
    let reader = caller.reader().map(ToString::to_string);
    let mut others: Vec<(&String, &String)> = names.iter().filter(|(id, _)| Some(*id) != reader.as_ref()).collect();
    others.sort_by_key(|(id, name)| (name.to_lowercase(), *id));
    let mut all: Vec<FilterOption> = reader
        .iter()
        .map(|id| FilterOption { value: ME.to_owned(), words: "You".to_owned(), chosen: chosen == Some(id.as_str()) })
        .collect();
    all.extend(others.into_iter().take(MAX_OFFERED_PEOPLE).map(|(id, name)| FilterOption {
        value: id.clone(),
        words: name.clone(),
        chosen: chosen == Some(id.as_str()),
    }));
    if let Some(id) = chosen
        && all.iter().all(|option| !option.chosen)
    {
        all.push(FilterOption { value: id.to_owned(), words: named(names, caller, id), chosen: true });
    }
    all
}

fn named(names: &HashMap<String, String>, caller: &Caller, id: &str) -> String {
    if caller.reader().is_some_and(|reader| reader.as_str() == id) {
        return "You".to_owned();
    }
    super::super::conversation::person_name(names, id)
}
