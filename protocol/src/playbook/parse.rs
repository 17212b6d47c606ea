//! Reads the text of a playbook line by line: what belongs to which section, step and bullet.

mod steps;

use std::collections::BTreeSet;

use super::{
    MAX_PLAYBOOK_BYTES, MAX_PLAYBOOK_STEPS, Playbook, PlaybookError, PlaybookInput,
    fill::{is_input_name, placeholders},
};
use crate::{path, text::head};
use steps::StepDraft;

/// Most mistakes that are told of one text.
const MAX_ERRORS: usize = 100;
/// Longest name of a playbook, bytes.
const MAX_NAME_BYTES: usize = 200;
/// Most inputs of a playbook.
const MAX_INPUTS: usize = 100;
/// Columns of a tab.
const TAB_COLUMNS: usize = 4;
/// Columns of a bullet's dash and the space behind it.
const BULLET_COLUMNS: usize = 2;
/// Marks that begin a block of code are at least so long.
const MIN_FENCE_LENGTH: usize = 3;
/// What the text of an input says that has to be given.
const REQUIRED: &str = "(required)";
/// Elements of HTML that have no end tag.
const VOID_ELEMENTS: [&str; 4] = ["br", "hr", "img", "wbr"];

/// Lines that belong together, each with its number.
type Lines<'t> = Vec<(u32, &'t str)>;

/// See [`parse`](super::parse).
pub(super) fn read(text: &str) -> (Playbook, Vec<PlaybookError>) {
    let mut reader = Reader::default();
    if text.len() > MAX_PLAYBOOK_BYTES {
        reader.errors.add(1, format!("a playbook has at most {} KiB", MAX_PLAYBOOK_BYTES / 1024));
        return (Playbook::default(), reader.errors.in_order());
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (n, line) in (1..).zip(text.lines()) {
        reader.line(n, line.trim_end());
    }
    reader.finish(text)
}

/// The mistakes that were found.
#[derive(Default)]
struct ErrorList(Vec<PlaybookError>);

impl ErrorList {
    fn add(&mut self, line: u32, message: impl Into<String>) {
        if self.0.len() < MAX_ERRORS {
            self.0.push(PlaybookError { line, message: message.into() });
        }
    }

    fn in_order(mut self) -> Vec<PlaybookError> {
        self.0.sort_by_key(|error| error.line);
        self.0
    }
}

/// What the lines belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Section {
    /// Nothing that is read: it is for readers.
    #[default]
    Other,
    Goal,
    Inputs,
    Steps,
}

/// A block of code that has not ended. Nothing in it is a heading, a step or a bullet.
struct CodeFence {
    mark: char,
    length: usize,
    line: u32,
}

#[derive(Default)]
struct Reader<'t> {
    name: Option<&'t str>,
    /// The lines of the headings.
    goal_at: Option<u32>,
    inputs_at: Option<u32>,
    steps_at: Option<u32>,
    goal: Lines<'t>,
    inputs: Lines<'t>,
    steps: Vec<StepDraft<'t>>,
    section: Section,
    /// A heading stands between the last step and what follows.
    is_apart: bool,
    fence: Option<CodeFence>,
    /// Where a comment begins that has not ended.
    comment: Option<u32>,
    errors: ErrorList,
}

impl<'t> Reader<'t> {
    fn line(&mut self, n: u32, line: &'t str) {
        if line.chars().any(|c| c.is_control() && c != '\t') {
            self.errors.add(n, "the line holds a control character");
        }
        let is_code = self.fence.is_some();
        if !is_code && self.follow_comment(n, line.trim_start()) {
            return;
        }
        self.follow_code(n, line.trim_start());
        if !is_code && let Some((level, title)) = heading(line) {
            return self.heading(n, level, title, line);
        }
        match self.section {
            Section::Other => {}
            Section::Goal => self.goal.push((n, line)),
            Section::Inputs => self.inputs.push((n, line)),
            Section::Steps => self.line_of_steps(n, line, is_code),
        }
    }

