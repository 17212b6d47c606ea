//! What lies in this process's IPC namespace, from `/proc/sysvipc`: the command's, where it has one of its own.

use std::fs;

/// A semaphore takes a line of the processor's cache.
const SEMAPHORE: u64 = 64;
/// What a message takes beside its text.
const MESSAGE: u64 = 64;

/// Bytes of memory of all segments, attached or not.
pub fn segments() -> u64 {
    // The columns of memory and swap, counted from zero.
    sum("shm", &[14, 15])
}

/// Bytes that wait in queues, and that semaphores take.
pub fn queues() -> u64 {
    sum("msg", &[3]) + sum("msg", &[4]) * MESSAGE + sum("sem", &[3]) * SEMAPHORE
}

fn sum(file: &str, columns: &[usize]) -> u64 {
    let text = fs::read_to_string(format!("/proc/sysvipc/{file}")).unwrap_or_default();
    let of = |line: &str| -> u64 {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        columns.iter().filter_map(|column| fields.get(*column)?.parse::<u64>().ok()).sum()
    };
    text.lines().skip(1).map(of).sum()
}
