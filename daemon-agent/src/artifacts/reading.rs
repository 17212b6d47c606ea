//! How much of a file is read, and for how long: a command can make a file of any size in no time.

use std::{
    fs::File,
    io::{self, Read},
    sync::OnceLock,
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

/// Largest file that is an artifact, bytes. A sparse file counts as what a reader gets of it. The Board's own bounds are
/// those of a team; nothing that people hand over comes near this one.
const MAX_ARTIFACT: u64 = 16 * 1024 * 1024 * 1024;
/// After a stop small files are read still, because people want to see what a stopped task left; but no longer than this.
pub const AFTER_STOP: Duration = Duration::from_secs(2);

/// The bytes of an open file, or why it is too large to be read.
pub fn checked(file: &File) -> io::Result<io::Take<&File>> {
    let size = file.metadata()?.len();
    if size > MAX_ARTIFACT {
        let most = MAX_ARTIFACT >> 30;
        let why = format!("it has {size} bytes, and an artifact has at most {most} GiB");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    // What grows meanwhile is read only as far as it was.
    Ok(file.take(size))
}

/// One time of reading, however many files: it ends soon after `stop`.
#[derive(Debug)]
pub struct Reading {
    stop: CancellationToken,
    /// When the stop was seen.
    seen: OnceLock<Instant>,
}

impl Reading {
    /// Reading that goes on until `stop`, and a moment longer.
    pub fn until(stop: CancellationToken) -> Self {
        Self { stop, seen: OnceLock::new() }
    }

    /// Whether nothing more is to be read.
    pub fn is_over(&self) -> bool {
        self.stop.is_cancelled() && self.seen.get_or_init(Instant::now).elapsed() >= AFTER_STOP
    }

    /// `from`, as long as reading goes on.
    pub fn of<R: Read>(&self, from: R) -> impl Read {
        Bounded { from, reading: self }
    }
}

struct Bounded<'a, R> {
    from: R,
    reading: &'a Reading,
}

impl<R: Read> Read for Bounded<'_, R> {
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
        let reading = Reading::until(stop.clone());
        let mut endless = reading.of(io::repeat(0));
        endless.read_exact(&mut [0; 16]).expect("goes on");
        stop.cancel();
        endless.read_exact(&mut [0; 16]).expect("a moment longer");
        let begin = Instant::now();
        io::copy(&mut endless, &mut io::sink()).expect_err("ended");
        assert!(reading.is_over() && begin.elapsed() < 2 * AFTER_STOP);
    }

    #[test]
    fn a_sparse_file_counts_as_what_a_reader_gets() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(MAX_ARTIFACT).expect("a size");
        checked(&file).expect("the largest");
        file.set_len(MAX_ARTIFACT + 1).expect("a size");
        let error = checked(&file).expect_err("too large").to_string();
        assert_eq!(error, "it has 17179869185 bytes, and an artifact has at most 16 GiB");
    }
}
