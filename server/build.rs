//! Finds the third-party browser code that is embedded in the binary, or says how to get it.

use std::path::{Path, PathBuf};

const HTMX: &str = "node_modules/htmx.org/dist/htmx.min.js";

fn main() {
    println!("cargo:rerun-if-changed=../package-lock.json");
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // Node's own rule: the folder itself, then each one above it.
    let Some(htmx) = here.ancestors().map(|folder: &Path| folder.join(HTMX)).find(|file| file.is_file()) else {
        panic!("\n\n  {HTMX} is missing: run `make assets` (that is `npm ci`) once, then build again.\n");
    };
    println!("cargo:rerun-if-changed={}", htmx.display());
    println!("cargo:rustc-env=HTMX_JS={}", htmx.display());
}
