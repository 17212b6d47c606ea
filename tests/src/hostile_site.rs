//! The other side: a web server under other names and on another port, and an ear that hears every connection.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{Router, extract::State, http::Uri, response::Html};
use tokio::{io::AsyncReadExt, net::TcpListener};
use tokio_util::sync::CancellationToken;

/// How long an ear listens to what a connection says.
const LISTEN_TIMEOUT: Duration = Duration::from_millis(500);

type Pages = Arc<Mutex<BTreeMap<String, String>>>;

/// A web server whose pages the test writes. A path without a page is an empty one.
#[derive(Debug)]
pub struct HostileSite {
    pub port: u16,
    pages: Pages,
    end: CancellationToken,
}

impl HostileSite {
    /// Starts it on every loopback address's port of its own.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (pages, end) = (Pages::default(), CancellationToken::new());
        let app = Router::new().fallback(show).with_state(Arc::clone(&pages));
        let stopped = end.clone();
        tokio::spawn(async move {
            tokio::select! {
                served = axum::serve(listener, app).into_future() => served.expect("the evil server serves"),
                () = stopped.cancelled() => {}
            }
        });
        Self { port, pages, end }
    }

    /// Writes a page.
    pub fn page(&self, path: &str, html: impl Into<String>) {
        self.pages.lock().expect("not poisoned").insert(path.to_owned(), html.into());
    }

    /// Its address under a host's name, which the browser has to be told of (`browser::hosts`).
    pub fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }
}

impl Drop for HostileSite {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

async fn show(State(pages): State<Pages>, uri: Uri) -> Html<String> {
    let page = pages.lock().expect("not poisoned").get(uri.path()).cloned();
    Html(page.unwrap_or_default())
}

/// Hears every connection to an address that nobody has a reason to call: each one is something that got out.
#[derive(Debug)]
pub struct Collector {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
    end: CancellationToken,
}

impl Collector {
    /// Listens on a loopback address, on a port of its own.
    pub async fn start(ip: [u8; 4]) -> Self {
        let listener = TcpListener::bind(SocketAddr::from((IpAddr::from(ip), 0))).await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (heard, end) = (Arc::<Mutex<Vec<String>>>::default(), CancellationToken::new());
        let (all, stopped) = (Arc::clone(&heard), end.clone());
        tokio::spawn(async move {
            loop {
                let (mut line, peer) = tokio::select! {
                    accepted = listener.accept() => accepted.expect("a connection"),
                    () = stopped.cancelled() => return,
                };
                let place = {
                    let mut all = all.lock().expect("not poisoned");
                    all.push(format!("{peer}"));
                    all.len() - 1
                };
                let all = Arc::clone(&all);
                tokio::spawn(async move {
                    let mut said = [0; 400];
                    // What it wanted helps whoever reads the failure; that it came is enough for one.
                    let n = tokio::time::timeout(LISTEN_TIMEOUT, line.read(&mut said))
                        .await
                        .map_or(0, |read| read.unwrap_or(0));
                    let said = String::from_utf8_lossy(&said[..n]);
                    all.lock().expect("not poisoned")[place] = said.lines().next().unwrap_or_default().to_owned();
                });
            }
        });
        Self { address, heard, end }
    }

    /// What each connection said first.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().expect("not poisoned").clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.end.cancel();
    }
}
