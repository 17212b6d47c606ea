//! `serve`: opens everything, listens, and shuts down in order.

use std::{io, net::SocketAddr, time::Duration};

use axum_server::{
    Handle,
    accept::DefaultAcceptor,
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use tokio::{
    net::TcpSocket,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;

use super::{CliError, ConfigSource, console, open, reload::Reload, serve_lock};
use crate::{
    actions,
    artifacts::StoreAddress,
    clock::Clock,
    config::Config,
    db::ownership::DamageNote,
    registry::RegistryAddress,
    scheduler,
    state::Board,
    web::{
        self,
        socket::{REQUEST_HEAD_TIMEOUT, SocketAcceptor},
    },
};

/// A peer that acknowledges no data for this long is cut off, milliseconds. For one that is alive but reads nothing, see
/// `web::socket`.
#[cfg(target_os = "linux")]
const MAX_UNACKNOWLEDGED_MS: u32 = 60_000;
/// The largest head of a request, bytes. A head is refused at twice this size at the latest, because the limit is checked
/// between two reads.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Connections that may wait to be accepted. Further ones believe that they are connected, but get no answer.
const ACCEPT_BACKLOG: u32 = 4096;
/// Most headers of a request.
const MAX_HEADERS: usize = 100;

/// Runs the Board until it is asked to stop. `source` is where `config` came from: SIGHUP reads it again.
pub async fn run(mut config: Config, source: ConfigSource) -> Result<(), CliError> {
    // From here on SIGHUP no longer ends the process.
    let hangups = signal(SignalKind::hangup())?;
    config.check()?;
    open::data_folder(&config.data)?;
    let lock = serve_lock::take(&config.data)?;
    let clock = Clock::System;
    let keys = open::keys(&config, &clock)?;
    let tls = tls(&config).await?;
    if let Some(url) = &config.artifacts {
        StoreAddress::parse(url).map_err(|bad| CliError::Config(format!("--artifacts {bad}")))?;
    }
    if let Some(url) = &config.skill_registry {
        RegistryAddress::parse(url).map_err(|bad| CliError::Config(format!("--skill-registry: {bad}")))?;
    }
    let open::OwnedDatabase { db, mut owner, is_unchecked } = open::owned_database(&config, "serve").await?;
    let note = owner.damage_note();
    open::audit_keys(&config, &db, &clock)?;
    let asked = config.clone();
    let listener =
        bind(config.listen).map_err(|error| CliError::Failed(format!("--listen {}: {error}", config.listen)))?;
    prepare(&listener)?;
    config.listen = listener.local_addr()?;
    lock.publish(&config.base_url(), &keys.signing().kid, config.signing_key_file.is_some())?;
    let board = Board::new(config, db, keys, clock);
    actions::audit::begin(&board).await?;
    if let Err(error) = actions::audit::follow_all(&board).await {
        // Whatever is wrong with the audit, people can work.
        tracing::error!(%error, "the audit could not be checked");
    }
    board.store.open().map_err(|error| CliError::Config(format!("--artifacts: {error}")))?;
    tokio::spawn({
        let lifecycle = board.shutdown.clone();
        async move {
            if let Err(error) = lifecycle.watch_signals().await {
                tracing::error!(%error, "signals cannot be watched");
            }
        }
    });
    tokio::spawn(board.shutdown.clone().watch_drain());
    let owned = CancellationToken::new();
    let keeping = tokio::spawn({
        let (soft, over) = (board.shutdown.soft.clone(), owned.clone());
        async move {
            let taken = tokio::select! {
                who = owner.keep() => Some(who),
                () = over.cancelled() => None,
            };
            if let Some(who) = &taken {
                tracing::error!(who, "another process has taken the database; this Board stops");
                soft.cancel();
            }
            (owner, taken)
        }
    });
    board
        .shutdown
        .spawn(Reload { source, asked, board: board.clone(), tls: tls.clone(), lock: lock.clone() }.watch(hangups));
    if let Some(address) = board.config.metrics_listen {
        metrics(&board, address).await?;
    }
    if let Err(error) = actions::reconcile::begin_unheard(&board).await {
        // The scheduler does it half a minute later.
        tracing::warn!(%error, "vibers could not be marked as not heard yet");
    }
    greet(&board).await?;
    scheduler::start(&board);
    let checking = is_unchecked.then(|| tokio::spawn(check_behind(board.clone(), note)));
    let served = listen(&board, listener, tls).await;
    board.shutdown.soft.cancel();
    board.shutdown.drained().await;
    let found = match checking {
        Some(checking) => tokio::select! {
            biased;
            found = checking => found.map_err(io::Error::other)?,
            // It waits for a disk that does not answer, and the process has to be gone within ten seconds.
            () = board.shutdown.hard.cancelled() => FoundBehind::Unknown,
        },
        None => FoundBehind::NoDamage,
    };
    open::close(&board).await;
    owned.cancel();
    // Released last: the next Board has to find everything written.
    let (owner, taken) = keeping.await.map_err(io::Error::other)?;
    match &found {
        FoundBehind::NoDamage => owner.release_in_order().await,
        FoundBehind::Damage(_) | FoundBehind::Unknown => owner.release().await,
    }
    drop(lock);
    tracing::info!("stopped");
    if let Some(who) = taken {
        return Err(CliError::Config(format!("the database was taken: {who}. One Board serves a database")));
    }
    match found {
        FoundBehind::Damage(damaged) => Err(damaged),
        FoundBehind::NoDamage | FoundBehind::Unknown => served.map_err(CliError::from),
    }
}

/// What the check of the database behind the serving Board came to.
enum FoundBehind {
    NoDamage,
    Damage(CliError),
    /// The Board stopped before the check had ended.
    Unknown,
}

/// Checks the database while it is served. One that is damaged stops the Board, and the next start refuses it.
async fn check_behind(board: Board, note: Option<DamageNote>) -> FoundBehind {
    let Some(damaged) = open::damage_behind(&board.config, note, board.shutdown.soft.clone()).await else {
        return FoundBehind::NoDamage;
    };
    tracing::error!(%damaged, "this Board stops");
    board.shutdown.soft.cancel();
    FoundBehind::Damage(damaged)
}

/// Serves health checks and metrics on an address of their own.
async fn metrics(board: &Board, address: SocketAddr) -> Result<(), CliError> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(|error| CliError::Failed(format!("--metrics-listen {address}: {error}")))?;
    let service = web::health::metrics_routes().with_state(board.clone());
    let soft = board.shutdown.soft.clone();
    board.shutdown.spawn(async move {
        if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(soft.cancelled_owned()).await {
            tracing::error!(%error, "the metrics listener failed");
        }
    });
    Ok(())
}

/// Says where the Board is, and how to make the first account.
async fn greet(board: &Board) -> Result<(), CliError> {
    let url = board.config.base_url();
    tracing::info!(url, version = env!("CARGO_PKG_VERSION"), "serving");
    if let Some(code) = actions::setup::first_start(board).await? {
        console::say(format_args!(
            "Open this once to make the first account: {url}{}",
            web::urls::setup(code.reveal())
        ));
    }
    Ok(())
}

/// The certificate and its key, if configured.
pub async fn tls(config: &Config) -> Result<Option<RustlsConfig>, CliError> {
    let Some((cert, key)) = &config.tls else { return Ok(None) };
    let (cert_name, key_name) = (cert.display(), key.display());
    let wrong = |error| CliError::Config(format!("--tls-cert {cert_name} --tls-key {key_name}: {error}"));
    Ok(Some(RustlsConfig::from_pem_file(cert, key).await.map_err(wrong)?))
}

/// Binds the address, with a backlog for all vibers of a large team to come back at the same time.
fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    // A restarted Board does not wait for its old connections to time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(ACCEPT_BACKLOG)?.into_std()
}

