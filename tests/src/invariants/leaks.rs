//! I9: no secret that the harness knows stands anywhere in the Board's log, folder or database.

use std::path::Path;

use memchr::memmem::Finder;

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
        let secret = Finder::new(canary.secret.as_bytes());
        for (place, bytes) in &places {
            if secret.find(bytes).is_some() {
                wrong.push(format!("I9 {} stands in {place}", canary.kind()));
            }
        }
    }
}
