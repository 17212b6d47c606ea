//! What SQLite needs beside its driver: readers that stay open, one wake-up per command, and a short write-ahead log.

pub(in crate::db) mod completion;
pub(in crate::db) mod inline_executor;
pub(in crate::db) mod readers;
pub(in crate::db) mod wal;
