//! A copy of the whole database, row by row and for either engine: what backups are made of.
//!
//! Which tables and columns there are is asked of the migrations, not of the database: a stranger's tables beside ours are
//! not copied, and none of ours is forgotten. Derived tables are left out; the database makes them anew.

mod catalogue;
mod cell;
mod load;
mod snapshot;

pub use catalogue::{Table, tables};
pub use cell::Cell;
pub use load::{SqliteDraft, replace_postgres};
pub use snapshot::Snapshot;
