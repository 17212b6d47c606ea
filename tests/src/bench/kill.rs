//! `kill -9` of the Board while vibers report and clients submit, again and again; what it had acknowledged is looked up in
//! its database at the end.

mod player;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use protocol::TaskId;
use server::db::{self, Db};

use super::{
    Scale, client, cold,
    http::Http,
    load::Latencies,
    proc::{Boards, Watch},
    report::{Bound, Measured},
    stage::Stage,
};
use crate::board::HOME;

const KILLS: usize = 20;
const VIBERS: usize = 10;
const CLIENTS: usize = 16;
/// Between two submits of a client.
const PAUSE: Duration = Duration::from_millis(400);
/// After the last kill everything that is under way has so long to end.
const SETTLE: Duration = Duration::from_secs(30);
/// Runs of events read at a time.
const RUNS: u64 = 1000;

/// What the Board has promised, as the other side remembers it.
#[derive(Debug, Default)]
struct Ledger {
    /// Tasks whose submit was answered with 201.
    submitted: Mutex<Vec<String>>,
    /// The last acknowledged seq of every attempt.
    acked: Mutex<HashMap<(String, u32), u64>>,
    /// Acknowledged seqs that a later welcome or nack took back.
    taken_back: AtomicU64,
    /// Vibers with a welcome from the Board that now runs.
    back: AtomicU64,
    over: AtomicBool,
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let mut stage = Stage::set(VIBERS, CLIENTS).await;
    let ledger = Arc::new(Ledger::default());
    let fleet = stage.vibers.clone();
    let players: Vec<_> = fleet
        .into_iter()
        .map(|enrolled| tokio::spawn(player::play(stage.host.clone(), enrolled, ledger.clone())))
        .collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let vibers: Vec<String> = stage.vibers.iter().map(|enrolled| enrolled.id.clone()).collect();
            tokio::spawn(submit(stage.host.clone(), stage.token(n).to_owned(), vibers, n, ledger.clone()))
        })
        .collect();
    everybody(&ledger, &stage).await;

    let (mut ready, mut back) = (Latencies::default(), Latencies::default());
    let (mut boards, watch) = (Boards::default(), Watch::machine());
    let kills = scale.count(KILLS, 3);
    for n in 0..kills {
        // Not in step with anything.
        tokio::time::sleep(Duration::from_millis(1200 + (n as u64 * 379) % 1100)).await;
        boards.add(stage.board.pid());
        ledger.back.store(0, Ordering::Relaxed);
        stage.board.kill9();
        ledger.back.store(0, Ordering::Relaxed);
        let start = Instant::now();
        stage.board.serve();
        cold::ready(&stage.board).await;
        ready.push(start.elapsed());
        everybody(&ledger, &stage).await;
        back.push(start.elapsed());
    }
    let spent = boards.spent(&watch);
    ledger.over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.expect("a client does not panic");
    }
    let unfinished = settle(players).await;
    let submitted = ledger.submitted.lock().expect("not poisoned").len();
    let (lost, events) = look_up(&stage, &ledger).await;
    vec![
        Measured::new("kill -9 of the Board under load", "kill", kills, spent)
            .figure("ready p50", ready.ms(50.0), "ms", None)
            .figure("ready, slowest", ready.ms(100.0), "ms", Bound::AtMost(2000.0))
            .figure("vibers back, slowest", back.ms(100.0) / 1e3, "s", Bound::AtMost(10.0))
            .figure("acknowledged, lost", lost as f64, "", Bound::AtMost(0.0))
            .figure("vibers not at rest", unfinished as f64, "", Bound::AtMost(0.0))
            .note(format!("{submitted} acknowledged submits and {events} acknowledged events looked up at the end")),
    ]
}

/// Waits until every viber has a welcome.
async fn everybody(ledger: &Ledger, stage: &Stage) {
    let began = Instant::now();
    while ledger.back.load(Ordering::Relaxed) < VIBERS as u64 {
        assert!(began.elapsed() < Duration::from_secs(60), "vibers stay away:\n{}", stage.board.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Players end by themselves when nothing is left to do. Answers how many did not.
async fn settle(players: Vec<tokio::task::JoinHandle<()>>) -> usize {
    let end = tokio::time::Instant::now() + SETTLE;
    let mut left = 0;
    for mut player in players {
        match tokio::time::timeout_at(end, &mut player).await {
            Ok(done) => done.expect("a player does not panic"),
            Err(_) => {
                player.abort();
                left += 1;
            }
        }
    }
    left
}

/// Submits until it is over; a Board that is away is asked again.
async fn submit(host: String, token: String, vibers: Vec<String>, n: usize, ledger: Arc<Ledger>) {
    let mut http: Option<Http> = None;
    let mut turn = n;
    tokio::time::sleep(PAUSE.mul_f64(n as f64 / CLIENTS as f64)).await;
    while !ledger.over.load(Ordering::Relaxed) {
        tokio::time::sleep(PAUSE).await;
        let open = match http.take() {
            Some(open) => Ok(open),
            None => Http::connect(&host, &token).await,
        };
        let Ok(mut open) = open else { continue };
        turn += 1;
        let viber = &vibers[turn % vibers.len()];
        if let Ok((task, _)) = client::submit(&mut open, client::Target::Viber(viber), "Survive.").await {
            ledger.submitted.lock().expect("not poisoned").push(task);
            http = Some(open);
        }
    }
}

/// Acknowledged items that the database does not hold as they were sent, and how many were looked up.
async fn look_up(stage: &Stage, ledger: &Ledger) -> (u64, u64) {
    let db = Db::connect(&stage.board.database_url).await.expect("the Board's database");
    let submitted = std::mem::take(&mut *ledger.submitted.lock().expect("not poisoned"));
    let acked = std::mem::take(&mut *ledger.acked.lock().expect("not poisoned"));
    let mut lost = ledger.taken_back.load(Ordering::Relaxed);
    let mut looked = 0;
    let found = async {
        let team = db::teams::by_slug(&mut *db.reader().await?, HOME).await?.expect("the first team").id;
        let mut tx = db.reader_of(&team).await?;
        for task in &submitted {
            let id: TaskId = task.parse().expect("an id");
            lost += u64::from(db::tasks::load(&mut tx, &id).await?.is_none());
        }
        for ((task, attempt), last) in &acked {
            let id: TaskId = task.parse().expect("an id");
            let mut held = 0;
            while held < *last {
                let runs = db::events::after(&mut tx, &id, *attempt, held, RUNS).await?;
                let before = held;
                for item in runs.iter().flat_map(|run| &run.items) {
                    let same = item.seq == held + 1 && *item.json == *player::event(item.seq);
                    lost += u64::from(!same && item.seq <= *last);
                    held = item.seq;
                }
                if held == before {
                    lost += *last - held;
                    break;
                }
            }
            looked += last;
        }
        Ok::<_, db::DbError>((lost, looked))
    };
    let found = found.await;
    db.close().await;
    found.expect("a readable database")
}
