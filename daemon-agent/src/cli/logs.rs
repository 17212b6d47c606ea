//! Log lines on stderr.

use std::io::{self, Write};

use protocol::text::{is_printable, printable};
use tracing_subscriber::EnvFilter;

use super::LogForm;

/// A full disk or a closed pipe behind stderr is no reason to end. Control characters are for no terminal to obey.
struct Patient;

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = match is_printable(bytes) {
            true => io::stderr().write_all(bytes),
            false => io::stderr().write_all(printable(&String::from_utf8_lossy(bytes)).as_bytes()),
        };
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts logging; `RUST_LOG` chooses how much, `usual` holds without it.
pub fn start(form: LogForm, usual: &str) {
    let filter = without_secrets(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual)));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Patient).with_target(false);
    let started = match form {
        LogForm::Json => lines.json().flatten_event(true).try_init(),
        LogForm::Text => lines.with_ansi(false).try_init(),
    };
    if let Err(error) = started {
        eprintln!("daemon-agent: no log: {error}");
    }
}

/// The WebSocket library tells its whole request at `trace`, the viber's credential with it: nobody gets that, whatever
/// they ask for.
fn without_secrets(filter: EnvFilter) -> EnvFilter {
    ["tungstenite=info", "tungstenite::handshake=info", "tungstenite::handshake::client=info"]
        .into_iter()
        .fold(filter, |filter, rule| filter.add_directive(rule.parse().expect("a fixed rule")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_the_websocket_is_never_told() {
        for asked in ["trace", "tungstenite=trace", "tungstenite::handshake::client=trace,info"] {
            let filter = without_secrets(EnvFilter::new(asked)).to_string();
            assert!(!filter.contains("tungstenite=trace") && !filter.contains("client=trace"), "{filter}");
            assert!(filter.contains("tungstenite::handshake::client=info"), "{filter}");
        }
    }
}
