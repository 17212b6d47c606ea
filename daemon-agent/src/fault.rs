//! Failpoints: named places where a test can make the daemon crash, stall, panic, or fail as the work there might.
//!
//! They exist only in builds with the feature `failpoints` (the tests' own); elsewhere they do nothing. What a
//! failpoint does is set by the environment (`FAILPOINTS`) or, while the process runs, by the file that
//! `BOARD_TEST_FAULTS` names. What a daemon starts is recorded in the file that `BOARD_TEST_NOTES` names, so that a
//! test can count it.

/// A failpoint. `true` means that the caller is to fail as if its own work there had.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub const fn at(_point: &'static str) -> bool {
    false
}

/// Reads what the failpoints are to do. Call it once, before anything else.
#[cfg(not(feature = "failpoints"))]
pub fn arm() {}

/// Records that something belonging to an attempt was started; attempt 0 means whichever attempt of the task runs.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub fn note(_word: &str, _task: &protocol::TaskId, _attempt: u32, _more: impl std::fmt::Display) {}

#[cfg(feature = "failpoints")]
pub use armed::{arm, at, note};

#[cfg(feature = "failpoints")]
mod armed {
    use std::{fmt, fs, io::Write as _, path::PathBuf, time::Duration};

    use protocol::TaskId;

    /// Time between two checks of the file.
    const POLL_INTERVAL: Duration = Duration::from_millis(10);

    /// A failpoint: `return(crash)`, `return(panic)`, `return(error)`, `sleep(ms)`, each with a count or a chance.
    pub fn at(point: &'static str) -> bool {
        let done = fail::eval(point, |word| match word.as_deref() {
            Some("crash") => std::process::abort(),
            Some("panic") => panic!("failpoint {point}"),
            _ => true,
        });
        done.unwrap_or(false)
    }

    /// Records that something belonging to an attempt was started: one line, in one write.
    pub fn note(word: &str, task: &TaskId, attempt: u32, more: impl fmt::Display) {
        let Some(file) = std::env::var_os("BOARD_TEST_NOTES") else { return };
        let line = format!("{word} {task} {attempt} {more}\n");
        let written = fs::OpenOptions::new().create(true).append(true).open(file);
        if let Err(error) = written.and_then(|mut file| file.write_all(line.as_bytes())) {
            tracing::error!(%error, "a note could not be written");
        }
    }

    /// Applies the environment from now on, and the file for as long as the process lives.
    pub fn arm() {
        // Dropping the scenario would disarm it.
        std::mem::forget(fail::FailScenario::setup());
        let Some(file) = std::env::var_os("BOARD_TEST_FAULTS").map(PathBuf::from) else { return };
        std::thread::spawn(move || {
            let mut known = String::new();
            loop {
                #[expect(clippy::disallowed_methods, reason = "a thread of its own, in test builds only")]
                std::thread::sleep(POLL_INTERVAL);
                let Ok(text) = fs::read_to_string(&file) else { continue };
                if text == known {
                    continue;
                }
                // The first line numbers the instruction; the others are `point=actions`, where `off` ends one.
                for (point, actions) in text.lines().filter_map(|line| line.split_once('=')) {
                    if let Err(error) = fail::cfg(point, actions) {
                        tracing::error!(point, error, "a failpoint is not understood");
                    }
                }
                if fs::write(file.with_extension("armed"), &text).is_err() {
                    tracing::error!("a failpoint could not be confirmed");
                }
                known = text;
            }
        });
    }
}
