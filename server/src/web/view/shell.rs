//! The frame around a page: team switcher, rail, theme, live stream.

use std::sync::Arc;

use protocol::{Instant, JoinTokenId, OperatorId, SessionId, ViberId};

use super::{Badge, filters, truncate::truncate_escaped};
use crate::{
    db::{self, DbError, TeamTx, sessions::UnreadCount},
    domain::{Operator, SessionLine, Team},
    error::Result,
    state::Board,
    web::{
        extract::{Caller, SignedIn},
        urls,
    },
};

/// Sessions that the rail shows.
const MAX_RAIL_SESSIONS: u64 = 60;
/// Longest title of a session in the rail, bytes of HTML: a line there is shorter.
const MAX_RAIL_TITLE_BYTES: usize = 240;
/// A day, milliseconds.
const DAY_MS: i64 = 86_400_000;

/// The page that the reader is on, which the rail marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageLocation {
    Home,
    Sessions,
    Session(SessionId),
    Vibers,
    Viber(ViberId),
    Skills,
    /// Files of a viber: how they are looked at (`folder`, `view`, `edit.` and the version that is edited), and where.
    Files(ViberId, String, String),
    Joining(JoinTokenId),
    Settings,
    Account,
    Elsewhere,
}

impl PageLocation {
    /// What the live stream calls it; `Viber` and `Session` with their ids.
    pub fn view(&self) -> String {
        match self {
            Self::Home => "home".to_owned(),
            Self::Vibers => "vibers".to_owned(),
            Self::Session(id) => format!("session:{id}"),
            Self::Viber(id) => format!("viber:{id}"),
            Self::Files(id, how, path) => format!("files:{id}:{how}:{}", urls::escape(path)),
            Self::Joining(id) => format!("join:{id}"),
            Self::Sessions | Self::Skills | Self::Settings | Self::Account | Self::Elsewhere => "rail".to_owned(),
        }
    }

    pub(in crate::web) fn word(&self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Session(_) => "session",
            _ => "page",
        }
    }
}

/// A team in the switcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamLink {
    pub slug: String,
    pub name: String,
}

/// Who is signed in; `None` in a shell means an API token reads a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    pub name: String,
    pub initials: String,
}

/// A session in the rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailRow {
    pub id: SessionId,
    pub title: String,
    pub viber: String,
    pub badge: Badge,
    pub unread: bool,
    pub active_at: Instant,
}

/// Sessions of one age or need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailGroup {
    pub title: &'static str,
    pub rows: Vec<RailRow>,
}

/// How many vibers there are, and how many of them can be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub all: usize,
    pub connected: usize,
}

/// What the rail shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rail {
    pub groups: Vec<RailGroup>,
    pub fleet: Fleet,
    pub unread: Unread,
}

/// How many sessions the reader has not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unread(pub UnreadCount);

impl Unread {
    pub(in crate::web) fn is_none(self) -> bool {
        self.0.count == 0
    }

    /// `7`, `99+`; empty for none.
    pub(in crate::web) fn words(self) -> String {
        let more = if self.0.or_more { "+" } else { "" };
        if self.is_none() { String::new() } else { format!("{}{more}", self.0.count) }
    }
}

/// The frame around a page.
#[derive(Clone, Debug)]
pub struct Shell {
    pub now: Instant,
    /// `system`, `light` or `dark`.
    pub theme: String,
    pub here: PageLocation,
    pub team: Option<TeamLink>,
    pub teams: Vec<TeamLink>,
    pub operator: Option<Person>,
    pub rail: Arc<Rail>,
    /// The live stream's address; pages outside a team have none.
    pub live: Option<String>,
    /// Where that stream goes on; empty: from now.
    pub cursor: String,
}

/// What a frame needs of the database.
#[derive(Clone, Debug)]
pub struct ShellData {
    teams: Vec<TeamLink>,
    rail: Arc<Rail>,
}

fn with_pane(live: String, tab: Option<&str>, is_named: bool) -> String {
    let Some(tab) = tab else { return live };
    let key = if is_named { "pane" } else { "shown" };
    format!("{live}&{key}={tab}")
}

impl ShellData {
    /// As it is now.
    pub async fn load(board: &Board, caller: &Caller) -> Result<Self> {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let teams = match caller.reader() {
            Some(reader) => db::teams::of_operator(tx.without_team(), reader).await?,
            None => Vec::new(),
        };
        let rail = Rail::read(&mut tx, caller.reader(), board.clock.now()).await?;
        Ok(Self { teams: teams.iter().map(|(team, _)| TeamLink::new(team)).collect(), rail: Arc::new(rail) })
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        let rows = self.rail.groups.iter().flat_map(|group| &group.rows);
        let rows = rows.map(|row| size_of::<RailRow>() + row.id.as_str().len() + row.title.len() + row.viber.len());
        let teams = self.teams.iter().map(|team| size_of::<TeamLink>() + team.slug.len() + team.name.len());
        rows.sum::<usize>() + teams.sum::<usize>()
    }
}

