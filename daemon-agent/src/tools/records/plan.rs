//! `update_plan`: the agent keeps its plan up to date while it works, as a whole or step by step.

use protocol::plan::{self, PlanTodo, Steps};
use serde_json::{Value, json};

use crate::{
    report::plan::{PlanEditor, PlanOutcome, status},
    tools::ToolOutcome,
};

/// Runs a call.
pub async fn run(editor: &PlanEditor, args: &Value) -> ToolOutcome {
    let asked = match PlanRequest::read(args) {
        Ok(asked) => asked,
        Err(why) => return ToolOutcome::refused(why),
    };
    let note = args["note"].as_str().unwrap_or_default();
    match editor.change(note, |now| asked.make(now)).await {
        Err(why) => ToolOutcome::refused(why),
        Ok(became) => ToolOutcome::done(describe(became, &editor.now().await.markdown)),
    }
}

/// What a call asks for.
enum PlanRequest {
    /// The whole plan.
    Plan(Value),
    /// One step, by its id, its number or its title.
    Step { step: String, status: Option<plan::Status>, title: Option<String> },
}

impl PlanRequest {
    fn read(args: &Value) -> Result<Self, String> {
        let text = |key: &str| args[key].as_str().filter(|text| !text.trim().is_empty()).map(str::to_owned);
        if let Some(markdown) = text("markdown") {
            return Ok(Self::Plan(Value::String(markdown)));
        }
        if let Some(steps) = args["steps"].as_array() {
            if steps.len() > plan::MAX_STEPS {
                return Err(plan::PlanError::TooManySteps(steps.len()).to_string());
            }
            let steps = steps.iter().map(step).collect::<Result<Vec<_>, _>>()?;
            return Ok(Self::Plan(match text("goal") {
                Some(goal) => json!({ "goal": goal, "steps": steps }),
                None => json!({ "steps": steps }),
            }));
        }
        let step = match &args["step"] {
            Value::Number(number) => Some(number.to_string()),
            _ => text("step").or_else(|| text("id")),
        };
        match (step, text("goal")) {
            (Some(step), _) => {
                let status = text("status").map(|word| status(&word).ok_or_else(|| unknown(&word))).transpose()?;
                let title = text("title");
                if status.is_none() && title.is_none() {
                    return Err("give `status` (or `title`) for the step".to_owned());
                }
                Ok(Self::Step { step, status, title })
            }
            (None, Some(goal)) => Ok(Self::Plan(json!({ "goal": goal }))),
            (None, None) => Err("send `steps` (the whole plan), or `step` with its `status`".to_owned()),
        }
    }

    fn make(&self, now: &str) -> Result<String, plan::PlanError> {
        match self {
            Self::Plan(value) => plan::markdown_of_change(value, now),
            Self::Step { step, status, title } => {
                let mut steps = Steps::of(now);
                let count = steps.steps.len();
                let number = step.parse::<usize>().ok().filter(|n| (1..=count).contains(n)).map(|n| n - 1);
                let by_id = steps.steps.iter().position(|known| known.id == *step);
                let by_title = || steps.steps.iter().position(|known| known.title.eq_ignore_ascii_case(step.trim()));
                let at = by_id.or(number).or_else(by_title).ok_or(plan::PlanError::NoSuchStep)?;
                let found = &mut steps.steps[at];
                found.status = status.unwrap_or(found.status);
                found.title = title.clone().unwrap_or_else(|| found.title.clone());
                steps.onto(now)
            }
        }
    }
}

/// A step as models send it: an object, or only its title. Without a status it keeps the current one.
fn step(value: &Value) -> Result<Value, String> {
    if let Value::String(title) = value {
        return Ok(json!({ "title": title }));
    }
    let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let title = if value["title"].is_string() { text("title") } else { text("content") };
    let mut step = json!({ "id": text("id"), "title": title });
    let word = text("status");
    if !word.is_empty() {
        step["status"] = status(&word).ok_or_else(|| unknown(&word))?.as_str().into();
    }
    if let Some(todos) = value.get("todos").filter(|todos| !todos.is_null()) {
        serde_json::from_value::<Vec<PlanTodo>>(todos.clone()).map_err(|error| format!("`todos`: {error}"))?;
        step["todos"] = todos.clone();
    }
    Ok(step)
}

fn unknown(word: &str) -> String {
    let words = plan::Status::ALL.map(plan::Status::as_str).join(", ");
    format!("there is no status {word:?}; a step is one of {words}")
}

/// The model's answer: the outcome, and the plan's steps with their ids.
fn describe(became: PlanOutcome, now: &str) -> String {
    let what = match became {
        PlanOutcome::Same => "The plan says that already.",
        PlanOutcome::Applied => "The plan is updated.",
        PlanOutcome::Proposed => "Your change is proposed: an operator decides about it. Go on with the plan as it is.",
        PlanOutcome::Both => "The ticks are made; the rest is proposed: an operator decides about it.",
    };
    let steps = Steps::of(now).steps;
    let lines = steps.iter().map(|step| format!("{} [{}] {}", step.id, step.status.as_str(), step.title));
    std::iter::once(what.to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(args: &Value, now: &str) -> Result<String, String> {
        PlanRequest::read(args)?.make(now).map_err(|why| why.to_string())
    }

    #[test]
    fn a_plan_is_sent_whole_or_by_a_step() {
        let whole = json!({ "goal": "g", "steps": [{ "title": "a", "status": "in_progress" }, "b"] });
        let now = make(&whole, "").expect("a plan");
        assert_eq!(now, "# g\n\n- [/] a\n- [ ] b\n");
        for step in [json!("s1"), json!(1), json!("a"), json!("1")] {
            let after = make(&json!({ "step": step, "status": "done" }), &now).expect("a tick");
            assert_eq!(after, "# g\n\n- [x] a\n- [ ] b\n", "{step}");
        }
        let kept = make(&json!({ "steps": ["b"] }), &now).expect("a plan");
        assert_eq!(kept, "# g\n\n- [ ] b <!-- id: s2 -->\n", "the goal stays");
        assert_eq!(make(&json!({ "goal": "h" }), &now).expect("a goal"), now.replace("# g", "# h"));
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for (args, word) in [
            (json!({}), "steps"),
            (json!({ "step": "s1" }), "status"),
            (json!({ "step": "s1", "status": "great" }), "pending"),
            (json!({ "step": "nothing", "status": "done" }), "no such step"),
            (json!({ "steps": vec!["x"; 501] }), "500"),
            (json!({ "steps": [{ "title": "a", "todos": 7 }] }), "todos"),
        ] {
            let answer = make(&args, "- [ ] a\n");
            assert!(answer.as_ref().is_err_and(|why| why.contains(word)), "{args} {answer:?}");
        }
    }
}
