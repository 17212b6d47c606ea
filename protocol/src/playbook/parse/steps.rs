//! Steps: from lines to what they say, and the order that they come in.

use std::collections::{BTreeMap, BTreeSet};

use super::{BULLET_COLUMNS, ErrorList, Lines, dedented, joined};
use crate::playbook::{
    PlaybookStep,
    bullets::{BulletKey, StepKeys},
};

/// The lines of a step.
pub(super) struct StepDraft<'t> {
    pub n: u32,
    line: u32,
    /// Where its text begins: a number that is indented less is that of the next step.
    pub column: usize,
    pub agent: &'t str,
    text: Lines<'t>,
    bullets: Vec<BulletDraft<'t>>,
    /// Keys that stand beneath another bullet, where they mean nothing.
    lost_keys: Vec<(u32, BulletKey)>,
    /// Whether the last bullet goes on.
    in_bullet: bool,
    is_after_blank: bool,
}

/// The lines of a bullet.
struct BulletDraft<'t> {
    indent: usize,
    lines: Lines<'t>,
}

impl BulletDraft<'_> {
    fn line(&self) -> u32 {
        self.lines.first().map_or(1, |(n, _)| *n)
    }

    /// What it is about, unless it is for the agent.
    fn key(&self) -> Option<BulletKey> {
        BulletKey::of(self.lines.first()?.1).map(|(key, _)| key)
    }
}

impl<'t> StepDraft<'t> {
    /// A step whose first line says this behind its number.
    pub fn begin(n: u32, line: u32, column: usize, text: &'t str) -> Self {
        let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (agent, text) = bracketed.unwrap_or(("", text));
        let named = agent.split_once(':').filter(|(word, _)| word.trim().eq_ignore_ascii_case("agent"));
        let agent = named.map_or(agent, |(_, name)| name).trim();
        Self {
            n,
            line,
            column,
            agent,
            text: vec![(line, text.trim_start())],
            bullets: Vec::new(),
            lost_keys: Vec::new(),
            in_bullet: false,
            is_after_blank: false,
        }
    }

    pub fn take_blank(&mut self, n: u32) {
        self.is_after_blank = true;
        self.open_lines().push((n, ""));
    }

