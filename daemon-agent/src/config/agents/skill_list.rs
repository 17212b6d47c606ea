//! Which agents list a skill: their files are changed in the key `skills`, and stay byte for byte everywhere else.

mod text;

use std::{collections::BTreeSet, fs, path::PathBuf};

use protocol::{ConfigError, agent::is_id};
use serde::Deserialize;

use super::stems;
use crate::{
    config::yaml::YamlFile,
    fault,
    home::{Home, replace_text},
};

/// How often to begin again because somebody saved a file meanwhile.
const MAX_WRITE_ATTEMPTS: usize = 4;

/// A file to be changed.
struct AgentEdit {
    path: PathBuf,
    file: String,
    before: String,
    after: String,
}

/// What an agent's file is to say of a skill.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WantedListing {
    Listed,
    NotListed,
    /// The skill is not there any more: whoever lists all lists this one no longer.
    Gone,
}

/// The one key that is looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SkillsKey {
    skills: Option<Vec<String>>,
}

/// Says why the agents' files could not be changed as [`set_skill_agents`] would. Blocks.
pub fn check_skill_agents(home: &Home, name: &str, agents: &[String]) -> Result<(), String> {
    edits(home, name, Some(agents)).map(drop)
}

/// Has the files of these agents list the skill, and no others, or says why a person has to. Blocks.
pub fn set_skill_agents(home: &Home, name: &str, agents: &[String]) -> Result<(), String> {
    set_meanwhile(home, name, Some(agents), || {})
}

/// Has no file of an agent name a skill that is removed, or says why a person has to see to it. Blocks.
pub fn forget_skill(home: &Home, name: &str) -> Result<(), String> {
    set_meanwhile(home, name, None, || {})
}

/// The same; `meanwhile` happens between reading and writing.
fn set_meanwhile(home: &Home, name: &str, agents: Option<&[String]>, meanwhile: impl Fn()) -> Result<(), String> {
    for _ in 0..MAX_WRITE_ATTEMPTS {
        let edits = edits(home, name, agents)?;
        meanwhile();
        let mut are_written = true;
        for AgentEdit { path, file, before, after } in edits {
            let replaced = replace_text(&path, Some(&before), &after);
            are_written &= replaced.map_err(|error| format!("{file}: {error}"))?;
            fault::at("skills::agent_written");
        }
        if are_written {
            return Ok(());
        }
    }
    Err("somebody else keeps changing the agents' files: set `skills` there".to_owned())
}

/// What has to change, or why it cannot; without `agents` the skill is gone.
fn edits(home: &Home, name: &str, agents: Option<&[String]>) -> Result<Vec<AgentEdit>, String> {
    if !is_id(name) {
        return Err(format!("{:?} is not a skill's name", protocol::text::head(name, 80)));
    }
    let (current, older) = (stems(&home.agents()), stems(&home.vibers()));
    let known: BTreeSet<&String> = current.iter().chain(&older).collect();
    if let Some(unknown) = agents.into_iter().flatten().find(|id| !known.contains(id)) {
        return Err(format!("this viber has no agent {:?}", protocol::text::head(unknown, 64)));
    }
    let mut edits = Vec::new();
    for id in known {
        let is_older = !current.contains(id);
        let (folder, folder_name) = if is_older { (home.vibers(), "vibers") } else { (home.agents(), "agents") };
        let (path, file) = (folder.join(format!("{id}.yaml")), format!("{folder_name}/{id}.yaml"));
        let wanted = match agents {
            Some(agents) if agents.contains(id) => WantedListing::Listed,
            Some(_) => WantedListing::NotListed,
            None => WantedListing::Gone,
        };
        let edit = edit(path, file, name, wanted)?;
        if let Some(edit) = edit {
            if is_older {
                return Err(format!("{} is a file of the older form: set `skills` there", edit.file));
            }
            edits.push(edit);
        }
    }
    Ok(edits)
}

/// What has to change in one file.
fn edit(path: PathBuf, file: String, name: &str, wanted: WantedListing) -> Result<Option<AgentEdit>, String> {
    let is_wanted = wanted == WantedListing::Listed;
    let wrong = |error: ConfigError| {
        let (line, why) = (error.line, error.message.lines().next().unwrap_or_default());
        format!("{file}:{line} is wrong ({why}), so it is not changed: mend it first")
    };
    let source = match YamlFile::read(&path, &file) {
        Ok(Some(source)) => source,
        // An agent whose file cannot be read is offered nothing.
        Ok(None) | Err(_) if !is_wanted => return Ok(None),
        Ok(None) => return Err(format!("{file} was removed")),
        Err(error) => return Err(wrong(error)),
    };
    let before = source.text();
    let listed = match source.parse::<SkillsKey>() {
        Ok(key) => key.skills.unwrap_or_default(),
        Err(_) if !is_wanted && !before.contains(name) => return Ok(None),
        Err(error) => return Err(wrong(error)),
    };
    let (has_all, has_it) = (listed.iter().any(|word| word == "*"), listed.iter().any(|word| word == name));
    match wanted {
        WantedListing::Listed if has_all || has_it => return Ok(None),
        WantedListing::NotListed if has_all => {
            return Err(format!("{file} lists all skills (`*`): list there those that the agent is to have"));
        }
        WantedListing::NotListed | WantedListing::Gone if !has_it => return Ok(None),
        _ => {}
    }
    if fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_symlink()) {
        return Err(format!("{file} is a link: set `skills` there"));
    }
    let after = text::with_skill(before, &listed, name, is_wanted);
    let after = after.ok_or_else(|| format!("{file} is written so that it cannot be changed: set `skills` there"))?;
    let before = before.to_owned();
    Ok(Some(AgentEdit { path, file, before, after }))
}

#[cfg(test)]
mod tests;
