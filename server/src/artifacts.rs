//! The blob store: bytes that somebody opened or attached, in a folder or an S3 bucket, by team and content hash.
//!
//! Owns where bytes lie, how they arrive piece by piece, and how they are read, also while they arrive. It does not know
//! whose they are and who may see them: that is in the database, which `actions` asks.

mod address;
mod put;
mod read;
mod stage;
mod transit;

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::{
    ObjectStore, ObjectStoreExt as _,
    aws::AmazonS3,
    local::LocalFileSystem,
    path::Path as Key,
    signer::{Method, SignedUrlOptions, Signer as _},
};
use protocol::{ArtifactId, Instant, TeamId};
use tokio::sync::RwLock;

pub use address::StoreAddress;
pub use read::{Bytestream, HELD_BACK_BYTES};
pub use stage::Stage;
pub use transit::{Transit, TransitEnd, TransitProgress, Transits, WantedBlob};

/// How long a signed URL is valid.
const SIGNED_URL_LIFETIME: Duration = Duration::from_secs(5 * 60);

/// Where directly uploaded files lie until they are read and stored by their content.
const UPLOADS_FOLDER: &str = "uploads";

/// The store. Opened on first use, so that making one does nothing.
#[derive(Debug)]
pub struct BlobStore {
    address: StoreAddress,
    staging: PathBuf,
    opened: OnceLock<Kind>,
    /// The number of stages so far, which makes their names unique.
    staged: AtomicU64,
    /// Blobs on their way here from a viber.
    pub transits: Transits,
    /// Held shared while a blob is stored and its row is written, exclusively while one is removed: otherwise a blob that
    /// arrives again at the moment of its removal would leave a row without bytes.
    pub sweeping: RwLock<()>,
}

#[derive(Debug)]
enum Kind {
    Folder(LocalFileSystem),
    Bucket(Arc<AmazonS3>),
}

impl BlobStore {
    /// A store at `address`. Touches nothing yet.
    pub fn new(address: StoreAddress, data: &Path) -> Self {
        // On the same file system as the folder, so that a complete blob is only renamed.
        let staging = match &address {
            StoreAddress::Folder(folder) => folder.join(".staging"),
            StoreAddress::Bucket { .. } => data.join("staging"),
        };
        Self {
            address,
            staging,
            opened: OnceLock::new(),
            staged: AtomicU64::new(0),
            transits: Transits::default(),
            sweeping: RwLock::new(()),
        }
    }

    /// Opens the store, and removes incomplete blobs from before the Board's start.
    pub fn open(&self) -> io::Result<()> {
        self.kind()?;
        stage::forget(&self.staging, "")
    }

    /// Removes stages whose names begin with `prefix`. Only the one maker of such stages may call it.
    pub fn forget(&self, prefix: &str) -> io::Result<()> {
        stage::forget(&self.staging, prefix)
    }

