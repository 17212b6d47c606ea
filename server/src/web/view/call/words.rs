//! What a call is about in words, and why one failed in a line.

use protocol::{mcp::MCP_PREFIX, plan, text};
use serde_json::Value;

use super::super::ansi;

/// Longest words of a row, characters.
const MAX_WORDS_CHARS: usize = 160;
/// Bytes of an output that are searched for what went wrong.
const MAX_SEARCHED_BYTES: usize = 64 * 1024;
/// Words that tell what went wrong, alone or at the end of a name such as `TypeError:`.
const TELLING_WORDS: &[&str] = &[
    "error",
    "fatal",
    "panicked",
    "failed",
    "failure",
    "exception",
    "cannot",
    "denied",
    "refused",
    "undefined",
    "not found",
    "no such file",
];
const TELLING_ENDS: &[&str] = &["error:", "exception:"];

/// What a call does, in words; `None` when the tool's name and an argument say it best. `done`: the text of its result,
/// once that is there and good.
pub fn says(tool: &str, args: &Value, done: Option<&str>) -> Option<String> {
    let text = |name: &str| args.get(name).and_then(Value::as_str).and_then(first_line).map(short);
    match tool {
        "update_plan" => Some(match done.and_then(steps_of_result).or_else(|| steps_of_args(args)) {
            _ if done.is_some_and(|done| done.starts_with("Your change is proposed")) => {
                "Plan: a change was proposed".to_owned()
            }
            Some((steps, done)) => {
                format!("Plan: {steps} {}, {done} done", if steps == 1 { "step" } else { "steps" })
            }
            None => match (text("step").or_else(|| text("id")), text("status")) {
                (Some(step), Some(status)) => short(&format!("Plan: {step} is {status}")),
                _ => "Plan".to_owned(),
            },
        }),
        "remember" => text("note").map(|note| {
            let word = match done {
                None => "Remember",
                Some(done) if done.contains("proposed") => "Suggested for memory",
                Some(done) if done.contains("already") => "Known already",
                Some(_) => "Remembered",
            };
            short(&format!("{word}: {note}"))
        }),
        "run_step" => label(args).map(|label| {
            let rest = done.and_then(first_line).map(str::to_owned).or_else(|| text("instruction"));
            let is_told = rest.as_ref().is_some_and(|rest| rest.starts_with("Step "));
            match rest {
                Some(rest) if is_told => short(&rest),
                Some(rest) => short(&format!("Step {label}: {rest}")),
                None => format!("Step {label}"),
            }
        }),
        "skip_step" => label(args).map(|label| match text("reason") {
            Some(reason) => short(&format!("Step {label} left out: {reason}")),
            None => format!("Step {label} left out"),
        }),
        "add_step" => text("instruction").map(|what| short(&format!("Step added: {what}"))),
        "finish" => Some(text("summary").map_or_else(|| "Finish".to_owned(), |all| short(&format!("Finish: {all}")))),
        "read_output" => Some("An earlier result, read again".to_owned()),
        "search_memory" => text("query").map(|query| short(&format!("Memory searched for {query}"))),
        "delegate" => text("goal").map(|goal| match text("agent") {
            Some(agent) => short(&format!("Asked {agent}: {goal}")),
            None => short(&format!("Asked another agent: {goal}")),
        }),
        "message_agent" => text("content").map(|said| short(&format!("Message to an agent: {said}"))),
        "check_task" => Some("Looked how far a task is".to_owned()),
        "stop_task" => Some("Stopped a task that it had asked for".to_owned()),
        "list_agents" => Some("Looked which agents there are".to_owned()),
        "add_artifact" => text("title").or_else(|| text("id")).map(|name| short(&format!("Artifact {name}"))),
        _ => of_server(tool).map(|(server, name)| short(&format!("{server}: {name}{}", arguments(args)))),
    }
}

/// The MCP server and its tool that a name stands for: `mcp__wiki__search`.
pub fn of_server(tool: &str) -> Option<(&str, &str)> {
    let (server, name) = tool.strip_prefix(MCP_PREFIX)?.split_once("__")?;
    (!server.is_empty() && !name.is_empty()).then_some((server, name))
}

