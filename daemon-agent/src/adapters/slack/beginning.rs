//! A message that was about to be begun when the process, or the connection, ended: nobody knows whether Slack has it. It is
//! looked for, and removed, before it is begun anew, so that its words stand there once.

use std::sync::Arc;

use protocol::AttemptRef;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    api::{SlackApi, SlackError},
    store::SlackThread,
};
use crate::{adapters::pump::Cursors, clock::Clock};

/// Letters by which it is known.
const MAX_WORDS_CHARS: usize = 400;
/// How much Slack's clock may be behind, seconds.
const MAX_SKEW_SECONDS: i64 = 60;
/// Messages of the thread that are looked at.
const MAX_MESSAGES: u32 = 100;

/// What is known of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beginning {
    /// Its letters and digits: Slack writes the others in its own way.
    words: String,
    /// It is newer than that: a `ts`.
    since: String,
}

/// Where it is noted.
#[derive(Clone)]
pub struct BeginningNotes {
    pub cursors: Arc<Cursors>,
    pub clock: Clock,
    /// Who writes it: the bot, as a user of Slack.
    pub bot: String,
}

impl BeginningNotes {
    /// Notes, on disk, that a message with this text is begun next, behind the one with the `ts` `newest`. Nothing else that is
    /// noted changes.
    pub async fn note(&self, attempt: &AttemptRef, text: &str, newest: String) -> Beginning {
        let by_clock = format!("{}.000000", self.clock.now().millis() / 1_000 - MAX_SKEW_SECONDS);
        // What was said before may have the same words.
        let since = if (by_clock.len(), &by_clock) < (newest.len(), &newest) { newest } else { by_clock };
        let beginning = Beginning { words: words(text), since };
        let mut cursor = self.cursors.of(attempt);
        if !cursor.note.is_object() {
            cursor.note = json!({});
        }
        cursor.note[Beginning::KEY] = json!(beginning);
        self.cursors.set(attempt, cursor).await;
        beginning
    }
}

impl Beginning {
    /// Its place in the note of an attempt.
    pub const KEY: &str = "beginning";

    /// The one that a former process noted.
    pub fn read(note: &Value) -> Option<Self> {
        serde_json::from_value(note.get(Self::KEY)?.clone()).ok()
    }

    /// Removes the message if Slack has it from `bot`. An error means that Slack cannot be asked now.
    pub async fn remove(&self, api: &SlackApi, thread: &SlackThread, bot: &str) -> Result<(), SlackError> {
        if self.words.is_empty() {
            return Ok(());
        }
        let asked = json!({
            "channel": thread.channel, "ts": thread.root, "oldest": self.since, "limit": MAX_MESSAGES,
        });
        let found = match api.call("conversations.replies", &asked).await {
            Ok(found) => found,
            Err(error) if error.may_pass() && !is_unscoped(&error) => return Err(error),
            Err(error) => {
                tracing::debug!("what was begun before cannot be looked for: {error}");
                return Ok(());
            }
        };
        let all = found["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(ts) =
            all.iter().rev().find(|message| self.is(message, bot)).and_then(|message| message["ts"].as_str())
        else {
            return Ok(());
        };
        let named = json!({ "channel": thread.channel, "ts": ts });
        // One that is still streamed ends first. Slack lets nobody remove what another one wrote.
        for method in ["chat.stopStream", "chat.delete"] {
            if let Err(error) = api.call(method, &named).await {
                tracing::debug!("a message that was begun before: {method}: {error}");
            }
        }
        Ok(())
    }

    fn is(&self, message: &Value, bot: &str) -> bool {
        // Another app may say the same. Just started, the bot may not know yet who it is.
        let is_bots = bot.is_empty() || message["user"].as_str().is_none_or(|user| user == bot);
        let is_ours = is_bots && message["bot_id"].is_string();
        is_ours && words(message["text"].as_str().unwrap_or_default()) == self.words
    }
}

/// Whether Slack does not let the app read the conversation: waiting for that would hold up the answer.
fn is_unscoped(error: &SlackError) -> bool {
    matches!(error, SlackError::Refused(code) if ["missing_scope", "no_permission"].contains(&code.as_str()))
}

fn words(text: &str) -> String {
    let plain = text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    plain.chars().filter(|c| c.is_alphanumeric()).take(MAX_WORDS_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_by_its_words_however_slack_writes_the_rest() {
        let beginning = Beginning { words: words("It is **green** & done."), since: String::new() };
        let said = |text: &str| json!({ "bot_id": "B1", "user": "U1", "text": text, "ts": "1.2" });
        assert!(beginning.is(&said("It is *green* &amp; done."), "U1"));
        assert!(!beginning.is(&said("It is *green* &amp; done."), "U2"), "another bot's");
        assert!(!beginning.is(&said("It is *green* &amp; done. More."), "U1"), "another one");
        assert!(!beginning.is(&json!({ "text": "It is *green* &amp; done." }), "U1"), "a person's");
        let noted = json!({ "said": true, "beginning": beginning });
        assert_eq!((Beginning::read(&noted), Beginning::read(&Value::Null)), (Some(beginning), None));
    }
    #[tokio::test]
    async fn it_is_newer_than_what_slack_has_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        let cursors = Arc::new(Cursors::open(folder.path().join("cursors.json")));
        let notes = BeginningNotes { cursors, clock: Clock::system(), bot: "U1".to_owned() };
        let attempt = AttemptRef { task_id: protocol::TaskId::new(1), attempt: 1 };
        let at = |seconds: i64| format!("{}.000200", notes.clock.now().millis() / 1_000 + seconds);
        let since = async |newest: &str| notes.note(&attempt, "Done.", newest.to_owned()).await.since;
        let (lately, before) = (at(-20), at(-2 * MAX_SKEW_SECONDS));
        assert_eq!(since(&lately).await, lately);
        assert_ne!(since(&before).await, before);
        assert!(since("").await.ends_with(".000000"));
        assert!(notes.cursors.of(&attempt).note[Beginning::KEY].is_object());
    }
}
