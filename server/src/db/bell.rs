//! The bell of a SQLite connection: it rings once when a command is done.
//!
//! sqlx runs a connection on a thread of its own, which sends every row and the end of every statement by itself. Waking
//! whoever waits for each of them costs several times what the statements do. So nobody is woken by what is sent: around
//! a command that thread enters the tracing span which was current where the command came from, and leaves it when the
//! last thing is sent. The span that is current here is the bell's, and leaving it rings.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

use futures_util::{Stream, StreamExt as _};
use tracing_core::{
    Callsite, Dispatch, Event, Interest, Kind, Level, LevelFilter, Metadata, Subscriber, callsite, dispatcher,
    field::FieldSet,
    span::{Attributes, Current, Id, Record},
};

static COMMAND: Metadata<'static> = Metadata::new(
    "command",
    "viber_board::db",
    Level::ERROR,
    None,
    None,
    None,
    FieldSet::new(&[], callsite::Identifier(&Place)),
    Kind::SPAN,
);

struct Place;

impl Callsite for Place {
    fn set_interest(&self, _: Interest) {}

    fn metadata(&self) -> &Metadata<'_> {
        &COMMAND
    }
}

/// One connection's bell.
pub(super) struct Bell {
    dispatch: Dispatch,
    waiter: Waiter,
}

/// Who is woken when it rings.
#[derive(Clone, Default)]
struct Waiter(Arc<Mutex<Option<Waker>>>);

impl Bell {
    pub fn new() -> Self {
        let waiter = Waiter::default();
        Self { dispatch: Dispatch::new(waiter.clone()), waiter }
    }

    /// What the connection has sent by now; wakes when its command is done.
    pub fn poll<T>(
        &self,
        stream: &mut Pin<Box<dyn Stream<Item = T> + Send + '_>>,
        context: &Context<'_>,
    ) -> Poll<Option<T>> {
        // First the bell: what is done before this line is found below, what is done after it rings.
        *self.waiter.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        let silent = &mut Context::from_waker(Waker::noop());
        dispatcher::with_default(&self.dispatch, || stream.poll_next_unpin(silent))
    }
}

/// As little of a subscriber as it takes to be told when a span is left. It hears of no event and no other span.
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
        Current::new(Id::from_u64(1), &COMMAND)
    }
}
