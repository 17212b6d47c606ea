//! The adapters that `config.yaml` names: started, and started anew when the file names others.

use std::sync::Arc;

use protocol::AdapterState;
use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Callbacks, CommandCenterAdapter,
    client::CLIENT_READER,
    slack::{self, SLACK, SlackAdapter},
    websocket::{self, WEBSOCKET},
};
use crate::{
    config::{AdaptersConfig, SlackConfig, WebSocketConfig},
    mesh::Mesh,
};

/// Connects an adapter in a task of its own.
pub fn start<A: CommandCenterAdapter + 'static>(
    adapter: Arc<A>,
    mesh: Mesh,
    finish: CancellationToken,
) -> JoinHandle<Result<(), String>> {
    let callbacks = Callbacks::of(adapter.id(), mesh, finish);
    tokio::spawn(async move { adapter.connect(callbacks).await })
}

/// Keeps the logs from now on that the adapters of the configuration are to read.
pub fn keep_logs(mesh: &Mesh) {
    let config = mesh.files().borrow().config.adapters.clone();
    if config.websocket.is_some() {
        mesh.outbox().keep_for(CLIENT_READER);
    }
    match config.slack {
        // With a token that is missing now, it may be there after the next start.
        Some(_) => mesh.outbox().keep_for(SLACK),
        None => mesh.outbox().keep_no_more_for(SLACK),
    }
}

/// Runs the adapters of the configuration until `finish` is cancelled.
pub async fn run(mesh: Mesh, finish: CancellationToken) {
    let websocket = follow(&mesh, &finish, |config| config.websocket.clone(), begin_websocket);
    let slack = follow(&mesh, &finish, |config| config.slack.clone(), begin_slack);
    tokio::join!(websocket, slack);
}

/// Runs what one part of the configuration names, and runs it anew when that part changes: the other one does not notice.
async fn follow<P: PartialEq>(
    mesh: &Mesh,
    finish: &CancellationToken,
    part: impl Fn(&AdaptersConfig) -> P,
    begin: impl Fn(&P, &Mesh, &CancellationToken, &TaskTracker),
) {
    let mut files = mesh.files();
    loop {
        let own = part(&files.borrow_and_update().config.adapters);
        keep_logs(mesh);
        let (round, running) = (finish.child_token(), TaskTracker::new());
        begin(&own, mesh, &round, &running);
        running.close();
        let changed = async {
            while files.changed().await.is_ok() {
                if part(&files.borrow_and_update().config.adapters) != own {
                    return;
                }
            }
            std::future::pending().await
        };
        let is_over = finish.run_until_cancelled(changed).await.is_none();
        round.cancel();
        running.wait().await;
        if is_over {
            return;
        }
    }
}

fn begin_websocket(section: &Option<WebSocketConfig>, mesh: &Mesh, round: &CancellationToken, running: &TaskTracker) {
    match section {
        Some(section) => {
            drop(running.spawn(websocket::listen(section.clone(), mesh.clone(), round.clone())));
        }
        None => mesh.forget_adapter(WEBSOCKET),
    }
}

fn begin_slack(
    section: &Option<Result<SlackConfig, String>>,
    mesh: &Mesh,
    round: &CancellationToken,
    running: &TaskTracker,
) {
    match section {
        Some(Ok(section)) => {
            let adapter = Arc::new(SlackAdapter::open(section.clone(), mesh));
            drop(running.spawn(slack::run(adapter, mesh.clone(), round.clone())));
        }
        Some(Err(why)) => {
            mesh.report_adapter(SLACK, AdapterState::Failed, Some(why.clone()));
            drop(running.spawn(slack::keep(mesh.clone(), round.clone())));
        }
        None => mesh.forget_adapter(SLACK),
    }
}
