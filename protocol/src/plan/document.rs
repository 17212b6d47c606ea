//! A parsed plan: its goal, its steps with what is written below them, and all other lines.

use std::ops::Range;

use super::{MAX_STEPS, MAX_TODOS, PlanTodo, Status, Step, Steps, is_step_id};

/// A plan as it is in its file.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The lines with their line ends.
    pub(super) lines: Vec<&'a str>,
    /// The lines of the goal, and its text.
    pub(super) goal: Option<(Range<usize>, String)>,
    pub(super) blocks: Vec<Block>,
    /// How many lines look like steps or to-dos but exceed the limits.
    beyond: usize,
}

/// A step and the lines below it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub lines: Range<usize>,
    pub item: Item,
    pub id: String,
    /// The to-dos, by line.
    pub todos: Vec<(usize, Item)>,
}

/// A parsed line of a task list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Columns before its bullet.
    pub indent: usize,
    /// Bytes up to the bracket.
    pub bracket: usize,
    pub status: Status,
    pub title: String,
    /// The id written in the line.
    pub id: Option<String>,
}

/// A part of a plan other than its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanPiece<'a> {
    /// Markdown that is no step.
    Text(&'a str),
    /// The step of this number, from 0, and what is written below it beside its to-dos.
    Step(usize),
}

impl<'a> Document<'a> {
    /// Parses `text`. Any text is a plan, possibly one without steps.
    pub fn parse(text: &'a str) -> Self {
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let goal = find_goal(&lines);
        let mut document = Self { lines, goal, blocks: Vec::new(), beyond: 0 };
        document.find_steps();
        document.name_steps();
        document
    }

    /// The goal and the steps.
    pub fn steps(&self) -> Steps {
        let goal = self.goal.as_ref().map(|(_, goal)| goal.clone()).unwrap_or_default();
        let steps = self.blocks.iter().map(|block| {
            let todos = block.todos.iter().map(|(_, item)| PlanTodo { title: item.title.clone(), status: item.status });
            let todos: Vec<PlanTodo> = todos.collect();
            Step {
                id: block.id.clone(),
                title: block.item.title.clone(),
                status: block.item.status,
                todos: (!todos.is_empty()).then_some(todos),
            }
        });
        Steps { goal, steps: steps.collect() }
    }

    /// Lines that look like steps and are not counted as such, because there are too many.
    pub fn beyond(&self) -> usize {
        self.beyond
    }

