//! Opens the WebSocket.

use std::time::Duration;

use protocol::limits::{MAX_FRAME_BYTES, SUBPROTOCOL};
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
    backoff::ConnectionEnd,
    credential::{Credential, causes},
};

/// Longest time from the first packet to the answered upgrade.
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to the Board.
pub type BoardSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Dials the Board. A redirect is an error: the credential is only for the address it was issued by.
pub async fn dial(credential: &Credential) -> Result<BoardSocket, ConnectionEnd> {
    let board = credential.board().map_err(ConnectionEnd::Lost)?;
    let lost = |why: &dyn std::fmt::Display| ConnectionEnd::Lost(format!("{board} cannot be reached: {why}"));
    let mut request = address::socket(&board).into_client_request().map_err(|error| lost(&error))?;
    let bearer = format!("Bearer {}", credential.credential);
    let mut bearer = HeaderValue::from_str(&bearer)
        .map_err(|_| ConnectionEnd::Lost("the credential is damaged: join again".to_owned()))?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, bearer);
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default()
        .read_buffer_size(8 * 1024)
        .write_buffer_size(16 * 1024)
        .max_write_buffer_size(1024 * 1024)
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES));
    match timeout(DIAL_TIMEOUT, connect_async_with_config(request, Some(config), true)).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(answer))) => Err(ConnectionEnd::Refused { status: answer.status().as_u16() }),
        Ok(Err(error)) => Err(lost(&causes(&error))),
        Err(_) => Err(lost(&format_args!("no answer within {} s", DIAL_TIMEOUT.as_secs()))),
    }
}
