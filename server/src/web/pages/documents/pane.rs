//! The pane beside a conversation: its tabs, and what the chosen one shows. One tab at a time, chosen by the address.
//!
//! What a tab needs of the database is read into its `Held`, without ages and without a reader; its view is made of that.
//! The pane's body and the strip are regions of the page's stream.

pub mod artifacts;
mod files;
pub mod memory;
pub mod plan;

use askama::Template;
use protocol::{Instant, SessionId, TeamId, ViberId};

use crate::{
    db,
    domain::{Role, Session},
    error::{Error, Result},
    state::Board,
    web::pages::conversation::Talk,
    web::{extract::Caller, links, view::filters},
};

/// Longest `at` of an address that is looked at, bytes.
const MAX_AT: usize = 64;

/// What a pane can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Tab {
    #[default]
    Plan,
    Artifacts,
    Files,
    Memory,
}

impl Tab {
    /// In the order of the strip.
    pub const ALL: &'static [Self] = &[Self::Plan, Self::Artifacts, Self::Files, Self::Memory];

    /// The word in the address.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Artifacts => "artifacts",
            Self::Files => "files",
            Self::Memory => "memory",
        }
    }

    /// The word in the strip.
    pub fn title(self) -> &'static str {
        match self {
            Self::Plan => "Plan",
            Self::Artifacts => "Artifacts",
            Self::Files => "Files",
            Self::Memory => "Memory",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tab| tab.word() == word)
    }
}

/// Which tab, and which place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asked {
    pub tab: Tab,
    /// The address names the tab: a narrow screen shows the pane instead of the conversation.
    pub chosen: bool,
    /// A place in the tab, such as `history`; empty for its front, which the stream keeps current.
    pub at: String,
}

impl Asked {
    /// From the address; a tab that does not exist is the first one.
    pub fn of(tab: Option<&str>, at: Option<&str>) -> Self {
        let named = tab.and_then(Tab::parse);
        let at = at.filter(|at| named.is_some() && at.len() <= MAX_AT).unwrap_or_default().to_owned();
        Self { tab: named.unwrap_or_default(), chosen: named.is_some(), at }
    }

    /// The tab as the address names it.
    pub fn named(&self) -> Option<&'static str> {
        self.chosen.then(|| self.tab.word())
    }

    /// `talk` or `pane`: what a narrow screen shows.
    pub fn view(&self) -> &'static str {
        if self.chosen { "pane" } else { "talk" }
    }
}

/// What the database holds for a pane.
#[derive(Clone, Debug)]
pub struct Held {
    body: Body,
    counts: Counts,
}

#[derive(Clone, Debug)]
enum Body {
    Plan(Box<plan::Held>),
    Artifacts(artifacts::Held),
    Files(files::Held),
    Memory(Box<memory::Held>),
}

/// Numbers in the strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Changes of the plan that wait for a person.
    proposals: usize,
    /// Changes of `MEMORY.md` that do.
    memory: usize,
}

impl Held {
    /// What the asked tab shows now.
    pub async fn load(board: &Board, team: &TeamId, session: &Session, asked: &Asked) -> Result<Self> {
        let tx = &mut board.db.reader_of(team).await?;
        let body = match asked.tab {
            Tab::Plan => Body::Plan(Box::new(plan::Held::read(tx, session, &asked.at).await?)),
            Tab::Artifacts => Body::Artifacts(artifacts::Held::read(tx, session).await?),
            Tab::Files => Body::Files(files::Held::read(tx, session, &asked.at).await?),
            Tab::Memory => Body::Memory(Box::new(memory::Held::read(tx, session, &asked.at).await?)),
        };
        let [proposals, memory] = db::proposals::waiting(tx, &session.id).await?;
        Ok(Self { body, counts: Counts { proposals, memory } })
    }
}

/// The pane as a reader sees it.
pub struct Pane<'a> {
    pub asked: &'a Asked,
    held: &'a Held,
    place: Place,
}

/// Who looks at what, for every tab's view.
#[derive(Clone, Debug)]
pub struct Place {
    pub slug: String,
    pub session: SessionId,
    pub viber: ViberId,
    pub may_act: bool,
    pub now: Instant,
}

