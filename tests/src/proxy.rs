//! A faulty network on command: a proxy between the Board and whoever dials it, daemons or HTTP clients alike.
//!
//! Frame-aware: after an upgrade it cuts both directions into WebSocket frames, so that whole frames can be lost,
//! repeated and reordered; before it, and for plain HTTP, what is read at once is the unit, and only its time and its
//! fate change. Every fault is set per direction while connections run. A frame that is lost here is lost for good,
//! which no TCP network does: for the loss of *packets* there is [`LineFaults::loss`], which costs time, as a resend does.

mod line;
pub(crate) mod units;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
};
pub use units::{FrameKind, WebSocketFrame};

use crate::{board::Board, ledger, programs::free_port};

/// Which frames something happens to.
pub type FramePick = Arc<dyn Fn(&WebSocketFrame) -> bool + Send + Sync>;

/// What one direction does to what passes it. The default is an honest wire.
#[derive(Clone, Default)]
pub struct LineFaults {
    /// Everything arrives so much later, in order.
    pub delay: Duration,
    /// Up to so much later still, at random; what comes after waits for it, as in TCP.
    pub jitter: Duration,
    /// Bytes a second.
    pub rate: Option<u64>,
    /// The chance that a packet is lost and sent again: each time costs [`RESEND_DELAY`], doubling, and all
    /// behind it waits.
    pub loss: f64,
    /// Frames that vanish.
    pub drop: Option<FramePick>,
    /// The chance that a frame vanishes.
    pub drop_chance: f64,
    /// So many more copies of each frame.
    pub copies: usize,
    /// Frames are reversed in windows of so many; a window that does not fill within [`WINDOW_TIMEOUT`] goes as it is.
    pub reversed: usize,
    /// Everything vanishes, ends included, while the other side is read on: for these connections.
    pub hole: Hole,
    /// Nothing is read any more; the sender feels it.
    pub stall: bool,
    /// The connection ends after so many bytes of this direction, in the middle of whatever that is.
    pub cut_at: Option<u64>,
}

/// Whose bytes vanish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hole {
    #[default]
    None,
    /// Connections up to this number: those who dial again get through.
    UpTo(u64),
    All,
}

impl Hole {
    fn takes(self, connection: u64) -> bool {
        match self {
            Self::None => false,
            Self::UpTo(last) => connection <= last,
            Self::All => true,
        }
    }
}

/// What a lost packet costs: Linux' smallest time-out before a resend.
pub const RESEND_DELAY: Duration = Duration::from_millis(200);
/// So long a window of [`LineFaults::reversed`] is waited for.
pub const WINDOW_TIMEOUT: Duration = Duration::from_millis(100);

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyCounts {
    /// Connections that were accepted and handed on.
    pub connections: u64,
    /// Connections that were reset as soon as they were accepted.
    pub refused: u64,
    /// Connections that rested for too long and were cut.
    pub idled: u64,
    /// WebSocket frames towards the Board, as they came.
    pub up: u64,
    /// WebSocket frames from the Board, as they came.
    pub down: u64,
    /// Frames that vanished, either way.
    pub dropped: u64,
    /// Frames that were added, either way.
    pub copied: u64,
    /// Packets that were "lost", either way.
    pub lost: u64,
    /// Bytes towards the Board and from it, as they came.
    pub bytes: (u64, u64),
}

/// The proxy. Ends, with its connections, when dropped.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What the proxy's parts share.
struct Shared {
    up: watch::Sender<LineFaults>,
    down: watch::Sender<LineFaults>,
    rules: watch::Sender<ConnectionRules>,
    counts: Mutex<ProxyCounts>,
    opened: AtomicU64,
    seed: u64,
}

/// Rules for all connections.
#[derive(Clone, Copy, Default)]
struct ConnectionRules {
    /// New connections are reset.
    refuses: bool,
    /// A connection on which nothing moves for so long is closed, as middleboxes do.
    idle: Option<Duration>,
    /// The kernel's buffer for what comes from the Board, bytes: what is not read stays with the Board.
    narrow: Option<u32>,
    /// Connections up to this number are reset.
    reset: u64,
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut ProxyCounts)) {
        change(&mut self.counts.lock().expect("not poisoned"));
    }
}

