//! What the commands print. Names, errors and a model's words may contain control characters, which are made harmless
//! before they reach a terminal.

use std::{
    fmt::Arguments,
    io::{self, Write},
};

use protocol::text::printable;

/// Prints a line of the result. A reader that went away (`| head`) is no reason to fail.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{}", printable(&line.to_string()));
}

/// Prints a warning or an error to stderr.
pub fn remark(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}
