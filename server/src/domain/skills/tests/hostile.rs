//! Archives that nobody makes by accident: each is refused whole, at once, and without unpacking what it claims to hold.

use std::{
    io::{self, Read},
    time::{Duration, Instant},
};

use flate2::read::MultiGzDecoder;

use super::{
    forged::{MAIN, TarEntry, ZipEntry, tar, zip},
    gzip,
};
use crate::domain::skills::{BadBundle, SkillBundle, archive::read_tar, intake::Intake};

/// How long refusing may take: a build without optimisation on a busy machine is slow.
const TIME_LIMIT: Duration = Duration::from_secs(10);

fn refused(archive: &[u8]) -> BadBundle {
    let begun = Instant::now();
    let bad = SkillBundle::read(archive).expect_err("it is hostile");
    assert!(begun.elapsed() < TIME_LIMIT, "{bad} after {:?}", begun.elapsed());
    bad
}

/// Asserts that the archive is refused for this reason; the entry is part of it.
fn assert_refused(archive: &[u8], reason: &str) {
    let bad = refused(archive);
    assert!(bad.to_string().contains(reason), "expected {reason:?}, found {bad}");
}

fn main_file() -> ZipEntry {
    ZipEntry::file("SKILL.md", MAIN, 0o644)
}

fn zip_with(entries: impl IntoIterator<Item = ZipEntry>) -> Vec<u8> {
    zip(&[main_file()].into_iter().chain(entries).collect::<Vec<_>>())
}

fn tar_with(entries: impl IntoIterator<Item = TarEntry>) -> Vec<u8> {
    tar(&[TarEntry::file("SKILL.md", MAIN, 0o644)].into_iter().chain(entries).collect::<Vec<_>>())
}

#[test]
fn a67_names_that_lead_elsewhere_or_cannot_be_seen_are_refused() {
    let long = "x".repeat(256);
    let names: &[(&[u8], &str)] = &[
        (b"/etc/passwd", "absolute"),
        (b"../x", "leads elsewhere"),
        (b"a/../../x", "leads elsewhere"),
        (b"..", "leads elsewhere"),
        (b"a/./b", "leads elsewhere"),
        (b"a//b", "empty"),
        (b"//x", "absolute"),
        (b"a\\b", "separator"),
        (b"..\\..\\x", "separator"),
        (b"C:/x", "drive"),
        (b"a\nb", "cannot be seen"),
        (b"a\x1b[2Jb", "cannot be seen"),
        ("a\u{202e}gpj.sh".as_bytes(), "cannot be seen"),
        ("a\u{200b}b".as_bytes(), "cannot be seen"),
        ("a\u{2215}b".as_bytes(), "separator"),
        (b"a\xff", "not UTF-8"),
        (b"a%2e%2e", "escaped"),
        (b"a. ", "ends with a space"),
        (long.as_bytes(), "too long"),
    ];
    for (name, reason) in names {
        let entry = ZipEntry { name: name.to_vec(), ..main_file() };
        assert_refused(&zip_with([entry]), reason);
        if name.len() <= 100 {
            let entry = TarEntry::of(name, b'0', b"x");
            assert_refused(&tar_with([entry.clone()]), reason);
            assert_refused(&gzip(&tar_with([entry])), reason);
        }
    }
    // What a header cannot hold, in both extensions.
    for (name, reason) in names.iter().filter(|(name, _)| name.iter().all(u8::is_ascii_graphic)) {
        let text = String::from_utf8_lossy(name);
        let plain = TarEntry::file("plain", "x", 0o644);
        assert_refused(&tar_with([TarEntry::pax(b'x', "path", &text), plain.clone()]), reason);
        assert_refused(&tar_with([TarEntry::of(b"././@LongLink", b'L', &[*name, b"\0"].concat()), plain]), reason);
    }
    assert_refused(&zip_with([ZipEntry { name: b"a\0b".to_vec(), ..main_file() }]), "cannot be seen");
    assert_refused(&tar_with([TarEntry::pax(b'x', "path", "a\0b"), TarEntry::file("p", "x", 0o644)]), "cannot be seen");
    let shown = refused(&zip_with([ZipEntry { name: "a\u{202e}b".into(), ..main_file() }]));
    assert_eq!(shown.entry, "a⟨U+202E⟩b");
}

