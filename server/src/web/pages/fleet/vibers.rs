//! The fleet: every viber with its state, its work and its machine's metrics, page by page.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::{Instant, ViberId};
use serde::Deserialize;

use crate::{
    db::{self, TeamTx, vibers::FoundVibers},
    domain::{ContactState, Viber, ViberFilter},
    error::{Error, Result},
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
const VIBERS_PER_PAGE: usize = 50;
/// Metrics older than this are shown as old, milliseconds.
const METERS_STALE_MS: i64 = 90_000;

/// The page.
#[derive(Template)]
#[template(path = "fleet/vibers/list.html")]
struct Page {
    shell: Shell,
    slug: String,
    asked: ViberListQuery,
    rows: Vec<ViberRow>,
    next: Option<String>,
    joining: JoinCard,
}

impl Page {
    /// The list with another filter and the same words.
    fn shown(&self, show: ViberFilter) -> String {
        ViberListQuery { show, after: String::new(), ..self.asked.clone() }.address(&self.slug)
    }
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

/// What the list shows.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ViberListQuery {
    #[serde(default)]
    pub q: String,
    #[serde(default)]
    pub show: ViberFilter,
    /// The last viber of the page before.
    #[serde(default)]
    pub after: String,
}

impl ViberListQuery {
    /// As parameters of an address; empty for the first page of all vibers.
    fn parameters(&self) -> String {
        let mut given = Vec::new();
        if !self.q.is_empty() {
            given.push(format!("q={}", urls::escape(&self.q)));
        }
        if self.show != ViberFilter::All {
            given.push(format!("show={}", self.show.as_str()));
        }
        if !self.after.is_empty() {
            given.push(format!("after={}", urls::escape(&self.after)));
        }
        given.join("&")
    }

    /// As parameters of the live stream of a page with these rows: it also shows what became of those that no longer match.
    fn stream_parameters(&self, rows: &[ViberRow]) -> String {
        let ids: Vec<&str> = rows.iter().map(|row| row.viber.id.as_str()).collect();
        let rows = if ids.is_empty() { String::new() } else { format!("rows={}", ids.join(",")) };
        [self.parameters(), rows].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("&")
    }

    fn address(&self, slug: &str) -> String {
        let parameters = self.parameters();
        if parameters.is_empty() { urls::vibers(slug) } else { format!("{}?{parameters}", urls::vibers(slug)) }
    }
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
    let asked = ViberListQuery { q: protocol::text::head(asked.q.trim(), 200).to_owned(), ..asked };
    let found = read(&mut board.db.reader_of(&caller.team.id).await?, &asked).await?;
    let slug = caller.team.slug.clone();
    let rows: Vec<ViberRow> = found.vibers.into_iter().map(|viber| ViberRow::of(&board, &slug, viber)).collect();
    let next = found.next.map(|last| ViberListQuery { after: last.to_string(), ..asked.clone() }.address(&slug));
    let shell = Shell::load(&board, &caller).await?.at(PageLocation::Vibers).with_list(&asked.stream_parameters(&rows));
    let joining = JoinCard::offer(&board, &caller);
    html(&Page { shell, slug, asked, rows, next, joining })
}

/// The vibers of a page.
async fn read(tx: &mut TeamTx<'_>, asked: &ViberListQuery) -> Result<FoundVibers> {
    // An invalid cursor starts at the top.
    let after: Option<ViberId> = asked.after.parse().ok();
    Ok(db::vibers::search(tx, asked.show, &db::clean(&asked.q), after.as_ref(), VIBERS_PER_PAGE).await?)
}

/// The rows that a page says it shows; what is not an id is none.
pub fn shown_rows(text: &str) -> Vec<ViberId> {
    text.split(',').take(VIBERS_PER_PAGE).filter_map(|id| id.parse().ok()).collect()
}

/// The vibers of a page that is open, as they are now: those that match, and those of its rows that no longer do.
/// `NotFound` when a row's viber was revoked: the page has to be fetched anew.
pub async fn watched(board: &Board, caller: &Caller, asked: &ViberListQuery, rows: &[ViberId]) -> Result<Vec<Viber>> {
    let mut tx = board.db.reader_of(&caller.team.id).await?;
    let mut vibers = read(&mut tx, asked).await?.vibers;
    for id in rows {
        if vibers.iter().all(|viber| viber.id != *id) {
            vibers.push(db::vibers::load(&mut tx, id).await?.ok_or(Error::NotFound)?);
        }
    }
    Ok(vibers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_found_again_by_its_address() {
        let address = |q: &str, show, after: &str| {
            ViberListQuery { q: q.to_owned(), show, after: after.to_owned() }.address("home")
        };
        assert_eq!(address("", ViberFilter::All, ""), "/t/home/vibers");
        assert_eq!(
            address("a b&", ViberFilter::Offline, "vib_1"),
            "/t/home/vibers?q=a%20b%26&show=offline&after=vib_1"
        );
    }
}
