//! Files of a viber's workspace: reading them, and the changes that people make to them here.
//!
//! The files on the machine are the truth. A change is a durable command against the version that its author saw; the
//! viber reports whether it was applied.

mod edit;
mod read;

use sha2::{Digest, Sha256};

use crate::secret;

pub use edit::{FileChange, FileOp, edit, settle};
pub use read::{FileContents, list, read, read_anew, search};

pub use crate::actions::unanswered::{VIBER_AWAY, VIBER_BUSY};
pub(in crate::actions) use read::{ViberAnswer, ask, fetch, refusal};

/// The hash that names a version of a file.
fn hash(content: &[u8]) -> String {
    secret::hex(&Sha256::digest(content))
}
