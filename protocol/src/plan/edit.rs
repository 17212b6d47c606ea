//! Writes a goal and steps into a plan's text: lines that do not change stay as they are, byte for byte.

use std::collections::HashMap;

use super::{
    PlanTodo, Status, Step, Steps,
    document::{Block, Document, Item, indent, split_id},
};

impl Document<'_> {
    /// The text with `wanted` in it (tidy: see [`Steps::onto`]); `None` when this text cannot be edited by steps.
    pub(super) fn with(&self, wanted: &Steps) -> Option<String> {
        let now = self.steps();
        if same(&now, wanted) {
            return Some(self.lines.concat());
        }
        if self.beyond() > 0 {
            return None;
        }
        let says = |text: &String| same(&Steps::of(text), wanted);
        Some(self.in_place(wanted)).filter(says).or_else(|| Some(self.anew(wanted)).filter(says))
    }

    /// Writes each step where it was, and new ones after the step that they follow.
    fn in_place(&self, wanted: &Steps) -> String {
        let old: HashMap<&str, usize> = self.blocks.iter().enumerate().map(|(n, b)| (b.id.as_str(), n)).collect();
        let from: Vec<Option<usize>> = wanted.steps.iter().map(|step| old.get(step.id.as_str()).copied()).collect();
        let stays = increasing(&from);
        let shape = self.blocks.first().map_or("- ", |block| &self.lines[block.lines.start][..block.item.bracket]);
        let write = |n: usize| {
            let (step, at) = (&wanted.steps[n], n + 1);
            match from[n] {
                Some(old) => self.rewritten(&self.blocks[old], step, at, (!stays[n]).then_some(shape)),
                None => fresh(step, at, shape),
            }
        };
        let mut out = Text::new(self.end());
        let mut line = self.write_goal(&wanted.goal, &mut out);
        // The first that stays, and with it those that come before it.
        let mut next = 0;
        let anchored = stays.iter().any(|stays| *stays);
        for (old, block) in self.blocks.iter().enumerate() {
            out.lines(&self.lines[line..block.lines.start]);
            line = block.lines.end;
            let here = (0..wanted.steps.len()).find(|n| stays[*n] && from[*n] == Some(old));
            let until = match here {
                Some(n) => (n + 1..wanted.steps.len()).find(|n| stays[*n]).unwrap_or(wanted.steps.len()),
                None if !anchored && old == 0 => wanted.steps.len(),
                None => continue,
            };
            (next..until).for_each(|n| out.push(&write(n)));
            next = until;
        }
        out.lines(&self.lines[line..]);
        if next < wanted.steps.len() {
            out.paragraph();
            (next..wanted.steps.len()).for_each(|n| out.push(&write(n)));
        }
        out.text
    }

    /// Writes goal and steps first, then all other text.
    fn anew(&self, wanted: &Steps) -> String {
        let mut out = Text::new(self.end());
        let mut line = self.write_goal(&wanted.goal, &mut out);
        for (n, step) in wanted.steps.iter().enumerate() {
            let known = self.blocks.iter().find(|block| block.id == step.id);
            let todos = || known.map(|block| block.todos.iter().map(|(_, item)| todo(item)).collect());
            let todos = step.todos.clone().or_else(todos);
            out.push(&fresh(&Step { todos, ..step.clone() }, n + 1, "- "));
        }
        let mut rest = Vec::new();
        for block in &self.blocks {
            rest.extend_from_slice(&self.lines[line..block.lines.start]);
            let below = block.lines.clone().skip(1).filter(|at| !block.todos.iter().any(|(todo, _)| todo == at));
            rest.extend(below.map(|at| self.lines[at]));
            line = block.lines.end;
        }
        rest.extend_from_slice(&self.lines[line..]);
        if rest.iter().any(|line| !line.trim().is_empty()) {
            out.paragraph();
            out.lines(&rest);
        }
        out.text
    }

    /// Writes what is before and in the goal; returns the first line after it.
    fn write_goal(&self, goal: &str, out: &mut Text) -> usize {
        match &self.goal {
            Some((lines, now)) if now == goal => {
                out.lines(&self.lines[..lines.end]);
                lines.end
            }
            Some((lines, _)) => {
                out.lines(&self.lines[..lines.start]);
                out.push(&shown_goal(goal));
                lines.end
            }
            None if goal.is_empty() => 0,
            None => {
                out.push(&shown_goal(goal));
                out.push("\n");
                0
            }
        }
    }

    /// A step's lines, with their changes; when the step moved, they take the shape of their new neighbours.
    fn rewritten(&self, block: &Block, step: &Step, place: usize, shape: Option<&str>) -> String {
        let first = self.lines[block.lines.start];
        let body = first.trim_end_matches(['\n', '\r']);
        let end = &first[body.len()..];
        let prefix = shape.unwrap_or(&first[..block.item.bracket]);
        let named = match &block.item.id {
            Some(id) => *id == step.id,
            None => step.id == format!("s{place}"),
        };
        let mut text = if block.item.title == step.title && named {
            let mark =
                if block.item.status == step.status { &body[block.item.bracket..block.item.bracket + 3] } else { "" };
            let mark = if mark.is_empty() { format!("[{}]", step.status.mark()) } else { mark.to_owned() };
            format!("{prefix}{mark}{}{end}", &body[block.item.bracket + 3..])
        } else {
            format!("{}{end}", head(prefix, step, place, block.item.id.is_some()))
        };
        let wanted = step.todos.as_deref();
        let kept = wanted.is_none_or(|wanted| {
            wanted.len() == block.todos.len() && wanted.iter().zip(&block.todos).all(|(a, (_, b))| a.title == b.title)
        });
        if !kept {
            if !text.ends_with('\n') {
                text.push_str(self.end());
            }
            wanted.into_iter().flatten().for_each(|todo| text.push_str(&todo_line(todo, prefix)));
        }
        let shift = |line: &str| match shape {
            Some(shape) => {
                let strip = indent(line).1.min(indent(first).1);
                format!("{}{}", &shape[..indent(shape).1], &line[strip..])
            }
            None => line.to_owned(),
        };
        for at in block.lines.clone().skip(1) {
            let line = self.lines[at];
            match block.todos.iter().position(|(todo, _)| *todo == at) {
                None => text.push_str(&shift(line)),
                Some(_) if !kept => {}
                Some(n) => {
                    let item = &block.todos[n].1;
                    let status = wanted.map_or(item.status, |wanted| wanted[n].status);
                    text.push_str(&shift(&marked(line, item, status)));
                }
            }
        }
        text
    }

    /// How its lines end.
    fn end(&self) -> &'static str {
        if self.lines.first().is_some_and(|line| line.ends_with("\r\n")) { "\r\n" } else { "\n" }
    }
}

