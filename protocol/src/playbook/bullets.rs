//! The bullets of a step that mean something to whoever runs it: their keys, and what may stand behind these.

use std::collections::{BTreeMap, BTreeSet};

use super::{GatePoint, StepViber};
use crate::{command::TaskLimits, path, text::head};

/// Most times that a step is started again by itself.
const MAX_RETRIES: u32 = 10;
/// Most files that a step has to hand over: so many can be handed on.
const MAX_GIVEN_FILES: usize = 64;
/// Longest name of a viber, bytes.
const MAX_VIBER_NAME_BYTES: usize = 200;
/// Most labels of a viber.
const MAX_VIBER_LABELS: usize = 32;
/// The most that a step may cost, USD: as for a task.
const MAX_COST_USD: f64 = 1e6;

/// Marks of emphasis.
const EMPHASIS: [char; 2] = ['*', '_'];

/// What a bullet is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BulletKey {
    Viber,
    After,
    Approve,
    Gives,
    Retry,
    Limits,
}

const KEYS: [(&str, BulletKey); 6] = [
    ("Viber", BulletKey::Viber),
    ("After", BulletKey::After),
    ("Approve", BulletKey::Approve),
    ("Gives", BulletKey::Gives),
    ("Retry", BulletKey::Retry),
    ("Limits", BulletKey::Limits),
];

impl BulletKey {
    /// The key of a bullet, and what stands behind it; `None` if the bullet is for the agent. A gate that is read as a gate must
    /// be one: emphasis, characters that cannot be seen, and the wide colon of East Asian keyboards do not matter.
    pub fn of(bullet: &str) -> Option<(Self, &str)> {
        let (word, value) = bullet.split_once([':', '\u{ff1a}'])?;
        let plain: String = word.chars().filter(|c| !EMPHASIS.contains(c) && !path::is_invisible(*c)).collect();
        let known = KEYS.iter().find(|(name, _)| name.eq_ignore_ascii_case(plain.trim()))?;
        // In `**Key:** value` the emphasis ends behind the colon.
        let is_open = word.starts_with(EMPHASIS) && !word.trim_end().ends_with(EMPHASIS);
        let value = if is_open { value.trim_start_matches(EMPHASIS) } else { value };
        Some((known.1, value.trim()))
    }

    /// As it is written.
    pub fn name(self) -> &'static str {
        KEYS.iter().find(|(_, key)| *key == self).map_or("", |(name, _)| *name)
    }
}

/// What the bullets of a step say.
#[derive(Debug, Default)]
pub(super) struct StepKeys {
    pub viber: Option<StepViber>,
    /// `None`: the step before.
    pub after: Option<BTreeSet<u32>>,
    pub gate: Option<GatePoint>,
    pub gives: Vec<String>,
    pub retry: u32,
    pub limits: TaskLimits,
}

impl StepKeys {
    /// Takes what stands behind a key; `Err` says what was expected.
    pub fn take(&mut self, key: BulletKey, value: &str) -> Result<(), String> {
        match key {
            BulletKey::Viber => self.viber = Some(viber(value)?),
            BulletKey::After => self.after = Some(after(value)?),
            BulletKey::Approve => self.gate = Some(gate(value)?),
            BulletKey::Gives => self.gives = gives(value)?,
            BulletKey::Retry => self.retry = retry(value)?,
            BulletKey::Limits => self.limits = limits(value)?,
        }
        Ok(())
    }
}

fn viber(value: &str) -> Result<StepViber, String> {
    let value = bare(value);
    let expected = || "expected the name of a viber, or labels such as `gpu=yes, region=eu`".to_owned();
    // Inputs are not filled in here: a run would look for a viber of that name.
    if value.is_empty() || value.len() > MAX_VIBER_NAME_BYTES || value.contains(['<', '>']) {
        return Err(expected());
    }
    if !value.contains('=') {
        return Ok(StepViber::Name(value.to_owned()));
    }
    let mut labels = BTreeMap::new();
    for label in value.split(',') {
        let (key, wanted) = label.split_once('=').ok_or_else(expected)?;
        let (key, wanted) = (key.trim(), wanted.trim());
        if key.is_empty() || wanted.is_empty() {
            return Err(expected());
        }
        if labels.insert(key.to_owned(), wanted.to_owned()).is_some() {
            return Err(format!("the label `{key}` is named twice"));
        }
    }
    match labels.len() {
        0..=MAX_VIBER_LABELS => Ok(StepViber::Labels(labels)),
        _ => Err(format!("a step names at most {MAX_VIBER_LABELS} labels")),
    }
}

