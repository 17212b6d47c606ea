//! Connections, transactions, the writer, migrations and what watches over the file: nothing here knows a table.

pub mod change_limits;
pub mod copy;
pub(in crate::db) mod data_version;
pub(in crate::db) mod migrate;
pub mod ownership;
pub(in crate::db) mod row;
pub mod settings;
pub(in crate::db) mod sqlite;
pub mod statistics;
pub(in crate::db) mod team_tx;
pub(in crate::db) mod tx;
pub(in crate::db) mod writer;
