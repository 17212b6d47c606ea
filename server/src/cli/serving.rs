//! The mark that a Board serves from a data folder: a lock that ends with its process.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use rustix::fs::{FlockOperation, flock};

use super::Failure;

/// Held as long as a Board serves, or as long as nobody may.
#[derive(Debug)]
pub struct Mark(#[expect(dead_code, reason = "the lock lives as long as the open file")] fs::File);

/// Takes the mark; fails when another process has it.
pub fn take(data: &Path) -> Result<Mark, Failure> {
    let path = data.join("serve.lock");
    let wrong = |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    let open = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let mut file = open.map_err(wrong)?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let data = data.display();
        return Err(Failure::Config(format!("--data {data}: another viber-board serves from this folder")));
    }
    file.set_len(0).map_err(wrong)?;
    writeln!(file, "{}", std::process::id()).map_err(wrong)?;
    Ok(Mark(file))
}
