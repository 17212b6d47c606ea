//! The Board adapter: dials out, keeps one connection, for ever.
//!
//! Owns the WebSocket, reconnecting and enrolment. Refuses to keep anything that is not in the outbox or the journal.

pub mod address;
pub mod backoff;
mod blobs;
pub mod credential;
mod dial;
mod files;
pub mod link;
pub mod machine;
mod requests;
mod session;
mod sessions;
mod spaces;

use std::time::{Duration, Instant};

use protocol::{
    BootId, Hello, ViberState,
    limits::{PROTOCOL, close},
};
use tokio_util::sync::CancellationToken;

pub use blobs::Uploads;
pub use credential::Credential;
pub use requests::status;

use super::CommandCenterAdapter;
use crate::{
    adapters::board::{
        backoff::{Backoff, End},
        link::{FRAME, Suspect},
        machine::Gauge,
        session::Ended,
    },
    mesh::{Mesh, Standing},
};

/// The adapter of one Board.
pub struct Board {
    pub identity: Identity,
    /// `run --once`: one connection.
    pub once: bool,
    /// Where the disk is measured.
    pub folder: std::path::PathBuf,
}

/// Who says hello.
#[derive(Clone)]
pub struct Identity {
    pub credential: Credential,
    pub boot_id: BootId,
    pub uploads: Uploads,
}

impl Identity {
    fn hello(&self, mesh: &Mesh) -> Hello {
        let files = mesh.files().borrow().clone();
        let mut capabilities = crate::confinement::found().words();
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
            state: ViberState { damage: Some(crate::damaged::list(mesh.home())), ..files.state() },
            last_cmd_seq: mesh.last_cmd_seq(),
            running: mesh.held(),
            outbox: mesh.outbox().ranges(),
        }
    }
}

impl CommandCenterAdapter for Board {
    fn id(&self) -> &'static str {
        "board"
    }

    async fn serve(self, mesh: Mesh, finish: CancellationToken) -> Result<(), String> {
        let mut gauge = Gauge::new(self.folder.clone());
        let mut backoff = Backoff::default();
        let mut frame = FRAME;
        loop {
            let ended = self.connection(&mesh, &mut gauge, frame, &finish).await;
            if finish.is_cancelled() {
                return Ok(());
            }
            let sentence = ended.end.sentence();
            if matches!(ended.end, End::Closed { code: close::SUPERSEDED, .. }) {
                // Until the Board greets us again.
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
}

impl Board {
    async fn connection(&self, mesh: &Mesh, gauge: &mut Gauge, frame: u64, finish: &CancellationToken) -> Ended {
        let lost = |end| Ended { end, welcomed: None, too_large: None };
        let socket = match finish.run_until_cancelled(dial::dial(&self.identity.credential)).await {
            Some(Ok(socket)) => socket,
            Some(Err(end)) => return lost(end),
            None => return lost(End::Lost("the daemon ends".to_owned())),
        };
        let served = session::serve(socket, mesh, &self.identity, gauge, frame, finish);
        if !self.once {
            return served.await;
        }
        tokio::pin!(served);
        let drained = async {
            let mut changes = mesh.changes();
            while !(mesh.is_drained() && mesh.load().0 == 0) {
                // The sender lives in the mesh.
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

/// How large frames may be after a connection. What the Board finds too large all alone is not sent to it again.
fn frame_after(ended: &Ended, frame: u64, mesh: &Mesh) -> u64 {
    match &ended.too_large {
        Some(Suspect { attempt, seq, alone: true }) => {
            mesh.outbox().withhold(attempt, *seq);
            1
        }
        Some(_) => 1,
        None if ended.welcomed.is_some() => FRAME,
        None => frame,
    }
}

/// How it stands now; the time is that of the last change.
fn standing(mesh: &Mesh, connected: bool, detail: Option<String>) -> Standing {
    let before = mesh.standing();
    let same = before.connected == connected && before.since.is_some();
    let since = if same { before.since } else { Some(mesh.clock().now().to_string()) };
    Standing { connected, since, detail }
}

/// The operating system and the processor.
pub fn platform() -> String {
    format!("{} {}", std::env::consts::OS, std::env::consts::ARCH)
}

/// This machine's name.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// So long the last events may take when the daemon ends.
pub const FAREWELL: Duration = Duration::from_secs(8);

#[cfg(test)]
mod tests;
