//! The pane beside a conversation: its tabs, and what the chosen one shows. One tab at a time, chosen by the address, else by
//! what the reader chose last, else by what there is: it opens by itself with the session's first plan or artifact.
//!
//! What a tab needs of the database is read into its pane's data, which knows neither the time nor the reader; the
//! view is made of that. The pane's body and the strip are regions of the page's stream.

pub mod artifacts;
mod context;
mod files;
pub mod memory;
pub mod plan;
pub mod step_diff;
mod strip;
mod swap;
mod tree;

use askama::Template;
use axum::{
    Form,
    extract::State,
    http::StatusCode,
    response::{Html, IntoResponse, Redirect, Response},
};
use protocol::{Instant, OperatorId, SessionId, TeamId, ViberId};
use serde::Deserialize;

use crate::{
    actions, db,
    domain::{Role, Session, context::overview::percent},
    error::{Error, Result},
    state::Board,
    web::pages::{Wants, conversation::Conversation},
    web::{
        AsViewer, Rejection,
        extract::{Caller, Id},
        urls,
        view::filters,
    },
};

pub use context::{compact, pin};
pub use swap::show;

use strip::{Link, Strip, count};

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
    Context,
    /// Shown where there is a tree of tasks.
    Tree,
}

impl Tab {
    /// In the order of the strip.
    pub const ALL: &'static [Self] =
        &[Self::Tree, Self::Plan, Self::Artifacts, Self::Files, Self::Memory, Self::Context];

    /// The word in the address.
    pub fn word(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Artifacts => "artifacts",
            Self::Files => "files",
            Self::Memory => "memory",
            Self::Context => "context",
            Self::Tree => "tree",
        }
    }

    /// The word in the strip.
    pub fn title(self) -> &'static str {
        match self {
            Self::Plan => "Plan",
            Self::Artifacts => "Artifacts",
            Self::Files => "Files",
            Self::Memory => "Memory",
            Self::Context => "Context",
            Self::Tree => "Tree",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tab| tab.word() == word)
    }
}

/// What stands beside a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaneChoice {
    Tab(Tab),
    Closed,
}

impl PaneChoice {
    /// The word in the address.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tab(tab) => tab.word(),
            Self::Closed => "closed",
        }
    }

    /// A word that means nothing is no choice.
    pub fn parse(word: &str) -> Option<Self> {
        if word == Self::Closed.word() { Some(Self::Closed) } else { Tab::parse(word).map(Self::Tab) }
    }

    fn tab(self) -> Option<Tab> {
        if let Self::Tab(tab) = self { Some(tab) } else { None }
    }
}

/// What a reader asks to see beside the conversation, and which place in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PaneSelection {
    /// What the address names. A narrow screen shows a tab that it names instead of the conversation.
    pub named: Option<PaneChoice>,
    /// What the page shows that a stream is for.
    pub shown: Option<PaneChoice>,
    /// A place in the tab, such as `history`; empty for its front, which the stream keeps current.
    pub at: String,
    /// A stream asks.
    is_stream: bool,
}

impl PaneSelection {
    /// From the address.
    pub fn of(pane: Option<&str>, at: Option<&str>) -> Self {
        let named = pane.and_then(PaneChoice::parse);
        let at = at.filter(|at| named.and_then(PaneChoice::tab).is_some() && at.len() <= MAX_PLACE_BYTES);
        Self { named, shown: None, at: at.unwrap_or_default().to_owned(), is_stream: false }
    }

    /// From the address of a stream, which also says what its page shows without naming it.
    pub fn of_stream(pane: Option<&str>, shown: Option<&str>) -> Self {
        Self { shown: shown.and_then(PaneChoice::parse), is_stream: true, ..Self::of(pane, None) }
    }

    fn on(tab: Tab) -> Self {
        Self { named: Some(PaneChoice::Tab(tab)), ..Self::default() }
    }

    /// `talk` or `pane`: what a narrow screen shows.
    pub fn view(&self) -> &'static str {
        if self.named_tab().is_some() { "pane" } else { "talk" }
    }

    /// Whether a stream for it shows this tab.
    pub fn shows(&self, tab: Tab) -> bool {
        self.named.or(self.shown) == Some(PaneChoice::Tab(tab))
    }

    fn named_tab(&self) -> Option<Tab> {
        self.named.and_then(PaneChoice::tab)
    }
}

/// What the database holds for a pane.
#[derive(Clone, Debug)]
pub struct PaneData {
    /// What is shown; `None`: nothing was chosen, and there is nothing to show yet.
    choice: Option<PaneChoice>,
    /// What the reader chose last.
    kept: Option<PaneChoice>,
    body: TabData,
    counts: Counts,
}

