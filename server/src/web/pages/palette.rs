//! What the palette finds: sessions, playbooks, vibers, places to go to. What can be done on the page itself, the page knows.

use askama::Template;
use axum::{
    extract::{Query, State},
    response::Html,
};
use futures_util::future::join_all;
use protocol::{Instant, PLAYBOOKS_CAPABILITY};
use serde::Deserialize;

use crate::{
    actions::playbooks,
    db::{
        self,
        sessions::{SessionFilter, TitleSearch},
    },
    domain::{Role, Viber, ViberFilter},
    error::Result as BoardResult,
    state::Board,
    web::{
        AsViewer, Rejection,
        extract::Caller,
        html,
        pages::{sessions::SessionRow, settings, vibers},
        urls,
        view::{Badge, filters},
    },
};

/// Sessions and vibers that are shown; typing on finds the others.
const MAX_HITS: usize = 6;
/// Connected vibers whose playbooks are looked for.
const MAX_LOOKED_AT_VIBERS: usize = 20;

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
    playbooks: Vec<PlaybookHit>,
    vibers: Vec<(Badge, Viber)>,
    places: Vec<Place>,
}

/// A playbook that can be run.
struct PlaybookHit {
    /// Its form.
    href: String,
    name: String,
    viber: String,
}

impl PlaybookHit {
    /// Those on connected vibers that `words` name, as in `release`, `run release`, `run release lab`.
    async fn find(board: &Board, caller: &Caller, words: &str) -> BoardResult<Vec<Self>> {
        if words.is_empty() || caller.role < Role::Operator {
            return Ok(Vec::new());
        }
        let online = {
            let mut tx = board.db.reader_of(&caller.team.id).await?;
            db::vibers::search(&mut tx, ViberFilter::Online, "", None, MAX_LOOKED_AT_VIBERS).await?.vibers
        };
        let can_run = |viber: &&Viber| viber.capabilities.iter().any(|known| known == PLAYBOOKS_CAPABILITY);
        let looks = online
            .iter()
            .filter(can_run)
            .map(|viber| async move { (viber, playbooks::playbook_names(board, &caller.team.id, &viber.id).await) });
        let mut hits = Vec::new();
        for (viber, names) in join_all(looks).await {
            let wanted = names?.into_iter().filter(|name| is_meant(words, name, &viber.name));
            hits.extend(wanted.map(|name| Self {
                href: urls::viber_playbook(&caller.team.slug, &viber.id, &name),
                viber: viber.name.clone(),
                name,
            }));
        }
        hits.truncate(MAX_HITS);
        Ok(hits)
    }
}

/// Whether words in lower case name this playbook: all of them are in its command, and one in its name unless they begin with
/// `run`.
fn is_meant(words: &str, name: &str, viber: &str) -> bool {
    let (name, command) = (name.to_lowercase(), format!("run {name} on {viber}").to_lowercase());
    let all = words.split_whitespace().all(|word| command.contains(word));
    all && words.split_whitespace().enumerate().any(|(n, word)| name.contains(word) || (n == 0 && word == "run"))
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
        let filter = SessionFilter { own: q.is_empty(), ..SessionFilter::default() };
        let title = db::clean(&q);
        let search = TitleSearch { reader: caller.reader(), filter: &filter, title: &title };
        let sessions = db::sessions::search(&mut tx, search, None, MAX_HITS).await?;
        let vibers = match q.is_empty() {
            true => Vec::new(),
            false => db::vibers::search(&mut tx, ViberFilter::All, &title, None, MAX_HITS).await?.vibers,
        };
        (sessions.lines, vibers)
    };
    let words = q.to_lowercase();
    let playbooks = PlaybookHit::find(&board, &caller, &words).await?;
    let mut places = places(&slug, caller.role >= Role::Admin);
    places.retain(|place| place.title.to_lowercase().contains(&words));
    html(&Palette {
        is_whole,
        now: board.clock.now(),
        sessions: sessions.into_iter().map(SessionRow::from).collect(),
        playbooks,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playbook_is_found_by_its_name_and_as_a_command() {
        for words in ["release", "release-feature", "run release", "run", "run lab", "release lab"] {
            assert!(is_meant(words, "Release-feature", "Lab"), "{words}");
        }
        for words in ["lab", "on", "run away", "release den"] {
            assert!(!is_meant(words, "Release-feature", "Lab"), "{words}");
        }
    }
}
