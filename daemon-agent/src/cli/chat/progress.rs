//! What of a conversation is still under way: tasks that run, and messages of which is not known yet whether they were told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What is known of the tasks and messages of a conversation.
#[derive(Debug, Default)]
pub struct ConversationProgress {
    /// Tasks that have not ended, with their sessions.
    running: BTreeMap<String, String>,
    ended: BTreeSet<String>,
    /// Messages that a running task was given, in order.
    given: Vec<GivenMessage>,
    /// Messages that were told, or are done with without.
    settled: BTreeSet<String>,
    /// Tasks of which only is known that they began, with their sessions.
    strays: Vec<(String, String)>,
}

/// A message that a running task was given. One that is not told is the session's next task.
#[derive(Debug)]
struct GivenMessage {
    id: String,
    task: String,
    session: String,
}

impl ConversationProgress {
    /// Whether nothing is under way any more.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty() && self.given.is_empty()
    }

    /// The sessions to interrupt: `session` if something runs there, else all in which something does.
    pub fn sessions(&self, session: Option<&str>) -> Vec<String> {
        let all: BTreeSet<&String> = self.running.values().collect();
        match session.filter(|session| all.iter().any(|known| *known == session)) {
            Some(session) => vec![session.to_owned()],
            None => all.into_iter().cloned().collect(),
        }
    }

    /// A line of the daemon.
    pub fn hear(&mut self, line: &Value) {
        let word = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let (task, session) = (word("taskId"), word("sessionId"));
        match line["type"].as_str().unwrap_or_default() {
            "accepted" if line["done"] == true => {}
            "accepted" if line["messageId"].is_string() => self.given(word("messageId"), task, session),
            "accepted" => {
                self.strays.retain(|(known, _)| *known != task);
                if !self.ended.contains(&task) {
                    self.running.insert(task, session);
                }
            }
            "task:announce" => self.begun(task, session),
            "message-state" if matches!(line["state"].as_str(), Some("consumed" | "discarded" | "withdrawn")) => {
                let id = word("messageId");
                self.given.retain(|given| given.id != id);
                self.settled.insert(id);
            }
            kind @ ("task:completed" | "task:error" | "task:stopped") => {
                self.running.remove(&task);
                // After a stop nothing of it is begun.
                self.given.retain(|given| kind != "task:stopped" || given.task != task);
                self.ended.insert(task);
            }
            _ => {}
        }
    }

    fn given(&mut self, id: String, task: String, session: String) {
        // What becomes of it may be heard before the answer.
        let begun = self.strays.iter().position(|(_, known)| *known == session);
        match begun.filter(|_| self.ended.contains(&task)) {
            _ if self.settled.contains(&id) => {}
            Some(at) => drop(self.strays.remove(at)),
            None => self.given.push(GivenMessage { id, task, session }),
        }
    }

    /// A task began in a session: the oldest message that the one before it was not told, if there is one.
    fn begun(&mut self, task: String, session: String) {
        if self.running.contains_key(&task) || self.ended.contains(&task) {
            return;
        }
        let is_untold = |given: &GivenMessage| given.session == session && self.ended.contains(&given.task);
        match self.given.iter().position(is_untold) {
            Some(at) => drop(self.given.remove(at)),
            None => self.strays.push((task.clone(), session.clone())),
        }
        self.running.insert(task, session);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn heard(lines: &[Value]) -> ConversationProgress {
        let mut progress = ConversationProgress::default();
        lines.iter().for_each(|line| progress.hear(line));
        progress
    }

    fn accepted(task: &str, message: Option<&str>) -> Value {
        json!({ "type": "accepted", "taskId": task, "sessionId": "s", "messageId": message, "done": false })
    }

    fn event(kind: &str, task: &str) -> Value {
        json!({ "type": kind, "taskId": task, "sessionId": "s" })
    }

    fn told(message: &str) -> Value {
        json!({ "type": "message-state", "taskId": "a", "messageId": message, "state": "consumed" })
    }

    #[test]
    fn a_task_is_under_way_until_it_ends_whichever_is_heard_first() {
        assert!(heard(&[]).is_idle());
        assert!(!heard(&[accepted("a", None), event("task:announce", "a")]).is_idle());
        assert!(heard(&[accepted("a", None), event("task:completed", "a")]).is_idle());
        assert!(heard(&[event("task:error", "a"), accepted("a", None)]).is_idle());
        let done = json!({ "type": "accepted", "taskId": "a", "sessionId": "s", "done": true });
        assert!(heard(&[done]).is_idle());
    }

    #[test]
    fn a_message_is_under_way_until_it_was_told_or_its_own_task_ended() {
        let (a, given, ends) = (accepted("a", None), accepted("a", Some("m")), event("task:completed", "a"));
        let (begins, over) = (event("task:announce", "b"), event("task:completed", "b"));
        let untold = [a.clone(), given.clone(), ends.clone()];
        assert!(!heard(&untold).is_idle(), "it is the next task");
        assert!(heard(&[a.clone(), given.clone(), told("m"), ends.clone()]).is_idle());
        assert!(heard(&[a.clone(), told("m"), given.clone(), ends.clone()]).is_idle());
        assert!(heard(&[a.clone(), given.clone(), event("task:stopped", "a")]).is_idle());
        let next = [untold.as_slice(), std::slice::from_ref(&begins)].concat();
        assert!(!heard(&next).is_idle());
        assert!(heard(&[next.as_slice(), std::slice::from_ref(&over)].concat()).is_idle());
        // The answer comes last; the first task's own beginning is none of it.
        assert!(heard(&[a.clone(), ends.clone(), begins, over, given.clone()]).is_idle());
        assert!(!heard(&[event("task:announce", "a"), a, ends, given]).is_idle());
    }

    #[test]
    fn an_interrupt_hits_what_runs_here_and_nothing_else() {
        let elsewhere = json!({ "type": "accepted", "taskId": "b", "sessionId": "other", "done": false });
        let progress = heard(&[accepted("a", None), elsewhere]);
        assert_eq!(progress.sessions(Some("s")), ["s"]);
        assert_eq!(progress.sessions(None), ["other", "s"]);
        assert_eq!(progress.sessions(Some("new")), ["other", "s"]);
        assert!(heard(&[]).sessions(Some("s")).is_empty());
    }
}
