//! The WebSocket adapter: programs of this machine talk to agents over a loopback port, each connection an adapter.
//!
//! Owns the port, the token and who may connect. What is said on a connection belongs to [`super::client`].

use std::{io, net::IpAddr, path::Path, sync::Arc, time::Duration};

use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use protocol::AdapterState;
use subtle::ConstantTimeEq;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::{HeaderMap, StatusCode, header, uri::Authority},
        protocol::WebSocketConfig as SocketLimits,
    },
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Callbacks,
    client::{LocalClient, TextSink, TextSource},
};
use crate::{
    config::WebSocketConfig,
    confinement,
    home::{open_to_others, read_plain, write_private},
    mesh::Mesh,
};

/// The adapter's name.
pub const WEBSOCKET: &str = "websocket";
/// Random bytes in a token, which is written in hexadecimal.
const TOKEN_BYTES: usize = 32;
/// Longest text of a program, bytes.
const MAX_TEXT_BYTES: usize = 1024 * 1024;
/// Connections at the same time. Further ones wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 64;
/// How long a handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts to listen.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// What may wait in a connection's buffer, bytes.
const MAX_BUFFERED_BYTES: usize = 4 * 1024 * 1024;

/// Listens until `finish` is cancelled, and says on the viber's page how that goes.
pub async fn listen(config: WebSocketConfig, mesh: Mesh, finish: CancellationToken) {
    let tasks = TaskTracker::new();
    loop {
        let opened = async {
            let token = token(&mesh.home().websocket_token())?;
            Ok::<_, io::Error>((TcpListener::bind(config.listen).await?, token))
        };
        match opened.await {
            Ok((listener, token)) => {
                mesh.report_adapter(WEBSOCKET, AdapterState::Connected, Some(format!("listens on {}", config.listen)));
                let door = Arc::new(Door { token, origins: config.origins.clone() });
                serve(listener, &door, &mesh, (&finish, &tasks)).await;
                break;
            }
            Err(error) => {
                let why = format!("cannot listen on {}: {error}", config.listen);
                tracing::warn!("the WebSocket {why}");
                mesh.report_adapter(WEBSOCKET, AdapterState::Failed, Some(why));
                if finish.run_until_cancelled(tokio::time::sleep(RETRY_INTERVAL)).await.is_none() {
                    break;
                }
            }
        }
    }
    tasks.close();
    tasks.wait().await;
}

