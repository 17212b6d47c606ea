//! Authentication: signing keys, tokens, password hashes, limits on sign-in attempts, and a cache of what was just read.
//!
//! Knows neither SQL nor HTTP.

pub(crate) mod audit_files;
pub(crate) mod cache;
pub(crate) mod jwt;
pub(crate) mod key_files;
pub mod keys;
pub(crate) mod login_limits;
pub(crate) mod passwords;
pub(crate) mod seal;

pub(crate) use cache::Cache;
pub use keys::Keys;
pub(crate) use login_limits::LoginLimits;
pub(crate) use passwords::Passwords;
