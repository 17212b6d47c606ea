//! What the commands print. Names, errors and a model's words may contain control characters, which are made harmless
//! before they reach a terminal.

use std::{
    fmt::Arguments,
    io::{self, Write},
};

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::AnsiColor;
use protocol::text::printable;

/// How a word looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Warning,
    Bad,
}

impl Tone {
    /// The word between the codes of its colour, or as it is when `out` is no terminal or `NO_COLOR` is set.
    fn paint(self, word: &str, out: &impl anstream::stream::RawStream) -> String {
        let style = match self {
            Self::Good => AnsiColor::Green,
            Self::Warning => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        };
        let style = style.on_default();
        match AutoStream::choice(out) {
            ColorChoice::Never => printable(word),
            _ => format!("{style}{}{style:#}", printable(word)),
        }
    }
}

/// Prints a line of the result. A reader that went away (`| head`) is no reason to fail.
pub fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{}", printable(&line.to_string()));
}

/// Prints a line of the result in which one word has a tone.
pub fn say_toned(before: &str, tone: Tone, word: &str, after: Arguments<'_>) {
    let out = io::stdout();
    let word = tone.paint(word, &out);
    let _ = writeln!(&out, "{}{word}{}", printable(before), printable(&after.to_string()));
}

/// Says on stderr why a command failed.
pub fn complain(why: Arguments<'_>) {
    let out = io::stderr();
    let name = Tone::Bad.paint("daemon-agent:", &out);
    let _ = writeln!(&out, "{name} {}", printable(&why.to_string()));
}

/// Prints a warning or an error to stderr.
pub fn remark(line: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{}", printable(&line.to_string()));
}
