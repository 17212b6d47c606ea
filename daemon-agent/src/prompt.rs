//! What a model sees: one stable system prompt, then the conversation, at most one context message, and the goal, verbatim
//! and last. What changes often stands after what does not, so that providers' caches hold.
//!
//! Refuses secrets: nothing of `state/`, `secrets/`, `config.yaml` or the environment's values is ever read here.

use jiff::{Timestamp, tz::TimeZone};
use protocol::TaskSubmit;

use crate::{clock::Clock, config::Agent, home::Home, memory::Recall, model::Message};

mod beside;
mod history;
mod layers;
mod personal;
mod texts;

pub use layers::{Asked, context};

/// What is true about the place where tools run, told to the model.
#[derive(Clone, Debug)]
pub struct Place {
    /// Such as `linux x86_64`.
    pub os: String,
    /// `YYYY-MM-DD`: a finer clock would change the prompt with every task.
    pub today: String,
    /// Whether commands are confined to the declared folders.
    pub confined: bool,
}

impl Place {
    /// This machine, today by its own calendar.
    pub fn here(confined: bool, clock: &Clock) -> Self {
        let now = Timestamp::from_millisecond(clock.now().millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        let today = now.to_zoned(TimeZone::system()).date().to_string();
        Self { os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH), today, confined }
    }
}

/// A system prompt, and what of it people wrote in files.
#[derive(Clone, Debug)]
pub struct System {
    pub text: String,
    personal: Vec<personal::Block>,
}

/// The system prompt of `agent`: rules, how to do coding work, personalization, environment, the agent's own words.
/// Reads the personalization files, bounded; a file that is missing is left out.
pub async fn system(agent: &Agent, home: &Home, place: &Place) -> System {
    let mut prompt = format!("{}\n\n{}\n", texts::RULES.trim(), texts::CODING.trim());
    let personal = personal::blocks(&agent.id, home).await;
    for block in &personal {
        prompt.push_str(&format!("\n{}\n", fenced(block.tag, "", &block.text)));
    }
    prompt.push_str(&format!("\n{}\n", environment(agent, home, place)));
    if let Some(own) = agent.system_prompt.as_deref().map(str::trim).filter(|own| !own.is_empty()) {
        prompt.push_str(&format!("\n{own}\n"));
    }
    System { text: prompt, personal }
}

/// History, context, goal.
pub fn messages(submit: &TaskSubmit, home: &Home, recall: &Recall) -> Vec<Message> {
    let mut messages = history::messages(&submit.messages);
    messages.extend(beside::message(submit, home, recall).map(Message::User));
    messages.push(Message::User(submit.goal.clone()));
    messages
}

/// `text` between the tags `tag`, with what it is in the first of them. What stands in it cannot end it.
fn fenced(tag: &str, attributes: &str, text: &str) -> String {
    let gap = if attributes.is_empty() { "" } else { " " };
    format!("<{tag}{gap}{attributes}>\n{}\n</{tag}>", tame(text.trim(), tag))
}

/// `text` without an end of `tag`.
fn tame(text: &str, tag: &str) -> String {
    let end = format!("</{tag}");
    let mut all = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("</") {
        let (before, from) = rest.split_at(at);
        all.push_str(before);
        let ends = from.get(..end.len()).is_some_and(|word| word.eq_ignore_ascii_case(&end));
        all.push_str(if ends { "< /" } else { "</" });
        rest = &from[2..];
    }
    all.push_str(rest);
    all
}

fn environment(agent: &Agent, home: &Home, place: &Place) -> String {
    let workspace = home.workspace();
    let cwd = agent.spaces.first().unwrap_or(&workspace).display();
    let spaces = agent.spaces.iter().map(|space| space.display().to_string()).collect::<Vec<_>>();
    let spaces = if spaces.is_empty() {
        "none declared; the workspace is the working directory".to_owned()
    } else {
        spaces.join(", ")
    };
    let commands = if place.confined {
        "run confined: they can write only to the spaces, the workspace, TMPDIR and a few folders that the owner of this machine allows"
    } else {
        "run without a sandbox on this machine: take special care outside the spaces"
    };
    format!(
        "<environment>\nOperating system: {os}\nDate: {today}\nWorking directory: {cwd}\nSpaces: {spaces}\nWorkspace: {workspace}\n\
         Shell: sh -c\nCommands {commands}.\n</environment>",
        os = place.os,
        today = place.today,
        workspace = workspace.display(),
    )
}

#[cfg(test)]
mod tests;