    /// Whether the line belongs to a comment, which is for readers. As in Markdown whole lines do: from one that begins with
    /// `<!--` to the one that has `-->`.
    fn follow_comment(&mut self, n: u32, text: &str) -> bool {
        if text.starts_with("<!--") {
            self.comment.get_or_insert(n);
        }
        let is_comment = self.comment.is_some();
        self.comment.take_if(|_| text.contains("-->"));
        is_comment
    }

    fn follow_code(&mut self, n: u32, text: &str) {
        let Some(open) = &self.fence else {
            let begins = bullet(text).or_else(|| numbered(text).map(|step| step.text)).unwrap_or(text);
            self.fence = fence(begins, n);
            return;
        };
        let rest = text.trim_start_matches(open.mark);
        if text.len() - rest.len() >= open.length && rest.trim().is_empty() {
            self.fence = None;
        }
    }

    fn heading(&mut self, n: u32, level: usize, title: &'t str, line: &'t str) {
        let named = title.split_once(':').filter(|(word, _)| word.trim().eq_ignore_ascii_case("playbook"));
        if let (1, Some((_, name))) = (level, named) {
            self.section = Section::Other;
            if self.name.replace(name.trim()).is_some() {
                self.errors.add(n, "a text is one playbook: `# Playbook:` comes twice");
            }
            if name.trim().is_empty() || name.trim().len() > MAX_NAME_BYTES {
                self.errors.add(n, format!("expected `# Playbook: NAME`, a name of at most {MAX_NAME_BYTES} bytes"));
            }
            return;
        }
        if level > 2 {
            match self.section {
                Section::Goal => self.goal.push((n, line)),
                // It is for readers, and so is what follows until the next step.
                Section::Steps => self.is_apart = true,
                Section::Inputs | Section::Other => {}
            }
            return;
        }
        let word = title.strip_suffix(':').unwrap_or(title).trim_end();
        let known = [
            ("goal", Section::Goal, &mut self.goal_at),
            ("inputs", Section::Inputs, &mut self.inputs_at),
            ("steps", Section::Steps, &mut self.steps_at),
        ];
        let found = known.into_iter().find(|(name, ..)| level == 2 && name.eq_ignore_ascii_case(word));
        self.section = match found {
            None => Section::Other,
            Some((_, section, at)) if at.is_none() => {
                *at = Some(n);
                section
            }
            Some(_) => {
                self.errors.add(n, format!("the section `## {word}` comes twice"));
                Section::Other
            }
        };
    }

    fn line_of_steps(&mut self, n: u32, line: &'t str, is_code: bool) {
        let (indent, text) = indentation(line);
        let is_apart = self.is_apart;
        let step = self.steps.last_mut().filter(|_| !is_apart);
        if text.is_empty() {
            return step.into_iter().for_each(|step| step.take_blank(n));
        }
        let head = numbered(text).filter(|_| !is_code && step.as_ref().is_none_or(|step| indent < step.column));
        let Some(step) = step.filter(|_| head.is_none()) else {
            return match head {
                Some(head) => self.begin_step(n, indent, &head),
                None if !is_code && bullet(text).is_some() => {
                    self.errors.add(n, "expected a step such as `1. [AGENT] what to do` before its bullets");
                }
                // An introduction, for readers.
                None => {}
            };
        };
        match bullet(text).filter(|_| !is_code) {
            Some(item) => step.take_bullet(n, (indent, line), item),
            None => step.take_text(n, (indent, line), is_code),
        }
    }

