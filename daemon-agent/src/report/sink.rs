//! The destination of what engines and tools report.

use std::{future::Future, pin::Pin, sync::Arc};

use protocol::AgentStreamEvent;

/// Where an engine reports to: appends to the attempt's log on disk and notifies the adapters. Text and reasoning
/// deltas are coalesced behind it, so an engine may call it as often as it likes.
#[derive(Clone)]
pub struct Sink(Arc<EmitFn>);

type EmitFn = dyn Fn(AgentStreamEvent) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

impl Sink {
    /// A sink that hands every event to `take`.
    pub fn new<F, Fut>(take: F) -> Self
    where
        F: Fn(AgentStreamEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |event| Box::pin(take(event))))
    }

    /// Reports `event`; returns once it has its place in the log.
    pub async fn emit(&self, event: AgentStreamEvent) {
        (self.0)(event).await;
    }
}
