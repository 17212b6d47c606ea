//! I9: no secret that the harness knows stands anywhere in the Board's log, folder or database.

use std::path::Path;

use super::dump::Dump;
use crate::{canary::files, ledger::LedgerEntries};

/// Looks for every known secret in the rows, in the log of the Board and its vibers, and in every file of the data folder.
pub fn canaries(dump: &Dump, entries: &LedgerEntries, data: &Path, wrong: &mut Vec<String>) {
    let mut places: Vec<(String, Vec<u8>)> = files(data)
        .into_iter()
        // A file that vanishes meanwhile holds nothing.
        .map(|file| (file.display().to_string(), std::fs::read(&file).unwrap_or_default()))
        .collect();
    for root in &entries.vibers {
        places.push((
            format!("the log of {}", root.display()),
            std::fs::read(root.join("daemon.log")).unwrap_or_default(),
        ));
    }
    for (table, rows) in &dump.0 {
        places.push((format!("the table {table}"), serde_json::to_vec(rows).unwrap_or_default()));
    }
    for canary in &entries.secrets {
        for (place, bytes) in &places {
            if holds(bytes, canary.secret.as_bytes()) {
                wrong.push(format!("I9 {} stands in {place}", canary.kind()));
            }
        }
    }
}

/// Whether `bytes` contains `word`: looks at each place where its first byte stands.
fn holds(bytes: &[u8], word: &[u8]) -> bool {
    let Some(first) = word.first() else { return false };
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|byte| byte == first) {
        if rest[at..].starts_with(word) {
            return true;
        }
        rest = &rest[at + 1..];
    }
    false
}