    fn begin_step(&mut self, n: u32, indent: usize, head: &NumberedLine<'t>) {
        if self.steps.len() == MAX_PLAYBOOK_STEPS {
            self.errors.add(n, format!("a playbook has at most {MAX_PLAYBOOK_STEPS} steps"));
            self.section = Section::Other;
            return;
        }
        let expected = self.steps.last().map_or(1, |step| step.n.saturating_add(1));
        let number = head.number.parse::<u32>().ok().filter(|number| *number > 0);
        match number {
            Some(number) if self.steps.iter().any(|step| step.n == number) => {
                self.errors.add(n, format!("there are two steps {number}"));
            }
            Some(number) if number == expected => {}
            _ => self.errors.add(n, format!("expected the step {expected}: steps are numbered 1, 2, 3 and so on")),
        }
        let step = StepDraft::begin(number.unwrap_or(expected), n, indent + head.columns, head.text);
        if step.agent.is_empty() {
            self.errors.add(n, "the step names no agent: expected `[AGENT]` before what to do");
        } else if step.agent.len() > MAX_NAME_BYTES {
            self.errors.add(n, format!("the name of an agent has at most {MAX_NAME_BYTES} bytes"));
        }
        self.steps.push(step);
        self.is_apart = false;
    }

    fn finish(mut self, text: &str) -> (Playbook, Vec<PlaybookError>) {
        if let Some(open) = &self.fence {
            self.errors.add(open.line, "the block of code that begins here has no end");
        }
        if let Some(line) = self.comment {
            self.errors.add(line, "the comment that begins here has no end");
        }
        if self.name.is_none() {
            self.errors.add(1, "expected a heading `# Playbook: NAME`");
        }
        let goal = joined(&self.goal);
        if goal.is_empty() {
            self.errors.add(self.goal_at.unwrap_or(1), "expected a section `## Goal` that says what is to be achieved");
        }
        if self.steps.is_empty() {
            let message = "expected a section `## Steps` with steps such as `1. [AGENT] what to do`";
            self.errors.add(self.steps_at.unwrap_or(1), message);
        }
        let mut inputs = self.declared_inputs();
        let undeclared = self.undeclared_inputs(&inputs, text);
        inputs.extend(undeclared);
        if let Some(input) = inputs.get(MAX_INPUTS) {
            self.errors.add(input.line, format!("a playbook has at most {MAX_INPUTS} inputs"));
            inputs.truncate(MAX_INPUTS);
        }
        let steps = steps::finished(&self.steps, &mut self.errors);
        let name = self.name.unwrap_or_default().to_owned();
        (Playbook { name, goal, inputs, steps }, self.errors.in_order())
    }

    /// What `## Inputs` declares.
    fn declared_inputs(&mut self) -> Vec<PlaybookInput> {
        let mut items: Vec<(u32, usize, String)> = Vec::new();
        for (n, line) in &self.inputs {
            let (indent, text) = indentation(line);
            match (bullet(text), items.last_mut()) {
                (Some(item), Some((_, above, said))) if indent >= *above + BULLET_COLUMNS => {
                    said.push_str(&format!(" {item}"));
                }
                (Some(item), _) => items.push((*n, indent, item.to_owned())),
                (None, Some((_, _, said))) if !text.is_empty() => said.push_str(&format!(" {text}")),
                (None, _) => {}
            }
        }
        let mut inputs: Vec<PlaybookInput> = Vec::new();
        for (line, _, item) in items {
            // One more than there may be is a mistake; the others would be the same one.
            if inputs.len() > MAX_INPUTS {
                break;
            }
            let (name, said) = item.split_once(':').unwrap_or((item.as_str(), ""));
            let (name, said) = (name.trim(), said.trim());
            if !is_input_name(name) {
                let shown = head(name, 80);
                self.errors.add(line, format!("the name of an input is of the form [a-z][a-z0-9_-]*, not {shown:?}"));
                continue;
            }
            if inputs.iter().any(|known| known.name == name) {
                self.errors.add(line, format!("the input `{name}` is declared twice"));
                continue;
            }
            let (text, required) = without_mark(said);
            inputs.push(PlaybookInput { name: name.to_owned(), text, required, line });
        }
        inputs
    }

