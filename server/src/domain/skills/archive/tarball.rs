//! A tar archive, packed by gzip or not. Extended headers are read here, within bounds, because they rename what follows.

use std::{
    cell::Cell,
    io::{self, Read},
};

use protocol::limits::MAX_PATH_BYTES;
use tar::{EntryType, PaxExtensions};

use super::super::{
    bundle::{BadBundle, SkillFileMode},
    intake::Intake,
};

/// Most bytes that an archive unpacks to, with what is left out of it.
const MAX_UNPACKED_BYTES: u64 = 64 * 1024 * 1024;
/// Largest extended header, bytes.
const MAX_EXTENSION_BYTES: u64 = 16 * 1024;
/// Zeros at the end of an archive (POSIX: two blocks), bytes.
const END_BYTES: usize = 1024;

/// What an extended header says of the entry after it.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

/// A reader that stops at a bound, and counts the zeros with which it ends.
struct Bounded<'c, R> {
    inner: R,
    left: u64,
    zeros: usize,
    is_over: &'c Cell<bool>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        let read = buffer.get(..length).unwrap_or_default();
        self.left = self.left.checked_sub(length as u64).ok_or_else(|| {
            self.is_over.set(true);
            io::Error::other("too much")
        })?;
        // No more of them are needed, whatever is read at a time.
        let zeros = read.iter().rev().take(END_BYTES).take_while(|byte| **byte == 0).count();
        self.zeros = if zeros == length { self.zeros + zeros } else { zeros };
        Ok(length)
    }
}

/// Takes in what the archive in `stream` holds.
pub fn read(stream: impl Read, intake: &mut Intake) -> Result<(), BadBundle> {
    let is_over = Cell::new(false);
    let bounded = Bounded { inner: stream, left: MAX_UNPACKED_BYTES, zeros: 0, is_over: &is_over };
    read_bounded(bounded, intake).map_err(|bad| match is_over.get() {
        true => BadBundle::whole(format!("unpacks to more than {} MiB", MAX_UNPACKED_BYTES / 1024 / 1024)),
        false => bad,
    })
}

fn read_bounded<R: Read>(stream: Bounded<'_, R>, intake: &mut Intake) -> Result<(), BadBundle> {
    let mut archive = tar::Archive::new(stream);
    let mut extension = Extension::default();
    for entry in archive.entries().map_err(unsound)?.raw(true) {
        let mut entry = entry.map_err(unsound)?;
        let header = entry.header().clone();
        let Extension { path, size: claimed } = match header.entry_type() {
            EntryType::XGlobalHeader => {
                let global = Extension::of_pax(&mut entry)?;
                if global.path.is_some() || global.size.is_some() {
                    return Err(BadBundle::whole("gives all its entries one name or size"));
                }
                continue;
            }
            EntryType::XHeader => {
                extension = Extension::of_pax(&mut entry)?;
                continue;
            }
            EntryType::GNULongName => {
                extension.path = Some(long_name(&mut entry)?);
                continue;
            }
            _ => std::mem::take(&mut extension),
        };
        let name = path.unwrap_or_else(|| header.path_bytes().into_owned());
        let wrong = |why: &str| BadBundle::entry(&String::from_utf8_lossy(&name), why);
        let size = header.entry_size().map_err(|_| wrong("says no size"))?;
        if claimed.is_some_and(|claimed| claimed != size) {
            return Err(wrong("says two sizes"));
        }
        // `tar .` writes it before every name.
        let plain = name.strip_prefix(b"./").unwrap_or(&name);
        let is_folder = header.entry_type() == EntryType::Directory || plain.ends_with(b"/");
        match header.entry_type() {
            EntryType::Regular | EntryType::Directory if is_folder => {
                if size != 0 {
                    return Err(wrong("is a folder with bytes of its own"));
                }
                if !matches!(plain, b"" | b".") {
                    intake.folder(plain)?;
                }
            }
            EntryType::Regular | EntryType::Continuous => {
                let mode = header.mode().map_err(|_| wrong("says no mode"))?;
                if let Some(place) = intake.file(plain, size)? {
                    intake.fill(place, SkillFileMode::of_unix(mode), &mut entry)?;
                }
            }
            EntryType::Symlink | EntryType::Link | EntryType::GNULongLink => return Err(wrong("is a link")),
            EntryType::Char | EntryType::Block | EntryType::Fifo => return Err(wrong("is a device")),
            _ => return Err(wrong("is neither a file nor a folder")),
        }
    }
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(unsound)?;
    match rest.zeros >= END_BYTES {
        true => Ok(()),
        false => Err(BadBundle::whole("is no sound tar archive: its end is missing")),
    }
}

impl Extension {
    fn of_pax(entry: &mut impl Read) -> Result<Self, BadBundle> {
        let (bytes, mut found) = (extension_bytes(entry)?, Self::default());
        for record in PaxExtensions::new(&bytes) {
            let record = record.map_err(unsound)?;
            let value = record.value_bytes();
            match record.key_bytes() {
                b"path" => found.path = Some(value.to_owned()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    found.size =
                        Some(size.ok_or_else(|| BadBundle::whole("has an entry with a size that is no number"))?);
                }
                b"linkpath" => return Err(BadBundle::entry(&String::from_utf8_lossy(value), "is where a link leads")),
                key if key.starts_with(b"GNU.sparse.") => return Err(BadBundle::whole("has a sparse file")),
                _ => {}
            }
        }
        Ok(found)
    }
}

fn long_name(entry: &mut impl Read) -> Result<Vec<u8>, BadBundle> {
    let mut name = extension_bytes(entry)?;
    if name.last() == Some(&0) {
        name.pop();
    }
    match name.len() <= MAX_PATH_BYTES {
        true => Ok(name),
        false => Err(BadBundle::entry(&String::from_utf8_lossy(&name), "its path is not allowed: it is too long")),
    }
}

fn extension_bytes(entry: &mut impl Read) -> Result<Vec<u8>, BadBundle> {
    let mut bytes = Vec::new();
    entry.take(MAX_EXTENSION_BYTES + 1).read_to_end(&mut bytes).map_err(unsound)?;
    match bytes.len() as u64 <= MAX_EXTENSION_BYTES {
        true => Ok(bytes),
        false => Err(BadBundle::whole(format!("has a header of more than {} KiB", MAX_EXTENSION_BYTES / 1024))),
    }
}

fn unsound(error: io::Error) -> BadBundle {
    BadBundle::whole(format!("is no sound tar archive: {error}"))
}
