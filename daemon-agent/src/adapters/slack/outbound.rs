//! What an agent does, as messages of its thread. An event counts as told when Slack has it; the cursor says so on disk.

use std::sync::Arc;

use protocol::{
    AdapterState, AgentStreamEvent, ApprovalKind, ApprovalRequest, EventBody, StepState,
    text::{head, head_and_tail},
};
use serde_json::json;

use super::{
    SlackAdapter,
    answer::ThreadAnswer,
    api::{SlackApi, SlackError},
    beginning::BeginningNotes,
    question::{self, ShownQuestion},
    text::escaped,
};
use crate::{adapters::StreamedEvent, adapters::pump::AttemptCursor};

/// Longest reason or error that is shown, bytes.
const MAX_REASON_BYTES: usize = 1_000;
/// Text that may wait before the pump waits for Slack, bytes.
const MAX_WAITING_BYTES: usize = 64 * 1024;
/// What stands where the log has a hole.
const MISSING_PART: &str = "\n\n_(A part of it is missing here. What the Board has is on its page.)_\n\n";

impl SlackAdapter {
    /// Tells Slack an event, at once or with others. An error means that nothing can be told there any more.
    pub(super) async fn tell(&self, event: StreamedEvent) -> Result<(), String> {
        let api = self.api()?;
        let Some(answer) = self.answer(&event) else { return Err("its thread is not known any more".to_owned()) };
        let mut open = answer.lock().await;
        let is_last = event.is_last();
        let mut waits = false;
        loop {
            match self.show(&mut open, &event, api).await {
                Ok(()) => break,
                // `call` has tried for a while: it is tried until Slack is there again, or whoever runs the app has mended it.
                Err(error) if error.may_pass() => {
                    tracing::warn!("{error}: what an agent says waits for Slack");
                    self.mesh.report_adapter(super::SLACK, AdapterState::Failed, Some(error.to_string()));
                    waits = true;
                    tokio::time::sleep(super::RETRY_INTERVAL).await;
                }
                Err(error) => {
                    self.answers().remove(&event.attempt);
                    return Err(error.to_string());
                }
            }
        }
        if waits {
            self.mesh.report_adapter(super::SLACK, AdapterState::Connected, None);
        }
        open.seen = event.event.seq;
        if is_last {
            self.answers().remove(&event.attempt);
            return Ok(());
        }
        match open.flush_in() {
            None if is_shown(&event) || open.is_note_due() => {
                open.note_now();
                self.note(&open).await;
            }
            // Nothing is shown of it: after a kill it is read once more.
            None => {}
            Some(wait) if wait.is_zero() || open.waiting_bytes() > MAX_WAITING_BYTES => {
                drop(open);
                self.flush(&answer).await;
            }
            Some(wait) if !std::mem::replace(&mut open.is_due, true) => self.flush_later(&answer, wait),
            Some(_) => {}
        }
        Ok(())
    }

    /// The answer of the event's attempt, which goes on where it was before a restart.
    fn answer(&self, event: &StreamedEvent) -> Option<Arc<tokio::sync::Mutex<ThreadAnswer>>> {
        if let Some(known) = self.answers().get(&event.attempt) {
            return Some(known.clone());
        }
        let cursor = self.cursors.of(&event.attempt);
        let thread = self.threads.of_session(cursor.session.as_ref()?)?;
        let bot = self.own.get().map(|own| own.user.clone()).unwrap_or_default();
        let notes = BeginningNotes { cursors: self.cursors.clone(), clock: self.mesh.clock().clone(), bot };
        let answer = ThreadAnswer::new(event.attempt.clone(), thread, &cursor.note, notes);
        let answer = Arc::new(tokio::sync::Mutex::new(answer));
        self.answers().insert(event.attempt.clone(), answer.clone());
        Some(answer)
    }

    /// Flushes an answer when it is time, whether or not another event comes.
    fn flush_later(&self, answer: &Arc<tokio::sync::Mutex<ThreadAnswer>>, wait: std::time::Duration) {
        let (Some(finish), Ok(api)) = (self.finish.get().cloned(), self.api().cloned()) else { return };
        let (answer, cursors) = (answer.clone(), self.cursors.clone());
        self.flushes.spawn(async move {
            if finish.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
            let flushed = flush_open(&answer, &api, &cursors);
            let _ = finish.run_until_cancelled(flushed).await;
        });
    }

    async fn flush(&self, answer: &Arc<tokio::sync::Mutex<ThreadAnswer>>) {
        if let Ok(api) = self.api() {
            flush_open(answer, api, &self.cursors).await;
        }
    }

    /// Notes that Slack has everything up to the last event.
    pub(super) async fn note(&self, answer: &ThreadAnswer) {
        self.cursors.set(&answer.attempt, cursor_of(answer)).await;
    }

