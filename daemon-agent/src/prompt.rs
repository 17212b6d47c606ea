//! What a model sees: one stable system prompt, then the conversation, at most one context message, and the goal,
//! verbatim and last. What changes often comes after what does not, so that providers' caches hold.
//!
//! Keeps secrets out: nothing of `state/`, `secrets/`, `config.yaml` or the environment's values is ever read here.

use jiff::{Timestamp, tz::TimeZone};
use protocol::{TaskSubmit, text::fenced};

use crate::{clock::Clock, config::Agent, home::Home, memory::Recall, model::Message};

mod context_block;
mod history;
mod personalization;
mod said;
mod texts;
mod token_budget;

pub use history::pinned_calls;
pub use said::{conversation, said};
pub use token_budget::{PromptParts, RequestLayers, RequestTokens, conversation_tokens, sent_excerpts};

/// Facts about the place where tools run, for the model.
#[derive(Clone, Debug)]
pub struct PromptEnvironment {
    /// Such as `linux x86_64`.
    pub os: String,
    /// `YYYY-MM-DD`: anything finer would change the prompt with every task.
    pub today: String,
    /// Whether commands are confined to the declared folders.
    pub confined: bool,
}

impl PromptEnvironment {
    /// This machine, with today's local date.
    pub fn here(confined: bool, clock: &Clock) -> Self {
        let now = Timestamp::from_millisecond(clock.now().millis()).unwrap_or(Timestamp::UNIX_EPOCH);
        let today = now.to_zoned(TimeZone::system()).date().to_string();
        Self { os: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH), today, confined }
    }
}

/// A system prompt, and the parts of it that people wrote in files.
#[derive(Clone, Debug)]
pub struct SystemPrompt {
    pub text: String,
    personal: Vec<personalization::PersonalizationBlock>,
}

/// The system prompt of `agent`: rules, how to do coding work, personalization, environment, the agent's own prompt.
/// Reads the personalization files up to their limits, unless there is no room for them; missing files are left out.
pub async fn system(agent: &Agent, home: &Home, place: &PromptEnvironment, no_files: bool) -> SystemPrompt {
    let mut prompt = format!("{}\n\n{}\n", texts::BEHAVIOUR_RULES.trim(), texts::CODING_RULES.trim());
    let personal = if no_files { Vec::new() } else { personalization::blocks(&agent.id, home).await };
    for block in &personal {
        prompt.push_str(&format!("\n{}\n", fenced(block.tag, "", &block.text)));
    }
    prompt.push_str(&format!("\n{}\n", environment(agent, home, place)));
    if let Some(own) = agent.system_prompt.as_deref().map(str::trim).filter(|own| !own.is_empty()) {
        prompt.push_str(&format!("\n{own}\n"));
    }
    SystemPrompt { text: prompt, personal }
}

/// History, context, pictures that came with the goal, goal.
pub fn messages(submit: &TaskSubmit, home: &Home, recall: &Recall) -> Vec<Message> {
    let mut messages = history::messages(&submit.messages);
    messages.extend(context_block::message(submit, home, recall).map(Message::User));
    let task = submit.task_id.as_str();
    let pictures = submit.attachments.iter().filter_map(|file| said::picture(file, home.attachment(task, &file.name)?));
    let pictures: Vec<_> = pictures.collect();
    messages.extend((!pictures.is_empty()).then_some(Message::Pictures(pictures)));
    messages.push(Message::User(submit.goal.clone()));
    messages
}

/// A name between quotes, without characters that could end them.
fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '<' | '>')).collect();
    format!("\"{plain}\"")
}

fn environment(agent: &Agent, home: &Home, place: &PromptEnvironment) -> String {
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
