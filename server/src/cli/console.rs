//! What the programs print: results on stdout, everything else on stderr.

use std::{
    fmt::Display,
    io::Write as _,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use anstream::{AutoStream, ColorChoice};
use clap::builder::styling::AnsiColor;
use protocol::text::{is_printable, printable};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use super::{CliError, LogForm};

/// Whether this process prints its results as JSON: `--json`.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Has results printed as JSON from now on.
pub fn use_json() {
    AS_JSON.store(true, Relaxed);
}

/// Whether results are printed as JSON.
pub fn is_json() -> bool {
    AS_JSON.load(Relaxed)
}

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

/// Prints a line of the result, in whatever form it is. A reader that goes away ends the output, not the command.
pub fn put(line: impl Display) {
    writeln!(std::io::stdout(), "{}", printable(&line.to_string())).ok();
}

/// Prints a line for people, which `--json` leaves out.
pub fn say(line: impl Display) {
    if !is_json() {
        put(line);
    }
}

/// Prints a result: words, or with `--json` the object on one line.
pub fn tell(fact: &Value, words: impl Display) {
    if is_json() { put(fact) } else { put(words) }
}

/// Prints a result as `tell` does; the words begin with one that has a tone.
pub fn tell_toned(fact: &Value, tone: Tone, word: &str, words: impl Display) {
    let out = std::io::stdout();
    match is_json() {
        true => tell(fact, ""),
        false => writeln!(&out, "{}{}", tone.paint(word, &out), printable(&words.to_string())).unwrap_or_default(),
    }
}

/// Prints a remark.
pub fn remark(line: impl Display) {
    writeln!(std::io::stderr(), "{}", printable(&line.to_string())).ok();
}

/// Says why a command failed.
pub fn complain(error: &CliError) {
    let out = std::io::stderr();
    writeln!(&out, "{} {}", Tone::Bad.paint("viber-board:", &out), printable(&error.to_string())).ok();
}

/// Standard error without control characters in log lines: the formatter escapes most of them, but not those above ASCII,
/// which a terminal may obey as well. Coloured lines are left alone: in those, all fields are escaped.
struct PrintableStderr {
    coloured: bool,
}

impl std::io::Write for PrintableStderr {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut out = std::io::stderr().lock();
        if self.coloured || is_printable(bytes) {
            return out.write(bytes);
        }
        out.write_all(printable(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}

/// Sends log lines to stderr. `RUST_LOG` filters them; `serve` logs more than the other commands.
pub fn log(form: LogForm, serving: bool) {
    let default = if serving { "info,sqlx=warn,hyper=warn,h2=warn" } else { "warn" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let coloured = form == LogForm::Text && AutoStream::choice(&std::io::stderr()) != ColorChoice::Never;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(coloured)
        .with_writer(move || PrintableStderr { coloured });
    // A test process may have a subscriber already.
    match form {
        LogForm::Text => lines.with_target(false).try_init().ok(),
        LogForm::Json => lines.json().flatten_event(true).with_current_span(true).try_init().ok(),
    };
    let hook = std::panic::take_hook();
    if form == LogForm::Json {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            tracing::error!(place, "panic");
        }));
    } else {
        std::panic::set_hook(hook);
    }
}