#[test]
fn links_devices_and_odd_kinds_are_refused() {
    for (mode, reason) in [
        (0o120_777, "is a link"),
        (0o020_666, "neither a file nor a folder"),
        (0o060_666, "neither a file nor a folder"),
        (0o010_644, "neither a file nor a folder"),
        (0o140_644, "neither a file nor a folder"),
        (0o040_755, "is a folder by"),
    ] {
        assert_refused(&zip_with([ZipEntry::packed(b"x", b"/etc/passwd", mode)]), reason);
    }
    assert_refused(&zip_with([ZipEntry::packed(b"x/", b"bytes", 0o040_755)]), "is a folder by");
    for (kind, reason) in [
        (b'1', "is a link"),
        (b'2', "is a link"),
        (b'K', "is a link"),
        (b'3', "is a device"),
        (b'4', "is a device"),
        (b'6', "is a device"),
        (b'S', "neither a file nor a folder"),
        (b'V', "neither a file nor a folder"),
        (b'?', "neither a file nor a folder"),
    ] {
        assert_refused(&tar_with([TarEntry::of(b"x", kind, b"")]), reason);
        // Nor does it matter that it would be left out.
        assert_refused(&tar_with([TarEntry::of(b".git/x", kind, b"")]), reason);
    }
    assert_refused(&tar_with([TarEntry::of(b"x/", b'5', b"bytes")]), "bytes of its own");
}

#[test]
fn names_that_some_file_system_takes_for_one_are_refused() {
    for (first, second) in [
        ("a", "a"),
        ("notes.md", "Notes.md"),
        ("skill.md", "x"),
        ("\u{fb01}le", "file"),
        ("A/x", "a/y"),
        ("a", "a/b"),
        ("a/b", "a"),
        ("stra\u{df}e/x", "STRA\u{1e9e}E/y"),
    ] {
        let tape = tar_with([TarEntry::file(first, "1", 0o644), TarEntry::file(second, "2", 0o644)]);
        let bad = refused(&tape);
        assert!(bad.reason.contains("occurs twice") || bad.reason.contains("taken for"), "{first} {second}: {bad}");
        let zipped = zip_with([ZipEntry::file(first, "1", 0o644), ZipEntry::file(second, "2", 0o644)]);
        assert!(SkillBundle::read(&zipped).is_err(), "{first} {second}");
    }
}

#[test]
fn extensions_of_a_tar_cannot_lie() {
    let plain = || TarEntry::file("plain", "xyz", 0o644);
    assert_refused(&tar_with([TarEntry::pax(b'x', "size", "1"), plain()]), "says two sizes");
    assert_refused(&tar_with([TarEntry::pax(b'x', "size", "99999999999999999999"), plain()]), "no number");
    assert_refused(&tar_with([TarEntry::pax(b'x', "linkpath", "/etc/passwd"), plain()]), "where a link leads");
    assert_refused(&tar_with([TarEntry::pax(b'x', "GNU.sparse.map", "0,1"), plain()]), "sparse");
    assert_refused(&tar_with([TarEntry::pax(b'g', "path", "same"), plain()]), "one name or size");
    assert_refused(&tar_with([TarEntry::of(b"x", b'x', b"5 broken"), plain()]), "no sound tar archive");
    assert_refused(&tar_with([TarEntry::pax(b'x', "comment", &"x".repeat(20_000)), plain()]), "16 KiB");
    let fine = tar_with([TarEntry::pax(b'g', "comment", "0123"), TarEntry::pax(b'x', "size", "3"), plain()]);
    assert!(SkillBundle::read(&fine).is_ok());
    let renamed = tar_with([TarEntry::pax(b'x', "path", "other"), plain()]);
    assert_eq!(SkillBundle::read(&renamed).expect("a skill").text("other"), Some("xyz"));
}

