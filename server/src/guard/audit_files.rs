//! The part of the audit that is kept outside the database: the keys that seal its rows, and its heads, the newest row of
//! each team. Whoever has only the database can neither forge a row nor remove the last ones unnoticed.
//!
//! The folder holds `*.key` (all stay: old rows are checked with them), `head`, `head.lock`, `begun` until the first start
//! has sealed all rows, and `restoring` while a backup replaces the database.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use protocol::TeamId;
use rustix::fs::{FlockOperation, flock};

use super::{key_files, keys::BadKey};
use crate::secret::audit_keys::{AuditKeys, SealCheck};

/// The first line of a head file.
const HEAD_TITLE: &str = "viber-board audit head 1";
/// The first line of the heads of a restore, before its time.
const RESTORING_TITLE: &str = "viber-board restoring 1 at ";

/// The folder in a data folder.
#[derive(Clone, Debug)]
pub struct AuditFolder(PathBuf);

/// The newest row that a team's audit is known to have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Also the number of rows.
    pub seq: u64,
    pub hash: String,
}

/// The heads of all teams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChainHeads(pub BTreeMap<TeamId, ChainHead>);

/// What the heads will be once a backup has replaced the database. Two files cannot be replaced in one step: these heads are
/// written first, and adopted when the database turns out to be the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestoringHeads {
    /// When the backup was restored, as the new database says, milliseconds.
    pub at: i64,
    pub heads: ChainHeads,
}

/// Why the heads cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadHeads {
    #[error("{0}: {1}")]
    Unreadable(PathBuf, io::Error),
    #[error("{0}: it was changed by somebody who does not have the Board's audit key")]
    Forged(PathBuf),
    #[error("{0}: it was sealed with the audit key {1}, which is not here")]
    UnknownKey(PathBuf, String),
}

/// Held while heads are read, compared and written, by one process at a time.
#[derive(Debug)]
pub struct HeadLock(#[expect(dead_code, reason = "the lock ends when the file is closed")] fs::File);

impl AuditFolder {
    /// The audit folder of a data folder.
    pub fn of(data: &Path) -> Self {
        Self(data.join("audit"))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The keys, if there are any yet.
    pub fn keys(&self) -> Result<Option<AuditKeys>, BadKey> {
        if !self.0.is_dir() {
            return Ok(None);
        }
        let files = key_files::list(&self.0)?;
        let mut all = files.iter().rev().map(|file| key_files::read(file)).collect::<Result<Vec<_>, _>>()?.into_iter();
        let Some(newest) = all.next() else { return Ok(None) };
        let older: Vec<_> = all.collect();
        if let Some(at) = std::iter::once(&newest).chain(&older).position(|key| key.len() < 32) {
            return Err(BadKey::Short(files[files.len() - 1 - at].clone()));
        }
        Ok(Some(AuditKeys::new(&newest, &older)))
    }

    /// The keys. Makes the first one when there is none, and notes that earlier rows are not sealed yet.
    pub fn keys_or_first(&self, now: i64) -> Result<AuditKeys, BadKey> {
        if let Some(keys) = self.keys()? {
            return Ok(keys);
        }
        key_files::folder(&self.0)?;
        let unreadable = |error| BadKey::Unreadable(self.0.clone(), error);
        // Two processes that start at the same time make one key.
        let _lock = self.lock().map_err(unreadable)?;
        if let Some(keys) = self.keys()? {
            return Ok(keys);
        }
        let begun = self.0.join("begun");
        write_closed(&begun, b"").map_err(unreadable)?;
        key_files::sync_folder(&begun).map_err(unreadable)?;
        self.rotate(now)
    }

    /// Makes a new key that seals from now on.
    pub fn rotate(&self, now: i64) -> Result<AuditKeys, BadKey> {
        key_files::folder(&self.0)?;
        let file = key_files::make(&self.0, now)?;
        self.keys()?.ok_or_else(|| BadKey::Unreadable(file, io::ErrorKind::NotFound.into()))
    }

    /// Whether rows from before the first key still have to be sealed.
    pub fn is_begun(&self) -> bool {
        self.0.join("begun").exists()
    }

    /// Notes that all rows are sealed and the heads written.
    pub fn begin_done(&self) -> io::Result<()> {
        match fs::remove_file(self.0.join("begun")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => key_files::sync_folder(&self.head()),
        }
    }

    /// Waits until no other process reads or writes the heads.
    pub fn lock(&self) -> io::Result<HeadLock> {
        let file = self.0.join("head.lock");
        let open = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)?;
        flock(&open, FlockOperation::LockExclusive)?;
        Ok(HeadLock(open))
    }

    /// The heads as they were written last; `None` when there is no file.
    pub fn heads(&self, keys: &AuditKeys) -> Result<Option<ChainHeads>, BadHeads> {
        read_sealed(self.head(), keys, ChainHeads::parse)
    }

    /// Writes the heads, whole or not at all.
    pub fn put(&self, heads: &ChainHeads, keys: &AuditKeys, _lock: &HeadLock) -> io::Result<()> {
        write_sealed(&self.head(), &heads.text(), keys)
    }

    /// The heads of a restore that is under way, or ended before it adopted them.
    pub fn restoring(&self, keys: &AuditKeys) -> Result<Option<RestoringHeads>, BadHeads> {
        read_sealed(self.restoring_file(), keys, RestoringHeads::parse)
    }

    /// Whether there are heads of a restore, readable or not.
    pub fn is_restoring(&self) -> bool {
        self.restoring_file().exists()
    }

    /// Writes the heads of a restore, before the database is replaced.
    pub fn put_restoring(&self, restoring: &RestoringHeads, keys: &AuditKeys, _lock: &HeadLock) -> io::Result<()> {
        write_sealed(&self.restoring_file(), &restoring.text(), keys)
    }

    /// Removes the heads of a restore: they were adopted, or never will be.
    pub fn drop_restoring(&self, _lock: &HeadLock) -> io::Result<()> {
        let file = self.restoring_file();
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => key_files::sync_folder(&file),
        }
    }

    fn head(&self) -> PathBuf {
        self.0.join("head")
    }

    fn restoring_file(&self) -> PathBuf {
        self.0.join("restoring")
    }
}

