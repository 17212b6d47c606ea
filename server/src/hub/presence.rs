//! Who looks at a session, and who is writing in it. In memory alone: a Board that starts knows nobody, until their pages
//! have called again.
//!
//! A page looks as long as it holds its stream. Who reloads one is not gone for the moment between two streams.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use protocol::{OperatorId, SessionId, TeamId};
use tokio::{sync::watch, time::Instant};

use crate::rate_limit::{Bucket, Limit};

/// How long somebody without a stream is still there.
const LEAVE_DELAY: Duration = Duration::from_secs(2);
/// How long somebody is writing after their page said so.
const WRITING_TIME: Duration = Duration::from_secs(6);
/// How often a person's pages may say that somebody is writing: once in three seconds, and once more for a second page.
const WRITING_LIMIT: Limit = Limit { burst: 2, refill: 1, period_ms: 3_000 };
/// People who are named; of the others only their number is told.
const MAX_NAMED_PEOPLE: usize = 20;
/// Longest name that is kept, bytes.
const MAX_NAME_BYTES: usize = 200;

/// Who else is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Names of those who look, in the order in which they came, at most [`MAX_NAMED_PEOPLE`].
    pub looking: Vec<String>,
    /// How many more look.
    pub others: usize,
    /// Names of those of them who are writing.
    pub writing: Vec<String>,
}

/// A page that looks at a session, until it is dropped.
pub struct Looker {
    room: Arc<Room>,
    rooms: Rooms,
    key: (TeamId, SessionId),
    /// `None`: a token, which is nobody.
    who: Option<OperatorId>,
    changes: watch::Receiver<u64>,
}

type Rooms = Arc<Mutex<HashMap<(TeamId, SessionId), Arc<Room>>>>;

#[derive(Default)]
pub(super) struct Presences {
    rooms: Rooms,
}

struct Room {
    people: Mutex<People>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct People {
    /// Pages that look, those of tokens included.
    pages: usize,
    came: u64,
    by_id: HashMap<OperatorId, Visitor>,
}

struct Visitor {
    name: String,
    /// Their place among those who came.
    came: u64,
    pages: usize,
    left: Option<Instant>,
    writing_until: Option<Instant>,
    limit: Bucket,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Presences {
    /// Somebody's page looks at a session from now on.
    pub fn look(&self, team: &TeamId, session: &SessionId, who: Option<(&OperatorId, &str)>, now: i64) -> Looker {
        let key = (team.clone(), session.clone());
        let mut rooms = lock(&self.rooms);
        let room = rooms
            .entry(key.clone())
            .or_insert_with(|| Arc::new(Room { people: Mutex::default(), changes: watch::Sender::new(0) }))
            .clone();
        let mut people = lock(&room.people);
        people.pages += 1;
        if let Some((id, name)) = who {
            people.came += 1;
            let came = people.came;
            let person = people.by_id.entry(id.clone()).or_insert_with(|| Visitor {
                name: protocol::text::head(name, MAX_NAME_BYTES).to_owned(),
                came,
                pages: 0,
                left: None,
                writing_until: None,
                limit: Bucket::new(WRITING_LIMIT, now),
            });
            person.pages += 1;
            person.left = None;
        }
        drop(people);
        room.tell();
        let changes = room.changes.subscribe();
        Looker { room, rooms: self.rooms.clone(), key, who: who.map(|(id, _)| id.clone()), changes }
    }

    /// Somebody who looks at the session is writing. `Err`: they said so too often; seconds until they may again. Of whoever
    /// does not look nothing is kept.
    pub fn write(&self, team: &TeamId, session: &SessionId, who: &OperatorId, now: i64) -> Result<(), u64> {
        let Some(room) = lock(&self.rooms).get(&(team.clone(), session.clone())).cloned() else { return Ok(()) };
        let mut people = lock(&room.people);
        let Some(person) = people.by_id.get_mut(who) else { return Ok(()) };
        match person.limit.wait(1, now) {
            0 => person.limit.spend(1, now),
            wait_ms => return Err(wait_ms.div_ceil(1_000)),
        }
        let at = Instant::now();
        let began = person.writing_until.is_none_or(|until| until <= at);
        person.writing_until = Some(at + WRITING_TIME);
        drop(people);
        if began {
            room.tell();
        }
        Ok(())
    }

    /// Somebody has sent what they wrote.
    pub fn sent(&self, team: &TeamId, session: &SessionId, who: &OperatorId) {
        let Some(room) = lock(&self.rooms).get(&(team.clone(), session.clone())).cloned() else { return };
        if let Some(person) = lock(&room.people).by_id.get_mut(who) {
            person.writing_until = None;
        }
        room.tell();
    }
}

impl Room {
    fn tell(&self) {
        self.changes.send_modify(|n| *n += 1);
    }
}

impl Looker {
    /// Somebody came, left, or writes. Safe to drop before it completes.
    pub async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Who else is there now, and until when that stays so if nobody does anything.
    pub fn others(&mut self) -> (Presence, Option<Instant>) {
        self.others_at(Instant::now())
    }