/// A text that grows by lines.
struct Text {
    text: String,
    end: &'static str,
}

impl Text {
    fn new(end: &'static str) -> Self {
        Self { text: String::new(), end }
    }

    fn lines(&mut self, lines: &[&str]) {
        lines.iter().for_each(|line| self.add(line));
    }

    /// Adds lines of our own: they end as the others do.
    fn push(&mut self, text: &str) {
        for line in text.split_inclusive('\n') {
            let body = line.trim_end_matches(['\n', '\r']);
            self.add(body);
            self.text.push_str(self.end);
        }
    }

    fn add(&mut self, line: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push_str(self.end);
        }
        self.text.push_str(line);
    }

    /// Begins a paragraph: after an empty line, unless nothing stands before it, or a task list goes on.
    fn paragraph(&mut self) {
        let last = self.text.lines().last().unwrap_or("");
        if last.trim().is_empty() {
            return;
        }
        if !self.text.ends_with('\n') {
            self.text.push_str(self.end);
        }
        self.text.push_str(self.end);
    }
}

/// Whether a text says what is wanted; to-dos that are not named may be any.
fn same(now: &Steps, wanted: &Steps) -> bool {
    let todos = |now: &Step, wanted: &Step| match &wanted.todos {
        None => true,
        Some(wanted) => now.todos.as_deref().unwrap_or_default() == wanted.as_slice(),
    };
    now.goal == wanted.goal
        && now.steps.len() == wanted.steps.len()
        && now.steps.iter().zip(&wanted.steps).all(|(now, wanted)| {
            (&now.id, &now.title, now.status) == (&wanted.id, &wanted.title, wanted.status) && todos(now, wanted)
        })
}

/// A heading, or quoted lines when it has several, or none that is visible.
fn shown_goal(goal: &str) -> String {
    if goal.is_empty() {
        return "#\n".to_owned();
    }
    if !goal.contains('\n') {
        return format!("# {goal}\n");
    }
    goal.split('\n').map(|line| if line.is_empty() { ">\n".to_owned() } else { format!("> {line}\n") }).collect()
}

/// A step's own line.
fn head(prefix: &str, step: &Step, place: usize, named: bool) -> String {
    let mut line = format!("{prefix}[{}]", step.status.mark());
    if !step.title.is_empty() {
        line.push(' ');
        line.push_str(&step.title);
    }
    if named || step.id != format!("s{place}") || split_id(&step.title).1.is_some() {
        line.push_str(&format!(" <!-- id: {} -->", step.id));
    }
    line
}

fn fresh(step: &Step, place: usize, prefix: &str) -> String {
    let mut text = head(prefix, step, place, false);
    text.push('\n');
    step.todos.iter().flatten().for_each(|todo| text.push_str(&todo_line(todo, prefix)));
    text
}

fn todo_line(todo: &PlanTodo, prefix: &str) -> String {
    let below: String = prefix.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
    // A title that ends like an id would lose it.
    let guard = if split_id(&todo.title).1.is_some() { " <!-- id: t -->" } else { "" };
    let space = if todo.title.is_empty() { "" } else { " " };
    format!("{below}- [{}]{space}{}{guard}\n", todo.status.mark(), todo.title)
}

fn todo(item: &Item) -> PlanTodo {
    PlanTodo { title: item.title.clone(), status: item.status }
}

fn marked(line: &str, item: &Item, status: Status) -> String {
    if item.status == status {
        return line.to_owned();
    }
    format!("{}[{}]{}", &line[..item.bracket], status.mark(), &line[item.bracket + 3..])
}

/// Which of these keep their order: a longest increasing subsequence.
fn increasing(from: &[Option<usize>]) -> Vec<bool> {
    let mut best: Vec<(usize, Option<usize>)> = Vec::with_capacity(from.len());
    for (n, value) in from.iter().enumerate() {
        let before = (0..n).filter(|m| value.is_some() && from[*m].is_some() && from[*m] < *value);
        let before = before.max_by_key(|m| (best[*m].0, std::cmp::Reverse(*m)));
        best.push((before.map_or(usize::from(value.is_some()), |m| best[m].0 + 1), before));
    }
    let mut stays = vec![false; from.len()];
    let mut at = (0..from.len()).filter(|n| from[*n].is_some()).max_by_key(|n| (best[*n].0, std::cmp::Reverse(*n)));
    while let Some(n) = at {
        stays[n] = true;
        at = best[n].1;
    }
    stays
}
