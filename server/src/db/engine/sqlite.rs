//! What SQLite needs beside its driver: readers that stay open, one wake-up per command, a short write-ahead log, and
//! checks of its file.

pub(in crate::db) mod completion;
pub(in crate::db) mod inline_executor;
pub(in crate::db) mod integrity;
pub(in crate::db) mod readers;
pub(in crate::db) mod wal;