    /// Everything except the goal, in order. `text` is what was parsed.
    pub fn pieces(&self, text: &'a str) -> Vec<PlanPiece<'a>> {
        let mut starts: Vec<usize> = vec![0];
        starts.extend(self.lines.iter().scan(0, |at, line| {
            *at += line.len();
            Some(*at)
        }));
        let mut pieces = Vec::new();
        let mut line = 0;
        let goal = self.goal.iter().map(|(lines, _)| (lines.clone(), None));
        let blocks = self.blocks.iter().enumerate().map(|(n, block)| (block.lines.clone(), Some(n)));
        for (lines, step) in goal.chain(blocks) {
            let between = &text[starts[line]..starts[lines.start]];
            if !between.trim().is_empty() {
                pieces.push(PlanPiece::Text(between));
            }
            pieces.extend(step.map(PlanPiece::Step));
            line = lines.end;
        }
        let rest = &text[starts[line]..];
        if !rest.trim().is_empty() {
            pieces.push(PlanPiece::Text(rest));
        }
        pieces
    }

    /// What is written below the step `n` beside its to-dos, without the indentation.
    pub fn notes(&self, n: usize) -> String {
        let Some(block) = self.blocks.get(n) else { return String::new() };
        let is_todo = |line: usize| block.todos.iter().any(|(todo, _)| *todo == line);
        let lines = block.lines.clone().skip(1).filter(|line| !is_todo(*line)).map(|line| self.lines[line]);
        let lines: Vec<&str> = lines.collect();
        let least = lines.iter().filter(|line| !line.trim().is_empty()).map(|line| indent(line).1).min().unwrap_or(0);
        lines.iter().map(|line| line.get(least.min(indent(line).1)..).unwrap_or("")).collect()
    }

    fn find_steps(&mut self) {
        let fences = fences(&self.lines);
        let first = self.goal.as_ref().map_or(0, |(lines, _)| lines.end);
        let (mut line, mut todos) = (first, 0);
        while line < self.lines.len() {
            if let Some(fence) = fences.iter().find(|fence| fence.start == line) {
                line = fence.end;
                continue;
            }
            let Some(item) = Item::parse(self.lines[line]) else {
                line += 1;
                continue;
            };
            if self.blocks.len() == MAX_STEPS {
                self.beyond += 1;
                line += 1;
                continue;
            }
            let block = self.block(line, item, &fences, &mut todos);
            line = block.lines.end;
            self.blocks.push(block);
        }
    }

    /// The step that begins at `first`: up to the next step, or the next line that is not indented below it.
    fn block(&mut self, first: usize, item: Item, fences: &[Range<usize>], count: &mut usize) -> Block {
        let mut todos = Vec::new();
        let (mut line, mut end) = (first + 1, first + 1);
        while line < self.lines.len() {
            let text = self.lines[line];
            let below = indent(text).0 > item.indent;
            if text.trim().is_empty() {
                line += 1;
            } else if let Some(fence) = fences.iter().find(|fence| fence.start == line && below) {
                (line, end) = (fence.end, fence.end);
            } else if let Some(todo) = Item::parse(text) {
                if todo.indent < item.indent + 2 {
                    break;
                }
                if *count < MAX_TODOS {
                    todos.push((line, todo));
                    *count += 1;
                } else {
                    self.beyond += 1;
                }
                line += 1;
                end = line;
            } else if below {
                line += 1;
                end = line;
            } else {
                break;
            }
        }
        Block { lines: first..end, item, id: String::new(), todos }
    }

    /// Gives ids: written ones first, then that of each position, or the next unused one.
    fn name_steps(&mut self) {
        let mut taken = std::collections::HashSet::new();
        for block in &mut self.blocks {
            if let Some(id) = &block.item.id
                && taken.insert(id.clone())
            {
                block.id = id.clone();
            }
        }
        let mut next = self.blocks.len() + 1;
        for (n, block) in self.blocks.iter_mut().enumerate().filter(|(_, block)| block.id.is_empty()) {
            let mut id = format!("s{}", n + 1);
            while !taken.insert(id.clone()) {
                id = format!("s{next}");
                next += 1;
            }
            block.id = id;
        }
    }
}

impl Item {
    /// `- [ ] title <!-- id: x -->`, with any bullet.
    pub fn parse(line: &str) -> Option<Self> {
        let (columns, start) = indent(line);
        let bytes = line.as_bytes();
        let mut at = start;
        match bytes.get(at)? {
            b'-' | b'*' | b'+' => at += 1,
            b'0'..=b'9' => {
                let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                at += digits;
                if digits > 9 || !matches!(bytes.get(at)?, b'.' | b')') {
                    return None;
                }
                at += 1;
            }
            _ => return None,
        }
        let spaces = bytes[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let bracket = at + spaces;
        let &[b'[', mark, b']', ref rest @ ..] = bytes.get(bracket..)? else { return None };
        let status = Status::of_mark(mark)?;
        if spaces == 0 || rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        let (title, id) = split_id(line[bracket + 3..].trim());
        Some(Self { indent: columns, bracket, status, title: title.to_owned(), id: id.map(str::to_owned) })
    }
}

/// What a line says, without its bullet, status and id.
pub(super) fn words_of_line(line: &str) -> &str {
    Item::parse(line).map_or(line.trim(), |item| split_id(line[item.bracket + 3..].trim()).0)
}

/// A title and the id in the comment at its end.
pub(super) fn split_id(text: &str) -> (&str, Option<&str>) {
    let id = || {
        let open = text.strip_suffix("-->")?.rfind("<!--")?;
        let id = text[open + 4..text.len() - 3].trim().strip_prefix("id:")?.trim();
        is_step_id(id).then_some((text[..open].trim_end(), id))
    };
    id().map_or((text, None), |(title, id)| (title, Some(id)))
}

/// Columns and bytes of the white space a line begins with.
pub(super) fn indent(line: &str) -> (usize, usize) {
    let mut columns = 0;
    for (at, byte) in line.bytes().enumerate() {
        match byte {
            b' ' => columns += 1,
            b'\t' => columns += 4 - columns % 4,
            _ => return (columns, at),
        }
    }
    (columns, line.len())
}

/// The lines of fenced code, their fences included.
pub fn fences(lines: &[&str]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open: Option<(usize, char, usize)> = None;
    for (at, line) in lines.iter().enumerate() {
        let Some((mark, length, info)) = fence(line) else { continue };
        match open {
            None if mark == '~' || !info.contains('`') => open = Some((at, mark, length)),
            Some((from, kind, least)) if mark == kind && length >= least && info.is_empty() => {
                found.push(from..at + 1);
                open = None;
            }
            _ => {}
        }
    }
    found.extend(open.map(|(from, ..)| from..lines.len()));
    found
}

/// A fence: its character, how many of them, and what stands after it.
pub(crate) fn fence(line: &str) -> Option<(char, usize, &str)> {
    let line = line.trim();
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let rest = line.trim_start_matches(mark);
    let length = line.len() - rest.len();
    (length >= 3).then_some((mark, length, rest.trim()))
}

/// A heading of the first level, or quoted lines, when the text begins with it.
fn find_goal(lines: &[&str]) -> Option<(Range<usize>, String)> {
    let first = lines.iter().position(|line| !line.trim().is_empty())?;
    let heading = |line: &str| {
        let line = line.trim_end();
        (line == "#").then_some("").or_else(|| line.strip_prefix("# ")).map(|text| text.trim().to_owned())
    };
    if let Some(goal) = heading(lines[first]) {
        return Some((first..first + 1, goal));
    }
    let quoted = |line: &&&str| line.starts_with('>');
    let count = lines[first..].iter().take_while(quoted).count();
    let text = |line: &&str| {
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let rest = line.get(1..).unwrap_or("");
        rest.strip_prefix(' ').unwrap_or(rest).to_owned()
    };
    let goal = lines[first..first + count].iter().map(text).collect::<Vec<_>>().join("\n");
    (count > 0).then(|| (first..first + count, goal.trim().to_owned()))
}
