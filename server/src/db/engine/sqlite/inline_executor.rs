//! Runs a future on the thread that wakes it, without a thread of its own.
//!
//! The thread of its connection wakes the writer with the answer to its last command, and the writer has the next command
//! at once. Run on that thread, it goes through a whole commit without switching threads.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

const STATE_IDLE: u8 = 0;
const STATE_RUNNING: u8 = 1;
/// It was woken while running: it runs once more.
const STATE_WOKEN_AGAIN: u8 = 2;
const STATE_DONE: u8 = 3;

type InlineTask = Pin<Box<dyn Future<Output = ()> + Send>>;

struct InlineRun {
    state: AtomicU8,
    task: Mutex<Option<InlineTask>>,
}

/// Runs `task` up to its first pause, and on wherever it is woken. It must not block for long, and ends when it is done:
/// nothing else can end it.
pub(in crate::db) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    Arc::new(InlineRun { state: AtomicU8::new(STATE_IDLE), task: Mutex::new(Some(Box::pin(task))) }).wake();
}

impl Wake for InlineRun {
    fn wake(self: Arc<Self>) {
        let state = &self.state;
        loop {
            match state.compare_exchange(STATE_IDLE, STATE_RUNNING, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(STATE_RUNNING) => {
                    if state
                        .compare_exchange(STATE_RUNNING, STATE_WOKEN_AGAIN, Ordering::AcqRel, Ordering::Acquire)
                        .is_ok()
                    {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
        let waker = Waker::from(self.clone());
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let Some(running) = task.as_mut() else { return };
            let polled = catch_unwind(AssertUnwindSafe(|| running.as_mut().poll(&mut Context::from_waker(&waker))));
            // A panic was logged by the hook; what is half done is dropped, and whoever waits for it is told so.
            if !matches!(polled, Ok(Poll::Pending)) {
                state.store(STATE_DONE, Ordering::Release);
                *task = None;
                return;
            }
            if state.compare_exchange(STATE_RUNNING, STATE_IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return;
            }
            state.store(STATE_RUNNING, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, sync::mpsc, thread};

    use super::*;

    #[test]
    fn it_runs_where_it_is_woken_and_not_twice_at_once() {
        let ((tell, told), (wake, woken)) = (mpsc::channel(), mpsc::channel::<Waker>());
        let mut pauses = 0;
        let task = poll_fn(move |context| {
            pauses += 1;
            tell.send((pauses, thread::current().id())).expect("somebody listens");
            match pauses {
                // While it runs: it goes on at once, here.
                1 => context.waker().wake_by_ref(),
                2 => wake.send(context.waker().clone()).expect("somebody listens"),
                _ => return Poll::Ready(()),
            }
            Poll::Pending
        });
        spawn(task);
        let here = thread::current().id();
        assert_eq!((told.recv(), told.recv()), (Ok((1, here)), Ok((2, here))));
        let waker = woken.recv().expect("a waker");
        let there = thread::spawn(move || {
            waker.wake_by_ref();
            // It is over: nothing runs any more.
            waker.wake();
            thread::current().id()
        });
        let there = there.join().expect("no panic");
        assert_eq!(told.recv(), Ok((3, there)));
        assert!(told.recv().is_err(), "the task is dropped");
    }
}
