//! Finds the dynamic loader of a program: the interpreter that its ELF header names.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Bytes at a program's beginning that contain its headers.
const HEAD_BYTES: u64 = 16 * 1024;
/// `PT_INTERP` in the ELF specification: the program header that names the interpreter.
const PT_INTERP: u64 = 3;

/// The loader of `program`, without links; `None` if it needs none. Anything but a little-endian 64-bit ELF file is an
/// error: a script, or a program for another machine.
pub fn of(program: &Path) -> io::Result<Option<PathBuf>> {
    let mut head = Vec::new();
    File::open(program)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    named(&head)
        .ok_or(io::ErrorKind::InvalidData)?
        .map(|path| Path::new(OsStr::from_bytes(path)).canonicalize())
        .transpose()
}

/// The outer `None` means that the header was not understood.
fn named(head: &[u8]) -> Option<Option<&[u8]>> {
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(head, 32, 8)?, number(head, 54, 2)?, number(head, 56, 2)?);
    for n in 0..count {
        let entry = n.checked_mul(size)?.checked_add(table)?;
        if number(head, entry, 4)? == PT_INTERP {
            let (from, length) = (number(head, entry.checked_add(8)?, 8)?, number(head, entry.checked_add(32)?, 8)?);
            let path = head.get(usize::try_from(from).ok()?..)?.get(..usize::try_from(length).ok()?)?;
            return Some(Some(path.split(|byte| *byte == 0).next()?));
        }
    }
    Some(None)
}

fn number(bytes: &[u8], at: u64, length: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?.get(..usize::try_from(length).ok()?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_names_its_loader() {
        let own = std::env::current_exe().expect("a program");
        let loader = of(&own).expect("an ELF file").expect("a loader");
        assert!(loader.display().to_string().contains("/ld-"), "{}", loader.display());
        let head = std::fs::read(&own).expect("readable");
        for end in 0..300 {
            // Cut anywhere, it is not understood or names nothing.
            assert!(named(&head[..end]).is_none_or(|named| named.is_none()), "{end}");
        }
        assert_eq!(named(b"#!/bin/sh\n"), None);
    }
}
