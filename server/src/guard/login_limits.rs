//! Rate limits on sign-in attempts: per account from one address, per account, and per address. An attempt is charged
//! before the password is checked, and refunded when it was right.
//!
//! Nobody can lock somebody else out: an address that signed in to the account before does not wait for strangers.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use crate::rate_limit::{Bucket, Limit};

/// Attempts from one address on one account: ten, then ten in a quarter of an hour.
const PAIR_ATTEMPTS: Limit = Limit { burst: 10, refill: 1, period_ms: 90_000 };
/// Attempts on one account from all addresses.
const ACCOUNT_ATTEMPTS: Limit = Limit { burst: 30, refill: 1, period_ms: 30_000 };
/// Attempts from one address on all accounts.
const ADDRESS_ATTEMPTS: Limit = Limit { burst: 50, refill: 1, period_ms: 10_000 };
/// Join tokens tried from one address. They cannot be guessed: the limit only bounds what the checks cost, and a whole rack
/// may join from behind one address.
const JOIN_ATTEMPTS: Limit = Limit { burst: 50, refill: 1, period_ms: 10_000 };
/// Refused upgrades of one account that are written to the audit: a page that retries for ever must not fill it.
const REFUSAL_NOTES: Limit = Limit { burst: 5, refill: 1, period_ms: 60_000 };
/// Changes of providers' keys of one viber that are sent: each costs it a file and the audit a row.
const KEY_CHANGES: Limit = Limit { burst: 10, refill: 1, period_ms: 30_000 };
/// Buckets that are kept; full ones are dropped first.
const MAX_BUCKETS: usize = 20_000;

/// Counts failed attempts, in the memory of this process only: a restart resets them.
#[derive(Debug, Default)]
pub struct LoginLimits {
    buckets: Mutex<HashMap<String, Bucket>>,
}

/// An attempt that was charged in advance, by the names of its buckets. It is refunded when the password was right.
#[derive(Debug)]
#[must_use]
pub struct ChargedAttempt(Vec<String>);

impl LoginLimits {
    /// Charges one attempt at `now` (monotonic milliseconds); the error is the number of seconds until one is possible.
    ///
    /// `known`: this address signed in to this account before.
    pub fn attempt(&self, account: &str, address: &str, known: bool, now: i64) -> Result<ChargedAttempt, u64> {
        // The account's name may be long, and should not stay in memory.
        let (account, address) = (crate::secret::hash(account), network(address));
        let mut limits =
            vec![(format!("p {account} {address}"), PAIR_ATTEMPTS), (format!("a {address}"), ADDRESS_ATTEMPTS)];
        if !known {
            limits.push((format!("u {account}"), ACCOUNT_ATTEMPTS));
        }
        self.charge(limits, now)
    }

    /// The same for one attempt to join with a token.
    pub fn join(&self, address: &str, now: i64) -> Result<ChargedAttempt, u64> {
        self.charge(vec![(format!("j {}", network(address)), JOIN_ATTEMPTS)], now)
    }

    /// Whether another refused upgrade of this account may be written to the audit.
    pub fn may_note(&self, account: &str, now: i64) -> bool {
        self.charge(vec![(format!("n {account}"), REFUSAL_NOTES)], now).is_ok()
    }

    /// The same for one change of a provider's key on a viber.
    pub fn provider_key(&self, viber: &str, now: i64) -> Result<(), u64> {
        self.charge(vec![(format!("k {viber}"), KEY_CHANGES)], now).map(drop)
    }

    /// Charges all of the limits, or none.
    fn charge(&self, limits: Vec<(String, Limit)>, now: i64) -> Result<ChargedAttempt, u64> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = limits.iter().filter_map(|(name, _)| Some(buckets.get_mut(name)?.wait(1, now)));
        let wait_ms = waits.max().unwrap_or(0);
        if wait_ms > 0 {
            return Err(wait_ms.div_ceil(1000));
        }
        if buckets.len() + limits.len() > MAX_BUCKETS {
            buckets.retain(|_, bucket| !bucket.is_full(now));
            if buckets.len() + limits.len() > MAX_BUCKETS {
                tracing::warn!("too many sign-in attempts to remember; forgetting them");
                buckets.clear();
            }
        }
        let charge = |(name, limit): (String, Limit)| {
            buckets.entry(name.clone()).or_insert_with(|| Bucket::new(limit, now)).spend(1, now);
            name
        };
        Ok(ChargedAttempt(limits.into_iter().map(charge).collect()))
    }

    /// Refunds an attempt whose password was right, or was never checked.
    pub fn refund(&self, charged: ChargedAttempt) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        for name in charged.0 {
            if let Some(bucket) = buckets.get_mut(&name) {
                bucket.give_back(1);
            }
        }
    }
}

/// An IPv6 customer has a /64: that counts as one address.
fn network(address: &str) -> String {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => match ip.to_ipv4_mapped() {
            Some(ip) => ip.to_string(),
            None => format!("{:x?}", &ip.segments()[..4]),
        },
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(limits: &LoginLimits, account: &str, address: &str, now: i64) -> Result<(), u64> {
        limits.attempt(account, address, false, now).map(drop)
    }

    #[test]
    fn ten_wrong_tries_then_a_pause_for_that_address_only() {
        let limits = LoginLimits::default();
        for _ in 0..10 {
            assert_eq!(guess(&limits, "ines", "10.0.0.1", 0), Ok(()));
        }
        assert_eq!(guess(&limits, "ines", "10.0.0.1", 0), Err(90));
        assert_eq!(guess(&limits, "ines", "10.0.0.2", 0), Ok(()), "another address is not locked out");
        assert_eq!(guess(&limits, "ines", "10.0.0.1", 90_000), Ok(()));
        assert_eq!(guess(&limits, "ines", "10.0.0.1", 90_000), Err(90));
    }

    #[test]
    fn a_hundred_addresses_are_slowed_together_and_a_known_one_is_not() {
        let limits = LoginLimits::default();
        let passed = (0..100).filter(|n| guess(&limits, "ines", &format!("10.0.1.{n}"), 0).is_ok()).count();
        assert_eq!(passed, 30);
        assert!(limits.attempt("ines", "10.9.9.9", true, 0).is_ok());
    }

    #[test]
    fn twenty_machines_behind_one_address_may_try_a_token_at_once() {
        let limits = LoginLimits::default();
        assert!((0..20).all(|_| limits.join("10.0.0.1", 0).is_ok()));
        assert_eq!((0..50).filter(|_| limits.join("10.0.0.1", 0).is_ok()).count(), 30);
        assert_eq!(guess(&limits, "ines", "10.0.0.1", 0), Ok(()), "signing in does not pay for it");
    }

    #[test]
    fn five_refused_upgrades_are_noted_then_one_a_minute() {
        let limits = LoginLimits::default();
        assert_eq!((0..50).filter(|_| limits.may_note("op_1", 0)).count(), 5);
        assert!(limits.may_note("op_2", 0) && limits.may_note("op_1", 60_000) && !limits.may_note("op_1", 60_000));
    }

    #[test]
    fn right_passwords_cost_nothing_and_a_64_is_one_address() {
        let limits = LoginLimits::default();
        for _ in 0..200 {
            let charged = limits.attempt("ines", "2001:db8::1", false, 0).expect("free");
            limits.refund(charged);
        }
        for n in 0..10 {
            assert_eq!(guess(&limits, "ines", &format!("2001:db8::{n}"), 0), Ok(()));
        }
        assert!(guess(&limits, "ines", "2001:db8::ffff", 0).is_err());
        assert!(guess(&limits, "ines", "2001:db8:0:1::1", 0).is_ok());
    }
}
