//! `ask_operator`: what an agent asks people by itself, and what it is told of their answer.

use protocol::{
    AgentQuestion, AnswerOption, ApprovalResponse, Decision,
    text::{head_and_tail, printable},
};
use serde_json::Value;

use super::questions::span;
use crate::tools::{CallArgs, ToolOutcome};

/// The tool's name.
pub(super) const ASK_OPERATOR: &str = "ask_operator";
/// Longest question, and longest answer that is passed on, bytes.
const MAX_QUESTION_BYTES: usize = 8 * 1024;
const MAX_ANSWER_BYTES: usize = 16 * 1024;
/// Longest label of an option, and longest sentence beside it, bytes.
const MAX_LABEL_BYTES: usize = 200;
const MAX_SENTENCE_BYTES: usize = 1024;
/// Least and most options that a question has, unless it has none.
const MIN_OPTIONS: usize = 2;
const MAX_OPTIONS: usize = 4;

/// A call of the tool.
#[derive(Debug)]
pub(super) struct OperatorQuestion {
    pub question: AgentQuestion,
    /// How long the agent wants to wait.
    pub minutes: Option<u32>,
}

impl OperatorQuestion {
    /// Reads the arguments; `Err` is a sentence for the model.
    pub fn read(args: &Value) -> Result<Self, String> {
        let args = CallArgs::new(args, &["question", "options", "recommended", "timeoutMinutes", "onTimeout"])?;
        let text = within("question", args.text("question")?, MAX_QUESTION_BYTES)?;
        let options = match args.value("options") {
            None => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(option).collect::<Result<Vec<_>, _>>()?,
            Some(_) => return Err("argument \"options\" must be a list".to_owned()),
        };
        if !options.is_empty() && !(MIN_OPTIONS..=MAX_OPTIONS).contains(&options.len()) {
            return Err(format!("a question has {MIN_OPTIONS} to {MAX_OPTIONS} options, not {}", options.len()));
        }
        if let Some(twice) =
            options.iter().enumerate().find(|(n, option)| options[..*n].iter().any(|o| o.label == option.label))
        {
            return Err(format!("two options have the label {:?}", twice.1.label));
        }
        let recommended = args.value("recommended").map(|word| recommended(word, &options)).transpose()?;
        let minutes = args.count("timeoutMinutes")?.map(|minutes| u32::try_from(minutes).unwrap_or(u32::MAX));
        let on_timeout = match (args.optional_text("onTimeout")?, recommended.and_then(|n| options.get(n as usize))) {
            (Some(said), _) => within("onTimeout", said, MAX_SENTENCE_BYTES)?,
            (None, Some(option)) => format!("The agent goes on with “{}”.", option.label),
            (None, None) => "The agent goes on without an answer.".to_owned(),
        };
        Ok(Self { question: AgentQuestion { text, options, recommended, on_timeout }, minutes })
    }
}

fn option(value: &Value) -> Result<AnswerOption, String> {
    // Small models send the labels alone.
    let (label, trade_off) = match value {
        Value::String(label) => (label.as_str(), ""),
        other => {
            let args = CallArgs::new(other, &["label", "tradeOff"])?;
            (args.text("label")?, args.optional_text("tradeOff")?.unwrap_or_default())
        }
    };
    let label = within("label", label, MAX_LABEL_BYTES)?;
    if trade_off.len() > MAX_SENTENCE_BYTES {
        return Err(format!("argument \"tradeOff\" has more than {MAX_SENTENCE_BYTES} bytes"));
    }
    Ok(AnswerOption { label, trade_off: printable(trade_off.trim()) })
}

/// The index of the option that is recommended by its label, or by its number from 0.
fn recommended(value: &Value, options: &[AnswerOption]) -> Result<u32, String> {
    let by_label = |label: &str| options.iter().position(|option| option.label == label.trim());
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    let found = value.as_str().and_then(by_label).or(number).filter(|index| *index < options.len());
    found
        .and_then(|index| u32::try_from(index).ok())
        .ok_or_else(|| "argument \"recommended\" is no option's label".to_owned())
}

