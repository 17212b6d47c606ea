//! What calls cost on databases with little and with much history, on SQLite or PostgreSQL: growth shows what is not flat.
//!
//! The rows are written directly. Processor time is the Board's and the database server's together.

pub mod seed;

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use seed::{History, Seed};

use super::{
    Scale, client,
    http::Http,
    machine::{BenchViber, TaskHandling},
    proc,
    report::{Bound, Measured},
    stage::Stage,
};
use crate::board::{Engine, HOME};

/// Each call is repeated for this long, and at least [`MIN_CALLS`] times.
const CALL_TIME: Duration = Duration::from_millis(1200);
const MIN_CALLS: usize = 20;
/// One operator's token may be used for 100 calls a second.
const TOKENS: usize = 40;

/// What grows from one database to the next.
struct Axis {
    name: &'static str,
    sizes: [History; 3],
    calls: &'static [Call],
    /// What a page may have, not compressed, KB.
    page_due: Option<f64>,
}

/// A call, and what one may cost on the largest database: milliseconds on SQLite, on PostgreSQL.
#[derive(Clone, Copy, Debug)]
struct Call {
    name: &'static str,
    kind: Kind,
    due: Option<(f64, f64)>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A page of the team as a signed-in owner loads it.
    Page(&'static str),
    /// The last page of the list of sessions.
    LastSessions,
    /// The list of sessions of a viber that has none.
    SessionsOfAnotherViber,
    /// The newest session's page.
    SessionPage,
    /// The newest session's page after another session changed; that change is not counted.
    SessionPageAfterWrite,
    /// The newest session's tab that shows what a request holds of it, with everything around it.
    ContextTab,
    /// What a request holds of the newest session: its plan and its figures.
    Context,
    Api(&'static str),
    /// A task in a new session, up to its result.
    RoundTrip,
    /// A task in the newest session, up to its result.
    RoundTripInSession,
    /// A task for whichever viber has the labels, up to its result.
    RoundTripByLabels,
}

const fn base() -> History {
    History { sessions: 100, turns_per_session: 5, vibers: 10, teams: 0 }
}

const fn call(name: &'static str, kind: Kind, due: Option<(f64, f64)>) -> Call {
    Call { name, kind, due }
}

const AXES: &[Axis] = &[
    Axis {
        name: "messages",
        sizes: [base(), History { sessions: 10_000, ..base() }, History { sessions: 100_000, ..base() }],
        calls: &[
            call("home", Kind::Page(""), Some((5.0, 5.0))),
            call("sessions, first page", Kind::Page("/sessions"), Some((5.0, 5.0))),
            call("sessions, last page", Kind::LastSessions, Some((3.0, 3.0))),
            call("sessions, a rare word", Kind::Page("/sessions?q=module+77"), Some((3.0, 3.0))),
            call("sessions, few are in the state", Kind::Page("/sessions?state=working"), Some((5.0, 5.0))),
            call("sessions, narrowed by person", Kind::Page("/sessions?person=few"), Some((5.0, 8.0))),
            call("sessions of a viber with none", Kind::SessionsOfAnotherViber, Some((5.0, 5.0))),
            call("messages, a rare word", Kind::Page("/search?q=module+77"), Some((5.0, 8.0))),
            call("messages, a word of all", Kind::Page("/search?q=calls"), Some((5.0, 8.0))),
            call("messages, words never together", Kind::Page("/search?q=module+ran"), Some((8.0, 8.0))),
            call("session page, quiet", Kind::SessionPage, Some((0.8, 0.8))),
            call("session page after a write", Kind::SessionPageAfterWrite, Some((0.8, 5.0))),
            call("vibers page", Kind::Page("/vibers"), Some((5.0, 5.0))),
            call("API tasks, no hit", Kind::Api("/api/v1/tasks?state=running"), Some((1.0, 1.0))),
            call("API approvals, newest", Kind::Api("/api/v1/approvals?limit=20"), Some((1.0, 1.0))),
            call("API approvals, no hit", Kind::Api("/api/v1/approvals?state=pending"), Some((1.0, 1.0))),
            call("round trip, new session", Kind::RoundTrip, None),
        ],
        page_due: None,
    },
    Axis {
        name: "turns of a session",
        sizes: [
            History { sessions: 2, turns_per_session: 10, ..base() },
            History { sessions: 2, turns_per_session: 500, ..base() },
            History { sessions: 2, turns_per_session: 5_000, ..base() },
        ],
        calls: &[
            call("home", Kind::Page(""), Some((5.0, 5.0))),
            call("sessions, first page", Kind::Page("/sessions"), Some((5.0, 5.0))),
            call("session page, quiet", Kind::SessionPage, Some((0.8, 0.8))),
            call("session page after a write", Kind::SessionPageAfterWrite, Some((0.8, 5.0))),
            call("context tab", Kind::ContextTab, Some((100.0, 100.0))),
            call("what a request holds", Kind::Context, Some((20.0, 20.0))),
            call("round trip into it", Kind::RoundTripInSession, None),
        ],
        page_due: None,
    },
    Axis {
        name: "vibers",
        sizes: [base(), History { vibers: 1_000, ..base() }, History { vibers: 10_000, ..base() }],
        calls: &[
            call("home", Kind::Page(""), Some((2.0, 5.0))),
            call("vibers page", Kind::Page("/vibers"), Some((2.0, 5.0))),
            call("vibers, a rare word", Kind::Page("/vibers?q=machine+77"), Some((2.0, 5.0))),
            call("sessions, first page", Kind::Page("/sessions"), Some((2.0, 5.0))),
            call("session page after a write", Kind::SessionPageAfterWrite, Some((0.8, 5.0))),
            call("round trip by labels", Kind::RoundTripByLabels, None),
        ],
        page_due: Some(150.0),
    },
    Axis {
        name: "teams",
        sizes: [base(), History { teams: 30, ..base() }, History { teams: 1_000, ..base() }],
        calls: &[call("home", Kind::Page(""), None), call("round trip, new session", Kind::RoundTrip, None)],
        page_due: None,
    },
];

/// A running Board with a history.
struct Subject {
    /// Goes before its Board.
    viber: BenchViber,
    stage: Stage,
    /// Of a signed-in owner, as a header line.
    cookie: String,
    /// The newest session, and the one before it.
    sessions: [String; 2],
    /// The cursor of the last page of sessions.
    last_page: String,
    start_ms: f64,
    doctor_ms: f64,
    /// A second after the start.
    rss_mib: f64,
    /// Bytes of the largest page so far, not compressed.
    largest_page: Cell<usize>,
}

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    on(Engine::Sqlite, scale).await
}

pub(super) async fn measure_postgres(scale: Scale) -> Vec<Measured> {
    on(Engine::Postgres, scale).await
}

async fn on(engine: Engine, scale: Scale) -> Vec<Measured> {
    let mut measured = Vec::new();
    for axis in AXES {
        measured.push(along(engine, axis, scale).await);
    }
    measured
}

/// The calls of an axis on its three databases.
async fn along(engine: Engine, axis: &Axis, scale: Scale) -> Measured {
    let (mut costs, mut starts, mut doctors) = (vec![Vec::new(); axis.calls.len()], [0.0; 3], [0.0; 3]);
    let (mut memory, mut largest_page) = ((0.0, 0.0), 0);
    let machine = proc::Watch::machine();
    for (n, history) in axis.sizes.iter().enumerate() {
        let mut subject = Subject::start(engine, shrunk(*history, scale)).await;
        for (call, costs) in axis.calls.iter().zip(&mut costs) {
            let cost = subject.cost(call.kind).await;
            eprintln!("  {engine:?} {}: {} {cost:.2} ms", axis.name, call.name);
            costs.push(cost);
        }
        (starts[n], doctors[n]) = (subject.start_ms, subject.doctor_ms);
        memory = (subject.rss_mib, proc::memory(subject.stage.board.pid()).0);
        largest_page = subject.largest_page.get();
    }
    let name = format!("{engine:?}, more {}", axis.name);
    let mut measured = Measured::new(name, "", 0, machine.stop(0));
    for (call, costs) in axis.calls.iter().zip(costs) {
        let due = call.due.map(|(sqlite, postgres)| if engine == Engine::Sqlite { sqlite } else { postgres });
        measured = measured.growth(call.name, costs, due.map(Bound::AtMost));
    }
    measured
        .growth("start, wall", starts.to_vec(), Bound::AtMost(150.0))
        .growth("doctor, wall", doctors.to_vec(), Bound::AtMost(10_000.0))
        .figure("largest page", largest_page as f64 / 1e3, "KB", axis.page_due.map(Bound::AtMost))
        .figure("RSS a second after start", memory.0, "MiB", Bound::AtMost(35.0))
        .figure("RSS after all calls", memory.1, "MiB", Bound::AtMost(120.0))
}

fn shrunk(history: History, scale: Scale) -> History {
    let History { sessions, turns_per_session, vibers, teams } = history;
    History {
        sessions: scale.count(sessions, sessions.min(100)),
        turns_per_session: scale.count(turns_per_session, turns_per_session.min(50)),
        vibers: scale.count(vibers, vibers.min(10)),
        teams: scale.count(teams, teams.min(1)),
    }
}

impl Subject {
    async fn start(engine: Engine, history: History) -> Self {
        let mut stage = Stage::set_on(engine, 1, TOKENS).await;
        let cookie = format!("Cookie: {}", stage.board.owner().await.cookie().expect("signed in"));
        assert!(stage.board.stop().await.success(), "a clean end");
        let seed = Seed { engine, url: &stage.board.database_url, viber: &stage.vibers[0].id };
        // What is older than a month is not trimmed meanwhile: `upkeep` measures that.
        seed.write(history, &["UPDATE teams SET retention_days = 0".to_owned()]).await;
        let began = Instant::now();
        assert!(stage.board.cli(&["doctor"]).await.status.success(), "doctor finds nothing");
        let doctor_ms = began.elapsed().as_secs_f64() * 1e3;
        // The rows came by another hand: the Board has to leave them in order first.
        stage.board.serve();
        stage.board.ready().await;
        assert!(stage.board.stop().await.success(), "a clean end");
        let began = Instant::now();
        stage.board.serve();
        stage.board.ready().await;
        let start_ms = began.elapsed().as_secs_f64() * 1e3;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let rss_mib = proc::memory(stage.board.pid()).0;
        settled(&stage).await;
        let viber = BenchViber::connect(&stage, &stage.vibers[0], TaskHandling::Completes).await;
        let newest = history.sessions - 1;
        let sessions = [newest, newest.saturating_sub(1)].map(seed::session_id);
        Self {
            stage,
            cookie,
            viber,
            sessions,
            last_page: seed::last_page(history),
            start_ms,
            doctor_ms,
            rss_mib,
            largest_page: Cell::new(0),
        }
    }

