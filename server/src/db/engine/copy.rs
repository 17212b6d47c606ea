//! A copy of the whole database, row by row and for either engine: what backups are made of.
//!
//! The migrations, not the database, tell which tables and columns there are: foreign tables in the same database are not
//! copied, and none of the Board's is forgotten. Derived tables are left out; the database rebuilds them.

mod cell;
mod load;
mod snapshot;
mod tables;

pub use cell::Cell;
pub use load::{SqliteDraft, replace_postgres};
pub use snapshot::Snapshot;
pub use tables::{Table, tables};