#[derive(Clone, Debug)]
enum TabData {
    Closed,
    Plan(Box<plan::PlanPane>),
    Artifacts(artifacts::ArtifactsPane),
    Files(files::FilesPane),
    Memory(Box<memory::MemoryPane>),
    Context(Box<context::ContextPane>),
    Tree(Box<tree::TreePane>),
}

/// Numbers in the strip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Steps of the plan that are done, and all.
    steps: (usize, usize),
    /// Changes of the plan and approvals that wait for a person.
    proposals: usize,
    artifacts: u64,
    files: u64,
    /// Changes of `MEMORY.md` that wait for a person.
    memory: usize,
    /// Share of the window that the newest request took, percent.
    context: Option<u64>,
    /// Tasks of the tree; 0 without one.
    tree: u64,
}

impl PaneData {
    /// What this reader sees now: what the address names, else what they chose last, else what there is: the plan, or the
    /// artifacts, or nothing.
    pub async fn load(
        board: &Board,
        team: &TeamId,
        session: &Session,
        reader: Option<&OperatorId>,
        asked: &PaneSelection,
    ) -> Result<Self> {
        let mut held = board.db.reader_of(team).await?;
        let tx = &mut held;
        let (facts, plan) = plan::read_facts(tx, session, db::panes::facts_query(reader, &session.id)).await?;
        let [proposals, memory] = db::proposals::waiting(tx, &session.id).await?;
        let tree = db::tasks::delegations::newest_of_session(tx, &session.id).await?;
        let counts = Counts {
            steps: plan.progress,
            proposals: proposals + usize::from(facts.asks),
            artifacts: facts.artifacts,
            files: facts.files,
            memory,
            context: facts.context.map(|(used, window)| percent(used, window)),
            tree: tree.as_ref().map_or(0, |(_, made)| made + 1),
        };
        let kept = facts.choice.as_deref().and_then(PaneChoice::parse);
        let there = match (plan.exists || counts.proposals > 0, facts.artifacts > 0) {
            (true, _) => Some(PaneChoice::Tab(Tab::Plan)),
            (false, true) => Some(PaneChoice::Tab(Tab::Artifacts)),
            (false, false) => None,
        };
        let choice = asked.named.or(asked.shown).or(kept).or(there);
        let body = match choice.and_then(PaneChoice::tab) {
            None => TabData::Closed,
            Some(Tab::Plan) => TabData::Plan(Box::new(plan::PlanPane::read(tx, session, &asked.at).await?)),
            Some(Tab::Artifacts) => TabData::Artifacts(artifacts::ArtifactsPane::read(tx, session).await?),
            Some(Tab::Files) => TabData::Files(files::FilesPane::read(tx, session, &asked.at).await?),
            Some(Tab::Memory) => TabData::Memory(Box::new(memory::MemoryPane::read(tx, session, &asked.at).await?)),
            Some(Tab::Tree) => {
                let root = tree.as_ref().map(|(root, _)| root);
                TabData::Tree(Box::new(tree::TreePane::read(tx, root).await?))
            }
            Some(Tab::Context) => {
                drop(held);
                TabData::Context(Box::new(context::ContextPane::read(board, team, session, asked.is_stream).await?))
            }
        };
        Ok(Self { choice, kept, body, counts })
    }