#[test]
fn headers_of_a_zip_cannot_lie() {
    let entry = || ZipEntry::file("a.txt", &"text ".repeat(100), 0o644);
    let stored = |text: &str| ZipEntry { method: 0, data: text.into(), ..ZipEntry::file("a.txt", text, 0o644) };
    assert!(SkillBundle::read(&zip_with([entry(), ZipEntry { name: b"b".to_vec(), ..stored("x") }])).is_ok());
    for (entry, reason) in [
        (ZipEntry { flags: 1, ..entry() }, "is encrypted"),
        (ZipEntry { method: 12, ..entry() }, "compressed in a way"),
        (ZipEntry { method: 99, ..entry() }, ""),
        (ZipEntry { crc: 1, ..entry() }, "cannot be unpacked"),
        (ZipEntry { size: 10, ..entry() }, "a.txt"),
        (ZipEntry { size: 100_000, ..entry() }, "a.txt"),
        (ZipEntry { size: 2, ..stored("longer") }, ""),
        (ZipEntry { data: b"\xff\xff\xff".to_vec(), ..entry() }, "cannot be unpacked"),
        (ZipEntry { local_name: Some(b"SKILL.md".to_vec()), ..entry() }, "no sound zip archive"),
        (ZipEntry { offset: Some(0), ..entry() }, "no sound zip archive"),
        (ZipEntry { offset: Some(1 << 30), ..entry() }, "no sound zip archive"),
        (ZipEntry { is_unlisted: true, ..entry() }, "no sound zip archive"),
    ] {
        assert_refused(&zip_with([entry]), reason);
    }
    // A size in the extension for large archives (APPNOTE 4.5.3) that is not the one of the bytes.
    let field = |size: u64| [&[1, 0, 8, 0][..], &size.to_le_bytes()].concat();
    for size in [u64::MAX, 1 << 40, 30 << 20, 1] {
        let entry = ZipEntry { size: u32::MAX, extra: field(size), ..entry() };
        refused(&zip_with([entry]));
    }
}

#[test]
fn a64_entries_that_lie_over_each_other_are_refused() {
    // What the second entry is lies within the bytes of the first one.
    let directory = |archive: &[u8]| archive.windows(4).position(|bytes| bytes == b"PK\x01\x02").expect("a directory");
    let stored = |name: &str, bytes: &[u8]| ZipEntry {
        method: 0,
        data: bytes.to_vec(),
        ..ZipEntry::packed(name.as_bytes(), bytes, 0o100_644)
    };
    let inner = zip(&[stored("inner.txt", b"inner")]);
    let outer = stored("outer.bin", &inner[..directory(&inner)]);
    let before = directory(&zip(&[main_file()]));
    let offset = u32::try_from(before + 30 + outer.name.len()).expect("an offset");
    let listed = ZipEntry { offset: Some(offset), is_only_listed: true, ..stored("inner.txt", b"inner") };
    assert!(SkillBundle::read(&zip_with([stored("inner.txt", b"inner")])).is_ok());
    assert_refused(&zip_with([outer, listed]), "overlapping");
    // Many entries of the directory for the same bytes.
    let zeros = ZipEntry::packed(b"z0", &vec![0; 1 << 20], 0o100_644);
    let many = (1..15).map(|n| ZipEntry {
        name: format!("z{n}").into(),
        data: Vec::new(),
        offset: Some(before as u32),
        ..zeros.clone()
    });
    refused(&zip_with([zeros.clone()].into_iter().chain(many)));
}

#[test]
fn a64_what_is_too_much_is_refused_before_it_is_unpacked() {
    let zeros = ZipEntry::packed(b"z", &vec![0; 11 << 20], 0o100_644);
    let two = [ZipEntry { name: b"a".to_vec(), ..zeros.clone() }, ZipEntry { name: b"b".to_vec(), ..zeros.clone() }];
    assert_refused(&zip_with(two), "larger than 20 MiB");
    assert!(SkillBundle::read(&zip_with([zeros.clone()])).is_ok());
    // It says less than it has: no more than that is unpacked.
    let lying = ZipEntry { size: 1000, ..zeros };
    refused(&zip_with([lying]));
    let names = |count: usize| (0..count).map(|n| ZipEntry { name: format!("f{n}").into(), ..main_file() });
    assert_refused(&zip_with(names(1000)), "more than 1000 files");
    assert!(SkillBundle::read(&zip_with(names(999))).is_ok());
    let junk =
        (0..10_001).map(|n| ZipEntry { name: format!(".git/{n}").into(), data: Vec::new(), ..Default::default() });
    assert_refused(&zip_with(junk), "more than 10000 entries");
    let junk = (0..10_000).map(|n| TarEntry::of(format!(".git/{n}").as_bytes(), b'0', b""));
    assert_refused(&tar_with(junk), "more than 10000 entries");
    let deep = |depth: usize| ZipEntry { name: format!("{}x", "d/".repeat(depth)).into(), ..main_file() };
    assert_refused(&zip_with([deep(9)]), "deeper than 8 folders");
    assert!(SkillBundle::read(&zip_with([deep(8)])).is_ok());
    assert_refused(&vec![0; (24 << 20) + 1], "larger than 24 MiB");
    let nested =
        ZipEntry::packed(b"nested.zip", &zip(&[ZipEntry::packed(b"z", &vec![0; 1 << 20], 0o100_644)]), 0o100_644);
    let read = SkillBundle::read(&zip_with([nested])).expect("archives in archives stay packed");
    assert!(read.size < 4_000, "{}", read.size);
}

