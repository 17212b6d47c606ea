//! The machine alone: no network, a log in memory.
