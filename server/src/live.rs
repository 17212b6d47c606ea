//! Following what happens: cursors, the frames a follower gets, and the stream that yields them without gap or repeat.
//!
//! Owns the order: subscribe, read the database from the cursor, then follow the tail. What a frame looks like on a
//! wire is decided by `web`, who may look is decided there too.

pub mod cursor;

pub use cursor::Cursor;
