//! Files of a viber's workspace: changes that people make here, what became of them, and what is heard from the machine.
//!
//! The machine's files are the truth. A change is a durable command to the version that its author saw; whether it was
//! made the viber says.

mod edit;
mod look;
mod reported;

use sha2::{Digest, Sha256};

use crate::secret;

pub use edit::{FileChange, FileOp, edit, settle};
pub use look::{AWAY, Folder, Shown, catch_up, list, read, search};
pub(in crate::actions) use look::{fetch, refusal};
pub use reported::{heard, written};

/// The name of a version.
fn hash(content: &[u8]) -> String {
    secret::hex(&Sha256::digest(content))
}
