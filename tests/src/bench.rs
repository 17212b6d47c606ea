//! The load generator: what the Board does in a second, and what a unit of it costs in processor time and memory.
//!
//! Each measure starts a Board of its own on a fresh database, SQLite where nothing else is said, over loopback, for a
//! bounded time. Latencies are seen from outside; processor time and memory are read from `/proc`. Nothing here fails
//! because a figure is missed. Options come from the environment: `ONLY=idle,page` picks measures, `SCALE=0.1` shrinks
//! counts and times.

pub mod client;
pub mod http;
pub mod link;
pub mod load;
pub mod machine;
pub mod proc;
pub mod report;
pub mod stage;

mod adapters;
mod artifacts;
mod burst;
mod bus;
mod cold;
mod control;
mod events;
mod fan_out;
mod idle;
mod kill;
mod mcp;
mod mesh;
mod page;
mod playbooks;
mod reading;
mod round_trip;
mod sandbox;
mod skills;
mod slopes;
mod stalled;
mod streams;
mod upkeep;
mod workspace;

use std::{future::Future, path::PathBuf, pin::Pin};

pub use page::loaded_files;

use report::Measured;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Running = Pin<Box<dyn Future<Output = Vec<Measured>>>>;
type Measure = (&'static str, fn(Scale) -> Running);

/// In the order of the table.
const MEASURES: &[Measure] = &[
    ("cold", |scale| Box::pin(cold::measure(scale))),
    ("round-trip", |scale| Box::pin(round_trip::measure(scale))),
    ("postgres", |scale| Box::pin(round_trip::measure_postgres(scale))),
    ("fan-out", |scale| Box::pin(fan_out::measure(scale))),
    ("burst", |scale| Box::pin(burst::measure(scale))),
    ("events", |scale| Box::pin(events::measure(scale))),
    ("streams", |scale| Box::pin(streams::measure(scale))),
    ("idle", |scale| Box::pin(idle::measure(scale))),
    ("stalled", |scale| Box::pin(stalled::measure(scale))),
    ("page", |scale| Box::pin(page::measure(scale))),
    ("reading", |scale| Box::pin(reading::measure(scale))),
    ("control", |scale| Box::pin(control::measure(scale))),
    ("artifacts", |scale| Box::pin(artifacts::measure(scale))),
    ("workspace", |scale| Box::pin(workspace::measure(scale))),
    ("memory", |scale| Box::pin(workspace::remember(scale))),
    ("playbooks", |scale| Box::pin(playbooks::measure(scale))),
    ("sandbox", |scale| Box::pin(sandbox::measure(scale))),
    ("skills", |scale| Box::pin(skills::measure(scale))),
    ("mesh", |scale| Box::pin(mesh::measure(scale))),
    ("adapters", |scale| Box::pin(adapters::measure(scale))),
    ("mcp", |scale| Box::pin(mcp::measure(scale))),
    ("slopes", |scale| Box::pin(slopes::measure(scale))),
    ("slopes-postgres", |scale| Box::pin(slopes::measure_postgres(scale))),
    ("upkeep", |scale| Box::pin(upkeep::measure(scale))),
    ("kill", |scale| Box::pin(kill::measure(scale))),
];

/// How much of the full counts and times is done: 1 is what the table is about.
#[derive(Clone, Copy, Debug)]
pub struct Scale(f64);

impl Scale {
    /// A count, at least `least`.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
    pub fn count(self, full: usize, least: usize) -> usize {
        ((full as f64 * self.0) as usize).max(least)
    }

    /// Seconds, at least two.
    pub fn seconds(self, full: u64) -> std::time::Duration {
        std::time::Duration::from_secs_f64((full as f64 * self.0).max(2.0))
    }
}

/// Runs what was asked for, prints the table and writes it as JSON.
pub async fn main() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let only: Vec<&str> = only.split([',', ' ']).filter(|name| !name.is_empty()).collect();
    for name in &only {
        let known: Vec<&str> = MEASURES.iter().map(|(name, _)| *name).collect();
        assert!(known.contains(name), "ONLY={name}: the measures are {}", known.join(", "));
    }
    let scale = std::env::var("SCALE").ok().filter(|scale| !scale.is_empty());
    let scale = scale.map_or(1.0, |scale| scale.parse().expect("SCALE is a number"));
    assert!((0.01..=1.0).contains(&scale), "SCALE={scale}: from 0.01 to 1");
    let files = open_files();
    let machine = report::Hardware::look(files);
    println!("{machine}");
    let mut measured = Vec::new();
    for (name, measure) in MEASURES {
        if !only.is_empty() && !only.contains(name) {
            continue;
        }
        eprintln!("measuring {name} …");
        let done = measure(Scale(scale)).await;
        // What is known by now, should a later measure fail.
        eprintln!("{}", report::table(&done));
        measured.extend(done);
    }
    println!("{}", report::table(&measured));
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let path = crate::programs::root().join(target).join("bench.json");
    let json = serde_json::to_string_pretty(&report::json(&machine, scale, &measured)).expect("JSON");
    std::fs::write(&path, json + "\n").unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    println!("also in {}", path.display());
}

/// Thousands of sockets, here and in the Boards that are started from here. Answers the limit.
fn open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.unwrap_or(1 << 20);
    // A limit that can't be raised shows itself in the measure that needs it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(most)
}