    /// Processor milliseconds of one call.
    async fn cost(&mut self, kind: Kind) -> f64 {
        match kind {
            Kind::SessionPageAfterWrite => {
                let write = self.repeat(&[Step::Write]).await;
                self.repeat(&[Step::Write, self.session_page()]).await - write
            }
            Kind::SessionPage => self.repeat(&[self.session_page()]).await,
            Kind::ContextTab => {
                let path = format!("/t/{HOME}/sessions/{}?pane=context", self.sessions[0]);
                self.repeat(&[Step::Page(path)]).await
            }
            Kind::Context => self.repeat(&[Step::Api(format!("/api/v1/sessions/{}/context", self.sessions[0]))]).await,
            Kind::Page(path) => self.repeat(&[Step::Page(format!("/t/{HOME}{path}"))]).await,
            Kind::LastSessions => {
                let path = format!("/t/{HOME}/sessions?after={}", self.last_page);
                self.repeat(&[Step::Page(path)]).await
            }
            Kind::SessionsOfAnotherViber => {
                let path = format!("/t/{HOME}/sessions?viber={}", seed::viber_id(0));
                self.repeat(&[Step::Page(path)]).await
            }
            Kind::Api(path) => self.repeat(&[Step::Api(path.to_owned())]).await,
            Kind::RoundTrip => self.repeat(&[Step::Task(TaskPlace::NewSession)]).await,
            Kind::RoundTripInSession => self.repeat(&[Step::Task(TaskPlace::Session)]).await,
            Kind::RoundTripByLabels => self.repeat(&[Step::Task(TaskPlace::Labels)]).await,
        }
    }

