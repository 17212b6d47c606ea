//! One skill: its files, what they are called together, and what its main file says of it.

use std::{fmt, sync::OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::ToSchema;

use super::{
    archive, canonical,
    findings::{self, LookedThrough},
    intake::Intake,
    invisible::marked,
    main_file::{self, MainFile},
    permissions::SkillPermissions,
    text,
};
use crate::{domain::skills::SkillFinding, secret::hex};

/// Longest text about a bundle that is refused, bytes.
const MAX_REASON_BYTES: usize = 400;
/// Longest name of an entry that is shown, bytes.
const MAX_SHOWN_ENTRY_BYTES: usize = 200;

/// Why an archive is no skill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BadBundle {
    /// The entry that is wrong, as the archive names it and with invisible characters marked; empty if it is the archive as a
    /// whole.
    pub entry: String,
    /// What is wrong, for people.
    pub reason: String,
}

impl BadBundle {
    /// Refuses because of one entry.
    pub(super) fn entry(entry: &str, reason: impl AsRef<str>) -> Self {
        let shown = |text: &str, max: usize| marked(protocol::text::head(text, max));
        Self { entry: shown(entry, MAX_SHOWN_ENTRY_BYTES), reason: shown(reason.as_ref(), MAX_REASON_BYTES) }
    }

    /// Refuses because of the archive as a whole.
    pub(super) fn whole(reason: impl AsRef<str>) -> Self {
        Self::entry("", reason)
    }
}

impl fmt::Display for BadBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = if self.entry.is_empty() { "" } else { ": " };
        write!(f, "{}{gap}{}", self.entry, self.reason)
    }
}

impl std::error::Error for BadBundle {}

crate::words! {
    /// What a file's owner may do with it. Nothing else of a mode is kept.
    SkillFileMode {
        Plain = "644",
        Executable = "755",
    }
}

impl SkillFileMode {
    /// Of the permissions of a Unix file.
    pub fn of_unix(mode: u32) -> Self {
        if mode & 0o100 == 0 { Self::Plain } else { Self::Executable }
    }
}

/// One file, without its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkillFile {
    /// Beneath the skill's folder.
    pub path: String,
    pub mode: SkillFileMode,
    /// Bytes.
    pub size: u64,
    /// In hex.
    pub sha256: String,
}

/// One file with its bytes.
#[derive(Clone, Debug)]
pub(super) struct BundledFile {
    pub path: String,
    pub mode: SkillFileMode,
    pub sha256: String,
    pub bytes: Vec<u8>,
}

/// A skill that was read and is sound.
#[derive(Clone, Debug)]
pub struct SkillBundle {
    /// What daemons call it.
    pub name: String,
    /// One line.
    pub description: String,
    /// From the front matter, its `metadata` or the registry's record, in this order.
    pub version: Option<String>,
    /// What a registry calls it, if the record that it left in the archive says so.
    pub slug: Option<String>,
    /// The path of its main file: `SKILL.md`, `skill.md`, or the one file `NAME.skill.md`, which daemons find in a folder under
    /// its own name.
    pub main: String,
    /// SHA-256 in hex over the sorted lines `path NUL mode NUL sha256 LF`, the same as [`protocol::SkillInfo::digest`].
    pub digest: String,
    /// Of all files together, bytes.
    pub size: u64,
    /// What of its main file is not used, and why.
    pub warnings: Vec<String>,
    /// By their paths.
    pub(super) files: Vec<BundledFile>,
    pub(super) declared: MainFile,
    looked: OnceLock<LookedThrough>,
}

impl SkillBundle {
    /// Reads a zip, a tar or a tar.gz that somebody uploaded. Folders of version control and of registries, and what macOS adds, are
    /// left out; a single folder that holds everything else is taken away. Blocks for up to a second.
    pub fn read(archive: &[u8]) -> Result<Self, BadBundle> {
        let mut intake = Intake::default();
        archive::read(archive, &mut intake)?;
        Self::of(intake)
    }

    /// Puts a skill together from files that came one by one, with the same checks.
    pub fn from_files(files: impl IntoIterator<Item = (String, SkillFileMode, Vec<u8>)>) -> Result<Self, BadBundle> {
        let mut intake = Intake::default();
        for (path, mode, bytes) in files {
            if let Some(place) = intake.file(path.as_bytes(), bytes.len() as u64)? {
                intake.fill(place, mode, &mut bytes.as_slice())?;
            }
        }
        Self::of(intake)
    }