impl TeamLink {
    fn new(team: &Team) -> Self {
        Self { slug: team.slug.clone(), name: team.name.clone() }
    }
}

impl Shell {
    /// The frame of a page of a team.
    pub async fn load(board: &Board, caller: &Caller) -> Result<Self> {
        Ok(Self::of(&ShellData::load(board, caller).await?, caller, board.clock.now()))
    }

    /// The frame, from what was read for it on the same day.
    pub fn of(frame: &ShellData, caller: &Caller, now: Instant) -> Self {
        Self {
            now,
            theme: theme(caller.operator.as_ref()),
            here: PageLocation::Elsewhere,
            team: Some(TeamLink::new(&caller.team)),
            teams: frame.teams.clone(),
            operator: caller.operator.as_ref().map(|operator| Person::new(&operator.name)),
            rail: frame.rail.clone(),
            live: Some(urls::live(&caller.team.slug, "rail")),
            cursor: String::new(),
        }
    }

    /// The day that the rail's groups go by.
    pub fn day(now: Instant) -> i64 {
        now.millis().div_euclid(DAY_MS)
    }

    /// The frame of a page outside every team.
    pub async fn load_alone(board: &Board, signed_in: &SignedIn) -> Result<Self> {
        let teams = db::teams::of_operator(&mut *board.db.reader().await?, &signed_in.operator.id).await?;
        Ok(Self {
            now: board.clock.now(),
            theme: theme(Some(&signed_in.operator)),
            here: PageLocation::Account,
            team: None,
            teams: teams.iter().map(|(team, _)| TeamLink::new(team)).collect(),
            operator: Some(Person::new(&signed_in.operator.name)),
            rail: Arc::default(),
            live: None,
            cursor: String::new(),
        })
    }

    /// The same frame around this place; its stream shows what the place needs.
    pub fn at(mut self, here: PageLocation) -> Self {
        if let Some(team) = &self.team {
            self.live = Some(urls::live(&team.slug, &here.view()));
        }
        self.here = here;
        self
    }

    /// The same frame; its stream also shows this tab of the pane, which the address names or not. Without one it opens the
    /// pane when there is something to show.
    pub fn with_pane(mut self, tab: Option<&str>, is_named: bool) -> Self {
        self.live = self.live.map(|live| with_pane(live, tab, is_named));
        self
    }

    /// The stream of a session's page with this tab of the pane.
    pub fn stream_with_pane(slug: &str, session: &SessionId, tab: Option<&str>, is_named: bool) -> String {
        with_pane(urls::live(slug, &PageLocation::Session(session.clone()).view()), tab, is_named)
    }

    /// The same frame; its stream shows the list with these parameters of its address.
    pub fn with_list(mut self, parameters: &str) -> Self {
        if !parameters.is_empty() {
            self.live = self.live.map(|live| format!("{live}&{parameters}"));
        }
        self
    }

    /// The same frame with a stream for the rail alone: the page shows something past.
    pub fn still(mut self) -> Self {
        self.live = self.team.as_ref().map(|team| urls::live(&team.slug, "rail"));
        self
    }

    /// The same frame; its stream goes on from here.
    pub fn from(mut self, cursor: String) -> Self {
        self.cursor = cursor;
        self
    }

    /// The name over the rail.
    pub fn team_name(&self) -> &str {
        self.team.as_ref().map_or("Viber Board", |team| &team.name)
    }

    /// The account's page, which leads back to this team.
    pub(in crate::web) fn account(&self) -> String {
        self.team.as_ref().map_or_else(|| urls::account().to_owned(), |team| urls::account_from(&team.slug))
    }

    pub(in crate::web) fn is_team(&self, slug: &str) -> bool {
        self.team.as_ref().is_some_and(|team| team.slug == slug)
    }

    pub(in crate::web) fn is_session(&self, id: &SessionId) -> bool {
        matches!(&self.here, PageLocation::Session(here) if here == id)
    }

    /// The theme's switch goes round: system, light, dark.
    pub fn next_theme(&self) -> &'static str {
        match self.theme.as_str() {
            "system" => "light",
            "light" => "dark",
            _ => "system",
        }
    }

    /// The theme in words.
    pub fn theme_words(&self) -> &'static str {
        match self.theme.as_str() {
            "light" => "light",
            "dark" => "dark",
            _ => "follows the system",
        }
    }
}

fn theme(operator: Option<&Operator>) -> String {
    operator.map_or_else(|| "system".to_owned(), |operator| operator.theme.clone())
}

impl Rail {
    /// What the rail shows to this reader.
    pub async fn read(tx: &mut TeamTx<'_>, reader: Option<&OperatorId>, now: Instant) -> Result<Self, DbError> {
        let filter = db::sessions::SessionFilter::default();
        let lines = db::sessions::list(tx, reader, &filter, None, MAX_RAIL_SESSIONS).await?;
        let (all, connected) = db::vibers::connectivity(tx).await?;
        let unread = match reader {
            Some(reader) => db::sessions::count_unread(tx, reader).await?,
            None => UnreadCount::default(),
        };
        Ok(Self { groups: groups(lines, now), fleet: Fleet { all, connected }, unread: Unread(unread) })
    }
}