/// Sets what connections inherit: small data is sent at once, and a connection whose peer acknowledges nothing for too long
/// is cut off.
fn prepare(listener: &std::net::TcpListener) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_nodelay(listener, true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(listener, MAX_UNACKNOWLEDGED_MS)?;
    Ok(())
}

async fn listen(board: &Board, listener: std::net::TcpListener, tls: Option<RustlsConfig>) -> io::Result<()> {
    let handle = Handle::new();
    let ends = handle.clone();
    let lifecycle = board.shutdown.clone();
    tokio::spawn(async move {
        lifecycle.soft.cancelled().await;
        ends.graceful_shutdown(None);
        lifecycle.hard.cancelled().await;
        ends.shutdown();
    });
    let service = web::router(board.clone()).into_make_service_with_connect_info::<SocketAddr>();
    match tls {
        Some(tls) => {
            let mut server = axum_server::from_tcp(listener)?.handle(handle);
            limit(server.http_builder());
            server.acceptor(SocketAcceptor(RustlsAcceptor::new(tls))).serve(service).await
        }
        None => {
            let mut server = axum_server::from_tcp(listener)?.handle(handle);
            limit(server.http_builder());
            server.acceptor(SocketAcceptor(DefaultAcceptor::new())).serve(service).await
        }
    }
}

fn limit(builder: &mut hyper_util::server::conn::auto::Builder<hyper_util::rt::TokioExecutor>) {
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(REQUEST_HEAD_TIMEOUT);
}
