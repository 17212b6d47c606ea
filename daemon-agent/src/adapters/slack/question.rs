//! What agents ask, as buttons of Slack, and what becomes of these when somebody decided. Pure.

use protocol::{AgentQuestion, ApprovalKind, ApprovalRequest, ApprovalResponse, Decision, text::marked_lines};
use serde_json::{Value, json};

use super::{inbound::SlackPress, text::escaped};

/// Longest piece of a text, bytes, and the same with its escapes: a section of Slack has at most 3,000 characters.
const MAX_PIECE_BYTES: usize = 2_400;
const MAX_SECTION_BYTES: usize = 2_800;
/// Sections that one text is shown in at most. What does not fit is decided on the Board.
const MAX_SECTIONS: usize = 4;
/// Longest reason, and longest part of an option, that is shown, bytes.
const MAX_LINE_BYTES: usize = 1_200;
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

/// The blocks of a question. A limit is raised on the Board, which knows the numbers; here it can only be denied. So can what
/// is longer than Slack shows: nobody allows what they do not see.
pub fn blocks(asked: &ApprovalRequest) -> Value {
    let id = &asked.approval_id;
    let mut blocks = vec![section(&format!("*{}*", shown(&title(asked), MAX_LINE_BYTES)))];
    if let Some(question) = &asked.question {
        let (pieces, is_whole) = pieces(&question.text);
        blocks.extend(pieces.into_iter().map(|piece| section(&escaped(piece))));
        if !is_whole {
            blocks.push(section("_It is longer than Slack shows: the Board has all of it._"));
        }
        ask_words(&mut blocks, question, id.as_str());
        return json!(blocks);
    }
    for line in [&asked.reason, &asked.risk].into_iter().filter(|line| !line.is_empty()) {
        blocks.push(section(&shown(line, MAX_LINE_BYTES)));
    }
    let preview = marked_lines(asked.preview.trim());
    let (pieces, is_whole) = pieces(&preview);
    let code = |piece: &str| format!("```\n{}\n```", escaped(piece.trim_end_matches('\n')).replace("```", "'''"));
    blocks.extend(pieces.into_iter().map(|piece| section(&code(piece))));
    if !is_whole {
        blocks.push(section("_It is longer than Slack shows: allow it on the Board._"));
    }
    let mut elements = Vec::new();
    if asked.kind != ApprovalKind::Budget && is_whole {
        elements.push(button("Allow once", "approval:allow", "allow", Some("primary")));
    }
    elements.push(button("Deny", "approval:deny", "deny", Some("danger")));
    blocks.push(json!({ "type": "actions", "block_id": format!("approval:{id}:buttons"), "elements": elements }));
    json!(blocks)
}

/// Adds what a question may be answered with: its options, and words.
fn ask_words(blocks: &mut Vec<Value>, question: &AgentQuestion, id: &str) {
    for (n, option) in question.options.iter().enumerate().filter(|(_, option)| !option.trade_off.is_empty()) {
        let mark = if question.recommended == u32::try_from(n).ok() { " (recommended)" } else { "" };
        let (label, trade_off) = (shown(&option.label, MAX_LINE_BYTES), shown(&option.trade_off, MAX_LINE_BYTES));
        blocks.push(section(&format!("• *{label}*{mark}: {trade_off}")));
    }
    let choices = question.options.iter().enumerate();
    let choices = choices
        .map(|(n, option)| button(&option.label, &format!("approval:option:{n}"), &option.label, None))
        .collect::<Vec<Value>>();
    if !choices.is_empty() {
        blocks.push(json!({ "type": "actions", "block_id": format!("approval:{id}:choices"), "elements": choices }));
    }
    blocks.push(json!({
        "type": "input", "block_id": format!("approval:{id}:words"), "dispatch_action": true,
        "label": { "type": "plain_text", "text": "Your own words" },
        "element": { "type": "plain_text_input", "action_id": "approval:text" },
    }));
}

fn section(text: &str) -> Value {
    json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } })
}

