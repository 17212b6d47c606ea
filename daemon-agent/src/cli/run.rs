//! `run`: the daemon itself.

use std::{sync::Arc, time::Duration};

use protocol::BootId;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{CliError, open, unusable};
use crate::{
    adapters::{
        board::{BoardAdapter, Credential, FAREWELL_TIMEOUT, Identity, KeyOffers, Uploads},
        cli::CliAdapter,
        configured,
    },
    clock::Clock,
    config::{ConfigSnapshot, Variables, watch as files},
    home::{Home, HomeLock},
    journal::Journal,
    leftovers,
    mesh::{FetchAttachment, FetchError, FetchPayload, Mesh, MeshContext},
    outbox::{Outbox, Quota},
    skills::Skills,
    workspace::{self, Workspace},
};

/// How long tasks may continue after the first signal.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// How long they may take to end after that: `task` gives an engine 15 s.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the other adapters may take to end after the Board's.
const ADAPTERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Everything that a daemon of this home consists of.
pub struct Daemon {
    pub mesh: Mesh,
    pub clock: Clock,
    _lock: HomeLock,
}

impl Daemon {
    /// Takes the lock and opens the files.
    pub async fn open(home: &Home, credential: Option<Credential>) -> Result<Self, CliError> {
        open(home)?;
        let lock = home.lock().map_err(|error| unusable("the lock", &error))?;
        let lock = lock.ok_or_else(|| {
            CliError::Configuration(format!("another daemon uses {}: it is locked", home.root().display()))
        })?;
        leftovers::begin(home);
        let workspace = Workspace::open(home);
        let undone = workspace::recover(home, &workspace).await;
        let (clock, variables) = (Clock::system(), Variables::of_process());
        let snapshot = ConfigSnapshot::read(home, &variables);
        if let Some(error) = &snapshot.error {
            return Err(CliError::Configuration(format!("{} line {}: {}", error.file, error.line, error.message)));
        }
        let outbox = Outbox::open(home.outbox(), Quota::default(), clock.clone());
        let outbox = outbox.map_err(|error| unusable("state/outbox", &error))?;
        let journal = Journal::open(home.journal(), &home.damaged(), clock.now());
        let journal = Arc::new(journal.map_err(|error| unusable("state/journal", &error))?);
        let (sender, receiver) = watch::channel(Arc::new(snapshot));
        let (own, files) = (home.clone(), receiver.clone());
        let known = variables.clone();
        let reading = tokio::task::spawn_blocking(move || Skills::open(&own, known, files));
        let skills = reading.await.map_err(|error| CliError::Failed(format!("skills cannot be read: {error}")))?;
        tokio::spawn(files::follow(home.clone(), variables, sender));
        tokio::spawn(skills.clone().follow());
        let board = credential.as_ref().and_then(|credential| credential.board().ok()).map(|url| url.to_string());
        let carrier = (credential.clone(), home.clone(), workspace.clone());
        let carry: FetchAttachment = Arc::new(move |attachment, file| {
            let (credential, home, workspace) = carrier.clone();
            Box::pin(async move {
                match credential {
                    Some(credential) => credential.carry(&attachment, (&home, &workspace), &file).await,
                    None => Err(FetchError::Never("this viber has not joined a Board".to_owned())),
                }
            })
        });
        let fetch: FetchPayload = Arc::new(move |path| {
            let credential = credential.clone();
            Box::pin(async move {
                match credential {
                    Some(credential) => credential.fetch(&path).await,
                    None => Err(FetchError::Never("this viber has not joined a Board".to_owned())),
                }
            })
        });
        let context = MeshContext {
            home: home.clone(),
            workspace,
            clock: clock.clone(),
            outbox,
            journal,
            files: receiver,
            skills,
            board,
            fetch,
            carry,
        };
        let mesh = Mesh::new(context);
        mesh.report_late_repairs(undone);
        Ok(Self { mesh, clock, _lock: lock })
    }
}