fn after(value: &str) -> Result<BTreeSet<u32>, String> {
    if value.eq_ignore_ascii_case("none") {
        return Ok(BTreeSet::new());
    }
    let numbers: Option<BTreeSet<u32>> = value.split(',').map(|number| whole(number.trim())).collect();
    numbers.ok_or_else(|| "expected numbers of steps such as `1, 2`, or `none`".to_owned())
}

fn gate(value: &str) -> Result<GatePoint, String> {
    let points = [GatePoint::Before, GatePoint::After];
    let point = points.into_iter().find(|point| point.as_str().eq_ignore_ascii_case(value));
    point.ok_or_else(|| "expected `before` or `after`".to_owned())
}

fn gives(value: &str) -> Result<Vec<String>, String> {
    let names: Vec<String> = value.split(',').map(|name| bare(name).to_owned()).collect();
    check_names(&names)?;
    Ok(names)
}

/// Whether a step can hand over files of these names.
pub(super) fn check_names(names: &[String]) -> Result<(), String> {
    if names.len() > MAX_GIVEN_FILES {
        return Err(format!("a step gives at most {MAX_GIVEN_FILES} files"));
    }
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err("expected names of files such as `notes.md, report.csv`".to_owned());
        }
        let shown = head(name, 200);
        path::file(name).map_err(|bad| format!("{shown:?} is not the plain relative name of a file: {}", bad.why))?;
        if !seen.insert(path::collision_key(name)) {
            return Err(format!("the file {shown:?} is named twice"));
        }
    }
    Ok(())
}

fn retry(value: &str) -> Result<u32, String> {
    let times = whole(value).filter(|times| *times <= MAX_RETRIES);
    times.ok_or_else(|| format!("expected a number from 0 to {MAX_RETRIES}"))
}

fn limits(value: &str) -> Result<TaskLimits, String> {
    let expected = || {
        "expected limits above 0 such as `minutes 20, costUsd 2`; there are minutes, costUsd, tokens, steps and toolCalls"
            .to_owned()
    };
    let (mut limits, mut seen) = (TaskLimits::default(), BTreeSet::new());
    for limit in value.split(',') {
        let separators = |c: char| c.is_whitespace() || matches!(c, ':' | '=');
        let (key, number) = limit.trim().split_once(separators).ok_or_else(expected)?;
        let (key, number) = (key.to_ascii_lowercase(), number.trim_matches(separators));
        let count = || whole(number).filter(|count| *count > 0).ok_or_else(expected);
        match key.as_str() {
            "minutes" => limits.minutes = Some(count()?),
            "steps" => limits.steps = Some(count()?),
            "toolcalls" => limits.tool_calls = Some(count()?),
            "tokens" => {
                let tokens = number.parse::<u64>().ok().filter(|tokens| *tokens > 0 && is_digits(number));
                limits.tokens = Some(tokens.ok_or_else(expected)?);
            }
            "costusd" => {
                let usd = number.parse::<f64>().ok().filter(|usd| *usd > 0.0 && *usd <= MAX_COST_USD);
                limits.cost_usd = Some(usd.ok_or_else(expected)?);
            }
            _ => return Err(expected()),
        }
        if !seen.insert(key) {
            return Err("a limit is named twice".to_owned());
        }
    }
    Ok(limits)
}

fn whole(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| is_digits(text))
}

/// Whether a number is written without a sign.
fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// What stands between backticks, if they are around all of it.
fn bare(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix('`').and_then(|text| text.strip_suffix('`')).map_or(text, str::trim)
}
