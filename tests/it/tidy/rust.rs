//! As much of Rust's grammar as tidy needs: which rooms a file names, and where its functions begin and end.

use std::collections::BTreeSet;

/// The top-level modules that some code names as `crate::room`, also inside `use crate::{a, b::c}`.
pub fn used_rooms(code: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    let mut rest = code;
    while let Some(at) = rest.find("crate::") {
        let before = rest[..at].chars().next_back();
        let after = &rest[at + "crate::".len()..];
        rest = after;
        // `mycrate::` is another word. `$crate::` in a macro is an arrow like any other.
        if before.is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            continue;
        }
        match after.strip_prefix('{') {
            Some(group) => rooms.extend(heads(group)),
            None => rooms.extend(word(after)),
        }
    }
    rooms
}

/// The modules that some code names as `crate::room::module`, also inside `use crate::{room::{a, b::c}}`.
pub fn used_below(code: &str, room: &str) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    let named = format!("{room}::");
    let mut rest = code;
    while let Some(at) = rest.find(&named) {
        let before = rest[..at].chars().next_back();
        let after = &rest[at + named.len()..];
        rest = after;
        if before.is_some_and(|c| c == '_' || c.is_alphanumeric()) {
            continue;
        }
        match after.strip_prefix('{') {
            Some(group) => modules.extend(heads(group)),
            None => modules.extend(word(after)),
        }
    }
    modules
}

/// The names of public structs, enums, traits and types at the outermost level.
pub fn public_types(code: &str) -> Vec<String> {
    named(code, &["struct ", "enum ", "trait ", "type "], true)
}

/// The names of constants and statics.
pub fn constants(code: &str) -> Vec<String> {
    named(code, &["const ", "static "], false)
}

/// What follows one of `heads`, behind the words of its visibility.
fn named(code: &str, heads: &[&str], public: bool) -> Vec<String> {
    let mut found = Vec::new();
    for line in code.lines() {
        if public && line.starts_with(' ') {
            continue;
        }
        let line = line.trim_start();
        let shown = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => rest.split_once(") ").map(|(_, rest)| rest),
            Some(rest) => rest.strip_prefix(' '),
            None if public => None,
            None => Some(line),
        };
        let name = shown.and_then(|shown| heads.iter().find_map(|head| shown.strip_prefix(head)));
        found.extend(name.and_then(word));
    }
    found
}

/// The first words of a `{…}` group, one level deep.
fn heads(group: &str) -> Vec<String> {
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                found.extend(word(group[start..at].trim_start()));
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                found.extend(word(group[start..at].trim_start()));
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

fn word(text: &str) -> Option<String> {
    let end = text.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// A function and all of its text.
pub struct Function {
    pub name: String,
    pub body: String,
}

/// The functions of formatted code: from `fn` to the brace that closes at the same indentation.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found: Vec<Function> = Vec::new();
    let mut open: Option<(usize, Function)> = None;
    for line in code.lines() {
        let indent = line.len() - line.trim_start().len();
        let heads = ["fn ", "pub fn ", "pub async fn ", "async fn ", "pub(super) fn ", "pub(super) async fn "];
        let head = heads.iter().find_map(|head| line.trim_start().strip_prefix(head));
        if let (None, Some(head)) = (&open, head) {
            let function = Function { name: word(head).unwrap_or_default(), body: String::new() };
            open = Some((indent, function));
        }
        if let Some((start, mut function)) = open.take() {
            function.body.push_str(line);
            function.body.push('\n');
            if indent == start && (line.trim() == "}" || line.trim_end().ends_with('}')) {
                found.push(function);
            } else {
                open = Some((start, function));
            }
        }
    }
    found
}

#[test]
fn tidy_reads_uses_and_functions() {
    let code = "use crate::{db::{self, x}, web};\nfn a() {\n    crate::live::b();\n}\nfn c() { $crate::hub::d() }\n";
    let rooms: Vec<String> = used_rooms(code).into_iter().collect();
    assert_eq!(rooms, ["db", "hub", "live", "web"]);
    let modules: Vec<String> = used_below(code, "db").into_iter().collect();
    assert_eq!(modules, ["self", "x"]);
    assert_eq!(public_types("pub struct A;\npub(crate) enum B {}\nstruct C;\n    pub type D = u8;\n"), ["A", "B"]);
    assert_eq!(constants("    pub const A: u8 = 1;\nconst B: u8 = 2;\nlet const_c = 3;\n"), ["A", "B"]);
    let names: Vec<String> = functions(code).into_iter().map(|function| function.name).collect();
    assert_eq!(names, ["a", "c"]);
}
