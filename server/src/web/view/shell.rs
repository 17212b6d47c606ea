//! The frame around a page: team switcher, rail, theme, live stream.

use protocol::{Instant, SessionId};

use super::{Badge, filters};
use crate::web::links;

/// Where the reader is, for the mark in the rail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Home,
    Sessions,
    Session(SessionId),
    Vibers,
    Settings,
    Account,
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
    pub unread: usize,
}

/// The frame around a page.
#[derive(Clone, Debug)]
pub struct Shell {
    pub now: Instant,
    /// `system`, `light` or `dark`.
    pub theme: String,
    pub here: Place,
    pub team: Option<TeamLink>,
    pub teams: Vec<TeamLink>,
    pub operator: Option<Person>,
    pub rail: Rail,
    /// The live stream's address; pages outside a team have none.
    pub live: Option<String>,
}

impl Shell {
    /// The name over the rail.
    pub fn team_name(&self) -> &str {
        self.team.as_ref().map_or("Viber Board", |team| &team.name)
    }

    fn is_team(&self, slug: &str) -> bool {
        self.team.as_ref().is_some_and(|team| team.slug == slug)
    }

    fn is_session(&self, id: &SessionId) -> bool {
        matches!(&self.here, Place::Session(here) if here == id)
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

impl Person {
    /// A person by name.
    pub fn new(name: &str) -> Self {
        let initials = name.split_whitespace().filter_map(|word| word.chars().next()).take(2).collect::<String>();
        Self { name: name.to_owned(), initials: initials.to_uppercase() }
    }
}

impl Fleet {
    fn state(&self) -> &'static str {
        if self.connected > 0 { "online" } else { "offline" }
    }

    fn icon(&self) -> &'static str {
        if self.all > self.connected || self.all == 0 { "offline" } else { "online" }
    }

    fn words(&self) -> String {
        match (self.all, self.all - self.connected.min(self.all)) {
            (0, _) => "none yet".to_owned(),
            (all, 0) => format!("{all} online"),
            (all, offline) if all == offline => "all offline".to_owned(),
            (_, offline) => format!("{offline} offline"),
        }
    }
}

/// The rail as a region of the live stream.
#[derive(askama::Template)]
#[template(path = "_rail.html")]
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
            here: Place::Session(id),
            teams: vec![team.clone()],
            team: Some(team),
            operator: Some(Person::new("Inès Marchetti")),
            rail: Rail { groups: vec![RailGroup { title: "Today", rows: vec![row] }], ..Rail::default() },
            live: Some(links::live("home", "home")),
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