/// Whether nothing is at work: only then is a session unread.
fn ended(line: &SessionLine) -> bool {
    line.task.as_ref().is_none_or(|task| task.state.is_final())
}

/// The groups of a list of sessions, in order.
pub const SESSION_GROUPS: [&str; 6] = ["Needs you", "Working", "Pinned", "Today", "Last 7 days", "Older"];

/// Which of [`SESSION_GROUPS`] a session belongs to.
pub fn group_of(line: &SessionLine, now: Instant) -> usize {
    let badge = line.task.as_ref().map_or(Badge::IDLE, |task| Badge::brief(task, line.contact.state));
    let today = now.millis() - now.millis().rem_euclid(DAY_MS);
    match badge.state {
        "waiting" => 0,
        "failed" if line.unread && ended(line) => 0,
        _ if !ended(line) => 1,
        _ if line.session.pinned_at.is_some() => 2,
        _ if line.session.active_at.millis() >= today => 3,
        _ if line.session.active_at.millis() >= today - 6 * DAY_MS => 4,
        _ => 5,
    }
}

fn groups(lines: Vec<SessionLine>, now: Instant) -> Vec<RailGroup> {
    let mut groups = SESSION_GROUPS.map(|title| RailGroup { title, rows: Vec::new() });
    for line in lines {
        let badge = line.task.as_ref().map_or(Badge::IDLE, |task| Badge::brief(task, line.contact.state));
        let unread = line.unread && ended(&line);
        let place = group_of(&line, now);
        groups[place].rows.push(RailRow {
            id: line.session.id,
            title: truncate_escaped(&line.session.title, MAX_RAIL_TITLE_BYTES),
            viber: line.viber_name,
            badge,
            unread,
            active_at: line.session.active_at,
        });
    }
    groups.into_iter().filter(|group| !group.rows.is_empty()).collect()
}

impl Person {
    /// A person by name.
    pub fn new(name: &str) -> Self {
        let initials = name.split_whitespace().filter_map(|word| word.chars().next()).take(2).collect::<String>();
        Self { name: name.to_owned(), initials: initials.to_uppercase() }
    }
}

impl Fleet {
    pub(in crate::web) fn state(&self) -> &'static str {
        if self.connected > 0 { "online" } else { "offline" }
    }

    pub(in crate::web) fn icon(&self) -> &'static str {
        if self.all > self.connected || self.all == 0 { "offline" } else { "online" }
    }

    pub(in crate::web) fn words(&self) -> String {
        match (self.all, self.all - self.connected.min(self.all)) {
            (0, _) => "none yet".to_owned(),
            (all, 0) => format!("{all} online"),
            (all, offline) if all == offline => "all offline".to_owned(),
            (_, offline) => format!("{offline} offline"),
        }
    }
}

/// The rail's regions of the live stream.
#[derive(askama::Template)]
#[template(path = "rail/_regions.html")]
pub struct RailView<'a> {
    pub shell: &'a Shell,
}

#[cfg(test)]
mod tests {
    use askama::Template;

    use super::*;

    /// A page as every page is: a `shell`, a title, a bar, a body.
    #[derive(Template)]
    #[template(
        ext = "html",
        source = r#"{% extends "_layout.html" %}{% block title %}A{% endblock %}{% block main %}<p>B</p>{% endblock %}"#
    )]
    struct Page {
        shell: Shell,
    }

    fn shell() -> Shell {
        let team = TeamLink { slug: "home".to_owned(), name: "<b>Home</b>".to_owned() };
        let id = SessionId::new(1);
        let row = RailRow {
            id: id.clone(),
            title: "<script>alert(1)</script>".to_owned(),
            viber: "kiln".to_owned(),
            badge: Badge::IDLE,
            unread: true,
            active_at: Instant(0),
        };
        Shell {
            now: Instant(0),
            theme: "dark".to_owned(),
            here: PageLocation::Session(id),
            teams: vec![team.clone()],
            team: Some(team),
            operator: Some(Person::new("Inès Marchetti")),
            rail: Arc::new(Rail { groups: vec![RailGroup { title: "Today", rows: vec![row] }], ..Rail::default() }),
            live: Some(urls::live("home", "home")),
            cursor: String::new(),
        }
    }

    #[test]
    fn names_are_text_and_the_current_session_is_marked() {
        let html = Page { shell: shell() }.render().expect("renders");
        assert!(!html.contains("<script>alert"), "{html}");
        assert!(html.contains("&#60;b&#62;Home"), "{html}");
        assert!(html.contains(r#"aria-current="page""#), "{html}");
        assert!(html.contains(r#"data-theme="dark""#) && html.contains(">IM<"), "{html}");
        assert!(!html.contains("style="), "inline style: {html}");
    }
}
