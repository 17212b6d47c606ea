//! The tab Files: what changed in the spaces of the session's agent, and what changed last in the workspace of its viber.
//! What changed in a space is asked of the viber by whoever looks at it (`static/changes.js`), never kept with the pane.

use std::collections::HashMap;

use askama::Template;
use protocol::{SessionId, ViberId};

use super::PaneContext;
use crate::{
    db::{self, TeamTx},
    domain::{File, Session, Space, file::session_of},
    error::Result,
    web::{urls, view::filters},
};

/// Files that are shown.
const MAX_RECENT_FILES: u64 = 40;
/// Spaces that are looked at unasked: each look is work for the viber. The others are links.
const MAX_LOOKED_SPACES: usize = 4;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct FilesPane {
    viber: ViberId,
    folder: String,
    files: Vec<File>,
    /// The titles of the sessions whose folders the files lie in.
    titles: HashMap<SessionId, String>,
    spaces: Vec<Space>,
    /// The space that is looked into.
    chosen: Option<Space>,
}

impl FilesPane {
    /// As it is now.
    pub async fn read(tx: &mut TeamTx<'_>, session: &Session, at: &str) -> Result<Self> {
        let files = db::files::recent(tx, &session.viber_id, MAX_RECENT_FILES).await?;
        let agents = db::vibers::load(tx, &session.viber_id).await?.map(|viber| viber.agents).unwrap_or_default();
        let own: Vec<_> = agents.into_iter().filter(|agent| agent.id == session.agent_id).collect();
        let spaces = Space::all(&own);
        let chosen = at.strip_prefix("space.").and_then(|id| spaces.iter().find(|space| space.id == id)).cloned();
        let folder = format!("sessions/{}", session.id);
        let mut ids: Vec<_> = files.iter().filter_map(|file| session_of(&file.path)).collect();
        ids.sort_unstable();
        ids.dedup();
        let titles = db::sessions::titles(tx, &session.viber_id, &ids).await?;
        Ok(Self { viber: session.viber_id.clone(), folder, files, titles, spaces, chosen })
    }
}

/// The tab.
#[derive(Template)]
#[template(path = "documents/files/pane.html")]
pub struct FilesView<'a> {
    data: &'a FilesPane,
    context: &'a PaneContext,
}

impl<'a> FilesView<'a> {
    pub fn of(data: &'a FilesPane, context: &'a PaneContext) -> Self {
        Self { data, context }
    }

    /// The spaces that are looked at, and the others.
    fn spaces(&self) -> (&[Space], &[Space]) {
        self.data.spaces.split_at(self.data.spaces.len().min(MAX_LOOKED_SPACES))
    }

    /// The title of the session whose folder a file lies in.
    fn title(&self, file: &File) -> Option<&str> {
        session_of(&file.path).and_then(|id| self.data.titles.get(&id)).map(String::as_str)
    }

    fn file(&self, file: &File) -> String {
        urls::file(&self.context.slug, &self.data.viber, &file.path)
    }

    fn folder(&self, path: &str) -> String {
        urls::folder(&self.context.slug, &self.data.viber, path)
    }

    /// A space in this tab, and on pages of its own.
    fn space(&self, space: &Space) -> (String, String) {
        let (slug, session) = (&self.context.slug, &self.context.session);
        let at = format!("space.{}", space.id);
        let whole = urls::space(slug, &self.data.viber, &space.id, "", &[("session", session.as_str())]);
        (urls::pane_at(slug, session, "files", &at), whole)
    }

    fn front(&self) -> String {
        urls::pane(&self.context.slug, &self.context.session, "files")
    }

    fn comments(&self) -> String {
        urls::comments(&self.context.slug, &self.context.session, "")
    }

    fn by(file: &File) -> &'static str {
        match file.changed_by.as_str() {
            "agent" => "by an agent",
            "board" => "from this Board",
            _ => "on the machine",
        }
    }
}
