//! `serve`: opens everything, listens, and ends in order.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum_server::{
    Handle,
    accept::{Accept, DefaultAcceptor},
    tls_rustls::{RustlsAcceptor, RustlsConfig},
};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Failure, console, open, serving};
use crate::{actions, clock::Clock, config::Config, measure, scheduler, state::Board, web};

/// A client that takes longer for the head of a request, or for its first byte, is hung up on.
const PATIENCE: Duration = Duration::from_secs(10);
/// A peer that reads nothing for so long is cut, milliseconds.
#[cfg(target_os = "linux")]
const STUCK_MS: u32 = 60_000;
/// Head of a request, bytes: refused above twice this at the latest, because the limit is checked between two reads.
const HEAD: usize = 32 * 1024;
/// Most headers of a request.
const HEADERS: usize = 100;

/// Runs the Board until it is asked to stop.
pub async fn run(mut config: Config) -> Result<(), Failure> {
    config.check()?;
    open::data_folder(&config.data)?;
    let mut mark = serving::take(&config.data)?;
    let clock = Clock::System;
    let keys = open::keys(&config, &clock)?;
    let tls = tls(&config).await?;
    let db = open::whole_database(&config).await?;
    let listener = std::net::TcpListener::bind(config.listen)
        .map_err(|error| Failure::Failed(format!("--listen {}: {error}", config.listen)))?;
    listener.set_nonblocking(true)?;
    give_up_on_the_stuck(&listener)?;
    config.listen = listener.local_addr()?;
    mark.tell(&config.base_url())?;
    let board = Board::new(config, db, keys, clock);
    tokio::spawn({
        let lifecycle = board.shutdown.clone();
        async move {
            if let Err(error) = lifecycle.watch_signals().await {
                tracing::error!(%error, "signals cannot be watched");
            }
        }
    });
    tokio::spawn(board.shutdown.clone().watch_drain());
    measure::handle();
    if let Some(address) = board.config.metrics_listen {
        metrics(&board, address).await?;
    }
    greet(&board).await?;
    scheduler::start(&board);
    let served = listen(&board, listener, tls).await;
    board.shutdown.soft.cancel();
    board.shutdown.drained().await;
    board.db.close().await;
    tracing::info!("stopped");
    served.map_err(Failure::from)
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

async fn tls(config: &Config) -> Result<Option<RustlsConfig>, Failure> {
    let Some((cert, key)) = &config.tls else { return Ok(None) };
    let (cert_name, key_name) = (cert.display(), key.display());
    let wrong = |error| Failure::Config(format!("--tls-cert {cert_name} --tls-key {key_name}: {error}"));
    Ok(Some(RustlsConfig::from_pem_file(cert, key).await.map_err(wrong)?))
}

/// Connections inherit it: one whose peer takes nothing for so long, though it lives, is cut. A viewer resumes.
fn give_up_on_the_stuck(listener: &std::net::TcpListener) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::net::sockopt::set_tcp_user_timeout(listener, STUCK_MS)?;
    #[cfg(not(target_os = "linux"))]
    let _ = listener;
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

/// Hangs up on connections that never say anything: telling HTTP/1 from HTTP/2 waits for the first byte without end.
#[derive(Clone, Debug)]
struct Patient<A>(A);

impl<I, S, A> Accept<I, S> for Patient<A>
where
    A: Accept<I, S, Future: Send + 'static, Stream: Unpin>,
{
    type Stream = FirstByte<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: I, service: S) -> Self::Future {
        let accepted = self.0.accept(stream, service);
        Box::pin(async move {
            let (stream, service) = accepted.await?;
            Ok((FirstByte { stream, until: Some(Box::pin(tokio::time::sleep(PATIENCE))) }, service))
        })
    }
}

/// A connection that must say something before `until`.
struct FirstByte<T> {
    stream: T,
    until: Option<Pin<Box<tokio::time::Sleep>>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for FirstByte<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(until) = &mut this.until else { return Pin::new(&mut this.stream).poll_read(cx, buf) };
        if let Poll::Ready(read) = Pin::new(&mut this.stream).poll_read(cx, buf) {
            this.until = None;
            return Poll::Ready(read);
        }
        ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FirstByte<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
