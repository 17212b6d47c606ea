//! What stands between a request and an account: signing keys, password hashes, throttles, and what was just read.
//!
//! Knows neither SQL nor HTTP.

pub mod audit_files;
pub mod cache;
pub mod jwt;
pub mod key_files;
pub mod keys;
pub mod passwords;
pub mod seal;
pub mod throttle;

pub use cache::Cache;
pub use keys::Keys;
pub use passwords::Passwords;
pub use throttle::Throttle;
