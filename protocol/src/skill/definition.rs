//! What a skill's file says: its name, what it is for, and whether it is a script or instructions.
//!
//! The text is somebody else's: nothing of it is run here, and nothing of it widens what an agent may do.

use serde_json::Value;

use super::{
    front_matter::{FrontMatter, FrontValue, plain_name},
    parameters::{self, SkillParameter},
    requirements::Requirements,
};
use crate::{
    ConfigError, SkillKind,
    agent::{is_id, is_variable_name},
    toolset::tools_of,
};

/// Longest description that is kept, bytes.
const MAX_DESCRIPTION_BYTES: usize = 2_000;
/// Longest script, bytes: Linux limits a single argument of a program (MAX_ARG_STRLEN), less some room.
const MAX_SCRIPT_BYTES: usize = 120 * 1024;
/// Most warnings about one skill.
const MAX_WARNINGS: usize = 16;

/// Keys that mean something here, or to the formats that are read.
const KNOWN_KEYS: &[&str] = &[
    "allowed-tools",
    "author",
    "compatibility",
    "description",
    "disable-model-invocation",
    "emoji",
    "homepage",
    "license",
    "metadata",
    "name",
    "parameters",
    "requires",
    "run",
    "tags",
    "title",
    "user-invocable",
    "version",
];

/// Words of a shell with which a script begins, beside commands and settings of variables.
const SHELL_WORDS: &[&str] = &["if", "for", "while", "until", "case", "set", "cd", "export", "exec", "trap", "umask"];

/// A checked skill.
#[derive(Clone, Debug, PartialEq)]
pub struct SkillDefinition {
    pub name: String,
    pub description: String,
    /// What follows the front matter.
    pub body: String,
    /// `None` without `parameters`.
    pub parameters: Option<Vec<SkillParameter>>,
    /// What a call runs; `None` of instructions.
    pub script: Option<SkillScript>,
    /// Why it is a script or instructions, in words.
    pub runs: String,
    pub requirements: Requirements,
    /// Whether agents are told of it.
    pub is_for_models: bool,
    /// Whether `/name` in a goal loads it.
    pub is_for_people: bool,
    pub warnings: Vec<String>,
}

/// A script, and what it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillScript {
    /// `sh` or `bash`.
    pub shell: &'static str,
    pub text: String,
}

impl SkillDefinition {
    /// How an agent uses it.
    pub fn kind(&self) -> SkillKind {
        if self.script.is_some() { SkillKind::Tool } else { SkillKind::Instructions }
    }

    /// Reads the text of `file`, which errors name; `is_program` says which commands the machine has.
    pub fn read(text: &str, file: &str, is_program: &dyn Fn(&str) -> bool) -> Result<Self, ConfigError> {
        let front = FrontMatter::read(text, file)?;
        let mut keys = Keys { front: &front, file, warnings: front.warnings.clone() };
        let name = keys.name()?;
        let description = keys.description()?;
        let parameters = match front.entries.get("parameters") {
            Some(_) => Some(parameters::read(front.text, file)?),
            None => None,
        };
        let requirements = Requirements::read(&front.entries, file, &mut keys.warnings)?;
        let asked = keys.run()?;
        let body = front.body.trim_matches(['\r', '\n']).to_owned();
        let (script, runs) = match &parameters {
            None => (None, "instructions: it has no `parameters`".to_owned()),
            Some(_) => script_of(&body, asked, is_program),
        };
        if let Some(script) = &script {
            check_script(script).map_err(|why| keys.wrong(1, why))?;
        }
        keys.check_names(&requirements, parameters.as_deref().unwrap_or_default())?;
        let (is_for_models, is_for_people) =
            (!keys.flag("disable-model-invocation", false)?, keys.flag("user-invocable", true)?);
        keys.name_unknown();
        let mut warnings = keys.warnings;
        warnings.truncate(MAX_WARNINGS);
        Ok(Self {
            name,
            description,
            body,
            parameters,
            script,
            runs,
            requirements,
            is_for_models,
            is_for_people,
            warnings,
        })
    }
}

