//! The fleet: every viber with its state, its work and its machine's metrics.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::Instant;
use serde::Deserialize;

use crate::{
    db,
    domain::{ContactState, Viber},
    error::Result,
    state::Board,
    web::pages::join::JoinCard,
    web::{
        AsViewer, Rejection,
        extract::Caller,
        html, urls,
        view::{Badge, PageLocation, Shell, filters, time},
    },
};

/// Vibers of a page.
const MAX_LISTED_VIBERS: u64 = 500;
/// Metrics older than this are shown as old, milliseconds.
const METERS_STALE_MS: i64 = 90_000;

/// The page.
#[derive(Template)]
#[template(path = "fleet/vibers/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    q: String,
    show: ViberFilter,
    all: usize,
    connected: usize,
    rows: Vec<ViberRow>,
    joining: JoinCard,
}

/// Which vibers are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ViberFilter {
    #[default]
    All,
    Working,
    Online,
    Offline,
}

/// A viber in the table: a region of the live stream.
#[derive(Clone, Debug, Template)]
#[template(path = "fleet/vibers/_row.html")]
pub struct ViberRow {
    pub slug: String,
    pub now: Instant,
    pub viber: Viber,
    pub badge: Badge,
    pub meters: Vec<Meter>,
    /// When the meters were read; absent when they are not known.
    pub read_at: Option<Instant>,
}

/// One thing a machine can run out of.
#[derive(Clone, Debug, PartialEq)]
pub struct Meter {
    pub label: &'static str,
    /// 0 to 100.
    pub percent: u64,
    /// From here on it is low.
    pub high: u64,
    pub words: String,
}

/// The filter of the list.
#[derive(Debug, Default, Deserialize)]
pub struct ViberListQuery {
    #[serde(default)]
    q: String,
    #[serde(default)]
    show: ViberFilter,
}

impl ViberRow {
    /// As the database and the last heartbeat know it.
    pub fn of(board: &Board, slug: &str, viber: Viber) -> Self {
        let now = board.clock.now();
        let (meters, read_at) = meters(board, &viber);
        Self { slug: slug.to_owned(), now, badge: state(&viber), meters, read_at, viber }
    }

    fn is_stale(&self) -> bool {
        self.viber.contact.state != ContactState::Connected
            || self.read_at.is_some_and(|at| self.now.millis() - at.millis() > METERS_STALE_MS)
    }

    fn age(&self) -> String {
        match self.viber.contact.state {
            ContactState::Disconnected | ContactState::Unheard => {
                format!("for {}", time::span((self.now.millis() - self.viber.contact.since.millis()).max(0)))
            }
            ContactState::Connected => String::new(),
        }
    }

    fn agents(&self) -> String {
        match self.viber.agents.len() {
            0 => "no agents reported".to_owned(),
            1 => "1 agent".to_owned(),
            n => format!("{n} agents"),
        }
    }
}

/// A connected viber with work is working; the others are what their contact says.
pub fn state(viber: &Viber) -> Badge {
    match (viber.contact.state, viber.running) {
        (ContactState::Connected, 1..) if !viber.drained => Badge::WORKING,
        (ContactState::Connected, 0) if !viber.drained => {
            Badge { word: "Idle", ..Badge::contact(viber.contact.state, false) }
        }
        _ => Badge::contact(viber.contact.state, viber.drained),
    }
}

/// What the viber's last heartbeat reported about its machine.
pub fn meters(board: &Board, viber: &Viber) -> (Vec<Meter>, Option<Instant>) {
    let Some((metrics, at)) = board.hub.metrics(&viber.id) else { return (Vec::new(), None) };
    let share = |used: u64, total: u64| used.min(total).saturating_mul(100).checked_div(total).unwrap_or(0);
    let giga = |bytes: u64| bytes / 1_000_000_000;
    // A percentage: the cast cannot leave 0…100.
    let cpu = metrics.cpu_percent.clamp(0.0, 100.0).round() as u64;
    let memory = share(metrics.memory_used, metrics.memory_total);
    let disk = share(metrics.disk_used, metrics.disk_total);
    let low = |percent: u64, high: u64| if percent >= high { ", low" } else { "" };
    let meters = vec![
        Meter { label: "CPU", percent: cpu, high: 101, words: format!("{cpu} %") },
        Meter {
            label: "Memory",
            percent: memory,
            high: 90,
            words: format!("{}/{} G{}", giga(metrics.memory_used), giga(metrics.memory_total), low(memory, 90)),
        },
        Meter { label: "Disk", percent: disk, high: 85, words: format!("{disk} %{}", low(disk, 85)) },
    ];
    (meters, Some(Instant(at)))
}

/// `GET /t/{team}/vibers`
pub async fn list(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<ViberListQuery>,
) -> Result<Html<String>, Rejection> {
    let vibers = read(&board, &caller).await?;
    let connected = vibers.iter().filter(|viber| viber.contact.state == ContactState::Connected).count();
    let all = vibers.len();
    let q = asked.q.trim().to_lowercase();
    let slug = caller.team.slug.clone();
    let rows = vibers.into_iter().filter(|viber| fits(viber, asked.show, &q));
    let rows = rows.map(|viber| ViberRow::of(&board, &slug, viber)).collect();
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Vibers);
    let joining = JoinCard::offer(&board, &caller);
    html(&Page { shell, slug, q: asked.q, show: asked.show, all, connected, rows, joining })
}

/// The team's vibers.
pub async fn read(board: &Board, caller: &Caller) -> Result<Vec<Viber>> {
    Ok(db::vibers::list(&mut board.db.reader_of(&caller.team.id).await?, None, MAX_LISTED_VIBERS).await?)
}

fn fits(viber: &Viber, show: ViberFilter, q: &str) -> bool {
    let online = viber.contact.state == ContactState::Connected;
    let shown = match show {
        ViberFilter::All => true,
        ViberFilter::Working => viber.running > 0,
        ViberFilter::Online => online,
        ViberFilter::Offline => !online,
    };
    let found = |text: &str| text.to_lowercase().contains(q);
    let label = |(key, value): (&String, &String)| found(&format!("{key}={value}"));
    shown
        && (q.is_empty()
            || found(&viber.name)
            || found(&viber.hostname)
            || viber.labels.iter().any(label)
            || viber.agents.iter().any(|agent| found(&agent.id) || found(&agent.name)))
}
