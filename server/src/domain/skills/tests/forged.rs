//! Archives made byte by byte, so that they can lie.

use std::io::Write as _;

use flate2::{Compression, Crc, write::DeflateEncoder};

/// A main file that is sound.
pub const MAIN: &str = "---\nname: tidy-notes\ndescription: Keeps notes tidy.\n---\n# Notes\n";

/// One entry of a zip, as its two headers have it.
#[derive(Clone, Default)]
pub struct ZipEntry {
    pub name: Vec<u8>,
    /// The name before its bytes, if it is another one.
    pub local_name: Option<Vec<u8>>,
    pub flags: u16,
    pub method: u16,
    pub data: Vec<u8>,
    pub crc: u32,
    /// Of the unpacked file, as it is claimed.
    pub size: u32,
    pub mode: u32,
    pub extra: Vec<u8>,
    /// Where the directory says that it begins.
    pub offset: Option<u32>,
    /// Left out of the directory.
    pub is_unlisted: bool,
    /// Only in the directory.
    pub is_only_listed: bool,
}

impl ZipEntry {
    pub fn file(name: &str, text: &str, mode: u32) -> Self {
        Self::packed(name.as_bytes(), text.as_bytes(), 0o100_000 | mode)
    }

    pub fn packed(name: &[u8], bytes: &[u8], mode: u32) -> Self {
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        packed.write_all(bytes).expect("written");
        let mut crc = Crc::new();
        crc.update(bytes);
        let size = u32::try_from(bytes.len()).expect("a size");
        let data = packed.finish().expect("packed");
        Self { name: name.to_vec(), method: 8, data, crc: crc.sum(), size, mode, ..Self::default() }
    }
}

/// The archive of these entries, one after the other.
pub fn zip(entries: &[ZipEntry]) -> Vec<u8> {
    let (mut archive, mut directory): (Vec<u8>, Vec<u8>) = Default::default();
    let mut count = 0_u16;
    for entry in entries {
        let begin = u32::try_from(archive.len()).expect("an offset");
        let size = u32::try_from(entry.data.len()).expect("a size");
        let local = entry.local_name.as_ref().unwrap_or(&entry.name);
        let about = |name: &[u8]| {
            let mut fields = Vec::new();
            for number in [20_u16, entry.flags, entry.method, 0, 0x21] {
                fields.extend(number.to_le_bytes());
            }
            for number in [entry.crc, size, entry.size] {
                fields.extend(number.to_le_bytes());
            }
            for length in [name.len(), entry.extra.len()] {
                fields.extend(u16::try_from(length).expect("a length").to_le_bytes());
            }
            fields
        };
        if !entry.is_only_listed {
            archive.extend(b"PK\x03\x04");
            archive.extend(about(local));
            archive.extend(local.iter().chain(&entry.extra).chain(&entry.data));
        }
        if entry.is_unlisted {
            continue;
        }
        count += 1;
        // Made by Unix.
        directory.extend(b"PK\x01\x02\x14\x03");
        directory.extend(about(&entry.name));
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(entry.offset.unwrap_or(begin).to_le_bytes());
        directory.extend(entry.name.iter().chain(&entry.extra));
    }
    let (begin, length) = (archive.len(), directory.len());
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend(count.to_le_bytes().repeat(2));
    archive.extend(u32::try_from(length).expect("a length").to_le_bytes());
    archive.extend(u32::try_from(begin).expect("an offset").to_le_bytes());
    archive.extend([0; 2]);
    archive
}

/// One entry of a tar.
#[derive(Clone)]
pub struct TarEntry {
    pub name: Vec<u8>,
    pub kind: u8,
    pub mode: u32,
    /// As it is claimed.
    pub size: u64,
    pub bytes: Vec<u8>,
}

impl TarEntry {
    pub fn file(name: &str, text: &str, mode: u32) -> Self {
        Self { mode, ..Self::of(name.as_bytes(), b'0', text.as_bytes()) }
    }

    pub fn folder(name: &str) -> Self {
        Self::of(name.as_bytes(), b'5', b"")
    }

    pub fn of(name: &[u8], kind: u8, bytes: &[u8]) -> Self {
        Self { name: name.to_vec(), kind, mode: 0o644, size: bytes.len() as u64, bytes: bytes.to_vec() }
    }

    /// An extended header with one record.
    pub fn pax(kind: u8, key: &str, value: &str) -> Self {
        let rest = format!(" {key}={value}\n");
        let length = (rest.len()..).find(|length| rest.len() + length.to_string().len() == *length).expect("a length");
        Self::of(b"PaxHeader", kind, format!("{length}{rest}").as_bytes())
    }

    /// The header and the bytes, without the end of an archive.
    pub fn written(&self) -> Vec<u8> {
        let mut header = ::tar::Header::new_ustar();
        header.as_old_mut().name[..self.name.len()].copy_from_slice(&self.name);
        header.set_entry_type(::tar::EntryType::new(self.kind));
        header.set_mode(self.mode);
        header.set_mtime(1_700_000_000);
        header.set_size(self.size);
        header.set_cksum();
        let mut written = header.as_bytes().to_vec();
        written.extend(&self.bytes);
        written.resize(written.len().next_multiple_of(512), 0);
        written
    }
}

/// The archive of these entries.
pub fn tar(entries: &[TarEntry]) -> Vec<u8> {
    let mut archive: Vec<u8> = entries.iter().flat_map(TarEntry::written).collect();
    archive.resize(archive.len() + 1024, 0);
    archive
}
