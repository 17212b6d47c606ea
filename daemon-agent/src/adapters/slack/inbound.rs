//! What an envelope of Slack means: somebody says something, presses a button, or nothing that concerns us. Pure.

use serde_json::Value;

use super::text::plain;

/// Files of one message that are taken.
const MAX_FILES: usize = 16;

/// Who the bot is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BotIdentity {
    /// `U…`
    pub user: String,
    pub team: String,
}

/// What arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlackInput {
    Said(SlackSaid),
    Pressed(SlackPress),
    /// Nothing to be done.
    Nothing,
}

/// Somebody said something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlackSaid {
    pub channel: String,
    /// The `ts` of the message, and of the first one of its thread.
    pub ts: String,
    pub root: String,
    pub user: String,
    pub team: String,
    pub text: String,
    pub files: Vec<SlackFile>,
    /// Said to the bot alone, or with its name.
    pub is_addressed: bool,
    /// In a conversation with the bot alone.
    pub is_direct: bool,
}

/// A file that somebody sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlackFile {
    pub name: String,
    /// Empty where Slack does not say.
    pub url: String,
}

/// Somebody pressed a button, or wrote an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlackPress {
    pub user: String,
    /// The message that it belongs to, and its channel.
    pub message: String,
    pub channel: String,
    /// The approval that it is about.
    pub approval: String,
    /// `allow`, `deny`, `option` or `text`.
    pub action: String,
    /// The option or the words.
    pub value: String,
}

/// A name for an envelope that is the same when it is delivered again.
pub fn key(envelope: &Value) -> String {
    let payload = &envelope["payload"];
    let event = &payload["event"];
    if let Some((channel, ts)) = event["channel"].as_str().zip(event["ts"].as_str()).filter(|_| is_said(event)) {
        // A mention arrives twice, as that and as a message. Edited, it is another one.
        return format!("said:{channel}:{ts}:{}", event["edited"]["ts"].as_str().unwrap_or_default());
    }
    let named = payload["event_id"].as_str().or_else(|| payload["actions"][0]["action_ts"].as_str());
    let of = named.or_else(|| envelope["envelope_id"].as_str()).unwrap_or_default();
    format!("{}:{of}", envelope["type"].as_str().unwrap_or_default())
}

/// What the payload of an envelope belongs to: what is said in a thread, or done about a question, has an order.
pub fn group(payload: &Value) -> String {
    let event = &payload["event"];
    let root = event["thread_ts"].as_str().or_else(|| event["ts"].as_str());
    match (event["channel"].as_str(), root, payload["actions"][0]["block_id"].as_str()) {
        (Some(channel), Some(root), _) => format!("{channel}:{root}"),
        (_, _, Some(block)) => block.to_owned(),
        _ => String::new(),
    }
}

/// Whether an event is what a person said: not edits, joins and the like; a message with files is one.
fn is_said(event: &Value) -> bool {
    matches!(event["type"].as_str(), Some("message" | "app_mention"))
        && matches!(event["subtype"].as_str(), None | Some("file_share" | "thread_broadcast"))
}

/// Reads the payload of an envelope.
pub fn read(payload: &Value, own: &BotIdentity) -> SlackInput {
    match payload["type"].as_str() {
        Some("event_callback") => said(payload, own),
        Some("block_actions") => pressed(payload),
        _ => SlackInput::Nothing,
    }
}

fn said(payload: &Value, own: &BotIdentity) -> SlackInput {
    let event = &payload["event"];
    let word = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    let (user, text) = (word("user"), word("text"));
    let is_bot = event["bot_id"].is_string() || event["bot_profile"].is_object() || user == own.user;
    if !is_said(event) || is_bot || user.is_empty() || word("channel").is_empty() || word("ts").is_empty() {
        return SlackInput::Nothing;
    }
    let is_direct = event["channel_type"] == "im";
    let is_addressed = is_direct || event["type"] == "app_mention" || text.contains(&format!("<@{}>", own.user));
    let files = event["files"].as_array().into_iter().flatten().map(file).take(MAX_FILES);
    let (ts, root) = (word("ts"), word("thread_ts"));
    let team = payload["team_id"].as_str().unwrap_or(&own.team).to_owned();
    SlackInput::Said(SlackSaid {
        channel: word("channel"),
        root: if root.is_empty() { ts.clone() } else { root },
        ts,
        user,
        team: event["user_team"].as_str().or_else(|| event["team"].as_str()).map_or(team, str::to_owned),
        text: plain(&text, &own.user),
        files: files.collect(),
        is_addressed,
        is_direct,
    })
}

fn file(file: &Value) -> SlackFile {
    let url = file["url_private_download"].as_str().or_else(|| file["url_private"].as_str()).unwrap_or_default();
    let name = file["name"].as_str().filter(|name| !name.is_empty()).unwrap_or("file");
    let name: String = name.chars().map(|c| if c.is_control() || matches!(c, '/' | '\\') { '_' } else { c }).collect();
    let name = protocol::text::head(name.trim_start_matches('.'), 200).to_owned();
    SlackFile { name: if name.is_empty() { "file".to_owned() } else { name }, url: url.to_owned() }
}

