//! How large a request's body may be, and how slowly it may come.

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

/// Largest body of a request, bytes: a field of 1 MiB and what stands around it. A route that takes more says so itself.
pub const MOST: usize = 1024 * 1024 + 16 * 1024;
/// A body that is too large is read to its end up to this size, bytes.
const SWALLOWED: u64 = 16 * 1024 * 1024;
/// Who sends nothing of it for so long is not writing, and hears the answer.
const SILENT: Duration = Duration::from_secs(2);
/// In so long a body must end or bring [`ENOUGH`] more, or it is given up: whoever sends a byte now and then would hold
/// its connection for days. Together with a busy machine's delay it stays below ten seconds.
const PAUSE: Duration = Duration::from_secs(9);
/// Bytes; at 7 kbit/s nobody is given up.
const ENOUGH: usize = 8 * 1024;

/// A body that says of itself that it is too large is read and dropped before it is refused, as far as that is
/// bearable: a client that is still writing when the connection closes never sees the answer.
pub async fn swallow(request: Request, next: Next) -> Response {
    let said: Option<u64> =
        request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    match said {
        Some(length) if length > MOST as u64 => {
            if length <= SWALLOWED {
                let mut body = request.into_body().into_data_stream();
                let all = async { while matches!(timeout(SILENT, body.next()).await, Ok(Some(Ok(_)))) {} };
                // Whoever is slower than that has had its time.
                timeout(PAUSE, all).await.ok();
            }
            respond::Rejection(Error::TooLarge("the body is larger than 1 MiB")).into_response()
        }
        _ => next.run(request).await,
    }
}

/// Gives up a body that comes too slowly; whoever reads it gets an error.
pub async fn pace(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    next.run(request.map(|body| Body::from_stream(paced(body.into_data_stream(), PAUSE)))).await
}

fn paced(body: BodyDataStream, pause: Duration) -> impl Stream<Item = Result<Bytes, axum::Error>> + Send + 'static {
    let begin = (body, Instant::now() + pause, 0);
    stream::unfold(begin, move |(mut body, mut until, mut came)| async move {
        let Ok(piece) = timeout_at(until, body.next()).await else {
            let slow = axum::Error::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
            return Some((Err(slow), (Body::empty().into_data_stream(), until, came)));
        };
        let piece = piece?;
        came += piece.as_ref().map_or(0, Bytes::len);
        if came >= ENOUGH {
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
        let mut paced = Box::pin(paced(Body::from_stream(trickle).into_data_stream(), pause));
        let mut length = 0;
        while let Some(piece) = paced.next().await {
            length += piece?.len();
        }
        Ok(length)
    }

    #[tokio::test]
    async fn a_trickle_is_given_up_and_a_slow_line_is_not() {
        assert_eq!(read(ENOUGH / 8, 100).await.expect("fast enough"), ENOUGH / 8 * 100);
        assert_eq!(read(1, 5).await.expect("it ends soon"), 5);
        read(1, 500).await.expect_err("too slow");
    }
}
