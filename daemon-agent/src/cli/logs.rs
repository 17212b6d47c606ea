//! Log lines on stderr.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;

use super::LogForm;

/// A full disk or a closed pipe behind stderr is no reason to end.
struct Patient;

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Starts logging; `RUST_LOG` chooses how much, `usual` holds without it.
pub fn start(form: LogForm, usual: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(usual));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Patient).with_target(false);
    let started = match form {
        LogForm::Json => lines.json().flatten_event(true).try_init(),
        LogForm::Text => lines.with_ansi(false).try_init(),
    };
    if let Err(error) = started {
        eprintln!("daemon-agent: no log: {error}");
    }
}