    /// Shows one event. Text only waits.
    async fn show(&self, answer: &mut ThreadAnswer, event: &StreamedEvent, api: &SlackApi) -> Result<(), SlackError> {
        if event.is_last() {
            for approval in self.threads.questions_in(&answer.thread) {
                self.settle(&approval, "Not asked any more: the task is over.", api).await?;
            }
        }
        match &event.event.body {
            EventBody::Progress { event } => match &event.event {
                AgentStreamEvent::TextDelta { content } => answer.push(content),
                AgentStreamEvent::Step { state: StepState::Started, .. } => answer.begin_step(),
                AgentStreamEvent::Step { state: StepState::Discarded, .. } => answer.withdraw(),
                AgentStreamEvent::ApprovalRequired(asked) => self.ask(answer, asked, api).await?,
                AgentStreamEvent::ApprovalDecided { approval_id, decision, by, adapter, answer: word, .. } => {
                    let outcome = question::outcome(*decision, by, adapter, word.as_deref());
                    self.settle(approval_id.as_str(), &outcome, api).await?;
                }
                AgentStreamEvent::ApprovalExpired { approval_id, reason } => {
                    self.settle(approval_id.as_str(), &format!("Not decided: {reason}."), api).await?;
                }
                AgentStreamEvent::ApprovalOutcome { approval_id, .. } => {
                    self.settle(approval_id.as_str(), "Decided on the Board.", api).await?;
                }
                AgentStreamEvent::Gap { .. } => answer.push(MISSING_PART),
                _ => {}
            },
            EventBody::Completed { result } => {
                if !answer.has_said {
                    answer.push(&result.text);
                }
                answer.flush(api).await?;
                // A message that is closed takes nothing more: after a kill none of its words come again.
                self.note(answer).await;
                answer.close(api).await;
                crate::fault::at("slack::closed");
                self.note(answer).await;
                self.send_files(answer, &result.artifact_refs).await?;
            }
            EventBody::Error { error } => {
                answer.flush(api).await?;
                self.note(answer).await;
                let more = error.suggestion.as_deref().map(|text| format!("\n{}", escaped(text))).unwrap_or_default();
                let text = head_and_tail(&error.message, MAX_REASON_BYTES);
                answer
                    .post(api, &format!(":warning: *Failed* ({}): {}{more}", error.code.as_str(), escaped(&text)), None)
                    .await?;
            }
            EventBody::Stopped { reason, .. } => {
                answer.flush(api).await?;
                self.note(answer).await;
                answer.post(api, &format!("_Stopped: {}._", escaped(head(reason, MAX_REASON_BYTES))), None).await?;
            }
            EventBody::Announce { .. } | EventBody::Accepted {} | EventBody::Started { .. } => {}
        }
        Ok(())
    }

    /// Puts a question with its buttons below what was said.
    async fn ask(&self, answer: &mut ThreadAnswer, asked: &ApprovalRequest, api: &SlackApi) -> Result<(), SlackError> {
        if asked.kind == ApprovalKind::Step {
            return Ok(());
        }
        if let Some(replaced) = &asked.replaces {
            self.settle(replaced.as_str(), "Allowed with other arguments.", api).await?;
        }
        let id = asked.approval_id.as_str();
        if asked.replaces.is_some() || self.threads.question(id).is_some() {
            return Ok(());
        }
        answer.flush(api).await?;
        let title = question::title(asked);
        let ts = match answer.post(api, &escaped(&title), Some(&question::blocks(asked))).await {
            // Not as Slack has it: that is no reason to tell nothing any more.
            Err(error) if !error.may_pass() && !error.is_lasting() => {
                tracing::warn!("a question cannot be shown: {error}");
                answer.post(api, &escaped(&format!("{title} Decide on the Board: {error}.")), None).await?;
                return Ok(());
            }
            posted => posted?,
        };
        let shown = ShownQuestion {
            channel: answer.thread.channel.clone(),
            root: answer.thread.root.clone(),
            ts,
            digest: asked.digest.clone(),
            title,
            is_question: asked.kind == ApprovalKind::Question,
        };
        self.keep_question(id, Some(shown.json()));
        Ok(())
    }

    /// Replaces the buttons of a question by what became of it.
    async fn settle(&self, approval: &str, outcome: &str, api: &SlackApi) -> Result<(), SlackError> {
        let Some(shown) = self.threads.question(approval).as_ref().and_then(ShownQuestion::read) else { return Ok(()) };
        let (text, blocks) = question::decided(&shown.title, outcome);
        let body = json!({ "channel": shown.channel, "ts": shown.ts, "text": text, "blocks": blocks });
        match api.call("chat.update", &body).await {
            Err(error) if error.may_pass() => return Err(error),
            Err(error) => tracing::warn!("a question stays as it is: {error}"),
            Ok(_) => {}
        }
        self.keep_question(approval, None);
        Ok(())
    }

    fn keep_question(&self, approval: &str, question: Option<serde_json::Value>) {
        if let Err(error) = self.threads.keep_question(approval, question) {
            tracing::error!("a question of Slack cannot be kept: {error}");
        }
    }
}

/// Gives Slack what waits of an answer, and notes how far that is.
async fn flush_open(
    answer: &Arc<tokio::sync::Mutex<ThreadAnswer>>,
    api: &SlackApi,
    cursors: &crate::adapters::pump::Cursors,
) {
    let mut open = answer.lock().await;
    open.is_due = false;
    match open.flush(api).await {
        Ok(()) => cursors.set(&open.attempt, cursor_of(&open)).await,
        // The next event, or the end, tries again.
        Err(error) => tracing::warn!("what an agent says waits for Slack: {error}"),
    }
}

fn cursor_of(answer: &ThreadAnswer) -> AttemptCursor {
    let session = Some(answer.thread.session.clone());
    AttemptCursor { next: answer.seen + 1, session, note: answer.note(), is_over: false }
}

/// Whether telling it again would show it a second time.
fn is_shown(event: &StreamedEvent) -> bool {
    let EventBody::Progress { event } = &event.event.body else { return false };
    matches!(
        event.event,
        AgentStreamEvent::ApprovalRequired(_)
            | AgentStreamEvent::ApprovalDecided { .. }
            | AgentStreamEvent::ApprovalExpired { .. }
            | AgentStreamEvent::ApprovalOutcome { .. }
    )
}