/// Counts what is read of a stream.
struct Counted<'c, R>(R, &'c mut u64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.0.read(buffer)?;
        *self.1 += length as u64;
        Ok(length)
    }
}

/// How much of a packed archive is unpacked before it is refused for `reason`, bytes.
fn unpacked_before_refusal(packed: &[u8], reason: &str) -> u64 {
    let mut unpacked = 0;
    let begun = Instant::now();
    let stream = Counted(MultiGzDecoder::new(packed), &mut unpacked);
    let bad = read_tar(stream, &mut Intake::default()).expect_err("it is hostile");
    assert!(bad.reason.contains(reason), "{bad}");
    assert!(begun.elapsed() < TIME_LIMIT, "{:?}", begun.elapsed());
    unpacked
}

#[test]
fn a64_bombs_are_unpacked_no_further_than_their_header() {
    // One that says what it is, and one whose zeros are left out.
    let zeros = vec![0; 80 << 20];
    let bomb = |name: &str| gzip(&tar_with([TarEntry::of(name.as_bytes(), b'0', &zeros)]));
    let honest = bomb("zeros");
    assert!(honest.len() < 200_000);
    assert!(unpacked_before_refusal(&honest, "larger than 20 MiB") < 64 * 1024);
    assert!(unpacked_before_refusal(&bomb(".git/zeros"), "more than 64 MiB") <= (64 << 20) + 64 * 1024);
    // A name, an extension and an end without end.
    let name = gzip(&tar_with([TarEntry::of(b"././@LongLink", b'L', &zeros[..30 << 20])]));
    assert!(unpacked_before_refusal(&name, "16 KiB") < 128 * 1024);
    let end = gzip(&[tar_with([]), zeros].concat());
    assert!(unpacked_before_refusal(&end, "more than 64 MiB") <= (64 << 20) + 64 * 1024);
    // A claim alone.
    let claim = TarEntry { size: 8 << 30, ..TarEntry::of(b"claim", b'0', b"") };
    assert!(unpacked_before_refusal(&gzip(&tar_with([claim])), "larger than 20 MiB") < 64 * 1024);
    assert_refused(&honest, "larger than 20 MiB");
}

#[test]
fn what_is_damaged_or_something_else_is_refused() {
    let whole = tar_with([TarEntry::file("a", &"x".repeat(2_000), 0o644)]);
    let packed = gzip(&whole);
    assert!(SkillBundle::read(&packed).is_ok());
    for length in [packed.len() - 1, packed.len() - 8, packed.len() / 2, 12] {
        refused(&packed[..length]);
    }
    for (length, reason) in [
        (whole.len() - 1024, "its end is missing"),
        (whole.len() - 3_000, "another size"),
        (1024, "its end is missing"),
        (540, "another size"),
    ] {
        assert_refused(&whole[..length], reason);
    }
    let mut broken = whole.clone();
    broken[1] ^= 1;
    assert_refused(&broken, "no sound tar archive");
    let zipped = zip_with([]);
    for length in [zipped.len() - 1, zipped.len() - 22, 40] {
        assert_refused(&zipped[..length], "no sound zip archive");
    }
    assert_refused(&[&b"PK\x03\x04 what comes first"[..], &zipped].concat(), "begins with something");
    assert_refused(&zip(&[]), "empty zip archive");
    assert_refused(&tar(&[]), "neither a zip nor a tar archive");
    for other in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"Rar!\x1a\x07", b"7z\xbc\xaf\x27\x1c", MAIN.as_bytes()] {
        assert_refused(other, "neither a zip nor a tar archive");
    }
    assert_refused(&gzip(b"text"), "no sound tar archive");
}
