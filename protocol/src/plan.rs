//! Plans: `{goal, steps}` or Markdown on the wire, and how one becomes the other without loss.
//!
//! The file is Markdown and stays as its author wrote it: an edit by steps changes the lines of those steps and no
//! others. The file holds the id of a step (`<!-- id: x -->`) only where it differs from the id given by its position
//! (`s1`, `s2` …).

mod answer;
mod document;
mod edit;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use answer::of_answer;
pub(crate) use document::fence;
pub use document::{Document, PlanPiece, fences};

/// Longest plan that an agent or a program may write, bytes: escaped, it still fits an event.
pub const MAX_PLAN_BYTES: usize = 48 * 1024;
/// Most lines of a plan that count as steps; what comes after them is text.
pub const MAX_STEPS: usize = 500;
/// Most to-dos below steps in one plan.
pub const MAX_TODOS: usize = 1_000;
/// Longest id of a step, bytes.
pub const MAX_STEP_ID_BYTES: usize = 64;

/// The status of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = PlanStepStatus))]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    #[default]
    #[serde(alias = "todo", alias = "open", alias = "not_started")]
    Pending,
    #[serde(alias = "in_progress", alias = "in-progress", alias = "running", alias = "active")]
    Working,
    #[serde(alias = "completed", alias = "complete", alias = "finished")]
    Done,
    #[serde(alias = "cancelled", alias = "canceled")]
    Skipped,
    #[serde(alias = "error")]
    Failed,
}

impl Status {
    /// All of them, in the order in which a person is offered them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Working, Self::Done, Self::Skipped, Self::Failed];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Working => "working",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }

    /// Whether nothing more has to be done for it.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }

    fn of_mark(mark: u8) -> Option<Self> {
        Some(match mark {
            b' ' => Self::Pending,
            b'/' => Self::Working,
            b'x' | b'X' => Self::Done,
            b'-' => Self::Skipped,
            b'!' => Self::Failed,
            _ => return None,
        })
    }

    fn mark(self) -> char {
        match self {
            Self::Pending => ' ',
            Self::Working => '/',
            Self::Done => 'x',
            Self::Skipped => '-',
            Self::Failed => '!',
        }
    }
}

/// One step of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema), schema(as = PlanStep))]
#[serde(default)]
pub struct Step {
    /// Unique in its plan. If it is empty or not a valid id, one is assigned.
    pub id: String,
    pub title: String,
    pub status: Status,
    /// Smaller things to do below it. When absent in an edit, the present ones stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub todos: Option<Vec<PlanTodo>>,
}

/// A smaller thing to do below a step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(default)]
pub struct PlanTodo {
    pub title: String,
    pub status: Status,
}

/// A plan as programs have it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steps {
    pub goal: String,
    pub steps: Vec<Step>,
}

/// Why a plan is refused. The messages are for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanError {
    TooManySteps(usize),
    TooLarge(usize),
    /// No step has this id, number or title.
    NoSuchStep,
    /// Neither text, `{markdown}` nor `{goal, steps}`.
    NotAPlan,
    /// The form of its text does not allow changing single steps.
    AsTextOnly,
}

impl std::fmt::Display for PlanError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooManySteps(n) => {
                write!(f, "a plan has at most {MAX_STEPS} steps and {MAX_TODOS} to-dos below them; this one has {n}")
            }
            Self::TooLarge(bytes) => write!(f, "a plan has at most {MAX_PLAN_BYTES} bytes; this one has {bytes}"),
            Self::NoSuchStep => f.write_str("the plan has no such step: name it by its id"),
            Self::NotAPlan => f.write_str("a plan is Markdown, or {goal, steps: [{id, title, status}]}"),
            Self::AsTextOnly => f.write_str("this plan cannot be changed step by step; change its text as a whole"),
        }
    }
}

impl std::error::Error for PlanError {}

/// The Markdown of `value`, which is a text, `{markdown}` or `{goal, steps}`. Steps are written into `now`, the present
/// plan.
pub fn markdown_of(value: &Value, now: &str) -> Result<String, PlanError> {
    let text = match value {
        Value::String(text) => Some(text),
        Value::Object(fields) => match fields.get("markdown") {
            Some(Value::String(text)) => Some(text),
            _ => None,
        },
        _ => None,
    };
    if let Some(text) = text {
        return fits(text.replace('\0', "\u{fffd}"));
    }
    let named = value.as_object().is_some_and(|fields| fields.contains_key("steps") || fields.contains_key("goal"));
    if !named {
        return Err(PlanError::NotAPlan);
    }
    if let Some(steps) = value["steps"].as_array().filter(|steps| steps.len() > MAX_STEPS) {
        return Err(PlanError::TooManySteps(steps.len()));
    }
    let mut value = value.clone();
    keep_statuses(&mut value, &Steps::of(now));
    let steps: Steps = serde_json::from_value(value).map_err(|_| PlanError::NotAPlan)?;
    steps.onto(now)
}

/// The Markdown of `value` as a change of the present plan: of `{goal, steps}`, what is not mentioned stays.
pub fn markdown_of_change(value: &Value, now: &str) -> Result<String, PlanError> {
    let Value::Object(fields) = value else { return markdown_of(value, now) };
    if fields.contains_key("markdown") || (fields.contains_key("goal") && fields.contains_key("steps")) {
        return markdown_of(value, now);
    }
    let (known, mut value) = (Steps::of(now), value.clone());
    if value.get("steps").is_none() && value.get("goal").is_some() {
        value["steps"] = serde_json::to_value(known.steps).map_err(|_| PlanError::NotAPlan)?;
    } else if value.get("steps").is_some() {
        value["goal"] = known.goal.into();
    }
    markdown_of(&value, now)
}