async fn serve(
    listener: TcpListener,
    door: &Arc<Door>,
    mesh: &Mesh,
    (finish, tasks): (&CancellationToken, &TaskTracker),
) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Some(visit) = finish.run_until_cancelled(accept(&listener, &room)).await {
        match visit {
            Ok((stream, place)) => {
                let (door, callbacks) = (door.clone(), Callbacks::of(WEBSOCKET, mesh.clone(), finish.clone()));
                tasks.spawn(async move {
                    let _place = place;
                    if let Err(why) = door.admit(stream, callbacks).await {
                        tracing::debug!("a program left the WebSocket: {why}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("the WebSocket cannot accept a program: {error}");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Accepts the next program once there is room for it.
async fn accept(listener: &TcpListener, room: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let place = room.clone().acquire_owned().await.map_err(io::Error::other)?;
    Ok((listener.accept().await?.0, place))
}

/// The token that programs show: the one in the file, or a new one that is written there.
fn token(path: &Path) -> io::Result<String> {
    match read_plain(path) {
        Ok(text) if text.trim().len() == TOKEN_BYTES * 2 && !open_to_others(path) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => {
            let bytes: [u8; TOKEN_BYTES] = rand::random();
            let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            write_private(path, token.as_bytes())?;
            Ok(token)
        }
    }
}

/// Who may come in.
struct Door {
    token: String,
    origins: Vec<String>,
}

impl Door {
    async fn admit(&self, stream: TcpStream, callbacks: Callbacks) -> Result<(), String> {
        let limits = SocketLimits::default()
            .max_message_size(Some(MAX_TEXT_BYTES))
            .max_frame_size(Some(MAX_TEXT_BYTES))
            .max_write_buffer_size(MAX_BUFFERED_BYTES);
        #[expect(clippy::result_large_err, reason = "the signature is tungstenite's")]
        let check = |request: &Request, response: Response| match self.objection(request.headers()) {
            None => Ok(response),
            Some((status, why)) => {
                let mut refusal = ErrorResponse::new(Some(format!("{why}\n")));
                *refusal.status_mut() = status;
                Err(refusal)
            }
        };
        let upgraded = accept_hdr_async_with_config(stream, check, Some(limits));
        let socket = match timeout(HANDSHAKE_TIMEOUT, upgraded).await {
            Ok(upgraded) => upgraded.map_err(|error| error.to_string())?,
            Err(_) => return Err("no handshake in time".to_owned()),
        };
        let (sink, source) = socket.split();
        let may_decide = confinement::found().layers.confine();
        LocalClient::new(WEBSOCKET, may_decide, FrameSource(source), FrameSink(sink)).serve(callbacks).await
    }

    /// Why a request is refused. A page of a browser is known by its origin, a name that was made to lead here by its host.
    fn objection(&self, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let is_listed = |origin: &str| self.origins.iter().any(|known| known == origin);
        if !origins.all(|origin| origin.to_str().is_ok_and(is_listed)) {
            return Some((StatusCode::FORBIDDEN, "pages of this origin may not connect: list it under origins"));
        }
        let mut hosts = headers.get_all(header::HOST).iter();
        let is_named = hosts.next().and_then(|host| host.to_str().ok()).is_some_and(is_this_machine);
        if !is_named || hosts.next().is_some() {
            return Some((StatusCode::MISDIRECTED_REQUEST, "this address is for programs of this machine"));
        }
        let shown = headers.get(header::AUTHORIZATION).and_then(|shown| shown.to_str().ok()?.strip_prefix("Bearer "));
        let is_known = shown.is_some_and(|shown| shown.trim().as_bytes().ct_eq(self.token.as_bytes()).into());
        (!is_known).then_some((StatusCode::UNAUTHORIZED, "show the token in state/websocket.token"))
    }
}

/// Whether a `Host` is a loopback address, or the name of one that nobody else can own.
fn is_this_machine(host: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    let name = authority.host();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// The texts of a program.
struct FrameSource(SplitStream<WebSocketStream<TcpStream>>);

/// The texts to it.
struct FrameSink(SplitSink<WebSocketStream<TcpStream>, Message>);

impl TextSource for FrameSource {
    async fn next(&mut self) -> Option<String> {
        loop {
            match self.0.next().await? {
                Ok(Message::Text(text)) => return Some(text.to_string()),
                Ok(Message::Close(_)) | Err(_) => return None,
                // The library answers pings.
                Ok(_) => {}
            }
        }
    }
}

impl TextSink for FrameSink {
    async fn send(&mut self, text: String) -> io::Result<()> {
        self.0.send(Message::text(text)).await.map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::http::HeaderValue;

    use super::*;

    fn objection(headers: &[(header::HeaderName, &str)]) -> Option<u16> {
        let door = Door { token: "secret".to_owned(), origins: vec!["http://localhost:3000".to_owned()] };
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(name.clone(), HeaderValue::from_str(value).expect("a value"));
        }
        door.objection(&all).map(|(status, _)| status.as_u16())
    }

    #[test]
    fn only_programs_of_this_machine_with_the_token_come_in() {
        let (host, token) = ((header::HOST, "127.0.0.1:7411"), (header::AUTHORIZATION, "Bearer secret"));
        assert_eq!(objection(&[host.clone(), token.clone()]), None);
        assert_eq!(objection(&[(header::HOST, "localhost:7411"), token.clone()]), None);
        assert_eq!(objection(&[host.clone(), token.clone(), (header::ORIGIN, "http://localhost:3000")]), None);
        assert_eq!(objection(std::slice::from_ref(&host)), Some(401));
        assert_eq!(objection(&[host.clone(), (header::AUTHORIZATION, "Bearer secrets")]), Some(401));
        assert_eq!(objection(&[host.clone(), (header::AUTHORIZATION, "secret")]), Some(401));
        for origin in ["null", "http://localhost:3001", "https://evil.example", ""] {
            assert_eq!(objection(&[host.clone(), token.clone(), (header::ORIGIN, origin)]), Some(403), "{origin}");
        }
        for here in ["127.0.0.1", "127.8.9.1:7411", "[::1]:7411", "[::1]", "LOCALHOST:7411"] {
            assert_eq!(objection(&[(header::HOST, here), token.clone()]), None, "{here}");
        }
        // The second is a name that anybody may own and lead to this machine.
        for other in
            ["evil.example:7411", "127.0.0.1.evil.example:7411", "localhost.evil.example", "0.0.0.0", "[::2]", ""]
        {
            assert_eq!(objection(&[(header::HOST, other), token.clone()]), Some(421), "{other}");
        }
        assert_eq!(objection(&[host, (header::HOST, "evil.example"), token.clone()]), Some(421), "two of them");
        assert_eq!(objection(&[token]), Some(421));
    }

    #[test]
    fn a_token_is_kept_for_its_owner_alone_and_replaced_when_it_was_open() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("websocket.token");
        let first = token(&path).expect("a token");
        assert_eq!(token(&path).expect("the same"), first);
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("a mode");
        assert_ne!(token(&path).expect("another one"), first);
    }
}