/// The text of an argument, unless it is blank or has more than `most` bytes.
pub(super) fn within(name: &str, text: &str, most: usize) -> Result<String, String> {
    match text.trim() {
        "" => Err(format!("argument {name:?} is empty")),
        text if text.len() > most => Err(format!("argument {name:?} has more than {most} bytes")),
        text => Ok(printable(text)),
    }
}

/// The tool's result: what was answered, and by whom.
pub(super) fn answered(question: &AgentQuestion, response: &ApprovalResponse) -> ToolOutcome {
    let by = &response.by;
    let said =
        |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let note = said(&response.note).map(|note| head_and_tail(&note, MAX_ANSWER_BYTES));
    let answer = said(&response.answer).filter(|_| response.decision != Decision::Deny);
    let Some(answer) = answer else {
        let note = note.map(|note| format!(": {note}")).unwrap_or_default();
        return ToolOutcome::done(format!("{by} does not want to answer{note}"));
    };
    let is_option = question.options.iter().any(|option| option.label == answer);
    let answer = head_and_tail(&answer, MAX_ANSWER_BYTES);
    let answer = if is_option { format!("{by} chose “{answer}”.") } else { format!("{by} answered: {answer}") };
    ToolOutcome::done(note.map_or(answer.clone(), |note| format!("{answer}\nThey added: {note}")))
}

/// The tool's result when nobody answered.
pub(super) fn unanswered(question: &AgentQuestion, minutes: u32) -> ToolOutcome {
    ToolOutcome::done(format!(
        "Nobody answered within {}. What you said that happens then: {} Say in your last message that this was not answered.",
        span(minutes),
        question.on_timeout
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_read_as_models_write_it() {
        let args = json!({
            "question": " Which store? ", "recommended": "SQLite", "timeoutMinutes": "15",
            "options": ["Postgres", { "label": "SQLite", "tradeOff": "Nothing to run, one writer." }],
        });
        let asked = OperatorQuestion::read(&args).expect("good");
        assert_eq!((asked.question.text.as_str(), asked.minutes), ("Which store?", Some(15)));
        assert_eq!(asked.question.recommended, Some(1));
        assert_eq!(asked.question.on_timeout, "The agent goes on with “SQLite”.");
        let words = OperatorQuestion::read(&json!({ "question": "Why?", "onTimeout": "I stop." })).expect("good");
        assert!(words.question.options.is_empty() && words.question.on_timeout == "I stop.");
    }

    #[test]
    fn what_is_wrong_with_a_question_is_named() {
        let (a, b) = (json!({ "label": "a", "tradeOff": "" }), json!({ "label": "b" }));
        for (args, word) in [
            (json!({}), "\"question\" is missing"),
            (json!({ "question": " " }), "\"question\" is empty"),
            (json!({ "question": "q", "options": "a, b" }), "list"),
            (json!({ "question": "q", "options": [a] }), "2 to 4 options, not 1"),
            (json!({ "question": "q", "options": ["a", "b", "c", "d", "e"] }), "not 5"),
            (json!({ "question": "q", "options": [a, a] }), "two options"),
            (json!({ "question": "q", "options": [a, { "lable": "b" }] }), "lable"),
            (json!({ "question": "q", "options": [a, b], "recommended": "c" }), "recommended"),
            (json!({ "question": "q", "options": [a, b], "recommended": 2 }), "recommended"),
            (json!({ "question": "q", "recommended": 0 }), "recommended"),
            (json!({ "question": "q", "timeoutMinutes": 0 }), "timeoutMinutes"),
            (json!({ "question": "x".repeat(9000) }), "8192"),
        ] {
            let why = OperatorQuestion::read(&args).expect_err(word);
            assert!(why.contains(word), "{args}: {why}");
        }
    }
}
