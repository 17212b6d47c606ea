//! Passwords become Argon2id hashes: slow on purpose, so never more than two at once.

use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, PasswordHasher as _, PasswordVerifier as _, Version};
use rand::Rng as _;
use tokio::sync::Semaphore;

/// Longest password that is looked at, bytes; beyond it nothing is hashed.
pub const LONGEST: usize = 1024;
/// Shortest password that may be set, characters.
pub const SHORTEST: usize = 8;
/// Hashes at once: each takes 19 MiB and a core.
const AT_ONCE: usize = 2;
/// Callers that may wait for their turn; beyond that the answer is "later".
const WAITING: usize = 6;

/// Hashes and checks passwords.
#[derive(Debug)]
pub struct Passwords {
    turns: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    /// The hash of a password nobody has: an unknown operator costs the same as a known one.
    nobody: String,
}

/// Too many hashes wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl Passwords {
    /// Computes one hash.
    pub fn new() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            queue: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
            nobody: hash("nobody's password"),
        }
    }

    /// The hash to keep for a new password.
    pub async fn hash(&self, password: String) -> Result<String, Busy> {
        self.turn(move || hash(&password)).await
    }

    /// Whether `password` is the one behind `known`; takes as long when there is none.
    pub async fn check(&self, password: String, known: Option<String>) -> Result<bool, Busy> {
        let there = known.is_some();
        let against = known.unwrap_or_else(|| self.nobody.clone());
        let same = self.turn(move || hasher().verify_password(password.as_bytes(), against.as_str()).is_ok()).await?;
        Ok(same && there)
    }

    async fn turn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Busy> {
        let _place = self.queue.clone().try_acquire_owned().map_err(|_| Busy)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| Busy)?;
        // The permit travels with the work: a caller that goes away does not free the core.
        let done = tokio::task::spawn_blocking(move || {
            let value = work();
            drop(turn);
            value
        });
        done.await.map_err(|_| Busy)
    }
}

impl Default for Passwords {
    fn default() -> Self {
        Self::new()
    }
}

/// OWASP's parameters for Argon2id: 19 MiB, two passes, one lane.
fn hasher() -> Argon2<'static> {
    let params = Params::new(19_456, 2, 1, None).expect("the parameters are within Argon2's limits");
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
}

fn hash(password: &str) -> String {
    let mut salt = [0u8; 16];
    rand::rng().fill_bytes(&mut salt);
    hasher()
        .hash_password_with_salt(password.as_bytes(), &salt)
        .expect("the salt has 16 bytes and the password is below 4 GiB")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_right_password_and_only_that_one() {
        let passwords = Passwords::new();
        let long = "x".repeat(200);
        let known = passwords.hash(long.clone()).await.expect("a turn");
        assert!(known.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{known}");
        assert_eq!(passwords.check(long.clone(), Some(known.clone())).await, Ok(true));
        assert_eq!(passwords.check(long[..72].to_owned(), Some(known)).await, Ok(false));
        assert_eq!(passwords.check("nobody's password".into(), None).await, Ok(false));
    }

    #[tokio::test]
    async fn a_crowd_is_told_to_come_back() {
        let passwords = Passwords::new();
        let tries = (0..40).map(|_| passwords.check("guess".into(), None));
        let outcomes = futures_util::future::join_all(tries).await;
        assert_eq!(outcomes.iter().filter(|outcome| **outcome == Ok(false)).count(), AT_ONCE + WAITING);
    }
}
