//! `serve`: opens everything, listens, and ends in order.

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

use super::{Failure, Source, console, open, reload::Reload, serving};
use crate::{
    actions,
    artifacts::Address,
    clock::Clock,
    config::Config,
    measure, scheduler,
    state::Board,
    web::{
        self,
        socket::{PATIENCE, Patient},
    },
};

/// A peer that acknowledges nothing for so long is cut, milliseconds. One that lives and takes nothing: see `web::socket`.
#[cfg(target_os = "linux")]
const STUCK_MS: u32 = 60_000;
/// Head of a request, bytes: refused above twice this at the latest, because the limit is checked between two reads.
const HEAD: usize = 32 * 1024;
/// Connections that may wait to be accepted. Those beyond it believe that they are connected, and hear nothing.
const BACKLOG: u32 = 4096;
/// Most headers of a request.
const HEADERS: usize = 100;

/// Runs the Board until it is asked to stop. `source` is where `config` came from: SIGHUP asks it again.
pub async fn run(mut config: Config, source: Source) -> Result<(), Failure> {
    // From here on nobody ends it by a signal that means something else.
    let hangups = signal(SignalKind::hangup())?;
    config.check()?;
    open::data_folder(&config.data)?;
    let mark = serving::take(&config.data)?;
    let clock = Clock::System;
    let keys = open::keys(&config, &clock)?;
    let tls = tls(&config).await?;
    if let Some(url) = &config.artifacts {
        Address::parse(url).map_err(|bad| Failure::Config(format!("--artifacts {bad}")))?;
    }
    let (db, mut owner) = open::owned_database(&config, "serve").await?;
    open::audit_keys(&config, &db, &clock)?;
    let asked = config.clone();
    let listener =
        bind(config.listen).map_err(|error| Failure::Failed(format!("--listen {}: {error}", config.listen)))?;
    prepare(&listener)?;
    config.listen = listener.local_addr()?;
    mark.tell(&config.base_url(), &keys.signing().kid, config.signing_key_file.is_some())?;
    let board = Board::new(config, db, keys, clock);
    actions::audit::begin(&board).await?;
    if let Err(error) = actions::audit::follow_all(&board).await {
        // Whatever is wrong with the audit, people can work.
        tracing::error!(%error, "the audit could not be looked at");
    }
    board.store.open().map_err(|error| Failure::Config(format!("--artifacts: {error}")))?;
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
        .spawn(Reload { source, asked, board: board.clone(), tls: tls.clone(), mark: mark.clone() }.watch(hangups));
    measure::handle();
    if let Some(address) = board.config.metrics_listen {
        metrics(&board, address).await?;
    }
    if let Err(error) = actions::reconcile::begin_unheard(&board).await {
        // The scheduler says it half a minute later.
        tracing::warn!(%error, "it could not be noted that no viber was heard yet");
    }
    greet(&board).await?;
    scheduler::start(&board);
    let served = listen(&board, listener, tls).await;
    board.shutdown.soft.cancel();
    board.shutdown.drained().await;
    open::close(&board).await;
    owned.cancel();
    // Given back last: the next Board is to find everything written.
    let (owner, taken) = keeping.await.map_err(std::io::Error::other)?;
    owner.release().await;
    drop(mark);
    tracing::info!("stopped");
    match taken {
        Some(who) => Err(Failure::Config(format!("the database was taken: {who}. One Board serves a database"))),
        None => served.map_err(Failure::from),
    }
}

/// Answers probes and Prometheus on an address of its own.
async fn metrics(board: &Board, address: SocketAddr) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .map_err(|error| Failure::Failed(format!("--metrics-listen {address}: {error}")))?;
    let service = web::health::metrics_routes().with_state(board.clone());
    let soft = board.shutdown.soft.clone();
    board.shutdown.spawn(async move {
        if let Err(error) = axum::serve(listener, service).with_graceful_shutdown(soft.cancelled_owned()).await {
            tracing::error!(%error, "the listener of metrics has ended");
        }
    });
    Ok(())
}

/// Says where it is, and how to begin.
async fn greet(board: &Board) -> Result<(), Failure> {
    let url = board.config.base_url();
    tracing::info!(url, version = env!("CARGO_PKG_VERSION"), "serving");
    if let Some(code) = actions::setup::first_start(board).await? {
        console::say(format_args!(
            "Open this once to make the first account: {url}{}",
            web::links::setup(code.reveal())
        ));
    }
    Ok(())
}

/// The certificate and its key, if it has any.
pub async fn tls(config: &Config) -> Result<Option<RustlsConfig>, Failure> {
    let Some((cert, key)) = &config.tls else { return Ok(None) };
    let (cert_name, key_name) = (cert.display(), key.display());
    let wrong = |error| Failure::Config(format!("--tls-cert {cert_name} --tls-key {key_name}: {error}"));
    Ok(Some(RustlsConfig::from_pem_file(cert, key).await.map_err(wrong)?))
}

/// Listens, with room for all vibers of a large team to come back at once.
fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = if address.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }?;
    // A Board that is started again does not wait for its old connections to fade.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Connections inherit it: what is small is sent at once, and one whose peer acknowledges nothing for so long is cut.
fn prepare(listener: &std::net::TcpListener) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_nodelay(listener, true)?;
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(listener, STUCK_MS)?;
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
    drop(tokio::task::spawn_blocking(web::markdown::warm));
    let service = web::router(board.clone()).into_make_service_with_connect_info::<SocketAddr>();
    match tls {
        Some(tls) => {
            let mut server = axum_server::from_tcp(listener)?.handle(handle);
            limit(server.http_builder());
            server.acceptor(Patient(RustlsAcceptor::new(tls))).serve(service).await
        }
        None => {
            let mut server = axum_server::from_tcp(listener)?.handle(handle);
            limit(server.http_builder());
            server.acceptor(Patient(DefaultAcceptor::new())).serve(service).await
        }
    }
}

fn limit(builder: &mut hyper_util::server::conn::auto::Builder<hyper_util::rt::TokioExecutor>) {
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(HEAD).max_headers(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEAD as u32)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(PATIENCE);
}