/// A tool as people call it: `search of wiki`.
pub fn tool_words(tool: &str) -> String {
    of_server(tool).map_or_else(|| tool.to_owned(), |(server, name)| format!("{name} of {server}"))
}

/// Arguments that a line has room for, behind what they are for: ` (day: Friday, stops: 3)`.
fn arguments(args: &Value) -> String {
    let said = args.as_object().into_iter().flatten().filter_map(|(name, value)| match value {
        Value::String(text) => first_line(text).map(|line| format!("{name}: {line}")),
        Value::Number(_) | Value::Bool(_) => Some(format!("{name}: {value}")),
        _ => None,
    });
    let all = said.collect::<Vec<_>>().join(", ");
    if all.is_empty() { all } else { format!(" ({all})") }
}

/// Whether a line has room for all of these arguments.
pub fn fits_a_line(args: &Value) -> bool {
    let is_plain = |value: &Value| match value {
        Value::String(text) => text.trim().lines().count() <= 1,
        Value::Number(_) | Value::Bool(_) => true,
        _ => false,
    };
    match args {
        Value::Null => true,
        Value::Object(fields) => fields.values().all(is_plain) && arguments(args).chars().count() < MAX_WORDS_CHARS / 2,
        _ => false,
    }
}

/// The label of the step that a supervisor's call names, which may be a number.
fn label(args: &Value) -> Option<String> {
    match args.get("step")? {
        Value::String(label) => first_line(label).map(short),
        Value::Number(label) => Some(label.to_string()),
        _ => None,
    }
}

/// Steps and how many are done, from the answer of the tool: `s1 [done] Title`, a line for each.
fn steps_of_result(result: &str) -> Option<(usize, usize)> {
    let status =
        |line: &str| line.split_once(" [").and_then(|(_, rest)| rest.split_once("] ")).map(|(word, _)| word == "done");
    let steps: Vec<bool> = result.lines().skip(1).filter_map(status).collect();
    (!steps.is_empty()).then(|| (steps.len(), steps.iter().filter(|done| **done).count()))
}

fn steps_of_args(args: &Value) -> Option<(usize, usize)> {
    if let Some(markdown) = args.get("markdown").and_then(Value::as_str) {
        let steps = plan::Steps::of(text::head(markdown, MAX_SEARCHED_BYTES)).steps;
        return Some((steps.len(), steps.iter().filter(|step| step.status == plan::Status::Done).count()));
    }
    let steps = args.get("steps")?.as_array()?;
    let is_done = |step: &&Value| matches!(step["status"].as_str(), Some("done" | "completed" | "complete"));
    Some((steps.len(), steps.iter().filter(is_done).count()))
}

/// The first line of an output that tells what went wrong, else its last one.
pub fn telling_line(output: &str) -> Option<String> {
    let searched = text::tail(output, MAX_SEARCHED_BYTES);
    let plain = ansi::plain(searched);
    let lines = || plain.lines().map(str::trim).filter(|line| line.chars().any(char::is_alphanumeric));
    lines().find(|line| is_telling(line)).or_else(|| lines().next_back()).map(short)
}

/// The first line of a text.
pub fn first_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).find(|line| !line.is_empty())
}

fn is_telling(line: &str) -> bool {
    let line = text::head(line, 2_000).to_lowercase();
    if TELLING_ENDS.iter().any(|end| line.contains(end)) {
        return true;
    }
    let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | '-' | '/' | '.'));
    TELLING_WORDS.iter().any(|word| {
        line.match_indices(word).any(|(at, _)| {
            let before = line[..at].trim_end().ends_with(['0']) && line[..at].ends_with(' ');
            !before && is_apart(line[..at].chars().next_back()) && is_apart(line[at + word.len()..].chars().next())
        })
    })
}