fn pressed(payload: &Value) -> SlackInput {
    let action = &payload["actions"][0];
    // `approval:allow`, `approval:option:0`
    let mut words = action["action_id"].as_str().unwrap_or_default().splitn(3, ':');
    let ("approval", Some(verb)) = (words.next().unwrap_or_default(), words.next()) else { return SlackInput::Nothing };
    let id = action["block_id"].as_str().and_then(|block| block.strip_prefix("approval:"));
    let Some((user, approval)) = payload["user"]["id"].as_str().zip(id) else { return SlackInput::Nothing };
    let approval = approval.split(':').next().unwrap_or_default();
    let of_message = |key: &str| payload["container"][key].as_str().unwrap_or_default().to_owned();
    SlackInput::Pressed(SlackPress {
        user: user.to_owned(),
        message: of_message("message_ts"),
        channel: of_message("channel_id"),
        approval: approval.to_owned(),
        action: verb.to_owned(),
        value: action["value"].as_str().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn own() -> BotIdentity {
        BotIdentity { user: "UBOT".to_owned(), team: "T1".to_owned() }
    }

    fn event(event: Value) -> SlackInput {
        read(&json!({ "type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event }), &own())
    }

    #[test]
    fn a_mention_and_its_message_say_the_same() {
        let mention =
            json!({ "type": "app_mention", "user": "U1", "text": "<@UBOT> fix it", "ts": "1.2", "channel": "C1" });
        let SlackInput::Said(said) = event(mention) else { panic!("nothing said") };
        assert_eq!(
            (said.text.as_str(), said.root.as_str(), said.is_addressed, said.is_direct),
            ("fix it", "1.2", true, false)
        );
        let message =
            json!({ "type": "message", "user": "U1", "text": "<@UBOT> fix it", "ts": "1.2", "channel": "C1" });
        assert_eq!(event(message), SlackInput::Said(said));
    }

    #[test]
    fn a_reply_has_the_thread_of_its_first_message() {
        let reply = json!({
            "type": "message", "user": "U1", "text": "and that", "ts": "2.0", "thread_ts": "1.2", "channel": "D1",
            "channel_type": "im", "subtype": "file_share",
            "files": [{ "name": "../a.txt", "url_private_download": "https://files.slack.com/a" }],
        });
        let SlackInput::Said(said) = event(reply) else { panic!("nothing said") };
        assert_eq!((said.root.as_str(), said.is_direct, said.files[0].name.as_str()), ("1.2", true, "_a.txt"));
    }

    #[test]
    fn bots_edits_and_other_events_say_nothing() {
        for other in [
            json!({ "type": "message", "user": "UBOT", "text": "hi", "ts": "1", "channel": "C1" }),
            json!({ "type": "message", "bot_id": "B2", "user": "U2", "text": "<@UBOT>", "ts": "1", "channel": "C1" }),
            json!({ "type": "message", "subtype": "message_changed", "user": "U1", "ts": "1", "channel": "C1" }),
            json!({ "type": "reaction_added", "user": "U1", "ts": "1", "channel": "C1" }),
            json!({ "type": "message", "text": "hi", "ts": "1", "channel": "C1" }),
        ] {
            assert_eq!(event(other.clone()), SlackInput::Nothing, "{other}");
        }
        assert_eq!(read(&json!({ "type": "view_submission" }), &own()), SlackInput::Nothing);
    }

    #[test]
    fn a_button_names_its_approval() {
        let press = json!({
            "type": "block_actions", "user": { "id": "U1" },
            "container": { "type": "message", "message_ts": "1.2", "channel_id": "C1" },
            "actions": [{ "action_id": "approval:option:1", "block_id": "approval:apr_1:choices", "value": "Blue" }],
        });
        let SlackInput::Pressed(press) = read(&press, &own()) else { panic!("nothing pressed") };
        let words = (press.user.as_str(), press.approval.as_str(), press.action.as_str(), press.value.as_str());
        assert_eq!(words, ("U1", "apr_1", "option", "Blue"));
        assert_eq!((press.channel.as_str(), press.message.as_str()), ("C1", "1.2"));
    }

    #[test]
    fn a_redelivered_envelope_has_the_same_name() {
        let first = json!({ "type": "events_api", "envelope_id": "a", "payload": { "event_id": "Ev1" } });
        let again =
            json!({ "type": "events_api", "envelope_id": "b", "retry_attempt": 1, "payload": { "event_id": "Ev1" } });
        assert_eq!(key(&first), key(&again));
    }

    #[test]
    fn a_mention_and_its_message_are_one_envelope_and_an_edit_is_another() {
        let of = |kind: &str, id: &str, more: Value| {
            let mut event = json!({ "type": kind, "channel": "C1", "ts": "1.2", "user": "U1", "text": "<@UBOT> stop" });
            event.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            key(&json!({ "type": "events_api", "envelope_id": id, "payload": { "event_id": id, "event": event } }))
        };
        let first = of("app_mention", "a", json!({}));
        assert_eq!(first, of("message", "b", json!({})));
        assert_ne!(first, of("app_mention", "c", json!({ "edited": { "user": "U1", "ts": "1.3" } })));
        assert_ne!(first, of("message", "d", json!({ "ts": "1.4" })));
        assert_ne!(first, of("message", "e", json!({ "subtype": "message_changed" })));
    }

    #[test]
    fn what_belongs_together_has_an_order() {
        let said = |thread: Value| json!({ "event": { "channel": "C1", "ts": "1.2", "thread_ts": thread } });
        assert_eq!((group(&said(Value::Null)).as_str(), group(&said(json!("1.1"))).as_str()), ("C1:1.2", "C1:1.1"));
        assert_eq!(group(&json!({ "actions": [{ "block_id": "approval:a:buttons" }] })), "approval:a:buttons");
    }

    #[test]
    fn a_file_that_slack_does_not_say_the_place_of_is_not_left_out() {
        let shared = json!({
            "type": "message", "user": "U1", "text": "look", "ts": "2.0", "channel": "D1", "channel_type": "im",
            "files": [{ "name": "a.txt", "file_access": "check_file_info" }],
        });
        let SlackInput::Said(said) = event(shared) else { panic!("nothing said") };
        assert_eq!(said.files, [SlackFile { name: "a.txt".to_owned(), url: String::new() }]);
    }
}
