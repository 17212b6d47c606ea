//! Reading blobs: from a file, from a bucket, and from a stage that is still growing. A stream that cannot deliver all of
//! its range ends with an error, never early.

use std::{fs::File, io, ops::Range, os::unix::fs::FileExt as _, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream, stream::BoxStream};
use object_store::{Error, GetOptions, GetRange, ObjectStore as _, aws::AmazonS3, path::Path as Key};
use tokio::time::timeout;

use super::{Transit, TransitEnd, address::BUCKET_SILENCE_TIMEOUT, put::blocking};

/// Bytes of a blob, in order.
pub type Bytestream = BoxStream<'static, io::Result<Bytes>>;

/// The largest piece, bytes: what a reader holds at most.
const MAX_PIECE_BYTES: u64 = 128 * 1024;
/// The size of a blob's end that no reader gets before the blob is verified and stored, bytes.
pub const HELD_BACK_BYTES: u64 = 64 * 1024;

/// A range of a complete file.
pub(super) fn file(file: File, range: Range<u64>) -> Bytestream {
    let file = Arc::new(file);
    let next = move |at: u64| {
        let (file, end) = (file.clone(), range.end);
        async move {
            if at >= end {
                return None;
            }
            let upto = end.min(at + MAX_PIECE_BYTES);
            Some((piece(file, at..upto).await, upto))
        }
    };
    fused(stream::unfold(range.start, next))
}

/// A range of a growing stage: the end of the blob is held back until the blob is verified and stored.
pub(super) fn growing(transit: Arc<Transit>, file: File, range: Range<u64>) -> Bytestream {
    let file = Arc::new(file);
    let start = (range.start, transit.watch());
    let next = move |(at, mut progress): (u64, _)| {
        let (file, end, size) = (file.clone(), range.end, transit.want.size);
        async move {
            if at >= end {
                return None;
            }
            let ready = progress_beyond(&mut progress, at, size).await;
            let upto = match ready {
                Ok(upto) => upto.min(end).min(at + MAX_PIECE_BYTES),
                Err(error) => return Some((Err(error), (end, progress))),
            };
            Some((piece(file, at..upto).await, (upto, progress)))
        }
    };
    fused(stream::unfold(start, next))
}

/// Waits until more than `at` bytes may be read, and returns how many.
async fn progress_beyond(
    progress: &mut tokio::sync::watch::Receiver<super::TransitProgress>,
    at: u64,
    size: u64,
) -> io::Result<u64> {
    let now = progress.wait_for(|now| now.end.is_some() || now.readable(size) > at).await;
    let now = *now.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
    match now.end {
        Some(TransitEnd::Stored | TransitEnd::Passed) => Ok(size),
        Some(_) => Err(io::Error::other("the blob did not arrive whole")),
        None => Ok(now.readable(size)),
    }
}

async fn piece(file: Arc<File>, range: Range<u64>) -> io::Result<Bytes> {
    blocking(move || {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).map_err(io::Error::other)?];
        file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes.into())
    })
    .await
}

/// A range of an object; `None` when it is not there.
pub(super) async fn object(bucket: &Arc<AmazonS3>, key: &Key, range: Range<u64>) -> io::Result<Option<Bytestream>> {
    if range.is_empty() {
        return Ok(Some(stream::empty().boxed()));
    }
    let length = range.end - range.start;
    let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
    let found = match bucket.get_opts(key, options).await {
        Ok(found) => found,
        Err(Error::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let next = |(mut bytes, left): (BoxStream<'static, Result<Bytes, Error>>, u64)| async move {
        if left == 0 {
            return None;
        }
        let piece = match timeout(BUCKET_SILENCE_TIMEOUT, bytes.next()).await {
            Ok(Some(Ok(piece))) if piece.len() as u64 <= left => Ok(piece),
            Ok(Some(Ok(_))) => Err(io::Error::other("the store sends more than was asked for")),
            Ok(Some(Err(error))) => Err(error.into()),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let left = piece.as_ref().map_or(0, |piece| left - piece.len() as u64);
        Some((piece, (bytes, left)))
    };
    Ok(Some(fused(stream::unfold((found.into_stream(), length), next))))
}

/// Nothing follows an error.
fn fused(bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Bytestream {
    let until_error = bytes.scan(false, |failed, piece| {
        let over = std::mem::replace(failed, piece.is_err());
        async move { (!over).then_some(piece) }
    });
    until_error.boxed()
}
