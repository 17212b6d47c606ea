//! Opening the WebSocket.

use std::time::Duration;

use protocol::limits::{MAX_FRAME, SUBPROTOCOL};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        Error,
        client::IntoClientRequest,
        http::{HeaderValue, header},
        protocol::WebSocketConfig,
    },
};

use super::{
    address,
    backoff::End,
    credential::{Credential, causes},
};

/// Longest from the first packet to the answered upgrade.
const PATIENCE: Duration = Duration::from_secs(20);

/// A connection to the Board.
pub type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Dials the Board. Redirects are an error: the credential is only for the address it was made for.
pub async fn dial(credential: &Credential) -> Result<Socket, End> {
    let board = credential.board().map_err(End::Lost)?;
    let lost = |why: &dyn std::fmt::Display| End::Lost(format!("{board} cannot be reached: {why}"));
    let mut request = address::socket(&board).into_client_request().map_err(|error| lost(&error))?;
    let bearer = format!("Bearer {}", credential.credential);
    let mut bearer =
        HeaderValue::from_str(&bearer).map_err(|_| End::Lost("the credential is damaged: join again".to_owned()))?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .write_buffer_size(16 * 1024)
        .max_write_buffer_size(1024 * 1024)
        .max_message_size(Some(MAX_FRAME))
        .max_frame_size(Some(MAX_FRAME));
    match timeout(PATIENCE, connect_async_with_config(request, Some(config), true)).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(answer))) => Err(End::Refused { status: answer.status().as_u16() }),
        Ok(Err(error)) => Err(lost(&causes(&error))),
        Err(_) => Err(lost(&format_args!("no answer within {} s", PATIENCE.as_secs()))),
    }
}