/// Runs until a signal arrives, or with `once` until the connection ends.
pub async fn run(home: &Home, once: bool) -> Result<(), CliError> {
    let credential = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    let credential = credential.ok_or_else(|| {
        CliError::Configuration(format!(
            "{} has not joined a Board yet: daemon-agent join URL TOKEN",
            home.root().display()
        ))
    })?;
    credential.board().map_err(CliError::Configuration)?;
    let daemon = Daemon::open(home, Some(credential.clone())).await?;
    for error in daemon.mesh.files().borrow().errors() {
        tracing::warn!(file = error.file, line = error.line, "{}", error.message);
    }
    let finish = CancellationToken::new();
    let local = CliAdapter::listen(home).map_err(|error| unusable(&home.socket().display().to_string(), &error))?;
    let local = tokio::spawn(local.serve(daemon.mesh.clone(), finish.clone()));
    // Before the Board is connected and has anything: what adapters still have to read is kept for them.
    configured::keep_logs(&daemon.mesh);
    daemon.mesh.outbox().drop_unread();
    let others = tokio::spawn(configured::run(daemon.mesh.clone(), finish.clone()));
    let resuming = daemon.mesh.clone();
    tokio::spawn(async move { resuming.resume_messages().await });
    tokio::spawn(daemon.mesh.workspace().follow(finish.clone()));
    tokio::spawn(daemon.mesh.memory().clone().keep_fresh(finish.clone()));
    tracing::info!(viber.id = %credential.viber_id, board = credential.board_url, home = %home.root().display(), "the daemon starts");
    let identity = Identity {
        credential,
        boot_id: BootId::new(daemon.clock.now().millis()),
        uploads: Uploads::default(),
        key_offers: KeyOffers::default(),
    };
    let board = Arc::new(BoardAdapter { identity, once, folder: home.root().to_owned() });
    let mut board = configured::start(board, daemon.mesh.clone(), finish.clone());
    let ended = tokio::select! {
        ended = &mut board => Some(ended),
        drained = drain(&daemon.mesh) => {
            drained?;
            None
        }
    };
    if ended.is_some() {
        // With `--once` there is no connection left to report the running tasks on.
        daemon.mesh.stop_running();
        let _ = timeout(STOP_TIMEOUT, daemon.mesh.finish_running()).await;
    }
    finish.cancel();
    let ended = match ended {
        Some(ended) => ended,
        None => match timeout(FAREWELL_TIMEOUT, board).await {
            Ok(ended) => ended,
            Err(_) => return Ok(()),
        },
    };
    let _ = timeout(ADAPTERS_TIMEOUT, async { tokio::join!(local, others, daemon.mesh.mcp().close_all()) }).await;
    tracing::info!("the daemon ends");
    ended.map_err(|error| CliError::Failed(error.to_string()))?.map_err(CliError::Failed)
}

/// Waits for a signal, then for the tasks: they may finish within a limit, and a second signal ends them at once.
async fn drain(mesh: &Mesh) -> Result<(), CliError> {
    let no_signals = |error: std::io::Error| CliError::Failed(format!("signals cannot be received: {error}"));
    let mut term = signal(SignalKind::terminate()).map_err(no_signals)?;
    let mut int = signal(SignalKind::interrupt()).map_err(no_signals)?;
    tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
    let running = mesh.working();
    if running > 0 {
        tracing::info!(
            running,
            "ending: waiting up to {} s for the tasks; signal again to end them now",
            DRAIN_TIMEOUT.as_secs()
        );
    }
    tokio::select! {
        () = mesh.finish_running() => return Ok(()),
        () = tokio::time::sleep(DRAIN_TIMEOUT) => {}
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    mesh.stop_running();
    if timeout(STOP_TIMEOUT, mesh.finish_running()).await.is_err() {
        tracing::error!("some tasks did not end in time");
    }
    Ok(())
}
