//! One proxied connection: two directions, each a reader that cuts and dooms and a writer that keeps the time.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{
    LineFaults, RESEND_DELAY, Shared, WINDOW_TIMEOUT,
    units::{self, FrameKind, WebSocketFrame},
};
use crate::seed::SeededRandom;

/// Units between reader and writer: beyond it the reader rests, and the sender feels it.
const QUEUED_UNITS: usize = 256;
/// Bytes read at once; small, so that a stalled direction holds little.
const READ_BYTES: usize = 16 * 1024;
/// Bytes written at once when the rate is limited: a slow line trickles.
const WRITE_BYTES: usize = 1024;
/// What an upgraded connection begins with.
const UPGRADED_HEAD: &[u8] = b"HTTP/1.1 101";

/// What both directions of a connection know.
struct Both {
    upgraded: AtomicBool,
    moved: Mutex<Instant>,
    over: CancellationToken,
}

/// Passes bytes both ways until it is over. `names` is the proxy's own address and the server's.
pub(super) async fn join(
    shared: &Shared,
    number: u64,
    mut client: TcpStream,
    mut server: TcpStream,
    names: (String, String),
) {
    let both =
        Both { upgraded: AtomicBool::new(false), moved: Mutex::new(Instant::now()), over: CancellationToken::new() };
    let reset = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let direction = |up: bool| Direction { shared, both: &both, number, up, names: &names };
        let (up, down) = (direction(true), direction(false));
        tokio::select! {
            // A direction that ends in order leaves the other one to end by itself.
            _ = async { tokio::join!(up.pass(from_client, to_server), down.pass(from_server, to_client)) } => false,
            () = both.over.cancelled() => false,
            () = idle(shared, &both) => {
                shared.count(|counts| counts.idled += 1);
                false
            }
            () = doomed(shared, number) => true,
        }
    };
    if reset {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

/// Until somebody resets this connection.
async fn doomed(shared: &Shared, number: u64) {
    // The sender lives as long as the proxy.
    let _ = shared.rules.subscribe().wait_for(|rules| rules.reset >= number).await;
}

/// Until nothing has moved for as long as the rules allow.
async fn idle(shared: &Shared, both: &Both) {
    let mut rules = shared.rules.subscribe();
    loop {
        let limit = rules.borrow_and_update().idle;
        let Some(limit) = limit else {
            let _ = rules.changed().await;
            continue;
        };
        let until = *both.moved.lock().expect("not poisoned") + limit;
        if Instant::now() >= until {
            return;
        }
        sleep_until(until).await;
    }
}

/// One direction of one connection.
struct Direction<'a> {
    shared: &'a Shared,
    both: &'a Both,
    number: u64,
    up: bool,
    names: &'a (String, String),
}

/// Something on its way.
struct Unit {
    bytes: Vec<u8>,
    due: Instant,
}

impl<'a> Direction<'a> {
    fn faults(&self) -> watch::Receiver<LineFaults> {
        if self.up { self.shared.up.subscribe() } else { self.shared.down.subscribe() }
    }

    async fn pass(&self, from: ReadHalf<'_>, to: WriteHalf<'_>) {
        let (units, coming) = mpsc::channel(QUEUED_UNITS);
        let seeded = SeededRandom::of(self.shared.seed ^ (self.number << 1) ^ u64::from(self.up));
        let reader = Reader {
            direction: self,
            faults: self.faults(),
            seeded,
            units,
            bytes: Vec::new(),
            begun: false,
            frames: 0,
            window: Vec::new(),
            filled: Instant::now(),
            due: Instant::now(),
        };
        tokio::join!(reader.run(from), self.write(to, coming));
    }

    /// Writes what is due, and the end when it is orderly.
    async fn write(&self, mut to: WriteHalf<'_>, mut coming: mpsc::Receiver<Unit>) {
        let faults = self.faults();
        let mut written = 0;
        while let Some(unit) = coming.recv().await {
            sleep_until(unit.due).await;
            let rate = faults.borrow().rate;
            for piece in unit.bytes.chunks(if rate.is_some() { WRITE_BYTES } else { usize::MAX }) {
                let (cut, lost) = (faults.borrow().cut_at, faults.borrow().hole.takes(self.number));
                if lost {
                    continue;
                }
                if let Some(rate) = rate {
                    // A piece is there when its last byte is.
                    sleep(Duration::from_secs_f64(piece.len() as f64 / rate.max(1) as f64)).await;
                }
                let left = cut.map_or(u64::MAX, |at| at.saturating_sub(written));
                let fits = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                let sent = to.write_all(&piece[..fits]).await;
                written += fits as u64;
                *self.both.moved.lock().expect("not poisoned") = Instant::now();
                if sent.is_err() || fits as u64 == left {
                    return self.both.over.cancel();
                }
            }
        }
        if !faults.borrow().hole.takes(self.number) {
            // A peer that is gone already needs no end.
            let _ = to.shutdown().await;
        }
    }
}

