//! The tab Files: what changed last in the workspace of the session's viber, and the way to all of it.

use askama::Template;
use protocol::{TeamId, ViberId};

use super::Place;
use crate::{
    db::{self, Tx},
    domain::{File, Session},
    error::Result,
    web::{links, view::filters},
};

/// Files that are shown.
const FILES: u64 = 40;

/// What the database holds for this tab.
#[derive(Clone, Debug)]
pub struct Held {
    viber: ViberId,
    folder: String,
    files: Vec<File>,
}

impl Held {
    /// As it is now.
    pub async fn read(tx: &mut Tx, team: &TeamId, session: &Session) -> Result<Self> {
        let files = db::files::recent(tx, team, &session.viber_id, FILES).await?;
        Ok(Self { viber: session.viber_id.clone(), folder: format!("sessions/{}", session.id), files })
    }
}

/// The tab.
#[derive(Template)]
#[template(path = "sessions/pane_files.html")]
pub struct FilesView<'a> {
    held: &'a Held,
    place: &'a Place,
}

impl<'a> FilesView<'a> {
    pub fn of(held: &'a Held, place: &'a Place) -> Self {
        Self { held, place }
    }

    fn file(&self, file: &File) -> String {
        links::file(&self.place.slug, &self.held.viber, &file.path)
    }

    fn folder(&self, path: &str) -> String {
        links::folder(&self.place.slug, &self.held.viber, path)
    }

    fn by(file: &File) -> &'static str {
        match file.changed_by.as_str() {
            "agent" => "by an agent",
            "board" => "from this Board",
            _ => "on the machine",
        }
    }
}
