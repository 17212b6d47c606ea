//! Uploads the artifacts that the Board requests: streamed, with their hash, and resumed after a broken connection at
//! the offset that the Board has.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{Seek as _, SeekFrom},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use protocol::ArtifactId;
use reqwest::{Body, Response, StatusCode, header};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::io::ReaderStream;

use super::{
    Identity, address,
    credential::{Credential, blob_client, causes},
};
use crate::{
    artifacts::{find, measure},
    mesh::Mesh,
};

/// Bytes that are read at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// How often in a row a connection may break without the Board having received anything new.
const MAX_FRUITLESS_ATTEMPTS: u32 = 6;
/// Delay before the first retry; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);

/// The uploads that are under way: the Board may ask for the same one twice.
#[derive(Clone, Debug, Default)]
pub struct Uploads(Arc<Mutex<BTreeSet<ArtifactId>>>);

/// An upload's entry in the list; removed when the upload ends.
struct UploadSlot(Uploads, ArtifactId);

impl Uploads {
    fn begin(&self, id: &ArtifactId) -> Option<UploadSlot> {
        let new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        new.then(|| UploadSlot(self.clone(), id.clone()))
    }
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// A blob as it was described to the Board.
struct Blob {
    id: ArtifactId,
    size: u64,
    sha256: String,
}

/// `artifact.offer {artifactId, ref, sha256?, size?}`: with a hash, the upload begins in the background; without one,
/// the file is measured. The first word of a refusal is its code.
pub async fn offer(mesh: &Mesh, identity: &Identity, params: &Value) -> Result<Value, String> {
    let id = params["artifactId"].as_str().and_then(|id| id.parse::<ArtifactId>().ok());
    let id = id.ok_or("malformed: artifactId is not valid")?;
    let reference = params["ref"].as_str().ok_or("malformed: ref is missing")?.to_owned();
    let (home, size) = (mesh.home().clone(), params["size"].as_u64());
    let sha256 = params["sha256"].as_str().map(str::to_owned);
    let wanted = sha256.clone();
    let found = tokio::task::spawn_blocking(move || {
        let file = find(&home, &reference, size, wanted.as_deref())?;
        let length = file.metadata().map_err(|error| format!("gone: {error}"))?.len();
        let measured = match &wanted {
            None => Some(measure(&file).map_err(|error| format!("gone: {error}"))?),
            Some(_) => None,
        };
        Ok::<_, String>((file, length, measured))
    });
    let (file, size, measured) = found.await.map_err(|error| format!("gone: {error}"))??;
    if let Some(measured) = measured {
        return Ok(json!({ "size": measured.size, "sha256": measured.sha256, "sniffed": measured.sniffed }));
    }
    let blob = Blob { id, size, sha256: sha256.unwrap_or_default() };
    if let Some(turn) = identity.uploads.begin(&blob.id) {
        let credential = identity.credential.clone();
        tokio::spawn(async move {
            if let Err(why) = put(&credential, &blob, &file).await {
                tracing::warn!(artifact.id = %blob.id, "an artifact was not uploaded: {why}");
            }
            drop(turn);
        });
    }
    Ok(json!({ "size": size }))
}

/// Uploads the blob, starting at the offset that the Board has.
async fn put(credential: &Credential, blob: &Blob, file: &File) -> Result<(), String> {
    let url = address::join(&credential.board()?, &format!("api/daemon/blobs/{}", blob.id));
    let client = blob_client()?;
    let (mut from, mut tries) = (0, 0);
    loop {
        let body = part(file, from).map_err(|error| error.to_string())?;
        let length = blob.size - from;
        let mut call =
            client.put(url.clone()).bearer_auth(&credential.credential).header("x-content-sha256", &blob.sha256);
        if from > 0 {
            call = call.header(header::CONTENT_RANGE, format!("bytes {from}-{}/{}", blob.size - 1, blob.size));
        }
        let sent = call.header(header::CONTENT_LENGTH, length).body(body).send().await;
        let failed = match sent {
            Ok(answer) => match judged(&answer)? {
                Some(0) | None if answer.status() == StatusCode::CREATED => return Ok(()),
                received => format!("the Board has {} bytes", received.unwrap_or(from)),
            },
            Err(error) => causes(&error),
        };
        // The answer may have been lost with the connection, so ask the Board for its offset.
        sleep(FIRST_RETRY_DELAY * 2u32.pow(tries.min(5))).await;
        let probe =
            client.put(url.clone()).bearer_auth(&credential.credential).header("x-content-sha256", &blob.sha256);
        let probe =
            probe.header(header::CONTENT_RANGE, format!("bytes */{}", blob.size)).header(header::CONTENT_LENGTH, 0);
        let here = match probe.send().await {
            Ok(answer) if answer.status() == StatusCode::CREATED => return Ok(()),
            Ok(answer) => judged(&answer)?.unwrap_or(from),
            Err(_) => from,
        };
        tries = if here > from { 0 } else { tries + 1 };
        from = here.min(blob.size.saturating_sub(1));
        if tries >= MAX_FRUITLESS_ATTEMPTS {
            return Err(failed);
        }
    }
}

/// The rest of a file as a request body, read while it is sent.
fn part(file: &File, from: u64) -> std::io::Result<Body> {
    let mut file = file.try_clone()?;
    file.seek(SeekFrom::Start(from))?;
    Ok(Body::wrap_stream(ReaderStream::with_capacity(tokio::fs::File::from_std(file), CHUNK_BYTES)))
}

/// How many bytes the Board has, if it says so; `Err` if it does not want the blob.
fn judged(answer: &Response) -> Result<Option<u64>, String> {
    let status = answer.status();
    match status {
        StatusCode::CREATED => Ok(None),
        StatusCode::PERMANENT_REDIRECT => {
            let range = answer.headers().get(header::RANGE).and_then(|range| range.to_str().ok());
            let last = range.and_then(|range| range.strip_prefix("bytes=0-")?.parse::<u64>().ok());
            Ok(Some(last.map_or(0, |last| last + 1)))
        }
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_REQUEST => Ok(None),
        status if status.is_server_error() => Ok(None),
        status => Err(format!("the Board answered {status}")),
    }
}
