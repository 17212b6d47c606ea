//! The Board adapter: dials out and keeps one connection open, forever.
//!
//! Owns the WebSocket, reconnecting and enrolment. Refuses to keep anything that is not in the outbox or the journal.

pub mod address;
pub mod backoff;
mod connection;
pub mod credential;
mod dial;
mod files;
pub mod metrics;
mod provider_keys;
mod requests;
mod sessions;
mod spaces;
mod uploads;

use std::time::{Duration, Instant};

use protocol::{
    BootId, Hello, MCP_CAPABILITY, MESH_CAPABILITY, PLAYBOOKS_CAPABILITY, SKILLS_CAPABILITY, ViberState,
    limits::{PROTOCOL, close},
};
use tokio_util::sync::CancellationToken;

pub use credential::Credential;
pub use provider_keys::KeyOffers;
pub use requests::status;
pub use uploads::Uploads;

use super::{Callbacks, CommandCenterAdapter, StreamedEvent};
use crate::{
    adapters::board::{
        backoff::{Backoff, ConnectionEnd},
        connection::{
            ConnectionOutcome,
            state::{OversizedFrame, TARGET_FRAME_BYTES},
        },
        metrics::MetricsSampler,
    },
    mesh::{BoardStatus, Mesh},
};

/// The adapter's name.
pub const BOARD: &str = "board";

/// The adapter of one Board.
pub struct BoardAdapter {
    pub identity: Identity,
    /// Ends after one connection (`run --once`).
    pub once: bool,
    /// A folder on the disk whose free space is reported.
    pub folder: std::path::PathBuf,
}

/// How the daemon identifies itself in `hello`.
#[derive(Clone)]
pub struct Identity {
    pub credential: Credential,
    pub boot_id: BootId,
    pub uploads: Uploads,
    /// Public keys that were handed out for keys of providers.
    pub key_offers: KeyOffers,
}

impl Identity {
    fn hello(&self, mesh: &Mesh) -> Hello {
        let mut capabilities = crate::confinement::found().words();
        capabilities
            .extend([SKILLS_CAPABILITY, PLAYBOOKS_CAPABILITY, MESH_CAPABILITY, MCP_CAPABILITY].map(str::to_owned));
        if self.credential.insecure {
            capabilities.push("insecure".to_owned());
        }
        Hello {
            protocol: PROTOCOL,
            viber_id: self.credential.viber_id.clone(),
            boot_id: self.boot_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            platform: platform(),
            hostname: hostname(),
            capabilities,
            labels: self.credential.labels.clone(),
            state: ViberState { damage: Some(crate::damaged::list(mesh.home())), ..mesh.viber_state() },
            last_cmd_seq: mesh.last_cmd_seq(),
            running: mesh.held(),
            outbox: mesh.outbox().ranges(),
        }
    }
}

impl CommandCenterAdapter for BoardAdapter {
    fn id(&self) -> &'static str {
        BOARD
    }

    async fn connect(&self, callbacks: Callbacks) -> Result<(), String> {
        let Callbacks { mesh, finish, .. } = callbacks;
        let mut metrics = MetricsSampler::new(self.folder.clone());
        let mut backoff = Backoff::default();
        let mut frame = TARGET_FRAME_BYTES;
        loop {
            let ended = self.connection(&mesh, &mut metrics, frame, &finish).await;
            if finish.is_cancelled() {
                return Ok(());
            }
            let sentence = ended.end.sentence();
            if matches!(ended.end, ConnectionEnd::Closed { code: close::SUPERSEDED, .. }) {
                // Until the Board sends the next welcome.
                mesh.pause(true);
            }
            frame = frame_after(&ended, frame, &mesh);
            mesh.contact(standing(&mesh, false, Some(sentence.clone())));
            if self.once {
                let served = ended.welcomed.is_some() && !ended.end.is_refusal();
                return if served { Ok(()) } else { Err(sentence) };
            }
            let wait = backoff.after(&ended.end, ended.welcomed, Instant::now(), rand::random());
            tracing::warn!(retry_ms = wait.as_millis() as u64, "not connected: {sentence}");
            if finish.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return Ok(());
            }
        }
    }

    /// The link is its own pump: it reads the outbox in batches, up to the window that the Board acknowledges, and hears of
    /// this event when it was written.
    async fn stream(&self, _event: StreamedEvent) -> Result<(), String> {
        Ok(())
    }
}

impl BoardAdapter {
    async fn connection(
        &self,
        mesh: &Mesh,
        metrics: &mut MetricsSampler,
        frame: u64,
        finish: &CancellationToken,
    ) -> ConnectionOutcome {
        let lost = |end| ConnectionOutcome { end, welcomed: None, too_large: None };
        let socket = match finish.run_until_cancelled(dial::dial(&self.identity.credential)).await {
            Some(Ok(socket)) => socket,
            Some(Err(end)) => return lost(end),
            None => return lost(ConnectionEnd::Lost("the daemon ends".to_owned())),
        };
        let served = connection::serve(socket, mesh, &self.identity, (metrics, frame), finish);
        if !self.once {
            return served.await;
        }
        tokio::pin!(served);
        let drained = async {
            let mut changes = mesh.changes();
            while !(mesh.is_drained() && mesh.load().0 == 0) {
                // Cannot fail: the sender lives in the mesh.
                let _ = changes.changed().await;
            }
        };
        tokio::select! {
            ended = &mut served => ended,
            () = drained => {
                finish.cancel();
                served.await
            }
        }
    }
}

/// The target size of frames for the next connection. An event that the Board rejects as too large by itself is not
/// sent to it again.
fn frame_after(ended: &ConnectionOutcome, frame: u64, mesh: &Mesh) -> u64 {
    match &ended.too_large {
        Some(OversizedFrame { attempt, seq, alone: true }) => {
            mesh.outbox().withhold(attempt, *seq);
            1
        }
        Some(_) => 1,
        None if ended.welcomed.is_some() => TARGET_FRAME_BYTES,
        None => frame,
    }
}

/// The connection's status; `since` is the time of the last change.
fn standing(mesh: &Mesh, connected: bool, detail: Option<String>) -> BoardStatus {
    let before = mesh.standing();
    let same = before.connected == connected && before.since.is_some();
    let since = if same { before.since } else { Some(mesh.clock().now().to_string()) };
    BoardStatus { connected, since, detail }
}

/// The operating system and the processor.
pub fn platform() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// This machine's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How long sending the last events may take when the daemon ends.
pub const FAREWELL_TIMEOUT: Duration = Duration::from_secs(8);

#[cfg(test)]
pub(super) mod tests;
