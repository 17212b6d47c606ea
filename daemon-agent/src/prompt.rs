//! What a model sees: one stable system prompt, then the conversation, at most one context message, and the goal, verbatim
//! and last. What changes often stands after what does not, so that providers' caches hold.
//!
//! Refuses secrets: nothing of `state/`, `secrets/`, `config.yaml` or the environment's values is ever read here.

use jiff::{Timestamp, tz::TimeZone};
use protocol::TaskSubmit;

use crate::{clock::Clock, config::Agent, home::Home, model::Message};

mod history;
mod personal;
mod texts;

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

/// The system prompt of `agent`: rules, how to do coding work, personalization, environment, the agent's own words.
/// Reads the personalization files, bounded; a file that is missing is left out.
pub async fn system(agent: &Agent, home: &Home, place: &Place) -> String {
    let mut prompt = format!("{}\n\n{}\n", texts::RULES.trim(), texts::CODING.trim());
    for (tag, text) in personal::blocks(&agent.id, home).await {
        prompt.push_str(&format!("\n<{tag}>\n{}\n</{tag}>\n", text.trim()));
    }
    prompt.push_str(&format!("\n{}\n", environment(agent, home, place)));
    if let Some(own) = agent.system_prompt.as_deref().map(str::trim).filter(|own| !own.is_empty()) {
        prompt.push_str(&format!("\n{own}\n"));
    }
    prompt
}

/// History, context, goal.
pub fn messages(submit: &TaskSubmit, home: &Home) -> Vec<Message> {
    let mut messages = history::messages(&submit.messages);
    messages.extend(history::context(submit, home).map(Message::User));
    messages.push(Message::User(submit.goal.clone()));
    messages
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
