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
        // `$crate::` in a macro is the caller's business; `mycrate::` is another word.
        if before.is_some_and(|c| c == '$' || c == '_' || c.is_alphanumeric()) {
            continue;
        }
        match after.strip_prefix('{') {
            Some(group) => rooms.extend(heads(group)),
            None => rooms.extend(word(after)),
        }
    }
    rooms
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
    assert_eq!(rooms, ["db", "live", "web"]);
    let names: Vec<String> = functions(code).into_iter().map(|function| function.name).collect();
    assert_eq!(names, ["a", "c"]);
}
