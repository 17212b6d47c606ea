//! Signed-in devices, and how far an older cookie of a login is trusted.
//!
//! A login's cookie is exchanged every few minutes. Each has a number, its generation. Whoever uses an older cookie than
//! one that has already come back holds a copy: the thief or the owner, and nobody can say which. That ends the login.
//! A newer cookie that never came back may have been lost on its way, so the older one is accepted until it does.

use protocol::{Instant, LoginId, OperatorId};

/// Valid logins of one operator at once. One more ends the one that was used longest ago.
pub const MAX_LOGINS: u64 = 100;
/// A cookie is exchanged when it is this old, milliseconds.
pub const ROTATE_MS: i64 = 450_000;
/// How long after a newer cookie was first used requests with the older one may still arrive, milliseconds.
pub const GRACE_MS: i64 = 60_000;

/// A signed-in device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    pub id: LoginId,
    pub operator_id: OperatorId,
    pub user_agent: String,
    pub address: String,
    pub created_at: Instant,
    pub seen_at: Instant,
    /// When it ends if it is not used; each use moves it, but not beyond `ends_at`.
    pub expires_at: Instant,
    /// When it ends however much it is used.
    pub ends_at: Instant,
    pub ended_at: Option<Instant>,
    pub cookie: CookieState,
}

/// How far the exchange of a login's cookies has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookieState {
    /// Generation of the newest cookie that was made.
    pub generation: u64,
    pub rotated_at: Instant,
    /// Generation of the newest cookie that came back.
    pub seen: u64,
    pub confirmed_at: Instant,
}

impl CookieState {
    /// The first cookie, made at `now`.
    pub fn first(now: Instant) -> Self {
        Self { generation: 0, rotated_at: now, seen: 0, confirmed_at: now }
    }
}

/// What a cookie of a valid login is judged to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookieVerdict {
    /// The newest.
    Newest {
        /// It comes back for the first time: older ones are no longer accepted.
        first: bool,
        /// It is old enough to be exchanged.
        stale: bool,
    },
    /// A newer one was issued and never came back: it may have been lost on its way to the browser.
    Unanswered,
    /// A newer one came back within the last [`GRACE_MS`]: this request was already on its way.
    Late,
    /// A newer one came back longer ago than that: somebody kept a copy.
    Reused,
    /// Newer than the newest one in the database, whose row therefore comes from a backup.
    Ahead,
}

impl Login {
    /// Whether it is valid at `now`, by its row.
    pub fn is_valid(&self, now: Instant) -> bool {
        self.ended_at.is_none() && now < self.expires_at && now < self.ends_at
    }

    /// Judges its cookie of this generation at `now`.
    pub fn judge(&self, generation: u64, now: Instant) -> CookieVerdict {
        let cookie = self.cookie;
        if generation > cookie.generation {
            CookieVerdict::Ahead
        } else if generation == cookie.generation {
            let stale = now.0 - cookie.rotated_at.0 >= ROTATE_MS;
            CookieVerdict::Newest { first: cookie.seen < generation, stale }
        } else if generation >= cookie.seen {
            CookieVerdict::Unanswered
        } else if now.0 - cookie.confirmed_at.0 < GRACE_MS {
            CookieVerdict::Late
        } else {
            CookieVerdict::Reused
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(1_800_000_000_000);

    fn login(cookie: CookieState) -> Login {
        Login {
            id: LoginId::new(NOW.0),
            operator_id: OperatorId::new(NOW.0),
            user_agent: String::new(),
            address: String::new(),
            created_at: NOW,
            seen_at: NOW,
            expires_at: Instant(NOW.0 + 1000),
            ends_at: Instant(NOW.0 + 2000),
            ended_at: None,
            cookie,
        }
    }

    #[test]
    fn it_stands_until_either_end() {
        let mut login = login(CookieState::first(NOW));
        assert!(login.is_valid(Instant(NOW.0 + 999)) && !login.is_valid(Instant(NOW.0 + 1000)));
        login.expires_at = Instant(NOW.0 + 9000);
        assert!(login.is_valid(Instant(NOW.0 + 1999)) && !login.is_valid(Instant(NOW.0 + 2000)));
        login.ended_at = Some(NOW);
        assert!(!login.is_valid(NOW));
    }

    #[test]
    fn an_older_cookie_is_good_until_a_newer_one_came_back() {
        let later = |ms: i64| Instant(NOW.0 + ms);
        let fresh = login(CookieState::first(NOW));
        assert_eq!(fresh.judge(0, NOW), CookieVerdict::Newest { first: false, stale: false });
        assert_eq!(fresh.judge(0, later(ROTATE_MS)), CookieVerdict::Newest { first: false, stale: true });
        assert_eq!(fresh.judge(1, NOW), CookieVerdict::Ahead);
        let lost = login(CookieState { generation: 4, rotated_at: NOW, seen: 3, confirmed_at: NOW });
        assert_eq!(lost.judge(4, NOW), CookieVerdict::Newest { first: true, stale: false });
        assert_eq!(lost.judge(3, later(i64::from(u32::MAX))), CookieVerdict::Unanswered, "however late");
        assert_eq!(lost.judge(2, later(GRACE_MS - 1)), CookieVerdict::Late);
        assert_eq!(lost.judge(2, later(GRACE_MS)), CookieVerdict::Reused);
        let back = login(CookieState { seen: 4, ..lost.cookie });
        assert_eq!(back.judge(4, NOW), CookieVerdict::Newest { first: false, stale: false });
        assert_eq!(back.judge(3, later(GRACE_MS)), CookieVerdict::Reused);
    }
}
