//! How much of a file is read, and for how long: a command can create a file of any size in no time.

use std::{
    fs::File,
    io::{self, Read},
    sync::OnceLock,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// Largest file that can be an artifact, bytes. A sparse file counts with the size a reader gets. The Board has limits
/// of its own per team; nothing that people hand over comes near this one.
const MAX_ARTIFACT_BYTES: u64 = 16 * 1024 * 1024 * 1024;
/// How long small files may still be read after a stop: people want to see what a stopped task left.
pub const READ_TIME_AFTER_STOP: Duration = Duration::from_secs(2);

/// The bytes of an open file, or why it is too large to be read.
pub fn checked(file: &File) -> io::Result<io::Take<&File>> {
    let size = file.metadata()?.len();
    if size > MAX_ARTIFACT_BYTES {
        let most = MAX_ARTIFACT_BYTES >> 30;
        let why = format!("it has {size} bytes, and an artifact has at most {most} GiB");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    // If the file grows in the meantime, only its first `size` bytes are read.
    Ok(file.take(size))
}

/// The time in which files may be read, however many: it ends soon after `stop`.
#[derive(Debug)]
pub struct ReadWindow {
    stop: CancellationToken,
    /// When the stop was noticed.
    seen: OnceLock<Instant>,
}

impl ReadWindow {
    /// Reading may continue until shortly after `stop`.
    pub fn until(stop: CancellationToken) -> Self {
        Self { stop, seen: OnceLock::new() }
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        self.stop.is_cancelled() && self.seen.get_or_init(Instant::now).elapsed() >= READ_TIME_AFTER_STOP
    }

    /// A reader of `from` that fails once the time is over.
    pub fn of<R: Read>(&self, from: R) -> impl Read {
        WindowReader { from, reading: self }
    }
}

struct WindowReader<'a, R> {
    from: R,
    reading: &'a ReadWindow,
}

impl<R: Read> Read for WindowReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.reading.is_over() {
            return Err(io::Error::other("the task ended before all of it was read"));
        }
        self.from.read(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_ends_soon_after_a_stop() {
        let stop = CancellationToken::new();
        let reading = ReadWindow::until(stop.clone());
        let mut endless = reading.of(io::repeat(0));
        endless.read_exact(&mut [0; 16]).expect("goes on");
        stop.cancel();
        endless.read_exact(&mut [0; 16]).expect("a moment longer");
        let begin = Instant::now();
        io::copy(&mut endless, &mut io::sink()).expect_err("ended");
        assert!(reading.is_over() && begin.elapsed() < 10 * READ_TIME_AFTER_STOP);
    }

    #[test]
    fn a_sparse_file_counts_as_what_a_reader_gets() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(MAX_ARTIFACT_BYTES).expect("a size");
        checked(&file).expect("the largest");
        file.set_len(MAX_ARTIFACT_BYTES + 1).expect("a size");
        let error = checked(&file).expect_err("too large").to_string();
        assert_eq!(error, "it has 17179869185 bytes, and an artifact has at most 16 GiB");
    }
}
