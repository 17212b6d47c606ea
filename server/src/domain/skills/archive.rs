//! Archives, told apart by how they begin and read in memory. An archive is for reading only: nothing is written anywhere.

mod tarball;
mod zipped;

use flate2::bufread::MultiGzDecoder;
use protocol::limits::MAX_SKILL_ARCHIVE_BYTES;

use super::{bundle::BadBundle, intake::Intake};

pub use tarball::read as read_tar;

/// Takes in what `archive` holds.
pub fn read(archive: &[u8], intake: &mut Intake) -> Result<(), BadBundle> {
    if archive.len() as u64 > MAX_SKILL_ARCHIVE_BYTES {
        return Err(BadBundle::whole(format!("is larger than {} MiB", MAX_SKILL_ARCHIVE_BYTES / 1024 / 1024)));
    }
    match archive {
        [b'P', b'K', 3, 4, ..] => zipped::read(archive, intake),
        [b'P', b'K', 5, 6, ..] => Err(BadBundle::whole("is an empty zip archive")),
        [0x1f, 0x8b, ..] => tarball::read(MultiGzDecoder::new(archive), intake),
        // Where POSIX has its magic.
        _ if archive.get(257..262) == Some(b"ustar") => tarball::read(archive, intake),
        _ => Err(BadBundle::whole("is neither a zip nor a tar archive")),
    }
}
