//! Failpoints: named points where a test can make the Board crash, stall, panic, or fail as the work there could.
//!
//! Only builds with the feature `failpoints` have them (those of the tests); in others a point does nothing at all. What a
//! point does is set by the environment (`FAILPOINTS`) or, while the process runs, by the file that `BOARD_TEST_FAULTS`
//! names.

/// A named point. Returns `true` when the caller has to fail as if its own work there had.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub const fn at(_point: &'static str) -> bool {
    false
}

/// Reads what the points have to do. Call it once, before anything else.
#[cfg(not(feature = "failpoints"))]
pub fn arm() {}

#[cfg(feature = "failpoints")]
pub use armed::{arm, at};

#[cfg(feature = "failpoints")]
mod armed {
    use std::{fs, path::PathBuf, time::Duration};

    /// How often the file is read.
    const POLL_INTERVAL: Duration = Duration::from_millis(10);

    /// A named point: `return(crash)`, `return(panic)`, `return(error)`, `sleep(ms)`, each with a count or a chance.
    pub fn at(point: &'static str) -> bool {
        let done = fail::eval(point, |word| match word.as_deref() {
            Some("crash") => std::process::abort(),
            Some("panic") => panic!("failpoint {point}"),
            _ => true,
        });
        done.unwrap_or(false)
    }

    /// Follows the environment from now on, and the file as long as the process lives.
    pub fn arm() {
        // Dropping it would disarm the points.
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
                // The first line is the number of the instruction; the others are `point=actions`, and `off` disarms one.
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
