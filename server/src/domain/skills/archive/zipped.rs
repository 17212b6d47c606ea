//! A zip archive: what its directory and its entries say has to be the same, and nothing may lie over anything else.

use std::io::Cursor;

use zip::{CompressionMethod, ZipArchive, read::ZipFile, result::ZipError};

use super::super::{
    bundle::{BadBundle, SkillFileMode},
    intake::{Intake, MAX_ENTRIES},
};

/// How an entry of the directory begins (APPNOTE 4.3.12).
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
/// What a Unix mode says of the kind of a file.
const KIND_MASK: u32 = 0o170_000;
const REGULAR_KIND: u32 = 0o100_000;
const FOLDER_KIND: u32 = 0o040_000;
const LINK_KIND: u32 = 0o120_000;

/// What an entry is.
enum EntryKind {
    Folder,
    File(SkillFileMode),
}

/// Takes in what `archive` holds. Sizes are added up before anything is unpacked, and no entry unpacks to more than it says.
pub fn read(archive: &[u8], intake: &mut Intake) -> Result<(), BadBundle> {
    // The directory is kept in memory, so it is bounded before it is read.
    let entries = archive.windows(DIRECTORY_ENTRY.len()).filter(|bytes| *bytes == DIRECTORY_ENTRY).count();
    if entries > MAX_ENTRIES {
        return Err(BadBundle::whole(format!("has more than {MAX_ENTRIES} entries")));
    }
    let mut zip = ZipArchive::new(Cursor::new(archive)).map_err(|error| unsound(&error))?;
    if zip.has_duplicate_names() {
        return Err(BadBundle::whole("has two entries of the same name"));
    }
    if zip.offset() != 0 {
        return Err(BadBundle::whole("begins with something that is no part of it"));
    }
    let mut places = Vec::new();
    for at in 0..zip.len() {
        let entry = zip.by_index_raw(at).map_err(|error| unsound(&error))?;
        let (name, size) = (entry.name_raw(), entry.size());
        match kind(&entry).map_err(|why| BadBundle::entry(&String::from_utf8_lossy(name), why))? {
            EntryKind::Folder => intake.folder(name)?,
            EntryKind::File(mode) => places.extend(intake.file(name, size)?.map(|place| (at, mode, place))),
        }
    }
    zip.validate_header_consistency().map_err(|error| unsound(&error))?;
    for (at, mode, place) in places {
        let mut entry = zip.by_index(at).map_err(|error| unsound(&error))?;
        intake.fill(place, mode, &mut entry)?;
    }
    Ok(())
}

fn kind<R: std::io::Read + ?Sized>(entry: &ZipFile<'_, R>) -> Result<EntryKind, &'static str> {
    let (is_folder, mode) = (entry.name_raw().ends_with(b"/"), entry.unix_mode().unwrap_or(0));
    if entry.encrypted() {
        return Err("is encrypted");
    }
    if !matches!(entry.compression(), CompressionMethod::Stored | CompressionMethod::Deflated) {
        return Err("is compressed in a way that is not read here");
    }
    match mode & KIND_MASK {
        LINK_KIND => Err("is a link"),
        FOLDER_KIND | 0 if is_folder && entry.size() == 0 => Ok(EntryKind::Folder),
        REGULAR_KIND | 0 if !is_folder => Ok(EntryKind::File(SkillFileMode::of_unix(mode))),
        REGULAR_KIND | FOLDER_KIND | 0 => Err("is a folder by its name or its mode, and a file by the other"),
        _ => Err("is neither a file nor a folder"),
    }
}

fn unsound(error: &ZipError) -> BadBundle {
    BadBundle::whole(format!("is no sound zip archive: {error}"))
}
