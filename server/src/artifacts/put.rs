//! Putting a complete stage into the store.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use object_store::{
    Error, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, WriteMultipart, aws::AmazonS3, path::Path as Key,
};

use super::{Stage, read};

/// A blob of at most this size is put in one request that only creates; a larger one in parts of this size, bytes.
const PART_BYTES: u64 = 8 * 1024 * 1024;
/// Parts that are sent at the same time.
const MAX_CONCURRENT_PARTS: usize = 2;

/// Syncs the stage to the disk, then renames it to `target`.
pub(super) async fn in_folder(stage: Stage, target: PathBuf) -> io::Result<()> {
    blocking(move || {
        stage.sync()?;
        let folder = target.parent().ok_or_else(|| io::Error::other("a blob has a folder"))?;
        super::closed_folder(folder)?;
        fs::rename(stage.path(), &target)?;
        sync_folder(folder)
    })
    .await
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Sends the stage to the bucket; the stage is removed whatever the outcome.
pub(super) async fn in_bucket(stage: Stage, bucket: &Arc<AmazonS3>, key: &Key) -> io::Result<()> {
    use object_store::ObjectStore as _;
    let mut bytes = read::file(stage.reader()?, 0..stage.len());
    if stage.len() <= PART_BYTES {
        let mut pieces: Vec<Bytes> = Vec::new();
        while let Some(piece) = bytes.next().await {
            pieces.push(piece?);
        }
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        return match bucket.put_opts(key, PutPayload::from_iter(pieces), create).await {
            // The key names the content, so it is the same blob.
            Ok(_) | Err(Error::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        };
    }
    if bucket.head(key).await.is_ok_and(|existing| existing.size == stage.len()) {
        return Ok(());
    }
    let upload = bucket.put_multipart(key).await?;
    let mut upload = WriteMultipart::new_with_chunk_size(upload, PART_BYTES as usize);
    loop {
        let sent = async {
            match bytes.next().await.transpose()? {
                Some(piece) => {
                    upload.wait_for_capacity(MAX_CONCURRENT_PARTS).await?;
                    upload.put(piece);
                    Ok(true)
                }
                None => Ok(false),
            }
        };
        match sent.await {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                let error: io::Error = error;
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "parts of a blob stay in the bucket: let it expire incomplete uploads");
                }
                return Err(error);
            }
        }
    }
    upload.finish().await?;
    Ok(())
}

/// Runs disk work outside the async runtime's threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}
