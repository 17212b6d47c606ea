//! What only PostgreSQL needs: a pool of its connections, and a look at the sizes of its tables.

pub(in crate::db) mod pool;
pub mod statistics;
