//! Memory used in this process's IPC namespace, from `/proc/sysvipc`; the command's own, if it has such a namespace.

use std::fs;

/// A semaphore takes a cache line, bytes.
const SEMAPHORE_BYTES: u64 = 64;
/// What a message takes in addition to its text, bytes.
const MESSAGE_OVERHEAD_BYTES: u64 = 64;

/// Bytes of all shared memory segments, attached or not.
pub fn segments() -> u64 {
    // The columns of resident and swapped bytes, counted from zero.
    sum("shm", &[14, 15])
}

/// Bytes that are queued in messages, and that semaphores take.
pub fn queues() -> u64 {
    sum("msg", &[3]) + sum("msg", &[4]) * MESSAGE_OVERHEAD_BYTES + sum("sem", &[3]) * SEMAPHORE_BYTES
}

fn sum(file: &str, columns: &[usize]) -> u64 {
    let text = fs::read_to_string(format!("/proc/sysvipc/{file}")).unwrap_or_default();
    let of = |line: &str| -> u64 {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        columns.iter().filter_map(|column| fields.get(*column)?.parse::<u64>().ok()).sum()
    };
    text.lines().skip(1).map(of).sum()
}
