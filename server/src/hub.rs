//! The registry: which viber is connected where, and the bells that wake whoever waits for news.
//!
//! Knows no SQL and no HTTP. What it tells is a hint; the database is the truth.

/// One handle for the whole registry. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Hub {}
