//! The pane beside a conversation: its tabs, and what the chosen one shows. One tab at a time, chosen by the address.
//!
//! What a tab needs of the database is read into its pane's data, which knows neither the time nor the reader; the
//! view is made of that. The pane's body and the strip are regions of the page's stream.

pub mod artifacts;
mod files;
pub mod memory;
pub mod plan;
pub mod step_diff;

use askama::Template;
use axum::response::{Html, IntoResponse, Redirect, Response};
use protocol::{Instant, SessionId, TeamId, ViberId};

use crate::{
    db,
    domain::{Role, Session},
    error::{Error, Result},
    state::Board,
    web::pages::{Wants, conversation::Conversation},
    web::{Rejection, extract::Caller, urls, view::filters},
};

/// Longest `at` of an address that is accepted, bytes.
const MAX_PLACE_BYTES: usize = 64;

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
pub struct PaneSelection {
    pub tab: Tab,
    /// The address names the tab: a narrow screen shows the pane instead of the conversation.
    pub chosen: bool,
    /// A place in the tab, such as `history`; empty for its front, which the stream keeps current.
    pub at: String,
}

impl PaneSelection {
    /// From the address; a tab that does not exist is the first one.
    pub fn of(tab: Option<&str>, at: Option<&str>) -> Self {
        let named = tab.and_then(Tab::parse);
        let at = at.filter(|at| named.is_some() && at.len() <= MAX_PLACE_BYTES).unwrap_or_default().to_owned();
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
pub struct PaneData {
    body: TabData,
    counts: Counts,
}

#[derive(Clone, Debug)]
enum TabData {
    Plan(Box<plan::PlanPane>),
    Artifacts(artifacts::ArtifactsPane),
    Files(files::FilesPane),
    Memory(Box<memory::MemoryPane>),
}

/// Numbers in the strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Changes of the plan that wait for a person.
    proposals: usize,
    /// The same for `MEMORY.md`.
    memory: usize,
}

impl PaneData {
    /// What the asked tab shows now.
    pub async fn load(board: &Board, team: &TeamId, session: &Session, asked: &PaneSelection) -> Result<Self> {
        let tx = &mut board.db.reader_of(team).await?;
        let body = match asked.tab {
            Tab::Plan => TabData::Plan(Box::new(plan::PlanPane::read(tx, session, &asked.at).await?)),
            Tab::Artifacts => TabData::Artifacts(artifacts::ArtifactsPane::read(tx, session).await?),
            Tab::Files => TabData::Files(files::FilesPane::read(tx, session, &asked.at).await?),
            Tab::Memory => TabData::Memory(Box::new(memory::MemoryPane::read(tx, session, &asked.at).await?)),
        };
        let [proposals, memory] = db::proposals::waiting(tx, &session.id).await?;
        Ok(Self { body, counts: Counts { proposals, memory } })
    }
}

/// The pane as a reader sees it.
pub struct Pane<'a> {
    pub asked: &'a PaneSelection,
    data: &'a PaneData,
    context: PaneContext,
}

/// Who looks at what, for every tab's view.
#[derive(Clone, Debug)]
pub struct PaneContext {
    pub slug: String,
    pub session: SessionId,
    pub viber: ViberId,
    pub may_act: bool,
    pub now: Instant,
}

/// The answer to a form of a tab: the front of the tab as it is now, or the page with it.
pub async fn answer(
    board: &Board,
    caller: &Caller,
    session: &SessionId,
    wants: Wants,
    tab: Tab,
) -> Result<Response, Rejection> {
    if wants == Wants::Page {
        return Ok(Redirect::to(&urls::pane(&caller.team.slug, session, tab.word())).into_response());
    }
    let asked = PaneSelection { tab, ..PaneSelection::default() };
    let conversation = Conversation::load(board, &caller.team.id, session, None).await?;
    let data = PaneData::load(board, &caller.team.id, &conversation.session, &asked).await?;
    let pane = Pane::of(&asked, &data, &conversation, caller, board.clock.now());
    Ok(Html(pane.body()?).into_response())
}

