//! What agents ask, as buttons of Slack, and what becomes of these when somebody decided. Pure.

use protocol::{ApprovalKind, ApprovalRequest, ApprovalResponse, Decision};
use serde_json::{Value, json};

use super::{inbound::SlackPress, text::escaped};

/// Longest preview, and longest other text, that is shown, bytes: a section of Slack has at most 3,000 characters.
const MAX_PREVIEW_BYTES: usize = 1_600;
const MAX_LINE_BYTES: usize = 400;
/// Longest option with what speaks for and against it, bytes.
const MAX_OPTION_BYTES: usize = 120;
/// Longest label of a button, characters as bytes.
const MAX_LABEL_BYTES: usize = 70;

/// A question as it was asked, kept until it is decided.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownQuestion {
    pub channel: String,
    pub root: String,
    /// Of the message with its buttons.
    pub ts: String,
    pub digest: String,
    pub title: String,
    pub is_question: bool,
}

impl ShownQuestion {
    /// As it is kept on disk.
    pub fn json(&self) -> Value {
        json!({
            "channel": self.channel, "root": self.root, "ts": self.ts, "digest": self.digest, "title": self.title,
            "isQuestion": self.is_question,
        })
    }

    /// From what was kept.
    pub fn read(json: &Value) -> Option<Self> {
        let word = |key: &str| json[key].as_str().map(str::to_owned);
        Some(Self {
            channel: word("channel")?,
            root: word("root")?,
            ts: word("ts")?,
            digest: word("digest")?,
            title: word("title")?,
            is_question: json["isQuestion"] == true,
        })
    }

    /// The decision that a press is, if it is one about this.
    pub fn decision(&self, press: &SlackPress) -> Option<ApprovalResponse> {
        let id = press.approval.parse().ok()?;
        let decision = match (press.action.as_str(), self.is_question) {
            ("allow", false) => Decision::Allow,
            ("deny", _) => Decision::Deny,
            ("option" | "text", true) if !press.value.trim().is_empty() => Decision::Answer,
            _ => return None,
        };
        let response = ApprovalResponse::new(id, self.digest.clone(), decision);
        let answer = (decision == Decision::Answer).then(|| press.value.trim().to_owned());
        Some(ApprovalResponse { answer, ..response })
    }
}

/// In one line, what is asked.
pub fn title(asked: &ApprovalRequest) -> String {
    match asked.kind {
        ApprovalKind::Question => "The agent asks".to_owned(),
        ApprovalKind::Plan => "May the agent carry out this plan?".to_owned(),
        ApprovalKind::Budget => "The task has reached a limit".to_owned(),
        _ => format!("May the agent use `{}`?", asked.tool.replace('`', "'")),
    }
}

/// The blocks of a question. A limit is raised on the Board, which knows the numbers; here it can only be denied.
pub fn blocks(asked: &ApprovalRequest) -> Value {
    let id = &asked.approval_id;
    let question = asked.question.as_ref();
    let mut text = format!("*{}*", escaped(&title(asked)));
    match question {
        Some(question) => {
            text.push_str(&format!("\n{}", shown(&question.text, MAX_PREVIEW_BYTES)));
            for (n, option) in question.options.iter().enumerate().filter(|(_, option)| !option.trade_off.is_empty()) {
                let mark = if question.recommended == u32::try_from(n).ok() { " (recommended)" } else { "" };
                text.push_str(&format!(
                    "\n• *{}*{mark}: {}",
                    shown(&option.label, MAX_OPTION_BYTES),
                    shown(&option.trade_off, MAX_OPTION_BYTES)
                ));
            }
        }
        None => {
            for line in [&asked.reason, &asked.risk].into_iter().filter(|line| !line.is_empty()) {
                text.push_str(&format!("\n{}", shown(line, MAX_LINE_BYTES)));
            }
            if !asked.preview.trim().is_empty() {
                let preview = shown(asked.preview.trim(), MAX_PREVIEW_BYTES).replace("```", "'''");
                text.push_str(&format!("\n```\n{preview}\n```"));
            }
        }
    }
    let mut blocks = vec![json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } })];
    match question {
        Some(question) => {
            let choices = question
                .options
                .iter()
                .enumerate()
                .map(|(n, option)| button(&option.label, &format!("approval:option:{n}"), &option.label, None));
            let choices: Vec<Value> = choices.collect();
            if !choices.is_empty() {
                blocks.push(
                    json!({ "type": "actions", "block_id": format!("approval:{id}:choices"), "elements": choices }),
                );
            }
            blocks.push(json!({
                "type": "input", "block_id": format!("approval:{id}:words"), "dispatch_action": true,
                "label": { "type": "plain_text", "text": "Your own words" },
                "element": { "type": "plain_text_input", "action_id": "approval:text" },
            }));
        }
        None => {
            let mut elements = Vec::new();
            if asked.kind != ApprovalKind::Budget {
                elements.push(button("Allow once", "approval:allow", "allow", Some("primary")));
            }
            elements.push(button("Deny", "approval:deny", "deny", Some("danger")));
            blocks
                .push(json!({ "type": "actions", "block_id": format!("approval:{id}:buttons"), "elements": elements }));
        }
    }
    json!(blocks)
}

