//! A Board under load: vibers that stream into many tasks, a viewer at each, one real daemon among them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use board_tests::{
    Board, Engine, FakeDaemon, Person, Viber,
    board::HOME,
    eventually,
    ledger::hash,
    reconnecting_daemon::{ReconnectingDaemon, Work},
    reconnecting_viewer::ReconnectingViewer,
    seed::SeededRandom,
    tasks::id,
    wait::{EVENT_TIMEOUT, SLACK, within},
};
use serde_json::{Value, json};

/// How long a killed Board may take to be ready, and vibers to be back.
const READY_TIMEOUT: Duration = Duration::from_secs(2);
const BACK_TIMEOUT: Duration = Duration::from_secs(10);

/// How much.
#[derive(Clone, Copy)]
pub struct Size {
    pub vibers: usize,
    /// Of each viber.
    pub tasks: usize,
    pub words: u64,
    pub pause_ms: u64,
}

/// What runs.
pub struct Load {
    pub board: Board,
    pub operator: Arc<Person>,
    pub vibers: Vec<ReconnectingDaemon>,
    /// A real daemon with an echo that counts; it ends with this value.
    _real: Viber,
    tasks: Vec<(String, ReconnectingViewer)>,
    size: Size,
}

impl Load {
    /// Starts everything; every task is under way.
    pub async fn start(engine: Engine, size: Size) -> Self {
        let board = Board::start(engine).await;
        let operator = Arc::new(board.token(HOME, "operator").await);
        let work = Work { words: size.words, pause: Duration::from_millis(size.pause_ms) };
        let mut vibers = Vec::new();
        for n in 0..size.vibers {
            vibers.push(ReconnectingDaemon::start(FakeDaemon::enrol(&board, &format!("lab{n}")).await, work));
        }
        let mut real = Viber::fresh("real");
        real.enrol(&board).await;
        real.write("config.yaml", "maxTasks: 10\n");
        real.write("agents/default.yaml", "name: Default\nmodel: echo/echo\n");
        real.run();
        real.connected(&operator).await;
        let at_real = real.id(&operator).await;
        let mut load = Self { board, operator, vibers, _real: real, tasks: Vec::new(), size };
        for at in 0..size.vibers {
            let viber = load.vibers[at].id.clone();
            eventually("a welcome", || async { (load.vibers[at].welcomes() > 0).then_some(()) }).await;
            for _ in 0..size.tasks {
                load.submit(&viber, "count").await;
            }
        }
        let goal = format!("stream {} every {}", size.words.min(500), size.pause_ms.max(20));
        for _ in 0..size.tasks.min(4) {
            load.submit(&at_real, &goal).await;
        }
        for (task, _) in &load.tasks {
            load.operator.task_that(task, "begun", |task| task["state"] != "pending").await;
        }
        load
    }

    async fn submit(&mut self, viber: &str, goal: &str) {
        let task = self.operator.submit(viber, goal).await;
        let task = id(&task, "id").to_owned();
        let viewer = ReconnectingViewer::of(self.operator.clone(), &task);
        self.tasks.push((task, viewer));
    }

    /// `kill -9` at random moments; each time it is ready and everybody is back in time.
    pub async fn kill_at_random(&mut self, times: u32) {
        let mut seeded = SeededRandom::new();
        let (mut ready, mut back) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..times {
            tokio::time::sleep(Duration::from_millis(seeded.between(50, 900))).await;
            let before: Vec<u64> = self.vibers.iter().map(ReconnectingDaemon::welcomes).collect();
            self.board.kill9();
            let began = Instant::now();
            self.board.restart().await;
            ready = ready.max(began.elapsed());
            within(BACK_TIMEOUT * SLACK, "everybody is back", || async {
                let fakes = self.vibers.iter().zip(&before).all(|(viber, before)| viber.welcomes() > *before);
                let all = self.operator.get("/api/v1/vibers").await.expect(200).json();
                let here = |viber: &Value| viber["contact"]["state"] == "connected";
                (fakes && all["items"].as_array().is_some_and(|all| all.iter().all(here))).then_some(())
            })
            .await;
            back = back.max(began.elapsed());
        }
        eprintln!("killed {times} times: ready within {ready:?}, everybody back within {back:?}");
        assert!(ready <= READY_TIMEOUT * SLACK, "ready only after {ready:?}");
    }

    /// Every task completes with all its events; every viewer saw all of them once, byte for byte.
    pub async fn finish(self) {
        let limit = EVENT_TIMEOUT * 2 + Duration::from_millis(self.size.words * self.size.pause_ms * 2);
        for (task, viewer) in self.tasks {
            let done = self.operator.task_within(limit, &task, "completed", |task| task["state"] == "completed").await;
            assert_eq!(done["attempt"], json!(1), "nothing was started again");
            let events = self.operator.events(&task).await;
            let seqs: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
            assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "{task}");
            let seen = viewer.all().await;
            let print = |events: &[Value]| hash(&serde_json::to_string(events).expect("JSON"));
            let shown: Vec<Value> = seen.into_iter().map(|(_, event)| event).collect();
            assert_eq!(print(&shown), print(&events), "{task}: {} of {} events", shown.len(), events.len());
        }
        for viber in self.vibers {
            assert_eq!(viber.ended(), self.size.tasks as u64);
            viber.finish().await;
        }
        self.board.assert_invariants().await;
    }
}
