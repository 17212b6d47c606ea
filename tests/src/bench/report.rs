//! What was measured, beside what is due: a table for people, JSON for programs.

use std::{fmt, io::Write as _, time::Instant};

use serde_json::{Value, json};

use super::{
    load::Latencies,
    proc::{self, Spent},
};
use crate::board::Engine;

/// The machine, and how busy it was before anything began.
#[derive(Debug)]
pub struct Hardware {
    model: String,
    cores: usize,
    /// GiB.
    memory: f64,
    load: String,
    files: u64,
    /// Milliseconds of one write of 4 KiB with fdatasync: the median, and the 99th percentile.
    sync: (f64, f64),
}

/// What a measure that is played on both databases is called there, SQLite first.
pub fn on(engine: Engine, name: &'static str) -> &'static str {
    match engine {
        Engine::Sqlite => name,
        Engine::Postgres => "the same on PostgreSQL",
    }
}

/// One measure.
#[derive(Debug)]
pub struct Measured {
    pub name: String,
    pub figures: Vec<Figure>,
    /// What `spent` is counted by, and how many there were: a task, a delivery.
    pub unit: &'static str,
    pub units: f64,
    pub spent: Spent,
    /// What a reader must know to judge the figures.
    pub note: String,
    load: String,
}

/// One number and what is due.
#[derive(Debug)]
pub struct Figure {
    pub name: &'static str,
    pub value: f64,
    pub word: &'static str,
    pub due: Option<Bound>,
    /// The predecessor's gateway on the same kind of machine; it keeps everything in memory and loses it.
    pub predecessor: Option<f64>,
    /// Of a figure that was measured at several sizes, the smallest first: what it was at each.
    pub sizes: Vec<f64>,
}

/// The value at the largest size may be this many times the value at the smallest.
const MAX_GROWTH: f64 = 1.5;
/// Growth by less than this many milliseconds is not told from noise.
const GROWTH_NOISE_MS: f64 = 0.1;

/// The bound that a figure has to keep.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Hardware {
    /// Looks at this machine. `files` is how many may be open.
    pub fn look(files: u64) -> Self {
        Self {
            model: proc::model(),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory: proc::total_memory(),
            load: proc::load(),
            files,
            sync: sync(),
        }
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, cores, memory, load, files, sync: (p50, p99) } = self;
        write!(f, "{cores} cores of {model}, {memory:.1} GiB; load average before {load}; {files} open files; ")?;
        write!(f, "4 KiB + fdatasync: p50 {p50:.2} ms, p99 {p99:.2} ms")
    }
}

fn sync() -> (f64, f64) {
    let mut file = tempfile::tempfile().expect("a temporary file");
    let mut times = Latencies::default();
    for _ in 0..200 {
        let began = Instant::now();
        file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).expect("a disk that takes 4 KiB");
        times.push(began.elapsed());
    }
    (times.ms(50.0), times.ms(99.0))
}

impl Measured {
    /// A measure that has just ended.
    pub fn new(name: impl Into<String>, unit: &'static str, units: usize, spent: Spent) -> Self {
        let (name, load) = (name.into(), proc::load());
        Self { name, figures: Vec::new(), unit, units: units as f64, spent, note: String::new(), load }
    }

    /// With a figure.
    pub fn figure(mut self, name: &'static str, value: f64, word: &'static str, due: impl Into<Option<Bound>>) -> Self {
        self.figures.push(Figure { name, value, word, due: due.into(), predecessor: None, sizes: Vec::new() });
        self
    }

    /// With a figure in milliseconds that was measured at several sizes, the smallest first.
    pub fn growth(mut self, name: &'static str, sizes: Vec<f64>, due: impl Into<Option<Bound>>) -> Self {
        let value = sizes.last().copied().expect("a size");
        self.figures.push(Figure { name, value, word: "ms", due: due.into(), predecessor: None, sizes });
        self
    }

    /// With the predecessor's value of the last figure.
    pub fn predecessor(mut self, value: f64) -> Self {
        self.figures.last_mut().expect("a figure comes first").predecessor = Some(value);
        self
    }

    /// With the processor time of the Board for `per` units as a figure, in seconds times `scale`.
    pub fn processor(
        self,
        name: &'static str,
        (per, scale): (f64, f64),
        word: &'static str,
        due: impl Into<Option<Bound>>,
    ) -> Self {
        let value = self.spent.board / self.units.max(1.0) * per * scale;
        self.figure(name, value, word, due)
    }

