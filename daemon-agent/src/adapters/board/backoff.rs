//! When to dial again: retries never stop, and jitter keeps daemons from dialing in step.

use std::time::{Duration, Instant};

use protocol::limits::close;

/// Delay after the first failure; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_millis(500);
/// Longest delay.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Longest delay shortly after a connection that worked: most outages are short.
const SHORT_OUTAGE_MAX_DELAY: Duration = Duration::from_secs(4);
/// How long after a working connection an outage counts as short.
const SHORT_OUTAGE_TIME: Duration = Duration::from_secs(30);
/// A connection that the Board closes sooner than this after its welcome counts as failed.
const MIN_HEALTHY_TIME: Duration = Duration::from_secs(5);
/// Delay after the credential was refused, or while somebody else uses this identity.
const REFUSED_DELAY: Duration = Duration::from_secs(60);

/// What is wrong when the Board answers 421, and what to do about it.
pub const SERVED_ELSEWHERE: &str = "the Board is not served under this address (421): if it has another one now, stop the daemon, write that into boardUrl in state/credential, and start it again";

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// Unreachable, interrupted or silent; in words.
    Lost(String),
    /// The Board closed it with this code.
    Closed { code: u16, reason: String },
    /// The Board answered the upgrade with this HTTP status.
    Refused { status: u16 },
}

impl ConnectionEnd {
    /// The reason, for people.
    pub fn sentence(&self) -> String {
        match self {
            Self::Lost(why) => why.clone(),
            Self::Closed { code: close::AUTH, .. } | Self::Refused { status: 401 } => {
                "the Board does not know this viber's credential (any more): it was revoked, or this is a different Board. Join again with a new token.".to_owned()
            }
            Self::Closed { code: close::FORBIDDEN, .. } | Self::Refused { status: 403 } => {
                "the Board refuses this viber".to_owned()
            }
            Self::Closed { code: close::SUPERSEDED, .. } => {
                "another daemon uses this viber's identity: if its home was copied, run `join` again in one of the two".to_owned()
            }
            Self::Closed { code: close::DRAINING, .. } => "the Board is shutting down".to_owned(),
            Self::Closed { code, reason } => format!("the Board closed the connection ({code} {reason})"),
            Self::Refused { status: 421 } => SERVED_ELSEWHERE.to_owned(),
            Self::Refused { status } => format!("the Board answered {status}"),
        }
    }

    /// Whether this is a refusal, so that trying again soon cannot help.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Closed { code: close::AUTH | close::FORBIDDEN | close::SUPERSEDED, .. }
                | Self::Refused { status: 401 | 403 }
        )
    }
}

/// What is remembered between connection attempts.
#[derive(Debug, Default)]
pub struct Backoff {
    failed: u32,
    worked: Option<Instant>,
}

impl Backoff {
    /// How long to wait after a connection that ended at `now`. `welcomed` is when the Board sent its welcome; `chance`
    /// is a random number from 0 to 1.
    pub fn after(&mut self, end: &ConnectionEnd, welcomed: Option<Instant>, now: Instant, chance: f64) -> Duration {
        let by_board = matches!(end, ConnectionEnd::Closed { .. });
        match welcomed {
            Some(at) if !by_board || now.duration_since(at) >= MIN_HEALTHY_TIME => {
                (self.failed, self.worked) = (0, Some(now))
            }
            _ => self.failed = self.failed.saturating_add(1),
        }
        if end.is_refusal() {
            return REFUSED_DELAY + FIRST_DELAY.mul_f64(chance * 20.0);
        }
        if let ConnectionEnd::Closed { code: close::DRAINING, reason } = end
            && let Some(seconds) = retry_after(reason)
        {
            return Duration::from_secs(seconds).mul_f64(0.5 + chance);
        }
        let step = FIRST_DELAY.saturating_mul(1 << self.failed.saturating_sub(1).min(10)).min(MAX_DELAY);
        let fresh = self.worked.is_some_and(|at| now.duration_since(at) < SHORT_OUTAGE_TIME);
        let step = if fresh { step.min(SHORT_OUTAGE_MAX_DELAY) } else { step };
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

    fn lost() -> ConnectionEnd {
        ConnectionEnd::Lost("gone".to_owned())
    }

    #[test]
    fn steps_double_to_thirty_seconds_and_start_again_after_work() {
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let steps: Vec<u64> = (0..9).map(|_| backoff.after(&lost(), None, start, 1.0).as_millis() as u64).collect();
        assert_eq!(steps, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        let later = start + Duration::from_secs(100);
        assert_eq!(backoff.after(&lost(), Some(start), later, 1.0), FIRST_DELAY);
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
        let end = ConnectionEnd::Closed { code: 4400, reason: String::new() };
        for step in [500, 1000, 2000] {
            assert_eq!(backoff.after(&end, Some(start), start + Duration::from_secs(1), 1.0).as_millis(), step);
        }
    }

    #[test]
    fn refusals_wait_and_a_draining_board_says_how_long() {
        let now = Instant::now();
        let mut backoff = Backoff::default();
        for end in [ConnectionEnd::Refused { status: 401 }, ConnectionEnd::Closed { code: 4409, reason: String::new() }]
        {
            assert!(backoff.after(&end, None, now, 0.0) >= REFUSED_DELAY);
        }
        let end = ConnectionEnd::Closed { code: 4503, reason: "retry-after=8".to_owned() };
        assert_eq!(backoff.after(&end, Some(now), now, 0.0), Duration::from_secs(4));
        assert_eq!(backoff.after(&end, Some(now), now, 1.0), Duration::from_secs(12));
    }
}
