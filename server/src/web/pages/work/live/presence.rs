//! Who else looks at a session, and who is writing above its composer: two regions of the live stream. Without a stream
//! nobody is shown, and nobody is there.

use askama::Template;
use axum::{extract::State, http::StatusCode};
use protocol::SessionId;
use tokio::time::{Duration, Instant};

use crate::{
    db,
    domain::Role,
    error::Error,
    hub::{Looker, Presence},
    state::Board,
    web::{
        AsOperator, Rejection,
        extract::{Caller, Id},
        urls,
        view::shell::Person,
    },
};

/// Avatars in the bar; the others are a number.
const MAX_AVATARS: usize = 3;
/// Time between two looks.
const PRESENCE_INTERVAL: Duration = Duration::from_millis(250);

/// Those who look, in the session's bar.
#[derive(Clone, Debug, Default, Template)]
#[template(path = "work/presence/_looking.html")]
pub struct LookingView {
    looking: Vec<Person>,
    /// How many more look than are named.
    others: usize,
}

impl LookingView {
    fn shown(&self) -> &[Person] {
        &self.looking[..self.looking.len().min(MAX_AVATARS)]
    }

    fn not_shown(&self) -> usize {
        self.looking.len() + self.others - self.shown().len()
    }

    fn everybody(&self) -> String {
        listed(&self.looking, self.looking.len(), self.others)
    }
}

/// Those who are writing, above the composer.
#[derive(Clone, Debug, Template)]
#[template(path = "work/presence/_writing.html")]
pub struct WritingView {
    writing: Vec<Person>,
    /// Where the page says that its reader is writing; `None` for who may not write.
    address: Option<String>,
}

impl WritingView {
    /// Nobody is writing, as far as a page without a stream knows.
    pub fn empty(caller: &Caller, session: &SessionId) -> Self {
        let address = || urls::session_verb(&caller.team.slug, session, "writing");
        Self { writing: Vec::new(), address: (caller.role >= Role::Operator).then(address) }
    }

    fn words(&self) -> String {
        let are = if self.writing.len() == 1 { "is" } else { "are" };
        format!("{} {are} writing", listed(&self.writing, 2, 0))
    }
}

/// The first names of a list, and how many more there are.
fn listed(people: &[Person], most: usize, others: usize) -> String {
    let named = &people[..people.len().min(most)];
    let rest = people.len() - named.len() + others;
    let names: Vec<&str> = named.iter().map(|person| person.name.as_str()).collect();
    match (names.as_slice(), rest) {
        ([all @ .., last], 0) if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        (all, 0) => all.join(", "),
        (all, rest) => format!("{} and {rest} more", all.join(", ")),
    }
}

/// Somebody's page in a session: it is seen by others, and sees them.
#[derive(Debug)]
pub struct WatchedPresence {
    looker: Looker,
    /// When to look, at the latest.
    due: Option<Instant>,
    looked_at: Instant,
    session: SessionId,
}

impl WatchedPresence {
    pub fn new(board: &Board, caller: &Caller, session: &SessionId) -> Self {
        let who = caller.operator.as_ref().map(|operator| (&operator.id, operator.name.as_str()));
        let looker = board.hub.look(&caller.team.id, session, who, board.clock.monotonic());
        let now = Instant::now();
        Self { looker, due: Some(now), looked_at: now, session: session.clone() }
    }

    /// Who is there now.
    fn look(&mut self, caller: &Caller) -> (LookingView, WritingView) {
        let (Presence { looking, others, writing }, until) = self.looker.others();
        (self.looked_at, self.due) = (Instant::now(), until);
        let people = |names: Vec<String>| names.iter().map(|name| Person::new(name)).collect();
        let writing = WritingView { writing: people(writing), ..WritingView::empty(caller, &self.session) };
        (LookingView { looking: people(looking), others }, writing)
    }
}

/// Completes when it is time to look, with what is seen; never when nothing is watched.
pub async fn next(watched: &mut Option<WatchedPresence>, caller: &Caller) -> (LookingView, WritingView) {
    let Some(watched) = watched else { return std::future::pending().await };
    loop {
        let due = watched.due;
        tokio::select! {
            () = watched.looker.changed() => {
                let soon = watched.looked_at + PRESENCE_INTERVAL;
                watched.due = Some(due.map_or(soon, |due| due.min(soon)));
            }
            () = tokio::time::sleep_until(due.unwrap_or(watched.looked_at)), if due.is_some() => {
                return watched.look(caller);
            }
        }
    }
}

/// `POST /t/{team}/sessions/{id}/writing`: the caller is writing. Kept for some seconds, and only while they look.
pub async fn write(
    State(board): State<Board>,
    caller: AsOperator,
    Id(id): Id<SessionId>,
) -> Result<StatusCode, Rejection> {
    let found = db::sessions::load(&mut board.db.reader_of(&caller.team.id).await?, &id).await?;
    found.ok_or(Error::NotFound)?;
    if let Some(operator) = &caller.operator {
        let told = board.hub.writes(&caller.team.id, &id, &operator.id, board.clock.monotonic());
        told.map_err(|retry_after| Error::Throttled { retry_after })?;
    }
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(names: &[&str]) -> Vec<Person> {
        names.iter().map(|name| Person::new(name)).collect()
    }

    #[test]
    fn everybody_is_told_in_words() {
        let writing = |names: &[&str]| WritingView { writing: people(names), address: None };
        assert_eq!(writing(&["Yuki"]).words(), "Yuki is writing");
        assert_eq!(writing(&["Yuki", "Inès"]).words(), "Yuki and Inès are writing");
        assert_eq!(writing(&["Yuki", "Inès", "Bo", "Al"]).words(), "Yuki, Inès and 2 more are writing");
        let all = LookingView { looking: people(&["Yuki", "Inès", "Bo", "Al"]), others: 5 };
        assert_eq!((all.everybody().as_str(), all.not_shown()), ("Yuki, Inès, Bo, Al and 5 more", 6));
    }

    #[test]
    fn a_name_is_text() {
        let looking = people(&["<b>x</b> \"y"]);
        let html = LookingView { looking: looking.clone(), others: 0 }.to_string();
        assert!(!html.contains("<b>") && !html.contains("\"y\""), "{html}");
        let html = WritingView { writing: looking, address: Some("/a".into()) }.to_string();
        assert!(!html.contains("<b>") && html.contains("data-writing=\"/a\""), "{html}");
    }
}
