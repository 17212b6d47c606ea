//! The tools as a model sees them: names, descriptions, JSON Schemas.
//!
//! The schemas use only what every provider accepts: objects of plain types, no unions, `additionalProperties: false`.

mod mesh;

use serde_json::{Value, json};

use crate::{
    config::toolset::{LOAD_SKILL, MESH_TOOLS},
    model::ToolSpec,
};

/// The specification of the tool `name`, if it exists.
pub fn of(name: &str) -> Option<ToolSpec> {
    let (name, description, properties, required): (_, _, Value, &[&str]) = match name {
        "read_file" => (
            "read_file",
            "Read a text file. Lines come numbered, as in `cat -n`; the number and the tab are not part of the file. \
             At most 2000 lines per call: continue with `offset`.",
            json!({
                "path": path("The file"),
                "offset": { "type": "integer", "minimum": 1, "description": "First line to read, counted from 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines to read." },
            }),
            &["path"],
        ),
        "write_file" => (
            "write_file",
            "Create a file or replace its whole content. Missing folders are created. To change a part of a file, use \
             edit_file.",
            json!({ "path": path("The file"), "content": text("The whole new content.") }),
            &["path", "content"],
        ),
        "edit_file" => (
            "edit_file",
            "Replace text in a file. `oldText` must occur in the file exactly as given, with its white space, and only \
             once, unless `all` is true. Read the file first.",
            json!({
                "path": path("The file"),
                "oldText": text("The text to replace, with enough lines around it to be unique."),
                "newText": text("The replacement; empty to remove the text."),
                "all": flag("Replace every occurrence."),
            }),
            &["path", "oldText", "newText"],
        ),
        "list_files" => (
            "list_files",
            "List a folder; folders end with a slash.",
            json!({
                "path": path("The folder; the working directory when absent"),
                "depth": {
                    "type": "integer", "minimum": 1, "maximum": 10,
                    "description": "How many levels to show; 1 when absent."
                },
            }),
            &[],
        ),
        "glob" => (
            "glob",
            "Find files by name, such as `**/*.rs` or `src/{a,b}/*.ts`. A pattern without a slash matches at any depth. \
             What .gitignore excludes is left out.",
            json!({ "pattern": text("The glob pattern."), "path": path("Where to look; the working directory when absent") }),
            &["pattern"],
        ),
        "grep" => (
            "grep",
            "Search the content of files with a regular expression (Rust syntax), line by line. Answers \
             `file:line:text`. What .gitignore excludes and binary files are left out.",
            json!({
                "pattern": text("The regular expression."),
                "path": path("A file or folder to search; the working directory when absent"),
                "glob": text("Only files whose name matches this glob, such as `*.rs`."),
                "ignoreCase": flag("Let upper and lower case match each other."),
            }),
            &["pattern"],
        ),
        "shell" => (
            "shell",
            "Run a command with `sh -c`. It has no input and no terminal. Standard output and error come back together \
             with the exit code; long output is cut in the middle and kept whole in a file. When the command ends, \
             everything it left running in the background is ended too: start a server and use it in the same command. \
             It may write to the working directories and $TMPDIR only, and cannot list the folders above the viber's home.",
            json!({
                "command": text("The command line."),
                "cwd": path("Where to run it; the working directory when absent"),
                "timeout": { "type": "integer", "minimum": 1, "description": "Timeout in seconds." },
            }),
            &["command"],
        ),
        "read_output" => (
            "read_output",
            "Read the whole result of an earlier call of this task that reached you cut (`[truncated, … tokens omitted]`) or \
             that has become a line since (`[tool: …; callId …]`), without making the call again. As many lines as fit: \
             continue with `offset`. A line longer than 2000 bytes counts as several.",
            json!({
                "callId": text("The call's id, as its result says it."),
                "offset": { "type": "integer", "minimum": 1, "description": "First line to read, counted from 1." },
                "limit": { "type": "integer", "minimum": 1, "description": "How many lines to read." },
            }),
            &["callId"],
        ),
        "update_plan" => (
            "update_plan",
            "Keep the session's plan current; operators see it live. For work of several steps write the plan first, all \
             of it in `steps`. Then tick as you go, by `step` and `status`: `working` when you begin a step, `done` when it \
             is finished. Send `steps` again when the plan itself changes. Its file is written by nothing else.",
            json!({
                "goal": text("What is to be achieved, in a sentence."),
                "steps": {
                    "type": "array",
                    "description": "The whole plan, in order. Keep the ids of steps that stay.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": text("The step's id, when it has one."),
                            "title": text("What is done in this step."),
                            "status": text("pending, working, done, skipped or failed."),
                        },
                        "required": ["title"],
                        "additionalProperties": false,
                    },
                },
                "step": text("To tick one step: its id."),
                "status": text("With `step`: pending, working, done, skipped or failed."),
                "note": text("Why the plan changes, in a sentence."),
            }),
            &[],
        ),
        "add_artifact" => (
            "add_artifact",
            "Hand something over to the people who gave the task: a report, a table, an image, a log. They see it beside the \
             conversation and can open it. The same id again is a new version of it. Files that a command \
             writes into $OPENVIBER_ARTIFACTS are handed over too.",
            json!({
                "id": text("Its name, unique in this task: letters, digits, `.`, `-` and `_`."),
                "title": text("What people read."),
                "type": text("Such as text/markdown, text/csv, application/json, text/html or image/png."),
                "content": text("The whole text, unless it is a file."),
                "path": path("The file to hand over, when it is one"),
                "ref": text("An address that is only shown, if there is neither content nor path."),
            }),
            &["id"],
        ),
        "remember" => (
            "remember",
            "Write down what should be known later: a decision and its reason, how something is done here, what a person \
             prefers. `daily` goes into the log of today; `memory` is for what stays true and goes into MEMORY.md, when the \
             operators want it. One thing a call, in a sentence or two; no secrets.",
            json!({
                "note": text("What is to be remembered."),
                "kind": text("daily (when absent) or memory."),
            }),
            &["note"],
        ),
        "search_memory" => (
            "search_memory",
            "Search MEMORY.md, the daily logs and your earlier conversations on this machine.",
            json!({
                "query": text("A few words that occur in what you are looking for."),
                "limit": { "type": "integer", "minimum": 1, "maximum": 20, "description": "How many passages; 8 when absent." },
            }),
            &["query"],
        ),
        "ask_operator" => (
            "ask_operator",
            "Ask the operators a question and wait for their answer. Only for what you cannot find out and what you should not \
             decide: taste, cost, something that cannot be undone. Say everything that is needed to answer it. They choose one \
             of the options, or answer in their own words; when nobody answers in time, you are told so.",
            json!({
                "question": text("The question, with what is needed to answer it."),
                "options": {
                    "type": "array",
                    "minItems": 2,
                    "maxItems": 4,
                    "description": "Two to four answers to choose from, unless only words are asked for.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "label": text("The answer, in a few words."),
                            "tradeOff": text("What speaks for and against it, in a sentence."),
                        },
                        "required": ["label", "tradeOff"],
                        "additionalProperties": false,
                    },
                },
                "recommended": text("The label of the option that you would take."),
                "timeoutMinutes": {
                    "type": "integer", "minimum": 1,
                    "description": "How long to wait for an answer; as long as the team allows when absent."
                },
                "onTimeout": text("What you do when nobody answers, in a sentence; you take the recommended option when absent."),
            }),
            &["question"],
        ),
        name if MESH_TOOLS.contains(&name) => return mesh::of(name),
        LOAD_SKILL => (
            LOAD_SKILL,
            "Load one of the skills that the system prompt lists: its instructions, and the names of the files beside them. With \
             `path`, read one of these files.",
            json!({ "name": text("The skill's name."), "path": text("A file of the skill, relative to its folder.") }),
            &["name"],
        ),
        "run_step" => (
            "run_step",
            "Have a step of the playbook done by its agent, and wait until that has ended: you are told how, with what it says and \
             which files it handed over. Steps that do not wait for each other are run side by side: ask for all of them in one \
             answer. A step that runs already is waited for, one that is done answers at once; nothing is done twice.",
            json!({
                "step": text("The step's number, such as 3, or 3a for one that was added."),
                "instruction": text("What the agent is to do instead of what the playbook says, if that has to be said otherwise."),
            }),
            &["step"],
        ),
        "add_step" => (
            "add_step",
            "Add a step that the playbook does not have and its goal needs. It is marked as yours, and begins when you run it by \
             the number that you are told.",
            json!({
                "agent": text("The id of the agent that does it."),
                "instruction": text("What it is to do, complete: the agent knows the playbook's goal and no conversation."),
                "after": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Numbers of the steps that come before it; none when absent."
                },
                "viber": text("A viber that the playbook names, by its name, if it is to run there and not on the run's own."),
            }),
            &["agent", "instruction"],
        ),
        "skip_step" => (
            "skip_step",
            "Leave out a step that is not needed any more. People see it, with your reason.",
            json!({ "step": text("The step's number."), "reason": text("Why it is not needed, in a sentence.") }),
            &["step", "reason"],
        ),
        "finish" => (
            "finish",
            "End the run, when every step is done or left out, or when its goal cannot be reached. Your work ends with it.",
            json!({ "summary": text("What was achieved, what was not and why, for the people who started the run.") }),
            &["summary"],
        ),
        _ => return None,
    };
    Some(spec((name, description), properties, required))
}