/// A text of one line, cut to what a row has room for.
pub fn short(text: &str) -> String {
    let mut chars = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = chars.by_ref().take(MAX_WORDS_CHARS).collect();
    if chars.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_say_what_came_of_them() {
        let steps = json!({ "steps": [{ "title": "a", "status": "done" }, "b"] });
        assert_eq!(says("update_plan", &steps, None).as_deref(), Some("Plan: 2 steps, 1 done"));
        let answer = "The plan is updated.\ns1 [done] a\ns2 [pending] b [x] c\ns3 [done] d\ns4 [in-progress] e";
        let tick = json!({ "step": "s3", "status": "done" });
        assert_eq!(says("update_plan", &tick, None).as_deref(), Some("Plan: s3 is done"));
        assert_eq!(says("update_plan", &tick, Some(answer)).as_deref(), Some("Plan: 4 steps, 2 done"));
        let note = json!({ "note": "\nBuild with make.\nAlways." });
        assert_eq!(says("remember", &note, None).as_deref(), Some("Remember: Build with make."));
        assert_eq!(
            says("remember", &note, Some("It is in today's log.")).as_deref(),
            Some("Remembered: Build with make.")
        );
        let proposed = "It is proposed for MEMORY.md: an operator decides about it. Go on.";
        assert_eq!(says("remember", &note, Some(proposed)).as_deref(), Some("Suggested for memory: Build with make."));
        assert_eq!(says("add_artifact", &json!({ "id": "chart.png" }), None).as_deref(), Some("Artifact chart.png"));
        let step = json!({ "step": 2, "instruction": "Push the tag.\nOnly that." });
        assert_eq!(says("run_step", &step, None).as_deref(), Some("Step 2: Push the tag."));
        assert_eq!(says("run_step", &step, Some("Step 2 is done.\n\nAll of it")).as_deref(), Some("Step 2 is done."));
        assert_eq!(says("run_step", &json!({ "step": "3a" }), None).as_deref(), Some("Step 3a"));
        let skip = json!({ "step": "3", "reason": "A holiday" });
        assert_eq!(says("skip_step", &skip, None).as_deref(), Some("Step 3 left out: A holiday"));
        assert_eq!(says("run_step", &json!({}), None), None);
        assert_eq!(says("shell", &json!({ "command": "ls" }), None), None);
        let van = json!({ "day": "Friday\nor Monday", "stops": 3, "via": ["a"] });
        assert_eq!(
            says("mcp__logistics__book_van", &van, None).as_deref(),
            Some("logistics: book_van (day: Friday, stops: 3)")
        );
        assert_eq!(says("mcp__logistics__list", &json!({}), None).as_deref(), Some("logistics: list"));
        assert_eq!((tool_words("mcp__a__b_c"), tool_words("mcp__a")), ("b_c of a".to_owned(), "mcp__a".to_owned()));
        assert!(!fits_a_line(&van) && fits_a_line(&json!({ "day": "Friday" })) && fits_a_line(&json!({})));
        for odd in [json!(null), json!([1]), json!({ "note": 7, "steps": 7, "id": [] })] {
            assert_eq!(says("update_plan", &odd, None).as_deref(), Some("Plan"));
            assert_eq!((says("remember", &odd, None), says("add_artifact", &odd, None)), (None, None));
        }
        let long = says("add_artifact", &json!({ "id": "x".repeat(9_000) }), None).expect("words");
        assert_eq!(long.chars().count(), MAX_WORDS_CHARS + 1);
    }

    #[test]
    fn the_line_that_tells_why_is_found() {
        for (output, line) in [
            (
                "   Compiling thiserror v1.0\n\u{1b}[31merror[E0308]\u{1b}[0m: mismatched types\n  --> a.rs\n",
                "error[E0308]: mismatched types",
            ),
            ("Traceback (most recent call last):\n  File \"a.py\"\nValueError: bad\n", "ValueError: bad"),
            ("0 errors, 0 failed\nsh: 1: foo: not found\n", "sh: 1: foo: not found"),
            ("one\ntwo\n---\n\n", "two"),
        ] {
            assert_eq!(telling_line(output).as_deref(), Some(line));
        }
        assert_eq!(telling_line("\n--\n"), None);
    }
}
