//! What the programs print: results on stdout, everything else on stderr.

use std::io::{IsTerminal as _, Write as _};

use protocol::text::{is_printable, printable};
use tracing_subscriber::EnvFilter;

use super::{CliError, LogForm};

/// Prints a line of the result. A reader that goes away ends the output, not the command.
pub fn say(line: impl std::fmt::Display) {
    writeln!(std::io::stdout(), "{}", printable(&line.to_string())).ok();
}

/// Prints a remark.
pub fn remark(line: impl std::fmt::Display) {
    writeln!(std::io::stderr(), "{}", printable(&line.to_string())).ok();
}

/// Says why a command failed.
pub fn complain(error: &CliError) {
    remark(format_args!("viber-board: {error}"));
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
    let coloured = form == LogForm::Text && std::io::stderr().is_terminal();
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