impl Proxy {
    /// Stands before `board`, honest at first. Chances come from `seed`.
    pub async fn before(board: &Board, seed: u64) -> Self {
        let upstream = board.url.trim_start_matches("http://").parse().expect("an address");
        let proxy = Self::to(upstream, seed).await;
        ledger::alias(&proxy.url(), board.ledger());
        proxy
    }

    /// Stands before a server at `upstream`, whose port has five digits.
    pub async fn to(upstream: SocketAddr, seed: u64) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).await.expect("a free port");
        let shared = Arc::new(Shared {
            up: watch::Sender::default(),
            down: watch::Sender::default(),
            rules: watch::Sender::default(),
            counts: Mutex::default(),
            opened: AtomicU64::new(0),
            seed,
        });
        let accepting = tokio::spawn(accept(listener, shared.clone(), port, upstream));
        Self { port, shared, accepting }
    }

    /// Its address, in the place of the Board's. The Board is told its own host: the proxy puts it in.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Changes what happens to what goes to the Board.
    pub fn up(&self, change: impl FnOnce(&mut LineFaults)) {
        self.shared.up.send_modify(change);
    }

    /// Changes what happens to what comes from the Board.
    pub fn down(&self, change: impl FnOnce(&mut LineFaults)) {
        self.shared.down.send_modify(change);
    }

    /// Changes both directions.
    pub fn both(&self, change: impl Fn(&mut LineFaults)) {
        self.up(&change);
        self.down(change);
    }

    /// An honest wire again; connections that were lost stay lost.
    pub fn heal(&self) {
        self.both(|faults| {
            let hole = match faults.hole {
                Hole::UpTo(last) => Hole::UpTo(last),
                Hole::None | Hole::All => Hole::None,
            };
            *faults = LineFaults { hole, ..LineFaults::default() };
        });
    }

    /// The number of the newest connection.
    pub fn newest(&self) -> u64 {
        self.shared.opened.load(Relaxed)
    }

    /// Makes every open connection half-open: no byte passes any more, and neither side is told.
    pub fn make_half_open(&self) {
        let last = self.newest();
        self.both(|faults| faults.hole = Hole::UpTo(last));
    }

    /// Resets (RST) every connection there is, on both sides.
    pub fn reset(&self) {
        let last = self.newest();
        self.shared.rules.send_modify(|rules| rules.reset = last);
    }

    /// Resets every new connection at once, or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.shared.rules.send_modify(|rules| rules.refuses = refuses);
    }

    /// Closes connections on which nothing moved for so long.
    pub fn close_idle(&self, after: Duration) {
        self.shared.rules.send_modify(|rules| rules.idle = Some(after));
    }

    /// New connections to the Board take at most about this into the kernel's own buffer.
    pub fn narrow(&self, bytes: u32) {
        self.shared.rules.send_modify(|rules| rules.narrow = Some(bytes));
    }

    /// What has happened so far.
    pub fn counts(&self) -> ProxyCounts {
        *self.shared.counts.lock().expect("not poisoned")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, port: u16, upstream: SocketAddr) {
    // Its connections end with this task.
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        if shared.rules.borrow().refuses {
            shared.count(|counts| counts.refused += 1);
            // Without the linger the client would see an orderly end.
            let _ = client.set_zero_linger();
            continue;
        }
        let number = shared.opened.fetch_add(1, Relaxed) + 1;
        shared.count(|counts| counts.connections += 1);
        connections.spawn(connect(shared.clone(), client, number, (port, upstream)));
    }
}

async fn connect(shared: Arc<Shared>, client: TcpStream, number: u64, (port, upstream): (u16, SocketAddr)) {
    let narrow = shared.rules.borrow().narrow;
    let dialled = async {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = narrow {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.connect(upstream).await
    };
    // A server that is away looks to the client like one that hangs up.
    let Ok(server) = dialled.await else { return drop(client.set_zero_linger()) };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let names = (format!("127.0.0.1:{port}"), upstream.to_string());
    line::join(&shared, number, client, server, names).await;
}