    /// Reads what [`to_tar`](Self::to_tar) wrote. Anything else is refused, also other ways to write the same files.
    pub fn from_tar(bytes: &[u8]) -> Result<Self, BadBundle> {
        let mut intake = Intake::default();
        archive::read_tar(bytes, &mut intake)?;
        let bundle = Self::of(intake)?;
        match bundle.to_tar() == bytes {
            true => Ok(bundle),
            false => Err(BadBundle::whole("is not as the library writes it")),
        }
    }

    /// All files as a plain tar: sorted by path, without times and owners, with the modes 644 and 755 and without entries for
    /// folders. The same files are always the same bytes.
    pub fn to_tar(&self) -> Vec<u8> {
        canonical::write(&self.files)
    }

    fn of(intake: Intake) -> Result<Self, BadBundle> {
        let (files, origin) = intake.finish()?;
        let (main, declared) = main_file::find(&files)?;
        let origin = origin.as_deref().map(main_file::RegistryRecord::read).unwrap_or_default();
        Ok(Self {
            name: declared.name.clone(),
            description: declared.description.clone(),
            version: declared.version.clone().or(origin.version),
            slug: origin.slug,
            main,
            digest: digest_of(&files),
            size: files.iter().map(|file| file.bytes.len() as u64).sum(),
            warnings: declared.warnings.clone(),
            files,
            declared,
            looked: OnceLock::new(),
        })
    }

    /// The same skill in a folder, which is what vibers install: a single file becomes `SKILL.md`, and has another digest then.
    #[must_use]
    pub fn in_folder(mut self) -> Self {
        if let [file] = self.files.as_mut_slice()
            && !main_file::NAMES.contains(&file.path.as_str())
        {
            file.path = main_file::NAMES[0].to_owned();
            self.main = main_file::NAMES[0].to_owned();
            self.digest = digest_of(&self.files);
            self.looked = OnceLock::new();
        }
        self
    }

    /// Its files, sorted by path.
    pub fn files(&self) -> Vec<SkillFile> {
        let listed = |file: &BundledFile| SkillFile {
            path: file.path.clone(),
            mode: file.mode,
            size: file.bytes.len() as u64,
            sha256: file.sha256.clone(),
        };
        self.files.iter().map(listed).collect()
    }

    /// The bytes of one file.
    pub fn bytes(&self, path: &str) -> Option<&[u8]> {
        self.file(path).map(|file| file.bytes.as_slice())
    }

    /// The text of one file; `None` also if it is binary or larger than what is compared
    /// ([`MAX_TEXT_FILE_BYTES`](protocol::limits::MAX_TEXT_FILE_BYTES)).
    pub fn text(&self, path: &str) -> Option<&str> {
        self.file(path).and_then(|file| text::shown(&file.bytes))
    }

    /// The text of one file, however large; `None` also if it is binary.
    pub fn whole_text(&self, path: &str) -> Option<&str> {
        self.file(path).and_then(|file| text::whole(&file.bytes))
    }

    /// What it says that it needs, and what its files use beyond that. Blocks the first time.
    pub fn permissions(&self) -> SkillPermissions {
        self.looked().permissions.clone()
    }

    /// What a person should look at, by path and line; at most 200. Blocks the first time.
    pub fn findings(&self) -> Vec<SkillFinding> {
        self.looked().findings.clone()
    }

    /// How many lines there are beyond those that a person should look at, too. Blocks the first time.
    pub fn omitted_findings(&self) -> u64 {
        self.looked().omitted_findings
    }

    fn looked(&self) -> &LookedThrough {
        self.looked.get_or_init(|| findings::look_through(self))
    }

    pub(super) fn file(&self, path: &str) -> Option<&BundledFile> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().and_then(|at| self.files.get(at))
    }
}

/// The digest of these files, which are sorted.
fn digest_of(files: &[BundledFile]) -> String {
    let mut digest = Sha256::new();
    for file in files {
        digest.update(format!("{}\0{}\0{}\n", file.path, file.mode, file.sha256));
    }
    hex(&digest.finalize())
}