/// The reading half of a direction, and what it has gathered.
struct Reader<'a> {
    direction: &'a Direction<'a>,
    faults: watch::Receiver<LineFaults>,
    seeded: SeededRandom,
    units: mpsc::Sender<Unit>,
    /// Read, and not a whole unit yet.
    bytes: Vec<u8>,
    /// The first head has passed.
    begun: bool,
    frames: u64,
    /// Frames that wait to be reversed, and until when.
    window: Vec<Vec<u8>>,
    filled: Instant,
    /// When the last unit is due: nothing overtakes.
    due: Instant,
}

impl Reader<'_> {
    async fn run(mut self, mut from: ReadHalf<'_>) {
        let mut chunk = vec![0; READ_BYTES];
        loop {
            while self.faults.borrow_and_update().stall {
                let _ = self.faults.changed().await;
            }
            let read = tokio::select! {
                biased;
                // Perhaps it stalls from now on: what comes after that was said stays unread.
                _ = self.faults.changed() => continue,
                read = from.read(&mut chunk) => read,
                () = sleep_until(self.filled), if !self.window.is_empty() => {
                    self.turn().await;
                    continue;
                }
            };
            match read {
                Ok(0) => break,
                Ok(read) => {
                    let up = self.direction.up;
                    let count = |counts: &mut super::ProxyCounts| {
                        *(if up { &mut counts.bytes.0 } else { &mut counts.bytes.1 }) += read as u64;
                    };
                    self.direction.shared.count(count);
                    self.bytes.extend_from_slice(&chunk[..read]);
                    self.take().await;
                }
                Err(_) if self.faults.borrow().hole.takes(self.direction.number) => return,
                Err(_) => return self.direction.both.over.cancel(),
            }
        }
        self.turn().await;
        let rest = std::mem::take(&mut self.bytes);
        self.emit(rest).await;
    }

    /// Makes units of what was read.
    async fn take(&mut self) {
        if !self.direction.both.upgraded.load(Relaxed) && self.plain().await {
            return;
        }
        while let Some((frame, end)) = units::frame(&self.bytes, self.frames + 1) {
            let rest = self.bytes.split_off(end);
            let bytes = std::mem::replace(&mut self.bytes, rest);
            self.frames += 1;
            self.frame(&frame, bytes).await;
        }
    }

    /// HTTP: goes on as it is, under the other's name. `false` when the answer of an upgrade ends here.
    async fn plain(&mut self) -> bool {
        let end = self.bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        let upgrades = !self.begun && !self.direction.up && self.bytes.starts_with(UPGRADED_HEAD);
        let rest = match end {
            // As a whole, so that no name in it is torn.
            None if !self.begun => return true,
            Some(end) if upgrades => self.bytes.split_off(end),
            _ => Vec::new(),
        };
        self.begun = true;
        let mut bytes = std::mem::replace(&mut self.bytes, rest);
        let (own, servers) = self.direction.names;
        match self.direction.up {
            true => units::rename(&mut bytes, own, servers),
            false => units::rename(&mut bytes, servers, own),
        }
        if upgrades {
            // Before its peer can know, so that no frame is taken for anything else.
            self.direction.both.upgraded.store(true, Relaxed);
        }
        self.emit(bytes).await;
        !upgrades
    }

    /// A whole frame: its fate.
    async fn frame(&mut self, frame: &WebSocketFrame, bytes: Vec<u8>) {
        let faults = self.faults.borrow().clone();
        let up = self.direction.up;
        let drops = faults.drop.as_ref().is_some_and(|pick| pick(frame)) || self.seeded.chance() < faults.drop_chance;
        let copies = if drops || frame.kind == FrameKind::Close { 0 } else { faults.copies };
        self.direction.shared.count(|counts| {
            *(if up { &mut counts.up } else { &mut counts.down }) += 1;
            counts.dropped += u64::from(drops);
            counts.copied += copies as u64;
        });
        if drops {
            return;
        }
        for bytes in std::iter::repeat_n(bytes, copies + 1) {
            if faults.reversed < 2 {
                self.turn().await;
                self.emit(bytes).await;
                continue;
            }
            if self.window.is_empty() {
                self.filled = Instant::now() + WINDOW_TIMEOUT;
            }
            self.window.push(bytes);
            if self.window.len() >= faults.reversed || frame.kind == FrameKind::Close {
                self.turn().await;
            }
        }
    }

    /// What waited to be reversed goes, the last one first.
    async fn turn(&mut self) {
        while let Some(bytes) = self.window.pop() {
            self.emit(bytes).await;
        }
    }

    /// Puts a unit on its way.
    async fn emit(&mut self, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let faults = self.faults.borrow().clone();
        let mut due = Instant::now() + faults.delay + faults.jitter.mul_f64(self.seeded.chance());
        let mut resend = RESEND_DELAY;
        while self.seeded.chance() < faults.loss {
            due += resend;
            resend *= 2;
            self.direction.shared.count(|counts| counts.lost += 1);
        }
        self.due = due.max(self.due);
        // A writer that is gone has ended the connection.
        let _ = self.units.send(Unit { bytes, due: self.due }).await;
    }
}
