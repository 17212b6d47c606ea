//! Where engines and tools report to.

use std::{future::Future, pin::Pin, sync::Arc};

use protocol::AgentStreamEvent;

/// Where an engine reports to: appends to the attempt's log on disk (awaited) and rings the adapters.
/// Text and reasoning deltas are coalesced behind it; an engine calls it as often as it likes.
#[derive(Clone)]
pub struct Sink(Arc<Take>);

type Take = dyn Fn(AgentStreamEvent) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

impl Sink {
    /// A sink that hands every event to `take`.
    pub fn new<F, Fut>(take: F) -> Self
    where
        F: Fn(AgentStreamEvent) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        Self(Arc::new(move |event| Box::pin(take(event))))
    }

    /// Reports `event`; returns when it has its place in the log.
    pub async fn emit(&self, event: AgentStreamEvent) {
        (self.0)(event).await;
    }
}
