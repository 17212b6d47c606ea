//! Log lines on stderr.

use std::io::{self, Write};

use protocol::text::{is_printable, printable};
use tracing_subscriber::EnvFilter;

use super::LogFormat;

/// Standard error for logs: a full disk or a closed pipe behind it does not end the daemon, and control characters are
/// made harmless for terminals.
struct LossyStderr;

impl Write for LossyStderr {
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

/// Starts logging; `RUST_LOG` sets the level, `usual` is the default.
pub fn start(form: LogFormat, usual: &str) {
    let filter = without_secrets(EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual)));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| LossyStderr).with_target(false);
    let started = match form {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines.with_ansi(false).try_init(),
    };
    if let Err(error) = started {
        eprintln!("daemon-agent: no log: {error}");
    }
}

/// Adds rules that keep secrets out of the log: at `trace` level the WebSocket library logs its whole request,
/// including the viber's credential, so that level is off whatever `RUST_LOG` says. The library for MCP logs what servers
/// say and are sent, at every level and as long as it is: nothing of it is a line of ours.
fn without_secrets(filter: EnvFilter) -> EnvFilter {
    ["tungstenite=info", "tungstenite::handshake=info", "tungstenite::handshake::client=info", "rmcp=off"]
        .into_iter()
        .fold(filter, |filter, rule| filter.add_directive(rule.parse().expect("a fixed rule")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_of_the_websocket_is_never_told() {
        for asked in ["trace", "tungstenite=trace", "tungstenite::handshake::client=trace,info", "rmcp=trace"] {
            let filter = without_secrets(EnvFilter::new(asked)).to_string();
            assert!(!filter.contains("tungstenite=trace") && !filter.contains("client=trace"), "{filter}");
            assert!(filter.contains("tungstenite::handshake::client=info"), "{filter}");
            assert!(filter.contains("rmcp=off") && !filter.contains("rmcp=trace"), "{filter}");
        }
    }
}
