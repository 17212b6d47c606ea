//! What the palette finds: sessions, vibers, places to go to. What can be done on the page itself, the page knows.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use protocol::Instant;
use serde::Deserialize;

use crate::{
    db::{
        self,
        sessions::{SessionFilter, TitleSearch},
    },
    domain::{Role, Viber, ViberFilter},
    state::Board,
    web::{
        AsViewer, Rejection, html,
        pages::{sessions::SessionRow, settings, vibers},
        urls,
        view::{Badge, filters},
    },
};

/// Sessions and vibers that are shown; typing on finds the others.
const MAX_HITS: usize = 6;

/// What is looked for; absent: the palette itself and the sheet of keys are wanted too.
#[derive(Debug, Deserialize)]
pub struct PaletteQuery {
    q: Option<String>,
}

#[derive(Template)]
#[template(path = "rail/_palette.html")]
struct Palette {
    slug: String,
    q: String,
    /// Whether the dialogs are wanted, not only what stands in one.
    is_whole: bool,
    now: Instant,
    sessions: Vec<SessionRow>,
    vibers: Vec<(Badge, Viber)>,
    places: Vec<Place>,
}

impl Palette {
    fn messages(&self) -> String {
        urls::search(&self.slug, &[("q", &self.q)])
    }
}

/// A page to go to.
struct Place {
    href: String,
    icon: &'static str,
    title: &'static str,
    /// The pages among which it is; empty for one of the rail's own.
    within: &'static str,
    /// The letter after `g` that leads there.
    key: &'static str,
}

/// `GET /t/{team}/palette`
pub async fn show(
    State(board): State<Board>,
    caller: AsViewer,
    Query(asked): Query<PaletteQuery>,
) -> Result<Html<String>, Rejection> {
    let slug = caller.team.slug.clone();
    let is_whole = asked.q.is_none();
    let q = protocol::text::head(asked.q.unwrap_or_default().trim(), 200).to_owned();
    let (sessions, found) = {
        let mut tx = board.db.reader_of(&caller.team.id).await?;
        let (filter, title) = (SessionFilter::default(), db::clean(&q));
        let search = TitleSearch { reader: caller.reader(), filter: &filter, title: &title };
        let sessions = db::sessions::search(&mut tx, search, None, MAX_HITS).await?;
        let vibers = match q.is_empty() {
            true => Vec::new(),
            false => db::vibers::search(&mut tx, ViberFilter::All, &title, None, MAX_HITS).await?.vibers,
        };
        (sessions.lines, vibers)
    };
    let words = q.to_lowercase();
    let mut places = places(&slug, caller.role >= Role::Admin);
    places.retain(|place| place.title.to_lowercase().contains(&words));
    html(&Palette {
        is_whole,
        now: board.clock.now(),
        sessions: sessions.into_iter().map(SessionRow::from).collect(),
        vibers: found.into_iter().map(|viber| (vibers::state(&viber), viber)).collect(),
        places,
        slug,
        q,
    })
}

fn places(slug: &str, is_admin: bool) -> Vec<Place> {
    let rail = [
        (urls::home(slug), "new", "New task", "c"),
        (urls::sessions(slug), "chat", "Sessions", "g l"),
        (urls::vibers(slug), "viber", "Vibers", "g v"),
        (urls::skills(slug), "skill", "Skills", "g k"),
        (urls::playbooks(slug), "playbook", "Playbooks", "g p"),
        (urls::playbooks(slug), "play", "Run a playbook…", ""),
        (urls::settings(slug), "settings", "Settings", "g s"),
        (urls::account().to_owned(), "lock", "Your account", ""),
    ];
    let rail = rail.map(|(href, icon, title, key)| Place { href, icon, title, within: "", key });
    let settings = settings::pages(is_admin).map(|(page, title)| Place {
        href: urls::settings_page(slug, page),
        icon: "settings",
        title,
        within: "Settings",
        key: "",
    });
    rail.into_iter().chain(settings).collect()
}
