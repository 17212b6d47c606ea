//! The daemons' endpoint for blobs: a viber uploads what the Board requested, and downloads what operators attached to
//! its tasks.

use axum::{
    Router,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::put,
};
use protocol::ArtifactId;

use crate::{
    actions::artifacts::{self, BlobReceipt, IncomingBlob},
    domain::ArtifactOrigin,
    error::{Error, Result},
    state::Board,
    web::{
        Rejection,
        content::{self, ServedAs},
        daemon::ViberAuth,
        extract::Id,
    },
};

/// The header with the SHA-256 of the whole blob, sent with every part.
const SHA256_HEADER: HeaderName = HeaderName::from_static("x-content-sha256");

/// Its routes: their bodies are as large as a team allows.
pub fn routes() -> Router<Board> {
    Router::new().route("/api/daemon/blobs/{id}", put(take).get(give))
}

/// `PUT`: 201 when it is verified and kept, 308 with `Range` (what is here already) when there is more to come.
async fn take(
    viber: ViberAuth,
    State(board): State<Board>,
    Id(artifact): Id<ArtifactId>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Rejection> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    let length: u64 = length.ok_or_else(|| Error::Malformed("Content-Length is required".into()))?;
    let sha256 = text(SHA256_HEADER).ok_or_else(|| Error::Malformed("X-Content-Sha256 is required".into()))?.to_owned();
    let (from, size) = match text(header::CONTENT_RANGE) {
        None => (Some(0), length),
        Some(range) => part(range, length).ok_or_else(|| Error::Malformed("Content-Range is invalid".into()))?,
    };
    let incoming = IncomingBlob { team: viber.team, viber: viber.viber, artifact, sha256, size, from };
    Ok(match artifacts::receive(&board, incoming, body.into_data_stream()).await? {
        BlobReceipt::Stored => StatusCode::CREATED.into_response(),
        BlobReceipt::UpTo(0) => StatusCode::PERMANENT_REDIRECT.into_response(),
        BlobReceipt::UpTo(here) => {
            let range = HeaderValue::from_str(&format!("bytes=0-{}", here - 1)).expect("made of digits");
            (StatusCode::PERMANENT_REDIRECT, [(header::RANGE, range)]).into_response()
        }
    })
}

/// `bytes 5-9/10`: where a part begins and how large the whole is; `bytes */10` asks how far the Board is.
fn part(range: &str, length: u64) -> Option<(Option<u64>, u64)> {
    let (span, size) = range.strip_prefix("bytes ")?.split_once('/')?;
    let size: u64 = size.parse().ok()?;
    if span == "*" {
        return (length == 0).then_some((None, size));
    }
    let (from, to) = span.split_once('-')?;
    let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
    (to < size && to.checked_sub(from)?.checked_add(1)? == length).then_some((Some(from), size))
}

/// `GET`: a file that came with a goal.
async fn give(
    viber: ViberAuth,
    State(board): State<Board>,
    Id(id): Id<ArtifactId>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let artifact = artifacts::load(&board, &viber.team, &id).await?;
    if artifact.viber_id != viber.viber || artifact.origin != ArtifactOrigin::Operator || artifact.task_id.is_none() {
        return Err(Rejection(Error::NotFound));
    }
    let wanted = content::resumed(&headers, artifact.sha256.as_deref());
    let opened = artifacts::open(&board, &viber.team, &id, wanted).await?;
    Ok(content::answer(opened, ServedAs::Download))
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn a_part_says_where_it_belongs() {
        assert_eq!(part("bytes 5-9/10", 5), Some((Some(5), 10)));
        assert_eq!(part("bytes */10", 0), Some((None, 10)));
        for (odd, length) in
            [("bytes 5-9/10", 4), ("bytes 5-10/10", 6), ("bytes 9-5/10", 0), ("bytes */x", 0), ("5-9/10", 5), ("", 0)]
        {
            assert_eq!(part(odd, length), None, "{odd}");
        }
        assert_eq!(part("bytes 0-18446744073709551615/18446744073709551615", 0), None);
    }
}