impl RestoringHeads {
    fn text(&self) -> String {
        format!("{RESTORING_TITLE}{}\n{}", self.at, self.heads.text())
    }

    fn parse(text: &str) -> Option<Self> {
        let (title, heads) = text.split_once('\n')?;
        Some(Self { at: title.strip_prefix(RESTORING_TITLE)?.parse().ok()?, heads: ChainHeads::parse(heads)? })
    }
}

impl ChainHeads {
    fn text(&self) -> String {
        let lines = self.0.iter().map(|(team, head)| format!("\n{team} {} {}", head.seq, head.hash));
        std::iter::once(HEAD_TITLE.to_owned()).chain(lines).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == HEAD_TITLE).then_some(())?;
        let heads = lines.map(|line| {
            let mut words = line.split(' ');
            let (team, seq, hash) = (words.next()?, words.next()?, words.next()?);
            Some((team.parse().ok()?, ChainHead { seq: seq.parse().ok()?, hash: hash.to_owned() }))
        });
        heads.collect::<Option<_>>().map(Self)
    }
}

fn read_sealed<T>(
    file: PathBuf,
    keys: &AuditKeys,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BadHeads> {
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(BadHeads::Unreadable(file, error)),
    };
    let sealed = text.trim_end().rsplit_once("\nseal ");
    let Some((body, seal)) = sealed else { return Err(BadHeads::Forged(file)) };
    match keys.check(body, seal) {
        SealCheck::Good => parse(body).map(Some).ok_or(BadHeads::Forged(file)),
        SealCheck::Bad => Err(BadHeads::Forged(file)),
        SealCheck::UnknownKey(key) => Err(BadHeads::UnknownKey(file, key)),
    }
}

fn write_sealed(file: &Path, body: &str, keys: &AuditKeys) -> io::Result<()> {
    let draft = file.with_extension("draft");
    write_closed(&draft, format!("{body}\nseal {}\n", keys.seal(body)).as_bytes())?;
    fs::rename(&draft, file)?;
    key_files::sync_folder(file)
}

fn write_closed(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut open = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(file)?;
    open.write_all(bytes)?;
    open.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_back_and_only_as_they_were_written() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = AuditFolder::of(data.path());
        assert!(folder.keys().expect("none").is_none());
        let keys = folder.keys_or_first(1).expect("keys");
        assert!(folder.is_begun());
        folder.begin_done().expect("done");
        assert!(!folder.is_begun() && folder.heads(&keys).expect("none").is_none());
        let mut heads = ChainHeads::default();
        for n in 1..3 {
            heads.0.insert(TeamId::new(n), ChainHead { seq: n as u64, hash: format!("h{n}") });
        }
        let lock = folder.lock().expect("the lock");
        folder.put(&heads, &keys, &lock).expect("written");
        assert_eq!(folder.heads(&keys).expect("heads"), Some(heads.clone()));
        let newer = folder.rotate(1).expect("keys");
        assert_ne!(newer.sealing(), keys.sealing());
        assert_eq!(folder.heads(&newer).expect("heads").as_ref(), Some(&heads), "an older key's seal");
        folder.put(&ChainHeads::default(), &newer, &lock).expect("written");
        assert!(matches!(folder.heads(&keys), Err(BadHeads::UnknownKey(..))));
        let restoring = RestoringHeads { at: 7, heads: heads.clone() };
        folder.put_restoring(&restoring, &newer, &lock).expect("written");
        assert_eq!(folder.restoring(&newer).expect("heads"), Some(restoring));
        fs::copy(folder.head(), folder.restoring_file()).expect("copied");
        assert!(matches!(folder.restoring(&newer), Err(BadHeads::Forged(_))), "one is not taken for the other");
        folder.drop_restoring(&lock).expect("removed");
        assert_eq!(folder.restoring(&newer).expect("none"), None);
        let text = fs::read_to_string(folder.head()).expect("text");
        fs::write(folder.head(), text.replace("head 1", "head 1\nx 1 h")).expect("changed");
        assert!(matches!(folder.heads(&newer), Err(BadHeads::Forged(_))));
    }
}
