//! The sockets of Slack's Socket Mode: dialled out, one at a time, and two while one takes over from the other.
//!
//! An envelope is acknowledged when it is on disk, within the three seconds that Slack waits; else it comes again.

use std::{sync::Arc, time::Duration};

use futures_util::{SinkExt, StreamExt};
use protocol::AdapterState;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig as SocketLimits},
};
use tokio_util::task::TaskTracker;

use super::{
    SLACK,
    api::{SlackApi, SlackError},
    inbound,
    store::EnvelopeStore,
};
use crate::{adapters::Callbacks, mesh::Mesh};

type SlackSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// How long dialling, and the greeting after it, may take.
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// Slack pings more often than this; a socket that is silent for so long is dead.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a socket that another one replaced may still bring something.
const OVERLAP: Duration = Duration::from_secs(30);
/// Largest frame, bytes.
const MAX_FRAME_BYTES: usize = 4 * 1024 * 1024;
/// A socket that lived for less says nothing about the next one.
const STEADY_LIFE: Duration = Duration::from_secs(10);
/// Waits between attempts: the first, and the longest.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How a socket ended.
#[derive(Debug, PartialEq, Eq)]
enum SocketEnd {
    /// Slack closes it soon: another one is due.
    Replace,
    Lost(String),
    /// Whoever runs the app has to change it.
    Disabled(String),
}

/// Keeps a socket open until `callbacks.finish` is cancelled, and returns what makes that impossible.
pub async fn run(api: &SlackApi, envelopes: &Arc<EnvelopeStore>, callbacks: &Callbacks) -> Result<(), String> {
    let old_sockets = TaskTracker::new();
    let mut wait = FIRST_WAIT;
    loop {
        let opened = callbacks.finish.run_until_cancelled(open(api)).await;
        let (why, is_final) = match opened {
            None => return Ok(()),
            Some(Ok(mut socket)) => {
                callbacks.mesh.report_adapter(SLACK, AdapterState::Connected, None);
                let since = Instant::now();
                let ended = callbacks.finish.run_until_cancelled(serve(&mut socket, envelopes, &callbacks.mesh)).await;
                let is_steady = since.elapsed() >= STEADY_LIFE;
                if is_steady {
                    wait = FIRST_WAIT;
                }
                match ended {
                    None => {
                        let _ = timeout(Duration::from_secs(1), socket.close(None)).await;
                        return Ok(());
                    }
                    Some(SocketEnd::Replace) => {
                        // What Slack sends on it until it closes it is taken as well.
                        let (envelopes, callbacks) = (envelopes.clone(), callbacks.clone());
                        old_sockets.spawn(async move {
                            let rest = timeout(OVERLAP, serve_to_end(&mut socket, &envelopes, &callbacks.mesh));
                            let _ = callbacks.finish.run_until_cancelled(rest).await;
                        });
                        if is_steady {
                            continue;
                        }
                        ("it replaces its sockets faster than they are opened".to_owned(), false)
                    }
                    Some(SocketEnd::Lost(why)) => (why, false),
                    Some(SocketEnd::Disabled(why)) => (why, true),
                }
            }
            Some(Err(error)) => (error.to_string(), is_fatal(&error)),
        };
        tracing::warn!("not connected to Slack: {why}");
        callbacks.mesh.report_adapter(SLACK, AdapterState::Failed, Some(why.clone()));
        // A token that is refused may be exchanged: it is tried again, but rarely.
        let pause = if is_final { LONGEST_WAIT } else { wait };
        if callbacks.finish.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return Ok(());
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

fn is_fatal(error: &SlackError) -> bool {
    matches!(error, SlackError::Refused(_))
}

/// Opens a socket and waits for its greeting.
async fn open(api: &SlackApi) -> Result<SlackSocket, SlackError> {
    let url = api.open_socket().await?;
    let lost = |why: &str| SlackError::Unreachable(why.to_owned());
    if !Url::parse(&url).is_ok_and(|url| api.is_private(&url, "wss")) {
        return Err(lost("its socket is not encrypted"));
    }
    let limits = SocketLimits::default().max_message_size(Some(MAX_FRAME_BYTES)).max_frame_size(Some(MAX_FRAME_BYTES));
    let dialled = timeout(DIAL_TIMEOUT, connect_async_with_config(url, Some(limits), true)).await;
    // The error may name the address, which holds a ticket.
    let (mut socket, _) =
        dialled.map_err(|_| lost("no answer in time"))?.map_err(|_| lost("its socket does not open"))?;
    let greeting = timeout(DIAL_TIMEOUT, socket.next()).await.map_err(|_| lost("its socket says nothing"))?;
    match greeting {
        Some(Ok(Message::Text(text))) if parse(&text)["type"] == "hello" => Ok(socket),
        _ => Err(lost("its socket does not greet")),
    }
}

/// Takes envelopes until the socket ends or is to be replaced.
async fn serve(socket: &mut SlackSocket, envelopes: &Arc<EnvelopeStore>, mesh: &Mesh) -> SocketEnd {
    loop {
        let frame = match timeout(SILENCE_TIMEOUT, socket.next()).await {
            Err(_) => return SocketEnd::Lost("it was silent for too long".to_owned()),
            Ok(None | Some(Err(_) | Ok(Message::Close(_)))) => {
                return SocketEnd::Lost("the connection ended".to_owned());
            }
            Ok(Some(Ok(Message::Text(text)))) => parse(&text),
            Ok(Some(Ok(_))) => continue,
        };
        if frame["type"] == "disconnect" {
            let reason = frame["reason"].as_str().unwrap_or_default();
            if reason == "link_disabled" {
                return SocketEnd::Disabled("Socket Mode is switched off for this app".to_owned());
            }
            return SocketEnd::Replace;
        }
        if let Err(why) = take(socket, envelopes, mesh, frame).await {
            return SocketEnd::Lost(why);
        }
    }
}

/// The same for a socket that was replaced.
async fn serve_to_end(socket: &mut SlackSocket, envelopes: &Arc<EnvelopeStore>, mesh: &Mesh) {
    while serve(socket, envelopes, mesh).await == SocketEnd::Replace {}
    let _ = socket.close(None).await;
}

/// Puts an envelope on disk, and acknowledges it then.
async fn take(
    socket: &mut SlackSocket,
    envelopes: &Arc<EnvelopeStore>,
    mesh: &Mesh,
    envelope: Value,
) -> Result<(), String> {
    let Some(id) = envelope["envelope_id"].as_str().map(str::to_owned) else { return Ok(()) };
    if matches!(envelope["type"].as_str(), Some("events_api" | "interactive")) {
        let store = envelopes.clone();
        let put = tokio::task::spawn_blocking(move || store.put(&inbound::key(&envelope), &envelope["payload"]));
        if let Err(error) = put.await.map_err(std::io::Error::other).flatten() {
            // Not acknowledged: Slack sends it again.
            let why = format!("something that came from Slack cannot be kept: {error}");
            tracing::error!("{why}");
            mesh.report_adapter(SLACK, AdapterState::Failed, Some(why));
            return Ok(());
        }
        mesh.report_adapter(SLACK, AdapterState::Connected, None);
        crate::fault::at("slack::before_ack");
    }
    let acknowledged = socket.send(Message::text(json!({ "envelope_id": id }).to_string()));
    match timeout(DIAL_TIMEOUT, acknowledged).await {
        Ok(Ok(())) => Ok(()),
        _ => Err("the connection ended".to_owned()),
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}
