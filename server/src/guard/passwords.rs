//! Passwords become Argon2id hashes: slow on purpose, so never more than two at once.

use std::sync::Arc;

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::{
        self,
        phc::{Output, ParamsString, PasswordHash, Salt},
    },
};
use rand::Rng as _;
use tokio::sync::Semaphore;

/// Longest password that is hashed at all, bytes.
pub const MAX_PASSWORD_BYTES: usize = 1024;
/// Shortest password that may be set, characters.
pub const MIN_PASSWORD_CHARS: usize = 8;
/// Hashes that are computed at the same time: each takes 19 MiB and a core.
const MAX_CONCURRENT_HASHES: usize = 2;
/// Callers that may wait for a hash; further ones are refused with `Busy`.
const MAX_WAITING_CALLERS: usize = 6;

/// Hashes and checks passwords.
#[derive(Debug)]
pub struct Passwords {
    turns: Arc<Semaphore>,
    queue: Arc<Semaphore>,
    /// A hash that belongs to no password: an unknown operator takes as long as a known one.
    nobody: String,
}

/// Too many callers are waiting already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl Passwords {
    pub fn new() -> Self {
        Self {
            turns: Arc::new(Semaphore::new(MAX_CONCURRENT_HASHES)),
            queue: Arc::new(Semaphore::new(MAX_CONCURRENT_HASHES + MAX_WAITING_CALLERS)),
            nobody: nobody(),
        }
    }

    /// The hash to keep for a new password.
    pub async fn hash(&self, password: String) -> Result<String, Busy> {
        self.turn(move || hash(&password)).await
    }

    /// Whether `password` is the one behind `known`; takes as long when there is none.
    pub async fn check(&self, password: String, known: Option<String>) -> Result<bool, Busy> {
        let exists = known.is_some();
        let against = known.unwrap_or_else(|| self.nobody.clone());
        let same = self.turn(move || is_same(&password, &against).unwrap_or(false)).await?;
        Ok(same && exists)
    }

    async fn turn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Busy> {
        let _place = self.queue.clone().try_acquire_owned().map_err(|_| Busy)?;
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| Busy)?;
        // The permit moves into the work: a caller that gives up does not free the core.
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

/// OWASP's parameters for Argon2id: 19 MiB, two passes, one lane, 32 bytes of output.
fn params() -> Params {
    Params::new(19_456, 2, 1, Some(32)).expect("the parameters are within Argon2's limits")
}

/// The text form to keep for a password, with a fresh salt.
fn hash(password: &str) -> String {
    let salt = Salt::new(&random::<16>()).expect("16 bytes");
    let hash = output(password, &salt, Algorithm::Argon2id, Version::V0x13, params());
    text(salt, hash.expect("a password below 4 GiB"))
}

/// A hash that was drawn and not computed: computing one would take longer than all the rest of a start.
fn nobody() -> String {
    text(Salt::new(&random::<16>()).expect("16 bytes"), Output::new(&random::<32>()).expect("32 bytes"))
}

fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0u8; BYTES];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

fn text(salt: Salt, hash: Output) -> String {
    let known = PasswordHash {
        algorithm: Algorithm::Argon2id.ident(),
        version: Some(Version::V0x13.into()),
        params: ParamsString::try_from(&params()).expect("Argon2's own parameters"),
        salt: Some(salt),
        hash: Some(hash),
    };
    known.to_string()
}

/// Whether `password` gives the hash in `known`, with the parameters given there.
fn is_same(password: &str, known: &str) -> Result<bool, password_hash::Error> {
    let known = PasswordHash::new(known)?;
    let (Some(salt), Some(expected)) = (&known.salt, &known.hash) else { return Ok(false) };
    let version = known.version.map(Version::try_from).transpose()?.unwrap_or_default();
    let given =
        output(password, salt, Algorithm::try_from(known.algorithm.as_str())?, version, Params::try_from(&known)?)?;
    // Outputs are compared in constant time.
    Ok(given == *expected)
}

fn output(
    password: &str,
    salt: &[u8],
    algorithm: Algorithm,
    version: Version,
    params: Params,
) -> Result<Output, password_hash::Error> {
    let mut memory = memory(params.block_count());
    let length = params.output_len().unwrap_or(Params::DEFAULT_OUTPUT_LEN);
    let mut bytes = [0u8; Output::MAX_LENGTH];
    let out = bytes.get_mut(..length).ok_or(password_hash::Error::OutputSize)?;
    let hasher = Argon2::new(algorithm, version, params);
    hasher.hash_password_into_with_memory(password.as_bytes(), salt, out, &mut memory)?;
    Ok(Output::new(out)?)
}

/// Memory for one hash. More is reserved than touched: every allocator makes a reservation beyond 32 MiB a mapping of its
/// own, which goes back to the system when the hash is done. A smaller one would stay with the thread that made it, and
/// many threads take turns here.
fn memory(blocks: usize) -> Vec<Block> {
    const RESERVED_BLOCKS: usize = 33 * 1024 * 1024 / Block::SIZE;
    let mut memory = Vec::with_capacity(blocks.max(RESERVED_BLOCKS));
    memory.resize(blocks, Block::new());
    memory
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
    async fn a_hash_with_other_parameters_is_still_read() {
        let other = hash("password").replace("$argon2id$", "$argon2i$");
        assert_eq!(is_same("password", &other), Ok(false), "the algorithm counts");
        let cheap =
            Argon2::new(Algorithm::Argon2id, Version::V0x13, Params::new(64, 1, 1, Some(24)).expect("parameters"));
        let kept =
            argon2::PasswordHasher::hash_password_with_salt(&cheap, b"password", b"sixteen byte slt").expect("a hash");
        assert_eq!(is_same("password", &kept.to_string()), Ok(true));
        assert_eq!(is_same("passwort", &kept.to_string()), Ok(false));
        assert!(!is_same("password", "$argon2id$broken").unwrap_or(false));
    }

    #[tokio::test]
    async fn a_crowd_is_told_to_come_back() {
        let passwords = Passwords::new();
        let tries = (0..40).map(|_| passwords.check("guess".into(), None));
        let outcomes = futures_util::future::join_all(tries).await;
        assert_eq!(
            outcomes.iter().filter(|outcome| **outcome == Ok(false)).count(),
            MAX_CONCURRENT_HASHES + MAX_WAITING_CALLERS
        );
    }
}
