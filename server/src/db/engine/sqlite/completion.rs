//! How the end of a SQLite command is noticed: by a signal when everything is sent, or plainly by each thing that is sent.
//!
//! sqlx runs a connection on a thread of its own, which sends every row and the end of every statement by itself. Waking
//! the waiting task for each of them costs several times what the statements do. With the signal nobody is woken by what
//! is sent: around a command that thread enters the tracing span which was current where the command came from, and
//! leaves it when the last thing is sent. The span that is current here is the signal's, and leaving it wakes.
//!
//! sqlx does not promise this. [`Completion::probe`] asks a connection whether it is so when a database is opened; where
//! it is not, the Board does it the plain way, which needs nothing but the stream itself.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::{Stream, StreamExt as _};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, sqlite::SqliteConnectOptions};
use tracing_core::{
    Callsite, Dispatch, Event, Interest, Kind, Level, LevelFilter, Metadata, Subscriber, callsite, dispatcher,
    field::FieldSet,
    span::{Attributes, Current, Id, Record},
};

use crate::db::DbError;

static COMMAND_SPAN: Metadata<'static> = Metadata::new(
    "command",
    "viber_board::db",
    Level::ERROR,
    None,
    None,
    None,
    FieldSet::new(&[], callsite::Identifier(&CommandCallsite)),
    Kind::SPAN,
);

struct CommandCallsite;

impl Callsite for CommandCallsite {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &COMMAND_SPAN
    }
}

/// How long the signal of a first, trivial command may take before the plain way is used.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// How the connections of a database notice completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The waiting task is woken once, when the command is done.
    Signalled,
    /// The waiting task is woken by each row and each end of a statement.
    Plain,
}

impl Completion {
    /// `Signalled` if this sqlx gives the signal, else `Plain`. It is asked with a database in memory: opening and closing a
    /// file for it would move that file's whole log.
    pub(in crate::db) async fn probe() -> Result<Self, DbError> {
        let mut connection = SqliteConnectOptions::new().in_memory(true).connect().await?;
        let signal = CommandSignal::new();
        let asked = async {
            let mut stream = connection.fetch_many("SELECT 1");
            while let Some(came) = poll_fn(|context| signal.poll(&mut stream, context)).await {
                came?;
            }
            Ok::<_, sqlx::Error>(())
        };
        let found = match tokio::time::timeout(PROBE_TIMEOUT, asked).await {
            Ok(done) => done.map(|()| Self::Signalled)?,
            Err(_) => {
                tracing::warn!("this version of sqlx does not tell when a command of SQLite is done: waiting plainly");
                Self::Plain
            }
        };
        connection.close().await?;
        Ok(found)
    }
}

/// Waits for the results of one connection.
pub(in crate::db) enum CompletionWait {
    Signalled(CommandSignal),
    Plain,
}

impl CompletionWait {
    pub fn new(completion: Completion) -> Self {
        match completion {
            Completion::Signalled => Self::Signalled(CommandSignal::new()),
            Completion::Plain => Self::Plain,
        }
    }

    /// The next thing that the connection has sent.
    pub fn poll<T>(
        &self,
        stream: &mut Pin<Box<dyn Stream<Item = T> + Send + '_>>,
        context: &mut Context<'_>,
    ) -> Poll<Option<T>> {
        match self {
            Self::Signalled(signal) => signal.poll(stream, context),
            Self::Plain => stream.poll_next_unpin(context),
        }
    }
}

/// The completion signal of one connection.
pub(in crate::db) struct CommandSignal {
    dispatch: Dispatch,
    waiter: Waiter,
}

/// The waker that the signal wakes.
#[derive(Clone, Default)]
struct Waiter(Arc<Mutex<Option<Waker>>>);

impl CommandSignal {
    fn new() -> Self {
        let waiter = Waiter::default();
        Self { dispatch: Dispatch::new(waiter.clone()), waiter }
    }

    /// What the connection has sent by now; wakes when its command is done.
    fn poll<T>(
        &self,
        stream: &mut Pin<Box<dyn Stream<Item = T> + Send + '_>>,
        context: &Context<'_>,
    ) -> Poll<Option<T>> {
        // The waker is stored first: what is sent before is found below, what is sent after it wakes.
        *self.waiter.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        let silent = &mut Context::from_waker(Waker::noop());
        dispatcher::with_default(&self.dispatch, || stream.poll_next_unpin(silent))
    }
}

/// The least a subscriber needs to be told when a span is left. It receives no event and no other span.
impl Subscriber for Waiter {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        Interest::never()
    }

    fn enabled(&self, _: &Metadata<'_>) -> bool {
        false
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::OFF)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    fn current_span(&self) -> Current {
        Current::new(Id::from_u64(1), &COMMAND_SPAN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sqlx_leaves_the_span_of_a_command_when_its_last_row_is_sent() {
        let found = Completion::probe().await.expect("a connection");
        assert_eq!(
            found,
            Completion::Signalled,
            "sqlx changed: measure the plain way, and what this module is still worth"
        );
    }
}
