//! What stands between a request and an account: signing keys, password hashes, limits of tries, and what was just read.
//!
//! Knows neither SQL nor HTTP.

pub mod audit_files;
pub mod cache;
pub mod jwt;
pub mod key_files;
pub mod keys;
pub mod login_limits;
pub mod passwords;
pub mod seal;

pub use cache::Cache;
pub use keys::Keys;
pub use login_limits::LoginLimits;
pub use passwords::Passwords;
