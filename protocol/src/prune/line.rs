//! A result in one line: `[tool: read_file("src/app.ts") → 247 lines, TypeScript]`.

use serde_json::Value;

use super::PastCall;
use crate::text::head;

/// Longest line, bytes.
const MAX_LINE_BYTES: usize = 400;
/// Longest argument and longest words of a result in it, bytes.
const MAX_ARGUMENT_BYTES: usize = 120;
const MAX_WORDS_BYTES: usize = 160;
const BEGIN: &str = "[tool: ";
/// Arguments that say best what a call is about, the most telling first.
const TELLING_ARGUMENTS: &[&str] =
    &["path", "command", "pattern", "query", "url", "question", "note", "id", "step", "name"];
/// What the first lines of a result's remark begin with, as tools write it.
const REMARK_STARTS: &[&str] = &["[more ", "[exit code ", "[ended by "];
/// What the line of a result begins with that says how much of it is missing.
const CUT_STARTS: &[&str] = &["[truncated, ", "[… "];

const LANGUAGES: &[(&str, &str)] = &[
    ("c", "C"),
    ("cc", "C++"),
    ("cpp", "C++"),
    ("cs", "C#"),
    ("css", "CSS"),
    ("csv", "CSV"),
    ("go", "Go"),
    ("h", "C"),
    ("html", "HTML"),
    ("java", "Java"),
    ("js", "JavaScript"),
    ("json", "JSON"),
    ("jsx", "JavaScript"),
    ("kt", "Kotlin"),
    ("lua", "Lua"),
    ("md", "Markdown"),
    ("php", "PHP"),
    ("py", "Python"),
    ("rb", "Ruby"),
    ("rs", "Rust"),
    ("scss", "SCSS"),
    ("sh", "Shell"),
    ("sql", "SQL"),
    ("svelte", "Svelte"),
    ("swift", "Swift"),
    ("toml", "TOML"),
    ("ts", "TypeScript"),
    ("tsx", "TypeScript"),
    ("vue", "Vue"),
    ("xml", "XML"),
    ("yaml", "YAML"),
    ("yml", "YAML"),
    ("zig", "Zig"),
];

/// What a call was about and what came of it. A result that is such a line already stays.
pub fn line(call: &PastCall<'_>) -> String {
    if is_line(call.result) {
        return call.result.to_owned();
    }
    let subject = match argument(call.args) {
        Some(argument) => {
            format!("{}(\"{}\")", plain(call.tool, MAX_ARGUMENT_BYTES), plain(argument, MAX_ARGUMENT_BYTES))
        }
        None => format!("{}()", plain(call.tool, MAX_ARGUMENT_BYTES)),
    };
    format!("{BEGIN}{subject} → {}]", outcome(call))
}

/// The line with the id by which its call is known; anything else, and a line that would be too long, as it is.
pub fn with_call_id(line: String, id: &str) -> String {
    let end = format!("; callId {id}]");
    let fits = line.len() + end.len() <= MAX_LINE_BYTES && !id.contains(char::is_control);
    match line.strip_suffix(']') {
        Some(start) if fits && is_line(&line) && !line.ends_with(&end) => format!("{start}{end}"),
        _ => line,
    }
}

fn is_line(text: &str) -> bool {
    text.len() <= MAX_LINE_BYTES && text.starts_with(BEGIN) && text.ends_with(']') && !text.contains('\n')
}

fn argument(args: &Value) -> Option<&str> {
    let of = |name: &&str| args.get(*name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    let any = || args.as_object().and_then(|fields| fields.values().find_map(Value::as_str));
    TELLING_ARGUMENTS.iter().find_map(of).or_else(any)
}

fn outcome(call: &PastCall<'_>) -> String {
    if !call.ok && call.tool != "shell" {
        return format!("failed: {}", first_words(call.result));
    }
    let count = |one: &str, many: &str| {
        let lines = content_lines(call.result).count();
        let over = if call.result.lines().any(is_cut) { "over " } else { "" };
        format!("{over}{lines} {}", if lines == 1 { one } else { many })
    };
    match call.tool {
        "read_output" => count("line", "lines"),
        "read_file" => {
            let lines = count("line", "lines");
            let ending = argument(call.args).and_then(|path| path.rsplit_once('.')).map(|(_, ending)| ending);
            let language = LANGUAGES.iter().find(|(known, _)| ending.is_some_and(|e| e.eq_ignore_ascii_case(known)));
            language.map_or(lines.clone(), |(_, language)| format!("{lines}, {language}"))
        }
        "list_files" => count("entry", "entries"),
        "glob" => count("file", "files"),
        "grep" => count("match", "matches"),
        "shell" => {
            let end = call.result.trim_end().rsplit('\n').next().and_then(|last| last.strip_prefix('['));
            let end = end.and_then(|end| end.split([';', ']']).next()).filter(|end| end.len() < MAX_ARGUMENT_BYTES);
            let last = content_lines(call.result).filter(|line| !line.trim().is_empty()).last();
            let said = last.filter(|_| !call.ok).map(|last| format!(": {}", plain(last, MAX_WORDS_BYTES)));
            let (end, lines) = (end.unwrap_or(if call.ok { "done" } else { "failed" }), count("line", "lines"));
            format!("{end}, {lines}{}", said.unwrap_or_default())
        }
        _ => {
            let more = content_lines(call.result).count().saturating_sub(1);
            let more = if more == 0 { String::new() } else { format!(" (and {more} more lines)") };
            format!("{}{more}", first_words(call.result))
        }
    }
}

/// The lines without the remark at their end, and without the one that says what is missing.
fn content_lines(result: &str) -> impl Iterator<Item = &str> {
    let is_remark = |line: &str| REMARK_STARTS.iter().any(|start| line.starts_with(start)) || is_cut(line);
    result.lines().filter(move |line| !is_remark(line))
}

fn is_cut(line: &str) -> bool {
    CUT_STARTS.iter().any(|start| line.starts_with(start)) && (line.ends_with(" omitted]") || line.ends_with(" …]"))
}

fn first_words(result: &str) -> String {
    let first = result.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing");
    plain(first, MAX_WORDS_BYTES)
}

/// Words in one line and without quotes that could end it.
fn plain(text: &str, max: usize) -> String {
    let kept = head(text, max);
    let mut plain: String = kept.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    plain = plain.replace('"', "'");
    if kept.len() < text.len() {
        plain.push('…');
    }
    plain
}
