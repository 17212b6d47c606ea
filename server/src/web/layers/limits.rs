//! How large a request's body may be, and how slowly it may arrive.

use std::time::Duration;

use axum::{
    body::{Body, BodyDataStream, Bytes, HttpBody as _},
    extract::Request,
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{error::Error, web::respond};

/// Largest body of a request: a field of 1 MiB and its surroundings. A route that takes more sets its own limit.
pub const MAX_BODY_BYTES: usize = 1024 * 1024 + 16 * 1024;
/// Largest body that is read and discarded before its refusal is sent.
const MAX_DISCARDED_BYTES: u64 = 16 * 1024 * 1024;
/// A client that sends nothing for this long is considered stalled and gets its response.
const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(2);
/// A body that neither ends nor brings [`BODY_PROGRESS_BYTES`] more within this time is given up: a client that sends
/// a byte now and then would hold its connection for days. With the delays of a busy machine it stays below ten
/// seconds.
const BODY_PROGRESS_TIMEOUT: Duration = Duration::from_secs(9);
/// Bytes; a client that sends 7 kbit/s is fast enough.
const BODY_PROGRESS_BYTES: usize = 8 * 1024;

/// A body that announces more than the limit is read and discarded before it is refused, unless it is far too large:
/// a client that is still writing when the connection closes never sees the response.
pub async fn discard_oversized(request: Request, next: Next) -> Response {
    let announced: Option<u64> =
        request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match announced {
        Some(length) if length > MAX_BODY_BYTES as u64 => {
            if length <= MAX_DISCARDED_BYTES {
                let mut body = request.into_body().into_data_stream();
                let all = async { while matches!(timeout(BODY_IDLE_TIMEOUT, body.next()).await, Ok(Some(Ok(_)))) {} };
                // A slower client has had its time.
                timeout(BODY_PROGRESS_TIMEOUT, all).await.ok();
            }
            respond::Rejection(Error::TooLarge("the body is larger than 1 MiB")).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Ends a body that arrives too slowly; its reader gets an error.
pub async fn require_progress(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    next.run(request.map(|body| Body::from_stream(with_progress(body.into_data_stream(), BODY_PROGRESS_TIMEOUT)))).await
}

fn with_progress(
    body: BodyDataStream,
    pause: Duration,
) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
    let begin = (body, Instant::now() + pause, 0);
    stream::unfold(begin, move |(mut body, mut until, mut came)| async move {
        let Ok(piece) = timeout_at(until, body.next()).await else {
            let slow = axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            return Some((Err(slow), (Body::empty().into_data_stream(), until, came)));
        };
        let piece = piece?;
        came += piece.as_ref().map_or(0, Bytes::len);
        if came >= BODY_PROGRESS_BYTES {
            (until, came) = (Instant::now() + pause, 0);
        }
        Some((piece, (body, until, came)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of pieces of `size` bytes, one each fiftieth of the pause, read to its end.
    async fn read(size: usize, pieces: usize) -> Result<usize, axum::Error> {
        let pause = Duration::from_millis(500);
        let trickle = stream::iter(0..pieces).then(move |_| async move {
            tokio::time::sleep(pause / 50).await;
            Ok::<_, axum::Error>(Bytes::from(vec![0; size]))
        });
        let mut paced = Box::pin(with_progress(Body::from_stream(trickle).into_data_stream(), pause));
        let mut length = 0;
        while let Some(piece) = paced.next().await {
            length += piece?.len();
        }
        Ok(length)
    }

    #[tokio::test]
    async fn a_trickle_is_given_up_and_a_slow_line_is_not() {
        assert_eq!(read(BODY_PROGRESS_BYTES / 8, 100).await.expect("fast enough"), BODY_PROGRESS_BYTES / 8 * 100);
        assert_eq!(read(1, 5).await.expect("it ends soon"), 5);
        read(1, 500).await.expect_err("too slow");
    }
}