    pub fn take_bullet(&mut self, n: u32, (indent, line): (usize, &'t str), text: &'t str) {
        self.is_after_blank = false;
        match self.bullets.last_mut() {
            Some(above) if indent >= above.indent + BULLET_COLUMNS => {
                self.lost_keys.extend(BulletKey::of(text).map(|(key, _)| (n, key)));
                above.lines.push((n, dedented(line, above.indent + BULLET_COLUMNS)));
            }
            _ => self.bullets.push(BulletDraft { indent, lines: vec![(n, text)] }),
        }
        self.in_bullet = true;
    }

    /// Takes a line that goes on with a bullet or with what is to be done.
    pub fn take_text(&mut self, n: u32, (indent, line): (usize, &'t str), is_code: bool) {
        let column = self.bullets.last().map_or(0, |bullet| bullet.indent + BULLET_COLUMNS);
        // As in Markdown a line may go on with what is above it, however it is indented, but not beyond a blank one.
        self.in_bullet &= is_code || !self.is_after_blank || indent >= column;
        self.is_after_blank = false;
        let column = if self.in_bullet { column } else { self.column };
        self.open_lines().push((n, dedented(line, column)));
    }

    fn open_lines(&mut self) -> &mut Lines<'t> {
        match self.bullets.last_mut() {
            Some(bullet) if self.in_bullet => &mut bullet.lines,
            _ => &mut self.text,
        }
    }

    /// The lines whose placeholders are filled in.
    pub fn lines_for_agents(&self) -> impl Iterator<Item = (u32, &'t str)> {
        let filled = self.bullets.iter().filter(|bullet| matches!(bullet.key(), None | Some(BulletKey::Gives)));
        self.text.iter().chain(filled.flat_map(|bullet| &bullet.lines)).copied()
    }
}

/// What the steps say.
pub(super) fn finished(drafts: &[StepDraft<'_>], errors: &mut ErrorList) -> Vec<PlaybookStep> {
    let known: BTreeSet<u32> = drafts.iter().map(|draft| draft.n).collect();
    let is_numbered = drafts.iter().map(|draft| draft.n).eq(1..=u32::try_from(drafts.len()).unwrap_or(u32::MAX));
    let mut steps: Vec<PlaybookStep> = Vec::new();
    // Where each step says after which others it comes.
    let mut after_lines = BTreeMap::new();
    for draft in drafts {
        let (mut keys, mut seen) = (StepKeys::default(), Vec::new());
        let mut bullets = Vec::new();
        for bullet in &draft.bullets {
            let text = joined(&bullet.lines);
            let Some((key, value)) = BulletKey::of(&text) else {
                bullets.push(text);
                continue;
            };
            let line = bullet.line();
            let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
            if seen.contains(&key) {
                errors.add(line, format!("the step says `{}` twice", key.name()));
            } else if let Err(why) = keys.take(key, &value) {
                errors.add(line, format!("`{}`: {why}", key.name()));
            }
            seen.push(key);
            if key == BulletKey::After {
                after_lines.entry(draft.n).or_insert(line);
            }
        }
        for (line, key) in &draft.lost_keys {
            errors.add(*line, format!("`{}` stands beneath another bullet: indent it as that one is", key.name()));
        }
        let instruction = joined(&draft.text);
        if instruction.is_empty() {
            errors.add(draft.line, "the step does not say what to do");
        }
        let before = || steps.last().map(|step| step.n).into_iter().collect();
        let after = keys.after.unwrap_or_else(before);
        let line = after_lines.get(&draft.n).copied().unwrap_or(draft.line);
        for unknown in after.difference(&known) {
            errors.add(line, format!("`After`: there is no step {unknown}"));
        }
        steps.push(PlaybookStep {
            n: draft.n,
            line: draft.line,
            agent: draft.agent.to_owned(),
            instruction,
            bullets,
            viber: keys.viber,
            after: after.into_iter().collect(),
            gate: keys.gate,
            gives: keys.gives,
            retry: keys.retry,
            limits: keys.limits,
        });
    }
    if is_numbered {
        for cycle in cycles(&steps) {
            let goes_back = |step: &&PlaybookStep| cycle.contains(&step.n) && step.after.iter().any(|n| *n >= step.n);
            let step = steps.iter().find(goes_back);
            let line = step.map_or(1, |step| after_lines.get(&step.n).copied().unwrap_or(step.line));
            errors.add(line, waiting_words(&cycle));
        }
    }
    steps
}

/// What is wrong with steps that come after each other.
fn waiting_words(cycle: &[u32]) -> String {
    match cycle {
        [] => String::new(),
        [step] => format!("`After`: the step {step} comes after itself"),
        [others @ .., last] => {
            let others = others.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            format!("`After`: the steps {others} and {last} wait for each other")
        }
    }
}

/// Steps that wait for each other, each such group in the order of their numbers.
fn cycles(steps: &[PlaybookStep]) -> Vec<Vec<u32>> {
    let mut left: BTreeMap<u32, &[u32]> = steps.iter().map(|step| (step.n, step.after.as_slice())).collect();
    let mut found = Vec::new();
    loop {
        // Whatever waits for none of those that are left can run.
        let free = left.iter().find(|(_, after)| after.iter().all(|n| !left.contains_key(n))).map(|(n, _)| *n);
        if let Some(n) = free {
            left.remove(&n);
            continue;
        }
        let Some(first) = left.keys().next().copied() else { return found };
        // Everything that is left waits for something that is left: the way back leads into a cycle.
        let mut way = vec![first];
        let mut cycle = loop {
            let before = way.last().and_then(|last| left.get(last)).copied().unwrap_or_default();
            let Some(next) = before.iter().copied().find(|n| left.contains_key(n)) else { return found };
            match way.iter().position(|n| *n == next) {
                Some(at) => break way.split_off(at),
                None => way.push(next),
            }
        };
        for n in &cycle {
            left.remove(n);
        }
        cycle.sort_unstable();
        found.push(cycle);
    }
}