/// What a line of a plan says, without its bullet, status and id.
pub fn words_of_line(line: &str) -> &str {
    document::words_of_line(line)
}

/// Fills in missing statuses of steps and to-dos from the known ones, so that an edit of titles undoes nobody's
/// progress.
fn keep_statuses(value: &mut Value, known: &Steps) {
    let same = |step: &Value| {
        let (id, title) = (step["id"].as_str().unwrap_or(""), step["title"].as_str().map(line).unwrap_or_default());
        let by_id = known.steps.iter().find(|old| !id.is_empty() && old.id == id);
        by_id.or_else(|| known.steps.iter().find(|old| id.is_empty() && old.title == title))
    };
    let list = |value: &mut Value, name: &str| value.get_mut(name).and_then(Value::as_array_mut).map(std::mem::take);
    let Some(mut steps) = list(value, "steps") else { return };
    for step in steps.iter_mut().filter(|step| step.is_object()) {
        let Some(old) = same(step) else { continue };
        if step.get("status").is_none() {
            step["status"] = old.status.as_str().into();
        }
        let Some(mut todos) = list(step, "todos") else { continue };
        for todo in todos.iter_mut().filter(|todo| todo.is_object() && todo.get("status").is_none()) {
            let title = todo["title"].as_str().map(line).unwrap_or_default();
            if let Some(old) = old.todos.iter().flatten().find(|old| old.title == title) {
                todo["status"] = old.status.as_str().into();
            }
        }
        step["todos"] = todos.into();
    }
    value["steps"] = steps.into();
}

/// Returns `text` unless it is too long for a plan.
pub fn fits(text: String) -> Result<String, PlanError> {
    if text.len() <= MAX_PLAN_BYTES { Ok(text) } else { Err(PlanError::TooLarge(text.len())) }
}

/// Whether `id` can name a step: it appears in a comment of the file, in pages and in URLs.
pub fn is_step_id(id: &str) -> bool {
    (1..=MAX_STEP_ID_BYTES).contains(&id.len())
        && !id.contains("--")
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

impl Steps {
    /// The steps in `markdown`.
    pub fn of(markdown: &str) -> Self {
        Document::parse(markdown).steps()
    }

    /// `markdown` with this goal and these steps, and everything else unchanged.
    pub fn onto(self, markdown: &str) -> Result<String, PlanError> {
        let todos: usize = self.steps.iter().filter_map(|step| step.todos.as_ref()).map(Vec::len).sum();
        if self.steps.len() > MAX_STEPS || todos > MAX_TODOS {
            return Err(PlanError::TooManySteps(self.steps.len() + todos));
        }
        let document = Document::parse(markdown);
        let wanted = self.tidy(&document.steps());
        fits(document.with(&wanted).ok_or(PlanError::AsTextOnly)?)
    }

    /// The number of finished steps, and of all.
    pub fn progress(&self) -> (usize, usize) {
        (self.steps.iter().filter(|step| step.status.is_over()).count(), self.steps.len())
    }

    /// Whether `later` has the same goal, steps and to-dos, so that only statuses differ.
    pub fn only_moves_to(&self, later: &Self) -> bool {
        let todo =
            |step: &Step| -> Vec<String> { step.todos.iter().flatten().map(|todo| todo.title.clone()).collect() };
        self.goal == later.goal
            && self.steps.len() == later.steps.len()
            && self
                .steps
                .iter()
                .zip(&later.steps)
                .all(|(a, b)| a.id == b.id && a.title == b.title && todo(a) == todo(b))
    }

    /// Puts titles on one line and makes ids unique and valid. A step without an id gets that of the known step with
    /// its title.
    fn tidy(mut self, known: &Self) -> Self {
        self.goal = goal(&self.goal);
        let mut taken: Vec<String> = Vec::new();
        for step in &mut self.steps {
            step.title = line(&step.title);
            for todo in step.todos.iter_mut().flatten() {
                todo.title = line(&todo.title);
            }
            if !is_step_id(&step.id) || taken.contains(&step.id) {
                step.id.clear();
            } else {
                taken.push(step.id.clone());
            }
        }
        for at in 0..self.steps.len() {
            if self.steps[at].id.is_empty() {
                let title = &self.steps[at].title;
                let same = known.steps.iter().find(|old| old.title == *title && !taken.contains(&old.id));
                let id = same.map_or_else(|| unused(at, &taken, known), |old| old.id.clone());
                taken.push(id.clone());
                self.steps[at].id = id;
            }
        }
        self
    }
}

/// An id for the step at `at`: that of its position, unless another step has it.
fn unused(at: usize, taken: &[String], known: &Steps) -> String {
    let free = |id: &String| !taken.contains(id) && known.steps.iter().all(|step| step.id != *id);
    let first = format!("s{}", at + 1);
    if free(&first) {
        return first;
    }
    let from = known.steps.len() + 1;
    (from..).map(|n| format!("s{n}")).find(free).unwrap_or(first)
}

/// A title: one line without control characters.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

/// A goal: lines of text.
fn goal(text: &str) -> String {
    let replace = |c: char| if c.is_control() && c != '\n' { ' ' } else { c };
    text.replace("\r\n", "\n").chars().map(replace).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests;