    fn session_page(&self) -> Step {
        Step::Page(format!("/t/{HOME}/sessions/{}", self.sessions[0]))
    }

    async fn repeat(&self, steps: &[Step]) -> f64 {
        let mut pages = Http::connect(&self.stage.host, &self.cookie).await.expect("the Board listens");
        let mut api = Http::connect(&self.stage.host, self.stage.token(0)).await.expect("the Board listens");
        // Caches are filled before it counts.
        for _ in 0..3 {
            self.run(steps, &mut pages, &mut api, 0).await;
        }
        let (before, began, mut calls) = (self.processor(), Instant::now(), 0);
        while calls < MIN_CALLS || began.elapsed() < CALL_TIME {
            calls += 1;
            self.run(steps, &mut pages, &mut api, calls).await;
        }
        (self.processor() - before) / calls as f64 * 1e3
    }

    async fn run(&self, steps: &[Step], pages: &mut Http, api: &mut Http, n: usize) {
        api.show(self.stage.token(n));
        for step in steps {
            match step {
                Step::Page(path) => {
                    let (status, body) = pages.ask("GET", path, "").await.expect("a page");
                    assert_eq!(status, 200, "{path}");
                    self.largest_page.set(self.largest_page.get().max(body.len()));
                }
                Step::Api(path) => {
                    let (status, _) = api.ask("GET", path, "").await.expect("an answer");
                    assert_eq!(status, 200, "{path}");
                }
                Step::Write => {
                    let path = format!("/api/v1/sessions/{}", self.sessions[1]);
                    let body = format!(r#"{{"title":"Count the calls, {n}"}}"#);
                    let (status, _) = api.ask("PATCH", &path, &body).await.expect("an answer");
                    assert_eq!(status, 200, "{path}");
                }
                Step::Task(target) => {
                    let place = match target {
                        TaskPlace::NewSession => client::Target::Viber(&self.viber.id),
                        TaskPlace::Session => client::Target::Session(&self.viber.id, &self.sessions[0]),
                        TaskPlace::Labels => client::Target::Labels(r#"{"pool":"bench"}"#),
                    };
                    client::round_trip(api, place).await.expect("a round trip");
                }
            }
        }
    }

    /// Processor seconds of the Board, and of the database server's answers to it, so far.
    fn processor(&self) -> f64 {
        processor(&self.stage)
    }
}

/// Processor seconds of a Board, and of the database server's answers to it, so far.
pub fn processor(stage: &Stage) -> f64 {
    proc::processor(stage.board.pid()) + stage.server.map_or(0.0, proc::processor_of_backends)
}

/// Waits until what a Board and a database server do behind a start is done, a minute at most: it is no call's.
pub async fn settled(stage: &Stage) {
    let all = || proc::processor(stage.board.pid()) + stage.server.map_or(0.0, proc::processor_with_children);
    for _ in 0..120 {
        let before = all();
        tokio::time::sleep(Duration::from_millis(500)).await;
        if all() - before < 0.015 {
            return;
        }
    }
}

#[derive(Debug)]
enum Step {
    Page(String),
    Api(String),
    Write,
    Task(TaskPlace),
}

#[derive(Clone, Copy, Debug)]
enum TaskPlace {
    NewSession,
    Session,
    Labels,
}
