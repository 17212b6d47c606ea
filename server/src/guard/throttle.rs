//! Wrong passwords cost patience: per account from one address, per account, and per address.
//!
//! Nobody can lock somebody else out: an address that signed in to the account before does not wait for strangers.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

/// A bucket: `burst` wrong tries at once, one more every `refill` milliseconds.
#[derive(Clone, Copy, Debug)]
struct Rule {
    burst: i64,
    refill_ms: i64,
}

/// One address guessing one account: ten, then ten in a quarter of an hour.
const PAIR: Rule = Rule { burst: 10, refill_ms: 90_000 };
/// One account, guessed from anywhere.
const ACCOUNT: Rule = Rule { burst: 30, refill_ms: 30_000 };
/// One address, guessing anybody.
const ADDRESS: Rule = Rule { burst: 50, refill_ms: 10_000 };
/// One address trying join tokens. They cannot be guessed: this only bounds what trying costs, and a whole rack may join
/// from behind one address.
const JOIN: Rule = Rule { burst: 50, refill_ms: 10_000 };
/// Refused upgrades of one account that are noted: a page that tries for ever must not fill the audit.
const NOTES: Rule = Rule { burst: 5, refill_ms: 60_000 };
/// Buckets that are kept; full ones are dropped first.
const CAPACITY: usize = 20_000;

/// Counts wrong tries. Memory of this process only: a restart forgives.
#[derive(Debug, Default)]
pub struct Throttle {
    /// What is missing to a full bucket, in milliseconds of refill, as of the instant beside it.
    buckets: Mutex<HashMap<String, (i64, i64)>>,
}

/// A try that was paid for in advance; given back when the password was right.
#[derive(Debug)]
#[must_use]
pub struct Try(Vec<(String, Rule)>);

impl Throttle {
    /// Pays for one try at `now` (monotonic milliseconds), or says in how many seconds one is possible.
    ///
    /// `known`: this address signed in to this account before.
    pub fn attempt(&self, account: &str, address: &str, known: bool, now: i64) -> Result<Try, u64> {
        // The account's name may be long and is not for keeping.
        let (account, address) = (crate::secret::hash(account), network(address));
        let mut rules = vec![(format!("p {account} {address}"), PAIR), (format!("a {address}"), ADDRESS)];
        if !known {
            rules.push((format!("u {account}"), ACCOUNT));
        }
        self.pay(rules, now)
    }

    /// The same for one try at joining with a token.
    pub fn join(&self, address: &str, now: i64) -> Result<Try, u64> {
        self.pay(vec![(format!("j {}", network(address)), JOIN)], now)
    }

    /// Whether another refused upgrade of this account is noted.
    pub fn may_note(&self, account: &str, now: i64) -> bool {
        self.pay(vec![(format!("n {account}"), NOTES)], now).is_ok()
    }

    fn pay(&self, rules: Vec<(String, Rule)>, now: i64) -> Result<Try, u64> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let debt = |buckets: &HashMap<String, (i64, i64)>, name: &str| {
            buckets.get(name).map_or(0, |(debt, at)| (debt - (now - at)).max(0))
        };
        let wait = rules.iter().map(|(name, rule)| debt(&buckets, name) - (rule.burst - 1) * rule.refill_ms).max();
        if let Some(wait) = wait.filter(|wait| *wait > 0) {
            return Err(wait.unsigned_abs().div_ceil(1000).max(1));
        }
        if buckets.len() + rules.len() > CAPACITY {
            buckets.retain(|_, (debt, at)| *debt > now - *at);
            if buckets.len() + rules.len() > CAPACITY {
                tracing::warn!("too many sign-in attempts to remember; forgetting them");
                buckets.clear();
            }
        }
        for (name, rule) in &rules {
            let owed = debt(&buckets, name) + rule.refill_ms;
            buckets.insert(name.clone(), (owed, now));
        }
        Ok(Try(rules))
    }

    /// The password was right, or was never looked at: the try costs nothing.
    pub fn forgive(&self, paid: Try) {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, rule) in paid.0 {
            if let Some((debt, _)) = buckets.get_mut(&name) {
                *debt -= rule.refill_ms;
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

    fn guess(throttle: &Throttle, account: &str, address: &str, now: i64) -> Result<(), u64> {
        throttle.attempt(account, address, false, now).map(drop)
    }

    #[test]
    fn ten_wrong_tries_then_a_pause_for_that_address_only() {
        let throttle = Throttle::default();
        for _ in 0..10 {
            assert_eq!(guess(&throttle, "ines", "10.0.0.1", 0), Ok(()));
        }
        assert_eq!(guess(&throttle, "ines", "10.0.0.1", 0), Err(90));
        assert_eq!(guess(&throttle, "ines", "10.0.0.2", 0), Ok(()), "another address is not locked out");
        assert_eq!(guess(&throttle, "ines", "10.0.0.1", 90_000), Ok(()));
        assert_eq!(guess(&throttle, "ines", "10.0.0.1", 90_000), Err(90));
    }

    #[test]
    fn a_hundred_addresses_are_throttled_together_and_a_known_one_is_not() {
        let throttle = Throttle::default();
        let passed = (0..100).filter(|n| guess(&throttle, "ines", &format!("10.0.1.{n}"), 0).is_ok()).count();
        assert_eq!(passed, 30);
        assert!(throttle.attempt("ines", "10.9.9.9", true, 0).is_ok());
    }

    #[test]
    fn twenty_machines_behind_one_address_may_try_a_token_at_once() {
        let throttle = Throttle::default();
        assert!((0..20).all(|_| throttle.join("10.0.0.1", 0).is_ok()));
        assert_eq!((0..50).filter(|_| throttle.join("10.0.0.1", 0).is_ok()).count(), 30);
        assert_eq!(guess(&throttle, "ines", "10.0.0.1", 0), Ok(()), "signing in does not pay for it");
    }

    #[test]
    fn five_refused_upgrades_are_noted_then_one_a_minute() {
        let throttle = Throttle::default();
        assert_eq!((0..50).filter(|_| throttle.may_note("op_1", 0)).count(), 5);
        assert!(
            throttle.may_note("op_2", 0) && throttle.may_note("op_1", 60_000) && !throttle.may_note("op_1", 60_000)
        );
    }

    #[test]
    fn right_passwords_cost_nothing_and_a_64_is_one_address() {
        let throttle = Throttle::default();
        for _ in 0..200 {
            let paid = throttle.attempt("ines", "2001:db8::1", false, 0).expect("free");
            throttle.forgive(paid);
        }
        for n in 0..10 {
            assert_eq!(guess(&throttle, "ines", &format!("2001:db8::{n}"), 0), Ok(()));
        }
        assert!(guess(&throttle, "ines", "2001:db8::ffff", 0).is_err());
        assert!(guess(&throttle, "ines", "2001:db8:0:1::1", 0).is_ok());
    }
}