/// HTML of a tab, bytes. With a conversation (`conversation::MAX_CONVERSATION_BYTES`), the queue in the dock and the rail at
/// their largest a page stays below 300 KiB.
const MAX_TAB_BYTES: usize = 90_000;

impl<'a> Pane<'a> {
    pub fn of(
        asked: &'a PaneSelection,
        data: &'a PaneData,
        conversation: &Conversation,
        caller: &Caller,
        now: Instant,
    ) -> Self {
        let context = PaneContext {
            slug: caller.team.slug.clone(),
            session: conversation.session.id.clone(),
            viber: conversation.session.viber_id.clone(),
            may_act: caller.role >= Role::Operator && conversation.viber.is_some(),
            now,
        };
        Self { asked, data, context }
    }

    /// The chosen tab. One that is too large to stand beside a conversation says where its content is.
    pub fn body(&self) -> Result<String> {
        let html = match &self.data.body {
            TabData::Plan(data) => render(&plan::PlanView::of(data, &self.context)),
            TabData::Artifacts(data) => render(&artifacts::ArtifactsView::of(data, &self.context)),
            TabData::Files(data) => render(&files::FilesView::of(data, &self.context)),
            TabData::Memory(data) => render(&memory::MemoryView::of(data, &self.context)),
        }?;
        if html.len() <= MAX_TAB_BYTES {
            return Ok(html);
        }
        let PaneContext { slug, session, viber, .. } = &self.context;
        render(&OversizedTab {
            tab: self.asked.tab.word(),
            front: self.asked.at.is_empty(),
            text: (self.asked.tab == Tab::Plan && self.asked.at.is_empty())
                .then(|| urls::pane_at(slug, session, "plan", "edit")),
            folder: urls::folder(slug, viber, &format!("sessions/{session}")),
        })
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> Result<String> {
        let context = PaneContext { now: Instant(0), ..self.context.clone() };
        Pane { context, asked: self.asked, data: self.data }.body()
    }

    /// The strip.
    pub fn strip(&self) -> Result<String> {
        let tabs = Tab::ALL.iter().map(|tab| Link {
            title: tab.title(),
            href: urls::pane(&self.context.slug, &self.context.session, tab.word()),
            count: match tab {
                Tab::Plan => self.data.counts.proposals,
                Tab::Artifacts => 0,
                Tab::Files => 0,
                Tab::Memory => self.data.counts.memory,
            },
            // On a wide screen one tab is always open; on a narrow one only when the address names it.
            current: (*tab == self.asked.tab).then_some(if self.asked.chosen { "page" } else { "true" }),
        });
        let conversation = urls::session(&self.context.slug, &self.context.session);
        render(&Strip { conversation, on_talk: !self.asked.chosen, tabs: tabs.collect() })
    }
}

/// Shown instead of a tab that is too large.
#[derive(Template)]
#[template(path = "documents/pane/_too_large.html")]
struct OversizedTab {
    tab: &'static str,
    front: bool,
    /// Where its text is changed.
    text: Option<String>,
    /// The session's files on its viber.
    folder: String,
}

#[derive(Template)]
#[template(path = "documents/pane/_tabs.html")]
struct Strip {
    conversation: String,
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
        let asked = PaneSelection::of(Some("plan"), Some("history"));
        assert_eq!((asked.tab, asked.view(), asked.at.as_str()), (Tab::Plan, "pane", "history"));
        for odd in [Some(""), Some("nothing"), Some("../plan"), None] {
            let asked = PaneSelection::of(odd, Some("history"));
            assert_eq!((asked.tab, asked.view(), asked.at.as_str()), (Tab::Plan, "talk", ""), "{odd:?}");
        }
        assert_eq!(PaneSelection::of(Some("plan"), Some(&"x".repeat(65))).at, "");
    }
}