/// The keys of one file, while they are checked.
struct Keys<'f> {
    front: &'f FrontMatter<'f>,
    file: &'f str,
    warnings: Vec<String>,
}

impl Keys<'_> {
    fn wrong(&self, line: u32, message: impl Into<String>) -> ConfigError {
        ConfigError { file: self.file.to_owned(), line, message: message.into() }
    }

    /// A key that has to be text.
    fn text(&self, key: &str) -> Result<Option<(&str, u32)>, ConfigError> {
        match self.front.entries.get(key) {
            None => Ok(None),
            Some(FrontValue { value: Value::String(text), line }) => Ok(Some((text, *line))),
            Some(FrontValue { value: Value::Null, .. }) => Ok(None),
            Some(found) => Err(self.wrong(found.line, format!("{key}: expected text; put it between quotes"))),
        }
    }

    fn name(&mut self) -> Result<String, ConfigError> {
        let Some((written, line)) = self.text("name")? else {
            return Err(self.wrong(1, "expected a `name`, such as git-commit"));
        };
        let name = plain_name(written);
        if !is_id(&name) {
            let shown = crate::text::head(written, 80);
            let why = format!("the name {shown:?}: expected 1 to 64 letters, digits, - and _");
            return Err(self.wrong(line, why));
        }
        if tools_of(&name).is_some() || name.starts_with("mcp__") {
            return Err(self.wrong(line, format!("the name {name:?} belongs to a built-in tool: expected another one")));
        }
        if name != written {
            let warning = format!("its name {written:?} is used as {name}");
            self.warnings.push(warning);
        }
        Ok(name)
    }

    fn description(&mut self) -> Result<String, ConfigError> {
        let found = self.text("description")?.filter(|(text, _)| text.chars().any(is_shown));
        let Some((written, _)) = found else {
            return Err(self.wrong(1, "expected a `description` that says what it does and when to use it"));
        };
        let words: Vec<&str> = written.split_whitespace().collect();
        let one_line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
        let kept = crate::text::head(&one_line, MAX_DESCRIPTION_BYTES).to_owned();
        if kept.len() < one_line.len() {
            self.warnings.push(format!("its description is cut at {MAX_DESCRIPTION_BYTES} bytes"));
        }
        Ok(kept)
    }

    /// `run: script | instructions`; `Some(true)` means a script.
    fn run(&self) -> Result<Option<bool>, ConfigError> {
        match self.text("run")? {
            None => Ok(None),
            Some(("script", _)) => Ok(Some(true)),
            Some(("instructions", _)) => Ok(Some(false)),
            Some((_, line)) => Err(self.wrong(line, "run: expected `script` or `instructions`")),
        }
    }

    fn flag(&self, key: &str, usual: bool) -> Result<bool, ConfigError> {
        match self.front.entries.get(key) {
            None => Ok(usual),
            Some(FrontValue { value: Value::Bool(flag), .. }) => Ok(*flag),
            Some(FrontValue { value: Value::String(text), .. }) if text == "true" => Ok(true),
            Some(FrontValue { value: Value::String(text), .. }) if text == "false" => Ok(false),
            Some(found) => Err(self.wrong(found.line, format!("{key}: expected true or false"))),
        }
    }

    /// A model chooses the values of parameters, its owner those of the skill's own variables.
    fn check_names(&self, requirements: &Requirements, parameters: &[SkillParameter]) -> Result<(), ConfigError> {
        let taken = parameters.iter().find(|parameter| requirements.env.contains(&parameter.name));
        let line = self.front.entries.get("parameters").map_or(1, |found| found.line);
        match taken {
            Some(parameter) => {
                let why = format!("{:?} is a parameter and a variable that the skill requires", parameter.name);
                Err(self.wrong(line, why))
            }
            None => Ok(()),
        }
    }

    fn name_unknown(&mut self) {
        let unknown = self.front.entries.keys().filter(|key| !KNOWN_KEYS.contains(&key.as_str()));
        let unknown: Vec<String> = unknown.map(|key| crate::text::head(key, 40).to_owned()).collect();
        if !unknown.is_empty() {
            self.warnings.push(format!("keys without a meaning here: {}", unknown.join(", ")));
        }
    }
}