    fn others_at(&mut self, now: Instant) -> (Presence, Option<Instant>) {
        self.changes.mark_unchanged();
        let mut people = lock(&self.room.people);
        people.by_id.retain(|_, person| person.pages > 0 || person.left.is_some_and(|left| left + LEAVE_DELAY > now));
        let others = people.by_id.iter().filter(|(id, _)| self.who.as_ref() != Some(*id));
        let mut there: Vec<&Visitor> = others.map(|(_, person)| person).collect();
        there.sort_by_key(|person| person.came);
        let leave = there.iter().filter_map(|person| Some(person.left? + LEAVE_DELAY)).min();
        let is_writing = |person: &&Visitor| person.writing_until.is_some_and(|until| until > now);
        let writing: Vec<&Visitor> = there.iter().copied().filter(is_writing).collect();
        let stop = writing.iter().filter_map(|person| person.writing_until).min();
        let presence = Presence {
            looking: names(&there),
            others: there.len().saturating_sub(MAX_NAMED_PEOPLE),
            writing: names(&writing),
        };
        (presence, [leave, stop].into_iter().flatten().min())
    }
}

fn names(people: &[&Visitor]) -> Vec<String> {
    people.iter().take(MAX_NAMED_PEOPLE).map(|person| person.name.clone()).collect()
}

impl Drop for Looker {
    fn drop(&mut self) {
        let mut rooms = lock(&self.rooms);
        let mut people = lock(&self.room.people);
        people.pages -= 1;
        if people.pages == 0 {
            rooms.remove(&self.key);
        }
        if let Some(person) = self.who.as_ref().and_then(|who| people.by_id.get_mut(who)) {
            person.pages -= 1;
            if person.pages == 0 {
                person.left = Some(Instant::now());
                person.writing_until = None;
            }
        }
        drop(people);
        self.room.tell();
    }
}

impl fmt::Debug for Looker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looker").field("key", &self.key).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> (TeamId, SessionId, OperatorId, OperatorId) {
        (TeamId::new(1), SessionId::new(1), OperatorId::new(1), OperatorId::new(1))
    }

    /// Names of those who look and who write after this long.
    fn seen(looker: &mut Looker, later: Duration) -> (Vec<String>, Vec<String>) {
        let (presence, _) = looker.others_at(Instant::now() + later);
        (presence.looking, presence.writing)
    }

    fn yuki_alone() -> Vec<String> {
        vec!["Yuki".to_owned()]
    }

    #[tokio::test]
    async fn others_come_write_and_leave() {
        let (presences, (team, session, ines, yuki)) = (Presences::default(), ids());
        let mut ours = presences.look(&team, &session, Some((&ines, "Inès")), 0);
        let _second_page = presences.look(&team, &session, Some((&ines, "Inès")), 0);
        assert_eq!(seen(&mut ours, Duration::ZERO), (vec![], vec![]), "one's own pages are not shown");
        let theirs = presences.look(&team, &session, Some((&yuki, "Yuki")), 0);
        ours.changed().await;
        assert_eq!(seen(&mut ours, Duration::ZERO), (yuki_alone(), vec![]));
        presences.write(&team, &session, &yuki, 0).expect("the first time");
        ours.changed().await;
        let (presence, until) = ours.others();
        assert_eq!(presence.writing, yuki_alone());
        let until = until.expect("it ends by itself");
        assert_eq!(ours.others_at(until).0.writing, Vec::<String>::new());
        presences.sent(&team, &session, &yuki);
        ours.changed().await;
        assert_eq!(seen(&mut ours, Duration::ZERO), (yuki_alone(), vec![]));
        // A reload is no absence.
        drop(theirs);
        ours.changed().await;
        let (presence, until) = ours.others();
        assert_eq!((presence.looking, until.is_some()), (yuki_alone(), true), "for a moment");
        let theirs = presences.look(&team, &session, Some((&yuki, "Yuki")), 0);
        assert_eq!(seen(&mut ours, LEAVE_DELAY * 2).0, yuki_alone());
        drop(theirs);
        assert_eq!(seen(&mut ours, LEAVE_DELAY * 2), (vec![], vec![]));
    }

    #[tokio::test]
    async fn a_room_ends_with_its_last_page_and_is_of_one_team() {
        let (presences, (team, session, ines, yuki)) = (Presences::default(), ids());
        let mut ours = presences.look(&team, &session, Some((&ines, "Inès")), 0);
        let elsewhere = presences.look(&TeamId::new(1), &session, Some((&yuki, "Yuki")), 0);
        let token = presences.look(&team, &session, None, 0);
        assert_eq!(seen(&mut ours, Duration::ZERO), (vec![], vec![]));
        drop(ours);
        assert_eq!(lock(&presences.rooms).len(), 2);
        drop((elsewhere, token));
        assert!(lock(&presences.rooms).is_empty());
        presences.write(&team, &session, &ines, 0).expect("nobody is there");
        assert!(lock(&presences.rooms).is_empty());
    }

    #[tokio::test]
    async fn writing_is_told_so_often_and_names_are_bounded() {
        let (presences, (team, session, ines, _)) = (Presences::default(), ids());
        let mut ours = presences.look(&team, &session, Some((&ines, "Inès")), 0);
        let told = (0..100).filter(|_| presences.write(&team, &session, &ines, 0).is_ok()).count();
        assert_eq!(told, 2);
        assert_eq!(presences.write(&team, &session, &ines, 0), Err(3));
        let many: Vec<Looker> = (0..25)
            .map(|n| presences.look(&team, &session, Some((&OperatorId::new(1), &format!("Person {n}"))), 0))
            .collect();
        let (presence, _) = ours.others();
        assert_eq!((presence.looking.len(), presence.others), (MAX_NAMED_PEOPLE, 5));
        assert_eq!(presence.looking[0], "Person 0");
        drop(many);
    }
}