    /// With what a reader must know.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl Figure {
    fn met(&self) -> Option<bool> {
        let bound = self.due.map(|due| match due {
            Bound::AtLeast(least) => self.value >= least,
            Bound::AtMost(most) => self.value <= most,
        });
        match self.sizes.first() {
            Some(smallest) => Some(bound.unwrap_or(true) && self.value <= smallest * MAX_GROWTH + GROWTH_NOISE_MS),
            None => bound,
        }
    }

    /// `1.2 → 1.3 → 1.9, × 1.58`
    fn growth(&self) -> String {
        let Some(smallest) = self.sizes.first() else { return String::new() };
        let sizes: Vec<String> = self.sizes.iter().map(|size| number(*size)).collect();
        format!("  {}, × {}", sizes.join(" → "), number(self.value / smallest))
    }
}

/// The table.
pub fn table(measured: &[Measured]) -> String {
    let names = measured.iter().flat_map(|one| &one.figures).map(|figure| figure.name.chars().count());
    let width = names.max().unwrap_or(0).max(25);
    let mut text = format!(
        "\n{:<36} {:<width$} {:>13} {:>8} {:>12}\n{}\n",
        "measure",
        "figure",
        "value",
        "due",
        "predecessor",
        "-".repeat(82 + width)
    );
    for one in measured {
        for (n, figure) in one.figures.iter().enumerate() {
            let name = if n == 0 { one.name.as_str() } else { "" };
            let due = figure.due.map_or(String::new(), |due| match due {
                Bound::AtLeast(least) => format!("≥ {}", number(least)),
                Bound::AtMost(most) => format!("≤ {}", number(most)),
            });
            let verdict = figure.met().map_or("", |met| if met { "met" } else { "MISSED" });
            let value = format!("{} {}", number(figure.value), figure.word);
            let before = figure.predecessor.map(number).unwrap_or_default();
            text.push_str(&format!(
                "{name:<36} {:<width$} {value:>13} {due:>8} {before:>12}  {verdict}{}\n",
                figure.name,
                figure.growth()
            ));
        }
        if one.units == 0.0 {
            continue;
        }
        let Spent { seconds, board, own, others, rss, peak, written, commits, calls, switches, .. } = one.spent;
        let unit = one.unit;
        let per = |amount: f64| number(amount / one.units.max(1.0));
        text.push_str(&format!(
            "  {seconds:.1} s, {} × {unit}; Board: {board:.2} CPU s = {} µs a {unit}, RSS {rss:.0} MiB, peak {peak:.0} MiB; \
             per {unit} {} commits, {} bytes to disk, {} calls of read and write, {} context switches\n  others: generator {own:.2} CPU s, rest of the machine {others:.2} \
             CPU s, load average {}\n",
            number(one.units),
            per(board * 1e6),
            per(commits as f64),
            per(written as f64),
            per(calls as f64),
            per(switches as f64),
            one.load
        ));
        if !one.note.is_empty() {
            text.push_str(&format!("  {}\n", one.note));
        }
    }
    text
}

/// Three digits that say something.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 && small.fract() == 0.0 => format!("{value:.0}"),
        small if small >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// The same for programs.
pub fn json(machine: &Hardware, scale: f64, measured: &[Measured]) -> Value {
    let one = |one: &Measured| {
        let figure = |figure: &Figure| {
            let (least, most) = match figure.due {
                Some(Bound::AtLeast(least)) => (Some(least), None),
                Some(Bound::AtMost(most)) => (None, Some(most)),
                None => (None, None),
            };
            json!({
                "name": figure.name, "value": figure.value, "unit": figure.word,
                "least": least, "most": most, "met": figure.met(), "predecessor": figure.predecessor, "sizes": figure.sizes,
            })
        };
        json!({
            "name": one.name,
            "figures": one.figures.iter().map(figure).collect::<Vec<_>>(),
            "unit": one.unit,
            "units": one.units,
            "seconds": one.spent.seconds,
            "cpuSeconds": {"board": one.spent.board, "generator": one.spent.own, "others": one.spent.others},
            "memoryMiB": {"now": one.spent.rss, "peak": one.spent.peak},
            "bytesToDisk": one.spent.written,
            "commits": one.spent.commits,
            "readsAndWrites": one.spent.calls,
            "contextSwitches": one.spent.switches,
            "loadAverage": one.load,
            "note": one.note,
        })
    };
    json!({
        "machine": {
            "model": machine.model, "cores": machine.cores, "memoryGiB": machine.memory,
            "loadAverageBefore": machine.load,
            "fdatasyncMs": {"p50": machine.sync.0, "p99": machine.sync.1},
        },
        "scale": scale,
        "measures": measured.iter().map(one).collect::<Vec<_>>(),
    })
}
