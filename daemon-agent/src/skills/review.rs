//! The files of a skill for people who look at it before they trust it: exactly as they are, whatever its state is.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::{Arc, PoisonError},
};

use protocol::{SkillState, skill::is_left_out};

use super::{
    Skill, Skills,
    bundle::{self, BundleFile, ReadingBounds},
};

/// Most bytes of a file at a time, before they are encoded.
const MAX_REVIEWED_BYTES: u64 = 96 * 1024;

/// All files of a skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedFiles {
    pub digest: String,
    /// Sorted by their paths.
    pub files: Vec<BundleFile>,
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedPiece {
    /// Of all files of the skill.
    pub digest: String,
    pub data: Vec<u8>,
    /// Of the whole file, bytes.
    pub size: u64,
}

impl Skills {
    /// The skill of this name: of several the one with these files, else the one in use.
    pub fn to_review(&self, name: &str, digest: Option<&str>) -> Option<Arc<Skill>> {
        let set = self.now();
        let named = set.all.iter().filter(|skill| skill.name == name);
        let meant = named.min_by_key(|skill| {
            let use_rank = match skill.state {
                SkillState::Ready if !skill.agents.is_empty() => 0,
                SkillState::Ready => 1,
                SkillState::NeedsSetup => 2,
                SkillState::Modified => 3,
                SkillState::Untrusted => 4,
                SkillState::Shadowed => 5,
                SkillState::Error => 6,
            };
            (digest.is_some_and(|digest| skill.digest != digest), use_rank)
        });
        meant.cloned()
    }

    /// The files of a skill as they are now. Blocks.
    pub fn review(&self, skill: &Skill) -> io::Result<ReviewedFiles> {
        let mut cache = self.shared.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.bound(ReadingBounds::NONE);
        let read = bundle::read(&skill.folder, skill.single(), &mut cache)?;
        Ok(ReviewedFiles { digest: read.digest, files: read.files })
    }

    /// Part of one of its files, from `offset` on. Blocks.
    pub fn review_piece(&self, skill: &Skill, path: &str, offset: u64) -> io::Result<ReviewedPiece> {
        let is_part = skill.single().is_none_or(|main| main == path) && !is_left_out(path);
        let opened =
            if is_part { bundle::open_beneath(&skill.folder, path) } else { Err(io::ErrorKind::NotFound.into()) };
        let (mut file, stat) = opened?;
        let (mut data, size) = (Vec::new(), u64::try_from(stat.st_size).unwrap_or(0));
        if offset < size {
            file.seek(SeekFrom::Start(offset))?;
            file.take(MAX_REVIEWED_BYTES).read_to_end(&mut data)?;
        }
        Ok(ReviewedPiece { digest: self.review(skill)?.digest, data, size })
    }
}