/// A text in pieces of which each fits a section, with its escapes, and whether these are all of it.
fn pieces(text: &str) -> (Vec<&str>, bool) {
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() && pieces.len() < MAX_SECTIONS {
        let mut piece = protocol::text::head(rest, MAX_PIECE_BYTES);
        while escaped(piece).len() > MAX_SECTION_BYTES {
            piece = protocol::text::head(piece, piece.len() * 3 / 4);
        }
        if let Some(end) = piece.rfind('\n').filter(|end| piece.len() < rest.len() && *end > piece.len() / 2) {
            piece = &piece[..=end];
        }
        pieces.push(piece);
        rest = &rest[piece.len()..];
    }
    (pieces, rest.is_empty())
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
    let text = format!("*{}*\n{}", shown(title, MAX_LINE_BYTES), shown(outcome, MAX_LINE_BYTES));
    let blocks = json!([section(&text)]);
    (text, blocks)
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
        let word = |text: &str| text.to_owned();
        let (user, approval) = (word("U1"), ApprovalId::new(1).to_string());
        let (message, channel) = (word("1.2"), word("C1"));
        SlackPress { user, message, channel, approval, action: word(action), value: word(value) }
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
            "preview": "echo ```\n<!channel> \u{202e}", "risk": "It may <@U1> delete.",
        }))
        .expect("a request");
        let blocks = blocks(&asked);
        let all = blocks.to_string();
        assert!(!all.contains("<!channel>") && !all.contains("<@U1>"), "{all}");
        let preview = blocks[2]["text"]["text"].as_str().expect("a preview");
        assert_eq!(preview.matches("```").count(), 2, "{preview}");
        assert!(preview.contains("⟨U+202E⟩"), "what does not show is shown: {preview}");
        assert_eq!(blocks[3]["elements"][0]["action_id"], "approval:allow");
    }

    #[test]
    fn what_is_not_shown_whole_cannot_be_allowed() {
        let asked = |preview: String| -> Value {
            let json = json!({
                "approvalId": ApprovalId::new(1), "kind": "tool", "digest": "d", "tool": "shell", "preview": preview,
            });
            blocks(&serde_json::from_value(json).expect("a request"))
        };
        let actions = |blocks: &Value| -> Vec<String> {
            let elements = blocks.as_array().into_iter().flatten().filter_map(|block| block["elements"].as_array());
            elements.flatten().map(|element| element["action_id"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let fits = |blocks: &Value| {
            let mut texts = blocks.as_array().into_iter().flatten().filter_map(|block| block["text"]["text"].as_str());
            texts.all(|text| text.len() <= 3_000)
        };
        let long = asked("echo <one> && echo two\n".repeat(200));
        assert!(fits(&long) && long.to_string().matches("echo two").count() == 200, "{long:#}");
        assert_eq!(actions(&long), ["approval:allow", "approval:deny"]);
        let longer = asked(format!("{}rm -rf ~", "echo one\n".repeat(5_000)));
        assert!(fits(&longer) && !longer.to_string().contains("rm -rf"), "{longer:#}");
        assert_eq!(actions(&longer), ["approval:deny"]);
        assert!(pieces("").1, "nothing is shown whole");
        assert!(pieces(&"&".repeat(9_000)).0.iter().all(|piece| escaped(piece).len() <= MAX_SECTION_BYTES));
    }

    #[test]
    fn a_question_is_asked_whole_with_its_options() {
        let json = json!({
            "approvalId": ApprovalId::new(1), "kind": "question", "digest": "d", "tool": "ask_operator",
            "question": {
                "text": "Which one?\n".repeat(700), "recommended": 1, "onTimeout": "",
                "options": [{ "label": "a".repeat(200), "tradeOff": "b".repeat(1_000) }, { "label": "Blue", "tradeOff": "c" }],
            },
        });
        let blocks = blocks(&serde_json::from_value(json).expect("a request"));
        let all = blocks.to_string();
        assert_eq!(all.matches("Which one?").count(), 700);
        assert!(all.contains(&"b".repeat(1_000)) && all.contains("Blue* (recommended): c"), "{blocks:#}");
        let last = blocks.as_array().and_then(|all| all.last()).expect("words");
        assert_eq!((&last["type"], &last["element"]["action_id"]), (&json!("input"), &json!("approval:text")));
    }
}
