//! When to dial again: for ever, and never in step with others.

use std::time::{Duration, Instant};

use protocol::limits::close;

/// The first step.
const FIRST: Duration = Duration::from_millis(500);
/// The longest step.
const LONGEST: Duration = Duration::from_secs(30);
/// The longest step in the first time after a connection that worked: most outages are short.
const AFTER_WORK: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(30));
/// A connection that the Board closes sooner than this after its welcome has failed.
const WORKED: Duration = Duration::from_secs(5);
/// Between tries with a credential that is refused, or with an identity that somebody else uses.
const REFUSED: Duration = Duration::from_secs(60);

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Not reached, broken off, silent: in words.
    Lost(String),
    /// The Board closed it with this code.
    Closed { code: u16, reason: String },
    /// The upgrade was answered with this status.
    Refused { status: u16 },
}

impl End {
    /// The reason for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Lost(why) => why.clone(),
            Self::Closed { code: close::AUTH, .. } | Self::Refused { status: 401 } => {
                "the Board does not know this viber's credential (any more): it was revoked, or the Board is another one. Join again with a new token.".to_owned()
            }
            Self::Closed { code: close::FORBIDDEN, .. } | Self::Refused { status: 403 } => {
                "the Board refuses this viber".to_owned()
            }
            Self::Closed { code: close::SUPERSEDED, .. } => {
                "another daemon uses this viber's identity: if its home was copied, join one of the two again".to_owned()
            }
            Self::Closed { code: close::DRAINING, .. } => "the Board is shutting down".to_owned(),
            Self::Closed { code, reason } => format!("the Board closed the connection ({code} {reason})"),
            Self::Refused { status } => format!("the Board answered {status}"),
        }
    }

    /// Whether trying again soon could help.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Closed { code: close::AUTH | close::FORBIDDEN | close::SUPERSEDED, .. }
                | Self::Refused { status: 401 | 403 }
        )
    }
}

/// The memory between dials.
#[derive(Debug, Default)]
pub struct Backoff {
    failed: u32,
    worked: Option<Instant>,
}

impl Backoff {
    /// How long to wait after a connection that ended at `now`; `welcomed` is when the Board greeted us, `chance` is 0 to 1.
    pub fn after(&mut self, end: &End, welcomed: Option<Instant>, now: Instant, chance: f64) -> Duration {
        let by_board = matches!(end, End::Closed { .. });
        match welcomed {
            Some(at) if !by_board || now.duration_since(at) >= WORKED => (self.failed, self.worked) = (0, Some(now)),
            _ => self.failed = self.failed.saturating_add(1),
        }
        if end.is_refusal() {
            return REFUSED + FIRST.mul_f64(chance * 20.0);
        }
        if let End::Closed { code: close::DRAINING, reason } = end
            && let Some(seconds) = retry_after(reason)
        {
            return Duration::from_secs(seconds).mul_f64(0.5 + chance);
        }
        let step = FIRST.saturating_mul(1 << self.failed.saturating_sub(1).min(10)).min(LONGEST);
        let fresh = self.worked.is_some_and(|at| now.duration_since(at) < AFTER_WORK.1);
        let step = if fresh { step.min(AFTER_WORK.0) } else { step };
        step.mul_f64(chance)
    }
}

fn retry_after(reason: &str) -> Option<u64> {
    let rest = reason.split("retry-after=").nth(1)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(digits.parse::<u64>().ok()?.min(600))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> End {
        End::Lost("gone".to_owned())
    }

    #[test]
    fn steps_double_to_thirty_seconds_and_start_again_after_work() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let steps: Vec<u64> = (0..9).map(|_| backoff.after(&lost(), None, start, 1.0).as_millis() as u64).collect();
        assert_eq!(steps, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        let later = start + Duration::from_secs(100);
        assert_eq!(backoff.after(&lost(), Some(start), later, 1.0), FIRST);
        let steps: Vec<u64> = (0..4).map(|_| backoff.after(&lost(), None, later, 1.0).as_millis() as u64).collect();
        assert_eq!(steps, [500, 1000, 2000, 4000]);
        let much_later = later + Duration::from_secs(31);
        assert_eq!(backoff.after(&lost(), None, much_later, 1.0), Duration::from_secs(8));
        assert_eq!(backoff.after(&lost(), None, much_later, 0.0), Duration::ZERO);
    }

    #[test]
    fn a_board_that_closes_at_once_counts_as_failed() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let end = End::Closed { code: 4400, reason: String::new() };
        for step in [500, 1000, 2000] {
            assert_eq!(backoff.after(&end, Some(start), start + Duration::from_secs(1), 1.0).as_millis(), step);
        }
    }

    #[test]
    fn refusals_wait_and_a_draining_board_says_how_long() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for end in [End::Refused { status: 401 }, End::Closed { code: 4409, reason: String::new() }] {
            assert!(backoff.after(&end, None, now, 0.0) >= REFUSED);
        }
        let end = End::Closed { code: 4503, reason: "retry-after=8".to_owned() };
        assert_eq!(backoff.after(&end, Some(now), now, 0.0), Duration::from_secs(4));
        assert_eq!(backoff.after(&end, Some(now), now, 1.0), Duration::from_secs(12));
    }
}