/// A tool with these arguments and no others.
fn spec((name, description): (&'static str, &'static str), properties: Value, required: &[&str]) -> ToolSpec {
    let parameters = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false,
    });
    ToolSpec { name: name.into(), description: description.into(), parameters }
}

fn text(description: &str) -> Value {
    json!({ "type": "string", "description": description })
}

fn flag(description: &str) -> Value {
    json!({ "type": "boolean", "description": description })
}

fn path(what: &str) -> Value {
    text(&format!(
        "{what}: relative to the working directory, or absolute inside a working directory or the workspace."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::toolset::{ALL_TOOLS, SUPERVISOR_TOOLS};

    #[test]
    fn every_tool_has_a_closed_schema_whose_required_arguments_exist() {
        for name in ALL_TOOLS.iter().chain(SUPERVISOR_TOOLS) {
            let spec = of(name).expect("a spec for every built tool");
            assert_eq!(spec.name, *name);
            assert_eq!(spec.parameters["additionalProperties"], false);
            let properties = spec.parameters["properties"].as_object().expect("properties");
            assert!(
                properties.values().all(|property| property["type"].is_string() && property["description"].is_string())
            );
            for required in spec.parameters["required"].as_array().expect("required") {
                assert!(properties.contains_key(required.as_str().expect("a name")), "{name} {required}");
            }
        }
    }
}