/// HTML of a tab, bytes. With a conversation (`talk::WEIGHT`), the queue in the dock and the rail at their fullest a page is
/// below 300 KiB.
const WEIGHT: usize = 90_000;

impl<'a> Pane<'a> {
    pub fn of(asked: &'a Asked, held: &'a Held, talk: &Talk, caller: &Caller, now: Instant) -> Self {
        let place = Place {
            slug: caller.team.slug.clone(),
            session: talk.session.id.clone(),
            viber: talk.session.viber_id.clone(),
            may_act: caller.role >= Role::Operator && talk.viber.is_some(),
            now,
        };
        Self { asked, held, place }
    }

    /// The chosen tab. One that is too much to stand beside a conversation says where the rest is.
    pub fn body(&self) -> Result<String> {
        let html = match &self.held.body {
            Body::Plan(held) => render(&plan::PlanView::of(held, &self.place)),
            Body::Artifacts(held) => render(&artifacts::ArtifactsView::of(held, &self.place)),
            Body::Files(held) => render(&files::FilesView::of(held, &self.place)),
            Body::Memory(held) => render(&memory::MemoryView::of(held, &self.place)),
        }?;
        if html.len() <= WEIGHT {
            return Ok(html);
        }
        let Place { slug, session, viber, .. } = &self.place;
        render(&TooMuch {
            tab: self.asked.tab.word(),
            front: self.asked.at.is_empty(),
            text: (self.asked.tab == Tab::Plan && self.asked.at.is_empty())
                .then(|| links::pane_at(slug, session, "plan", "edit")),
            folder: links::folder(slug, viber, &format!("sessions/{session}")),
        })
    }

    /// The same without ages: two that differ elsewhere are told apart.
    pub fn ageless(&self) -> Result<String> {
        let place = Place { now: Instant(0), ..self.place.clone() };
        Pane { place, asked: self.asked, held: self.held }.body()
    }

    /// The strip.
    pub fn strip(&self) -> Result<String> {
        let tabs = Tab::ALL.iter().map(|tab| Link {
            title: tab.title(),
            href: links::pane(&self.place.slug, &self.place.session, tab.word()),
            count: match tab {
                Tab::Plan => self.held.counts.proposals,
                Tab::Artifacts => 0,
                Tab::Files => 0,
                Tab::Memory => self.held.counts.memory,
            },
            // On a wide screen one tab is always open; on a narrow one only when the address names it.
            current: (*tab == self.asked.tab).then_some(if self.asked.chosen { "page" } else { "true" }),
        });
        let talk = links::session(&self.place.slug, &self.place.session);
        render(&Strip { talk, on_talk: !self.asked.chosen, tabs: tabs.collect() })
    }
}

/// In the place of a tab that is too much.
#[derive(Template)]
#[template(path = "work/sessions/_too_much.html")]
struct TooMuch {
    tab: &'static str,
    front: bool,
    /// Where its text is changed.
    text: Option<String>,
    /// The session's files on its viber.
    folder: String,
}

#[derive(Template)]
#[template(path = "work/sessions/_tabs.html")]
struct Strip {
    talk: String,
    on_talk: bool,
    tabs: Vec<Link>,
}

struct Link {
    title: &'static str,
    href: String,
    count: usize,
    current: Option<&'static str>,
}

fn render(template: &impl Template) -> Result<String> {
    template.render().map_err(|error| Error::Internal(format!("a template: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_tab_and_a_place_in_it() {
        let asked = Asked::of(Some("plan"), Some("history"));
        assert_eq!((asked.tab, asked.view(), asked.at.as_str()), (Tab::Plan, "pane", "history"));
        for odd in [Some(""), Some("nothing"), Some("../plan"), None] {
            let asked = Asked::of(odd, Some("history"));
            assert_eq!((asked.tab, asked.view(), asked.at.as_str()), (Tab::Plan, "talk", ""), "{odd:?}");
        }
        assert_eq!(Asked::of(Some("plan"), Some(&"x".repeat(65))).at, "");
    }
}