    fn kind(&self) -> io::Result<&Kind> {
        if let Some(kind) = self.opened.get() {
            return Ok(kind);
        }
        closed_folder(&self.staging)?;
        let kind = match &self.address {
            StoreAddress::Folder(folder) => {
                closed_folder(folder)?;
                Kind::Folder(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true))
            }
            StoreAddress::Bucket { .. } => Kind::Bucket(Arc::new(self.address.bucket()?)),
        };
        Ok(self.opened.get_or_init(|| kind))
    }

    fn key(&self, team: &TeamId, sha256: &str) -> Key {
        let prefix = match &self.address {
            StoreAddress::Folder(_) => "",
            StoreAddress::Bucket { prefix, .. } => prefix,
        };
        Key::from_iter(prefix.split('/').chain([team.as_str(), sha256]).filter(|part| !part.is_empty()))
    }

    /// A new stage for what arrives under this name.
    pub fn stage(&self, name: &str) -> io::Result<Stage> {
        self.kind()?;
        let n = self.staged.fetch_add(1, Ordering::Relaxed);
        Stage::open(self.staging.join(format!("{name}.{n}.part")))
    }

    /// Stores a complete stage under its content hash. Storing the same content again changes nothing.
    pub async fn keep(&self, stage: Stage, team: &TeamId, sha256: &str) -> io::Result<()> {
        if crate::fault::at("artifacts::keep") {
            return Err(io::Error::other("failpoint artifacts::keep"));
        }
        let key = self.key(team, sha256);
        match self.kind()? {
            Kind::Folder(files) => put::in_folder(stage, files.path_to_filesystem(&key)?).await,
            Kind::Bucket(bucket) => put::in_bucket(stage, bucket, &key).await,
        }
    }

    /// The bytes of a blob within `range`; `None` when the store does not have the blob (any more).
    pub async fn read(&self, team: &TeamId, sha256: &str, range: Range<u64>) -> io::Result<Option<Bytestream>> {
        let key = self.key(team, sha256);
        match self.kind()? {
            Kind::Folder(files) => match fs::File::open(files.path_to_filesystem(&key)?) {
                Ok(file) => Ok(Some(read::file(file, range))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            },
            Kind::Bucket(bucket) => read::object(bucket, &key, range).await,
        }
    }

    /// A URL at which a blob can be read without the Board for some minutes, if the store supports that. The store answers
    /// with `headers`.
    pub async fn signed(&self, team: &TeamId, sha256: &str, headers: [(&str, &str); 2]) -> io::Result<Option<String>> {
        let Kind::Bucket(bucket) = self.kind()? else { return Ok(None) };
        let query = headers.map(|(name, value)| (format!("response-{name}"), value.to_owned()));
        let options = SignedUrlOptions::default().with_query(query);
        let url = bucket.signed_url_opts(Method::GET, &self.key(team, sha256), SIGNED_URL_LIFETIME, &options).await?;
        Ok(Some(url.to_string()))
    }

    /// A URL to which a file can be uploaded without the Board for some minutes, if the store supports that.
    pub async fn upload_address(&self, team: &TeamId, id: &ArtifactId) -> io::Result<Option<String>> {
        let Kind::Bucket(bucket) = self.kind()? else { return Ok(None) };
        Ok(Some(bucket.signed_url(Method::PUT, &self.upload_key(team, id), SIGNED_URL_LIFETIME).await?.to_string()))
    }

    fn upload_key(&self, team: &TeamId, id: &ArtifactId) -> Key {
        self.key(team, UPLOADS_FOLDER).join(id.as_str())
    }

    /// The size and bytes of what was uploaded; `None` when nothing was.
    pub async fn uploaded(&self, team: &TeamId, id: &ArtifactId) -> io::Result<Option<(u64, Bytestream)>> {
        let Kind::Bucket(bucket) = self.kind()? else { return Ok(None) };
        let key = self.upload_key(team, id);
        let size = match bucket.head(&key).await {
            Ok(found) => found.size,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(read::object(bucket, &key, 0..size).await?.map(|bytes| (size, bytes)))
    }

    /// Removes what was uploaded.
    pub async fn forget_upload(&self, team: &TeamId, id: &ArtifactId) -> io::Result<()> {
        let Kind::Bucket(bucket) = self.kind()? else { return Ok(()) };
        match bucket.delete(&self.upload_key(team, id)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes uploads from before that time, which never became artifacts.
    pub async fn forget_uploads(&self, team: &TeamId, before: Instant) -> io::Result<()> {
        let Kind::Bucket(bucket) = self.kind()? else { return Ok(()) };
        let old = bucket.list(Some(&self.key(team, UPLOADS_FOLDER))).try_filter_map(move |object| async move {
            Ok((object.last_modified.timestamp_millis() < before.0).then_some(object.location))
        });
        let mut removed = bucket.delete_stream(old.boxed());
        while removed.try_next().await?.is_some() {}
        Ok(())
    }

    /// Removes a blob. One that does not exist counts as removed.
    pub async fn remove(&self, team: &TeamId, sha256: &str) -> io::Result<()> {
        let key = self.key(team, sha256);
        let removed = match self.kind()? {
            Kind::Folder(files) => files.delete(&key).await,
            Kind::Bucket(bucket) => bucket.delete(&key).await,
        };
        match removed {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes all blobs of a team.
    pub async fn remove_all(&self, team: &TeamId) -> io::Result<()> {
        let store: &dyn ObjectStore = match self.kind()? {
            Kind::Folder(files) => files,
            Kind::Bucket(bucket) => bucket.as_ref(),
        };
        let all = store.list(Some(&self.key(team, ""))).map_ok(|object| object.location).boxed();
        let mut removed = store.delete_stream(all);
        while removed.try_next().await?.is_some() {}
        Ok(())
    }
}

/// Makes a folder that only the Board can read.
fn closed_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests;