fn is_shown(c: char) -> bool {
    !c.is_whitespace() && !c.is_control()
}

/// What a call runs, if it is a script, and why or why not.
fn script_of(body: &str, asked: Option<bool>, is_program: &dyn Fn(&str) -> bool) -> (Option<SkillScript>, String) {
    if asked == Some(false) {
        return (None, "instructions: it says `run: instructions`".to_owned());
    }
    let blocks = blocks(body);
    let shells: Vec<&CodeBlock> = blocks.iter().filter(|block| block.shell.is_some()).collect();
    if !shells.is_empty() {
        let shell = if shells.iter().any(|block| block.shell == Some("bash")) { "bash" } else { "sh" };
        let text = shells.iter().map(|block| block.text.as_str()).collect::<Vec<_>>().join("\n");
        let which = if shells.len() == 1 { "block" } else { "blocks" };
        return (Some(SkillScript { shell, text }), format!("a script: {} {shell} {which} in its text", shells.len()));
    }
    let whole = || Some(SkillScript { shell: "sh", text: format!("{}\n", body.replace("\r\n", "\n")) });
    if asked == Some(true) {
        return (whole(), "a script: it says `run: script`".to_owned());
    }
    if !blocks.is_empty() {
        return (None, "instructions: none of its blocks is sh or bash".to_owned());
    }
    match first_word(body) {
        None => (None, "instructions: its text is empty".to_owned()),
        Some(word) if begins_script(word, is_program) => {
            (whole(), format!("a script: its text begins with the command {}", crate::text::head(word, 40)))
        }
        Some(word) => {
            let word = crate::text::head(word, 40);
            (None, format!("instructions: its text begins with {word:?}, which is no command of this machine"))
        }
    }
}

fn check_script(script: &SkillScript) -> Result<(), String> {
    if script.text.trim().is_empty() {
        return Err("its script is empty".to_owned());
    }
    if script.text.len() > MAX_SCRIPT_BYTES {
        return Err("its script is longer than 120 KiB: put it into a file of the skill and run that".to_owned());
    }
    if script.text.contains('\0') {
        return Err("its script contains a NUL character".to_owned());
    }
    Ok(())
}

/// The first word that is not in a comment or a heading.
fn first_word(body: &str) -> Option<&str> {
    let line = body.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
    line.split(|c: char| c.is_whitespace() || c == ';').next().filter(|word| !word.is_empty())
}

fn begins_script(word: &str, is_program: &dyn Fn(&str) -> bool) -> bool {
    let is_setting = word.split_once('=').is_some_and(|(name, _)| is_variable_name(name));
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-[".contains(&byte));
    is_setting || SHELL_WORDS.contains(&word) || (is_plain && is_program(word))
}

/// A fenced block of Markdown.
struct CodeBlock {
    /// `sh` or `bash`.
    shell: Option<&'static str>,
    text: String,
}

fn blocks(body: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<(char, usize, CodeBlock)> = None;
    for line in body.lines() {
        let fence = line.trim_start();
        let is_indented = line.len() - fence.len() > 3;
        let mark = fence.chars().next().filter(|c| matches!(c, '`' | '~') && !is_indented);
        let length = mark.map_or(0, |mark| fence.chars().take_while(|c| *c == mark).count());
        open = match open.take() {
            Some((with, least, block))
                if mark == Some(with) && length >= least && fence[length..].trim().is_empty() =>
            {
                blocks.push(block);
                None
            }
            Some((with, least, mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                Some((with, least, block))
            }
            None if length >= 3 => {
                let word = fence[length..].split(|c: char| c.is_whitespace() || c == '{').find(|word| !word.is_empty());
                let shell = ["sh", "bash"].into_iter().find(|shell| word == Some(*shell));
                mark.map(|mark| (mark, length, CodeBlock { shell, text: String::new() }))
            }
            None => None,
        };
    }
    // Markdown ends an open block with the text.
    blocks.extend(open.map(|(_, _, block)| block));
    blocks
}

#[cfg(test)]
mod tests;
