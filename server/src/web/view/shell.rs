//! The frame around a page: team switcher, rail, theme, live stream.

mod rail;

use std::sync::Arc;

use protocol::{Instant, JoinTokenId, RunId, SessionId, SkillId, ViberId};

use super::filters;
use crate::{
    db,
    domain::{Operator, Team},
    error::Result,
    state::Board,
    web::{
        extract::{Caller, SignedIn},
        urls,
    },
};

use rail::{DAY_MS, RailPlace};
pub use rail::{Rail, SESSION_GROUPS, group_of};

/// The page that the reader is on, which the rail marks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageLocation {
    Home,
    Sessions,
    Session(SessionId),
    Vibers,
    Viber(ViberId),
    /// What is at work on a viber; of one agent, or of all where it is empty.
    Live(ViberId, String),
    Skills,
    /// A version of a skill, and the orders that its page names.
    Skill(SkillId, String),
    Playbooks,
    Run(RunId),
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
            Self::Live(id, agent) => format!("bus:{id}:{}", urls::escape(agent)),
            Self::Files(id, how, path) => format!("files:{id}:{how}:{}", urls::escape(path)),
            Self::Joining(id) => format!("join:{id}"),
            Self::Playbooks => "playbooks".to_owned(),
            Self::Run(id) => format!("run:{id}"),
            Self::Skill(id, ordered) => format!("skill:{id}:{}", urls::escape(ordered)),
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
        let teams = self.teams.iter().map(|team| size_of::<TeamLink>() + team.slug.len() + team.name.len());
        self.rail.bytes() + teams.sum::<usize>()
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

    pub(in crate::web) fn is_at_skills(&self) -> bool {
        matches!(self.here, PageLocation::Skills | PageLocation::Skill(..))
    }

    pub(in crate::web) fn is_at_playbooks(&self) -> bool {
        matches!(self.here, PageLocation::Playbooks | PageLocation::Run(_))
    }

    pub(in crate::web) fn is_at(&self, place: &RailPlace) -> bool {
        match (&self.here, place) {
            (PageLocation::Session(here), RailPlace::Session(id)) => here == id,
            (PageLocation::Run(here), RailPlace::Run(id)) => here == id,
            _ => false,
        }
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

impl Person {
    /// A person by name.
    pub fn new(name: &str) -> Self {
        let initials = name.split_whitespace().filter_map(|word| word.chars().next()).take(2).collect::<String>();
        Self { name: name.to_owned(), initials: initials.to_uppercase() }
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

    use super::{
        rail::{RailGroup, RailRow},
        *,
    };
    use crate::web::view::Badge;

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
            place: RailPlace::Session(id.clone()),
            title: "<script>alert(1)</script>".to_owned(),
            under: "kiln".to_owned(),
            badge: Badge::IDLE,
            unread: true,
            active_at: Instant(0),
        };
        let group = RailGroup { title: "Today", steps: vec![], rows: vec![row], more: String::new() };
        Shell {
            now: Instant(0),
            theme: "dark".to_owned(),
            here: PageLocation::Session(id),
            teams: vec![team.clone()],
            team: Some(team),
            operator: Some(Person::new("Inès Marchetti")),
            rail: Arc::new(Rail { groups: vec![group], ..Rail::default() }),
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
