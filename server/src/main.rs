//! Starts the Board.
fn main() {}