    /// What is shown, when that was chosen or opened by itself.
    pub fn choice(&self) -> Option<PaneChoice> {
        self.choice
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
    let asked = PaneSelection::on(tab);
    let conversation = Conversation::load(board, &caller.team.id, session, None).await?;
    let data = PaneData::load(board, &caller.team.id, &conversation.session, caller.reader(), &asked).await?;
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
            TabData::Closed => render(&ClosedPane { body: None }),
            TabData::Plan(data) => render(&plan::PlanView::of(data, &self.context)),
            TabData::Artifacts(data) => render(&artifacts::ArtifactsView::of(data, &self.context)),
            TabData::Files(data) => render(&files::FilesView::of(data, &self.context)),
            TabData::Memory(data) => render(&memory::MemoryView::of(data, &self.context)),
            TabData::Context(data) => render(&context::ContextView::of(data, &self.context)),
            TabData::Tree(data) => render(&tree::TreeView::of(data, &self.context)),
        }?;
        if html.len() <= MAX_TAB_BYTES {
            return Ok(html);
        }
        let PaneContext { slug, session, viber, .. } = &self.context;
        let tab = self.data.choice.and_then(PaneChoice::tab).unwrap_or_default();
        render(&OversizedTab {
            tab: tab.word(),
            front: self.asked.at.is_empty(),
            text: (tab == Tab::Plan && self.asked.at.is_empty()).then(|| urls::pane_at(slug, session, "plan", "edit")),
            folder: urls::folder(slug, viber, &format!("sessions/{session}")),
        })
    }

    /// The same without ages, to compare two of them.
    pub fn ageless(&self) -> Result<String> {
        let context = PaneContext { now: Instant(0), ..self.context.clone() };
        Pane { context, asked: self.asked, data: self.data }.body()
    }

    /// The tab that opened by itself, in place of what a closed pane has.
    pub fn opened(&self) -> Result<String> {
        render(&ClosedPane { body: Some(self.body()?) })
    }

    /// How full the window is, for the bar.
    pub fn gauge(&self) -> Result<String> {
        let href = urls::pane(&self.context.slug, &self.context.session, Tab::Context.word());
        render(&Gauge { href, percent: self.data.counts.context })
    }

    /// The strip.
    pub fn strip(&self) -> Result<String> {
        let PaneContext { slug, session, .. } = &self.context;
        let Counts { steps, proposals, artifacts, files, memory, context, tree } = self.data.counts;
        let shown = self.data.choice.and_then(PaneChoice::tab);
        // Most tasks ask for no others.
        let there = Tab::ALL.iter().filter(|tab| **tab != Tab::Tree || tree > 0 || shown == Some(Tab::Tree));
        let tabs = there.map(|tab| Link {
            title: tab.title(),
            href: urls::pane(slug, session, tab.word()),
            count: match tab {
                Tab::Plan if steps.1 > 0 => Some((format!("{}/{}", steps.0, steps.1), "steps done")),
                Tab::Artifacts => count(artifacts, "artifacts", db::panes::MAX_COUNTED),
                Tab::Files => count(files, "files changed", db::touched_files::MAX_TOUCHED_FILES),
                Tab::Context => context.map(|percent| (format!("{percent} %"), "of the window are used")),
                Tab::Tree => count(tree, "tasks", u64::MAX),
                Tab::Plan | Tab::Memory => None,
            },
            waits: match tab {
                Tab::Plan => proposals,
                Tab::Memory => memory,
                Tab::Artifacts | Tab::Files | Tab::Context | Tab::Tree => 0,
            },
            named: self.asked.named_tab() == Some(*tab),
            shown: shown == Some(*tab),
        });
        render(&Strip {
            conversation: urls::session(slug, session),
            keep: urls::session_verb(slug, session, "pane"),
            on_talk: self.asked.named_tab().is_none(),
            open: shown.is_some(),
            asks_about_plan: matches!(&self.data.body, TabData::Plan(plan) if plan.asks_about_itself()),
            kept: self.data.kept.map_or("", PaneChoice::word),
            shown: shown.map_or("", Tab::word),
            tabs: tabs.collect(),
        })
    }
}

/// `POST /t/{team}/sessions/{id}/pane`: what the reader wants to see beside this session, from now on.
pub async fn choose(
    State(board): State<Board>,
    caller: AsViewer,
    Id(id): Id<SessionId>,
    wants: Wants,
    Form(form): Form<PaneForm>,
) -> Result<Response, Rejection> {
    let wanted = PaneChoice::parse(&form.pane).ok_or_else(|| Error::Malformed("unknown tab".to_owned()))?;
    if let Some(operator) = &caller.operator {
        let chosen = actions::panes::ChosenPane { session: id.clone(), pane: wanted.word() };
        actions::panes::choose(&board, &caller.team.id, &caller.by, &operator.id, chosen).await?;
    }
    if wants == Wants::Fragment {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let to = match wanted {
        PaneChoice::Tab(tab) => urls::pane(&caller.team.slug, &id, tab.word()),
        PaneChoice::Closed => urls::session(&caller.team.slug, &id),
    };
    Ok(Redirect::to(&to).into_response())
}

/// A tab's word, or `closed`.
#[derive(Debug, Deserialize)]
pub struct PaneForm {
    pane: String,
}

/// A pane that shows nothing, or what it shows since it opened by itself.
#[derive(Template)]
#[template(path = "documents/pane/_closed.html")]
struct ClosedPane {
    body: Option<String>,
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

/// How full the window is: a region of the live stream.
#[derive(Template)]
#[template(path = "documents/context/_gauge.html")]
struct Gauge {
    href: String,
    /// `None` until an agent has reported it.
    percent: Option<u64>,
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
        assert_eq!((asked.named_tab(), asked.view(), asked.at.as_str()), (Some(Tab::Plan), "pane", "history"));
        for odd in [Some(""), Some("nothing"), Some("../plan"), None] {
            let asked = PaneSelection::of(odd, Some("history"));
            assert_eq!((asked.named, asked.view(), asked.at.as_str()), (None, "talk", ""), "{odd:?}");
        }
        assert_eq!(PaneSelection::of(Some("plan"), Some(&"x".repeat(65))).at, "");
        let closed = PaneSelection::of(Some("closed"), Some("history"));
        assert_eq!((closed.named, closed.view(), closed.at.as_str()), (Some(PaneChoice::Closed), "talk", ""));
    }
}
