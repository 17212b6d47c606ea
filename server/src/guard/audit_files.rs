//! What is kept of the audit outside of the database: the keys that seal its rows, and its heads, the newest row of each
//! team. Whoever has the database alone can neither make a row nor take the last ones away unseen.
//!
//! The folder holds `*.key` (all stay: old rows are checked with them), `head`, `head.lock`, `begun` while the first start
//! is not done yet, and `restoring` while a backup is put in place of the database.

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
use crate::secret::mac::{AuditKeys, SealCheck};

/// What the first line of a head file says.
const TITLE: &str = "viber-board audit head 1";
/// What the first line of the heads of a restore says, before the moment of it.
const RESTORING: &str = "viber-board restoring 1 at ";

/// The folder in a data folder.
#[derive(Clone, Debug)]
pub struct AuditFolder(PathBuf);

/// The newest row that a team's audit is known to have had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// Which is also how many rows there are.
    pub seq: u64,
    pub hash: String,
}

/// The heads of all teams.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heads(pub BTreeMap<TeamId, ChainHead>);

/// What the heads will be once a backup is in place of the database: two files cannot be exchanged in one step, so that
/// these are written first, and taken over when the database turns out to be the new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restoring {
    /// What the new database says of when it was put back, milliseconds.
    pub at: i64,
    pub heads: Heads,
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

/// Held while heads are read, compared and written: by one process at a time.
#[derive(Debug)]
pub struct HeadLock(#[expect(dead_code, reason = "the lock ends when the file is closed")] fs::File);

impl AuditFolder {
    /// That of a data folder.
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

    /// The keys; makes the first one, and notes that rows of before are not sealed yet.
    pub fn keys_or_first(&self, now: i64) -> Result<AuditKeys, BadKey> {
        if let Some(keys) = self.keys()? {
            return Ok(keys);
        }
        key_files::folder(&self.0)?;
        let unreadable = |error| BadKey::Unreadable(self.0.clone(), error);
        // Two processes that start at once make one key.
        let _lock = self.lock().map_err(unreadable)?;
        if let Some(keys) = self.keys()? {
            return Ok(keys);
        }
        let begun = self.0.join("begun");
        write_closed(&begun, b"").map_err(unreadable)?;
        key_files::sync_folder(&begun).map_err(unreadable)?;
        self.rotate(now)
    }

    /// A new key that seals from now on.
    pub fn rotate(&self, now: i64) -> Result<AuditKeys, BadKey> {
        key_files::folder(&self.0)?;
        let file = key_files::make(&self.0, now)?;
        self.keys()?.ok_or_else(|| BadKey::Unreadable(file, io::ErrorKind::NotFound.into()))
    }

    /// Whether the rows of before the first key are still to be sealed.
    pub fn is_begun(&self) -> bool {
        self.0.join("begun").exists()
    }

    /// They are sealed, and the heads are written.
    pub fn begin_done(&self) -> io::Result<()> {
        match fs::remove_file(self.0.join("begun")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => key_files::sync_folder(&self.head()),
        }
    }

    /// Waits until nobody else has the heads in hand.
    pub fn lock(&self) -> io::Result<HeadLock> {
        let file = self.0.join("head.lock");
        let open = fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(file)?;
        flock(&open, FlockOperation::LockExclusive)?;
        Ok(HeadLock(open))
    }

    /// The heads as they were written last; `None` when there is no file.
    pub fn heads(&self, keys: &AuditKeys) -> Result<Option<Heads>, BadHeads> {
        read_sealed(self.head(), keys, Heads::parse)
    }

    /// Writes the heads, whole or not at all. Whoever does has the lock.
    pub fn put(&self, heads: &Heads, keys: &AuditKeys, _lock: &HeadLock) -> io::Result<()> {
        write_sealed(&self.head(), &heads.text(), keys)
    }

    /// The heads of a restore that is under way, or was ended before it took them over.
    pub fn restoring(&self, keys: &AuditKeys) -> Result<Option<Restoring>, BadHeads> {
        read_sealed(self.restoring_file(), keys, Restoring::parse)
    }

    /// Whether there are such, readable or not.
    pub fn is_restoring(&self) -> bool {
        self.restoring_file().exists()
    }

    /// Writes them, before the database is exchanged.
    pub fn put_restoring(&self, restoring: &Restoring, keys: &AuditKeys, _lock: &HeadLock) -> io::Result<()> {
        write_sealed(&self.restoring_file(), &restoring.text(), keys)
    }

    /// They were taken over, or will never be.
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

impl Restoring {
    fn text(&self) -> String {
        format!("{RESTORING}{}\n{}", self.at, self.heads.text())
    }

    fn parse(text: &str) -> Option<Self> {
        let (title, heads) = text.split_once('\n')?;
        Some(Self { at: title.strip_prefix(RESTORING)?.parse().ok()?, heads: Heads::parse(heads)? })
    }
}

impl Heads {
    fn text(&self) -> String {
        let lines = self.0.iter().map(|(team, head)| format!("\n{team} {} {}", head.seq, head.hash));
        std::iter::once(TITLE.to_owned()).chain(lines).collect()
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        (lines.next()? == TITLE).then_some(())?;
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
        let mut heads = Heads::default();
        for n in 1..3 {
            heads.0.insert(TeamId::new(n), ChainHead { seq: n as u64, hash: format!("h{n}") });
        }
        let lock = folder.lock().expect("the lock");
        folder.put(&heads, &keys, &lock).expect("written");
        assert_eq!(folder.heads(&keys).expect("heads"), Some(heads.clone()));
        let newer = folder.rotate(1).expect("keys");
        assert_ne!(newer.sealing(), keys.sealing());
        assert_eq!(folder.heads(&newer).expect("heads").as_ref(), Some(&heads), "an older key's seal");
        folder.put(&Heads::default(), &newer, &lock).expect("written");
        assert!(matches!(folder.heads(&keys), Err(BadHeads::UnknownKey(..))));
        let restoring = Restoring { at: 7, heads: heads.clone() };
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