    /// What is used without being declared.
    fn undeclared_inputs(&self, declared: &[PlaybookInput], text: &str) -> Vec<PlaybookInput> {
        let ended: BTreeSet<&str> = text.split("</").skip(1).filter_map(|rest| Some(rest.split_once('>')?.0)).collect();
        let mut seen: BTreeSet<&str> = declared.iter().map(|input| input.name.as_str()).collect();
        let of_steps = self.steps.iter().flat_map(StepDraft::lines_for_agents);
        let mut found = Vec::new();
        for (line, said) in self.goal.iter().copied().chain(of_steps) {
            for (_, name) in placeholders(said) {
                if VOID_ELEMENTS.contains(&name) || ended.contains(name) || !seen.insert(name) {
                    continue;
                }
                if declared.len() + found.len() <= MAX_INPUTS {
                    found.push(PlaybookInput { name: name.to_owned(), text: String::new(), required: true, line });
                }
            }
        }
        found
    }
}

/// The level and the title of a heading.
fn heading(line: &str) -> Option<(usize, &str)> {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    if !(1..=6).contains(&level) || !(title.is_empty() || title.starts_with([' ', '\t'])) {
        return None;
    }
    let title = title.trim();
    // Marks at the end close it.
    let closed = title.trim_end_matches('#');
    let is_closed = closed.is_empty() || closed.ends_with([' ', '\t']);
    Some((level, if is_closed { closed.trim_end() } else { title }))
}

/// A line that begins with a number.
struct NumberedLine<'t> {
    number: &'t str,
    /// Of the number and what separates it from the text.
    columns: usize,
    text: &'t str,
}

/// A line such as `1. text` or `1) text`.
fn numbered(text: &str) -> Option<NumberedLine<'_>> {
    let behind = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - behind.len()];
    let rest = behind.strip_prefix(['.', ')'])?;
    let is_separate = rest.is_empty() || rest.starts_with(|c: char| is_space(c) || c == '[');
    (!number.is_empty() && is_separate).then(|| NumberedLine { number, columns: number.len() + 2, text: rest.trim() })
}

/// What stands behind a bullet's dash.
fn bullet(text: &str) -> Option<&str> {
    let rest = text.strip_prefix(['-', '*', '+'])?;
    (rest.is_empty() || rest.starts_with(is_space)).then(|| rest.trim())
}

/// The block of code that begins with a line.
fn fence(text: &str, line: u32) -> Option<CodeFence> {
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let behind = text.trim_start_matches(mark);
    let length = text.len() - behind.len();
    // What has backticks on both sides is code within a line.
    (length >= MIN_FENCE_LENGTH && !behind.contains('`')).then_some(CodeFence { mark, length, line })
}

/// Whether nobody sees more of it than a space: what looks like a bullet or a step is one.
fn is_space(c: char) -> bool {
    c.is_whitespace() || path::is_invisible(c)
}

/// How far a line is indented, in columns, and what follows.
fn indentation(line: &str) -> (usize, &str) {
    let mut columns = 0;
    for (at, c) in line.char_indices() {
        if !is_space(c) {
            return (columns, &line[at..]);
        }
        columns = behind(columns, c);
    }
    (columns, "")
}

/// The column behind a space in this one.
fn behind(column: usize, c: char) -> usize {
    match c {
        '\t' => (column / TAB_COLUMNS + 1) * TAB_COLUMNS,
        c if c.is_whitespace() => column + 1,
        _ => column,
    }
}

/// A line without up to so many columns of its indentation.
fn dedented(line: &str, most: usize) -> &str {
    let mut columns = 0;
    for (at, c) in line.char_indices() {
        if columns >= most || !is_space(c) {
            return &line[at..];
        }
        columns = behind(columns, c);
    }
    ""
}

/// Lines as one text, without blank ones around it.
fn joined(lines: &[(u32, &str)]) -> String {
    lines.iter().map(|(_, line)| *line).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// What an input's text says beside `(required)`, and whether it says that.
fn without_mark(text: &str) -> (String, bool) {
    let Some(at) = text.to_ascii_lowercase().find(REQUIRED) else { return (text.to_owned(), false) };
    let (before, behind) = (&text[..at], &text[at + REQUIRED.len()..]);
    (format!("{}{behind}", before.trim_end()).trim().to_owned(), true)
}