/// A text that fits however much of it has to be escaped.
fn shown(text: &str, max: usize) -> String {
    let all = escaped(text);
    if all.len() <= max {
        return all;
    }
    let mut head = text;
    while escaped(head).len() > max {
        head = protocol::text::head(head, head.len() * 3 / 4);
    }
    format!("{}…", escaped(head))
}

fn button(label: &str, action: &str, value: &str, style: Option<&str>) -> Value {
    let label = protocol::text::head(label, MAX_LABEL_BYTES);
    let value = protocol::text::head(value, 1_900);
    let mut button = json!({
        "type": "button", "action_id": action, "value": value, "text": { "type": "plain_text", "text": label },
    });
    if let (Some(style), Some(fields)) = (style, button.as_object_mut()) {
        fields.insert("style".to_owned(), json!(style));
    }
    button
}

/// What stands where the buttons were: who decided what, and where.
pub fn decided(title: &str, outcome: &str) -> (String, Value) {
    let text = format!("*{}*\n{}", escaped(title), escaped(outcome));
    (text.clone(), json!([{ "type": "section", "text": { "type": "mrkdwn", "text": text } }]))
}

/// A decision in words.
pub fn outcome(decision: Decision, by: &str, adapter: &str, answer: Option<&str>) -> String {
    let place = match adapter {
        "board" => "on the Board",
        "slack" => "in Slack",
        "cli" => "at the command line",
        _ => "in a program of the machine",
    };
    match decision {
        Decision::Allow => format!("Allowed by {by} {place}."),
        Decision::Deny => format!("Denied by {by} {place}."),
        Decision::Answer => format!("{by} answered {place}: {}", answer.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use protocol::ApprovalId;

    use super::*;

    fn question(is_question: bool) -> ShownQuestion {
        let word = |text: &str| text.to_owned();
        let (channel, root, ts) = (word("C1"), word("1.1"), word("1.2"));
        ShownQuestion { channel, root, ts, digest: word("d"), title: word("May it?"), is_question }
    }

    fn press(action: &str, value: &str) -> SlackPress {
        let (user, approval) = ("U1".to_owned(), ApprovalId::new(1).to_string());
        SlackPress { user, approval, action: action.to_owned(), value: value.to_owned() }
    }

    #[test]
    fn a_press_decides_about_what_was_shown() {
        let made = |is_question, action, value| {
            let response = question(is_question).decision(&press(action, value))?;
            Some((response.decision, response.digest, response.answer))
        };
        let digest = || "d".to_owned();
        assert_eq!(made(false, "allow", "allow"), Some((Decision::Allow, digest(), None)));
        assert_eq!(made(false, "deny", ""), Some((Decision::Deny, digest(), None)));
        assert_eq!(made(true, "option", "Blue"), Some((Decision::Answer, digest(), Some("Blue".to_owned()))));
        assert_eq!(made(true, "text", " "), None);
        assert_eq!(made(true, "allow", "allow"), None, "an answer permits nothing");
        assert_eq!(ShownQuestion::read(&question(true).json()), Some(question(true)));
    }

    #[test]
    fn what_is_asked_cannot_break_out_of_its_frame() {
        let asked: ApprovalRequest = serde_json::from_value(json!({
            "approvalId": ApprovalId::new(1), "kind": "tool", "digest": "d", "tool": "shell",
            "preview": "echo ```\n<!channel>", "risk": "It may <@U1> delete.",
        }))
        .expect("a request");
        let blocks = blocks(&asked);
        let text = blocks[0]["text"]["text"].as_str().expect("a text");
        assert!(!text.contains("<!channel>") && !text.contains("<@U1>"), "{text}");
        assert_eq!(text.matches("```").count(), 2, "{text}");
        assert_eq!(blocks[1]["elements"][0]["action_id"], "approval:allow");
    }
}
