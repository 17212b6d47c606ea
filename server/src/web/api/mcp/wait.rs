//! A call that waits: until a task or a run has ended or needs a person, or until its time is up. Whoever accepts a
//! stream hears meanwhile how far it is. A client that goes away ends the wait with its connection.

use std::time::Duration;

use axum::{body::Bytes, response::Response};
use futures_util::{future::BoxFuture, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::{
    context::ToolContext,
    message,
    refusal::{self, ToolAnswer},
    revision::ProtocolRevision,
    tools::{
        Called,
        tasks::{Followed, Glance},
    },
};
use crate::{
    error::{Error, Result},
    hub::Subscription,
    web::{layers::api_limits::OpenStream, revoked, stream as frames},
};

/// Longest wait, seconds: clients give a call up after a minute.
pub const MAX_WAIT_SECONDS: u64 = 50;
/// How often a client hears that the wait goes on, and the Board looks again although nothing was notified.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// A wait that is under way.
pub struct Wait {
    context: ToolContext,
    followed: Followed,
    news: Subscription,
    /// Completes when the token does not open the team any more.
    revoked: BoxFuture<'static, ()>,
    /// What people are needed for, as it was last: only another need ends the wait.
    needs: Option<String>,
    began: Instant,
    deadline: Instant,
    report_at: Instant,
    _place: OpenStream,
}

/// What came first.
enum WaitStep {
    /// It goes on; how things are.
    On(String),
    Over(Result<ToolAnswer>),
}

impl Wait {
    /// Begins to wait, unless there is nothing to wait for.
    pub async fn begin(context: &ToolContext, followed: Followed, seconds: u64) -> Result<Called> {
        // Subscribed before the first look: what changes from now on is heard.
        let news = context.board.hub.subscribe(context.team());
        let now = followed.glance(context).await?;
        // What people are needed for is said at once to whoever may not know it.
        if seconds == 0 || now.is_over || (now.needs.is_some() && !followed.is_known(context).await?) {
            return Ok(followed.whole(context).await?.into());
        }
        let place = context.limits.open_stream(context.caller.by.actor.id());
        let place = place.ok_or(Error::Throttled { retry_after: 5 })?;
        let began = Instant::now();
        Ok(Called::Wait(Box::new(Self {
            followed,
            news,
            revoked: Box::pin(revoked(context.board.clone(), context.caller.clone())),
            needs: now.needs,
            began,
            deadline: began + Duration::from_secs(seconds),
            report_at: began,
            context: context.clone(),
            _place: place,
        })))
    }

    /// Waits without a word.
    pub async fn to_the_end(mut self: Box<Self>) -> Result<ToolAnswer> {
        loop {
            if let WaitStep::Over(answer) = self.step().await {
                return answer;
            }
        }
    }

    async fn step(&mut self) -> WaitStep {
        loop {
            let is_time = tokio::select! {
                () = &mut self.revoked => return WaitStep::Over(Err(Error::Unauthenticated)),
                () = self.context.board.shutdown.soft.cancelled() => return self.over().await,
                () = sleep_until(self.deadline) => return self.over().await,
                () = sleep_until(self.report_at) => true,
                changed = self.news.next() => {
                    if !self.followed.is_meant(&changed) {
                        continue;
                    }
                    false
                }
            };
            let Glance { is_over, needs, words } = match self.followed.glance(&self.context).await {
                Ok(now) => now,
                Err(error) => return WaitStep::Over(Err(error)),
            };
            let is_needed = needs.is_some() && needs != self.needs;
            self.needs = needs;
            if is_over || is_needed {
                return self.over().await;
            }
            if is_time {
                self.report_at = Instant::now() + PROGRESS_INTERVAL;
                return WaitStep::On(words);
            }
        }
    }

    async fn over(&mut self) -> WaitStep {
        WaitStep::Over(self.followed.whole(&self.context).await.map(ToolAnswer::from))
    }
}

/// A wait as a stream of messages, its answer the last one.
struct Spoken {
    wait: Box<Wait>,
    revision: ProtocolRevision,
    id: Value,
    token: Option<Value>,
    /// Seconds that were reported last; the next report is of more.
    reported: f64,
}

/// Answers with a stream: progress for whoever named a token, then the result.
pub fn stream(wait: Box<Wait>, revision: ProtocolRevision, id: Value, token: Option<Value>) -> Response {
    let spoken = Spoken { wait, revision, id, token, reported: -1.0 };
    let messages = stream::unfold(Some(spoken), |spoken| async move {
        let mut spoken = spoken?;
        let (message, is_last) = spoken.next().await;
        Some((frame(&message), (!is_last).then_some(spoken)))
    });
    frames::answer_bytes(messages)
}

fn frame(message: &Value) -> Bytes {
    frames::plain("message", &message.to_string())
}

impl Spoken {
    /// The next message, and whether it is the answer.
    async fn next(&mut self) -> (Value, bool) {
        loop {
            match self.wait.step().await {
                WaitStep::Over(answer) => {
                    let result = self.revision.complete(refusal::result(answer));
                    return (message::result(&self.id, result), true);
                }
                WaitStep::On(words) => {
                    if let Some(token) = self.token.clone() {
                        return (self.progress(&token, &words), false);
                    }
                }
            }
        }
    }

    fn progress(&mut self, token: &Value, words: &str) -> Value {
        let (began, deadline) = (self.wait.began, self.wait.deadline);
        // Each report is of more than the one before, as the protocol asks, whatever the clock's grain.
        self.reported = began.elapsed().as_secs_f64().max(self.reported + 0.001);
        let total = deadline.duration_since(began).as_secs_f64();
        json!({ "jsonrpc": "2.0", "method": "notifications/progress",
            "params": { "progressToken": token, "progress": self.reported, "total": total, "message": words } })
    }
}
